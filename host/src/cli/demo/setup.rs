//! The demo's configuration: the addresses it takes and the YAML text it is. What the demo runs and what it prints as a starting
//! point come from the same text.

use std::{
    io::ErrorKind,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener},
};

use anyhow::Context as _;

use super::page::Page;
use crate::config::Config;

/// Where clients connect unless the command line says otherwise.
pub const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8808);
/// Where health and metrics are unless the command line says otherwise.
pub const ADMIN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8809);
/// The path of the demo's one endpoint.
pub const PATH: &str = "/mcp";

/// What differs between one demo and another.
#[derive(Debug)]
pub struct Setup {
    pub listen: SocketAddr,
    pub admin: SocketAddr,
    /// URL of the `time` backend.
    pub time: String,
    /// URL of the `text` backend.
    pub text: String,
    /// The program that runs as the `notes` backend.
    pub program: String,
}

/// An address to take, and the one that was wanted where it was not free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    pub addr: SocketAddr,
    pub instead_of: Option<SocketAddr>,
}

/// The address asked for; or `usual`, with a free port where that one is taken.
///
/// # Errors
///
/// When the address asked for cannot be bound: an explicit wish is not replaced by something else.
pub fn address(asked: Option<SocketAddr>, usual: SocketAddr) -> anyhow::Result<Address> {
    let addr = asked.unwrap_or(usual);
    match TcpListener::bind(addr) {
        Ok(_) => Ok(Address { addr, instead_of: None }),
        Err(error) if asked.is_none() && error.kind() == ErrorKind::AddrInUse => {
            Ok(Address { addr: SocketAddr::new(addr.ip(), 0), instead_of: Some(addr) })
        }
        Err(error) => Err(error).with_context(|| format!("cannot listen on {addr}")),
    }
}

impl Setup {
    /// Reads the text by the code that reads configuration files.
    ///
    /// # Errors
    ///
    /// When it is not a valid configuration, which an address of the command line can cause.
    pub fn load(&self) -> anyhow::Result<Config> {
        // The page is the demo's output; the log joins it only where something is wrong. LOCKGATE_LOG still decides.
        let text = self.yaml() + "\nlog:\n  level: warn\n";
        let loaded = crate::config::load_text("the demo's configuration", &text)?;
        Ok(loaded.config)
    }

    fn yaml(&self) -> String {
        let Self { listen, admin, time, text, program } = self;
        // JSON strings are YAML strings, whatever is in a path. `${` would be an environment variable.
        let program = serde_json::Value::from(program.as_str()).to_string().replace("${", "$${");
        format!(
            "\
listen: {listen}
admin: {admin}

backends:
  time:
    url: {time}
  text:
    url: {text}
  notes:
    command: [{program}, demo-server, notes, --stdio]

virtual_hosts:
  {PATH}:
    backends: [time, text, notes]
    aliases:
      now: time/get_time
"
        )
    }

    /// The head of the demo's page.
    pub fn introduction(&self, page: &Page, url: &str, addresses: &[Address]) -> String {
        let mut out = format!("{} {url}\n", page.strong("Lockgate: three MCP servers behind one endpoint,"));
        for taken in addresses.iter().filter_map(|address| address.instead_of) {
            out.push_str(&page.note(&format!("{taken} is taken by another program; a free port it is.")));
        }
        let backends = [
            ("time", self.time.as_str(), "streamable HTTP"),
            ("text", self.text.as_str(), "streamable HTTP"),
            ("notes", "lockgate demo-server notes", "a child process for each session"),
        ];
        for (name, place, kind) in backends {
            let name = page.strong(&format!("{name:<6}"));
            out.push_str(&format!("  {name} {place:<34} {}\n", page.faint(kind)));
        }
        out.push('\n');
        out
    }
}

/// A configuration file to start from: that of the demo, at the usual ports, with how to start its backends.
pub fn starting_point() -> String {
    let program = std::env::current_exe().map_or_else(|_| "lockgate".to_owned(), |path| path.display().to_string());
    let setup = Setup {
        listen: LISTEN,
        admin: ADMIN,
        time: "http://127.0.0.1:8811/mcp".to_owned(),
        text: "http://127.0.0.1:8812/mcp".to_owned(),
        program: program.clone(),
    };
    format!(
        "\
# What `lockgate demo` runs. Save it as lockgate.yaml, then:
#   {program} demo-server time --http 127.0.0.1:8811 &
#   {program} demo-server text --http 127.0.0.1:8812 &
#   {program} serve --config lockgate.yaml
# Put your own servers in place of these: a `url`, or a `command` that is started for each session.
# All settings with their documentation: {program} schema
{}",
        setup.yaml()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setup(program: &str) -> Setup {
        Setup {
            listen: LISTEN,
            admin: ADMIN,
            time: "http://127.0.0.1:1/mcp".to_owned(),
            text: "http://127.0.0.1:2/mcp".to_owned(),
            program: program.to_owned(),
        }
    }

    #[test]
    fn the_demos_configuration_is_valid_wherever_the_program_is() {
        for directory in ["plain", "with space", "quo\"te: #", "${HOME}"] {
            let directory = std::env::temp_dir().join(format!("lockgate-demo-{}", std::process::id())).join(directory);
            std::fs::create_dir_all(&directory).expect("a directory for the test");
            let program = directory.join("lockgate");
            std::fs::copy("/bin/true", &program).expect("a program for the test");
            let config = setup(&program.display().to_string()).load();
            std::fs::remove_dir_all(&directory).expect("it was created");
            let config = config.unwrap_or_else(|error| panic!("{}: {error}", program.display()));
            assert_eq!(config.listen, [LISTEN]);
            assert_eq!(config.backends.len(), 3);
        }
    }

    #[test]
    fn a_taken_port_is_replaced_only_if_nobody_asked_for_it() {
        let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let taken = (taken.local_addr().expect("it is bound"), taken).0;
        let holder = TcpListener::bind(taken).expect("it was free a moment ago");
        let address_of = address(None, taken).expect("another port is free");
        assert_eq!(address_of.addr.port(), 0);
        assert_eq!(address_of.instead_of, Some(taken));
        let error = address(Some(taken), LISTEN).expect_err("it is taken");
        assert!(error.to_string().contains(&taken.to_string()));
        drop(holder);
        assert_eq!(address(Some(taken), LISTEN).expect("free again").instead_of, None);
    }
}

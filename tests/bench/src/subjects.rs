//! What is measured: ways from a client to the server, each a process of its own on the subject's core.

mod config;

use std::{fmt, process::Command, sync::Arc};

use anyhow::{Context, Result};

use crate::{
    client::Target,
    lab::Lab,
    proc,
    process::{Process, beside, find, free_address},
};

/// A kind of subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// No hop.
    Direct,
    /// A plain reverse proxy, which knows nothing of MCP.
    Nginx,
    /// Lockgate without policies.
    Bare,
    /// The same once more: how far two equal things lie apart.
    BareAgain,
    /// Lockgate as it ships.
    Lockgate,
    /// Lockgate with an alias, so that the long name is not listed.
    Aliased,
    /// Lockgate with a router that is asked about each call.
    EveryCall,
    /// rmcp's server in front, rmcp's client behind.
    Rmcp,
    /// Envoy's MCP router.
    Envoy,
    /// The crate `mcp-proxy`.
    McpProxy,
    /// Somebody else's, which runs already.
    Peer(Peer),
}

/// A gateway that runs already, in front of our server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    pub name: String,
    pub url: String,
    pub pid: Option<u32>,
}

/// One that runs.
#[derive(Debug)]
pub struct Subject {
    pub kind: Kind,
    pub target: Arc<Target>,
    process: Option<Process>,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Direct => "direct",
            Kind::Nginx => "nginx",
            Kind::Bare => "Lockgate, no policies",
            Kind::BareAgain => "no policies, again",
            Kind::Lockgate => "Lockgate",
            Kind::Aliased => "a name not listed",
            Kind::EveryCall => "asked about every call",
            Kind::Rmcp => "gateway built on rmcp",
            Kind::Envoy => "Envoy's MCP router",
            Kind::McpProxy => "mcp-proxy (crate)",
            Kind::Peer(peer) => &peer.name,
        })
    }
}

impl Kind {
    /// Ours have to work; others may be missing.
    pub fn is_ours(&self) -> bool {
        !matches!(self, Kind::Nginx | Kind::Rmcp | Kind::Envoy | Kind::McpProxy | Kind::Peer(_))
    }
}

impl std::str::FromStr for Peer {
    type Err = anyhow::Error;

    /// `NAME=URL` or `NAME=URL,PID`.
    fn from_str(text: &str) -> Result<Peer> {
        let (name, rest) = text.split_once('=').context("a peer is NAME=URL or NAME=URL,PID")?;
        let (url, pid) = match rest.rsplit_once(',') {
            Some((url, pid)) => (url, Some(pid.parse().context("what follows the comma is the id of its process")?)),
            None => (rest, None),
        };
        Target::parse(url)?;
        Ok(Peer { name: name.to_owned(), url: url.to_owned(), pid })
    }
}

impl Subject {
    /// Starts it in front of `backends`, pairs of a name and a URL. None, with a remark, where it is not installed.
    pub fn start(lab: &Lab, kind: &Kind, backends: &[(&str, String)]) -> Result<Option<Subject>> {
        Subject::start_with(lab, kind, backends, "").with_context(|| kind.to_string())
    }

    /// As `start`, with more lines in the configuration of Lockgate.
    pub fn start_with(lab: &Lab, kind: &Kind, backends: &[(&str, String)], more: &str) -> Result<Option<Subject>> {
        let first = &backends.first().context("a server is needed")?.1;
        let address = free_address()?;
        let url = |path: &str| format!("http://{address}{path}");
        let path = Target::parse(first)?.path;
        let (command, url) = match kind {
            Kind::Direct => return Ok(Some(Subject { kind: kind.clone(), target: Lab::target_of(first)?, process: None })),
            Kind::Peer(peer) => return Ok(Some(Subject { kind: kind.clone(), target: Lab::target_of(&peer.url)?, process: None })),
            Kind::Rmcp => {
                let mut command = Command::new(beside("rmcp-gateway")?);
                command.arg(first);
                let (process, url) = Process::start_announced(command, &lab.subject, &log(lab, kind, address))?;
                return Ok(Some(Subject { kind: kind.clone(), target: Lab::target_of(&url)?, process: Some(process) }));
            }
            Kind::Nginx => {
                let Some(program) = find("nginx") else {
                    lab.remark("nginx is not installed and left out: `make bench-peers` installs it where it may");
                    return Ok(None);
                };
                let folder = lab.folder.path().join(format!("nginx-{}", address.port()));
                std::fs::create_dir_all(&folder)?;
                std::fs::write(folder.join("nginx.conf"), config::nginx(address, first)?)?;
                let mut command = Command::new(program);
                command.arg("-p").arg(&folder).arg("-c").arg(folder.join("nginx.conf")).args(["-e", "stderr"]);
                (command, url(&path))
            }
            Kind::Envoy => {
                let Some(program) = envoy(lab) else {
                    lab.remark("Envoy is not installed and left out: `make bench-peers` installs it");
                    return Ok(None);
                };
                let file = lab.folder.write(&format!("envoy-{}.json", address.port()), &config::envoy(address, backends)?)?;
                let mut command = Command::new(program);
                command.arg("-c").arg(file).args(["--concurrency", "1", "-l", "error", "--use-dynamic-base-id"]);
                (command, url("/mcp"))
            }
            Kind::McpProxy => {
                let Some(program) = installed(lab, "bin/mcp-proxy") else {
                    lab.remark("the crate mcp-proxy is not installed and left out: `make bench-peers PEERS=all` installs it");
                    return Ok(None);
                };
                let file = lab.folder.write(&format!("mcp-proxy-{}.toml", address.port()), &config::mcp_proxy(address, backends))?;
                let mut command = Command::new(program);
                command.arg("--config").arg(file);
                (command, url("/"))
            }
            Kind::Bare | Kind::BareAgain | Kind::Lockgate | Kind::Aliased | Kind::EveryCall => {
                let file =
                    lab.folder.write(&format!("lockgate-{}.yaml", address.port()), &config::lockgate(kind, address, backends, more))?;
                (lockgate(lab, &file)?, url("/mcp"))
            }
        };
        let mut process = Process::start(command, &lab.subject, &log(lab, kind, address))?;
        process.listens(address)?;
        Ok(Some(Subject { kind: kind.clone(), target: Lab::target_of(&url)?, process: Some(process) }))
    }

    /// Whose processor time and memory it is; empty where that is not known.
    pub fn pids(&self) -> Vec<u32> {
        match (&self.process, &self.kind) {
            (Some(process), _) => process.tree(),
            (None, Kind::Peer(Peer { pid: Some(pid), .. })) => proc::tree(*pid),
            (None, _) => Vec::new(),
        }
    }
}

/// The command that serves `config`. Its compiled policies are kept beside the benchmark's results.
pub fn lockgate(lab: &Lab, config: &std::path::Path) -> Result<Command> {
    let mut command = Command::new(beside("lockgate")?);
    command.arg("serve").arg("--config").arg(config).env("XDG_CACHE_HOME", lab.target.join("bench/cache"));
    Ok(command)
}

/// A configuration of Lockgate with five policies, for measuring the start.
pub fn five_policies(address: std::net::SocketAddr, backend: &str) -> String {
    config::five_policies(address, backend)
}

/// A configuration of Lockgate without policies.
pub fn bare(address: std::net::SocketAddr, backend: &str) -> String {
    config::lockgate(&Kind::Bare, address, &[("one", backend.to_owned())], "")
}

fn log(lab: &Lab, kind: &Kind, address: std::net::SocketAddr) -> std::path::PathBuf {
    let name: String = kind.to_string().chars().filter(char::is_ascii_alphanumeric).collect();
    lab.folder.path().join(format!("{name}-{}.log", address.port()))
}

/// What `make bench-peers` has installed.
fn installed(lab: &Lab, program: &str) -> Option<std::path::PathBuf> {
    Some(lab.target.join("peers").join(program)).filter(|path| path.exists())
}

/// The program in the Python package, which is started by a script otherwise.
fn envoy(lab: &Lab) -> Option<std::path::PathBuf> {
    let versions = std::fs::read_dir(lab.target.join("peers/envoy/lib")).ok()?;
    versions.flatten().map(|python| python.path().join("site-packages/envoy/_bin/envoy")).find(|path| path.exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_has_a_name_an_address_and_perhaps_a_process() {
        let peer: Peer = "mine=http://127.0.0.1:9000/mcp,42".parse().expect("a peer");
        assert_eq!((&*peer.name, &*peer.url, peer.pid), ("mine", "http://127.0.0.1:9000/mcp", Some(42)));
        assert_eq!("mine=http://127.0.0.1:9000/mcp".parse::<Peer>().expect("a peer").pid, None);
        for bad in ["mine", "mine=ftp://x/", "mine=http://127.0.0.1:1/,x"] {
            assert!(bad.parse::<Peer>().is_err(), "{bad}");
        }
    }
}

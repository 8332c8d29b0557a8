//! The gateway under test: the real binary, on a configuration in a folder of its own, on free ports of the loopback.
//!
//! `LOCKGATE` names another binary to test. A gateway that a test forgets, or that panics before [`Gateway::stop`],
//! is killed and reaped, and its log is printed with the failure.

use std::{
    net::{SocketAddr, TcpListener},
    path::PathBuf,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use rustix::process::Signal;
use tokio::process::{Child, Command};

use crate::{
    client::{Endpoint, Session},
    process::{self, Folder},
    within, within_time,
};

/// Debug builds compile their plugins when they start.
const START: Duration = Duration::from_secs(60);

/// Tokens of the principals x and y, and the configuration that knows their digests.
pub const TOKEN_X: &str = "token-of-x";
pub const TOKEN_Y: &str = "token-of-y";
pub const AUTH: &str = r#"
auth:
  tokens:
    - { principal: x, sha256: "7e8a00833fd2d4dd5b7f9ff34a6ea392aaf06189a4293b8d3d77fe0a5e2c7c8e" }
    - { principal: y, sha256: "f2ad3d6afe9cd597b4060b40f1bcb83894708f9307a6269181a95dbe8ac45602" }
"#;

/// A running gateway.
#[derive(Debug)]
pub struct Gateway {
    pub listen: SocketAddr,
    pub admin: SocketAddr,
    pub pid: u32,
    pub folder: Folder,
    child: Child,
    stopped: bool,
}

impl Gateway {
    /// Starts the gateway on `yaml`, to which `listen` and `admin` are added, and waits until it is ready.
    ///
    /// # Panics
    /// With its log, when it does not become ready.
    pub async fn start(yaml: &str) -> Self {
        Self::start_with(yaml, &[], &[]).await
    }

    /// Like [`Gateway::start`], with more command line arguments and environment.
    pub async fn start_with(yaml: &str, arguments: &[&str], env: &[(&str, &str)]) -> Self {
        for attempt in 0.. {
            let [listen, admin] = free_ports();
            let folder = Folder::new("gateway");
            let config = folder.write("lockgate.yaml", format!("listen: {listen}\nadmin: {admin}\n{yaml}"));
            let log = std::fs::File::create(folder.path().join("log")).expect("the log can be created");
            let mut command = Command::new(gateway_binary());
            command.arg("serve").arg("--config").arg(&config).args(arguments).kill_on_drop(true);
            // One for all tests, so that each does not compile the policies that ship, and none in the home of whoever runs them.
            command.env("XDG_CACHE_HOME", cache());
            command.envs(env.iter().copied()).current_dir(folder.path()).stdin(Stdio::null());
            command.stdout(log.try_clone().expect("a file handle can be cloned")).stderr(log);
            let child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
            let pid = child.id().expect("a process that was just started has an id");
            let mut gateway = Self { listen, admin, pid, folder, child, stopped: false };
            match gateway.ready().await {
                Ok(()) => return gateway,
                // Another test took the port between our look and the gateway's bind.
                Err(log) if attempt < 5 && log.to_lowercase().contains("in use") => gateway.stopped = true,
                Err(log) => {
                    gateway.stopped = true;
                    panic!("the gateway did not become ready.\n--- configuration\n{yaml}\n--- log\n{log}");
                }
            }
        }
        unreachable!("the loop returns or panics")
    }

    async fn ready(&mut self) -> Result<(), String> {
        let admin = Endpoint::new(&format!("http://{}/readyz", self.admin));
        let deadline = tokio::time::Instant::now() + START;
        loop {
            if self.child.try_wait().expect("a child can be waited for").is_some() || tokio::time::Instant::now() > deadline {
                return Err(self.log());
            }
            if tokio::net::TcpStream::connect(self.admin).await.is_ok() && admin.send("GET", &[], "").await.status == 200 {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The endpoint of the virtual host that exists when none is configured.
    pub fn mcp(&self) -> Endpoint {
        self.at("/mcp")
    }

    pub fn at(&self, path: &str) -> Endpoint {
        Endpoint::new(&format!("http://{}{path}", self.listen))
    }

    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.listen)
    }

    pub async fn initialize(&self) -> Session {
        self.mcp().initialize().await
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    pub async fn admin(&self, path: &str) -> (u16, String) {
        let reply = Endpoint::new(&format!("http://{}{path}", self.admin)).send("GET", &[], "").await;
        (reply.status, reply.text().await)
    }

    /// A POST to the admin port with any bytes, and its JSON.
    pub async fn admin_post(&self, path: &str, headers: &[(&str, &str)], body: impl Into<bytes::Bytes>) -> (u16, serde_json::Value) {
        let reply = Endpoint::new(&format!("http://{}{path}", self.admin)).send("POST", headers, body).await;
        (reply.status, reply.json().await)
    }

    /// The status of the policies of a virtual host.
    pub async fn policies(&self, virtual_host: &str) -> serde_json::Value {
        let (status, text) = self.admin("/policies").await;
        assert_eq!(status, 200, "{text}");
        let all: serde_json::Value = serde_json::from_str(&text).expect("the status is JSON");
        let hosts = all["virtual_hosts"].as_array().expect("a list");
        hosts.iter().find(|host| host["virtual_host"] == virtual_host).unwrap_or_else(|| panic!("no {virtual_host} in {all}")).clone()
    }

    /// Writes the configuration anew, as it was started with but with another `yaml`.
    pub fn configure(&self, yaml: &str) {
        self.folder.write("lockgate.yaml", format!("listen: {}\nadmin: {}\n{yaml}", self.listen, self.admin));
    }

    /// The sum of all samples of the metric `name`, or 0 when there is none.
    pub async fn metric(&self, name: &str) -> f64 {
        let (_, text) = self.admin("/metrics").await;
        let samples = text.lines().filter(|line| {
            let rest = line.strip_prefix(name);
            rest.is_some_and(|rest| rest.starts_with('{') || rest.starts_with(' '))
        });
        samples.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }

    /// Asks it to stop, as a service manager does.
    pub fn terminate(&self) {
        process::signal(self.pid, Signal::TERM);
    }

    pub async fn wait(&mut self) -> ExitStatus {
        let status = within_time(Duration::from_secs(40), "the end of the gateway", self.child.wait()).await;
        self.stopped = true;
        status.expect("a child can be waited for")
    }

    /// Stops it with SIGTERM.
    ///
    /// # Panics
    /// Unless it exits with 0 and leaves no child behind.
    pub async fn stop(mut self) {
        let children = process::children(self.pid);
        self.terminate();
        let status = self.wait().await;
        if !status.success() {
            let log = self.log();
            panic!("the gateway ended with {status}\n--- log\n{log}");
        }
        within("the end of the gateway's children", async {
            while children.iter().any(|&child| process::alive(child)) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if std::thread::panicking() && !self.stopped {
            let log = self.log();
            let tail: Vec<_> = log.lines().rev().take(60).collect();
            eprintln!("--- the gateway's log (its last lines)");
            tail.iter().rev().for_each(|line| eprintln!("{line}"));
        }
        process::reap(&mut self.child);
    }
}

/// Runs the gateway to its end, for `check`, `schema` and configurations that must be refused. Gives exit code and output.
pub async fn run(arguments: &[&str], folder: &Folder) -> (Option<i32>, String) {
    let mut command = Command::new(gateway_binary());
    command.args(arguments).current_dir(folder.path()).env("XDG_CACHE_HOME", cache()).stdin(Stdio::null()).kill_on_drop(true);
    let output = within("the gateway's command", command.output()).await.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&text).into_owned())
}

/// Beside the binaries of the tests.
fn cache() -> PathBuf {
    let tests = std::env::current_exe().expect("the test knows its own path");
    tests.with_file_name("lockgate-test-cache")
}

fn gateway_binary() -> PathBuf {
    std::env::var_os("LOCKGATE").map_or_else(|| process::binary("lockgate"), PathBuf::from)
}

/// A port of the loopback that was free a moment ago.
pub fn free_port() -> SocketAddr {
    let [port] = free_ports();
    port
}

/// As many, no two alike: none is let go before the last was found.
fn free_ports<const N: usize>() -> [SocketAddr; N] {
    let sockets = [(); N].map(|()| TcpListener::bind("127.0.0.1:0").expect("the loopback has free ports"));
    sockets.map(|socket| socket.local_addr().expect("a bound socket has an address"))
}

/// `backends:` with one HTTP backend for each pair of name and URL.
pub fn http_backends(backends: &[(&str, &str)]) -> String {
    let lines: String = backends.iter().map(|(name, url)| format!("  {name}: {{ url: \"{url}\" }}\n")).collect();
    format!("backends:\n{lines}")
}

/// `backends:` with one stdio backend.
pub fn stdio_backend(name: &str, command: &[&str]) -> String {
    let command = serde_json::to_string(command).expect("strings become JSON");
    format!("backends:\n  {name}: {{ command: {command} }}\n")
}

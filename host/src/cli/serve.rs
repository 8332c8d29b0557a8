//! `lockgate serve`: build everything, open the ports, say where, wait, and go in good order.

use super::assemble::{self, Policies};
use crate::admin::Admin;
use crate::config::{Config, Sources};
use crate::front::{Front, Listener, Server, ServerLimits};
use crate::gateway::Gateway;
use crate::policies::Control;
use crate::telemetry::{self, metrics::Level};
use anyhow::Context;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::timeout;

/// Connections to the admin port: a few scrapers and probes. More wait.
const ADMIN_CONNECTIONS: usize = 64;

/// What closing sessions may take beyond the time that calls have to finish.
const CLOSING: Duration = Duration::from_secs(3);

/// How long answers that are complete may take to be written out at the end.
const WRITING: Duration = Duration::from_millis(500);

/// A gateway with its ports open.
pub struct Running {
    /// Where clients connect, with the ports that were taken.
    pub listen: Vec<SocketAddr>,
    pub admin: Option<SocketAddr>,
    gateway: Arc<Gateway>,
    policies: Arc<Control>,
    front: Front,
    server: Arc<Server<Front>>,
    admin_server: Option<Arc<Server<Admin>>>,
    grace: Duration,
}

/// The signals that the process answers to.
struct Signals {
    term: Signal,
    int: Signal,
    hup: Signal,
}

/// Serves until SIGTERM or SIGINT. `sources`: what SIGHUP reads again.
pub async fn run(config: Arc<Config>, policies: Policies, sources: Sources) -> anyhow::Result<ExitCode> {
    telemetry::init(&config.log)?;
    // Before anything is open, so that a signal is never met unprepared.
    let signals = Signals::new()?;
    Ok(start_from(config, policies, Some(sources)).await?.until(signals).await)
}

/// Builds the gateway and opens its ports. Errors name the address and what to do; then nothing is left running.
pub async fn start(config: Arc<Config>, policies: Policies) -> anyhow::Result<Running> {
    start_from(config, policies, None).await
}

/// As [`start`], of a configuration that can be read again.
pub async fn start_from(config: Arc<Config>, policies: Policies, sources: Option<Sources>) -> anyhow::Result<Running> {
    raise_open_files(config.limits.connections);
    let gateway = assemble::gateway(&config, &policies)?;

    let mut listeners = Vec::new();
    for address in &config.listen {
        listeners.push(Listener::bind(*address, "listen").await?);
    }
    let admin_listener = match config.admin {
        Some(address) => Some(Listener::bind(address, "admin").await?),
        None => None,
    };

    let policies = Control::new(policies.into_plane(), gateway.clone(), config.clone(), sources);
    let listen: Vec<SocketAddr> = listeners.iter().map(Listener::address).collect();
    let admin = admin_listener.as_ref().map(Listener::address);
    let limits = ServerLimits {
        connections: config.limits.connections,
        header_bytes: config.limits.header_bytes,
        admission: config.admission.into(),
    };
    let front = Front::new(gateway.clone(), config.clone());
    let server = Server::new(front.clone(), limits, gateway.metrics().connections.clone());
    for listener in listeners {
        for host in &config.virtual_hosts {
            tracing::info!(url = %format_args!("http://{}{}", listener.address(), host.path), "listening");
        }
        server.listen(listener);
    }
    let mut admin_server = None;
    if let Some(listener) = admin_listener {
        tracing::info!(url = %format_args!("http://{}/readyz", listener.address()), "listening for operators");
        let admin = Admin::new(policies.clone(), &config, listener.address());
        let limits = ServerLimits { connections: ADMIN_CONNECTIONS, ..limits };
        let server = Server::new(admin.clone(), limits, Level::default());
        server.listen(listener);
        admin.started();
        admin_server = Some(server);
    }
    if config.auth.is_open() {
        tracing::info!("no tokens are configured: whoever can connect is `anonymous`");
    }
    tracing::info!(backends = config.backends.len(), "ready");
    Ok(Running { listen, admin, gateway, policies, front, server, admin_server, grace: config.shutdown.grace })
}

// === impl Running ===

impl Running {
    /// The policies that run.
    pub fn policies(&self) -> &Arc<Control> {
        &self.policies
    }

    /// Waits for SIGTERM or SIGINT, then stops. A second signal ends it at once.
    pub async fn wait(self) -> ExitCode {
        match Signals::new() {
            Ok(signals) => self.until(signals).await,
            Err(error) => {
                tracing::error!(%error, "signals cannot be waited for");
                self.stop().await;
                ExitCode::FAILURE
            }
        }
    }

    async fn until(self, mut signals: Signals) -> ExitCode {
        let policies = self.policies.clone();
        let name = signals.stop(|| policies.reload_soon()).await;
        tracing::info!(signal = name, grace = ?self.grace, "stopping: calls in flight may finish; a second signal ends at once");
        tokio::select! {
            () = self.stop() => {
                tracing::info!("stopped");
                ExitCode::SUCCESS
            }
            name = signals.stop(|| ()) => {
                tracing::warn!(signal = name, "stopped at once, calls in flight are cut");
                ExitCode::FAILURE
            }
        }
    }

    /// Readiness off; no more connections; calls in flight finish until the deadline; sessions are closed; the admin port goes last.
    pub async fn stop(self) {
        let Running { gateway, policies, front, server, admin_server, grace, .. } = self;
        policies.stop(WRITING).await;
        // The gateway refuses first, so that a request on an open connection hears why.
        let closing = async { timeout(grace + CLOSING, gateway.shutdown(grace)).await };
        let (closed, ()) = tokio::join!(biased; closing, async { server.stop() });
        if closed.is_err() {
            tracing::warn!("some sessions were not closed in time");
        }
        server.drained(WRITING).await;
        if timeout(WRITING, front.drained()).await.is_err() {
            tracing::warn!("some messages of clients were not dealt with in time");
        }
        if let Some(admin) = admin_server {
            admin.stop();
            admin.drained(WRITING).await;
        }
    }
}

// === impl Signals ===

impl Signals {
    fn new() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("signals cannot be waited for");
        Ok(Signals { term: listen(SignalKind::terminate())?, int: listen(SignalKind::interrupt())?, hup: listen(SignalKind::hangup())? })
    }

    /// Waits for one that ends the process; meanwhile each SIGHUP calls `reload`.
    async fn stop(&mut self, reload: impl Fn()) -> &'static str {
        loop {
            tokio::select! {
                _ = self.term.recv() => return "SIGTERM",
                _ = self.int.recv() => return "SIGINT",
                Some(()) = self.hup.recv() => reload(),
            }
        }
    }
}

/// Each session and connection needs file descriptors; the soft limit that shells and service managers give is often 1,024.
fn raise_open_files(connections: usize) {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        Ok(()) => maximum,
        Err(error) => {
            tracing::warn!(%error, soft = ?current, hard = ?maximum, "the limit on open files cannot be raised");
            current
        }
    };
    let shown = |limit: Option<u64>| limit.map_or_else(|| "unlimited".to_owned(), |n| n.to_string());
    tracing::info!(was = shown(current), now = shown(raised), "limit on open files");
    if raised.is_some_and(|files| files < connections as u64) {
        tracing::warn!(
            files = shown(raised),
            connections,
            "fewer files may be open than `limits.connections` allows connections: raise the hard limit (`ulimit -Hn`), or lower the setting"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    fn config(listen: &str, admin: &str) -> Arc<Config> {
        let yaml = format!(
            "listen: {listen}\nadmin: {admin}\npolicy: {{ cache: off }}\nbackends: {{ away: {{ url: http://127.0.0.1:9/mcp }} }}\n"
        );
        Arc::new(config::load_text("test", &yaml).unwrap_or_else(|problems| panic!("{problems}")).config)
    }

    async fn begin(config: Arc<Config>) -> anyhow::Result<Running> {
        let policies = Policies::load(&config)?;
        start(config, policies).await
    }

    #[tokio::test]
    async fn a_gateway_says_where_it_listens_is_ready_and_leaves_nothing_behind() {
        let running = begin(config("[127.0.0.1:0, 127.0.0.1:0]", "127.0.0.1:0")).await.unwrap();
        let (listen, admin) = (running.listen.clone(), running.admin.unwrap());
        assert!(listen.len() == 2 && listen[0] != listen[1] && listen.iter().chain([&admin]).all(|a| a.port() != 0));
        let mut probe = TcpStream::connect(admin).await.unwrap();
        probe.write_all(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        probe.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
        timeout(Duration::from_secs(10), running.stop()).await.expect("it stops");
        for address in listen.iter().chain([&admin]) {
            assert!(TcpStream::connect(address).await.is_err(), "{address} is still open");
        }
    }

    #[tokio::test]
    async fn an_address_that_is_taken_is_an_error_and_nothing_is_left_running() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap().to_string();
        let Err(error) = begin(config("127.0.0.1:0", &address)).await else { panic!("two processes on one port") };
        let text = error.to_string();
        assert!(text.contains(&address) && text.contains("set `admin` to another address"), "{text}");
    }
}

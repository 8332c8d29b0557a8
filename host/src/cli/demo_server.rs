//! `lockgate demo-server`: three small MCP servers that ship inside the binary, so that the gateway can be tried and tested
//! without installing anything else. This file owns the command line and the two transports' life; what each server can do
//! is in `demo_server/time.rs`, `text.rs` and `notes.rs`.
//!
//! They are ordinary servers: nothing in them knows that a gateway exists, and the gateway gives them no special treatment.
//! They never open a port that another machine can reach. Called by `cli` and, for its HTTP half, by `cli::demo`.

mod calendar;
mod http;
mod notes;
mod text;
mod text_ops;
mod time;

use std::{
    net::{Ipv4Addr, SocketAddr},
    process::ExitCode,
    time::Duration,
};

use anyhow::Context as _;
use rmcp::{ServerHandler, ServiceExt as _, model::Implementation, service::ServerInitializeError, transport::io::stdio_pipes};
use tokio::signal::unix::{Signal, SignalKind, signal};

pub use http::HttpServer;

/// Run one of the three small MCP servers that ship with Lockgate, to try or test a gateway with
#[derive(Debug, clap::Args)]
pub struct DemoServerArgs {
    /// Which server to run
    #[arg(value_enum)]
    pub server: DemoServer,

    /// Serve streamable HTTP at http://ADDR/mcp; ADDR must be a loopback address, port 0 takes a free port
    #[arg(
        long,
        value_name = "ADDR",
        num_args = 0..=1,
        default_missing_value = "127.0.0.1:0",
        conflicts_with = "stdio"
    )]
    pub http: Option<SocketAddr>,

    /// Serve standard input and output (the default): one client, until it closes standard input
    #[arg(long)]
    pub stdio: bool,

    /// With --http: keep running when the process that started this one has ended
    #[arg(long, requires = "http")]
    pub detached: bool,
}

/// The servers that ship with the binary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum DemoServer {
    /// Dates and times: the time at any UTC offset, conversions, differences
    Time,
    /// Text: counts, slugs, line differences, an analysis that reports progress, a prompt
    Text,
    /// Notes that live as long as the session: tools, resources, change notifications
    Notes,
}

impl DemoServer {
    /// The name on the command line, and the backend's name in the demo's configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Time => "time",
            Self::Text => "text",
            Self::Notes => "notes",
        }
    }
}

/// How often an HTTP server looks whether the process that started it is still there.
const PARENT_CHECK: Duration = Duration::from_secs(1);

/// Runs one demo server until its client closes standard input (stdio), its parent ends (HTTP), or SIGTERM or SIGINT arrives.
///
/// # Errors
///
/// When the address cannot be bound or is not a loopback address, or when the client's first message on standard input is
/// not an MCP handshake.
pub async fn run(args: DemoServerArgs) -> anyhow::Result<ExitCode> {
    let stop = StopSignal::install()?;
    match args.http {
        Some(addr) => serve_http(args.server, addr, args.detached, stop).await?,
        None => match args.server {
            DemoServer::Time => serve_stdio(time::TimeServer::new(), stop).await?,
            DemoServer::Text => serve_stdio(text::TextServer::new(), stop).await?,
            DemoServer::Notes => serve_stdio(notes::NotesServer::new(), stop).await?,
        },
    }
    Ok(ExitCode::SUCCESS)
}

async fn serve_http(server: DemoServer, addr: SocketAddr, detached: bool, mut stop: StopSignal) -> anyhow::Result<()> {
    let running =
        HttpServer::start(server, addr).await.with_context(|| format!("demo-server {}: cannot serve on {addr}", server.name()))?;
    eprintln!("demo-server {}: listening on {}", server.name(), running.url());
    tokio::select! {
        () = stop.received() => {}
        () = parent_ended(), if !detached => {}
    }
    running.stop().await;
    Ok(())
}

async fn serve_stdio<S: ServerHandler>(server: S, mut stop: StopSignal) -> anyhow::Result<()> {
    let session = async {
        match server.serve(stdio_pipes()).await {
            Ok(running) => {
                running.waiting().await.context("the server's task failed")?;
                Ok(())
            }
            // Standard input closed before a handshake: nobody wants anything, which is not an error.
            Err(ServerInitializeError::ConnectionClosed(_)) => Ok(()),
            Err(error) => Err(anyhow::Error::new(error).context("demo-server: no MCP handshake on standard input")),
        }
    };
    tokio::select! {
        outcome = session => outcome,
        // A read of a terminal cannot be cancelled, and the runtime would wait for it. There is nothing left to clean up.
        () = stop.received() => std::process::exit(0),
    }
}

/// SIGTERM or SIGINT, whichever comes first.
struct StopSignal {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignal {
    fn install() -> std::io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn received(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Waits until the process that started this one has ended: then this one has another parent.
async fn parent_ended() {
    let parent = rustix::process::getppid();
    let mut ticks = tokio::time::interval(PARENT_CHECK);
    loop {
        ticks.tick().await;
        if rustix::process::getppid() != parent {
            return;
        }
    }
}

/// The identity a demo server gives in its handshake.
fn identity(server: DemoServer) -> Implementation {
    Implementation::new(format!("lockgate-demo-{}", server.name()), env!("CARGO_PKG_VERSION"))
}

/// The address a demo server listens on unless it is told another: loopback, a free port.
pub const ANY_LOOPBACK_PORT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

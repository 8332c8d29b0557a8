//! `lockgate demo`: a gateway with three backends that ship inside the binary, a tour through it by a scripted client, and
//! then the lines to paste into a real client. This file tells that story; the parts are in `demo/`.
//!
//! The gateway is started as `serve` starts it, from a configuration written as YAML, and the tour talks to it over its real
//! HTTP endpoint: nothing here reaches into the gateway. Called by `cli`.

mod client;
mod connect;
pub(super) mod page;
pub(super) mod setup;
mod tour;

use std::{
    io::{self, IsTerminal as _, Write as _},
    net::SocketAddr,
    process::ExitCode,
    sync::Arc,
};

use anyhow::Context as _;

use crate::cli::{
    assemble::Policies,
    demo_server::{ANY_LOOPBACK_PORT, DemoServer, HttpServer},
    serve,
};
use crate::telemetry;
use page::Page;
use setup::Setup;

/// Start a gateway with three small MCP servers, show what it does, and stay up to be tried
#[derive(Debug, clap::Args)]
pub struct DemoArgs {
    /// End after the tour: with 0, or with 1 if a step did not go as it should
    #[arg(long)]
    pub exit: bool,

    /// Where clients connect [default: 127.0.0.1:8808, or a free port if that one is taken]
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<SocketAddr>,

    /// Where health and metrics are [default: 127.0.0.1:8809, or a free port if that one is taken]
    #[arg(long, value_name = "ADDR")]
    pub admin: Option<SocketAddr>,

    /// Print the demo's configuration as a file to start from, and end
    #[arg(long)]
    pub print_config: bool,
}

/// Runs the demo: tour, then until SIGTERM or SIGINT unless `--exit` was given.
///
/// # Errors
///
/// When a demo server or the gateway cannot be started. A step of the tour that goes wrong is not an error: it is printed with
/// what was expected, and the exit code is 1.
pub async fn run(args: DemoArgs) -> anyhow::Result<ExitCode> {
    if args.print_config {
        // A reader that has seen enough, such as `head`, closes the pipe; that is its right.
        let _ = io::stdout().write_all(setup::starting_point().as_bytes());
        return Ok(ExitCode::SUCCESS);
    }
    let page = Page::new(io::stdout().is_terminal());
    let listen = setup::address(args.listen, setup::LISTEN)?;
    let admin = setup::address(args.admin, setup::ADMIN)?;

    let time = backend(DemoServer::Time).await?;
    let text = backend(DemoServer::Text).await?;
    let program = std::env::current_exe().context("where this program is")?;
    let setup =
        Setup { listen: listen.addr, admin: admin.addr, time: time.url(), text: text.url(), program: program.display().to_string() };
    let config = Arc::new(setup.load()?);
    telemetry::init(&config.log)?;
    let policies = Policies::load(&config)?;
    let gateway = serve::start(config, policies).await?;
    let url = match gateway.listen.first() {
        Some(addr) => format!("http://{addr}{}", setup::PATH),
        None => anyhow::bail!("the gateway does not say where it listens"),
    };

    page.print(&setup.introduction(&page, &url, &[listen, admin]));
    let went_well = tour::run(&url, &page).await;
    if args.exit || !went_well {
        gateway.stop().await;
        end(time, text).await;
        return Ok(if went_well { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    page.print(&connect::instructions(&page, &url, gateway.admin));
    let code = gateway.wait().await;
    end(time, text).await;
    Ok(code)
}

async fn backend(server: DemoServer) -> anyhow::Result<HttpServer> {
    HttpServer::start(server, ANY_LOOPBACK_PORT).await.with_context(|| format!("cannot start the demo server '{}'", server.name()))
}

async fn end(time: HttpServer, text: HttpServer) {
    tokio::join!(time.stop(), text.stop());
}

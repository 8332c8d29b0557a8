//! `lockgate-bench`: what a hop through Lockgate costs, side by side with other gateways and with none.
//!
//! `make bench` builds and runs it. Every figure is a median over rounds in which all subjects take their turn, and is to be read as a
//! ratio to another of the same rounds: the machine's own speed is nobody's business. Steadiest is the processor time of the subject for
//! each call; it is measured by the kernel, over the subject's process and its children, while the load runs on other cores.
//!
//! | module | owns |
//! |---|---|
//! | [`stats`] | medians, quartiles, ratios |
//! | [`proc`] | processor time, memory and cores, as the kernel tells |
//! | [`process`] | processes that are started and ended |
//! | [`backend`] | the server behind all subjects |
//! | [`client`] | sessions, and requests without |
//! | [`load`] | a closed loop of clients |
//! | [`lab`] | the machine, set up |
//! | [`subjects`] | the gateways, and their configurations |
//! | [`rounds`] | subjects side by side |
//! | [`parts`] | what is measured, in order |
//! | [`memory`], [`start`] | what is no matter of rounds |
//! | [`instructions`] | instructions of a call, counted by callgrind |
//! | [`results`] | what was measured, and the goals |
//! | [`report`], [`chart`], [`page`] | tables, charts, and where they are written |

mod backend;
mod chart;
mod client;
mod instructions;
mod lab;
mod load;
mod memory;
mod page;
mod parts;
mod proc;
mod process;
mod report;
mod results;
mod rounds;
mod start;
mod stats;
mod subjects;

use std::{path::PathBuf, time::Duration};

use anyhow::{Result, bail};
use clap::{Args, Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};

use crate::{lab::Lab, rounds::Plan, subjects::Peer};

/// What a hop through Lockgate costs, side by side with other gateways and with none.
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure, print tables, and write charts.
    Run(Options),
    /// Count the instructions of a call under callgrind, and hold them against the recorded ones.
    Instructions {
        /// Take what was counted as what is right from now on.
        #[arg(long)]
        record: bool,
    },
    /// The server behind the gateways (started by the others).
    Backend {
        #[arg(long, default_value_t = 0)]
        port: u16,
    },
}

#[derive(Args)]
pub struct Options {
    /// In about three minutes, with fewer rounds. Writes to target/bench instead of docs.
    #[arg(long)]
    quick: bool,
    /// A gateway that runs already: NAME=URL, or NAME=URL,PID to have its processor time. It is to stand in front of
    /// http://127.0.0.1:PORT/mcp, PORT being that of --backend-port.
    #[arg(long = "peer")]
    peers: Vec<Peer>,
    /// Port of the server behind the gateways; a free one where this is 0.
    #[arg(long, default_value_t = 0)]
    backend_port: u16,
    /// These parts only: calls (or of them small-32, small-1, small-512, structured, mebibyte, progress, lifecycle), modern, several, lists,
    /// policies, growth, memory, inflight, start.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Rounds of each figure, and milliseconds of each round.
    #[arg(long)]
    rounds: Option<usize>,
    #[arg(long)]
    millis: Option<u64>,
    /// Where the charts and the page are. A run of all parts renews what stands between the marks in performance.md and in README.md.
    #[arg(long)]
    docs: Option<PathBuf>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    match Cli::parse().command {
        Command::Backend { port } => backend::serve(port).await,
        Command::Instructions { record } => instructions::run(record).await,
        Command::Run(options) => {
            let mut ended = signal(SignalKind::terminate())?;
            tokio::select! {
                done = run(&options) => done,
                // What was started ends with what is dropped here.
                _ = tokio::signal::ctrl_c() => bail!("interrupted"),
                _ = ended.recv() => bail!("ended"),
            }
        }
    }
}

async fn run(options: &Options) -> Result<()> {
    if let Some(unknown) = options.only.iter().find(|only| !parts::is_known(only)) {
        bail!("there is no part {unknown:?}; there are {}", parts::PARTS.join(", "));
    }
    let (rounds, millis) = if options.quick { (3, 400) } else { (12, 1000) };
    let plan = Plan {
        rounds: options.rounds.unwrap_or(rounds).max(1),
        time: Duration::from_millis(options.millis.unwrap_or(millis).max(50)),
        quick: options.quick,
    };
    let lab = Lab::set_up(options.backend_port)?;
    let begun = std::time::Instant::now();
    let results = parts::run(&lab, options, plan).await?;
    let goals = results.goals();
    println!("{}", report::goals_text(&goals));
    page::write(&lab, options, &results, plan)?;
    println!("{} s", begun.elapsed().as_secs());
    Ok(())
}

//! `lockgate policy …`: what authors and operators of policies type. This file owns the command line; each command has a file.
//!
//! `new`, `build`, `test` and `inspect` work on files and need no gateway; `list`, `swap` and `explain` ask a running one over its admin
//! port. Nothing here reaches into a gateway's process. Called by `cli`.

pub mod admin;
pub mod build;
pub mod component;
mod explain;
pub mod fixture;
mod inspect;
mod list;
mod new;
pub mod swap;
mod test;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};

/// Write, build, test and swap policies: the WASM components that decide names, routes and access
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct PolicyArgs {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  lockgate policy new my-policy --hook router    a crate with a policy, a test and a fixture
  lockgate policy build my-policy                compile it to my-policy/my-policy.wasm
  lockgate policy test my-policy                 run its fixtures in the real engine
  lockgate policy inspect my-policy.wasm         what it is, what it wants, and whether it loads
  lockgate policy swap my-policy my-policy.wasm  put it into the running gateway
  lockgate policy explain --kind tool now        which policy says what about a name";

#[derive(Debug, Subcommand)]
enum Command {
    New(new::NewArgs),
    Build(build::BuildArgs),
    Test(test::TestArgs),
    Inspect(inspect::InspectArgs),
    List(list::ListArgs),
    Swap(swap::SwapArgs),
    Explain(explain::ExplainArgs),
    /// Compile a component to code of this machine: what the gateway starts for large ones, with its settings on standard input
    #[command(hide = true)]
    CompileComponent {
        input: PathBuf,
        output: PathBuf,
    },
}

/// Runs one of the commands.
///
/// # Errors
///
/// When it fails, with what to do. That fixtures do not fit is not an error: it is printed, and the exit code is 1.
pub fn run(args: PolicyArgs) -> anyhow::Result<ExitCode> {
    match args.command {
        Command::New(args) => new::run(args),
        Command::Build(args) => build::run(args),
        Command::Test(args) => super::run(test::run(args)),
        Command::Inspect(args) => inspect::run(args),
        Command::List(args) => super::run(list::run(args)),
        Command::Swap(args) => super::run(swap::run(args)),
        Command::Explain(args) => super::run(explain::run(args)),
        Command::CompileComponent { input, output } => {
            lockgate_policy::compile_component(&input, &output).map_err(anyhow::Error::msg)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

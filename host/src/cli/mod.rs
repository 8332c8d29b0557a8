//! The command line: what a person types, and what the process answers with.
//!
//! Each command has a file. Exit codes are the same for all: 0 it worked, 1 it failed while running, 2 the command line or the
//! configuration is wrong. Only what a command prints goes to standard output; the log and every complaint go to standard error.

/// Prints a line of what a command has to say. Whoever reads it may stop reading (`… | head`): that is no error.
macro_rules! say {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stdout(), $($text)*);
    }};
}

/// As `say`, without the end of the line.
macro_rules! say_part {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = write!(std::io::stdout(), $($text)*);
    }};
}

mod assemble;
mod check;
pub mod demo;
pub mod demo_server;
mod dev;
pub mod policy;
mod prepare;
mod schema;
pub mod serve;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

pub use prepare::{Flags, Prepared, prepare};

use crate::config::{LogFormat, Problems};

/// Bad usage or configuration.
const EXIT_USAGE: u8 = 2;

const ABOUT: &str = "\
Lockgate is an MCP gateway: one HTTP endpoint in front of many MCP servers. Every client session is a closed \
chamber: no request, notification or cached list of one is ever seen by another.";

const EXAMPLES: &str = "\
Examples:
  lockgate demo                                  see it work, with servers that ship inside
  lockgate serve --config lockgate.yaml          run a gateway
  lockgate serve --mcp-servers claude.json       run one for the servers a desktop client lists
  lockgate check --config lockgate.yaml          would `serve` start? If not, every reason
  lockgate schema > lockgate.schema.json         for completion and checks in an editor
  lockgate policy new my-policy                  write a policy; see `lockgate policy --help`

Environment:
  LOCKGATE_LOG   in place of log.level: debug, or info,lockgate::backend=debug

Exit codes: 0 it worked, 1 it failed while running, 2 the command line or the configuration is wrong";

#[derive(Debug, Parser)]
#[command(name = "lockgate", version, about = "An MCP gateway: one HTTP endpoint in front of many MCP servers")]
#[command(long_about = ABOUT, after_help = EXAMPLES, arg_required_else_help = true, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the gateway until SIGTERM or SIGINT
    #[command(after_help = SERVE_HELP)]
    Serve(Flags),
    /// Say whether `serve` would start, and everything that keeps it from it
    #[command(after_help = CHECK_HELP)]
    Check(Flags),
    /// Print the JSON Schema of the configuration file
    #[command(after_help = SCHEMA_HELP)]
    Schema,
    Demo(demo::DemoArgs),
    DemoServer(demo_server::DemoServerArgs),
    Policy(policy::PolicyArgs),
    Dev(dev::DevArgs),
}

const SERVE_HELP: &str = "\
The smallest configuration file:
  backends:
    time: { command: [uvx, mcp-server-time] }
    docs: { url: https://docs.example.com/mcp }

Clients then connect to http://127.0.0.1:8808/mcp; health and metrics are at
http://127.0.0.1:8809/readyz and /metrics.
On SIGHUP it reads the configuration again and applies what policies say; other changes need a restart.
On SIGTERM and SIGINT it stops accepting, lets calls finish for shutdown.grace, and exits with 0.";

const CHECK_HELP: &str = "\
Goes the way of `serve` up to opening the ports: the same files, the same checks, the same words. Prints what would be
served and `ok`, or one line for each problem with file, line, key and what to do. Exit code 0 or 2.";

const SCHEMA_HELP: &str = "\
Editors with the YAML language server use it when the first line of the configuration file is:
  # yaml-language-server: $schema=./lockgate.schema.json";

/// The whole program: reads the command line, runs the command, and says how it went.
pub fn main() -> ExitCode {
    // clap prints what is wrong and exits with 2, or prints help or version and exits with 0.
    let cli = Cli::parse();
    let outcome = match cli.command {
        Command::Serve(flags) => {
            return with_config(&flags, |prepared| run(serve::run(prepared.config, prepared.policies, prepared.sources)));
        }
        Command::Check(flags) => return with_config(&flags, |prepared| Ok(check::run(&prepared))),
        Command::Schema => schema::run(),
        Command::Demo(args) => run(demo::run(args)),
        Command::DemoServer(args) => run(demo_server::run(args)),
        Command::Policy(args) => policy::run(args),
        Command::Dev(args) => run(dev::run(args)),
    };
    finish(outcome)
}

/// What `serve` and `check` share: one preparation, and the same words when it is refused.
fn with_config(flags: &Flags, then: impl FnOnce(Prepared) -> anyhow::Result<ExitCode>) -> ExitCode {
    match prepare(flags) {
        Ok(prepared) => {
            for warning in prepared.warnings.iter() {
                eprintln!("{}", warning_line(&warning.to_string(), prepared.config.log.format));
            }
            finish(then(prepared))
        }
        Err(problems) => refuse(&problems),
    }
}

/// Standard error belongs to the log, which may be promised to be JSON.
fn warning_line(warning: &str, format: LogFormat) -> String {
    match format {
        LogFormat::Text => format!("warning: {warning}"),
        LogFormat::Json => serde_json::json!({ "level": "WARN", "target": "lockgate::config", "message": warning }).to_string(),
    }
}

fn refuse(problems: &Problems) -> ExitCode {
    let count = problems.iter().count();
    eprintln!("{problems}");
    eprintln!("{count} problem{} in the configuration; nothing was started", if count == 1 { "" } else { "s" });
    ExitCode::from(EXIT_USAGE)
}

fn run(command: impl Future<Output = anyhow::Result<ExitCode>>) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(command);
    // A policy that is being compiled cannot be broken off, and nobody waits for it any more.
    runtime.shutdown_timeout(std::time::Duration::from_secs(1));
    outcome
}

fn finish(outcome: anyhow::Result<ExitCode>) -> ExitCode {
    outcome.unwrap_or_else(|error| {
        eprintln!("lockgate: {error:#}");
        ExitCode::FAILURE
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn addresses_are_read_like_those_of_the_file() {
        let cli = |args: &[&str]| Cli::try_parse_from([&["lockgate", "serve"], args].concat());
        assert!(cli(&["--listen", "127.0.0.1:0", "--listen", "[::1]:0", "--admin", "off"]).is_ok());
        let error = cli(&["--listen", "8808"]).unwrap_err().to_string();
        assert!(error.contains("write 127.0.0.1:8808 for this machine only"), "{error}");
        assert!(cli(&["--admin", "example.com:80"]).unwrap_err().to_string().contains("or `off`"));
    }

    #[test]
    fn help_tells_the_exit_codes_and_shows_examples() {
        let help = Cli::command().render_long_help().to_string();
        assert!(help.contains("Exit codes:") && help.contains("lockgate serve --config lockgate.yaml"), "{help}");
    }
}

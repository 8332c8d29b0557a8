//! `lockgate schema`: the JSON Schema of the configuration file, generated from the types that read it.

use std::io::Write;
use std::process::ExitCode;

use crate::config;

pub fn run() -> anyhow::Result<ExitCode> {
    let schema = serde_json::to_string_pretty(&config::schema())?;
    // A reader that has seen enough closes the pipe; that is no failure.
    let _ = writeln!(std::io::stdout(), "{schema}");
    Ok(ExitCode::SUCCESS)
}

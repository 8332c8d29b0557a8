//! Not built yet.

use std::process::ExitCode;

/// Run one of the servers that ship inside
#[derive(Debug, clap::Args)]
pub struct DemoServerArgs {}

pub async fn run(_args: DemoServerArgs) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not built yet")
}

//! Not built yet.

use std::process::ExitCode;

/// See it work, with servers that ship inside
#[derive(Debug, clap::Args)]
pub struct DemoArgs {}

pub async fn run(_args: DemoArgs) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not built yet")
}

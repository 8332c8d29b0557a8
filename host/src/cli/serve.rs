//! Not built yet.

use std::process::ExitCode;
use std::sync::Arc;

use crate::config::Config;

pub async fn run(_config: Arc<Config>) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not built yet")
}

//! What `serve` and `check` do before anything is bound: read and check the configuration, load the policies.
//!
//! One function, so that what passes `check` starts, and what `check` refuses `serve` refuses with the same words.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;

use super::assemble::Policies;
use crate::config::{self, AdminAddress, Config, Overrides, Problems, Sources};

/// Where the configuration comes from, and what overrides it.
#[derive(Clone, Debug, Default, Args)]
pub struct Flags {
    /// Configuration file [default: lockgate.yaml in this directory, unless --mcp-servers is given]
    #[arg(short, long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Take backends from a desktop client's list of servers (JSON with `mcpServers` or `servers`); together with --config
    /// they are added to those of the file
    #[arg(long, value_name = "FILE")]
    pub mcp_servers: Option<PathBuf>,

    /// Where clients connect, in place of `listen`; may be given more than once. Port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", value_parser = config::parse_address)]
    pub listen: Vec<SocketAddr>,

    /// Where health and metrics are, in place of `admin`; `off` for nowhere
    #[arg(long, value_name = "ADDRESS", value_parser = AdminAddress::parse)]
    pub admin: Option<AdminAddress>,
}

/// Everything that can be made without opening a port.
#[derive(Debug)]
pub struct Prepared {
    pub config: Arc<Config>,
    /// The policies of each virtual host, compiled.
    pub policies: Policies,
    /// What is not wrong but worth a look.
    pub warnings: Problems,
    /// The files that were read.
    pub files: Vec<PathBuf>,
    /// Where all this is from: what a reload reads again.
    pub sources: Sources,
}

/// Reads, checks and loads. Errors: everything that is wrong, each a line with its place.
pub fn prepare(flags: &Flags) -> Result<Prepared, Problems> {
    let sources = Sources {
        config: flags.config.clone(),
        mcp_servers: flags.mcp_servers.clone(),
        overrides: Overrides { listen: flags.listen.clone(), admin: flags.admin },
    };
    let mut loaded = config::load(&sources)?;
    // `policy compile-component` of this very program.
    loaded.config.policy.compiler = std::env::current_exe().ok();
    let policies = Policies::load(&loaded.config)?;
    policies.warnings().into_iter().for_each(|warning| loaded.warnings.push(warning));
    Ok(Prepared { config: Arc::new(loaded.config), policies, warnings: loaded.warnings, files: loaded.files, sources })
}

//! `lockgate dev`: a gateway with a policy that is being written in front of the others, and an eye on its sources. Each save is built and swapped in
//! by the path that every swap takes; what does not build or is refused leaves the old one running. Called by `cli`.
//!
//! What the policy is given comes from its first fixture: `config`, `grants` and `limits`, so that it runs here as in `lockgate policy test`. All
//! that it asks for is granted, and said.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::io::{self, IsTerminal as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use lockgate_policy::{Failing, Terms};
use serde_json::Value;

use super::assemble::Policies;
use super::demo::page::Page;
use super::demo::setup::{self, Setup};
use super::demo_server::{ANY_LOOPBACK_PORT, DemoServer, HttpServer};
use super::policy::component::{Component, all_wanted, words};
use super::policy::fixture::{Fixtures, one_line};
use super::policy::swap::whole;
use super::serve;
use crate::config::{self, AdminAddress, Config, LogFormat, Overrides, Place, PolicyRef, PolicySource, Sources};
use crate::policies::{Control, Push};
use crate::telemetry;

/// Serve the demo with a policy that is being written, and swap it at each save
#[derive(Debug, clap::Args)]
pub struct DevArgs {
    /// A folder with a policy crate, which is built at each save; or a component, for policies that something else builds
    #[arg(long, value_name = "FILE|DIR")]
    policy: PathBuf,

    /// The policy's configuration [default: that of its first fixture]
    #[arg(long, value_name = "JSON", value_parser = json)]
    setting: Option<Value>,

    /// Serve this configuration instead of the demo; where the policy is not in it, it is put in front of those of each virtual host
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Where clients connect [default: 127.0.0.1:8808 or what the configuration says; for the demo a free port if it is taken]
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,

    /// Where the admin port is [default: 127.0.0.1:8809 or what the configuration says; for the demo a free port if it is taken]
    #[arg(long, value_name = "ADDR")]
    admin: Option<SocketAddr>,
}

/// How often the sources are looked at. A change is taken when it has rested for one more look.
const LOOK: Duration = Duration::from_millis(200);

/// Files that are looked at. A policy has a few dozen.
const MOST_FILES: usize = 5_000;

/// Serves until SIGTERM or SIGINT.
///
/// # Errors
///
/// When the policy cannot be built or run at the start, or the gateway cannot be started.
pub async fn run(args: DevArgs) -> anyhow::Result<ExitCode> {
    let page = Page::new(io::stdout().is_terminal());
    let first = stamp(&args.policy);
    let component = find(args.policy.clone()).await?;
    let policy = describe(&component, args.setting.clone())?;
    let granted = words(&policy.terms.grants);
    let (name, setting) = (policy.name.clone(), one_line(&policy.config));

    let mut servers = Vec::new();
    let mut config = match &args.config {
        Some(file) => configured(file, &args)?,
        None => demo(&args, &mut servers).await?,
    };
    put(&mut config, &policy);
    // The eye here is the only one.
    config.policy.watch = None;
    config.log.format = LogFormat::Text;
    if std::env::var_os("LOCKGATE_LOG").is_none() {
        config.log.filter = "warn,lockgate_policy::guest=debug".to_owned();
    }
    telemetry::init(&config.log)?;
    let policies = Policies::load(&config)?;
    let paths: Vec<Arc<str>> = config.virtual_hosts.iter().map(|host| host.path.clone()).collect();
    let gateway = serve::start(Arc::new(config), policies).await?;

    for (addr, path) in gateway.listen.iter().flat_map(|addr| paths.iter().map(move |path| (addr, path))) {
        page.print(&format!("{:<10} http://{addr}{path}\n", page.strong("serving")));
    }
    if let Some(admin) = gateway.admin {
        page.print(&format!("{:<10} http://{admin}/policies\n", page.strong("admin")));
    }
    page.print(&format!("{:<10} {name}, config {setting}, granted {granted}\n", page.strong("policy")));
    page.print(&format!("{:<10} {}: each save is swapped in, until Ctrl-C\n", page.strong("watching"), args.policy.display()));
    let eye = Eye { policy: args.policy, name, control: gateway.policies().clone(), running: whole(&component)?, page };
    let watching = tokio::spawn(eye.watch(first));
    let code = gateway.wait().await;
    watching.abort();
    for server in servers {
        server.stop().await;
    }
    Ok(code)
}

/// Looks at the sources and swaps.
struct Eye {
    policy: PathBuf,
    name: String,
    control: Arc<Control>,
    /// The bytes that run.
    running: Vec<u8>,
    page: Page,
}

impl Eye {
    async fn watch(mut self, first: Option<u64>) {
        let (mut last, mut done) = (first, first);
        loop {
            tokio::time::sleep(LOOK).await;
            let policy = self.policy.clone();
            let Ok(now) = tokio::task::spawn_blocking(move || stamp(&policy)).await else { return };
            let rests = now == last;
            last = now;
            if !rests || now == done || now.is_none() {
                continue;
            }
            done = now;
            self.change().await;
        }
    }

    async fn change(&mut self) {
        let started = Instant::now();
        let built = find(self.policy.clone()).await.and_then(|component| whole(&component));
        let component = match built {
            Ok(component) if component == self.running => return self.say("same", "what was saved makes the same component"),
            Ok(component) => component,
            Err(error) => return self.say("not built", &format!("{error:#}; the old one stays")),
        };
        let push = Push { policy: self.name.clone(), virtual_host: None, sha256: None, component: component.clone().into() };
        match self.control.push(push).await {
            Ok(swapped) => {
                self.running = component;
                for s in swapped {
                    let took = started.elapsed().as_secs_f64();
                    let text = format!("{} {} at {}: generation {}, in {took:.1} s", s.policy, s.version, s.virtual_host, s.generation);
                    self.say("swapped", &text);
                }
            }
            Err(failure) => {
                self.say("refused", &failure.error);
                for kept in failure.kept {
                    self.say("kept", &format!("generation {} at {}", kept.generation, kept.virtual_host));
                }
            }
        }
    }

    fn say(&self, what: &str, text: &str) {
        self.page.print(&format!("{} {text}\n", self.page.strong(&format!("{what:<10}"))));
    }
}

/// Builds or reads the component, off the runtime's workers.
async fn find(policy: PathBuf) -> anyhow::Result<Component> {
    tokio::task::spawn_blocking(move || Component::find(&policy)).await?
}

/// How the policy stands in the configuration.
fn describe(component: &Component, setting: Option<Value>) -> anyhow::Result<PolicyRef> {
    let file = component.file.clone().context("--policy is a folder or a file")?;
    let mut terms = Terms { grants: all_wanted(&component.manifest()?), ..Terms::default() };
    let mut config = Value::Null;
    if let Some(dir) = component.fixtures.as_deref().filter(|dir| dir.is_dir()) {
        let all = Fixtures::read_all(dir)?;
        if let Some(first) = all.first() {
            config = first.config.clone();
            terms.limits = first.limits.clone();
            terms.grants.claims.extend(first.grants.claims.iter().cloned());
            terms.grants.every_call |= first.grants.every_call;
            terms.grants.clock |= first.grants.clock;
            terms.grants.random |= first.grants.random;
        }
    }
    Ok(PolicyRef {
        name: component.name.clone(),
        source: PolicySource::File(file),
        config: setting.unwrap_or(config),
        terms,
        failing: Failing::default(),
        place: Place::named("--policy"),
    })
}

/// Puts the policy in front of those of each virtual host that does not have it yet.
fn put(config: &mut Config, policy: &PolicyRef) {
    for host in &mut config.virtual_hosts {
        if host.policies.iter().all(|p| p.name != policy.name) {
            host.policies.insert(0, policy.clone());
        }
    }
}

fn configured(file: &Path, args: &DevArgs) -> anyhow::Result<Config> {
    let overrides = Overrides { listen: args.listen.into_iter().collect(), admin: args.admin.map(|addr| AdminAddress(Some(addr))) };
    let sources = Sources { config: Some(file.to_owned()), mcp_servers: None, overrides };
    Ok(config::load(&sources)?.config)
}

/// The demo's configuration, and the two of its backends that are servers of this process.
async fn demo(args: &DevArgs, servers: &mut Vec<HttpServer>) -> anyhow::Result<Config> {
    let (listen, admin) = (setup::address(args.listen, setup::LISTEN)?, setup::address(args.admin, setup::ADMIN)?);
    for server in [DemoServer::Time, DemoServer::Text] {
        servers.push(HttpServer::start(server, ANY_LOOPBACK_PORT).await.context("cannot start a demo server")?);
    }
    let program = std::env::current_exe().context("where this program is")?.display().to_string();
    let [time, text] = [servers[0].url(), servers[1].url()];
    Setup { listen: listen.addr, admin: admin.addr, time, text, program }.load()
}

/// What tells one state of the sources from another; `None`: there is nothing now.
fn stamp(policy: &Path) -> Option<u64> {
    let mut hash = DefaultHasher::new();
    let mut left = MOST_FILES;
    if policy.is_dir() {
        walk(policy, &mut hash, &mut left);
        return Some(hash.finish());
    }
    note(policy, &mut hash)?;
    // Its manifest may stand beside it.
    note(&policy.with_extension("manifest.json"), &mut hash);
    Some(hash.finish())
}

fn walk(dir: &Path, hash: &mut DefaultHasher, left: &mut usize) {
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    for path in paths {
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        // What building writes is no source.
        let made = name.starts_with('.') || name == "Cargo.lock" || name.ends_with(".wasm") || name.ends_with(".part");
        if made || *left == 0 {
            continue;
        }
        match path.symlink_metadata() {
            Ok(meta) if meta.is_dir() => {
                if name != "target" && name != "node_modules" {
                    walk(&path, hash, left);
                }
            }
            _ => {
                *left -= 1;
                note(&path, hash);
            }
        }
    }
}

fn note(file: &Path, hash: &mut DefaultHasher) -> Option<()> {
    let meta = std::fs::metadata(file).ok()?;
    (file, meta.len(), meta.modified().ok()).hash(hash);
    Some(())
}

fn json(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|e| format!("it is not JSON: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_save_is_seen_and_what_building_writes_is_not() {
        let dir = std::env::temp_dir().join(format!("lockgate-dev-{}", std::process::id()));
        let write = |name: &str, text: &str| {
            let file = dir.join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        };
        write("src/lib.rs", "1");
        let before = stamp(&dir);
        for made in ["mine.wasm", "target/x", "Cargo.lock", ".git/x"] {
            write(made, "x");
        }
        assert_eq!(stamp(&dir), before);
        write("src/lib.rs", "12");
        let after = stamp(&dir);
        assert_ne!(after, before);
        write("config.schema.json", "{}");
        assert_ne!(stamp(&dir), after);
        let file = dir.join("mine.wasm");
        let before = stamp(&file);
        write("mine.manifest.json", "{}");
        assert_ne!(stamp(&file), before);
        assert_eq!(stamp(&dir.join("gone.wasm")), None);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}

//! From the configuration to chains of policies that run: code is read, compiled and held against its terms. Takes tens of milliseconds
//! of CPU time for each policy: call it where that hurts nobody.

use super::trial;
use crate::config::{Alias, AliasKind, Config, Place, PolicyRef, PolicySource, Problem, Problems, VirtualHost, plain_file};
use crate::telemetry::metrics::PolicyMetrics;
use lockgate_policy::{Chain, Code, Engine, EngineConfig, Entry, Failing, Policy, Terms, shipped};
use serde_json::json;
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes of a manifest beside a component that are read; one more is for the policy plane to refuse.
const MANIFEST: usize = (256 << 10) + 1;

/// One policy of a virtual host as it runs: where its code is from, and on what terms.
#[derive(Clone, Debug)]
pub(super) struct Spec {
    pub name: Arc<str>,
    pub source: Source,
    pub terms: Terms,
    pub failing: Failing,
    /// Its configuration as JSON text.
    pub setting: Arc<str>,
    /// Which code it is; zeroes until it has been read.
    pub code: [u8; 32],
}

/// Where the code of a policy is from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Shipped,
    File(PathBuf),
    /// The admin API, in place of what the configuration says, until the next reload.
    Pushed,
}

/// The bytes of a policy's code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bytecode {
    pub component: Vec<u8>,
    /// The file beside it.
    pub manifest: Option<Vec<u8>>,
}

/// The policies of all virtual hosts, in the order of `Config::virtual_hosts`.
#[derive(Clone, Debug)]
pub struct Plane {
    pub(super) engine: Arc<Engine>,
    /// What the engine reports to.
    metrics: Arc<PolicyMetrics>,
    pub(super) hosts: Vec<Planned>,
}

/// The policies of one virtual host.
#[derive(Clone, Debug)]
pub(super) struct Planned {
    pub specs: Arc<[Spec]>,
    pub chain: Arc<Chain>,
}

/// Compiles each code once for each set of terms, whoever uses it.
pub(super) struct Loader {
    engine: Arc<Engine>,
    compiled: Vec<Compiled>,
}

/// Code that is compiled already, and for which terms.
pub(super) struct Compiled {
    name: Arc<str>,
    code: [u8; 32],
    terms: Terms,
    policy: Arc<Policy>,
}

/// The engine that a configuration asks for.
fn engine(config: &Config, metrics: Arc<PolicyMetrics>) -> Result<Arc<Engine>, Problems> {
    let instances = config.policy.instances;
    let wanted = EngineConfig {
        pool_instances: instances,
        // The rest is for lists and for sessions that begin or end, which keep nothing.
        warm_instances: instances - instances / 4,
        cache: config.policy.cache.clone(),
        compiler: config.policy.compiler.clone(),
        ..EngineConfig::default()
    };
    Engine::observed(wanted, metrics).map_err(|e| Problem::new(Place::named("policy"), e.to_string()).into())
}

// === impl Plane ===

impl Plane {
    /// Compiles and tries out every policy of the configuration.
    ///
    /// # Errors
    /// All policies that cannot be run, each with its place and what to do.
    pub fn load(config: &Config) -> Result<Plane, Problems> {
        let metrics = Arc::<PolicyMetrics>::default();
        let engine = engine(config, metrics.clone())?;
        let mut loader = Loader::new(engine.clone(), Vec::new());
        let mut problems = Problems::default();
        let mut hosts = Vec::new();
        for host in &config.virtual_hosts {
            let before = problems.len();
            let (specs, entries) = loader.host(config, host, &mut problems);
            let chain = Arc::new(Chain::new(engine.clone(), host.path.clone(), entries));
            if problems.len() == before
                && let Err(problem) = trial::stand(config, host, &chain)
            {
                problems.push(problem);
            }
            hosts.push(Planned { specs, chain });
        }
        if problems.is_empty() { Ok(Plane { engine, metrics, hosts }) } else { Err(problems) }
    }

    /// What works, if not as it was configured.
    pub fn warnings(&self) -> Option<Problem> {
        let reason = self.engine.cache_refused()?;
        let told = format!("compiled policies are not kept there, so that each start compiles them: {reason}");
        Some(Problem::new(Place::named("policy.cache"), told))
    }

    /// Where the calls of policies are counted.
    pub fn metrics(&self) -> &Arc<PolicyMetrics> {
        &self.metrics
    }

    /// The chain of each virtual host, in the order of `Config::virtual_hosts`.
    pub fn chains(&self) -> impl Iterator<Item = &Arc<Chain>> {
        self.hosts.iter().map(|host| &host.chain)
    }
}

// === impl Loader ===

impl Loader {
    /// `compiled`: what there is already.
    pub fn new(engine: Arc<Engine>, compiled: Vec<Compiled>) -> Self {
        Loader { engine, compiled }
    }

    /// The policies that the configuration gives to one virtual host. What is wrong is added to the problems.
    pub fn host(&mut self, config: &Config, host: &VirtualHost, problems: &mut Problems) -> (Arc<[Spec]>, Vec<Entry>) {
        let (mut specs, mut entries) = (Vec::new(), Vec::new());
        for wanted in &host.policies {
            let mut spec = Spec::of(config, host, wanted);
            match spec.read().and_then(|code| self.entry(&mut spec, &code)) {
                Ok(entry) => {
                    specs.push(spec);
                    entries.push(entry);
                }
                Err(message) => problems.push(Problem::new(wanted.place.clone(), message)),
            }
        }
        (specs.into(), entries)
    }

    /// A policy of this code, with its configuration. Notes in the spec which code it is.
    pub fn entry(&mut self, spec: &mut Spec, code: &Bytecode) -> Result<Entry, String> {
        spec.code = code.digest();
        trial::wishes(spec)?;
        let policy = self.policy(spec, code)?;
        Entry::new(policy, spec.setting.clone(), spec.failing).map_err(|e| e.to_string())
    }

    fn policy(&mut self, spec: &Spec, code: &Bytecode) -> Result<Arc<Policy>, String> {
        let same = |c: &&Compiled| c.name == spec.name && c.code == spec.code && c.terms == spec.terms;
        if let Some(found) = self.compiled.iter().find(same) {
            return Ok(found.policy.clone());
        }
        let bytes = Code { component: &code.component, manifest: code.manifest.as_deref() };
        let policy = Policy::load(&self.engine, &spec.name, bytes, &spec.terms).map_err(|e| e.to_string())?;
        self.compiled.push(Compiled::new(spec, policy.clone()));
        Ok(policy)
    }
}

// === impl Compiled ===

impl Compiled {
    pub fn new(spec: &Spec, policy: Arc<Policy>) -> Self {
        Compiled { name: spec.name.clone(), code: spec.code, terms: spec.terms.clone(), policy }
    }
}

// === impl Spec ===

impl Spec {
    pub fn of(config: &Config, host: &VirtualHost, wanted: &PolicyRef) -> Self {
        Spec {
            name: wanted.name.as_str().into(),
            source: match &wanted.source {
                PolicySource::Shipped => Source::Shipped,
                PolicySource::File(path) => Source::File(path.clone()),
            },
            terms: wanted.terms.clone(),
            failing: wanted.failing,
            setting: setting(config, host, wanted).into(),
            code: [0; 32],
        }
    }

    /// The code as it is now. One that was pushed is nowhere to be read.
    pub fn read(&self) -> Result<Bytecode, String> {
        match &self.source {
            Source::Shipped => {
                let component = shipped::by_name(&self.name).ok_or_else(|| format!("no policy `{}` ships with this binary", self.name))?;
                Ok(Bytecode { component: component.to_vec(), manifest: None })
            }
            Source::File(path) => Bytecode::read(path, self.terms.limits.component_bytes),
            Source::Pushed => Err(format!("the component of `{}` came through the admin API, and is in no file", self.name)),
        }
    }
}

// === impl Bytecode ===

impl Bytecode {
    /// Reads a component of at most `limit` bytes (and one more, for the policy plane to refuse), and the manifest beside it.
    pub fn read(path: &Path, limit: usize) -> Result<Self, String> {
        let component = plain_file::read(path, limit.saturating_add(1)).map_err(|e| format!("{} cannot be read: {e}", path.display()))?;
        let beside = manifest_beside(path);
        let manifest = match plain_file::read(&beside, MANIFEST) {
            Ok(manifest) => Some(manifest),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
            Err(e) => return Err(format!("{} cannot be read: {e}", beside.display())),
        };
        Ok(Bytecode { component, manifest })
    }

    /// Of all that makes the policy: component and manifest.
    pub fn digest(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        hash.update(Sha256::digest(&self.component));
        hash.update(self.manifest.as_ref().map(Sha256::digest).unwrap_or_default());
        hash.finalize().into()
    }
}

/// SHA-256 as 64 hexadecimal digits.
pub(super) fn sha256_hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `NAME.manifest.json` for `NAME.wasm`.
pub(super) fn manifest_beside(component: &Path) -> PathBuf {
    component.with_extension("manifest.json")
}

/// What a policy reads as its configuration. The shipped `alias` gets the aliases of the virtual host, which have a key of their own.
fn setting(config: &Config, host: &VirtualHost, wanted: &PolicyRef) -> String {
    if wanted.source == PolicySource::Shipped && wanted.name == "alias" {
        let entry = |alias: &Alias| {
            let backend = config.backends.get(alias.backend)?;
            let kind = match alias.kind {
                AliasKind::Tool => "tool",
                AliasKind::Prompt => "prompt",
                AliasKind::Resource => "resource",
            };
            Some(json!({ "public": alias.public, "kind": kind, "backend": &*backend.name, "name": alias.name }))
        };
        return json!({ "aliases": host.aliases.iter().filter_map(entry).collect::<Vec<_>>() }).to_string();
    }
    wanted.config.to_string()
}

//! From bytes to a [`Policy`]: is it a component, is it the one that was pinned, of which contract version, does it want only what it is
//! granted, which hooks has it, do its types fit, does it start within the limits. All of that before anyone relies on it. Compiling takes CPU time (tens of
//! milliseconds for a policy in Rust): call it where that hurts nobody.

use std::collections::BTreeSet;
use std::sync::Arc;

use jsonschema::Validator;
use sha2::{Digest, Sha256};
use wasmtime::AsContextMut;
use wasmtime::component::types::ComponentItem;
use wasmtime::component::{Component, InstancePre, Linker};

use crate::call::{self, HostState};
use crate::code::hex;
use crate::compile::compile;
use crate::engine::Engine;
use crate::error::LoadError;
use crate::log::{Allowance, clean};
use crate::manifest::Manifest;
use crate::realm::Realm;
use crate::since_v0_1::{self as latest, Exports};
use crate::terms::{Capabilities, Limits, Terms};
use crate::types::Hooks;
use crate::wasi;

/// A policy's code, compiled and checked. Holds no state of any session; shared by all chains that use it.
pub struct Policy {
    pub(crate) name: Arc<str>,
    pub(crate) version: Arc<str>,
    pub(crate) log: Arc<Allowance>,
    /// How many errors of this policy may still be logged.
    pub(crate) errors: Allowance,
    /// Where its instances live.
    pub(crate) realm: Arc<Realm>,
    pub(crate) pre: InstancePre<HostState>,
    pub(crate) exports: Exports,
    digest: String,
    contract: String,
    manifest: Manifest,
    capabilities: Capabilities,
    limits: Limits,
    schema: Option<Validator>,
}

/// Errors of one policy that are logged per second; the rest is counted.
const ERRORS_PER_SECOND: u32 = 10;

/// Problems of a configuration that are told at once, and bytes of each.
const MOST_PROBLEMS: usize = 5;
const MOST_PROBLEM: usize = 300;

/// A component, and the manifest in the file beside it if there is one.
#[derive(Clone, Copy, Debug)]
pub struct Code<'a> {
    /// The component, in binary form.
    pub component: &'a [u8],
    /// JSON of a manifest that stands beside the component. A component with a manifest of its own must not have another.
    pub manifest: Option<&'a [u8]>,
}

impl<'a> From<&'a [u8]> for Code<'a> {
    fn from(component: &'a [u8]) -> Code<'a> {
        Code { component, manifest: None }
    }
}

impl<'a> From<&'a Vec<u8>> for Code<'a> {
    fn from(component: &'a Vec<u8>) -> Code<'a> {
        Code { component, manifest: None }
    }
}

impl Policy {
    /// Compiles and checks a component. `name` is what the operator calls it: it marks its errors, log lines and scratch state.
    ///
    /// # Errors
    ///
    /// [`LoadError`], which says what the component lacks or wants too much of. Nothing of it has run but its start code.
    pub fn load<'a>(engine: &Arc<Engine>, name: &str, code: impl Into<Code<'a>>, terms: &Terms) -> Result<Arc<Policy>, LoadError> {
        let Code { component, manifest } = code.into();
        let policy = || name.to_owned();
        let limit = terms.limits.component_bytes;
        if component.len() > limit {
            return Err(LoadError::TooLarge { policy: policy(), bytes: component.len(), limit });
        }
        if !component.starts_with(b"\0asm") {
            let reason = "it does not begin like WebAssembly in binary form".to_owned();
            return Err(LoadError::Compile { policy: policy(), reason });
        }
        // The layer field of the preamble: 0 is a core module, 1 a component.
        if component.len() >= 8 && component.starts_with(b"\0asm") && component[6..8] == [0, 0] {
            return Err(LoadError::CoreModule { policy: policy() });
        }
        let digest = hex(&Sha256::digest(component));
        if let Some(pinned) = terms.sha256.as_ref().filter(|pinned| **pinned != digest) {
            return Err(LoadError::Digest { policy: policy(), found: digest, pinned: pinned.clone() });
        }
        let manifest = read_manifest(component, manifest).map_err(|reason| LoadError::Manifest { policy: policy(), reason })?;
        let capabilities = agree(name, &manifest, &terms.grants)?;
        let schema = schema(name, &manifest)?;
        let (realm, compiled) = compile(engine, name, component, &digest, &terms.limits)?;
        let contract = check_names(name, &compiled)?;

        let mismatch = |e: wasmtime::Error| LoadError::Mismatch { policy: policy(), known: latest::VERSION, reason: format!("{e:#}") };
        let mut linker = Linker::new(&realm.engine);
        latest::link(&mut linker).map_err(|e| LoadError::Engine(format!("{e:#}")))?;
        wasi::link(&mut linker, &compiled, &capabilities).map_err(mismatch)?;
        let pre = linker.instantiate_pre(&compiled).map_err(mismatch)?;
        let exports = Exports::find(&pre).map_err(mismatch)?;
        check_hooks(name, exports.hooks(), &manifest)?;
        let version = manifest.version.clone().unwrap_or_else(|| digest[..12].to_owned());
        let loaded = Arc::new(Policy {
            name: name.into(),
            version: version.into(),
            log: Arc::new(Allowance::new(terms.limits.log_lines_per_second)),
            errors: Allowance::new(ERRORS_PER_SECOND),
            realm,
            pre,
            exports,
            digest,
            contract,
            manifest,
            capabilities,
            limits: terms.limits.clone(),
            schema,
        });
        loaded.try_out(engine)?;
        tracing::debug!(policy = name, version = &*loaded.version, digest = loaded.digest, hooks = %loaded.hooks(), "policy loaded");
        Ok(loaded)
    }

    /// What the operator calls it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The version that its manifest declares; otherwise the first twelve digits of its digest.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// SHA-256 of the component, 64 hexadecimal digits.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// The contract version that it was built against.
    pub fn contract(&self) -> &str {
        &self.contract
    }

    /// The hook interfaces that it exports.
    pub fn hooks(&self) -> Hooks {
        self.exports.hooks()
    }

    /// What it says of itself; empty if it says nothing.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// What it wants and is granted.
    pub fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// What it may use.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Whether a configuration fits the schema in its manifest. `setting`: JSON text. The error names the places, not the values: those may be secret.
    pub(crate) fn check_setting(&self, setting: &str) -> Result<(), LoadError> {
        let wrong = |reason: String| Err(LoadError::Setting { policy: self.name.to_string(), reason });
        let value: serde_json::Value = match serde_json::from_str(setting) {
            Ok(value) => value,
            Err(e) => return wrong(format!("it is not JSON: {e}")),
        };
        let Some(schema) = &self.schema else { return Ok(()) };
        let problems: Vec<String> = schema
            .iter_errors(&value)
            .take(MOST_PROBLEMS)
            .map(|e| match e.instance_path().as_str() {
                "" => clean(&e.masked().to_string(), MOST_PROBLEM),
                at => format!("{}: {}", clean(at, MOST_PROBLEM), clean(&e.masked().to_string(), MOST_PROBLEM)),
            })
            .collect();
        if problems.is_empty() { Ok(()) } else { wrong(problems.join("; ")) }
    }

    /// Instantiates it in a store that is thrown away: only an instance shows whether the types of its exports fit.
    fn try_out(self: &Arc<Self>, engine: &Engine) -> Result<(), LoadError> {
        let mut store = call::store(engine, self, "null".into());
        call::arm_blocking(&mut store, &engine.config);
        let running = engine.running();
        let instance = self.pre.instantiate(&mut store).map_err(|e| {
            let reason = format!("{}", call::outcome(&e, store.data()));
            LoadError::Instantiate { policy: self.name.to_string(), reason }
        })?;
        drop(running);
        let check = self.exports.check(store.as_context_mut(), &instance);
        check.map_err(|e| LoadError::Mismatch { policy: self.name.to_string(), known: latest::VERSION, reason: format!("{e:#}") })
    }
}

impl std::fmt::Debug for Policy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Policy")
            .field("name", &self.name)
            .field("version", &self.version)
            .field("hooks", &self.hooks())
            .finish_non_exhaustive()
    }
}

/// Reads the contract version from the names of imports and exports, and refuses what a policy may not import. Returns the version.
fn check_names(policy: &str, component: &Component) -> Result<String, LoadError> {
    let (ty, engine) = (component.component_type(), component.engine());
    let mut contract = None;
    for (import, item) in ty.imports(engine) {
        let Some((interface, version)) = contract_name(import) else {
            if import.starts_with(wasi::PREFIX) {
                continue;
            }
            return Err(LoadError::Import { policy: policy.to_owned(), import: import.to_owned() });
        };
        check_version(policy, version)?;
        contract.get_or_insert_with(|| version.to_owned());
        let missing =
            |what: String| LoadError::Missing { policy: policy.to_owned(), what, wanted: version.to_owned(), known: latest::VERSION };
        let Some((_, offered)) = latest::OFFERED.iter().find(|(name, _)| *name == interface) else {
            return Err(missing(interface.to_owned()));
        };
        if let ComponentItem::ComponentInstance(instance) = item.ty
            && let Some((wanted, _)) = instance.exports(engine).find(|(name, _)| !offered.contains(name))
        {
            return Err(missing(wanted.rsplit(']').next().unwrap_or(wanted).to_owned()));
        }
    }
    for (export, _) in ty.exports(engine) {
        if let Some((_, version)) = contract_name(export) {
            check_version(policy, version)?;
            contract.get_or_insert_with(|| version.to_owned());
        }
    }
    contract.ok_or_else(|| LoadError::NoHooks { policy: policy.to_owned() })
}

fn read_manifest(component: &[u8], beside: Option<&[u8]>) -> Result<Manifest, String> {
    let own = Manifest::of(component)?;
    match (own, beside.map(Manifest::read).transpose()?) {
        (Some(own), Some(beside)) if own != beside => {
            Err("the manifest in the component and the one in the file beside it are not the same: remove the file".into())
        }
        (own, beside) => Ok(own.or(beside).unwrap_or_default()),
    }
}

/// What the manifest wants, if the operator grants all of it.
fn agree(policy: &str, manifest: &Manifest, grants: &Capabilities) -> Result<Capabilities, LoadError> {
    let wants = Capabilities::from(manifest.capabilities.clone());
    let missing = |capability: &str, grant: String| {
        Err(LoadError::NotGranted { policy: policy.to_owned(), capability: capability.to_owned(), grant })
    };
    let ungranted: Vec<&str> = wants.claims.difference(&grants.claims).map(String::as_str).collect();
    if !ungranted.is_empty() {
        let all: Vec<&str> = wants.claims.union(&grants.claims).map(String::as_str).collect();
        return missing(&format!("the claims {} of the principal", ungranted.join(", ")), format!("claims: [{}]", all.join(", ")));
    }
    if wants.every_call && !grants.every_call {
        return missing("to be asked about every call", "every_call: true".into());
    }
    if wants.clock && !grants.clock {
        return missing("a clock", "clock: true".into());
    }
    if wants.random && !grants.random {
        return missing("random numbers", "random: true".into());
    }
    let optional = manifest.capabilities.optional.of(grants);
    let gets = Capabilities {
        claims: wants.claims.union(&optional.claims).cloned().collect(),
        every_call: wants.every_call || optional.every_call,
        clock: wants.clock || optional.clock,
        random: wants.random || optional.random,
    };
    if gets != *grants {
        tracing::warn!(policy, "the policy is granted more than its manifest asks for; it gets what it asks for");
    }
    Ok(gets)
}

fn schema(policy: &str, manifest: &Manifest) -> Result<Option<Validator>, LoadError> {
    let Some(schema) = &manifest.config_schema else { return Ok(None) };
    // Nothing is fetched: a reference that leaves the schema is an error.
    jsonschema::options().build(schema).map(Some).map_err(|e| LoadError::Manifest {
        policy: policy.to_owned(),
        reason: format!("`config-schema` of its manifest is no JSON Schema: {}", clean(&e.to_string(), MOST_PROBLEM)),
    })
}

fn check_hooks(policy: &str, exported: Hooks, manifest: &Manifest) -> Result<(), LoadError> {
    if exported == Hooks::default() {
        return Err(LoadError::NoHooks { policy: policy.to_owned() });
    }
    let wrong = |reason: String| Err(LoadError::Manifest { policy: policy.to_owned(), reason });
    if let Some(said) = &manifest.hooks
        && *said != exported.names().into_iter().map(str::to_owned).collect::<BTreeSet<_>>()
    {
        let said: Vec<&str> = said.iter().map(String::as_str).collect();
        return wrong(format!("its manifest says that it exports [{}], but it exports [{exported}]", said.join(", ")));
    }
    if (manifest.capabilities.every_call || manifest.capabilities.optional.every_call) && !exported.router {
        return wrong("its manifest wants `every-call`, but it exports no router that could be asked".into());
    }
    Ok(())
}

/// `lockgate:policy/host@0.1.0` → (`host`, `0.1.0`).
fn contract_name(name: &str) -> Option<(&str, &str)> {
    name.strip_prefix("lockgate:policy/")?.split_once('@')
}

/// Same major and minor version: fits, whatever the patch version (what it uses of a later one is found by name).
fn check_version(policy: &str, wanted: &str) -> Result<(), LoadError> {
    let line = |v: &str| {
        let mut parts = v.split(['.', '-', '+']).map(|p| p.parse::<u64>().ok());
        Some((parts.next()??, parts.next()??))
    };
    let (policy, known) = (policy.to_owned(), latest::VERSION);
    match (line(wanted), line(known)) {
        (Some(w), Some(k)) if w == k => Ok(()),
        (Some(w), Some(k)) if w > k => Err(LoadError::TooNew { policy, wanted: wanted.to_owned(), known }),
        _ => Err(LoadError::Contract { policy, wanted: wanted.to_owned(), known }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_contract_of_the_same_minor_version_fits_and_others_say_why_not() {
        for fits in ["0.1.0", "0.1.7", "0.1.0-rc.1"] {
            assert!(check_version("p", fits).is_ok(), "{fits}");
        }
        for new in ["0.2.0", "1.0.0"] {
            assert!(matches!(check_version("p", new), Err(LoadError::TooNew { .. })), "{new}");
        }
        for other in ["0.0.9", "x", ""] {
            assert!(matches!(check_version("p", other), Err(LoadError::Contract { .. })), "{other}");
        }
    }
}

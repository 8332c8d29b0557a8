//! From bytes to a [`Policy`]: is it a component, of which contract version, does it want only what a policy gets, which hooks has
//! it, do its types fit, does it start within the limits. All of that before anyone relies on it. Compiling takes CPU time (tens of
//! milliseconds for a policy in Rust): call it where that hurts nobody.

use std::fmt::Write as _;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use wasmtime::AsContextMut;
use wasmtime::component::types::ComponentItem;
use wasmtime::component::{Component, InstancePre, Linker, ResourceType};

use crate::call::{self, HostState};
use crate::engine::Engine;
use crate::error::LoadError;
use crate::log::Allowance;
use crate::since_v0_1::{self as latest, Exports};
use crate::types::Hooks;

/// A policy's code, compiled and checked. Holds no state of any session; shared by all chains that use it.
pub struct Policy {
    pub(crate) name: Arc<str>,
    pub(crate) version: Arc<str>,
    pub(crate) log: Arc<Allowance>,
    /// How many errors of this policy may still be logged.
    pub(crate) errors: Allowance,
    pub(crate) pre: InstancePre<HostState>,
    pub(crate) exports: Exports,
    digest: String,
    contract: String,
}

/// Errors of one policy that are logged per second; the rest is counted.
const ERRORS_PER_SECOND: u32 = 10;

/// How imports begin that are answered with stubs.
const WASI: &str = "wasi:";

/// The name of a custom section that holds the version of a component's code, as text.
const VERSION_SECTION: &str = "version";

impl Policy {
    /// Compiles and checks a component. `name` is what the operator calls it: it marks its errors, log lines and scratch state.
    ///
    /// # Errors
    ///
    /// [`LoadError`], which says what the component lacks or wants too much of. Nothing of it has run but its start code.
    pub fn load(engine: &Arc<Engine>, name: &str, component: &[u8]) -> Result<Arc<Policy>, LoadError> {
        let policy = || name.to_owned();
        let limit = engine.config.component_bytes;
        if component.len() > limit {
            return Err(LoadError::TooLarge { policy: policy(), bytes: component.len(), limit });
        }
        // The layer field of the preamble: 0 is a core module, 1 a component.
        if component.len() >= 8 && component.starts_with(b"\0asm") && component[6..8] == [0, 0] {
            return Err(LoadError::CoreModule { policy: policy() });
        }
        let digest = hex(&Sha256::digest(component));
        // `from_binary`: text is not accepted, whatever features the engine was built with.
        let compiled = Component::from_binary(&engine.inner, component)
            .map_err(|e| LoadError::Compile { policy: policy(), reason: format!("{e:#}") })?;
        let contract = check_names(engine, name, &compiled)?;

        let mismatch = |e: wasmtime::Error| LoadError::Mismatch { policy: policy(), known: latest::VERSION, reason: format!("{e:#}") };
        let mut linker = Linker::new(&engine.inner);
        latest::link(&mut linker).map_err(|e| LoadError::Engine(format!("{e:#}")))?;
        stub_wasi(engine, &mut linker, &compiled).map_err(mismatch)?;
        let pre = linker.instantiate_pre(&compiled).map_err(mismatch)?;
        let exports = Exports::find(&pre).map_err(mismatch)?;
        if exports.hooks() == Hooks::default() {
            return Err(LoadError::NoHooks { policy: policy() });
        }
        let version = declared_version(component).unwrap_or_else(|| digest[..12].to_owned());
        let loaded = Arc::new(Policy {
            name: name.into(),
            version: version.into(),
            log: Arc::new(Allowance::new(engine.config.log_lines_per_second)),
            errors: Allowance::new(ERRORS_PER_SECOND),
            pre,
            exports,
            digest,
            contract,
        });
        loaded.try_out(engine)?;
        tracing::debug!(policy = name, version = &*loaded.version, digest = loaded.digest, hooks = %loaded.hooks(), "policy loaded");
        Ok(loaded)
    }

    /// What the operator calls it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The version that its component declares (custom section `version`); otherwise the first twelve digits of its digest.
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

    /// Instantiates it in a store that is thrown away: only an instance shows whether the types of its exports fit.
    fn try_out(&self, engine: &Engine) -> Result<(), LoadError> {
        let mut store = call::store(engine, self);
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
fn check_names(engine: &Engine, policy: &str, component: &Component) -> Result<String, LoadError> {
    let ty = component.component_type();
    let mut contract = None;
    for (import, item) in ty.imports(&engine.inner) {
        let Some((interface, version)) = contract_name(import) else {
            if import.starts_with(WASI) {
                tracing::warn!(policy, import, "the policy imports WASI, which policies do not get: it traps if it calls it");
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
            && let Some((wanted, _)) = instance.exports(&engine.inner).find(|(name, _)| !offered.contains(name))
        {
            return Err(missing(wanted.rsplit(']').next().unwrap_or(wanted).to_owned()));
        }
    }
    for (export, _) in ty.exports(&engine.inner) {
        if let Some((_, version)) = contract_name(export) {
            check_version(policy, version)?;
            contract.get_or_insert_with(|| version.to_owned());
        }
    }
    contract.ok_or_else(|| LoadError::NoHooks { policy: policy.to_owned() })
}

/// The standard library of a wasip2 guest imports WASI whether it needs it or not: functions that trap let it start, and grant nothing.
fn stub_wasi(engine: &Engine, linker: &mut Linker<HostState>, component: &Component) -> wasmtime::Result<()> {
    for (import, item) in component.component_type().imports(&engine.inner) {
        let ComponentItem::ComponentInstance(instance) = item.ty else {
            continue;
        };
        if !import.starts_with(WASI) {
            continue;
        }
        let mut stubs = linker.instance(import)?;
        for (name, item) in instance.exports(&engine.inner) {
            match item.ty {
                ComponentItem::ComponentFunc(_) => {
                    let what = format!("it called {name} of {import}, which policies do not get");
                    stubs.func_new(name, move |_, _, _, _| Err(wasmtime::Error::msg(what.clone())))?;
                }
                ComponentItem::Resource(_) => stubs.resource(name, ResourceType::host::<()>(), |_, _| Ok(()))?,
                _ => {}
            }
        }
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

/// The text of the custom section `version` at the top level of a component, if it is there and fit to be shown.
fn declared_version(component: &[u8]) -> Option<String> {
    let mut rest = component.get(8..)?;
    while let Some((&id, after)) = rest.split_first() {
        let (size, after) = leb(after)?;
        let (body, after) = after.split_at_checked(size)?;
        rest = after;
        if id != 0 {
            continue;
        }
        let (name_size, body) = leb(body)?;
        let (name, text) = body.split_at_checked(name_size)?;
        if name == VERSION_SECTION.as_bytes() {
            let text = std::str::from_utf8(text).ok()?;
            let fit = !text.is_empty() && text.len() <= 64 && text.bytes().all(|b| b.is_ascii_graphic());
            return fit.then(|| text.to_owned());
        }
    }
    None
}

/// An unsigned LEB128 number of at most 32 bits, and what follows it.
fn leb(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let mut value = 0u64;
    for (i, &b) in bytes.iter().take(5).enumerate() {
        value |= u64::from(b & 0x7f) << (7 * i);
        if b & 0x80 == 0 {
            return Some((usize::try_from(value).ok()?, &bytes[i + 1..]));
        }
    }
    None
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, b| {
        let _ = write!(text, "{b:02x}");
        text
    })
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

    #[test]
    fn the_declared_version_is_read_from_its_section_and_only_if_it_is_fit_to_be_shown() {
        let component = |text: &[u8]| {
            let mut c = b"\0asm\x0d\0\x01\0".to_vec();
            c.extend([0, 3, 1, b'x', 9]); // another custom section
            c.extend([0, 8 + text.len() as u8, 7]);
            c.extend(b"version");
            c.extend(text);
            c
        };
        assert_eq!(declared_version(&component(b"1.2.3")).as_deref(), Some("1.2.3"));
        assert_eq!(declared_version(&component(b"1.2\n3")), None);
        assert_eq!(declared_version(&component(b"")), None);
        assert_eq!(declared_version(&component(b"1.2.3")[..20]), None);
        assert_eq!(declared_version(b"\0asm"), None);
    }
}

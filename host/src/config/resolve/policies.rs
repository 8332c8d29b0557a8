//! The policies of a virtual host: which there are, on what terms, and how all of them are run.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lockgate_policy::{Capabilities, Failing, OnFailure, Terms};

use super::limits::{bytes, count, duration, narrow, size, time};
use super::virtual_hosts::Host;
use super::{Cx, Source, name_fault, resolve_path};
use crate::config::file::{FailFile, File, GrantsFile, OnFail, PolicyEntry, PolicyFile, PolicyLimitsFile};
use crate::config::model::{DEFAULT_POLICIES, PolicyConfig, PolicyRef, PolicySource, SHIPPED_POLICIES};
use crate::config::plain_file;
use crate::config::problem::{Place, suggest};
use crate::config::source::expand::Lookup;
use crate::config::source::tree::Step;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// How policies are run, and what each may use that says nothing else.
pub fn plane(main: &Source<'_>, file: &File, cx: &mut Cx<'_>) -> PolicyConfig {
    let default = PolicyConfig::default();
    let written = file.policy.as_ref();
    let at = |key: &'static str| main.doc.place(&["policy".into(), key.into()]);
    let cache = match written.and_then(|plane| plane.cache.as_deref()) {
        Some("off") => None,
        Some(directory) => match resolve_path(&main.base, directory) {
            Ok(path) if path.exists() && !path.is_dir() => {
                cx.problem(
                    at("cache"),
                    format!("{} is not a directory; name one (it is made if it does not exist), or `off`", path.display()),
                );
                None
            }
            Ok(path) => Some(path),
            Err(message) => {
                cx.problem(at("cache"), message);
                None
            }
        },
        None => default_cache(cx.env),
    };
    let Some(written) = written else { return PolicyConfig { cache, ..default } };
    let watch = match written.watch {
        None => default.watch,
        Some(watch) => watch.0.map(|watch| {
            let bounds = time(ms(1000), ms(20), ms(3_600_000), "; `off` turns it off");
            cx.bounded(|| at("watch"), Some(watch), bounds)
        }),
    };
    let probation = time(default.probation, Duration::ZERO, ms(86_400_000), ": by then a policy has proved itself");
    let probation = cx.bounded(|| at("probation"), duration(written.probation), probation);
    let most = Some(written.instances.map_or(default.instances as usize, narrow));
    // Each takes memory mappings, of which a process has 65,530 unless the system is told otherwise.
    let instances = cx.bounded(|| at("instances"), most, count(default.instances as usize, 1, 8000));
    let limits = limits(main, &["policy".into(), "limits".into()], written.limits.as_ref(), &default.limits, cx);
    PolicyConfig { cache, compiler: None, instances: u32::try_from(instances).unwrap_or(default.instances), watch, probation, limits }
}

/// `$XDG_CACHE_HOME`, else `~/.cache` (XDG Base Directory Specification; a relative path there is to be ignored).
pub fn default_cache(env: Lookup<'_>) -> Option<PathBuf> {
    let directory = |name: &str| env(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = directory("XDG_CACHE_HOME").or_else(|| Some(directory("HOME")?.join(".cache")))?;
    Some(base.join("lockgate/policies"))
}

fn limits(
    main: &Source<'_>,
    path: &[Step<'_>],
    written: Option<&PolicyLimitsFile>,
    common: &lockgate_policy::Limits,
    cx: &mut Cx<'_>,
) -> lockgate_policy::Limits {
    let Some(written) = written else { return common.clone() };
    let at = |key: &'static str| move || main.doc.place(&[path, &[key.into()]].concat());
    let log_rate = count(common.log_lines_per_second as usize, 0, 10_000);
    lockgate_policy::Limits {
        memory_bytes: cx.bounded(at("memory"), bytes(written.memory), size(common.memory_bytes, 64 * KIB, 1024 * MIB)),
        resolve_time: cx.bounded(
            at("resolve_time"),
            duration(written.resolve_time),
            time(common.resolve_time, ms(1), ms(10_000), ": a call waits for it"),
        ),
        list_time: cx.bounded(
            at("list_time"),
            duration(written.list_time),
            time(common.list_time, ms(1), ms(60_000), ": clients themselves give up by then"),
        ),
        output_bytes: cx.bounded(at("output"), bytes(written.output), size(common.output_bytes, KIB, 64 * MIB)),
        state_keys: cx.bounded(at("state_keys"), written.state_keys.map(narrow), count(common.state_keys, 0, 65_536)),
        state_bytes: cx.bounded(at("state"), bytes(written.state), size(common.state_bytes, 0, 16 * MIB)),
        log_lines_per_second: u32::try_from(cx.bounded(at("log_rate"), written.log_rate.map(narrow), log_rate)).unwrap_or(u32::MAX),
        component_bytes: cx.bounded(at("component"), bytes(written.component), size(common.component_bytes, KIB, 256 * MIB)),
    }
}

/// A policy that ships, with nothing but its name.
fn shipped(name: &str, plane: &PolicyConfig, place: Place) -> PolicyRef {
    PolicyRef {
        name: name.to_owned(),
        source: PolicySource::Shipped,
        config: serde_json::Value::Null,
        terms: Terms { limits: plane.limits.clone(), ..Terms::default() },
        failing: Failing::default(),
        place,
    }
}

pub fn default_policies(plane: &PolicyConfig) -> Vec<PolicyRef> {
    DEFAULT_POLICIES.iter().map(|name| shipped(name, plane, Place::named("the policies that ship"))).collect()
}

// === impl Host ===

impl Host<'_> {
    pub(super) fn policies(&self, members: &[usize], cx: &mut Cx<'_>) -> Vec<PolicyRef> {
        let Some(entries) = &self.entry.policies else {
            return default_policies(self.plane);
        };
        let key: Step<'_> = "policies".into();
        if entries.is_empty() && members.len() > 1 && !self.incomplete(&[key]) {
            let message = "without a policy the names of several backends would collide; add `namespace`, or remove the key to have `[alias, namespace]`";
            cx.problem(self.key_place(&[key]), message);
        }
        let mut policies: Vec<PolicyRef> = Vec::new();
        for (i, entry) in entries.iter().enumerate() {
            let at = [key, i.into()];
            let (policy, name_at) = match entry {
                PolicyFile::Shipped(name) => {
                    let place = self.place(&at);
                    (self.known(&at, name, cx).then(|| shipped(name, self.plane, place.clone())), place)
                }
                PolicyFile::Full(full) => (self.policy(&at, full, cx), self.place(&[at[0], at[1], "name".into()])),
            };
            let Some(policy) = policy else { continue };
            if policies.iter().any(|p| p.name == policy.name) {
                cx.problem(name_at, format!("there is a policy `{}` in this list already; names are unique", policy.name));
                continue;
            }
            policies.push(policy);
        }
        policies
    }

    fn policy(&self, at: &[Step<'_>; 2], full: &PolicyEntry, cx: &mut Cx<'_>) -> Option<PolicyRef> {
        let below = |key: &'static str| [at[0], at[1], key.into()];
        let (source, place) = match &full.component {
            None => (self.known(&below("name"), &full.name, cx).then_some(PolicySource::Shipped), self.place(&below("name"))),
            Some(file) => (self.component(at, &full.name, file, cx), self.place(&below("component"))),
        };
        let limits_at: Vec<Step<'_>> = [&self.at[..], &below("limits")].concat();
        let terms = Terms {
            grants: full.grants.as_ref().map(|grants| self.grants(at, grants, cx)).unwrap_or_default(),
            limits: limits(self.main, &limits_at, full.limits.as_ref(), &self.plane.limits, cx),
            sha256: full.sha256.as_ref().and_then(|hex| self.pin(&below("sha256"), hex, cx)),
        };
        let failing = full.fail.as_ref().map(failing).unwrap_or_default();
        Some(PolicyRef { name: full.name.clone(), source: source?, config: full.config.clone().unwrap_or_default(), terms, failing, place })
    }

    /// Whether a policy of this name ships.
    fn known(&self, at: &[Step<'_>], name: &str, cx: &mut Cx<'_>) -> bool {
        let known = SHIPPED_POLICIES.contains(&name);
        if !known {
            let message = format!(
                "no policy `{name}` ships with Lockgate (one of your own is {{ name: …, component: ./file.wasm }}); {}",
                suggest(name, SHIPPED_POLICIES)
            );
            cx.problem(self.place(at), message);
        }
        known
    }

    fn component(&self, at: &[Step<'_>; 2], name: &str, file: &str, cx: &mut Cx<'_>) -> Option<PolicySource> {
        if SHIPPED_POLICIES.contains(&name) {
            let message = format!("`{name}` is a policy that ships; give your own another name");
            cx.problem(self.place(&[at[0], at[1], "name".into()]), message);
        } else if let Some(fault) = name_fault(name) {
            cx.problem(self.place(&[at[0], at[1], "name".into()]), fault);
        }
        match resolve_path(&self.main.base, file).and_then(|path| check_component(&path, &self.main.base)) {
            Ok(path) => Some(PolicySource::File(path)),
            Err(message) => {
                cx.problem(self.place(&[at[0], at[1], "component".into()]), message);
                None
            }
        }
    }

    fn pin(&self, at: &[Step<'_>], hex: &str, cx: &mut Cx<'_>) -> Option<String> {
        let fits = hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_hexdigit());
        if !fits {
            cx.problem(self.place(at), "a SHA-256 has 64 hexadecimal digits; `sha256sum FILE` prints that of a component");
        }
        fits.then(|| hex.to_ascii_lowercase())
    }

    fn grants(&self, at: &[Step<'_>; 2], written: &GrantsFile, cx: &mut Cx<'_>) -> Capabilities {
        let mut claims = BTreeSet::new();
        for (i, name) in written.claims.iter().flatten().enumerate() {
            let place = || self.place(&[at[0], at[1], "grants".into(), "claims".into(), i.into()]);
            if let Some(fault) = claim_fault(name) {
                cx.problem(place(), fault);
            } else if !claims.insert(name.clone()) {
                cx.problem(place(), format!("`{name}` is in this list already; remove it"));
            }
        }
        Capabilities {
            claims,
            every_call: written.every_call.unwrap_or_default(),
            clock: written.clock.unwrap_or_default(),
            random: written.random.unwrap_or_default(),
        }
    }
}

fn failing(written: &FailFile) -> Failing {
    let on = |word: OnFail| match word {
        OnFail::Closed => OnFailure::Closed,
        OnFail::Open => OnFailure::Open,
    };
    match written {
        FailFile::All(word) => Failing::all(on(*word)),
        FailFile::PerHook(hooks) => {
            let one = |word: Option<OnFail>| word.map(on).unwrap_or_default();
            Failing { alias: one(hooks.alias), router: one(hooks.router), namespace: one(hooks.namespace), lifecycle: one(hooks.lifecycle) }
        }
    }
}

/// What is wrong with the name of a claim, if anything.
pub fn claim_fault(name: &str) -> Option<&'static str> {
    let fits = !name.is_empty() && name.len() <= 256 && !name.chars().any(char::is_control);
    (!fits).then_some("the name of a claim has 1 to 256 bytes and no control characters")
}

/// A WASM component begins with this; a core module differs in the last four bytes.
const COMPONENT: [u8; 8] = *b"\0asm\x0d\0\x01\0";

fn check_component(path: &Path, base: &Path) -> Result<PathBuf, String> {
    let shown = path.display();
    let mut head = [0; 8];
    let read = plain_file::open(path).and_then(|mut f| f.read_exact(&mut head));
    match read {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            Err(format!("{shown} does not exist; relative paths start at {}", base.display()))
        }
        Err(e) if e.kind() != std::io::ErrorKind::UnexpectedEof => Err(format!("{shown} cannot be read: {e}")),
        Ok(()) if head == COMPONENT => Ok(path.to_owned()),
        Ok(()) if head.starts_with(b"\0asm") => {
            Err(format!("{shown} is a core WASM module, not a component; make one of it, for example with `wasm-tools component new`"))
        }
        _ => Err(format!("{shown} is not a WASM component")),
    }
}

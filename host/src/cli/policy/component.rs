//! The component that a command is about: a file, a crate that is built first, or a policy that ships, by its name.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use lockgate_policy::{Capabilities, Code, Engine, EngineConfig, Manifest, shipped};

use super::build;
use crate::config::plain_file;

/// Bytes of a component that are read: as many as a configuration can allow, and one more for the policy plane to refuse.
const MOST_BYTES: usize = (256 << 20) + 1;

/// A component's bytes and where they are from.
#[derive(Debug)]
pub struct Component {
    /// What to call it: the name of the file or of the shipped policy.
    pub name: String,
    pub bytes: Vec<u8>,
    /// The manifest in the file beside it.
    pub beside: Option<Vec<u8>>,
    /// The file; `None` for a shipped one.
    pub file: Option<PathBuf>,
    /// Where its fixtures are unless the command line says otherwise.
    pub fixtures: Option<PathBuf>,
}

impl Component {
    /// `what`: a file, a folder with a `Cargo.toml`, or the name of a shipped policy.
    ///
    /// # Errors
    ///
    /// When there is nothing of this name, or it cannot be read or built.
    pub fn find(what: &Path) -> anyhow::Result<Component> {
        if what.is_dir() {
            let built = build::build(what, None, &[])?;
            let fixtures = Some(what.join("fixtures"));
            return Ok(Component { name: built.name, bytes: built.component, beside: None, file: Some(built.file), fixtures });
        }
        let by_name = what.to_str().filter(|_| !what.exists()).and_then(|name| Some((name, shipped::by_name(name)?)));
        if let Some((name, bytes)) = by_name {
            return Ok(Component { name: name.to_owned(), bytes: bytes.to_vec(), beside: None, file: None, fixtures: None });
        }
        let read = plain_file::read(what, MOST_BYTES);
        let bytes = read.with_context(|| {
            let names: Vec<&str> = shipped::names().collect();
            format!("{} cannot be read (a file, a folder with a Cargo.toml, or one of the shipped {})", what.display(), names.join(", "))
        })?;
        let name = what.file_stem().and_then(|stem| stem.to_str()).unwrap_or("policy").to_owned();
        let beside = what.with_file_name(format!("{name}.manifest.json"));
        let beside = match plain_file::read(&beside, MOST_BYTES) {
            Ok(manifest) => Some(manifest),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
            Err(e) => bail!("{} cannot be read: {e}", beside.display()),
        };
        let fixtures = what.parent().map(|dir| dir.join("fixtures"));
        Ok(Component { name, bytes, beside, file: Some(what.to_owned()), fixtures })
    }

    /// For the loader.
    pub fn code(&self) -> Code<'_> {
        Code { component: &self.bytes, manifest: self.beside.as_deref() }
    }

    /// What it says of itself; empty if it says nothing.
    ///
    /// # Errors
    ///
    /// When that cannot be read.
    pub fn manifest(&self) -> anyhow::Result<Manifest> {
        let own = Manifest::of(&self.bytes).map_err(anyhow::Error::msg)?;
        let beside = self.beside.as_deref().map(Manifest::read).transpose().map_err(anyhow::Error::msg)?;
        Ok(own.or(beside).unwrap_or_default())
    }
}

/// An engine as the gateway has it, for one policy: what was compiled before is found in the same cache.
pub fn engine() -> anyhow::Result<Arc<Engine>> {
    let (compiler, cache) = (std::env::current_exe().ok(), crate::config::default_cache(&|name| std::env::var(name).ok()));
    Ok(Engine::new(EngineConfig { pool_instances: 4, compiler, cache, ..EngineConfig::default() })?)
}

/// Everything that a manifest insists on: what an operator who trusts it would grant.
pub fn all_wanted(manifest: &Manifest) -> Capabilities {
    manifest.capabilities.clone().into()
}

/// Capabilities in words, as a configuration file would have them.
pub fn words(capabilities: &Capabilities) -> String {
    let Capabilities { claims, every_call, clock, random } = capabilities;
    let mut all = Vec::new();
    if !claims.is_empty() {
        all.push(format!("claims: [{}]", claims.iter().map(String::as_str).collect::<Vec<_>>().join(", ")));
    }
    for (has, name) in [(every_call, "every_call: true"), (clock, "clock: true"), (random, "random: true")] {
        if *has {
            all.push(name.to_owned());
        }
    }
    if all.is_empty() { "nothing".to_owned() } else { all.join(", ") }
}

/// `157959` → `157,959`.
pub fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_component_is_found_by_its_file_or_as_one_that_ships() {
        let route = Component::find(Path::new("route")).unwrap();
        assert_eq!((&*route.name, route.file, route.bytes.is_empty()), ("route", None, false));
        let why = format!("{:#}", Component::find(Path::new("rout")).unwrap_err());
        assert!(why.contains("rout cannot be read") && why.contains("alias, filter, namespace, route"), "{why}");
    }

    #[test]
    fn numbers_and_capabilities_are_written_for_people() {
        assert_eq!([grouped(7), grouped(1_234), grouped(1_234_567)], ["7", "1,234", "1,234,567"]);
        let capabilities = Capabilities { claims: ["team".to_owned()].into(), clock: true, ..Capabilities::default() };
        assert_eq!(words(&capabilities), "claims: [team], clock: true");
        assert_eq!(words(&Capabilities::default()), "nothing");
    }
}

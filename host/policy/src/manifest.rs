//! What a component says of itself: name, version, hooks, the capabilities that it wants, a JSON Schema for its configuration. It is JSON
//! in the custom section `lockgate:manifest`, or in a file beside the component. Read before anything runs; `load` holds it
//! against the exports and against what the operator grants.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::terms::Capabilities;

pub use crate::component::MANIFEST_SECTION as SECTION;

/// A custom section that holds only a version, as text: for components without a manifest.
const VERSION_SECTION: &str = "version";

/// Bytes of a manifest that are read.
const MOST_BYTES: usize = 256 << 10;

/// A manifest. Every key is optional; an unknown one is an error, so that a capability that is misspelt is not one that is missing.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Manifest {
    /// What its author calls it; the operator's name for it is another thing. At most 128 bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Version of the code, at most 64 visible ASCII characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// What it does, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The hook interfaces that it exports: exactly these.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hooks: Option<BTreeSet<String>>,
    /// What it wants beyond the session handle.
    pub capabilities: Wanted,
    /// JSON Schema (draft 2020-12 unless it says otherwise) that its configuration is checked against; without, it takes any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_schema: Option<Value>,
}

/// The capabilities as a manifest writes them.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Wanted {
    /// Claims of the principal, by name.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub claims: BTreeSet<String>,
    /// To be asked about each call.
    #[serde(skip_serializing_if = "is_false")]
    pub every_call: bool,
    /// `wasi:clocks`.
    #[serde(skip_serializing_if = "is_false")]
    pub clock: bool,
    /// `wasi:random`.
    #[serde(skip_serializing_if = "is_false")]
    pub random: bool,
    /// What it uses where it is granted, and does without where it is not.
    #[serde(skip_serializing_if = "Optional::is_empty")]
    pub optional: Optional,
}

/// Capabilities that a policy does not insist on.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Optional {
    /// Claims of the principal, by name. `*`: whichever are granted, for a policy whose configuration names them.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub claims: BTreeSet<String>,
    /// To be asked about each call.
    #[serde(skip_serializing_if = "is_false")]
    pub every_call: bool,
    /// `wasi:clocks`.
    #[serde(skip_serializing_if = "is_false")]
    pub clock: bool,
    /// `wasi:random`.
    #[serde(skip_serializing_if = "is_false")]
    pub random: bool,
}

// === impl Manifest ===

impl Manifest {
    /// Reads a manifest's JSON. The error says what is wrong with it, and where.
    pub fn read(json: &[u8]) -> Result<Manifest, String> {
        if json.len() > MOST_BYTES {
            return Err(format!("the manifest has {} bytes, at most {MOST_BYTES} are read", json.len()));
        }
        let manifest: Manifest = serde_json::from_slice(json).map_err(|e| format!("the manifest cannot be read: {e}"))?;
        if manifest.version.as_ref().is_some_and(|v| !is_version(v)) {
            return Err("the manifest's `version` must be 1 to 64 visible ASCII characters".into());
        }
        if manifest.name.as_ref().is_some_and(|n| n.is_empty() || n.len() > 128 || n.chars().any(char::is_control)) {
            return Err("the manifest's `name` must be 1 to 128 bytes without control characters".into());
        }
        Ok(manifest)
    }

    /// The manifest in a component; `None` if it has none. A component with only a version section gets a manifest of that.
    pub fn of(component: &[u8]) -> Result<Option<Manifest>, String> {
        if let Some(json) = custom_section(component, SECTION) {
            return Manifest::read(json).map(Some);
        }
        let version = custom_section(component, VERSION_SECTION).and_then(|text| std::str::from_utf8(text).ok()).filter(|v| is_version(v));
        Ok(version.map(|v| Manifest { version: Some(v.to_owned()), ..Manifest::default() }))
    }
}

impl From<Wanted> for Capabilities {
    /// Those that it insists on.
    fn from(wanted: Wanted) -> Capabilities {
        let Wanted { claims, every_call, clock, random, optional: _ } = wanted;
        Capabilities { claims, every_call, clock, random }
    }
}

// === impl Optional ===

impl Optional {
    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        *self == Optional::default()
    }

    /// What of it is granted.
    pub(crate) fn of(&self, grants: &Capabilities) -> Capabilities {
        let any = self.claims.contains("*");
        Capabilities {
            claims: grants.claims.iter().filter(|c| any || self.claims.contains(*c)).cloned().collect(),
            every_call: self.every_call && grants.every_call,
            clock: self.clock && grants.clock,
            random: self.random && grants.random,
        }
    }
}

fn is_version(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic())
}

fn is_false(value: &bool) -> bool {
    !value
}

/// The contents of the first custom section of this name at the top level of a component.
fn custom_section<'a>(component: &'a [u8], wanted: &str) -> Option<&'a [u8]> {
    let mut rest = component.get(8..)?;
    while let Some((&id, after)) = rest.split_first() {
        let (size, after) = leb(after)?;
        let (body, after) = after.split_at_checked(size)?;
        rest = after;
        if id != 0 {
            continue;
        }
        let (name_size, body) = leb(body)?;
        let (name, contents) = body.split_at_checked(name_size)?;
        if name == wanted.as_bytes() {
            return Some(contents);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_what_is_optional_a_policy_gets_what_is_granted() {
        let optional: Optional = serde_json::from_str(r#"{"claims":["*"],"random":true}"#).unwrap();
        let team = Capabilities { claims: ["team".to_owned()].into(), clock: true, ..Capabilities::default() };
        assert_eq!(optional.of(&team), Capabilities { claims: team.claims.clone(), ..Capabilities::default() });
        assert!(optional.of(&Capabilities { random: true, ..team.clone() }).random);
        let one = Optional { claims: ["region".to_owned()].into(), ..Optional::default() };
        assert!(one.of(&team).claims.is_empty());
    }

    fn component(section: &str, contents: &[u8]) -> Vec<u8> {
        let mut c = b"\0asm\x0d\0\x01\0".to_vec();
        c.extend([0, 3, 1, b'x', 9]); // another custom section
        c.extend([0, (1 + section.len() + contents.len()) as u8, section.len() as u8]);
        c.extend(section.as_bytes());
        c.extend(contents);
        c
    }

    #[test]
    fn a_manifest_is_read_from_its_section_and_says_what_is_wrong_with_it() {
        let json = br#"{"version":"1.2.3","hooks":["router"],"capabilities":{"claims":["team"],"every-call":true}}"#;
        let manifest = Manifest::of(&component(SECTION, json)).unwrap().unwrap();
        assert_eq!(manifest.version.as_deref(), Some("1.2.3"));
        let wants = Capabilities::from(manifest.capabilities);
        assert!(wants.every_call && wants.claims.contains("team") && !wants.clock && !wants.random);
        let why = Manifest::of(&component(SECTION, br#"{"capabilities":{"every_call":true}}"#)).unwrap_err();
        assert!(why.contains("unknown field `every_call`") && why.contains("every-call"), "{why}");
        assert!(Manifest::of(&component(SECTION, br#"{"version":"1 2"}"#)).is_err());
        assert_eq!(Manifest::of(b"\0asm\x0d\0\x01\0"), Ok(None));
    }

    #[test]
    fn a_version_by_itself_is_read_only_if_it_is_fit_to_be_shown() {
        let version = |text: &[u8]| Manifest::of(&component("version", text)).unwrap().and_then(|m| m.version);
        assert_eq!(version(b"1.2.3").as_deref(), Some("1.2.3"));
        assert_eq!(version(b"1.2\n3"), None);
        assert_eq!(version(b""), None);
        assert_eq!(Manifest::of(&component("version", b"1.2.3")[..20]), Ok(None), "cut off");
        assert_eq!(Manifest::of(b"\0asm"), Ok(None));
    }
}

//! From what a compiler gives to a component that says who it is: the encoder, the manifest made of `Cargo.toml`, and what can be read from a
//! component without an engine. Used by this crate's build script (which includes this file by its path) for the shipped policies
//! and by `lockgate policy build` for everybody's. Runs nothing, reads no file but the schema that a manifest names.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Map, Value, json};
use wit_component::{ComponentEncoder, DecodedWasm};

/// The custom section that holds a manifest, at the top level of a component.
pub const MANIFEST_SECTION: &str = "lockgate:manifest";

/// The custom section with the version alone, for tools that know nothing of manifests.
const VERSION_SECTION: &str = "version";

/// What a component imports and exports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// The hook interfaces that it exports, by name.
    pub hooks: BTreeSet<String>,
    /// Everything that it imports: `interface function`, each in its own line; an interface without functions (types) by itself.
    pub imports: BTreeSet<String>,
    /// The contract version that it was built against.
    pub contract: Option<String>,
}

/// A policy package as `cargo metadata` describes it.
#[derive(Clone, Debug)]
pub struct Package {
    /// Name of the package.
    pub name: String,
    /// Its manifest for the component, without `hooks`.
    pub manifest: Value,
    /// Name of its library target, which the compiled module has.
    pub library: String,
}

// === impl Package ===

impl Package {
    /// Reads one entry of `packages` of `cargo metadata`. The error says what to write into `Cargo.toml`.
    pub fn read(package: &Value) -> Result<Package, String> {
        let text = |key: &str| package[key].as_str().unwrap_or_default().to_owned();
        let (name, toml) = (text("name"), text("manifest_path"));
        let wrong = |what: &str| format!("{toml}: {what}");
        let targets = package["targets"].as_array().map(Vec::as_slice).unwrap_or_default();
        let is_component = |t: &&Value| t["crate_types"].as_array().is_some_and(|all| all.contains(&json!("cdylib")));
        let Some(library) = targets.iter().find(is_component).and_then(|t| t["name"].as_str()) else {
            return Err(wrong(
                "a policy is a library that is linked as a component: add `[lib]` with `crate-type = [\"cdylib\", \"rlib\"]`",
            ));
        };
        let said = match &package["metadata"]["lockgate"] {
            Value::Null => Map::new(),
            Value::Object(said) => said.clone(),
            _ => return Err(wrong("`package.metadata.lockgate` must be a table")),
        };
        let mut manifest = Map::new();
        manifest.insert("name".into(), json!(name));
        manifest.insert("version".into(), json!(text("version")));
        if let Some(description) = package["description"].as_str() {
            manifest.insert("description".into(), json!(description));
        }
        for (key, value) in said {
            let value = match (&*key, value) {
                ("name" | "description" | "capabilities", value) => value,
                ("config-schema", Value::String(file)) => schema(Path::new(&toml).parent().unwrap_or(Path::new("")).join(&file).as_path())?,
                ("config-schema", value @ Value::Object(_)) => value,
                ("config-schema", _) => {
                    return Err(wrong("`config-schema` must be the name of a file with a JSON Schema, or the schema as a table"));
                }
                _ => {
                    return Err(wrong(&format!(
                        "`package.metadata.lockgate` has name, description, capabilities and config-schema, but not `{key}`"
                    )));
                }
            };
            manifest.insert(key, value);
        }
        Ok(Package { name, manifest: manifest.into(), library: library.to_owned() })
    }
}

fn schema(file: &Path) -> Result<Value, String> {
    let text = std::fs::read_to_string(file).map_err(|e| format!("{} (config-schema) cannot be read: {e}", file.display()))?;
    serde_json::from_str(&text).map_err(|e| format!("{} (config-schema) is not JSON: {e}", file.display()))
}

/// Makes a component of a core module that was built against the contract, with its manifest inside. `hooks` of the manifest is filled in;
/// an import that the manifest's capabilities do not cover is an error, nothing is added to them.
pub fn encode(module: &[u8], mut manifest: Value) -> Result<Vec<u8>, String> {
    let encoded = ComponentEncoder::default().validate(true).module(module).and_then(|mut e| e.encode());
    let mut component = encoded.map_err(|e| format!("the module cannot be made a component: {e:#}"))?;
    let shape = shape(&component)?;
    if shape.hooks.is_empty() {
        return Err("it exports no hook: name the type that implements them, `lockgate_sdk::export!(MyPolicy: router);`".into());
    }
    for (interface, capability) in [("wasi:clocks/", "clock"), ("wasi:random/", "random")] {
        let wanted = &manifest["capabilities"];
        let asked = wanted[capability] == json!(true) || wanted["optional"][capability] == json!(true);
        if !asked && let Some(import) = shape.imports.iter().find(|i| i.starts_with(interface)) {
            return Err(format!(
                "it calls {import}, but does not ask for it: add `capabilities = {{ {capability} = true }}` to `[package.metadata.lockgate]` in Cargo.toml"
            ));
        }
    }
    manifest["hooks"] = json!(shape.hooks);
    if let Some(version) = manifest["version"].as_str() {
        append_section(&mut component, VERSION_SECTION, version.as_bytes());
    }
    Ok(with_manifest(component, manifest.to_string().as_bytes()))
}

/// A component with a manifest (JSON) inside; it must not have one yet.
pub fn with_manifest(mut component: Vec<u8>, manifest: &[u8]) -> Vec<u8> {
    append_section(&mut component, MANIFEST_SECTION, manifest);
    component
}

/// Reads what a component imports and exports.
pub fn shape(component: &[u8]) -> Result<Shape, String> {
    // The decoder takes a core module for a component without imports and exports.
    if !component.starts_with(b"\0asm") || component.get(6..8) != Some(&[1, 0]) {
        return Err("this is not a WASM component".into());
    }
    let decoded = wit_component::decode(component).map_err(|e| format!("not a component: {e:#}"))?;
    let DecodedWasm::Component(resolve, world) = &decoded else {
        return Err("this is a WIT package, not a component".into());
    };
    let world = &resolve.worlds[*world];
    let mut shape = Shape::default();
    for key in world.imports.keys() {
        let interface = resolve.name_world_key(key);
        note_contract(&interface, &mut shape);
        let found = resolve.interfaces.iter().find(|(id, _)| resolve.id_of(*id).as_ref() == Some(&interface));
        let functions: Vec<&String> = found.iter().flat_map(|(_, i)| i.functions.keys()).collect();
        if functions.is_empty() {
            shape.imports.insert(interface);
        } else {
            // `[method]session.claim` is how the component model writes it; people do not.
            let plain = |f: &str| f.rsplit(']').next().unwrap_or(f).to_owned();
            shape.imports.extend(functions.into_iter().map(|f| format!("{interface} {}", plain(f))));
        }
    }
    for key in world.exports.keys() {
        if let Some(hook) = note_contract(&resolve.name_world_key(key), &mut shape) {
            shape.hooks.insert(hook);
        }
    }
    Ok(shape)
}

/// The interface of the contract that a name stands for: `lockgate:policy/router@0.1.1` → `router`.
fn note_contract(name: &str, shape: &mut Shape) -> Option<String> {
    let (interface, version) = name.strip_prefix("lockgate:policy/")?.split_once('@')?;
    shape.contract.get_or_insert_with(|| version.to_owned());
    Some(interface.to_owned())
}

/// Appends a custom section at the top level.
fn append_section(component: &mut Vec<u8>, name: &str, contents: &[u8]) {
    let mut body = leb(name.len());
    body.extend(name.as_bytes());
    body.extend(contents);
    component.push(0);
    component.extend(leb(body.len()));
    component.extend(body);
}

/// Unsigned LEB128.
fn leb(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let low = (value & 0x7f) as u8;
        value >>= 7;
        if value == 0 {
            bytes.push(low);
            return bytes;
        }
        bytes.push(low | 0x80);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(lockgate: Value) -> Value {
        json!({
            "name": "mine", "version": "1.2.3", "description": null, "manifest_path": "/nowhere/Cargo.toml",
            "targets": [{ "name": "mine", "crate_types": ["cdylib", "rlib"] }],
            "metadata": { "lockgate": lockgate },
        })
    }

    #[test]
    fn the_manifest_comes_from_cargo_toml_and_misspelt_keys_do_not_pass() {
        let read = Package::read(&package(json!({ "capabilities": { "claims": ["team"] }, "config-schema": { "type": "null" } }))).unwrap();
        let expected =
            json!({ "name": "mine", "version": "1.2.3", "capabilities": { "claims": ["team"] }, "config-schema": { "type": "null" } });
        assert_eq!(read.manifest, expected);
        for (wrong, says) in [
            (json!({ "capability": {} }), "but not `capability`"),
            (json!({ "config-schema": 1 }), "the name of a file"),
            (json!({ "config-schema": "missing.json" }), "/nowhere/missing.json (config-schema) cannot be read"),
            (json!([]), "must be a table"),
        ] {
            let why = Package::read(&package(wrong)).unwrap_err();
            assert!(why.contains(says), "{why}");
        }
        let mut plain = package(Value::Null);
        assert_eq!(Package::read(&plain).unwrap().manifest, json!({ "name": "mine", "version": "1.2.3" }));
        plain["targets"][0]["crate_types"] = json!(["lib"]);
        assert!(Package::read(&plain).unwrap_err().contains("crate-type"));
    }

    #[test]
    fn sections_of_any_length_are_written_as_they_are_read() {
        assert_eq!((leb(0), leb(127), leb(128), leb(300)), (vec![0], vec![127], vec![0x80, 1], vec![0xac, 2]));
        let mut component = b"\0asm\x0d\0\x01\0".to_vec();
        append_section(&mut component, "other", &[7; 1_000]);
        append_section(&mut component, MANIFEST_SECTION, br#"{"version":"1"}"#);
        assert_eq!(crate::Manifest::of(&component).unwrap().unwrap().version.as_deref(), Some("1"));
    }

    #[test]
    fn what_is_no_component_is_named() {
        assert!(shape(b"\0asm\x01\0\0\0").unwrap_err().contains("component"));
        assert!(encode(b"nothing", json!({})).unwrap_err().contains("cannot be made a component"));
    }
}

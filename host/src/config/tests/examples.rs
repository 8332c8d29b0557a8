//! The example configurations load, the full one holds every key, and the schema tells the defaults that the code has.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use super::*;
use crate::config::source::tree::{Node, Step};

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples")
}

/// The examples with the files that they name, in a directory of their own.
struct Copy(PathBuf);

impl Copy {
    fn new() -> Self {
        let dir = std::env::temp_dir().join(format!("lockgate-examples-{}", std::process::id()));
        fs::create_dir_all(dir.join("servers")).unwrap();
        fs::create_dir_all(dir.join("policies")).unwrap();
        fs::copy(fixture().join("policy.wasm"), dir.join("policies/office_hours.wasm")).unwrap();
        fs::write(dir.join("servers/notes"), "#!/bin/sh\n").unwrap();
        fs::set_permissions(dir.join("servers/notes"), fs::Permissions::from_mode(0o755)).unwrap();
        for entry in fs::read_dir(examples()).unwrap() {
            let path = entry.unwrap().path();
            fs::copy(&path, dir.join(path.file_name().unwrap())).unwrap();
        }
        Copy(dir)
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn example_env(name: &str) -> Option<String> {
    match name {
        "DOCS_TOKEN" | "TICKETS_KEY" | "BUILD_TOKEN" | "ADMIN_TOKEN" => Some(format!("0123456789abcdef-{name}")),
        "STATE_KEY" => Some("0123456789abcdef".repeat(4)),
        _ => env(name),
    }
}

#[test]
fn every_example_loads_without_a_warning() {
    let copy = Copy::new();
    let mut count = 0;
    for entry in fs::read_dir(&copy.0).unwrap() {
        let path = entry.unwrap().path();
        let sources = match path.extension().and_then(|e| e.to_str()) {
            Some("yaml") => Sources { config: Some(path.clone()), ..Sources::default() },
            Some("json") => Sources { mcp_servers: Some(path.clone()), ..Sources::default() },
            _ => continue,
        };
        count += 1;
        let loaded = load_with(&sources, &example_env).unwrap_or_else(|problems| panic!("{problems}"));
        assert!(loaded.warnings.is_empty(), "{}", loaded.warnings);
        assert_eq!(loaded.files, [path]);
    }
    assert!(count >= 5, "only {count} examples were found");
}

#[test]
fn every_configuration_in_the_readme_loads() {
    let readme = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md")).unwrap();
    let blocks: Vec<&str> = readme.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(!blocks.is_empty());
    for block in blocks {
        if let Err(problems) = check(input("README.md", block), None, &Overrides::default(), &example_env, Vec::new()) {
            panic!("{problems}\n{block}");
        }
    }
}

#[test]
fn no_file_makes_the_reader_panic() {
    let full = fs::read(examples().join("full.yaml")).unwrap();
    let json = fs::read(examples().join("mcp-servers.json")).unwrap();
    let mut state = 0x2545_f491_u32;
    let mut random = move |n: usize| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as usize % n
    };
    for round in 0..600 {
        let mut text = if round % 3 == 0 { json.clone() } else { full.clone() };
        for _ in 0..=random(4) {
            let at = random(text.len());
            match random(4) {
                0 => drop(text.drain(at..(at + random(40)).min(text.len()))),
                1 => text.insert(at, b"{}[]:,-&*!|>'\"#%$~\n\t \\\0"[random(23)]),
                2 => text.truncate(at + 1),
                _ => {
                    let piece = text[at..(at + random(60)).min(text.len())].to_vec();
                    let to = random(text.len());
                    text.splice(to..to, piece);
                }
            }
            if text.is_empty() {
                text.push(b'a');
            }
        }
        let text = String::from_utf8_lossy(&text);
        let read = if round % 3 == 0 { load_json(None, &text) } else { load_yaml(&text) };
        if let Err(problems) = read {
            assert!(!problems.is_empty());
        }
    }
}

fn yaml_of(name: &str) -> Doc {
    let text = fs::read_to_string(examples().join(name)).unwrap();
    let mut problems = Problems::default();
    source::yaml::parse(name.into(), &text, &mut problems).unwrap_or_else(|| panic!("{problems}"))
}

/// Follows `$ref` and the `anyOf` with null that an optional field becomes.
fn follow<'a>(schema: &'a Value, mut at: &'a Value) -> &'a Value {
    loop {
        if let Some(reference) = at["$ref"].as_str() {
            at = schema.pointer(reference.trim_start_matches('#')).unwrap();
        } else if let Some(one) = at["anyOf"].as_array().and_then(|any| any.iter().find(|v| v["$ref"].is_string())) {
            at = one;
        } else {
            return at;
        }
    }
}

/// Every property of the schema with the keys that lead to it; `*` for the entries of a map, `[]` for those of a list.
fn properties(schema: &Value, at: &Value, path: &str, found: &mut Vec<(String, Value)>) {
    let here = follow(schema, at);
    for (key, property) in here["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}/{key}");
        found.push((path.clone(), property.clone()));
        properties(schema, property, &path, found);
    }
    if here["additionalProperties"].is_object() {
        properties(schema, &here["additionalProperties"], &format!("{path}/*"), found);
    }
    if here["items"].is_object() {
        properties(schema, &here["items"], &format!("{path}/[]"), found);
    }
    for variant in here["anyOf"].as_array().into_iter().flatten() {
        if variant["properties"].is_object() || variant["$ref"].is_string() {
            properties(schema, variant, path, found);
        }
    }
}

fn keys(node: &Node, path: &str, found: &mut Vec<String>) {
    match &node.kind {
        Kind::Scalar(_) => {}
        Kind::List(items) => items.iter().for_each(|n| keys(n, &format!("{path}/[]"), found)),
        Kind::Map(entries) => {
            for entry in entries {
                let any = matches!(path, "/backends" | "/virtual_hosts")
                    || path.ends_with("/aliases")
                    || path.ends_with("/headers")
                    || path.ends_with("/claims");
                let path = format!("{path}/{}", if any { "*" } else { &entry.key });
                found.push(path.clone());
                keys(&entry.value, &path, found);
            }
        }
    }
}

#[test]
fn the_full_example_holds_every_key_of_the_schema() {
    let schema = schema();
    let mut wanted = Vec::new();
    properties(&schema, &schema, "", &mut wanted);
    assert!(wanted.len() > 50, "{wanted:?}");
    let mut written = Vec::new();
    keys(&yaml_of("full.yaml").root, "", &mut written);
    let missing: Vec<_> = wanted.iter().map(|(path, _)| path).filter(|path| !written.contains(path)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn every_key_of_the_schema_is_described() {
    let schema = schema();
    let mut all = Vec::new();
    properties(&schema, &schema, "", &mut all);
    let mute: Vec<_> = all.iter().filter(|(_, p)| p["description"].as_str().unwrap_or_default().len() < 10).collect();
    assert!(mute.is_empty(), "{mute:?}");
}

/// A file that says every default of the schema means the same as one that says none.
#[test]
fn the_defaults_of_the_schema_are_those_of_the_code() {
    let schema = schema();
    let mut all = Vec::new();
    properties(&schema, &schema, "", &mut all);
    let mut yaml = "backends: { a: { url: http://127.0.0.1:9000/mcp } }\n".to_owned();
    let mut count = 0;
    for section in ["", "session", "limits", "admission", "modern", "log", "shutdown"] {
        if !section.is_empty() {
            yaml.push_str(&format!("{section}:\n"));
        }
        for (path, property) in &all {
            let key = match path.strip_prefix('/').map(|p| p.split_once('/')) {
                Some(None) if section.is_empty() => path.trim_start_matches('/'),
                Some(Some((first, key))) if first == section => key,
                _ => continue,
            };
            if !property["default"].is_null() {
                count += 1;
                let indent = if section.is_empty() { "" } else { "  " };
                yaml.push_str(&format!("{indent}{key}: {}\n", property["default"]));
            }
        }
    }
    assert!(count >= 20, "{yaml}");
    let (said, unsaid) = (accepted(&yaml), accepted("backends: { a: { url: http://127.0.0.1:9000/mcp } }"));
    assert_eq!((said.listen, said.admin), (unsaid.listen, unsaid.admin));
    assert_eq!(said.session, unsaid.session);
    assert_eq!(said.limits, unsaid.limits);
    assert_eq!(said.admission, unsaid.admission);
    assert_eq!(said.modern, unsaid.modern);
    assert_eq!(said.log, unsaid.log);
    assert_eq!(said.shutdown, unsaid.shutdown);
}

/// `10ms to 60s` in a description: both ends are accepted, what lies beyond the upper one is refused.
#[test]
fn the_bounds_that_the_schema_tells_are_those_of_the_code() {
    let schema = schema();
    let mut all = Vec::new();
    properties(&schema, &schema, "", &mut all);
    let mut count = 0;
    for (path, property) in &all {
        let Some((section, key)) = path.trim_start_matches('/').split_once('/') else { continue };
        // That of the cache is a directory, and that of the state a key; the limits have bounds of their own.
        let has_bounds = ["session", "limits", "admission", "modern", "shutdown", "policy"].contains(&section);
        if !has_bounds || ["cache", "limits", "state_key"].contains(&key) {
            continue;
        }
        let words: Vec<&str> = property["description"].as_str().unwrap().split([' ', ',', ';']).map(|w| w.trim_end_matches('.')).collect();
        let is_number = |w: &&str| w.starts_with(|c: char| c.is_ascii_digit());
        let bounds = words.windows(3).find(|w| w[1] == "to" && is_number(&w[0]) && is_number(&w[2]));
        let bounds = bounds.unwrap_or_else(|| panic!("{path}: no bounds in {}", property["description"]));
        let beyond = match bounds[2].find(|c: char| !c.is_ascii_digit()) {
            Some(at) => format!("{}{}", bounds[2][..at].parse::<u64>().unwrap() + 1, &bounds[2][at..]),
            None => (bounds[2].parse::<u64>().unwrap() + 1).to_string(),
        };
        let yaml = |value: &str| {
            if let Some(limit) = key.strip_prefix("limits/") {
                return format!("backends: {{ a: {{ command: [server] }} }}\n{section}: {{ limits: {{ {limit}: {value} }} }}\n");
            }
            // Those that another key bounds, too.
            let room = match key {
                "max_per_principal" => "max_total: 1000000, ",
                "parked_per_principal" => "parked: 65536, ",
                "teardown_after" => "drain_window: 100ms, ",
                "drain_window" => "teardown_after: 1h, ",
                _ => "",
            };
            format!("backends: {{ a: {{ command: [server] }} }}\n{section}: {{ {room}{key}: {value} }}\n")
        };
        accepted(&yaml(bounds[0]));
        accepted(&yaml(bounds[2]));
        assert!(refused(&yaml(&beyond)).contains("too much"), "{path}: {beyond}");
        count += 1;
    }
    assert!(count >= 30, "{count}");
}

#[test]
fn the_full_example_says_the_defaults_that_it_calls_defaults() {
    let doc = yaml_of("full.yaml");
    let schema = schema();
    let mut all = Vec::new();
    properties(&schema, &schema, "", &mut all);
    for (path, property) in all.iter().filter(|(path, p)| p["default"].is_string() && !path.contains('*')) {
        let steps: Vec<Step<'_>> = path.trim_start_matches('/').split('/').map(Step::Key).collect();
        let node = doc.get(&steps).unwrap_or_else(|| panic!("{path}"));
        let Kind::Scalar(scalar) = &node.kind else { panic!("{path}") };
        assert_eq!(Some(scalar.text.as_str()), property["default"].as_str(), "{path}");
    }
}

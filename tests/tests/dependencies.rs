//! What is linked into the gateway: licences, sources, and versions, as `cargo metadata` knows them.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::Command,
};

use serde_json::Value;

/// A crate passes when one of the alternatives of its licence expression is made of these alone.
const LICENCES: &[&str] = &[
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-1-Clause",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "MPL-2.0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Not to be linked in, and why.
const BANNED: &[(&str, &str)] = &[
    ("openssl", "TLS is rustls: no system library, no second implementation"),
    ("openssl-sys", "TLS is rustls"),
    ("native-tls", "TLS is rustls"),
    ("aws-lc-sys", "needs CMake and a long build; the provider is ring"),
    ("serde_yaml", "unmaintained; the reader of configuration is serde-saphyr"),
    ("atty", "unmaintained"),
    ("chrono-tz", "nothing here needs a time zone database"),
];

/// Crates that are there in more than one version, and who keeps the older one. What is single again must go from this list.
const DUPLICATES: &[(&str, &str)] = &[
    ("block-buffer", "sha2 0.10"),
    ("cpufeatures", "sha2 0.10"),
    ("crypto-common", "sha2 0.10"),
    ("digest", "sha2 0.10"),
    ("embedded-io", "postcard, of wasmtime"),
    ("getrandom", "ring"),
    ("hashbrown", "dashmap, and gimli of wasmtime"),
    ("sha2", "wasmtime"),
    ("syn", "macros that have not moved to syn 3; at build time only"),
];

fn metadata() -> Value {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = Command::new(cargo)
        .args(["metadata", "--locked", "--format-version", "1", "--filter-platform", "x86_64-unknown-linux-gnu"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo writes JSON")
}

/// The packages that the binary is made of: normal and build dependencies of `lockgate`, all the way down.
fn linked(metadata: &Value) -> Vec<&Value> {
    let nodes = metadata["resolve"]["nodes"].as_array().expect("nodes");
    let by_id: BTreeMap<&str, &Value> = nodes.iter().map(|node| (node["id"].as_str().expect("an id"), node)).collect();
    let packages = metadata["packages"].as_array().expect("packages");
    let root = packages.iter().find(|package| package["name"] == "lockgate").expect("the gateway is in the workspace");
    let (mut todo, mut seen) = (vec![root["id"].as_str().expect("an id")], BTreeSet::new());
    while let Some(id) = todo.pop() {
        if !seen.insert(id) {
            continue;
        }
        for dependency in by_id[id]["deps"].as_array().expect("deps") {
            let kinds = dependency["dep_kinds"].as_array().expect("kinds");
            if kinds.iter().any(|kind| kind["kind"] != "dev") {
                todo.push(dependency["pkg"].as_str().expect("an id"));
            }
        }
    }
    packages.iter().filter(|package| seen.contains(package["id"].as_str().expect("an id"))).collect()
}

fn name(package: &Value) -> &str {
    package["name"].as_str().expect("a name")
}

/// `OR` between alternatives, `AND` within one, `/` as crates wrote it long ago; parentheses only group.
fn allowed(expression: &str) -> bool {
    let flat = expression.replace(['(', ')'], " ").replace('/', " OR ");
    // `A AND (B OR C)` read as alternatives of conjunctions is stricter than it is: the first part then stands alone.
    flat.split(" OR ").any(|alternative| alternative.split(" AND ").all(|licence| LICENCES.contains(&licence.trim())))
}

#[test]
fn every_licence_is_on_the_list() {
    let metadata = metadata();
    let mut refused = Vec::new();
    for package in metadata["packages"].as_array().expect("packages") {
        match package["license"].as_str() {
            Some(licence) if allowed(licence) => {}
            other => refused.push(format!("{}: {other:?}", name(package))),
        }
    }
    assert!(refused.is_empty(), "{refused:#?}");
}

#[test]
fn every_source_is_the_crates_registry() {
    let metadata = metadata();
    let packages = metadata["packages"].as_array().expect("packages");
    assert!(packages.len() > 100);
    for package in packages {
        let source = package["source"].as_str();
        assert!(source.is_none_or(|source| source.starts_with("registry+")), "{} comes from {source:?}", name(package));
    }
}

#[test]
fn nothing_banned_is_linked_in() {
    let metadata = metadata();
    for package in linked(&metadata) {
        let banned = BANNED.iter().find(|(banned, _)| *banned == name(package));
        assert!(banned.is_none(), "{}: {}", name(package), banned.map_or("", |(_, why)| why));
    }
}

#[test]
fn no_crate_is_there_twice_that_is_not_on_the_list() {
    let metadata = metadata();
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in linked(&metadata) {
        versions.entry(name(package)).or_default().insert(package["version"].as_str().expect("a version"));
    }
    let twice: BTreeMap<_, _> = versions.into_iter().filter(|(_, versions)| versions.len() > 1).collect();
    let known = |name: &str| DUPLICATES.iter().any(|(known, _)| *known == name);
    let unexpected: Vec<_> = twice.iter().filter(|(name, _)| !known(name)).collect();
    let stale: Vec<_> = DUPLICATES.iter().filter(|(name, _)| !twice.contains_key(name)).collect();
    assert!(unexpected.is_empty() && stale.is_empty(), "not on the list: {unexpected:#?}; on the list and single: {stale:?}");
}

//! `lockgate policy new`: a crate with a policy that builds at once, its configuration's schema, a unit test and a fixture.
//!
//! The SDK is not on a registry, so its sources and the contract are part of this binary and are written beside the policy: whoever
//! has the gateway can write policies for it, of the contract that this gateway speaks.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use serde_json::{Map, Value, json};

/// Write a crate with a policy that builds at once
#[derive(Debug, clap::Args)]
pub struct NewArgs {
    /// Name of the crate and of the policy
    #[arg(value_parser = crate_name)]
    name: String,

    /// Which hooks it begins with
    #[arg(long, value_enum, value_delimiter = ',', default_value = "router")]
    hook: Vec<Hook>,

    /// Where the crate goes; the folder must not be there, or be empty [default: the name]
    #[arg(long, value_name = "DIR")]
    path: Option<PathBuf>,

    /// Depend on the SDK in this folder, such as `sdk` of a checkout of Lockgate, instead of writing a copy
    #[arg(long, value_name = "DIR")]
    sdk: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
enum Hook {
    /// What a name stands for
    Alias,
    /// Which backend serves a call, or why none does
    Router,
    /// What is listed, and under which names
    Namespace,
    /// Whether a session may open
    Lifecycle,
}

/// The SDK and the contract, as they are written beside a policy.
const SDK: &[(&str, &str)] = &[
    ("sdk/Cargo.toml", include_str!("template/sdk.toml")),
    ("sdk/src/bindings.rs", include_str!("../../../../sdk/src/bindings.rs")),
    ("sdk/src/clock.rs", include_str!("../../../../sdk/src/clock.rs")),
    ("sdk/src/export.rs", include_str!("../../../../sdk/src/export.rs")),
    ("sdk/src/hooks.rs", include_str!("../../../../sdk/src/hooks.rs")),
    ("sdk/src/lent.rs", include_str!("../../../../sdk/src/lent.rs")),
    ("sdk/src/lib.rs", include_str!("../../../../sdk/src/lib.rs")),
    ("sdk/src/random.rs", include_str!("../../../../sdk/src/random.rs")),
    ("sdk/src/rules.rs", include_str!("../../../../sdk/src/rules.rs")),
    ("sdk/src/session.rs", include_str!("../../../../sdk/src/session.rs")),
    ("wit/CHANGELOG.md", include_str!("../../../../wit/CHANGELOG.md")),
    ("wit/policy.wit", include_str!("../../../../wit/policy.wit")),
];

/// The folder of the copy, in the crate.
const COPY: &str = "lockgate";

/// Writes the crate, and says what to do next.
pub fn run(args: NewArgs) -> anyhow::Result<ExitCode> {
    let dir = args.path.unwrap_or_else(|| PathBuf::from(&args.name));
    if std::fs::read_dir(&dir).is_ok_and(|mut entries| entries.next().is_some()) {
        bail!("{} is there already and is not empty: give another --path, or remove it", dir.display());
    }
    let hooks: BTreeSet<Hook> = args.hook.into_iter().collect();
    let sdk = match &args.sdk {
        None => format!("{COPY}/sdk"),
        Some(given) => {
            let found = given.canonicalize().ok().filter(|dir| dir.join("Cargo.toml").is_file());
            let found = found.with_context(|| format!("{} has no Cargo.toml: --sdk is the folder of lockgate-sdk", given.display()))?;
            found.display().to_string()
        }
    };
    for (file, text) in files(&args.name, &hooks, &sdk) {
        write(&dir.join(file), &text)?;
    }
    if args.sdk.is_none() {
        for (file, text) in SDK {
            write(&dir.join(COPY).join(file), text)?;
        }
    }
    let shown = dir.display();
    say!("{shown}: a policy with {}\n", words(&hooks));
    say!("  lockgate policy build {shown}\n  lockgate policy test {shown}\n  lockgate dev --policy {shown}");
    Ok(ExitCode::SUCCESS)
}

fn write(file: &Path, text: &str) -> anyhow::Result<()> {
    let parent = file.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(parent).with_context(|| format!("{} cannot be made", parent.display()))?;
    std::fs::write(file, text).with_context(|| format!("{} cannot be written", file.display()))
}

/// The files of the crate. `sdk`: what its `Cargo.toml` depends on.
fn files(name: &str, hooks: &BTreeSet<Hook>, sdk: &str) -> Vec<(&'static str, String)> {
    let (config, schema) = config(hooks);
    let readme = include_str!("template/README.md").replace("NAME", name).replace("HOOKS", &words(hooks)).replace("CONFIG", &flow(&config));
    vec![
        ("Cargo.toml", include_str!("template/Cargo.toml").replace("NAME", name).replace("SDK", &sdk.escape_debug().to_string())),
        ("README.md", readme),
        (".gitignore", "/target\n/*.wasm\n".to_owned()),
        ("config.schema.json", format!("{schema:#}\n")),
        ("fixtures/first.json", fixture(hooks, &config)),
        ("src/lib.rs", library(name, hooks, sdk)),
    ]
}

fn library(name: &str, hooks: &BTreeSet<Hook>, sdk: &str) -> String {
    let blocks = hooks.contains(&Hook::Router) || hooks.contains(&Hook::Namespace);
    let mut imports = BTreeSet::from(["Failure", "Session"]);
    let (mut setting, mut code, mut decisions, mut tests) = (String::new(), String::new(), String::new(), String::new());
    if blocks {
        imports.insert("Kind");
        setting.push_str("    /// Own names of tools that nobody gets.\n    blocked: Vec<String>,\n");
        decisions.push_str(include_str!("template/blocked.rs"));
        tests.push_str("        assert!(is_blocked(&setting, Kind::Tool, \"delete_all\"));\n");
        tests.push_str("        assert!(!is_blocked(&setting, Kind::Tool, \"list\"));\n");
    }
    for hook in hooks {
        match hook {
            Hook::Alias => {
                imports.extend(["Alias", "Kind", "Target"]);
                setting.push_str("    /// The backend that short names are for.\n    main: String,\n");
                code.push_str(include_str!("template/alias.rs"));
                decisions.push_str(include_str!("template/short.rs"));
                tests.push_str("        let target = short(&setting, Kind::Tool, \"/list\");\n");
                tests.push_str("        assert_eq!(target, Some(Target::new(\"notes\", \"list\")));\n");
                tests.push_str("        assert_eq!(short(&setting, Kind::Tool, \"list\"), None);\n");
            }
            Hook::Router => {
                imports.extend(["Decision", "Router", "Target"]);
                code.push_str(include_str!("template/router.rs"));
            }
            Hook::Namespace => {
                imports.extend(["ItemHead", "Namespace", "Verdict"]);
                code.push_str(include_str!("template/namespace.rs"));
            }
            Hook::Lifecycle => {
                imports.extend(["Level", "Lifecycle", "Welcome"]);
                setting.push_str("    /// Principals that may not open a session.\n    banned: Vec<String>,\n");
                code.push_str(include_str!("template/lifecycle.rs"));
                decisions.push_str(include_str!("template/welcome.rs"));
                tests.push_str("        assert_eq!(welcome(&setting, \"ann\"), Welcome::Accept);\n");
                tests.push_str("        assert!(matches!(welcome(&setting, \"mallory\"), Welcome::Refuse(_)));\n");
            }
        }
    }
    let exported: Vec<&str> = hooks.iter().map(|h| h.name()).collect();
    let contract =
        if Path::new(sdk).is_absolute() { "`wit/policy.wit` beside the SDK".to_owned() } else { format!("`{COPY}/wit/policy.wit`") };
    let head = include_str!("template/lib.rs")
        .replace("NAME", name)
        .replace("CONTRACT", &contract)
        .replace("use lockgate_sdk::{IMPORTS, export};", &wrapped(&imports))
        .replace("SETTING", &setting);
    let test = format!(
        "#[cfg(test)]
mod tests {{
    use super::*;

    #[test]
    fn it_decides_as_it_is_configured() {{
        let config = r#\"{}\"#;
        let setting: Setting = serde_json::from_str(config).unwrap();
{tests}    }}
}}
",
        config(hooks).0
    );
    format!("{head}{code}{decisions}export!(Policy: {});\n\n{test}", exported.join(", "))
}

/// The `use` of these names, as rustfmt writes it.
fn wrapped(names: &BTreeSet<&str>) -> String {
    const WIDTH: usize = 100;
    let names: Vec<&str> = names.iter().copied().chain(["export"]).collect();
    let line = format!("use lockgate_sdk::{{{}}};", names.join(", "));
    if line.len() <= WIDTH {
        return line;
    }
    let mut lines = vec!["use lockgate_sdk::{".to_owned(), "   ".to_owned()];
    for name in names {
        if lines.last().is_some_and(|last| last.len() + name.len() + 2 > WIDTH) {
            lines.push("   ".to_owned());
        }
        if let Some(last) = lines.last_mut() {
            *last += &format!(" {name},");
        }
    }
    lines.push("};".to_owned());
    lines.join("\n")
}

/// A configuration to begin with, and the schema of all.
fn config(hooks: &BTreeSet<Hook>) -> (Value, Value) {
    let (mut config, mut properties) = (Map::new(), Map::new());
    let mut key = |name: &str, value: Value, schema: Value| {
        config.insert(name.to_owned(), value);
        properties.insert(name.to_owned(), schema);
    };
    let names = |what: &str| json!({ "type": "array", "items": { "type": "string" }, "description": what });
    if hooks.contains(&Hook::Router) || hooks.contains(&Hook::Namespace) {
        key("blocked", json!(["delete_all"]), names("Own names of tools that nobody gets"));
    }
    if hooks.contains(&Hook::Alias) {
        key("main", json!("notes"), json!({ "type": "string", "description": "The backend that short names are for" }));
    }
    if hooks.contains(&Hook::Lifecycle) {
        key("banned", json!(["mallory"]), names("Principals that may not open a session"));
    }
    let required: Vec<&String> = config.keys().collect();
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "required": required,
        "properties": properties,
        "additionalProperties": false,
    });
    (config.into(), schema)
}

fn fixture(hooks: &BTreeSet<Hook>, config: &Value) -> String {
    let cases = hooks.iter().map(|hook| match hook {
        Hook::Alias => include_str!("template/alias.cases"),
        Hook::Router => include_str!("template/router.cases"),
        Hook::Namespace => include_str!("template/namespace.cases"),
        Hook::Lifecycle => include_str!("template/lifecycle.cases"),
    });
    let cases: Vec<&str> = cases.map(str::trim_end).collect();
    let config = flow(config);
    format!(
        "{{\n  \"session\": {{ \"principal\": \"ann\", \"backends\": [\"notes\", \"time\"] }},\n  \"config\": {config},\n  \"cases\": [\n{}\n  ]\n}}\n",
        cases.join(",\n")
    )
}

/// JSON on one line that people like to read; YAML takes it, too.
fn flow(value: &Value) -> String {
    value.to_string().replace("\":", "\": ").replace(",\"", ", \"").replace('{', "{ ").replace('}', " }")
}

fn words(hooks: &BTreeSet<Hook>) -> String {
    let names: Vec<&str> = hooks.iter().map(|h| h.name()).collect();
    format!("hook{} {}", if names.len() == 1 { "" } else { "s" }, names.join(", "))
}

fn crate_name(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    // `test` and the like are names that cargo refuses.
    const TAKEN: &[&str] = &["test", "core", "std", "alloc", "proc-macro", "lockgate-sdk", "lockgate_sdk"];
    let fits = text.len() <= 64 && text.chars().all(plain) && text.starts_with(|c: char| c.is_ascii_lowercase()) && !TAKEN.contains(&text);
    match fits {
        true => Ok(text.to_owned()),
        false => Err("a name is at most 64 characters of a-z 0-9 - _, begins with a letter, and is not one that Rust has taken".to_owned()),
    }
}

impl Hook {
    fn name(self) -> &'static str {
        match self {
            Hook::Alias => "alias",
            Hook::Router => "router",
            Hook::Namespace => "namespace",
            Hook::Lifecycle => "lifecycle",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
    }

    #[test]
    fn the_copy_of_the_sdk_is_whole_and_depends_on_what_the_sdk_does() {
        let written: BTreeSet<&str> = SDK.iter().map(|(file, _)| *file).collect();
        for folder in ["sdk/src", "wit"] {
            for entry in std::fs::read_dir(root().join(folder)).unwrap() {
                let name = format!("{folder}/{}", entry.unwrap().file_name().display());
                assert!(written.contains(&*name), "{name} is not in the copy");
            }
        }
        let workspace = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
        let sdk = std::fs::read_to_string(root().join("sdk/Cargo.toml")).unwrap();
        let copy = include_str!("template/sdk.toml");
        let dependencies = |toml: &str| -> Vec<String> {
            let after = toml.split_once("[dependencies]\n").unwrap().1.split("\n[").next().unwrap();
            after.lines().filter(|l| !l.trim().is_empty()).map(str::to_owned).collect()
        };
        let pinned = |line: &String| {
            let name = line.split('.').next().unwrap();
            workspace.lines().find(|l| l.starts_with(&format!("{name} = "))).unwrap().to_owned()
        };
        assert!(copy.contains(&format!("\nversion = {:?}\n", env!("CARGO_PKG_VERSION"))));
        assert_eq!(dependencies(copy), dependencies(&sdk).iter().map(pinned).collect::<Vec<_>>());
    }

    #[test]
    fn every_mix_of_hooks_makes_a_crate_whose_parts_agree() {
        let all = [Hook::Alias, Hook::Router, Hook::Namespace, Hook::Lifecycle];
        for mask in 1..16 {
            let hooks: BTreeSet<Hook> = all.into_iter().enumerate().filter(|(i, _)| mask >> i & 1 == 1).map(|(_, h)| h).collect();
            let files = files("mine", &hooks, "lockgate/sdk");
            let text = |name: &str| &files.iter().find(|(file, _)| *file == name).unwrap().1;
            let (library, fixture) = (text("src/lib.rs"), text("fixtures/first.json"));
            for word in ["NAME", "CONTRACT", "IMPORT", "SETTING", "SDK", "HOOKS", "CONFIG"] {
                assert!(files.iter().all(|(_, text)| !text.contains(word)), "{word} is left");
            }
            for hook in &hooks {
                assert!(fixture.contains(&format!("\"{}.", hook.name())), "{fixture}");
                assert!(library.contains(&format!("impl {:?} for Policy", hook)), "{library}");
            }
            let (config, schema) = config(&hooks);
            assert!(config.as_object().unwrap().keys().all(|k| schema["properties"].get(k).is_some()));
        }
    }

    #[test]
    fn names_that_cargo_or_the_gateway_would_not_take_are_refused() {
        for good in ["my-policy", "p2", "a_b"] {
            assert!(crate_name(good).is_ok(), "{good}");
        }
        for bad in ["", "2p", "My", "a/b", "../x", "test", "a b"] {
            assert!(crate_name(bad).is_err(), "{bad}");
        }
    }
}

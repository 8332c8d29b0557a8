//! Whole files: what is refused and with which words (`refused/*`, renewed with `BLESS=1 cargo test`), and what is accepted.

mod accepted;
mod examples;

use std::path::{Path, PathBuf};

use super::*;

fn here() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/config/tests")
}

fn fixture() -> PathBuf {
    here().join("fixture")
}

/// The environment of all tests: programs are found in `fixture/bin` alone.
fn env(name: &str) -> Option<String> {
    match name {
        "PATH" => Some(fixture().join("bin").display().to_string()),
        "TOKEN" => Some("s3cret-from-the-environment".to_owned()),
        "HOME" => Some("/home/ann".to_owned()),
        _ => None,
    }
}

fn input(name: &str, text: &str) -> Option<Input> {
    Some(Input { name: name.into(), text: text.to_owned(), base: fixture() })
}

fn load_yaml(yaml: &str) -> Result<Loaded, Problems> {
    check(input("lockgate.yaml", yaml), None, &Overrides::default(), &env, Vec::new())
}

fn load_json(yaml: Option<&str>, json: &str) -> Result<Loaded, Problems> {
    let main = yaml.and_then(|yaml| input("lockgate.yaml", yaml));
    check(main, input("servers.json", json), &Overrides::default(), &env, Vec::new())
}

#[track_caller]
fn accepted(yaml: &str) -> Config {
    load_yaml(yaml).unwrap_or_else(|problems| panic!("{problems}")).config
}

#[track_caller]
fn refused(yaml: &str) -> String {
    load_yaml(yaml).expect_err("was accepted").to_string()
}

#[test]
fn what_is_refused_is_refused_with_these_words() {
    let mut wrong = Vec::new();
    let mut files: Vec<_> = std::fs::read_dir(here().join("refused")).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let result = match file.extension().and_then(|e| e.to_str()) {
            Some("yaml") => load_yaml(&text),
            Some("json") => load_json(None, &text),
            _ => continue,
        };
        let told = result.err().map(|problems| format!("{problems}\n")).unwrap_or_else(|| "accepted\n".to_owned());
        let told = told.replace(&fixture().display().to_string(), "<directory of the file>");
        assert!(!told.contains("s3cret") && !told.contains("secret@"), "{told}");
        let golden = file.with_extension("txt");
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(&golden, &told).unwrap();
        } else if std::fs::read_to_string(&golden).unwrap_or_default() != told {
            wrong.push(format!("{}\n{told}", golden.display()));
        }
    }
    assert!(wrong.is_empty(), "these words changed (BLESS=1 renews them):\n{}", wrong.join("\n"));
}

#[test]
fn flags_are_named_in_what_is_said_about_them() {
    let yaml = "backends: { time: { command: [server] } }";
    let overrides = Overrides { listen: vec!["0.0.0.0:8808".parse().unwrap()], admin: None };
    let told = check(input("lockgate.yaml", yaml), None, &overrides, &env, Vec::new()).unwrap_err().to_string();
    assert!(told.starts_with("--listen: 0.0.0.0:8808 is not loopback"), "{told}");

    let same = "127.0.0.1:9000";
    let overrides = Overrides { listen: vec![same.parse().unwrap()], admin: Some(AdminAddress(Some(same.parse().unwrap()))) };
    let told = check(input("lockgate.yaml", yaml), None, &overrides, &env, Vec::new()).unwrap_err().to_string();
    assert!(told.starts_with("--admin: 127.0.0.1:9000 is where clients connect"), "{told}");
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let sources = Sources { config: Some("/no/such/lockgate.yaml".into()), ..Sources::default() };
    let told = load_with(&sources, &env).unwrap_err().to_string();
    assert!(told.starts_with("/no/such/lockgate.yaml: cannot be read: "), "{told}");
}

#[test]
fn aliases_of_aliases_cannot_grow_without_end() {
    let mut yaml = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for i in 1..9 {
        let previous = format!("*a{}", i - 1);
        yaml.push_str(&format!("a{i}: &a{i} [{}]\n", vec![previous; 10].join(", ")));
    }
    assert!(refused(&yaml).contains("more than 200000 values"));
    let told = refused(&format!("a: {}{}", "[".repeat(100), "]".repeat(100)));
    assert!(told.contains("nested deeper than 64 levels"), "{told}");
}

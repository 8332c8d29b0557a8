//! What is refused when a policy is loaded, and with which words.

mod common;

use std::path::Path;

use common::*;
use lockgate_policy::{Capabilities, Kind, Limits, LoadError, Policy, Terms};

#[test]
fn what_is_no_component_is_refused() {
    assert!(matches!(refused(b"hello"), LoadError::Compile { .. }));
    assert!(matches!(refused(b""), LoadError::Compile { .. }));
    assert!(matches!(refused(b"(component)"), LoadError::Compile { .. }), "text is not compiled");
    let module = wat::parse_str("(module)").unwrap();
    let refusal = refused(&module);
    assert!(matches!(refusal, LoadError::CoreModule { .. }), "{refusal}");
}

#[test]
fn a_component_that_is_too_large_is_not_compiled() {
    let terms = Terms { limits: Limits { component_bytes: 100, ..Limits::default() }, ..Terms::default() };
    let refusal = Policy::load(&engine(), "p", &alias_guest("", ""), &terms).unwrap_err();
    assert!(matches!(refusal, LoadError::TooLarge { limit: 100, .. }), "{refusal}");
}

#[test]
fn a_component_without_hooks_is_refused() {
    let empty = wat::parse_str("(component)").unwrap();
    assert!(matches!(refused(&empty), LoadError::NoHooks { .. }));
}

#[test]
fn a_component_that_imports_what_is_not_granted_is_refused_by_name() {
    let net = r#"(component (import "evil:net/sockets@1.0.0" (instance (export "open" (func)))))"#;
    let refusal = refused(&wat::parse_str(net).unwrap());
    assert!(matches!(refusal, LoadError::Import { .. }), "{refusal}");
    assert!(refusal.to_string().starts_with("policy guest: it imports evil:net/sockets@1.0.0, which policies do not get"), "{refusal}");
}

/// A world with one import more, and a guest whose `resolve` calls it.
fn with_import(package: &str, import: &str, resolve: &str) -> Vec<u8> {
    let more = format!(
        "package test:more;
        world more {{ import lockgate:policy/host@0.1.1; import {package}; export lockgate:policy/alias@0.1.1; }}
        package wasi:clocks@0.2.0 {{ interface monotonic-clock {{ now: func() -> u64; }} }}"
    );
    let module = alias_module(resolve, "").replacen("(module", &format!("(module {import}"), 1);
    component_of(&contract(), Some(&more), "more", &module)
}

#[tokio::test]
async fn wasi_that_is_imported_is_not_granted_and_traps_when_called() {
    let import = r#"(import "wasi:clocks/monotonic-clock@0.2.0" "now" (func $now (result i64)))"#;
    let calls = "(if (i32.eq (i32.load8_u (local.get 2)) (i32.const 33)) (then (drop (call $now))))";
    let guest = with_import("wasi:clocks/monotonic-clock@0.2.0", import, calls);
    let chain = chain_of(&engine(), &guest);
    assert_eq!(chain.alias(&session(&["a"]), Kind::Tool, "x").await.unwrap(), None);
    let error = chain.alias(&session(&["a"]), Kind::Tool, "!").await.unwrap_err();
    assert!(error.to_string().contains("wasi:clocks/monotonic-clock"), "{error}");
}

#[tokio::test]
async fn a_clock_and_random_numbers_are_there_for_a_policy_that_asks_and_is_granted() {
    let import = r#"(import "wasi:clocks/monotonic-clock@0.2.0" "now" (func $now (result i64)))"#;
    // Traps unless time goes on.
    let calls = "(drop (call $now)) (if (i64.le_u (call $now) (i64.const 0)) (then unreachable))";
    let guest = with_manifest(with_import("wasi:clocks/monotonic-clock@0.2.0", import, calls), r#"{"capabilities":{"clock":true}}"#);
    let granted = |clock: bool| Terms { grants: Capabilities { clock, ..Capabilities::default() }, ..Terms::default() };
    let engine = engine();
    assert!(matches!(Policy::load(&engine, "p", &guest, &granted(false)), Err(LoadError::NotGranted { .. })));
    let policy = Policy::load(&engine, "p", &guest, &granted(true)).unwrap();
    let chain = lockgate_policy::Chain::new(engine, "default".into(), vec![entry(policy, "null")]);
    assert_eq!(chain.alias(&session(&["a"]), Kind::Tool, "x").await.unwrap(), None);
}

/// The same guest against a later contract.
fn against(version: &str, change: impl Fn(String) -> String, import: &str) -> Vec<u8> {
    let later = |text: String| text.replace("@0.1.1", &format!("@{version}"));
    let module = alias_module("", "").replacen("(module", &format!("(module {import}"), 1);
    component_of(&change(later(contract())), None, "alias-policy", &later(module))
}

#[tokio::test]
async fn a_later_contract_of_the_same_minor_version_fits_as_long_as_it_is_not_used() {
    let add = |text: String| {
        text.replace("principal: func() -> string;", "principal: func() -> string; mood: func(name: string) -> option<string>;")
    };
    let engine = engine();
    let unused = against("0.1.3", add, "");
    let policy = Policy::load(&engine, "p", &unused, &Terms::default()).unwrap();
    assert_eq!(policy.contract(), "0.1.3");
    assert!(policy.hooks().alias);
    let import = r#"(import "lockgate:policy/host@0.1.1" "[method]session.mood" (func $mood (param i32 i32 i32 i32)))"#;
    let used = against("0.1.3", add, import);
    let refusal = refused(&used);
    assert!(matches!(&refusal, LoadError::Missing { what, wanted, .. } if what == "session.mood" && wanted == "0.1.3"), "{refusal}");
}

/// The components in tests/contract-0.1.0 were built against the first version, and are never built again.
#[tokio::test]
async fn components_built_against_the_first_contract_load_and_answer_as_before() {
    let engine = engine();
    let load = |name: &str| {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/contract-0.1.0").join(name).with_extension("wasm");
        let policy = Policy::load(&engine, name, &std::fs::read(file).unwrap(), &Terms::default()).unwrap();
        assert_eq!(policy.contract(), "0.1.0");
        policy
    };
    let aliases = r#"{"aliases":[{"public":"now","kind":"tool","backend":"time","name":"get_time"}]}"#;
    let entries = vec![entry(load("alias"), aliases), entry(load("namespace"), "null")];
    let chain = lockgate_policy::Chain::new(engine, "default".into(), entries);
    let s = session(&["time", "notes"]);
    chain.try_out(&s).await.unwrap();
    let items = [("time", "get_time"), ("time", "zone"), ("notes", "a b")];
    let published = chain.publish(&s, Kind::Tool, &heads(&items)).await.unwrap();
    assert_eq!(published[..2], [Some("now".to_owned()), Some("time__zone".to_owned())]);
    for (name, own) in [("now", "get_time"), ("time__zone", "zone")] {
        assert_eq!(chain.resolve(&s, Kind::Tool, name).await.unwrap().unwrap().name, own);
    }
}

#[test]
fn a_contract_that_is_too_new_is_refused_with_both_versions() {
    let refusal = refused(&against("0.2.0", |t| t, ""));
    assert!(matches!(refusal, LoadError::TooNew { .. }), "{refusal}");
    assert!(refusal.to_string().contains("contract version 0.2.0, this gateway knows 0.1.1"), "{refusal}");
}

#[test]
fn a_contract_with_other_types_under_the_same_version_is_refused() {
    let change = |text: String| text.replace("record target {", "record target { extra: u32,");
    let refusal = refused(&against("0.1.1", change, ""));
    assert!(matches!(refusal, LoadError::Mismatch { .. }), "{refusal}");
}

#[test]
fn an_engine_without_a_pool_serves_too() {
    // More than a process can reserve: the way of a container with a limit on address space.
    let engine = engine_with(|c| c.memory_reservation = 1 << 46);
    assert!(!engine.is_pooled());
    assert!(Policy::load(&engine, "p", &alias_guest("", ""), &Terms::default()).is_ok());
}

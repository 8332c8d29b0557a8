//! What is refused when a policy is loaded, and with which words.

mod common;

use common::*;
use lockgate_policy::{Kind, LoadError, Policy};

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
    let engine = engine_with(|c| c.component_bytes = 100);
    let refusal = Policy::load(&engine, "p", &alias_guest("", ""), &Terms::default()).unwrap_err();
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
    assert!(
        refusal.to_string().starts_with("policy guest: it imports evil:net/sockets@1.0.0, which policies are not granted"),
        "{refusal}"
    );
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

/// The same guest against a later contract.
fn against(version: &str, change: impl Fn(String) -> String, import: &str) -> Vec<u8> {
    let later = |text: String| text.replace("0.1.0", version);
    let module = alias_module("", "").replacen("(module", &format!("(module {import}"), 1);
    component_of(&change(later(contract())), None, "alias-policy", &later(module))
}

#[tokio::test]
async fn a_later_contract_of_the_same_minor_version_fits_as_long_as_it_is_not_used() {
    let add = |text: String| {
        text.replace("principal: func() -> string;", "principal: func() -> string; claim: func(name: string) -> option<string>;")
    };
    let engine = engine();
    let unused = against("0.1.3", add, "");
    let policy = Policy::load(&engine, "p", &unused, &Terms::default()).unwrap();
    assert_eq!(policy.contract(), "0.1.3");
    assert!(policy.hooks().alias);
    let import = r#"(import "lockgate:policy/host@0.1.1" "[method]session.claim" (func $claim (param i32 i32 i32 i32)))"#;
    let used = against("0.1.3", add, import);
    let refusal = refused(&used);
    assert!(matches!(&refusal, LoadError::Missing { what, wanted, .. } if what == "session.claim" && wanted == "0.1.3"), "{refusal}");
}

#[test]
fn a_contract_that_is_too_new_is_refused_with_both_versions() {
    let refusal = refused(&against("0.2.0", |t| t, ""));
    assert!(matches!(refusal, LoadError::TooNew { .. }), "{refusal}");
    assert!(refusal.to_string().contains("contract version 0.2.0, this gateway knows 0.1.0"), "{refusal}");
}

#[test]
fn a_contract_with_other_types_under_the_same_version_is_refused() {
    let change = |text: String| text.replace("record target {", "record target { extra: u32,");
    let refusal = refused(&against("0.1.0", change, ""));
    assert!(matches!(refusal, LoadError::Mismatch { .. }), "{refusal}");
}

#[test]
fn an_engine_without_a_pool_serves_too() {
    // More than a process can reserve: the way of a container with a limit on address space.
    let engine = engine_with(|c| c.memory_reservation = 1 << 46);
    assert!(!engine.is_pooled());
    assert!(Policy::load(&engine, "p", &alias_guest("", "")).is_ok(), &Terms::default());
}

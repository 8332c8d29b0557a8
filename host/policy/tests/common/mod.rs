//! What the tests of the policy plane share: sessions, chains of shipped policies, and small hostile guests written as core WASM text
//! that are encoded against the contract like any policy.
#![allow(dead_code)] // each test binary uses its own part

use std::path::Path;
use std::sync::{Arc, LazyLock};

use lockgate_policy::{
    BackendState, BackendView, Chain, Engine, EngineConfig, Entry, Failing, ItemHead, Limits, LoadError, Policy, Scratch, SessionView,
    Terms, Warm, shipped,
};
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

pub fn engine() -> Arc<Engine> {
    engine_with(|_| ())
}

pub fn engine_with(change: impl FnOnce(&mut EngineConfig)) -> Arc<Engine> {
    let mut config = EngineConfig { pool_instances: 16, ..EngineConfig::default() };
    change(&mut config);
    Engine::new(config).expect("the engine is made")
}

/// A new session with these backends and scratch state of its own.
pub fn session(backends: &[&str]) -> SessionView {
    let view = |name: &&str| BackendView { name: (*name).into(), state: BackendState::Connected };
    SessionView {
        principal: "somebody".into(),
        claims: Arc::default(),
        virtual_host: "default".into(),
        backends: backends.iter().map(view).collect(),
        scratch: Scratch::new(),
        warm: Warm::new(),
    }
}

pub fn entry(policy: Arc<Policy>, setting: &str) -> Entry {
    Entry::new(policy, setting, Failing::default()).expect("the configuration fits")
}

pub fn load_shipped(engine: &Arc<Engine>, name: &str) -> Arc<Policy> {
    Policy::load(engine, name, shipped::by_name(name).expect("it ships"), &Terms::default()).expect("it loads")
}

/// The chain that a gateway has by default: aliases, then namespaces. Compiled once for all tests of a binary.
pub fn shipped_chain(aliases: &str) -> Chain {
    static SHIPPED: LazyLock<(Arc<Engine>, [Arc<Policy>; 2])> = LazyLock::new(|| {
        let engine = engine();
        let policies = ["alias", "namespace"].map(|name| load_shipped(&engine, name));
        (engine, policies)
    });
    let (engine, [alias, namespace]) = &*SHIPPED;
    let entries = vec![entry(alias.clone(), aliases), entry(namespace.clone(), "null")];
    Chain::new(engine.clone(), "default".into(), entries)
}

pub fn heads<'a>(items: &[(&'a str, &'a str)]) -> Vec<ItemHead<'a>> {
    let head = |&(backend, name): &(&'a str, &'a str)| ItemHead {
        backend,
        name,
        title: None,
        shared: items.iter().filter(|(_, n)| *n == name).count() > 1,
    };
    items.iter().map(head).collect()
}

/// The text of the contract.
pub fn contract() -> String {
    let wit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../wit/policy.wit");
    std::fs::read_to_string(wit).expect("the contract is there")
}

/// A component of a core module against a world of the contract.
pub fn component(world: &str, body: &str) -> Vec<u8> {
    component_of(&contract(), None, world, body)
}

/// A component against any contract text, with a package of more worlds.
pub fn component_of(contract: &str, more: Option<&str>, world: &str, body: &str) -> Vec<u8> {
    let mut resolve = Resolve::default();
    let mut package = resolve.push_str("policy.wit", contract).expect("the contract parses");
    if let Some(more) = more {
        package = resolve.push_str("more.wit", more).expect("the package parses");
    }
    let world = resolve.select_world(&[package], Some(world)).expect("the world is there");
    let mut module = wat::parse_str(body).expect("the module parses");
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8).expect("embedded");
    let mut encoder = ComponentEncoder::default().validate(true).module(&module).expect("a module");
    encoder.encode().expect("a component")
}

/// A core module with what every guest needs: two pages of memory, an allocator that never frees, and `$end`, which gives the lent
/// session back. `$at` is where its answers go: 1,024. What is below 1,024 is for data.
pub fn module(body: &str) -> String {
    format!(
        r#"(module
        (import "lockgate:policy/host@0.1.1" "[resource-drop]session" (func $end (param i32)))
        (memory (export "memory") 2)
        (global $free (mut i32) (i32.const 65536))
        (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
            (local $at i32)
            (local.set $at (i32.and (i32.add (global.get $free) (i32.const 7)) (i32.const -8)))
            (global.set $free (i32.add (local.get $at) (local.get 3)))
            (local.get $at))
        {body})"#
    )
}

/// An alias policy whose `resolve` runs `resolve` (locals 0 the session, 1 the kind, 2 and 3 the name) before it answers with what is
/// at 1,024 (zeroes there mean `none`), and that publishes nothing.
pub fn alias_guest(resolve: &str, more: &str) -> Vec<u8> {
    component("alias-policy", &alias_module(resolve, more))
}

pub fn alias_module(resolve: &str, more: &str) -> String {
    module(&format!(
        r#"{more}
        (func (export "lockgate:policy/alias@0.1.1#resolve") (param i32 i32 i32 i32) (result i32)
            {resolve}
            (call $end (local.get 0))
            (i32.const 1024))
        (func (export "lockgate:policy/alias@0.1.1#publish") (param i32 i32) (result i32)
            (call $end (local.get 0))
            (i32.const 2048))"#
    ))
}

/// A namespace policy whose `expose` runs `expose` (locals 0 the session, 1 the kind, 2 the items, 3 their number) before it
/// answers with what is at 1,024, and that resolves nothing.
pub fn namespace_guest(expose: &str, more: &str) -> Vec<u8> {
    component(
        "namespace-policy",
        &module(&format!(
            r#"{more}
            (func (export "lockgate:policy/namespace@0.1.1#expose") (param i32 i32 i32 i32) (result i32)
                {expose}
                (call $end (local.get 0))
                (i32.const 1024))
            (func (export "lockgate:policy/namespace@0.1.1#resolve") (param i32 i32 i32 i32) (result i32)
                (call $end (local.get 0))
                (i32.const 2048))"#
        )),
    )
}

/// A router whose `resolve` runs `resolve` (locals 0 the session, 1 the kind, 2 and 3 the name, 4 and 5 the backend, 6 and 7 the own name) before
/// it answers with what is at 1,024 (zeroes there mean `pass`).
pub fn router_guest(imports: &str, resolve: &str, more: &str) -> Vec<u8> {
    let body = format!(
        r#"{more}
        (func (export "lockgate:policy/router@0.1.1#resolve") (param i32 i32 i32 i32 i32 i32 i32 i32) (result i32)
            {resolve}
            (call $end (local.get 0))
            (i32.const 1024))"#
    );
    component("router-policy", &module(&body).replacen("(module", &format!("(module {imports}"), 1))
}

/// A lifecycle policy whose `opened` and `closing` run what is given before they answer with what is at 1,024 and at 2,048 (zeroes: fine).
pub fn lifecycle_guest(imports: &str, opened: &str, closing: &str, more: &str) -> Vec<u8> {
    let body = format!(
        r#"{more}
        (func (export "lockgate:policy/lifecycle@0.1.1#opened") (param i32) (result i32)
            {opened}
            (call $end (local.get 0))
            (i32.const 1024))
        (func (export "lockgate:policy/lifecycle@0.1.1#closing") (param i32) (result i32)
            {closing}
            (call $end (local.get 0))
            (i32.const 2048))"#
    );
    component("lifecycle-policy", &module(&body).replacen("(module", &format!("(module {imports}"), 1))
}

/// What makes a guest's answer at 1,024 a refusal (of a router, with `case` 2, or of a lifecycle policy, with 1), with the text at 0.
pub fn refusal(case: u32, bytes: usize) -> String {
    format!(
        "(i32.store8 (i32.const 1028) (i32.const {case})) (i32.store (i32.const 1032) (i32.const 0)) (i32.store (i32.const 1036) (i32.const {bytes}))"
    )
}

/// The component with a manifest.
pub fn with_manifest(mut component: Vec<u8>, manifest: &str) -> Vec<u8> {
    let name = b"lockgate:manifest";
    let mut size = 1 + name.len() + manifest.len();
    component.push(0);
    while size >= 0x80 {
        component.push(size as u8 | 0x80);
        size >>= 7;
    }
    component.extend([size as u8, name.len() as u8]);
    component.extend(name);
    component.extend(manifest.as_bytes());
    component
}

/// A chain of one guest.
pub fn chain_of(engine: &Arc<Engine>, component: &[u8]) -> Chain {
    chain_within(engine, component, |_| ())
}

/// A chain of one guest, with limits of its own.
pub fn chain_within(engine: &Arc<Engine>, component: &[u8], change: impl FnOnce(&mut Limits)) -> Chain {
    let mut terms = Terms::default();
    change(&mut terms.limits);
    let policy = Policy::load(engine, "guest", component, &terms).expect("it loads");
    Chain::new(engine.clone(), "default".into(), vec![entry(policy, "null")])
}

pub fn refused(component: &[u8]) -> LoadError {
    Policy::load(&engine(), "guest", component, &Terms::default()).expect_err("it must not load")
}

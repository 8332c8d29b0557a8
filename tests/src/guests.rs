//! Small policies, written as core WASM text and encoded against the contract like anyone's: what a test needs one for, and no more.

use std::path::Path;

use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

/// A namespace policy that calls the first tool of every list `name`, and leaves all else as it is.
pub fn naming(name: &str) -> Vec<u8> {
    namespace(
        &format!(
            "(if (i32.and (i32.eqz (local.get 1)) (i32.ne (local.get 3) (i32.const 0))) (then
                (i32.store8 (local.get 4) (i32.const 2))
                (i32.store offset=4 (local.get 4) (i32.const 0))
                (i32.store offset=8 (local.get 4) (i32.const {}))))",
            name.len()
        ),
        name,
    )
}

/// A namespace policy that hides the first tool of every list.
pub fn hiding() -> Vec<u8> {
    namespace(
        "(if (i32.and (i32.eqz (local.get 1)) (i32.ne (local.get 3) (i32.const 0))) (then (i32.store8 (local.get 4) (i32.const 1))))",
        "",
    )
}

/// A namespace policy that traps when it is asked.
pub fn trapping() -> Vec<u8> {
    namespace("unreachable", "")
}

/// A namespace policy that never ends when it is asked.
pub fn endless() -> Vec<u8> {
    namespace("(loop $again (br $again))", "")
}

/// A namespace policy that fails when it is asked about a tool, and only then.
pub fn choking() -> Vec<u8> {
    namespace("(if (i32.and (i32.eqz (local.get 1)) (i32.ne (local.get 3) (i32.const 0))) (then unreachable))", "")
}

/// A router that refuses everything.
pub fn refusing(reason: &str) -> Vec<u8> {
    router(&format!("{} {}", byte(1028, 2), word(1032, 0) + &word(1036, reason.len())), reason)
}

/// A router that sends everything to one target.
pub fn routing(backend: &str, name: &str) -> Vec<u8> {
    let answer = byte(1028, 1) + &word(1032, 0) + &word(1036, backend.len()) + &word(1040, backend.len()) + &word(1044, name.len());
    router(&answer, &format!("{backend}{name}"))
}

/// A policy that lets no session open.
pub fn closed(reason: &str) -> Vec<u8> {
    let refusal = byte(1028, 1) + &word(1032, 0) + &word(1036, reason.len());
    let body = format!(
        r#"{}
        (func (export "lockgate:policy/lifecycle@0.1.1#opened") (param i32) (result i32)
            {refusal} (call $end (local.get 0)) (i32.const 1024))
        (func (export "lockgate:policy/lifecycle@0.1.1#closing") (param i32) (result i32)
            (call $end (local.get 0)) (i32.const 2048))"#,
        data(reason)
    );
    component("lifecycle-policy", &module(&body))
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

/// The component with a version of its own.
pub fn version(component: Vec<u8>, version: &str) -> Vec<u8> {
    with_manifest(component, &format!(r#"{{"version":"{version}"}}"#))
}

/// `expose` runs with the session, the kind, the items and their number in locals 0 to 3; local 4 is where the verdicts are, all `keep`.
/// The text is at 0.
fn namespace(expose: &str, text: &str) -> Vec<u8> {
    let body = format!(
        r#"{}
        (func (export "lockgate:policy/namespace@0.1.1#expose") (param i32 i32 i32 i32) (result i32)
            (local i32)
            (local.set 4 (call $realloc (i32.const 0) (i32.const 0) (i32.const 4) (i32.mul (local.get 3) (i32.const 12))))
            ;; An instance may have answered before.
            (memory.fill (local.get 4) (i32.const 0) (i32.mul (local.get 3) (i32.const 12)))
            {expose}
            (i32.store (i32.const 1028) (local.get 4))
            (i32.store (i32.const 1032) (local.get 3))
            (call $end (local.get 0))
            (global.set $free (i32.const 65536))
            (i32.const 1024))
        (func (export "lockgate:policy/namespace@0.1.1#resolve") (param i32 i32 i32 i32) (result i32)
            (call $end (local.get 0))
            (global.set $free (i32.const 65536))
            (i32.const 2048))"#,
        data(text)
    );
    component("namespace-policy", &module(&body))
}

fn router(answer: &str, text: &str) -> Vec<u8> {
    let body = format!(
        r#"{}
        (func (export "lockgate:policy/router@0.1.1#resolve") (param i32 i32 i32 i32 i32 i32 i32 i32) (result i32)
            {answer}
            (call $end (local.get 0))
            (global.set $free (i32.const 65536))
            (i32.const 1024))"#,
        data(text)
    );
    component("router-policy", &module(&body))
}

fn byte(at: u32, value: usize) -> String {
    format!("(i32.store8 (i32.const {at}) (i32.const {value}))")
}

fn word(at: u32, value: usize) -> String {
    format!("(i32.store (i32.const {at}) (i32.const {value}))")
}

/// Text at 0, of at most 1,024 bytes. It must need no escaping.
fn data(text: &str) -> String {
    assert!(text.len() <= 1024 && text.bytes().all(|b| b.is_ascii_graphic() || b == b' ') && !text.contains(['"', '\\']), "{text}");
    format!(r#"(data (i32.const 0) "{text}")"#)
}

/// What every guest needs: memory, an allocator that each call begins anew, and `$end`, which gives the lent session back. Answers
/// go to 1,024.
fn module(body: &str) -> String {
    format!(
        r#"(module
        (import "lockgate:policy/host@0.1.1" "[resource-drop]session" (func $end (param i32)))
        (memory (export "memory") 4)
        (global $free (mut i32) (i32.const 65536))
        (func $realloc (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
            (local $at i32)
            (local.set $at (i32.and (i32.add (global.get $free) (i32.const 7)) (i32.const -8)))
            (global.set $free (i32.add (local.get $at) (local.get 3)))
            (local.get $at))
        {body})"#
    )
}

fn component(world: &str, body: &str) -> Vec<u8> {
    let wit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../wit/policy.wit");
    let contract = std::fs::read_to_string(wit).expect("the contract is there");
    let mut resolve = Resolve::default();
    let package = resolve.push_str("policy.wit", &contract).expect("the contract parses");
    let world = resolve.select_world(&[package], Some(world)).expect("the world is there");
    let mut module = wat::parse_str(body).expect("the module parses");
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8).expect("embedded");
    let mut encoder = ComponentEncoder::default().validate(true).module(&module).expect("a module");
    encoder.encode().expect("a component")
}

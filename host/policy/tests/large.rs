//! Policies that do not fit the pool: more memory, more parts, larger tables than its slots have.

mod common;

use common::*;
use lockgate_policy::{Chain, Engine, Kind, LoadError, Policy, PolicyErrorKind, Terms};
use std::sync::Arc;
use std::time::Duration;

async fn calls(chain: &Chain) -> Result<bool, PolicyErrorKind> {
    chain.alias(&session(&["a"]), Kind::Tool, "x").await.map(|t| t.is_some()).map_err(|e| e.kind)
}

/// Grows to so many pages, and traps if it may not.
fn needing(pages: u32) -> Vec<u8> {
    alias_guest(&format!("(if (i32.eq (memory.grow (i32.const {pages})) (i32.const -1)) (then unreachable))"), "")
}

#[tokio::test]
async fn a_higher_limit_of_memory_is_kept_to() {
    let engine = engine();
    let roomy = |component: &[u8]| chain_within(&engine, component, |l| l.memory_bytes = 64 << 20);
    assert_eq!(calls(&roomy(&needing(800))).await, Ok(false), "50 MiB");
    assert_eq!(calls(&roomy(&needing(1_100))).await, Err(PolicyErrorKind::OutOfMemory), "69 MiB");
    assert_eq!(calls(&chain_of(&engine, &needing(800))).await, Err(PolicyErrorKind::OutOfMemory), "with the usual limit");
    let tight = chain_within(&engine, &needing(20), |l| l.memory_bytes = 1 << 20);
    assert_eq!(calls(&tight).await, Err(PolicyErrorKind::OutOfMemory), "with a lower one");
}

#[tokio::test]
async fn a_large_table_lives_outside_of_the_pool_without_being_asked() {
    let engine = engine();
    let table = alias_guest("(drop (table.size 0))", "(table 20000 funcref)");
    assert_eq!(calls(&chain_of(&engine, &table)).await, Ok(false));
    // It cannot take what no policy needs.
    let endless = alias_guest(
        "(loop $l (br_if $l (i32.ne (table.grow 0 (ref.null func) (i32.const 10000)) (i32.const -1))))",
        "(table 20000 funcref)",
    );
    assert_eq!(calls(&chain_of(&engine, &endless)).await, Ok(false), "it ends when it gets no more");
}

/// A component around a policy, with more core instances, memories and tables than a slot of the pool has, as those of script languages are.
fn with_parts(parts: usize) -> Vec<u8> {
    let mut component = alias_guest("", "");
    let mut parts_of_it = String::from("(component (core module $m (memory 1) (table 5000 funcref))");
    (0..parts).for_each(|_| parts_of_it += "(core instance (instantiate $m))");
    parts_of_it += ")";
    // Sections of a component may be repeated, but indices count on: so it is put in as a component of its own, and instantiated.
    let nested = wat::parse_str(&parts_of_it).unwrap();
    component.push(4);
    leb(&mut component, nested.len());
    component.extend(nested);
    // Instance section: one instance, instantiate component 0 of this level with no arguments.
    component.extend([5, 4, 1, 0, nested_index(), 0]);
    component
}

/// The encoder makes one component of its own for each exported interface.
fn nested_index() -> u8 {
    1
}

fn leb(to: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        to.push(value as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

#[tokio::test]
async fn many_parts_live_outside_of_the_pool_and_no_more_of_them_than_it_has_room_for() {
    let engine: Arc<Engine> = engine_with(|c| c.large_instances = 2);
    let parts = with_parts(12);
    let chain = Arc::new(chain_within(&engine, &parts, |l| l.memory_bytes = 64 << 20));
    let sessions: Vec<_> = (0..4).map(|_| session(&["a"])).collect();
    for s in &sessions {
        chain.alias(s, Kind::Tool, "x").await.unwrap();
        assert!(engine.instances() <= 2);
    }
    assert_eq!(engine.warm_instances(), 2);
    // The pool does not care.
    let small = chain_of(&engine, &alias_guest("", ""));
    assert_eq!(calls(&small).await, Ok(false));
    // Within the memory that it may have by default it cannot even begin: 12 parts of a page each, and a guest of two.
    let mut terms = Terms::default();
    terms.limits.memory_bytes = 10 << 16;
    let refused = Policy::load(&engine, "p", &parts, &terms).unwrap_err();
    assert!(matches!(refused, LoadError::Instantiate { .. }), "{refused}");
}

#[tokio::test]
async fn loops_outside_of_the_pool_end_too() {
    let engine = engine();
    let looping = alias_guest("(loop $l (br $l))", "(table 20000 funcref)");
    let chain = chain_within(&engine, &looping, |l| l.resolve_time = Duration::from_millis(30));
    assert_eq!(calls(&chain).await, Err(PolicyErrorKind::Deadline));
}

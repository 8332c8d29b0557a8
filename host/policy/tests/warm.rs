//! The instances that sessions keep between calls: whose they are, when they go, how many there may be.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::*;
use lockgate_policy::{Chain, Engine, Kind, PolicyErrorKind, Routers, SessionView};

/// Answers `some` (backend `a`) from its second call on, by a static in its memory.
fn counting() -> Vec<u8> {
    counting_and("")
}

fn counting_and(first: &str) -> Vec<u8> {
    let resolve = format!(
        r#"{first}
        (if (i32.load8_u (i32.const 512)) (then
            (i32.store8 (i32.const 1028) (i32.const 1))
            (i32.store (i32.const 1032) (i32.const 0)) (i32.store (i32.const 1036) (i32.const 1))
            (i32.store (i32.const 1040) (i32.const 1)) (i32.store (i32.const 1044) (i32.const 1))))
        (i32.store8 (i32.const 512) (i32.const 1))"#
    );
    alias_guest(&resolve, r#"(data (i32.const 0) "ax")"#)
}

/// Whether the guest was called in this memory before.
async fn again(chain: &Chain, s: &SessionView) -> Result<bool, PolicyErrorKind> {
    chain.alias(s, Kind::Tool, "name").await.map(|t| t.is_some()).map_err(|e| e.kind)
}

/// An engine that keeps as many instances as the test says, and whose sweep drops all that are idle.
fn engine_keeping(pool: u32, warm: u32) -> Arc<Engine> {
    engine_with(|c| {
        c.pool_instances = pool;
        c.warm_instances = warm;
        c.warm_idle = Duration::ZERO;
    })
}

#[tokio::test]
async fn a_session_has_its_own_instance_again_and_no_other_session_ever_has_it() {
    let engine = engine();
    let chain = chain_of(&engine, &counting());
    let (first, second) = (session(&["a"]), session(&["a"]));
    assert_eq!(again(&chain, &first).await, Ok(false));
    assert_eq!(again(&chain, &first).await, Ok(true));
    assert_eq!(again(&chain, &second).await, Ok(false), "the memory of another session");
    assert_eq!(again(&chain, &second).await, Ok(true));
    assert_eq!((first.warm.idle(), second.warm.idle(), engine.warm_instances()), (1, 1, 2));
    // Another view of the session, as the gateway makes one for each operation.
    assert_eq!(again(&chain, &first.clone()).await, Ok(true));
    drop((first, second));
    assert_eq!((engine.warm_instances(), engine.instances()), (0, 0), "they end with their sessions");
}

#[tokio::test]
async fn each_call_sees_the_session_as_it_is_then() {
    let imports = r#"(import "lockgate:policy/host@0.1.1" "[method]session.principal" (func $principal (param i32 i32)))"#;
    // Routes to the backend that is called like the principal.
    let resolve = r#"(call $principal (local.get 0) (i32.const 512))
        (i32.store8 (i32.const 1028) (i32.const 1))
        (i32.store (i32.const 1032) (i32.load (i32.const 512))) (i32.store (i32.const 1036) (i32.load (i32.const 516)))
        (i32.store (i32.const 1040) (i32.const 0)) (i32.store (i32.const 1044) (i32.const 1))"#;
    let engine = engine();
    let chain = chain_of(&engine, &router_guest(imports, resolve, r#"(data (i32.const 0) "x")"#));
    assert_eq!(chain.routers(), Routers::OncePerName);
    let mut s = session(&["ann", "bob"]);
    let target = lockgate_policy::Target { backend: "ann".into(), name: "x".into() };
    for who in ["bob", "ann", "bob"] {
        s.principal = who.into();
        let route = chain.route(&s, Kind::Tool, "x", target.clone()).await.unwrap();
        assert_eq!(route, lockgate_policy::Route::To(lockgate_policy::Target { backend: who.into(), name: "x".into() }));
    }
    assert_eq!(engine.instances(), 1, "all in one instance");
}

#[tokio::test]
async fn an_idle_instance_holds_nothing_of_its_session() {
    let engine = engine();
    let chain = chain_of(&engine, &counting());
    let s = session(&["a"]);
    let before = Arc::strong_count(&s.backends);
    assert_eq!(again(&chain, &s).await, Ok(false));
    assert_eq!(s.warm.idle(), 1);
    assert_eq!(Arc::strong_count(&s.backends), before);
    let warm = Arc::downgrade(&s.warm);
    drop(s);
    assert!(warm.upgrade().is_none(), "it would keep itself");
}

#[tokio::test]
async fn an_instance_that_trapped_or_failed_is_not_entered_again() {
    let engine = engine();
    // `!` traps; `?` names a backend that is not there, with an answer that the engine takes.
    let trap = "(if (i32.eq (i32.load8_u (local.get 2)) (i32.const 33)) (then unreachable))";
    let chain = chain_of(&engine, &counting_and(trap));
    let s = session(&["a"]);
    assert_eq!((again(&chain, &s).await, again(&chain, &s).await), (Ok(false), Ok(true)));
    assert!(matches!(chain.alias(&s, Kind::Tool, "!").await.unwrap_err().kind, PolicyErrorKind::Trap(_)));
    assert_eq!((s.warm.idle(), engine.instances()), (0, 0));
    assert_eq!((again(&chain, &s).await, again(&chain, &s).await), (Ok(false), Ok(true)), "a new memory, which is kept");
    // In a session without that backend the second answer is a bad one.
    let elsewhere = session(&["b"]);
    assert_eq!(again(&chain, &elsewhere).await, Ok(false));
    assert!(matches!(again(&chain, &elsewhere).await, Err(PolicyErrorKind::BadAnswer(_))));
    assert_eq!(elsewhere.warm.idle(), 0);
    assert_eq!(again(&chain, &elsewhere).await, Ok(false), "a new memory");
}

#[tokio::test]
async fn a_call_that_is_given_up_takes_its_instance_with_it() {
    let engine = engine();
    let wait = "(if (i32.eq (i32.load8_u (local.get 2)) (i32.const 33)) (then (loop $l (br $l))))";
    let chain = chain_within(&engine, &counting_and(wait), |l| l.resolve_time = Duration::from_secs(30));
    let s = session(&["a"]);
    assert_eq!((again(&chain, &s).await, again(&chain, &s).await), (Ok(false), Ok(true)));
    let given_up = tokio::time::timeout(Duration::from_millis(20), chain.alias(&s, Kind::Tool, "!")).await;
    assert!(given_up.is_err());
    assert_eq!((s.warm.idle(), engine.instances()), (0, 0));
    assert_eq!((again(&chain, &s).await, again(&chain, &s).await), (Ok(false), Ok(true)));
}

#[tokio::test]
async fn while_it_is_in_use_others_get_fresh_ones_that_are_not_kept() {
    let engine = engine();
    let wait = "(if (i32.eq (i32.load8_u (local.get 2)) (i32.const 33)) (then (loop $l (br $l))))";
    let chain = Arc::new(chain_within(&engine, &counting_and(wait), |l| l.resolve_time = Duration::from_secs(30)));
    let s = session(&["a"]);
    assert_eq!((again(&chain, &s).await, again(&chain, &s).await), (Ok(false), Ok(true)));
    let busy = tokio::spawn({
        let (chain, s) = (chain.clone(), s.clone());
        async move { chain.alias(&s, Kind::Tool, "!").await }
    });
    while s.warm.idle() > 0 {
        tokio::task::yield_now().await;
    }
    for _ in 0..3 {
        assert_eq!(again(&chain, &s).await, Ok(false));
        assert_eq!((s.warm.idle(), engine.instances()), (0, 1));
    }
    busy.abort();
    let _ = busy.await;
    assert_eq!((again(&chain, &s).await, again(&chain, &s).await), (Ok(false), Ok(true)));
}

#[tokio::test]
async fn another_chain_has_another_instance_and_the_old_one_ends_with_its_chain() {
    let engine = engine();
    let (old, new) = (chain_of(&engine, &counting()), chain_of(&engine, &counting()));
    let s = session(&["a"]);
    assert_eq!((again(&old, &s).await, again(&old, &s).await), (Ok(false), Ok(true)));
    drop(old);
    assert_eq!((s.warm.idle(), engine.instances()), (0, 0));
    assert_eq!((again(&new, &s).await, again(&new, &s).await), (Ok(false), Ok(true)));
    // Still in use somewhere, but not in this session any more.
    let newer = chain_of(&engine, &counting());
    assert_eq!((again(&newer, &s).await, s.warm.idle(), engine.instances()), (Ok(false), 1, 1));
    assert_eq!(again(&new, &s).await, Ok(false));
}

#[tokio::test]
async fn lists_are_built_in_fresh_instances() {
    let engine = engine();
    // Hides everything in its second call.
    let expose = r#"(if (i32.load8_u (i32.const 512)) (then (unreachable)))
        (i32.store8 (i32.const 512) (i32.const 1))
        (i32.store (i32.const 1028) (i32.const 600)) (i32.store (i32.const 1032) (local.get 3))"#;
    let chain = chain_of(&engine, &namespace_guest(expose, ""));
    let s = session(&["a"]);
    for _ in 0..3 {
        let names = chain.publish(&s, Kind::Tool, &heads(&[("a", "x"), ("a", "y")])).await.unwrap();
        assert_eq!(names, [Some("x".into()), Some("y".into())]);
    }
    assert_eq!(engine.instances(), 0);
}

#[tokio::test]
async fn what_is_idle_for_too_long_goes_when_it_is_swept() {
    let engine = engine_keeping(16, 16);
    let chain = chain_of(&engine, &counting());
    let sessions: Vec<_> = (0..5).map(|_| session(&["a"])).collect();
    for s in &sessions {
        assert_eq!(again(&chain, s).await, Ok(false));
    }
    assert_eq!(engine.instances(), 5);
    assert_eq!((engine.sweep(), engine.instances(), engine.evicted_instances()), (5, 0, 5));
    let patient = engine_with(|c| c.warm_idle = Duration::from_secs(60));
    let chain = chain_of(&patient, &counting());
    assert_eq!(again(&chain, &sessions[0]).await, Ok(false));
    assert_eq!((patient.sweep(), patient.instances()), (0, 1));
}

#[tokio::test]
async fn at_the_bound_the_one_that_was_idle_for_longest_goes() {
    let engine = engine_keeping(16, 3);
    let chain = chain_of(&engine, &counting());
    let sessions: Vec<_> = (0..4).map(|_| session(&["a"])).collect();
    let short = Duration::from_millis(1);
    for s in &sessions[..3] {
        assert_eq!(again(&chain, s).await, Ok(false));
        tokio::time::sleep(short).await;
    }
    // The first is used again, so the second is the oldest.
    assert_eq!(again(&chain, &sessions[0]).await, Ok(true));
    assert_eq!(again(&chain, &sessions[3]).await, Ok(false));
    let idle: Vec<_> = sessions.iter().map(|s| s.warm.idle()).collect();
    assert_eq!(idle, [1, 0, 1, 1]);
    assert_eq!(engine.instances(), 3);
}

#[tokio::test]
async fn greedy_instances_are_not_kept_beyond_the_memory_for_all() {
    let engine = engine_with(|c| c.warm_bytes = 3 << 20);
    let grow = "(drop (memory.grow (i32.const 14)))"; // to 1 MiB
    let chain = chain_of(&engine, &counting_and(grow));
    let sessions: Vec<_> = (0..6).map(|_| session(&["a"])).collect();
    for s in &sessions {
        assert_eq!(again(&chain, s).await, Ok(false));
        assert!(engine.warm_instances() <= 3, "{}", engine.warm_instances());
    }
    assert_eq!(sessions[5].warm.idle(), 1);
}

#[tokio::test]
async fn a_full_pool_is_never_full_of_idle_instances() {
    let engine = engine_keeping(2, 2);
    let chain = chain_of(&engine, &counting());
    let sessions: Vec<_> = (0..8).map(|_| session(&["a"])).collect();
    for round in 0..3 {
        for s in &sessions {
            assert_eq!(again(&chain, s).await, Ok(false), "round {round}");
            assert!(engine.instances() <= 2);
        }
    }
}

#[tokio::test]
async fn a_guest_that_never_frees_anything_loses_no_call() {
    // The allocator of the test guests has room for 8,192 names of up to 8 bytes.
    let chain = chain_of(&engine(), &counting());
    let s = session(&["a"]);
    let mut fresh = 0;
    for _ in 0..20_000 {
        fresh += u32::from(!again(&chain, &s).await.expect("answered"));
    }
    assert!((3..100).contains(&fresh), "{fresh}");
    // To half of the memory that it may have.
    let grow = "(drop (memory.grow (i32.const 127)))";
    let chain = chain_of(&engine(), &counting_and(grow));
    assert_eq!((again(&chain, &s).await, again(&chain, &s).await), (Ok(false), Ok(false)));
}

/// Every one is answered, on several threads, with far fewer places than sessions, and no memory is seen twice by two sessions.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_thousand_sessions_stay_within_the_bound_and_every_call_is_answered() {
    let engine = engine_keeping(64, 48);
    let chain = Arc::new(chain_of(&engine, &counting()));
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let (engine, chain) = (engine.clone(), chain.clone());
            tokio::spawn(async move {
                let sessions: Vec<_> = (0..125).map(|_| session(&["a"])).collect();
                for round in 0..4 {
                    for (i, s) in sessions.iter().enumerate() {
                        let first = again(&chain, s).await.expect("answered");
                        assert!(!first || round > 0, "session {i} has seen another's memory");
                        // At once again, by two at a time: one of them in a fresh one.
                        let (a, b) = tokio::join!(again(&chain, s), again(&chain, s));
                        assert!(a.is_ok() && b.is_ok(), "{a:?} {b:?}");
                        assert!(engine.warm_instances() <= 48 && engine.instances() <= 64);
                    }
                }
                sessions
            })
        })
        .collect();
    let mut sessions = Vec::new();
    for task in tasks {
        sessions.extend(task.await.unwrap());
    }
    let idle: usize = sessions.iter().map(|s| s.warm.idle()).sum();
    assert_eq!(idle, engine.warm_instances());
    assert!(idle <= 48 && idle > 0, "{idle}");
    drop(sessions);
    assert_eq!((engine.warm_instances(), engine.instances()), (0, 0));
}

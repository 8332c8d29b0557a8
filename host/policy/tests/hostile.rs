//! Guests that do what they must not. Each is contained to its call, named in the error, and leaves nothing behind.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use common::*;
use lockgate_policy::{Chain, Kind, Limits, LoadError, Policy, PolicyErrorKind, SessionView, Terms};

/// Writes `some({backend: "a", name: "x"})` where answers go. Its text is at 0.
const SOME_A: &str = r#"
    (i32.store8 (i32.const 1028) (i32.const 1))
    (i32.store (i32.const 1032) (i32.const 0)) (i32.store (i32.const 1036) (i32.const 1))
    (i32.store (i32.const 1040) (i32.const 1)) (i32.store (i32.const 1044) (i32.const 1))"#;
const TEXT: &str = r#"(data (i32.const 0) "ax")"#;

/// What becomes of an alias guest's `resolve`.
async fn ask(chain: &Chain, s: &SessionView) -> Result<bool, PolicyErrorKind> {
    chain.alias(s, Kind::Tool, "name").await.map(|t| t.is_some()).map_err(|e| e.kind)
}

async fn outcome(resolve: &str, more: &str) -> Result<bool, PolicyErrorKind> {
    ask(&chain_of(&engine(), &alias_guest(resolve, more)), &session(&["a"])).await
}

#[tokio::test]
async fn a_guest_that_behaves_answers() {
    assert_eq!(outcome("", "").await, Ok(false));
    assert_eq!(outcome(SOME_A, TEXT).await, Ok(true));
}

#[tokio::test]
async fn statics_do_not_carry_from_one_call_or_session_to_another() {
    let counting = format!(
        "(global.set $calls (i32.add (global.get $calls) (i32.const 1))) (if (i32.gt_s (global.get $calls) (i32.const 1)) (then {SOME_A}))"
    );
    let more = format!("(global $calls (mut i32) (i32.const 0)) {TEXT}");
    let remembering = format!("(if (i32.load8_u (i32.const 512)) (then {SOME_A})) (i32.store8 (i32.const 512) (i32.const 1))");
    for guest in [alias_guest(&counting, &more), alias_guest(&remembering, TEXT)] {
        let chain = chain_of(&engine_with(|c| c.pool_instances = 1), &guest);
        for _ in 0..20 {
            for who in ["a", "a"] {
                assert_eq!(ask(&chain, &session(&[who])).await, Ok(false));
            }
        }
    }
}

/// Asks for what is under the key `k` and answers `some` if there is something; then stores something there.
fn notes() -> Vec<u8> {
    let resolve = format!(
        r#"(call $recall (local.get 0) (i32.const 2) (i32.const 1) (i32.const 512))
        (if (i32.load8_u (i32.const 512)) (then {SOME_A}))
        (call $remember (local.get 0) (i32.const 2) (i32.const 1) (i32.const 0) (i32.const 2) (i32.const 600))"#
    );
    let world = r#"
        (import "lockgate:policy/host@0.1.1" "[method]session.recall" (func $recall (param i32 i32 i32 i32)))
        (import "lockgate:policy/host@0.1.1" "[method]session.remember" (func $remember (param i32 i32 i32 i32 i32 i32)))"#;
    let module = alias_module(&resolve, r#"(data (i32.const 0) "axk")"#).replacen("(module", &format!("(module {world}"), 1);
    component("alias-policy", &module)
}

#[tokio::test]
async fn what_is_remembered_stays_with_its_session_and_its_policy() {
    let engine = engine();
    let chain = chain_of(&engine, &notes());
    let (first, second) = (session(&["a"]), session(&["a"]));
    assert_eq!(ask(&chain, &first).await, Ok(false));
    assert_eq!(ask(&chain, &first).await, Ok(true), "it remembers, in a new instance");
    assert_eq!(ask(&chain, &second).await, Ok(false), "another session has nothing");
    let swapped = chain_of(&engine, &notes());
    assert_eq!(ask(&swapped, &first).await, Ok(true), "state survives a swap of the code");
    let other = Policy::load(&engine, "other", &notes(), &Terms::default()).unwrap();
    let other = Chain::new(engine, "default".into(), vec![entry(other, "null")]);
    assert_eq!(ask(&other, &first).await, Ok(false), "another policy has nothing");
}

#[tokio::test]
async fn an_endless_loop_is_ended_while_others_run() {
    let engine = engine();
    let looping = alias_guest("(loop $l (br $l))", "");
    let chain = chain_within(&engine, &looping, |l| l.resolve_time = Duration::from_millis(40));
    let ticks = Arc::new(AtomicU32::new(0));
    let seen = ticks.clone();
    // On this runtime's only thread: it runs only when the guest yields.
    let other = tokio::spawn(async move {
        loop {
            seen.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
        }
    });
    let start = Instant::now();
    assert_eq!(ask(&chain, &session(&["a"])).await, Err(PolicyErrorKind::Deadline));
    assert!(start.elapsed() >= Duration::from_millis(20), "{:?}", start.elapsed());
    assert!(ticks.load(Ordering::Relaxed) >= 3, "{ticks:?}");
    other.abort();
    // Its instance is gone: the next call is ended the same way and others have room.
    assert_eq!(ask(&chain, &session(&["a"])).await, Err(PolicyErrorKind::Deadline));
    let good = chain_of(&engine, &alias_guest("", ""));
    assert_eq!(ask(&good, &session(&["a"])).await, Ok(false));
}

#[tokio::test]
async fn a_loop_in_start_code_does_not_load() {
    let guest = component("alias-policy", &alias_module("", "(func $init (loop $l (br $l))) (start $init)"));
    let mut terms = Terms::default();
    terms.limits.list_time = Duration::from_millis(40);
    let refused = Policy::load(&engine(), "guest", &guest, &terms).unwrap_err();
    assert!(matches!(refused, LoadError::Instantiate { .. }), "{refused}");
}

#[tokio::test]
async fn memory_is_bounded_and_asking_for_more_is_named() {
    let bomb = "(loop $l (br_if $l (i32.ne (memory.grow (i32.const 16)) (i32.const -1)))) unreachable";
    assert_eq!(outcome(bomb, "").await, Err(PolicyErrorKind::OutOfMemory));
    let content = "(drop (memory.grow (i32.const 100000)))";
    assert_eq!(outcome(content, "").await, Ok(false), "a guest that can do without goes on");
    let large = component("alias-policy", &alias_module("", "").replace("\"memory\") 2", "\"memory\") 300"));
    assert!(matches!(refused(&large), LoadError::Compile { .. } | LoadError::Instantiate { .. }));
}

#[tokio::test]
async fn traps_are_named_and_the_next_call_has_a_new_instance() {
    let once = r#"(if (i32.eq (i32.load8_u (local.get 2)) (i32.const 33)) (then unreachable))"#;
    let chain = chain_of(&engine(), &alias_guest(once, ""));
    let s = session(&["a"]);
    let error = chain.alias(&s, Kind::Tool, "!").await.unwrap_err();
    assert!(matches!(error.kind, PolicyErrorKind::Trap(_)), "{error}");
    assert!(error.to_string().starts_with("policy guest ("), "{error}");
    assert_eq!(chain.alias(&s, Kind::Tool, "fine").await.unwrap(), None);
    let deep = "(call $deep)";
    let more = "(func $deep (call $deep))";
    assert!(matches!(outcome(deep, more).await, Err(PolicyErrorKind::Trap(_))));
    assert!(matches!(outcome("(drop (i32.load (i32.const -4)))", "").await, Err(PolicyErrorKind::Trap(_))));
}

#[tokio::test]
async fn a_handle_that_was_not_lent_is_worth_nothing() {
    for forged in [-1, 0, 2, 3, 100, 1 << 20] {
        let world = r#"(import "lockgate:policy/host@0.1.1" "[method]session.principal" (func $principal (param i32 i32)))"#;
        let module = alias_module(&format!("(call $principal (i32.const {forged}) (i32.const 512))"), "");
        let guest = component("alias-policy", &module.replacen("(module", &format!("(module {world}"), 1));
        let outcome = ask(&chain_of(&engine(), &guest), &session(&["a"])).await;
        let Err(PolicyErrorKind::BadAnswer(why) | PolicyErrorKind::Trap(why)) = outcome else { panic!("{forged}: {outcome:?}") };
        assert!(why.contains("handle"), "{forged}: {why}");
    }
    // Kept beyond the call: the engine does not let it return.
    let keep = component("alias-policy", &alias_module("", "").replace("(call $end (local.get 0))", ""));
    let outcome = ask(&chain_of(&engine(), &keep), &session(&["a"])).await;
    assert!(matches!(&outcome, Err(PolicyErrorKind::BadAnswer(why)) if why.contains("borrow")), "{outcome:?}");
}

#[tokio::test]
async fn answers_that_are_too_large_or_no_text_are_refused() {
    let answer = |at: u32, len: u32| {
        format!(
            "{SOME_A} (drop (memory.grow (i32.const 64))) (i32.store (i32.const 1040) (i32.const {at})) (i32.store (i32.const 1044) (i32.const {len}))"
        )
    };
    assert_eq!(outcome(&answer(0, 4 << 20), TEXT).await, Err(PolicyErrorKind::TooMuchData));
    let invalid = outcome(&answer(8, 1), &format!("{TEXT} (data (i32.const 8) \"\\ff\")")).await;
    assert!(matches!(&invalid, Err(PolicyErrorKind::BadAnswer(why)) if why.contains("utf-8")), "{invalid:?}");
    let outside = outcome(&answer(0x7fff_0000, 4), TEXT).await;
    assert!(matches!(outside, Err(PolicyErrorKind::BadAnswer(_) | PolicyErrorKind::Trap(_))), "{outside:?}");
}

#[tokio::test]
async fn a_target_outside_of_the_session_is_an_error_of_the_policy() {
    let chain = chain_of(&engine(), &alias_guest(SOME_A, TEXT));
    let error = chain.alias(&session(&["b"]), Kind::Tool, "x").await.unwrap_err();
    assert!(matches!(&error.kind, PolicyErrorKind::BadAnswer(why) if why.contains("no such backend")), "{error}");
}

/// A million lines, or as many as fit into the deadline.
#[tokio::test]
async fn a_guest_that_logs_without_end_is_ended_and_dropped_lines_cost_little() {
    let world = r#"(import "lockgate:policy/host@0.1.1" "[method]session.log" (func $log (param i32 i32 i32 i32)))"#;
    let module = alias_module("(loop $l (call $log (local.get 0) (i32.const 3) (i32.const 0) (i32.const 2)) (br $l))", TEXT);
    let guest = component("alias-policy", &module.replacen("(module", &format!("(module {world}"), 1));
    assert_eq!(ask(&chain_of(&engine(), &guest), &session(&["a"])).await, Err(PolicyErrorKind::Deadline));
}

/// Verdicts for a list, written by hand: a list of them at 512, `rename` (2) each, to the text at 0.
fn rename_all_to(text: &str, verdicts: u32) -> Vec<u8> {
    let mut expose = format!("(i32.store (i32.const 1028) (i32.const 512)) (i32.store (i32.const 1032) (i32.const {verdicts}))");
    for i in 0..verdicts {
        let at = 512 + 12 * i;
        expose += &format!(
            "(i32.store8 (i32.const {at}) (i32.const 2)) (i32.store (i32.const {}) (i32.const 0)) (i32.store (i32.const {}) (i32.const {}))",
            at + 4,
            at + 8,
            text.len()
        );
    }
    namespace_guest(&expose, &format!("(data (i32.const 0) \"{text}\")"))
}

#[tokio::test]
async fn illegal_lists_of_names_are_errors_that_name_the_items() {
    let engine = engine();
    let s = session(&["a", "b"]);
    let items = [("a", "x"), ("b", "y")];
    let why = async |guest: Vec<u8>| {
        let answer = chain_of(&engine, &guest).publish(&s, Kind::Tool, &heads(&items)).await;
        match answer.map_err(|e| e.kind) {
            Err(PolicyErrorKind::BadAnswer(why)) => why,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(
        why(rename_all_to("same", 2)).await,
        "the tool \"x\" of backend \"a\" and the tool \"y\" of backend \"b\" are both published as \"same\""
    );
    assert_eq!(
        why(rename_all_to("not legal", 2)).await,
        "the tool \"x\" of backend \"a\" is published as \"not legal\", not 1 to 64 characters of A-Z a-z 0-9 _ -"
    );
    assert_eq!(why(rename_all_to("", 2)).await, "the tool \"x\" of backend \"a\" is published as \"\", an empty name");
    assert_eq!(why(rename_all_to("fine", 1)).await, "1 verdicts for 2 items");
    assert_eq!(why(rename_all_to("fine", 3)).await, "3 verdicts for 2 items");
}

#[tokio::test]
async fn a_name_that_is_hidden_is_not_reached_by_alias_either() {
    let engine = engine();
    // Hides everything, whatever it is asked: one verdict, `hide`.
    let hide = namespace_guest(
        "(i32.store (i32.const 1028) (i32.const 512)) (i32.store (i32.const 1032) (i32.const 1)) (i32.store8 (i32.const 512) (i32.const 1))",
        "",
    );
    let hide = entry(Policy::load(&engine, "hide", &hide, &Terms::default()).unwrap(), "null");
    let alias = entry(load_shipped(&engine, "alias"), r#"{"aliases":[{"public":"now","kind":"tool","backend":"a","name":"x"}]}"#);
    let namespace = entry(load_shipped(&engine, "namespace"), "null");
    let s = session(&["a", "b"]);
    let open = Chain::new(engine.clone(), "default".into(), vec![alias.clone(), namespace.clone()]);
    let closed = Chain::new(engine, "default".into(), vec![alias, hide, namespace]);
    for name in ["now", "a__x"] {
        assert!(open.resolve(&s, Kind::Tool, name).await.unwrap().is_some(), "{name}");
        assert!(closed.resolve(&s, Kind::Tool, name).await.unwrap().is_none(), "{name}");
    }
    assert_eq!(closed.publish(&s, Kind::Tool, &heads(&[("a", "x")])).await.unwrap(), [None]);
}

#[tokio::test]
async fn a_full_pool_makes_calls_wait_and_then_fail_as_overload() {
    let engine = engine_with(|c| c.pool_instances = 1);
    let looping = namespace_guest("(loop $l (br $l))", "");
    let hog = Arc::new(chain_within(&engine, &looping, |l| l.list_time = Duration::from_secs(5)));
    let holder = tokio::spawn({
        let hog = hog.clone();
        async move { hog.publish(&session(&["a"]), Kind::Tool, &heads(&[("a", "x")])).await.map_err(|e| e.kind) }
    });
    tokio::task::yield_now().await;
    let good = chain_within(&engine, &alias_guest("", ""), |l| l.resolve_time = Duration::from_millis(10));
    assert_eq!(ask(&good, &session(&["a"])).await, Err(PolicyErrorKind::Overloaded));
    // Dropping the call frees its instance, whatever the guest is at.
    holder.abort();
    let _ = holder.await;
    assert_eq!(ask(&good, &session(&["a"])).await, Ok(false));
}

/// A namespace policy that answers with a list of `len` verdicts at `at`, after `prepare`, which has the global `$w`.
fn list_at(at: u32, len: u32, prepare: &str) -> Vec<u8> {
    let expose = format!("{prepare} (i32.store (i32.const 1028) (i32.const {at})) (i32.store (i32.const 1032) (i32.const {len}))");
    namespace_guest(&expose, "(global $w (mut i32) (i32.const 131072))")
}

#[tokio::test]
async fn a_gigabyte_is_not_taken_whatever_it_is_made_of() {
    let engine = engine();
    let start = Instant::now();
    let large = |l: &mut Limits| l.memory_bytes = 2 << 30;
    // One name of a gigabyte, in a memory that has room for it.
    let name = format!(
        "{SOME_A} (if (i32.eq (memory.grow (i32.const 16400)) (i32.const -1)) (then unreachable)) (i32.store (i32.const 1044) (i32.const {}))",
        1 << 30
    );
    let chain = chain_within(&engine, &alias_guest(&name, TEXT), large);
    assert_eq!(ask(&chain, &session(&["a"])).await, Err(PolicyErrorKind::TooMuchData));
    let expose = async |guest: &[u8]| {
        let chain = chain_within(&engine, guest, large);
        let answer = chain.publish(&session(&["a"]), Kind::Tool, &heads(&[("a", "x"), ("a", "y")])).await;
        answer.map_err(|e| e.kind)
    };
    // A thousand names that share one region of 4 MiB.
    let shared = "(drop (memory.grow (i32.const 80)))
        (loop $l
            (i32.store8 (global.get $w) (i32.const 2))
            (i32.store offset=8 (global.get $w) (i32.const 4194304))
            (global.set $w (i32.add (global.get $w) (i32.const 12)))
            (br_if $l (i32.lt_u (global.get $w) (i32.const 143072))))";
    assert_eq!(expose(&list_at(131_072, 1_000, shared)).await, Err(PolicyErrorKind::TooMuchData));
    // Millions of verdicts of no size, and more than there is memory for.
    let roomy = "(drop (memory.grow (i32.const 16000)))";
    assert_eq!(expose(&list_at(131_072, 80_000_000, roomy)).await, Err(PolicyErrorKind::TooMuchData));
    let outside = expose(&list_at(131_072, u32::MAX / 12, "")).await;
    assert!(matches!(outside, Err(PolicyErrorKind::BadAnswer(_) | PolicyErrorKind::Trap(_) | PolicyErrorKind::TooMuchData)), "{outside:?}");
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    assert_eq!(engine.instances(), 0);
}

#[tokio::test]
async fn what_is_handed_to_the_host_has_a_bound_too() {
    let world = r#"
        (import "lockgate:policy/host@0.1.1" "[method]session.log" (func $log (param i32 i32 i32 i32)))
        (import "lockgate:policy/host@0.1.1" "[method]session.recall" (func $recall (param i32 i32 i32 i32)))"#;
    for call in [
        "(call $log (local.get 0) (i32.const 3) (i32.const 0) (i32.const 8388608))",
        "(call $recall (local.get 0) (i32.const 0) (i32.const 8388608) (i32.const 512))",
    ] {
        let module = alias_module(&format!("(drop (memory.grow (i32.const 200))) {call}"), "");
        let guest = component("alias-policy", &module.replacen("(module", &format!("(module {world}"), 1));
        assert_eq!(ask(&chain_of(&engine(), &guest), &session(&["a"])).await, Err(PolicyErrorKind::TooMuchData), "{call}");
    }
}

#[tokio::test]
async fn tables_do_not_grow_beyond_their_bound() {
    let endless = "(loop $l (br_if $l (i32.ne (table.grow 0 (ref.null func) (i32.const 100)) (i32.const -1))))";
    let seen = format!("{endless} (if (i32.gt_u (table.size 0) (i32.const 2000)) (then unreachable))");
    assert_eq!(outcome(&seen, "(table 1 funcref)").await, Ok(false));
}

#[tokio::test]
async fn each_policy_has_limits_of_its_own() {
    let engine = engine();
    let name = format!("{SOME_A} (i32.store (i32.const 1040) (i32.const 70000)) (i32.store (i32.const 1044) (i32.const 50000))");
    let guest = alias_guest(&name, TEXT);
    // The name is zeroes, all of them text.
    assert_eq!(ask(&chain_of(&engine, &guest), &session(&["a"])).await, Ok(true));
    let small = chain_within(&engine, &guest, |l| l.output_bytes = 10_000);
    assert_eq!(ask(&small, &session(&["a"])).await, Err(PolicyErrorKind::TooMuchData));

    let s = session(&["a"]);
    let none = chain_within(&engine, &notes(), |l| l.state_keys = 0);
    assert_eq!((ask(&none, &s).await, ask(&none, &s).await), (Ok(false), Ok(false)), "nothing is stored");
    let little = chain_within(&engine, &notes(), |l| l.state_bytes = 2);
    assert_eq!((ask(&little, &s).await, ask(&little, &s).await), (Ok(false), Ok(false)), "the key and the value are three bytes");
    let enough = chain_within(&engine, &notes(), |l| l.state_bytes = 3);
    assert_eq!((ask(&enough, &s).await, ask(&enough, &s).await), (Ok(false), Ok(true)));
}

//! Swaps: new code on probation, the way back when it keeps failing, and that nothing stays behind.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::*;
use lockgate_policy::{Chain, Engine, Kind, Live, Policy, PolicyErrorKind, SwapOutcome, Terms};

const MINUTE: Duration = Duration::from_secs(60);

/// Answers `none`; with a text of its own, so that no two have one digest.
fn good(text: &str) -> Vec<u8> {
    alias_guest("", &format!("(data (i32.const 0) {text:?})"))
}

/// Traps for names that begin with `!`, or always.
fn trapping(always: bool) -> Vec<u8> {
    let when = if always { "(i32.const 1)" } else { "(i32.eq (i32.load8_u (local.get 2)) (i32.const 33))" };
    alias_guest(&format!("(if {when} (then unreachable))"), "")
}

fn chain(engine: &Arc<Engine>, components: &[(&str, &[u8])]) -> Arc<Chain> {
    let load = |&(name, c): &(&str, &[u8])| entry(Policy::load(engine, name, c, &Terms::default()).unwrap(), "null");
    Arc::new(Chain::new(engine.clone(), "/mcp".into(), components.iter().map(load).collect()))
}

async fn call(chain: &Chain, name: &str) -> Result<(), PolicyErrorKind> {
    chain.alias(&session(&["a"]), Kind::Tool, name).await.map(drop).map_err(|e| e.kind)
}

#[tokio::test]
async fn new_code_that_keeps_failing_goes_back_to_the_very_chain_that_was_there() {
    let engine = engine();
    let before = chain(&engine, &[("p", &good("1"))]);
    let live = Live::new(before.clone());
    let bad = chain(&engine, &[("p", &trapping(true))]);
    let generation = bad.generation();
    live.swap(bad, MINUTE);
    let status = live.status();
    assert_eq!((status.generation, status.probation.unwrap().previous), (generation, before.generation()));
    assert_eq!(status.last_swap.unwrap().outcome, SwapOutcome::OnProbation { generation });
    for n in 1..=8 {
        assert_eq!(live.current().generation(), generation, "call {n}");
        assert!(matches!(call(&live.current(), "x").await, Err(PolicyErrorKind::Trap(_))));
    }
    assert!(Arc::ptr_eq(&live.current(), &before), "the same chain, with its generation");
    let status = live.status();
    assert_eq!((status.generation, status.probation, status.trips, status.swaps, status.alive), (before.generation(), None, 1, 1, 1));
    let SwapOutcome::WentBack { generation: from, to, reason } = status.last_swap.unwrap().outcome else { panic!("it did not") };
    assert_eq!((from, to), (generation, before.generation()));
    assert!(reason.starts_with("policy p (") && reason.ends_with(") failed in 8 of 8 calls since it was swapped in"), "{reason}");
    assert_eq!(call(&live.current(), "x").await, Ok(()));
}

#[tokio::test]
async fn code_that_fails_less_often_than_not_stays() {
    let engine = engine();
    let live = Live::new(chain(&engine, &[("p", &good("1"))]));
    live.swap(chain(&engine, &[("p", &trapping(false))]), MINUTE);
    let new = live.current();
    for _ in 0..20 {
        assert_eq!(call(&new, "x").await, Ok(()));
        assert!(call(&new, "!").await.is_err());
    }
    assert!(Arc::ptr_eq(&live.current(), &new), "20 of 40 is not more than half");
    assert_eq!((new.entries()[0].calls(), new.entries()[0].faults()), (40, 20));
    assert!(call(&new, "!").await.is_err());
    assert!(!Arc::ptr_eq(&live.current(), &new), "21 of 41 is");
}

#[tokio::test]
async fn failures_that_the_policy_explains_and_code_that_was_there_before_do_not_count() {
    let engine = engine();
    // `failure.other` with an empty text: result tag 1, case 1.
    let explains = alias_guest("(i32.store8 (i32.const 1024) (i32.const 1)) (i32.store8 (i32.const 1028) (i32.const 1))", "");
    let live = Live::new(chain(&engine, &[("p", &good("1"))]));
    live.swap(chain(&engine, &[("p", &explains)]), MINUTE);
    let new = live.current();
    for _ in 0..20 {
        assert!(matches!(call(&new, "x").await, Err(PolicyErrorKind::Failed(_))));
    }
    assert!(Arc::ptr_eq(&live.current(), &new));
    // The same failing code as before, and another policy that is new and good.
    let bad = trapping(true);
    let live = Live::new(chain(&engine, &[("bad", &bad)]));
    live.swap(chain(&engine, &[("new", &good("1")), ("bad", &bad)]), MINUTE);
    let new = live.current();
    for _ in 0..20 {
        assert!(call(&new, "x").await.is_err());
    }
    assert!(Arc::ptr_eq(&live.current(), &new));
}

#[tokio::test]
async fn answers_that_break_the_contract_count_too() {
    let engine = engine();
    // A target whose backend is not there.
    let foreign = alias_guest(
        "(i32.store8 (i32.const 1028) (i32.const 1)) (i32.store (i32.const 1036) (i32.const 1)) (i32.store (i32.const 1044) (i32.const 1))",
        r#"(data (i32.const 0) "z")"#,
    );
    let before = chain(&engine, &[("p", &good("1"))]);
    let live = Live::new(before.clone());
    live.swap(chain(&engine, &[("p", &foreign)]), MINUTE);
    for _ in 0..8 {
        assert!(matches!(call(&live.current(), "x").await, Err(PolicyErrorKind::BadAnswer(_))));
    }
    assert!(Arc::ptr_eq(&live.current(), &before));
}

#[tokio::test]
async fn probation_ends_when_it_is_settled_and_the_old_code_is_let_go() {
    let engine = engine();
    let before = chain(&engine, &[("p", &good("1"))]);
    let old_code = Arc::downgrade(before.entries()[0].policy());
    let s = session(&["a"]);
    before.alias(&s, Kind::Tool, "x").await.unwrap();
    let live = Live::new(before);
    live.swap(chain(&engine, &[("p", &trapping(true))]), MINUTE);
    assert_eq!(live.alive(), 2);
    let now = Instant::now();
    live.settle(now);
    assert_eq!(live.alive(), 2, "not yet");
    assert_eq!(s.warm.idle(), 1, "if it comes back its sessions are as they were");
    live.settle(now + MINUTE + MINUTE);
    let status = live.status();
    assert_eq!((live.alive(), status.probation), (1, None));
    assert_eq!(status.last_swap.unwrap().outcome, SwapOutcome::Kept { generation: status.generation });
    assert!(old_code.upgrade().is_none(), "nobody asks it any more");
    assert_eq!(s.warm.idle(), 0);
    for _ in 0..20 {
        assert!(call(&live.current(), "x").await.is_err());
    }
    assert_eq!(live.status().trips, 0, "there is nothing to go back to");
}

#[tokio::test]
async fn what_is_kept_for_a_probation_is_not_a_chain_that_fails() {
    let engine = engine();
    let proven = chain(&engine, &[("p", &good("1"))]);
    let proven_generation = proven.generation();
    let live = Live::new(proven);
    live.swap(chain(&engine, &[("p", &trapping(true))]), MINUTE);
    assert!(call(&live.current(), "x").await.is_err());
    // The author tries again, before the first attempt has failed often enough.
    let again = alias_guest("(drop (i32.load (i32.const -4)))", "");
    live.swap(chain(&engine, &[("p", &again)]), MINUTE);
    assert_eq!(live.status().probation.unwrap().previous, proven_generation);
    // A good one in between is worth keeping.
    let better = chain(&engine, &[("p", &good("2"))]);
    let better_generation = better.generation();
    live.swap(better, MINUTE);
    assert_eq!(call(&live.current(), "x").await, Ok(()));
    live.swap(chain(&engine, &[("p", &trapping(true))]), MINUTE);
    assert_eq!(live.status().probation.unwrap().previous, better_generation);
    assert_eq!(live.alive(), 2, "the others are gone");
}

#[tokio::test]
async fn a_swap_that_changes_no_code_or_has_no_probation_keeps_nothing() {
    let engine = engine();
    let live = Live::new(chain(&engine, &[("p", &good("1"))]));
    live.swap(chain(&engine, &[("p", &good("1"))]), MINUTE);
    assert_eq!((live.alive(), live.status().probation), (1, None));
    live.swap(chain(&engine, &[("p", &good("2"))]), Duration::ZERO);
    assert_eq!((live.alive(), live.status().probation), (1, None));
    live.given_up("it is no component".into());
    let json = serde_json::to_value(live.status()).unwrap();
    assert_eq!(json["last_swap"]["outcome"], serde_json::json!({"is": "given-up", "reason": "it is no component"}));
    assert!(json["since"].is_u64() && json["virtual_host"] == "/mcp" && json["swaps"] == 2, "{json}");
}

/// Callers on several threads while good and trapping code is swapped in. Good chains answer every call; each trap leads back.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn under_load_every_call_is_answered_by_one_chain_and_old_code_goes() {
    let engine = engine_with(|c| c.pool_instances = 64);
    let live = Arc::new(Live::new(chain(&engine, &[("p", &good("0"))])));
    let stop = Arc::new(AtomicBool::new(false));
    let good_calls = Arc::new(AtomicU64::new(0));
    let callers: Vec<_> = (0..4)
        .map(|_| {
            let (live, stop, good_calls) = (live.clone(), stop.clone(), good_calls.clone());
            tokio::spawn(async move {
                let s = session(&["a"]);
                while !stop.load(Ordering::Relaxed) {
                    let chain = live.current();
                    let traps = chain.entries()[0].setting().contains("traps");
                    match chain.alias(&s, Kind::Tool, "x").await {
                        Ok(None) if !traps => _ = good_calls.fetch_add(1, Ordering::Relaxed),
                        Err(e) if traps && matches!(e.kind, PolicyErrorKind::Trap(_)) => {}
                        other => panic!("{other:?} of {chain:?}"),
                    }
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    let load = |i: usize| {
        let (component, setting) = if i % 3 == 2 { (trapping(true), r#""traps""#) } else { (good(&i.to_string()), "null") };
        let policy = Policy::load(&engine, "p", &component, &Terms::default()).unwrap();
        Arc::new(Chain::new(engine.clone(), "/mcp".into(), vec![entry(policy, setting)]))
    };
    for i in 1..30 {
        let next = tokio::task::block_in_place(|| load(i));
        let (generation, traps) = (next.generation(), i % 3 == 2);
        live.swap(next, MINUTE);
        let until = Instant::now() + MINUTE;
        while traps && live.current().generation() == generation {
            assert!(Instant::now() < until, "it does not go back");
            tokio::task::yield_now().await;
        }
    }
    stop.store(true, Ordering::Relaxed);
    for caller in callers {
        caller.await.unwrap();
    }
    assert_eq!(live.status().trips, 10);
    assert!(good_calls.load(Ordering::Relaxed) > 0);
    live.settle(Instant::now() + MINUTE + MINUTE);
    assert_eq!((live.alive(), engine.instances()), (1, 0));
}

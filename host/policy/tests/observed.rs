//! What is told of calls: to the engine's observer, and to whoever asks one policy one thing.

mod common;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::*;
use lockgate_policy::{
    Answer, Chain, Engine, EngineConfig, Entry, Head, Hook, Kind, Observer, Policy, PolicyErrorKind, Question, Target, Terms, ask,
};
use serde_json::json;

#[derive(Default)]
struct Heard(Mutex<Vec<(String, Hook, &'static str)>>);

impl Observer for Heard {
    fn called(&self, policy: &str, version: &str, hook: Hook, outcome: &'static str, time: Duration) {
        assert!(!version.is_empty() && time < Duration::from_secs(10), "{version} {time:?}");
        self.0.lock().unwrap().push((policy.to_owned(), hook, outcome));
    }

    fn refuted(&self, policy: &str, _: &str, hook: Hook) {
        self.0.lock().unwrap().push((policy.to_owned(), hook, "refuted"));
    }
}

fn load(engine: &Arc<Engine>, name: &str, component: &[u8]) -> Entry {
    entry(Policy::load(engine, name, component, &Terms::default()).unwrap(), "null")
}

#[tokio::test]
async fn each_call_into_a_guest_is_told_once_with_its_outcome() {
    let heard = Arc::new(Heard::default());
    let engine = Engine::observed(EngineConfig { pool_instances: 4, ..EngineConfig::default() }, heard.clone()).unwrap();
    let trap = "(if (i32.eq (i32.load8_u (local.get 2)) (i32.const 33)) (then unreachable))";
    // Answers with a backend that is not there.
    let foreign =
        "(i32.store8 (i32.const 1028) (i32.const 1)) (i32.store (i32.const 1036) (i32.const 1)) (i32.store (i32.const 1044) (i32.const 1))";
    let (first, second) = (alias_guest(trap, ""), alias_guest(foreign, r#"(data (i32.const 0) "z")"#));
    let chain = Chain::new(engine.clone(), "/".into(), vec![load(&engine, "first", &first), load(&engine, "second", &second)]);
    assert!(heard.0.lock().unwrap().is_empty(), "loading is no call");
    let s = session(&["a"]);
    assert!(chain.alias(&s, Kind::Tool, "x").await.is_err());
    assert!(chain.alias(&s, Kind::Tool, "!").await.is_err());
    assert_eq!(chain.publish(&s, Kind::Tool, &heads(&[("a", "x")])).await.unwrap(), [Some("x".to_owned())]);
    let told = |policy: &str, hook, outcome| (policy.to_owned(), hook, outcome);
    let expected = [
        told("first", Hook::AliasResolve, "ok"),
        told("second", Hook::AliasResolve, "ok"),
        told("second", Hook::AliasResolve, "refuted"),
        told("first", Hook::AliasResolve, "trap"),
        told("first", Hook::AliasPublish, "ok"),
        told("second", Hook::AliasPublish, "ok"),
    ];
    assert_eq!(*heard.0.lock().unwrap(), expected);
    let counted: Vec<_> = chain.entries().iter().map(|e| (e.calls(), e.faults())).collect();
    assert_eq!(counted, [(3, 1), (2, 1)]);
}

#[tokio::test]
async fn one_policy_is_asked_one_thing_and_says_what_it_cost() {
    let engine = engine();
    let entry = load(&engine, "namespace", lockgate_policy::shipped::NAMESPACE);
    let s = session(&["a", "b"]);
    let head = |name: &str| Head { backend: "a".into(), name: name.into(), title: None, shared: false };
    let list = Question::NamespaceExpose { kind: Kind::Tool, items: vec![head("x"), head("not legal")] };
    let asked = ask(&engine, &entry, &s, &list).await;
    let answer = serde_json::to_value(asked.answer.as_ref().unwrap()).unwrap();
    assert_eq!(answer[0], json!({"rename": "a__x"}));
    assert!(asked.instance_fresh && asked.memory_bytes > 64 << 10 && asked.memory_bytes < 16 << 20, "{asked:?}");
    assert!(asked.time > Duration::ZERO);

    let question: Question = serde_json::from_value(json!({"hook": "namespace.resolve", "kind": "tool", "public": "b__y"})).unwrap();
    let (first, second) = (ask(&engine, &entry, &s, &question).await, ask(&engine, &entry, &s, &question).await);
    assert_eq!(first.answer, Ok(Answer::Target(Some(Target { backend: "b".into(), name: "y".into() }))));
    assert_eq!(first.answer, second.answer);
    assert!(first.instance_fresh && !second.instance_fresh, "names go to the session's own instance");
    assert_eq!(serde_json::to_value(second.answer.unwrap()).unwrap(), json!({"backend": "b", "name": "y"}));

    let misspelt = serde_json::from_value::<Question>(json!({"hook": "namespace.resolve", "kind": "tool", "pubic": "x"}));
    assert!(misspelt.is_err());
    let wrong = ask(&engine, &entry, &s, &Question::AliasPublish { kind: Kind::Tool }).await;
    assert!(matches!(wrong.answer, Err(PolicyErrorKind::Internal(_))), "{wrong:?}");
}

#[tokio::test]
async fn what_a_chain_would_refuse_is_an_error_of_the_one_that_is_asked_too() {
    let engine = engine();
    let greedy = load(&engine, "greedy", &router_guest("", "(drop (memory.grow (i32.const 30))) unreachable", ""));
    let route = Question::RouterResolve { kind: Kind::Tool, public: "x".into(), target: Target { backend: "a".into(), name: "x".into() } };
    let asked = ask(&engine, &greedy, &session(&["a"]), &route).await;
    assert!(matches!(asked.answer, Err(PolicyErrorKind::Trap(_))), "{asked:?}");
    assert_eq!(asked.memory_bytes, 32 << 16, "also of one that failed");
    let one = namespace_guest("(i32.store (i32.const 1028) (i32.const 512)) (i32.store (i32.const 1032) (i32.const 1))", "");
    let head = Head { backend: "a".into(), name: "x".into(), title: None, shared: false };
    let two = Question::NamespaceExpose { kind: Kind::Tool, items: vec![head.clone(), head] };
    let asked = ask(&engine, &load(&engine, "one", &one), &session(&["a"]), &two).await;
    assert_eq!(asked.answer, Err(PolicyErrorKind::BadAnswer("1 verdicts for 2 items".into())));
}

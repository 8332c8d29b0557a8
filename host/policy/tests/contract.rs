//! The hooks beyond names: routers, the life of a session, claims; and the terms on which a policy runs: manifest, grants, failures.

mod common;

use std::sync::Arc;

use common::*;
use lockgate_policy::{
    Capabilities, Chain, End, Entry, Failing, Kind, LoadError, OnFailure, Policy, PolicyErrorKind, Route, Routers, SessionView, Target,
    Terms,
};

/// Writes `route({backend: <one byte at `backend`>, name: <one byte at `name`>})` where answers go.
fn route_to(backend: u32, name: u32) -> String {
    format!(
        "(i32.store8 (i32.const 1028) (i32.const 1))
        (i32.store (i32.const 1032) (i32.const {backend})) (i32.store (i32.const 1036) (i32.const 1))
        (i32.store (i32.const 1040) (i32.const {name})) (i32.store (i32.const 1044) (i32.const 1))"
    )
}

fn target(backend: &str, name: &str) -> Target {
    Target { backend: backend.into(), name: name.into() }
}

fn granted(change: impl FnOnce(&mut Capabilities)) -> Terms {
    let mut terms = Terms::default();
    change(&mut terms.grants);
    terms
}

fn chain(components: &[Vec<u8>]) -> Chain {
    let engine = engine();
    let load = |(i, c): (usize, &Vec<u8>)| entry(Policy::load(&engine, &format!("p{i}"), c, &Terms::default()).unwrap(), "null");
    Chain::new(engine.clone(), "default".into(), components.iter().enumerate().map(load).collect())
}

async fn route(chain: &Chain, s: &SessionView) -> Route {
    chain.route(s, Kind::Tool, "public", target("a", "x")).await.unwrap()
}

#[tokio::test]
async fn routers_are_asked_in_order_about_what_the_one_before_decided_and_a_refusal_ends_it() {
    let pass = router_guest("", "", "");
    let to_b = router_guest("", &route_to(0, 1), r#"(data (i32.const 0) "by")"#);
    // Refuses what is routed to `b`.
    let not_b = router_guest(
        "",
        &format!("(if (i32.eq (i32.load8_u (local.get 4)) (i32.const 98)) (then {}))", refusal(2, 8)),
        r#"(data (i32.const 0) "no\nmore\07")"#,
    );
    let s = session(&["a", "b"]);
    assert_eq!(route(&chain(&[]), &s).await, Route::To(target("a", "x")));
    assert_eq!(route(&chain(&[pass.clone(), not_b.clone()]), &s).await, Route::To(target("a", "x")));
    assert_eq!(route(&chain(&[pass.clone(), to_b.clone(), pass.clone()]), &s).await, Route::To(target("b", "y")));
    let Route::Refused(refused) = route(&chain(&[to_b, not_b, pass]), &s).await else { panic!("served") };
    assert_eq!((&*refused.policy, &*refused.reason), ("p1", r"no\nmore\u{7}"), "one line, whatever the guest writes");
}

#[tokio::test]
async fn a_router_that_names_a_foreign_backend_is_wrong_and_says_so() {
    let chain = chain(&[router_guest("", &route_to(0, 1), r#"(data (i32.const 0) "zy")"#)]);
    let error = chain.route(&session(&["a"]), Kind::Tool, "public", target("a", "x")).await.unwrap_err();
    assert!(matches!(&error.kind, PolicyErrorKind::BadAnswer(why) if why.contains("no such backend")), "{error}");
    assert!(chain.try_out(&session(&["a"])).await.is_err(), "found on trial, before a client does");
}

#[tokio::test]
async fn a_session_opens_when_every_lifecycle_policy_accepts_it() {
    let fine = lifecycle_guest("", "", "", "");
    let no = lifecycle_guest("", &refusal(1, 10), "", r#"(data (i32.const 0) "closed now")"#);
    let s = session(&["a"]);
    assert_eq!(chain(&[fine.clone(), fine.clone()]).opened(&s).await.unwrap(), None);
    let refused = chain(&[fine.clone(), no, fine]).opened(&s).await.unwrap().expect("it is refused");
    assert_eq!((&*refused.policy, &*refused.reason), ("p1", "closed now"));
    let traps = chain(&[lifecycle_guest("", "unreachable", "unreachable", "")]);
    assert!(matches!(traps.opened(&s).await.unwrap_err().kind, PolicyErrorKind::Trap(_)));
    // It cannot be refused: nothing to see but the log.
    traps.closing(&s).await;
}

const CLAIM: &str = r#"(import "lockgate:policy/host@0.1.1" "[method]session.claim" (func $claim (param i32 i32 i32 i32)))
    (import "lockgate:policy/host@0.1.1" "[method]session.claims" (func $claims (param i32 i32)))"#;

/// Refuses, with the claim `team` as the reason, whoever has it; and traps where it sees two claims.
fn by_team() -> Vec<u8> {
    let resolve = "(call $claims (local.get 0) (i32.const 600))
        (if (i32.gt_u (i32.load (i32.const 604)) (i32.const 1)) (then unreachable))
        (call $claim (local.get 0) (i32.const 0) (i32.const 4) (i32.const 512))
        (if (i32.load8_u (i32.const 512)) (then
            (i32.store8 (i32.const 1028) (i32.const 2))
            (i32.store (i32.const 1032) (i32.load (i32.const 516)))
            (i32.store (i32.const 1036) (i32.load (i32.const 520)))))";
    router_guest(CLAIM, resolve, r#"(data (i32.const 0) "team")"#)
}

#[tokio::test]
async fn a_policy_sees_the_claims_that_it_asks_for_and_is_granted_and_no_other() {
    let engine = engine();
    let mut s = session(&["a"]);
    s.claims = Arc::new([("salary", "100"), ("team", r#""red""#)].map(|(n, v)| (n.into(), v.into())).into());
    let wants = with_manifest(by_team(), r#"{"capabilities":{"claims":["team"]}}"#);
    let policy = Policy::load(&engine, "p", &wants, &granted(|g| g.claims = ["team".into(), "salary".into()].into())).unwrap();
    let chain = Chain::new(engine.clone(), "default".into(), vec![entry(policy, "null")]);
    let Route::Refused(refused) = route(&chain, &s).await else { panic!("it has the claim") };
    assert_eq!(refused.reason, r#""red""#);
    let without = Policy::load(&engine, "p", &by_team(), &granted(|g| g.claims = ["team".into()].into())).unwrap();
    let chain = Chain::new(engine.clone(), "default".into(), vec![entry(without, "null")]);
    assert_eq!(route(&chain, &s).await, Route::To(target("a", "x")), "it did not ask for it");
    let refusal = Policy::load(&engine, "p", &wants, &Terms::default()).unwrap_err().to_string();
    assert!(refusal.contains("the claims team of the principal") && refusal.contains("add `grants: { claims: [team] }`"), "{refusal}");
}

#[test]
fn what_a_manifest_says_has_to_be_true_and_granted() {
    let engine = engine();
    let load = |component: Vec<u8>, manifest: &str, terms: &Terms| Policy::load(&engine, "p", &with_manifest(component, manifest), terms);
    let refused = |component: Vec<u8>, manifest: &str, expected: &str| {
        let refusal = load(component, manifest, &Terms::default()).unwrap_err().to_string();
        assert!(refusal.contains(expected), "{refusal}");
    };
    let router = || router_guest("", "", "");
    refused(router(), r#"{"hooks":["router","alias"]}"#, "says that it exports [alias, router], but it exports [router]");
    refused(router(), r#"{"capabilities":{"every-call":true}}"#, "add `grants: { every_call: true }`");
    refused(router(), r#"{"capabilities":{"clock":true}}"#, "add `grants: { clock: true }`");
    refused(router(), r#"{"capabilities":{"random":true}}"#, "add `grants: { random: true }`");
    refused(router(), r#"{"network":true}"#, "unknown field `network`");
    refused(router(), r#"{"config-schema":{"type":"nothing"}}"#, "is no JSON Schema");
    refused(router(), r#"{"config-schema":{"$ref":"https://example.com/schema"}}"#, "is no JSON Schema");
    let every = granted(|g| g.every_call = true);
    let alias = load(alias_guest("", ""), r#"{"capabilities":{"every-call":true}}"#, &every).unwrap_err();
    assert!(alias.to_string().contains("exports no router"), "{alias}");
    let policy =
        load(router(), r#"{"name":"mine","version":"2.0","hooks":["router"],"capabilities":{"every-call":true}}"#, &every).unwrap();
    assert_eq!((policy.name(), policy.version(), policy.manifest().name.as_deref()), ("p", "2.0", Some("mine")));
    let chain = |policy| Chain::new(engine.clone(), "default".into(), vec![entry(policy, "null")]);
    assert_eq!(chain(policy).routers(), Routers::EveryCall);
    assert_eq!(chain(Policy::load(&engine, "p", &router(), &Terms::default()).unwrap()).routers(), Routers::OncePerName);
    assert_eq!(chain(Policy::load(&engine, "p", &alias_guest("", ""), &Terms::default()).unwrap()).routers(), Routers::None);
}

#[test]
fn another_component_than_the_one_that_was_pinned_is_refused() {
    let (engine, component) = (engine(), router_guest("", "", ""));
    let digest = Policy::load(&engine, "p", &component, &Terms::default()).unwrap().digest().to_owned();
    let pinned = |sha256: &str| Terms { sha256: Some(sha256.into()), ..Terms::default() };
    assert!(Policy::load(&engine, "p", &component, &pinned(&digest)).is_ok());
    let refusal = Policy::load(&engine, "p", &alias_guest("", ""), &pinned(&digest)).unwrap_err();
    assert!(matches!(&refusal, LoadError::Digest { pinned, .. } if *pinned == digest), "{refusal}");
}

#[test]
fn configuration_is_held_against_the_schema_and_its_values_are_not_repeated() {
    let schema = r#"{"config-schema":{"type":"object","properties":{"rules":{"type":"array","items":{"type":"integer"}}},"additionalProperties":false}}"#;
    let policy = Policy::load(&engine(), "p", &with_manifest(router_guest("", "", ""), schema), &Terms::default()).unwrap();
    let new = |setting: &str| Entry::new(policy.clone(), setting, Failing::default());
    assert!(new(r#"{"rules":[1,2]}"#).is_ok());
    let refusal = new(r#"{"rules":[1,"s3cret"]}"#).unwrap_err().to_string();
    assert!(refusal.starts_with("policy p: its `config` does not fit: /rules/1: ") && !refusal.contains("s3cret"), "{refusal}");
    assert!(new(r#"{"rule":[]}"#).unwrap_err().to_string().contains("rule"));
    assert!(new("null").is_err());
    assert!(new("{").is_err());
}

#[tokio::test]
async fn a_policy_that_may_fail_is_passed_over_and_one_that_may_not_refuses() {
    let engine = engine();
    let load = |name: &str, component: Vec<u8>| Policy::load(&engine, name, &component, &Terms::default()).unwrap();
    let s = session(&["a", "b"]);
    let namespace = entry(load_shipped(&engine, "namespace"), "null");
    let broken = [
        ("alias", alias_guest("unreachable", "")),
        ("router", router_guest("", "unreachable", "")),
        ("namespace", namespace_guest("unreachable", "")),
        ("lifecycle", lifecycle_guest("", "unreachable", "", "")),
    ];
    for (name, component) in broken {
        let policy = load(name, component);
        let chain = |on: OnFailure| {
            let broken = Entry::new(policy.clone(), "null", Failing::all(on)).unwrap();
            Chain::new(engine.clone(), "default".into(), vec![broken, namespace.clone()])
        };
        let (open, closed) = (chain(OnFailure::Open), chain(OnFailure::Closed));
        let outcomes = async |c: &Chain| {
            let heads = heads(&[("a", "x")]);
            [
                c.resolve(&s, Kind::Tool, "a__x").await.is_ok_and(|t| t == Some(target("a", "x"))),
                c.publish(&s, Kind::Tool, &heads).await.is_ok_and(|names| names == [Some("a__x".to_owned())]),
                c.route(&s, Kind::Tool, "a__x", target("a", "x")).await.is_ok(),
                c.opened(&s).await.is_ok(),
            ]
        };
        assert_eq!(outcomes(&open).await, [true; 4], "{name}");
        let expected = match name {
            "alias" => [false, true, true, true],
            "router" => [true, true, false, true],
            "namespace" => [false, false, true, true],
            _ => [true, true, true, false],
        };
        assert_eq!(outcomes(&closed).await, expected, "{name}");
    }
}

#[tokio::test]
async fn an_explanation_says_which_policy_said_what_and_what_came_of_it() {
    let engine = engine();
    let load = |name: &str, component: Vec<u8>| entry(Policy::load(&engine, name, &component, &Terms::default()).unwrap(), "null");
    let alias = entry(load_shipped(&engine, "alias"), r#"{"aliases":[{"public":"now","kind":"tool","backend":"a","name":"x"}]}"#);
    let namespace = entry(load_shipped(&engine, "namespace"), "null");
    let no = load("guard", router_guest("", &refusal(2, 4), r#"(data (i32.const 0) "nope")"#));
    let s = session(&["a", "b"]);
    let of = |entries: &[&Entry]| Chain::new(engine.clone(), "default".into(), entries.iter().copied().cloned().collect());

    let told = of(&[&alias, &namespace]).explain(&s, Kind::Tool, "now", None).await;
    let steps: Vec<_> = told.steps.iter().map(|s| (s.policy.as_deref().unwrap_or("-"), s.hook.unwrap_or("-"), &*s.outcome)).collect();
    assert_eq!(
        steps,
        [("alias", "alias.resolve", r#"an alias of "x" of "a""#), ("namespace", "namespace.expose", r#"publishes "x" of a as "a__x""#),]
    );
    assert_eq!(told.end, End::Served { backend: "a".into(), name: "x".into() });

    let told = of(&[&alias, &namespace, &no]).explain(&s, Kind::Tool, "b__y", None).await;
    assert_eq!(told.end, End::Refused { policy: "guard".into(), reason: "nope".into() });
    assert_eq!(told.steps.last().map(|s| &*s.outcome), Some("refused: nope"));
    assert_eq!(of(&[&namespace]).explain(&s, Kind::Tool, "nothing", None).await.end, End::Unknown);
    let listed = of(&[&namespace, &no]).explain(&s, Kind::Tool, "odd", Some(&target("b", "o d d"))).await;
    assert!(listed.steps[0].policy.is_none() && listed.steps[0].outcome.contains("o d d"), "{listed:?}");
    let broken = load("broken", router_guest("", "unreachable", ""));
    assert!(matches!(of(&[&namespace, &broken]).explain(&s, Kind::Tool, "a__x", None).await.end, End::Failed { .. }));
}

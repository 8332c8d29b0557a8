//! The shipped policies in the real engine, through the chain as the gateway asks it.

mod common;

use std::collections::HashSet;
use std::sync::Arc;

use common::*;
use lockgate_policy::{
    Capabilities, Chain, Claims, Entry, Failing, Kind, Policy, PolicyErrorKind, Refused, Route, SessionView, Target, Terms, shipped,
};

const NO_ALIASES: &str = "null";

fn target(backend: &str, name: &str) -> Option<Target> {
    Some(Target { backend: backend.into(), name: name.into() })
}

#[test]
fn the_shipped_components_say_who_they_are() {
    let engine = engine();
    for name in lockgate_policy::shipped::names() {
        let policy = load_shipped(&engine, name);
        assert_eq!(policy.name(), name);
        assert_eq!(policy.version(), env!("CARGO_PKG_VERSION"));
        assert_eq!(policy.contract(), "0.1.1");
        assert_eq!(policy.digest().len(), 64);
        let hooks: &[&str] = match name {
            "filter" => &["router", "namespace"],
            "route" => &["router"],
            other => &[other],
        };
        assert_eq!(policy.hooks().names(), hooks);
        assert!(policy.manifest().config_schema.is_some() && policy.manifest().hooks.is_some(), "{name}");
    }
}

#[tokio::test]
async fn with_one_backend_every_name_stays_as_it_is_however_odd() {
    let chain = shipped_chain(NO_ALIASES);
    let s = session(&["only"]);
    let long = "x".repeat(200);
    let names = ["get_time", "weird name/1.0", &long, "a__b"];
    let items: Vec<_> = names.iter().map(|n| ("only", *n)).collect();
    for kind in [Kind::Tool, Kind::Prompt, Kind::Resource, Kind::ResourceTemplate] {
        let published = chain.publish(&s, kind, &heads(&items)).await.unwrap();
        assert_eq!(published, names.map(|n| Some(n.to_owned())));
        for name in names {
            assert_eq!(chain.resolve(&s, kind, name).await.unwrap(), target("only", name));
        }
    }
}

#[tokio::test]
async fn with_several_backends_names_carry_their_backend_and_come_back() {
    let chain = shipped_chain(NO_ALIASES);
    let s = session(&["time", "text"]);
    let items = [("time", "get_time"), ("text", "get_time"), ("text", "upper")];
    let published = chain.publish(&s, Kind::Tool, &heads(&items)).await.unwrap();
    let expected = ["time__get_time", "text__get_time", "text__upper"];
    assert_eq!(published, expected.map(|n| Some(n.to_owned())));
    for ((backend, name), public) in items.iter().zip(expected) {
        assert_eq!(chain.resolve(&s, Kind::Tool, public).await.unwrap(), target(backend, name));
    }
    for unknown in ["get_time", "other__get_time", "", "__", "time__"] {
        assert_eq!(chain.resolve(&s, Kind::Tool, unknown).await.unwrap(), None, "{unknown}");
    }
}

#[tokio::test]
async fn backends_and_tools_full_of_underscores_stay_apart() {
    let chain = shipped_chain(NO_ALIASES);
    let s = session(&["a", "a__b", "a_"]);
    let items = [("a", "b__c"), ("a", "b_c"), ("a__b", "c"), ("a__b", "_c"), ("a_", "c")];
    let published = chain.publish(&s, Kind::Tool, &heads(&items)).await.unwrap();
    let distinct: HashSet<_> = published.iter().flatten().collect();
    assert_eq!(distinct.len(), items.len(), "{published:?}");
    for ((backend, name), public) in items.iter().zip(published.iter().flatten()) {
        let found = chain.resolve(&s, Kind::Tool, public).await.unwrap();
        assert_eq!(found, target(backend, name), "{public}");
    }
}

#[tokio::test]
async fn names_of_128_characters_and_names_outside_the_alphabet_are_published_legally() {
    let chain = shipped_chain(NO_ALIASES);
    let s = session(&["a-backend-that-has-a-name-of-sixty-four-characters-and-not-fewer", "b"]);
    let long: Vec<String> = (0..50).map(|i| format!("{}{i:03}", "x".repeat(125))).collect();
    let mut items = Vec::new();
    for backend in s.backends.iter() {
        items.extend(long.iter().map(|n| (&*backend.name, n.as_str())));
        items.extend(["a.b", "a/b", "天気", " ", "a b"].map(|n| (&*backend.name, n)));
    }
    let published = chain.publish(&s, Kind::Tool, &heads(&items)).await.unwrap();
    let again = chain.publish(&s, Kind::Tool, &heads(&items)).await.unwrap();
    assert_eq!(published, again, "the same at every start");
    let distinct: HashSet<&String> = published.iter().flatten().collect();
    assert_eq!(distinct.len(), items.len());
    for name in distinct {
        let legal = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
        assert!(name.len() <= 64 && name.bytes().all(legal), "{name}");
        assert_eq!(chain.resolve(&s, Kind::Tool, name).await.unwrap(), None, "a hash is not read backwards");
    }
}

#[tokio::test]
async fn shared_uris_say_whose_they_are_and_others_stay() {
    let chain = shipped_chain(NO_ALIASES);
    let s = session(&["files", "docs"]);
    for kind in [Kind::Resource, Kind::ResourceTemplate] {
        let items = [("files", "file:///readme"), ("docs", "file:///readme"), ("docs", "doc:///{x}"), ("docs", "lockgate://files/x")];
        let published = chain.publish(&s, kind, &heads(&items)).await.unwrap();
        let expected =
            ["lockgate://files/file:///readme", "lockgate://docs/file:///readme", "doc:///{x}", "lockgate://docs/lockgate://files/x"];
        assert_eq!(published, expected.map(|n| Some(n.to_owned())));
        for i in [0, 1, 3] {
            let found = chain.resolve(&s, kind, expected[i]).await.unwrap();
            assert_eq!(found, target(items[i].0, items[i].1));
        }
        assert_eq!(chain.resolve(&s, kind, "doc:///{x}").await.unwrap(), None, "who listed it, the host knows");
    }
}

#[tokio::test]
async fn an_alias_replaces_the_name_in_lists_and_both_can_be_called() {
    let aliases = r#"{"aliases":[
        {"public":"now","kind":"tool","backend":"time","name":"get_time"},
        {"public":"jetzt","kind":"tool","backend":"time","name":"get_time"},
        {"public":"gone","kind":"tool","backend":"elsewhere","name":"x"},
        {"public":"readme","kind":"resource","backend":"text","name":"file:///readme"}]}"#;
    let chain = shipped_chain(aliases);
    let s = session(&["time", "text"]);
    let items = [("time", "get_time"), ("text", "get_time")];
    let published = chain.publish(&s, Kind::Tool, &heads(&items)).await.unwrap();
    assert_eq!(published, [Some("now".to_owned()), Some("text__get_time".to_owned())]);
    for public in ["now", "jetzt", "time__get_time"] {
        assert_eq!(chain.resolve(&s, Kind::Tool, public).await.unwrap(), target("time", "get_time"), "{public}");
    }
    assert_eq!(chain.alias(&s, Kind::Tool, "time__get_time").await.unwrap(), None);
    assert_eq!(chain.resolve(&s, Kind::Tool, "gone").await.unwrap(), None, "its backend is not in this session");
    assert_eq!(chain.resolve(&s, Kind::Prompt, "now").await.unwrap(), None, "an alias is of one kind");
    assert_eq!(chain.resolve(&s, Kind::Resource, "readme").await.unwrap(), target("text", "file:///readme"));
}

#[tokio::test]
async fn an_item_whose_name_an_alias_took_is_not_listed() {
    let aliases = r#"{"aliases":[{"public":"now","kind":"tool","backend":"time","name":"get_time"}]}"#;
    let chain = shipped_chain(aliases);
    let s = session(&["time"]);
    let items = [("time", "now"), ("time", "get_time")];
    let published = chain.publish(&s, Kind::Tool, &heads(&items)).await.unwrap();
    assert_eq!(published, [None, Some("now".to_owned())]);
    assert_eq!(chain.resolve(&s, Kind::Tool, "now").await.unwrap(), target("time", "get_time"));
}

#[tokio::test]
async fn what_a_backend_lists_twice_is_published_once() {
    let chain = shipped_chain(NO_ALIASES);
    for backends in [&["a"][..], &["a", "b"]] {
        let published = chain.publish(&session(backends), Kind::Tool, &heads(&[("a", "x"), ("a", "x")])).await.unwrap();
        assert!(published[0].is_some() && published[1].is_none(), "{published:?}");
    }
}

#[tokio::test]
async fn configuration_that_does_not_fit_is_named_before_a_client_comes() {
    let engine = engine();
    for (name, setting, says) in [
        ("alias", r#"{"aliases":[{"public":"now","kind":"tol","backend":"time","name":"x"}]}"#, "/aliases/0/kind"),
        ("namespace", r#"{"prefix":"x"}"#, "policy namespace"),
        ("filter", r#"{"rules":[{"things":"delete_*","do":"deny"}]}"#, "/rules/0/things"),
        ("route", r#"{"rules":[{"things":"a/*","too":"b"}]}"#, "/rules/0"),
    ] {
        let error = Entry::new(load_shipped(&engine, name), setting, Failing::default()).unwrap_err().to_string();
        assert!(error.contains(says) && error.contains(name), "{error}");
    }
    let twice = r#"{"public":"now","kind":"tool","backend":"a","name":"x"}"#;
    let chain = shipped_chain(&format!(r#"{{"aliases":[{twice},{twice}]}}"#));
    let error = chain.try_out(&session(&["a"])).await.unwrap_err();
    assert!(matches!(error.kind, PolicyErrorKind::BadSetting(_)), "{error}");
    for part in ["policy alias (", "hook alias.publish", "configuration", "\"now\" is there twice"] {
        assert!(error.to_string().contains(part), "{part}: {error}");
    }
    assert!(shipped_chain(NO_ALIASES).try_out(&session(&["a"])).await.is_ok());
}

/// A chain of one shipped policy that is granted the claim `team` and random numbers, then namespaces.
fn chain_with(name: &str, setting: &str) -> Chain {
    let engine = engine();
    let grants = Capabilities { claims: ["team".to_owned()].into(), random: true, ..Capabilities::default() };
    let terms = Terms { grants, ..Terms::default() };
    let policy = Policy::load(&engine, name, shipped::by_name(name).unwrap(), &terms).expect("it loads");
    let entries = vec![entry(policy, setting), entry(load_shipped(&engine, "namespace"), "null")];
    Chain::new(engine, "default".into(), entries)
}

fn of_team(mut s: SessionView, team: &str) -> SessionView {
    s.claims = Arc::new(Claims::from([("team".into(), format!("{team:?}").into())]));
    s
}

#[tokio::test]
async fn what_the_filter_denies_is_neither_listed_nor_called_unless_the_caller_may() {
    let setting = r#"{"rules":[
        {"things":"notes/delete_*","who":{"claims":{"team":["ops"]}},"do":"allow"},
        {"things":"notes/delete_*","do":"deny"},
        {"things":"*/stop","do":"deny","reason":"ask ops","listed":true}]}"#;
    let chain = chain_with("filter", setting);
    let (guest, ops) = (session(&["notes", "time"]), of_team(session(&["notes", "time"]), "ops"));
    let items = [("notes", "delete_all"), ("notes", "list"), ("time", "stop")];
    let listed = async |s: &SessionView| chain.publish(s, Kind::Tool, &heads(&items)).await.unwrap();
    let some = |name: &str| Some(name.to_owned());
    assert_eq!(listed(&guest).await, [None, some("notes__list"), some("time__stop")]);
    assert_eq!(listed(&ops).await, [some("notes__delete_all"), some("notes__list"), some("time__stop")]);
    assert_eq!(chain.resolve(&guest, Kind::Tool, "notes__delete_all").await.unwrap(), None);
    assert_eq!(chain.resolve(&ops, Kind::Tool, "notes__delete_all").await.unwrap(), target("notes", "delete_all"));
    let routed =
        async |s: &SessionView, backend: &str, name: &str| chain.route(s, Kind::Tool, "any", target(backend, name).unwrap()).await.unwrap();
    let refused = |route| matches!(route, Route::Refused(Refused { policy, reason }) if &*policy == "filter" && reason == "ask ops");
    assert!(refused(routed(&ops, "time", "stop").await));
    assert!(matches!(routed(&guest, "notes", "delete_all").await, Route::Refused(_)), "however it was found");
    assert_eq!(routed(&guest, "notes", "list").await, Route::To(target("notes", "list").unwrap()));
}

#[tokio::test]
async fn routes_go_by_caller_then_by_weight_and_a_session_stays_where_it_is() {
    let setting = r#"{"rules":[
        {"things":"search/*","who":{"claims":{"team":["red"]}},"to":"red","rename":"{name}_v2"},
        {"things":"search/*","by":"session","to":[{"backend":"search"},{"backend":"red"}]}]}"#;
    let chain = chain_with("route", setting);
    let backends = ["search", "red", "other"];
    let routed =
        async |s: &SessionView, backend: &str| match chain.route(s, Kind::Tool, "any", target(backend, "query").unwrap()).await.unwrap() {
            Route::To(target) => (target.backend, target.name),
            Route::Refused(refused) => panic!("{refused:?}"),
        };
    let red = of_team(session(&backends), "red");
    assert_eq!(routed(&red, "search").await, ("red".to_owned(), "query_v2".to_owned()));
    assert_eq!(routed(&red, "other").await, ("other".to_owned(), "query".to_owned()));
    let mut seen = HashSet::new();
    for _ in 0..40 {
        let s = session(&backends);
        let (first, name) = routed(&s, "search").await;
        assert_eq!(name, "query");
        for _ in 0..3 {
            assert_eq!(routed(&s, "search").await.0, first, "it stays");
        }
        seen.insert(first);
    }
    assert_eq!(seen.len(), 2, "forty sessions draw one lot each: with one backend only in one of 2^39 runs");
    let error = chain_with("route", r#"{"rules":[{"things":"a/*","to":"gone"}]}"#).try_out(&session(&backends)).await.unwrap_err();
    assert!(error.to_string().contains("rules[0] leads to \"gone\""), "{error}");
}

#[tokio::test]
async fn a_long_list_goes_in_pieces_and_comes_back_in_order() {
    let chain = shipped_chain(NO_ALIASES);
    let s = session(&["a", "b"]);
    let names: Vec<String> = (0..10_000).map(|i| format!("tool-{i}-{}", "n".repeat(i % 90))).collect();
    let items: Vec<_> = names.iter().map(|n| ("a", n.as_str())).collect();
    // `heads` compares every pair.
    let heads: Vec<_> =
        items.iter().map(|&(backend, name)| lockgate_policy::ItemHead { backend, name, title: Some(name), shared: false }).collect();
    let published = chain.publish(&s, Kind::Tool, &heads).await.unwrap();
    assert_eq!(published.len(), names.len());
    for (name, public) in names.iter().zip(&published) {
        let public = public.as_ref().unwrap();
        let start: String = name.chars().take(20).collect();
        assert!(public.starts_with(&format!("a__{start}")), "{name}: {public}");
    }
}

#[tokio::test]
async fn a_chain_without_policies_leaves_names_alone() {
    let engine = engine();
    let (first, second) = (Chain::new(engine.clone(), "default".into(), vec![]), Chain::new(engine, "default".into(), vec![]));
    assert!(second.generation() > first.generation());
    let published = first.publish(&session(&["a", "b"]), Kind::Tool, &heads(&[("a", "x"), ("b", "x"), ("b", "y")])).await.unwrap();
    assert_eq!(published, [Some("x".to_owned()), None, Some("y".to_owned())]);
    assert_eq!(first.resolve(&session(&["a", "b"]), Kind::Tool, "x").await.unwrap(), None);
    assert_eq!(first.resolve(&session(&["a"]), Kind::Tool, "x").await.unwrap(), target("a", "x"));
}

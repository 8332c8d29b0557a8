//! Several backends as one: names and their inverse, URIs that collide, pages across backends, aliases and virtual hosts.

use lockgate_tests::{
    backend::{Backend, Call},
    client::Session,
    gateway::{Gateway, http_backends},
    raw::{self, first_text},
};
use serde_json::json;

async fn two(one: &Backend, two: &Backend, more: &str) -> (Gateway, Session) {
    let yaml = format!("{}{more}", http_backends(&[("one", &one.url()), ("two", &two.url())]));
    let gateway = Gateway::start(&yaml).await;
    let session = gateway.initialize().await;
    (gateway, session)
}

#[tokio::test]
async fn equal_names_of_two_backends_are_told_apart_and_routed_back() {
    let a = Backend::builder("a").tool("same").prompt("ask").start().await;
    let b = Backend::builder("b").tool("same").tool("other__name").prompt("ask").start().await;
    let (gateway, session) = two(&a, &b, "").await;
    assert_eq!(session.names("tools/list", "tools").await, ["one__same", "two__other__name", "two__same"]);
    assert_eq!(session.names("prompts/list", "prompts").await, ["one__ask", "two__ask"]);
    for (public, backend, own) in [("one__same", "a", "same"), ("two__same", "b", "same"), ("two__other__name", "b", "other__name")] {
        let result = session.call(public, json!({})).await;
        assert_eq!((&result["structuredContent"]["backend"], first_text(&result)), (&json!(backend), own));
    }
    let prompt = session.result("prompts/get", json!({ "name": "two__ask" })).await;
    assert_eq!(prompt["messages"][0]["content"]["text"], "ask of b");
    for unknown in ["same", "three__same", "one__", "__same", "one_same", "one__other__name", ""] {
        let error = session.error("tools/call", json!({ "name": unknown, "arguments": {} })).await;
        assert!(error["code"].is_i64(), "{unknown}");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_single_backend_is_unchanged_and_has_no_second_name() {
    let backend = Backend::builder("b").tool("same").tool("with.dot-and_underscore").start().await;
    let gateway = Gateway::start(&http_backends(&[("one", &backend.url())])).await;
    let session = gateway.initialize().await;
    assert_eq!(session.names("tools/list", "tools").await, ["same", "with.dot-and_underscore"]);
    session.error("tools/call", json!({ "name": "one__same", "arguments": {} })).await;
    gateway.stop().await;
}

#[tokio::test]
async fn long_names_are_shortened_stably_and_resolved_back() {
    let (long, twin) = ("n".repeat(100), format!("{}m", "n".repeat(99)));
    let a = Backend::builder("a").tool(&long).tool(&twin).start().await;
    let b = Backend::with_tools("b", &["t"]).await;
    let (gateway, session) = two(&a, &b, "").await;
    let names = session.names("tools/list", "tools").await;
    let short: Vec<_> = names.iter().filter(|name| name.starts_with("one__")).collect();
    assert_eq!(short.len(), 2, "{names:?}");
    assert_ne!(short[0], short[1]);
    let mut called = Vec::new();
    for name in &short {
        assert!(name.len() <= 64 && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte)), "{name}");
        called.push(first_text(&session.call(name, json!({})).await).to_owned());
    }
    called.sort();
    assert_eq!(called, [twin, long]);
    let again = gateway.initialize().await;
    // Without a list before it: the name alone must be enough.
    again.call(short[0], json!({})).await;
    assert_eq!(again.names("tools/list", "tools").await, names);
    gateway.stop().await;
}

#[tokio::test]
async fn a_list_has_a_stable_order_and_pages_across_backends() {
    let many = |name: &str| (0..7).fold(Backend::builder(name).page(3), |builder, at| builder.tool(&format!("t{at}")));
    let (a, b) = (many("a").start().await, many("b").start().await);
    let (gateway, session) = two(&a, &b, "").await;
    let first = session.list("tools/list", "tools").await;
    assert_eq!(first.len(), 14);
    assert_eq!(session.list("tools/list", "tools").await, first);
    let names: std::collections::BTreeSet<_> = first.iter().map(|tool| tool["name"].to_string()).collect();
    assert_eq!(names.len(), 14, "no item twice");
    gateway.stop().await;
}

#[tokio::test]
async fn unique_uris_are_kept_and_routed_to_who_has_them() {
    let a = Backend::builder("a").resource("x://only-a").template("a://{id}").start().await;
    let b = Backend::builder("b").resource("x://only-b").template("b://{id}").start().await;
    let (gateway, session) = two(&a, &b, "").await;
    assert_eq!(session.names("resources/list", "resources").await, ["x://only-a", "x://only-b"]);
    for (uri, backend) in [("x://only-a", "a"), ("x://only-b", "b"), ("a://7", "a"), ("b://7", "b")] {
        let read = session.result("resources/read", json!({ "uri": uri })).await;
        assert_eq!(read["contents"][0]["text"], format!("{uri} of {backend}"));
        assert_eq!(read["contents"][0]["uri"], uri);
    }
    session.error("resources/read", json!({ "uri": "nobody://has" })).await;
    gateway.stop().await;
}

#[tokio::test]
async fn colliding_uris_are_told_apart_wherever_they_appear() {
    let links = |call: Call| async move {
        call.result(
            r#"{"content":[{"type":"resource_link","uri":"x://same","name":"n"},{"type":"resource","resource":{"uri":"x://same","text":"t"}},{"type":"text","text":"x://same"}]}"#,
        );
    };
    let a = Backend::builder("a").tool("links").resource("x://same").on("tools/call", links).start().await;
    let b = Backend::builder("b").tool("links").resource("x://same").on("tools/call", links).start().await;
    let (gateway, session) = two(&a, &b, "").await;
    let (of_one, of_two) = ("lockgate://one/x://same", "lockgate://two/x://same");
    assert_eq!(session.names("resources/list", "resources").await, [of_one, of_two]);
    for (uri, backend) in [(of_one, "a"), (of_two, "b")] {
        let read = session.result("resources/read", json!({ "uri": uri })).await;
        assert_eq!(read["contents"][0]["text"], format!("x://same of {backend}"));
        assert_eq!(read["contents"][0]["uri"], uri);
    }
    let result = session.call("two__links", json!({})).await;
    assert_eq!(result["content"][0]["uri"], of_two, "a resource_link");
    assert_eq!(result["content"][1]["resource"]["uri"], of_two, "an embedded resource");
    assert_eq!(result["content"][2]["text"], "x://same", "text is not ours to change");
    let mut stream = session.stream().await;
    session.result("resources/subscribe", json!({ "uri": of_two })).await;
    let seen = b.saw("resources/subscribe", 1).await.remove(0);
    assert_eq!(seen.params()["uri"], "x://same");
    assert!(a.seen_of("resources/subscribe").is_empty());
    b.push(&seen.session.expect("a session"), &raw::notification("notifications/resources/updated", r#"{"uri":"x://same"}"#)).await;
    assert_eq!(stream.method("notifications/resources/updated").await["params"]["uri"], of_two);
    gateway.stop().await;
}

#[tokio::test]
async fn completion_reaches_the_backend_whose_prompt_or_template_it_is() {
    let a = Backend::builder("a").prompt("p").template("a://{id}").start().await;
    let b = Backend::builder("b").prompt("p").template("b://{id}").start().await;
    let (gateway, session) = two(&a, &b, "").await;
    session.list("resources/templates/list", "resourceTemplates").await;
    let argument = json!({ "name": "id", "value": "o" });
    let done =
        session.result("completion/complete", json!({ "ref": { "type": "ref/prompt", "name": "two__p" }, "argument": argument })).await;
    assert_eq!(done["completion"]["values"], json!(["one", "two"]));
    assert_eq!(b.saw("completion/complete", 1).await[0].params()["ref"]["name"], "p");
    session.result("completion/complete", json!({ "ref": { "type": "ref/resource", "uri": "a://{id}" }, "argument": argument })).await;
    assert_eq!(a.saw("completion/complete", 1).await[0].params()["ref"]["uri"], "a://{id}");
    gateway.stop().await;
}

#[tokio::test]
async fn virtual_hosts_show_their_own_backends_only() {
    let (a, b) = (Backend::with_tools("a", &["t"]).await, Backend::with_tools("b", &["u"]).await);
    let hosts = "virtual_hosts:\n  /a: { backends: [one] }\n  /team/both: { backends: [one, two] }\n";
    let yaml = format!("{}{hosts}", http_backends(&[("one", &a.url()), ("two", &b.url())]));
    let gateway = Gateway::start(&yaml).await;
    let only = gateway.at("/a").initialize().await;
    assert_eq!(only.names("tools/list", "tools").await, ["t"]);
    only.error("tools/call", json!({ "name": "two__u", "arguments": {} })).await;
    only.error("tools/call", json!({ "name": "u", "arguments": {} })).await;
    let both = gateway.at("/team/both").initialize().await;
    assert_eq!(both.names("tools/list", "tools").await, ["one__t", "two__u"]);
    assert_eq!(gateway.mcp().post(&[], "{}").await.status, 404, "/mcp is there only when nothing is configured");
    gateway.stop().await;
}

#[tokio::test]
async fn capabilities_are_those_that_some_backend_has() {
    let a = Backend::builder("a").tool("t").capabilities(r#"{"tools":{}}"#).instructions("Of a.").start().await;
    let b = Backend::builder("b")
        .prompt("p")
        .capabilities(r#"{"prompts":{},"resources":{"subscribe":true}}"#)
        .instructions("Of b.")
        .start()
        .await;
    let (gateway, session) = two(&a, &b, "").await;
    let capabilities = &session.init["capabilities"];
    for name in ["tools", "prompts", "resources"] {
        assert!(capabilities[name].is_object(), "{name}: {capabilities}");
    }
    assert!(capabilities["completions"].is_null(), "{capabilities}");
    let instructions = session.init["instructions"].as_str().unwrap_or_default();
    assert!(instructions.contains("Of a.") && instructions.contains("Of b."), "{instructions}");
    assert_eq!(session.names("prompts/list", "prompts").await, ["two__p"]);
    assert!(a.seen_of("prompts/list").is_empty(), "a backend is not asked for what it does not have");
    gateway.stop().await;
}

#[tokio::test]
async fn list_changed_of_any_backend_reaches_the_client_and_the_list_is_new() {
    let changed = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let shared = changed.clone();
    let script = move |call: Call| {
        let now = shared.load(std::sync::atomic::Ordering::SeqCst);
        async move { call.result(if now { r#"{"tools":[{"name":"new","inputSchema":{"type":"object"}}]}"# } else { r#"{"tools":[]}"# }) }
    };
    let a = Backend::builder("a").on("tools/list", script).start().await;
    let b = Backend::with_tools("b", &["t"]).await;
    let (gateway, session) = two(&a, &b, "").await;
    assert_eq!(session.names("tools/list", "tools").await, ["two__t"]);
    let mut stream = session.stream().await;
    changed.store(true, std::sync::atomic::Ordering::SeqCst);
    backend_says_changed(&a).await;
    stream.method("notifications/tools/list_changed").await;
    assert_eq!(session.names("tools/list", "tools").await, ["one__new", "two__t"]);
    gateway.stop().await;
}

async fn backend_says_changed(backend: &Backend) {
    for upstream in backend.sessions() {
        backend.push(&upstream, &raw::notification("notifications/tools/list_changed", "{}")).await;
    }
}

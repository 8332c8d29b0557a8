//! Clients of 2026-07-28: what makes a request one of theirs, what is held against it before anything is run, and what they
//! are answered. Streams are in `modern_streams.rs`, questions of servers in `parked.rs`, principals in `modern_principals.rs`.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use lockgate_tests::{
    backend::{Backend, Builder, Call, Seen},
    client::{ACCEPT, Endpoint, JSON, LATEST},
    gateway::{AUTH, Gateway, TOKEN_X, TOKEN_Y, free_port, http_backends},
    modern::{CAPABILITIES, CLIENT, LEVEL, Modern, REVISION, SERVER, VERSION, encoded, sentinel},
    raw::{self, first_text, member},
};
use serde_json::{Value, json};

/// A gateway in front of one backend, and a client of it.
async fn behind(builder: Builder) -> (Backend, Gateway, Modern) {
    let backend = builder.start().await;
    let gateway = Gateway::start(&http_backends(&[("one", &backend.url())])).await;
    let client = Modern::new(gateway.mcp());
    (backend, gateway, client)
}

fn call_of(tool: &str) -> Value {
    json!({ "name": tool, "arguments": {} })
}

// --- which era a request belongs to

#[tokio::test]
async fn initialize_with_nothing_but_modern_metadata_is_an_unknown_method() {
    let (_backend, gateway, client) = behind(Backend::builder("b").tool("t")).await;
    client.request("initialize", json!({})).id("\"first\"").refused(404, -32601).await;
    client.request("initialize", json!({ "capabilities": {} })).refused(404, -32601).await;
    gateway.stop().await;
}

#[tokio::test]
async fn initialize_that_names_the_modern_revision_opens_a_session_of_an_older_one() {
    let (_backend, gateway, _) = behind(Backend::builder("b").tool("t")).await;
    for headers in [&[][..], &[("mcp-protocol-version", REVISION), ("mcp-method", "initialize")]] {
        let reply = gateway.mcp().post(headers, lockgate_tests::client::initialize_body(REVISION, &json!({}))).await.must_be(200).await;
        assert!(reply.header("mcp-session-id").is_some());
        assert_eq!(reply.answer().await.result()["protocolVersion"], LATEST);
    }
    gateway.stop().await;
}

#[tokio::test]
async fn header_and_metadata_must_name_the_same_revision() {
    let (backend, gateway, client) = behind(Backend::builder("b").tool("t")).await;
    let ask = client.request("tools/call", call_of("t"));
    ask.clone().without_header("mcp-protocol-version").refused(400, -32020).await;
    ask.clone().header("mcp-protocol-version", LATEST).refused(400, -32020).await;
    ask.clone().header("mcp-protocol-version", "2099-01-01").refused(400, -32020).await;
    ask.clone().meta(VERSION, json!(LATEST)).refused(400, -32020).await;
    ask.clone().another_header("mcp-protocol-version", LATEST).refused(400, -32020).await;
    assert!(backend.seen_of("tools/call").is_empty());
    gateway.stop().await;
}

#[tokio::test]
async fn an_unknown_revision_is_answered_with_those_that_are_known() {
    let (backend, gateway, client) = behind(Backend::builder("b").tool("t")).await;
    for revision in ["2099-01-01", "2026-07-29", "draft"] {
        let error = client.request("tools/call", call_of("t")).revision(revision).refused(400, -32022).await;
        assert!(error["data"]["supported"].as_array().is_some_and(|known| known.contains(&json!(REVISION))), "{error}");
        assert_eq!(error["data"]["requested"], revision, "{error}");
    }
    assert!(backend.seen_of("tools/call").is_empty());
    gateway.stop().await;
}

#[tokio::test]
async fn metadata_must_be_whole_and_of_the_right_types() {
    let (backend, gateway, client) = behind(Backend::builder("b").tool("t")).await;
    let ask = client.request("tools/call", call_of("t"));
    ask.clone().without_any_meta().refused(400, -32602).await;
    ask.clone().without_meta(VERSION).refused(400, -32602).await;
    ask.clone().without_meta(CAPABILITIES).refused(400, -32602).await;
    for wrong in [json!(null), json!("all"), json!([]), json!(1)] {
        ask.clone().meta(CAPABILITIES, wrong).refused(400, -32602).await;
    }
    ask.clone().meta(CLIENT, json!("me")).refused(400, -32602).await;
    ask.clone().meta(LEVEL, json!("loud")).refused(400, -32602).await;
    // No params at all: no `_meta` either.
    let body = r#"{"jsonrpc":"2.0","id":"none","method":"tools/list"}"#;
    let answer = client.request("tools/list", json!({})).send_body(body.to_owned()).await.answer().await;
    assert_eq!((answer.status, answer.error()["code"].as_i64(), answer.id_raw()), (400, Some(-32602), "\"none\""));
    assert!(backend.seen_of("tools/call").is_empty());
    // A client need not say who it is.
    assert_eq!(ask.without_meta(CLIENT).answer().await.result()["resultType"], "complete");
    gateway.stop().await;
}

#[tokio::test]
async fn a_request_of_neither_era_still_wants_a_session() {
    let (backend, gateway, _) = behind(Backend::builder("b").tool("t")).await;
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","_meta":{"progressToken":1}}}"#;
    for headers in [&[][..], &[("mcp-protocol-version", LATEST)], &[("mcp-method", "tools/call"), ("mcp-name", "t")]] {
        assert_eq!(gateway.mcp().post(headers, body).await.status, 400, "{headers:?}");
    }
    assert!(backend.seen_of("tools/call").is_empty());
    gateway.stop().await;
}

#[tokio::test]
async fn a_session_id_on_a_modern_request_is_ignored() {
    let (backend, gateway, client) = behind(Backend::builder("b").tool("t")).await;
    let session = gateway.initialize().await;
    for id in ["deadbeef", "not a key", &session.id] {
        let answer = client.request("tools/call", call_of("t")).header("mcp-session-id", id).answer().await;
        assert_eq!(first_text(&answer.result()), "t", "{id}");
    }
    session.call("t", json!({})).await;
    let seen = backend.seen_of("tools/call");
    let of_session = seen[3].session.clone();
    assert!(seen[..3].iter().all(|seen| seen.session != of_session), "a modern request acted in a legacy session");
    gateway.stop().await;
}

#[tokio::test]
async fn a_session_goes_on_when_a_modern_request_names_it_wrongly() {
    let (_backend, gateway, client) = behind(Backend::builder("b").tool("t")).await;
    let session = gateway.initialize().await;
    let ask = client.request("tools/call", call_of("t")).header("mcp-session-id", &session.id);
    ask.without_meta(CAPABILITIES).refused(400, -32602).await;
    session.call("t", json!({})).await;
    gateway.stop().await;
}

#[tokio::test]
async fn get_and_delete_of_a_modern_client_are_405() {
    let (_backend, gateway, _) = behind(Backend::builder("b").tool("t")).await;
    let session = gateway.initialize().await;
    for method in ["GET", "DELETE"] {
        for id in ["x", &session.id] {
            let headers = [("mcp-protocol-version", REVISION), ("accept", "text/event-stream"), ("mcp-session-id", id)];
            let reply = gateway.mcp().send(method, &headers, "").await;
            assert_eq!(reply.status, 405, "{method}");
            assert!(reply.header("allow").is_some_and(|allow| allow.contains("POST")), "{method}: {:?}", reply.headers);
        }
        let headers = [("mcp-protocol-version", REVISION), ("accept", "text/event-stream")];
        assert_eq!(gateway.mcp().send(method, &headers, "").await.status, 405, "{method}");
    }
    assert_eq!(session.ask("ping", json!({})).await.status, 200, "the session is still there");
    gateway.stop().await;
}

#[tokio::test]
async fn removed_and_unknown_methods_are_404_with_the_id() {
    let (backend, gateway, client) = behind(Backend::builder("b").tool("t").resource("x://r")).await;
    for method in [
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
        "tasks/list",
        "tasks/result",
        "sampling/createMessage",
        "com.example/none",
    ] {
        client.request(method, json!({ "uri": "x://r", "level": "info" })).id(r#""\u0041""#).refused(404, -32601).await;
    }
    for method in ["ping", "logging/setLevel", "resources/subscribe", "com.example/none"] {
        assert!(backend.seen_of(method).is_empty(), "{method} reached the backend");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn what_is_no_request_is_refused() {
    let (_backend, gateway, client) = behind(Backend::builder("b").tool("t")).await;
    let ask = client.request("tools/list", json!({}));
    for body in [
        r#"{"jsonrpc":"2.0","id":1,"result":{}}"#.to_owned(),
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"no"}}"#.to_owned(),
        format!("[{}]", ask.body()),
        format!("[{},{}]", ask.body(), ask.body()),
        "{".to_owned(),
        String::new(),
        ask.body().replace("\"2.0\"", "\"1.0\""),
        client.request("tools/list", json!({})).id("null").body(),
        client.request("tools/list", json!({})).id("{}").body(),
    ] {
        let reply = ask.send_body(body.clone()).await;
        assert_eq!(reply.status, 400, "{body}");
    }
    assert_eq!(client.names("tools/list", "tools").await, ["t"]);
    gateway.stop().await;
}

#[tokio::test]
async fn origin_and_host_are_checked_in_this_era_too() {
    let (backend, gateway, client) = behind(Backend::builder("b").tool("t")).await;
    let ask = client.request("tools/call", call_of("t"));
    for header in [("origin", "http://evil.example"), ("host", "evil.example")] {
        assert_eq!(ask.clone().header(header.0, header.1).send().await.status, 403, "{header:?}");
    }
    assert!(backend.seen_of("tools/call").is_empty());
    gateway.stop().await;
}

// --- headers that repeat the body

#[tokio::test]
async fn the_method_header_must_be_there_and_agree() {
    let (backend, gateway, client) = behind(Backend::builder("b").tool("t")).await;
    let ask = client.request("tools/call", call_of("t")).id("41");
    ask.clone().without_header("mcp-method").refused(400, -32020).await;
    ask.clone().header("mcp-method", "tools/list").refused(400, -32020).await;
    ask.clone().header("mcp-method", "Tools/Call").refused(400, -32020).await;
    ask.clone().another_header("mcp-method", "tools/list").refused(400, -32020).await;
    client.request("server/discover", json!({})).without_header("mcp-method").refused(400, -32020).await;
    assert!(backend.seen_of("tools/call").is_empty());
    gateway.stop().await;
}

#[tokio::test]
async fn the_name_header_must_be_there_and_agree() {
    let (backend, gateway, client) = behind(Backend::builder("b").tool("t").tool("u").prompt("p").resource("x://r")).await;
    for (method, params, other) in [
        ("tools/call", json!({ "name": "t", "arguments": {} }), "u"),
        ("prompts/get", json!({ "name": "p" }), "q"),
        ("resources/read", json!({ "uri": "x://r" }), "x://s"),
    ] {
        let ask = client.request(method, params);
        ask.clone().without_header("mcp-name").refused(400, -32020).await;
        ask.clone().header("mcp-name", other).refused(400, -32020).await;
        ask.clone().header("mcp-name", "").refused(400, -32020).await;
        ask.clone().another_header("mcp-name", other).refused(400, -32020).await;
        assert!(backend.seen_of(method).is_empty(), "{method} was run");
    }
    client.request("tools/call", call_of("t")).header("mcp-name", "T").refused(400, -32020).await;
    assert!(backend.seen_of("tools/call").is_empty());
    gateway.stop().await;
}

#[tokio::test]
async fn a_name_header_may_be_in_base64_and_must_be_where_it_has_to() {
    let uri = "x://datei/größe 日本";
    let (_backend, gateway, client) = behind(Backend::builder("b").tool("t").resource(uri)).await;
    let ask = client.request("tools/call", call_of("t"));
    assert_eq!(first_text(&ask.clone().header("mcp-name", &sentinel("t")).answer().await.result()), "t");
    assert_eq!(first_text(&ask.clone().header("mcp-name", "  t ").answer().await.result()), "t");
    for wrong in
        [sentinel("u").as_str(), "=?base64?!!!!?=", "=?base64?dA?=", "=?base64?dA==", "=?BASE64?dA==?=", "=?base64?/w==?=", "=?base64??="]
    {
        ask.clone().header("mcp-name", wrong).refused(400, -32020).await;
    }
    assert!(encoded(uri).starts_with("=?base64?"));
    let read = client.result("resources/read", json!({ "uri": uri })).await;
    assert_eq!(read["contents"][0]["uri"], uri);
    gateway.stop().await;
}

#[tokio::test]
async fn parameter_headers_must_agree_with_the_arguments() {
    let schema = r#"{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"},"count":{"type":"integer","x-mcp-header":"Count"},"dry":{"type":"boolean","x-mcp-header":"Dry"},"in":{"type":"object","properties":{"deep":{"type":"string","x-mcp-header":"Deep"}}}}}"#;
    let tool = format!(r#"{{"name":"t","inputSchema":{schema}}}"#);
    let (backend, gateway, client) = behind(Backend::builder("b").item("tools", &tool).tool("u")).await;
    // On the connection where it was listed: to the gateway, others are other clients.
    let client = client.on_one_connection().await;
    client.names("tools/list", "tools").await;
    let ask = |arguments: Value| client.request("tools/call", json!({ "name": "t", "arguments": arguments }));
    let region = || ask(json!({ "region": "eu" }));
    region().without_header("mcp-param-region").refused(400, -32020).await;
    region().header("mcp-param-region", "us").refused(400, -32020).await;
    region().header("mcp-param-region", "EU").refused(400, -32020).await;
    region().header("mcp-param-region", "=?base64?***?=").refused(400, -32020).await;
    region().header("mcp-param-region", "eu").another_header("mcp-param-region", "us").refused(400, -32020).await;
    ask(json!({ "count": 42 })).header("mcp-param-count", "43").refused(400, -32020).await;
    ask(json!({ "count": 42 })).header("mcp-param-count", "many").refused(400, -32020).await;
    ask(json!({ "dry": true })).header("mcp-param-dry", "false").refused(400, -32020).await;
    ask(json!({ "in": { "deep": "x" } })).refused(400, -32020).await;
    assert!(backend.seen_of("tools/call").is_empty(), "nothing of that was run");
    for good in [
        region().header("mcp-param-region", "eu"),
        region().header("mcp-param-region", &sentinel("eu")),
        ask(json!({ "region": "日本" })).header("mcp-param-region", &encoded("日本")),
        ask(json!({ "count": 42 })).header("mcp-param-count", "42"),
        ask(json!({ "count": 42 })).header("mcp-param-count", "42.0"),
        client.request_raw("tools/call", r#"{"name":"t","arguments":{"count":42.0}}"#).header("mcp-param-count", "42"),
        ask(json!({ "dry": true })).header("mcp-param-dry", "true"),
        ask(json!({ "in": { "deep": "x" } })).header("mcp-param-deep", "x"),
        ask(json!({ "region": null })),
        ask(json!({})),
        // A header that no schema knows is none of the gateway's business.
        ask(json!({})).header("mcp-param-other", "=?base64?***?="),
        client.request("tools/call", json!({ "name": "u", "arguments": { "region": "eu" } })),
    ] {
        assert_eq!(good.answer().await.result()["resultType"], "complete", "{}", good.body());
    }
    let said = |seen: &Seen| seen.headers.keys().any(|name| name.as_str().starts_with("mcp-param-"));
    assert!(!backend.seen_of("tools/call").iter().any(said), "a server of an older revision knows no such headers");
    gateway.stop().await;
}

/// The raw item of a tool that wants its `region` repeated.
fn regional(name: &str) -> String {
    let schema = r#"{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}"#;
    format!(r#"{{"name":"{name}","inputSchema":{schema}}}"#)
}

#[tokio::test]
async fn a_parameter_header_is_checked_before_anything_was_listed() {
    let one = Backend::builder("one").item("tools", &regional("t")).page(1).tool("u").start().await;
    let two = Backend::builder("two").tool("t").start().await;
    let hosts = "virtual_hosts:\n  /mcp:\n    backends: [one, two]\n    aliases: { now: one/t }\n";
    let gateway = Gateway::start(&format!("{}{hosts}", http_backends(&[("one", &one.url()), ("two", &two.url())]))).await;
    // Each request is a client of its own here, and these names say where they lead: no list has to be read for them.
    let client = Modern::new(gateway.mcp());
    let ask = |tool: &str| client.request("tools/call", json!({ "name": tool, "arguments": { "region": "eu" } }));
    for name in ["one__t", "now"] {
        ask(name).header("mcp-param-region", "us").refused(400, -32020).await;
        ask(name).header("mcp-param-region", "eu").header("mcp-param-else", "x").answer().await.result();
    }
    ask("one__t").header("mcp-param-region", "eu").another_header("mcp-param-region", "eu").refused(400, -32020).await;
    // The same name elsewhere wants nothing.
    ask("two__t").header("mcp-param-region", "us").answer().await.result();
    assert_eq!((one.seen_of("tools/call").len(), two.seen_of("tools/call").len()), (2, 1));
    gateway.stop().await;
}

#[tokio::test]
async fn what_headers_have_to_repeat_is_forgotten_when_the_list_changes() {
    let marked = Arc::new(AtomicBool::new(true));
    let is_marked = marked.clone();
    let builder = Backend::builder("b").on("tools/list", move |call: Call| {
        let tool =
            if is_marked.load(Ordering::SeqCst) { regional("t") } else { r#"{"name":"t","inputSchema":{"type":"object"}}"#.to_owned() };
        async move { call.result(&format!(r#"{{"tools":[{tool},{{"name":"change","inputSchema":{{"type":"object"}}}}]}}"#)) }
    });
    let builder = builder.on("tools/call", |call: Call| async move {
        let changes = call.target() == "change";
        let stream = call.stream();
        if changes {
            stream.notify("notifications/tools/list_changed", "{}").await;
        }
        stream.answer(&raw::text("done")).await;
    });
    let (_backend, gateway, client) = behind(builder).await;
    let client = client.on_one_connection().await;
    client.names("tools/list", "tools").await;
    let ask = || client.request("tools/call", json!({ "name": "t", "arguments": { "region": "eu" } }));
    ask().refused(400, -32020).await;
    marked.store(false, Ordering::SeqCst);
    // Nobody said so yet.
    ask().header("mcp-param-region", "us").refused(400, -32020).await;
    client.call("change", json!({})).await;
    ask().header("mcp-param-region", "us").answer().await.result();
    // Without a word of the server, but listed anew.
    marked.store(true, Ordering::SeqCst);
    ask().answer().await.result();
    client.names("tools/list", "tools").await;
    ask().refused(400, -32020).await;
    gateway.stop().await;
}

#[tokio::test]
async fn more_parameter_headers_than_any_tool_can_want_are_431() {
    let (backend, gateway, client) = behind(Backend::builder("b").tool("t")).await;
    let long = "x".repeat(20_000);
    let ask = client.request("tools/call", call_of("t")).header("mcp-param-a", &long).header("mcp-param-b", &long);
    let answer = ask.answer().await;
    assert_eq!((answer.status, answer.id_raw()), (431, "1"), "{}", answer.raw);
    assert!(backend.seen_of("tools/call").is_empty());
    gateway.stop().await;
}

// --- what the gateway says of itself

#[tokio::test]
async fn discover_is_merged_from_the_backends() {
    let one =
        Backend::builder("one").tool("t").capabilities(r#"{"tools":{"listChanged":true}}"#).instructions("Mind the gap.").start().await;
    let two = Backend::builder("two").prompt("p").capabilities(r#"{"prompts":{}}"#).instructions("Stand clear.").start().await;
    let gateway = Gateway::start(&http_backends(&[("one", &one.url()), ("two", &two.url())])).await;
    let client = Modern::new(gateway.mcp());
    let result = client.result("server/discover", json!({})).await;
    assert_eq!(result["resultType"], "complete", "{result}");
    assert!(result["supportedVersions"].as_array().is_some_and(|known| known.contains(&json!(REVISION))), "{result}");
    assert!(result["capabilities"]["tools"].is_object() && result["capabilities"]["prompts"].is_object(), "{result}");
    assert!(result["capabilities"]["resources"].is_null() && result["capabilities"]["completions"].is_null(), "nobody has them: {result}");
    assert!(result["ttlMs"].is_u64(), "{result}");
    assert!(result["cacheScope"] == "private" || result["cacheScope"] == "public", "{result}");
    for text in ["Mind the gap.", "Stand clear."] {
        assert!(result["instructions"].as_str().is_some_and(|all| all.contains(text)), "{result}");
    }
    let name = &result["_meta"][SERVER]["name"];
    assert!(name.is_string() && name != "one" && name != "two", "the gateway names itself: {result}");
    gateway.stop().await;
}

#[tokio::test]
async fn discover_and_lists_do_without_a_backend_that_is_down() {
    let good = Backend::with_tools("good", &["t"]).await;
    let dead = format!("http://{}/mcp", free_port());
    let yaml = format!("{}limits: {{ initialize_timeout: 1s }}\n", http_backends(&[("good", &good.url()), ("dead", &dead)]));
    let gateway = Gateway::start(&yaml).await;
    let client = Modern::new(gateway.mcp());
    assert!(client.result("server/discover", json!({})).await["capabilities"]["tools"].is_object());
    let list = client.result("tools/list", json!({})).await;
    assert_eq!(list["tools"].as_array().map(Vec::len), Some(1), "{list}");
    assert!(list["_meta"]["lockgate/missing"].to_string().contains("dead"), "{list}");
    let error = client.error("tools/call", json!({ "name": "dead__t", "arguments": {} })).await;
    assert!(error["message"].as_str().is_some_and(|text| text.contains("dead")), "it does not say which backend is down: {error}");
    gateway.stop().await;
}

// --- lists

const TOOL: &str = r#"{"x-first":1.0,"name":"t","inputSchema":{"type":"object","z":1,"a":123456789012345678901234567890},"annotations":{"readOnlyHint":true,"x":1.0},"_meta":{"b":1.0,"a":1}}"#;

#[tokio::test]
async fn lists_say_that_they_are_complete_and_for_how_long_and_whom() {
    let builder = Backend::builder("b").item("tools", TOOL).prompt("p").resource("x://r").template("x://t/{id}");
    let (_backend, gateway, client) = behind(builder).await;
    for (method, field) in [
        ("tools/list", "tools"),
        ("prompts/list", "prompts"),
        ("resources/list", "resources"),
        ("resources/templates/list", "resourceTemplates"),
    ] {
        let result = client.result(method, json!({})).await;
        assert_eq!(result[field].as_array().map(Vec::len), Some(1), "{method}: {result}");
        assert_eq!(result["resultType"], "complete", "{method}: {result}");
        assert!(result["ttlMs"].is_u64(), "{method}: {result}");
        assert_eq!(result["cacheScope"], "private", "nobody said that it may be shared: {method}: {result}");
    }
    let read = client.result("resources/read", json!({ "uri": "x://r" })).await;
    assert!(read["ttlMs"].is_u64() && read["cacheScope"] == "private", "{read}");
    let list = client.request_raw("tools/list", "{}").answer().await;
    assert_eq!(member(list.result_raw(), "tools"), Some(format!("[{TOOL}]").as_str()));
    gateway.stop().await;
}

#[tokio::test]
async fn lists_are_in_one_order_for_everybody_and_their_pages_join_across_connections() {
    let names: Vec<_> = (0..5).map(|n| format!("t{n}")).collect();
    let with = |name: &str| names.iter().rev().fold(Backend::builder(name), |builder, tool| builder.tool(tool)).page(2);
    let (zeta, alpha) = (with("zeta").start().await, with("alpha").start().await);
    let gateway = Gateway::start(&http_backends(&[("zeta", &zeta.url()), ("alpha", &alpha.url())])).await;
    // Each page on a connection of its own.
    let client = Modern::new(gateway.mcp());
    let first = client.names("tools/list", "tools").await;
    assert_eq!(first.len(), 10, "{first:?}");
    assert!(first.contains(&"zeta__t0".to_owned()) && first.contains(&"alpha__t4".to_owned()), "{first:?}");
    for _ in 0..3 {
        assert_eq!(client.names("tools/list", "tools").await, first);
    }
    let other = Modern::new(gateway.mcp()).able(json!({ "elicitation": {} })).on_one_connection().await;
    assert_eq!(other.names("tools/list", "tools").await, first, "calls and other clients change nothing");
    gateway.stop().await;
}

#[tokio::test]
async fn a_cursor_that_was_never_given_is_refused() {
    let (_backend, gateway, client) = behind(Backend::builder("b").tool("t")).await;
    let answer = client.ask("tools/list", json!({ "cursor": "invented" })).await;
    assert_eq!(answer.error()["code"], -32602, "{}", answer.raw);
    gateway.stop().await;
}

// --- calls

#[tokio::test]
async fn a_call_arrives_as_it_was_sent_and_its_result_is_only_said_to_be_complete() {
    let wrap = |call: Call| async move {
        let payload = call.seen.arguments_raw().to_owned();
        call.result(&format!(
            r#"{{"vendor":{payload},"content":[{{"type":"x-unknown","data":{payload}}}],"isError":false,"structuredContent":{payload},"_meta":{{"b":1.0,"a":{payload}}}}}"#
        ));
    };
    let (backend, gateway, client) = behind(Backend::builder("b").tool("t").on("tools/call", wrap)).await;
    for payload in [
        r#"{"n":123456789012345678901234567890,"f":1e400,"z":1.0,"a":2,"z":3}"#,
        r#"{"s":"\ud800","u":"\u0041\/","t":"日本語 🎉"}"#,
        "{ \"white\" :\t[ 1 , { } ] }",
        r#"{"id":7,"method":"tools/list","result":{"tools":[]},"resultType":"input_required"}"#,
        "{}",
    ] {
        let ask = client.request_raw("tools/call", &format!(r#"{{"x":{payload},"arguments":{payload},"name":"t"}}"#));
        let answer = ask.meta_raw("com.example/keep", payload).meta("traceparent", json!("00-1-2-01")).id("1.0").answer().await;
        let seen = backend.seen_of("tools/call").pop().expect("the backend was called");
        assert_eq!(seen.arguments_raw(), payload);
        assert_eq!(member(seen.params_raw(), "x"), Some(payload));
        let meta = member(seen.params_raw(), "_meta").expect("_meta arrives");
        assert_eq!(member(meta, "com.example/keep"), Some(payload));
        assert_eq!(member(meta, "traceparent"), Some("\"00-1-2-01\""));
        assert_eq!(answer.id_raw(), "1.0");
        let result = answer.result_raw();
        assert_eq!(member(result, "resultType"), Some("\"complete\""), "{result}");
        for field in ["vendor", "structuredContent"] {
            assert_eq!(member(result, field), Some(payload), "{field}");
        }
        assert_eq!(member(result, "content"), Some(format!(r#"[{{"type":"x-unknown","data":{payload}}}]"#).as_str()));
        let meta = member(result, "_meta").expect("_meta comes back");
        assert_eq!((member(meta, "b"), member(meta, "a")), (Some("1.0"), Some(payload)));
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_legacy_backend_sees_nothing_of_the_other_era() {
    let (backend, gateway, client) = behind(Backend::builder("b").tool("t").prompt("p").resource("x://r")).await;
    let client = client.able(json!({ "elicitation": {}, "roots": {} })).on_one_connection().await;
    client.call("t", json!({})).await;
    client.names("prompts/list", "prompts").await;
    client.result("prompts/get", json!({ "name": "p" })).await;
    client.result("resources/read", json!({ "uri": "x://r" })).await;
    // But for the question which era it is of.
    for seen in backend.seen().into_iter().filter(|seen| seen.method.as_deref() != Some("server/discover")) {
        let body = String::from_utf8_lossy(&seen.body);
        assert!(!body.contains("io.modelcontextprotocol/") && !body.contains(REVISION), "{body}");
        assert_ne!(seen.header("mcp-protocol-version"), Some(REVISION), "{body}");
        assert!(seen.header("mcp-method").is_none() && seen.header("mcp-name").is_none(), "{:?}", seen.headers);
    }
    let upstream = backend.seen_of("tools/call").remove(0);
    let init = backend.init_of(upstream.session.as_deref().expect("the gateway keeps a session with it"));
    assert!(init["capabilities"]["elicitation"].is_object() && init["capabilities"]["roots"].is_object(), "{init}");
    assert!(init["capabilities"]["sampling"].is_null(), "the client cannot do that: {init}");
    gateway.stop().await;
}

#[tokio::test]
async fn every_other_method_is_served_as_well() {
    let (_backend, gateway, client) = behind(Backend::builder("b").tool("t").prompt("p").resource("x://r")).await;
    let prompt = client.result("prompts/get", json!({ "name": "p" })).await;
    assert_eq!((&prompt["messages"][0]["content"]["text"], &prompt["resultType"]), (&json!("p of b"), &json!("complete")));
    let read = client.result("resources/read", json!({ "uri": "x://r" })).await;
    assert_eq!((&read["contents"][0]["text"], &read["resultType"]), (&json!("x://r of b"), &json!("complete")));
    let params = json!({ "ref": { "type": "ref/prompt", "name": "p" }, "argument": { "name": "a", "value": "o" } });
    let completed = client.result("completion/complete", params).await;
    assert_eq!((&completed["completion"]["values"], &completed["resultType"]), (&json!(["one", "two"]), &json!("complete")));
    gateway.stop().await;
}

#[tokio::test]
async fn errors_are_numbered_as_this_era_has_them() {
    let script = |call: Call| async move {
        match call.target().as_str() {
            "x://gone" => call.error(-32002, "Resource not found"),
            "x://none" => call.error(-32601, "Method not found"),
            _ => call.error(-31999, "own"),
        }
    };
    let (_backend, gateway, client) = behind(Backend::builder("b").tool("t").template("x://{name}").on("resources/read", script)).await;
    let read = |uri: &str| client.request("resources/read", json!({ "uri": uri }));
    let error = read("x://gone").answer().await.error();
    assert_eq!(error["code"], -32602, "{error}");
    read("x://none").id("\"n\"").refused(404, -32601).await;
    let answer = read("x://own").answer().await;
    assert_eq!((answer.status, &answer.error()["code"]), (200, &json!(-31999)), "{}", answer.raw);
    let error = client.error("tools/call", call_of("none")).await;
    assert_eq!(error["code"], -32602, "{error}");
    gateway.stop().await;
}

#[tokio::test]
async fn an_error_of_a_backend_arrives_byte_for_byte() {
    let error = r#"{"code":9007199254740993,"message":"n\u006f","data":{"b":1.0,"a":123456789012345678901234567890},"x":{}}"#;
    let script = move |call: Call| async move {
        let message = format!(r#"{{"jsonrpc":"2.0","id":{},"error":{error}}}"#, call.id());
        call.message(&message);
    };
    let (_backend, gateway, client) = behind(Backend::builder("b").tool("t").on("tools/call", script)).await;
    assert_eq!(client.request("tools/call", call_of("t")).answer().await.error_raw(), error);
    gateway.stop().await;
}

#[tokio::test]
async fn policies_name_things_in_this_era_too() {
    let (one, two) = (Backend::with_tools("one", &["t"]).await, Backend::with_tools("two", &["t"]).await);
    let yaml =
        format!("{}virtual_hosts:\n  /mcp: {{ aliases: {{ now: two/t }} }}\n", http_backends(&[("one", &one.url()), ("two", &two.url())]));
    let gateway = Gateway::start(&yaml).await;
    let client = Modern::new(gateway.mcp());
    let mut names = client.names("tools/list", "tools").await;
    names.sort();
    assert_eq!(names, ["now", "one__t"]);
    for (name, backend) in [("now", "two"), ("two__t", "two"), ("one__t", "one")] {
        let result = client.call(name, json!({ "k": 1 })).await;
        assert_eq!(result["structuredContent"]["backend"], backend, "{name}");
    }
    // The header repeats the client's name for the tool, not the backend's.
    client.request("tools/call", call_of("now")).header("mcp-name", "t").refused(400, -32020).await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_policy_that_forbids_a_tool_forbids_it_in_this_era_too() {
    let backend = Backend::with_tools("one", &["t", "hidden"]).await;
    let yaml = format!(
        "{}virtual_hosts:\n  /mcp:\n    policies:\n      - name: filter\n        config: {{ rules: [{{ things: \"*/hidden\", do: deny, listed: true, reason: no }}] }}\n      - namespace\n",
        http_backends(&[("one", &backend.url())])
    );
    let gateway = Gateway::start(&yaml).await;
    let client = Modern::new(gateway.mcp());
    let error = client.error("tools/call", call_of("hidden")).await;
    assert_eq!(error["code"], -31010, "{error}");
    assert!(backend.seen_of("tools/call").is_empty());
    client.call("t", json!({})).await;
    gateway.stop().await;
}

#[tokio::test]
async fn one_upstream_session_serves_a_client_for_as_long_as_it_is_used() {
    let backend = Backend::with_tools("b", &["t"]).await;
    let gateway = Gateway::start(&format!("{}session: {{ idle_timeout: 1s }}\n", http_backends(&[("one", &backend.url())]))).await;
    let client = Modern::new(gateway.mcp()).on_one_connection().await;
    for _ in 0..3 {
        client.call("t", json!({})).await;
    }
    let sessions: Vec<_> = backend.seen_of("tools/call").into_iter().map(|seen| seen.session).collect();
    assert!(sessions[0].is_some() && sessions.iter().all(|session| *session == sessions[0]), "{sessions:?}");
    // Other capabilities are another upstream: a server may list and ask by them.
    let mut able = client.clone();
    able.capabilities = json!({ "sampling": {} });
    able.call("t", json!({})).await;
    let other = backend.seen_of("tools/call").pop().and_then(|seen| seen.session).expect("a session");
    assert_ne!(Some(&other), sessions[0].as_ref());
    assert!(backend.init_of(&other)["capabilities"]["sampling"].is_object());
    drop((client, able));
    backend.has_sessions(0).await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_legacy_backend_that_forgot_its_session_is_initialised_again() {
    let backend = Backend::with_tools("b", &["t"]).await;
    let gateway = Gateway::start(&http_backends(&[("one", &backend.url())])).await;
    let client = Modern::new(gateway.mcp()).on_one_connection().await;
    client.call("t", json!({})).await;
    backend.forget_sessions();
    client.call("t", json!({})).await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_refusal_for_want_of_credit_is_429_with_the_id_and_nothing_was_run() {
    let script = |call: Call| async move {
        if call.seen.arguments_raw().contains("hang") { call.hang().await } else { call.result(&raw::text("done")) }
    };
    let backend = Backend::builder("b").tool("t").on("tools/call", script).start().await;
    let gateway = Gateway::start(&format!("{}{AUTH}limits: {{ in_flight: 1 }}\n", http_backends(&[("one", &backend.url())]))).await;
    let (x, y) = (Modern::new(gateway.mcp().with_bearer(TOKEN_X)), Modern::new(gateway.mcp().with_bearer(TOKEN_Y)));
    let hanging = x.clone();
    let call = tokio::spawn(async move {
        let params = json!({ "name": "t", "arguments": { "k": "hang" } });
        hanging.request("tools/call", params).send().await.status
    });
    backend.saw("tools/call", 1).await;
    let reply = x.request("tools/call", call_of("t")).id("\"second\"").send().await;
    assert_eq!(reply.status, 429);
    let seconds: u64 = reply.header("retry-after").expect("Retry-After").parse().expect("seconds");
    assert!((1..=3600).contains(&seconds));
    assert_eq!(reply.answer().await.id_raw(), "\"second\"");
    assert_eq!(backend.seen_of("tools/call").len(), 1);
    assert_eq!(first_text(&y.call("t", json!({})).await), "done", "another principal has credit of its own");
    call.abort();
    gateway.stop().await;
}

#[tokio::test]
async fn a_body_beyond_the_limit_is_413() {
    let backend = Backend::with_tools("b", &["t"]).await;
    let gateway = Gateway::start(&format!("{}limits: {{ request_body: 64KiB }}\n", http_backends(&[("one", &backend.url())]))).await;
    let client = Modern::new(gateway.mcp());
    let params = json!({ "name": "t", "arguments": { "text": "x".repeat(100_000) } });
    assert_eq!(client.request("tools/call", params).send().await.status, 413);
    gateway.stop().await;
}

#[tokio::test]
async fn batches_sessions_the_older_transport_and_modern_requests_share_one_address() {
    let (backend, gateway, client) = behind(Backend::builder("b").tool("t")).await;
    let batching = gateway.mcp().initialize_as("2025-03-26", json!({})).await;
    let body = format!("[{},{}]", raw::request("1", "ping", "{}"), raw::request("2", "tools/call", r#"{"name":"t"}"#));
    let reply = batching.post(body).await.must_be(200).await;
    let text = reply.text().await;
    assert!(text.contains(r#""id":1"#) && text.contains(r#""id":2"#), "{text}");
    let session = gateway.initialize().await;
    session.call("t", json!({})).await;
    client.call("t", json!({})).await;
    let sse = gateway.at("/sse").send("GET", &[("accept", "text/event-stream")], "").await;
    assert_eq!((sse.status, sse.is_stream()), (200, true));
    assert_eq!(backend.seen_of("tools/call").len(), 3);
    gateway.stop().await;
}

#[tokio::test]
async fn a_legacy_request_is_never_taken_for_a_modern_one_by_its_payload() {
    let (backend, gateway, _) = behind(Backend::builder("b").tool("t")).await;
    let session = gateway.initialize().await;
    let params = json!({ "name": "t", "arguments": { "_meta": { VERSION: REVISION } } });
    session.result("tools/call", params).await;
    assert_eq!(backend.seen_of("tools/call")[0].session, backend.sessions().first().cloned());
    // Without a session, metadata that stands in the wrong place makes no request modern.
    let body = raw::request(
        "1",
        "tools/call",
        &json!({ "name": "t", "arguments": { "_meta": { VERSION: REVISION, CAPABILITIES: {} } } }).to_string(),
    );
    assert_eq!(Endpoint::new(&gateway.url()).send("POST", &[JSON, ACCEPT], body).await.status, 400);
    gateway.stop().await;
}

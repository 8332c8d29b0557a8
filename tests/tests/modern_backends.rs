//! Clients of 2026-07-28 in front of servers of 2026-07-28: what passes, what is written anew for the hop, and what is merged.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use lockgate_tests::{
    backend::{Backend, Builder, Call},
    eventually,
    gateway::{AUTH, Gateway, TOKEN_X, TOKEN_Y, http_backends},
    modern::{CAPABILITIES, LEVEL, Modern, REVISION, SUBSCRIPTION, VERSION, encoded, sentinel, subscription},
    raw::{self, first_text, member},
};
use serde_json::{Value, json};

const QUIET: Duration = Duration::from_millis(400);

/// A server that knows only 2026-07-28. `tools` are raw items; `hint` is what its lists say about caching.
pub fn modern(name: &str, tools: &[&str], hint: &'static str) -> Builder {
    modern_with(
        name,
        tools,
        hint,
        r#"{"tools":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true},"prompts":{},"logging":{}}"#,
    )
}

pub fn modern_with(name: &str, tools: &[&str], hint: &'static str, capabilities: &str) -> Builder {
    let list = move |field: &'static str, items: String| {
        move |call: Call| {
            let result = format!(r#"{{"resultType":"complete","{field}":[{items}],{hint}}}"#);
            async move { call.result(&result) }
        }
    };
    let discover = format!(
        r#"{{"resultType":"complete","supportedVersions":["{REVISION}"],"capabilities":{capabilities},"instructions":"This is {name}.",{hint},"_meta":{{"io.modelcontextprotocol/serverInfo":{{"name":"{name}","version":"1"}}}}}}"#
    );
    let builder = Backend::builder(name).without_sessions().without_get_stream();
    let builder = builder.on("initialize", |call: Call| async move {
        let error = raw::error(&call.id(), -32601, "Method not found");
        call.http(404, &[("content-type", "application/json")], error);
    });
    let builder = builder.result("server/discover", &discover).on("tools/list", list("tools", tools.join(",")));
    let builder = builder.on("prompts/list", list("prompts", format!(r#"{{"name":"p","description":"of {name}"}}"#)));
    let resources = format!(r#"{{"uri":"x://r","name":"r"}},{{"uri":"only://{name}","name":"o"}}"#);
    let builder =
        builder.on("resources/list", list("resources", resources)).on("resources/templates/list", list("resourceTemplates", String::new()));
    let own = name.to_owned();
    builder.on("tools/call", move |call: Call| {
        let own = own.clone();
        async move {
            let (arguments, tool) = (call.seen.arguments_raw().to_owned(), json!(call.target()));
            call.result(&format!(
                r#"{{"content":[{{"type":"text","text":{tool}}}],"structuredContent":{{"backend":"{own}","arguments":{arguments}}},"resultType":"complete"}}"#
            ));
        }
    })
}

pub const TOOL: &str = r#"{"name":"t","inputSchema":{"type":"object"}}"#;
/// Never fresh, for nobody else.
pub const OWN: &str = r#""ttlMs":0,"cacheScope":"private""#;

async fn one(builder: Builder) -> (Backend, Gateway, Modern) {
    let backend = builder.start().await;
    let gateway = Gateway::start(&http_backends(&[("one", &backend.url())])).await;
    let client = Modern::new(gateway.mcp());
    (backend, gateway, client)
}

#[tokio::test]
async fn headers_are_written_anew_for_the_body_that_goes_on() {
    let (a, b) = (modern("a", &[TOOL], OWN).start().await, modern("b", &[TOOL], OWN).start().await);
    let gateway = Gateway::start(&http_backends(&[("a", &a.url()), ("b", &b.url())])).await;
    let client = Modern::new(gateway.mcp()).able(json!({ "elicitation": {}, "roots": {} }));
    for (name, backend) in [("a__t", &a), ("b__t", &b)] {
        let ask = client.request("tools/call", json!({ "name": name, "arguments": {} })).header("mcp-session-id", "x");
        assert_eq!(first_text(&ask.meta("com.example/k", json!(1)).answer().await.result()), "t");
        let seen = backend.seen_of("tools/call").pop().expect("it was called");
        assert_eq!((seen.header("mcp-name"), seen.header("mcp-method")), (Some("t"), Some("tools/call")));
        assert_eq!((seen.header("mcp-protocol-version"), seen.header("mcp-session-id")), (Some(REVISION), None));
        let meta = &seen.params()["_meta"];
        assert_eq!((&meta[VERSION], &meta["com.example/k"]), (&json!(REVISION), &json!(1)), "{meta}");
        assert!(meta[CAPABILITIES]["elicitation"].is_object() && meta[CAPABILITIES]["roots"].is_object(), "{meta}");
        assert!(meta[CAPABILITIES]["sampling"].is_null(), "{meta}");
    }
    assert!(a.seen_of("initialize").is_empty() && a.seen_of("GET").is_empty() && a.seen_of("DELETE").is_empty());
    gateway.stop().await;
}

#[tokio::test]
async fn a_call_and_its_result_pass_as_bytes() {
    let wrap = |call: Call| async move {
        let payload = call.seen.arguments_raw().to_owned();
        call.result(&format!(
            r#"{{"vendor":{payload},"content":[],"structuredContent":{payload},"resultType":"complete","_meta":{{"a":{payload}}}}}"#
        ));
    };
    let (backend, gateway, client) = one(modern("b", &[TOOL], OWN).on("tools/call", wrap)).await;
    for payload in [
        r#"{"n":123456789012345678901234567890,"f":1e400,"z":1.0,"a":2,"z":3}"#,
        r#"{"s":"\ud800","u":"\u0041\/","t":"日本語 🎉"}"#,
        "{ \"white\" :\t[ 1 , { } ] }",
    ] {
        let answer =
            client.request_raw("tools/call", &format!(r#"{{"x":{payload},"arguments":{payload},"name":"t"}}"#)).id("1.0").answer().await;
        let seen = backend.seen_of("tools/call").pop().expect("the backend was called");
        assert_eq!((seen.arguments_raw(), member(seen.params_raw(), "x")), (payload, Some(payload)));
        let whole = format!(
            r#"{{"vendor":{payload},"content":[],"structuredContent":{payload},"resultType":"complete","_meta":{{"a":{payload}}}}}"#
        );
        assert_eq!((answer.id_raw(), answer.result_raw()), ("1.0", whole.as_str()));
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_structured_result_may_be_any_value() {
    for value in ["[1,2]", "\"text\"", "1.0", "null", "true"] {
        let result = format!(r#"{{"resultType":"complete","content":[],"structuredContent":{value}}}"#);
        let (_backend, gateway, client) = one(modern("b", &[TOOL], OWN).result("tools/call", &result)).await;
        let answer = client.request("tools/call", json!({ "name": "t", "arguments": {} })).answer().await;
        assert_eq!(answer.result_raw(), result);
        gateway.stop().await;
    }
}

#[tokio::test]
async fn parameter_headers_are_made_for_the_backend_and_unknown_ones_go_on() {
    let tool = r#"{"name":"t","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"},"count":{"type":"integer","x-mcp-header":"Count"}}}}"#;
    // Strict, as the revision has it: a header that is missing is an error, and nothing is run.
    let script = |call: Call| async move {
        let arguments: Value = serde_json::from_str(call.seen.arguments_raw()).expect("arguments");
        let missing = |name: &str, header: &str| !arguments[name].is_null() && call.seen.header(header).is_none();
        if missing("region", "mcp-param-region") || missing("count", "mcp-param-count") {
            let error = raw::error(&call.id(), -32020, "a header is missing");
            call.http(400, &[("content-type", "application/json")], error);
        } else {
            call.result(r#"{"resultType":"complete","content":[]}"#);
        }
    };
    let (backend, gateway, client) = one(modern("b", &[tool], OWN).on("tools/call", script)).await;
    let ask = |arguments: Value| client.request("tools/call", json!({ "name": "t", "arguments": arguments }));
    let header = |name: &str| backend.seen_of("tools/call").pop().and_then(|seen| seen.header(name).map(str::to_owned));
    ask(json!({ "region": "eu" })).header("mcp-param-region", &sentinel("eu")).answer().await.result();
    assert_eq!(header("mcp-param-region").as_deref(), Some("eu"));
    ask(json!({ "region": "日本" })).header("mcp-param-region", &encoded("日本")).answer().await.result();
    assert_eq!(header("mcp-param-region"), Some(encoded("日本")));
    ask(json!({ "count": 7 })).header("mcp-param-count", "7.0").header("mcp-param-other", "kept").answer().await.result();
    assert_eq!(header("mcp-param-count").as_deref(), Some("7"));
    assert_eq!(header("mcp-param-other").as_deref(), Some("kept"));
    // As they came, as often as they came, and no others.
    let odd = ask(json!({})).header("mcp-param-odd", "=?base64?***?=").another_header("mcp-param-odd", "a b").header("x-mcp-param-no", "x");
    odd.header("mcp-params", "x").answer().await.result();
    let seen = backend.seen_of("tools/call").pop().expect("a call");
    let values: Vec<_> = seen.headers.get_all("mcp-param-odd").iter().map(|value| value.as_bytes()).collect();
    assert_eq!(values, ["=?base64?***?=".as_bytes(), &b"a b"[..]]);
    assert!(seen.headers.get("x-mcp-param-no").is_none() && seen.headers.get("mcp-params").is_none(), "{:?}", seen.headers);
    // What the list explains is held against the body, and never taken from the client.
    let calls = backend.seen_of("tools/call").len();
    ask(json!({ "region": "eu" })).header("mcp-param-region", "us").refused(400, -32020).await;
    ask(json!({ "region": "eu" })).refused(400, -32020).await;
    ask(json!({})).header("mcp-param-region", "us").refused(400, -32020).await;
    assert_eq!(backend.seen_of("tools/call").len(), calls, "nothing of that was run");
    gateway.stop().await;
}

#[tokio::test]
async fn tools_whose_header_annotations_are_wrong_are_left_out_and_it_is_said_why() {
    let bad = |name: &str, property: &str| format!(r#"{{"name":"{name}","inputSchema":{{"type":"object","properties":{{{property}}}}}}}"#);
    let tools = [
        bad("good", r#""a":{"type":"string","x-mcp-header":"A"}"#),
        bad("twice", r#""a":{"type":"string","x-mcp-header":"A"},"b":{"type":"string","x-mcp-header":"a"}"#),
        bad("object", r#""a":{"type":"object","x-mcp-header":"A"}"#),
        bad("number", r#""a":{"type":"number","x-mcp-header":"A"}"#),
        bad("empty", r#""a":{"type":"string","x-mcp-header":""}"#),
        bad("spaced", r#""a":{"type":"string","x-mcp-header":"A B"}"#),
        bad("typed", r#""a":{"type":"string","x-mcp-header":1}"#),
    ];
    let tools: Vec<_> = tools.iter().map(String::as_str).collect();
    let (_backend, gateway, client) = one(modern("b", &tools, OWN)).await;
    assert_eq!(client.names("tools/list", "tools").await, ["good"]);
    let log = gateway.log();
    assert!(log.lines().any(|line| line.contains("WARN") && line.contains("twice")), "{log}");
    gateway.stop().await;
}

#[tokio::test]
async fn a_merged_list_is_fresh_for_the_shortest_time_and_private_if_any_part_is() {
    for (hints, shared) in [
        ([r#""ttlMs":60000,"cacheScope":"public""#, r#""ttlMs":5000,"cacheScope":"private""#], "private"),
        ([r#""ttlMs":5000,"cacheScope":"public""#, r#""ttlMs":60000,"cacheScope":"public""#], "public"),
    ] {
        let (a, b) = (modern("a", &[TOOL], hints[0]).start().await, modern("b", &[TOOL], hints[1]).start().await);
        let gateway = Gateway::start(&http_backends(&[("a", &a.url()), ("b", &b.url())])).await;
        let client = Modern::new(gateway.mcp());
        for method in ["tools/list", "prompts/list", "resources/list", "resources/templates/list"] {
            let result = client.result(method, json!({})).await;
            assert_eq!(result["cacheScope"], shared, "{method}: {result}");
            assert!(result["ttlMs"].as_u64().is_some_and(|ttl| ttl <= 5000), "{method}: {result}");
        }
        let mut names = client.names("tools/list", "tools").await;
        names.sort();
        assert_eq!(names, ["a__t", "b__t"]);
        gateway.stop().await;
    }
}

#[tokio::test]
async fn a_list_with_a_legacy_part_is_private() {
    let (a, b) = (modern("a", &[TOOL], r#""ttlMs":60000,"cacheScope":"public""#).start().await, Backend::with_tools("b", &["t"]).await);
    let gateway = Gateway::start(&http_backends(&[("a", &a.url()), ("b", &b.url())])).await;
    let client = Modern::new(gateway.mcp());
    let result = client.result("tools/list", json!({})).await;
    assert_eq!((&result["cacheScope"], result["tools"].as_array().map(Vec::len)), (&json!("private"), Some(2)), "{result}");
    for (name, backend) in [("a__t", "a"), ("b__t", "b")] {
        assert_eq!(client.call(name, json!({})).await["structuredContent"]["backend"], backend);
    }
    let session = gateway.initialize().await;
    for (name, backend) in [("a__t", "a"), ("b__t", "b")] {
        assert_eq!(session.call(name, json!({})).await["structuredContent"]["backend"], backend);
    }
    gateway.stop().await;
}

/// Every time that the list is asked for, its only tool has another name.
fn counting(hint: &'static str) -> Builder {
    let count = Arc::new(AtomicUsize::new(0));
    modern("b", &[], hint).on("tools/list", move |call: Call| {
        let n = count.fetch_add(1, Ordering::SeqCst);
        async move {
            call.result(&format!(r#"{{"resultType":"complete","tools":[{{"name":"t{n}","inputSchema":{{"type":"object"}}}}],{hint}}}"#))
        }
    })
}

#[tokio::test]
async fn a_private_list_of_one_principal_is_never_served_to_another() {
    let backend = counting(r#""ttlMs":600000,"cacheScope":"private""#).start().await;
    let gateway = Gateway::start(&format!("{}{AUTH}", http_backends(&[("one", &backend.url())]))).await;
    let [x, y] = [TOKEN_X, TOKEN_Y].map(|token| Modern::new(gateway.mcp().with_bearer(token)));
    let (of_x, of_y) = (x.names("tools/list", "tools").await, y.names("tools/list", "tools").await);
    assert_ne!(of_x, of_y);
    assert_eq!(x.names("tools/list", "tools").await, of_x, "what is fresh is not asked for again");
    gateway.stop().await;
}

#[tokio::test]
async fn a_list_that_is_never_fresh_is_asked_for_each_time() {
    let (_backend, gateway, client) = one(counting(OWN)).await;
    let first = client.names("tools/list", "tools").await;
    let second = client.names("tools/list", "tools").await;
    assert_ne!(first, second);
    gateway.stop().await;
}

#[tokio::test]
async fn progress_and_wanted_log_messages_pass() {
    let script = |call: Call| async move {
        let (token, params) = (call.progress_token().expect("a token"), call.seen.params());
        let level = params["_meta"][LEVEL].as_str().unwrap_or("none").to_owned();
        let stream = call.stream();
        stream.notify("notifications/progress", &format!(r#"{{"progressToken":{token},"progress":1,"x":1.0}}"#)).await;
        stream.notify("notifications/message", r#"{"level":"error","data":1.0}"#).await;
        stream.answer(&format!(r#"{{"resultType":"complete","content":[{{"type":"text","text":"{level}"}}]}}"#)).await;
    };
    let (_backend, gateway, client) = one(modern("b", &[TOOL], OWN).on("tools/call", script)).await;
    let ask = || client.request("tools/call", json!({ "name": "t", "arguments": {} })).meta("progressToken", json!("p"));
    let loud = ask().meta(LEVEL, json!("warning")).answer().await;
    let notes: Vec<_> = loud.before.iter().filter(|event| event.is_message()).map(|event| event.text().to_owned()).collect();
    assert_eq!(member(&notes[0], "params"), Some(r#"{"progressToken":"p","progress":1,"x":1.0}"#));
    assert_eq!(member(&notes[1], "params"), Some(r#"{"level":"error","data":1.0}"#));
    assert_eq!(first_text(&loud.result()), "warning");
    let quiet = ask().answer().await;
    assert_eq!((quiet.messages().len(), first_text(&quiet.result())), (1, "none"), "a server that logs unasked is not heard");
    gateway.stop().await;
}

#[tokio::test]
async fn going_away_closes_the_stream_at_the_backend() {
    let script = |call: Call| async move {
        let stream = call.stream();
        stream.closed().await;
    };
    let (backend, gateway, client) = one(modern("b", &[TOOL], OWN).on("tools/call", script)).await;
    let caller = client.clone();
    let call = tokio::spawn(async move { caller.ask("tools/call", json!({ "name": "t", "arguments": {} })).await });
    backend.saw("tools/call", 1).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    call.abort();
    eventually("the end of the call at the backend", || (backend.abandoned() == 1).then_some(())).await;
    assert!(backend.seen_of("notifications/cancelled").is_empty(), "this era has no such notification over HTTP");
    gateway.stop().await;
}

const REQUIRED: &str = r#"{"resultType":"input_required","inputRequests":{"who":{"method":"elicitation/create","params":{"message":"\u0041?","requestedSchema":{"type":"object","properties":{}},"x":1.0}}},"requestState":"state \u0042 of the server"}"#;

/// Asks once; the retry gets its answers back.
async fn requires(call: Call) {
    let params = call.seen.params_raw().to_owned();
    match (member(&params, "inputResponses"), member(&params, "requestState")) {
        (Some(responses), Some(state)) => {
            call.result(&format!(
                r#"{{"resultType":"complete","content":[],"structuredContent":{{"responses":{responses},"state":{state}}}}}"#
            ));
        }
        _ => call.result(REQUIRED),
    }
}

#[tokio::test]
async fn questions_of_a_modern_server_pass_and_the_retry_is_what_it_would_have_been() {
    let (backend, gateway, client) = one(modern("b", &[TOOL], OWN).on("tools/call", requires)).await;
    let client = client.able(json!({ "elicitation": {} }));
    let first = client.request_raw("tools/call", r#"{"name":"t","arguments":{"k":1.0}}"#).answer().await;
    let result = first.result();
    assert_eq!(result["resultType"], "input_required", "{result}");
    assert_eq!(member(first.result_raw(), "inputRequests"), member(REQUIRED, "inputRequests"));
    let state = member(first.result_raw(), "requestState").expect("a state").to_owned();
    let given = r#"{"who":{"action":"accept","content":{"n":1.0}},"more":{}}"#;
    let retry = format!(r#"{{"name":"t","arguments":{{"k":1.0}},"inputResponses":{given},"requestState":{state}}}"#);
    let other = Modern::new(gateway.mcp()).able(json!({ "elicitation": {} })).on_one_connection().await;
    let answer = other.request_raw("tools/call", &retry).answer().await;
    let content = member(answer.result_raw(), "structuredContent").expect("it completed");
    assert_eq!(member(content, "responses"), Some(given));
    assert_eq!(answer.result()["structuredContent"]["state"], "state B of the server");
    let seen = backend.seen_of("tools/call");
    assert_eq!(seen.len(), 2);
    assert_eq!((seen[1].arguments_raw(), seen[1].header("mcp-name")), (r#"{"k":1.0}"#, Some("t")));
    gateway.stop().await;
}

#[tokio::test]
async fn a_state_of_a_modern_server_is_of_no_use_to_another_principal() {
    // To the server both are the gateway: it cannot tell them apart.
    let backend = modern("b", &[TOOL], OWN).on("tools/call", requires).start().await;
    let hosts = "virtual_hosts:\n  /mcp: { backends: [one] }\n  /other: { backends: [one] }\n";
    let gateway = Gateway::start(&format!("{}{AUTH}{hosts}", http_backends(&[("one", &backend.url())]))).await;
    let client = |path: &str, token: &str| Modern::new(gateway.at(path).with_bearer(token)).able(json!({ "elicitation": {} }));
    let params = json!({ "name": "t", "arguments": {} });
    let state = client("/mcp", TOKEN_X).result("tools/call", params.clone()).await["requestState"].clone();
    let retry = json!({ "name": "t", "arguments": {}, "requestState": state, "inputResponses": { "who": { "action": "decline" } } });
    for foreign in [client("/mcp", TOKEN_Y), client("/other", TOKEN_X)] {
        let error = foreign.error("tools/call", retry.clone()).await;
        assert_eq!(error["code"], -32602, "{error}");
    }
    assert_eq!(backend.seen_of("tools/call").len(), 1, "the server did not see it");
    let result = client("/mcp", TOKEN_X).result("tools/call", retry).await;
    assert_eq!(result["resultType"], "complete", "{result}");
    gateway.stop().await;
}

#[tokio::test]
async fn what_a_server_needs_of_its_client_is_said_with_400() {
    let script = |call: Call| async move {
        let error = r#"{"code":-32021,"message":"no","data":{"requiredCapabilities":{"sampling":{}}}}"#;
        let body = format!(r#"{{"jsonrpc":"2.0","id":{},"error":{error}}}"#, call.id());
        call.http(400, &[("content-type", "application/json")], body);
    };
    let (_backend, gateway, client) = one(modern("b", &[TOOL], OWN).on("tools/call", script)).await;
    let error = client.request("tools/call", json!({ "name": "t", "arguments": {} })).refused(400, -32021).await;
    assert_eq!(error["data"]["requiredCapabilities"], json!({ "sampling": {} }));
    gateway.stop().await;
}

#[tokio::test]
async fn discover_is_merged_from_both_eras() {
    let (a, b) = (
        modern("a", &[TOOL], r#""ttlMs":1000,"cacheScope":"public""#).start().await,
        Backend::builder("b").tool("t").instructions("Mind.").start().await,
    );
    let gateway = Gateway::start(&http_backends(&[("a", &a.url()), ("b", &b.url())])).await;
    let result = Modern::new(gateway.mcp()).result("server/discover", json!({})).await;
    assert!(result["ttlMs"].as_u64().is_some_and(|ttl| ttl <= 1000), "{result}");
    for text in ["This is a.", "Mind."] {
        assert!(result["instructions"].as_str().is_some_and(|all| all.contains(text)), "{result}");
    }
    assert!(result["capabilities"]["completions"].is_object() && result["capabilities"]["tools"].is_object(), "{result}");
    gateway.stop().await;
}

// --- subscriptions/listen

/// Serves `subscriptions/listen`: acknowledges what it is asked, then says at once that the tools and every resource have changed.
async fn listens(call: Call) {
    let (id, params) = (call.id(), call.seen.params());
    let stream = call.stream();
    let tag = format!(r#""_meta":{{"{SUBSCRIPTION}":{id}}}"#);
    let wanted = &params["notifications"];
    stream.notify("notifications/subscriptions/acknowledged", &format!(r#"{{"notifications":{wanted},{tag}}}"#)).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    if wanted["toolsListChanged"] == true {
        stream.notify("notifications/tools/list_changed", &format!("{{{tag}}}")).await;
    }
    for uri in wanted["resourceSubscriptions"].as_array().into_iter().flatten() {
        stream.notify("notifications/resources/updated", &format!(r#"{{"uri":{uri},"x":1.0,{tag}}}"#)).await;
    }
    stream.closed().await;
}

#[tokio::test]
async fn a_listen_is_fanned_out_and_comes_back_as_one() {
    let with = |name: &str| modern(name, &[TOOL], OWN).on("subscriptions/listen", listens);
    let (a, b) = (with("a").start().await, with("b").start().await);
    let gateway = Gateway::start(&http_backends(&[("a", &a.url()), ("b", &b.url())])).await;
    let client = Modern::new(gateway.mcp());
    client.names("resources/list", "resources").await;
    let wanted = json!({ "toolsListChanged": true, "resourceSubscriptions": ["lockgate://a/x://r", "only://b"] });
    let (acknowledged, mut events) = client.listen("\"mine\"", wanted.clone()).await;
    assert_eq!(acknowledged["resourceSubscriptions"], wanted["resourceSubscriptions"], "{acknowledged}");
    let mut heard = Vec::new();
    while heard.len() < 2 {
        let message = events.message().await.expect("a notification").json();
        assert_eq!(subscription(&message), "\"mine\"", "{message}");
        assert_ne!(message["method"], "notifications/subscriptions/acknowledged", "once is enough");
        if message["method"] == "notifications/resources/updated" {
            heard.push(message["params"]["uri"].clone());
        }
    }
    heard.sort_by_key(Value::to_string);
    assert_eq!(heard, ["lockgate://a/x://r", "only://b"]);
    drop(events);
    for backend in [&a, &b] {
        eventually("the end of the listen at the backend", || (backend.abandoned() > 0).then_some(())).await;
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_backend_that_never_acknowledges_does_not_hold_the_listen_up() {
    let good = modern("good", &[TOOL], OWN).on("subscriptions/listen", listens).start().await;
    let mute = modern("mute", &[TOOL], OWN).on("subscriptions/listen", |call: Call| call.hang()).start().await;
    let yaml = format!(
        "{}limits: {{ list_timeout: 2s, initialize_timeout: 2s }}\n",
        http_backends(&[("good", &good.url()), ("mute", &mute.url())])
    );
    let gateway = Gateway::start(&yaml).await;
    let start = std::time::Instant::now();
    let (_, mut events) = Modern::new(gateway.mcp()).listen("1", json!({ "toolsListChanged": true })).await;
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    events.method("notifications/tools/list_changed").await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_listen_outlives_the_end_of_a_backends_own() {
    // Ends after its first notification, with a result, as a server does that restarts.
    let ends = |call: Call| async move {
        let (id, wanted) = (call.id(), call.seen.params()["notifications"].clone());
        let stream = call.stream();
        let tag = format!(r#""_meta":{{"{SUBSCRIPTION}":{id}}}"#);
        stream.notify("notifications/subscriptions/acknowledged", &format!(r#"{{"notifications":{wanted},{tag}}}"#)).await;
        stream.notify("notifications/tools/list_changed", &format!("{{{tag}}}")).await;
        stream.answer(r#"{"resultType":"complete"}"#).await;
    };
    let (backend, gateway, client) = one(modern("b", &[TOOL], OWN).on("subscriptions/listen", ends)).await;
    let (_, mut events) = client.listen("1", json!({ "toolsListChanged": true })).await;
    events.method("notifications/tools/list_changed").await;
    backend.saw("subscriptions/listen", 2).await;
    events.method("notifications/tools/list_changed").await;
    gateway.stop().await;
}

#[tokio::test]
async fn notifications_that_nobody_asked_for_go_no_further() {
    let script = |call: Call| async move {
        let (id, wanted) = (call.id(), call.seen.params()["notifications"].clone());
        let stream = call.stream();
        let tag = format!(r#""_meta":{{"{SUBSCRIPTION}":{id}}}"#);
        stream.notify("notifications/subscriptions/acknowledged", &format!(r#"{{"notifications":{wanted},{tag}}}"#)).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        stream.notify("notifications/prompts/list_changed", &format!("{{{tag}}}")).await;
        stream.notify("notifications/resources/updated", &format!(r#"{{"uri":"x://r",{tag}}}"#)).await;
        stream.notify("notifications/message", r#"{"level":"error","data":1}"#).await;
        stream.notify("notifications/tools/list_changed", &format!(r#"{{"_meta":{{"{SUBSCRIPTION}":"of nobody"}}}}"#)).await;
        stream.closed().await;
    };
    let (_backend, gateway, client) = one(modern("b", &[TOOL], OWN).on("subscriptions/listen", script)).await;
    let (_, mut events) = client.listen("1", json!({ "resourceSubscriptions": ["only://b"] })).await;
    events.quiet_for(QUIET * 2).await;
    gateway.stop().await;
}

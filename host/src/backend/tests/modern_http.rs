//! Servers of 2026-07-28 over HTTP, on raw sockets.

use super::*;
use crate::protocol::codes;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const V: &str = "2026-07-28";
const META: &str = "io.modelcontextprotocol/";
const DISCOVER: &str = r#"{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true},"resources":{"subscribe":true},"logging":{}},"instructions":"do","ttlMs":60000,"cacheScope":"public","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","zz":1.0}}}"#;

async fn fail(x: &mut Exchange, status: u16, code: i64, data: &str) {
    let body = format!(r#"{{"jsonrpc":"2.0","id":{},"error":{{"code":{code},"message":"no"{data}}}}}"#, x.seen.id());
    x.reply(status, "content-type: application/json\r\n", &body).await;
}

async fn acknowledge(x: &mut Exchange) {
    let (id, filter) = (x.seen.id(), x.seen.json()["params"]["notifications"].clone());
    x.stream().await;
    x.event(None, &format!(r#"{{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{{"notifications":{filter},"_meta":{{"{META}subscriptionId":{id}}}}}}}"#)).await;
}

/// What a server of this revision does with what it does not want, and with the usual. True when it was one of these.
async fn modern(x: &mut Exchange) -> bool {
    let (message, method) = (x.seen.json(), x.seen.method());
    let meta = &message["params"]["_meta"];
    if x.seen.verb != "POST" {
        x.reply(405, "allow: POST\r\n", "").await;
    } else if method == "initialize" {
        fail(x, 404, -32601, "").await;
    } else if x.seen.header("mcp-protocol-version") != Some(V)
        || meta[format!("{META}protocolVersion")] != V
        || x.seen.header("mcp-method") != Some(&*method)
        || x.seen.header("mcp-session-id").is_some()
    {
        fail(x, 400, -32020, "").await;
    } else if !meta[format!("{META}clientCapabilities")].is_object() {
        fail(x, 400, -32602, "").await;
    } else if method == "server/discover" {
        x.result(DISCOVER).await;
    } else if method == "subscriptions/listen" {
        acknowledge(x).await;
        x.hold().await;
    } else {
        return false;
    }
    true
}

fn backend(server: &Server) -> Backend {
    http_backend(&server.url(), HttpTransport::Auto)
}

fn simple(method: &str, params: &str) -> Outbound {
    outbound(&format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#))
}

async fn note(inbox: &mut mpsc::Receiver<FromServer>) -> Value {
    loop {
        match received(inbox).await {
            FromServer::Notification(note) => return serde_json::from_slice(&note.raw).unwrap(),
            FromServer::Up(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

async fn subscribe(up: &Arc<Upstream>, uri: &str) {
    assert_eq!(run(up, simple("resources/subscribe", &format!(r#"{{"uri":"{uri}"}}"#))).await.unwrap(), "{}");
}

#[tokio::test]
async fn the_era_is_found_once_for_all_sessions_and_every_request_says_all_of_itself() {
    let server = Server::start(|x| {
        Box::pin(async move {
            if !modern(x).await {
                x.result(r#"{"resultType":"complete","content":[]}"#).await;
            }
        })
    })
    .await;
    let mut backend = backend(&server);
    if let Target::Http { headers, .. } = &mut backend.target {
        headers.insert("x-key", "secret".parse().unwrap());
        headers.insert("mcp-name", "configured".parse().unwrap());
        headers.insert("mcp-param-a", "configured".parse().unwrap());
    }
    let (first, _inbox) = open(backend.clone());
    let hello = first.ready(LONG).await.unwrap();
    assert_eq!((hello.version, hello.instructions.as_deref()), (Version::V2026_07_28, Some("do")));
    assert_eq!(hello.server_info, r#"{"name":"s","zz":1.0}"#);
    first.listen();
    let (second, _inbox) = open(backend.clone());
    second.ready(LONG).await.unwrap();
    run(&second, tool("tö")).await.unwrap();
    run(&second, simple("resources/read", r#"{"uri":"file:///a b"}"#)).await.unwrap();
    run(&second, simple("ping", "{}")).await.unwrap();
    second.notify(codes::notification("notifications/roots/list_changed", None)).await.unwrap();
    server.until(|s| s.with("subscriptions/listen").len() == 2).await;
    assert_eq!((server.with("initialize").len(), server.with("server/discover").len()), (1, 2));
    assert_eq!(backend.known.eras(), Eras { legacy: Some(false), modern: Some(true) });
    let calls = server.with("tools/call");
    assert_eq!(calls[0].header("mcp-name"), Some("=?base64?dMO2?="));
    assert_eq!(calls[0].header("x-key"), Some("secret"));
    assert_eq!(calls[0].header("mcp-param-a"), None);
    let message = calls[0].json();
    assert_eq!(message["params"]["_meta"]["progressToken"], message["id"]);
    assert_eq!(message["params"]["_meta"][format!("{META}clientInfo")], json!({ "name": "c", "version": "1" }));
    assert_eq!(message["params"]["_meta"][format!("{META}clientCapabilities")], json!({ "roots": { "zz": 1.0 } }));
    assert_eq!(server.with("resources/read")[0].header("mcp-name"), Some("file:///a b"));
    assert_eq!(server.with("server/discover")[1].header("mcp-name"), None);
    first.close(LONG).await;
    second.close(LONG).await;
    let methods: std::collections::BTreeSet<_> = server.log.lock().unwrap().iter().map(|s| format!("{} {}", s.verb, s.method())).collect();
    let want = ["POST initialize", "POST resources/read", "POST server/discover", "POST subscriptions/listen", "POST tools/call"];
    assert!(methods.iter().eq(want), "{methods:?}");
}

#[tokio::test]
async fn what_comes_with_an_answer_comes_in_order_and_at_the_level_that_was_set() {
    let server = Server::start(|x| {
        Box::pin(async move {
            if modern(x).await {
                return;
            }
            let (id, level) = (x.seen.id(), x.seen.json()["params"]["_meta"][format!("{META}logLevel")].clone());
            x.stream().await;
            x.raw(": alive\n\n").await;
            for n in 0..3 {
                x.event(
                    None,
                    &format!(r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{id},"progress":{n}}}}}"#),
                )
                .await;
                x.event(None, &format!(r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"level":{level},"data":{n}}}}}"#))
                    .await;
            }
            x.event(None, r#"{"jsonrpc":"2.0","id":5,"method":"ping"}"#).await;
            x.event(None, &format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"resultType":"complete","content":[1.0]}}}}"#)).await;
        })
    })
    .await;
    let (up, _inbox) = open(backend(&server));
    run(&up, simple("logging/setLevel", r#"{"level":"debug"}"#)).await.unwrap();
    let mut call = call(&up, "t").await;
    for n in 0..3 {
        let CallEvent::Progress { message, token_at } = next(&mut call).await else { panic!("no progress") };
        assert_eq!(&message.raw[token_at], call.id().to_string().as_bytes());
        let CallEvent::Notification(message) = next(&mut call).await else { panic!("no message") };
        assert_eq!(serde_json::from_slice::<Value>(&message.raw).unwrap()["params"], json!({ "level": "debug", "data": n }));
    }
    assert_eq!(end(&mut call).await.unwrap(), r#"{"resultType":"complete","content":[1.0]}"#);
    assert!(server.log.lock().unwrap().iter().all(|s| !s.method().is_empty()), "something was answered");
    up.close(LONG).await;
}

#[tokio::test]
async fn questions_are_put_to_the_client_and_the_request_is_sent_again_under_another_id() {
    let server = Server::start(|x| {
        Box::pin(async move {
            if modern(x).await {
                return;
            }
            let params = x.seen.json()["params"].clone();
            match params.get("inputResponses") {
                None => {
                    x.result(r#"{"resultType":"input_required","requestState":"s","inputRequests":{"r":{"method":"roots/list"}}}"#).await
                }
                Some(answers) => {
                    x.result(&format!(r#"{{"resultType":"complete","got":{answers},"state":{}}}"#, params["requestState"])).await
                }
            }
        })
    })
    .await;
    let (up, _inbox) = open(backend(&server));
    let mut call = call(&up, "t").await;
    let question = request(next(&mut call).await);
    assert_eq!(&*question.method, "roots/list");
    up.respond(codes::result(&question.id, r#"{"roots":[]}"#)).await.unwrap();
    let result: Value = serde_json::from_str(&end(&mut call).await.unwrap()).unwrap();
    assert_eq!((&result["got"], &result["state"]), (&json!({ "r": { "roots": [] } }), &json!("s")));
    let calls = server.with("tools/call");
    assert_eq!(calls.len(), 2);
    assert!(calls[0].id() != calls[1].id() && calls.iter().all(|c| c.header("mcp-name") == Some("t")));
    up.close(LONG).await;
}

#[tokio::test]
async fn to_cancel_is_to_close_the_response_and_a_broken_one_is_not_resumed() {
    let closed = Arc::new(AtomicUsize::new(0));
    let count = closed.clone();
    let server = Server::start(move |x| {
        let closed = count.clone();
        Box::pin(async move {
            if modern(x).await {
                return;
            }
            x.stream().await;
            x.event(Some("e1"), r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}"#).await;
            if x.seen.header("mcp-name") == Some("hang") {
                x.hold().await;
                closed.fetch_add(1, Ordering::SeqCst);
            }
        })
    })
    .await;
    let (up, _inbox) = open(backend(&server));
    let mut hanging = call(&up, "hang").await;
    next(&mut hanging).await;
    hanging.cancel(None).await;
    server.until(|_| closed.load(Ordering::SeqCst) == 1).await;
    let mut broken = call(&up, "break").await;
    next(&mut broken).await;
    let error = end(&mut broken).await.unwrap_err();
    assert!(matches!(error, BackendError::Broken { .. }), "{error}");
    assert!(server.with("notifications/cancelled").is_empty() && server.verbs("GET").is_empty());
    assert_eq!(server.with("tools/call").len(), 2);
    up.close(LONG).await;
}

#[tokio::test]
async fn one_subscription_stands_for_all_that_changes_and_is_kept_open() {
    let listens = Arc::new(AtomicUsize::new(0));
    let count = listens.clone();
    let server = Server::start(move |x| {
        let listens = count.clone();
        Box::pin(async move {
            if x.seen.method() != "subscriptions/listen" {
                modern(x).await;
                return;
            }
            let id = x.seen.id();
            acknowledge(x).await;
            let tag = format!(r#""_meta":{{"{META}subscriptionId":{id}}}"#);
            x.event(None, &format!(r#"{{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{{{tag}}}}}"#)).await;
            match listens.fetch_add(1, Ordering::SeqCst) {
                1 => {
                    x.event(
                        None,
                        &format!(r#"{{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{{"uri":"a:1",{tag}}}}}"#),
                    )
                    .await;
                    x.raw(":\r\n\r\n").await;
                    x.event(None, &format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"resultType":"complete"}}}}"#)).await;
                }
                2 => {
                    x.event(None, &format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#))
                        .await;
                }
                _ => x.hold().await,
            }
        })
    })
    .await;
    let (up, mut inbox) = open(backend(&server));
    let plain = json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" });
    assert_eq!(note(&mut inbox).await["method"], plain["method"]);
    subscribe(&up, "a:1").await;
    assert_eq!(note(&mut inbox).await["method"], plain["method"]);
    assert_eq!(note(&mut inbox).await["params"], json!({ "uri": "a:1" }));
    server.until(|s| s.with("subscriptions/listen").len() == 4).await;
    let seen = server.with("subscriptions/listen");
    assert_eq!(seen[0].json()["params"]["notifications"], json!({ "toolsListChanged": true }));
    for later in &seen[1..] {
        assert_eq!(later.json()["params"]["notifications"], json!({ "toolsListChanged": true, "resourceSubscriptions": ["a:1"] }));
    }
    up.close(LONG).await;
    assert!(server.with("notifications/cancelled").is_empty());
}

#[tokio::test]
async fn public_lists_are_shared_private_ones_are_not_and_a_change_ends_both() {
    let changed = Arc::new(tokio::sync::Notify::new());
    let change = changed.clone();
    let server = Server::start(move |x| {
        let changed = change.clone();
        Box::pin(async move {
            match &*x.seen.method() {
                "subscriptions/listen" => {
                    let id = x.seen.id();
                    acknowledge(x).await;
                    changed.notified().await;
                    x.event(None, &format!(r#"{{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{{"_meta":{{"{META}subscriptionId":{id}}}}}}}"#)).await;
                    x.hold().await;
                }
                "tools/list" => x.result(r#"{"resultType":"complete","tools":[],"ttlMs":60000,"cacheScope":"public"}"#).await,
                "resources/list" => x.result(r#"{"resultType":"complete","resources":[],"ttlMs":60000,"cacheScope":"private"}"#).await,
                "prompts/list" => x.result(r#"{"resultType":"complete","prompts":[],"ttlMs":0,"cacheScope":"public"}"#).await,
                _ => drop(modern(x).await),
            }
        })
    })
    .await;
    let backend = backend(&server);
    let (first, mut inbox) = open(backend.clone());
    let (second, _inbox) = open(backend);
    for _ in 0..2 {
        for up in [&first, &second] {
            for list in ["tools/list", "resources/list", "prompts/list"] {
                let mut call = up.call(simple(list, "{}"), LONG).await.unwrap();
                let CallEvent::Answer(answer) = next(&mut call).await else { panic!("{list}") };
                let text = answer.rewritten(&RequestId::number(7), Edits::new()).into_bytes();
                assert!(!text.windows(5).any(|w| w == b"ttlMs") && text.starts_with(br#"{"jsonrpc":"2.0","id":7"#), "{text:?}");
            }
        }
    }
    let counts = |s: &Server| ["tools/list", "resources/list", "prompts/list"].map(|list| s.with(list).len());
    assert_eq!(counts(&server), [1, 2, 4]);
    run(&first, simple("tools/list", r#"{"cursor":"c"}"#)).await.unwrap();
    assert_eq!(counts(&server), [2, 2, 4]);
    server.until(|s| s.with("subscriptions/listen").len() == 2).await;
    changed.notify_waiters();
    assert_eq!(note(&mut inbox).await["method"], "notifications/tools/list_changed");
    run(&first, simple("tools/list", "{}")).await.unwrap();
    assert_eq!(counts(&server), [3, 2, 4]);
    first.close(LONG).await;
    second.close(LONG).await;
}

#[tokio::test]
async fn arguments_are_repeated_in_headers_and_a_tool_that_asks_for_nonsense_is_left_out() {
    let newer = Arc::new(AtomicBool::new(false));
    let is_newer = newer.clone();
    let server = Server::start(move |x| {
        let newer = is_newer.clone();
        Box::pin(async move {
            let header = if newer.load(Ordering::SeqCst) { "Zone" } else { "Region" };
            if modern(x).await {
            } else if x.seen.method() == "tools/list" {
                let good = format!(r#"{{"name":"t","inputSchema":{{"type":"object","properties":{{"r":{{"type":"string","x-mcp-header":"{header}"}},"n":{{"type":"integer","x-mcp-header":"N"}}}}}}}}"#);
                let bad = r#"{"name":"bad","inputSchema":{"type":"object","properties":{"r":{"type":"number","x-mcp-header":"R"}}}}"#;
                x.result(&format!(r#"{{"resultType":"complete","tools":[{bad} , {good},{{"name":"u"}},{bad}],"ttlMs":60000,"cacheScope":"public"}}"#)).await;
            } else if x.seen.header(&format!("mcp-param-{}", header.to_lowercase())) != Some("=?base64?w7w=?=") || x.seen.header("mcp-param-n") != Some("7") {
                fail(x, 400, -32020, "").await;
            } else {
                x.result(r#"{"resultType":"complete","done":true}"#).await;
            }
        })
    })
    .await;
    let (up, _inbox) = open(backend(&server));
    let out = || simple("tools/call", r#"{"name":"t","arguments":{"r":"ü","n":7.0}}"#);
    // Never listed yet: found out when the server misses a header.
    assert!(run(&up, out()).await.unwrap().contains("done"));
    let listed: Value = serde_json::from_str(&run(&up, simple("tools/list", "{}")).await.unwrap()).unwrap();
    let names: Vec<_> = listed["tools"].as_array().unwrap().iter().map(|t| t["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["t", "u"]);
    assert!(run(&up, out()).await.unwrap().contains("done"));
    assert_eq!(server.with("tools/call").len(), 3);
    newer.store(true, Ordering::SeqCst);
    assert!(run(&up, out()).await.unwrap().contains("done"));
    // What stays wrong is the hop's fault, not the client's.
    let error = run(&up, simple("tools/call", r#"{"name":"t","arguments":{"r":"ü"}}"#)).await.unwrap_err();
    assert_eq!(error.to_rpc().code, codes::BACKEND_PROTOCOL);
    up.close(LONG).await;
}

#[tokio::test]
async fn a_server_of_both_eras_is_spoken_to_in_the_clients() {
    let server = Server::start(|x| {
        Box::pin(async move {
            if x.seen.header("mcp-protocol-version") == Some(V) {
                modern(x).await;
            } else if !usual(x, "s").await {
                x.result("{}").await;
            }
        })
    })
    .await;
    let backend = backend(&server);
    let (older, _inbox) = open(backend.clone());
    assert_eq!(older.ready(LONG).await.unwrap().version, Version::V2025_11_25);
    assert!(server.with("server/discover").is_empty());
    let (inbox, _received) = inbox();
    let newer = Upstream::open(
        Arc::new(backend.clone()),
        Arc::new(Hello { version: Version::V2026_07_28, modern: true, ..(*hello()).clone() }),
        inbox,
        None,
    );
    assert_eq!(newer.ready(LONG).await.unwrap().version, Version::V2026_07_28);
    assert_eq!(backend.known.eras(), Eras { legacy: Some(true), modern: Some(true) });
    older.close(LONG).await;
    newer.close(LONG).await;
}

#[tokio::test]
async fn a_server_that_changes_its_era_is_asked_anew_and_the_call_is_run_once() {
    let (is_modern, runs) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
    let shared = (is_modern.clone(), runs.clone());
    let server = Server::start(move |x| {
        let (is_modern, runs) = shared.clone();
        Box::pin(async move {
            let done = if is_modern.load(Ordering::SeqCst) {
                modern(x).await
            } else if x.seen.header("mcp-session-id").is_none() && x.seen.method() != "initialize" && x.seen.verb == "POST" {
                x.reply(
                    400,
                    "content-type: application/json\r\n",
                    r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Bad Request: Mcp-Session-Id header is required"}}"#,
                )
                .await;
                true
            } else {
                usual(x, "s").await
            };
            if !done {
                runs.fetch_add(1, Ordering::SeqCst);
                x.result("{}").await;
            }
        })
    })
    .await;
    let backend = backend(&server);
    let (up, _inbox) = open(backend.clone());
    run(&up, tool("t")).await.unwrap();
    for (now, version) in [(false, Version::V2025_11_25), (true, Version::V2026_07_28)] {
        is_modern.store(now, Ordering::SeqCst);
        // What was found out a moment ago is believed.
        assert_ne!(run(&up, tool("t")).await.ok().as_deref(), Some("{}"));
        tokio::time::sleep(Duration::from_millis(5100)).await;
        let outcome = run(&up, tool("t")).await;
        match now {
            false => assert_eq!(outcome.unwrap(), "{}"),
            // The bridge is another: it is said that nothing was run.
            true => assert_eq!(outcome.unwrap_err().fate(), Fate::NotRun),
        }
        assert_eq!(run(&up, tool("t")).await.unwrap(), "{}");
        assert_eq!(up.ready(LONG).await.unwrap().version, version);
    }
    assert_eq!(runs.load(Ordering::SeqCst), 4);
    up.close(LONG).await;
}

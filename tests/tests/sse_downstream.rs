//! Clients of HTTP+SSE, the transport of 2024-11-05.

use std::{collections::HashSet, time::Duration};

use lockgate_tests::{
    backend::{Backend, Call},
    client::Endpoint,
    eventually,
    gateway::{Gateway, http_backends},
    raw,
    sse_client::{SseSession, open, open_unread, post},
    within,
};
use serde_json::{Value, json};

async fn setup(more: &str) -> (Backend, Gateway) {
    let script = |call: Call| async move {
        let arguments: Value = serde_json::from_str(call.seen.arguments_raw()).unwrap_or_default();
        match call.target().as_str() {
            "big" => call.result(&raw::text(&"x".repeat(200_000))),
            "steps" => {
                let token = call.progress_token().unwrap_or_else(|| "0".to_owned());
                let stream = call.stream();
                for step in 1..=3 {
                    stream.notify("notifications/progress", &format!(r#"{{"progressToken":{token},"progress":{step}}}"#)).await;
                }
                stream.answer(&raw::text("done")).await;
            }
            _ => call.result(&raw::text(arguments["key"].as_str().unwrap_or("t"))),
        }
    };
    let backend = Backend::builder("b").tool("t").tool("big").tool("steps").on("tools/call", script).start().await;
    let gateway = Gateway::start(&format!("{}{more}", http_backends(&[("one", &backend.url())]))).await;
    (backend, gateway)
}

fn call(tool: &str, key: &str) -> Value {
    json!({ "name": tool, "arguments": { "key": key } })
}

#[tokio::test]
async fn a_session_is_opened_used_and_ends_with_its_stream() {
    let (backend, gateway) = setup("").await;
    for path in ["/sse", "/mcp/sse"] {
        let mut session = SseSession::open(&gateway.at(path)).await;
        assert_eq!(session.init["result"]["protocolVersion"], "2024-11-05");
        assert!(session.messages.path.starts_with("/mcp/messages?"), "{}", session.messages.path);
        let tools = session.ask("1", "tools/list", &json!({})).await;
        assert_eq!(tools["result"]["tools"].as_array().map(Vec::len), Some(3));
        let answer = session.ask("\"a\"", "tools/call", &call("t", "k")).await;
        assert_eq!(raw::first_text(&answer["result"]), "k");
        assert_eq!(session.ask("2", "ping", &json!({})).await["result"], json!({}));
        backend.has_sessions(1).await;
        drop(session);
        backend.has_sessions(0).await;
    }
    gateway.stop().await;
}

#[tokio::test]
async fn progress_comes_before_its_answer_and_changes_come_too() {
    let (backend, gateway) = setup("").await;
    let mut session = SseSession::open(&gateway.at("/sse")).await;
    let params = json!({ "name": "steps", "_meta": { "progressToken": "mine" } });
    assert_eq!(session.post(raw::request("5", "tools/call", &params.to_string())).await.status, 202);
    let mut steps = Vec::new();
    loop {
        let message = session.events.message().await.expect("it goes on").json();
        if message["id"] == 5 {
            break;
        }
        assert_eq!(message["params"]["progressToken"], "mine");
        steps.push(message["params"]["progress"].as_u64());
    }
    assert_eq!(steps, [Some(1), Some(2), Some(3)]);
    let upstream = backend.sessions().remove(0);
    backend.push(&upstream, &raw::notification("notifications/tools/list_changed", "{}")).await;
    session.events.method("notifications/tools/list_changed").await;
    gateway.stop().await;
}

#[tokio::test]
async fn what_belongs_to_no_stream_or_to_another_principal_is_refused() {
    let tokens = "auth: { tokens: [{ principal: ann, token: token-of-ann-0001 }, { principal: bob, token: token-of-bob-0001 }] }\n";
    let (_backend, gateway) = setup(tokens).await;
    let ann = gateway.at("/sse").with_bearer("token-of-ann-0001");
    assert_eq!(gateway.at("/sse").send("GET", &[], "").await.status, 401);
    let session = SseSession::open(&ann).await;
    let ping = || raw::request("1", "ping", "{}");
    let foreign = Endpoint { headers: vec![], ..session.messages.clone() }.with_bearer("token-of-bob-0001");
    let unknown = Endpoint { path: "/mcp/messages?session=nobody".into(), ..session.messages.clone() };
    let (foreign, unknown) = (post(&foreign, ping()).await, post(&unknown, ping()).await);
    assert_eq!((foreign.status, unknown.status), (404, 404));
    assert_eq!(foreign.text().await, unknown.text().await);
    let (_events, messages) = open(&ann).await;
    assert_eq!(post(&messages, ping()).await.status, 400, "before initialize");
    assert_eq!(session.messages.send("GET", &[], "").await.status, 405);
    assert_eq!(ann.post(&[], ping()).await.status, 405);
    gateway.stop().await;
}

#[tokio::test]
async fn a_client_that_posts_and_does_not_read_its_stream_is_refused_on_the_post() {
    let (backend, gateway) =
        setup("admission: { frames: 8, bytes: 64KiB, drain_window: 500ms, patience: 50ms, teardown_after: 3s }\n").await;
    let other = gateway.initialize().await;
    // The stream of a client with small buffers.
    let (stream, messages) = open_unread(&gateway.at("/sse")).await;
    let mut refused = 0;
    for n in 0..40 {
        let reply = post(&messages, raw::request(&n.to_string(), "tools/call", &call("big", &format!("k{n}")).to_string())).await;
        if reply.status == 429 {
            assert!(reply.header("retry-after").is_some());
            let error = reply.json().await;
            assert_eq!(error["id"], n);
            refused += 1;
        } else {
            assert_eq!(reply.status, 202);
        }
    }
    assert!(refused >= 20, "{refused}");
    let ran = backend.seen_of("tools/call").len();
    assert!(ran <= 40 - refused, "{ran} ran, {refused} were refused");
    assert_eq!(other.call("t", json!({ "key": "o" })).await["content"][0]["text"], "o");
    // There is nothing to resume in this revision: its stream is closed, and so is the session.
    eventually("its end", || gateway.log().contains("session closed").then_some(())).await;
    assert!(stream.closed_within(Duration::from_secs(10)).await);
    within("other sessions go on", other.call("t", json!({}))).await;
    gateway.stop().await;
}

/// Fills an unread stream with answers, then posts more pings than there is room for on the way to it; gives their statuses.
async fn pings(messages: &Endpoint) -> Vec<tokio::task::JoinHandle<u16>> {
    within("a refusal", async {
        for n in 0.. {
            let body = raw::request(&n.to_string(), "tools/call", &call("big", "k").to_string());
            if post(messages, body).await.status != 202 {
                return;
            }
        }
    })
    .await;
    let ping = |n: usize| {
        let messages = messages.clone();
        tokio::spawn(async move { post(&messages, raw::request(&format!("\"ping-{n}\""), "ping", "{}")).await.status })
    };
    (0..PINGS).map(ping).collect()
}

const PINGS: usize = 60;

#[tokio::test]
async fn every_ping_that_was_accepted_is_answered_when_the_stream_is_read() {
    let (_backend, gateway) =
        setup("admission: { frames: 8, bytes: 64KiB, drain_window: 500ms, patience: 50ms, teardown_after: 5m }\n").await;
    let (mut stream, messages) = open_unread(&gateway.at("/sse")).await;
    let pings = pings(&messages).await;
    // Long enough for those that find a place to take it; the others wait.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(pings.iter().any(|ping| !ping.is_finished()), "there was room for all");
    stream.open_up();
    within("the answers", async {
        loop {
            assert!(stream.sip(1 << 16).await > 0, "it ended");
            let seen = stream.seen();
            let answered: HashSet<&str> = seen.match_indices("\"ping-").filter_map(|(at, _)| seen[at + 6..].split('"').next()).collect();
            if answered.len() == PINGS {
                return;
            }
        }
    })
    .await;
    for ping in pings {
        assert_eq!(within("an accepted ping", ping).await.expect("no panic"), 202);
    }
    gateway.stop().await;
}

#[tokio::test]
async fn pings_wait_for_a_stream_that_is_not_read_no_longer_than_it_lives() {
    let (backend, gateway) =
        setup("admission: { frames: 8, bytes: 64KiB, drain_window: 300ms, patience: 50ms, teardown_after: 1s }\n").await;
    let (_stream, messages) = open_unread(&gateway.at("/sse")).await;
    let mut gone = 0;
    for ping in pings(&messages).await {
        match within("the end of a ping", ping).await.expect("no panic") {
            202 => {}
            404 => gone += 1,
            other => panic!("status {other}"),
        }
    }
    assert!(gone > 0, "there was room for all");
    backend.has_sessions(0).await;
    gateway.stop().await;
}

//! Backends that speak only the HTTP+SSE transport of 2024-11-05: one long GET stream and POSTs beside it.

use std::time::Duration;

use lockgate_tests::{
    backend::{Backend, Builder, Call},
    client::LATEST,
    eventually,
    gateway::{Gateway, http_backends},
    raw::{self, first_text},
};
use serde_json::json;

async fn behind(builder: Builder) -> (Backend, Gateway) {
    let backend = builder.start_legacy_sse().await;
    let gateway = Gateway::start(&http_backends(&[("old", &backend.sse_url())])).await;
    (backend, gateway)
}

#[tokio::test]
async fn lists_calls_and_errors_pass() {
    let (backend, gateway) = behind(Backend::builder("b").tool("t").prompt("p").resource("x://r")).await;
    let session = gateway.initialize().await;
    assert_eq!(session.names("tools/list", "tools").await, ["t"]);
    assert_eq!(session.names("prompts/list", "prompts").await, ["p"]);
    assert_eq!(session.names("resources/list", "resources").await, ["x://r"]);
    assert_eq!(first_text(&session.call("t", json!({})).await), "t");
    let read = session.result("resources/read", json!({ "uri": "x://r" })).await;
    assert_eq!(read["contents"][0]["uri"], "x://r");
    let error = session.error("tools/call", json!({ "name": "nope", "arguments": {} })).await;
    assert!(error["code"].is_i64(), "{error}");
    let unknown = session.error("com.example/unknown", json!({})).await;
    assert_eq!(unknown["code"], -32601);
    assert!(backend.seen().iter().any(|seen| seen.verb == "GET" && seen.path == "/sse"));
    gateway.stop().await;
}

#[tokio::test]
async fn payloads_are_untouched() {
    let payload = r#"{"z":1.0,"a":123456789012345678901234567890,"z":"\ud800"}"#;
    let script = |call: Call| async move {
        let result = format!(r#"{{"content":[],"structuredContent":{},"x":1.0}}"#, call.seen.arguments_raw());
        call.result(&result);
    };
    let (_backend, gateway) = behind(Backend::builder("b").tool("t").on("tools/call", script)).await;
    let session = gateway.initialize().await;
    let answer = session.ask_raw("1.0", "tools/call", &format!(r#"{{"name":"t","arguments":{payload}}}"#)).await;
    assert_eq!(answer.id_raw(), "1.0");
    assert_eq!(answer.result_raw(), format!(r#"{{"content":[],"structuredContent":{payload},"x":1.0}}"#));
    gateway.stop().await;
}

#[tokio::test]
async fn progress_precedes_the_answer_and_requests_of_the_backend_are_answered() {
    let script = |call: Call| async move {
        let token = call.progress_token().expect("a token");
        let stream = call.stream();
        for step in 1..=3 {
            stream.notify("notifications/progress", &format!(r#"{{"progressToken":{token},"progress":{step}}}"#)).await;
        }
        let answer = stream.ask("1", "elicitation/create", r#"{"message":"?","requestedSchema":{"type":"object"}}"#).await;
        stream.answer(&format!(r#"{{"content":[],"got":{answer}}}"#)).await;
    };
    let (_backend, gateway) = behind(Backend::builder("b").tool("t").on("tools/call", script)).await;
    let session = gateway.mcp().initialize_as(LATEST, json!({ "elicitation": {} })).await;
    let mut events = session.start("1", "tools/call", r#"{"name":"t","_meta":{"progressToken":"p"}}"#).await.events();
    for step in 1..=3 {
        let note = events.method("notifications/progress").await;
        assert_eq!((&note["params"]["progress"], &note["params"]["progressToken"]), (&json!(step), &json!("p")));
    }
    let asked = events.method("elicitation/create").await;
    assert_eq!(session.reply(&asked["id"], json!({ "action": "decline" })).await, 202);
    assert!(events.message().await.expect("an answer").text().contains("decline"));
    gateway.stop().await;
}

#[tokio::test]
async fn two_sessions_have_two_streams_and_deleting_one_closes_one() {
    let (backend, gateway) = behind(Backend::builder("b").tool("t")).await;
    let (a, b) = (gateway.initialize().await, gateway.initialize().await);
    a.call("t", json!({})).await;
    b.call("t", json!({})).await;
    let calls = backend.seen_of("tools/call");
    assert_ne!(calls[0].session, calls[1].session);
    let of_a = calls[0].session.clone().expect("a session");
    a.delete().await;
    // The transport has no DELETE: the end of the stream is the end of the session.
    eventually("the stream of a is closed", || backend.stream_is_closed(&of_a).then_some(())).await;
    assert_eq!(first_text(&b.call("t", json!({})).await), "t");
    gateway.stop().await;
}

#[tokio::test]
async fn a_stream_that_breaks_fails_the_call_and_the_next_call_has_a_new_one() {
    let script = |call: Call| async move {
        // A call that is dropped is never answered, and does not hold the stream open.
        if call.target() == "t" {
            call.result(&raw::text("t"));
        }
    };
    let (backend, gateway) = behind(Backend::builder("b").tool("t").tool("hang").on("tools/call", script)).await;
    let session = std::sync::Arc::new(gateway.initialize().await);
    let caller = session.clone();
    let hanging = tokio::spawn(async move { caller.error("tools/call", json!({ "name": "hang", "arguments": {} })).await });
    let upstream = backend.saw("tools/call", 1).await[0].session.clone().expect("a session");
    backend.close_stream(&upstream);
    let error = lockgate_tests::within("the error of the call", hanging).await.expect("no panic");
    assert!(error["code"].is_i64(), "{error}");
    let answer = lockgate_tests::within("a call on a new stream", async {
        loop {
            let answer = session.ask("tools/call", json!({ "name": "t", "arguments": {} })).await;
            if answer.message().result.is_some() {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    assert_eq!(first_text(&answer.await.result()), "t");
    gateway.stop().await;
}

#[tokio::test]
async fn notifications_outside_of_calls_arrive_on_the_sessions_own_stream() {
    let (backend, gateway) = behind(Backend::builder("b").tool("t")).await;
    let session = gateway.initialize().await;
    session.call("t", json!({})).await;
    let mut stream = session.stream().await;
    let upstream = backend.seen_of("tools/call")[0].session.clone().expect("a session");
    backend.push(&upstream, &raw::notification("notifications/tools/list_changed", "{}")).await;
    stream.method("notifications/tools/list_changed").await;
    gateway.stop().await;
}

#[tokio::test]
async fn an_endpoint_on_another_host_is_not_followed() {
    let other = Backend::with_tools("other", &["t"]).await;
    let elsewhere = format!("event: endpoint\ndata: {}\n\n", other.url());
    let script = move |call: Call| {
        let elsewhere = elsewhere.clone();
        async move {
            let stream = call.stream();
            stream.bytes(elsewhere).await;
            stream.closed().await;
        }
    };
    // POST to the URL is refused, so that the gateway tries the old transport.
    let refuse = |call: Call| async move { call.http(405, &[("allow", "GET")], "") };
    let backend = Backend::builder("b").on("GET", script).on("POST", refuse).start_legacy_sse().await;
    let yaml = format!("{}limits: {{ initialize_timeout: 2s }}\n", http_backends(&[("old", &backend.sse_url())]));
    let gateway = Gateway::start(&yaml).await;
    let _ = gateway.mcp().post(&[], lockgate_tests::client::initialize_body(LATEST, &json!({}))).await.bytes().await;
    assert!(other.seen().is_empty(), "the gateway followed the backend to {}", other.url());
    gateway.stop().await;
}

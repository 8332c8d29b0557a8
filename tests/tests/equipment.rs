//! The tests' own equipment, tried without the gateway: what fails here is a fault of the tests.

use lockgate_tests::{
    backend::Backend,
    client::Endpoint,
    conformance,
    modern::Modern,
    process::Server,
    raw::{self, first_text},
    real,
};
use serde_json::json;

#[tokio::test]
async fn the_fixture_passes_the_conformance_suite() {
    let fixture = real::fixture().await;
    for (revision, checks) in [("2025-11-25", 84), ("2026-07-28", 130)] {
        let verdicts = conformance::run(&fixture.url, revision).await;
        let failed: Vec<_> = verdicts.iter().filter(|(_, verdict)| verdict.status == "FAILURE").collect();
        // It has no tasks; those scenarios are not scored.
        let failed: Vec<_> = failed.into_iter().filter(|((scenario, ..), _)| !scenario.starts_with("tasks-")).collect();
        assert!(failed.is_empty(), "{revision}: {failed:#?}");
        assert!(conformance::count(&verdicts, "SUCCESS") >= checks, "{revision}: {verdicts:#?}");
    }
    fixture.stop().await;
}

#[tokio::test]
async fn the_raw_client_holds_a_conversation_with_the_fixture() {
    let fixture: Server = real::fixture().await;
    let session = Endpoint::new(&fixture.url).initialize_as("2025-11-25", json!({ "elicitation": {} })).await;
    assert_eq!(first_text(&session.call("echo", json!({ "message": "hello" })).await), "hello");
    let reply = session.start("\"e\"", "tools/call", r#"{"name":"test_elicitation","arguments":{"message":"?"}}"#).await;
    let mut events = reply.events();
    let asked = events.method("elicitation/create").await;
    let content = json!({ "action": "accept", "content": { "username": "ada", "email": "" } });
    assert_eq!(session.reply(&asked["id"], content).await, 202);
    assert!(events.message().await.expect("an answer").text().contains("ada"));
    assert!((200..300).contains(&session.delete().await));
    assert_eq!(session.post(raw::request("9", "ping", "{}")).await.status, 404);
    fixture.stop().await;
}

#[tokio::test]
async fn the_raw_modern_client_holds_a_conversation_with_the_fixture() {
    for eras in ["dual", "modern"] {
        let fixture = real::fixture_of(eras).await;
        let client = Modern::new(Endpoint::new(&fixture.url)).able(json!({ "elicitation": {} })).on_one_connection().await;
        assert_eq!(first_text(&client.call("echo", json!({ "message": "hällo" })).await), "hällo");
        let params = json!({ "name": "test_elicitation", "arguments": { "message": "?" } });
        let asked = client.result("tools/call", params.clone()).await;
        assert_eq!(asked["inputRequests"]["user"]["method"], "elicitation/create", "{asked}");
        let mut params = params;
        params["inputResponses"] = json!({ "user": { "action": "accept", "content": { "username": "ada", "email": "" } } });
        params["requestState"] = asked["requestState"].clone();
        assert!(first_text(&client.result("tools/call", params).await).contains("ada"));
        client.request("tools/list", json!({})).without_header("mcp-method").refused(400, -32020).await;
        let (acknowledged, mut events) = Modern::new(client.at.clone()).listen("\"l\"", json!({ "toolsListChanged": true })).await;
        assert_eq!(acknowledged["toolsListChanged"], true);
        client.call("test_trigger_tool_change", json!({})).await;
        events.method("notifications/tools/list_changed").await;
        fixture.stop().await;
    }
}

#[tokio::test]
async fn a_scripted_backend_speaks_as_it_is_told() {
    let backend = Backend::builder("b")
        .tool("plain")
        .tool("asks")
        .on("tools/call", |call| async move {
            if call.target() == "plain" {
                return call.result(r#"{"content":[],"x":1.0}"#);
            }
            let stream = call.stream();
            stream.notify("notifications/message", r#"{"level":"info","data":1.0}"#).await;
            let answer = stream.ask("77", "roots/list", "{}").await;
            stream.answer(&format!(r#"{{"content":[],"got":{answer}}}"#)).await;
        })
        .start()
        .await;
    let session = Endpoint::new(&backend.url()).initialize().await;
    assert_eq!(session.names("tools/list", "tools").await, ["asks", "plain"]);
    let answer = session.ask_raw("1.0", "tools/call", r#"{"name":"plain","arguments":{"b":1.0,"a":2}}"#).await;
    assert_eq!((answer.id_raw(), answer.result_raw()), ("1.0", r#"{"content":[],"x":1.0}"#));
    assert_eq!(backend.saw("tools/call", 1).await[0].arguments_raw(), r#"{"b":1.0,"a":2}"#);
    let mut events = session.start("2", "tools/call", r#"{"name":"asks"}"#).await.events();
    let asked = events.method("roots/list").await;
    assert_eq!(session.reply(&asked["id"], json!({ "roots": [] })).await, 202);
    assert!(events.message().await.expect("an answer").text().contains(r#""roots":[]"#));
    let mut stream = session.stream().await;
    backend.push(&session.id, &raw::notification("notifications/tools/list_changed", "{}")).await;
    stream.method("notifications/tools/list_changed").await;
    session.delete().await;
    backend.has_sessions(0).await;
    assert_eq!(backend.abandoned(), 0);
}

#[tokio::test]
async fn a_scripted_backend_knows_when_its_client_leaves() {
    let backend = Backend::builder("b").tool("hang").on("tools/call", |call| call.hang()).start().await;
    let session = Endpoint::new(&backend.url()).initialize().await;
    let call = tokio::spawn(async move { session.call("hang", json!({})).await });
    backend.saw("tools/call", 1).await;
    call.abort();
    lockgate_tests::eventually("the backend sees it", || (backend.abandoned() == 1).then_some(())).await;
}

//! Tasks pass between a client and a server of one era, and are not offered across eras.

use lockgate_tests::{
    backend::{Backend, Builder, Call},
    client::LATEST,
    gateway::{AUTH, Gateway, TOKEN_X, TOKEN_Y, http_backends},
    modern::{CAPABILITIES, Modern, TASKS},
    raw::{self, first_text, member},
};
use serde_json::{Value, json};

use super::modern_backends::{OWN, TOOL, modern_with};

/// A server that makes a task of every call, with the id `task \u0031`: the same at every server.
fn working(name: &'static str) -> Builder {
    let capabilities = format!(r#"{{"tools":{{}},"extensions":{{"{TASKS}":{{}}}}}}"#);
    let task = r#""taskId":"task \u0031","createdAt":"2026-07-28T00:00:00Z","lastUpdatedAt":"2026-07-28T00:00:00Z","ttlMs":60000"#;
    let builder = modern_with(name, &[TOOL], OWN, &capabilities);
    let builder = builder.on("tools/call", move |call: Call| async move {
        let declared = call.seen.params()["_meta"][CAPABILITIES]["extensions"][TASKS].is_object();
        if declared {
            call.result(&format!(r#"{{"resultType":"task",{task},"status":"working","x":1.0}}"#));
        } else {
            call.result(r#"{"resultType":"complete","content":[{"type":"text","text":"at once"}]}"#);
        }
    });
    let builder = builder.on("tasks/get", move |call: Call| async move {
        let known = member(call.seen.params_raw(), "taskId") == Some(r#""task 1""#) || member(call.seen.params_raw(), "taskId") == Some(r#""task \u0031""#);
        if known {
            call.result(&format!(
                r#"{{"resultType":"complete",{task},"status":"completed","result":{{"content":[{{"type":"text","text":"{name}"}}]}}}}"#
            ));
        } else {
            call.error(-32602, "Unknown task");
        }
    });
    let acknowledge = |call: Call| async move { call.result(r#"{"resultType":"complete"}"#) };
    builder.on("tasks/cancel", acknowledge).on("tasks/update", acknowledge)
}

fn declaring() -> Value {
    json!({ "extensions": { TASKS: {} } })
}

#[tokio::test]
async fn a_task_of_a_modern_server_is_found_by_its_id() {
    let (a, b) = (working("a").start().await, working("b").start().await);
    let gateway = Gateway::start(&http_backends(&[("a", &a.url()), ("b", &b.url())])).await;
    let client = Modern::new(gateway.mcp()).able(declaring());
    assert!(client.result("server/discover", json!({})).await["capabilities"]["extensions"][TASKS].is_object());
    let mut ids = Vec::new();
    for (tool, backend, name) in [("a__t", &a, "a"), ("b__t", &b, "b")] {
        let made = client.request("tools/call", json!({ "name": tool, "arguments": {} })).answer().await;
        let result = made.result();
        assert_eq!((&result["resultType"], &result["status"]), (&json!("task"), &json!("working")), "{result}");
        assert_eq!(member(made.result_raw(), "x"), Some("1.0"));
        let id = result["taskId"].clone();
        let got = client.result("tasks/get", json!({ "taskId": id })).await;
        assert_eq!((&got["status"], first_text(&got["result"]), &got["taskId"]), (&json!("completed"), name, &id), "{got}");
        let seen = backend.seen_of("tasks/get").pop().expect("it was asked");
        assert_eq!((&seen.params()["taskId"], seen.header("mcp-name")), (&json!("task 1"), Some("task 1")));
        let responses = json!({ "taskId": id, "inputResponses": { "k": { "action": "decline" } } });
        assert_eq!(client.result("tasks/update", responses).await["resultType"], "complete");
        assert_eq!(backend.seen_of("tasks/update").pop().expect("it was told").params()["inputResponses"]["k"]["action"], "decline");
        assert_eq!(client.result("tasks/cancel", json!({ "taskId": id })).await["resultType"], "complete");
        client.request("tasks/get", json!({ "taskId": id })).header("mcp-name", "task 1x").refused(400, -32020).await;
        client.request("tasks/get", json!({ "taskId": id })).without_header("mcp-name").refused(400, -32020).await;
        ids.push(id);
    }
    assert_ne!(ids[0], ids[1], "two servers may use one id");
    assert_eq!((a.seen_of("tasks/get").len(), b.seen_of("tasks/get").len()), (1, 1));
    let error = client.error("tasks/get", json!({ "taskId": "invented" })).await;
    assert_eq!(error["code"], -32602, "{error}");
    gateway.stop().await;
}

#[tokio::test]
async fn a_task_is_of_no_use_to_another_principal_or_on_another_virtual_host() {
    let backend = working("a").start().await;
    let hosts = "virtual_hosts:\n  /mcp: { backends: [a] }\n  /other: { backends: [a] }\n";
    let gateway = Gateway::start(&format!("{}{AUTH}{hosts}", http_backends(&[("a", &backend.url())]))).await;
    let client = |path: &str, token: &str| Modern::new(gateway.at(path).with_bearer(token)).able(declaring());
    let id = client("/mcp", TOKEN_X).result("tools/call", json!({ "name": "t", "arguments": {} })).await["taskId"].clone();
    for foreign in [client("/mcp", TOKEN_Y), client("/other", TOKEN_X)] {
        for method in ["tasks/get", "tasks/cancel", "tasks/update"] {
            let error = foreign.error(method, json!({ "taskId": id, "inputResponses": {} })).await;
            assert_eq!(error["code"], -32602, "{method}: {error}");
        }
    }
    for method in ["tasks/get", "tasks/cancel", "tasks/update"] {
        assert!(backend.seen_of(method).is_empty(), "{method} reached the server");
    }
    let got = client("/mcp", TOKEN_X).result("tasks/get", json!({ "taskId": id })).await;
    assert_eq!(got["status"], "completed");
    gateway.stop().await;
}

#[tokio::test]
async fn a_client_that_did_not_declare_tasks_is_given_none() {
    let backend = working("a").start().await;
    let gateway = Gateway::start(&http_backends(&[("a", &backend.url())])).await;
    assert_eq!(first_text(&Modern::new(gateway.mcp()).call("t", json!({})).await), "at once");
    // And one of the other era could not.
    assert_eq!(first_text(&gateway.initialize().await.call("t", json!({})).await), "at once");
    gateway.stop().await;
}

#[tokio::test]
async fn a_legacy_server_offers_no_tasks_to_a_modern_client() {
    let tool = r#"{"name":"t","inputSchema":{"type":"object"},"execution":{"taskSupport":"optional"}}"#;
    let capabilities = r#"{"tools":{},"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}}"#;
    let backend = Backend::builder("b").item("tools", tool).capabilities(capabilities).start().await;
    let gateway = Gateway::start(&http_backends(&[("one", &backend.url())])).await;
    let client = Modern::new(gateway.mcp()).able(declaring());
    let discovered = client.result("server/discover", json!({})).await;
    assert!(discovered["capabilities"]["extensions"][TASKS].is_null() && discovered["capabilities"]["tasks"].is_null(), "{discovered}");
    assert_eq!(first_text(&client.call("t", json!({})).await), "t");
    for method in ["tasks/get", "tasks/cancel", "tasks/update"] {
        let error = client.error(method, json!({ "taskId": "1", "inputResponses": {} })).await;
        assert!(error["code"] == -32601 || error["code"] == -32602, "{method}: {error}");
        assert!(backend.seen_of(method).is_empty(), "{method} reached the server");
    }
    let init = backend.init_of(backend.seen_of("tools/call")[0].session.as_deref().expect("a session"));
    assert!(init["capabilities"]["tasks"].is_null(), "{init}");
    gateway.stop().await;
}

#[tokio::test]
async fn tasks_of_legacy_revisions_pass_between_a_client_and_a_server_with_sessions() {
    let task = r#"{"taskId":"task 1","status":"working","createdAt":"2025-11-25T00:00:00Z","lastUpdatedAt":"2025-11-25T00:00:00Z","ttl":60000}"#;
    let capabilities = r#"{"tools":{},"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}}"#;
    let backend = Backend::builder("b")
        .tool("t")
        .capabilities(capabilities)
        .result("tools/call", &format!(r#"{{"task":{task}}}"#))
        .result("tasks/get", task)
        .result("tasks/result", &raw::text("done"))
        .result("tasks/cancel", task)
        .start()
        .await;
    let gateway = Gateway::start(&http_backends(&[("one", &backend.url())])).await;
    let session = gateway.mcp().initialize_as(LATEST, json!({ "tasks": {} })).await;
    assert!(session.init["capabilities"]["tasks"]["requests"]["tools"]["call"].is_object(), "{}", session.init);
    let made = session.result("tools/call", json!({ "name": "t", "arguments": {}, "task": { "ttl": 60000 } })).await;
    let id = made["task"]["taskId"].clone();
    let got = session.result("tasks/get", json!({ "taskId": id })).await;
    assert_eq!((&got["taskId"], &got["status"]), (&id, &json!("working")), "{got}");
    assert_eq!(first_text(&session.result("tasks/result", json!({ "taskId": id })).await), "done");
    session.result("tasks/cancel", json!({ "taskId": id })).await;
    assert_eq!(backend.seen_of("tasks/get").pop().expect("it was asked").params()["taskId"], "task 1");
    // A session of its own knows nothing of it.
    let other = gateway.mcp().initialize_as(LATEST, json!({ "tasks": {} })).await;
    other.error("tasks/get", json!({ "taskId": id })).await;
    assert_eq!(backend.seen_of("tasks/get").len(), 1);
    gateway.stop().await;
}

//! Tasks pass between a client and a server of one era, and are not offered across eras.

use lockgate_tests::{
    backend::{Backend, Builder, Call},
    client::LATEST,
    gateway::{AUTH, Gateway, TOKEN_X, TOKEN_Y, http_backends},
    modern::{CAPABILITIES, Modern, SUBSCRIPTION, TASKS, subscription},
    raw::{self, first_text, member},
};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::modern_backends::{OWN, TOOL, modern_with};

fn working_capabilities() -> String {
    format!(r#"{{"tools":{{}},"extensions":{{"{TASKS}":{{}}}}}}"#)
}

/// A server that makes a task of every call, with the id `task \u0031`: the same at every server.
fn working(name: &'static str) -> Builder {
    let task = r#""taskId":"task \u0031","createdAt":"2026-07-28T00:00:00Z","lastUpdatedAt":"2026-07-28T00:00:00Z","ttlMs":60000"#;
    let builder = modern_with(name, &[TOOL], OWN, &working_capabilities());
    let builder = builder.on("tools/call", move |call: Call| async move {
        let declared = call.seen.params()["_meta"][CAPABILITIES]["extensions"][TASKS].is_object();
        if declared {
            call.result(&format!(r#"{{"resultType":"task",{task},"status":"working","x":1.0}}"#));
        } else {
            call.result(r#"{"resultType":"complete","content":[{"type":"text","text":"at once"}]}"#);
        }
    });
    let builder = builder.on("tasks/get", move |call: Call| async move {
        let known = member(call.seen.params_raw(), "taskId") == Some(r#""task 1""#)
            || member(call.seen.params_raw(), "taskId") == Some(r#""task \u0031""#);
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
    let task =
        r#"{"taskId":"task 1","status":"working","createdAt":"2025-11-25T00:00:00Z","lastUpdatedAt":"2025-11-25T00:00:00Z","ttl":60000}"#;
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

/// A server of 2025-11-25 that makes a task of every call that wants one. All of them give their tasks the same ids, as one that counts would.
fn counting(name: &'static str) -> Builder {
    let task = |n: usize, status: &str| {
        format!(
            r#"{{"taskId":"{n}","status":"{status}","createdAt":"2025-11-25T00:00:00Z","lastUpdatedAt":"2025-11-25T00:00:00Z","ttl":60000}}"#
        )
    };
    let capabilities = r#"{"tools":{},"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}}"#;
    let (made, listed) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let count = made.clone();
    let tool = r#"{"name":"t","inputSchema":{"type":"object"},"execution":{"taskSupport":"optional"}}"#;
    let builder = Backend::builder(name).item("tools", tool).capabilities(capabilities);
    let builder = builder.on("tools/call", move |call: Call| {
        let count = count.clone();
        async move {
            if call.seen.params()["task"].is_object() {
                let n = count.fetch_add(1, Ordering::SeqCst) + 1;
                call.result(&format!(r#"{{"task":{},"_meta":{{"x":1.0}}}}"#, task(n, "working")));
            } else {
                call.result(&raw::text("at once"));
            }
        }
    });
    // It does not tell sessions apart: one page for each task that it has.
    let builder = builder.on("tasks/list", move |call: Call| {
        let (made, listed) = (made.clone(), listed.clone());
        async move {
            listed.fetch_add(1, Ordering::SeqCst);
            let cursor = call.seen.params()["cursor"].as_str().map_or(1, |c| c.parse::<usize>().expect("a cursor of mine"));
            let all = made.load(Ordering::SeqCst);
            let items = if cursor <= all { task(cursor, "working") } else { String::new() };
            let next = if cursor < all { format!(r#","nextCursor":"{}""#, cursor + 1) } else { String::new() };
            call.result(&format!(r#"{{"tasks":[{items}]{next}}}"#));
        }
    });
    let builder = builder.on("tasks/get", move |call: Call| async move {
        let id = call.seen.params()["taskId"].as_str().and_then(|id| id.parse().ok());
        match id {
            Some(id) => call.result(&task(id, "working")),
            None => call.error(-32602, "Unknown task"),
        }
    });
    // Asks before it answers.
    builder.on("tasks/result", move |call: Call| async move {
        let id = call.seen.params()["taskId"].clone();
        let related = json!({ "io.modelcontextprotocol/related-task": { "taskId": id } });
        let stream = call.stream();
        stream.notify("notifications/tasks/status", &task(1, "input_required")).await;
        let params = json!({ "message": "?", "requestedSchema": { "type": "object", "properties": {} }, "_meta": related });
        let answer = stream.ask("7", "elicitation/create", &params.to_string()).await;
        let answer: Value = serde_json::from_str(&answer).expect("an answer");
        assert_eq!(answer["result"]["_meta"], related, "the server gets its own id back");
        stream.answer(&json!({ "content": [{ "type": "text", "text": format!("of {name}") }], "_meta": related }).to_string()).await;
    })
}

#[tokio::test]
async fn tasks_of_several_legacy_servers_lead_to_their_own_with_all_that_is_said_of_them() {
    let (a, b) = (counting("a").start().await, counting("b").start().await);
    let gateway = Gateway::start(&http_backends(&[("a", &a.url()), ("b", &b.url())])).await;
    let session = gateway.mcp().initialize_as(LATEST, json!({ "tasks": {}, "elicitation": {} })).await;
    assert_eq!(session.init["capabilities"]["tasks"], json!({ "list": {}, "cancel": {}, "requests": { "tools": { "call": {} } } }));
    let tools = session.list("tools/list", "tools").await;
    assert!(tools.iter().all(|tool| tool["execution"]["taskSupport"] == "optional"), "{tools:?}");
    let task = |tool: &str| json!({ "name": tool, "arguments": {}, "task": { "ttl": 60000 } });
    let of_b = session.result("tools/call", task("b__t")).await["task"]["taskId"].clone();
    let of_a = session.result("tools/call", task("a__t")).await["task"]["taskId"].clone();
    assert_ne!(of_a, of_b, "both count from one");
    for (id, own, other) in [(&of_b, &b, &a), (&of_a, &a, &b)] {
        let before = other.seen_of("tasks/get").len();
        assert_eq!(session.result("tasks/get", json!({ "taskId": id })).await["taskId"], *id);
        assert_eq!(own.seen_of("tasks/get").pop().expect("it was asked").params()["taskId"], "1");
        assert_eq!(other.seen_of("tasks/get").len(), before);
    }
    let mut events = session.start("77", "tasks/result", &json!({ "taskId": of_b }).to_string()).await.events();
    assert_eq!(events.method("notifications/tasks/status").await["params"]["taskId"], of_b);
    let asked = events.method("elicitation/create").await;
    let related = json!({ "io.modelcontextprotocol/related-task": { "taskId": of_b } });
    assert_eq!(asked["params"]["_meta"], related);
    let answer = raw::result(&asked["id"].to_string(), &json!({ "action": "decline", "_meta": related }).to_string());
    assert_eq!(session.post(answer).await.status, 202);
    let result = events.answer().await.result();
    assert_eq!((first_text(&result), &result["_meta"]), ("of b", &related));

    // Servers list what they have of all sessions; each session is shown its own, page by page.
    let other = gateway.mcp().initialize_as(LATEST, json!({ "tasks": {} })).await;
    let theirs = other.result("tools/call", task("b__t")).await["task"]["taskId"].clone();
    let ids = |tasks: Vec<Value>| tasks.into_iter().map(|task| task["taskId"].clone()).collect::<Vec<_>>();
    assert_eq!(ids(session.list("tasks/list", "tasks").await), [of_a, of_b]);
    assert_eq!(ids(other.list("tasks/list", "tasks").await), std::slice::from_ref(&theirs));
    let asked = b.seen_of("tasks/get").len();
    for foreign in [theirs, json!("b/7"), json!("1"), json!("c/1"), json!("")] {
        for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
            assert_eq!(session.error(method, json!({ "taskId": foreign })).await["code"], -32602, "{method} {foreign}");
        }
    }
    assert_eq!((b.seen_of("tasks/get").len(), b.seen_of("tasks/cancel").len()), (asked, 0));
    assert_eq!(session.error("tasks/update", json!({ "taskId": "1" })).await["code"], -32601);
    gateway.stop().await;
}

#[tokio::test]
async fn tasks_that_a_client_runs_are_for_the_server_that_wanted_them() {
    let (a, b) = (counting("a").start().await, counting("b").start().await);
    let gateway = Gateway::start(&http_backends(&[("a", &a.url()), ("b", &b.url())])).await;
    let declared = json!({ "tasks": { "list": {}, "requests": { "sampling": { "createMessage": {} } } }, "sampling": {} });
    let session = gateway.mcp().initialize_as(LATEST, declared.clone()).await;
    let (at_a, at_b) = (a.sessions().pop().expect("a session"), b.sessions().pop().expect("a session"));
    assert_eq!(a.init_of(&at_a)["capabilities"], declared);
    let mut events = session.stream().await;
    let put = |backend, at: &str, id: &'static str, method: &'static str, params: Value| {
        let (backend, at): (&Backend, String) = (backend, at.to_owned());
        async move { serde_json::from_str::<Value>(&backend.ask(&at, id, method, &params.to_string()).await).expect("an answer") }
    };
    let answer = async |events: &mut lockgate_tests::client::Events, method: &str, result: Value| {
        let asked = events.method(method).await;
        session.post(raw::result(&asked["id"].to_string(), &result.to_string())).await;
    };
    let sampling = json!({ "messages": [], "maxTokens": 1, "task": { "ttl": 1 } });
    let made = json!({ "task": { "taskId": "mine", "status": "working" } });
    let (got, ()) =
        tokio::join!(put(&a, &at_a, "1", "sampling/createMessage", sampling), answer(&mut events, "sampling/createMessage", made));
    assert_eq!(got["result"]["task"]["taskId"], "mine");
    let about = json!({ "taskId": "mine" });
    let state = json!({ "taskId": "mine", "status": "working" });
    let (got, ()) = tokio::join!(put(&a, &at_a, "2", "tasks/get", about.clone()), answer(&mut events, "tasks/get", state.clone()));
    assert_eq!(got["result"], state);
    // Another server of the session can neither ask for it nor see it.
    assert_eq!(put(&b, &at_b, "3", "tasks/get", about).await["error"]["code"], -32602);
    let list = json!({ "tasks": [{ "taskId": "mine", "status": "working" }, { "taskId": "other", "status": "working" }] });
    let (got, ()) = tokio::join!(put(&b, &at_b, "4", "tasks/list", json!({})), answer(&mut events, "tasks/list", list.clone()));
    assert_eq!(got["result"], json!({ "tasks": [] }));
    let (got, ()) = tokio::join!(put(&a, &at_a, "5", "tasks/list", json!({})), answer(&mut events, "tasks/list", list));
    assert_eq!(got["result"], json!({ "tasks": [{ "taskId": "mine", "status": "working" }] }));
    assert_eq!(session.tell("notifications/tasks/status", state).await, 202);
    a.saw("notifications/tasks/status", 1).await;
    assert!(b.seen_of("notifications/tasks/status").is_empty());
    gateway.stop().await;
}

#[tokio::test]
async fn no_task_is_offered_across_eras() {
    let tool = r#"{"name":"t","inputSchema":{"type":"object"},"execution":{"taskSupport":"optional","x":1.0}}"#;
    let (new, old) = (modern_with("new", &[tool], OWN, &working_capabilities()).start().await, counting("old").start().await);
    let gateway = Gateway::start(&http_backends(&[("new", &new.url()), ("old", &old.url())])).await;
    let support = |tools: Vec<Value>| tools.iter().map(|tool| (tool["name"].clone(), tool["execution"].clone())).collect::<Vec<_>>();
    let task = json!({ "name": "new__t", "arguments": {}, "task": { "ttl": 1 } });

    // A client of 2025-11-25 has those of the old server.
    let session = gateway.mcp().initialize_as(LATEST, json!({})).await;
    assert!(session.init["capabilities"]["tasks"].is_object() && session.init["capabilities"]["extensions"].is_null(), "{}", session.init);
    let listed = support(session.list("tools/list", "tools").await);
    assert_eq!(listed, [(json!("new__t"), json!({ "x": 1.0 })), (json!("old__t"), json!({ "taskSupport": "optional" }))]);
    assert_eq!(session.error("tools/call", task.clone()).await["code"], -32601);
    assert!(new.seen_of("tools/call").is_empty(), "it was run");

    // One of 2026-07-28 those of the new one.
    let client = Modern::new(gateway.mcp()).able(declaring());
    let discovered = client.result("server/discover", json!({})).await;
    assert!(discovered["capabilities"]["extensions"][TASKS].is_object() && discovered["capabilities"]["tasks"].is_null(), "{discovered}");
    let listed = support(client.list("tools/list", "tools").await);
    assert_eq!(listed, [(json!("new__t"), json!({ "taskSupport": "optional", "x": 1.0 })), (json!("old__t"), json!({}))]);
    let result = client.result("tools/call", json!({ "name": "old__t", "arguments": {}, "task": { "ttl": 1 } })).await;
    assert_eq!(first_text(&result), "at once");

    // Where no server has tasks nothing was said of them, and a call that wants one is like any other.
    let alone = Gateway::start(&http_backends(&[("new", &new.url())])).await;
    let session = alone.mcp().initialize_as(LATEST, json!({})).await;
    assert!(session.init["capabilities"]["tasks"].is_null(), "{}", session.init);
    let result = session.result("tools/call", json!({ "name": "t", "arguments": { "task": 1 }, "task": { "ttl": 1 } })).await;
    assert_eq!(result["structuredContent"]["arguments"], json!({ "task": 1 }));
    assert!(new.seen_of("tools/call").pop().expect("it was called").params()["task"].is_null());
    for method in ["tasks/get", "tasks/result", "tasks/list", "tasks/cancel"] {
        assert_eq!(session.error(method, json!({ "taskId": "1" })).await["code"], -32601, "{method}");
    }
    alone.stop().await;
    gateway.stop().await;
}

#[tokio::test]
async fn only_clients_that_declared_tasks_may_ask_for_them_and_get_them() {
    let unasked = working("a").on("tools/call", |call: Call| async move {
        call.result(r#"{"resultType":"task","taskId":"1","status":"working","createdAt":"x","lastUpdatedAt":"x","ttlMs":null}"#);
    });
    let backend = unasked.start().await;
    let gateway = Gateway::start(&http_backends(&[("a", &backend.url())])).await;
    let plain = Modern::new(gateway.mcp());
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let error = plain.request(method, json!({ "taskId": "1", "inputResponses": {} })).refused(400, -32021).await;
        assert!(error["data"]["requiredCapabilities"]["extensions"][TASKS].is_object(), "{error}");
    }
    plain.request("subscriptions/listen", json!({ "notifications": { "taskIds": [] } })).refused(400, -32021).await;
    let call = json!({ "name": "t", "arguments": {} });
    assert_eq!(plain.error("tools/call", call.clone()).await["code"], -31004, "a server breaks the rules");
    assert_eq!(gateway.initialize().await.error("tools/call", call.clone()).await["code"], -31004);
    let client = Modern::new(gateway.mcp()).able(declaring());
    assert_eq!(client.result("tools/call", call).await["resultType"], "task");
    gateway.stop().await;
}

#[tokio::test]
async fn what_becomes_of_a_task_is_told_to_those_who_want_to_know() {
    let (tell, told) = tokio::sync::broadcast::channel::<String>(8);
    let asked: Arc<Mutex<Vec<Value>>> = Arc::default();
    let seen = asked.clone();
    let listen = move |call: Call| {
        let (mut told, seen) = (told.resubscribe(), seen.clone());
        async move {
            let (id, wanted) = (call.id(), call.seen.params()["notifications"].clone());
            let tag = format!(r#""_meta":{{"{SUBSCRIPTION}":{id}}}"#);
            let stream = call.stream();
            stream.notify("notifications/subscriptions/acknowledged", &format!(r#"{{"notifications":{wanted},{tag}}}"#)).await;
            seen.lock().expect("whole").push(wanted);
            while let Ok(task) = told.recv().await {
                if !stream.notify("notifications/tasks", &format!(r#"{{{task},{tag}}}"#)).await {
                    return;
                }
            }
        }
    };
    let (a, b) = (working("a").on("subscriptions/listen", listen).start().await, working("b").start().await);
    let gateway = Gateway::start(&http_backends(&[("a", &a.url()), ("b", &b.url())])).await;
    let client = Modern::new(gateway.mcp()).able(declaring()).on_one_connection().await;
    let id = client.result("tools/call", json!({ "name": "a__t", "arguments": {} })).await["taskId"].clone();
    let of_b = client.result("tools/call", json!({ "name": "b__t", "arguments": {} })).await["taskId"].clone();
    // Each has a connection of its own.
    let client = Modern::new(gateway.mcp()).able(declaring());
    let (honoured, mut events) = client.listen("\"L\"", json!({ "taskIds": [id, "invented", of_b] })).await;
    assert_eq!(honoured, json!({ "taskIds": [id] }), "of the others nobody tells");
    let last = asked.lock().expect("whole").last().cloned().expect("it was asked");
    assert_eq!(last, json!({ "taskIds": ["task 1"] }));
    let (_, mut others) = client.listen("2", json!({ "toolsListChanged": true })).await;
    tell.send(r#""taskId":"another","status":"working""#.into()).expect("a listener");
    tell.send(r#""taskId":"task \u0031","status":"completed","result":{"content":[]}"#.into()).expect("a listener");
    let news = events.message().await.expect("news").json();
    assert_eq!((&news["method"], &news["params"]["taskId"]), (&json!("notifications/tasks"), &id), "{news}");
    assert_eq!((&news["params"]["status"], subscription(&news)), (&json!("completed"), "\"L\"".to_owned()));
    others.quiet_for(Duration::from_millis(200)).await;
    gateway.stop().await;
}

//! What comes beside answers in 2026-07-28: progress and log messages on the stream of their call, cancellation by going away,
//! and `subscriptions/listen`.

use std::time::Duration;

use lockgate_tests::{
    backend::{Backend, Builder, Call},
    client::{Events, LATEST},
    eventually,
    gateway::{Gateway, free_port, http_backends},
    modern::{LEVEL, Modern, subscription},
    raw::{self, first_text, member},
    within,
};
use serde_json::{Value, json};

async fn behind(builder: Builder) -> (Backend, Gateway, Modern) {
    let backend = builder.start().await;
    let gateway = Gateway::start(&http_backends(&[("one", &backend.url())])).await;
    let client = Modern::new(gateway.mcp());
    (backend, gateway, client)
}

/// Time in which something must not happen.
const QUIET: Duration = Duration::from_millis(400);

// --- on the stream of a call

#[tokio::test]
async fn progress_comes_on_the_stream_of_its_call_with_the_clients_token() {
    let note = r#""progress":1,"total":1.0,"message":"\u0041","x":{"z":1,"a":123456789012345678901234567890}"#;
    let script = move |call: Call| async move {
        let token = call.progress_token().expect("a token arrives");
        let stream = call.stream();
        stream.notify("notifications/progress", &format!(r#"{{"progressToken":{token},{note}}}"#)).await;
        stream.notify("notifications/progress", r#"{"progressToken":"of somebody else","progress":9}"#).await;
        stream.answer(&raw::text("done")).await;
    };
    let (_backend, gateway, client) = behind(Backend::builder("b").tool("t").on("tools/call", script)).await;
    for token in ["7", "\"t\"", "9007199254740993", r#""\u0041""#] {
        let ask = client.request_raw("tools/call", r#"{"name":"t","arguments":{}}"#).meta_raw("progressToken", token);
        let reply = ask.send().await.must_be(200).await;
        assert_eq!(reply.header("x-accel-buffering"), Some("no"));
        assert!(reply.header("cache-control").is_some_and(|value| value.contains("no-")), "{:?}", reply.headers);
        let answer = reply.events().answer().await;
        let notes: Vec<_> = answer.before.iter().filter(|event| event.is_message()).map(|event| event.text()).collect();
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert_eq!(member(notes[0], "params"), Some(format!(r#"{{"progressToken":{token},{note}}}"#).as_str()));
        assert_eq!(first_text(&answer.result()), "done");
        assert_eq!(answer.result()["resultType"], "complete");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_call_without_a_token_gets_no_progress() {
    let script = |call: Call| async move {
        let token = call.progress_token().unwrap_or("1".to_owned());
        let stream = call.stream();
        stream.notify("notifications/progress", &format!(r#"{{"progressToken":{token},"progress":1}}"#)).await;
        stream.answer(&raw::text("done")).await;
    };
    let (_backend, gateway, client) = behind(Backend::builder("b").tool("t").on("tools/call", script)).await;
    let answer = client.ask("tools/call", json!({ "name": "t", "arguments": {} })).await;
    assert_eq!((answer.messages(), first_text(&answer.result())), (vec![], "done"));
    gateway.stop().await;
}

/// Logs at every level, then answers.
async fn logs(call: Call) {
    let stream = call.stream();
    for level in ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"] {
        stream.notify("notifications/message", &format!(r#"{{"level":"{level}","x":1.0,"data":{{"z":1,"a":1.0}}}}"#)).await;
    }
    stream.answer(&raw::text("done")).await;
}

#[tokio::test]
async fn log_messages_come_only_where_they_were_asked_for_and_from_the_level_on() {
    let (backend, gateway, client) = behind(Backend::builder("b").tool("t").on("tools/call", logs)).await;
    let ask = || client.request("tools/call", json!({ "name": "t", "arguments": {} }));
    let levels = |messages: Vec<Value>| -> Vec<String> {
        messages.iter().map(|message| message["params"]["level"].as_str().expect("a level").to_owned()).collect()
    };
    assert_eq!(levels(ask().answer().await.messages()), Vec::<String>::new());
    let error = ask().meta(LEVEL, json!("error")).answer().await;
    assert_eq!(levels(error.messages()), ["error", "critical", "alert", "emergency"]);
    let first = error.before.iter().find(|event| event.is_message()).expect("a message");
    assert_eq!(member(first.text(), "params"), Some(r#"{"level":"error","x":1.0,"data":{"z":1,"a":1.0}}"#));
    assert_eq!(levels(ask().meta(LEVEL, json!("debug")).answer().await.messages()).len(), 8);
    assert_eq!(levels(ask().answer().await.messages()), Vec::<String>::new(), "what another request wanted is not what this one wants");
    // The backend was told to say that much.
    let set: Vec<_> = backend.seen_of("logging/setLevel").iter().map(|seen| seen.params()["level"].clone()).collect();
    assert!(set.contains(&json!("debug")), "{set:?}");
    gateway.stop().await;
}

#[tokio::test]
async fn log_messages_outside_of_a_call_reach_nobody() {
    let (backend, gateway, client) = behind(Backend::builder("b").tool("t").on("tools/call", |call: Call| async move {
        let go = call.seen.arguments_raw().contains("wait");
        let stream = call.stream();
        if go {
            tokio::time::sleep(QUIET).await;
        }
        stream.answer(&raw::text("done")).await;
    }))
    .await;
    let client = client.on_one_connection().await;
    client.call("t", json!({})).await;
    let session = backend.seen_of("tools/call")[0].session.clone().expect("a session");
    let params = json!({ "name": "t", "arguments": { "k": "wait" } });
    let caller = client.clone();
    let call = tokio::spawn(async move { caller.request("tools/call", params).meta(LEVEL, json!("debug")).answer().await });
    backend.saw("tools/call", 2).await;
    let stray = raw::notification("notifications/message", r#"{"level":"error","data":"stray"}"#);
    let push = backend.push(&session, &stray);
    // A gateway that holds no stream of its own there hears nothing, which is as good.
    let _ = tokio::time::timeout(QUIET, push).await;
    let answer = call.await.expect("no panic");
    assert_eq!(answer.messages(), Vec::<Value>::new());
    gateway.stop().await;
}

#[tokio::test]
async fn a_client_that_goes_away_before_the_answer_has_cancelled_its_call() {
    let (backend, gateway, client) = behind(Backend::builder("b").tool("t").on("tools/call", |call: Call| call.hang())).await;
    let ask = client.request("tools/call", json!({ "name": "t", "arguments": {} })).id("\"mine\"").body();
    let caller = client.clone();
    let call = tokio::spawn(async move { caller.request("tools/call", json!({ "name": "t" })).send_body(ask).await.status });
    let upstream = backend.saw("tools/call", 1).await.remove(0);
    call.abort();
    let cancelled = backend.saw("notifications/cancelled", 1).await.remove(0);
    assert_eq!(cancelled.session, upstream.session);
    assert_eq!(Some(cancelled.params()["requestId"].to_string()), upstream.message().id.map(|id| id.get().to_owned()));
    gateway.stop().await;
}

#[tokio::test]
async fn a_client_that_closes_the_stream_of_a_call_has_cancelled_it() {
    let script = |call: Call| async move {
        let token = call.progress_token().expect("a token");
        let stream = call.stream();
        for step in 1.. {
            if !stream.notify("notifications/progress", &format!(r#"{{"progressToken":{token},"progress":{step}}}"#)).await {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let (backend, gateway, client) = behind(Backend::builder("b").tool("t").on("tools/call", script)).await;
    let params = json!({ "name": "t", "arguments": {}, "_meta": { "progressToken": 1 } });
    let mut events = client.request("tools/call", params).send().await.events();
    events.method("notifications/progress").await;
    drop(events);
    let cancelled = backend.saw("notifications/cancelled", 1).await.remove(0);
    let upstream = backend.seen_of("tools/call").remove(0);
    assert_eq!(Some(cancelled.params()["requestId"].to_string()), upstream.message().id.map(|id| id.get().to_owned()));
    gateway.stop().await;
}

#[tokio::test]
async fn a_finished_call_is_not_cancelled_by_the_end_of_its_connection() {
    let (backend, gateway, client) = behind(Backend::builder("b").tool("t")).await;
    for _ in 0..3 {
        client.call("t", json!({})).await;
    }
    tokio::time::sleep(QUIET).await;
    assert!(backend.seen_of("notifications/cancelled").is_empty());
    gateway.stop().await;
}

#[tokio::test]
async fn a_call_that_takes_too_long_ends_with_an_error_and_the_backend_is_told() {
    let backend = Backend::builder("b").tool("t").on("tools/call", |call: Call| call.hang()).start().await;
    let gateway = Gateway::start(&format!("{}limits: {{ call_timeout: 1s }}\n", http_backends(&[("one", &backend.url())]))).await;
    let error = Modern::new(gateway.mcp()).error("tools/call", json!({ "name": "t", "arguments": {} })).await;
    assert_eq!(error["code"], -31002, "{error}");
    backend.saw("notifications/cancelled", 1).await;
    gateway.stop().await;
}

// --- subscriptions/listen

/// The upstream sessions on which the backend can tell the gateway something.
fn open(backend: &Backend) -> Vec<String> {
    backend.sessions().into_iter().filter(|session| !backend.stream_is_closed(session)).collect()
}

/// Has the backend say `what` changed on every stream that it has, until the client hears it.
async fn hears(backend: &Backend, events: &mut Events, what: &str) -> Value {
    within(what, async {
        loop {
            for session in open(backend) {
                backend.push(&session, &changed(what)).await;
            }
            let method = format!("notifications/{what}/list_changed");
            if let Ok(message) = tokio::time::timeout(QUIET, events.method(&method)).await {
                return message;
            }
        }
    })
    .await
}

fn changed(what: &str) -> String {
    raw::notification(&format!("notifications/{what}/list_changed"), "{}")
}

#[tokio::test]
async fn a_listen_is_acknowledged_first_and_everything_on_it_carries_its_id() {
    let (backend, gateway, client) = behind(Backend::builder("b").tool("t").prompt("p").resource("x://r")).await;
    let all = json!({ "toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true });
    for id in ["\"L-1\"", "7", r#""\u0041""#] {
        let ask = client.request("subscriptions/listen", json!({ "notifications": all })).id(id);
        let reply = ask.send().await.must_be(200).await;
        assert_eq!(reply.header("x-accel-buffering"), Some("no"));
        let mut events = reply.events();
        let first = events.message().await.expect("an acknowledgement");
        let message = first.json();
        assert_eq!(message["method"], "notifications/subscriptions/acknowledged", "{message}");
        assert_eq!(message["params"]["notifications"], all, "{message}");
        assert_eq!(first.id, None, "there is no resumption in this era");
        let id = serde_json::from_str::<Value>(id).expect("JSON").to_string();
        let own = |message: &Value| id == subscription(message);
        assert!(own(&message), "{message}");
        for what in ["tools", "prompts", "resources"] {
            let message = hears(&backend, &mut events, what).await;
            assert!(own(&message), "{message}");
        }
    }
    gateway.stop().await;
}

#[tokio::test]
async fn two_listens_are_told_apart_and_each_gets_only_what_it_wanted() {
    let (backend, gateway, client) = behind(Backend::builder("b").tool("t").prompt("p")).await;
    let (acknowledged, mut tools) = client.listen("\"tools\"", json!({ "toolsListChanged": true })).await;
    assert_eq!(acknowledged["toolsListChanged"], true, "{acknowledged}");
    assert!(acknowledged["promptsListChanged"] != true, "{acknowledged}");
    let (_, mut prompts) = client.listen("2", json!({ "promptsListChanged": true })).await;
    let (_, mut nothing) = client.listen("3", json!({})).await;
    // Anonymous clients are told apart by their connection, so each listen has an upstream of its own.
    let sessions = eventually("a stream for each listen", || {
        let open = open(&backend);
        (open.len() == 3).then_some(open)
    })
    .await;
    for session in &sessions {
        backend.push(session, &changed("tools")).await;
        backend.push(session, &changed("prompts")).await;
        backend.push(session, &raw::notification("notifications/message", r#"{"level":"error","data":1}"#)).await;
        backend.push(session, &raw::notification("notifications/progress", r#"{"progressToken":1,"progress":1}"#)).await;
    }
    assert_eq!(subscription(&tools.method("notifications/tools/list_changed").await), "\"tools\"");
    assert_eq!(subscription(&prompts.method("notifications/prompts/list_changed").await), "2");
    for events in [&mut tools, &mut prompts, &mut nothing] {
        events.quiet_for(QUIET).await;
    }
    gateway.stop().await;
}

#[tokio::test]
async fn nothing_is_told_that_did_not_happen() {
    let (_backend, gateway, client) = behind(Backend::builder("b").tool("t").prompt("p").resource("x://r")).await;
    let all =
        json!({ "toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true, "resourceSubscriptions": ["x://r"] });
    let (acknowledged, mut events) = client.listen("1", all.clone()).await;
    assert_eq!(acknowledged, all);
    events.quiet_for(QUIET * 3).await;
    gateway.stop().await;
}

#[tokio::test]
async fn only_what_a_backend_can_tell_is_acknowledged() {
    let refuse = |call: Call| async move { call.error(-32601, "Method not found") };
    let builder = Backend::builder("b").tool("t").capabilities(r#"{"tools":{"listChanged":true}}"#).on("resources/subscribe", refuse);
    let (_backend, gateway, client) = behind(builder).await;
    let wanted = json!({ "toolsListChanged": true, "resourceSubscriptions": ["x://nowhere"] });
    let (acknowledged, _events) = client.listen("1", wanted).await;
    assert_eq!(acknowledged["toolsListChanged"], true, "{acknowledged}");
    assert!(acknowledged["resourceSubscriptions"].as_array().is_none_or(Vec::is_empty), "nobody has that resource: {acknowledged}");
    gateway.stop().await;
}

#[tokio::test]
async fn a_listen_without_notifications_is_refused() {
    let (_backend, gateway, client) = behind(Backend::builder("b").tool("t")).await;
    for params in [json!({}), json!({ "notifications": [] }), json!({ "notifications": { "resourceSubscriptions": "x://r" } })] {
        let answer = client.ask("subscriptions/listen", params).await;
        assert_eq!(answer.error()["code"], -32602, "{}", answer.raw);
    }
    gateway.stop().await;
}

#[tokio::test]
async fn updates_of_resources_come_under_their_public_uris() {
    // Both have x://r, so that it is published under two URIs.
    let with = |name: &str| Backend::builder(name).resource("x://r").resource(&format!("only://{name}"));
    let (one, two) = (with("one").start().await, with("two").start().await);
    let gateway = Gateway::start(&http_backends(&[("one", &one.url()), ("two", &two.url())])).await;
    let client = Modern::new(gateway.mcp());
    let uris = client.names("resources/list", "resources").await;
    for uri in ["lockgate://one/x://r", "lockgate://two/x://r", "only://one", "only://two"] {
        assert!(uris.contains(&uri.to_owned()), "{uris:?}");
    }
    let wanted = json!(["lockgate://one/x://r", "only://two"]);
    let (acknowledged, mut events) = client.listen("\"r\"", json!({ "resourceSubscriptions": wanted })).await;
    assert_eq!(acknowledged["resourceSubscriptions"], wanted, "{acknowledged}");
    assert_eq!(one.saw("resources/subscribe", 1).await[0].params()["uri"], "x://r");
    assert_eq!(two.saw("resources/subscribe", 1).await[0].params()["uri"], "only://two");
    for (backend, uri, public) in [(&one, "x://r", "lockgate://one/x://r"), (&two, "only://two", "only://two")] {
        let session = backend.seen_of("resources/subscribe").pop().and_then(|seen| seen.session).expect("a session");
        let note = |uri: &str| raw::notification("notifications/resources/updated", &format!(r#"{{"uri":"{uri}","x":1.0}}"#));
        backend.push(&session, &note("x://other")).await;
        backend.push(&session, &note(uri)).await;
        let message = events.method("notifications/resources/updated").await;
        assert_eq!((&message["params"]["uri"], subscription(&message)), (&json!(public), "\"r\"".to_owned()), "{message}");
    }
    drop(events);
    for backend in [&one, &two] {
        eventually("the end of the subscription", || {
            (backend.sessions().is_empty() || !backend.seen_of("resources/unsubscribe").is_empty()).then_some(())
        })
        .await;
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_listen_hears_of_every_backend_and_one_that_is_down_does_not_hold_it_up() {
    let (one, two) = (Backend::with_tools("one", &["t"]).await, Backend::with_tools("two", &["t"]).await);
    let addr = free_port();
    let late = format!("http://{addr}/mcp");
    let backends = http_backends(&[("one", &one.url()), ("two", &two.url()), ("late", &late)]);
    let gateway = Gateway::start(&format!("{backends}limits: {{ initialize_timeout: 1s }}\n")).await;
    let client = Modern::new(gateway.mcp());
    let (_, mut events) = client.listen("1", json!({ "toolsListChanged": true })).await;
    for backend in [&one, &two] {
        hears(backend, &mut events, "tools").await;
    }
    let _late = Backend::builder("late").tool("u").start_at(addr).await;
    events.method("notifications/tools/list_changed").await;
    assert!(client.names("tools/list", "tools").await.contains(&"late__u".to_owned()));
    gateway.stop().await;
}

#[tokio::test]
async fn a_listen_ends_with_a_result_when_the_gateway_stops() {
    let (backend, mut gateway, client) = behind(Backend::builder("b").tool("t")).await;
    let (_, mut events) = client.listen("\"last\"", json!({ "toolsListChanged": true })).await;
    hears(&backend, &mut events, "tools").await;
    gateway.terminate();
    let answer = events.answer().await;
    assert_eq!((answer.id_raw(), &answer.result()["resultType"]), ("\"last\"", &json!("complete")), "{}", answer.raw);
    events.ended(Duration::from_secs(5)).await;
    assert!(gateway.wait().await.success(), "{}", gateway.log());
    backend.has_sessions(0).await;
}

#[tokio::test]
async fn changed_policies_are_heard_on_a_listen() {
    let backend = Backend::with_tools("b", &["t"]).await;
    let yaml =
        |aliases: &str| format!("{}virtual_hosts:\n  /mcp: {{ aliases: {{ {aliases} }} }}\n", http_backends(&[("one", &backend.url())]));
    let gateway = Gateway::start(&yaml("")).await;
    let client = Modern::new(gateway.mcp());
    assert_eq!(client.names("tools/list", "tools").await, ["t"]);
    let (_, mut events) = client.listen("1", json!({ "toolsListChanged": true })).await;
    gateway.configure(&yaml("now: one/t"));
    let (status, _) = gateway.admin_post("/reload", &[], "").await;
    assert_eq!(status, 200);
    assert_eq!(subscription(&events.method("notifications/tools/list_changed").await), "1");
    assert_eq!(client.names("tools/list", "tools").await, ["now"]);
    gateway.stop().await;
}

// --- both eras at once

#[tokio::test]
async fn a_legacy_and_a_modern_client_on_one_endpoint_see_nothing_of_each_other() {
    let script = |call: Call| async move {
        let (who, token) = (call.seen.arguments_raw().to_owned(), call.progress_token().expect("a token"));
        let stream = call.stream();
        for step in 1..=5 {
            stream
                .notify("notifications/progress", &format!(r#"{{"progressToken":{token},"progress":{step},"message":"{step}","x":{who}}}"#))
                .await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        stream.answer(&format!(r#"{{"content":[],"structuredContent":{who}}}"#)).await;
    };
    let (backend, gateway, client) = behind(Backend::builder("b").tool("t").resource("x://r").on("tools/call", script)).await;
    let session = gateway.mcp().initialize_as(LATEST, json!({})).await;
    let mut own = session.stream().await;
    let (_, mut listening) = client.listen("1", json!({ "toolsListChanged": true, "resourceSubscriptions": ["x://r"] })).await;
    let params = |who: &str| json!({ "name": "t", "arguments": { "who": who }, "_meta": { "progressToken": "same" } });
    let modern = client.clone();
    let of_modern = params("modern");
    let other = tokio::spawn(async move { modern.request("tools/call", of_modern).id("1").answer().await });
    let answer = session.ask_raw("1", "tools/call", &params("legacy").to_string()).await;
    for (who, answer) in [("legacy", answer), ("modern", other.await.expect("no panic"))] {
        assert_eq!((answer.id_raw(), &answer.result()["structuredContent"]["who"]), ("1", &json!(who)));
        let notes = answer.messages();
        assert_eq!(notes.len(), 5, "{notes:?}");
        assert!(notes.iter().all(|note| note["params"]["x"]["who"] == who && note["params"]["progressToken"] == "same"), "{notes:?}");
        assert_eq!(answer.result().get("resultType").is_some(), who == "modern", "{}", answer.raw);
    }
    let upstreams: Vec<_> = backend.seen_of("tools/call").into_iter().map(|seen| seen.session).collect();
    assert_ne!(upstreams[0], upstreams[1]);
    // What the backend says in the session of the one is not for the other.
    let of_legacy =
        backend.seen_of("tools/call").iter().find(|seen| seen.arguments_raw().contains("legacy")).and_then(|seen| seen.session.clone());
    backend.push(&of_legacy.expect("a session"), &changed("tools")).await;
    own.method("notifications/tools/list_changed").await;
    listening.quiet_for(QUIET).await;
    let of_modern = backend.saw("resources/subscribe", 1).await[0].session.clone().expect("a session");
    backend.push(&of_modern, &raw::notification("notifications/resources/updated", r#"{"uri":"x://r"}"#)).await;
    listening.method("notifications/resources/updated").await;
    own.quiet_for(QUIET).await;
    gateway.stop().await;
}

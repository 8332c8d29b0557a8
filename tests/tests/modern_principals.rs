//! Clients of 2026-07-28 have no sessions; what keeps them apart is the principal, or the connection where there is none. Nothing
//! crosses from one principal to another, and equal ids of one principal do not get into each other's way either.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use lockgate_tests::{
    backend::{Backend, Builder, Call, Stream},
    eventually,
    gateway::{AUTH, Gateway, TOKEN_X, TOKEN_Y, http_backends},
    modern::{LEVEL, Modern},
    raw::{self, first_text},
    within,
};
use serde_json::{Value, json};

const QUIET: Duration = Duration::from_millis(400);

/// One backend, and the clients of the principals x and y.
async fn two(builder: Builder, more: &str) -> (Backend, Gateway, [Modern; 2]) {
    let backend = builder.start().await;
    let gateway = Gateway::start(&format!("{}{AUTH}{more}", http_backends(&[("one", &backend.url())]))).await;
    let clients = [TOKEN_X, TOKEN_Y].map(|token| Modern::new(gateway.mcp().with_bearer(token)));
    (backend, gateway, clients)
}

/// Calls that a backend has and answers when the test says so, with who made them.
type Held = Arc<Mutex<Vec<(String, String, Option<String>, Stream)>>>;

fn holding() -> (Held, Builder) {
    let held = Held::default();
    let kept = held.clone();
    let script = move |call: Call| {
        let kept = kept.clone();
        async move {
            let arguments: Value = serde_json::from_str(call.seen.arguments_raw()).expect("arguments");
            let who = arguments["who"].as_str().expect("who").to_owned();
            let (session, token) = (call.session(), call.progress_token());
            kept.lock().expect("no panic").push((who, session, token, call.stream()));
        }
    };
    (held, Backend::builder("b").tool("t").resource("x://r").on("tools/call", script))
}

async fn arrived(held: &Held, count: usize) {
    eventually(&format!("{count} calls at the backend"), || (held.lock().expect("no panic").len() == count).then_some(())).await;
}

/// Reports progress on all of them in turn, then answers in the reverse order of their arrival.
async fn answer_all(held: &Held) {
    let mut held = std::mem::take(&mut *held.lock().expect("no panic"));
    for step in 1..=3 {
        for (who, _, token, stream) in &held {
            let token = token.as_deref().expect("a token");
            let note = format!(r#"{{"progressToken":{token},"progress":{step},"message":"{who}"}}"#);
            stream.notify("notifications/progress", &note).await;
        }
    }
    while let Some((who, _, _, stream)) = held.pop() {
        stream.answer(&raw::text(&who)).await;
    }
}

/// Calls with one id and one progress token, at the same time, from each of these clients.
async fn equal_calls(clients: &[Modern], held: &Held) {
    let calls: Vec<_> = clients
        .iter()
        .cloned()
        .enumerate()
        .map(|(n, client)| {
            let params = json!({ "name": "t", "arguments": { "who": format!("client {n}") }, "_meta": { "progressToken": "same" } });
            tokio::spawn(async move { client.request("tools/call", params).id("1").answer().await })
        })
        .collect();
    arrived(held, clients.len()).await;
    answer_all(held).await;
    for (n, call) in calls.into_iter().enumerate() {
        let answer = within("an answer", call).await.expect("no panic");
        let who = format!("client {n}");
        assert_eq!((answer.id_raw(), first_text(&answer.result())), ("1", who.as_str()));
        let notes: Vec<_> = answer.messages().iter().map(|note| note["params"]["message"].clone()).collect();
        assert_eq!(notes, [json!(who), json!(who), json!(who)], "progress of somebody else");
        assert!(answer.messages().iter().all(|note| note["params"]["progressToken"] == "same"));
    }
}

#[tokio::test]
async fn equal_ids_and_progress_tokens_of_two_principals_never_cross() {
    let (held, builder) = holding();
    let (backend, gateway, clients) = two(builder, "").await;
    equal_calls(&clients, &held).await;
    let sessions: Vec<_> = backend.seen_of("tools/call").into_iter().map(|seen| seen.session).collect();
    assert_ne!(sessions[0], sessions[1], "each principal has an upstream of its own");
    gateway.stop().await;
}

#[tokio::test]
async fn equal_ids_and_progress_tokens_of_one_principal_on_two_connections_both_work() {
    let (held, builder) = holding();
    let (_backend, gateway, [x, _]) = two(builder, "").await;
    let clients = [x.clone().on_one_connection().await, x.on_one_connection().await];
    equal_calls(&clients, &held).await;
    gateway.stop().await;
}

#[tokio::test]
async fn equal_ids_and_progress_tokens_of_two_anonymous_connections_never_cross() {
    let (held, builder) = holding();
    let backend = builder.start().await;
    let gateway = Gateway::start(&http_backends(&[("one", &backend.url())])).await;
    let clients = [Modern::new(gateway.mcp()).on_one_connection().await, Modern::new(gateway.mcp()).on_one_connection().await];
    equal_calls(&clients, &held).await;
    let sessions: Vec<_> = backend.seen_of("tools/call").into_iter().map(|seen| seen.session).collect();
    assert_ne!(sessions[0], sessions[1], "nobody knows whether they are one");
    gateway.stop().await;
}

#[tokio::test]
async fn going_away_cancels_only_ones_own_call() {
    let (held, builder) = holding();
    let (backend, gateway, [x, y]) = two(builder, "").await;
    let start = |client: &Modern, who: &str| {
        let (client, params) = (client.clone(), json!({ "name": "t", "arguments": { "who": who } }));
        tokio::spawn(async move { client.request("tools/call", params).id("1").answer().await })
    };
    let (of_x, again, of_y) = (start(&x, "x"), start(&x, "x again"), start(&y, "y"));
    arrived(&held, 3).await;
    of_x.abort();
    let cancelled = backend.saw("notifications/cancelled", 1).await.remove(0);
    let gone = backend.seen_of("tools/call").into_iter().find(|seen| seen.arguments_raw() == r#"{"who":"x"}"#).expect("it was called");
    assert_eq!(cancelled.session, gone.session);
    assert_eq!(Some(cancelled.params()["requestId"].to_string()), gone.message().id.map(|id| id.get().to_owned()));
    let streams = std::mem::take(&mut *held.lock().expect("no panic"));
    for (who, _, _, stream) in streams {
        stream.answer(&raw::text(&who)).await;
    }
    for (who, call) in [("x again", again), ("y", of_y)] {
        assert_eq!(first_text(&within("an answer", call).await.expect("no panic").result()), who);
    }
    assert_eq!(backend.seen_of("notifications/cancelled").len(), 1);
    gateway.stop().await;
}

#[tokio::test]
async fn a_list_of_one_principal_is_never_served_to_another() {
    // What is listed depends on who asks, as far as the backend can tell: by the session.
    let script = |call: Call| async move {
        let session = call.session();
        call.result(&format!(r#"{{"tools":[{{"name":"of-{session}","inputSchema":{{"type":"object"}}}}]}}"#));
    };
    let (_backend, gateway, [x, y]) = two(Backend::builder("b").on("tools/list", script), "").await;
    let (of_x, of_y) = (x.names("tools/list", "tools").await, y.names("tools/list", "tools").await);
    assert_ne!(of_x, of_y);
    for _ in 0..3 {
        assert_eq!(x.names("tools/list", "tools").await, of_x);
        assert_eq!(y.names("tools/list", "tools").await, of_y);
    }
    gateway.stop().await;
}

#[tokio::test]
async fn what_one_principal_may_not_see_another_does_not_show_it() {
    let policies = "virtual_hosts:\n  /mcp:\n    policies:\n      - name: filter\n        config: { rules: [{ things: \"one/t\", who: { principals: [x] }, do: allow }, { things: \"one/*\", do: deny }] }\n      - namespace\n";
    let (_backend, gateway, [x, y]) = two(Backend::builder("b").tool("t"), policies).await;
    for _ in 0..2 {
        assert_eq!(x.names("tools/list", "tools").await, ["t"]);
        assert_eq!(y.names("tools/list", "tools").await, Vec::<String>::new());
    }
    x.call("t", json!({})).await;
    y.error("tools/call", json!({ "name": "t", "arguments": {} })).await;
    gateway.stop().await;
}

#[tokio::test]
async fn log_messages_go_to_the_call_that_they_belong_to() {
    let (held, builder) = holding();
    let (_backend, gateway, [x, y]) = two(builder, "").await;
    let start = |client: &Modern, who: &str, level: Option<&str>| {
        let (client, params) = (client.clone(), json!({ "name": "t", "arguments": { "who": who } }));
        let level = level.map(str::to_owned);
        tokio::spawn(async move {
            let ask = client.request("tools/call", params);
            let ask = match level {
                Some(level) => ask.meta(LEVEL, json!(level)),
                None => ask,
            };
            ask.answer().await
        })
    };
    let calls = [
        ("loud", start(&x, "loud", Some("debug")), 2),
        ("quiet", start(&x, "quiet", Some("error")), 1),
        ("silent", start(&x, "silent", None), 0),
        ("other", start(&y, "other", Some("debug")), 2),
    ];
    arrived(&held, 4).await;
    let streams = std::mem::take(&mut *held.lock().expect("no panic"));
    for level in ["debug", "error"] {
        for (who, _, _, stream) in &streams {
            stream.notify("notifications/message", &format!(r#"{{"level":"{level}","data":"{who}"}}"#)).await;
        }
    }
    for (who, _, _, stream) in streams {
        stream.answer(&raw::text(&who)).await;
    }
    for (who, call, count) in calls {
        let messages = within("an answer", call).await.expect("no panic").messages();
        assert_eq!(messages.len(), count, "{who}: {messages:?}");
        assert!(messages.iter().all(|message| message["params"]["data"] == who), "{who}: {messages:?}");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn what_a_backend_tells_one_principal_no_other_hears() {
    let (backend, gateway, [x, y]) = two(Backend::builder("b").tool("t").resource("x://r"), "").await;
    let wanted = json!({ "toolsListChanged": true, "resourceSubscriptions": ["x://r"] });
    let (_, mut to_x) = x.listen("1", wanted.clone()).await;
    let of_x = backend.saw("resources/subscribe", 1).await[0].session.clone().expect("a session");
    let (_, mut to_y) = y.listen("1", wanted).await;
    let of_y = backend.saw("resources/subscribe", 2).await[1].session.clone().expect("a session");
    assert_ne!(of_x, of_y);
    let updated = raw::notification("notifications/resources/updated", r#"{"uri":"x://r"}"#);
    let changed = raw::notification("notifications/tools/list_changed", "{}");
    for note in [&updated, &changed] {
        backend.push(&of_x, note).await;
    }
    to_x.method("notifications/resources/updated").await;
    to_x.method("notifications/tools/list_changed").await;
    to_y.quiet_for(QUIET).await;
    backend.push(&of_y, &updated).await;
    to_y.method("notifications/resources/updated").await;
    to_x.quiet_for(QUIET).await;
    gateway.stop().await;
}

#[tokio::test]
async fn two_listens_of_one_principal_with_one_id_are_two_streams() {
    let (backend, gateway, [x, _]) = two(Backend::builder("b").tool("t").resource("x://r").resource("x://s"), "").await;
    let (_, mut first) = x.listen("\"same\"", json!({ "resourceSubscriptions": ["x://r"] })).await;
    let (_, mut second) = x.listen("\"same\"", json!({ "resourceSubscriptions": ["x://s", "x://r"] })).await;
    backend.saw("resources/subscribe", 2).await;
    let tell = async |uri: &str| {
        let note = raw::notification("notifications/resources/updated", &json!({ "uri": uri }).to_string());
        let session = backend.seen_of("resources/subscribe").pop().and_then(|seen| seen.session).expect("a session");
        backend.push(&session, &note).await;
    };
    tell("x://s").await;
    assert_eq!(second.method("notifications/resources/updated").await["params"]["uri"], "x://s");
    first.quiet_for(QUIET).await;
    tell("x://r").await;
    for events in [&mut first, &mut second] {
        assert_eq!(events.method("notifications/resources/updated").await["params"]["uri"], "x://r");
    }
    // The one that stays goes on to be served when the other goes.
    drop(second);
    tokio::time::sleep(QUIET).await;
    let unsubscribed: Vec<_> = backend.seen_of("resources/unsubscribe").iter().map(|seen| seen.params()["uri"].clone()).collect();
    assert!(!unsubscribed.contains(&json!("x://r")), "{unsubscribed:?}");
    tell("x://r").await;
    first.method("notifications/resources/updated").await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_token_is_wanted_with_every_request() {
    let (backend, gateway, [x, _]) = two(Backend::builder("b").tool("t"), "").await;
    x.call("t", json!({})).await;
    let ask = |client: Modern| async move { client.request("tools/call", json!({ "name": "t", "arguments": {} })).send().await };
    for client in [Modern::new(gateway.mcp()), Modern::new(gateway.mcp().with_bearer("wrong"))] {
        let reply = ask(client).await;
        assert_eq!(reply.status, 401);
        assert!(reply.header("www-authenticate").is_some_and(|value| value.starts_with("Bearer")), "{:?}", reply.headers);
    }
    // The connection of a principal is no proof of who sends the next request over it.
    let mut on_one = x.on_one_connection().await;
    on_one.call("t", json!({})).await;
    on_one.at.headers.clear();
    assert_eq!(ask(on_one).await.status, 401);
    assert_eq!(backend.seen_of("tools/call").len(), 2);
    for seen in backend.seen() {
        assert!(!format!("{:?}{:?}", seen.headers, seen.body).contains(TOKEN_X), "a credential went on to the backend");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn two_principals_on_one_connection_are_two() {
    let (backend, gateway, [x, y]) = two(Backend::builder("b").tool("t"), "").await;
    let mut shared = x.clone().on_one_connection().await;
    for client in [&x, &y, &x] {
        shared.at.headers.clone_from(&client.at.headers);
        shared.call("t", json!({})).await;
    }
    let sessions: Vec<_> = backend.seen_of("tools/call").into_iter().map(|seen| seen.session).collect();
    assert_eq!(sessions[0], sessions[2]);
    assert_ne!(sessions[0], sessions[1]);
    gateway.stop().await;
}

#[tokio::test]
async fn one_principals_virtual_hosts_are_two_chambers() {
    let hosts = "virtual_hosts:\n  /a: { backends: [one] }\n  /b: { backends: [one] }\n";
    let (backend, gateway, _) = two(Backend::builder("b").tool("t"), hosts).await;
    for path in ["/a", "/b"] {
        Modern::new(gateway.at(path).with_bearer(TOKEN_X)).call("t", json!({})).await;
    }
    let sessions: Vec<_> = backend.seen_of("tools/call").into_iter().map(|seen| seen.session).collect();
    assert_ne!(sessions[0], sessions[1]);
    gateway.stop().await;
}

#[tokio::test]
async fn a_client_that_reads_nothing_costs_only_its_own_principal() {
    let script = |call: Call| async move {
        if call.seen.arguments_raw().contains("flood") {
            let token = call.progress_token().expect("a token");
            let stream = call.stream();
            let fill = "f".repeat(4096);
            for step in 1..20_000 {
                let note = format!(r#"{{"progressToken":{token},"progress":{step},"message":"{fill}"}}"#);
                if !stream.notify("notifications/progress", &note).await {
                    return;
                }
            }
            stream.answer(&raw::text("flooded")).await;
        } else {
            call.result(&raw::text("done"));
        }
    };
    let (backend, gateway, [x, y]) = two(Backend::builder("b").tool("t").on("tools/call", script), "").await;
    let params = json!({ "name": "t", "arguments": { "k": "flood" }, "_meta": { "progressToken": 1 } });
    let unread = x.request("tools/call", params).send().await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    for _ in 0..5 {
        let start = std::time::Instant::now();
        assert_eq!(first_text(&y.call("t", json!({})).await), "done");
        assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    }
    drop(unread);
    backend.saw("notifications/cancelled", 1).await;
    gateway.stop().await;
}

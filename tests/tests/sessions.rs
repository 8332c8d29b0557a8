//! A session is a closed chamber: the table of keys and lifetimes, line by line, and nothing that crosses from one session
//! into another.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use lockgate_tests::{
    backend::{Backend, Call, Hole},
    client::{ACCEPT, Endpoint, JSON, LATEST, Reply, Session, initialize_body},
    eventually,
    gateway::{AUTH, Gateway, TOKEN_X, TOKEN_Y, http_backends},
    raw::{self, first_text},
    within,
};
use serde_json::{Value, json};
use tokio::{net::TcpStream, sync::Notify};

const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;

async fn one(backend: &Backend, more: &str) -> Gateway {
    Gateway::start(&format!("{}{more}", http_backends(&[("one", &backend.url())]))).await
}

/// Everything about an answer that could tell one kind of refusal from another.
async fn fingerprint(reply: Reply) -> (u16, Vec<(String, String)>, String) {
    let mut headers: Vec<_> = reply.headers.iter().map(|(name, value)| (name.to_string(), format!("{value:?}"))).collect();
    headers.retain(|(name, _)| name != "date");
    headers.sort();
    (reply.status, headers, reply.text().await)
}

/// POST, GET and DELETE with this session id.
async fn all_verbs(at: &Endpoint, id: &str) -> Vec<(u16, Vec<(String, String)>, String)> {
    let session = ("mcp-session-id", id);
    vec![
        fingerprint(at.post(&[session], PING).await).await,
        fingerprint(at.post(&[session], raw::notification("notifications/roots/list_changed", "{}")).await).await,
        fingerprint(at.send("GET", &[session, ("accept", "text/event-stream")], "").await).await,
        fingerprint(at.send("DELETE", &[session], "").await).await,
    ]
}

// --- the key

#[tokio::test]
async fn a_request_without_a_session_id_is_refused_even_when_there_is_only_one_session() {
    let backend = Backend::with_tools("b", &["t"]).await;
    let gateway = one(&backend, "").await;
    let _only = gateway.initialize().await;
    let at = gateway.mcp();
    let called = backend.seen_of("tools/call").len();
    for body in [
        PING,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
    ] {
        assert_eq!(at.post(&[], body).await.status, 400, "{body}");
    }
    assert_eq!(at.send("GET", &[("accept", "text/event-stream")], "").await.status, 400);
    assert_eq!(at.send("DELETE", &[], "").await.status, 400);
    assert_eq!(backend.seen_of("tools/call").len(), called, "nothing reached the backend");
    let answer = at.post(&[], r#"{"jsonrpc":"2.0","id":"mine","method":"ping"}"#).await.answer().await;
    assert_eq!(answer.id_raw(), "\"mine\"", "a refusal carries the id of the request");
    gateway.stop().await;
}

#[tokio::test]
async fn unknown_foreign_and_deleted_ids_are_answered_alike_with_404() {
    let backend = Backend::with_tools("b", &["t"]).await;
    let hosts = "virtual_hosts:\n  /mcp: { backends: [one] }\n  /other: { backends: [one] }\n";
    let gateway = one(&backend, &format!("{AUTH}{hosts}")).await;
    let (x, y) = (gateway.mcp().with_bearer(TOKEN_X), gateway.mcp().with_bearer(TOKEN_Y));
    let mine = y.initialize().await;
    let foreign = x.initialize().await;
    let elsewhere = gateway.at("/other").with_bearer(TOKEN_Y).initialize().await;
    let deleted = y.initialize().await;
    assert!((200..300).contains(&deleted.delete().await));
    // Same length and alphabet as a real one, so that it is unknown and not malformed.
    let unknown: String = mine.id.chars().rev().collect();
    let expected = all_verbs(&y, &unknown).await;
    for answer in &expected {
        assert_eq!(answer.0, 404, "{answer:?}");
    }
    for (what, id) in [("of another principal", &foreign.id), ("of another virtual host", &elsewhere.id), ("deleted", &deleted.id)] {
        assert_eq!(all_verbs(&y, id).await, expected, "an id {what}");
    }
    assert_eq!(foreign.ask("ping", json!({})).await.status, 200, "the foreign session was not touched");
    assert_eq!(elsewhere.ask("ping", json!({})).await.status, 200, "nor that of the other virtual host");
    assert_eq!(mine.ask("ping", json!({})).await.status, 200);
    gateway.stop().await;
}

#[tokio::test]
async fn malformed_ids_are_refused_with_400() {
    let backend = Backend::with_tools("b", &["t"]).await;
    let gateway = one(&backend, "").await;
    let _live = gateway.initialize().await;
    for id in ["", "a b", "tab\there", "ü", &"x".repeat(5000)] {
        let status = gateway.mcp().post(&[("mcp-session-id", id)], PING).await.status;
        assert_eq!(status, 400, "{:?}", id.get(..20).unwrap_or(id));
    }
    gateway.stop().await;
}

#[tokio::test]
async fn two_session_id_headers_are_refused() {
    let backend = Backend::with_tools("b", &["t"]).await;
    let gateway = one(&backend, "").await;
    let (a, b) = (gateway.initialize().await, gateway.initialize().await);
    let status = gateway.mcp().post(&[("mcp-session-id", &a.id), ("mcp-session-id", &b.id)], PING).await.status;
    assert_eq!(status, 400);
    gateway.stop().await;
}

#[tokio::test]
async fn initialize_with_any_session_id_gives_a_new_session_and_leaves_the_named_one_alone() {
    let backend = Backend::with_tools("b", &["t"]).await;
    let gateway = one(&backend, "").await;
    let live = gateway.mcp().initialize_as("2025-06-18", json!({ "elicitation": {} })).await;
    let ended = gateway.initialize().await;
    ended.delete().await;
    for id in [&live.id, &ended.id, &"invented".to_owned()] {
        let reply = gateway.mcp().post(&[("mcp-session-id", id)], initialize_body(LATEST, &json!({}))).await;
        assert_eq!(reply.status, 200);
        let new = reply.header("mcp-session-id").expect("a new id").to_owned();
        assert!(new != *id && new != live.id, "{new}");
    }
    assert_eq!(live.ask("ping", json!({})).await.status, 200);
    let upstream = backend.sessions().into_iter().filter(|id| backend.init_of(id)["capabilities"]["elicitation"].is_object()).count();
    assert_eq!(upstream, 1, "what a session negotiated never changes afterwards");
    gateway.stop().await;
}

#[tokio::test]
async fn session_ids_are_long_visible_and_never_alike() {
    let backend = Backend::with_tools("b", &["t"]).await;
    let gateway = one(&backend, "").await;
    let mut ids = std::collections::HashSet::new();
    for _ in 0..50 {
        let id = gateway.initialize().await.id;
        // 128 bits take 22 characters of 64 kinds.
        assert!(id.len() >= 22 && id.bytes().all(|byte| byte.is_ascii_graphic()), "{id}");
        assert!(ids.insert(id));
    }
    gateway.stop().await;
}

#[tokio::test]
async fn an_id_in_flight_twice_fails_the_second_and_leaves_the_first() {
    let go = Arc::new(Notify::new());
    let gate = go.clone();
    let script = move |call: Call| {
        let gate = gate.clone();
        async move {
            gate.notified().await;
            call.result(&raw::text("first"));
        }
    };
    let backend = Backend::builder("b").tool("t").on("tools/call", script).start().await;
    let gateway = one(&backend, "").await;
    let session = Arc::new(gateway.initialize().await);
    let caller = session.clone();
    let first = tokio::spawn(async move { caller.ask_raw("5", "tools/call", r#"{"name":"t"}"#).await });
    backend.saw("tools/call", 1).await;
    let second = session.ask_raw("5", "tools/call", r#"{"name":"t"}"#).await;
    assert!(second.error()["code"].is_i64(), "{}", second.raw);
    go.notify_one();
    assert_eq!(first_text(&within("the first", first).await.expect("no panic").result()), "first");
    assert_eq!(backend.seen_of("tools/call").len(), 1, "the second never reached the backend");
    gateway.stop().await;
}

#[tokio::test]
async fn without_a_token_or_with_a_wrong_one_the_answer_is_401() {
    let backend = Backend::with_tools("b", &["t"]).await;
    let gateway = one(&backend, AUTH).await;
    let session = gateway.mcp().with_bearer(TOKEN_X).initialize().await;
    let body = initialize_body(LATEST, &json!({}));
    let at = gateway.mcp();
    let query = gateway.at(&format!("/mcp?access_token={TOKEN_X}"));
    for at in
        [&at, &at.clone().with_bearer("wrong"), &at.clone().with_bearer(""), &at.clone().with_header("authorization", "Basic eDp4"), &query]
    {
        let reply = at.post(&[], body.clone()).await;
        assert_eq!(reply.status, 401, "{:?} {}", at.headers, at.path);
        assert!(reply.header("www-authenticate").is_some_and(|value| value.starts_with("Bearer")), "{:?}", reply.headers);
        assert!(reply.header("mcp-session-id").is_none());
        let reply = at.post(&[("mcp-session-id", &session.id)], PING).await;
        assert_eq!(reply.status, 401, "a session id is no proof of who one is");
    }
    assert_eq!(session.ask("ping", json!({})).await.status, 200);
    let log = gateway.log();
    assert!(!log.contains(TOKEN_X), "a token is in the log");
    gateway.stop().await;
}

#[tokio::test]
async fn a_clients_credentials_never_reach_a_backend() {
    let backend = Backend::with_tools("b", &["t"]).await;
    let gateway = one(&backend, AUTH).await;
    let at = gateway.mcp().with_bearer(TOKEN_X).with_header("cookie", "secret=1").with_header("x-forwarded-for", "10.0.0.1");
    let session = at.initialize().await;
    session.call("t", json!({})).await;
    session.delete().await;
    for seen in backend.seen() {
        let text = format!("{:?}{:?}", seen.headers, seen.body);
        assert!(!text.contains(TOKEN_X) && !text.contains("secret=1"), "{text}");
        assert_ne!(seen.session.as_deref(), Some(session.id.as_str()), "the downstream id is not the upstream id");
    }
    gateway.stop().await;
}

// --- what a session owns

#[tokio::test]
async fn every_session_has_an_upstream_of_its_own_with_its_own_capabilities() {
    let backend = Backend::with_tools("b", &["t"]).await;
    let gateway = one(&backend, "").await;
    let plain = gateway.initialize().await;
    let rich =
        gateway.mcp().initialize_as("2025-06-18", json!({ "elicitation": {}, "sampling": {}, "roots": { "listChanged": true } })).await;
    plain.call("t", json!({})).await;
    rich.call("t", json!({})).await;
    let calls = backend.seen_of("tools/call");
    assert_ne!(calls[0].session, calls[1].session);
    let init = |at: usize| backend.init_of(calls[at].session.as_deref().expect("a session"))["capabilities"].clone();
    assert!(init(0).get("elicitation").is_none() && init(0).get("sampling").is_none() && init(0).get("roots").is_none(), "{}", init(0));
    assert!(init(1)["elicitation"].is_object() && init(1)["sampling"].is_object() && init(1)["roots"].is_object(), "{}", init(1));
    gateway.stop().await;
}

/// Two sessions, each with a call in flight that has the same id and the same progress token; the backend answers when
/// told to.
async fn twins(gateway: &Gateway) -> [Arc<Session>; 2] {
    [Arc::new(gateway.initialize().await), Arc::new(gateway.initialize().await)]
}

#[tokio::test]
async fn equal_ids_and_progress_tokens_in_two_sessions_never_cross() {
    let streams: Arc<Mutex<Vec<(String, String, lockgate_tests::backend::Stream)>>> = Arc::default();
    let kept = streams.clone();
    let script = move |call: Call| {
        let kept = kept.clone();
        async move {
            let arguments: Value = serde_json::from_str(call.seen.arguments_raw()).expect("arguments");
            let (who, token) = (arguments["who"].as_str().expect("who").to_owned(), call.progress_token().expect("a token"));
            kept.lock().expect("no panic").push((who, token, call.stream()));
        }
    };
    let backend = Backend::builder("b").tool("t").on("tools/call", script).start().await;
    let gateway = one(&backend, "").await;
    let sessions = twins(&gateway).await;
    let calls: Vec<_> = ["a", "b"]
        .into_iter()
        .zip(sessions.clone())
        .map(|(who, session)| {
            let params = json!({ "name": "t", "arguments": { "who": who }, "_meta": { "progressToken": "same" } }).to_string();
            tokio::spawn(async move { session.ask_raw("1", "tools/call", &params).await })
        })
        .collect();
    let mut held = eventually("both calls at the backend", || {
        let mut streams = streams.lock().expect("no panic");
        (streams.len() == 2).then(|| std::mem::take(&mut *streams))
    })
    .await;
    // Interleaved, and answered in the reverse order of their arrival.
    for step in 1..=3 {
        for (who, token, stream) in &held {
            let params = format!(r#"{{"progressToken":{token},"progress":{step},"message":"{who}"}}"#);
            stream.notify("notifications/progress", &params).await;
        }
    }
    while let Some((who, _, stream)) = held.pop() {
        stream.answer(&raw::text(&who)).await;
    }
    for (who, call) in ["a", "b"].into_iter().zip(calls) {
        let answer = within("an answer", call).await.expect("no panic");
        assert_eq!((answer.id_raw(), first_text(&answer.result())), ("1", who));
        let notes: Vec<_> = answer.messages().iter().map(|note| note["params"]["message"].clone()).collect();
        assert_eq!(notes, [json!(who), json!(who), json!(who)]);
        assert!(answer.messages().iter().all(|note| note["params"]["progressToken"] == "same"));
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_cancellation_acts_only_in_the_session_that_it_came_through() {
    let backend = Backend::builder("b").tool("t").on("tools/call", |call| call.hang()).start().await;
    let gateway = one(&backend, "").await;
    let [a, b] = twins(&gateway).await;
    let running = a.clone();
    let call = tokio::spawn(async move { running.start("1", "tools/call", r#"{"name":"t"}"#).await.status });
    let upstream = backend.saw("tools/call", 1).await.remove(0);
    assert_eq!(b.tell("notifications/cancelled", json!({ "requestId": 1 })).await, 202);
    assert_eq!(b.ask("ping", json!({})).await.status, 200, "what came before it was dealt with");
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(backend.seen_of("notifications/cancelled").is_empty() && backend.abandoned() == 0, "b cancelled the call of a");
    assert_eq!(a.tell("notifications/cancelled", json!({ "requestId": 1, "reason": "enough" })).await, 202);
    let seen = backend.saw("notifications/cancelled", 1).await.remove(0);
    assert_eq!(seen.session, upstream.session);
    assert_eq!(Some(seen.params()["requestId"].to_string()), upstream.message().id.map(|id| id.get().to_owned()));
    assert_eq!(seen.params()["reason"], "enough");
    call.abort();
    gateway.stop().await;
}

#[tokio::test]
async fn a_response_to_a_request_of_another_session_is_not_taken() {
    let script = |call: Call| async move {
        let stream = call.stream();
        let response = stream.ask("1", "roots/list", "{}").await;
        stream.answer(&format!(r#"{{"content":[],"response":{response}}}"#)).await;
    };
    let backend = Backend::builder("b").tool("t").on("tools/call", script).start().await;
    let gateway = one(&backend, "").await;
    let at = gateway.mcp();
    let (a, b) = (at.initialize_as(LATEST, json!({ "roots": {} })).await, at.initialize_as(LATEST, json!({ "roots": {} })).await);
    let mut events = a.start("1", "tools/call", r#"{"name":"t"}"#).await.events();
    let asked = events.method("roots/list").await;
    b.reply(&asked["id"], json!({ "roots": [{ "uri": "file:///of-b" }] })).await;
    events.quiet_for(Duration::from_millis(300)).await;
    assert_eq!(a.reply(&asked["id"], json!({ "roots": [{ "uri": "file:///of-a" }] })).await, 202);
    assert!(events.message().await.expect("an answer").text().contains("of-a"));
    gateway.stop().await;
}

#[tokio::test]
async fn what_a_backend_says_to_one_session_no_other_session_hears() {
    let backend = Backend::with_tools("b", &["t"]).await;
    let gateway = one(&backend, "").await;
    let [a, b] = twins(&gateway).await;
    let (mut to_a, mut to_b) = (a.stream().await, b.stream().await);
    a.call("t", json!({})).await;
    let upstream = backend.seen_of("tools/call")[0].session.clone().expect("a session");
    backend.push(&upstream, &raw::notification("notifications/message", r#"{"level":"info","data":"for a"}"#)).await;
    assert_eq!(to_a.method("notifications/message").await["params"]["data"], "for a");
    to_b.quiet_for(Duration::from_millis(300)).await;
    gateway.stop().await;
}

#[tokio::test]
async fn log_levels_and_subscriptions_belong_to_one_session() {
    let backend = Backend::builder("b").tool("t").resource("x://r").start().await;
    let gateway = one(&backend, "").await;
    let [a, b] = twins(&gateway).await;
    b.call("t", json!({})).await;
    a.result("logging/setLevel", json!({ "level": "error" })).await;
    a.result("resources/subscribe", json!({ "uri": "x://r" })).await;
    let of_b = backend.seen_of("tools/call")[0].session.clone();
    for method in ["logging/setLevel", "resources/subscribe"] {
        let seen = backend.saw(method, 1).await;
        assert!(seen.iter().all(|seen| seen.session != of_b), "{method} of a reached the upstream of b");
    }
    let mut to_b = b.stream().await;
    let of_a = backend.seen_of("resources/subscribe")[0].session.clone().expect("a session");
    backend.push(&of_a, &raw::notification("notifications/resources/updated", r#"{"uri":"x://r"}"#)).await;
    a.stream().await.method("notifications/resources/updated").await;
    to_b.quiet_for(Duration::from_millis(200)).await;
    gateway.stop().await;
}

// --- lifetime

#[tokio::test]
async fn delete_closes_upstream_sessions_streams_and_calls() {
    let backend = Backend::builder("b").tool("t").on("tools/call", |call| call.hang()).start().await;
    let gateway = one(&backend, "").await;
    let session = Arc::new(gateway.initialize().await);
    let mut stream = session.stream().await;
    let caller = session.clone();
    let call = tokio::spawn(async move { caller.post(raw::request("1", "tools/call", r#"{"name":"t"}"#)).await.bytes().await });
    backend.saw("tools/call", 1).await;
    assert!((200..300).contains(&session.delete().await));
    assert_eq!(session.post(PING).await.status, 404, "from then on");
    backend.has_sessions(0).await;
    stream.ended(Duration::from_secs(5)).await;
    let _ = within("the end of a call in a deleted session", call).await.expect("no panic");
    eventually("the backend's call is given up", || (backend.abandoned() == 1).then_some(())).await;
    gateway.stop().await;
}

#[tokio::test]
async fn an_idle_session_expires_and_its_upstream_with_it() {
    let backend = Backend::with_tools("b", &["t"]).await;
    let gateway = one(&backend, "session: { idle_timeout: 1s }\n").await;
    let session = gateway.initialize().await;
    session.call("t", json!({})).await;
    backend.has_sessions(0).await;
    let unknown: String = session.id.chars().rev().collect();
    assert_eq!(all_verbs(&gateway.mcp(), &session.id).await, all_verbs(&gateway.mcp(), &unknown).await);
    gateway.stop().await;
}

#[tokio::test]
async fn an_open_stream_or_a_call_in_flight_keeps_a_session() {
    let slow = |call: Call| async move {
        tokio::time::sleep(Duration::from_millis(2500)).await;
        call.result(&raw::text("late"));
    };
    let backend = Backend::builder("b").tool("t").on("tools/call", slow).start().await;
    let gateway = one(&backend, "session: { idle_timeout: 1s }\n").await;
    let (calls, listens) = (gateway.initialize().await, gateway.initialize().await);
    let stream = listens.stream().await;
    assert_eq!(first_text(&calls.call("t", json!({})).await), "late");
    assert_eq!(listens.ask("ping", json!({})).await.status, 200);
    drop(stream);
    backend.has_sessions(0).await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_session_ends_at_its_maximum_lifetime_although_it_is_used() {
    let backend = Backend::with_tools("b", &["t"]).await;
    let gateway = one(&backend, "session: { max_lifetime: 2s }\n").await;
    let session = gateway.initialize().await;
    let start = Instant::now();
    while session.post(PING).await.status == 200 {
        assert!(start.elapsed() < Duration::from_secs(10), "it lives on");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(start.elapsed() > Duration::from_millis(1500), "{:?}", start.elapsed());
    assert_eq!(session.post(PING).await.status, 404);
    backend.has_sessions(0).await;
    gateway.stop().await;
}

#[tokio::test]
async fn at_its_limit_a_principal_makes_room_with_its_own_longest_idle_session() {
    let backend = Backend::with_tools("b", &["t"]).await;
    let gateway = one(&backend, &format!("{AUTH}session: {{ max_per_principal: 2 }}\n")).await;
    let (x, y) = (gateway.mcp().with_bearer(TOKEN_X), gateway.mcp().with_bearer(TOKEN_Y));
    let of_y = y.initialize().await;
    let first = x.initialize().await;
    let second = x.initialize().await;
    first.ask("ping", json!({})).await;
    let third = x.initialize().await;
    assert_eq!(second.post(PING).await.status, 404, "the longest idle one went");
    for session in [&first, &third, &of_y] {
        assert_eq!(session.post(PING).await.status, 200);
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_principal_without_an_idle_session_is_refused_with_retry_after() {
    let backend = Backend::with_tools("b", &["t"]).await;
    let gateway = one(&backend, &format!("{AUTH}session: {{ max_per_principal: 1, max_total: 2 }}\n")).await;
    let (x, y) = (gateway.mcp().with_bearer(TOKEN_X), gateway.mcp().with_bearer(TOKEN_Y));
    let busy = x.initialize().await;
    let _stream = busy.stream().await;
    let reply = x.post(&[], initialize_body(LATEST, &json!({}))).await;
    assert!(reply.status == 429 || reply.status == 503, "{}", reply.status);
    let seconds: u64 = reply.header("retry-after").expect("Retry-After").parse().expect("seconds");
    assert!((1..=3600).contains(&seconds));
    assert_eq!(busy.ask("ping", json!({})).await.status, 200);
    let of_y = y.initialize().await;
    assert_eq!(of_y.ask("ping", json!({})).await.status, 200, "another principal is not concerned");
    gateway.stop().await;
}

#[tokio::test]
async fn one_principal_never_evicts_anothers_session_at_the_total_limit() {
    let backend = Backend::with_tools("b", &["t"]).await;
    let gateway = one(&backend, &format!("{AUTH}session: {{ max_total: 2 }}\n")).await;
    let (x, y) = (gateway.mcp().with_bearer(TOKEN_X), gateway.mcp().with_bearer(TOKEN_Y));
    let (one, two) = (x.initialize().await, x.initialize().await);
    let reply = y.post(&[], initialize_body(LATEST, &json!({}))).await;
    assert!(reply.status == 429 || reply.status == 503, "{}", reply.status);
    assert!(reply.header("retry-after").is_some());
    for session in [&one, &two] {
        assert_eq!(session.ask("ping", json!({})).await.status, 200);
    }
    gateway.stop().await;
}

// --- backends that fail

#[tokio::test]
async fn a_backend_that_accepts_and_never_answers_concerns_nobody_else() {
    let (good, hole) = (Backend::with_tools("good", &["t"]).await, Hole::start().await);
    let yaml = format!(
        "{}limits: {{ initialize_timeout: 3s, list_timeout: 3s }}\n\
         virtual_hosts:\n  /good: {{ backends: [good] }}\n  /bad: {{ backends: [hole] }}\n  /both: {{ backends: [good, hole] }}\n",
        http_backends(&[("good", &good.url()), ("hole", &hole.url())])
    );
    let gateway = Gateway::start(&yaml).await;
    let victim = gateway.at("/good").initialize().await;
    let stuck: Vec<_> = (0..20)
        .map(|_| {
            let at = gateway.at("/bad");
            tokio::spawn(async move { at.post(&[], initialize_body(LATEST, &json!({}))).await.status })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(300)).await;
    for _ in 0..5 {
        let start = Instant::now();
        victim.call("t", json!({})).await;
        gateway.at("/good").initialize().await.call("t", json!({})).await;
        assert!(start.elapsed() < Duration::from_millis(1500), "others waited {:?}", start.elapsed());
    }
    let start = Instant::now();
    let both = gateway.at("/both").initialize().await;
    assert!(start.elapsed() < Duration::from_secs(5), "a hung backend held initialize for {:?}", start.elapsed());
    assert_eq!(both.names("tools/list", "tools").await, ["good__t"]);
    assert_eq!(first_text(&both.call("good__t", json!({})).await), "t");
    for initialize in stuck {
        let _ = within("an initialize on a hung backend", initialize).await.expect("no panic");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_session_starts_without_a_dead_backend_and_hears_when_it_comes() {
    let good = Backend::with_tools("good", &["t"]).await;
    let addr = lockgate_tests::gateway::free_port();
    let gateway = Gateway::start(&http_backends(&[("good", &good.url()), ("late", &format!("http://{addr}/mcp"))])).await;
    let session = gateway.initialize().await;
    assert_eq!(session.names("tools/list", "tools").await, ["good__t"]);
    let error = session.error("tools/call", json!({ "name": "late__u", "arguments": {} })).await;
    assert!(error["message"].as_str().is_some_and(|text| text.contains("late")), "it does not say which backend is down: {error}");
    let mut stream = session.stream().await;
    let _late = Backend::builder("late").tool("u").start_at(addr).await;
    stream.method("notifications/tools/list_changed").await;
    assert_eq!(session.names("tools/list", "tools").await, ["good__t", "late__u"]);
    assert_eq!(first_text(&session.call("late__u", json!({})).await), "u");
    gateway.stop().await;
}

#[tokio::test]
async fn a_lost_upstream_session_is_made_anew_with_its_subscriptions_and_log_level() {
    let backend = Backend::builder("b").tool("t").resource("x://r").start().await;
    let gateway = one(&backend, "").await;
    let session = gateway.initialize().await;
    session.result("logging/setLevel", json!({ "level": "warning" })).await;
    session.result("resources/subscribe", json!({ "uri": "x://r" })).await;
    session.call("t", json!({})).await;
    let before = backend.seen_of("initialize").len();
    backend.forget_sessions();
    assert_eq!(first_text(&session.call("t", json!({})).await), "t", "sent again once, as the backend never processed it");
    assert_eq!(backend.seen_of("initialize").len(), before + 1);
    let new = backend.sessions().remove(0);
    let restored = |method: &'static str| {
        let (seen, new) = (backend.seen_of(method), new.clone());
        seen.iter().any(|seen| seen.session.as_deref() == Some(&new)).then_some(())
    };
    eventually("the subscription on the new session", || restored("resources/subscribe")).await;
    eventually("the log level on the new session", || restored("logging/setLevel")).await;
    gateway.stop().await;
}

#[tokio::test]
async fn many_calls_that_find_their_upstream_lost_make_one_new_one() {
    let backend = Backend::with_tools("b", &["t"]).await;
    let gateway = one(&backend, "").await;
    let session = Arc::new(gateway.initialize().await);
    session.call("t", json!({})).await;
    let before = backend.seen_of("initialize").len();
    backend.forget_sessions();
    let calls: Vec<_> = (0..10)
        .map(|_| {
            let session = session.clone();
            tokio::spawn(async move { first_text(&session.call("t", json!({})).await).to_owned() })
        })
        .collect();
    for call in calls {
        assert_eq!(within("a call", call).await.expect("no panic"), "t");
    }
    assert_eq!(backend.seen_of("initialize").len(), before + 1);
    assert_eq!(backend.sessions().len(), 1);
    gateway.stop().await;
}

#[tokio::test]
async fn a_call_whose_fate_is_unknown_fails_and_is_never_repeated() {
    // The script drops the call: the connection is closed after the request was read.
    let backend = Backend::builder("b").tool("t").on("tools/call", |call| async move { drop(call) }).start().await;
    let gateway = one(&backend, "").await;
    let session = gateway.initialize().await;
    let error = session.error("tools/call", json!({ "name": "t", "arguments": {} })).await;
    assert!(error["code"].is_i64(), "{error}");
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(backend.seen_of("tools/call").len(), 1);
    gateway.stop().await;
}

#[tokio::test]
async fn a_call_ends_at_its_timeout_and_the_backend_is_told() {
    let backend = Backend::builder("b").tool("t").on("tools/call", |call| call.hang()).start().await;
    let gateway = one(&backend, "limits: { call_timeout: 1s }\n").await;
    let session = gateway.initialize().await;
    let start = Instant::now();
    session.error("tools/call", json!({ "name": "t", "arguments": {} })).await;
    assert!(start.elapsed() > Duration::from_millis(800) && start.elapsed() < Duration::from_secs(8), "{:?}", start.elapsed());
    backend.saw("notifications/cancelled", 1).await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_client_that_disconnects_has_not_cancelled_its_call() {
    let go = Arc::new(Notify::new());
    let gate = go.clone();
    let script = move |call: Call| {
        let gate = gate.clone();
        async move {
            gate.notified().await;
            call.result(&raw::text("done"));
        }
    };
    let backend = Backend::builder("b").tool("t").on("tools/call", script).start().await;
    let gateway = one(&backend, "").await;
    let session = Arc::new(gateway.initialize().await);
    let caller = session.clone();
    let call = tokio::spawn(async move { caller.start("1", "tools/call", r#"{"name":"t"}"#).await.bytes().await });
    backend.saw("tools/call", 1).await;
    call.abort();
    session.ask("ping", json!({})).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(backend.seen_of("notifications/cancelled").is_empty() && backend.abandoned() == 0);
    go.notify_one();
    gateway.stop().await;
}

// --- the end of the process

#[tokio::test]
async fn sigterm_lets_calls_finish_and_closes_everything() {
    let go = Arc::new(Notify::new());
    let gate = go.clone();
    let script = move |call: Call| {
        let gate = gate.clone();
        async move {
            gate.notified().await;
            call.result(&raw::text("finished"));
        }
    };
    let backend = Backend::builder("b").tool("t").on("tools/call", script).start().await;
    let mut gateway = one(&backend, "").await;
    let session = gateway.initialize().await;
    let mut stream = session.stream().await;
    let call = tokio::spawn(async move { session.call("t", json!({})).await });
    backend.saw("tools/call", 1).await;
    gateway.terminate();
    stream.ended(Duration::from_secs(5)).await;
    // New work is refused: at the socket, or with a status that says so.
    let body = initialize_body(LATEST, &json!({}));
    if TcpStream::connect(gateway.listen).await.is_ok() {
        let status = tokio::spawn({
            let at = gateway.mcp();
            async move { at.send("POST", &[JSON, ACCEPT], body).await.status }
        });
        if let Ok(status) = status.await {
            assert!(status == 503 || status == 429, "a new session while it stops: {status}");
        }
    }
    go.notify_one();
    assert_eq!(first_text(&within("the call", call).await.expect("the call in flight is answered")), "finished");
    assert!(gateway.wait().await.success(), "{}", gateway.log());
    backend.has_sessions(0).await;
}

#[tokio::test]
async fn a_call_that_the_end_of_its_session_cuts_is_not_said_to_be_safe_to_repeat() {
    let backend = Backend::builder("b").tool("t").on("tools/call", |call: Call| async move { call.hang().await }).start().await;
    let gateway = Gateway::start(&http_backends(&[("one", &backend.url())])).await;
    let session = Arc::new(gateway.initialize().await);
    let caller = session.clone();
    let call = tokio::spawn(async move { caller.error("tools/call", json!({ "name": "t", "arguments": {} })).await });
    backend.saw("tools/call", 1).await;
    assert_eq!(session.delete().await, 204);
    let error = within("the end of the call", call).await.expect("no panic");
    assert_eq!(error["data"]["retrySafe"], false, "{error}");
    gateway.stop().await;
}

#[tokio::test]
async fn a_backend_with_a_shorter_limit_of_its_own_holds_initialize_no_longer_than_that() {
    let hole = Hole::start().await;
    let yaml = format!(
        "backends:\n  hole: {{ url: \"{}\", timeouts: {{ initialize: 300ms }} }}\nlimits: {{ initialize_timeout: 15s }}\n",
        hole.url()
    );
    let gateway = Gateway::start(&yaml).await;
    let start = Instant::now();
    gateway.initialize().await;
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    gateway.stop().await;
}

#[tokio::test]
async fn what_clients_ask_and_what_goes_to_backends_is_counted_each_by_itself() {
    let backend = Backend::with_tools("b", &["t"]).await;
    let gateway = one(&backend, "").await;
    let counted = async |name: &str| gateway.metric(name).await;
    let session = gateway.initialize().await;
    eventually("the backend's session", || (!backend.sessions().is_empty()).then_some(())).await;
    for _ in 0..3 {
        session.call("t", json!({})).await;
    }
    session.error("tools/call", json!({ "name": "missing", "arguments": {} })).await;
    assert_eq!(counted("lockgate_requests_total{method=\"initialize\",outcome=\"ok\"}").await, 1.0);
    assert_eq!(counted("lockgate_backend_requests_total{backend=\"one\",outcome=\"ok\"}").await, 3.0);
    let refused = gateway.mcp().post(&[], r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#).await;
    assert_eq!(refused.status, 400);
    assert_eq!(counted("lockgate_requests_total{method=\"initialize\",outcome=\"refused\"}").await, 1.0);
    within("the upstream is counted", async {
        while counted("lockgate_backend_upstreams{backend=\"one\"}").await != 1.0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        session.delete().await;
        while counted("lockgate_backend_upstreams{backend=\"one\"}").await != 0.0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    gateway.stop().await;
}

/// HTTP/1.1 tells by nothing but the order which response belongs to which request: what a confused server says too much must not be able to
/// reach another session.
#[tokio::test]
async fn two_sessions_never_share_a_connection_to_a_server() {
    let backend = Backend::with_tools("b", &["t"]).await;
    let gateway = one(&backend, "").await;
    let sessions = [gateway.initialize().await, gateway.initialize().await];
    for _ in 0..5 {
        for session in &sessions {
            session.call("t", json!({})).await;
        }
    }
    let of = |seen: &lockgate_tests::backend::Seen| (seen.connection, seen.session.clone());
    let calls: std::collections::BTreeSet<_> = backend.seen_of("tools/call").iter().map(of).collect();
    assert_eq!(calls.len(), 2, "a connection for each, kept between its calls: {calls:?}");
    let connections: std::collections::BTreeSet<_> = calls.iter().map(|(connection, _)| connection).collect();
    assert_eq!(connections.len(), 2, "{calls:?}");
    gateway.stop().await;
}

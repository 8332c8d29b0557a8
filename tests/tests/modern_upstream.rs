//! Servers of 2026-07-28 over HTTP behind clients of older revisions: neither can tell that the other is of another era.

use std::time::Duration;

use lockgate_tests::{
    backend::{Backend, Builder, Call, META},
    client::{Events, LATEST, Session},
    eventually,
    gateway::{AUTH, Gateway, TOKEN_X, TOKEN_Y, http_backends},
    raw::{self, first_text},
    stall::Unread,
};
use serde_json::{Value, json};

const BIG: usize = 400_000;

/// Small bounds, so that little has to be left unread, and short times. Nothing is torn down.
const SMALL: &str = "admission: { frames: 8, bytes: 64KiB, drain_window: 500ms, patience: 50ms, teardown_after: 5m }\n";

/// A server with a tool for each thing that a call can do.
fn server(name: &str) -> Builder {
    Backend::builder(name).modern().tool("echo").tool("ask").tool("hang").tool("flood").tool("big").resource("info://a").on(
        "tools/call",
        |call: Call| async move {
            match call.target().as_str() {
                "ask" => ask(call).await,
                "hang" => {
                    let stream = call.stream();
                    stream.notify("notifications/message", r#"{"level":"info","data":"begun"}"#).await;
                    stream.closed().await;
                }
                "flood" => {
                    let (fill, token) = ("x".repeat(1000), call.progress_token());
                    let stream = call.stream();
                    for n in 0..2000 {
                        let sent = match &token {
                            Some(token) if n % 2 == 0 => {
                                stream.notify("notifications/progress", &format!(r#"{{"progressToken":{token},"progress":{n}}}"#)).await
                            }
                            _ => stream.notify("notifications/message", &format!(r#"{{"level":"info","data":"{n}:{fill}"}}"#)).await,
                        };
                        if !sent {
                            return;
                        }
                    }
                    stream.answer(&raw::text("flooded")).await;
                }
                "big" => call.result(&raw::text(&"b".repeat(BIG))),
                name => {
                    let text = raw::text(name);
                    call.result(&text);
                }
            }
        },
    )
}

/// Progress and a log message, a question, and in the second round the same and the answer.
async fn ask(call: Call) {
    let params = call.seen.params();
    let (level, token) = (call.seen.meta("logLevel"), call.progress_token().unwrap_or_default());
    let answers = params["inputResponses"].clone();
    let round = if answers.is_null() { 1 } else { 2 };
    let stream = call.stream();
    for step in 1..=2 {
        stream.notify("notifications/progress", &format!(r#"{{"progressToken":{token},"progress":{}}}"#, round * 10 + step)).await;
        if level.is_string() {
            stream.notify("notifications/message", &format!(r#"{{"level":{level},"data":{}}}"#, round * 10 + step)).await;
        }
    }
    if answers.is_null() {
        stream
            .answer(r#"{"resultType":"input_required","requestState":"st\u00e9","inputRequests":{"who":{"method":"elicitation/create","params":{"message":"who?","requestedSchema":{"type":"object","properties":{}}}}}}"#)
            .await;
    } else {
        assert_eq!(params["requestState"], "st\u{e9}");
        let who = answers["who"]["content"]["name"].as_str().unwrap_or("nobody");
        stream.answer(&raw::text(who)).await;
    }
}

async fn gateway(backends: &[(&str, &Backend)], more: &str) -> Gateway {
    let urls: Vec<_> = backends.iter().map(|(name, backend)| (*name, backend.url())).collect();
    let urls: Vec<_> = urls.iter().map(|(name, url)| (*name, url.as_str())).collect();
    Gateway::start(&format!("{}{more}", http_backends(&urls))).await
}

/// Reads up to the answer: the notifications in between in short, the answer.
async fn to_answer(events: &mut Events) -> (Vec<String>, Value) {
    let mut steps = Vec::new();
    loop {
        let message = events.message().await.unwrap_or_else(|| panic!("the stream ended after {steps:?}")).json();
        match message["method"].as_str() {
            None => return (steps, message),
            Some("notifications/progress") => {
                steps.push(format!("{} {}", message["params"]["progressToken"], message["params"]["progress"]))
            }
            Some("notifications/message") => steps.push(format!("{} {}", message["params"]["level"], message["params"]["data"])),
            Some(other) => steps.push(other.to_owned()),
        }
    }
}

async fn tool_named(session: &Session, part: &str) -> String {
    let tools = session.list("tools/list", "tools").await;
    let found = tools.iter().find(|tool| tool["description"].as_str().is_some_and(|d| d.contains(part)));
    found.unwrap_or_else(|| panic!("no {part} in {tools:?}"))["name"].as_str().expect("a name").to_owned()
}

#[tokio::test]
async fn the_era_is_found_once_and_headers_say_what_the_rewritten_body_says() {
    let modern = server("m").tool("größe").prompt("greet").resource("file:///ä").start().await;
    let legacy = Backend::with_tools("l", &["echo"]).await;
    let hosts = "virtual_hosts:\n  /mcp:\n    backends: [m, l]\n    aliases: { now: m/echo }\n";
    let gateway = gateway(&[("m", &modern), ("l", &legacy)], hosts).await;
    for _ in 0..3 {
        let session = gateway.mcp().initialize_as(LATEST, json!({ "roots": {} })).await;
        assert_eq!(session.init["protocolVersion"], LATEST);
        assert_eq!(first_text(&session.call("m__echo", json!({ "a": 1 })).await), "echo");
        assert_eq!(first_text(&session.call("l__echo", json!({})).await), "echo");
    }
    let session = gateway.mcp().initialize_as(LATEST, json!({ "elicitation": {}, "tasks": {} })).await;
    let result = session.call("now", json!({})).await;
    assert!(result.get("resultType").is_none(), "{result}");
    let big = tool_named(&session, "größe").await;
    assert_eq!(first_text(&session.call(&big, json!({})).await), "größe");
    session.result("prompts/get", json!({ "name": "m__greet" })).await;
    session.result("resources/read", json!({ "uri": "file:///ä" })).await;
    assert_eq!((modern.seen_of("initialize").len(), modern.seen_of("server/discover").len()), (1, 4));
    let calls = modern.seen_of("tools/call");
    let (alias, base64) = (&calls[3], &calls[4]);
    assert_eq!((alias.header("mcp-name"), alias.header("mcp-method")), (Some("echo"), Some("tools/call")));
    assert_eq!(base64.header("mcp-name"), Some("=?base64?Z3LDtsOfZQ==?="));
    assert_eq!(modern.seen_of("prompts/get")[0].header("mcp-name"), Some("greet"));
    assert_eq!(modern.seen_of("resources/read")[0].header("mcp-name"), Some("=?base64?ZmlsZTovLy/DpA==?="));
    assert_eq!(calls[0].meta("clientCapabilities"), json!({ "roots": {} }));
    assert_eq!(alias.meta("clientCapabilities"), json!({ "elicitation": {} }));
    assert_eq!(alias.meta("clientInfo")["name"], "lockgate-tests");
    assert!(modern.seen().iter().all(|seen| seen.verb == "POST" && seen.header("mcp-session-id").is_none() && seen.method.is_some()));
    assert!(modern.seen().iter().all(|seen| !seen.method.as_deref().unwrap_or_default().starts_with("notifications/")));
    gateway.stop().await;
}

#[tokio::test]
async fn a_question_in_the_middle_of_a_call_is_asked_on_its_stream_between_progress_and_log() {
    let modern = server("m").start().await;
    let gateway = gateway(&[("m", &modern)], "").await;
    let session = gateway.mcp().initialize_as(LATEST, json!({ "elicitation": {} })).await;
    let run = async |token: &str| {
        let params = format!(r#"{{"name":"ask","arguments":{{}},"_meta":{{"progressToken":{token}}}}}"#);
        let mut events = session.start(&format!("\"call {}\"", token.replace('"', "")), "tools/call", &params).await.events();
        let mut before = Vec::new();
        let asked = loop {
            let message = events.message().await.expect("a question").json();
            match message["method"].as_str() {
                Some("elicitation/create") => break message,
                Some("notifications/message") => before.push(format!("{} {}", message["params"]["level"], message["params"]["data"])),
                _ => before.push(format!("{} {}", message["params"]["progressToken"], message["params"]["progress"])),
            }
        };
        assert_eq!(asked["params"]["message"], "who?");
        assert_eq!(session.reply(&asked["id"], json!({ "action": "accept", "content": { "name": "Ada" } })).await, 202);
        let (after, answer) = to_answer(&mut events).await;
        assert_eq!(first_text(&answer["result"]), "Ada");
        (before, after)
    };
    // Without a level nothing is logged.
    let (before, after) = run("\"p\"").await;
    assert_eq!((before, after), (vec!["\"p\" 11".to_owned(), "\"p\" 12".into()], vec!["\"p\" 21".to_owned(), "\"p\" 22".into()]));
    session.result("logging/setLevel", json!({ "level": "notice" })).await;
    let (before, after) = run("7").await;
    assert_eq!(before, ["7 11", "\"notice\" 11", "7 12", "\"notice\" 12"]);
    assert_eq!(after, ["7 21", "\"notice\" 21", "7 22", "\"notice\" 22"]);
    let calls = modern.seen_of("tools/call");
    assert_eq!(calls.len(), 4);
    assert!(calls.iter().all(|call| call.header("mcp-name") == Some("ask")));
    // Another session has not set it.
    let other = gateway.mcp().initialize_as(LATEST, json!({ "elicitation": {} })).await;
    other.call("echo", json!({})).await;
    assert!(modern.seen_of("tools/call")[4].meta("logLevel").is_null());
    gateway.stop().await;
}

#[tokio::test]
async fn what_a_client_cannot_answer_is_not_asked() {
    let modern = server("m").start().await;
    let gateway = gateway(&[("m", &modern)], "").await;
    let session = gateway.initialize().await;
    let params = json!({ "name": "ask", "arguments": {}, "_meta": { "progressToken": 1 } });
    let error = session.error("tools/call", params).await;
    assert!(error["message"].as_str().is_some_and(|text| text.contains("did not declare")), "{error}");
    gateway.stop().await;
}

#[tokio::test]
async fn one_subscription_for_each_session_brings_changes_and_updates() {
    let modern = server("m").start().await;
    let gateway = gateway(&[("m", &modern)], "").await;
    let (a, b) = (gateway.initialize().await, gateway.initialize().await);
    let (mut of_a, mut of_b) = (a.stream().await, b.stream().await);
    modern.is_listened_to(2, |filter| filter["toolsListChanged"] == true && filter.get("resourceSubscriptions").is_none()).await;
    modern.tell("notifications/tools/list_changed", json!({})).await;
    for events in [&mut of_a, &mut of_b] {
        let note = events.method("notifications/tools/list_changed").await;
        assert!(!note.to_string().contains("subscriptionId"), "{note}");
    }
    a.result("resources/subscribe", json!({ "uri": "info://a" })).await;
    modern.saw("subscriptions/listen", 3).await;
    eventually("the old stream to be let go", || (modern.listens().len() == 2).then_some(())).await;
    let subscribed: Vec<_> = modern.listens().into_iter().filter(|filter| filter["resourceSubscriptions"] == json!(["info://a"])).collect();
    assert_eq!(subscribed.len(), 1);
    modern.tell("notifications/resources/updated", json!({ "uri": "info://a", "zz": 1 })).await;
    let updated = of_a.method("notifications/resources/updated").await;
    assert_eq!(updated["params"]["uri"], "info://a");
    assert!(updated["params"]["_meta"].get(format!("{META}subscriptionId")).is_none(), "{updated}");
    // Ended by the server, it comes back by itself, with the same.
    modern.end_listens().await;
    modern.is_listened_to(2, |_| true).await;
    assert!(modern.listens().iter().any(|filter| filter["resourceSubscriptions"] == json!(["info://a"])));
    a.result("resources/unsubscribe", json!({ "uri": "info://a" })).await;
    modern.is_listened_to(2, |filter| filter.get("resourceSubscriptions").is_none()).await;
    assert!((200..300).contains(&a.delete().await));
    modern.is_listened_to(1, |_| true).await;
    gateway.stop().await;
}

#[tokio::test]
async fn to_cancel_a_call_closes_its_stream_at_the_server_and_to_leave_does_not() {
    let modern = server("m").start().await;
    let gateway = gateway(&[("m", &modern)], "").await;
    let session = gateway.initialize().await;
    session.result("logging/setLevel", json!({ "level": "info" })).await;
    let hang = r#"{"name":"hang","arguments":{}}"#;
    let mut left = session.start("1", "tools/call", hang).await.events();
    left.method("notifications/message").await;
    drop(left);
    let mut cancelled = session.start("2", "tools/call", hang).await.events();
    cancelled.method("notifications/message").await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(modern.abandoned(), 0, "a client that leaves is not one that cancels");
    assert_eq!(session.tell("notifications/cancelled", json!({ "requestId": 2 })).await, 202);
    eventually("the call to be given up", || (modern.abandoned() == 1).then_some(())).await;
    assert!(modern.seen_of("notifications/cancelled").is_empty());
    assert!((200..300).contains(&session.delete().await));
    eventually("the other one too", || (modern.abandoned() == 2).then_some(())).await;
    gateway.stop().await;
}

#[tokio::test]
async fn public_lists_are_fetched_once_for_all_private_ones_once_for_each() {
    for (scope, fetched) in [("public", 1), ("private", 2)] {
        let modern = server("m").cached(600_000, scope).start().await;
        let gateway = gateway(&[("m", &modern)], AUTH).await;
        let mut sessions = Vec::new();
        for token in [TOKEN_X, TOKEN_Y] {
            sessions.push(gateway.mcp().with_bearer(token).initialize().await);
        }
        for _ in 0..3 {
            for session in &sessions {
                let page = session.result("tools/list", json!({})).await;
                assert_eq!(page["tools"].as_array().map(Vec::len), Some(5));
                assert!(page.get("ttlMs").is_none() && page.get("cacheScope").is_none(), "{page}");
            }
        }
        assert_eq!(modern.seen_of("tools/list").len(), fetched, "{scope}");
        modern.is_listened_to(2, |_| true).await;
        let mut events = sessions[0].stream().await;
        modern.tell("notifications/tools/list_changed", json!({})).await;
        events.method("notifications/tools/list_changed").await;
        sessions[0].result("tools/list", json!({})).await;
        assert!(modern.seen_of("tools/list").len() > fetched, "a changed list was not read anew");
        gateway.stop().await;
    }
}

#[tokio::test]
async fn arguments_are_repeated_in_headers_and_tools_that_ask_for_nonsense_are_not_listed() {
    let good = r#"{"name":"good","inputSchema":{"type":"object","properties":{"where":{"type":"string","x-mcp-header":"Where"},"n":{"type":"integer","x-mcp-header":"N"}}}}"#;
    let bad = r#"{"name":"bad","inputSchema":{"type":"object","properties":{"list":{"type":"array","items":{"type":"string","x-mcp-header":"L"}}}}}"#;
    let modern = Backend::builder("m").modern().item("tools", bad).item("tools", good).start().await;
    let legacy = Backend::builder("l").item("tools", bad).start().await;
    let gateway = gateway(&[("m", &modern), ("l", &legacy)], "").await;
    let session = gateway.initialize().await;
    // An older server never heard of the annotation.
    assert_eq!(session.names("tools/list", "tools").await, ["l__bad", "m__good"]);
    session.result("tools/call", json!({ "name": "m__good", "arguments": { "where": "dört", "n": 7 } })).await;
    session.result("tools/call", json!({ "name": "m__good", "arguments": { "where": null } })).await;
    let calls = modern.seen_of("tools/call");
    assert_eq!((calls[0].header("mcp-param-where"), calls[0].header("mcp-param-n")), (Some("=?base64?ZMO2cnQ=?="), Some("7")));
    assert_eq!((calls[1].header("mcp-param-where"), calls[1].header("mcp-param-n")), (None, None));
    assert!(gateway.log().contains("tool `bad` was left out"), "{}", gateway.log());
    gateway.stop().await;
}

#[tokio::test]
async fn a_server_of_both_eras_is_spoken_to_in_the_clients() {
    let both = Backend::builder("b").of_both_eras().tool("echo").start().await;
    let gateway = gateway(&[("b", &both)], "").await;
    let session = gateway.initialize().await;
    session.call("echo", json!({})).await;
    assert!(both.seen_of("server/discover").is_empty());
    both.has_sessions(1).await;
    assert!(both.seen_of("tools/call")[0].header("mcp-session-id").is_some());
    gateway.stop().await;
}

#[tokio::test]
async fn a_client_that_does_not_read_holds_up_its_own_calls_and_its_subscription_goes_on() {
    let modern = server("m").start().await;
    let gateway = gateway(&[("m", &modern)], SMALL).await;
    let (unread, other) = (gateway.initialize().await, gateway.initialize().await);
    unread.result("logging/setLevel", json!({ "level": "info" })).await;
    let flood = raw::request("\"f\"", "tools/call", r#"{"name":"flood","arguments":{},"_meta":{"progressToken":"p"}}"#);
    let stalled = Unread::send(&unread.at, "POST", &unread.headers(), &flood).await;
    modern.saw("tools/call", 1).await;
    tokio::time::sleep(Duration::from_millis(700)).await;
    // Somebody else's calls, and all that is pushed, come through.
    let mut events = other.stream().await;
    modern.is_listened_to(2, |_| true).await;
    for n in 0..3 {
        assert_eq!(first_text(&other.call("echo", json!({})).await), "echo");
        modern.tell("notifications/resources/updated", json!({ "uri": format!("info://{n}"), "fill": "y".repeat(40_000) })).await;
        let updated = events.method("notifications/resources/updated").await;
        assert_eq!(updated["params"]["uri"], format!("info://{n}"));
    }
    drop(stalled);
    // And once it reads again, its own.
    let mut own = unread.stream().await;
    modern.tell("notifications/tools/list_changed", json!({})).await;
    own.method("notifications/tools/list_changed").await;
    let answer = eventually_answered(&unread).await;
    assert_eq!(first_text(&answer), "echo");
    gateway.stop().await;
}

#[tokio::test]
async fn large_answers_that_are_not_read_stay_at_the_server_and_arrive_whole_in_the_end() {
    let modern = server("m").start().await;
    let gateway = gateway(&[("m", &modern)], SMALL).await;
    let session = gateway.initialize().await;
    let mut events = session.stream().await;
    modern.is_listened_to(1, |_| true).await;
    let mut unread = Vec::new();
    for id in 0..4 {
        let big = raw::request(&format!("{id}"), "tools/call", r#"{"name":"big","arguments":{}}"#);
        unread.push(Unread::send(&session.at, "POST", &session.headers(), &big).await);
    }
    tokio::time::sleep(Duration::from_millis(700)).await;
    // The gateway holds a bounded part of it, and what is pushed does not wait behind it.
    let owed = gateway.metric("lockgate_owed_bytes").await;
    assert!(owed < 1_000_000.0, "{owed} bytes are owed");
    modern.tell("notifications/tools/list_changed", json!({})).await;
    events.method("notifications/tools/list_changed").await;
    let reading = unread.into_iter().map(|answer| answer.read(Duration::from_secs(20)));
    let mut whole = 0;
    for read in futures_util::future::join_all(reading).await {
        if read.status == 200 {
            let messages = read.messages();
            let answer = messages.iter().find(|message| message.get("result").is_some()).expect("an answer");
            assert_eq!(first_text(&answer["result"]).len(), BIG);
            whole += 1;
        }
    }
    assert!(whole > 0 && modern.seen_of("tools/call").len() == whole, "what was refused was run, or nothing was");
    assert_eq!(first_text(&eventually_answered(&session).await), "echo");
    gateway.stop().await;
}

#[tokio::test]
async fn a_subscription_that_floods_a_client_which_does_not_read_hangs_no_call() {
    let modern = server("m").start().await;
    let gateway = gateway(&[("m", &modern)], SMALL).await;
    let session = gateway.initialize().await;
    let stream = Unread::send(&session.at, "GET", &session.headers(), "").await;
    modern.is_listened_to(1, |_| true).await;
    for n in 0..60 {
        // Each another resource, so that none takes the place of another; some larger than a frame's share.
        let fill = "u".repeat(if n % 10 == 0 { 40_000 } else { 4000 });
        let told = modern.tell("notifications/resources/updated", json!({ "uri": format!("info://{n}"), "fill": fill }));
        // A server whose stream is not read is held up itself.
        let _ = tokio::time::timeout(Duration::from_millis(500), told).await;
        let began = std::time::Instant::now();
        let reply = session.post(raw::request(&format!("\"{n}\""), "tools/call", r#"{"name":"echo","arguments":{}}"#)).await;
        assert!(matches!(reply.status, 200 | 429), "{}", reply.status);
        if reply.status == 200 {
            assert_eq!(first_text(&reply.answer().await.result()), "echo");
        }
        assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    }
    let reading = tokio::spawn(async move { stream.closed_within(Duration::from_secs(60)).await });
    assert_eq!(first_text(&eventually_answered(&session).await), "echo");
    reading.abort();
    gateway.stop().await;
}

/// Calls again while it is refused for want of credit.
async fn eventually_answered(session: &Session) -> Value {
    for _ in 0..100 {
        let reply = session.post(raw::request("\"again\"", "tools/call", r#"{"name":"echo","arguments":{}}"#)).await;
        if reply.status != 429 {
            return reply.answer().await.result();
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("never admitted again");
}

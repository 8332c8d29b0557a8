//! Drain-credit admission: what a client does not read is held against that client alone, before anything is run.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use lockgate_tests::{
    backend::{Backend, Call},
    client::{Events, Session},
    eventually,
    gateway::{Gateway, http_backends},
    process::resident,
    raw,
    stall::Unread,
    within, within_time,
};
use serde_json::{Value, json};

/// Small bounds, so that little has to be left unread, and short times. Nothing is torn down unless a test says so.
const SMALL: &str = "admission: { frames: 8, bytes: 64KiB, drain_window: 500ms, patience: 50ms, teardown_after: 5m }\n";

pub(crate) const BIG: usize = 400_000;

/// Tools: `t` answers with its name, `big` with `bytes` of text that begins with `key`, `note` sends log messages before it answers.
pub(crate) async fn backend() -> Backend {
    let script = |call: Call| async move {
        let arguments: Value = serde_json::from_str(call.seen.arguments_raw()).unwrap_or_default();
        match call.target().as_str() {
            "big" => {
                let key = arguments["key"].as_str().unwrap_or_default();
                let fill = usize::try_from(arguments["bytes"].as_u64().unwrap_or(BIG as u64)).expect("a size");
                call.result(&raw::text(&format!("{key}:{}", "x".repeat(fill))));
            }
            "note" => {
                let (count, fill) = (arguments["count"].as_u64().unwrap_or(0), "n".repeat(1000));
                let token = call.progress_token();
                let stream = call.stream();
                for n in 0..count {
                    let sent = match &token {
                        Some(token) => {
                            stream
                                .notify(
                                    "notifications/progress",
                                    &format!(r#"{{"progressToken":{token},"progress":{n},"message":"{fill}"}}"#),
                                )
                                .await
                        }
                        None => stream.notify("notifications/message", &format!(r#"{{"level":"info","data":"{n}:{fill}"}}"#)).await,
                    };
                    if !sent {
                        return;
                    }
                }
                stream.answer(&raw::text("noted")).await;
            }
            _ => call.result(&raw::text("t")),
        }
    };
    Backend::builder("b").tool("t").tool("big").tool("note").on("tools/call", script).start().await
}

pub(crate) struct Setup {
    pub backend: Backend,
    pub gateway: Gateway,
    pub session: Session,
}

pub(crate) async fn setup(yaml: &str) -> Setup {
    let backend = backend().await;
    let gateway = Gateway::start(&format!("{}{yaml}", http_backends(&[("one", &backend.url())]))).await;
    let session = gateway.initialize().await;
    // Names are known from now on.
    session.call("t", json!({})).await;
    Setup { backend, gateway, session }
}

pub(crate) fn big(id: usize, key: &str) -> String {
    raw::request(&format!("\"{id}\""), "tools/call", &json!({ "name": "big", "arguments": { "key": key } }).to_string())
}

/// Sends calls with large answers that nobody reads, until the session has no credit left.
async fn stuff(setup: &Setup, key: &str) -> Vec<(String, Unread)> {
    let mut unread = Vec::new();
    for at in 0..4 {
        let key = format!("{key}-{at}");
        let body = big(at, &key);
        unread.push((key, Unread::send(&setup.session.at, "POST", &setup.session.headers(), &body).await));
    }
    let mut tries = 0;
    within("a refusal", async {
        loop {
            tries += 1;
            let reply = setup.session.post(call_with_key(&format!("{key}-try-{tries}"))).await;
            if reply.status == 429 {
                return;
            }
            reply.bytes().await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    unread
}

fn call_with_key(key: &str) -> String {
    raw::request(&json!(key).to_string(), "tools/call", &json!({ "name": "t", "arguments": { "key": key } }).to_string())
}

/// How often the backend ran a call with each key.
fn runs(backend: &Backend) -> HashMap<String, usize> {
    let mut runs = HashMap::new();
    for seen in backend.seen_of("tools/call") {
        if let Some(key) = seen.params()["arguments"]["key"].as_str() {
            *runs.entry(key.to_owned()).or_default() += 1;
        }
    }
    runs
}

/// The answers that were owed are all there, each once, whole; what was refused was not run. Reads all of them at the same time.
async fn read_all(backend: &Backend, unread: Vec<(String, Unread)>) {
    let reading = unread.into_iter().map(|(key, answer)| async move { (key, answer.read(Duration::from_secs(20)).await) });
    for (key, read) in futures_util::future::join_all(reading).await {
        if read.status == 429 {
            assert!(!runs(backend).contains_key(&key), "{key} was refused, and run all the same");
            continue;
        }
        assert_eq!(read.status, 200, "{key}: {}", read.head);
        let messages = read.messages();
        let answers: Vec<_> = messages.iter().filter(|m| m.get("result").is_some()).collect();
        assert_eq!(answers.len(), 1, "{key}");
        let text = raw::first_text(&answers[0]["result"]);
        assert!(text.starts_with(&key) && text.len() == key.len() + 1 + BIG, "{key}: {} bytes", text.len());
    }
}

async fn admitted_again(session: &Session, within_: Duration) {
    let start = Instant::now();
    loop {
        let reply = session.post(call_with_key("again")).await;
        let status = reply.status;
        if status == 200 {
            reply.answer().await;
            return;
        }
        assert!(start.elapsed() < within_, "status {status} after {within_:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_refusal_is_429_with_a_reason_and_a_time_and_nothing_of_it_reached_the_backend() {
    const WINDOW: Duration = Duration::from_secs(2);
    let setup = setup("admission: { frames: 8, bytes: 64KiB, drain_window: 2s, patience: 50ms, teardown_after: 5m }\n").await;
    let unread = stuff(&setup, "s").await;
    // Half-open: refused at once.
    within("half-open", async {
        while setup.gateway.metric("lockgate_sessions_half_open").await < 1.0 {
            tokio::time::sleep(Duration::from_millis(20)).await
        }
    })
    .await;
    let start = Instant::now();
    let reply = setup.session.post(call_with_key("refused")).await;
    assert!(start.elapsed() < Duration::from_secs(2));
    assert_eq!(reply.status, 429);
    let wait: u64 = reply.header("retry-after").expect("Retry-After").parse().expect("whole seconds");
    assert!((1..=600).contains(&wait), "{wait}");
    let body = reply.json().await;
    assert_eq!(body["id"], "refused");
    let (code, data) = (body["error"]["code"].as_i64().expect("a code"), &body["error"]["data"]);
    assert!(!(-32768..=-32000).contains(&code), "{code}");
    assert_eq!((&data["reason"], &data["credit"]), (&json!("half_open"), &json!(0)), "{body}");
    assert!(data["owedBytes"].as_u64() >= Some(64 << 10) && data["owedFrames"].as_u64() >= Some(1), "{body}");
    assert!(data["retryAfterMs"].as_u64().is_some_and(|ms| ms.div_ceil(1000) == wait), "{body}");
    assert!(!runs(&setup.backend).contains_key("refused"));
    assert!(setup.gateway.metric("lockgate_admission_total{verdict=\"refused\",reason=\"half_open\"}").await >= 1.0);
    read_all(&setup.backend, unread).await;
    admitted_again(&setup.session, WINDOW).await;
    assert_eq!(setup.gateway.metric("lockgate_sessions_half_open").await, 0.0);
    for line in ["has stopped reading", "reads again"] {
        let log = setup.gateway.log();
        assert_eq!(log.lines().filter(|l| l.contains(line)).count(), 1, "{line}:\n{log}");
    }
    setup.gateway.stop().await;
}

#[tokio::test]
async fn what_frees_credit_or_is_waited_for_is_never_refused() {
    let setup = setup(SMALL).await;
    let unread = stuff(&setup, "s").await;
    let session = &setup.session;
    assert_eq!(session.tell("notifications/cancelled", json!({ "requestId": "0" })).await, 202);
    assert_eq!(session.reply(&json!(99), json!({})).await, 202);
    assert_eq!(session.ask("ping", json!({})).await.result(), json!({}));
    assert_eq!(session.get(&[]).await.status, 200);
    assert_eq!(session.post(call_with_key("still")).await.status, 429);
    assert_eq!(session.delete().await, 204);
    drop(unread);
    setup.gateway.stop().await;
}

#[tokio::test]
async fn one_that_does_not_read_costs_a_bounded_amount_and_nobody_else_notices() {
    let setup = setup("admission: { drain_window: 500ms, teardown_after: 5m }\n").await;
    let other = setup.gateway.initialize().await;
    other.call("t", json!({})).await;
    let before = resident(setup.gateway.pid);
    let mut unread = Vec::new();
    for at in 0..100 {
        let body = big(at, &format!("k{at}"));
        unread.push(Unread::send(&setup.session.at, "POST", &setup.session.headers(), &body).await);
        if at % 20 == 0 {
            let start = Instant::now();
            other.call("t", json!({})).await;
            assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
        }
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let grown = resident(setup.gateway.pid).saturating_sub(before);
    println!("100 unread answers of {BIG} bytes: the gateway grew by {} KiB", grown >> 10);
    assert!(grown < 24 << 20, "grown by {} KiB", grown >> 10);
    assert_eq!(other.post(call_with_key("other")).await.status, 200);
    drop(unread);
    admitted_again(&setup.session, Duration::from_secs(5)).await;
    setup.gateway.stop().await;
}

#[tokio::test]
async fn a_stream_that_stays_half_open_is_closed_and_its_session_goes_on() {
    let setup = setup("admission: { frames: 8, bytes: 64KiB, drain_window: 300ms, patience: 50ms, teardown_after: 1s }\n").await;
    let mut unread = Unread::send(&setup.session.at, "POST", &setup.session.headers(), &big(1, "a")).await;
    assert_eq!(unread.status().await, 200);
    eventually("it is torn down", || setup.gateway.log().contains("does not read was closed").then_some(())).await;
    assert!(unread.closed_within(Duration::from_secs(5)).await);
    admitted_again(&setup.session, Duration::from_secs(2)).await;
    assert!(setup.gateway.metric("lockgate_streams_torn_down_total").await >= 1.0);
    setup.gateway.stop().await;
}

#[tokio::test]
async fn a_slow_reader_is_progressing_and_gets_its_whole_answer() {
    let setup = setup("admission: { frames: 8, bytes: 64KiB, drain_window: 1s, patience: 50ms, teardown_after: 3s }\n").await;
    let body = raw::request("1", "tools/call", &json!({ "name": "big", "arguments": { "key": "slow", "bytes": 150_000 } }).to_string());
    let mut unread = Unread::send(&setup.session.at, "POST", &setup.session.headers(), &body).await;
    let start = Instant::now();
    // Longer than a stream may go unread, and pausing for much less.
    while start.elapsed() < Duration::from_secs(7) {
        unread.sip(1024).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(!setup.gateway.log().contains("was closed"), "{}", setup.gateway.log());
    let read = unread.read(Duration::from_secs(20)).await;
    assert!(raw::first_text(&read.messages()[0]["result"]).len() > 150_000);
    setup.gateway.stop().await;
}

/// Reads messages until one is the answer; gives those before it.
async fn to_answer(events: &mut Events) -> (Vec<Value>, Value) {
    let mut before = Vec::new();
    loop {
        let message = events.message().await.expect("an answer").json();
        if message.get("method").is_none() {
            return (before, message);
        }
        before.push(message);
    }
}

#[tokio::test]
async fn progress_that_is_not_read_is_replaced_and_the_answer_comes_all_the_same() {
    let setup = setup(SMALL).await;
    let params = json!({ "name": "note", "arguments": { "count": 400 }, "_meta": { "progressToken": "p" } }).to_string();
    let unread = Unread::send(&setup.session.at, "POST", &setup.session.headers(), &raw::request("1", "tools/call", &params)).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let read = unread.read(Duration::from_secs(20)).await;
    let messages = read.messages();
    let steps: Vec<_> = messages.iter().filter_map(|m| m["params"]["progress"].as_u64()).collect();
    assert!(steps.is_sorted() && steps.last() == Some(&399), "{steps:?}");
    assert_eq!(messages.last().map(|m| raw::first_text(&m["result"])), Some("noted"));
    setup.gateway.stop().await;
}

#[tokio::test]
async fn log_messages_without_room_are_dropped_counted_and_each_gap_is_told_once() {
    let setup = setup("admission: { frames: 8, bytes: 64KiB, drain_window: 500ms, patience: 1ms, teardown_after: 5m }\n").await;
    let params = json!({ "name": "note", "arguments": { "count": 300 } }).to_string();
    let unread = Unread::send(&setup.session.at, "POST", &setup.session.headers(), &raw::request("1", "tools/call", &params)).await;
    within("all of it has come", async {
        while setup.gateway.metric("lockgate_requests_total{method=\"tools/call\",outcome=\"ok\"}").await < 2.0 {
            tokio::time::sleep(Duration::from_millis(20)).await
        }
    })
    .await;
    let read = unread.read(Duration::from_secs(20)).await;
    let messages = read.messages();
    let is_notice = |m: &Value| m["params"]["logger"] == "lockgate";
    let number = |m: &Value| m["params"]["data"].as_str().and_then(|t| t.split(' ').next()?.parse::<usize>().ok()).expect("a number");
    let missed: usize = messages.iter().filter(|m| is_notice(m)).map(number).sum();
    assert!(missed > 0, "there was room for all");
    assert!(messages.windows(2).all(|two| !(is_notice(&two[0]) && is_notice(&two[1]))), "one gap is told twice");
    let came = messages.iter().filter(|m| m["method"] == "notifications/message" && !is_notice(m)).count();
    assert_eq!(came + missed, 300);
    assert_eq!(setup.gateway.metric("lockgate_notifications_dropped_total").await as usize, missed);
    assert_eq!(messages.last().map(|m| raw::first_text(&m["result"])), Some("noted"));
    setup.gateway.stop().await;
}

#[tokio::test]
async fn an_unread_stream_of_the_session_never_hangs_its_calls_and_reading_it_heals_it() {
    let setup = setup(SMALL).await;
    let upstream = setup.backend.sessions().remove(0);
    let stream = Unread::send(&setup.session.at, "GET", &setup.session.headers(), "").await;
    let fill = "u".repeat(4000);
    let flood = async {
        for n in 0..100 {
            setup
                .backend
                .push(&upstream, &raw::notification("notifications/message", &format!(r#"{{"level":"info","data":"{n}:{fill}"}}"#)))
                .await;
        }
    };
    within_time(Duration::from_secs(30), "the flood is taken", flood).await;
    for n in 0..5 {
        let start = Instant::now();
        let status = setup.session.post(call_with_key(&format!("full-{n}"))).await.status;
        assert!(status == 200 || status == 429, "{status}");
        assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
    }
    let reading = tokio::spawn(async move { stream.closed_within(Duration::from_secs(60)).await });
    admitted_again(&setup.session, Duration::from_secs(5)).await;
    reading.abort();
    setup.gateway.stop().await;
}

#[tokio::test]
async fn operators_see_how_a_session_stands_and_can_end_it() {
    let setup = setup(SMALL).await;
    let unread = stuff(&setup, "s").await;
    let (status, text) = setup.gateway.admin("/sessions").await;
    assert_eq!(status, 200);
    assert!(!text.contains(&setup.session.id), "ids are told to their owner alone");
    let all: Value = serde_json::from_str(&text).expect("JSON");
    let one = &all["sessions"][0];
    assert_eq!((&one["principal"], &one["virtualHost"], &one["credit"]), (&json!("anonymous"), &json!("/mcp"), &json!(0)), "{one}");
    assert!(one["owedBytes"].as_u64() > Some(64 << 10) && one["refused"].as_u64() >= Some(1), "{one}");
    let hash = one["session"].as_str().expect("a hash");
    assert_eq!(setup.gateway.admin(&format!("/sessions/{hash}")).await.0, 200);
    assert_eq!(setup.gateway.admin("/sessions/000000000000").await.0, 404);
    let admin = lockgate_tests::client::Endpoint::new(&format!("http://{}/sessions/{hash}", setup.gateway.admin));
    assert_eq!(admin.send("DELETE", &[("origin", "http://localhost")], "").await.status, 403);
    assert_eq!(admin.send("POST", &[], "").await.status, 405);
    assert_eq!(admin.send("DELETE", &[], "").await.status, 204);
    assert_eq!(setup.session.post(call_with_key("gone")).await.status, 404);
    drop(unread);
    setup.gateway.stop().await;
}

/// Answers the pings on its stream while it makes `calls` calls, each of which is admitted soon.
async fn answering(session: &Session, stream: &mut Events, calls: usize) {
    let served = std::cell::Cell::new(false);
    let answering = async {
        while !served.get() {
            if let Ok(ping) = tokio::time::timeout(Duration::from_millis(50), stream.method("ping")).await {
                assert_eq!(session.reply(&ping["id"], json!({})).await, 202);
            }
        }
    };
    let calling = async {
        for _ in 0..calls {
            admitted_again(session, Duration::from_secs(5)).await;
        }
        served.set(true);
    };
    tokio::join!(answering, calling);
}

/// A client behind a proxy that reads for it: it takes everything from the socket, and answers pings or does not.
#[tokio::test]
async fn the_probe_finds_a_client_that_does_not_read_behind_a_proxy_that_does() {
    let yaml = "admission: { frames: 8, drain_window: 500ms, patience: 50ms, teardown_after: 5m, probe: 1s }\n";
    let setup = setup(yaml).await;
    let mut stream = setup.session.stream().await;
    // It answers: it is served, however often it calls.
    answering(&setup.session, &mut stream, 20).await;
    // It stops answering: what it was sent stays owed, and it is refused.
    within("a refusal", async {
        loop {
            let reply = setup.session.post(call_with_key("silent")).await;
            if reply.status == 429 {
                return;
            }
            reply.bytes().await;
        }
    })
    .await;
    within("half-open", async {
        while setup.gateway.metric("lockgate_sessions_half_open").await < 1.0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    // And again it answers.
    answering(&setup.session, &mut stream, 1).await;
    setup.gateway.stop().await;
}

#[tokio::test]
async fn one_call_after_another_that_is_not_read_still_leaves_ordered_answers() {
    let setup = setup(SMALL).await;
    let mut events =
        setup.session.start("1", "tools/call", &json!({ "name": "note", "arguments": { "count": 3 } }).to_string()).await.events();
    let (before, answer) = to_answer(&mut events).await;
    assert_eq!((before.len(), answer["id"].as_u64()), (3, Some(1)));
    setup.gateway.stop().await;
}

/// Three times it stops reading and goes on; `RETRY_SECONDS` makes it go on for so long (`make soak`: a minute).
#[tokio::test]
async fn a_client_that_honours_retry_after_runs_each_effect_exactly_once() {
    let seconds = std::env::var("RETRY_SECONDS").ok().and_then(|seconds| seconds.parse().ok()).unwrap_or(0);
    let setup = setup("admission: { frames: 4, bytes: 32KiB, drain_window: 300ms, patience: 20ms, teardown_after: 5m }\n").await;
    let (start, mut keys, mut refusals) = (Instant::now(), Vec::new(), 0);
    for round in 0.. {
        if round >= 3 && start.elapsed() >= Duration::from_secs(seconds) {
            println!("{round} stalls in {:?}: {} effects, refused {refusals} times", start.elapsed(), keys.len());
            break;
        }
        let unread = stuff(&setup, &format!("r{round}")).await;
        let refused = std::sync::Arc::new(tokio::sync::Notify::new());
        let reader = {
            let refused = refused.clone();
            tokio::spawn(async move {
                // Not before it was turned away once.
                refused.notified().await;
                tokio::time::sleep(Duration::from_millis(700)).await;
                futures_util::future::join_all(unread.into_iter().map(|(_, answer)| answer.read(Duration::from_secs(20)))).await;
            })
        };
        for at in 0..3 {
            let key = format!("effect-{round}-{at}");
            within_time(Duration::from_secs(60), "it is admitted in the end", async {
                loop {
                    let reply = setup.session.post(call_with_key(&key)).await;
                    if reply.status == 200 {
                        reply.answer().await;
                        return;
                    }
                    assert_eq!(reply.status, 429);
                    refused.notify_one();
                    refusals += 1;
                    let wait = reply.header("retry-after").and_then(|s| s.parse().ok()).expect("seconds");
                    tokio::time::sleep(Duration::from_secs(wait)).await;
                }
            })
            .await;
            keys.push(key);
        }
        within("it reads", reader).await.expect("it reads");
    }
    let runs = runs(&setup.backend);
    for key in &keys {
        assert_eq!(runs.get(key), Some(&1), "{key}");
    }
    assert!(refusals >= 3, "it was not refused in each round, so it had nothing to try again");
    setup.gateway.stop().await;
}

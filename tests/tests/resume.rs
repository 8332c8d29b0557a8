//! Resumption for legacy revisions: a stream that broke is continued where it was, and nothing else is.

use std::{sync::Arc, time::Duration};

use lockgate_tests::{
    backend::{Backend, Call},
    client::{Events, Session},
    gateway::{Gateway, http_backends},
    process::resident,
    raw,
    sse::Event,
};
use serde_json::json;
use tokio::sync::Semaphore;

/// A backend whose tool sends progress up to `steps`, each step when the test permits it, then answers.
async fn stepping(steps: u32) -> (Backend, Arc<Semaphore>) {
    let permits = Arc::new(Semaphore::new(0));
    let shared = permits.clone();
    let script = move |call: Call| {
        let permits = shared.clone();
        async move {
            let (token, name) = (call.progress_token().unwrap_or_else(|| "0".to_owned()), call.target());
            let stream = call.stream();
            for step in 1..=steps {
                permits.acquire().await.expect("never closed").forget();
                let params = format!(r#"{{"progressToken":{token},"progress":{step},"message":"{name}"}}"#);
                stream.notify("notifications/progress", &params).await;
            }
            permits.acquire().await.expect("never closed").forget();
            stream.answer(&raw::text(&name)).await;
        }
    };
    let backend = Backend::builder("b").tool("t").tool("u").on("tools/call", script).start().await;
    (backend, permits)
}

async fn one(backend: &Backend) -> (Gateway, Session) {
    let gateway = Gateway::start(&http_backends(&[("one", &backend.url())])).await;
    let session = gateway.initialize().await;
    (gateway, session)
}

fn call(tool: &str) -> String {
    json!({ "name": tool, "_meta": { "progressToken": tool } }).to_string()
}

/// Reads up to and including the progress `step`; gives the id of that event.
async fn read_to(events: &mut Events, step: u32) -> String {
    loop {
        let event = events.next().await.expect("the stream goes on");
        if event.is_message() && event.json()["params"]["progress"] == json!(step) {
            return event.id.expect("events of a resumable stream have ids");
        }
    }
}

fn messages(events: &[Event]) -> Vec<serde_json::Value> {
    events.iter().filter(|event| event.is_message()).map(Event::json).collect()
}

#[tokio::test]
async fn a_broken_call_stream_is_continued_where_it_was() {
    let (backend, permits) = stepping(4).await;
    let (gateway, session) = one(&backend).await;
    let mut events = session.start("7", "tools/call", &call("t")).await.events();
    permits.add_permits(2);
    let first = read_to(&mut events, 1).await;
    read_to(&mut events, 2).await;
    drop(events);
    permits.add_permits(3);
    let mut resumed = session.resume(&first).await.must_be(200).await.events();
    let got = messages(&resumed.rest().await);
    let steps: Vec<_> = got.iter().filter_map(|message| message["params"]["progress"].as_u64()).collect();
    assert_eq!(steps, [2, 3, 4], "{got:?}");
    let last = got.last().expect("an answer");
    assert_eq!((last["id"].as_u64(), last["result"]["content"][0]["text"].as_str()), (Some(7), Some("t")));
    assert!(backend.seen_of("notifications/cancelled").is_empty() && backend.abandoned() == 0, "leaving is not cancelling");
    gateway.stop().await;
}

#[tokio::test]
async fn a_stream_can_be_resumed_more_than_once_and_after_its_end() {
    let (backend, permits) = stepping(3).await;
    let (gateway, session) = one(&backend).await;
    let mut events = session.start("7", "tools/call", &call("t")).await.events();
    permits.add_permits(4);
    let first = read_to(&mut events, 1).await;
    let all = messages(&events.rest().await);
    assert!(all.last().is_some_and(|message| message["result"].is_object()));
    for _ in 0..2 {
        let mut resumed = session.resume(&first).await.must_be(200).await.events();
        assert_eq!(messages(&resumed.rest().await), all);
    }
    gateway.stop().await;
}

#[tokio::test]
async fn resuming_replays_only_the_stream_that_the_event_belongs_to() {
    let (backend, permits) = stepping(2).await;
    let (gateway, session) = one(&backend).await;
    let mut own = session.stream().await;
    let mut t = session.start("1", "tools/call", &call("t")).await.events();
    backend.saw("tools/call", 1).await;
    permits.add_permits(1);
    let mark = read_to(&mut t, 1).await;
    drop(t);
    let mut u = session.start("2", "tools/call", &call("u")).await.events();
    backend.saw("tools/call", 2).await;
    let upstream = backend.sessions().remove(0);
    backend.push(&upstream, &raw::notification("notifications/tools/list_changed", "{}")).await;
    own.method("notifications/tools/list_changed").await;
    permits.add_permits(5);
    let rest_of_u = messages(&u.rest().await);
    assert!(rest_of_u.iter().all(|message| message["params"]["message"] != "t"), "{rest_of_u:?}");
    let mut resumed = session.resume(&mark).await.must_be(200).await.events();
    let got = messages(&resumed.rest().await);
    assert!(got.iter().all(|message| message["params"]["message"] == "t" || message["id"] == 1), "{got:?}");
    assert_eq!(got.last().map(|message| message["id"].clone()), Some(json!(1)));
    gateway.stop().await;
}

#[tokio::test]
async fn event_ids_are_unique_in_a_session_and_worthless_in_another() {
    let (backend, permits) = stepping(2).await;
    let (gateway, session) = one(&backend).await;
    permits.add_permits(100);
    let mut ids = Vec::new();
    for id in ["1", "2"] {
        let events = session.start(id, "tools/call", &call("t")).await.events().rest().await;
        ids.extend(events.into_iter().filter_map(|event| event.id));
    }
    let count = ids.len();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), count, "{ids:?}");
    let stranger = gateway.initialize().await;
    for id in &ids {
        let reply = stranger.resume(id).await;
        assert!(reply.status == 200 || (400..500).contains(&reply.status), "{}", reply.status);
        if reply.status == 200 {
            reply.events().quiet_for(Duration::from_millis(50)).await;
        }
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_nonsensical_last_event_id_replays_nothing_and_breaks_nothing() {
    let (backend, permits) = stepping(1).await;
    let (gateway, session) = one(&backend).await;
    permits.add_permits(10);
    session.ask("tools/call", json!({ "name": "t" })).await;
    for id in ["", "0", "999999999999999999999", "-1", "x/y", "../..", &"9".repeat(2000)] {
        let reply = session.resume(id).await;
        assert!(reply.status == 200 || (400..500).contains(&reply.status), "{id:.20}: {}", reply.status);
        if reply.status == 200 {
            reply.events().quiet_for(Duration::from_millis(50)).await;
        }
    }
    assert_eq!(session.ask("ping", json!({})).await.status, 200);
    gateway.stop().await;
}

#[tokio::test]
async fn what_came_while_the_sessions_own_stream_was_away_comes_once() {
    let backend = Backend::with_tools("b", &["t"]).await;
    let (gateway, session) = one(&backend).await;
    session.call("t", json!({})).await;
    let upstream = backend.sessions().remove(0);
    let log = |data: u32| raw::notification("notifications/message", &format!(r#"{{"level":"info","data":{data}}}"#));
    let mut stream = session.stream().await;
    backend.push(&upstream, &log(1)).await;
    let event = stream.message().await.expect("a message");
    let id = event.id.clone().expect("an id");
    drop(stream);
    backend.push(&upstream, &log(2)).await;
    backend.push(&upstream, &log(3)).await;
    let mut stream = session.resume(&id).await.must_be(200).await.events();
    for data in [2, 3] {
        assert_eq!(stream.method("notifications/message").await["params"]["data"], data);
    }
    backend.push(&upstream, &log(4)).await;
    assert_eq!(stream.method("notifications/message").await["params"]["data"], 4);
    gateway.stop().await;
}

#[tokio::test]
async fn a_message_goes_to_one_of_two_streams_and_not_to_both() {
    let backend = Backend::with_tools("b", &["t"]).await;
    let (gateway, session) = one(&backend).await;
    session.call("t", json!({})).await;
    let upstream = backend.sessions().remove(0);
    let mut first = session.stream().await;
    let second = session.get(&[]).await;
    if second.status != 200 {
        // Refusing the second stream is lawful.
        assert!((400..500).contains(&second.status), "{}", second.status);
        return gateway.stop().await;
    }
    let mut second = second.events();
    backend.push(&upstream, &raw::notification("notifications/message", r#"{"level":"info","data":1}"#)).await;
    tokio::select! {
        message = first.message() => {
            if message.is_none() {
                // The newer stream took over, and the older one ended.
                assert!(second.message().await.is_some());
                return gateway.stop().await;
            }
            second.quiet_for(Duration::from_millis(300)).await;
        }
        message = second.message() => {
            assert!(message.is_some());
            first.quiet_for(Duration::from_millis(300)).await;
        }
    }
    gateway.stop().await;
}

#[tokio::test]
async fn the_ring_of_a_stream_that_nobody_reads_is_bounded() {
    const STEPS: u32 = 4000;
    let filler = "f".repeat(8 << 10);
    let script = move |call: Call| {
        let filler = filler.clone();
        async move {
            let token = call.progress_token().expect("a token");
            let stream = call.stream();
            for step in 1..=STEPS {
                let params = format!(r#"{{"progressToken":{token},"progress":{step},"message":"{filler}"}}"#);
                if !stream.notify("notifications/progress", &params).await {
                    return;
                }
            }
            stream.answer(&raw::text("end")).await;
        }
    };
    let backend = Backend::builder("b").tool("t").on("tools/call", script).start().await;
    let (gateway, session) = one(&backend).await;
    session.ask("ping", json!({})).await;
    let before = resident(gateway.pid);
    let mut events = session.start("1", "tools/call", &call("t")).await.events();
    // The first that comes: where this client is slow, the steps before it were left out.
    let event = events.message().await.expect("progress");
    let (first, mut last) = (event.id.clone().expect("an id"), event.json()["params"]["progress"].as_u64().expect("a step"));
    drop(events);
    // 32 MiB are on their way; the backend either gets rid of them or is held back.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let grown = resident(gateway.pid).saturating_sub(before);
    println!("memory after {} MiB that nobody read: + {} KiB", (STEPS as usize * 8) >> 10, grown >> 10);
    assert!(grown < 16 << 20, "grown by {} KiB", grown >> 10);
    let reply = session.resume(&first).await;
    if reply.status == 200 {
        let mut resumed = reply.events();
        while let Ok(Some(event)) = tokio::time::timeout(Duration::from_secs(5), resumed.message()).await {
            let message = event.json();
            let Some(step) = message["params"]["progress"].as_u64() else {
                break;
            };
            assert!(step > last, "replayed in order, {step} after {last}");
            last = step;
        }
    }
    assert_eq!(session.ask("ping", json!({})).await.status, 200);
    gateway.stop().await;
}

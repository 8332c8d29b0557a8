//! What backends send faster than a client reads stays at its backend, in its order, and holds up nobody else.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use lockgate_tests::{
    backend::{Backend, Call},
    client::Session,
    eventually,
    gateway::{Gateway, http_backends},
    process::{Folder, resident},
    raw, sse_client,
    stall::{Read, Unread},
    within, within_time,
};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::admission::{backend, big, setup};

/// A call of `tool` with the id `id`.
fn call(id: &str, tool: &str, arguments: &Value) -> String {
    raw::request(&json!(id).to_string(), "tools/call", &json!({ "name": tool, "arguments": arguments }).to_string())
}

fn stdio(log: &Folder) -> String {
    let command = lockgate_tests::stdio::command(&log.path().join("backend.log"), &[]);
    serde_json::to_string(&command).expect("strings become JSON")
}

/// What the gateway holds of a stream for a client that reads nothing, after it had time to fill.
async fn ahead(gateway: &Gateway) -> f64 {
    let mut last = -1.0;
    within("it comes to rest", async {
        loop {
            let owed = gateway.metric("lockgate_owed_bytes").await;
            if owed > 0.0 && owed == last {
                return owed;
            }
            last = owed;
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    })
    .await
}

#[tokio::test]
async fn no_stream_runs_more_than_64_kib_and_a_message_ahead_of_a_client_that_reads_nothing() {
    const YAML: &str = "admission: { drain_window: 500ms, patience: 20ms, teardown_after: 5m }\n";
    const LIMIT: f64 = 65536.0;
    let endless = call("1", "note", &json!({ "count": 100_000 }));

    let one = setup(YAML).await;
    let _unread = Unread::send(&one.session.at, "POST", &one.session.headers(), &big(1, "k")).await;
    let json = ahead(&one.gateway).await;
    one.gateway.stop().await;

    let two = setup(YAML).await;
    let _unread = Unread::send(&two.session.at, "POST", &two.session.headers(), &endless).await;
    let events = ahead(&two.gateway).await;
    two.gateway.stop().await;

    let three = setup(YAML).await;
    let _unread = Unread::send(&three.session.at, "GET", &three.session.headers(), "").await;
    let upstream = three.backend.sessions().remove(0);
    let note = raw::notification("notifications/message", &format!(r#"{{"level":"info","data":"{}"}}"#, "n".repeat(1000)));
    let push = async {
        loop {
            three.backend.push(&upstream, &note).await;
        }
    };
    let own = tokio::select! { owed = ahead(&three.gateway) => owed, () = push => unreachable!("it never ends") };
    three.gateway.stop().await;

    let four = setup(YAML).await;
    let (_unread, messages) = sse_client::open_unread(&four.gateway.at("/sse")).await;
    sse_client::post(&messages, endless).await.must_be(202).await;
    let legacy = ahead(&four.gateway).await;
    four.gateway.stop().await;

    println!(
        "ahead of a client that reads nothing: JSON answer {json}, events of a call {events}, GET stream {own}, HTTP+SSE {legacy} bytes"
    );
    // However large it is, a chunk of it at hand, and what the kernel takes in one write.
    assert!(json > 50_000.0 && json <= LIMIT * 2.5, "{json}");
    for (stream, owed) in [("events", events), ("GET", own), ("HTTP+SSE", legacy)] {
        assert!(owed <= LIMIT + 2000.0, "{stream}: {owed}");
    }
}

/// A child writes 400 MB of log messages and then two answers of 1 MB. With an unread stream of its session the flood is held at the
/// child; without a stream it goes by, and the answers are what is owed.
async fn flood(unread_stream: bool) {
    let (folder, backend) = (Folder::new("flood"), backend().await);
    let yaml = format!(
        "backends:\n  child: {{ command: {} }}\n  one: {{ url: \"{}\" }}\nadmission: {{ drain_window: 500ms, teardown_after: 5m }}\n",
        stdio(&folder),
        backend.url()
    );
    let gateway = Gateway::start(&yaml).await;
    let (session, other) = (gateway.initialize().await, gateway.initialize().await);
    session.call("one__t", json!({})).await;
    other.call("child__pid", json!({})).await;
    let before = resident(gateway.pid);
    let send = async |method, body: &str| Unread::send(&session.at, method, &session.headers(), body).await;
    let mut unread = Vec::new();
    if unread_stream {
        let mut stream = send("GET", "").await;
        assert_eq!(stream.status().await, 200);
        unread.push(stream);
    }
    unread.push(send("POST", &call("1", "child__chatter", &json!({ "count": 100_000, "bytes": 4000 }))).await);
    // It takes one call after another; the flood is to be the first.
    let at_child = || lockgate_tests::stdio::read(&folder.path().join("backend.log")).iter().any(|line| line.text.contains("chatter"));
    eventually("the call at the child", || at_child().then_some(())).await;
    for id in ["2", "3"] {
        unread.push(send("POST", &call(id, "child__big", &json!({ "bytes": 1_000_000 }))).await);
    }
    let mut took = Vec::new();
    for _ in 0..10 {
        for (asks, tool) in [(&session, "one__t"), (&other, "one__t"), (&other, "child__pid")] {
            let start = Instant::now();
            let reply = asks.post(call("x", tool, &json!({}))).await;
            if reply.status == 429 && asks.id == session.id && !unread_stream {
                // Both answers have come: it is owed all that it may be, and is told so.
                let data = reply.json().await["error"]["data"].take();
                assert!(data["credit"] == 0 && data["owedBytes"].as_u64() >= Some(1 << 20), "refused with credit left: {data}");
            } else {
                reply.must_be(200).await.answer().await;
            }
            took.push(start.elapsed());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    // Who has to wait for the flood waits for minutes.
    took.sort_unstable();
    assert!(took[took.len() / 2] < Duration::from_secs(2), "{took:?}");
    let grown = resident(gateway.pid).saturating_sub(before);
    println!("a child that floods: the gateway grew by {} KiB; a call beside it took {:?} at most", grown >> 10, took.last());
    assert!(grown < 16 << 20, "grown by {} KiB", grown >> 10);
    drop(unread);
    gateway.stop().await;
}

#[tokio::test]
async fn a_child_that_floods_costs_little_and_holds_up_neither_another_backend_nor_another_session() {
    flood(true).await;
}

#[tokio::test]
async fn a_flood_that_nobody_listens_to_goes_by_and_what_it_leaves_is_owed_by_its_session_alone() {
    flood(false).await;
}

/// The answers to `calls` each backend is asked for, with nobody reading; all come in the end.
/// A backend whose answers to `big` wait for the gate.
async fn gated(gate: &watch::Sender<bool>, bytes: usize) -> Backend {
    let gate = gate.subscribe();
    let script = move |call: Call| {
        let mut gate = gate.clone();
        async move {
            match call.target().as_str() {
                "big" => {
                    let _ = gate.wait_for(|open| *open).await;
                    call.result(&raw::text(&"x".repeat(bytes)));
                }
                _ => call.result(&raw::text("t")),
            }
        }
    };
    Backend::builder("b").tool("t").tool("big").on("tools/call", script).start().await
}

#[tokio::test]
async fn large_answers_of_several_backends_at_once_stay_at_their_backends_until_they_are_read() {
    const CALLS: usize = 6;
    const BYTES: usize = 4_000_000;
    let gate = watch::channel(false).0;
    let (folder, backends) = (Folder::new("large"), [gated(&gate, BYTES).await, gated(&gate, BYTES).await, gated(&gate, BYTES).await]);
    let urls = backends.each_ref().map(|backend| backend.url());
    let yaml = format!(
        "{}  child: {{ command: {} }}\nadmission: {{ drain_window: 500ms, teardown_after: 5m }}\n",
        http_backends(&[("a", &urls[0]), ("b", &urls[1]), ("c", &urls[2])]),
        stdio(&folder)
    );
    let gateway = Gateway::start(&yaml).await;
    let (session, other) = (gateway.initialize().await, gateway.initialize().await);
    let names = ["a", "b", "c", "child"];
    for name in ["a__t", "b__t", "c__t", "child__pid"] {
        session.call(name, json!({})).await;
    }
    other.call("a__t", json!({})).await;
    let before = resident(gateway.pid);
    let mut unread = Vec::new();
    let send = async |at: usize, name: &str| {
        let body = call(&format!("{name}-{at}"), &format!("{name}__big"), &json!({ "bytes": BYTES }));
        Unread::send(&session.at, "POST", &session.headers(), &body).await
    };
    for at in 0..CALLS {
        for name in ["a", "b", "c"] {
            unread.push(send(at, name).await);
        }
    }
    // All are admitted before the first answer can take the credit.
    let seen = || backends.iter().map(|b| b.seen_of("tools/call").len()).sum::<usize>();
    eventually("the calls at the backends", || (seen() == 3 * CALLS + 4).then_some(())).await;
    unread.push(send(0, "child").await);
    gate.send_replace(true);
    // The bytes of a session, and one message of each backend with the little that stands around it.
    let bound = ((1 << 20) + names.len() * (BYTES + 1000)) as f64;
    let (mut most, mut last) = (0.0f64, Instant::now());
    within_time(Duration::from_secs(60), "no more comes", async {
        while last.elapsed() < Duration::from_secs(2) {
            let owed = gateway.metric("lockgate_owed_bytes").await;
            assert!(owed <= bound, "{owed} bytes are held, the bound is {bound}");
            if owed > most {
                (most, last) = (owed, Instant::now());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    let grown = resident(gateway.pid).saturating_sub(before);
    println!("{} answers of {BYTES} bytes that nobody reads: {most} bytes held, the gateway grew by {} KiB", unread.len(), grown >> 10);
    assert!(most >= (1 << 20) as f64, "hardly anything came: {most}");
    // Of 76 MB. What an allocator may keep besides is no more than that once more.
    assert!(grown < 2 * bound as u64, "grown by {} KiB", grown >> 10);
    assert_eq!(session.post(call("more", "a__t", &json!({}))).await.status, 429);
    other.call("a__t", json!({})).await;
    let reads: Vec<Read> = join_all(unread.into_iter().map(|answer| answer.read(Duration::from_secs(120)))).await;
    for read in reads {
        let messages = read.messages();
        let text = messages.iter().find(|m| m.get("result").is_some()).map(|m| raw::first_text(&m["result"]).len());
        assert!(text.is_some_and(|length| length >= BYTES), "{}: {text:?}", read.head);
    }
    gateway.stop().await;
}

/// The steps of the progress that came, and the text of the answer.
fn steps(read: &Read) -> (Vec<u64>, Option<String>) {
    let messages = read.messages();
    let steps = messages.iter().filter_map(|m| m["params"]["progress"].as_u64()).collect();
    (steps, messages.last().map(|m| raw::first_text(&m["result"]).to_owned()))
}

#[tokio::test]
async fn progress_never_goes_back_also_where_most_of_it_is_left_out() {
    let setup = setup("admission: { drain_window: 500ms, patience: 20ms, teardown_after: 5m }\n").await;
    let Session { at, .. } = &setup.session;
    let params = json!({ "name": "note", "arguments": { "count": 2000 }, "_meta": { "progressToken": "p" } }).to_string();
    let unread = Unread::send(at, "POST", &setup.session.headers(), &raw::request("1", "tools/call", &params)).await;
    within("all of it has come", async {
        while setup.gateway.metric("lockgate_requests_total{method=\"tools/call\",outcome=\"ok\"}").await < 2.0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let (steps, answer) = steps(&unread.read(Duration::from_secs(20)).await);
    assert!(steps.windows(2).all(|two| two[0] < two[1]), "{steps:?}");
    assert!(steps.len() > 2 && steps.len() < 2000 && steps.last() == Some(&1999), "{steps:?}");
    assert_eq!(answer.as_deref(), Some("noted"));
    setup.gateway.stop().await;
}

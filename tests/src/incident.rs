//! The incident that admission answers, as a load: many sessions call, one in ten is behind a relay that stops reading, and all go on.
//!
//! Runs against anything that speaks streamable HTTP, so that gateways can be compared. Used by `tests/incident.rs` and by the benchmark
//! `stalled`.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::{
    backend::{Backend, Call},
    client::{Endpoint, Session},
    process::resident,
    raw,
    stall::{Relay, Unread},
};

/// What is done.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub sessions: usize,
    /// Of these, those that call for what comes with `logs`, behind the relay that stops reading.
    pub stalled: usize,
    /// The relay does stop. If not, those behind it make the same calls and read what comes, without it in between.
    pub stops: bool,
    pub time: Duration,
    /// Between two calls of a session.
    pub pace: Duration,
    /// Bytes of an answer.
    pub answer: usize,
    /// Log messages before each answer to a stalled session, and their size.
    pub logs: (usize, usize),
    /// A call of a healthy session that takes longer has failed.
    pub limit: Duration,
}

/// One call of a healthy session.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Since the relay stopped.
    pub at: Duration,
    pub took: Duration,
    pub ok: bool,
}

/// A call of a stalled session, after the relay went on.
#[derive(Debug)]
pub struct Owed {
    pub key: String,
    pub status: u16,
    /// The stream was cut before its end: a gateway need not hold what nobody reads for ever.
    pub cut: bool,
    /// The whole answer came, on its own stream or, after that was cut, on one that resumes it.
    pub answered: bool,
}

#[derive(Debug)]
pub struct Outcome {
    pub healthy: Vec<Sample>,
    pub owed: Vec<Owed>,
    /// By how much the process grew at most.
    pub grown: u64,
    /// How long it took each stalled session to be served again.
    pub recovered: Vec<Option<Duration>>,
    /// A session that somebody opened in the middle of it.
    pub newcomer: Option<Duration>,
}

/// The backend: `work` sends log messages, then answers with its key and some bytes.
pub async fn backend(plan: Plan) -> Backend {
    let (fill, note) = (Arc::new("x".repeat(plan.answer)), Arc::new("n".repeat(plan.logs.1)));
    let script = move |call: Call| {
        let (fill, note) = (fill.clone(), note.clone());
        async move {
            let arguments: Value = serde_json::from_str(call.seen.arguments_raw()).unwrap_or_default();
            let key = arguments["key"].as_str().unwrap_or_default().to_owned();
            let stream = call.stream();
            for _ in 0..arguments["notes"].as_u64().unwrap_or(0) {
                if !stream.notify("notifications/message", &format!(r#"{{"level":"info","data":"{note}"}}"#)).await {
                    return;
                }
            }
            stream.answer(&raw::text(&format!("{key}:{fill}"))).await;
        }
    };
    Backend::builder("b").tool("work").on("tools/call", script).start().await
}

/// Runs the plan against the gateway at `to`, whose process is `pid`.
pub async fn run(to: SocketAddr, pid: u32, plan: Plan) -> Outcome {
    let direct = Endpoint::new(&format!("http://{to}/mcp"));
    let relay = Relay::start(to).await;
    let (mut healthy, mut stalled) = (Vec::new(), Vec::new());
    for at in 0..plan.sessions {
        if at >= plan.stalled {
            healthy.push(direct.initialize().await);
        } else if plan.stops {
            stalled.push(relay.at("/mcp").initialize().await);
        } else {
            stalled.push(direct.initialize().await);
        }
    }
    let (mut streams, mut read) = (Vec::new(), JoinSet::new());
    for session in &stalled {
        call(session, "warm", plan.limit).await;
        if plan.stops {
            streams.push(Unread::send(&session.at, "GET", &session.headers(), "").await);
        } else {
            let mut events = session.stream().await;
            read.spawn(async move { while events.next().await.is_some() {} });
        }
    }
    for session in &healthy {
        call(session, "warm", plan.limit).await;
    }
    tokio::time::sleep(Duration::from_millis(200)).await;

    // Everybody calls and reads for a while: what the load itself takes is not what stalled clients cost.
    let start = Instant::now() + plan.time / 4;
    let mut tasks = JoinSet::new();
    for (at, session) in healthy.into_iter().enumerate() {
        tasks.spawn(async move {
            // Not all at once.
            tokio::time::sleep(plan.pace.mul_f64(at as f64 / plan.sessions as f64)).await;
            let mut samples = Vec::new();
            while start.elapsed() < plan.time {
                let began = Instant::now();
                let ok = call(&session, "healthy", plan.limit).await;
                if let Some(at) = began.checked_duration_since(start) {
                    samples.push(Sample { at, took: began.elapsed(), ok });
                }
                tokio::time::sleep(plan.pace.saturating_sub(began.elapsed())).await;
            }
            samples
        });
    }
    tokio::time::sleep_until(start.into()).await;
    let before = resident(pid);
    let peak = Arc::new(AtomicU64::new(before));
    let watching = {
        let peak = peak.clone();
        tokio::spawn(async move {
            loop {
                peak.fetch_max(resident(pid), Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        })
    };
    relay.stall(plan.stops);
    let mut stalling = JoinSet::new();
    for (at, session) in stalled.into_iter().enumerate() {
        if !plan.stops {
            // In the same session and at the same pace; what was refused or cut is nothing that the run without stalled clients has.
            read.spawn(async move {
                while start.elapsed() < plan.time {
                    let began = Instant::now();
                    let reply = session.post(work(&format!("s{at}"), plan.logs.0)).await;
                    let _ = tokio::time::timeout(plan.limit, reply.bytes()).await;
                    tokio::time::sleep(plan.pace.saturating_sub(began.elapsed())).await;
                }
            });
            continue;
        }
        stalling.spawn(async move {
            let mut sent = Vec::new();
            while start.elapsed() < plan.time {
                let key = format!("s{at}-{}", sent.len());
                let unread = Unread::send(&session.at, "POST", &session.headers(), &work(&key, plan.logs.0)).await;
                sent.push((key, unread));
                tokio::time::sleep(plan.pace).await;
            }
            (session, sent)
        });
    }
    // Somebody comes in the middle of it.
    let newcomer = {
        let direct = direct.clone();
        tokio::spawn(async move {
            tokio::time::sleep(plan.time / 3).await;
            let began = Instant::now();
            let session = tokio::time::timeout(plan.limit, direct.initialize()).await.ok()?;
            call(&session, "new", plan.limit).await.then(|| began.elapsed())
        })
    };
    let mut samples = Vec::new();
    while let Some(done) = tasks.join_next().await {
        samples.extend(done.expect("a healthy client"));
    }
    let newcomer = newcomer.await.ok().flatten();
    let mut left = Vec::new();
    while let Some(done) = stalling.join_next().await {
        left.push(done.expect("a stalled client"));
    }
    watching.abort();
    let grown = peak.load(Ordering::Relaxed).saturating_sub(before);

    relay.stall(false);
    drop((streams, read));
    let mut recovering = JoinSet::new();
    for (session, sent) in left {
        recovering.spawn(async move {
            // All at the same time, as a client that reads again does.
            let reading = sent.into_iter().map(|(key, unread)| collect(&session, key, unread, plan.limit));
            let owed = futures_util::future::join_all(reading).await;
            let began = Instant::now();
            while began.elapsed() < plan.limit {
                if call(&session, "again", plan.limit).await {
                    return (owed, Some(began.elapsed()));
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            (owed, None)
        });
    }
    let (mut owed, mut recovered) = (Vec::new(), Vec::new());
    while let Some(done) = recovering.join_next().await {
        if let Ok((these, after)) = done {
            owed.extend(these);
            recovered.push(after);
        } else {
            recovered.push(None);
        }
    }
    Outcome { healthy: samples, owed, grown, recovered, newcomer }
}

/// Reads what a stalled client is owed for one call, and resumes the stream where it was cut.
async fn collect(session: &Session, key: String, unread: Unread, limit: Duration) -> Owed {
    let Some(read) = unread.read_what_comes(Duration::from_secs(20)).await else {
        return Owed { key, status: 0, cut: true, answered: false };
    };
    let mut answered = read.status == 200 && read.messages().iter().any(|m| answers(m, &key));
    if !answered
        && !read.whole
        && let Some(id) = read.last_event_id()
    {
        let rest = async {
            let reply = session.resume(&id).await;
            if reply.status != 200 {
                return false;
            }
            let mut events = reply.events();
            while let Some(event) = events.message().await {
                if answers(&event.json(), &key) {
                    return true;
                }
            }
            false
        };
        answered = tokio::time::timeout(limit, rest).await.unwrap_or(false);
    }
    Owed { key, status: read.status, cut: !read.whole, answered }
}

fn answers(message: &Value, key: &str) -> bool {
    message["result"]["content"][0]["text"].as_str().is_some_and(|text| text.starts_with(&format!("{key}:")))
}

fn work(key: &str, notes: usize) -> String {
    let params = json!({ "name": "work", "arguments": { "key": key, "notes": notes } });
    raw::request(&json!(key).to_string(), "tools/call", &params.to_string())
}

/// Whether the call was answered with its result within `limit`.
async fn call(session: &Session, key: &str, limit: Duration) -> bool {
    let answer = async {
        let reply = session.post(work(key, 0)).await;
        if reply.status != 200 {
            return false;
        }
        let answer = reply.answer().await;
        serde_json::from_str::<Value>(&answer.raw).is_ok_and(|message| answers(&message, key))
    };
    tokio::time::timeout(limit, answer).await.unwrap_or(false)
}

/// The `q` quantile (0 to 1) of the times of these samples.
pub fn quantile(samples: &[Sample], q: f64) -> Duration {
    let mut times: Vec<Duration> = samples.iter().map(|s| s.took).collect();
    times.sort_unstable();
    let at = ((times.len() as f64) * q) as usize;
    times.get(at.min(times.len().saturating_sub(1))).copied().unwrap_or_default()
}

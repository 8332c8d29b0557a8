//! What a session costs, and that it costs nothing once it is gone. Run alone (see `.config/nextest.toml`): memory and the
//! machine are shared.
//!
//! `SOAK_SESSIONS` is the number of sessions that are made and deleted (default 2,000; `make soak` takes 20,000).

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::{StreamExt, stream};
use lockgate_tests::{
    backend::Backend,
    client::{Endpoint, Events},
    eventually,
    gateway::{Gateway, http_backends},
    process::{self, descriptors, resident},
};
use serde_json::json;
use tokio::{sync::Semaphore, task::JoinSet};

const IDLE: usize = 2000;
/// A session has 4 KiB on the heap. When many come at once, each has for some seconds a connection to its server besides, and the allocator keeps
/// for the next ones what was its.
const PER_SESSION: u64 = 80 << 10;
/// A stream is a connection with its buffers at either side.
const PER_STREAM: u64 = 96 << 10;
/// What an allocator may keep after a storm.
const SLACK: u64 = 32 << 20;
const PARALLEL: usize = 16;

/// Makes `count` sessions, a call in each, and keeps them when `keep` is set.
async fn sessions(at: &Endpoint, count: usize, keep: bool) {
    let (permits, mut tasks) = (Arc::new(Semaphore::new(PARALLEL)), JoinSet::new());
    for _ in 0..count {
        let permit = permits.clone().acquire_owned().await.expect("never closed");
        let at = at.clone();
        tasks.spawn(async move {
            let session = at.initialize().await;
            session.call("t", json!({})).await;
            if !keep {
                assert!((200..300).contains(&session.delete().await));
            }
            drop(permit);
        });
        while let Some(task) = tasks.try_join_next() {
            task.expect("no session fails");
        }
    }
    while let Some(task) = tasks.join_next().await {
        task.expect("no session fails");
    }
}

#[tokio::test]
async fn two_thousand_idle_sessions_cost_little_each() {
    let backend = Backend::with_tools("b", &["t"]).await;
    let yaml = format!("{}session: {{ max_total: 10000, max_per_principal: 10000 }}\n", http_backends(&[("one", &backend.url())]));
    let gateway = Gateway::start(&yaml).await;
    // The first ones pay for pools and code pages.
    sessions(&gateway.mcp(), 100, false).await;
    let before = resident(gateway.pid);
    let start = Instant::now();
    sessions(&gateway.mcp(), IDLE, true).await;
    // A session keeps a connection for some seconds after a call.
    eventually("connections are closed", || (descriptors(gateway.pid) < IDLE / 4).then_some(())).await;
    let each = resident(gateway.pid).saturating_sub(before) / IDLE as u64;
    println!(
        "memory of {IDLE} idle sessions: {} KiB each ({} MiB before, {} MiB after, {} descriptors, {:?})",
        each >> 10,
        before >> 20,
        resident(gateway.pid) >> 20,
        descriptors(gateway.pid),
        start.elapsed()
    );
    assert!(each < PER_SESSION, "{} KiB each", each >> 10);
    let one_more = gateway.initialize().await;
    let start = Instant::now();
    one_more.call("t", json!({})).await;
    println!("a call beside them: {:?}", start.elapsed());
    gateway.stop().await;
}

#[tokio::test]
async fn sessions_that_are_deleted_leave_nothing_behind() {
    let count: usize = std::env::var("SOAK_SESSIONS").ok().and_then(|count| count.parse().ok()).unwrap_or(2000);
    let backend = Backend::with_tools("b", &["t"]).await;
    let yaml = format!("{}session: {{ max_total: 10000, max_per_principal: 10000 }}\n", http_backends(&[("one", &backend.url())]));
    let gateway = Gateway::start(&yaml).await;
    sessions(&gateway.mcp(), (count / 4).max(200), false).await;
    let (before, open) = (resident(gateway.pid), descriptors(gateway.pid));
    let start = Instant::now();
    sessions(&gateway.mcp(), count, false).await;
    let after = resident(gateway.pid);
    println!(
        "memory before and after {count} sessions: {} and {} KiB ({:?} a session)",
        before >> 10,
        after >> 10,
        start.elapsed() / u32::try_from(count).expect("a sensible count")
    );
    backend.has_sessions(0).await;
    assert!(after < before + SLACK, "grown by {} KiB", (after - before) >> 10);
    eventually("the descriptors are closed", || (descriptors(gateway.pid) <= open + 32).then_some(())).await;
    gateway.stop().await;
}

/// Up to 10,000 streams, as many as the limit on open files allows: each takes three here and four in the gateway. `IDLE_STREAMS` says
/// another number.
#[tokio::test]
async fn idle_streams_cost_little_each_and_hold_up_nobody() {
    let allowed = (process::open_files().saturating_sub(1000) / 4).min(10_000);
    let count = std::env::var("IDLE_STREAMS").ok().and_then(|count| count.parse().ok()).unwrap_or(allowed);
    let backend = Backend::with_tools("b", &["t"]).await;
    let yaml = format!(
        "{}session: {{ max_total: 20000, max_per_principal: 20000 }}\nlimits: {{ connections: 20000 }}\n",
        http_backends(&[("one", &backend.url())])
    );
    let gateway = Gateway::start(&yaml).await;
    let mut streams = idle(&gateway.mcp(), 50).await;
    let before = resident(gateway.pid);
    let start = Instant::now();
    streams.extend(idle(&gateway.mcp(), count).await);
    let each = resident(gateway.pid).saturating_sub(before) / count as u64;
    let opened = start.elapsed();
    let session = gateway.initialize().await;
    session.call("t", json!({})).await;
    let mut calls = Vec::new();
    for _ in 0..20 {
        let start = Instant::now();
        session.call("t", json!({})).await;
        calls.push(start.elapsed());
    }
    calls.sort_unstable();
    println!(
        "{count} idle streams: {} KiB each ({} descriptors, opened in {opened:?}); calls beside them: {:?} in the middle, {:?} at most",
        each >> 10,
        descriptors(gateway.pid),
        calls[calls.len() / 2],
        calls[calls.len() - 1]
    );
    assert!(each < PER_STREAM, "{} KiB each", each >> 10);
    assert!(calls[calls.len() / 2] < Duration::from_secs(1), "{calls:?}");
    drop(streams);
    gateway.stop().await;
}

/// `count` sessions, each with its stream.
async fn idle(at: &Endpoint, count: usize) -> Vec<Events> {
    let opening = (0..count).map(|_| async { at.initialize().await.stream().await });
    stream::iter(opening).buffer_unordered(PARALLEL).collect().await
}

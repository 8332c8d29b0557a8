//! The incident: many sessions, one in ten behind a relay that stops reading, and everyone goes on calling.
//!
//! `INCIDENT_SESSIONS` and `INCIDENT_SECONDS` make it larger (400 and 60 in the report; `make bench` measures that).

use std::{collections::HashSet, time::Duration};

use lockgate_tests::{
    gateway::{Gateway, http_backends},
    incident::{Plan, backend, quantile, run},
};

const MIB: u64 = 1 << 20;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_that_stop_reading_cost_a_bounded_amount_and_only_themselves() {
    let sessions = usize::try_from(setting("INCIDENT_SESSIONS", 60)).expect("a number");
    let plan = Plan {
        sessions,
        stalled: sessions / 10,
        stops: true,
        time: Duration::from_secs(setting("INCIDENT_SECONDS", 8)),
        pace: Duration::from_millis(250),
        answer: 100_000,
        logs: (2, 2000),
        limit: Duration::from_secs(15),
    };
    let backend = backend(plan).await;
    // Not torn down meanwhile: every answer is to come in the end.
    let gateway =
        Gateway::start(&format!("{}admission: {{ drain_window: 1s, teardown_after: 10m }}\n", http_backends(&[("one", &backend.url())])))
            .await;
    let outcome = run(gateway.listen, gateway.pid, plan).await;

    let failed = outcome.healthy.iter().filter(|s| !s.ok).count();
    let (p50, p99) = (quantile(&outcome.healthy, 0.5), quantile(&outcome.healthy, 0.99));
    let (admitted, refused): (Vec<_>, Vec<_>) = outcome.owed.iter().partition(|o| o.status == 200);
    println!(
        "{} healthy calls: p50 {p50:?}, p99 {p99:?}, {failed} failed; {} calls of stalled sessions: {} admitted, {} refused; the gateway grew by {} MiB; recovered after {:?}",
        outcome.healthy.len(),
        outcome.owed.len(),
        admitted.len(),
        refused.len(),
        outcome.grown / MIB,
        outcome.recovered,
    );
    assert_eq!(failed, 0, "every healthy call is answered");
    assert!(outcome.newcomer.is_some(), "whoever comes meanwhile is served");
    assert!(!admitted.is_empty() && !refused.is_empty(), "some were admitted and some refused");
    assert!(refused.iter().all(|o| o.status == 429), "{refused:?}");
    let ran: HashSet<String> =
        backend.seen_of("tools/call").iter().filter_map(|seen| Some(seen.params()["arguments"]["key"].as_str()?.to_owned())).collect();
    let wrong: Vec<_> = refused.iter().filter(|o| ran.contains(&o.key)).collect();
    assert!(wrong.is_empty(), "refused, and run all the same: {wrong:?}");
    let lost: Vec<_> = admitted.iter().filter(|o| !o.answered).collect();
    assert!(lost.is_empty(), "owed, and not delivered: {lost:?}");
    // In a drain window, and as fast as others are served on this machine.
    let soon = Duration::from_secs(1) + (2 * p99).max(Duration::from_secs(1));
    assert!(outcome.recovered.iter().all(|after| after.is_some_and(|t| t < soon)), "{:?}", outcome.recovered);
    // Its bytes, one message on the way, and what a session's connections cost.
    let bound = plan.stalled as u64 * 3 * MIB + 24 * MIB;
    assert!(outcome.grown < bound, "grown by {} MiB, the bound is {}", outcome.grown / MIB, bound / MIB);
    gateway.stop().await;
}

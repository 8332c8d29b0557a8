//! Fifty swaps in a minute while sixty-four sessions list and call: good components, and such as trap, never end, name two things alike or are none.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use lockgate_tests::{
    backend::Backend,
    gateway::{Gateway, http_backends},
    guests,
    process::{self, Folder},
    raw::first_text,
    within_time,
};
use serde_json::json;

const SESSIONS: usize = 64;
const SWAPS: usize = 50;
/// What the process may have grown by: freed memory that its allocator keeps, and the code of one more generation.
const GROWTH: u64 = 48 << 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_swaps_under_load_break_no_call_and_leave_nothing_behind() {
    let backend = Backend::with_tools("b", &["t", "other"]).await;
    let folder = Folder::new("swaps");
    let file = folder.write("names.wasm", guests::naming("v0"));
    let gateway = Arc::new(
        Gateway::start(&format!(
            "{}policy: {{ probation: 1s }}\nvirtual_hosts:\n  /mcp:\n    policies: [{{ name: names, component: {} }}]\n",
            http_backends(&[("b", &backend.url())]),
            file.display()
        ))
        .await,
    );
    let (done, calls) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut sessions = Vec::new();
    for _ in 0..SESSIONS {
        let session = gateway.initialize().await;
        let (done, calls) = (done.clone(), calls.clone());
        sessions.push(tokio::spawn(async move {
            while !done.load(Ordering::Acquire) {
                let names = session.names("tools/list", "tools").await;
                // One generation, whole: one name for the first tool, and the other unchanged.
                assert!(names.len() == 2 && names[0] == "other" && names[1].starts_with('v'), "{names:?}");
                for _ in 0..3 {
                    // What this session was shown leads where it led, whatever was swapped since.
                    assert_eq!(first_text(&session.call(&names[1], json!({})).await), "t", "{}", names[1]);
                    assert_eq!(first_text(&session.call("other", json!({})).await), "other");
                    calls.fetch_add(2, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        }));
    }
    let push = async |component: Vec<u8>| {
        let (status, answer) = gateway.admin_post("/policies/names", &[("content-type", "application/wasm")], component).await;
        (status, answer.to_string())
    };
    // The first swaps bring the process to its size.
    for i in 1..=3 {
        assert_eq!(push(guests::naming(&format!("v{i}"))).await.0, 200);
    }
    let size = process::resident(gateway.pid);
    let start = Instant::now();
    for i in 0..SWAPS {
        let (component, good) = match i % 5 {
            1 => (guests::choking(), false),
            3 => (guests::endless(), false),
            4 if i % 10 == 4 => (b"no component".to_vec(), false),
            4 => (guests::trapping(), false),
            _ => (guests::naming(&format!("v{}", i + 10)), true),
        };
        let (status, answer) = push(component).await;
        assert_eq!(status == 200, good, "{i}: {status} {answer}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert!(start.elapsed() < Duration::from_secs(60), "fifty swaps took {:?}", start.elapsed());
    done.store(true, Ordering::Release);
    for session in sessions {
        within_time(Duration::from_secs(60), "a session", session).await.expect("every call was answered, and rightly");
    }
    assert!(calls.load(Ordering::Relaxed) > SESSIONS as u64 * 10, "hardly any load: {calls:?} calls");
    within_time(Duration::from_secs(30), "the end of the generations before", async {
        while gateway.metric("lockgate_policy_generations_live").await > 1.0 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await;
    let grown = process::resident(gateway.pid).saturating_sub(size);
    println!("{SWAPS} swaps in {:?} under {} calls; grown by {} KiB", start.elapsed(), calls.load(Ordering::Relaxed), grown >> 10);
    assert!(grown < GROWTH, "grown by {grown} bytes");
    Arc::into_inner(gateway).expect("no session holds the gateway").stop().await;
}

//! What the end-to-end tests share: the gateway under test as a process, a client that speaks raw HTTP and MCP,
//! backends that do what a script says, and the real clients and servers of other projects.
//!
//! Nothing here imports the gateway's own code: the tests see what a peer sees. Every wait has a deadline
//! ([`within`]), every process that is started is reaped, also when a test panics.
//!
//! | module | what it is |
//! |---|---|
//! | [`gateway`] | starts the `lockgate` binary on a configuration, waits for readiness, stops it and checks the exit |
//! | [`client`] | a raw MCP client over HTTP/1.1: arbitrary bodies and headers, half-read streams, resumption |
//! | [`modern`] | the same for the revision without sessions |
//! | [`sse`] | the event stream parser of that client |
//! | [`sse_client`] | a client of the legacy HTTP+SSE transport |
//! | [`stall`] | clients that do not read, and a relay that stops passing answers on |
//! | [`backend`] | scripted backends over streamable HTTP and over the legacy HTTP+SSE transport |
//! | [`guests`] | small policies for one purpose each |
//! | [`stdio`] | configuration text for the scripted stdio backend (`src/bin/stdio-backend.rs`) |
//! | [`fixture`] | the server that the conformance suite is run against, on rmcp |
//! | [`conformance`] | runs the suite and reads its verdicts |
//! | [`real`] | other projects' clients and servers, installed by `tests/real/setup` |
//! | [`incident`] | many sessions, one in ten behind a relay that stops reading |
//! | [`process`] | child processes, temporary folders, what `/proc` says |

pub mod backend;
pub mod client;
pub mod conformance;
pub mod fixture;
pub mod gateway;
pub mod guests;
pub mod incident;
pub mod modern;
pub mod process;
pub mod raw;
pub mod real;
pub mod sse;
pub mod sse_client;
pub mod stall;
pub mod stdio;

use std::{future::Future, time::Duration};

/// How long any single step may take: far above what a loaded two-core machine needs, far below the runner's own limit.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Awaits `step` for at most [`PATIENCE`].
///
/// # Panics
/// With `what` in the message when the time is over: a test that hangs says where.
#[track_caller]
pub fn within<F: Future>(what: &str, step: F) -> impl Future<Output = F::Output> {
    within_time(PATIENCE, what, step)
}

/// Like [`within`], with a limit of its own.
#[track_caller]
pub fn within_time<F: Future>(limit: Duration, what: &str, step: F) -> impl Future<Output = F::Output> {
    let (what, caller) = (what.to_owned(), std::panic::Location::caller());
    async move {
        match tokio::time::timeout(limit, step).await {
            Ok(output) => output,
            Err(_) => panic!("{what}: nothing after {limit:?} (at {caller})"),
        }
    }
}

/// Polls `check` every 20 ms until it gives a value.
///
/// # Panics
/// With `what` in the message after [`PATIENCE`].
#[track_caller]
pub fn eventually<T>(what: &str, mut check: impl FnMut() -> Option<T>) -> impl Future<Output = T> {
    within(what, async move {
        loop {
            if let Some(value) = check() {
                return value;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
}

//! How connections come and go: one task per upstream at most, so that there is never more than one attempt. While there is a connection that
//! cannot end by itself there is no task, but what it would go on from: see [`Keeper`].
//!
//! ```text
//!              ok                    session lost
//! Connecting ──────► Up ◄──────────────────────────► Renewing
//!   ▲   │ fails      │ connection ended                 │ fails
//!   │   ▼            ▼                                  │
//!   └─ Down ◄───────────────────────────────────────────┘       any ── stop ──► Closed
//! ```

use super::announce::enter;
use super::backoff::Backoff;
use super::error::BackendError;
use super::http::link::Refusal;
use super::inner::{DEMAND, Inner, lock};
use super::link::{Link, Wiring};
use super::phase::Phase;
use super::restore;
use super::target::{HttpTransport, Target};
use super::{modern, pipe, stdio};
use ::http::StatusCode;
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;

/// A child may have to be downloaded and compiled by its launcher before it answers. Nobody waits for it that long.
const CHILD_START: Duration = Duration::from_secs(60);
/// What is restored on a new connection may take so long altogether.
const RESTORE: Duration = Duration::from_secs(10);
/// Requests to restore that are under way at the same time.
const RESTORE_AT_ONCE: usize = 8;
/// How long the orderly end may take when nobody waits for it.
const END: Duration = Duration::from_secs(5);
/// A connection that lived so long was a good one: the next waits start small.
const GOOD: Duration = Duration::from_secs(10);

/// Where the connecting task is.
#[derive(Debug, Default)]
pub struct Keeper(Mutex<Option<Box<Course>>>);

/// What it goes on from.
#[derive(Debug)]
pub struct Course {
    backoff: Backoff,
    /// Of the present connection, or the attempt.
    epoch: u64,
    /// When that began.
    tried: Instant,
    /// What was found out about the backend.
    transport: Option<HttpTransport>,
    /// The present connection.
    link: Option<Arc<Link>>,
    /// The one whose session the backend has lost.
    lost: Option<Arc<Link>>,
}

impl Keeper {
    /// Keeps what the task goes on from until it is woken. Gives it back where there is something to do already.
    fn stand_by(&self, course: Box<Course>, is_due: impl FnOnce(&Course) -> bool) -> Option<Box<Course>> {
        // Under the lock, so that whoever wakes it meanwhile finds it, or is seen.
        let mut standing = lock(&self.0);
        if is_due(&course) {
            return Some(course);
        }
        *standing = Some(course);
        None
    }

    /// What the task goes on from, if there is none.
    fn wake(&self) -> Option<Box<Course>> {
        lock(&self.0).take()
    }
}

/// Starts connecting.
pub fn start(inner: &Arc<Inner>) {
    let course = Course { backoff: Backoff::new(), epoch: 0, tried: Instant::now(), transport: None, link: None, lost: None };
    inner.spawn(connect(inner.clone(), Box::new(course)));
}

/// Something has changed that the connecting task has to know: the session was lost, or the upstream stopped.
pub fn wake(inner: &Arc<Inner>) {
    // Where nothing can run any more nothing is left to be ended in order.
    if tokio::runtime::Handle::try_current().is_ok()
        && let Some(course) = inner.keeper.wake()
    {
        inner.spawn(connect(inner.clone(), course));
    }
}

/// Keeps the upstream connected until it is stopped, and ends it then.
async fn connect(inner: Arc<Inner>, mut course: Box<Course>) {
    let inner = &inner;
    loop {
        let link = match course.link.clone() {
            Some(link) => link,
            None => {
                course.epoch += 1;
                course.tried = Instant::now();
                enter(
                    inner,
                    match &course.lost {
                        Some(link) => Phase::Renewing(link.clone()),
                        None => Phase::Connecting,
                    },
                );
                // Boxed: what an attempt needs is large, and what waits for the end of a pipe is to be small.
                let link = match Box::pin(attempt(inner, course.epoch, &mut course.transport)).await {
                    Attempt::Stopped => return,
                    Attempt::Up(link) => link,
                    Attempt::Failed(why) => {
                        course.lost = None;
                        if !Box::pin(down(inner, why, course.tried, course.backoff.wait())).await {
                            return;
                        }
                        continue;
                    }
                };
                tracing::info!(backend = %inner.backend.name, session = %inner.hello.session_tag, version = %link.hello.version, renewed = course.lost.is_some(), "connected");
                course.lost = None;
                course.link = Some(link.clone());
                enter(inner, Phase::Up(link.clone()));
                link
            }
        };
        let ended = match &link.wiring {
            Wiring::Http(_) => {
                let is_due = |course: &Course| inner.stop.is_cancelled() || inner.is_lost(course.epoch);
                match inner.keeper.stand_by(course, is_due) {
                    None => return,
                    Some(back) => course = back,
                }
                None
            }
            Wiring::Pipe(pipe) => tokio::select! {
                () = inner.stop.cancelled() => None,
                () = lost(inner, course.epoch) => None,
                why = pipe.ended() => Some(why),
            },
        };
        let Some(link) = course.link.take() else { continue };
        if inner.stop.is_cancelled() {
            return Box::pin(end(inner, &link)).await;
        }
        if course.tried.elapsed() >= GOOD {
            course.backoff.reset();
        }
        match ended {
            None => course.lost = Some(link),
            Some(why) => {
                if !Box::pin(down(inner, why, course.tried, course.backoff.wait())).await {
                    return;
                }
            }
        }
    }
}

enum Attempt {
    Up(Arc<Link>),
    Failed(Arc<str>),
    Stopped,
}

/// One attempt, with everything restored. Remembers in `transport` what was found out about the backend.
async fn attempt(inner: &Arc<Inner>, epoch: u64, transport: &mut Option<HttpTransport>) -> Attempt {
    let attempt = open(inner, epoch, transport);
    tokio::pin!(attempt);
    let result = tokio::select! {
        result = &mut attempt => result,
        () = inner.stop.cancelled() => {
            inner.phase.set(Phase::Closed);
            // An initialize that has left would leave a session behind, so its answer is still waited for.
            if let (Target::Http { .. }, Ok(Ok(link))) = (&inner.backend.target, tokio::time::timeout(END, attempt).await) {
                end(inner, &link).await;
            }
            return Attempt::Stopped;
        }
    };
    match result {
        Ok(link) => {
            let link = Arc::new(link);
            tokio::select! {
                () = restore(inner, &link) => Attempt::Up(link),
                () = inner.stop.cancelled() => {
                    end(inner, &link).await;
                    Attempt::Stopped
                }
            }
        }
        Err(error) => {
            let why = reason(&error);
            tracing::warn!(backend = %inner.backend.name, session = %inner.hello.session_tag, "cannot connect: {why}");
            Attempt::Failed(why.into())
        }
    }
}

/// The handshake over whatever the backend speaks, within the time for it.
async fn open(inner: &Arc<Inner>, epoch: u64, found: &mut Option<HttpTransport>) -> Result<Link, BackendError> {
    let limit = match &inner.backend.target {
        Target::Http { .. } => inner.backend.timeouts.initialize,
        Target::Stdio { .. } => inner.backend.timeouts.initialize.max(CHILD_START),
    };
    let opening = async {
        let Target::Http { uri, transport, headers } = &inner.backend.target else { return stdio::open(inner, epoch).await };
        let streamable = || modern::reach::open(inner, uri, headers, epoch);
        let sse = || pipe::sse::open(inner, uri, headers, epoch);
        match found.unwrap_or(*transport) {
            HttpTransport::StreamableHttp => streamable().await.map_err(|refusal| refusal.error),
            HttpTransport::Sse => {
                let result = sse().await;
                if result.is_err() {
                    // The server may have been replaced by a newer one.
                    *found = None;
                }
                result
            }
            HttpTransport::Auto => match streamable().await {
                Ok(link) => {
                    *found = Some(HttpTransport::StreamableHttp);
                    Ok(link)
                }
                Err(Refusal { error, status, .. }) if may_be_older(status) => match sse().await {
                    Ok(link) => {
                        *found = Some(HttpTransport::Sse);
                        Ok(link)
                    }
                    Err(second) => {
                        tracing::debug!(backend = %inner.backend.name, session = %inner.hello.session_tag, %second, "no HTTP+SSE either");
                        Err(error)
                    }
                },
                Err(Refusal { error, .. }) => Err(error),
            },
        }
    };
    tokio::time::timeout(limit, opening).await.unwrap_or_else(|_| Err(BackendError::Timeout { backend: inner.backend.name.clone(), limit }))
}

/// Whether a refused initialize may mean a server of 2024-11-05 (2025-11-25 transports, "Backwards Compatibility").
fn may_be_older(status: Option<StatusCode>) -> bool {
    status.is_some_and(|s| s.is_client_error() && !matches!(s.as_u16(), 401 | 403 | 429))
}

/// Says again what the session had set before the connection was lost.
async fn restore(inner: &Arc<Inner>, link: &Arc<Link>) {
    if link.hello.version.is_modern() {
        return modern::begin(inner, link);
    }
    let requests = inner.restore.look(|restore| restore.requests()).unwrap_or_default();
    if requests.is_empty() {
        return;
    }
    let say = |(name, params)| async move {
        let id = inner.next_id();
        match link.request(inner, id, &restore::request(id, name, params)).await {
            Ok(answer) if answer.ok => {}
            Ok(_) => {
                tracing::warn!(backend = %inner.backend.name, session = %inner.hello.session_tag, "the backend refused {name} after reconnecting")
            }
            Err(error) => {
                tracing::warn!(backend = %inner.backend.name, session = %inner.hello.session_tag, %error, "{name} could not be restored")
            }
        }
    };
    let all = async {
        let mut waiting = requests.into_iter().map(say);
        let mut running: FuturesUnordered<_> = waiting.by_ref().take(RESTORE_AT_ONCE).collect();
        while running.next().await.is_some() {
            running.extend(waiting.next());
        }
    };
    if tokio::time::timeout(RESTORE, all).await.is_err() {
        tracing::warn!(backend = %inner.backend.name, session = %inner.hello.session_tag, "not everything could be restored within {RESTORE:?}");
    }
}

/// Down until the wait is over or somebody wants it. False when stopped.
async fn down(inner: &Arc<Inner>, why: Arc<str>, tried: Instant, wait: Duration) -> bool {
    let next = Instant::now() + wait;
    enter(inner, Phase::Down { why, tried, next });
    let demanded = async {
        loop {
            inner.demand.notified().await;
            if tried.elapsed() >= DEMAND {
                return;
            }
        }
    };
    tokio::select! {
        () = tokio::time::sleep_until(next) => true,
        () = demanded => true,
        () = inner.stop.cancelled() => {
            inner.phase.set(Phase::Closed);
            false
        }
    }
}

async fn lost(inner: &Inner, epoch: u64) {
    while !inner.is_lost(epoch) {
        inner.lost.notified().await;
    }
}

/// The orderly end of a connection.
async fn end(inner: &Arc<Inner>, link: &Link) {
    inner.phase.set(Phase::Closed);
    let _ = tokio::time::timeout(END, async {
        match &link.wiring {
            Wiring::Http(http) => http.delete(inner).await,
            Wiring::Pipe(pipe) => {
                pipe.close("it was closed");
                pipe.stop.cancel();
                pipe.ended().await;
            }
        }
    })
    .await;
}

/// What a client may read of a failed attempt, without the backend's name, which the error around it has.
fn reason(error: &BackendError) -> String {
    match error {
        BackendError::Unavailable { reason, .. } | BackendError::Broken { reason, .. } | BackendError::Input { reason, .. } => {
            reason.clone()
        }
        BackendError::Timeout { limit, .. } => format!("it did not answer initialize within {limit:?}"),
        BackendError::Status { status, .. } => format!("it refused initialize with HTTP status {status}"),
        BackendError::Protocol { reason, .. } => format!("it broke the protocol: {reason}"),
        BackendError::Closed => "it was closed".into(),
    }
}

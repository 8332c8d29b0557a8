//! How connections come and go: one task per upstream, so that there is never more than one attempt.
//!
//! ```text
//!              ok                    session lost
//! Connecting ──────► Up ◄──────────────────────────► Renewing
//!   ▲   │ fails      │ connection ended                 │ fails
//!   │   ▼            ▼                                  │
//!   └─ Down ◄───────────────────────────────────────────┘       any ── stop ──► Closed
//! ```

use super::backoff::Backoff;
use super::error::BackendError;
use super::http::link::Refusal;
use super::inner::{DEMAND, Inner};
use super::link::{Link, Wiring};
use super::phase::Phase;
use super::restore;
use super::target::{HttpTransport, Target};
use super::{FromServer, ServerHello, modern, pipe, stdio};
use ::http::StatusCode;
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::sync::Arc;
use std::sync::atomic::Ordering;
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

pub async fn run(inner: Arc<Inner>) {
    tokio::join!(connect(&inner), announce(&inner));
}

/// Keeps the upstream connected until it is stopped, and ends it then.
async fn connect(inner: &Arc<Inner>) {
    let mut backoff = Backoff::new();
    let mut epoch = 0;
    let mut transport = None;
    let mut lost: Option<Arc<Link>> = None;
    loop {
        epoch += 1;
        let tried = Instant::now();
        inner.phase.set(match &lost {
            Some(link) => Phase::Renewing(link.clone()),
            None => Phase::Connecting,
        });
        // Boxed: what an attempt needs is large, and an idle upstream is to be small.
        let link = match Box::pin(attempt(inner, epoch, &mut transport)).await {
            Attempt::Stopped => return,
            Attempt::Up(link) => link,
            Attempt::Failed(why) => {
                lost = None;
                if !Box::pin(down(inner, why, tried, backoff.wait())).await {
                    return;
                }
                continue;
            }
        };
        tracing::info!(backend = %inner.backend.name, session = %inner.hello.session_tag, version = %link.hello.version, renewed = lost.is_some(), "connected");
        inner.phase.set(Phase::Up(link.clone()));
        let ended = tokio::select! {
            () = inner.stop.cancelled() => return Box::pin(end(inner, &link)).await,
            () = is_lost(inner, epoch) => None,
            why = link.ended() => Some(why),
        };
        if tried.elapsed() >= GOOD {
            backoff.reset();
        }
        match ended {
            None => lost = Some(link),
            Some(why) => {
                lost = None;
                if !Box::pin(down(inner, why, tried, backoff.wait())).await {
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
async fn down(inner: &Inner, why: Arc<str>, tried: Instant, wait: Duration) -> bool {
    let next = Instant::now() + wait;
    inner.phase.set(Phase::Down { why, tried, next });
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

async fn is_lost(inner: &Inner, epoch: u64) {
    while inner.lost_epoch.load(Ordering::Acquire) < epoch {
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

/// Tells the session of each change between up and down. Apart from the connecting task, which must not wait for a full inbox.
async fn announce(inner: &Arc<Inner>) {
    let mut seen = 0;
    let mut said: Option<Result<Arc<ServerHello>, Arc<str>>> = None;
    let telling = async {
        loop {
            let now = inner.phase.after(&mut seen, |phase| match phase {
                Phase::Up(link) => Some(Some(Ok(link.hello.clone()))),
                Phase::Down { why, .. } => Some(Some(Err(why.clone()))),
                Phase::Connecting | Phase::Renewing(_) => None,
                Phase::Closed => Some(None),
            });
            match (now.await, &said) {
                (None, _) => return,
                // A silent renewal, unless the server is not what it was.
                (Some(Ok(hello)), Some(Ok(before))) if *before == hello => {}
                (Some(Err(_)), Some(Err(_))) => {}
                (Some(Ok(hello)), _) => {
                    said = Some(Ok(hello.clone()));
                    Box::pin(inner.tell(FromServer::Up(hello))).await;
                }
                (Some(Err(why)), _) => {
                    said = Some(Err(why.clone()));
                    Box::pin(inner.tell(FromServer::Down(why))).await;
                }
            }
        }
    };
    inner.stop.run_until_cancelled(telling).await;
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

//! The GET stream of streamable HTTP (2025-11-25 transports, "Listening for Messages from the Server"): kept open while the
//! backend wants it, and never in a storm.

use super::link::{Head, retry_after};
use super::messages::{Cursor, Messages};
use super::sink::{Sink, take};
use crate::backend::backoff::jitter;
use crate::backend::inner::Inner;
use crate::backend::link::{Link, Wiring};
use http::StatusCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

const RETRY: Duration = Duration::from_secs(1);
const MAX_RETRY: Duration = Duration::from_secs(30);
/// A stream that lived for so long, or said anything, was a good one.
const GOOD: Duration = Duration::from_secs(10);

/// How an attempt ended.
enum End {
    /// The stream was open for a while.
    Closed {
        since: Instant,
    },
    /// It could not be opened now.
    Failed(Option<Duration>),
    /// The backend offers no such stream in this session.
    NotHere,
    /// The backend never offers one.
    Never,
    SessionLost,
}

/// Runs until the upstream is closed or the backend says that it has no such stream.
pub async fn run(inner: Arc<Inner>) {
    let mut wait = RETRY;
    let mut cursor = Cursor::default();
    let mut opened_in = 0;
    loop {
        let Ok(link) = inner.up().await else { return };
        let Wiring::Http(http) = &link.wiring else {
            // A pipe has its messages anyway.
            inner.until_not(link.epoch).await;
            continue;
        };
        if link.hello.version.is_modern() {
            // What it has to say comes over its own subscription.
            inner.until_not(link.epoch).await;
            continue;
        }
        let attempt = async {
            let response = match Box::pin(http.get(&inner, cursor.last_id.as_deref())).await {
                Ok(response) => response,
                Err(error) => {
                    tracing::debug!(backend = %inner.backend.name, session = %inner.hello.session_tag, ?error, "no GET stream");
                    return End::Failed(None);
                }
            };
            match response.status() {
                status if status.is_success() => {}
                StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED => return End::Never,
                // Another stream of this session is still thought to be open.
                StatusCode::CONFLICT => return End::Failed(None),
                StatusCode::BAD_REQUEST if cursor.last_id.is_some() => {
                    // It may be the event that it does not know.
                    cursor = Cursor::default();
                    return End::Failed(None);
                }
                // In a session that had a stream, 404 means that the session is gone; in another that there is nothing here.
                StatusCode::NOT_FOUND | StatusCode::BAD_REQUEST if opened_in == link.epoch => {
                    return if matches!(Box::pin(http.head(&inner, 0, response)).await, Head::SessionLost) {
                        End::SessionLost
                    } else {
                        End::NotHere
                    };
                }
                status if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => {
                    return End::Failed(retry_after(response.headers()));
                }
                _ => return End::NotHere,
            }
            cursor.resumed = cursor.last_id.is_some();
            opened_in = link.epoch;
            let since = Instant::now();
            if let Ok(mut messages) = Messages::open(response, inner.backend.limits.message, inner.room.clone()).await {
                if !messages.is_stream() {
                    return End::NotHere;
                }
                while let Ok(Some(raw)) = messages.next(&mut cursor).await {
                    cursor.moved = true;
                    if Box::pin(take(&inner, None, raw, &Sink::Inbox)).await.is_err() {
                        break;
                    }
                }
            }
            End::Closed { since }
        };
        let end = tokio::select! {
            end = attempt => end,
            () = inner.until_not(link.epoch) => {
                cursor = Cursor::default();
                continue;
            }
        };
        let pause = match end {
            End::Never => {
                tracing::debug!(backend = %inner.backend.name, session = %inner.hello.session_tag, "the backend offers no GET stream");
                return;
            }
            End::NotHere => Duration::MAX,
            End::SessionLost => {
                inner.lost(link.epoch);
                grow(&mut wait)
            }
            End::Failed(after) => after.unwrap_or(Duration::ZERO).max(grow(&mut wait)),
            End::Closed { since } => {
                if std::mem::take(&mut cursor.moved) || since.elapsed() >= GOOD {
                    wait = RETRY;
                }
                cursor.retry.unwrap_or(Duration::ZERO).min(MAX_RETRY).max(grow(&mut wait))
            }
        };
        pause_or_new(&inner, &link, pause, &mut cursor).await;
    }
}

/// Waits before the next attempt; a new session ends the wait.
async fn pause_or_new(inner: &Arc<Inner>, link: &Link, pause: Duration, cursor: &mut Cursor) {
    let changed = tokio::time::timeout(pause, inner.until_not(link.epoch)).await.is_ok();
    if changed {
        *cursor = Cursor::default();
    }
}

fn grow(wait: &mut Duration) -> Duration {
    let now = *wait;
    *wait = (now * 3 / 2).min(MAX_RETRY);
    jitter(now)
}

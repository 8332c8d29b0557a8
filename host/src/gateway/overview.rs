//! What operators may see of sessions: how each stands, never its id, its messages or what its policies keep.

use super::Gateway;
use crate::session::Session;
use crate::telemetry::metrics::SessionEvent;
use serde::Serialize;
use std::sync::Arc;
use tokio::time::Instant;

/// One session as operators see it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Overview {
    /// A short hash of the session's id, as in the log.
    pub session: Arc<str>,
    pub principal: Arc<str>,
    pub virtual_host: Arc<str>,
    pub protocol_version: &'static str,
    pub age_seconds: u64,
    /// None while a request is in flight or a stream is open.
    pub idle_seconds: Option<u64>,
    pub requests_in_flight: usize,
    pub streams_open: usize,
    /// Frames that may still be admitted.
    pub credit: usize,
    pub owed_frames: usize,
    pub owed_bytes: usize,
    /// Bytes a second, lately.
    pub drain_rate: f64,
    pub half_open_ms: Option<u64>,
    /// Requests that wait for credit.
    pub waiting: usize,
    pub refused: u64,
    /// Messages of backends that were dropped for want of credit.
    pub dropped: u64,
}

impl Gateway {
    /// All sessions, those that owe most first.
    pub fn overview(&self) -> Vec<Overview> {
        let mut all: Vec<Overview> = self.registry.all().iter().map(Overview::of).collect();
        all.sort_by(|a, b| b.owed_bytes.cmp(&a.owed_bytes).then_with(|| a.session.cmp(&b.session)));
        all
    }

    /// The session whose id has this hash.
    pub fn overview_of(&self, tag: &str) -> Option<Overview> {
        self.tagged(tag).map(|session| Overview::of(&session))
    }

    /// Ends a session at an operator's wish. False where there is none with this hash.
    pub async fn close_session(self: &Arc<Self>, tag: &str) -> bool {
        let Some(session) = self.tagged(tag) else { return false };
        self.end_session(&session, SessionEvent::ClosedByOperator).await;
        true
    }

    fn tagged(&self, tag: &str) -> Option<Arc<Session>> {
        self.registry.all().into_iter().find(|s| **s.tag() == *tag)
    }
}

impl Overview {
    fn of(session: &Arc<Session>) -> Self {
        let now = Instant::now();
        let standing = session.ledger.standing();
        Overview {
            session: session.tag().clone(),
            principal: session.key().principal.name().clone(),
            virtual_host: session.key().virtual_host.clone(),
            protocol_version: session.version().as_str(),
            age_seconds: now.saturating_duration_since(session.created()).as_secs(),
            idle_seconds: session.idle_since().map(|since| now.saturating_duration_since(since).as_secs()),
            requests_in_flight: session.in_flight(),
            streams_open: session.streams.attached(),
            credit: standing.credit,
            owed_frames: standing.owed_frames,
            owed_bytes: standing.owed_bytes,
            drain_rate: standing.drain_rate.round(),
            half_open_ms: standing.half_open_for.map(|d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX)),
            waiting: standing.waiting,
            refused: standing.refused,
            dropped: standing.dropped,
        }
    }
}

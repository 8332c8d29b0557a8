//! The end of sessions: by their client, by time, by the end of the gateway.

use super::{CLOSE_LIMIT, FAREWELL, Gateway};
use crate::session::Session;
use crate::session::streams::STANDALONE;
use crate::telemetry::metrics::SessionEvent;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::Instant;

/// Ends all that an accepted session owns. Policies that follow the life of sessions hear of it while the upstreams are still there.
pub(super) async fn close(session: &Session) {
    let farewell = async {
        let chain = session.host.policies.current();
        if chain.entries().iter().any(|e| e.policy().hooks().lifecycle)
            && tokio::time::timeout(FAREWELL, chain.closing(&session.view())).await.is_err()
        {
            tracing::warn!(session = %session.tag(), limit = ?FAREWELL, "policies take too long over the end of a session, which goes on without them");
        }
    };
    session.close(CLOSE_LIMIT, farewell).await;
}

impl Gateway {
    /// Takes the session out of the registry and ends all that it owns. The first caller does it; others return at once.
    pub(super) async fn end_session(self: &Arc<Self>, session: &Arc<Session>, why: SessionEvent) {
        if self.registry.remove(session.key()).is_none() {
            return;
        }
        if session.version().is_modern() {
            self.forget_chamber(session);
            self.end_listens(session);
        }
        self.metrics.sessions_total.inc(why);
        tracing::info!(session = %session.tag(), principal = %session.key().principal.name(), why = ?why, "session closed");
        let published = session.published();
        if published.made().any(|table| !table.is_empty()) {
            session.host.last_names.set(published.tables());
        }
        // In a task of its own: a client that hangs up in the middle of its DELETE does not leave half a session.
        let session = session.clone();
        let _ = self.background.spawn(async move { close(&session).await }).await;
    }

    /// Looks for sessions that are over their time, often enough for the configured limits.
    pub(super) fn start_reaper(self: &Arc<Self>) {
        let gateway = Arc::downgrade(self);
        let (stopped, settings) = (self.stopped.clone(), self.settings.clone());
        let pause = (settings.idle_timeout / 4).clamp(Duration::from_millis(100), Duration::from_secs(10));
        self.background.spawn(async move {
            loop {
                tokio::select! {
                    () = stopped.cancelled() => return,
                    () = tokio::time::sleep(pause) => {}
                }
                let Some(gateway) = gateway.upgrade() else { return };
                gateway.reap().await;
            }
        });
    }

    async fn reap(self: &Arc<Self>) {
        let now = Instant::now();
        let (idle, lifetime) = (self.settings.idle_timeout, self.settings.max_lifetime);
        let over = self.registry.expired(|since, created| {
            since.is_some_and(|s| now.saturating_duration_since(s) >= idle)
                || lifetime.is_some_and(|l| now.saturating_duration_since(created) >= l)
        });
        futures_util::future::join_all(over.iter().map(|s| self.end_session(s, SessionEvent::Expired))).await;
        self.expire_parked(now).await;
        for session in self.registry.all() {
            if session.is_done() {
                self.end_session(&session, SessionEvent::ClosedByClient).await;
                continue;
            }
            session.streams.sweep(std::time::Instant::now());
            self.expire_questions(&session, now).await;
        }
    }

    /// Ends the gateway: no new sessions, idle streams end, calls may finish within `grace`, then every session is closed. Takes at
    /// most `grace` and the time that closing takes.
    pub async fn shutdown(self: &Arc<Self>, grace: Duration) {
        self.stopping.store(true, Ordering::Release);
        for session in self.registry.all() {
            session.streams.finish(STANDALONE);
            self.end_listens(&session);
        }
        // Nobody can come back for them.
        self.parked.clear();
        self.calls.close();
        let unfinished = tokio::time::timeout(grace, self.calls.wait()).await.is_err();
        if unfinished {
            tracing::warn!(calls = self.calls.len(), grace = ?grace, "calls are cut: they did not finish in time (shutdown.grace)");
        }
        let sessions = self.registry.all();
        futures_util::future::join_all(sessions.iter().map(|s| self.end_session(s, SessionEvent::Shutdown))).await;
        self.stopped.cancel();
        self.background.close();
        let _ = tokio::time::timeout(CLOSE_LIMIT, self.background.wait()).await;
    }
}

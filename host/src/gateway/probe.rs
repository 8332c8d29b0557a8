//! The end-to-end probe (`admission.probe`): asks a client on its own stream whether it reads.
//!
//! A proxy that buffers drains for a client that does not read, so to this process such a client seems to keep up. With the probe, what
//! has drained stays owed until the client has answered a `ping` that was sent after it. Off by default: it costs a round trip for each
//! window of frames, and a client that ignores pings would be held for one that does not read.

use super::Gateway;
use crate::protocol::{RequestId, Wire};
use crate::session::streams::{Noted, Rule, STANDALONE};
use crate::session::{About, Question, Session};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Stands for the gateway itself among the backends that ask.
pub(super) const PROBE: usize = usize::MAX;

impl Gateway {
    /// Probes the session until it ends, where the configuration wants it.
    pub(super) fn start_probe(self: &Arc<Self>, session: &Arc<Session>) {
        if let Some(every) = self.settings.probe {
            session.spawn(probe(Arc::downgrade(session), every));
        }
    }

    /// The client has answered.
    pub(super) fn probe_answered(&self, session: &Session) {
        session.ledger.proved(Instant::now());
    }
}

async fn probe(weak: Weak<Session>, every: Duration) {
    loop {
        let Some(ledger) = weak.upgrade().map(|s| s.ledger.clone()) else { return };
        // Sooner where half of the credit waits for it.
        let _ = tokio::time::timeout(every, ledger.wants_proof()).await;
        let Some(session) = weak.upgrade() else { return };
        let window = ledger.limits().drain_window;
        let asked = session.streams.standalone_attached() && ask(&session).await;
        drop(session);
        if !asked {
            // Nobody to ask: what has drained counts as read, as without a probe.
            ledger.stop_proving(Instant::now());
            continue;
        }
        // Judged when it is late; the answer may come later still.
        let since = Instant::now();
        while tokio::time::timeout(window, ledger.is_proved()).await.is_err() {
            ledger.judge(Instant::now());
            let Some(session) = weak.upgrade() else { return };
            if since.elapsed() >= ledger.limits().teardown_after {
                ledger.torn_down(since.elapsed());
                session.streams.detach(STANDALONE);
            }
            if !session.streams.standalone_attached() {
                ledger.stop_proving(Instant::now());
            }
        }
    }
}

/// Puts a ping to the client. False where there is no room for one more question.
async fn ask(session: &Arc<Session>) -> bool {
    let question = Question { backend: PROBE, id: RequestId::number(0), progress_token: None, stream: STANDALONE, about: About::Other };
    let Some(number) = session.asked.ask(question) else { return false };
    session.ledger.ask_proof(Instant::now());
    let ping = Wire::from(format!("{{\"jsonrpc\":\"2.0\",\"id\":{number},\"method\":\"ping\"}}"));
    if session.streams.note(STANDALONE, ping, Rule::Keep).await == Noted::Gone {
        session.asked.take(number);
        return false;
    }
    true
}

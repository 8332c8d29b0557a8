//! The requests of the client that are in flight, by id.

use super::{Session, lock};
use crate::protocol::RequestId;
use bytes::Bytes;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use tokio::sync::Notify;

/// Places for calls that a session keeps when none is in flight.
const KEPT: usize = 8;

pub(super) struct Calls {
    /// Few at a time, and bounded: a list, which is looked through from its end.
    by_id: Mutex<Vec<(Key, Arc<Cancel>)>>,
    limit: usize,
    next: AtomicU64,
}

/// What a call in flight is known by.
#[derive(Clone, PartialEq, Eq)]
enum Key {
    /// The id that its client gave it: unique within a session.
    Client(RequestId),
    /// A number of our own. Clients of 2026-07-28 have no sessions, and one principal may use an id on several connections at once.
    Own(u64),
}

/// How a call is cancelled.
#[derive(Debug, Default)]
pub struct Cancel {
    cancelled: AtomicBool,
    wakes: Notify,
    reason: OnceLock<Bytes>,
}

/// The registration of a call: dropped when it is over.
pub struct CallControl {
    session: Arc<Session>,
    key: Key,
    cancel: Arc<Cancel>,
}

/// Whether a request may start.
pub enum Begin {
    Started(CallControl),
    /// The same id is in flight already: the first call is not touched.
    Duplicate,
    /// As many calls are in flight as the session may have.
    Full {
        limit: usize,
    },
}

impl Calls {
    pub(super) fn new(limit: usize) -> Self {
        Calls { by_id: Mutex::default(), limit, next: AtomicU64::new(0) }
    }

    pub(super) fn begin(session: &Arc<Session>, id: &RequestId) -> Begin {
        let calls = &session.calls;
        let key = match session.version().is_modern() {
            true => Key::Own(calls.next.fetch_add(1, Ordering::Relaxed)),
            false => Key::Client(id.clone()),
        };
        let mut by_id = lock(&calls.by_id);
        if by_id.iter().any(|(known, _)| *known == key) {
            return Begin::Duplicate;
        }
        if by_id.len() >= calls.limit {
            return Begin::Full { limit: calls.limit };
        }
        let cancel = Arc::new(Cancel::default());
        if by_id.capacity() == 0 {
            // One at a time is what most have.
            by_id.reserve_exact(1);
        }
        by_id.push((key.clone(), cancel.clone()));
        Begin::Started(CallControl { session: session.clone(), key, cancel })
    }

    pub(super) fn find(&self, id: &RequestId) -> Option<Arc<Cancel>> {
        lock(&self.by_id).iter().find(|(key, _)| matches!(key, Key::Client(known) if known == id)).map(|(_, cancel)| cancel.clone())
    }

    pub(super) fn is_empty(&self) -> bool {
        lock(&self.by_id).is_empty()
    }

    pub(super) fn len(&self) -> usize {
        lock(&self.by_id).len()
    }
}

impl Cancel {
    /// Cancels the call; `reason` is the JSON text that the client gave.
    pub fn cancel(&self, reason: Option<Bytes>) {
        if let Some(reason) = reason {
            let _ = self.reason.set(reason);
        }
        self.cancelled.store(true, Ordering::Release);
        self.wakes.notify_waiters();
    }
}

impl CallControl {
    /// Wakes when the client cancels this call.
    pub async fn cancelled(&self) {
        let mut woken = pin!(self.cancel.wakes.notified());
        // Before it is looked at, so that nothing is missed in between.
        woken.as_mut().enable();
        if !self.is_cancelled() {
            woken.await;
        }
    }

    pub fn is_cancelled(&self) -> bool {
        self.cancel.cancelled.load(Ordering::Acquire)
    }

    /// Why the client cancelled, as JSON text.
    pub fn reason(&self) -> Option<Bytes> {
        self.cancel.reason.get().cloned()
    }

    pub fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// What cancels this call.
    pub fn cancel(&self) -> &Arc<Cancel> {
        &self.cancel
    }
}

impl Drop for CallControl {
    fn drop(&mut self) {
        {
            let mut by_id = lock(&self.session.calls.by_id);
            if let Some(at) = by_id.iter().rposition(|(known, _)| *known == self.key) {
                by_id.swap_remove(at);
            }
            if by_id.is_empty() && by_id.capacity() > KEPT {
                *by_id = Vec::new();
            }
        }
        self.session.touch();
    }
}

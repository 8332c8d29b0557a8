//! Room to read what backends send for this session, so that answers which nobody drains stay at their backends.
//!
//! A message up to a frame's share of the bytes is covered by its frame. For more, its reader asks for room as it goes. Nobody gets any
//! while the client is owed all its bytes. Below that, what fits is given, and one message of each backend goes on beyond it to its end, so
//! that no two messages wait for each other in the middle. Of those that wait for one backend, the call that began first is next: a client
//! that reads its answers in the order of its requests finds them in that order, as far as they come in it. So a session holds no more than
//! `admission.bytes` and one message from each backend; a backend that trickles one message for ever keeps only itself waiting.

use super::ledger::Ledger;
use std::sync::{Arc, Mutex, PoisonError};

/// One message that is being read, or was read and is not owed to the client yet. Dropping it gives the room back.
#[derive(Debug)]
pub struct Reading {
    ledger: Arc<Ledger>,
    id: u64,
    bytes: usize,
}

#[derive(Debug)]
pub(super) struct Entry {
    id: u64,
    lane: usize,
    /// The age of the call that it is for.
    order: u64,
    /// There was no room for it yet.
    waits: bool,
    /// It was given more than fits: no other of this backend is, until it is over.
    beyond: bool,
}

/// Where a call's messages get their room from, and where the room of the last one is kept until its frame is owed.
#[derive(Clone, Debug)]
pub struct Room {
    ledger: Arc<Ledger>,
    /// Which backend is read from.
    lane: usize,
    order: u64,
    kept: Arc<Mutex<Option<Reading>>>,
}

impl Ledger {
    /// Begins to read a message from the backend `lane`.
    pub fn reading(self: &Arc<Self>, lane: usize) -> Reading {
        let order = self.next();
        self.reading_of(lane, order)
    }

    fn reading_of(self: &Arc<Self>, lane: usize, order: u64) -> Reading {
        let id = self.next();
        self.lock().readings.push(Entry { id, lane, order, waits: false, beyond: false });
        Reading { ledger: self.clone(), id, bytes: 0 }
    }
}

// === impl Reading ===

impl Reading {
    /// Makes room for `bytes` more. Waits for it while others hold it.
    pub async fn grow(&mut self, bytes: usize) {
        loop {
            let mut changed = std::pin::pin!(self.ledger.changed.notified());
            changed.as_mut().enable();
            {
                let mut state = self.ledger.lock();
                let (lane, order) = state.readings.iter().find(|e| e.id == self.id).map_or((0, 0), |e| (e.lane, e.order));
                let older = |e: &&Entry| e.lane == lane && e.id != self.id && e.order < order;
                let other = |e: &Entry| e.lane == lane && e.id != self.id && e.beyond;
                let begun = state.readings.iter().any(|e| e.id == self.id && e.beyond);
                let first = begun || !state.readings.iter().any(|e| older(&e) || other(e));
                let next = !state.readings.iter().any(|e| older(&e) && e.waits);
                let limit = self.ledger.limits.bytes;
                let owed = state.bytes.saturating_sub(state.reading_bytes);
                let fits = next && state.bytes.saturating_add(bytes) <= limit;
                let goes = fits || (first && owed < limit);
                let entry = state.readings.iter_mut().find(|e| e.id == self.id);
                let waited = entry.is_some_and(|entry| {
                    entry.beyond |= goes && !fits;
                    std::mem::replace(&mut entry.waits, !goes)
                });
                if goes {
                    self.ledger.add_bytes(&mut state, bytes);
                    state.reading_bytes += bytes;
                    self.bytes += bytes;
                    drop(state);
                    if waited {
                        // Whoever is behind it is next.
                        self.ledger.changed.notify_waiters();
                    }
                    return;
                }
            }
            changed.await;
        }
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        let mut state = self.ledger.lock();
        state.readings.retain(|e| e.id != self.id);
        state.reading_bytes = state.reading_bytes.saturating_sub(self.bytes);
        self.ledger.sub_bytes(&mut state, self.bytes);
        self.ledger.grant(state);
    }
}

// === impl Room ===

impl Room {
    pub fn new(ledger: Arc<Ledger>, lane: usize) -> Self {
        let order = ledger.next();
        Room { ledger, lane, order, kept: Arc::default() }
    }

    /// What a message may have before it needs room.
    pub fn share(&self) -> usize {
        self.ledger.limits.share()
    }

    pub fn reading(&self) -> Reading {
        self.ledger.reading_of(self.lane, self.order)
    }

    /// Waits for room for a message of which `held` bytes are there, before more of it is read. Nothing is waited for up to a frame's share,
    /// nor where there is no `room` to get it from.
    pub async fn grow(room: &Option<Room>, reading: &mut Option<Reading>, held: usize) {
        let Some(room) = room.as_ref().filter(|room| held > room.share()) else { return };
        let reading = reading.get_or_insert_with(|| room.reading());
        let more = held.saturating_sub(reading.bytes());
        if more > 0 {
            reading.grow(more).await;
        }
    }

    /// Keeps the room of a message until the next one comes, or the call is over.
    pub fn keep(&self, reading: Option<Reading>) {
        let before = std::mem::replace(&mut *self.kept.lock().unwrap_or_else(PoisonError::into_inner), reading);
        drop(before);
    }
}

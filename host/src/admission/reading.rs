//! Room to read what backends send for this session, so that answers which nobody drains stay at their backends.
//!
//! A message up to a frame's share of the bytes is covered by its frame. For more, its reader asks for room as it goes. Nobody gets any
//! while the client is owed all its bytes. Below that, what fits is given, and the first that reads from a backend always goes on, so
//! that no two messages wait for each other in the middle. So a session holds no more than `admission.bytes` and one message from each
//! backend; a backend that trickles one message for ever keeps only itself waiting.

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
}

/// Where a call's messages get their room from, and where the room of the last one is kept until its frame is owed.
#[derive(Clone, Debug)]
pub struct Room {
    ledger: Arc<Ledger>,
    /// Which backend is read from.
    lane: usize,
    kept: Arc<Mutex<Option<Reading>>>,
}

impl Ledger {
    /// Begins to read a message from the backend `lane`.
    pub fn reading(self: &Arc<Self>, lane: usize) -> Reading {
        let mut state = self.lock();
        let id = state.readings.last().map_or(0, |last| last.id + 1);
        state.readings.push(Entry { id, lane });
        Reading { ledger: self.clone(), id, bytes: 0 }
    }
}

// === impl Reading ===

impl Reading {
    /// Makes room for `bytes` more. Waits for it, in no particular order, while others hold it.
    pub async fn grow(&mut self, bytes: usize) {
        loop {
            let mut changed = std::pin::pin!(self.ledger.changed.notified());
            changed.as_mut().enable();
            {
                let mut state = self.ledger.lock();
                let lane = state.readings.iter().find(|e| e.id == self.id).map(|e| e.lane);
                let first = state.readings.iter().find(|e| Some(e.lane) == lane).is_none_or(|e| e.id == self.id);
                let limit = self.ledger.limits.bytes;
                let owed = state.bytes.saturating_sub(state.reading_bytes);
                if state.bytes.saturating_add(bytes) <= limit || (first && owed < limit) {
                    self.ledger.add_bytes(&mut state, bytes);
                    state.reading_bytes += bytes;
                    self.bytes += bytes;
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
        Room { ledger, lane, kept: Arc::default() }
    }

    /// What a message may have before it needs room.
    pub fn share(&self) -> usize {
        self.ledger.limits.share()
    }

    pub fn reading(&self) -> Reading {
        self.ledger.reading(self.lane)
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

//! The instances that a session keeps warm: one for each entry of a chain that it asked about single names. They belong to that session
//! alone, and are handed to no other: an instance is reached only through the [`Warm`] that it was put into. An instance that is in use is
//! not here; whoever comes meanwhile gets a fresh one that is dropped afterwards. None is put back after an error.
//! How many there are in all, and which go first, is for `berths`. Called by `call`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::berths::Berth;
use crate::call::Body;
use crate::realm::Realm;

/// The warm instances of one session: made with it, dropped with it, the same one in each of its views. Guest memory may vanish
/// between any two calls, so it is always right to drop one.
#[derive(Default)]
pub struct Warm {
    /// At most one for each entry of one chain, and those of other chains that are in use.
    slots: Mutex<Vec<Arc<Slot>>>,
}

/// Which entry of which chain an instance is of. No two entries that were ever made have one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) id: u64,
    /// Of the chain; 0 for an entry outside of any.
    pub(crate) generation: u64,
}

/// Where one session keeps its instance of one entry.
pub(crate) struct Slot {
    place: Place,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    leased: bool,
    parked: Option<Body>,
}

/// The right to put an instance into a slot. Only one call has it at a time; it ends when this is dropped.
pub(crate) struct Lease(Option<Arc<Slot>>);

// === impl Place ===

impl Place {
    /// A new one.
    pub(crate) fn of(generation: u64) -> Place {
        static PLACES: AtomicU64 = AtomicU64::new(1);
        Place { id: PLACES.fetch_add(1, Ordering::Relaxed), generation }
    }
}

// === impl Warm ===

impl Warm {
    /// With nothing in it.
    pub fn new() -> Arc<Warm> {
        Arc::default()
    }

    /// How many instances are here now, idle.
    pub fn idle(&self) -> usize {
        lock(&self.slots).iter().filter(|slot| lock(&slot.state).parked.is_some()).count()
    }

    /// Takes what is kept for an entry, and the right to put it, or one like it, back. `None`: another call of this session has it.
    pub(crate) fn lease(&self, place: Place) -> Option<(Lease, Option<Body>)> {
        let mut gone = Vec::new();
        let slot = {
            let mut slots = lock(&self.slots);
            match slots.iter().find(|slot| slot.place == place) {
                Some(slot) => slot.clone(),
                None => {
                    let other = |slot: &mut Arc<Slot>| slot.place.generation != place.generation && !lock(&slot.state).leased;
                    gone.extend(slots.extract_if(.., other));
                    let slot = Arc::new(Slot { place, state: Mutex::default() });
                    slots.push(slot.clone());
                    slot
                }
            }
        };
        drop(gone);
        let mut state = lock(&slot.state);
        if state.leased {
            return None;
        }
        state.leased = true;
        let body = state.take();
        drop(state);
        Some((Lease(Some(slot)), body))
    }
}

impl std::fmt::Debug for Warm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Warm").field("idle", &self.idle()).finish_non_exhaustive()
    }
}

// === impl Slot ===

impl Slot {
    pub(crate) fn place(&self) -> Place {
        self.place
    }

    /// Takes the instance out, if it is idle; the caller drops it.
    pub(crate) fn take(&self) -> Option<Body> {
        lock(&self.state).take()
    }
}

impl State {
    fn take(&mut self) -> Option<Body> {
        let body = self.parked.take();
        if let Some(berth) = body.as_ref().and_then(|body| body.berth.as_ref()) {
            berth.in_use();
        }
        body
    }
}

// === impl Lease ===

impl Lease {
    /// Keeps an instance whose last call ended well, at `now`, if there is room for it. `bytes`: of its linear memory.
    pub(crate) fn park(mut self, realm: &Arc<Realm>, mut body: Body, bytes: usize, now: Instant) {
        let Some(slot) = &self.0 else { return };
        if realm.is_waited_for() {
            return;
        }
        let Some(mut berth) = body.berth.take().or_else(|| Berth::claim(realm, slot)) else { return };
        berth.weigh(bytes);
        let Some(slot) = self.0.take() else { return };
        let mut state = lock(&slot.state);
        berth.idle(now);
        body.berth = Some(berth);
        state.parked = Some(body);
        state.leased = false;
        drop(state);
        if realm.is_waited_for() {
            drop(slot.take());
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(slot) = self.0.take() {
            lock(&slot.state).leased = false;
        }
    }
}

/// Nothing panics under these locks, they are held for a few instructions, and never across an await; a poisoned one is still whole.
/// Order: the slots of a session, then the state of one.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

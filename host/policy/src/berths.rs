//! Where warm instances are counted: a table with a place (a berth) for each that may exist, and since when it has been idle. It holds no
//! instance: those belong to their sessions (`warm`). From here the oldest idle one is told to go when there are too many, when they are idle
//! for too long, or when a chain has ended. Taking up and putting back an instance touches its own berth only, and no lock that others hold.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::realm::Realm;
use crate::warm::Slot;

/// See the module.
pub(crate) struct Berths {
    start: Instant,
    /// For each berth, microseconds from `start` to when its instance became idle; [`NOT_IDLE`] while it is in use, or free.
    idle_since: Box<[AtomicU64]>,
    register: Mutex<Register>,
    /// Linear memory of all instances that have a berth, and the most there may be.
    bytes: AtomicUsize,
    most_bytes: usize,
    evicted: AtomicU64,
}

struct Register {
    free: Vec<usize>,
    /// Who has each berth.
    slots: Box<[Weak<Slot>]>,
}

/// The place of one instance, free again when this is dropped.
pub(crate) struct Berth {
    realm: Arc<Realm>,
    index: usize,
    bytes: usize,
}

const NOT_IDLE: u64 = u64::MAX;

/// How often the oldest idle instance is looked for again when somebody else was faster.
const TRIES: usize = 4;

// === impl Berths ===

impl Berths {
    /// For `most` instances whose linear memories come to `most_bytes` at the most.
    pub(crate) fn new(most: usize, most_bytes: usize) -> Berths {
        Berths {
            start: Instant::now(),
            idle_since: (0..most).map(|_| AtomicU64::new(NOT_IDLE)).collect(),
            register: Mutex::new(Register { free: (0..most).collect(), slots: (0..most).map(|_| Weak::new()).collect() }),
            bytes: AtomicUsize::new(0),
            most_bytes,
            evicted: AtomicU64::new(0),
        }
    }

    /// Instances that have a berth, in use or idle.
    pub(crate) fn taken(&self) -> usize {
        self.idle_since.len() - self.register().free.len()
    }

    /// Idle instances that had to go so far.
    pub(crate) fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    /// Drops the instance that has been idle for longest. `false`: none is idle.
    pub(crate) fn evict_oldest(&self) -> bool {
        for _ in 0..TRIES {
            let ages = self.idle_since.iter().map(|since| since.load(Ordering::SeqCst)).enumerate();
            match ages.min_by_key(|&(_, since)| since) {
                None | Some((_, NOT_IDLE)) => return false,
                Some((index, _)) if self.evict(index) => return true,
                Some(_) => {}
            }
        }
        false
    }

    /// Drops all that have been idle for so long. Returns how many.
    pub(crate) fn evict_idle(&self, at_least: Duration) -> usize {
        let Some(until) = self.start.elapsed().checked_sub(at_least) else { return 0 };
        let until = micros(until);
        let old = |since: u64| since != NOT_IDLE && since <= until;
        (0..self.idle_since.len()).filter(|&i| old(self.idle_since[i].load(Ordering::SeqCst)) && self.evict(i)).count()
    }

    /// Drops the idle instances of one chain.
    pub(crate) fn evict_generation(&self, generation: u64) {
        // All of them first: the last reference to a slot must not be dropped under the lock, which its berth needs.
        let all: Vec<Arc<Slot>> = self.register().slots.iter().filter_map(Weak::upgrade).collect();
        for slot in all.iter().filter(|slot| slot.place().generation == generation) {
            drop(slot.take());
        }
    }

    /// `false`: somebody took it up, or its session ended, since the caller looked.
    fn evict(&self, index: usize) -> bool {
        let slot = self.register().slots[index].upgrade();
        // Dropped here, with no lock held: giving its memory back takes a few microseconds.
        let gone = slot.and_then(|slot| slot.take()).is_some();
        if gone {
            self.evicted.fetch_add(1, Ordering::Relaxed);
        }
        gone
    }

    /// Nothing panics under this lock; a poisoned one is still whole. It is taken when an instance is kept for the first time and when it goes.
    fn register(&self) -> MutexGuard<'_, Register> {
        self.register.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Berth ===

impl Berth {
    /// A berth for the instance of this slot. If all are taken the oldest idle instance goes; `None`: none is idle.
    pub(crate) fn claim(realm: &Arc<Realm>, slot: &Arc<Slot>) -> Option<Berth> {
        for _ in 0..TRIES {
            let mut register = realm.berths.register();
            if let Some(index) = register.free.pop() {
                register.slots[index] = Arc::downgrade(slot);
                drop(register);
                return Some(Berth { realm: realm.clone(), index, bytes: 0 });
            }
            drop(register);
            if !realm.berths.evict_oldest() {
                return None;
            }
        }
        None
    }

    /// Notes how large the instance is; idle ones go until all fit again.
    pub(crate) fn weigh(&mut self, bytes: usize) {
        if bytes == self.bytes {
            return;
        }
        let berths = &self.realm.berths;
        berths.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        berths.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.bytes = bytes;
        while berths.bytes.load(Ordering::Relaxed) > berths.most_bytes && berths.evict_oldest() {}
    }

    /// From now on it may be told to go. Called under the lock of its slot, like [`in_use`](Berth::in_use), so that both agree with it.
    pub(crate) fn idle(&self, now: Instant) {
        let since = micros(now.saturating_duration_since(self.realm.berths.start)).min(NOT_IDLE - 1);
        self.realm.berths.idle_since[self.index].store(since, Ordering::SeqCst);
    }

    pub(crate) fn in_use(&self) {
        self.realm.berths.idle_since[self.index].store(NOT_IDLE, Ordering::SeqCst);
    }
}

impl Drop for Berth {
    fn drop(&mut self) {
        let berths = &self.realm.berths;
        berths.idle_since[self.index].store(NOT_IDLE, Ordering::SeqCst);
        berths.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        let mut register = berths.register();
        register.slots[self.index] = Weak::new();
        register.free.push(self.index);
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(NOT_IDLE - 1)
}

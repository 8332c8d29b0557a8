//! The pointer to the chain that a virtual host runs now, and how it moves: a swap, and the way back when the new code keeps
//! failing. Whoever asks policies takes the chain once and keeps it for the whole operation, so that none sees half of each.
//!
//! A swap puts new code on probation. Each of its faults (traps, deadlines, memory, too much data, answers that break the contract) makes
//! [`Live`] look at the numbers; when one policy fails more often than not, the chain that was there before comes back: the same
//! one, with its generation. A policy's own `failure`s are answers, and an overloaded engine says nothing of the code: neither counts.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use serde::{Serialize, Serializer};

use crate::chain::Chain;
use crate::stats::Stats;

/// The current chain of one virtual host.
pub struct Live {
    inner: Arc<Inner>,
}

struct Inner {
    virtual_host: Arc<str>,
    current: ArcSwap<Chain>,
    /// Chains that were current and that somebody still holds.
    alive: Arc<AtomicUsize>,
    state: Mutex<State>,
}

struct State {
    since: SystemTime,
    probation: Option<Probation>,
    last: Option<Swap>,
    swaps: u64,
    trips: u64,
}

/// The current chain may still have to go.
struct Probation {
    generation: u64,
    previous: Arc<Chain>,
    until: Instant,
    ends: SystemTime,
    watched: Vec<Watched>,
}

/// A policy whose code is new.
struct Watched {
    policy: Arc<str>,
    version: Arc<str>,
    stats: Arc<Stats>,
    /// What its numbers were at the swap.
    calls: u64,
    faults: u64,
}

/// Counts a chain as alive until it is dropped.
#[derive(Debug)]
pub(crate) struct Census(Arc<AtomicUsize>);

/// What a virtual host runs, and how it came to it.
#[derive(Clone, Debug, Serialize)]
pub struct LiveStatus {
    /// The virtual host.
    pub virtual_host: Arc<str>,
    /// Generation of the current chain.
    pub generation: u64,
    /// Since when it has been the current one; in JSON in seconds since 1970.
    #[serde(serialize_with = "seconds")]
    pub since: SystemTime,
    /// While the current chain is on probation: what would come back, and until when.
    pub probation: Option<ProbationStatus>,
    /// The last swap, or what came of it.
    pub last_swap: Option<Swap>,
    /// Swaps so far.
    pub swaps: u64,
    /// How many of them were undone because the new code kept failing.
    pub trips: u64,
    /// Chains that were current and that somebody still holds, with the current one.
    pub alive: usize,
}

/// See [`LiveStatus::probation`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ProbationStatus {
    /// Generation of the chain that would come back.
    pub previous: u64,
    /// In JSON in seconds since 1970.
    #[serde(serialize_with = "seconds")]
    pub ends: SystemTime,
}

/// One swap.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Swap {
    /// When its outcome was known; in JSON in seconds since 1970.
    #[serde(serialize_with = "seconds")]
    pub at: SystemTime,
    /// What came of it.
    pub outcome: SwapOutcome,
}

/// What came of a swap.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "is", rename_all = "kebab-case")]
pub enum SwapOutcome {
    /// The new chain serves, and its new code is watched.
    OnProbation { generation: u64 },
    /// The new chain serves for good.
    Kept { generation: u64 },
    /// Its new code kept failing: the chain that was there before serves again.
    WentBack { generation: u64, to: u64, reason: String },
    /// It was given up before it began, and nothing changed.
    GivenUp { reason: String },
}

/// Faults before there is anything to decide.
const FEWEST_FAULTS: u64 = 8;

// === impl Live ===

impl Live {
    /// Begins with this chain.
    pub fn new(chain: Arc<Chain>) -> Live {
        let alive = Arc::default();
        chain.count_in(&alive);
        let virtual_host = chain.virtual_host().clone();
        let state = State { since: SystemTime::now(), probation: None, last: None, swaps: 0, trips: 0 };
        Live { inner: Arc::new(Inner { virtual_host, current: ArcSwap::new(chain), alive, state: Mutex::new(state) }) }
    }

    /// The chain for an operation that begins now.
    pub fn current(&self) -> Arc<Chain> {
        self.inner.current.load_full()
    }

    /// The generation of the current chain; cheaper than to ask the chain for it.
    pub fn generation(&self) -> u64 {
        self.inner.current.load().generation()
    }

    /// From now on operations begin on `chain`; those in flight finish on theirs. If it has code that the current chain does not have, that code is on
    /// probation for so long: the current chain is kept meanwhile, and comes back if one of the new policies has 8 faults
    /// or more and more faults than good calls. If the current chain is itself on probation and failing, the one before it is kept in its place.
    pub fn swap(&self, chain: Arc<Chain>, probation: Duration) {
        let inner = &self.inner;
        chain.count_in(&inner.alive);
        let generation = chain.generation();
        let mut state = inner.state();
        let current = inner.current.load_full();
        if Arc::ptr_eq(&current, &chain) {
            return;
        }
        let ended = state.probation.take();
        let previous = match &ended {
            Some(ended) if ended.watched.iter().any(Watched::is_failing) => ended.previous.clone(),
            _ => current.clone(),
        };
        let watched = watched(&chain, &previous);
        for new in &watched {
            let live = Arc::downgrade(inner);
            new.stats.on_fault(move || Inner::fault(&live, generation));
        }
        let now = SystemTime::now();
        let outcome = if watched.is_empty() || probation.is_zero() {
            SwapOutcome::Kept { generation }
        } else {
            state.probation = Some(Probation { generation, previous, until: Instant::now() + probation, ends: now + probation, watched });
            SwapOutcome::OnProbation { generation }
        };
        state.last = Some(Swap { at: now, outcome });
        state.since = now;
        state.swaps += 1;
        inner.current.store(chain);
        drop(state);
        // What this lets go of may be large.
        drop((ended, current));
        tracing::debug!(virtual_host = &*inner.virtual_host, generation, "policies swapped");
    }

    /// Notes that a swap was given up before it began: its component did not load, or its configuration does not fit. For the status.
    pub fn given_up(&self, reason: String) {
        self.inner.state().last = Some(Swap { at: SystemTime::now(), outcome: SwapOutcome::GivenUp { reason } });
    }

    /// Ends the probation if it is over at `now`, and lets go of the chain that was kept for it. To be called every few seconds.
    pub fn settle(&self, now: Instant) {
        let mut state = self.inner.state();
        let Some(over) = state.probation.take_if(|probation| probation.until <= now) else { return };
        let generation = over.generation;
        if matches!(&state.last, Some(Swap { outcome: SwapOutcome::OnProbation { .. }, .. })) {
            state.last = Some(Swap { at: SystemTime::now(), outcome: SwapOutcome::Kept { generation } });
        }
        drop(state);
        drop(over);
        tracing::info!(virtual_host = &*self.inner.virtual_host, generation, "the new policies have passed their probation");
    }

    /// What it runs, and how it came to it.
    pub fn status(&self) -> LiveStatus {
        let state = self.inner.state();
        LiveStatus {
            virtual_host: self.inner.virtual_host.clone(),
            generation: self.inner.current.load().generation(),
            since: state.since,
            probation: state.probation.as_ref().map(|p| ProbationStatus { previous: p.previous.generation(), ends: p.ends }),
            last_swap: state.last.clone(),
            swaps: state.swaps,
            trips: state.trips,
            alive: self.alive(),
        }
    }

    /// Chains that were current and that somebody still holds, with the current one.
    pub fn alive(&self) -> usize {
        self.inner.alive.load(Ordering::Acquire)
    }
}

impl std::fmt::Debug for Live {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Live").field("virtual_host", &self.inner.virtual_host).field("current", &self.current()).finish_non_exhaustive()
    }
}

// === impl Inner ===

impl Inner {
    /// A policy of this generation, new when it was swapped in, has failed. On the path of the call that did.
    fn fault(live: &Weak<Inner>, generation: u64) {
        let Some(inner) = live.upgrade() else { return };
        let mut state = inner.state();
        let now = Instant::now();
        let failing = |p: &Probation| p.generation == generation && now < p.until && p.watched.iter().any(Watched::has_failed);
        let Some(tripped) = state.probation.take_if(|p| failing(p)) else { return };
        let reason = tripped.reason();
        let to = tripped.previous.generation();
        inner.current.store(tripped.previous.clone());
        state.trips += 1;
        state.since = SystemTime::now();
        state.last = Some(Swap { at: state.since, outcome: SwapOutcome::WentBack { generation, to, reason: reason.clone() } });
        drop(state);
        drop(tripped);
        tracing::error!(
            virtual_host = &*inner.virtual_host,
            generation,
            to,
            reason,
            "the swapped policies keep failing: back to those before"
        );
    }

    /// Nothing panics under this lock and it is never held across an await; a poisoned one is still whole. Taken by swaps, by
    /// the reaper, and after faults of code that was on probation once; never by a call that goes well.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Probation ===

impl Probation {
    fn reason(&self) -> String {
        let failed = self.watched.iter().find(|w| w.has_failed());
        failed.map_or_else(String::new, |w| {
            let (calls, faults) = w.since();
            format!("policy {} ({}) failed in {faults} of {calls} calls since it was swapped in", w.policy, w.version)
        })
    }
}

// === impl Watched ===

impl Watched {
    /// Calls and faults since the swap.
    fn since(&self) -> (u64, u64) {
        // Faults first: a call is counted before its fault, so there are never more faults than calls.
        let faults = self.stats.faults().saturating_sub(self.faults);
        (self.stats.calls().saturating_sub(self.calls), faults)
    }

    fn has_failed(&self) -> bool {
        let (calls, faults) = self.since();
        faults >= FEWEST_FAULTS && faults * 2 > calls
    }

    /// So far it fails more often than not, if not often enough to tell.
    fn is_failing(&self) -> bool {
        let (calls, faults) = self.since();
        faults * 2 > calls
    }
}

/// The policies of `chain` whose code `previous` does not have under the same name.
fn watched(chain: &Chain, previous: &Chain) -> Vec<Watched> {
    let known = |name: &str, digest: &str| previous.entries().iter().any(|e| e.policy().name() == name && e.policy().digest() == digest);
    let new = chain.entries().iter().filter(|e| !known(e.policy().name(), e.policy().digest()));
    let watch = new.map(|e| Watched {
        policy: e.policy.name.clone(),
        version: e.policy.version.clone(),
        calls: e.stats.calls(),
        faults: e.stats.faults(),
        stats: e.stats.clone(),
    });
    watch.collect()
}

// === impl Census ===

impl Census {
    pub(crate) fn new(alive: &Arc<AtomicUsize>) -> Census {
        alive.fetch_add(1, Ordering::AcqRel);
        Census(alive.clone())
    }
}

impl Drop for Census {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

fn seconds<S: Serializer>(time: &SystemTime, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u64(time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs())
}

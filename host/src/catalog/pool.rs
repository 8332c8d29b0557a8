//! Names that several sessions of a virtual host have in common, each set of them once: most sessions are shown the same lists under the same
//! names, and those are the largest part of what a session knows.
//!
//! What is in here belongs to the sessions that have it and goes with the last of them; the pool only remembers where it is. A session gets
//! what it had anyway: names are taken from here for equal ones, never found here.

use super::names::Names;
use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Sets of names that are remembered. Where sessions have more, the oldest are not shared with new ones.
const SETS: usize = 64;

/// Where equal names are. One for each virtual host.
#[derive(Default)]
pub struct Pool {
    /// By a hash that nobody outside can foresee.
    known: Mutex<VecDeque<(u64, Weak<Names>)>>,
    hasher: RandomState,
}

impl Pool {
    /// The one of all that are equal to `names`.
    pub(super) fn one_of(&self, names: &Arc<Names>) -> Arc<Names> {
        let hash = self.hasher.hash_one(&**names);
        // Nothing panics under this lock; a poisoned value would still be whole.
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |(other, at): &(u64, Weak<Names>)| (*other == hash).then(|| at.upgrade())?.filter(|at| **at == **names);
        if let Some(one) = known.iter().rev().find_map(same) {
            return one;
        }
        known.retain(|(_, at)| at.strong_count() > 0);
        if known.len() >= SETS {
            known.pop_front();
        }
        known.push_back((hash, Arc::downgrade(names)));
        names.clone()
    }
}

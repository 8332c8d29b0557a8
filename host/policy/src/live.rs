//! The pointer to the chain that a virtual host runs now, and how it moves: a swap, and the way back when the new code keeps
//! failing. Whoever asks policies takes the chain once and keeps it for the whole operation, so that none sees half of each.

use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::chain::Chain;

/// The current chain of one virtual host.
#[derive(Debug)]
pub struct Live {
    current: ArcSwap<Chain>,
}

impl Live {
    /// Begins with this chain.
    pub fn new(chain: Arc<Chain>) -> Live {
        Live { current: ArcSwap::new(chain) }
    }

    /// The chain for an operation that begins now.
    pub fn current(&self) -> Arc<Chain> {
        self.current.load_full()
    }

    /// From now on operations begin on `chain`; those in flight finish on theirs.
    pub fn swap(&self, chain: Arc<Chain>) {
        self.current.store(chain);
    }
}

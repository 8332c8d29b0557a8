//! What the calls of policies came to: counted per entry of a chain, and told to whoever observes the engine. Called by `call` once per
//! guest call, and for answers that were found to break the contract afterwards. Reads no clock and takes no lock.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::error::PolicyErrorKind;
use crate::types::Hook;

/// Hears of every call into a guest. Called on the path of requests: it must not block.
pub trait Observer: Send + Sync {
    /// A call ended, or could not begin. `outcome`: `ok` or [`PolicyErrorKind::label`]. `time`: by the wall clock, inside the guest; what it
    /// took to start its instance, or to wait for one, only if it came no further.
    fn called(&self, policy: &str, version: &str, hook: Hook, outcome: &'static str, time: Duration);

    /// An answer broke the contract. Its call was told as `ok`: it ended in time and well.
    fn refuted(&self, policy: &str, version: &str, hook: Hook) {
        let _ = (policy, version, hook);
    }
}

/// What one entry of a chain did. Begins anew with every chain.
#[derive(Default)]
pub(crate) struct Stats {
    calls: AtomicU64,
    faults: AtomicU64,
    alarm: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

// === impl Stats ===

impl Stats {
    /// Calls that ended, whichever way; not those that found no room.
    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Calls among them that ended in a [fault](PolicyErrorKind::is_fault), or whose answers broke the contract.
    pub(crate) fn faults(&self) -> u64 {
        self.faults.load(Ordering::Relaxed)
    }

    /// Calls `alarm` after each fault from now on. Only the first one that is set counts.
    pub(crate) fn on_fault(&self, alarm: impl Fn() + Send + Sync + 'static) {
        let _ = self.alarm.set(Box::new(alarm));
    }

    pub(crate) fn call_ended(&self, error: Option<&PolicyErrorKind>) {
        if error == Some(&PolicyErrorKind::Overloaded) {
            return;
        }
        self.calls.fetch_add(1, Ordering::Relaxed);
        if error.is_some_and(PolicyErrorKind::is_fault) {
            self.fault();
        }
    }

    /// Of a call that is counted.
    pub(crate) fn fault(&self) {
        self.faults.fetch_add(1, Ordering::Relaxed);
        if let Some(alarm) = self.alarm.get() {
            alarm();
        }
    }
}

impl fmt::Debug for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stats").field("calls", &self.calls()).field("faults", &self.faults()).finish_non_exhaustive()
    }
}

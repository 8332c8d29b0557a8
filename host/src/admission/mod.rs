//! Drain-credit admission: what a client does not read is held against that client's own credit, before anything is run.
//!
//! Owns the ledger of a session (frames and bytes owed, credit, the verdict), the metered socket that tells what has really drained,
//! and the room in which answers of backends are read. Never looks at a payload and does not know what a session is: a session owns
//! its ledger, a connection its meter. Called by `front` (verdict, meter), `session` (frames owed), `backend` (room to read).
//!
//! # Words
//! *Owed*: admitted, queued or given to a connection, and not drained yet. *Drained*: accepted by the client's kernel, as far as this
//! machine can tell. *Half-open*: something is owed, and nothing has drained for `drain_window`.
//!
//! # Events
//! Nothing here polls a clock to find out whether there is credit. Credit returns when a permit is dropped: by a drained byte, a closed
//! connection, a call that ended. Sockets say when they can be written to again. One thing no socket says: that bytes which the kernel
//! has sent were acknowledged. While a connection has such bytes, its own task looks after 4 ms, 8 ms, … until `drain_window`; the same
//! timer judges it half-open, and tears it down. A connection that owes nothing has no timer.

mod ledger;
mod meter;
mod reading;
mod socket;
mod watch;

#[cfg(test)]
mod tests;

pub use ledger::{Ledger, Permit, Reason, Refused, Standing};
pub use meter::Meter;
pub use reading::{Reading, Room};
pub use socket::Metered;
pub use watch::{Torn, Watch};

use crate::config::AdmissionConfig;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

/// Bytes that a body may have given to its connection and that are not written yet.
pub const AHEAD: usize = 16 * 1024;
/// The same for a body that is one message. What it has not given it holds all the same, so there is nothing to be won by giving less.
pub const AHEAD_OF_ONE: usize = 64 * 1024;

/// Bounds of what one session may be owed, and when it counts as one that does not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Frames. A call that is admitted holds one until its answer has drained.
    pub frames: usize,
    /// Bytes. Beyond that nothing new is admitted; what was admitted before is answered all the same.
    pub bytes: usize,
    /// Owing and no byte drained for so long: half-open.
    pub drain_window: Duration,
    /// How long a request waits for credit while its session reads.
    pub patience: Duration,
    /// A stream that is half-open for so long is closed.
    pub teardown_after: Duration,
}

impl From<AdmissionConfig> for Limits {
    fn from(config: AdmissionConfig) -> Self {
        let AdmissionConfig { frames, bytes, drain_window, patience, teardown_after, probe: _ } = config;
        Limits { frames, bytes, drain_window, patience, teardown_after }
    }
}

impl Limits {
    /// What one frame may have of the bytes: a message up to this size is covered by its frame, a larger one needs room to be read.
    pub fn share(&self) -> usize {
        (self.bytes / self.frames.max(1)).max(1024)
    }
}

/// Sums over all ledgers of the process.
#[derive(Debug, Default)]
pub struct Totals {
    /// Sessions that are half-open now.
    pub half_open: AtomicI64,
    pub owed_bytes: AtomicI64,
    pub owed_frames: AtomicI64,
    /// Streams that were closed because nobody read them.
    pub torn_down: AtomicI64,
}

//! One engine of the WASM runtime and the room that its instances share: how many may live, who waits for one, and which idle ones make
//! room. There is one [`Realm`] with a pool, for nearly all policies, and one without for those that do not fit the pool's slots.
//! Knows no policy and no session. Called by `call` for room, by `warm` for what stays.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::berths::Berths;
use crate::code;

/// See the module.
pub(crate) struct Realm {
    pub(crate) engine: wasmtime::Engine,
    /// Which code it runs: see [`code::compatibility`].
    pub(crate) compatibility: String,
    pub(crate) bounds: Bounds,
    pub(crate) berths: Berths,
    /// One permit per instance, so that a full pool makes calls wait instead of fail, also where there is no pool.
    slots: Arc<Semaphore>,
    instances: usize,
    /// Calls that wait for a permit.
    waiting: AtomicUsize,
}

/// What one store may hold, beyond the memory that the policy's own limits give.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) core_instances: usize,
    pub(crate) memories: usize,
    pub(crate) tables: usize,
    pub(crate) table_elements: usize,
}

/// Room for one instance.
pub(crate) type Permit = OwnedSemaphorePermit;

/// No instance became free in time.
pub(crate) struct Overloaded;

/// Counts a call among those that wait, as long as it does.
struct Waiting<'r>(&'r AtomicUsize);

// === impl Realm ===

impl Realm {
    pub(crate) fn new(engine: wasmtime::Engine, bounds: Bounds, instances: usize, berths: Berths) -> Arc<Realm> {
        let slots = Arc::new(Semaphore::new(instances));
        let compatibility = code::compatibility(&engine);
        Arc::new(Realm { engine, compatibility, bounds, berths, slots, instances, waiting: AtomicUsize::new(0) })
    }

    /// Room for a new instance. If there is none, the oldest idle instance goes; if none is idle, it waits for at most `wait`.
    pub(crate) async fn room(&self, wait: Duration) -> Result<Permit, Overloaded> {
        if let Ok(permit) = self.slots.clone().try_acquire_owned() {
            return Ok(permit);
        }
        // From here on whoever is done drops its instance instead of keeping it: it looks at `waiting` after it has shown its instance
        // as idle, and this looks for idle ones after it has shown that it waits. One of the two sees the other.
        let _waiting = Waiting::new(&self.waiting);
        self.berths.evict_oldest();
        match timeout(wait, self.slots.clone().acquire_owned()).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_)) | Err(_) => Err(Overloaded),
        }
    }

    /// Whether a call waits for room.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0
    }

    /// Instances that live, the idle ones too.
    pub(crate) fn living(&self) -> usize {
        self.instances - self.slots.available_permits().min(self.instances)
    }
}

// === impl Waiting ===

impl<'r> Waiting<'r> {
    fn new(waiting: &'r AtomicUsize) -> Waiting<'r> {
        waiting.fetch_add(1, Ordering::SeqCst);
        Waiting(waiting)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

//! Which requests of a client of 2026-07-28 are under way at which backend, and could carry a question that says of no request which it
//! belongs to, as those of a server on a pipe do when it has several.
//!
//! Any request of the chamber will do: the answer goes to the question, by its own id, and not to the request that it was asked on. One that
//! waits for its client already cannot carry another.

use super::lock;
use super::streams::StreamId;
use std::sync::{Arc, Mutex, OnceLock};

/// Made with the first request: clients of older revisions have none.
#[derive(Debug, Default)]
pub struct Carriers(OnceLock<Arc<Mutex<Vec<Entry>>>>);

#[derive(Debug)]
struct Entry {
    backend: usize,
    stream: StreamId,
    waits: bool,
}

/// Drop it when the request has its answer.
pub struct Carrier {
    all: Arc<Mutex<Vec<Entry>>>,
    stream: StreamId,
}

impl Carriers {
    pub fn add(&self, backend: usize, stream: StreamId) -> Carrier {
        let all = self.0.get_or_init(Arc::default).clone();
        lock(&all).push(Entry { backend, stream, waits: false });
        Carrier { all, stream }
    }

    /// The request on this stream waits for its client, or does not any more.
    pub fn waits(&self, stream: StreamId, waits: bool) {
        if let Some(all) = self.0.get() {
            lock(all).iter_mut().filter(|e| e.stream == stream).for_each(|e| e.waits = waits);
        }
    }

    /// The youngest request at this backend that does not wait.
    pub fn pick(&self, backend: usize) -> Option<StreamId> {
        lock(self.0.get()?).iter().rev().find(|e| e.backend == backend && !e.waits).map(|e| e.stream)
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        let mut all = lock(&self.all);
        if let Some(at) = all.iter().position(|e| e.stream == self.stream) {
            all.remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_youngest_that_does_not_wait_carries() {
        let all = Carriers::default();
        let first = all.add(0, 1);
        let second = all.add(0, 2);
        let _other = all.add(1, 3);
        assert_eq!((all.pick(0), all.pick(1), all.pick(2)), (Some(2), Some(3), None));
        all.waits(2, true);
        assert_eq!(all.pick(0), Some(1));
        drop(first);
        assert_eq!(all.pick(0), None);
        all.waits(2, false);
        assert_eq!(all.pick(0), Some(2));
        drop(second);
        assert_eq!(all.pick(0), None);
    }
}

//! The tasks of 2025-11-25 that belong to a session: whose ids its client got from its servers here, or its servers from its client.
//!
//! Servers see only the gateway's credential, so that this, and not their word, keeps the tasks of two sessions apart. Bounded: the oldest
//! are forgotten, and are then as good as unknown. Knows no messages.

use crate::rare::Rare;
use sha2::{Digest, Sha256};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

/// Tasks that one session may have.
pub const TASKS: usize = 1024;

/// Who runs a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunBy {
    /// The backend.
    Server,
    /// The client, for the backend.
    Client,
}

#[derive(Debug, Default)]
pub struct Tasks {
    any: AtomicBool,
    known: Rare<VecDeque<[u8; 16]>>,
}

impl Tasks {
    /// One may be there soon, and messages about it sooner.
    pub fn expect(&self) {
        self.any.store(true, Ordering::Relaxed);
    }

    /// Whether messages may be about tasks at all.
    pub fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// `id`: the one that who runs it gave it.
    pub fn add(&self, run_by: RunBy, backend: usize, id: &str) {
        self.expect();
        let key = key(run_by, backend, id);
        self.known.change(|known| {
            if known.contains(&key) {
                return;
            }
            if known.len() >= TASKS {
                known.pop_front();
            }
            known.push_back(key);
        });
    }

    pub fn has(&self, run_by: RunBy, backend: usize, id: &str) -> bool {
        self.any() && {
            let key = key(run_by, backend, id);
            self.known.look(|known| known.contains(&key)).unwrap_or(false)
        }
    }
}

fn key(run_by: RunBy, backend: usize, id: &str) -> [u8; 16] {
    let mut hash = Sha256::new();
    hash.update([run_by as u8]);
    hash.update((backend as u64).to_le_bytes());
    hash.update(id);
    let full = hash.finalize();
    let mut short = [0; 16];
    short.copy_from_slice(&full[..16]);
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_of_one_backend_and_one_side_and_the_oldest_go() {
        let tasks = Tasks::default();
        assert!(!tasks.any() && !tasks.has(RunBy::Server, 0, "a"));
        tasks.add(RunBy::Server, 0, "a");
        tasks.add(RunBy::Server, 0, "a");
        assert!(tasks.any() && tasks.has(RunBy::Server, 0, "a"));
        for (run_by, backend, id) in [(RunBy::Client, 0, "a"), (RunBy::Server, 1, "a"), (RunBy::Server, 0, "b"), (RunBy::Server, 0, "")] {
            assert!(!tasks.has(run_by, backend, id), "{run_by:?} {backend} {id}");
        }
        for n in 1..TASKS {
            tasks.add(RunBy::Server, 0, &n.to_string());
        }
        assert!(tasks.has(RunBy::Server, 0, "a"));
        tasks.add(RunBy::Client, 0, "one more");
        assert!(!tasks.has(RunBy::Server, 0, "a") && tasks.has(RunBy::Server, 0, "1"));
    }
}

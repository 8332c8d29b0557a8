//! Where an upstream is: one value, whoever waits for another one, and nothing that is made for each of them.

use super::inner::lock;
use super::link::Link;
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;
use tokio::time::Instant;

/// Where the upstream is.
#[derive(Clone, Debug)]
pub enum Phase {
    Connecting,
    Up(Arc<Link>),
    /// The backend has lost the session of this connection; a new one is being made.
    Renewing(Arc<Link>),
    Down {
        why: Arc<str>,
        /// When the last attempt began.
        tried: Instant,
        /// When the next one is due.
        next: Instant,
    },
    Closed,
}

impl Phase {
    /// The connection, where there is one.
    pub fn up(&self) -> Option<Arc<Link>> {
        match self {
            Phase::Up(link) => Some(link.clone()),
            _ => None,
        }
    }
}

/// The present phase of one upstream. Of phases that follow each other quickly a waiter may see the last one only.
#[derive(Debug)]
pub struct Phases {
    /// With how often it has changed, from 1 on.
    now: Mutex<(u64, Phase)>,
    changed: Notify,
}

impl Phases {
    pub fn new() -> Phases {
        Phases { now: Mutex::new((1, Phase::Connecting)), changed: Notify::new() }
    }

    pub fn set(&self, phase: Phase) {
        let before = {
            let mut now = lock(&self.now);
            now.0 += 1;
            std::mem::replace(&mut now.1, phase)
        };
        self.changed.notify_waiters();
        drop(before);
    }

    /// Looks at the present phase; short, under a lock.
    pub fn look<T>(&self, at: impl FnOnce(&Phase) -> T) -> T {
        at(&lock(&self.now).1)
    }

    /// The present phase, if it is not the one that was seen last.
    pub fn newer(&self, seen: &mut u64) -> Option<Phase> {
        let now = lock(&self.now);
        (std::mem::replace(seen, now.0) != now.0).then(|| now.1.clone())
    }

    /// Waits for a phase that `at` has something to say of; the present one is the first that it is asked about.
    pub async fn until<T>(&self, mut at: impl FnMut(&Phase) -> Option<T>) -> T {
        let mut seen = 0;
        loop {
            // Registered before the phase is looked at, so that no change is missed.
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            {
                let now = lock(&self.now);
                if now.0 != seen {
                    seen = now.0;
                    if let Some(said) = at(&now.1) {
                        return said;
                    }
                }
            }
            changed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test]
    async fn a_waiter_is_asked_about_each_phase_once_and_misses_no_change() {
        let phases = Arc::new(Phases::new());
        let waiting = {
            let phases = phases.clone();
            tokio::spawn(async move {
                let mut asked = 0;
                let closed = phases.until(|phase| {
                    asked += 1;
                    matches!(phase, Phase::Closed).then_some(())
                });
                closed.await;
                asked
            })
        };
        tokio::time::sleep(Duration::from_millis(20)).await;
        phases.set(Phase::Down { why: "x".into(), tried: Instant::now(), next: Instant::now() });
        tokio::time::sleep(Duration::from_millis(20)).await;
        phases.set(Phase::Closed);
        assert_eq!(waiting.await.unwrap(), 3);
        // The present one counts, once.
        phases.until(|phase| matches!(phase, Phase::Closed).then_some(())).await;
        let mut seen = 0;
        assert!(matches!(phases.newer(&mut seen), Some(Phase::Closed)));
        assert!(phases.newer(&mut seen).is_none());
    }
}

//! Waits that grow, with jitter, so that sessions that lost the same backend do not come back to it in step.

use std::time::Duration;

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub struct Backoff {
    next: Duration,
}

impl Backoff {
    pub fn new() -> Self {
        Backoff { next: FIRST }
    }

    pub fn reset(&mut self) {
        self.next = FIRST;
    }

    /// How long to wait now: 1 s, 2 s, 4 s … 30 s, give or take a fifth.
    pub fn wait(&mut self) -> Duration {
        let now = self.next;
        self.next = (now * 2).min(LONGEST);
        jitter(now)
    }
}

/// Between 80 and 120 per cent of `wait`.
pub fn jitter(wait: Duration) -> Duration {
    let random = getrandom::u32().unwrap_or(u32::MAX / 2);
    wait.mul_f64(0.8 + 0.4 * f64::from(random) / f64::from(u32::MAX))
}

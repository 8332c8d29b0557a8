//! A policy's lines in the gateway's log: cut, escaped, and limited in number, so that no guest can fill a disk or forge a line.
//! Called by the host functions only.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// How a guest marked a line.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Level {
    Debug,
    Info,
    Warn,
    Error,
}

/// How many lines a policy may still write: refilled by time, shared by all its sessions.
#[derive(Debug)]
pub(crate) struct Allowance {
    per_second: u32,
    state: Mutex<(Instant, f64)>,
    dropped: AtomicU64,
}

// === impl Allowance ===

impl Allowance {
    pub(crate) fn new(per_second: u32) -> Allowance {
        Allowance { per_second, state: Mutex::new((Instant::now(), f64::from(per_second))), dropped: AtomicU64::new(0) }
    }

    /// Whether a line may be written now; counts it if not.
    pub(crate) fn take(&self) -> bool {
        let most = f64::from(self.per_second);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let left = (state.1 + now.duration_since(state.0).as_secs_f64() * most).min(most);
        let granted = left >= 1.0;
        *state = (now, if granted { left - 1.0 } else { left });
        drop(state);
        if !granted {
            self.dropped(1);
        }
        granted
    }

    pub(crate) fn dropped(&self, lines: u64) {
        self.dropped.fetch_add(lines, Ordering::Relaxed);
    }

    /// The lines dropped since it was last asked.
    pub(crate) fn take_dropped(&self) -> u64 {
        self.dropped.swap(0, Ordering::Relaxed)
    }
}

/// Writes one line, with who wrote it.
pub(crate) fn write(level: Level, policy: &str, version: &str, virtual_host: &str, message: &str) {
    macro_rules! line {
        ($level:ident) => {
            tracing::event!(target: "lockgate_policy::guest", tracing::Level::$level, policy, version, virtual_host, "{message}")
        };
    }
    match level {
        Level::Debug => line!(DEBUG),
        Level::Info => line!(INFO),
        Level::Warn => line!(WARN),
        Level::Error => line!(ERROR),
    }
}

/// Cut at `most` bytes (at a character), control characters escaped.
pub(crate) fn clean(message: &str, most: usize) -> String {
    let cut = message.floor_char_boundary(most);
    let mut line = String::with_capacity(cut);
    for c in message[..cut].chars() {
        // U+2028 and U+2029 are no control characters, but some viewers break a line at them.
        if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') {
            line.extend(c.escape_default());
        } else {
            line.push(c);
        }
    }
    if cut < message.len() {
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_line_and_has_a_bound() {
        assert_eq!(clean("a\nb\u{1b}[31m\u{2028}ü", 100), "a\\nb\\u{1b}[31m\\u{2028}ü");
        assert_eq!(clean("üü", 3), "ü…");
    }

    #[test]
    fn a_policy_that_writes_too_much_is_silenced_and_counted() {
        let allowance = Allowance::new(10);
        let granted = (0..100).filter(|_| allowance.take()).count();
        // Time passes while it asks, so a few more than ten may be granted, far from all.
        assert!((10..60).contains(&granted), "{granted}");
        assert_eq!(allowance.take_dropped(), 100 - granted as u64);
        assert_eq!(allowance.take_dropped(), 0);
    }
}

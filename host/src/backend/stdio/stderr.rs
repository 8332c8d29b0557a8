//! A child's stderr: read always, so that the child is never blocked by it, and logged as far as a log can bear.

use crate::backend::inner::Inner;
use crate::backend::target::Target;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::Instant;

/// Bytes of one line that are logged.
const LINE: usize = 2048;
/// Lines at once, and lines per second after that.
const BURST: u32 = 100;
const PER_SECOND: u32 = 20;

/// Runs until the child closes its stderr.
pub async fn forward(mut from: impl AsyncRead + Unpin, inner: &Inner) {
    let mut chunk = vec![0; 8192];
    let mut line = Vec::new();
    let mut gate = Gate::new(Instant::now());
    while let Ok(read) = from.read(&mut chunk).await {
        if read == 0 {
            break;
        }
        let mut rest = &chunk[..read];
        while let Some(at) = memchr::memchr(b'\n', rest) {
            keep(&mut line, &rest[..at]);
            log(inner, &mut gate, &mut line);
            rest = &rest[at + 1..];
        }
        keep(&mut line, rest);
    }
    log(inner, &mut gate, &mut line);
}

fn keep(line: &mut Vec<u8>, part: &[u8]) {
    let room = LINE.saturating_sub(line.len());
    line.extend_from_slice(&part[..room.min(part.len())]);
}

fn log(inner: &Inner, gate: &mut Gate, line: &mut Vec<u8>) {
    let text = without_secrets(String::from_utf8_lossy(line).trim_end(), &inner.backend.target);
    if !text.is_empty()
        && let Some(skipped) = gate.pass(Instant::now())
    {
        if skipped > 0 {
            tracing::info!(backend = %inner.backend.name, session = %inner.hello.session_tag, skipped, "lines of the backend's stderr were not logged");
        }
        tracing::info!(backend = %inner.backend.name, session = %inner.hello.session_tag, stderr = &*text, "backend says");
    }
    line.clear();
}

/// The line without the values that the configuration gives to the child: what it is trusted with is not for the log.
fn without_secrets(text: &str, target: &Target) -> String {
    /// Shorter values (`1`, `true`, `info`) are no secrets, and stand in every other line.
    const SECRET: usize = 6;
    let Target::Stdio { env, .. } = target else { return text.to_owned() };
    let secrets = env.iter().map(|(_, value)| value.as_str()).filter(|value| value.len() >= SECRET);
    secrets.fold(text.to_owned(), |text, secret| if text.contains(secret) { text.replace(secret, "[redacted]") } else { text })
}

/// Lets so many through and counts the others.
#[derive(Debug)]
struct Gate {
    tokens: f64,
    at: Instant,
    skipped: u64,
}

impl Gate {
    fn new(at: Instant) -> Self {
        Gate { tokens: f64::from(BURST), at, skipped: 0 }
    }

    /// None: not this one. Otherwise how many were held back before it.
    fn pass(&mut self, now: Instant) -> Option<u64> {
        let gained = now.duration_since(self.at).as_secs_f64() * f64::from(PER_SECOND);
        self.at = now;
        self.tokens = (self.tokens + gained).min(f64::from(BURST));
        if self.tokens < 1.0 {
            self.skipped += 1;
            return None;
        }
        self.tokens -= 1.0;
        Some(std::mem::take(&mut self.skipped))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_the_configuration_gives_a_child_is_not_logged() {
        let env = vec![("TOKEN".to_owned(), "s3cret-token".to_owned()), ("LEVEL".to_owned(), "info".to_owned())];
        let target = Target::Stdio { program: "p".into(), args: Vec::new(), env, cwd: None };
        assert_eq!(without_secrets("info: bad token s3cret-token!", &target), "info: bad token [redacted]!");
    }

    #[test]
    fn a_flood_is_counted_and_not_logged() {
        let now = Instant::now();
        let mut gate = Gate::new(now);
        let passed = (0..1000).filter(|_| gate.pass(now).is_some()).count();
        assert_eq!(passed, BURST as usize);
        assert_eq!(gate.pass(now + Duration::from_secs(1)), Some(900));
    }
}

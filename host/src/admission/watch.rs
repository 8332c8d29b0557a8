//! The one timer of a connection that owes something: it looks when acknowledgements are due, judges, and says when it is enough.

use super::meter::Meter;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::time::Sleep;

/// The first look after a connection began to owe, or drained: a round trip on a fast network. It doubles from there.
const FIRST_LOOK: Duration = Duration::from_millis(4);

/// Watches the meter of a connection. Polled by the connection's own task, whenever that is woken.
#[derive(Debug)]
pub struct Watch {
    meter: Arc<Meter>,
    drain_window: Duration,
    teardown_after: Duration,
    timer: Pin<Box<Sleep>>,
    /// The pause before the next look; none while nothing is owed.
    pause: Option<Duration>,
}

/// The client has not read for too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Torn {
    pub still_for: Duration,
}

impl Watch {
    pub fn new(meter: Arc<Meter>, drain_window: Duration, teardown_after: Duration) -> Self {
        Watch { meter, drain_window, teardown_after, timer: Box::pin(tokio::time::sleep(Duration::ZERO)), pause: None }
    }

    /// Ready when the connection is to be closed.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Torn> {
        loop {
            if self.pause.is_none() {
                if self.meter.owing_since().is_none() {
                    // Whoever makes it owe wakes this task.
                    return Poll::Pending;
                }
                self.pause(FIRST_LOOK);
            }
            ready!(self.timer.as_mut().poll(cx));
            let now = Instant::now();
            let still = self.meter.look(now);
            let ledger = self.meter.ledger();
            if let Some(ledger) = &ledger {
                ledger.judge(now);
            }
            match still {
                None => self.pause = None,
                Some(still) if still >= self.teardown_after => {
                    if let Some(ledger) = &ledger {
                        ledger.torn_down(still);
                    }
                    self.meter.tear();
                    return Poll::Ready(Torn { still_for: still });
                }
                // It has drained since the last look.
                Some(still) if still.is_zero() => self.pause(FIRST_LOOK),
                Some(_) => {
                    let until = |limit: Duration| (self.meter.progress() + limit).saturating_duration_since(now);
                    let next = self.pause.map_or(FIRST_LOOK, |pause| pause * 2).min(self.drain_window);
                    // Neither judgement is late.
                    let due = [until(self.drain_window), until(self.teardown_after)].into_iter().filter(|d| !d.is_zero()).min();
                    self.pause(due.map_or(next, |due| due.min(next)).max(Duration::from_millis(1)));
                }
            }
        }
    }

    fn pause(&mut self, pause: Duration) {
        self.pause = Some(pause);
        self.timer.as_mut().reset(tokio::time::Instant::now() + pause);
    }
}

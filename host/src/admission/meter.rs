//! How much of what was given to a connection its client's kernel has taken.
//!
//! A body tells the meter what it gives (`give`), the socket what it wrote (`wrote`) and when everything given is written (`flushed`).
//! Only then is the place of a frame in the byte stream known, heads and chunk framing of HTTP included; so a body may give no more than
//! `AHEAD` bytes (`AHEAD_OF_ONE`, where it is one message) before it has to wait for that. A frame has drained when the bytes up to its end
//! are no longer in the kernel's queue.

use super::AHEAD;
use super::ledger::{Ledger, Permit};
use super::socket::Queue;
use std::collections::VecDeque;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// The meter of one connection.
#[derive(Debug)]
pub struct Meter {
    inner: Mutex<Inner>,
    /// Bytes of one write.
    write: AtomicUsize,
}

#[derive(Debug)]
struct Inner {
    queue: Queue,
    /// Bytes that the kernel has accepted.
    written: u64,
    /// Of these, bytes that it got rid of, when somebody last looked.
    drained: u64,
    /// Given and not known to be written.
    given: usize,
    loose: VecDeque<Permit>,
    /// Written, each with its end in the stream.
    marks: VecDeque<(u64, Permit)>,
    /// Since when it has owed anything at all.
    owing_since: Option<Instant>,
    /// When it last drained, or began to owe.
    progress: Instant,
    /// A write found no room.
    blocked: bool,
    /// The client did not read for too long: the socket is not to linger.
    torn: bool,
    /// Whose frames it carries.
    ledger: Option<Weak<Ledger>>,
    /// The body that waits for `flushed`.
    waiting: Option<Waker>,
}

impl Meter {
    pub(super) fn new(queue: Queue) -> Arc<Self> {
        let inner = Inner {
            queue,
            written: 0,
            drained: 0,
            given: 0,
            loose: VecDeque::new(),
            marks: VecDeque::new(),
            owing_since: None,
            progress: Instant::now(),
            blocked: false,
            torn: false,
            ledger: None,
            waiting: None,
        };
        Arc::new(Meter { inner: Mutex::new(inner), write: AtomicUsize::new(AHEAD) })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing panics under this lock. No ledger is called under it.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A body begins: no write is larger than `bytes` from now on, which is what a kernel may go over its mark by.
    pub fn begin(&self, bytes: usize) {
        self.write.store(bytes, Relaxed);
    }

    pub(super) fn write(&self) -> usize {
        self.write.load(Relaxed)
    }

    /// Ready when a body may give more. Otherwise it is woken when all it gave is written.
    pub fn poll_room(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut inner = self.lock();
        if inner.given < AHEAD {
            return Poll::Ready(());
        }
        inner.waiting = Some(cx.waker().clone());
        Poll::Pending
    }

    /// `bytes` of a body, and what returns when they have drained.
    pub fn give(self: &Arc<Self>, bytes: usize, permit: Option<Permit>) {
        self.give_at(bytes, permit, Instant::now());
    }

    pub(super) fn give_at(self: &Arc<Self>, bytes: usize, permit: Option<Permit>, now: Instant) {
        let ledger = permit.as_ref().map(|p| p.ledger().clone());
        let late = {
            let mut inner = self.lock();
            if inner.queue.is_closed() {
                permit
            } else {
                inner.given += bytes;
                inner.owe(now);
                if let Some(ledger) = &ledger {
                    inner.ledger = Some(Arc::downgrade(ledger));
                }
                inner.loose.extend(permit);
                None
            }
        };
        match (late, ledger) {
            (None, Some(ledger)) => ledger.carried_by(self),
            (late, _) => drop(late),
        }
    }

    /// The kernel accepted `bytes`. Answers whether the write before had found no room.
    pub(super) fn wrote(&self, bytes: usize, now: Instant) -> bool {
        let mut inner = self.lock();
        inner.written += bytes as u64;
        inner.owe(now);
        std::mem::take(&mut inner.blocked)
    }

    pub(super) fn blocked(&self) {
        self.lock().blocked = true;
    }

    /// Everything that was given is written.
    pub(super) fn flushed(&self) {
        let waiting = {
            let mut inner = self.lock();
            inner.given = 0;
            let end = inner.written;
            while let Some(permit) = inner.loose.pop_front() {
                inner.marks.push_back((end, permit));
            }
            inner.waiting.take()
        };
        if let Some(waker) = waiting {
            waker.wake();
        }
    }

    /// Asks the kernel what is left, and returns the credit of what has drained. Answers for how long nothing has; none where it owes
    /// nothing.
    pub fn look(&self, now: Instant) -> Option<Duration> {
        let (drained, done, ledger, still) = {
            let mut inner = self.lock();
            let drained = inner.look(now);
            let mut done = Vec::new();
            while inner.marks.front().is_some_and(|(end, _)| *end <= inner.drained) {
                done.extend(inner.marks.pop_front().map(|(_, permit)| permit));
            }
            let still = inner.owing_since.map(|_| now.saturating_duration_since(inner.progress));
            (drained, done, inner.ledger.clone(), still)
        };
        if drained > 0
            && let Some(ledger) = ledger.and_then(|l| l.upgrade())
        {
            ledger.drained(drained, now);
        }
        // Out of the lock: a permit calls its ledger.
        for permit in done {
            permit.settle();
        }
        still
    }

    /// Since when it has owed something without a break; none while it owes nothing.
    pub fn owing_since(&self) -> Option<Instant> {
        self.lock().owing_since
    }

    pub(super) fn progress(&self) -> Instant {
        self.lock().progress
    }

    /// Whose frames it carries now.
    pub(super) fn ledger(&self) -> Option<Arc<Ledger>> {
        self.lock().ledger.clone()?.upgrade()
    }

    pub(super) fn tear(&self) {
        self.lock().torn = true;
    }

    pub(super) fn is_torn(&self) -> bool {
        self.lock().torn
    }

    /// The socket is gone: nothing of it will drain any more.
    pub(super) fn close(&self) {
        // What has drained until now was not lost.
        self.look(Instant::now());
        let (lost, ledger) = {
            let mut inner = self.lock();
            inner.queue = Queue::Closed;
            inner.given = 0;
            inner.owing_since = None;
            let mut lost: Vec<Permit> = inner.loose.drain(..).collect();
            lost.extend(inner.marks.drain(..).map(|(_, permit)| permit));
            (lost, inner.ledger.take())
        };
        drop(lost);
        if let Some(ledger) = ledger.and_then(|l| l.upgrade()) {
            ledger.judge(Instant::now());
        }
    }
}

impl Inner {
    fn owe(&mut self, now: Instant) {
        if self.owing_since.is_none() {
            self.owing_since = Some(now);
            self.progress = now;
        }
    }

    /// Bytes that drained since the last look.
    fn look(&mut self, now: Instant) -> u64 {
        if self.owing_since.is_none() {
            return 0;
        }
        let drained = self.written.saturating_sub(self.queue.unacknowledged()).max(self.drained);
        let more = drained - self.drained;
        self.drained = drained;
        if more > 0 {
            self.progress = now;
        }
        if self.drained == self.written && self.given == 0 {
            self.owing_since = None;
        }
        more
    }
}

//! What one session is owed, and the verdict on what it asks for.
//!
//! Credit is counted in permits and released by dropping them, so that it can be neither lost nor returned twice: whatever ends a
//! frame (drained, replaced, its connection closed, its call cancelled) drops the permit.

use super::meter::Meter;
use super::reading::Entry;
use super::{Limits, Totals};
use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, oneshot};

/// The memory of the drain rate: what drained so long ago counts a third of what drains now.
const RATE_MEMORY: Duration = Duration::from_secs(5);
/// The longest time that a client is asked to wait.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// The account of one session over all its streams.
#[derive(Debug)]
pub struct Ledger {
    pub(super) limits: Limits,
    /// Stands for the session in the log.
    name: Arc<str>,
    totals: Arc<Totals>,
    state: Mutex<State>,
    /// Something was released, or the session turned half-open.
    pub(super) changed: Notify,
    /// Half of the credit waits for a proof.
    wanted: Notify,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub frames: usize,
    /// Owed to the client, and being read from backends.
    pub bytes: usize,
    /// Requests that wait for credit, in the order in which they came. Never more than `limits.frames`.
    waiting: VecDeque<Waiting>,
    next: u64,
    /// Connections that owe this session something.
    meters: Vec<Weak<Meter>>,
    /// Of `bytes`, what is being read and not owed yet.
    pub reading_bytes: usize,
    /// Messages that are being read from backends, in the order in which they began.
    pub readings: Vec<Entry>,
    last_drain: Option<Instant>,
    rate: f64,
    half_open: Option<Instant>,
    /// Only while the client is asked whether it reads.
    proof: Option<Proof>,
    refused: u64,
    dropped: u64,
}

/// What has drained, and that the client has not yet proved to have read.
#[derive(Debug, Default)]
struct Proof {
    frames: usize,
    bytes: usize,
    /// A question under way: since when, and what of the above its answer proves.
    asked: Option<(Instant, usize, usize)>,
}

#[derive(Debug)]
struct Waiting {
    id: u64,
    grant: oneshot::Sender<Permit>,
}

/// A place in the queue; leaving it gives it up.
pub(super) struct Place<'a> {
    ledger: &'a Ledger,
    id: u64,
    pub(super) grant: oneshot::Receiver<Permit>,
}

/// Frames and bytes of a session's credit. Dropping it returns them.
#[derive(Debug)]
#[must_use = "the credit returns when this is dropped"]
pub struct Permit {
    ledger: Arc<Ledger>,
    frames: usize,
    bytes: usize,
}

/// Why a request was not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// No credit, and nothing drains.
    HalfOpen,
    /// No credit; it drains, but none came free in time.
    Slow,
}

/// A request that was not admitted. Nothing was run.
#[derive(Clone, Debug)]
pub struct Refused {
    pub reason: Reason,
    /// When it is worth trying again.
    pub retry_after: Duration,
    pub standing: Standing,
}

/// How a session stands.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Standing {
    /// Frames that may still be admitted; 0 where the bytes are used up.
    pub credit: usize,
    pub owed_frames: usize,
    pub owed_bytes: usize,
    /// Bytes a second, lately.
    pub drain_rate: f64,
    pub half_open_for: Option<Duration>,
    /// Requests that wait for credit.
    pub waiting: usize,
    /// Requests refused so far.
    pub refused: u64,
    /// Messages of backends dropped so far, because there was no credit for them.
    pub dropped: u64,
}

impl Reason {
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::HalfOpen => "half_open",
            Reason::Slow => "slow",
        }
    }
}

impl State {
    /// Frames that may still be admitted.
    pub(super) fn credit(&self, limits: &Limits) -> usize {
        if self.bytes >= limits.bytes { 0 } else { limits.frames.saturating_sub(self.frames) }
    }

    fn rate(&self, now: Instant) -> f64 {
        self.last_drain.map_or(0.0, |last| {
            let age = now.saturating_duration_since(last).as_secs_f64() / RATE_MEMORY.as_secs_f64();
            self.rate * (-age).exp()
        })
    }
}

// === impl Ledger ===

impl Ledger {
    /// `name` stands for the session in the log.
    pub fn new(limits: Limits, name: Arc<str>, totals: Arc<Totals>) -> Arc<Self> {
        Arc::new(Ledger { limits, name, totals, state: Mutex::default(), changed: Notify::new(), wanted: Notify::new() })
    }

    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics under this lock; a poisoned value would still be whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The verdict on a request: one frame of credit, or a refusal. Waits up to `patience`, in the order of arrival, where the credit is
    /// used up and the session reads. Dropping the future gives the place up.
    pub async fn admit(self: &Arc<Self>) -> Result<Permit, Refused> {
        if let Some(permit) = self.try_admit() {
            return Ok(permit);
        }
        // What has drained since somebody looked?
        self.look(Instant::now());
        let mut place = match self.enter(Instant::now())? {
            Ok(permit) => return Ok(permit),
            Err(place) => place,
        };
        if let Ok(Ok(permit)) = tokio::time::timeout(self.limits.patience, &mut place.grant).await {
            return Ok(permit);
        }
        let now = Instant::now();
        self.look(now);
        if let Ok(permit) = place.grant.try_recv() {
            return Ok(permit);
        }
        drop(place);
        Err(self.refuse(now))
    }

    /// A number that is larger than all before.
    pub(super) fn next(&self) -> u64 {
        let mut state = self.lock();
        state.next += 1;
        state.next
    }

    /// One frame, where there is credit and nobody waits for it.
    pub fn try_admit(self: &Arc<Self>) -> Option<Permit> {
        let mut state = self.lock();
        (state.credit(&self.limits) > 0 && state.waiting.is_empty()).then(|| self.take(&mut state, 1, 0))
    }

    /// Admitted, or a place in the queue, or refused.
    pub(super) fn enter(self: &Arc<Self>, now: Instant) -> Result<Result<Permit, Place<'_>>, Refused> {
        let mut state = self.lock();
        if state.waiting.is_empty() && state.credit(&self.limits) > 0 {
            return Ok(Ok(self.take(&mut state, 1, 0)));
        }
        if state.half_open.is_some() || state.waiting.len() >= self.limits.frames {
            drop(state);
            return Err(self.refuse(now));
        }
        let (grant, receiver) = oneshot::channel();
        state.next += 1;
        let id = state.next;
        state.waiting.push_back(Waiting { id, grant });
        Ok(Err(Place { ledger: self, id, grant: receiver }))
    }

    fn refuse(&self, now: Instant) -> Refused {
        let mut state = self.lock();
        state.refused += 1;
        let reason = if state.half_open.is_some() { Reason::HalfOpen } else { Reason::Slow };
        let standing = self.standing_of(&state, now);
        Refused { reason, retry_after: self.retry_after(&standing), standing }
    }

    /// When there should be credit again, by the session's own rate; for one that does not read, when it may have come back or its stream
    /// is closed at the latest.
    pub(super) fn retry_after(&self, standing: &Standing) -> Duration {
        let wait = match standing.half_open_for {
            Some(stalled) => self.limits.teardown_after.saturating_sub(stalled).min(self.limits.drain_window),
            None if standing.drain_rate >= 1.0 => {
                let over = standing.owed_bytes.saturating_sub(self.limits.bytes).saturating_add(1);
                let frame = standing.owed_bytes / standing.owed_frames.max(1);
                Duration::try_from_secs_f64(over.max(frame) as f64 / standing.drain_rate).unwrap_or(LONGEST_WAIT)
            }
            None => Duration::ZERO,
        };
        // In a drain window at the latest it is known whether it reads, and how fast: the rate of a session that had little to read says less.
        wait.clamp(Duration::from_secs(1), self.limits.drain_window.clamp(Duration::from_secs(1), LONGEST_WAIT))
    }

    /// Owes a frame whatever the credit: for answers, and what is bounded in another way.
    pub fn owe(self: &Arc<Self>, bytes: usize) -> Permit {
        self.take(&mut self.lock(), 1, bytes)
    }

    /// Owes a frame where there is credit for it.
    pub fn try_owe(self: &Arc<Self>, bytes: usize) -> Option<Permit> {
        let mut state = self.lock();
        (state.credit(&self.limits) > 0).then(|| self.take(&mut state, 1, bytes))
    }

    fn take(self: &Arc<Self>, state: &mut State, frames: usize, bytes: usize) -> Permit {
        state.frames += frames;
        state.bytes += bytes;
        self.totals.owed_frames.fetch_add(signed(frames), Relaxed);
        self.totals.owed_bytes.fetch_add(signed(bytes), Relaxed);
        Permit { ledger: self.clone(), frames, bytes }
    }

    pub(super) fn add_bytes(&self, state: &mut State, bytes: usize) {
        state.bytes += bytes;
        self.totals.owed_bytes.fetch_add(signed(bytes), Relaxed);
    }

    pub(super) fn sub_bytes(&self, state: &mut State, bytes: usize) {
        debug_assert!(state.bytes >= bytes, "bytes were returned twice");
        state.bytes = state.bytes.saturating_sub(bytes);
        self.totals.owed_bytes.fetch_sub(signed(bytes), Relaxed);
    }

    fn release(self: &Arc<Self>, frames: usize, bytes: usize) {
        let mut state = self.lock();
        debug_assert!(state.frames >= frames, "frames were returned twice");
        state.frames = state.frames.saturating_sub(frames);
        self.totals.owed_frames.fetch_sub(signed(frames), Relaxed);
        self.sub_bytes(&mut state, bytes);
        self.grant(state);
    }

    /// Hands credit to those that wait, and wakes whoever waits for room.
    pub(super) fn grant(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        let mut unclaimed = Vec::new();
        while state.credit(&self.limits) > 0
            && let Some(next) = state.waiting.pop_front()
        {
            let permit = self.take(&mut state, 1, 0);
            // Somebody who has just left: the frame goes to the next one.
            unclaimed.extend(next.grant.send(permit).err());
        }
        drop(state);
        drop(unclaimed);
        self.changed.notify_waiters();
    }

    // --- draining

    /// A connection owes this session something from now on.
    pub(super) fn carried_by(&self, meter: &Arc<Meter>) {
        let mut state = self.lock();
        if !state.meters.iter().any(|known| std::ptr::eq(known.as_ptr(), Arc::as_ptr(meter))) {
            state.meters.push(Arc::downgrade(meter));
        }
    }

    pub(super) fn drained(&self, bytes: u64, now: Instant) {
        let mut state = self.lock();
        state.rate = state.rate(now) + bytes as f64 / RATE_MEMORY.as_secs_f64();
        state.last_drain = Some(state.last_drain.map_or(now, |last| last.max(now)));
    }

    /// Takes the permit of what has drained: its credit returns, now or when the client has proved that it reads.
    pub(super) fn settle(&self, mut permit: Permit) {
        let mut state = self.lock();
        let Some(proof) = &mut state.proof else {
            drop(state);
            drop(permit);
            return;
        };
        proof.frames += std::mem::take(&mut permit.frames);
        proof.bytes += std::mem::take(&mut permit.bytes);
        if proof.frames * 2 >= self.limits.frames || proof.bytes * 2 >= self.limits.bytes {
            drop(state);
            self.wanted.notify_one();
        }
    }

    /// The client is asked whether it reads. From now on what drains stays owed until it has answered.
    pub fn ask_proof(&self, now: Instant) {
        let mut state = self.lock();
        let proof = state.proof.get_or_insert_default();
        proof.asked = Some((now, proof.frames, proof.bytes));
    }

    /// It has answered: what had drained before it was asked has been read.
    pub fn proved(self: &Arc<Self>, now: Instant) {
        {
            let mut state = self.lock();
            let Some((proof, (_, frames, bytes))) = state.proof.as_mut().and_then(|p| p.asked.take().map(|a| (p, a))) else { return };
            proof.frames -= frames;
            proof.bytes -= bytes;
            state.last_drain = Some(now);
            drop(state);
            self.release(frames, bytes);
        }
        self.judge(now);
    }

    /// Nobody is asked any more: what has drained counts as read.
    pub fn stop_proving(self: &Arc<Self>, now: Instant) {
        let proof = self.lock().proof.take();
        if let Some(proof) = proof {
            self.release(proof.frames, proof.bytes);
            self.judge(now);
        }
    }

    /// Waits until half of the credit waits for a proof.
    pub async fn wants_proof(&self) {
        self.wanted.notified().await;
    }

    /// Waits until no question is under way.
    pub async fn is_proved(&self) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if self.lock().proof.as_ref().is_none_or(|p| p.asked.is_none()) {
                return;
            }
            changed.await;
        }
    }

    /// Looks at every connection that owes this session something, and judges.
    pub fn look(&self, now: Instant) {
        let meters: Vec<Arc<Meter>> = self.lock().meters.iter().filter_map(Weak::upgrade).collect();
        for meter in meters {
            meter.look(now);
        }
        self.judge(now);
    }

    /// Whether the session is half-open: something is owed and nothing has drained for `drain_window`, on none of its streams.
    pub fn judge(&self, now: Instant) {
        let mut state = self.lock();
        let mut owing: Option<Instant> = None;
        // A meter never takes this lock while it holds its own. What is looked at here is let go of when the lock is.
        let mut seen = Vec::with_capacity(state.meters.len());
        state.meters.retain(|meter| {
            let meter = meter.upgrade();
            let since = meter.as_ref().and_then(|m| m.owing_since());
            seen.extend(meter);
            owing = match (owing, since) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
            since.is_some()
        });
        let still = owing.map(|since| state.last_drain.map_or(since, |last| last.max(since)));
        let unproved = state.proof.as_ref().and_then(|p| p.asked).map(|(since, ..)| since);
        let late = |since: &Instant| now.saturating_duration_since(*since) >= self.limits.drain_window;
        let half_open = still.filter(late).or(unproved.filter(late));
        match (state.half_open, half_open) {
            (None, Some(since)) => {
                state.half_open = Some(since);
                self.totals.half_open.fetch_add(1, Relaxed);
                let (frames, bytes) = (state.frames, state.bytes);
                drop(state);
                tracing::warn!(session = %self.name, owed_frames = frames, owed_bytes = bytes, still_for = ?now.saturating_duration_since(since), "a client has stopped reading: its session is half-open");
                // Who waits for it to read need not.
                self.changed.notify_waiters();
            }
            (Some(since), None) => {
                state.half_open = None;
                self.totals.half_open.fetch_sub(1, Relaxed);
                let reads = state.last_drain.is_some_and(|last| last > since);
                drop(state);
                let after = now.saturating_duration_since(since);
                if reads {
                    tracing::info!(session = %self.name, ?after, "a client reads again: its session is no longer half-open");
                } else {
                    tracing::info!(session = %self.name, ?after, "the unread streams of a session are closed: it is no longer half-open");
                }
            }
            _ => {}
        }
    }

    /// Wakes when something was released, or the session turned half-open.
    pub fn changed(&self) -> &Notify {
        &self.changed
    }

    /// Frames that may still be admitted or owed.
    pub fn credit(&self) -> usize {
        self.lock().credit(&self.limits)
    }

    pub fn is_half_open(&self) -> bool {
        self.lock().half_open.is_some()
    }

    /// A stream was closed because it was half-open for too long.
    pub fn torn_down(&self, still_for: Duration) {
        self.totals.torn_down.fetch_add(1, Relaxed);
        tracing::warn!(session = %self.name, ?still_for, "a stream that its client does not read was closed; the session goes on");
    }

    /// A message of a backend was dropped.
    pub fn count_dropped(&self) {
        self.lock().dropped += 1;
    }

    // --- looking

    /// How the session stands now.
    pub fn standing(&self) -> Standing {
        let now = Instant::now();
        self.look(now);
        let state = self.lock();
        self.standing_of(&state, now)
    }

    pub(super) fn standing_of(&self, state: &State, now: Instant) -> Standing {
        Standing {
            credit: state.credit(&self.limits),
            owed_frames: state.frames,
            owed_bytes: state.bytes,
            drain_rate: state.rate(now),
            half_open_for: state.half_open.map(|since| now.saturating_duration_since(since)),
            waiting: state.waiting.len(),
            refused: state.refused,
            dropped: state.dropped,
        }
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        // Every permit holds the ledger, so nothing is owed any more but what waits for a proof that cannot come.
        if let Some(proof) = state.proof.take() {
            state.frames -= proof.frames;
            state.bytes -= proof.bytes;
            self.totals.owed_frames.fetch_sub(signed(proof.frames), Relaxed);
            self.totals.owed_bytes.fetch_sub(signed(proof.bytes), Relaxed);
        }
        debug_assert!(state.frames == 0 && state.bytes == 0);
        if state.half_open.is_some() {
            self.totals.half_open.fetch_sub(1, Relaxed);
        }
    }
}

// === impl Place ===

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.ledger.lock().waiting.retain(|w| w.id != self.id);
    }
}

// === impl Permit ===

impl Permit {
    pub(super) fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }

    /// What it stands for has drained.
    pub(super) fn settle(self) {
        let ledger = self.ledger.clone();
        ledger.settle(self);
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn frames(&self) -> usize {
        self.frames
    }

    /// Makes the bytes that it stands for `bytes`.
    pub fn set_bytes(&mut self, bytes: usize) {
        match bytes.checked_sub(self.bytes) {
            Some(more) => self.ledger.add_bytes(&mut self.ledger.lock(), more),
            None => self.ledger.release(0, self.bytes - bytes),
        }
        self.bytes = bytes;
    }

    /// Takes up to `bytes` out of it, without its frames.
    pub fn split(&mut self, bytes: usize) -> Permit {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Permit { ledger: self.ledger.clone(), frames: 0, bytes }
    }

    /// One permit for both. They must be of one ledger, or the other is kept apart: it is handed back.
    pub fn join(&mut self, other: Permit) -> Option<Permit> {
        if !Arc::ptr_eq(&self.ledger, &other.ledger) {
            return Some(other);
        }
        let mut other = other;
        self.frames += std::mem::take(&mut other.frames);
        self.bytes += std::mem::take(&mut other.bytes);
        None
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.frames > 0 || self.bytes > 0 {
            self.ledger.release(self.frames, self.bytes);
        }
    }
}

fn signed(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

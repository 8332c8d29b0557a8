//! One call in flight: its events, its clock, its end.
//!
//! Over HTTP the exchange runs inside of `Call::next`: nothing is read from the backend that nobody asked for. On a pipe a small
//! channel stands between.

use super::error::BackendError;
use super::handshake;
use super::inner::{Inner, lock};
use super::link::Link;
use super::pipe::Registered;
use super::restore::Memo;
use super::waits::Waits;
use super::{CallEvent, CallId};
use crate::protocol::{Response, method};
use serde_json::value::RawValue;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep};
use tokio_util::sync::WaitForCancellationFuture;

/// How long the notice of a cancellation may take.
const NOTICE: Duration = Duration::from_secs(5);

/// A call in flight. Dropping it forgets the call: its connection is closed and what still comes for it is dropped, but the server
/// is not told (legacy MCP: a disconnect is not a cancellation).
pub struct Call {
    id: CallId,
    inner: Arc<Inner>,
    link: Arc<Link>,
    way: Way,
    /// Progress that came on another stream.
    aside: Option<mpsc::Receiver<CallEvent>>,
    clock: Clock,
    waits: Arc<Waits>,
    /// What a success changes for the next connection.
    memo: Option<Memo>,
    done: bool,
}

/// What a call begins with.
pub(super) struct Start {
    pub link: Arc<Link>,
    pub id: CallId,
    pub way: Way,
    pub aside: Option<mpsc::Receiver<CallEvent>>,
    pub memo: Option<Memo>,
}

pub(super) enum Way {
    Http { exchange: Pin<Box<dyn Future<Output = Result<Response, BackendError>> + Send>>, slot: Slot },
    Pipe(Registered),
    Over,
}

impl Call {
    pub(super) fn new(inner: Arc<Inner>, start: Start, deadline: Instant, limit: Duration) -> Call {
        let Start { link, id, way, aside, memo } = start;
        Call { id, inner, link, way, aside, clock: Clock { limit, deadline, given: None }, waits: Arc::default(), memo, done: false }
    }

    /// The id of the request on the upstream hop; also its progress token.
    pub fn id(&self) -> CallId {
        self.id
    }

    /// The next event. The last one is `Answer`, `Flow` or `Failed`; after it there is only `Failed(Closed)`. Cancel-safe.
    ///
    /// Over HTTP the request leaves when this is first polled.
    pub async fn next(&mut self) -> CallEvent {
        self.clock.asked();
        let inner = self.inner.clone();
        let mut stopped = pin!(inner.stop.cancelled());
        let mut late = pin!(tokio::time::sleep_until(self.clock.deadline));
        poll_fn(|cx| self.poll_next(cx, stopped.as_mut(), late.as_mut())).await
    }

    /// Tells the server that the answer is no longer wanted, and ends the exchange. `reason` is the client's own JSON text.
    /// Bounded; errors do not matter to anybody.
    pub async fn cancel(mut self, reason: Option<&RawValue>) {
        self.send_cancelled(reason.map(RawValue::get)).await;
        self.done = true;
    }

    async fn send_cancelled(&mut self, reason: Option<&str>) {
        if self.done || !self.way.sent() {
            return;
        }
        let notice = handshake::cancelled(self.way.id().unwrap_or(self.id), reason);
        let _ = tokio::time::timeout(NOTICE, self.link.send(&self.inner, &notice)).await;
    }

    fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
        stopped: Pin<&mut WaitForCancellationFuture<'_>>,
        late: Pin<&mut Sleep>,
    ) -> Poll<CallEvent> {
        if self.done {
            return Poll::Ready(CallEvent::Failed(BackendError::Closed));
        }
        if let Some(aside) = &mut self.aside
            && let Poll::Ready(Some(event)) = aside.poll_recv(cx)
        {
            return Poll::Ready(self.hand_out(event));
        }
        if let Poll::Ready(event) = self.way.poll(cx, &self.inner) {
            return Poll::Ready(self.hand_out(event));
        }
        if stopped.poll(cx).is_ready() {
            return Poll::Ready(self.hand_out(CallEvent::Failed(BackendError::Closed)));
        }
        if self.clock.poll(cx, late, &self.waits).is_ready() {
            let failed = CallEvent::Failed(self.late());
            return Poll::Ready(self.hand_out(failed));
        }
        Poll::Pending
    }

    /// The clock has run out.
    fn late(&self) -> BackendError {
        if !self.way.sent() {
            return self.inner.unavailable(format!("it could not be given the request within {:?}", self.clock.limit), None);
        }
        // The server is told that nobody waits any more (2025-11-25 lifecycle, "Timeouts").
        let (inner, link, notice) = (self.inner.clone(), self.link.clone(), handshake::cancelled(self.way.id().unwrap_or(self.id), None));
        self.inner.spawn(async move {
            let _ = tokio::time::timeout(NOTICE, link.send(&inner, &notice)).await;
        });
        BackendError::Timeout { backend: self.inner.backend.name.clone(), limit: self.clock.limit }
    }

    fn hand_out(&mut self, event: CallEvent) -> CallEvent {
        match &event {
            CallEvent::Answer(response) => {
                if response.ok
                    && let Some(memo) = self.memo.take()
                {
                    self.inner.restore.change(|restore| restore.keep(memo));
                }
                self.end();
            }
            // It changes nothing at the server: those that do have small answers, and are read whole.
            CallEvent::Flow(_) | CallEvent::Failed(_) => self.end(),
            CallEvent::Request(request) => {
                self.inner.questions.asked(&request.id, &self.waits);
                self.clock.handed_out();
            }
            CallEvent::Notification(note) if &*note.method == method::CANCELLED => {
                if let Ok(Some(id)) = note.token_param(&["requestId"]) {
                    self.inner.questions.answered(&id.value);
                }
                self.clock.handed_out();
            }
            _ => self.clock.handed_out(),
        }
        event
    }

    fn end(&mut self) {
        self.done = true;
        self.way = Way::Over;
        if self.aside.take().is_some() {
            self.inner.tokens.look(|tokens| tokens.remove(&self.id));
        }
        self.inner.questions.forget(&self.waits);
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if !self.done || self.aside.is_some() {
            self.end();
        }
    }
}

impl Way {
    fn sent(&self) -> bool {
        match self {
            Way::Http { slot, .. } => slot.sent(),
            Way::Pipe(registered) => registered.written(),
            Way::Over => false,
        }
    }

    /// The id of the request that is under way now, where it is not the call's first.
    fn id(&self) -> Option<u64> {
        match self {
            Way::Http { slot, .. } => slot.id(),
            Way::Pipe(_) | Way::Over => None,
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>, inner: &Arc<Inner>) -> Poll<CallEvent> {
        match self {
            Way::Http { exchange, slot } => {
                let end = exchange.as_mut().poll(cx);
                if let Some(event) = slot.take() {
                    debug_assert!(end.is_pending(), "an exchange ends after its events were taken");
                    return Poll::Ready(event);
                }
                end.map(|end| end.map_or_else(CallEvent::Failed, CallEvent::Answer))
            }
            Way::Pipe(registered) => registered.poll(cx, inner),
            Way::Over => Poll::Pending,
        }
    }
}

/// Where an exchange leaves its event: it goes on when the event was taken.
#[derive(Clone, Default)]
pub struct Slot(Arc<SlotState>);

#[derive(Default)]
struct SlotState {
    event: Mutex<Option<CallEvent>>,
    sent: AtomicBool,
    /// A call in rounds: the id of the present request, and whether it was written.
    round: Mutex<Option<(u64, Arc<AtomicBool>)>>,
}

impl Slot {
    /// Hands out one event. Resolves when it was taken.
    pub async fn emit(&self, event: CallEvent) {
        *lock(&self.0.event) = Some(event);
        // No waker is kept: the exchange is polled again by the same `next` that takes the event.
        poll_fn(|_| if lock(&self.0.event).is_none() { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    /// Whether the server may have the request.
    pub fn set_sent(&self, sent: bool) {
        self.0.sent.store(sent, Ordering::Relaxed);
    }

    /// A round of the call begins, under this id; `written` is set when the server may have it.
    pub fn begin(&self, id: u64, written: Arc<AtomicBool>) {
        *lock(&self.0.round) = Some((id, written));
    }

    /// It is over: the server has no request of this call now.
    pub fn finish(&self) {
        *lock(&self.0.round) = None;
    }

    fn id(&self) -> Option<u64> {
        lock(&self.0.round).as_ref().map(|(id, _)| *id)
    }

    fn sent(&self) -> bool {
        let round = lock(&self.0.round).as_ref().map(|(_, written)| written.load(Ordering::Relaxed));
        round.unwrap_or_else(|| self.0.sent.load(Ordering::Relaxed))
    }

    fn take(&self) -> Option<CallEvent> {
        lock(&self.0.event).take()
    }
}

/// Counts the time that the backend takes. The time that the caller takes between two events does not count, nor the time in which
/// a question of the server waits for the client.
struct Clock {
    limit: Duration,
    deadline: Instant,
    /// When the caller got the last event, until it asks for the next one.
    given: Option<Instant>,
}

impl Clock {
    fn handed_out(&mut self) {
        self.given = Some(Instant::now());
    }

    fn asked(&mut self) {
        if let Some(given) = self.given.take() {
            self.put_off(given.elapsed());
        }
    }

    fn put_off(&mut self, by: Duration) {
        if let Some(deadline) = self.deadline.checked_add(by) {
            self.deadline = deadline;
        }
    }

    /// `sleep`: to the deadline, and put off with it.
    fn poll(&mut self, cx: &mut Context<'_>, mut sleep: Pin<&mut Sleep>, waits: &Waits) -> Poll<()> {
        while sleep.as_mut().poll(cx).is_ready() {
            let waited = waits.claim();
            if waited.is_zero() {
                return Poll::Ready(());
            }
            self.put_off(waited);
            sleep.as_mut().reset(self.deadline);
        }
        Poll::Pending
    }
}

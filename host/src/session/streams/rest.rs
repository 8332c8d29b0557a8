//! An answer that is given to its reader while it is still being read from its backend.
//!
//! Only a reader that says so gets one, as the only thing on its stream: it is not kept for replay, since nothing is kept of what has
//! passed. Who gives it can end it at any time; then the reader gets an error in place of the rest, so that it cannot be taken for whole.

use super::{Inner, Noted, Queued, Reader, StreamId, Streams};
use crate::admission::Permit;
use crate::protocol::Wire;
use futures_util::Stream;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

/// How a stream stands to answers of this kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Flowing {
    /// Its reader wants messages that are whole.
    #[default]
    Never,
    /// Its reader takes one.
    Possible,
    /// One is on its way, or the whole answer in its place.
    Promised,
}

/// The answer does not go on. Why is known to who gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the answer broke off")]
pub struct Cut;

type Source = Pin<Box<dyn Stream<Item = Result<Wire, Cut>> + Send>>;

/// The reading end of such an answer. Dropping it drops the source.
pub struct Rest {
    shared: Arc<Mutex<Shared>>,
    /// Bytes that it has, where that is known.
    pub length: Option<u64>,
}

/// Ends it from the other side.
pub struct Cutter(Arc<Mutex<Shared>>);

struct Shared {
    source: Option<Source>,
    waiting: Option<Waker>,
}

impl Rest {
    /// `source`: what comes, in order. Its end is the end of the answer; nothing is asked of it after an error.
    pub fn new(source: impl Stream<Item = Result<Wire, Cut>> + Send + 'static, length: Option<u64>) -> (Rest, Cutter) {
        let shared = Arc::new(Mutex::new(Shared { source: Some(Box::pin(source)), waiting: None }));
        (Rest { shared: shared.clone(), length }, Cutter(shared))
    }

    /// The next part.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Wire, Cut>>> {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(source) = &mut shared.source else { return Poll::Ready(Some(Err(Cut))) };
        let next = source.as_mut().poll_next(cx);
        if next.is_pending() {
            shared.waiting = Some(cx.waker().clone());
        }
        next
    }
}

impl Drop for Rest {
    fn drop(&mut self) {
        let source = self.shared.lock().unwrap_or_else(PoisonError::into_inner).source.take();
        drop(source);
    }
}

impl fmt::Debug for Rest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rest").field("length", &self.length).finish_non_exhaustive()
    }
}

impl Cutter {
    /// Drops the source, whether its reader reads or not.
    pub fn cut(&self) {
        let (source, waiting) = {
            let mut shared = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            (shared.source.take(), shared.waiting.take())
        };
        drop(source);
        if let Some(waiting) = waiting {
            waiting.wake();
        }
    }
}

impl Streams {
    /// Whether the reader of this stream would take an answer that flows, as far as is known now.
    pub fn would_flow(&self, id: StreamId) -> bool {
        self.lock().flows(id)
    }

    /// Whether it does. From now on it waits for the answer: that one, or a whole one if it comes to nothing.
    pub fn promise_flow(&self, id: StreamId) -> bool {
        let mut inner = self.lock();
        let flows = inner.flows(id);
        if flows && let Some(stream) = inner.streams.get_mut(id) {
            stream.flowing = Flowing::Promised;
        }
        flows
    }

    /// Queues an answer that was promised, as `answer` does with a whole one.
    pub fn answer_flowing(&self, id: StreamId, rest: Rest, permit: Option<Permit>) -> Noted {
        let mut inner = self.lock();
        if inner.writable(id).is_none() {
            return Noted::Gone;
        }
        let permit = permit.unwrap_or_else(|| self.ledger.owe(0));
        inner.append(id, Queued { rest: Some(rest), last: true, permit: Some(permit), ..Queued::default() }, &self.limits);
        Noted::Queued
    }
}

impl Inner {
    fn flows(&self, id: StreamId) -> bool {
        let alone = |s: &super::Stream| s.reader.is_some() && !s.resumable && s.missed == 0 && s.unread().next().is_none();
        self.streams.get(id).is_some_and(|s| s.flowing == Flowing::Possible && s.finished.is_none() && alone(s))
    }
}

impl Reader {
    /// It takes the answer while that is still being read, if nothing comes before it.
    pub fn take_flow(&self) {
        if let Some(stream) = self.streams.lock().streams.get_mut(self.stream) {
            stream.flowing = Flowing::Possible;
        }
    }

    /// It takes none any more. True: one is promised already, so the answer has to be waited for, and nothing before it matters.
    pub fn is_promised(&self) -> bool {
        let mut inner = self.streams.lock();
        let Some(stream) = inner.streams.get_mut(self.stream) else { return false };
        let promised = stream.flowing == Flowing::Promised;
        if !promised {
            stream.flowing = Flowing::Never;
        }
        promised
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use futures_util::{FutureExt, stream};
    use std::future::poll_fn;

    fn wire(text: &'static str) -> Wire {
        Bytes::from_static(text.as_bytes()).into()
    }

    #[tokio::test]
    async fn a_source_that_is_cut_is_dropped_at_once_and_never_looks_like_its_end() {
        let alive = Arc::new(());
        let held = alive.clone();
        let source = stream::unfold(held, |held| async move { Some((Ok(wire("x")), held)) });
        let (mut rest, cutter) = Rest::new(source, None);
        assert_eq!(poll_fn(|cx| rest.poll_next(cx)).await, Some(Ok(wire("x"))));
        cutter.cut();
        assert_eq!(Arc::strong_count(&alive), 1);
        assert_eq!(poll_fn(|cx| rest.poll_next(cx)).await, Some(Err(Cut)));
    }

    #[tokio::test]
    async fn who_waits_for_more_hears_that_it_is_cut() {
        let (mut rest, cutter) = Rest::new(stream::pending(), Some(1));
        let mut next = Box::pin(poll_fn(move |cx| rest.poll_next(cx)));
        assert!(next.as_mut().now_or_never().is_none());
        let waits = tokio::spawn(next);
        tokio::task::yield_now().await;
        cutter.cut();
        assert_eq!(waits.await.unwrap(), Some(Err(Cut)));
    }
}

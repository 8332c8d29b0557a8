//! Bodies: reading a request's within its limit and deadline, and the forms that a response's can have.
//!
//! A response body is nothing, a whole message of known length, an answer that is still being read (`flow`), or a stream of events. None
//! copies what is large: the parts of a message go to the socket as they are, only small ones are put together.

use super::flow::Flowing;
use super::refused::Refused;
use crate::admission::{AHEAD, AHEAD_OF_ONE, Meter, Permit};
use crate::protocol::Wire;
use crate::session::streams::{Cut, Reader, Rest};
use bytes::{Bytes, BytesMut};
use futures_util::Stream;
use http::{HeaderMap, header};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// How long a request body may take.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// A body that says nothing for so long is given up.
    pub silence: Duration,
    /// A body that is not complete by then is given up, however steadily it trickles.
    pub whole: Duration,
}

pub const PACE: Pace = Pace { silence: Duration::from_secs(15), whole: Duration::from_secs(120) };

/// How long what follows an oversized body is thrown away, so that a client that writes before it reads still gets the answer.
const DISCARD: Duration = Duration::from_secs(3);
const DISCARD_SILENCE: Duration = Duration::from_millis(250);

/// Reads a whole request body of at most `limit` bytes. A body that is cut, too large or too slow gives an error: nothing may be run.
pub async fn read<B>(body: B, headers: &HeaderMap, limit: usize, pace: Pace) -> Result<Bytes, Refused>
where
    B: http_body::Body<Data = Bytes> + Send,
{
    let mut body = std::pin::pin!(body);
    let declared = body.size_hint().exact().map_or(0, |n| usize::try_from(n).unwrap_or(usize::MAX));
    if declared > limit {
        // A client that asked first (RFC 9110, 10.1.1) has sent nothing yet, and need not.
        if !headers.contains_key(header::EXPECT) {
            discard(body.as_mut(), limit).await;
        }
        return Err(Refused::BodyTooLarge { limit });
    }
    // From the first wait on.
    let mut end = None;
    let mut first = Bytes::new();
    let mut all = BytesMut::new();
    loop {
        // What has come with the head needs no clock.
        let there = poll_fn(|cx| Poll::Ready(body.as_mut().poll_frame(cx).map(|frame| frame.map(Result::ok)))).await;
        let frame = match there {
            Poll::Ready(frame) => frame,
            Poll::Pending => {
                let now = Instant::now();
                let end = *end.get_or_insert(now + pace.whole);
                match timeout_at(end.min(now + pace.silence), body.frame()).await {
                    Err(_) => return Err(Refused::BodySlow(pace)),
                    Ok(frame) => frame.map(Result::ok),
                }
            }
        };
        let Some(frame) = frame else { break };
        let frame = frame.ok_or(Refused::BodyCut)?;
        let Ok(data) = frame.into_data() else { continue };
        if first.len() + all.len() + data.len() > limit {
            discard(body.as_mut(), limit).await;
            return Err(Refused::BodyTooLarge { limit });
        }
        if first.is_empty() && all.is_empty() {
            // The usual body is one chunk, and is not copied.
            first = data;
            continue;
        }
        if !first.is_empty() {
            // The declared length is the client's word: believed as far as it costs little.
            all.reserve(declared.min(1 << 20).max(first.len() + data.len()));
            all.extend_from_slice(&std::mem::take(&mut first));
        }
        all.extend_from_slice(&data);
    }
    Ok(if all.is_empty() { first } else { all.freeze() })
}

/// Throws away up to `limit` bytes more. A socket that is closed with unread data resets, and the answer would be lost with it.
pub async fn discard<B>(mut body: Pin<&mut B>, limit: usize)
where
    B: http_body::Body<Data = Bytes>,
{
    let end = Instant::now() + DISCARD;
    let mut left = limit.saturating_add(1 << 20);
    // A client that is silent has written what it wanted to, and waits for the answer.
    while let Ok(Some(Ok(frame))) = timeout_at(end.min(Instant::now() + DISCARD_SILENCE), body.frame()).await {
        left = match left.checked_sub(frame.data_ref().map_or(0, Bytes::len)) {
            Some(left) => left,
            None => return,
        };
    }
}

/// What a response says. Gives its connection no more than that can write, and returns the credit of what it gave when that has
/// drained.
pub struct Body {
    form: Form,
    meter: Option<Arc<Meter>>,
}

enum Form {
    Empty,
    /// A message whose length is known.
    Whole(Parts),
    /// An answer that is still being read.
    Flow(Box<Flowing>),
    /// Events, as they come.
    Events(Events),
}

/// Bytes of an event, and the credit that they hold.
pub struct Event {
    pub wire: Wire,
    pub permit: Option<Permit>,
}

/// Buffers in order.
#[derive(Default)]
pub struct Parts {
    queue: VecDeque<Bytes>,
    left: u64,
    permit: Option<Permit>,
    /// Bytes of one piece.
    most: usize,
}

/// A stream of encoded events.
pub struct Events {
    stream: Pin<Box<dyn Stream<Item = Event> + Send>>,
    parts: Parts,
}

// === impl Body ===

impl Body {
    pub fn empty() -> Self {
        Body { form: Form::Empty, meter: None }
    }

    /// One message, and its credit.
    pub fn whole(wire: Wire, permit: Option<Permit>) -> Self {
        Body { form: Form::Whole(Parts::new(wire, permit, AHEAD_OF_ONE)), meter: None }
    }

    /// An answer that is still being read, and the credit for its frame. `reader`: of its stream.
    pub fn flow(rest: Rest, permit: Option<Permit>, reader: Reader) -> Self {
        Body { form: Form::Flow(Box::new(Flowing::new(rest, permit, reader))), meter: None }
    }

    pub fn events(stream: impl Stream<Item = Event> + Send + 'static) -> Self {
        Body { form: Form::Events(Events { stream: Box::pin(stream), parts: Parts::default() }), meter: None }
    }

    /// Which connection carries it. Without one, what is handed out counts as drained.
    pub(super) fn carried_by(&mut self, meter: Arc<Meter>) {
        meter.begin(if matches!(self.form, Form::Events(_)) { AHEAD } else { AHEAD_OF_ONE });
        self.meter = Some(meter);
    }
}

impl From<Wire> for Event {
    fn from(wire: Wire) -> Self {
        Event { wire, permit: None }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        let body = self.get_mut();
        if let Some(meter) = &body.meter {
            ready!(meter.poll_room(cx));
        }
        let next = match &mut body.form {
            Form::Empty => None,
            Form::Whole(parts) => parts.next(),
            Form::Flow(flow) => ready!(flow.poll_next(cx)).transpose()?,
            Form::Events(events) => ready!(events.poll_next(cx)),
        };
        let Some((part, permit)) = next else { return Poll::Ready(None) };
        if let Some(meter) = &body.meter {
            meter.give(part.len(), permit);
        }
        if part.is_empty() {
            return Poll::Ready(None);
        }
        Poll::Ready(Some(Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.form {
            Form::Empty => true,
            Form::Whole(parts) => parts.left == 0,
            Form::Flow(flow) => flow.left == Some(0),
            Form::Events(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.form {
            Form::Empty => SizeHint::with_exact(0),
            Form::Whole(parts) => SizeHint::with_exact(parts.left),
            Form::Flow(flow) => flow.left.map_or_else(SizeHint::default, SizeHint::with_exact),
            Form::Events(_) => SizeHint::default(),
        }
    }
}

// === impl Parts ===

impl Parts {
    /// Parts below this size are copied together: one write, and one chunk of chunked encoding, for all of them.
    const SMALL: usize = 4096;

    /// `most`: bytes of one piece.
    pub(super) fn new(wire: Wire, permit: Option<Permit>, most: usize) -> Self {
        let left = wire.len() as u64;
        let mut queue = VecDeque::with_capacity(1);
        if wire.len() < Self::SMALL {
            if left > 0 {
                queue.push_back(wire.into_bytes());
            }
            return Parts { queue, left, permit, most };
        }
        let mut small = BytesMut::new();
        for part in wire.into_parts() {
            if part.len() < Self::SMALL {
                small.extend_from_slice(&part);
                continue;
            }
            if !small.is_empty() {
                queue.push_back(small.split().freeze());
            }
            queue.push_back(part);
        }
        if !small.is_empty() {
            queue.push_back(small.freeze());
        }
        Parts { queue, left, permit, most }
    }

    /// The next piece, not larger than what a connection is given at once, and its share of the credit; the last one takes the frame
    /// along.
    pub(super) fn next(&mut self) -> Option<(Bytes, Option<Permit>)> {
        let front = self.queue.front_mut()?;
        let part = if front.len() > self.most { Some(front.split_to(self.most)) } else { self.queue.pop_front() }?;
        self.left = self.left.saturating_sub(part.len() as u64);
        let permit = if self.left == 0 { self.permit.take() } else { self.permit.as_mut().map(|p| p.split(part.len())) };
        Some((part, permit))
    }
}

// === impl Events ===

impl Events {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<(Bytes, Option<Permit>)>> {
        loop {
            if let Some(part) = self.parts.next() {
                return Poll::Ready(Some(part));
            }
            match ready!(self.stream.as_mut().poll_next(cx)) {
                Some(event) => self.parts = Parts::new(event.wire, event.permit, AHEAD),
                None => return Poll::Ready(None),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::{FutureExt, StreamExt, stream};
    use http_body::Body as _;
    use http_body_util::{Full, StreamBody};
    use std::convert::Infallible;

    fn chunks(chunks: &'static [&'static [u8]]) -> impl http_body::Body<Data = Bytes, Error = Infallible> + Send {
        StreamBody::new(stream::iter(chunks).map(|c| Ok(Frame::data(Bytes::from_static(c)))))
    }

    #[tokio::test]
    async fn a_body_is_read_whole_up_to_its_limit() {
        let none = HeaderMap::new();
        assert_eq!(read(chunks(&[b"ab", b"", b"cd", b"e"]), &none, 5, PACE).await.unwrap(), "abcde");
        assert_eq!(read(Full::new(Bytes::from_static(b"abcde")), &none, 5, PACE).await.unwrap(), "abcde");
        assert_eq!(read(chunks(&[]), &none, 5, PACE).await.unwrap(), "");
        assert!(matches!(read(chunks(&[b"abc", b"def"]), &none, 5, PACE).await, Err(Refused::BodyTooLarge { limit: 5 })));
        assert!(matches!(read(Full::new(Bytes::from_static(b"abcdef")), &none, 5, PACE).await, Err(Refused::BodyTooLarge { limit: 5 })));
    }

    #[tokio::test]
    async fn a_body_that_stops_or_trickles_is_given_up() {
        let (short, long) = (Duration::from_millis(10), Duration::from_secs(60));
        let none = HeaderMap::new();
        let stuck = StreamBody::new(stream::pending::<Result<Frame<Bytes>, Infallible>>());
        assert!(matches!(read(stuck, &none, 5, Pace { silence: short, whole: long }).await, Err(Refused::BodySlow(_))));
        let trickle = stream::repeat(()).then(|()| async {
            tokio::time::sleep(Duration::from_millis(1)).await;
            Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"x")))
        });
        assert!(matches!(
            read(StreamBody::new(trickle), &none, 1 << 20, Pace { silence: long, whole: short }).await,
            Err(Refused::BodySlow(_))
        ));
    }

    #[tokio::test]
    async fn a_body_that_is_cut_is_an_error() {
        let cut = stream::iter([Ok(Frame::data(Bytes::from_static(b"{"))), Err(std::io::Error::other("gone"))]);
        assert!(matches!(read(StreamBody::new(cut), &HeaderMap::new(), 10, PACE).await, Err(Refused::BodyCut)));
    }

    #[test]
    fn small_parts_are_joined_and_large_ones_shared() {
        let large = Bytes::from(vec![b'x'; Parts::SMALL]);
        let mut wire = Wire::new();
        for part in [Bytes::from_static(b"a"), Bytes::from_static(b"b"), large.clone(), Bytes::from_static(b"c")] {
            wire.push(part);
        }
        let mut body = Body::whole(wire, None);
        assert_eq!(body.size_hint().exact(), Some(3 + Parts::SMALL as u64));
        let mut got = Vec::new();
        while let Some(frame) = body.frame().now_or_never().unwrap() {
            got.push(frame.unwrap().into_data().unwrap());
        }
        assert_eq!(got, [Bytes::from_static(b"ab"), large.clone(), Bytes::from_static(b"c")]);
        assert_eq!(got[1].as_ptr(), large.as_ptr());
        assert!(body.is_end_stream());
    }
}

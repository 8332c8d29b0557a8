//! The event-stream form of an answer: frames of one or several streams of a session as events, with signs of life between them.
//!
//! Reads from a stream only as fast as the socket takes the events, so that a client that does not read stops its own calls and nothing
//! else. Dropping the body detaches from the session: the call goes on.

use super::body::{Body, Event};
use super::respond::{self, Response};
use crate::gateway::Gateway;
use crate::protocol::{Wire, sse};
use crate::session::Session;
use crate::session::streams::{Frame, Reader};
use crate::telemetry::metrics::LevelGuard;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, FuturesUnordered, StreamExt};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// A comment goes out after so long a silence: proxies commonly cut what is silent for 30 to 60 s.
pub const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// How long a client should wait before it comes back to a stream that was cut.
const RETRY: Duration = Duration::from_secs(1);

/// Frames of several streams, in the order in which they come.
pub struct Merged {
    pending: FuturesUnordered<BoxFuture<'static, (Reader, Option<Frame>)>>,
}

enum Source {
    /// The stream that the response stands for; its events have ids to resume from.
    One(Reader),
    /// The answers to a batch. One event id cannot stand for several streams, so these have none.
    Many(Merged),
    Done,
}

struct Carrier {
    /// Goes out before anything from the source.
    first: VecDeque<Event>,
    source: Source,
    gateway: Arc<Gateway>,
    _open: LevelGuard,
}

/// One complete message as an event stream, for clients that read nothing else.
pub fn single(message: &Wire) -> Response {
    respond::events(Body::whole(sse::message(None, message), None))
}

/// The stream of a call or of the session, from now on.
pub fn stream(gateway: &Arc<Gateway>, session: &Session, reader: Reader) -> Response {
    let at = reader.make_resumable();
    let mut first = VecDeque::new();
    if session.version().has_priming_event() {
        first.push_back(sse::priming(&at.to_string(), RETRY).into());
    }
    events(gateway, first, Source::One(reader))
}

/// A stream that goes on where an earlier response broke off.
pub fn resumed(gateway: &Arc<Gateway>, reader: Reader) -> Response {
    events(gateway, VecDeque::new(), Source::One(reader))
}

/// Messages that are known, then what comes from several streams until each has its answer.
pub fn batch(gateway: &Arc<Gateway>, known: &[Wire], readers: Vec<Reader>) -> Response {
    let first = known.iter().map(|message| sse::message(None, message).into()).collect();
    events(gateway, first, Source::Many(Merged::new(readers)))
}

/// A stream that says nothing.
pub fn nothing() -> Response {
    respond::events(Body::empty())
}

fn events(gateway: &Arc<Gateway>, first: VecDeque<Event>, source: Source) -> Response {
    let carrier = Carrier { first, source, gateway: gateway.clone(), _open: gateway.metrics().streams_open.enter() };
    respond::events(Body::events(stream::unfold(carrier, Carrier::next)))
}

// === impl Merged ===

impl Merged {
    pub fn new(readers: Vec<Reader>) -> Self {
        Merged { pending: readers.into_iter().map(Self::frame_of).collect() }
    }

    /// One more.
    pub fn push(&mut self, reader: Reader) {
        self.pending.push(Self::frame_of(reader));
    }

    fn frame_of(mut reader: Reader) -> BoxFuture<'static, (Reader, Option<Frame>)> {
        Box::pin(async move {
            let frame = reader.next().await;
            (reader, frame)
        })
    }

    /// The next frame of any stream; none when all have ended. Cancel-safe.
    pub async fn next(&mut self) -> Option<Frame> {
        while let Some((reader, frame)) = self.pending.next().await {
            let Some(frame) = frame else { continue };
            if !frame.last {
                self.pending.push(Self::frame_of(reader));
            }
            return Some(frame);
        }
        None
    }
}

// === impl Carrier ===

impl Carrier {
    async fn next(mut self) -> Option<(Event, Self)> {
        if let Some(event) = self.first.pop_front() {
            return Some((event, self));
        }
        let frame = async {
            match &mut self.source {
                Source::One(reader) => reader.next().await,
                Source::Many(merged) => merged.next().await,
                Source::Done => None,
            }
        };
        let event = match timeout(KEEP_ALIVE, frame).await {
            Err(_) => sse::keep_alive().into(),
            Ok(Some(frame)) => match self.source {
                Source::One(_) => {
                    let id = frame.event.to_string();
                    if frame.last {
                        // "After the JSON-RPC response has been sent, the server SHOULD terminate the SSE stream."
                        self.source = Source::Done;
                    }
                    Event { wire: sse::message(Some(&id), &frame.message), permit: frame.permit }
                }
                _ => Event { wire: sse::message(None, &frame.message), permit: frame.permit },
            },
            // A gateway that stops tells its clients when to come back; a stream that has nothing more to say just ends.
            Ok(None) if matches!(self.source, Source::One(_)) && !self.gateway.ready() => {
                self.source = Source::Done;
                sse::retry(RETRY).into()
            }
            Ok(None) => return None,
        };
        Some((event, self))
    }
}

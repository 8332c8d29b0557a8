//! An answer that is given on while it is read: from its backend, with the client's id and URIs in it, to its stream.
//!
//! The call that it answers is over when it begins: its id is free, and a cancellation comes too late. What is left belongs to a task of the
//! session, which waits for the end and counts the request by it; the end of the session ends it. It is read by the connection that
//! carries it, as fast as that drains, so nothing stands between the client and the backend's flow control.

use super::Gateway;
use super::job::Job;
use super::uris::Known;
use crate::admission::Permit;
use crate::backend::{BackendError, Flow, Flows, Taker};
use crate::catalog::Published;
use crate::catalog::keeping::{KIND, Keeping, is_of_the_era};
use crate::protocol::scan::{Dress, Piece, Places};
use crate::protocol::{Request, Wire, json, method};
use crate::session::Session;
use crate::session::streams::{Cut, Cutter, Rest, StreamId, Streams};
use crate::telemetry::metrics::Outcome as Counted;
use bytes::Bytes;
use futures_util::stream;
use std::fmt;
use std::sync::Arc;
use tokio::sync::oneshot;

/// An answer that has begun, and the names by which URIs in it are known.
pub(super) struct Begun {
    pub flow: Box<Flow>,
    pub at: Arc<Published>,
    pub backend: usize,
}

/// One that was given to its stream.
pub(super) struct Given {
    cutter: Cutter,
    end: oneshot::Receiver<Result<(), BackendError>>,
}

/// What the connection reads from.
struct Source {
    gateway: Arc<Gateway>,
    session: Arc<Session>,
    begun: Begun,
    /// The client's.
    id: Bytes,
    known: Known,
    end: Option<oneshot::Sender<Result<(), BackendError>>>,
}

struct OnStream {
    streams: Arc<Streams>,
    stream: StreamId,
}

/// Whether, and how, the answer to the job may flow.
pub(super) fn may(job: &Job) -> Option<Flows> {
    let session = job.session();
    let of = &*job.request.method;
    let places = Places::of(of)?;
    // For a client without sessions, as `shape` does it with the answer of an older server; those of newer ones do not flow.
    let dress = session.version().is_modern().then(|| match of {
        method::RESOURCES_READ => Dress { add: Keeping::NOT.members().into(), out: is_of_the_era },
        _ => Dress { add: format!("\"{KIND}\":\"complete\"").into(), out: |name| name == KIND },
    });
    let places = if session.host.backends.len() < 2 { Places::Nowhere } else { places };
    Some(Flows { taker: Arc::new(OnStream { streams: session.streams.clone(), stream: job.stream }), places, dress })
}

impl Taker for OnStream {
    fn would(&self) -> bool {
        self.streams.would_flow(self.stream)
    }

    fn takes(&self) -> bool {
        self.streams.promise_flow(self.stream)
    }
}

impl fmt::Debug for OnStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnStream").field("stream", &self.stream).finish_non_exhaustive()
    }
}

impl Gateway {
    /// Gives it to the stream that was promised it. Where the client has gone, it is dropped.
    pub(super) fn begin_flow(
        self: &Arc<Self>,
        session: &Arc<Session>,
        request: &Request,
        stream: StreamId,
        begun: Begun,
        credit: Option<Permit>,
    ) -> Given {
        let id = request.id.raw().clone();
        let length = begun.flow.length(id.len());
        let (ended, end) = oneshot::channel();
        let source = Source { gateway: self.clone(), session: session.clone(), begun, id, known: Known::default(), end: Some(ended) };
        let (rest, cutter) = Rest::new(stream::unfold(source, Source::next), length);
        session.streams.answer_flowing(stream, rest, credit);
        Given { cutter, end }
    }
}

impl Given {
    /// Waits for its end, or that of the session, and says how the request ended.
    pub async fn ended(self, session: &Session, request: &Request) -> Counted {
        let end = tokio::select! {
            biased;
            end = self.end => end,
            () = session.ended().cancelled() => {
                self.cutter.cut();
                Ok(Err(BackendError::Closed))
            }
        };
        match end {
            Ok(Ok(())) => Counted::Ok,
            Ok(Err(error)) => {
                tracing::warn!(session = %session.tag(), method = %request.method, %error, "an answer was cut in the middle: its client has the head of it");
                Counted::Cut
            }
            // Nobody reads it any more.
            Err(_) => Counted::Disconnected,
        }
    }
}

impl Source {
    /// What has come by now, or the next chunk.
    async fn next(mut self) -> Option<(Result<Wire, Cut>, Self)> {
        let mut wire = Wire::new();
        loop {
            self.end.as_ref()?;
            while let Some(piece) = self.begun.flow.ready() {
                match piece {
                    Piece::Bytes(part) => wire.push(part),
                    Piece::Id => wire.push(self.id.clone()),
                    Piece::Uri(uri) => wire.push(self.public(uri).await),
                }
            }
            if self.begun.flow.is_over()
                && let Some(end) = self.end.take()
            {
                let _ = end.send(Ok(()));
                // A connection that knows the length asks for no more than that.
                return (!wire.is_empty()).then_some((Ok(wire), self));
            }
            if !wire.is_empty() {
                return Some((Ok(wire), self));
            }
            if let Err(error) = self.begun.flow.read().await
                && let Some(end) = self.end.take()
            {
                let _ = end.send(Err(error));
                return Some((Err(Cut), self));
            }
        }
    }

    /// A URI as the client knows it. One that is no text stays as it is.
    async fn public(&mut self, raw: Bytes) -> Bytes {
        let Ok(uri) = serde_json::from_slice::<String>(&raw) else { return raw };
        let Begun { at, backend, .. } = &self.begun;
        let public = self.gateway.as_published(&self.session, at, *backend, uri, &mut self.known).await;
        public.map_or(raw, |public| json::quote(&public).into())
    }
}

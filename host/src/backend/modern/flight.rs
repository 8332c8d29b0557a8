//! One request to a modern server that is under way, and what comes for it, whatever carries it.

use super::post::{self, Exchange, Posted, Posting};
use crate::backend::CallEvent;
use crate::backend::error::BackendError;
use crate::backend::inner::Inner;
use crate::backend::known::Era;
use crate::backend::link::{Link, Wiring};
use crate::backend::pipe::Registered;
use crate::protocol::Response;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Dropping it ends the request: over HTTP that is its cancellation, on a pipe it is only forgotten.
pub enum Flight {
    Pipe(Registered),
    Http(Box<Exchange>),
    /// All that there is to come. None once it was taken.
    Answered(Option<Response>),
}

/// Why a request came to nothing.
pub enum Stopped {
    Failed(BackendError),
    /// The server does not speak this era any more, and has not run the request.
    OtherEra(BackendError),
}

impl From<BackendError> for Stopped {
    fn from(error: BackendError) -> Self {
        Stopped::Failed(error)
    }
}

impl From<Stopped> for BackendError {
    fn from(stopped: Stopped) -> Self {
        let (Stopped::Failed(error) | Stopped::OtherEra(error)) = stopped;
        error
    }
}

/// `owns`: on a pipe, whether what says of no call which it belongs to may be its.
pub async fn send(inner: &Arc<Inner>, link: &Link, posting: Posting<'_>, owns: bool) -> Result<Flight, Stopped> {
    let http = match &link.wiring {
        Wiring::Pipe(pipe) => {
            let registered = pipe.call(inner, posting.id, posting.message.into(), owns).await?;
            return Ok(Flight::Pipe(registered.with_room(posting.room)));
        }
        Wiring::Http(http) => http,
    };
    match post::open(inner, http, posting).await? {
        Posted::Open(exchange) => Ok(Flight::Http(exchange)),
        Posted::Answer(answer) => Ok(Flight::Answered(Some(answer))),
        Posted::Doubtful(outcome) if inner.backend.known.doubt(Era::Modern) => {
            let error = outcome.err().unwrap_or_else(|| inner.unavailable("it does not speak 2026-07-28 any more", None));
            Err(Stopped::OtherEra(error))
        }
        Posted::Doubtful(outcome) => Ok(Flight::Answered(Some(outcome?))),
    }
}

impl Flight {
    /// The next event. The last one is `Answer` or `Failed`. Not cancel-safe.
    pub async fn next(&mut self, inner: &Arc<Inner>) -> CallEvent {
        match self {
            Flight::Pipe(registered) => std::future::poll_fn(|cx| registered.poll(cx, inner)).await,
            Flight::Http(exchange) => exchange.next(inner).await,
            Flight::Answered(answer) => answer.take().map_or(CallEvent::Failed(BackendError::Closed), CallEvent::Answer),
        }
    }

    /// Set when the server may have the request; none where it had it before there was a flight.
    pub fn flag(&self) -> Option<Arc<AtomicBool>> {
        match self {
            Flight::Pipe(registered) => Some(registered.flag()),
            Flight::Http(_) | Flight::Answered(_) => None,
        }
    }

    /// Gives back what the last message held of the room.
    pub fn release(&self) {
        if let Flight::Http(exchange) = self {
            exchange.release();
        }
    }

    /// Its answer has come.
    pub fn finish(self, inner: &Inner) {
        if let Flight::Http(exchange) = self {
            exchange.finish(inner);
        }
    }
}

//! A request to a server of 2026-07-28 over streamable HTTP: a POST of its own, whose headers say again what its body says, and whose response
//! brings all that belongs to it (2026-07-28 transports/streamable-http).
//!
//! Dropping an `Exchange` closes its response, which is how such a request is cancelled. A response that breaks off is not resumed: the
//! era has no event ids. The body is read no faster than it is asked for, and as far as there is room.

use crate::admission::Room;
use crate::backend::CallEvent;
use crate::backend::error::BackendError;
use crate::backend::http::link::{Head, HttpLink, answers};
use crate::backend::http::messages::{Cursor, Messages};
use crate::backend::http::sink::progress_token;
use crate::backend::inner::Inner;
use crate::protocol::mirror::{self, Mirrored};
use crate::protocol::{Incoming, Response, Wire, codes, method};
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use std::sync::Arc;

/// What is to be sent, and what goes with it.
pub struct Posting<'a> {
    pub id: u64,
    /// The whole message.
    pub message: Bytes,
    /// What its headers repeat. None: it is read for that.
    pub mirrored: Option<Mirrored<'a>>,
    /// `Mcp-Param-*` of the client, as they came; what is written here for the body takes their place.
    pub brought: &'a HeaderMap,
    pub room: Option<Room>,
}

/// What came of it.
pub enum Posted {
    Open(Box<Exchange>),
    /// A JSON-RPC error with a status of its own.
    Answer(Response),
    /// Refused as only a server would that does not speak this revision (any more). It has not run the request.
    Doubtful(Result<Response, BackendError>),
}

/// A response that is being read.
#[derive(Debug)]
pub struct Exchange {
    id: u64,
    messages: Messages,
    cursor: Cursor,
    room: Option<Room>,
}

/// Sends a request and waits for the head of the response.
pub async fn open(inner: &Arc<Inner>, http: &HttpLink, posting: Posting<'_>) -> Result<Posted, BackendError> {
    let Posting { id, message, mirrored, brought, room } = posting;
    let read = match mirrored.is_none().then(|| Incoming::parse(message.clone())) {
        Some(Ok(Incoming::Request(request))) => Some(request),
        _ => None,
    };
    let Some(mirrored) = mirrored.or_else(|| read.as_ref().map(Mirrored::of)) else {
        return Err(inner.unavailable("the request could not be written for it", None));
    };
    let mut head = http.headers().clone();
    for name in brought.keys().filter(|name| !http.headers().contains_key(*name)) {
        for value in brought.get_all(name) {
            head.append(name, value.clone());
        }
    }
    let tool = mirrored.name.as_deref().filter(|_| mirrored.method() == method::TOOLS_CALL);
    let params = tool.and_then(|name| inner.modern().tools.of(name));
    mirror::write(&mirrored, params.as_deref(), &mut head);
    let response = http.post_with(inner, &head, &Wire::from(message)).await?;
    let status = response.status();
    let doubtful = matches!(status.as_u16(), 400 | 404 | 405 | 406 | 415 | 422);
    Ok(match http.head(inner, id, response).await {
        Head::Open(response) => {
            let messages = Messages::open(response, inner.backend.limits.message, room.clone()).await.map_err(|e| inner.unread(e))?;
            Posted::Open(Box::new(Exchange { id, messages, cursor: Cursor::default(), room }))
        }
        Head::Answer(answer) if contradicts(status, &answer, mirrored.method()) => Posted::Doubtful(Ok(answer)),
        Head::Answer(answer) => Posted::Answer(answer),
        Head::Refused(error) if doubtful => Posted::Doubtful(Err(error)),
        Head::Refused(error) => return Err(error),
        Head::SessionLost => Posted::Doubtful(Err(inner.status(status, None))),
    })
}

/// A request of the gateway's own, to its answer. What else comes for it has no call to belong to.
pub async fn ask(inner: &Arc<Inner>, http: &HttpLink, id: u64, message: Wire) -> Result<Response, BackendError> {
    let posting = Posting { id, message: message.into_bytes(), mirrored: None, brought: &HeaderMap::new(), room: None };
    match open(inner, http, posting).await? {
        Posted::Answer(answer) => Ok(answer),
        Posted::Doubtful(outcome) => outcome,
        Posted::Open(mut exchange) => loop {
            match exchange.next(inner).await {
                CallEvent::Answer(answer) => {
                    exchange.finish(inner);
                    return Ok(answer);
                }
                CallEvent::Failed(error) => return Err(error),
                _ => {}
            }
        },
    }
}

/// Whether this error is that of a server which does not speak this revision, or not any more.
pub fn contradicts(status: StatusCode, answer: &Response, of: &str) -> bool {
    match answer.error_code() {
        Some(codes::UNSUPPORTED_VERSION) => true,
        Some(codes::INVALID_REQUEST) => status == StatusCode::BAD_REQUEST,
        Some(codes::METHOD_NOT_FOUND) => status == StatusCode::NOT_FOUND && is_basic(of),
        Some(codes::RESOURCE_NOT_FOUND) | None => false,
        // What older servers say of sessions (2026-07-28 basic/index, "Error Codes": not for servers of this revision).
        Some(code) => (-32019..=-32000).contains(&code) && status.is_client_error(),
    }
}

/// Methods that are not sent to a server which did not announce them.
fn is_basic(of: &str) -> bool {
    matches!(
        of,
        method::TOOLS_LIST
            | method::TOOLS_CALL
            | method::PROMPTS_LIST
            | method::PROMPTS_GET
            | method::RESOURCES_LIST
            | method::RESOURCES_READ
    )
}

impl Exchange {
    /// The next event. The last one is `Answer` or `Failed`. Not cancel-safe.
    pub async fn next(&mut self, inner: &Arc<Inner>) -> CallEvent {
        loop {
            let raw = match self.messages.next(&mut self.cursor).await {
                Ok(Some(raw)) => raw,
                Ok(None) if self.messages.is_stream() => return CallEvent::Failed(inner.broken("its stream ended without an answer")),
                Ok(None) => return CallEvent::Failed(inner.broke("its answer holds no message")),
                Err(error) => return CallEvent::Failed(inner.unread(error)),
            };
            match Incoming::parse(raw) {
                Err(error) => return CallEvent::Failed(inner.broke(format!("its answer cannot be read: {error}"))),
                Ok(Incoming::Response(answer)) if answer.id.is_none() || answers(&answer, self.id) => return CallEvent::Answer(answer),
                Ok(Incoming::Response(_)) => return CallEvent::Failed(inner.broke("it answered a request that was not made")),
                Ok(Incoming::Request(_)) => inner.noise("a request of a server of 2026-07-28, which may make none, was dropped"),
                Ok(Incoming::Notification(note)) if &*note.method == method::PROGRESS => match progress_token(&note) {
                    Some((token, token_at)) if token == self.id => return CallEvent::Progress { message: note, token_at },
                    _ => inner.noise("progress whose token is not that of its request was dropped"),
                },
                Ok(Incoming::Notification(note)) => return CallEvent::Notification(note),
            }
            self.release();
        }
    }

    /// Gives back what the last message held of the room.
    pub fn release(&self) {
        if let Some(room) = &self.room {
            room.keep(None);
        }
    }

    /// Lets go of a response whose answer has come.
    pub fn finish(self, inner: &Inner) {
        self.messages.finish(inner);
    }
}

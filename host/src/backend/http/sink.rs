//! Where the messages of an HTTP stream go: to the call whose stream it is, to another call by its progress token, or to the inbox.

use super::link::answers;
use crate::backend::call::Slot;
use crate::backend::error::BackendError;
use crate::backend::inner::Inner;
use crate::backend::{CallEvent, FromServer};
use crate::protocol::{Incoming, Notification, Response, method};
use bytes::Bytes;
use std::ops::Range;
use std::sync::Arc;

pub enum Sink<'a> {
    /// The stream of a call.
    Call(&'a Slot),
    /// The GET stream, or the stream of a request of the gateway's own.
    Inbox,
}

pub enum Answered {
    Yes(Response),
    NotYet,
}

/// Sorts one message of a stream. `id`: the request whose answer the stream is to bring, if any.
pub async fn take(inner: &Arc<Inner>, id: Option<u64>, raw: Bytes, sink: &Sink<'_>) -> Result<Answered, BackendError> {
    let message = match Incoming::parse(raw) {
        Ok(message) => message,
        Err(error) if id.is_none() => {
            inner.noise(&format!("a message on the GET stream was skipped: {error}"));
            return Ok(Answered::NotYet);
        }
        Err(error) => return Err(inner.broke(format!("its answer cannot be read: {error}"))),
    };
    match message {
        Incoming::Response(response) => match id {
            Some(id) if response.id.is_none() || answers(&response, id) => return Ok(Answered::Yes(response)),
            Some(_) => return Err(inner.broke("it answered a request that was not made")),
            None => inner.noise("an answer on the GET stream was dropped"),
        },
        Incoming::Request(request) if &*request.method == method::PING => inner.pong(&request.id),
        Incoming::Request(request) => match sink {
            Sink::Call(slot) => slot.emit(CallEvent::Request(request)).await,
            Sink::Inbox => inner.tell(FromServer::Request(request)).await,
        },
        Incoming::Notification(note) if &*note.method == method::PROGRESS => match (progress_token(&note), sink) {
            (Some((token, at)), Sink::Call(slot)) if Some(token) == id => {
                slot.emit(CallEvent::Progress { message: note, token_at: at }).await
            }
            (Some((token, at)), _) => inner.progress_aside(token, note, at),
            (None, _) => inner.noise("progress without a token was dropped"),
        },
        Incoming::Notification(note) => match sink {
            Sink::Call(slot) => slot.emit(CallEvent::Notification(note)).await,
            Sink::Inbox => inner.tell(FromServer::Notification(note)).await,
        },
    }
    Ok(Answered::NotYet)
}

/// The token of a progress notification, where it is one that we could have given, and its place.
pub fn progress_token(note: &Notification) -> Option<(u64, Range<usize>)> {
    let token = note.token_param(&["progressToken"]).ok()??;
    let digits = std::str::from_utf8(token.value.raw()).ok()?.trim_matches('"');
    Some((digits.parse().ok()?, token.at))
}

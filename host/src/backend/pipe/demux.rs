//! Sorts what comes out of a pipe. In the order in which it came, so that no progress follows its answer.

use super::{Entry, Pipe};
use crate::admission::Reading;
use crate::backend::error::BackendError;
use crate::backend::http::sink::progress_token;
use crate::backend::inner::{Inner, lock};
use crate::backend::modern::pushed::stream_of;
use crate::backend::{CallEvent, FromServer};
use crate::protocol::{Incoming, RequestId, Response, method, salvage};
use bytes::Bytes;
use std::sync::Arc;
use tokio::sync::mpsc;

impl Pipe {
    /// Takes one message. Waits while the call or the inbox that it is for is full: the pipe of this upstream stands still then.
    /// `reading`: what it holds of the room.
    pub async fn take(self: &Arc<Self>, inner: &Arc<Inner>, raw: Bytes, mut reading: Option<Reading>) {
        let message = match Incoming::parse(raw.clone()) {
            Ok(message) => message,
            Err(error) => {
                // Programs print all sorts of things; only what means to be JSON-RPC can have been an answer.
                match error.id.as_ref().and_then(number) {
                    Some(id) if memchr::memmem::find(&raw, b"\"jsonrpc\"").is_some() => {
                        self.fail(id, inner.broke(format!("its answer cannot be read: {error}")))
                    }
                    _ => inner.noise("a message on its stream or stdout that is no MCP message was skipped"),
                }
                return;
            }
        };
        let Some(message) = self.older(inner, message, &mut reading).await else { return };
        match message {
            Incoming::Response(response) => match self.answered(&response) {
                Some(entry) => give(entry.events, CallEvent::Answer(response), reading.take()).await,
                None if response.id.is_none() => inner.noise("an error that names no request was dropped"),
                None => {
                    tracing::debug!(backend = %inner.backend.name, session = %inner.hello.session_tag, "an answer that nobody waits for was dropped")
                }
            },
            Incoming::Request(request) if &*request.method == method::PING => self.pong(inner, &request.id),
            Incoming::Request(request) => match self.owner() {
                Some(events) => give(events, CallEvent::Request(request), reading.take()).await,
                None => inner.tell(FromServer::Request(request)).await,
            },
            Incoming::Notification(note) if &*note.method == method::PROGRESS => match progress_token(&note) {
                Some((token, at)) => {
                    let events = lock(&self.calls).live.get(&token).map(|e| e.events.clone());
                    match events {
                        Some(events) => give(events, CallEvent::Progress { message: note, token_at: at }, reading.take()).await,
                        None => {
                            tracing::debug!(backend = %inner.backend.name, session = %inner.hello.session_tag, "progress of a call that is over was dropped")
                        }
                    }
                }
                None => inner.noise("progress whose token is none of ours was dropped"),
            },
            // What concerns the whole session is nobody's; log messages and cancellations are the only call's, if there is only one.
            Incoming::Notification(note) => match self.owner().filter(|_| matches!(&*note.method, method::LOG_MESSAGE | method::CANCELLED))
            {
                Some(events) => give(events, CallEvent::Notification(note), reading.take()).await,
                None => inner.tell(FromServer::Notification(note)).await,
            },
        }
    }

    /// Takes the call that this answers. An error without an id, from a server that could not read the request, is that of the only
    /// call in flight, if there is only one.
    fn answered(&self, response: &Response) -> Option<Entry> {
        let mut calls = lock(&self.calls);
        let id = match &response.id {
            Some(id) => number(id)?,
            None if calls.live.len() == 1 => *calls.live.keys().next()?,
            None => return None,
        };
        calls.live.remove(&id)
    }

    /// Takes what only a server of 2026-07-28 sends, or may not send; hands back the rest.
    async fn older(&self, inner: &Arc<Inner>, message: Incoming, reading: &mut Option<Reading>) -> Option<Incoming> {
        if !self.is_modern() {
            return Some(message);
        }
        match message {
            Incoming::Request(_) => inner.noise("a request of a server of 2026-07-28, which may make none, was dropped"),
            Incoming::Notification(note) => {
                let Some(stream) = stream_of(&note) else { return Some(Incoming::Notification(note)) };
                let events = lock(&self.calls).live.get(&stream).map(|e| e.events.clone());
                if let Some(events) = events {
                    give(events, CallEvent::Notification(note), reading.take()).await;
                }
            }
            response @ Incoming::Response(_) => return Some(response),
        }
        None
    }

    /// A message was larger than the limit; `head` is how it began.
    pub fn too_large(&self, inner: &Arc<Inner>, head: &[u8]) {
        let reason = format!("its message is larger than the limit of {} bytes", inner.backend.limits.message);
        match salvage::id(head).as_ref().and_then(number) {
            Some(id) => self.fail(id, BackendError::Protocol { backend: inner.backend.name.clone(), reason }),
            None => inner.noise(&reason),
        }
    }

    /// The call that a message without a relation belongs to: the only one in flight.
    fn owner(&self) -> Option<mpsc::Sender<(CallEvent, Option<Reading>)>> {
        let calls = lock(&self.calls);
        let mut owners = calls.live.values().filter(|e| e.owns);
        match (owners.next(), owners.next()) {
            (Some(Entry { events, .. }), None) => Some(events.clone()),
            _ => None,
        }
    }
}

async fn give(events: mpsc::Sender<(CallEvent, Option<Reading>)>, event: CallEvent, reading: Option<Reading>) {
    // An error means that the call was dropped.
    let _ = events.send((event, reading)).await;
}

/// Our id, also where the server made a string of it.
fn number(id: &RequestId) -> Option<u64> {
    id.as_number().or_else(|| std::str::from_utf8(id.raw()).ok()?.trim_matches('"').parse().ok())
}

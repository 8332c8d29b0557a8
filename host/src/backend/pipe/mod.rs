//! One pipe for everything: a stdio child or the stream of HTTP+SSE. Nothing on it says which message belongs to which call, so
//! answers are found by id, progress by token, and the rest as `demux` says.

mod demux;
pub mod sse;

use super::CallEvent;
use super::error::BackendError;
use super::inner::{Inner, lock};
use crate::admission::{Reading, Room};
use crate::protocol::{RequestId, Response, Wire};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Events of one call that wait for its reader. When they are as many, the pipe of this upstream stands still.
const EVENTS: usize = 4;
/// Messages that wait for a child to read them.
pub const OUTGOING: usize = 32;
/// How long a message to the server may wait for room.
const SEND: Duration = Duration::from_secs(10);

/// A pipe and the calls in flight on it. Its tasks end by themselves when `stop` is cancelled.
#[derive(Debug)]
pub struct Pipe {
    calls: Mutex<Calls>,
    outlet: Outlet,
    /// Cancelled to end the pipe in an orderly way.
    pub stop: CancellationToken,
    ended: CancellationToken,
    /// The server is of 2026-07-28.
    modern: AtomicBool,
}

#[derive(Debug, Default)]
struct Calls {
    live: HashMap<u64, Entry>,
    /// Why the pipe takes no more calls.
    closed: Option<Arc<str>>,
}

#[derive(Debug)]
struct Entry {
    events: mpsc::Sender<(CallEvent, Option<Reading>)>,
    /// Whether messages that name no call may belong to this one.
    owns: bool,
}

/// The way out.
#[derive(Debug)]
pub enum Outlet {
    /// To the task that writes to a child.
    Child(mpsc::Sender<Outgoing>),
    /// To the endpoint that HTTP+SSE named.
    Post(sse::Endpoint),
}

/// A message for a child.
#[derive(Debug)]
pub struct Outgoing {
    pub message: Wire,
    /// Set when writing begins.
    pub written: Option<Arc<AtomicBool>>,
}

/// Says that a pipe is gone when the task that owns it ends, however it ends.
pub struct LastWord(pub Arc<Pipe>);

impl Drop for LastWord {
    fn drop(&mut self) {
        self.0.gone("its task ended");
    }
}

/// A call's place on a pipe.
#[derive(Debug)]
pub struct Registered {
    id: u64,
    pipe: Arc<Pipe>,
    events: mpsc::Receiver<(CallEvent, Option<Reading>)>,
    written: Arc<AtomicBool>,
    /// Where the room of the last message is kept, and the room itself where there is no such place.
    room: Option<Room>,
    reading: Option<Reading>,
}

impl Pipe {
    pub fn new(outlet: Outlet, stop: CancellationToken) -> Arc<Pipe> {
        Arc::new(Pipe { calls: Mutex::default(), outlet, stop, ended: CancellationToken::new(), modern: AtomicBool::new(false) })
    }

    /// From now on what comes is read by the rules of 2026-07-28.
    pub fn set_modern(&self) {
        self.modern.store(true, Ordering::Relaxed);
    }

    fn is_modern(&self) -> bool {
        self.modern.load(Ordering::Relaxed)
    }

    /// Puts a request on the pipe. `owns`: see `Entry`.
    pub async fn call(self: &Arc<Self>, inner: &Arc<Inner>, id: u64, message: Wire, owns: bool) -> Result<Registered, BackendError> {
        let (sender, events) = mpsc::channel(EVENTS);
        {
            let mut calls = lock(&self.calls);
            if let Some(why) = &calls.closed {
                return Err(inner.unavailable(why.to_string(), None));
            }
            calls.live.insert(id, Entry { events: sender, owns });
        }
        let registered = Registered { id, pipe: self.clone(), events, written: Arc::default(), room: None, reading: None };
        match &self.outlet {
            Outlet::Child(outgoing) => {
                let item = Outgoing { message, written: Some(registered.written.clone()) };
                // The call's own clock bounds the wait.
                if outgoing.send(item).await.is_err() {
                    return Err(self.failure(inner, false));
                }
            }
            Outlet::Post(endpoint) => endpoint.spawn_post(inner, self.clone(), id, message, registered.written.clone()),
        }
        Ok(registered)
    }

    /// A request of the gateway's own. Messages in between go where those without a call go.
    pub async fn request(self: &Arc<Self>, inner: &Arc<Inner>, id: u64, message: Wire) -> Result<Response, BackendError> {
        let mut registered = self.call(inner, id, message, false).await?;
        loop {
            match std::future::poll_fn(|cx| registered.poll(cx, inner)).await {
                CallEvent::Answer(response) => return Ok(response),
                CallEvent::Failed(error) => return Err(error),
                _ => {}
            }
        }
    }

    /// Sends a notification or an answer. For a child it is only queued: the child may be unable to read until its own output has
    /// been read.
    pub async fn send(&self, inner: &Arc<Inner>, message: Wire) -> Result<(), BackendError> {
        match &self.outlet {
            Outlet::Child(outgoing) => match tokio::time::timeout(SEND, outgoing.send(Outgoing { message, written: None })).await {
                Ok(Ok(())) => Ok(()),
                Ok(Err(_)) => Err(self.failure(inner, false)),
                Err(_) => Err(BackendError::Timeout { backend: inner.backend.name.clone(), limit: SEND }),
            },
            Outlet::Post(endpoint) => endpoint.post(inner, &message).await,
        }
    }

    fn pong(self: &Arc<Self>, inner: &Arc<Inner>, id: &RequestId) {
        inner.reply(self.clone(), super::handshake::pong(id));
    }

    /// Ends all calls and takes no more. The first reason stays.
    pub fn close(&self, why: &str) {
        let mut calls = lock(&self.calls);
        calls.closed.get_or_insert_with(|| why.into());
        calls.live.clear();
    }

    /// Says that nothing of the pipe is left.
    pub fn gone(&self, why: &str) {
        self.close(why);
        self.ended.cancel();
    }

    /// Waits for `gone`.
    pub async fn ended(&self) -> Arc<str> {
        self.ended.cancelled().await;
        lock(&self.calls).closed.clone().unwrap_or_else(|| "it ended".into())
    }

    /// Ends one call with an error.
    fn fail(&self, id: u64, error: BackendError) {
        if let Some(entry) = lock(&self.calls).live.remove(&id) {
            // With a full channel the call learns only that it is over.
            let _ = entry.events.try_send((CallEvent::Failed(error), None));
        }
    }

    fn failure(&self, inner: &Arc<Inner>, written: bool) -> BackendError {
        if inner.stop.is_cancelled() {
            return BackendError::Closed;
        }
        let why = lock(&self.calls).closed.clone();
        let why = why.as_deref().unwrap_or("its answer was lost");
        if written { inner.broken(why) } else { inner.unavailable(why.to_owned(), None) }
    }
}

impl Registered {
    pub fn written(&self) -> bool {
        self.written.load(Ordering::Relaxed)
    }

    /// Set when writing begins.
    pub fn flag(&self) -> Arc<AtomicBool> {
        self.written.clone()
    }

    /// What its messages hold of the room is kept in `room` until their frames are owed.
    pub fn with_room(mut self, room: Option<Room>) -> Self {
        self.room = room;
        self
    }

    pub fn poll(&mut self, cx: &mut Context<'_>, inner: &Arc<Inner>) -> Poll<CallEvent> {
        self.events.poll_recv(cx).map(|event| match event {
            Some((event, reading)) => {
                match &self.room {
                    Some(room) => room.keep(reading),
                    None => self.reading = reading,
                }
                event
            }
            None => CallEvent::Failed(self.pipe.failure(inner, self.written())),
        })
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        lock(&self.pipe.calls).live.remove(&self.id);
    }
}

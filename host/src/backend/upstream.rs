//! One session's way to one backend: the public face over whatever connection there is.
//!
//! How connections come and go is in `connect`, what the tasks share in `inner`. `session` and `gateway` call this.

use super::call::{Call, Slot, Start, Way};
use super::connect;
use super::error::BackendError;
use super::http::{exchange, listen};
use super::inner::{Inner, SEND};
use super::link::Wiring;
use super::modern;
use super::phase::Phase;
use super::restore::Memo;
use super::target::{Backend, Target};
use super::{Hello, Inbox, Outbound, ServerHello, State};
use crate::admission::Room;
use crate::protocol::{Incoming, Wire, method};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Progress of one call that came on another stream and waits for its reader. What comes when it is full is dropped.
const ASIDE: usize = 16;
/// After its limit `close` waits so long for what it then ends by force.
const FORCE: Duration = Duration::from_millis(500);

/// One session's way to one backend. Dropping it ends all that it owns: calls at once, connections, the child and the backend's
/// session within a few seconds; `close` is for those who want to wait for that.
#[derive(Debug)]
pub struct Upstream {
    inner: Arc<Inner>,
}

impl Upstream {
    /// Starts connecting. Never fails: a dead backend is `Down`, and is tried again with growing waits until the upstream is closed.
    /// `room`: where large messages that belong to no call get their room from, and all that come out of a pipe.
    pub fn open(backend: Arc<Backend>, hello: Arc<Hello>, inbox: Inbox, room: Option<Room>) -> Arc<Upstream> {
        let inner = Arc::new(Inner::new(backend, hello, inbox, room));
        connect::start(&inner);
        Arc::new(Upstream { inner })
    }

    pub fn name(&self) -> &Arc<str> {
        &self.inner.backend.name
    }

    pub fn backend(&self) -> &Arc<Backend> {
        &self.inner.backend
    }

    pub fn state(&self) -> State {
        self.inner.phase.look(|phase| match phase {
            Phase::Connecting => State::Connecting,
            Phase::Up(link) | Phase::Renewing(link) => State::Connected(link.hello.clone()),
            Phase::Down { why, .. } => State::Down(why.clone()),
            Phase::Closed => State::Closed,
        })
    }

    /// Waits until connected, but no longer than `limit`. One that is down is tried at once, unless it was tried a moment ago.
    ///
    /// # Errors
    /// `Unavailable` when it is down or the limit has passed, `Closed` after `close`.
    pub async fn ready(&self, limit: Duration) -> Result<Arc<ServerHello>, BackendError> {
        self.inner.ready(limit).await.map(|link| link.hello.clone())
    }

    /// Sends a request under an id of the upstream's own; a progress token is replaced by the same number. `limit` bounds the whole
    /// call, but the time that the caller takes between two events does not count.
    ///
    /// # Errors
    /// As for `ready`, and for a request that could not be handed over. What happens later comes as an event.
    pub async fn call(&self, out: Outbound, limit: Duration) -> Result<Call, BackendError> {
        let inner = &self.inner;
        let deadline = Instant::now() + limit;
        let link = inner.ready(limit).await?;
        if link.hello.version.is_modern() {
            return modern::call(inner, link, out, deadline, limit);
        }
        let id = inner.next_id();
        let mut edits = out.edits;
        if inner.hello.modern {
            modern::without_meta(&out.request, &mut edits);
        }
        let wants_progress = out.progress_token_at.is_some();
        if let Some(at) = out.progress_token_at {
            edits.replace(at, id.to_string());
        }
        let message = out.request.numbered(id, edits);
        let memo = Memo::of(&out.request.method, &message);
        let (way, aside) = match &link.wiring {
            Wiring::Http(_) => {
                let aside = wants_progress.then(|| {
                    let (sender, receiver) = mpsc::channel(ASIDE);
                    inner.tokens.change(|tokens| tokens.insert(id, sender));
                    receiver
                });
                let slot = Slot::default();
                let ways = (out.room, out.flows);
                let exchange = Box::pin(exchange::run(inner.clone(), link.clone(), id, message, slot.clone(), ways));
                (Way::Http { exchange, slot }, aside)
            }
            Wiring::Pipe(pipe) => {
                let owns = !is_own_business(&out.request.method);
                let late = |_| Err(inner.unavailable("it does not read its input", None));
                let registered = tokio::time::timeout_at(deadline, pipe.call(inner, id, message, owns)).await.unwrap_or_else(late)?;
                let registered = registered.with_room(out.room);
                (Way::Pipe(registered), None)
            }
        };
        Ok(Call::new(inner.clone(), Start { link, id, way, aside, memo }, deadline, limit))
    }

    /// Sends a notification; bounded.
    pub async fn notify(&self, message: Wire) -> Result<(), BackendError> {
        let inner = &self.inner;
        let link = inner.ready(SEND).await?;
        if link.hello.version.is_modern() {
            // It has no notifications from clients but the cancellation of a request (2026-07-28 changelog).
            return Ok(());
        }
        let sending = async {
            match link.send(inner, &message).await {
                // The session was lost: it belongs to the next one.
                Err(BackendError::Status { status: 404, .. }) if matches!(&link.wiring, Wiring::Http(http) if http.has_session) => {
                    let link = inner.renew(link.epoch).await?;
                    link.send(inner, &message).await
                }
                result => result,
            }
        };
        inner.bounded(SEND, sending).await
    }

    /// Sends the answer to a request of the server; bounded. Never waits for a call to be read.
    pub async fn respond(&self, message: Wire) -> Result<(), BackendError> {
        let Some(message) = self.answered(message) else { return Ok(()) };
        let link = self.inner.connected()?;
        if link.hello.version.is_modern() {
            // Too late for the call that asked, and nothing that such a server could be sent (2026-07-28 changelog).
            return Ok(());
        }
        self.inner.bounded(SEND, link.send(&self.inner, &message)).await
    }

    /// Ends the wait of the call that the answered question belongs to. None when the call itself has taken the answer.
    fn answered(&self, message: Wire) -> Option<Wire> {
        if self.inner.questions.is_empty() && !self.inner.has_inputs() {
            return Some(message);
        }
        let raw = message.into_bytes();
        if let Ok(Incoming::Response(response)) = Incoming::parse(raw.clone())
            && let Some(id) = &response.id
        {
            self.inner.questions.answered(id);
            if self.inner.give_input(&response) {
                return None;
            }
        }
        Some(raw.into())
    }

    /// From now on keeps the GET stream of streamable HTTP open. Other transports bring everything anyway.
    pub fn listen(&self) {
        let http = matches!(self.inner.backend.target, Target::Http { .. });
        if http && !self.inner.listening.swap(true, Ordering::Relaxed) {
            let inner = self.inner.clone();
            self.inner.spawn(async move {
                let stop = inner.stop.clone();
                stop.run_until_cancelled(Box::pin(listen::run(inner))).await;
            });
        }
    }

    /// Sees to it that a server of 2026-07-28 tells of a task of its own, by `notifications/tasks` in the inbox, and waits until it says so.
    ///
    /// # Errors
    /// Why it does not; nothing is left of the wish then.
    pub async fn watch_task(&self, id: &str) -> Result<(), String> {
        let link = self.inner.connected().map_err(|e| e.to_string())?;
        if !link.hello.version.is_modern() {
            return Err("it is of an older revision".into());
        }
        modern::listen::watch(&self.inner, &link, id).await
    }

    /// Takes that back.
    pub fn unwatch_task(&self, id: &str) {
        modern::listen::unwish(&self.inner, Memo::Unwatch(id.to_owned()));
    }

    /// Ends all calls with `Closed`, ends the backend's session or the child, and waits for that: no longer than `limit`, after which
    /// what is left is ended by force. May be called again.
    pub async fn close(&self, limit: Duration) {
        let inner = &self.inner;
        inner.stop();
        inner.tasks.close();
        if tokio::time::timeout(limit, inner.tasks.wait()).await.is_err() {
            inner.kill.cancel();
            let _ = tokio::time::timeout(FORCE, inner.tasks.wait()).await;
        }
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.inner.stop();
    }
}

/// Requests whose messages no client waits for.
pub(super) fn is_own_business(name: &str) -> bool {
    matches!(
        name,
        method::INITIALIZE
            | method::PING
            | method::TOOLS_LIST
            | method::PROMPTS_LIST
            | method::RESOURCES_LIST
            | method::RESOURCES_TEMPLATES_LIST
            // What servers say and ask about a task belongs to `tasks/result` (2025-11-25 tasks, "Input Required Status").
            | method::TASKS_GET
            | method::TASKS_LIST
            | method::TASKS_CANCEL
    )
}

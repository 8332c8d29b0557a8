//! One session's way to one backend: the public face over whatever connection there is.
//!
//! Owns the state that outlives a connection (ids, what is to be restored, the phase) and the tasks. How connections come and go is
//! in `connect`; `session` and `gateway` call this.

use super::call::{Call, Slot, Way};
use super::connect;
use super::error::BackendError;
use super::handshake;
use super::http::{exchange, listen};
use super::link::{Link, Wiring};
use super::pipe::Pipe;
use super::restore::{Memo, Restore};
use super::target::Backend;
use super::{CallEvent, FromServer, Hello, Inbox, Outbound, ServerHello, State};
use crate::protocol::{Notification, RequestId, Wire, method};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore, mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Progress of one call that came on another stream and waits for its reader. What comes when it is full is dropped.
const ASIDE: usize = 16;
/// Answers to pings that are on their way at the same time. A ping beyond that is not answered.
const PONGS: usize = 4;
/// How long a notification or an answer to the server may take.
const SEND: Duration = Duration::from_secs(10);
/// After its limit `close` waits so long for what it then ends by force.
const FORCE: Duration = Duration::from_millis(500);
/// An upstream that is down is tried on demand at most once in this time; a child at most eight times in five seconds.
const DEMAND: Duration = Duration::from_millis(750);
/// Lines of noise that are logged per minute.
const NOISE: u32 = 20;

/// One session's way to one backend. Dropping it ends all that it owns: calls at once, connections, the child and the backend's
/// session within a few seconds; `close` is for those who want to wait for that.
#[derive(Debug)]
pub struct Upstream {
    inner: Arc<Inner>,
}

/// What the tasks of an upstream share.
#[derive(Debug)]
pub struct Inner {
    pub backend: Arc<Backend>,
    pub hello: Arc<Hello>,
    inbox: Inbox,
    pub phase: watch::Sender<Phase>,
    /// The latest connection whose session the backend has lost.
    pub lost_epoch: AtomicU64,
    /// Wakes the connecting task after `lost_epoch` has changed.
    pub lost: Notify,
    /// Somebody wants an upstream that is down.
    pub demand: Notify,
    next_id: AtomicU64,
    /// Calls that take progress from other streams (HTTP only).
    pub tokens: Mutex<HashMap<u64, mpsc::Sender<CallEvent>>>,
    pub restore: Mutex<Restore>,
    listening: AtomicBool,
    pongs: Arc<Semaphore>,
    noise: Mutex<Noise>,
    /// No more calls; everything ends in an orderly way.
    pub stop: CancellationToken,
    /// Everything ends now.
    pub kill: CancellationToken,
    pub tasks: TaskTracker,
}

/// Where the upstream is.
#[derive(Clone, Debug)]
pub enum Phase {
    Connecting,
    Up(Arc<Link>),
    /// The backend has lost the session of this connection; a new one is being made.
    Renewing(Arc<Link>),
    Down {
        why: Arc<str>,
        /// When the last attempt began.
        tried: Instant,
        /// When the next one is due.
        next: Instant,
    },
    Closed,
}

#[derive(Debug)]
struct Noise {
    since: Instant,
    count: u32,
}

impl Upstream {
    /// Starts connecting. Never fails: a dead backend is `Down`, and is tried again with growing waits until the upstream is closed.
    pub fn open(backend: Arc<Backend>, hello: Arc<Hello>, inbox: Inbox) -> Arc<Upstream> {
        let inner = Arc::new(Inner {
            backend,
            hello,
            inbox,
            phase: watch::Sender::new(Phase::Connecting),
            lost_epoch: AtomicU64::new(0),
            lost: Notify::new(),
            demand: Notify::new(),
            next_id: AtomicU64::new(1),
            tokens: Mutex::default(),
            restore: Mutex::default(),
            listening: AtomicBool::new(false),
            pongs: Arc::new(Semaphore::new(PONGS)),
            noise: Mutex::new(Noise { since: Instant::now(), count: 0 }),
            stop: CancellationToken::new(),
            kill: CancellationToken::new(),
            tasks: TaskTracker::new(),
        });
        inner.spawn(connect::run(inner.clone()));
        Arc::new(Upstream { inner })
    }

    pub fn name(&self) -> &Arc<str> {
        &self.inner.backend.name
    }

    pub fn backend(&self) -> &Arc<Backend> {
        &self.inner.backend
    }

    pub fn state(&self) -> State {
        match &*self.inner.phase.borrow() {
            Phase::Connecting => State::Connecting,
            Phase::Up(link) | Phase::Renewing(link) => State::Connected(link.hello.clone()),
            Phase::Down { why, .. } => State::Down(why.clone()),
            Phase::Closed => State::Closed,
        }
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
        let id = inner.next_id();
        let mut edits = out.edits;
        let wants_progress = out.progress_token_at.is_some();
        if let Some(at) = out.progress_token_at {
            edits.replace(at, id.to_string());
        }
        let message = out.request.rewritten(&RequestId::number(id), edits);
        let memo = Memo::of(&out.request.method, &message);
        let (way, aside) = match &link.wiring {
            Wiring::Http(_) => {
                let aside = wants_progress.then(|| {
                    let (sender, receiver) = mpsc::channel(ASIDE);
                    lock(&inner.tokens).insert(id, sender);
                    receiver
                });
                let slot = Slot::default();
                let exchange = Box::pin(exchange::run(inner.clone(), link.clone(), id, message, slot.clone()));
                (Way::Http { exchange, slot }, aside)
            }
            Wiring::Pipe(pipe) => {
                let owns = !is_own_business(&out.request.method);
                let late = |_| Err(inner.unavailable("it does not read its input", None));
                let registered = tokio::time::timeout_at(deadline, pipe.call(inner, id, message, owns)).await.unwrap_or_else(late)?;
                (Way::Pipe(registered), None)
            }
        };
        Ok(Call::new(inner.clone(), link, id, way, aside, deadline, limit, memo))
    }

    /// Sends a notification; bounded.
    pub async fn notify(&self, message: Wire) -> Result<(), BackendError> {
        let inner = &self.inner;
        let link = inner.ready(SEND).await?;
        let sending = async {
            match link.send(inner, &message).await {
                // The session was lost: it belongs to the next one.
                Err(BackendError::Status { status: 404, .. }) if matches!(link.wiring, Wiring::Http(_)) => {
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
        let link = self.inner.connected()?;
        self.inner.bounded(SEND, link.send(&self.inner, &message)).await
    }

    /// From now on keeps the GET stream of streamable HTTP open. Other transports bring everything anyway.
    pub fn listen(&self) {
        let http = matches!(self.inner.backend.target, super::Target::Http { .. });
        if http && !self.inner.listening.swap(true, Ordering::Relaxed) {
            let inner = self.inner.clone();
            self.inner.spawn(async move {
                let stop = inner.stop.clone();
                stop.run_until_cancelled(listen::run(inner)).await;
            });
        }
    }

    /// Ends all calls with `Closed`, ends the backend's session or the child, and waits for that: no longer than `limit`, after which
    /// what is left is ended by force. May be called again.
    pub async fn close(&self, limit: Duration) {
        let inner = &self.inner;
        inner.stop.cancel();
        inner.tasks.close();
        if tokio::time::timeout(limit, inner.tasks.wait()).await.is_err() {
            inner.kill.cancel();
            let _ = tokio::time::timeout(FORCE, inner.tasks.wait()).await;
        }
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.inner.stop.cancel();
    }
}

/// Requests whose messages no client waits for.
fn is_own_business(name: &str) -> bool {
    matches!(name, method::INITIALIZE | method::PING | method::TOOLS_LIST | method::PROMPTS_LIST | method::RESOURCES_LIST | method::RESOURCES_TEMPLATES_LIST)
}

impl Inner {
    pub fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// A task of this upstream: ended by `kill` at the latest.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let kill = self.kill.clone();
        self.tasks.spawn(async move {
            kill.run_until_cancelled(task).await;
        });
    }

    /// The present connection; waits while one is being made, and asks for one where it is down.
    async fn ready(&self, limit: Duration) -> Result<Arc<Link>, BackendError> {
        let mut phase = self.phase.subscribe();
        let mut asked = false;
        let waiting = async {
            loop {
                match &*phase.borrow_and_update() {
                    Phase::Up(link) => return Ok(link.clone()),
                    Phase::Connecting | Phase::Renewing(_) => asked = true,
                    Phase::Down { tried, .. } if !asked && tried.elapsed() >= DEMAND => {
                        asked = true;
                        self.demand.notify_one();
                    }
                    Phase::Down { why, next, .. } => return Err(self.unavailable(&**why, Some(next.saturating_duration_since(Instant::now())))),
                    Phase::Closed => return Err(BackendError::Closed),
                }
                if phase.changed().await.is_err() {
                    return Err(BackendError::Closed);
                }
            }
        };
        tokio::time::timeout(limit, waiting).await.unwrap_or_else(|_| Err(self.unavailable(format!("not connected within {limit:?}"), None)))
    }

    /// The present connection, without waiting.
    fn connected(&self) -> Result<Arc<Link>, BackendError> {
        match &*self.phase.borrow() {
            Phase::Up(link) | Phase::Renewing(link) => Ok(link.clone()),
            Phase::Connecting => Err(self.unavailable("not connected yet", None)),
            Phase::Down { why, .. } => Err(self.unavailable(&**why, None)),
            Phase::Closed => Err(BackendError::Closed),
        }
    }

    /// Waits for a connection for as long as it takes.
    pub async fn up(&self) -> Result<Arc<Link>, BackendError> {
        let mut phase = self.phase.subscribe();
        let up = phase.wait_for(|p| matches!(p, Phase::Up(_) | Phase::Closed)).await;
        match up.as_deref() {
            Ok(Phase::Up(link)) => Ok(link.clone()),
            _ => Err(BackendError::Closed),
        }
    }

    /// Waits until the connection `epoch` is not the present one any more.
    pub async fn until_not(&self, epoch: u64) {
        let mut phase = self.phase.subscribe();
        let _ = phase.wait_for(|p| !matches!(p, Phase::Up(link) if link.epoch == epoch)).await;
    }

    /// The backend does not know the session of `epoch` any more.
    pub fn lost(&self, epoch: u64) {
        self.lost_epoch.fetch_max(epoch, Ordering::AcqRel);
        self.lost.notify_one();
    }

    /// Reports the session of `epoch` as lost and waits for the next one. All who wait share one attempt.
    pub async fn renew(&self, epoch: u64) -> Result<Arc<Link>, BackendError> {
        let mut phase = self.phase.subscribe();
        self.lost(epoch);
        loop {
            match &*phase.borrow_and_update() {
                Phase::Up(link) if link.epoch > epoch => return Ok(link.clone()),
                Phase::Down { why, .. } => return Err(self.unavailable(format!("its session was lost, and a new one could not be made: {why}"), None)),
                Phase::Closed => return Err(BackendError::Closed),
                _ => {}
            }
            if phase.changed().await.is_err() {
                return Err(BackendError::Closed);
            }
        }
    }

    /// Puts something into the session's inbox; waits while it is full.
    pub async fn tell(&self, what: FromServer) {
        let _ = self.inbox.send(what).await;
    }

    /// Hands progress to the call that it is of, when it came on another stream than the call's.
    pub fn progress_aside(&self, token: u64, message: Notification, token_at: Range<usize>) {
        let sender = lock(&self.tokens).get(&token).cloned();
        let given = sender.map(|s| s.try_send(CallEvent::Progress { message, token_at }).is_ok());
        if given != Some(true) {
            tracing::debug!(backend = %self.backend.name, session = %self.hello.session_tag, known = given.is_some(), "progress was dropped");
        }
    }

    /// Answers a ping on the present connection.
    pub fn pong(self: &Arc<Self>, id: &RequestId) {
        if let Ok(link) = self.connected() {
            let (inner, message) = (self.clone(), handshake::pong(id));
            self.answer_ping(async move { link.send(&inner, &message).await });
        }
    }

    /// Answers a ping on a pipe.
    pub fn reply(self: &Arc<Self>, pipe: Arc<Pipe>, message: Wire) {
        let inner = self.clone();
        self.answer_ping(async move { pipe.send(&inner, message).await });
    }

    fn answer_ping(&self, answer: impl Future<Output = Result<(), BackendError>> + Send + 'static) {
        let Ok(permit) = self.pongs.clone().try_acquire_owned() else {
            self.noise("a ping was not answered: there are too many");
            return;
        };
        self.spawn(async move {
            let _ = tokio::time::timeout(SEND, answer).await;
            drop(permit);
        });
    }

    /// Logs something odd that a server does, but not without end.
    pub fn noise(&self, what: &str) {
        let count = {
            let mut noise = lock(&self.noise);
            if noise.since.elapsed() > Duration::from_secs(60) {
                *noise = Noise { since: Instant::now(), count: 0 };
            }
            noise.count = noise.count.saturating_add(1);
            noise.count
        };
        if count < NOISE {
            tracing::warn!(backend = %self.backend.name, session = %self.hello.session_tag, "{what}");
        } else if count == NOISE {
            tracing::warn!(backend = %self.backend.name, session = %self.hello.session_tag, "{what}; more of this is not logged for a minute");
        }
    }

    async fn bounded(&self, limit: Duration, sending: impl Future<Output = Result<(), BackendError>>) -> Result<(), BackendError> {
        let late = |_| Err(BackendError::Timeout { backend: self.backend.name.clone(), limit });
        tokio::select! {
            result = tokio::time::timeout(limit, sending) => result.unwrap_or_else(late),
            () = self.stop.cancelled() => Err(BackendError::Closed),
        }
    }

    pub fn unavailable(&self, reason: impl Into<String>, retry_after: Option<Duration>) -> BackendError {
        BackendError::Unavailable { backend: self.backend.name.clone(), reason: reason.into(), retry_after }
    }

    pub fn broken(&self, reason: impl Into<String>) -> BackendError {
        BackendError::Broken { backend: self.backend.name.clone(), reason: reason.into() }
    }

    /// The backend broke the protocol.
    pub fn broke(&self, reason: impl Into<String>) -> BackendError {
        BackendError::Protocol { backend: self.backend.name.clone(), reason: reason.into() }
    }
}

/// What is under these locks is whole at every step, so a panic elsewhere does not spoil it.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

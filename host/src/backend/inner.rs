//! What the tasks and calls of one upstream share: its phase, its numbers, what outlives a connection, and the way to the inbox.

use super::announce::Told;
use super::connect::{self, Keeper};
use super::error::BackendError;
use super::handshake;
use super::link::Link;
use super::modern::Modern;
use super::phase::{Phase, Phases};
use super::pipe::Pipe;
use super::restore::Restore;
use super::target::Backend;
use super::waits::Questions;
use super::{CallEvent, FromServer, Hello, Inbox};
use crate::admission::Room;
use crate::protocol::{Notification, RequestId, Response, Wire};
use crate::rare::Rare;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Answers to pings that are on their way at the same time. A ping beyond that is not answered.
const PONGS: usize = 4;
/// How long a notification or an answer to the server may take.
pub const SEND: Duration = Duration::from_secs(10);
/// An upstream that is down is tried on demand at most once in this time; a child at most eight times in five seconds.
pub const DEMAND: Duration = Duration::from_millis(750);
/// A message above this size is alone in the inbox.
const LARGE: usize = 16 * 1024;
/// Lines of noise that are logged per minute.
const NOISE: u32 = 20;

/// What the tasks of an upstream share.
#[derive(Debug)]
pub struct Inner {
    pub backend: Arc<Backend>,
    pub hello: Arc<Hello>,
    inbox: Inbox,
    /// Where large messages get their room from that belong to no call.
    pub room: Option<Room>,
    pub phase: Phases,
    /// The connecting task, while it has nothing to do.
    pub keeper: Keeper,
    pub told: Mutex<Told>,
    /// The latest connection whose session the backend has lost.
    pub lost_epoch: AtomicU64,
    /// Wakes the connecting task after `lost_epoch` has changed, where it waits for the end of a pipe.
    pub lost: Notify,
    /// Somebody wants an upstream that is down.
    pub demand: Notify,
    /// Begins anywhere, so that no other session has requests with the same ids: a response that a confused server gives to the wrong
    /// one is not taken for its answer.
    next_id: AtomicU64,
    /// Calls that take progress from other streams (HTTP only).
    pub tokens: Rare<HashMap<u64, mpsc::Sender<CallEvent>>>,
    pub questions: Questions,
    pub restore: Rare<Restore>,
    pub listening: AtomicBool,
    /// Only where the server is of 2026-07-28.
    modern: OnceLock<Box<Modern>>,
    /// Answers to pings under way.
    pongs: AtomicUsize,
    noise: Mutex<Noise>,
    /// No more calls; everything ends in an orderly way.
    pub stop: CancellationToken,
    /// Everything ends now.
    pub kill: CancellationToken,
    pub tasks: TaskTracker,
}

/// Not above 2^30: there are servers that read ids into 32 bits.
fn first_id() -> u64 {
    u64::from(getrandom::u32().unwrap_or(1) >> 2).max(1)
}

#[derive(Debug)]
struct Noise {
    since: Instant,
    count: u32,
}

/// One that is counted in `pongs`.
struct Pong(Arc<Inner>);

impl Drop for Pong {
    fn drop(&mut self) {
        self.0.pongs.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Inner {
    pub fn new(backend: Arc<Backend>, hello: Arc<Hello>, inbox: Inbox, room: Option<Room>) -> Inner {
        Inner {
            backend,
            hello,
            inbox,
            room,
            phase: Phases::new(),
            keeper: Keeper::default(),
            told: Mutex::default(),
            lost_epoch: AtomicU64::new(0),
            lost: Notify::new(),
            demand: Notify::new(),
            next_id: AtomicU64::new(first_id()),
            tokens: Rare::default(),
            questions: Questions::default(),
            restore: Rare::default(),
            listening: AtomicBool::new(false),
            modern: OnceLock::new(),
            pongs: AtomicUsize::new(0),
            noise: Mutex::new(Noise { since: Instant::now(), count: 0 }),
            stop: CancellationToken::new(),
            kill: CancellationToken::new(),
            tasks: TaskTracker::new(),
        }
    }

    pub fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    pub fn modern(&self) -> &Modern {
        self.modern.get_or_init(|| Box::new(Modern::new(&self.hello)))
    }

    /// Gives the answer to a question that came as the result of a call. False: it is none.
    pub fn give_input(&self, answer: &Response) -> bool {
        self.modern.get().is_some_and(|modern| modern.inputs.give(answer))
    }

    /// Whether such questions are open.
    pub fn has_inputs(&self) -> bool {
        self.modern.get().is_some_and(|modern| !modern.inputs.is_empty())
    }

    /// A task of this upstream: ended by `kill` at the latest.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let kill = self.kill.clone();
        // Boxed: else it has its place three times in the task, once for each wrapper that it is moved through.
        let task = Box::pin(task);
        self.tasks.spawn(async move {
            kill.run_until_cancelled(task).await;
        });
    }

    /// The present connection; waits while one is being made, and asks for one where it is down.
    pub async fn ready(&self, limit: Duration) -> Result<Arc<Link>, BackendError> {
        if let Some(link) = self.phase.look(Phase::up) {
            return Ok(link);
        }
        let mut asked = false;
        let waiting = self.phase.until(|phase| match phase {
            Phase::Up(link) => Some(Ok(link.clone())),
            Phase::Connecting | Phase::Renewing(_) => {
                asked = true;
                None
            }
            Phase::Down { tried, .. } if !asked && tried.elapsed() >= DEMAND => {
                asked = true;
                self.demand.notify_one();
                None
            }
            Phase::Down { why, next, .. } => Some(Err(self.unavailable(&**why, Some(next.saturating_duration_since(Instant::now()))))),
            Phase::Closed => Some(Err(BackendError::Closed)),
        });
        tokio::time::timeout(limit, waiting)
            .await
            .unwrap_or_else(|_| Err(self.unavailable(format!("not connected within {limit:?}"), None)))
    }

    /// The present connection, without waiting.
    pub fn connected(&self) -> Result<Arc<Link>, BackendError> {
        self.phase.look(|phase| match phase {
            Phase::Up(link) | Phase::Renewing(link) => Ok(link.clone()),
            Phase::Connecting => Err(self.unavailable("not connected yet", None)),
            Phase::Down { why, .. } => Err(self.unavailable(&**why, None)),
            Phase::Closed => Err(BackendError::Closed),
        })
    }

    /// Waits for a connection for as long as it takes.
    pub async fn up(&self) -> Result<Arc<Link>, BackendError> {
        let up = |phase: &Phase| match phase {
            Phase::Up(link) => Some(Ok(link.clone())),
            Phase::Closed => Some(Err(BackendError::Closed)),
            _ => None,
        };
        self.phase.until(up).await
    }

    /// Waits until the connection `epoch` is not the present one any more.
    pub async fn until_not(&self, epoch: u64) {
        self.phase.until(|p| (!matches!(p, Phase::Up(link) if link.epoch == epoch)).then_some(())).await;
    }

    /// Waits until there is, or is to be, another connection than `epoch`, which may not be the present one yet.
    pub async fn superseded(&self, epoch: u64) {
        let over = |phase: &Phase| match phase {
            Phase::Connecting => false,
            Phase::Up(link) => link.epoch > epoch,
            Phase::Renewing(link) => link.epoch >= epoch,
            Phase::Down { .. } | Phase::Closed => true,
        };
        self.phase.until(|phase| over(phase).then_some(())).await;
    }

    /// The backend does not know the session of `epoch` any more.
    pub fn lost(self: &Arc<Self>, epoch: u64) {
        self.lost_epoch.fetch_max(epoch, Ordering::AcqRel);
        self.lost.notify_one();
        connect::wake(self);
    }

    pub fn is_lost(&self, epoch: u64) -> bool {
        self.lost_epoch.load(Ordering::Acquire) >= epoch
    }

    /// No more calls; the connection is ended in an orderly way.
    pub fn stop(self: &Arc<Self>) {
        self.stop.cancel();
        connect::wake(self);
    }

    /// Reports the session of `epoch` as lost and waits for the next one. All who wait share one attempt.
    pub async fn renew(self: &Arc<Self>, epoch: u64) -> Result<Arc<Link>, BackendError> {
        self.lost(epoch);
        let renewed = |phase: &Phase| match phase {
            Phase::Up(link) if link.epoch > epoch => Some(Ok(link.clone())),
            Phase::Down { why, .. } => {
                Some(Err(self.unavailable(format!("its session was lost, and a new one could not be made: {why}"), None)))
            }
            Phase::Closed => Some(Err(BackendError::Closed)),
            _ => None,
        };
        self.phase.until(renewed).await
    }

    /// Puts something into the session's inbox; waits while it is full. What is large waits until it is empty: one at a time.
    pub async fn tell(&self, what: FromServer) {
        let bytes = match &what {
            FromServer::Notification(note) => note.raw.len(),
            FromServer::Request(request) => request.raw.len(),
            FromServer::Up(_) | FromServer::Down(_) => 0,
        };
        self.inbox.put(what, bytes > LARGE).await;
    }

    /// Hands progress to the call that it is of, when it came on another stream than the call's.
    pub fn progress_aside(&self, token: u64, message: Notification, token_at: Range<usize>) {
        let sender = self.tokens.look(|tokens| tokens.get(&token).cloned()).flatten();
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

    fn answer_ping(self: &Arc<Self>, answer: impl Future<Output = Result<(), BackendError>> + Send + 'static) {
        let before = self.pongs.fetch_add(1, Ordering::Relaxed);
        let counted = Pong(self.clone());
        if before >= PONGS {
            self.noise("a ping was not answered: there are too many");
            return;
        }
        self.spawn(async move {
            let _ = tokio::time::timeout(SEND, answer).await;
            drop(counted);
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

    pub async fn bounded(&self, limit: Duration, sending: impl Future<Output = Result<(), BackendError>>) -> Result<(), BackendError> {
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

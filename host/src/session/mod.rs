//! A session: a closed chamber. Everything that belongs to one client's conversation hangs from one `Session` value: calls in flight,
//! questions that servers asked, downstream streams, upstreams, names, subscriptions, policy state. Closing it ends all of that.
//!
//! A session is found only by a `SessionKey`, which the front builds from a verified request. There is no second map keyed by session
//! that someone must remember to clean. Locks here are per session, short, and never held across an await.

mod asked;
mod calls;
mod carriers;
mod key;
mod listeners;
mod registry;
pub mod streams;
mod tasks;
mod virtual_host;

pub use asked::{About, Asked, Question};
pub use calls::{Begin, CallControl, Cancel};
pub use carriers::Carriers;
pub use key::{Principal, SessionId, SessionKey};
pub use listeners::{LISTENS, Listener, Listeners, Topic, Wanted, Watched};
pub use registry::{Found, Full, Place, Registry, RegistryLimits};
pub use tasks::{RunBy, Tasks};
pub use virtual_host::{LastNames, VirtualHost};

use crate::admission::Ledger;
use crate::backend::{ServerHello, State, Upstream};
use crate::catalog::{Annotated, Published, Table, Target};
use crate::protocol::{Request, Version};
use crate::rare::Rare;
use crate::telemetry::metrics::LevelGuard;
use bytes::Bytes;
use lockgate_policy::{BackendState, BackendView, Chain, Claims, Kind, Scratch, SessionView, Warm};
use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use streams::{ReplayLimits, Streams};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Subscriptions that one session may have.
pub const SUBSCRIPTIONS: usize = 1024;

/// What the client said of itself at `initialize`, or with each request (2026-07-28). It never changes afterwards.
#[derive(Clone, Debug)]
pub struct Client {
    pub version: Version,
    /// JSON text of `capabilities`.
    pub capabilities: Bytes,
    /// JSON text of `clientInfo`.
    pub info: Bytes,
    pub declares: Declares,
}

/// The requests that the client is prepared to answer, and tasks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Declares {
    pub sampling: bool,
    pub elicitation: bool,
    pub roots: bool,
    /// What its era calls tasks: that it can follow those of servers (2026-07-28), or runs some for them (2025-11-25).
    pub tasks: bool,
}

/// Bounds of one session.
#[derive(Clone, Copy, Debug)]
pub struct SessionLimits {
    /// Requests of the client in flight at once.
    pub in_flight: usize,
    /// Requests of servers to the client that wait for an answer at once.
    pub server_requests: usize,
    /// How long such a request may wait.
    pub answer_timeout: Duration,
    pub replay: ReplayLimits,
    /// What the client may be owed.
    pub admission: crate::admission::Limits,
}

pub struct Session {
    key: SessionKey,
    tag: Arc<str>,
    /// What a cursor that was given out is good for, where that is not the session.
    scope: Option<Arc<str>>,
    pub client: Client,
    pub host: Arc<VirtualHost>,
    /// What else is known of the principal; policies see what they are granted of it.
    claims: Arc<Claims>,
    /// Its names, and the policies that made them.
    published: Mutex<Arc<Published>>,
    /// Names are made by one task at a time.
    naming: Semaphore,
    /// Kinds of lists whose change the client is still to be told, as bits; and [`TELLING`].
    news: AtomicU8,
    pub streams: Arc<Streams>,
    /// What the client is owed, over all its streams.
    pub ledger: Arc<Ledger>,
    pub asked: Asked,
    /// Only of a client of 2025-11-25.
    pub known_tasks: Tasks,
    calls: calls::Calls,
    upstreams: OnceLock<Vec<Arc<Upstream>>>,
    /// By backend: index as in `host.backends`.
    standing: Mutex<Box<[Standing]>>,
    /// Subscribed resources: backend and its own URI, to the URI that the client used.
    subscriptions: Rare<HashMap<(usize, String), String>>,
    /// The last `logging/setLevel` that the client sent.
    level: Rare<Option<Request>>,
    /// Only of a client of 2026-07-28: what its tools want repeated in headers.
    pub annotated: Annotated,
    /// Only of such a client.
    pub listeners: Listeners,
    /// Of such a client: what is under way.
    pub carriers: Carriers,
    /// The connection that it stood for has ended: it ends with its last call.
    orphaned: AtomicBool,
    scratch: Arc<Scratch>,
    warm: Arc<Warm>,
    used: Mutex<Instant>,
    created: Instant,
    place: Mutex<Option<(Place, LevelGuard)>>,
    /// The client has its id.
    registered: AtomicBool,
    ended: CancellationToken,
    tasks: TaskTracker,
    /// One list is walked at a time, however many calls wait for what it brings.
    walking: Semaphore,
}

/// How the session stands with one backend.
#[derive(Default)]
struct Standing {
    /// What it said when its part was last told to the client.
    announced: Option<Arc<ServerHello>>,
    /// Of a client of 2026-07-28: what it was asked for at least, as rank of its log level.
    level: u8,
    /// It has come once.
    came: bool,
    /// Counts it while it is connected.
    counted: Option<LevelGuard>,
}

/// What a session is made of.
pub struct NewSession {
    pub key: SessionKey,
    /// Stands for it in logs.
    pub tag: Arc<str>,
    pub client: Client,
    pub host: Arc<VirtualHost>,
    /// What is known of its principal.
    pub claims: Arc<Claims>,
    pub limits: SessionLimits,
    pub ledger: Arc<Ledger>,
    pub place: (Place, LevelGuard),
}

/// A task tells the client what changed.
const TELLING: u8 = 0x80;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics under these locks; a poisoned value would still be whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Session {
    pub fn new(of: NewSession) -> Arc<Self> {
        let NewSession { key, tag, client, host, claims, limits, ledger, place } = of;
        let scope = match client.version.is_modern() {
            // The next page may be asked for in another chamber of the same client.
            true => Some(format!("{} {}", key.principal.name(), key.virtual_host).into()),
            false => None,
        };
        Arc::new(Session {
            key,
            tag,
            scope,
            claims,
            published: Mutex::new(Arc::new(Published::new(host.policies.current()))),
            naming: Semaphore::new(1),
            news: AtomicU8::new(0),
            standing: Mutex::new(host.backends.iter().map(|_| Standing { level: u8::MAX, ..Standing::default() }).collect()),
            client,
            host,
            streams: Arc::new(Streams::new(limits.replay, ledger.clone())),
            ledger,
            asked: Asked::new(limits.server_requests, limits.answer_timeout),
            known_tasks: Tasks::default(),
            calls: calls::Calls::new(limits.in_flight),
            upstreams: OnceLock::new(),
            subscriptions: Rare::default(),
            level: Rare::default(),
            annotated: Annotated::default(),
            listeners: Listeners::default(),
            carriers: Carriers::default(),
            orphaned: AtomicBool::new(false),
            scratch: Scratch::new(),
            warm: Warm::new(),
            used: Mutex::new(Instant::now()),
            created: Instant::now(),
            place: Mutex::new(Some(place)),
            registered: AtomicBool::new(false),
            ended: CancellationToken::new(),
            tasks: TaskTracker::new(),
            walking: Semaphore::new(1),
        })
    }

    pub fn key(&self) -> &SessionKey {
        &self.key
    }

    pub fn id(&self) -> &SessionId {
        &self.key.id
    }

    /// Within what a cursor is good: this session, or all that the principal has at the virtual host where there are no sessions.
    pub fn scope(&self) -> &str {
        self.scope.as_deref().unwrap_or(self.key.id.as_str())
    }

    /// A short hash that stands for the session in logs. The id itself is told to nobody but its owner.
    pub fn tag(&self) -> &Arc<str> {
        &self.tag
    }

    pub fn version(&self) -> Version {
        self.client.version
    }

    // --- upstreams

    /// Sets the upstreams, once, in the order of `host.backends`.
    pub fn set_upstreams(&self, upstreams: Vec<Arc<Upstream>>) {
        debug_assert_eq!(upstreams.len(), self.host.backends.len());
        let _ = self.upstreams.set(upstreams);
    }

    pub fn upstreams(&self) -> &[Arc<Upstream>] {
        self.upstreams.get().map_or(&[], Vec::as_slice)
    }

    /// What a policy may know of this session.
    pub fn view(&self) -> SessionView {
        let upstreams = self.upstreams();
        let backends = self.host.backends.iter().enumerate().map(|(at, backend)| BackendView {
            name: backend.name.clone(),
            state: match upstreams.get(at).map(|u| u.state()) {
                Some(State::Connected(_)) => BackendState::Connected,
                // Before they are set none has been tried.
                Some(State::Connecting) | None => BackendState::Connecting,
                Some(State::Down(_) | State::Closed) => BackendState::Down,
            },
        });
        SessionView {
            principal: self.key.principal.name().clone(),
            claims: self.claims.clone(),
            virtual_host: self.key.virtual_host.clone(),
            backends: backends.collect(),
            scratch: self.scratch.clone(),
            warm: self.warm.clone(),
        }
    }

    /// A target as policies see it.
    pub fn policy_target(&self, target: &Target) -> lockgate_policy::Target {
        lockgate_policy::Target { backend: self.host.backends[target.backend].name.to_string(), name: target.name.to_string() }
    }

    /// A target of a policy, if it is a backend of this session.
    pub fn target(&self, target: lockgate_policy::Target) -> Option<Target> {
        let backend = self.host.backends.iter().position(|b| *b.name == *target.backend)?;
        Some(Target { backend, name: target.name.into() })
    }

    /// Notes that the client knows of `hello` (by the answer to initialize, or a list_changed). Answers whether that is news.
    pub fn announce(&self, backend: usize, hello: &Arc<ServerHello>) -> bool {
        match lock(&self.standing).get_mut(backend) {
            Some(Standing { announced: Some(known), .. }) if Arc::ptr_eq(known, hello) => false,
            Some(standing) => {
                standing.announced = Some(hello.clone());
                true
            }
            None => false,
        }
    }

    /// Notes that a backend has come. Answers whether it had come before.
    pub fn has_come(&self, backend: usize) -> bool {
        lock(&self.standing).get_mut(backend).is_some_and(|standing| std::mem::replace(&mut standing.came, true))
    }

    /// Notes that a backend is connected, or is not.
    pub fn count_upstream(&self, backend: usize, counted: Option<LevelGuard>) {
        if let Some(standing) = lock(&self.standing).get_mut(backend) {
            standing.counted = counted;
        }
    }

    /// The turn to walk lists; the others wait, and then find the names.
    pub async fn walk_turn(&self) -> Option<SemaphorePermit<'_>> {
        self.walking.acquire().await.ok()
    }

    // --- names

    /// The names as they are now, with the policies that made them. A request takes them once and keeps them.
    pub fn published(&self) -> Arc<Published> {
        lock(&self.published).clone()
    }

    /// The turn to make names; released by drop.
    pub async fn naming_turn(&self) -> Option<SemaphorePermit<'_>> {
        self.naming.acquire().await.ok()
    }

    /// Puts what `chain` made in place of the names that there are. Only who has the turn may call it.
    pub fn succeed(&self, chain: Arc<Chain>, tables: [Arc<Table>; 4]) -> Arc<Published> {
        let mut published = lock(&self.published);
        // Under the lock, so that no change of a list falls between the two.
        *published = Arc::new(published.succeed(chain, tables));
        published.clone()
    }

    /// What a backend lists of this kind has changed.
    pub fn list_changed(&self, kind: Kind, backend: usize) {
        if let Some(table) = lock(&self.published).made_of(kind) {
            table.changed(backend);
        }
        if kind == Kind::Tool {
            self.annotated.forget(backend);
        }
    }

    /// As `list_changed`, for everything that a backend lists.
    pub fn lists_changed(&self, backend: usize) {
        let published = lock(&self.published);
        published.made().for_each(|table| table.changed(backend));
    }

    /// A backend has come or gone: routers are asked anew.
    pub fn forget_routes(&self) {
        let published = lock(&self.published);
        published.made().for_each(|table| table.forget_routes());
    }

    /// Adds to what the client is to be told (bits below [`TELLING`]). True: nobody is at it, the caller has to see to it.
    pub fn add_news(&self, bits: u8) -> bool {
        self.news.fetch_or(bits | TELLING, Ordering::AcqRel) & TELLING == 0
    }

    /// What is to be told next. Zero: nothing, and the task that asks is relieved.
    pub fn take_news(&self) -> u8 {
        let bits = self.news.fetch_and(TELLING, Ordering::AcqRel) & !TELLING;
        if bits == 0 && self.news.compare_exchange(TELLING, 0, Ordering::AcqRel, Ordering::Acquire).is_err() {
            return self.news.fetch_and(TELLING, Ordering::AcqRel) & !TELLING;
        }
        bits
    }

    // --- what the client asked for that outlives a call

    pub fn subscribe(&self, backend: usize, uri: String, public: String) {
        self.subscriptions.change(|known| known.insert((backend, uri), public));
    }

    pub fn unsubscribe(&self, backend: usize, uri: &str) {
        self.subscriptions.look(|known| known.remove(&(backend, uri.to_owned())));
    }

    /// How many resources are subscribed.
    pub fn subscriptions(&self) -> usize {
        self.subscriptions.look(|known| known.len()).unwrap_or(0)
    }

    /// What the client subscribed to with this URI: the backend and its own URI.
    pub fn subscription(&self, public: &str) -> Option<(usize, String)> {
        self.subscriptions.look(|known| known.iter().find(|(_, used)| *used == public).map(|(key, _)| key.clone()))?
    }

    /// The URI that the client used when it subscribed.
    pub fn subscribed_as(&self, backend: usize, uri: &str) -> Option<String> {
        self.subscriptions.look(|known| known.get(&(backend, uri.to_owned())).cloned())?
    }

    pub fn set_level(&self, request: Request) {
        self.level.change(|level| *level = Some(request));
    }

    /// Notes that a backend is asked for log messages from `rank` on. False where it is asked for as much already.
    pub fn lower_level(&self, backend: usize, rank: u8) -> bool {
        match lock(&self.standing).get_mut(backend) {
            Some(standing) if standing.level > rank => {
                standing.level = rank;
                true
            }
            _ => false,
        }
    }

    pub fn level(&self) -> Option<Request> {
        self.level.look(|level| level.clone())?
    }

    // --- calls

    /// Registers a request of the client. The id is free again when the control is dropped.
    pub fn begin(self: &Arc<Self>, request: &Request) -> Begin {
        calls::Calls::begin(self, &request.id)
    }

    /// The call with this id, if it is in flight.
    pub fn call(&self, id: &crate::protocol::RequestId) -> Option<Arc<calls::Cancel>> {
        self.calls.find(id)
    }

    /// Runs `future` until it is done or the session ends. The session owns the task.
    pub fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        let ended = self.ended.clone();
        // Boxed: else it has its place twice in the task.
        let mut future = Box::pin(future);
        self.tasks.spawn(async move {
            tokio::select! {
                biased;
                () = ended.cancelled() => {}
                () = &mut future => {}
            }
        });
    }

    /// The tasks of the session, for what itself ends soon after the session does: `close` gives them a moment.
    pub fn tasks(&self) -> &TaskTracker {
        &self.tasks
    }

    // --- lifetime

    pub fn touch(&self) {
        *lock(&self.used) = Instant::now();
    }

    /// Since when nothing has happened: no request in flight, no stream open. None while something does.
    pub fn idle_since(&self) -> Option<Instant> {
        if !self.calls.is_empty() || self.streams.attached() > 0 {
            self.touch();
            return None;
        }
        Some(*lock(&self.used))
    }

    /// From now on the client knows the session, and is told of changes.
    pub fn set_registered(&self) {
        self.registered.store(true, Ordering::Release);
    }

    pub fn is_registered(&self) -> bool {
        self.registered.load(Ordering::Acquire)
    }

    /// The connection that it stood for has ended. What it still has to do it does to the end.
    pub fn orphan(&self) {
        self.orphaned.store(true, Ordering::Release);
    }

    pub fn is_orphan(&self) -> bool {
        self.orphaned.load(Ordering::Acquire)
    }

    /// Whether nobody can have any more of it.
    pub fn is_done(&self) -> bool {
        self.is_orphan() && self.calls.is_empty() && self.streams.attached() == 0
    }

    pub fn created(&self) -> Instant {
        self.created
    }

    pub fn in_flight(&self) -> usize {
        self.calls.len()
    }

    /// Wakes when the session ends.
    pub fn ended(&self) -> &CancellationToken {
        &self.ended
    }

    /// Ends everything that the session owns: calls are answered with an error, streams end, upstream sessions get their DELETE, children
    /// are reaped. `farewell` has its turn when the client can do nothing any more, and the upstreams are still there. Returns
    /// within about `limit` and what `farewell` takes; idempotent.
    pub async fn close(&self, limit: Duration, farewell: impl Future<Output = ()>) {
        /// Calls need a moment to be answered; they do not wait for anybody.
        const CLOSE_GRACE: Duration = Duration::from_millis(500);
        self.ended.cancel();
        self.ledger.stop_proving(std::time::Instant::now());
        self.tasks.close();
        let _ = tokio::time::timeout(CLOSE_GRACE.min(limit), self.tasks.wait()).await;
        self.streams.close();
        self.asked.clear();
        farewell.await;
        futures_util::future::join_all(self.upstreams().iter().map(|u| u.close(limit))).await;
        drop(lock(&self.place).take());
    }
}

//! What a client can ask for, one file per thing. Tells the story of a request in the order in which it happens: session, name,
//! backend, answer. Knows no HTTP: `front` hands in messages and takes out frames.

mod admit;
mod ask;
mod call;
mod capabilities;
mod complete;
mod explain;
mod flow;
mod inbox;
mod initialize;
mod job;
mod lifetime;
mod list;
mod logging;
mod modern;
mod open;
mod overview;
mod probe;
mod publish;
mod relay;
mod resolve;
mod resource;
mod route;
mod tasks;
mod uris;
mod work;

pub use crate::session::VirtualHost;
pub use explain::Explained;
pub use initialize::Opened;
pub use modern::chambers::{OwnChambers, Said};
pub use modern::{Answering, Asking, Level, ParkedLimits, Part, is_known};
pub use overview::Overview;
pub use work::Work;

use crate::admission::Permit;
use crate::catalog::cursor::Cursors;
use crate::protocol::seal::Sealer;
use crate::protocol::{Notification, Request, Response, RpcError, Wire, codes, method};
use crate::session::streams::{EventId, Reader};
use crate::session::{Cancel, Found, Registry, RegistryLimits, Session, SessionKey, SessionLimits};
use crate::telemetry::Metrics;
use crate::telemetry::metrics::{IsolationSignal, SessionEvent};
use http::StatusCode;
use lockgate_policy::{Claims, Kind};
use modern::chambers::Chambers;
use modern::{Extras, Parked};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Why a request was not taken. Nothing was run.
#[derive(Clone, Debug)]
pub struct Refusal {
    pub status: StatusCode,
    pub error: RpcError,
    pub retry_after: Option<Duration>,
}

/// What a request gets.
pub enum Reply {
    /// The whole answer.
    Now(Wire),
    /// Frames; the one with `last` is the answer. What cancels the call, and the work that it is: to be done by whoever waits for the
    /// frames, or dropped, upon which a task does it.
    Stream(Reader, Arc<Cancel>, Work),
}

/// The figures that the gateway works with, from the configuration.
#[derive(Clone, Debug)]
pub struct Settings {
    pub idle_timeout: Duration,
    pub max_lifetime: Option<Duration>,
    pub registry: RegistryLimits,
    pub session: SessionLimits,
    /// How long `initialize` may wait for backends.
    pub initialize_timeout: Duration,
    /// How long a merged list may take.
    pub list_timeout: Duration,
    /// What is known of principals beyond their names.
    pub claims: HashMap<Arc<str>, Arc<Claims>>,
    /// How often a client is asked on its own stream whether it reads.
    pub probe: Option<Duration>,
    /// Calls that wait for clients of 2026-07-28.
    pub parked: ParkedLimits,
    /// Seals what clients of 2026-07-28 carry for the gateway; none: one of its own.
    pub state_key: Option<[u8; 32]>,
}

/// Time that the end of a session may take: upstream DELETEs and children.
const CLOSE_LIMIT: Duration = Duration::from_secs(2);

/// Time that policies may take over the end of a session, all together.
const FAREWELL: Duration = Duration::from_secs(1);

pub struct Gateway {
    hosts: HashMap<Arc<str>, Arc<VirtualHost>>,
    settings: Settings,
    registry: Registry,
    cursors: Cursors,
    /// What belongs to clients without sessions.
    chambers: Chambers,
    parked: Parked,
    sealer: Sealer,
    metrics: Arc<Metrics>,
    /// Calls in flight in all sessions: what a shutdown waits for.
    calls: TaskTracker,
    /// Sessions that are being closed, and the reaper.
    background: TaskTracker,
    stopping: AtomicBool,
    stopped: CancellationToken,
    /// Policies were swapped.
    swapped: Arc<Notify>,
}

impl Gateway {
    /// A gateway with its reaper running. Fails when the system gives no random numbers.
    pub fn new(hosts: Vec<VirtualHost>, settings: Settings, metrics: Arc<Metrics>) -> Result<Arc<Self>, getrandom::Error> {
        let mut key = [0; 32];
        getrandom::fill(&mut key)?;
        let mut sealing = [0; 32];
        getrandom::fill(&mut sealing)?;
        let gateway = Arc::new(Gateway {
            hosts: hosts.into_iter().map(|h| (h.path.clone(), Arc::new(h))).collect(),
            registry: Registry::new(settings.registry),
            cursors: Cursors::new(key),
            chambers: Chambers::default(),
            parked: Parked::default(),
            sealer: Sealer::new(settings.state_key.unwrap_or(sealing)),
            settings,
            metrics,
            calls: TaskTracker::new(),
            background: TaskTracker::new(),
            stopping: AtomicBool::new(false),
            stopped: CancellationToken::new(),
            swapped: Arc::default(),
        });
        gateway.start_reaper();
        gateway.start_renewing();
        Ok(gateway)
    }

    /// The virtual host at `path`, which has no trailing slash.
    pub fn virtual_host(&self, path: &str) -> Option<&Arc<VirtualHost>> {
        self.hosts.get(path)
    }

    /// All virtual hosts, in no order.
    pub fn virtual_hosts(&self) -> impl Iterator<Item = &Arc<VirtualHost>> {
        self.hosts.values()
    }

    /// The live sessions of a virtual host, the newest first.
    pub(crate) fn sessions_of(&self, host: &VirtualHost) -> Vec<Arc<Session>> {
        let mut sessions = self.registry.all();
        sessions.retain(|s| *s.host.path == *host.path && !s.ended().is_cancelled());
        sessions.sort_by_key(|s| std::cmp::Reverse(s.created()));
        sessions
    }

    /// What is known of a principal beyond its name.
    pub(crate) fn claims(&self, principal: &str) -> Arc<Claims> {
        /// Of whom nothing is known.
        static NONE: LazyLock<Arc<Claims>> = LazyLock::new(Arc::default);
        self.settings.claims.get(principal).unwrap_or(&NONE).clone()
    }

    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Whether new sessions are taken.
    pub fn ready(&self) -> bool {
        !self.stopping.load(Ordering::Acquire)
    }

    pub fn sessions(&self) -> usize {
        self.registry.len()
    }

    /// The session that `key` proves, whole. An id of another principal or virtual host is an unknown one.
    pub fn session(&self, key: &SessionKey) -> Option<Arc<Session>> {
        match self.registry.get(key) {
            // A chamber has an id that nobody was told.
            Found::Session(session) if session.version().is_modern() => None,
            Found::Session(session) => {
                session.touch();
                Some(session)
            }
            Found::Foreign => {
                self.metrics.isolation_signals_total.inc(IsolationSignal::ForeignPrincipal);
                None
            }
            Found::Unknown => None,
        }
    }

    /// Takes a request of a session. Does not wait: what takes time is in the reply, as work that the session owns, and that goes on when the
    /// HTTP connection is gone. `credit` is what `admit` gave for it; it returns when the answer has drained.
    pub fn request(
        self: &Arc<Self>,
        session: &Arc<Session>,
        request: impl Into<Arc<Request>>,
        credit: Option<Permit>,
    ) -> Result<Reply, Refusal> {
        self.dispatch(session, request.into(), credit, Extras::default())
    }

    fn dispatch(
        self: &Arc<Self>,
        session: &Arc<Session>,
        request: Arc<Request>,
        credit: Option<Permit>,
        extras: Extras,
    ) -> Result<Reply, Refusal> {
        if !self.ready() {
            return Err(Refusal::stopping());
        }
        match &*request.method {
            method::PING => {
                session.touch();
                Ok(Reply::Now(codes::result(&request.id, "{}")))
            }
            method::INITIALIZE => {
                Ok(Reply::Now(RpcError::new(codes::INVALID_REQUEST, "this session is initialized already").to_message(Some(&request.id))))
            }
            method::DISCOVER if session.version().is_modern() => {
                self.run(session, request, credit, extras, |g, job| async move { g.discover(&job).await })
            }
            method::TOOLS_LIST => self.run(session, request, credit, extras, |g, job| async move { g.list(&job, Kind::Tool).await }),
            method::PROMPTS_LIST => self.run(session, request, credit, extras, |g, job| async move { g.list(&job, Kind::Prompt).await }),
            method::RESOURCES_LIST => {
                self.run(session, request, credit, extras, |g, job| async move { g.list(&job, Kind::Resource).await })
            }
            method::RESOURCES_TEMPLATES_LIST => {
                self.run(session, request, credit, extras, |g, job| async move { g.list(&job, Kind::ResourceTemplate).await })
            }
            method::TOOLS_CALL => self.run(session, request, credit, extras, |g, job| async move { g.call_named(&job, Kind::Tool).await }),
            method::PROMPTS_GET => {
                self.run(session, request, credit, extras, |g, job| async move { g.call_named(&job, Kind::Prompt).await })
            }
            method::RESOURCES_READ => self.run(session, request, credit, extras, |g, job| async move { g.read_resource(&job).await }),
            method::RESOURCES_SUBSCRIBE => self.run(session, request, credit, extras, |g, job| async move { g.subscribe(&job).await }),
            method::RESOURCES_UNSUBSCRIBE => self.run(session, request, credit, extras, |g, job| async move { g.unsubscribe(&job).await }),
            method::COMPLETE => self.run(session, request, credit, extras, |g, job| async move { g.complete(&job).await }),
            method::SET_LEVEL => self.run(session, request, credit, extras, |g, job| async move { g.set_level(&job).await }),
            method::TASKS_GET | method::TASKS_CANCEL => {
                self.run(session, request, credit, extras, |g, job| async move { g.task(&job).await })
            }
            method::TASKS_UPDATE if session.version().is_modern() => {
                self.run(session, request, credit, extras, |g, job| async move { g.task(&job).await })
            }
            method::TASKS_RESULT if !session.version().is_modern() => {
                self.run(session, request, credit, extras, |g, job| async move { g.task(&job).await })
            }
            method::TASKS_LIST if !session.version().is_modern() => {
                self.run(session, request, credit, extras, |g, job| async move { g.list_tasks(&job).await })
            }
            other => {
                session.touch();
                let error = RpcError::new(codes::METHOD_NOT_FOUND, format!("method `{}` is not known", shorten(other)));
                Ok(Reply::Now(error.to_message(Some(&request.id))))
            }
        }
    }

    /// Takes a notification of a session.
    pub async fn notification(self: &Arc<Self>, session: &Arc<Session>, notification: Notification) {
        session.touch();
        self.client_notification(session, notification).await;
    }

    /// Takes the answer to a request that a server put to the client.
    pub async fn answer(self: &Arc<Self>, session: &Arc<Session>, response: Response) {
        session.touch();
        self.client_answer(session, response).await;
    }

    /// The session's standalone stream (GET). An earlier reader of it ends.
    pub fn listen(self: &Arc<Self>, session: &Arc<Session>) -> Option<Reader> {
        session.touch();
        for upstream in session.upstreams() {
            upstream.listen();
        }
        session.streams.attach_standalone()
    }

    /// A stream that goes on after the event `last`. None where it is not known (any more).
    pub fn resume(self: &Arc<Self>, session: &Arc<Session>, last: EventId) -> Option<Reader> {
        session.touch();
        for upstream in session.upstreams() {
            upstream.listen();
        }
        session.streams.resume(last)
    }

    /// Ends a session at its client's wish. When this returns, its id is unknown and nothing of it is left.
    pub async fn delete(self: &Arc<Self>, session: Arc<Session>) {
        self.end_session(&session, SessionEvent::ClosedByClient).await;
    }
}

impl Refusal {
    pub fn new(status: StatusCode, error: RpcError) -> Self {
        Refusal { status, error, retry_after: None }
    }

    /// The process is on its way out.
    pub fn stopping() -> Self {
        Refusal {
            status: StatusCode::SERVICE_UNAVAILABLE,
            error: RpcError::new(codes::OVERLOADED, "the gateway is shutting down; try again in a moment"),
            retry_after: Some(Duration::from_secs(2)),
        }
    }

    fn overloaded(status: StatusCode, message: String) -> Self {
        Refusal {
            status,
            error: RpcError::new(codes::OVERLOADED, message).with_data(serde_json::json!({ "kind": "overloaded", "retrySafe": true })),
            retry_after: Some(Duration::from_secs(1)),
        }
    }
}

/// Text of a peer for an error message: not longer than a line.
fn shorten(text: &str) -> String {
    const CHARACTERS: usize = 80;
    if text.chars().count() <= CHARACTERS { text.to_owned() } else { text.chars().take(CHARACTERS).chain(std::iter::once('…')).collect() }
}

//! What runs, and who may change it: one change at a time, others wait in a short queue. Owns the tasks of the room.

use super::load::{Plane, Spec};
use super::status::Kept;
use crate::config::{Config, Sources};
use crate::gateway::Gateway;
use crate::session::VirtualHost;
use crate::telemetry::Metrics;
use crate::telemetry::metrics::PolicySwap;
use lockgate_policy::{Chain, Engine};
use serde::Serialize;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Changes that wait for the one that is made now. Compiling can take seconds, and each holds its component.
const QUEUE: usize = 8;

/// How long a change waits for its turn.
const WAIT: Duration = Duration::from_secs(60);

/// Between two looks at what has to be done now and then.
const ROUND: Duration = Duration::from_secs(1);

/// The policies of a running gateway. Cheap to share.
pub struct Control {
    pub(super) engine: Arc<Engine>,
    pub(super) gateway: Arc<Gateway>,
    /// What the process was started with.
    pub(super) config: Arc<Config>,
    /// Where to read the configuration again; none where it was never in a file.
    pub(super) sources: Option<Sources>,
    /// In the order of `Config::virtual_hosts`.
    pub(super) hosts: Vec<Host>,
    queue: Arc<Semaphore>,
    turn: Semaphore,
    pub(super) tasks: TaskTracker,
    pub(super) stopped: CancellationToken,
}

/// A virtual host and what ran and runs on it.
pub(super) struct Host {
    pub virtual_host: Arc<VirtualHost>,
    state: Mutex<State>,
}

pub(super) struct State {
    /// The chains that may still be in use, oldest first.
    pub chains: Vec<Known>,
    pub last: Option<Last>,
}

/// A chain, and what it was made of.
pub(super) struct Known {
    pub generation: u64,
    pub chain: Weak<Chain>,
    pub specs: Arc<[Spec]>,
}

/// How the last change ended.
#[derive(Clone, Debug)]
pub(super) struct Last {
    pub at: SystemTime,
    /// `api`, `file` or `reload`.
    pub by: &'static str,
    /// Why not, if it was refused.
    pub refused: Option<String>,
}

/// Why nothing was changed.
#[derive(Clone, Debug, Serialize, thiserror::Error)]
#[error("{error}")]
pub struct Failure {
    #[serde(skip)]
    pub kind: FailureKind,
    pub error: String,
    /// All that is wrong with a configuration, each with its place.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
    /// What goes on running where something was to be changed.
    pub kept: Vec<Kept>,
}

/// Whose fault it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// There is no such policy or virtual host.
    Unknown,
    /// The new policy, or the new configuration, is not good.
    Refused,
    /// Too many changes wait already, or too long.
    Busy,
    /// The gateway stops, or failed at it.
    Internal,
}

// === impl Control ===

impl Control {
    /// Takes over the policies of a gateway that was made with them, and begins to watch their files.
    pub fn new(plane: Plane, gateway: Arc<Gateway>, config: Arc<Config>, sources: Option<Sources>) -> Arc<Self> {
        let hosts = config.virtual_hosts.iter().zip(plane.hosts).filter_map(|(host, planned)| {
            let known = Known { generation: planned.chain.generation(), chain: Arc::downgrade(&planned.chain), specs: planned.specs };
            Some(Host {
                virtual_host: gateway.virtual_host(&host.path)?.clone(),
                state: Mutex::new(State { chains: vec![known], last: None }),
            })
        });
        let control = Arc::new(Control {
            engine: plane.engine,
            hosts: hosts.collect(),
            gateway,
            config,
            sources,
            queue: Arc::new(Semaphore::new(QUEUE)),
            turn: Semaphore::new(1),
            tasks: TaskTracker::new(),
            stopped: CancellationToken::new(),
        });
        let live = control.hosts.iter().map(|host| (host.path().clone(), host.virtual_host.policies.clone()));
        control.gateway.metrics().policies.watch(live.collect());
        control.start_watching();
        control.start_keeping();
        control
    }

    /// What has to be done now and then: probations end, idle instances go, and sessions hear of it when policies went back by themselves.
    fn start_keeping(self: &Arc<Self>) {
        let (control, stopped) = (Arc::downgrade(self), self.stopped.clone());
        self.tasks.spawn(async move {
            let mut seen: Vec<u64> = Vec::new();
            let keep = async {
                loop {
                    tokio::time::sleep(ROUND).await;
                    let Some(control) = control.upgrade() else { return };
                    control.hosts.iter().for_each(|host| host.virtual_host.policies.settle(Instant::now()));
                    control.engine.sweep();
                    let now: Vec<u64> = control.hosts.iter().map(|host| host.virtual_host.policies.generation()).collect();
                    if now != seen {
                        seen = now;
                        control.gateway.policies_swapped();
                    }
                }
            };
            tokio::select! {
                biased;
                () = stopped.cancelled() => {}
                () = keep => {}
            }
        });
    }

    pub fn gateway(&self) -> &Arc<Gateway> {
        &self.gateway
    }

    /// What the process was started with.
    pub fn config(&self) -> &Arc<Config> {
        &self.config
    }

    /// Bytes that the largest component may have.
    pub fn largest_component(&self) -> usize {
        let specs = self.hosts.iter().flat_map(|host| host.running().1.to_vec());
        specs.map(|spec| spec.terms.limits.component_bytes).max().unwrap_or_default()
    }

    /// Ends what is being changed. What runs goes on running.
    pub async fn stop(&self, limit: Duration) {
        self.stopped.cancel();
        self.tasks.close();
        let _ = tokio::time::timeout(limit, self.tasks.wait()).await;
    }

    /// Runs one change when its turn comes, in a task of its own: whoever asked for it may go away, and it is done all the same.
    pub(super) async fn in_turn<T, F>(self: &Arc<Self>, change: impl FnOnce(Arc<Self>) -> F + Send + 'static) -> Result<T, Failure>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Failure>> + Send + 'static,
    {
        let busy = || self.failure(FailureKind::Busy, "too many changes of policies are under way; try again in a moment");
        let Ok(place) = self.queue.clone().try_acquire_owned() else { return Err(busy()) };
        let control = self.clone();
        let task = self.tasks.spawn(async move {
            let _place = place;
            let stopped = control.stopped.clone();
            let work = async {
                match tokio::time::timeout(WAIT, control.turn.acquire()).await {
                    Ok(Ok(_turn)) => Some(change(control.clone()).await),
                    _ => None,
                }
            };
            tokio::select! {
                biased;
                () = stopped.cancelled() => Some(Err(control.failure(FailureKind::Internal, "the gateway is shutting down"))),
                done = work => done,
            }
        });
        match task.await {
            Ok(Some(done)) => done,
            Ok(None) => Err(busy()),
            Err(_) => Err(self.failure(FailureKind::Internal, "the change was broken off by an error of the gateway; its log says more")),
        }
    }

    pub(super) fn failure(&self, kind: FailureKind, error: impl Into<String>) -> Failure {
        Failure { kind, error: error.into(), problems: Vec::new(), kept: self.hosts.iter().map(Host::kept).collect() }
    }
}

// === impl Host ===

impl Host {
    pub fn path(&self) -> &Arc<str> {
        &self.virtual_host.path
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics under this lock; a poisoned value would still be whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The chain that runs now, and what it was made of.
    pub fn running(&self) -> (Arc<Chain>, Arc<[Spec]>) {
        let chain = self.virtual_host.policies.current();
        let state = self.state();
        let known = state.chains.iter().find(|known| known.generation == chain.generation()).or(state.chains.last());
        let specs = known.map(|known| known.specs.clone()).unwrap_or_default();
        (chain, specs)
    }

    /// From now on operations begin on this chain.
    pub fn flip(&self, chain: Arc<Chain>, specs: Arc<[Spec]>, probation: Duration) {
        let mut state = self.state();
        state.chains.retain(|known| known.chain.strong_count() > 0);
        state.chains.push(Known { generation: chain.generation(), chain: Arc::downgrade(&chain), specs });
        self.virtual_host.policies.swap(chain, probation);
    }

    /// What runs stays, though the configuration words it differently.
    pub fn respecify(&self, specs: Arc<[Spec]>) {
        let generation = self.virtual_host.policies.generation();
        if let Some(known) = self.state().chains.iter_mut().find(|known| known.generation == generation) {
            known.specs = specs;
        }
    }

    pub fn note(&self, metrics: &Metrics, by: &'static str, refused: Option<String>) {
        metrics.policy_swaps_total.inc(if refused.is_some() { PolicySwap::Refused } else { PolicySwap::Swapped });
        self.state().last = Some(Last { at: SystemTime::now(), by, refused });
    }

    pub fn kept(&self) -> Kept {
        Kept { virtual_host: self.path().clone(), generation: self.virtual_host.policies.generation() }
    }
}

//! One call into a guest: a store and an instance, the lent session, the limits armed, the outcome named. A [`Guest`] serves one session
//! and one operation. Most are fresh and dropped afterwards; those about single names may be the session's own (`warm`), which
//! outlives the operation unless anything went wrong. Called by `chain` and `ask`, and by `load` for the instantiation on trial.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::time::error::Elapsed;
use tokio::time::timeout;
use wasmtime::component::{Instance, Resource, ResourceTable};
use wasmtime::{AsContextMut, PoolConcurrencyLimitError, ResourceLimiter, Store, Trap, UpdateDeadline};

use crate::berths::Berth;
use crate::chain::Entry;
use crate::engine::{Engine, EngineConfig, Running};
use crate::error::{PolicyError, PolicyErrorKind};
use crate::load::Policy;
use crate::log::{self, Level};
use crate::realm::{Bounds, Permit};
use crate::session::SessionView;
use crate::since_v0_1::{At, Bound};
use crate::types::{AliasEntry, Decision, Hook, Item, Kind, Target, Verdict};
use crate::warm::Lease;

/// What a session handle stands for, inside the one store that it was lent to: the session while an operation is about it, else nothing.
pub struct Lent(Option<SessionView>);

/// The host's side of a store: one session, and the limits.
pub(crate) struct HostState {
    pub(crate) policy: Arc<Policy>,
    pub(crate) setting: Arc<str>,
    /// Holds the one handle, never more.
    table: ResourceTable,
    limits: StoreLimits,
    /// Ticks that the guest may still run.
    ticks: u32,
    /// Called without an executor to yield to.
    blocking: bool,
    log_lines: u32,
    log_line_bytes: usize,
}

struct StoreLimits {
    bounds: Bounds,
    memory_bytes: usize,
    /// Linear memory now. It never shrinks, so it is the most that there was.
    memory: usize,
    /// The guest asked for more memory than there is; if it traps now, that is why.
    refused: bool,
}

/// Ends a guest from within when its ticks are used up.
#[derive(Debug, thiserror::Error)]
#[error("the deadline has passed")]
struct DeadlinePassed;

/// An instance in its store. It may serve one session, never two.
pub(crate) struct Body {
    store: Store<HostState>,
    instance: Instance,
    bound: Bound,
    handle: u32,
    /// How many operations it has served.
    served: u32,
    /// Its place among those that are kept, once it has been.
    pub(crate) berth: Option<Berth>,
    _room: Permit,
}

/// An instance of one entry's policy, for one session and one operation.
pub(crate) struct Guest<'e> {
    engine: &'e Engine,
    entry: &'e Entry,
    body: Body,
    lease: Option<Lease>,
    fresh: bool,
    /// When its last call began, or ended.
    last: Option<Instant>,
    time: Duration,
    _running: Running<'e>,
}

/// Operations that an instance serves before it is replaced, and with half of the memory that it may have it is replaced as well: a policy that
/// forgets to free something loses its cache from time to time, and no call.
const MOST_SERVED: u32 = 4_096;

/// What a hook call ends in: in time or not; what the engine says; the answer or the policy's own failure.
type Ended<T> = Result<wasmtime::Result<Result<T, PolicyErrorKind>>, Elapsed>;

// === impl HostState ===

impl HostState {
    /// The session that a handle stands for.
    pub(crate) fn view(&self, handle: &Resource<Lent>) -> wasmtime::Result<&SessionView> {
        self.table.get(handle)?.0.as_ref().ok_or_else(|| wasmtime::Error::msg("the session handle is not lent now"))
    }

    /// The claims that the policy may read and the principal has, in alphabetical order.
    pub(crate) fn granted_claims(&self, handle: &Resource<Lent>) -> wasmtime::Result<impl Iterator<Item = (&str, &str)>> {
        let granted = &self.policy.capabilities().claims;
        let claims = self.view(handle)?.claims.iter().map(|(name, value)| (&**name, &**value));
        Ok(claims.filter(|(name, _)| granted.contains(*name)))
    }

    pub(crate) fn log_line(&mut self, handle: &Resource<Lent>, level: Level, message: &str) -> wasmtime::Result<()> {
        let virtual_host = self.view(handle)?.virtual_host.clone();
        let Policy { name, version, log, .. } = &*self.policy;
        if self.log_lines == 0 {
            log.dropped(1);
            return Ok(());
        }
        self.log_lines -= 1;
        if log.take() {
            let dropped = log.take_dropped();
            if dropped > 0 {
                tracing::warn!(
                    policy = &**name,
                    version = &**version,
                    dropped,
                    "log lines of this policy were dropped: it writes too many"
                );
            }
            log::write(level, name, version, &virtual_host, &log::clean(message, self.log_line_bytes));
        }
        Ok(())
    }
}

/// A store with every limit in place but those that are armed per call.
pub(crate) fn store(engine: &Engine, policy: &Arc<Policy>, setting: Arc<str>) -> Store<HostState> {
    let mut table = ResourceTable::new();
    table.set_max_capacity(1);
    let bounds = policy.realm.bounds;
    let state = HostState {
        table,
        limits: StoreLimits { bounds, memory_bytes: policy.limits().memory_bytes, memory: 0, refused: false },
        ticks: 0,
        blocking: false,
        log_lines: 0,
        log_line_bytes: engine.config.log_line_bytes,
        policy: policy.clone(),
        setting,
    };
    let mut store = Store::new(&policy.realm.engine, state);
    store.limiter(|state| &mut state.limits);
    store.epoch_deadline_callback(|mut cx| {
        let state = cx.data_mut();
        state.ticks = state.ticks.saturating_sub(1);
        match state.ticks {
            0 => Err(DeadlinePassed.into()),
            _ if state.blocking => Ok(UpdateDeadline::Continue(1)),
            _ => Ok(UpdateDeadline::Yield(1)),
        }
    });
    store
}

/// Gives the guest its time, its bytes and its log lines for what is called next. `bytes`: how much more than usual it may hand over.
/// Returns the bound by the wall clock.
fn arm(store: &mut Store<HostState>, config: &EngineConfig, hook: Hook, bytes: usize) -> Duration {
    let state = store.data_mut();
    let limits = state.policy.limits();
    let (deadline, fuel) = (limits.time(hook), limits.output_bytes.saturating_add(bytes));
    let ticks = deadline.as_nanos().div_ceil(config.tick.as_nanos().max(1));
    // One more: the first tick may come at once.
    state.ticks = u32::try_from(ticks).unwrap_or(u32::MAX).saturating_add(1);
    state.log_lines = config.log_lines_per_call;
    state.limits.refused = false;
    store.set_epoch_deadline(1);
    store.set_hostcall_fuel(fuel);
    deadline.saturating_mul(EngineConfig::WALL_FACTOR)
}

/// The same for a guest that is entered without an executor, when it is loaded. Its start code gets the time of a list.
pub(crate) fn arm_blocking(store: &mut Store<HostState>, config: &EngineConfig) {
    store.data_mut().blocking = true;
    arm(store, config, Hook::NamespaceExpose, 0);
}

// === impl StoreLimits ===

impl ResourceLimiter for StoreLimits {
    fn memory_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        let all = self.memory.saturating_add(desired.saturating_sub(current));
        let granted = all <= self.memory_bytes;
        if granted {
            self.memory = all;
        }
        self.refused |= !granted;
        Ok(granted)
    }

    fn memory_grow_failed(&mut self, _: wasmtime::Error) -> wasmtime::Result<()> {
        self.refused = true;
        Ok(())
    }

    fn table_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        Ok(desired <= self.bounds.table_elements)
    }

    fn instances(&self) -> usize {
        self.bounds.core_instances
    }

    fn tables(&self) -> usize {
        self.bounds.tables
    }

    fn memories(&self) -> usize {
        self.bounds.memories
    }
}

// === impl Body ===

impl Body {
    fn lend(&mut self, view: Option<SessionView>) -> Result<(), PolicyErrorKind> {
        let handle = Resource::<Lent>::new_borrow(self.handle);
        let lent = self.store.data_mut().table.get_mut(&handle).map_err(|e| PolicyErrorKind::Internal(e.to_string()))?;
        lent.0 = view;
        Ok(())
    }

    fn at(&mut self) -> At<'_> {
        At { bound: &mut self.bound, store: self.store.as_context_mut(), instance: &self.instance }
    }

    /// Its linear memory, in bytes.
    fn memory(&self) -> usize {
        self.store.data().limits.memory
    }
}

// === impl Guest ===

impl<'e> Guest<'e> {
    /// A fresh instance of the entry's policy, with the session lent to it. `hook` is what it is for: it names the deadline and the error.
    pub(crate) async fn fresh(engine: &'e Engine, entry: &'e Entry, view: &SessionView, hook: Hook) -> Result<Guest<'e>, PolicyError> {
        Guest::make(engine, entry, view, hook, None).await
    }

    /// The session's own instance if it is idle. If it has none, a fresh one that is kept afterwards; if it is in use, one that is not.
    pub(crate) async fn own(engine: &'e Engine, entry: &'e Entry, view: &SessionView, hook: Hook) -> Result<Guest<'e>, PolicyError> {
        let (lease, body) = match view.warm.lease(entry.place) {
            None => (None, None),
            Some((lease, body)) => (Some(lease), body),
        };
        let Some(mut body) = body else { return Guest::make(engine, entry, view, hook, lease).await };
        let running = engine.running();
        body.lend(Some(view.clone())).map_err(|kind| failed(engine, entry, hook, kind, Duration::ZERO))?;
        Ok(Guest { engine, entry, body, lease, fresh: false, last: None, time: Duration::ZERO, _running: running })
    }

    async fn make(
        engine: &'e Engine,
        entry: &'e Entry,
        view: &SessionView,
        hook: Hook,
        lease: Option<Lease>,
    ) -> Result<Guest<'e>, PolicyError> {
        let policy = &entry.policy;
        let began = Instant::now();
        let error = |kind| failed(engine, entry, hook, kind, began.elapsed());
        let wait = policy.limits().time(hook).saturating_mul(EngineConfig::WALL_FACTOR);
        let room = policy.realm.room(wait).await.map_err(|_| error(PolicyErrorKind::Overloaded))?;
        let running = engine.running();
        let mut store = store(engine, policy, entry.setting.clone());
        let lent = store.data_mut().table.push(Lent(Some(view.clone())));
        let handle = lent.map_err(|e| error(PolicyErrorKind::Internal(e.to_string())))?.rep();
        let wall = arm(&mut store, &engine.config, hook, 0);
        let instance = match timeout(wall, policy.pre.instantiate_async(&mut store)).await {
            Ok(Ok(instance)) => instance,
            Ok(Err(e)) => return Err(error(outcome(&e, store.data()))),
            Err(_) => return Err(error(PolicyErrorKind::Deadline)),
        };
        let body = Body { store, instance, bound: Bound::default(), handle, served: 0, berth: None, _room: room };
        Ok(Guest { engine, entry, body, lease, fresh: true, last: None, time: Duration::ZERO, _running: running })
    }

    pub(crate) async fn alias_resolve(&mut self, kind: Kind, public: &str) -> Result<Option<Target>, PolicyError> {
        let (wall, session) = self.arm(Hook::AliasResolve, 0);
        let call = self.entry.policy.exports.alias_resolve(self.body.at(), session, kind, public);
        let ended = within(wall, call).await;
        self.end(Hook::AliasResolve, ended)
    }

    pub(crate) async fn alias_publish(&mut self, kind: Kind) -> Result<Vec<AliasEntry>, PolicyError> {
        let (wall, session) = self.arm(Hook::AliasPublish, 0);
        let call = self.entry.policy.exports.alias_publish(self.body.at(), session, kind);
        let ended = within(wall, call).await;
        self.end(Hook::AliasPublish, ended)
    }

    /// `bytes`: about how much goes in; as much again may come out on top of the usual bound.
    pub(crate) async fn namespace_expose(&mut self, kind: Kind, items: &[Item<'_>], bytes: usize) -> Result<Vec<Verdict>, PolicyError> {
        let (wall, session) = self.arm(Hook::NamespaceExpose, bytes.saturating_mul(2));
        let call = self.entry.policy.exports.namespace_expose(self.body.at(), session, kind, items);
        let ended = within(wall, call).await;
        self.end(Hook::NamespaceExpose, ended)
    }

    pub(crate) async fn namespace_resolve(&mut self, kind: Kind, public: &str) -> Result<Option<Target>, PolicyError> {
        let (wall, session) = self.arm(Hook::NamespaceResolve, 0);
        let call = self.entry.policy.exports.namespace_resolve(self.body.at(), session, kind, public);
        let ended = within(wall, call).await;
        self.end(Hook::NamespaceResolve, ended)
    }

    pub(crate) async fn router_resolve(&mut self, kind: Kind, public: &str, target: &Target) -> Result<Decision, PolicyError> {
        let (wall, session) = self.arm(Hook::RouterResolve, target.name.len().saturating_mul(2));
        let call = self.entry.policy.exports.router_resolve(self.body.at(), session, kind, public, target);
        let ended = within(wall, call).await;
        self.end(Hook::RouterResolve, ended)
    }

    /// The reason of a refusal, if it is one.
    pub(crate) async fn lifecycle_opened(&mut self) -> Result<Option<String>, PolicyError> {
        let (wall, session) = self.arm(Hook::LifecycleOpened, 0);
        let call = self.entry.policy.exports.lifecycle_opened(self.body.at(), session);
        let ended = within(wall, call).await;
        self.end(Hook::LifecycleOpened, ended)
    }

    pub(crate) async fn lifecycle_closing(&mut self) -> Result<(), PolicyError> {
        let (wall, session) = self.arm(Hook::LifecycleClosing, 0);
        let call = self.entry.policy.exports.lifecycle_closing(self.body.at(), session);
        let ended = within(wall, call).await;
        self.end(Hook::LifecycleClosing, ended)
    }

    /// The answers were good: the session keeps the instance, if it is its own. A guest that is dropped without this is gone.
    pub(crate) fn keep(self) {
        let Guest { entry, mut body, lease, last, .. } = self;
        let Some(lease) = lease else { return };
        body.served += 1;
        let bytes = body.memory();
        if body.served >= MOST_SERVED || bytes > entry.policy.limits().memory_bytes / 2 {
            return;
        }
        // An idle instance holds nothing of the session, so that what is held by the session does not hold the session.
        if body.lend(None).is_ok() {
            lease.park(&entry.policy.realm, body, bytes, last.unwrap_or_else(Instant::now));
        }
    }

    /// An answer, good as far as the engine can tell, breaks the contract.
    pub(crate) fn refute(self, hook: Hook, what: String) -> PolicyError {
        refuted(self.engine, self.entry, hook, what)
    }

    /// Time inside the guest in its calls so far, by the wall clock.
    pub(crate) fn time(&self) -> Duration {
        self.time
    }

    /// The most linear memory that it had, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.body.memory()
    }

    /// Whether it was made for this operation.
    pub(crate) fn is_fresh(&self) -> bool {
        self.fresh
    }

    fn arm(&mut self, hook: Hook, bytes: usize) -> (Duration, Resource<Lent>) {
        let wall = arm(&mut self.body.store, &self.engine.config, hook, bytes);
        self.last = Some(Instant::now());
        (wall, Resource::new_borrow(self.body.handle))
    }

    fn end<T>(&mut self, hook: Hook, ended: Ended<T>) -> Result<T, PolicyError> {
        let now = Instant::now();
        let time = self.last.replace(now).map_or(Duration::ZERO, |began| now - began);
        self.time += time;
        let kind = match ended {
            Ok(Ok(Ok(answer))) => {
                tell(self.engine, self.entry, hook, None, time);
                return Ok(answer);
            }
            Ok(Ok(Err(failure))) => failure,
            Ok(Err(e)) => outcome(&e, self.body.store.data()),
            Err(_) => PolicyErrorKind::Deadline,
        };
        // Whatever it was, its memory is not trusted again.
        self.lease = None;
        Err(failed(self.engine, self.entry, hook, kind, time))
    }
}

/// As `timeout`, but for a call that ends at once, as nearly all do, no timer is made. It is counted from the first time that the guest yields.
async fn within<F: Future>(wall: Duration, call: F) -> Result<F::Output, Elapsed> {
    let mut call = pin!(call);
    if let Poll::Ready(ended) = poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx))).await {
        return Ok(ended);
    }
    timeout(wall, call).await
}

/// A call that ended badly: counted, told, logged.
fn failed(engine: &Engine, entry: &Entry, hook: Hook, kind: PolicyErrorKind, time: Duration) -> PolicyError {
    tell(engine, entry, hook, Some(&kind), time);
    report(&entry.policy, hook, kind)
}

/// The one place through which every call is counted.
fn tell(engine: &Engine, entry: &Entry, hook: Hook, error: Option<&PolicyErrorKind>, time: Duration) {
    entry.stats.call_ended(error);
    if let Some(observer) = engine.observer() {
        let outcome = error.map_or("ok", PolicyErrorKind::label);
        observer.called(&entry.policy.name, &entry.policy.version, hook, outcome, time);
    }
}

/// An answer of a call that is counted already, and breaks the contract.
pub(crate) fn refuted(engine: &Engine, entry: &Entry, hook: Hook, what: String) -> PolicyError {
    entry.stats.fault();
    if let Some(observer) = engine.observer() {
        observer.refuted(&entry.policy.name, &entry.policy.version, hook);
    }
    report(&entry.policy, hook, PolicyErrorKind::BadAnswer(what))
}

/// Names an error and says it once in the log, where an operator looks for it whatever the gateway makes of it.
fn report(policy: &Policy, hook: Hook, kind: PolicyErrorKind) -> PolicyError {
    let error = PolicyError { kind, policy: policy.name.clone(), version: policy.version.clone(), hook };
    if policy.errors.take() {
        let suppressed = policy.errors.take_dropped();
        tracing::warn!(
            policy = &*error.policy,
            version = &*error.version,
            hook = hook.name(),
            kind = error.kind.label(),
            suppressed,
            "{}",
            error.kind
        );
    }
    error
}

/// What the engine's error means. Guest faults are [`Trap`]s, except for limits and for what is found when values are read out of the guest.
pub(crate) fn outcome(error: &wasmtime::Error, state: &HostState) -> PolicyErrorKind {
    if error.downcast_ref::<DeadlinePassed>().is_some() || error.downcast_ref::<Trap>() == Some(&Trap::Interrupt) {
        return PolicyErrorKind::Deadline;
    }
    if error.downcast_ref::<PoolConcurrencyLimitError>().is_some() {
        return PolicyErrorKind::Overloaded;
    }
    if state.limits.refused {
        return PolicyErrorKind::OutOfMemory;
    }
    if let Some(trap) = error.downcast_ref::<Trap>() {
        return PolicyErrorKind::Trap(trap.to_string());
    }
    let cause = error.root_cause().to_string();
    // The engine's error for this has no public type.
    if cause.contains("fuel allocated for hostcalls has been exhausted") {
        return PolicyErrorKind::TooMuchData;
    }
    PolicyErrorKind::BadAnswer(log::clean(&cause, 500))
}

//! One call into a guest: a store and an instance of its own, the lent session, the limits armed, the outcome named. A [`Guest`] serves
//! one session and one operation; it is dropped afterwards, also after any error (a trap poisons its store), so nothing in
//! guest memory outlives it. Called by `chain`, and by `load` for the instantiation on trial.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::SemaphorePermit;
use tokio::time::timeout;
use wasmtime::component::{Instance, Resource, ResourceTable};
use wasmtime::{AsContextMut, PoolConcurrencyLimitError, ResourceLimiter, Store, Trap, UpdateDeadline};

use crate::chain::Entry;
use crate::engine::{Engine, EngineConfig, Running};
use crate::error::{PolicyError, PolicyErrorKind};
use crate::load::Policy;
use crate::log::{self, Allowance, Level};
use crate::session::SessionView;
use crate::types::{AliasEntry, Decision, Hook, Item, Kind, Target, Verdict};

/// What a session handle stands for, inside the one store that it was lent to.
pub struct Lent {
    pub(crate) view: SessionView,
    pub(crate) policy: Arc<Policy>,
    pub(crate) setting: Arc<str>,
}

/// The host's side of a store: one session, and the limits.
pub(crate) struct HostState {
    /// Holds the one lent session, never more.
    table: ResourceTable,
    limits: Limits,
    /// Ticks that the guest may still run.
    ticks: u32,
    /// Called without an executor to yield to.
    blocking: bool,
    log: LogBudget,
}

struct Limits {
    memory_bytes: usize,
    table_elements: usize,
    /// The guest asked for more memory than there is; if it traps now, that is why.
    refused: bool,
}

struct LogBudget {
    policy: Arc<str>,
    version: Arc<str>,
    lines: u32,
    line_bytes: usize,
    allowance: Arc<Allowance>,
}

/// Ends a guest from within when its ticks are used up.
#[derive(Debug, thiserror::Error)]
#[error("the deadline has passed")]
struct DeadlinePassed;

/// An instance of one policy, for one session and one operation.
pub(crate) struct Guest<'e> {
    engine: &'e Engine,
    policy: &'e Policy,
    store: Store<HostState>,
    instance: Instance,
    session: u32,
    _running: Running<'e>,
    _slot: SemaphorePermit<'e>,
}

// === impl Lent ===

impl Lent {
    /// The claims that the policy may read and the principal has, in alphabetical order.
    pub(crate) fn claims(&self) -> impl Iterator<Item = (&str, &str)> {
        let granted = &self.policy.capabilities().claims;
        self.view.claims.iter().map(|(name, value)| (&**name, &**value)).filter(|(name, _)| granted.contains(*name))
    }
}

// === impl HostState ===

impl HostState {
    pub(crate) fn new(config: &EngineConfig, policy: &Policy) -> HostState {
        let mut table = ResourceTable::new();
        table.set_max_capacity(1);
        HostState {
            table,
            limits: Limits { memory_bytes: config.memory_bytes, table_elements: config.table_elements, refused: false },
            ticks: 0,
            blocking: false,
            log: LogBudget {
                policy: policy.name.clone(),
                version: policy.version.clone(),
                lines: config.log_lines_per_call,
                line_bytes: config.log_line_bytes,
                allowance: policy.log.clone(),
            },
        }
    }

    pub(crate) fn lent(&self, handle: &Resource<Lent>) -> wasmtime::Result<&Lent> {
        Ok(self.table.get(handle)?)
    }

    pub(crate) fn log_line(&mut self, handle: &Resource<Lent>, level: Level, message: &str) -> wasmtime::Result<()> {
        let virtual_host = self.lent(handle)?.view.virtual_host.clone();
        let log = &mut self.log;
        if log.lines == 0 {
            log.allowance.dropped(1);
            return Ok(());
        }
        log.lines -= 1;
        if log.allowance.take() {
            let dropped = log.allowance.take_dropped();
            if dropped > 0 {
                tracing::warn!(
                    policy = &*log.policy,
                    version = &*log.version,
                    dropped,
                    "log lines of this policy were dropped: it writes too many"
                );
            }
            log::write(level, &log.policy, &log.version, &virtual_host, &log::clean(message, log.line_bytes));
        }
        Ok(())
    }
}

/// A store with every limit in place but the time, which is armed per call.
pub(crate) fn store(engine: &Engine, policy: &Policy) -> Store<HostState> {
    let mut store = Store::new(&engine.inner, HostState::new(&engine.config, policy));
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

/// Gives the guest its time and its bytes for what is called next. Returns the bound by the wall clock.
pub(crate) fn arm(store: &mut Store<HostState>, config: &EngineConfig, deadline: Duration, fuel: usize) -> Duration {
    let ticks = deadline.as_nanos().div_ceil(config.tick.as_nanos().max(1));
    // One more: the first tick may come at once.
    store.data_mut().ticks = u32::try_from(ticks).unwrap_or(u32::MAX).saturating_add(1);
    store.set_epoch_deadline(1);
    store.set_hostcall_fuel(fuel);
    deadline.saturating_mul(EngineConfig::WALL_FACTOR)
}

/// The same for a guest that is entered without an executor, when it is loaded.
pub(crate) fn arm_blocking(store: &mut Store<HostState>, config: &EngineConfig) {
    store.data_mut().blocking = true;
    arm(store, config, config.list_deadline, config.hostcall_fuel);
}

// === impl Limits ===

impl ResourceLimiter for Limits {
    fn memory_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        let granted = desired <= self.memory_bytes;
        self.refused |= !granted;
        Ok(granted)
    }

    fn memory_grow_failed(&mut self, _: wasmtime::Error) -> wasmtime::Result<()> {
        self.refused = true;
        Ok(())
    }

    fn table_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        Ok(desired <= self.table_elements)
    }

    fn instances(&self) -> usize {
        16
    }

    fn tables(&self) -> usize {
        8
    }

    fn memories(&self) -> usize {
        1
    }
}

// === impl Guest ===

impl<'e> Guest<'e> {
    /// A fresh instance of the entry's policy, with the session lent to it. `hook` is what it is for: it names the deadline and the error.
    pub(crate) async fn enter(engine: &'e Engine, entry: &'e Entry, view: &SessionView, hook: Hook) -> Result<Guest<'e>, PolicyError> {
        let policy = &*entry.policy;
        let error = |kind| report(policy, hook, kind);
        let wait = engine.config.deadline(hook).saturating_mul(EngineConfig::WALL_FACTOR);
        let slot = match timeout(wait, engine.slots.acquire()).await {
            Ok(Ok(slot)) => slot,
            Ok(Err(_)) | Err(_) => return Err(error(PolicyErrorKind::Overloaded)),
        };
        let running = engine.running();
        let mut store = store(engine, policy);
        let lent = Lent { view: view.clone(), policy: entry.policy.clone(), setting: entry.setting.clone() };
        let session = store.data_mut().table.push(lent).map_err(|e| error(PolicyErrorKind::Internal(e.to_string())))?.rep();
        let wall = arm(&mut store, &engine.config, engine.config.deadline(hook), engine.config.hostcall_fuel);
        let instance = match timeout(wall, policy.pre.instantiate_async(&mut store)).await {
            Ok(Ok(instance)) => instance,
            Ok(Err(e)) => return Err(error(outcome(&e, store.data()))),
            Err(_) => return Err(error(PolicyErrorKind::Deadline)),
        };
        Ok(Guest { engine, policy, store, instance, session, _running: running, _slot: slot })
    }

    pub(crate) async fn alias_resolve(mut self, kind: Kind, public: &str) -> Result<Option<Target>, PolicyError> {
        let (wall, session) = self.lend(Hook::AliasResolve, 0);
        let call = self.policy.exports.alias_resolve(self.store.as_context_mut(), &self.instance, session, kind, public);
        let ended = timeout(wall, call).await;
        self.end(Hook::AliasResolve, ended)
    }

    pub(crate) async fn alias_publish(mut self, kind: Kind) -> Result<Vec<AliasEntry>, PolicyError> {
        let (wall, session) = self.lend(Hook::AliasPublish, 0);
        let call = self.policy.exports.alias_publish(self.store.as_context_mut(), &self.instance, session, kind);
        let ended = timeout(wall, call).await;
        self.end(Hook::AliasPublish, ended)
    }

    /// `bytes`: about how much goes in; as much again may come out on top of the usual bound.
    pub(crate) async fn namespace_expose(&mut self, kind: Kind, items: &[Item<'_>], bytes: usize) -> Result<Vec<Verdict>, PolicyError> {
        let (wall, session) = self.lend(Hook::NamespaceExpose, bytes);
        let call = self.policy.exports.namespace_expose(self.store.as_context_mut(), &self.instance, session, kind, items);
        let ended = timeout(wall, call).await;
        self.end(Hook::NamespaceExpose, ended)
    }

    pub(crate) async fn namespace_resolve(mut self, kind: Kind, public: &str) -> Result<Option<Target>, PolicyError> {
        let (wall, session) = self.lend(Hook::NamespaceResolve, 0);
        let call = self.policy.exports.namespace_resolve(self.store.as_context_mut(), &self.instance, session, kind, public);
        let ended = timeout(wall, call).await;
        self.end(Hook::NamespaceResolve, ended)
    }

    pub(crate) async fn router_resolve(mut self, kind: Kind, public: &str, target: &Target) -> Result<Decision, PolicyError> {
        let (wall, session) = self.lend(Hook::RouterResolve, target.name.len());
        let call = self.policy.exports.router_resolve(self.store.as_context_mut(), &self.instance, session, kind, public, target);
        let ended = timeout(wall, call).await;
        self.end(Hook::RouterResolve, ended)
    }

    pub(crate) async fn lifecycle_opened(mut self) -> Result<Option<String>, PolicyError> {
        let (wall, session) = self.lend(Hook::LifecycleOpened, 0);
        let call = self.policy.exports.lifecycle_opened(self.store.as_context_mut(), &self.instance, session);
        let ended = timeout(wall, call).await;
        self.end(Hook::LifecycleOpened, ended)
    }

    pub(crate) async fn lifecycle_closing(mut self) -> Result<(), PolicyError> {
        let (wall, session) = self.lend(Hook::LifecycleClosing, 0);
        let call = self.policy.exports.lifecycle_closing(self.store.as_context_mut(), &self.instance, session);
        let ended = timeout(wall, call).await;
        self.end(Hook::LifecycleClosing, ended)
    }

    fn lend(&mut self, hook: Hook, bytes: usize) -> (Duration, Resource<Lent>) {
        let config = &self.engine.config;
        let wall = arm(&mut self.store, config, config.deadline(hook), config.hostcall_fuel.saturating_add(bytes.saturating_mul(2)));
        (wall, Resource::new_borrow(self.session))
    }

    fn end<T>(
        &self,
        hook: Hook,
        ended: Result<wasmtime::Result<Result<T, PolicyErrorKind>>, tokio::time::error::Elapsed>,
    ) -> Result<T, PolicyError> {
        match ended {
            Ok(Ok(Ok(answer))) => Ok(answer),
            Ok(Ok(Err(failure))) => Err(report(self.policy, hook, failure)),
            Ok(Err(e)) => Err(report(self.policy, hook, outcome(&e, self.store.data()))),
            Err(_) => Err(report(self.policy, hook, PolicyErrorKind::Deadline)),
        }
    }
}

impl EngineConfig {
    fn deadline(&self, hook: Hook) -> Duration {
        if hook.is_slow() { self.list_deadline } else { self.resolve_deadline }
    }
}

/// Names an error and says it once in the log, where an operator looks for it whatever the gateway makes of it.
pub(crate) fn report(policy: &Policy, hook: Hook, kind: PolicyErrorKind) -> PolicyError {
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

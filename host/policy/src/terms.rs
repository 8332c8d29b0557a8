//! What the operator grants one policy and what it may use: its capabilities, its limits, and what its failures mean. Plain data;
//! `load` compares it with what the component wants, `call` enforces it.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::types::Hook;

/// What a policy may have beyond the session handle. A policy has what its manifest wants *and* the operator grants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Claims of the principal that it may read, by name.
    pub claims: BTreeSet<String>,
    /// Its router is asked about each call, not once for each name.
    pub every_call: bool,
    /// `wasi:clocks`: the time of day and a monotonic clock.
    pub clock: bool,
    /// `wasi:random`: random numbers.
    pub random: bool,
}

/// Bounds of one policy. The defaults are generous for policies that decide names and far below what would hurt the gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Linear memory of one instance, in bytes. 16 MiB. A guest that asks for more does not get it; most then trap. More than
    /// [`EngineConfig::memory_bytes`](crate::EngineConfig::memory_bytes) puts the policy into the engine without a pool.
    pub memory_bytes: usize,
    /// How long a hook about one name may run. 50 ms. Counted in ticks in which the guest ran, so that a busy machine does
    /// not kill good policies; the wall clock bound is [`WALL_FACTOR`](crate::EngineConfig::WALL_FACTOR) times as much.
    pub resolve_time: Duration,
    /// The same for hooks about lists and for those that run once in a session. 250 ms.
    pub list_time: Duration,
    /// Bytes that one answer, or the arguments of one host call, may hand to the host, as the host counts them. 1 MiB; hooks about
    /// lists get as much again as the list is large.
    pub output_bytes: usize,
    /// Keys that it may remember for one session. 256.
    pub state_keys: usize,
    /// Bytes of all keys and values that it may remember for one session. 64 KiB.
    pub state_bytes: usize,
    /// Log lines that it may write per second over all sessions. 100; the rest is dropped and counted.
    pub log_lines_per_second: u32,
    /// Size of its component, in bytes. 4 MiB: compiling takes about a second of CPU and 30 MiB for each megabyte.
    pub component_bytes: usize,
}

/// What a failure of a policy means for the request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// The request is refused.
    #[default]
    Closed,
    /// The policy is skipped, as if it had nothing to say.
    Open,
}

/// [`OnFailure`] for each hook interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Failing {
    pub alias: OnFailure,
    pub router: OnFailure,
    pub namespace: OnFailure,
    pub lifecycle: OnFailure,
}

/// On what terms a component is loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// What the operator grants.
    pub grants: Capabilities,
    /// What it may use.
    pub limits: Limits,
    /// The SHA-256 that the component must have, 64 hexadecimal digits in lower case; `None`: any.
    pub sha256: Option<String>,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            memory_bytes: 16 << 20,
            resolve_time: Duration::from_millis(50),
            list_time: Duration::from_millis(250),
            output_bytes: 1 << 20,
            state_keys: 256,
            state_bytes: 64 << 10,
            log_lines_per_second: 100,
            component_bytes: 4 << 20,
        }
    }
}

impl Failing {
    /// The same for every hook.
    pub fn all(on: OnFailure) -> Failing {
        Failing { alias: on, router: on, namespace: on, lifecycle: on }
    }

    /// What a failure in this hook means.
    pub fn of(&self, hook: Hook) -> OnFailure {
        match hook {
            Hook::AliasResolve | Hook::AliasPublish => self.alias,
            Hook::RouterResolve => self.router,
            Hook::NamespaceExpose | Hook::NamespaceResolve => self.namespace,
            Hook::LifecycleOpened | Hook::LifecycleClosing => self.lifecycle,
        }
    }
}

impl Limits {
    pub(crate) fn time(&self, hook: Hook) -> Duration {
        if hook.is_slow() { self.list_time } else { self.resolve_time }
    }
}

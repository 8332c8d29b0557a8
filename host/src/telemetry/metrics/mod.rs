//! Every metric of the process, as typed fields.
//!
//! Labels are enums, or names of the configuration and versions of policies, never text that a peer chose; a session id or a principal is not
//! even representable. Every series but those of policies exists at zero from the start, so that a rate over it means something. Counting is an atomic
//! addition: no lock, no look-up. Made once at start-up and shared by `Arc`; `admin` serves [`Metrics::encode`].

mod labels;
mod policies;
mod table;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{SystemTime, UNIX_EPOCH};

use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use crate::admission::Totals;

pub use labels::{Admission, BackendOutcome, Dropped, IsolationSignal, Method, Outcome, PolicySwap, SessionEvent, StatusCode};
pub use policies::PolicyMetrics;
pub use table::{BackendCounters, BackendLevels, Counters, Histograms, Level, LevelGuard, MethodCounters, Sum};

/// Media type of [`Metrics::encode`]: the Prometheus text format, which every scraper reads.
pub const CONTENT_TYPE: &str = prometheus_client::encoding::prometheus_text::CONTENT_TYPE;

/// Upper bounds of the request histogram, in seconds: from a cached list to a long tool call.
const SECONDS: &[f64] = &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0];

/// All metrics. Fields are named like the metric without `lockgate_`.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// Sessions that live now.
    pub sessions: Level,
    /// Sessions opened, and closed by reason.
    pub sessions_total: Counters<SessionEvent>,
    /// Requests of clients, by method and how they ended.
    pub requests_total: MethodCounters,
    /// From the head of a request to the last byte of its answer handed to the socket.
    pub request_seconds: Histograms<Method>,
    /// Requests of clients that went to a backend, by how they ended there.
    pub backend_requests_total: BackendCounters,
    /// Upstreams connected now: one per session and backend.
    pub backend_upstreams: BackendLevels,
    /// What cannot happen on a healthy deployment; alert on any.
    pub isolation_signals_total: Counters<IsolationSignal>,
    /// Requests let in, and refused by reason.
    pub admission_total: Counters<Admission>,
    /// What all sessions are owed. Kept by their ledgers.
    pub owed: Arc<Totals>,
    /// Notifications of backends that were dropped.
    pub notifications_dropped_total: Counters<Dropped>,
    /// Answers of the front by HTTP status.
    pub http_responses_total: Counters<StatusCode>,
    /// Open connections of clients.
    pub connections: Level,
    /// Open SSE streams to clients.
    pub streams_open: Level,
    /// Calls that wait for clients of 2026-07-28.
    pub parked_calls: Level,
    /// Running stdio children.
    pub stdio_children: Level,
    /// Changes of policies: one for each virtual host that was meant.
    pub policy_swaps_total: Counters<PolicySwap>,
    /// What policies do.
    pub policies: Arc<PolicyMetrics>,
}

// === impl Metrics ===

impl Metrics {
    /// All series at zero. `backends`: the names in the order of `Config::backends`.
    pub fn new(backends: &[Arc<str>]) -> Self {
        Self::with_policies(backends, Arc::default())
    }

    /// The same, with what the engine of policies reports to.
    pub fn with_policies(backends: &[Arc<str>], policies: Arc<PolicyMetrics>) -> Self {
        let mut all = Registry::default();
        let started = Gauge::<f64, AtomicU64>::default();
        started.set(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64()));
        all.register("process_start_time_seconds", "Unix time at which the process started", started);

        let registry = all.sub_registry_with_prefix("lockgate");
        let metrics = Metrics {
            sessions: Level::default(),
            sessions_total: Counters::default(),
            requests_total: MethodCounters::default(),
            request_seconds: Histograms::new(SECONDS),
            backend_requests_total: BackendCounters::new(backends),
            backend_upstreams: BackendLevels::new(backends),
            isolation_signals_total: Counters::default(),
            admission_total: Counters::default(),
            owed: Arc::default(),
            notifications_dropped_total: Counters::default(),
            http_responses_total: Counters::default(),
            connections: Level::default(),
            streams_open: Level::default(),
            parked_calls: Level::default(),
            stdio_children: Level::default(),
            policy_swaps_total: Counters::default(),
            policies,
            registry: Registry::default(),
        };
        registry.register("sessions", "Sessions that live now", metrics.sessions.clone());
        registry.register("sessions", "Sessions opened, and closed by reason", metrics.sessions_total.clone());
        registry.register("requests", "Requests of clients by method and outcome", metrics.requests_total.clone());
        registry.register(
            "request_seconds",
            "Seconds from the head of a request to the end of its answer",
            metrics.request_seconds.clone(),
        );
        registry.register("backend_requests", "Requests sent to backends by outcome", metrics.backend_requests_total.clone());
        registry.register("backend_upstreams", "Upstreams connected now, one per session", metrics.backend_upstreams.clone());
        registry.register(
            "isolation_signals",
            "Messages that belong to no session they could name; zero on a healthy deployment",
            metrics.isolation_signals_total.clone(),
        );
        registry.register("admission", "Requests admitted, and refused by reason", metrics.admission_total.clone());
        let sum = |read| Sum::level(metrics.owed.clone(), read);
        registry.register("sessions_half_open", "Sessions whose client has stopped reading", sum(|t| &t.half_open));
        registry.register("owed_bytes", "Bytes owed to clients: queued or sent, and not drained", sum(|t| &t.owed_bytes));
        registry.register("owed_frames", "Frames owed to clients, calls in flight included", sum(|t| &t.owed_frames));
        let torn = Sum::counter(metrics.owed.clone(), |t| &t.torn_down);
        registry.register("streams_torn_down", "Streams closed because their client did not read them", torn);
        registry.register(
            "notifications_dropped",
            "Notifications of backends that did not reach their client",
            metrics.notifications_dropped_total.clone(),
        );
        registry.register("http_responses", "Answers by HTTP status", metrics.http_responses_total.clone());
        registry.register("connections", "Open connections of clients", metrics.connections.clone());
        registry.register("streams_open", "Open SSE streams to clients", metrics.streams_open.clone());
        registry.register("parked_calls", "Calls that wait for the answer of a client of 2026-07-28", metrics.parked_calls.clone());
        registry.register("stdio_children", "Running stdio children", metrics.stdio_children.clone());
        let of = || metrics.policies.clone();
        registry.register(
            "policy_calls",
            "Calls of policies by version, hook and outcome; an answer that breaks the contract is counted twice, as ok and as bad_answer",
            policies::Calls(of()),
        );
        registry.register("policy_call_seconds", "Seconds that policies took for a call", policies::Seconds(of()));
        registry.register("policy_generation", "The generation of policies that runs", policies::Generation(of()));
        registry.register(
            "policy_generations_live",
            "Generations of policies that somebody still holds, with the one that runs",
            policies::Generations(of()),
        );
        registry.register("policy_trips", "Swaps that were undone because the new policies kept failing", policies::Trips(of()));
        registry.register("policy_swaps", "Changes of policies by outcome", metrics.policy_swaps_total.clone());
        let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "Version of this binary", build);
        Metrics { registry: all, ..metrics }
    }

    /// The Prometheus text format, of media type [`CONTENT_TYPE`].
    pub fn encode(&self) -> String {
        let mut text = String::with_capacity(32 << 10);
        // Writing to a String cannot fail; a metric that could not be written would be cut off, not lost in silence.
        if prometheus_client::encoding::prometheus_text::encode(&mut text, &self.registry).is_err() {
            tracing::error!("metrics could not be written completely");
        }
        text
    }
}

#[cfg(test)]
mod tests;

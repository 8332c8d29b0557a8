//! What policies do, counted: their calls by policy, version, hook and outcome, and how long they took; and which generation runs where.
//!
//! Names of policies and versions come from the operator and from components, so there are bounds: beyond [`POLICIES`] names the rest is
//! `other`, and of a policy's versions the oldest are put together as `other`. A call finds its counters without a lock.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use lockgate_policy::{Hook, Live, Observer};
use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use super::table::Cell;

/// Names of policies that are told apart.
const POLICIES: usize = 64;
/// Versions of one policy that are told apart.
const VERSIONS: usize = 16;
/// What is beyond.
const OTHER: &str = "other";

/// Upper bounds of the histogram, in seconds: from a look into a table to a deadline.
const SECONDS: &[f64] =
    &[1e-6, 2.5e-6, 5e-6, 1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0];

/// `ok`, and the kinds of errors as the policy plane calls them.
const OUTCOMES: [&str; 10] =
    ["ok", "trap", "deadline", "memory", "too_much_data", "bad_answer", "bad_setting", "failed", "overloaded", "internal"];

const HOOKS: usize = Hook::ALL.len();

/// Counts the calls of policies. Hears of them from the engine.
#[derive(Debug, Default)]
pub struct PolicyMetrics {
    policies: ArcSwap<HashMap<Box<str>, Arc<OfPolicy>>>,
    /// Held while something is added.
    adding: Mutex<()>,
    /// What runs, by virtual host.
    live: OnceLock<Vec<(Arc<str>, Arc<Live>)>>,
}

#[derive(Debug)]
struct OfPolicy {
    /// Oldest first; the first one is `other`.
    versions: ArcSwap<Vec<Arc<OfVersion>>>,
    seconds: [Cell; HOOKS],
}

#[derive(Debug)]
struct OfVersion {
    version: Box<str>,
    calls: [[AtomicU64; OUTCOMES.len()]; HOOKS],
}

/// `policy_calls`.
#[derive(Debug)]
pub(super) struct Calls(pub Arc<PolicyMetrics>);
/// `policy_call_seconds`.
#[derive(Debug)]
pub(super) struct Seconds(pub Arc<PolicyMetrics>);
/// `policy_generation`.
#[derive(Debug)]
pub(super) struct Generation(pub Arc<PolicyMetrics>);
/// `policy_generations_live`.
#[derive(Debug)]
pub(super) struct Generations(pub Arc<PolicyMetrics>);
/// `policy_trips`.
#[derive(Debug)]
pub(super) struct Trips(pub Arc<PolicyMetrics>);

// === impl PolicyMetrics ===

impl PolicyMetrics {
    /// Whose generations are told; the first call counts.
    pub fn watch(&self, live: Vec<(Arc<str>, Arc<Live>)>) {
        let _ = self.live.set(live);
    }

    /// How many calls came to this, over all versions.
    pub fn calls(&self, policy: &str, hook: Hook, outcome: &str) -> u64 {
        let Some(outcome) = index(outcome) else { return 0 };
        let policies = self.policies.load();
        let count = |version: &Arc<OfVersion>| version.calls[at(hook)][outcome].load(Relaxed);
        policies.get(policy).map_or(0, |policy| policy.versions.load().iter().map(count).sum())
    }

    fn of(&self, policy: &str) -> Arc<OfPolicy> {
        if let Some(found) = self.policies.load().get(policy) {
            return found.clone();
        }
        // Nothing panics under this lock.
        let _adding = self.adding.lock().unwrap_or_else(PoisonError::into_inner);
        let policies = self.policies.load();
        let name = if policies.len() < POLICIES { policy } else { OTHER };
        if let Some(found) = policies.get(name) {
            return found.clone();
        }
        let mut more = HashMap::clone(&policies);
        let new = Arc::new(OfPolicy::new());
        more.insert(name.into(), new.clone());
        self.policies.store(Arc::new(more));
        new
    }

    fn version(&self, policy: &OfPolicy, version: &str) -> Arc<OfVersion> {
        let find = |versions: &[Arc<OfVersion>]| versions.iter().rev().find(|v| *v.version == *version).cloned();
        if let Some(found) = find(&policy.versions.load()) {
            return found;
        }
        let _adding = self.adding.lock().unwrap_or_else(PoisonError::into_inner);
        let mut versions = Vec::clone(&policy.versions.load());
        if let Some(found) = find(&versions) {
            return found;
        }
        if versions.len() > VERSIONS {
            let oldest = versions.remove(1);
            versions[0].add(&oldest);
        }
        let new = Arc::new(OfVersion::new(version));
        versions.push(new.clone());
        policy.versions.store(Arc::new(versions));
        new
    }

    fn each(&self, mut then: impl FnMut(&str, &OfPolicy) -> fmt::Result) -> fmt::Result {
        let policies = self.policies.load();
        let mut sorted: Vec<_> = policies.iter().collect();
        sorted.sort_unstable_by_key(|(name, _)| *name);
        sorted.into_iter().try_for_each(|(name, policy)| then(name, policy))
    }

    fn live(&self) -> &[(Arc<str>, Arc<Live>)] {
        self.live.get().map_or(&[], Vec::as_slice)
    }
}

impl Observer for PolicyMetrics {
    fn called(&self, policy: &str, version: &str, hook: Hook, outcome: &'static str, time: Duration) {
        let policy = self.of(policy);
        policy.seconds[at(hook)].observe(SECONDS, time);
        if let Some(outcome) = index(outcome) {
            self.version(&policy, version).calls[at(hook)][outcome].fetch_add(1, Relaxed);
        }
    }

    /// Told once more, as what it turned out to be.
    fn refuted(&self, policy: &str, version: &str, hook: Hook) {
        if let Some(outcome) = index("bad_answer") {
            self.version(&self.of(policy), version).calls[at(hook)][outcome].fetch_add(1, Relaxed);
        }
    }
}

fn index(outcome: &str) -> Option<usize> {
    OUTCOMES.iter().position(|known| *known == outcome)
}

fn at(hook: Hook) -> usize {
    Hook::ALL.iter().position(|known| *known == hook).unwrap_or_default()
}

// === impl OfPolicy ===

impl OfPolicy {
    fn new() -> Self {
        OfPolicy {
            versions: ArcSwap::from_pointee(vec![Arc::new(OfVersion::new(OTHER))]),
            seconds: std::array::from_fn(|_| Cell::new(SECONDS)),
        }
    }
}

// === impl OfVersion ===

impl OfVersion {
    fn new(version: &str) -> Self {
        OfVersion { version: version.into(), calls: std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0))) }
    }

    fn add(&self, other: &OfVersion) {
        for (mine, others) in self.calls.iter().flatten().zip(other.calls.iter().flatten()) {
            mine.fetch_add(others.load(Relaxed), Relaxed);
        }
    }
}

// === impl EncodeMetric: only what has happened, for most hooks of most policies are never called ===

impl EncodeMetric for Calls {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        self.0.each(|name, policy| {
            for version in policy.versions.load().iter() {
                for (hook, counts) in Hook::ALL.iter().zip(&version.calls) {
                    for (outcome, count) in OUTCOMES.iter().zip(counts) {
                        let count = count.load(Relaxed);
                        if count > 0 {
                            let labels = [("policy", name), ("version", &*version.version), ("hook", hook.name()), ("outcome", outcome)];
                            encoder.encode_family(&labels)?.encode_counter::<NoLabelSet, _, f64>(&count, None)?;
                        }
                    }
                }
            }
            Ok(())
        })
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Counter
    }
}

impl EncodeMetric for Seconds {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        self.0.each(|name, policy| {
            let called = Hook::ALL.iter().zip(&policy.seconds).filter(|(_, cell)| cell.count() > 0);
            for (hook, cell) in called {
                cell.encode(SECONDS, encoder.encode_family(&[("policy", name), ("hook", hook.name())])?)?;
            }
            Ok(())
        })
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

impl EncodeMetric for Generation {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        self.0
            .live()
            .iter()
            .try_for_each(|(host, live)| encoder.encode_family(&[("virtual_host", &**host)])?.encode_gauge(&live.generation()))
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Gauge
    }
}

impl EncodeMetric for Generations {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let alive = |live: &Live| u64::try_from(live.alive()).unwrap_or(u64::MAX);
        self.0.live().iter().try_for_each(|(host, live)| encoder.encode_family(&[("virtual_host", &**host)])?.encode_gauge(&alive(live)))
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Gauge
    }
}

impl EncodeMetric for Trips {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        self.0.live().iter().try_for_each(|(host, live)| {
            encoder.encode_family(&[("virtual_host", &**host)])?.encode_counter::<NoLabelSet, _, f64>(&live.status().trips, None)
        })
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Counter
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::Metrics;

    #[test]
    fn calls_are_counted_by_policy_version_hook_and_outcome() {
        let policies = Arc::new(PolicyMetrics::default());
        let metrics = Metrics::with_policies(&[], policies.clone());
        let call = |version: &str, outcome| policies.called("p", version, Hook::RouterResolve, outcome, Duration::from_micros(3));
        call("1", "ok");
        call("1", "ok");
        call("2", "trap");
        policies.refuted("p", "2", Hook::NamespaceExpose);
        let text = metrics.encode();
        for line in [
            r#"lockgate_policy_calls_total{policy="p",version="1",hook="router.resolve",outcome="ok"} 2"#,
            r#"lockgate_policy_calls_total{policy="p",version="2",hook="router.resolve",outcome="trap"} 1"#,
            r#"lockgate_policy_calls_total{policy="p",version="2",hook="namespace.expose",outcome="bad_answer"} 1"#,
            r#"lockgate_policy_call_seconds_count{policy="p",hook="router.resolve"} 3"#,
            r#"lockgate_policy_swaps_total{outcome="refused"} 0"#,
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        }
        assert!(text.contains("lockgate_policy_call_seconds_bucket") && text.contains(r#"le="5e-06""#), "{text}");
    }

    #[test]
    fn names_and_versions_have_a_bound_and_no_count_is_lost() {
        let policies = PolicyMetrics::default();
        for i in 0..100 {
            policies.called("p", &i.to_string(), Hook::AliasResolve, "ok", Duration::ZERO);
            policies.called(&format!("p{i}"), "1", Hook::AliasResolve, "ok", Duration::ZERO);
        }
        assert_eq!(policies.calls("p", Hook::AliasResolve, "ok"), 100);
        assert_eq!(policies.of("p").versions.load().len(), VERSIONS + 1);
        assert!(policies.of("p").versions.load().iter().any(|v| &*v.version == "99"), "the newest are told apart");
        assert_eq!(policies.policies.load().len(), POLICIES + 1);
        let all: u64 = policies.policies.load().keys().map(|name| policies.calls(name, Hook::AliasResolve, "ok")).sum();
        assert_eq!(all, 200);
    }
}

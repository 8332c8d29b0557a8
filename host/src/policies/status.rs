//! What operators see of the policies that run. Holds no configuration of a policy and no name of a session: those may be secret.

use super::control::{Control, Host, Last};
use super::load::{Source, Spec};
use lockgate_policy::{Entry, Hook, OnFailure, Swap, SwapOutcome};
use serde::Serialize;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// A virtual host and the generation of policies that it runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Kept {
    pub virtual_host: Arc<str>,
    pub generation: u64,
}

impl Control {
    /// The policies of all virtual hosts, and how the last change of them ended.
    pub fn status(&self) -> Value {
        json!({ "virtual_hosts": self.hosts.iter().map(host).collect::<Vec<_>>() })
    }
}

fn host(host: &Host) -> Value {
    let (chain, specs) = host.running();
    let (last, held) = {
        let state = host.state();
        let held: Vec<u64> = state.chains.iter().filter(|k| k.chain.strong_count() > 0).map(|k| k.generation).collect();
        (state.last.clone(), held)
    };
    let live = host.virtual_host.policies.status();
    let probation = live.probation.map(|p| json!({ "previous": p.previous, "ends": timestamp(p.ends) }));
    let policies: Vec<Value> = chain.entries().iter().enumerate().map(|(at, entry)| policy(entry, specs.get(at))).collect();
    json!({
        "virtual_host": host.path(),
        "generation": chain.generation(),
        "since": timestamp(live.since),
        "live_generations": held,
        "probation": probation,
        "swaps": live.swaps,
        "trips": live.trips,
        "last_swap": last_swap(last.as_ref(), live.last_swap.as_ref()),
        "policies": policies,
    })
}

/// How the last change ended: as it was made, or undone since.
fn last_swap(made: Option<&Last>, live: Option<&Swap>) -> Option<Value> {
    if let Some(Swap { at, outcome: SwapOutcome::WentBack { reason, .. } }) = live
        && made.is_none_or(|made| made.at <= *at)
    {
        return Some(json!({ "time": timestamp(*at), "by": "probation", "outcome": "went-back", "reason": reason }));
    }
    let outcome = |made: &Last| if made.refused.is_some() { "refused" } else { "swapped" };
    made.map(|made| json!({ "time": timestamp(made.at), "by": made.by, "outcome": outcome(made), "reason": made.refused }))
}

fn policy(entry: &Entry, spec: Option<&Spec>) -> Value {
    let (policy, capabilities, limits) = (entry.policy(), entry.policy().capabilities(), entry.policy().limits());
    let fail = |hook: Hook| match entry.failing().of(hook) {
        OnFailure::Closed => "closed",
        OnFailure::Open => "open",
    };
    let (source, file) = match spec.map(|spec| &spec.source) {
        Some(Source::Shipped) => ("shipped", None),
        Some(Source::File(path)) => ("file", Some(path.display().to_string())),
        Some(Source::Pushed) => ("api", None),
        None => ("unknown", None),
    };
    let millis = |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    json!({
        "name": policy.name(),
        "version": policy.version(),
        "digest": policy.digest(),
        "contract": policy.contract(),
        "hooks": policy.hooks().names(),
        "source": source,
        "file": file,
        "pinned": spec.is_some_and(|spec| spec.terms.sha256.is_some()),
        "grants": {
            "claims": capabilities.claims,
            "every_call": capabilities.every_call,
            "clock": capabilities.clock,
            "random": capabilities.random,
        },
        "fail": {
            "alias": fail(Hook::AliasResolve),
            "router": fail(Hook::RouterResolve),
            "namespace": fail(Hook::NamespaceExpose),
            "lifecycle": fail(Hook::LifecycleOpened),
        },
        "limits": {
            "memory_bytes": limits.memory_bytes,
            "resolve_time_ms": millis(limits.resolve_time),
            "list_time_ms": millis(limits.list_time),
            "output_bytes": limits.output_bytes,
            "state_bytes": limits.state_bytes,
            "state_keys": limits.state_keys,
            "log_lines_per_second": limits.log_lines_per_second,
            "component_bytes": limits.component_bytes,
        },
    })
}

/// A time as RFC 3339 in UTC, to the second.
fn timestamp(at: SystemTime) -> String {
    let seconds = at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Days from the civil calendar, counted from March of year 0, so that leap days are last in their year.
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", second / 3600, second / 60 % 60, second % 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn times_are_told_by_the_calendar() {
        let told = |seconds: u64| timestamp(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(told(0), "1970-01-01T00:00:00Z");
        assert_eq!(told(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(told(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(told(1_735_689_599), "2024-12-31T23:59:59Z");
        assert_eq!(told(4_107_542_400), "2100-03-01T00:00:00Z");
    }
}

//! What is found out about policies before a client does: whether each can work with its configuration, on this virtual host. Called by `load`.

use super::load::{Source, Spec};
use crate::config::{Config, Place, Problem, VirtualHost};
use lockgate_policy::{BackendState, BackendView, Chain, Scratch, SessionView, Warm};
use serde_json::Value;
use std::sync::Arc;

/// Asks the policies of a virtual host about nothing, in a session as its first could be: with every backend connected.
pub(super) fn stand(config: &Config, host: &VirtualHost, chain: &Arc<Chain>) -> Result<(), Problem> {
    let backend = |at: &usize| config.backends.get(*at).map(|b| BackendView { name: b.name.clone(), state: BackendState::Connected });
    let view = SessionView {
        principal: config.auth.principals().next().cloned().unwrap_or_else(|| "anonymous".into()),
        claims: Arc::default(),
        virtual_host: host.path.clone(),
        backends: host.backends.iter().filter_map(backend).collect(),
        scratch: Scratch::new(),
        warm: Warm::new(),
    };
    // A thread of its own: whoever loads policies may be in a runtime already, which cannot wait for another.
    let tried = std::thread::scope(|scope| {
        let try_out = || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().map_err(|e| (None, e.to_string()))?;
            runtime.block_on(chain.try_out(&view)).map_err(|e| (Some(e.policy.clone()), e.to_string()))
        };
        scope.spawn(try_out).join().unwrap_or_else(|_| Err((None, "trying the policies out was broken off".into())))
    });
    tried.map_err(|(policy, why)| {
        let place = policy.and_then(|name| host.policies.iter().find(|p| *p.name == *name)).map(|p| p.place.clone());
        Problem::new(place.unwrap_or_else(|| Place::named("policies")), why)
    })
}

/// What the configuration of a shipped policy speaks of, and the policy is not granted: its rules would be about nobody.
pub(super) fn wishes(spec: &Spec) -> Result<(), String> {
    if spec.source != Source::Shipped || !matches!(&*spec.name, "filter" | "route") {
        return Ok(());
    }
    let setting: Value = serde_json::from_str(&spec.setting).unwrap_or_default();
    for (at, rule) in setting["rules"].as_array().into_iter().flatten().enumerate() {
        for claim in rule["who"]["claims"].as_object().into_iter().flat_map(|claims| claims.keys()) {
            if !spec.terms.grants.claims.contains(claim) {
                return Err(format!(
                    "rule {} of `{}` speaks of the claim {claim}, which the policy is not granted: add `grants: {{ claims: [{claim}] }}`",
                    at + 1,
                    spec.name
                ));
            }
        }
        if rule["by"] == "session" && !spec.terms.grants.random {
            return Err(format!(
                "rule {} of `{}` draws lots (`by: session`), for which it needs random numbers: add `grants: {{ random: true }}`",
                at + 1,
                spec.name
            ));
        }
    }
    Ok(())
}

//! Shipped policy: which backend serves a call, by name pattern, by caller, by weight.
//!
//! Its configuration, as YAML; the first rule that fits decides, and without one the call goes where it was to go:
//!
//! ```yaml
//! rules:
//!   - { things: "search/*", who: { claims: { region: [eu] } }, to: search-eu }
//!   - { things: "search/query", to: search-next, rename: query_v2 }
//!   - things: "search/*"
//!     to: [{ backend: search, weight: 9 }, { backend: search-next, weight: 1 }]
//! ```
//!
//! * `things`, `kind` and `who` are those of the policy `filter`. The name is kept, or `rename`, in which `{name}` is the name.
//! * Between several backends the weights decide. `by: principal` (the default) takes them by a hash of the principal and the virtual
//!   host: all sessions of one principal go to the same backend, at every start. `by: session` draws lots once for each session, and needs
//!   `grants: { random: true }`. Either way a session stays with its backend, and moves only when that is down and another is not.
//! * Every backend that is named must be one of the virtual host's.
//!
//! The answer is kept with a name until lists or policies change. With `grants: { every_call: true }` each call is decided anew, so that
//! calls leave a backend as soon as it is down.

mod rules;

use lockgate_sdk::{BackendState, Decision, Failure, Kind, Router, Session, Target, export, random};

use rules::{By, Rules};

struct Routes;

impl Router for Routes {
    fn resolve(s: &Session, kind: Kind, _: &str, target: &Target) -> Result<Decision, Failure> {
        let rules: Rules = s.setting_as()?;
        let backends = s.backends();
        rules.check(|name| backends.iter().any(|b| b.name == name)).map_err(Failure::BadSetting)?;
        let Some((index, rule)) = rules.find(kind, target, |who| who.is(s)) else {
            return Ok(Decision::Pass);
        };
        let is_up = |name: &str| backends.iter().any(|b| b.name == name && b.state != BackendState::Down);
        let choices = rule.choices(is_up);
        let backend = match &*choices {
            [only] => &only.backend,
            _ => {
                let key = format!("backend of rule {index}");
                let before: Option<String> = s.recall_as(&key);
                let chosen = rules::stay(&choices, before.as_deref()).unwrap_or_else(|| {
                    let lot = match rule.by {
                        By::Principal => rules::hash(&[&s.principal(), &s.virtual_host()]),
                        By::Session => random::number(),
                    };
                    rules::choose(&choices, lot)
                });
                if before.as_deref() != Some(chosen) {
                    s.remember_as(&key, chosen)?;
                }
                chosen
            }
        };
        Ok(Decision::Route(Target::new(backend, rule.name(&target.name))))
    }
}

export!(Routes: router);

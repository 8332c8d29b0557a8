//! Shipped policy: what may be seen and called, by name pattern and caller.
//!
//! Its configuration, as YAML; the first rule that fits decides, and without one `otherwise` (`allow` if it is not given):
//!
//! ```yaml
//! rules:
//!   - { things: "files/delete_*", who: { claims: { team: [ops] } }, do: allow }
//!   - { things: "*/delete_*", do: deny, reason: only ops may delete }
//!   - { things: "files/file:///secret/*", kind: resource, do: deny }
//! otherwise: allow
//! ```
//!
//! * `things`: `BACKEND/NAME` with `*` and `?`, the own name at the backend. `kind`, if given: `tool`, `prompt`, `resource` or `resource-template`.
//! * `who`, if given: `principals` (patterns) and `claims` (values). Claims need `grants: { claims: [team] }`: a
//!   gateway does not start with rules about claims that are not granted.
//! * What is denied is hidden from lists and cannot be called. With `listed: true` it is shown, and calls are answered with the reason.
//!
//! A concrete URI of a template that is shown, and what another router sends somewhere, do not come through lists: those are refused when
//! they are used. Before `namespace` in the chain it sees own names; after `route` it judges where calls really go.

mod rules;

use lockgate_sdk::{Decision, Failure, ItemHead, Kind, Namespace, Router, Session, Target, Verdict, export};

use rules::{Outcome, Rules};

struct Filter;

impl Namespace for Filter {
    fn expose(s: &Session, kind: Kind, items: &[ItemHead]) -> Result<Vec<Verdict>, Failure> {
        let rules: Rules = s.setting_as()?;
        let here = rules.of(kind, |who| who.is(s));
        let verdict = |item: &ItemHead| match here.decide(&item.backend, &item.name) {
            Outcome::Hidden(_) => Verdict::Hide,
            Outcome::Allowed | Outcome::Refused(_) => Verdict::Keep,
        };
        Ok(items.iter().map(verdict).collect())
    }
}

impl Router for Filter {
    fn resolve(s: &Session, kind: Kind, _: &str, target: &Target) -> Result<Decision, Failure> {
        let rules: Rules = s.setting_as()?;
        Ok(match rules.of(kind, |who| who.is(s)).decide(&target.backend, &target.name) {
            Outcome::Allowed => Decision::Pass,
            Outcome::Hidden(reason) | Outcome::Refused(reason) => Decision::Refuse(reason.to_owned()),
        })
    }
}

export!(Filter: namespace, router);

//! The configured rules, and what they say of one thing.

use lockgate_sdk::Kind;
use lockgate_sdk::rules::{Things, Who};
use serde::Deserialize;

/// What a denied call is answered with when its rule has no reason.
const NOT_ALLOWED: &str = "not allowed here";

/// The whole configuration of this policy. `null` has no rules and allows everything.
#[derive(Debug, Default, Deserialize)]
#[serde(from = "Option<Given>")]
pub struct Rules {
    rules: Vec<Rule>,
    otherwise: Do,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Given {
    rules: Vec<Rule>,
    otherwise: Do,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    things: Things,
    kind: Option<Kind>,
    #[serde(default)]
    who: Who,
    r#do: Do,
    /// For the client of a call that is denied.
    reason: Option<String>,
    /// Denied, but shown.
    #[serde(default)]
    listed: bool,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Do {
    #[default]
    Allow,
    Deny,
}

/// The rules for one kind of thing and one session.
#[derive(Debug)]
pub struct Here<'a> {
    rules: Vec<&'a Rule>,
    otherwise: Do,
}

/// What becomes of a thing. Reasons are for clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// Shown and served.
    Allowed,
    /// Neither.
    Hidden(&'a str),
    /// Shown, not served.
    Refused(&'a str),
}

impl From<Option<Given>> for Rules {
    fn from(given: Option<Given>) -> Rules {
        let Given { rules, otherwise } = given.unwrap_or_default();
        Rules { rules, otherwise }
    }
}

impl Rules {
    /// Those that can matter for things of this kind. `is`: whether the session is one of these.
    pub fn of(&self, kind: Kind, is: impl Fn(&Who) -> bool) -> Here<'_> {
        // A template is no resource, but whoever denies the resources of a pattern means the template that leads to them.
        let same = |k: Kind| k == kind || (k == Kind::Resource && kind == Kind::ResourceTemplate);
        let rules = self.rules.iter().filter(|r| r.kind.is_none_or(same) && is(&r.who)).collect();
        Here { rules, otherwise: self.otherwise }
    }
}

impl Here<'_> {
    /// What the first rule that fits says.
    pub fn decide(&self, backend: &str, name: &str) -> Outcome<'_> {
        match self.rules.iter().find(|r| r.things.matches(backend, name)) {
            Some(rule) if rule.r#do == Do::Allow => Outcome::Allowed,
            Some(rule) => {
                let reason = rule.reason.as_deref().unwrap_or(NOT_ALLOWED);
                if rule.listed { Outcome::Refused(reason) } else { Outcome::Hidden(reason) }
            }
            None if self.otherwise == Do::Allow => Outcome::Allowed,
            None => Outcome::Hidden(NOT_ALLOWED),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(json: &str) -> Rules {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn the_first_rule_that_fits_decides() {
        let rules = rules(
            r#"{"rules": [
                {"things": "files/delete_draft", "do": "allow"},
                {"things": "*/delete_*", "do": "deny", "reason": "no"},
                {"things": "*/stop", "do": "deny", "listed": true}
            ]}"#,
        );
        let here = rules.of(Kind::Tool, |_| true);
        assert_eq!(here.decide("files", "delete_draft"), Outcome::Allowed);
        assert_eq!(here.decide("files", "delete_all"), Outcome::Hidden("no"));
        assert_eq!(here.decide("notes", "delete_draft"), Outcome::Hidden("no"));
        assert_eq!(here.decide("notes", "stop"), Outcome::Refused(NOT_ALLOWED));
        assert_eq!(here.decide("notes", "add"), Outcome::Allowed);
    }

    #[test]
    fn a_rule_is_for_its_kind_and_its_callers() {
        let rules = rules(
            r#"{"rules": [
                {"things": "files/*", "kind": "resource", "do": "allow"},
                {"things": "files/*", "who": {"principals": ["ann"]}, "do": "allow"}
            ], "otherwise": "deny"}"#,
        );
        let decide = |kind, principal: &str| {
            let here = rules.of(kind, |who| who.matches(principal, |_| None));
            here.decide("files", "x") == Outcome::Allowed
        };
        assert!(decide(Kind::Resource, "bob") && decide(Kind::ResourceTemplate, "bob"));
        assert!(!decide(Kind::Tool, "bob") && !decide(Kind::Prompt, "bob"));
        assert!(decide(Kind::Tool, "ann"));
    }

    #[test]
    fn no_configuration_allows_everything() {
        for nothing in ["null", "{}"] {
            assert_eq!(rules(nothing).of(Kind::Tool, |_| true).decide("a", "b"), Outcome::Allowed, "{nothing}");
        }
    }

    #[test]
    fn what_does_not_fit_is_refused_with_the_reason() {
        let why = |json| serde_json::from_str::<Rules>(json).unwrap_err().to_string();
        assert!(why(r#"{"rule": []}"#).contains("unknown field `rule`"));
        assert!(why(r#"{"rules": [{"things": "delete_*", "do": "deny"}]}"#).contains("BACKEND/NAME"));
        assert!(why(r#"{"rules": [{"things": "a/b"}]}"#).contains("missing field `do`"));
    }
}

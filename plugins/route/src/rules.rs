//! The configured rules, which of them is for a call, and how weights choose.

use lockgate_sdk::rules::{Things, Who};
use lockgate_sdk::{Kind, Target};
use serde::Deserialize;

/// The whole configuration of this policy. `null` has no rules.
#[derive(Debug, Default, Deserialize)]
#[serde(from = "Option<Given>")]
pub struct Rules(Vec<Rule>);

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Given {
    rules: Vec<Rule>,
}

/// One rule.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    things: Things,
    kind: Option<Kind>,
    #[serde(default)]
    who: Who,
    to: To,
    #[serde(default)]
    pub by: By,
    rename: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "`to` must be the name of a backend, or a list of { backend, weight }")]
enum To {
    One(String),
    Several(Vec<Choice>),
}

/// One backend of several.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Choice {
    pub backend: String,
    #[serde(default = "one")]
    weight: u32,
}

/// What decides between several backends.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum By {
    #[default]
    Principal,
    Session,
}

fn one() -> u32 {
    1
}

impl From<Option<Given>> for Rules {
    fn from(given: Option<Given>) -> Rules {
        Rules(given.unwrap_or_default().rules)
    }
}

impl Rules {
    /// Refuses rules that lead to no backend, or to one that the session does not have.
    pub fn check(&self, is_backend: impl Fn(&str) -> bool) -> Result<(), String> {
        for (index, rule) in self.0.iter().enumerate() {
            let choices = rule.all();
            if let Some(foreign) = choices.iter().find(|c| !is_backend(&c.backend)) {
                return Err(format!("rules[{index}] leads to {:?}, which is not a backend of this virtual host", foreign.backend));
            }
            if choices.iter().all(|c| c.weight == 0) {
                return Err(format!("rules[{index}] leads to no backend: `to` is empty, or all weights are 0"));
            }
        }
        Ok(())
    }

    /// The first rule that is for this call, with its position. `is`: whether the session is one of these.
    pub fn find(&self, kind: Kind, target: &Target, is: impl Fn(&Who) -> bool) -> Option<(usize, &Rule)> {
        let fits = |r: &Rule| r.kind.is_none_or(|k| k == kind) && r.things.matches(&target.backend, &target.name) && is(&r.who);
        self.0.iter().enumerate().find(|(_, r)| fits(r))
    }
}

impl Rule {
    fn all(&self) -> Vec<Choice> {
        match &self.to {
            To::One(backend) => vec![Choice { backend: backend.clone(), weight: 1 }],
            To::Several(choices) => choices.clone(),
        }
    }

    /// Where it may lead now: the backends that are not down or, if all are, all. Those of weight 0 get nothing.
    pub fn choices(&self, is_up: impl Fn(&str) -> bool) -> Vec<Choice> {
        let all: Vec<Choice> = self.all().into_iter().filter(|c| c.weight > 0).collect();
        let up: Vec<Choice> = all.iter().filter(|c| is_up(&c.backend)).cloned().collect();
        if up.is_empty() { all } else { up }
    }

    /// What it is called there.
    pub fn name(&self, own: &str) -> String {
        self.rename.as_ref().map_or_else(|| own.to_owned(), |to| to.replace("{name}", own))
    }
}

/// The backend that the session had before, if it is still one to choose.
pub fn stay<'a>(choices: &'a [Choice], before: Option<&str>) -> Option<&'a str> {
    choices.iter().map(|c| &*c.backend).find(|b| Some(*b) == before)
}

/// The backend on which a lot falls: each has as large a part of all lots as its weight says. `choices` must not be empty.
pub fn choose(choices: &[Choice], lot: u64) -> &str {
    let total: u64 = choices.iter().map(|c| u64::from(c.weight)).sum();
    // The high half of a product is as even as a remainder, and takes the good bits of a hash.
    let mut at = ((u128::from(lot) * u128::from(total)) >> 64) as u64;
    for choice in choices {
        match at.checked_sub(choice.weight.into()) {
            Some(left) => at = left,
            None => return &choice.backend,
        }
    }
    &choices[choices.len() - 1].backend
}

/// A hash that is the same in every process: FNV-1a over the parts with their ends, and a final mix that spreads its bits.
pub fn hash(parts: &[&str]) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.bytes().chain([0xff]));
    let mut h = bytes.fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    for mix in [0xff51_afd7_ed55_8ccd, 0xc4ce_b9fe_1a85_ec53] {
        h = (h ^ (h >> 33)).wrapping_mul(mix);
    }
    h ^ (h >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(json: &str) -> Rules {
        serde_json::from_str(json).unwrap()
    }

    fn split() -> Rules {
        rules(r#"{"rules": [{"things": "*/*", "to": [{"backend": "a", "weight": 3}, {"backend": "b"}, {"backend": "off", "weight": 0}]}]}"#)
    }

    #[test]
    fn the_first_rule_for_the_thing_its_kind_and_its_caller_wins() {
        let rules = rules(
            r#"{"rules": [
                {"things": "s/*", "who": {"principals": ["ann"]}, "to": "eu"},
                {"things": "s/*", "kind": "prompt", "to": "p"},
                {"things": "s/q*", "to": "next", "rename": "{name}_v2"}
            ]}"#,
        );
        let found = |kind, name: &str, who: &str| {
            rules.find(kind, &Target::new("s", name), |w| w.matches(who, |_| None)).map(|(index, rule)| (index, rule.name(name)))
        };
        assert_eq!(found(Kind::Tool, "query", "ann"), Some((0, "query".into())));
        assert_eq!(found(Kind::Tool, "query", "bob"), Some((2, "query_v2".into())));
        assert_eq!(found(Kind::Prompt, "query", "bob"), Some((1, "query".into())));
        assert_eq!(found(Kind::Tool, "list", "bob"), None);
    }

    #[test]
    fn weights_are_kept_over_many_principals_and_one_principal_always_gets_the_same() {
        let rules = split();
        let choices = rules.0[0].choices(|_| true);
        let of = |i: u32| choose(&choices, hash(&[&format!("user-{i}"), "/mcp"])).to_owned();
        let to_a = (0..4_000).filter(|i| of(*i) == "a").count();
        assert!((2_850..3_150).contains(&to_a), "{to_a} of 4000 with weight 3 of 4");
        assert_eq!(of(17), of(17));
        assert_eq!((choose(&choices, 0), choose(&choices, u64::MAX)), ("a", "b"));
    }

    #[test]
    fn a_session_stays_until_its_backend_is_down_and_another_is_not() {
        let rules = split();
        let rule = &rules.0[0];
        assert_eq!(stay(&rule.choices(|_| true), Some("b")), Some("b"));
        assert_eq!(stay(&rule.choices(|b| b == "a"), Some("b")), None);
        assert_eq!(stay(&rule.choices(|_| false), Some("b")), Some("b"), "where would it go");
        assert_eq!(stay(&rule.choices(|_| true), Some("gone")), None);
        assert_eq!(stay(&rule.choices(|_| true), Some("off")), None, "weight 0 drains");
    }

    #[test]
    fn rules_that_lead_nowhere_are_refused_with_the_place() {
        let check = |json| rules(json).check(|b| b == "a").unwrap_err();
        assert!(check(r#"{"rules": [{"things": "*/*", "to": "a"}, {"things": "*/*", "to": "b"}]}"#).contains("rules[1] leads to \"b\""));
        assert!(check(r#"{"rules": [{"things": "*/*", "to": []}]}"#).contains("no backend"));
        let why = serde_json::from_str::<Rules>(r#"{"rules": [{"things": "*/*", "to": 1}]}"#).unwrap_err().to_string();
        assert!(why.contains("the name of a backend"), "{why}");
        assert!(rules("null").check(|_| false).is_ok());
    }
}

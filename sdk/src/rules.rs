//! Words for rules in a policy's configuration, as the shipped policies `filter` and `route` have them: which things, and whose sessions.
//! Plain values, read with serde.
//!
//! ```
//! use lockgate_sdk::rules::{Things, Who};
//!
//! #[derive(serde::Deserialize)]
//! struct Rule {
//!     things: Things,
//!     #[serde(default)]
//!     who: Who,
//! }
//!
//! let rule: Rule = serde_json::from_str(r#"{"things": "files/delete_*", "who": {"principals": ["ann", "ops-*"]}}"#)?;
//! assert!(rule.things.matches("files", "delete_all") && !rule.things.matches("notes", "delete_all"));
//! assert!(rule.who.matches("ops-7", |_| None) && !rule.who.matches("bob", |_| None));
//! # Ok::<(), serde_json::Error>(())
//! ```

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::{Deserializer, Error};
use serde_json::Value;

/// A pattern for a whole text: `*` is any run of characters, empty too; `?` is one character; every other stands for itself.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub struct Glob(String);

/// A pattern for things of backends, `BACKEND/NAME`, both [`Glob`]s: `time/get_*`, `*/delete_*`, `files/file:///secret/*`. The name is the own name
/// (the URI, the URI template); the first `/` ends the backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Things {
    backend: Glob,
    name: Glob,
}

/// Whose sessions a rule is for. What is not given does not matter; what is given must all be so.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct Who {
    /// One of these is the principal.
    principals: Option<Vec<Glob>>,
    /// For each claim: its value is one of these or, if it is a list, holds one of these. The policy must be granted the claims;
    /// one that the principal does not have matches nothing.
    claims: BTreeMap<String, Vec<Value>>,
}

impl Glob {
    /// A pattern.
    pub fn new(pattern: impl Into<String>) -> Glob {
        Glob(pattern.into())
    }

    /// Whether the whole text fits. Takes time of at most length times length, and no memory.
    pub fn matches(&self, text: &str) -> bool {
        let (mut pattern, mut rest) = (self.0.chars(), text.chars());
        // After the last `*`, and where the text stood when that star had taken as much as it has by now.
        let mut again = None;
        loop {
            let mut ahead = pattern.clone();
            match (ahead.next(), rest.clone().next()) {
                (Some('*'), _) => {
                    again = Some((ahead.clone(), rest.clone()));
                    pattern = ahead;
                }
                (Some(p), Some(c)) if p == '?' || p == c => {
                    pattern = ahead;
                    rest.next();
                }
                (None, None) => return true,
                _ => {
                    let Some((after, taken)) = &mut again else { return false };
                    if taken.next().is_none() {
                        return false;
                    }
                    (pattern, rest) = (after.clone(), taken.clone());
                }
            }
        }
    }
}

impl Things {
    /// A pattern; the error says what is missing.
    pub fn new(pattern: &str) -> Result<Things, String> {
        match pattern.split_once('/') {
            Some((backend, name)) if !backend.is_empty() && !name.is_empty() => {
                Ok(Things { backend: Glob::new(backend), name: Glob::new(name) })
            }
            _ => Err(format!("{pattern:?} is not BACKEND/NAME, such as \"time/get_*\" or \"*/delete_*\"")),
        }
    }

    /// Whether it is one of these.
    pub fn matches(&self, backend: &str, name: &str) -> bool {
        self.backend.matches(backend) && self.name.matches(name)
    }
}

impl<'de> Deserialize<'de> for Things {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Things, D::Error> {
        Things::new(&String::deserialize(from)?).map_err(D::Error::custom)
    }
}

impl Who {
    /// Whether a session is one of these. `claim`: the value of a claim as JSON text, as [`Session::claim`](crate::Session::claim) gives it.
    pub fn matches(&self, principal: &str, claim: impl Fn(&str) -> Option<String>) -> bool {
        let is_one_of = |wanted: &[Value], json: String| match serde_json::from_str(&json) {
            Ok(Value::Array(values)) => values.iter().any(|v| wanted.contains(v)),
            Ok(value) => wanted.contains(&value),
            Err(_) => false,
        };
        self.principals.as_ref().is_none_or(|all| all.iter().any(|p| p.matches(principal)))
            && self.claims.iter().all(|(name, wanted)| claim(name).is_some_and(|json| is_one_of(wanted, json)))
    }

    /// Whether this session is one of these.
    pub fn is(&self, s: &crate::Session) -> bool {
        self.matches(&s.principal(), |name| s.claim(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_glob_is_for_the_whole_text() {
        let all = [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("*", "any/thing", true),
            ("get_*", "get_", true),
            ("get_*", "forget_", false),
            ("*_time", "get_time_time", true),
            ("*a*b*", "xxaxxbxx", true),
            ("*a*b", "abab", true),
            ("*a*b", "aba", false),
            ("g?t", "gét", true),
            ("g?t", "gt", false),
            ("[a]", "[a]", true),
            ("[a]", "a", false),
        ];
        for (pattern, text, fits) in all {
            assert_eq!(Glob::new(pattern).matches(text), fits, "{pattern} {text}");
        }
        assert!(!Glob::new("*a".repeat(30)).matches(&"a".repeat(25)), "and it ends");
    }

    #[test]
    fn things_are_a_backend_and_a_name_that_may_hold_slashes() {
        let secrets = Things::new("files/file:///secret/*").unwrap();
        assert!(secrets.matches("files", "file:///secret/a/b") && !secrets.matches("files", "file:///open"));
        assert!(!secrets.matches("other", "file:///secret/a"));
        for wrong in ["delete_*", "/x", "a/", ""] {
            assert!(Things::new(wrong).unwrap_err().contains("BACKEND/NAME"), "{wrong}");
        }
    }

    #[test]
    fn who_wants_everything_that_it_names() {
        let who: Who = serde_json::from_str(r#"{"principals": ["ann", "ops-*"], "claims": {"team": ["red", "blue"]}}"#).unwrap();
        let team = |json: &'static str| move |name: &str| (name == "team").then(|| json.to_owned());
        assert!(who.matches("ops-1", team(r#""red""#)));
        assert!(who.matches("ann", team(r#"["green","blue"]"#)));
        assert!(!who.matches("ann", team(r#""green""#)));
        assert!(!who.matches("ann", team(r#"{"red":true}"#)));
        assert!(!who.matches("bob", team(r#""red""#)));
        assert!(!who.matches("ann", |_| None), "a claim that is not there matches nothing");
        assert!(Who::default().matches("anybody", |_| None));
        let nobody: Who = serde_json::from_str(r#"{"principals": []}"#).unwrap();
        assert!(!nobody.matches("ann", |_| None));
        assert!(serde_json::from_str::<Who>(r#"{"principal": ["ann"]}"#).is_err());
    }
}

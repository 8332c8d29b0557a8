//! The fixtures of a policy: a session, a configuration, and cases of a question with the answer that is expected. Owns the form of the files
//! (JSON, documented in `plugins/README.md`), and how an expectation is compared and renewed. Runs nothing. Called by `test`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use lockgate_policy::{BackendState, BackendView, Capabilities, Claims, Limits, PolicyErrorKind, Question};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::config::{parse_duration, parse_size};

/// A file of fixtures.
#[derive(Debug)]
pub struct Fixtures {
    pub path: PathBuf,
    /// Of the cases that have none of their own.
    pub config: Value,
    pub grants: Capabilities,
    pub limits: Limits,
    pub cases: Vec<Case>,
    text: String,
}

/// One question, and what is expected.
#[derive(Debug)]
pub struct Case {
    pub name: String,
    pub question: Question,
    pub session: Session,
    /// The policy's configuration, as JSON text.
    pub config: String,
    /// The answer; `None`: the case has none yet.
    pub expect: Option<Value>,
    /// What the policy must remember afterwards, all of it; `None`: whatever it likes.
    pub remembers: Option<BTreeMap<String, String>>,
    /// Where the expectations stand in the text.
    expect_at: Place,
    remembers_at: Option<Place>,
}

/// The session of a case.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Session {
    pub principal: Option<String>,
    claims: Option<BTreeMap<String, Value>>,
    pub virtual_host: Option<String>,
    backends: Option<Vec<Backend>>,
    /// What the policy has remembered before.
    pub state: Option<BTreeMap<String, String>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "a backend is a name, or { name, state }")]
enum Backend {
    Name(String),
    Full(FullBackend),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FullBackend {
    name: String,
    state: State,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Connected,
    Connecting,
    Down,
}

/// The file, as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File<'a> {
    #[serde(default)]
    session: Session,
    #[serde(default)]
    config: Value,
    #[serde(default)]
    grants: Grants,
    #[serde(default)]
    limits: Map<String, Value>,
    #[serde(borrow)]
    cases: Vec<&'a RawValue>,
}

/// `grants` of a policy in lockgate.yaml.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Grants {
    claims: Vec<String>,
    every_call: bool,
    clock: bool,
    random: bool,
}

/// Bytes of a text.
#[derive(Clone, Debug)]
enum Place {
    /// In place of these.
    At(std::ops::Range<usize>),
    /// Before this one, the end of the case.
    Before(usize),
}

// === impl Fixtures ===

impl Fixtures {
    /// All files in a folder, in the order of their names.
    ///
    /// # Errors
    ///
    /// When there are none, or one cannot be read, with its name.
    pub fn read_all(dir: &Path) -> anyhow::Result<Vec<Fixtures>> {
        let entries = std::fs::read_dir(dir).with_context(|| format!("{} cannot be read (--fixtures)", dir.display()))?;
        let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        files.retain(|file| file.extension().is_some_and(|e| e == "json"));
        files.sort();
        if files.is_empty() {
            bail!("{} has no fixtures (*.json)", dir.display());
        }
        files.into_iter().map(Fixtures::read).collect()
    }

    fn read(path: PathBuf) -> anyhow::Result<Fixtures> {
        let text = std::fs::read_to_string(&path).with_context(|| format!("{} cannot be read", path.display()))?;
        Fixtures::parse(path.clone(), text).with_context(|| path.display().to_string())
    }

    fn parse(path: PathBuf, text: String) -> anyhow::Result<Fixtures> {
        let file: File<'_> = serde_json::from_str(&text)?;
        let mut cases = Vec::new();
        for (index, raw) in file.cases.iter().enumerate() {
            let case = Case::parse(&text, raw, &file, index).with_context(|| format!("cases[{index}]"))?;
            cases.push(case);
        }
        let Grants { claims, every_call, clock, random } = file.grants;
        let grants = Capabilities { claims: claims.into_iter().collect(), every_call, clock, random };
        let limits = limits(&file.limits)?;
        Ok(Fixtures { path, config: file.config, grants, limits, cases, text })
    }

    /// The text with the answers in place of the expectations; what a case expects already is left as it is written.
    pub fn renewed(&self, outcomes: &[Outcome]) -> String {
        let mut changes: Vec<(&Place, String)> = Vec::new();
        for (case, outcome) in self.cases.iter().zip(outcomes) {
            if !case.fits(outcome) {
                changes.push((&case.expect_at, one_line(&outcome.expectation())));
            }
            if let (Some(place), false) = (&case.remembers_at, case.fits_state(outcome)) {
                changes.push((place, one_line(&json!(outcome.state))));
            }
        }
        let start = |place: &Place| match place {
            Place::At(range) => range.start,
            Place::Before(at) => *at,
        };
        changes.sort_by_key(|(place, _)| std::cmp::Reverse(start(place)));
        let mut text = self.text.clone();
        for (place, new) in changes {
            match place {
                Place::At(range) => text.replace_range(range.clone(), &new),
                Place::Before(at) => {
                    let before = text[..*at].trim_end().len();
                    text.insert_str(before, &format!(", \"expect\": {new}"));
                }
            }
        }
        text
    }
}

/// Limits as lockgate.yaml has them.
fn limits(given: &Map<String, Value>) -> anyhow::Result<Limits> {
    let mut limits = Limits::default();
    for (key, value) in given {
        let wrong = |why: String| anyhow::anyhow!("limits.{key}: {why}");
        let size = || parse_size(value.as_str().unwrap_or_default()).map(|n| n as usize).map_err(wrong);
        let time = || parse_duration(value.as_str().unwrap_or_default()).map_err(wrong);
        let number = || value.as_u64().and_then(|n| u32::try_from(n).ok()).ok_or_else(|| wrong("it must be a number".into()));
        match &**key {
            "memory" => limits.memory_bytes = size()?,
            "resolve_time" => limits.resolve_time = time()?,
            "list_time" => limits.list_time = time()?,
            "output" => limits.output_bytes = size()?,
            "state" => limits.state_bytes = size()?,
            "state_keys" => limits.state_keys = number()? as usize,
            "log_rate" => limits.log_lines_per_second = number()?,
            "component" => limits.component_bytes = size()?,
            _ => return Err(wrong("there is no such limit".into())),
        }
    }
    Ok(limits)
}

// === impl Case ===

impl Case {
    fn parse(text: &str, raw: &RawValue, file: &File<'_>, index: usize) -> anyhow::Result<Case> {
        let raw = raw.get();
        let Value::Object(mut given) = serde_json::from_str(raw)? else {
            bail!("a case is an object with `hook`, what is asked, and `expect`");
        };
        let expect = given.remove("expect");
        // `raw` is a part of `text`, and so is what these borrow from it.
        let parts: BTreeMap<String, &RawValue> = serde_json::from_str(raw)?;
        let at = |part: &str| part.as_ptr() as usize - text.as_ptr() as usize;
        let place = |key: &str| parts.get(key).map(|part| Place::At(at(part.get())..at(part.get()) + part.get().len()));
        let expect_at = place("expect").unwrap_or(Place::Before(at(raw) + raw.len() - 1));
        let name = match given.remove("name") {
            Some(Value::String(name)) => name,
            Some(_) => bail!("`name` must be a text"),
            None => format!("cases[{index}]"),
        };
        let more: Session = given.remove("session").map(serde_json::from_value).transpose().context("session")?.unwrap_or_default();
        let remembers = given.remove("remembers").map(serde_json::from_value).transpose();
        let remembers = remembers.context("`remembers` must be keys with texts")?;
        let config = given.remove("config").unwrap_or_else(|| file.config.clone()).to_string();
        let question = serde_json::from_value(given.into()).context("the question")?;
        let session = file.session.with(more);
        Ok(Case { name, question, session, config, expect, remembers, expect_at, remembers_at: place("remembers") })
    }

    /// Whether an answer is the expected one.
    pub fn fits(&self, outcome: &Outcome) -> bool {
        match (&self.expect, &outcome.answer) {
            (None, _) => false,
            (Some(expected), Ok(answer)) => expected == answer,
            (Some(expected), Err((kind, message))) => {
                let says = match expected.get("message") {
                    Some(Value::String(part)) => message.contains(part.as_str()),
                    Some(_) => false,
                    None => true,
                };
                expected["error"] == **kind && says
            }
        }
    }

    /// Whether the policy remembers what is expected.
    pub fn fits_state(&self, outcome: &Outcome) -> bool {
        self.remembers.as_ref().is_none_or(|expected| *expected == outcome.state)
    }
}

// === impl Session ===

impl Session {
    /// This one, where `more` says nothing else.
    fn with(&self, more: Session) -> Session {
        let one = self.clone();
        Session {
            principal: more.principal.or(one.principal),
            claims: more.claims.or(one.claims),
            virtual_host: more.virtual_host.or(one.virtual_host),
            backends: more.backends.or(one.backends),
            state: more.state.or(one.state),
        }
    }

    /// As policies see them; `one` and `two` if none are given.
    pub fn backends(&self) -> Arc<[BackendView]> {
        let default = || ["one", "two"].map(|name| Backend::Name(name.to_owned())).to_vec();
        let view = |backend: Backend| match backend {
            Backend::Name(name) => BackendView { name: name.into(), state: BackendState::Connected },
            Backend::Full(FullBackend { name, state }) => BackendView {
                name: name.into(),
                state: match state {
                    State::Connected => BackendState::Connected,
                    State::Connecting => BackendState::Connecting,
                    State::Down => BackendState::Down,
                },
            },
        };
        self.backends.clone().unwrap_or_else(default).into_iter().map(view).collect()
    }

    /// As the gateway would hold them.
    pub fn claims(&self) -> Arc<Claims> {
        let claims = self.claims.clone().unwrap_or_default();
        Arc::new(claims.into_iter().map(|(name, value)| (name.into(), value.to_string().into())).collect())
    }
}

/// What came of a case.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The answer as JSON; or the kind of the failure (the label of metrics, or `config`) and its message.
    pub answer: Result<Value, (String, String)>,
    /// What the policy remembers afterwards.
    pub state: BTreeMap<String, String>,
}

impl Outcome {
    /// Of what the engine said.
    pub fn new(answer: Result<impl serde::Serialize, PolicyErrorKind>, state: BTreeMap<String, String>) -> Outcome {
        let failed = |kind: PolicyErrorKind| (kind.label().to_owned(), kind.to_string());
        let json = |answer| serde_json::to_value(answer).map_err(|e| ("internal".to_owned(), e.to_string()));
        Outcome { answer: answer.map_err(failed).and_then(json), state }
    }

    /// What a case would have to expect. Messages of failures are not part of it: they hold places in the code.
    fn expectation(&self) -> Value {
        match &self.answer {
            Ok(answer) => answer.clone(),
            Err((kind, _)) => json!({ "error": kind }),
        }
    }

    /// For people.
    pub fn shown(&self) -> Value {
        match &self.answer {
            Ok(answer) => answer.clone(),
            Err((kind, message)) => json!({ "error": kind, "message": message }),
        }
    }
}

/// JSON on one line, with spaces as people write it.
pub fn one_line(value: &Value) -> String {
    let list = |parts: Vec<String>| parts.join(", ");
    match value {
        Value::Array(all) if all.is_empty() => "[]".to_owned(),
        Value::Array(all) => format!("[{}]", list(all.iter().map(one_line).collect())),
        Value::Object(all) if all.is_empty() => "{}".to_owned(),
        Value::Object(all) => {
            format!("{{ {} }}", list(all.iter().map(|(k, v)| format!("{}: {}", Value::from(k.as_str()), one_line(v))).collect()))
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"{
  "session": { "principal": "ann", "backends": ["a", { "name": "b", "state": "down" }], "claims": { "team": ["red"] } },
  "config": { "x": 1 },
  "grants": { "claims": ["team"], "random": true },
  "limits": { "memory": "4MiB", "resolve_time": "20ms" },
  "cases": [
    { "name": "one", "hook": "alias.resolve", "kind": "tool", "public": "now", "expect": null },
    { "hook": "router.resolve", "kind": "tool", "public": "x", "target": { "backend": "a", "name": "x" },
      "session": { "principal": "bob" }, "config": null, "expect": { "refuse": "no" }, "remembers": { "k": "v" } },
    { "name": "three", "hook": "lifecycle.opened" }
  ]
}
"#;

    fn parse(text: &str) -> anyhow::Result<Fixtures> {
        Fixtures::parse("f.json".into(), text.to_owned())
    }

    fn outcome(answer: Value) -> Outcome {
        Outcome { answer: Ok(answer), state: BTreeMap::new() }
    }

    #[test]
    fn a_case_has_what_the_file_says_where_it_says_nothing_else() {
        let fixtures = parse(TEXT).unwrap();
        assert!(fixtures.grants.random && fixtures.grants.claims.contains("team"));
        assert_eq!((fixtures.limits.memory_bytes, fixtures.limits.resolve_time.as_millis()), (4 << 20, 20));
        let [one, two, three] = &fixtures.cases[..] else { panic!("{fixtures:?}") };
        assert_eq!((one.session.principal.as_deref(), &*one.config), (Some("ann"), r#"{"x":1}"#));
        assert_eq!((two.session.principal.as_deref(), &*two.config, &*two.name), (Some("bob"), "null", "cases[1]"));
        assert_eq!(two.session.backends()[1].state, BackendState::Down);
        assert_eq!(one.session.claims().get("team").map(|c| &**c), Some(r#"["red"]"#));
        assert!(one.expect == Some(Value::Null) && three.expect.is_none());
        assert!(one.fits(&outcome(Value::Null)) && !one.fits(&outcome(json!("pass"))) && !three.fits(&outcome(Value::Null)));
    }

    #[test]
    fn what_is_renewed_is_the_expectations_that_do_not_fit_and_nothing_else() {
        let fixtures = parse(TEXT).unwrap();
        let fits =
            [outcome(Value::Null), Outcome { state: BTreeMap::from([("k".into(), "v".into())]), ..outcome(json!({ "refuse": "no" })) }];
        let opened = outcome(json!("accept"));
        let renewed = fixtures.renewed(&[fits[0].clone(), fits[1].clone(), opened.clone()]);
        assert_eq!(renewed, TEXT.replace("\"lifecycle.opened\" }", "\"lifecycle.opened\", \"expect\": \"accept\" }"));
        let routed = outcome(json!({ "route": { "backend": "b", "name": "x" } }));
        let renewed = fixtures.renewed(&[outcome(json!({ "backend": "a", "name": "y" })), routed, opened]);
        assert!(renewed.contains(r#""public": "now", "expect": { "backend": "a", "name": "y" } },"#), "{renewed}");
        assert!(renewed.contains(r#""expect": { "route": { "backend": "b", "name": "x" } }, "remembers": {} },"#), "{renewed}");
        parse(&renewed).unwrap();
    }

    #[test]
    fn a_failure_is_expected_by_its_kind_and_perhaps_by_a_part_of_its_message() {
        let case =
            |expect: &str| parse(&format!(r#"{{"cases":[{{"hook":"lifecycle.opened","expect":{expect}}}]}}"#)).unwrap().cases.remove(0);
        let trap = Outcome { answer: Err(("trap".into(), "it trapped: unreachable".into())), state: BTreeMap::new() };
        assert!(case(r#"{"error":"trap"}"#).fits(&trap) && case(r#"{"error":"trap","message":"unreachable"}"#).fits(&trap));
        assert!(!case(r#"{"error":"deadline"}"#).fits(&trap) && !case(r#"{"error":"trap","message":"bounds"}"#).fits(&trap));
        assert!(!case("\"accept\"").fits(&trap));
        let new = parse(r#"{"cases":[{"hook":"lifecycle.opened"}]}"#).unwrap();
        assert!(new.renewed(&[trap]).contains(r#""expect": { "error": "trap" }"#));
    }

    #[test]
    fn what_is_misspelt_is_named_with_its_place() {
        for (text, says) in [
            (r#"{"cases":[{"hook":"router.resolv"}]}"#, "router.resolve"),
            (r#"{"cases":[{"hook":"alias.resolve","kind":"tool"}]}"#, "missing field `public`"),
            (r#"{"cases":[{"hook":"lifecycle.opened","expct":1}]}"#, "expct"),
            (r#"{"case":[]}"#, "unknown field `case`"),
            (r#"{"cases":[],"limits":{"memory":"4"}}"#, "limits.memory"),
            (r#"{"cases":[],"limits":{"ram":"4MiB"}}"#, "limits.ram"),
            (r#"{"cases":[],"session":{"backends":[{"name":"a"}]}}"#, "{ name, state }"),
        ] {
            let why = format!("{:#}", parse(text).unwrap_err());
            assert!(why.contains(says), "{text}: {why}");
        }
    }
}

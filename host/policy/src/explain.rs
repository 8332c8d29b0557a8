//! What each policy of a chain said about one name, and what came of it: for `lockgate policy explain`. The questions are put by the same
//! code that serves calls; this file only keeps the answers. Called by `chain`.

use std::sync::Arc;

use serde::Serialize;

use crate::chain::Entry;
use crate::types::{Hook, Kind, Refused, Target};

/// The story of one public name in one session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// `tool`, `prompt`, `resource` or `resource-template`.
    pub kind: &'static str,
    /// The name that was asked about.
    pub name: String,
    /// What was asked of whom, in order.
    pub steps: Vec<Step>,
    /// What a call to it would do.
    pub end: End,
}

/// One answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// The operator's name of the policy; `null` for what the host itself knows.
    pub policy: Option<Arc<str>>,
    /// Version of its code.
    pub version: Option<Arc<str>>,
    /// `interface.function`; `null` for what the host itself knows.
    pub hook: Option<&'static str>,
    /// In words.
    pub outcome: String,
}

/// What becomes of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "is", rename_all = "kebab-case")]
pub enum End {
    /// A backend serves it.
    Served { backend: String, name: String },
    /// A policy refuses it.
    Refused { policy: Arc<str>, reason: String },
    /// A policy hides what it stands for.
    Hidden { backend: String, name: String },
    /// No policy knows what it stands for, and no list that the session has read shows it.
    Unknown,
    /// A policy failed, and its failure refuses the call.
    Failed { error: String },
}

/// Where the stages of a chain put what they heard. Off, it costs a branch.
pub(crate) struct Trace(Option<Vec<Step>>);

// === impl Trace ===

impl Trace {
    pub(crate) fn off() -> Trace {
        Trace(None)
    }

    pub(crate) fn on() -> Trace {
        Trace(Some(Vec::new()))
    }

    pub(crate) fn note(&mut self, entry: &Entry, hook: Hook, outcome: impl FnOnce() -> String) {
        if let Some(steps) = &mut self.0 {
            let (policy, version) = (entry.policy().name.clone(), entry.policy().version.clone());
            steps.push(Step { policy: Some(policy), version: Some(version), hook: Some(hook.name()), outcome: outcome() });
        }
    }

    pub(crate) fn host(&mut self, outcome: impl FnOnce() -> String) {
        if let Some(steps) = &mut self.0 {
            steps.push(Step { policy: None, version: None, hook: None, outcome: outcome() });
        }
    }

    pub(crate) fn end(self, kind: Kind, name: &str, end: End) -> Explanation {
        let kind = match kind {
            Kind::Tool => "tool",
            Kind::Prompt => "prompt",
            Kind::Resource => "resource",
            Kind::ResourceTemplate => "resource-template",
        };
        Explanation { kind, name: name.to_owned(), steps: self.0.unwrap_or_default(), end }
    }
}

// === impl End ===

impl From<Target> for End {
    fn from(target: Target) -> End {
        End::Served { backend: target.backend, name: target.name }
    }
}

impl From<Refused> for End {
    fn from(refused: Refused) -> End {
        End::Refused { policy: refused.policy, reason: refused.reason }
    }
}

//! One question to one policy, outside of any chain: what it answers, how long it took, how much memory it had. In the real engine, with the real
//! limits and the real checks: what passes here passes in a gateway. For `lockgate policy test`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::call::Guest;
use crate::chain::Entry;
use crate::engine::Engine;
use crate::error::PolicyErrorKind;
use crate::session::SessionView;
use crate::types::{AliasEntry, Decision, Hook, Item, ItemHead, Kind, Target, Verdict};
use crate::verify;

/// A hook with its arguments. In JSON `{"hook": "alias.resolve", "kind": "tool", "public": "now"}`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(tag = "hook", deny_unknown_fields)]
pub enum Question {
    /// What a public name stands for.
    #[serde(rename = "alias.resolve")]
    AliasResolve { kind: Kind, public: String },
    /// The aliases that are to be listed.
    #[serde(rename = "alias.publish")]
    AliasPublish { kind: Kind },
    /// Which backend serves the use of a public name.
    #[serde(rename = "router.resolve")]
    RouterResolve { kind: Kind, public: String, target: Target },
    /// How things are called. They go into one call, however many they are.
    #[serde(rename = "namespace.expose")]
    NamespaceExpose { kind: Kind, items: Vec<Head> },
    /// What a public name stands for, read out of the name.
    #[serde(rename = "namespace.resolve")]
    NamespaceResolve { kind: Kind, public: String },
    /// Whether a session may open.
    #[serde(rename = "lifecycle.opened")]
    LifecycleOpened {},
    /// That a session closes.
    #[serde(rename = "lifecycle.closing")]
    LifecycleClosing {},
}

/// An [`ItemHead`] of its own.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// The backend that lists it.
    pub backend: String,
    /// Its own name.
    pub name: String,
    /// Its title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// See [`ItemHead::shared`]; `false` if it is not said.
    #[serde(default)]
    pub shared: bool,
}

/// What a hook answered, checked as far as one answer can be. In JSON it is the bare answer: `null`, `"pass"`, `{"refuse": "why"}`, `["keep"]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Answer {
    /// Of `alias.resolve` and `namespace.resolve`.
    Target(Option<Target>),
    /// Of `alias.publish`.
    Aliases(Vec<AliasEntry>),
    /// Of `router.resolve`.
    Decision(Decision),
    /// Of `namespace.expose`.
    Verdicts(Vec<Verdict>),
    /// Of `lifecycle.opened`.
    Welcome(Welcome),
    /// Of `lifecycle.closing`.
    Done,
}

/// Whether a session may open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Welcome {
    /// It may.
    Accept,
    /// It may not, for this reason.
    Refuse(String),
}

/// An answer, with what it cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// What came back, or what went wrong.
    pub answer: Result<Answer, PolicyErrorKind>,
    /// Time inside the guest, by the wall clock; zero if its instance could not be made.
    pub time: Duration,
    /// Linear memory of the instance after the call, in bytes. It never shrinks: it is the most that there was.
    pub memory_bytes: usize,
    /// The instance was made for this question; otherwise it is one that the session kept.
    pub instance_fresh: bool,
}

/// Asks one policy one thing about one session. Questions about single names go to the session's own instance, as they do in a gateway.
pub async fn ask(engine: &Engine, entry: &Entry, s: &SessionView, question: &Question) -> Asked {
    let hook = question.hook();
    let entered =
        if question.is_about_one() { Guest::own(engine, entry, s, hook).await } else { Guest::fresh(engine, entry, s, hook).await };
    let mut guest = match entered {
        Ok(guest) => guest,
        Err(e) => return Asked { answer: Err(e.kind), time: Duration::ZERO, memory_bytes: 0, instance_fresh: true },
    };
    let answer = question.put(&mut guest).await;
    let (time, memory_bytes, instance_fresh) = (guest.time(), guest.memory_bytes(), guest.is_fresh());
    let answer = match answer {
        Ok(answer) => match question.check(s, &answer) {
            Ok(()) => {
                guest.keep();
                Ok(answer)
            }
            Err(what) => Err(guest.refute(hook, what).kind),
        },
        Err(kind) => Err(kind),
    };
    Asked { answer, time, memory_bytes, instance_fresh }
}

// === impl Question ===

impl Question {
    /// The hook that it is put to.
    pub fn hook(&self) -> Hook {
        match self {
            Question::AliasResolve { .. } => Hook::AliasResolve,
            Question::AliasPublish { .. } => Hook::AliasPublish,
            Question::RouterResolve { .. } => Hook::RouterResolve,
            Question::NamespaceExpose { .. } => Hook::NamespaceExpose,
            Question::NamespaceResolve { .. } => Hook::NamespaceResolve,
            Question::LifecycleOpened {} => Hook::LifecycleOpened,
            Question::LifecycleClosing {} => Hook::LifecycleClosing,
        }
    }

    fn is_about_one(&self) -> bool {
        match self {
            Question::AliasResolve { .. } | Question::RouterResolve { .. } | Question::NamespaceResolve { .. } => true,
            Question::NamespaceExpose { items, .. } => items.len() == 1,
            Question::AliasPublish { .. } | Question::LifecycleOpened {} | Question::LifecycleClosing {} => false,
        }
    }

    async fn put(&self, guest: &mut Guest<'_>) -> Result<Answer, PolicyErrorKind> {
        let answer = match self {
            Question::AliasResolve { kind, public } => guest.alias_resolve(*kind, public).await.map(Answer::Target),
            Question::AliasPublish { kind } => guest.alias_publish(*kind).await.map(Answer::Aliases),
            Question::RouterResolve { kind, public, target } => guest.router_resolve(*kind, public, target).await.map(Answer::Decision),
            Question::NamespaceExpose { kind, items } => {
                let items: Vec<Item<'_>> = items.iter().map(Head::item).collect();
                let bytes = items.iter().map(|i| 64 + i.backend.len() + i.name.len() + i.title.map_or(0, str::len)).sum();
                guest.namespace_expose(*kind, &items, bytes).await.map(Answer::Verdicts)
            }
            Question::NamespaceResolve { kind, public } => guest.namespace_resolve(*kind, public).await.map(Answer::Target),
            Question::LifecycleOpened {} => {
                let welcome = |refused: Option<String>| refused.map_or(Welcome::Accept, Welcome::Refuse);
                guest.lifecycle_opened().await.map(|refused| Answer::Welcome(welcome(refused)))
            }
            Question::LifecycleClosing {} => guest.lifecycle_closing().await.map(|()| Answer::Done),
        };
        answer.map_err(|e| e.kind)
    }

    /// What the chain would check of this answer alone.
    fn check(&self, s: &SessionView, answer: &Answer) -> Result<(), String> {
        match (self, answer) {
            (_, Answer::Target(Some(target)) | Answer::Decision(Decision::Route(target))) => verify::target(s, target),
            (Question::AliasPublish { kind }, Answer::Aliases(aliases)) => aliases.iter().try_for_each(|alias| {
                verify::alias_name(*kind, &alias.public)?;
                verify::target(s, &alias.target)
            }),
            (Question::NamespaceExpose { kind, items }, Answer::Verdicts(verdicts)) => {
                if verdicts.len() != items.len() {
                    return Err(format!("{} verdicts for {} items", verdicts.len(), items.len()));
                }
                verdicts.iter().zip(items).try_for_each(|(verdict, item)| match verdict {
                    Verdict::Rename(name) => verify::public_name(*kind, name, &item.head()),
                    Verdict::Keep | Verdict::Hide => Ok(()),
                })
            }
            _ => Ok(()),
        }
    }
}

// === impl Head ===

impl Head {
    fn head(&self) -> ItemHead<'_> {
        ItemHead { backend: &self.backend, name: &self.name, title: self.title.as_deref(), shared: self.shared }
    }

    fn item(&self) -> Item<'_> {
        Item { backend: &self.backend, name: &self.name, title: self.title.as_deref(), shared: self.shared }
    }
}

//! The words of the contract as the gateway speaks them, free of any contract version: the adapter modules (`since_v…`) translate.
//! Plain data only. Called by everything in this crate and by the gateway.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The four sorts of things that MCP servers list. Names of different kinds never collide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// `tools/list`, `tools/call`.
    Tool,
    /// `prompts/list`, `prompts/get`.
    Prompt,
    /// A concrete resource; its name is the URI.
    Resource,
    /// A resource template; its name is the URI template.
    ResourceTemplate,
}

impl Kind {
    /// Tools and prompts have names that clients hand to models, with a narrow alphabet; the other two have URIs.
    pub fn is_uri(self) -> bool {
        matches!(self, Kind::Resource | Kind::ResourceTemplate)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Tool => "tool",
            Kind::Prompt => "prompt",
            Kind::Resource => "resource",
            Kind::ResourceTemplate => "resource template",
        })
    }
}

/// The part of a listed thing that naming needs. Borrowed: nothing is copied before it goes into the guest.
#[derive(Clone, Copy, Debug)]
pub struct ItemHead<'a> {
    /// The backend that lists it.
    pub backend: &'a str,
    /// Its own name (URI, URI template) as the backend gave it.
    pub name: &'a str,
    /// Its title, where it has one.
    pub title: Option<&'a str>,
    /// The name alone does not lead back to this backend: another backend of the session lists the same name, or the name taken
    /// alone would be resolved to another backend. The caller computes it; `true` when it cannot tell.
    pub shared: bool,
}

/// One thing of one backend.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// A backend of the session.
    pub backend: String,
    /// Its own name there.
    pub name: String,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of {}", self.name, self.backend)
    }
}

/// Where a call goes after the routers have spoken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// To this target.
    To(Target),
    /// Nowhere.
    Refused(Refused),
}

/// A policy's no, with its reason for the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The operator's name of the policy.
    pub policy: Arc<str>,
    /// One line of at most 500 bytes, control characters escaped.
    pub reason: String,
}

/// When routers want to be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Routers {
    /// There are none.
    None,
    /// Once for each name; the answer may be kept with it until the lists or the chain change.
    OncePerName,
    /// About each call.
    EveryCall,
}

/// A function that a policy may export, by the interface it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hook {
    /// `alias.resolve`
    AliasResolve,
    /// `alias.publish`
    AliasPublish,
    /// `router.resolve`
    RouterResolve,
    /// `namespace.expose`
    NamespaceExpose,
    /// `namespace.resolve`
    NamespaceResolve,
    /// `lifecycle.opened`
    LifecycleOpened,
    /// `lifecycle.closing`
    LifecycleClosing,
}

impl Hook {
    /// As in the contract: `interface.function`. Stable: fit for metric labels.
    pub fn name(self) -> &'static str {
        match self {
            Hook::AliasResolve => "alias.resolve",
            Hook::AliasPublish => "alias.publish",
            Hook::RouterResolve => "router.resolve",
            Hook::NamespaceExpose => "namespace.expose",
            Hook::NamespaceResolve => "namespace.resolve",
            Hook::LifecycleOpened => "lifecycle.opened",
            Hook::LifecycleClosing => "lifecycle.closing",
        }
    }

    /// Every hook, in the order of the contract.
    pub const ALL: [Hook; 7] = [
        Hook::AliasResolve,
        Hook::AliasPublish,
        Hook::RouterResolve,
        Hook::NamespaceExpose,
        Hook::NamespaceResolve,
        Hook::LifecycleOpened,
        Hook::LifecycleClosing,
    ];

    /// Lists, and what happens once in a session, are given more time than single names.
    pub(crate) fn is_slow(self) -> bool {
        !matches!(self, Hook::AliasResolve | Hook::RouterResolve | Hook::NamespaceResolve)
    }
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Which hook interfaces a component exports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hooks {
    /// It exports `alias`.
    pub alias: bool,
    /// It exports `router`.
    pub router: bool,
    /// It exports `namespace`.
    pub namespace: bool,
    /// It exports `lifecycle`.
    pub lifecycle: bool,
}

impl Hooks {
    /// The names of the interfaces, in the order of the contract.
    pub fn names(self) -> Vec<&'static str> {
        let all = [(self.alias, "alias"), (self.router, "router"), (self.namespace, "namespace"), (self.lifecycle, "lifecycle")];
        all.into_iter().filter_map(|(has, name)| has.then_some(name)).collect()
    }
}

impl fmt::Display for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names().join(", "))
    }
}

/// One item as the adapter modules pass it on: like [`ItemHead`], after the verdicts of earlier policies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item<'a> {
    pub backend: &'a str,
    pub name: &'a str,
    pub title: Option<&'a str>,
    pub shared: bool,
}

/// A policy's word on one item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Published under the name that it has.
    Keep,
    /// Not published.
    Hide,
    /// Published under this name.
    Rename(String),
}

/// A router's word on one call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Decision {
    /// It goes where it was to go.
    Pass,
    /// There instead.
    Route(Target),
    /// Nowhere, for this reason.
    Refuse(String),
}

/// A policy's claim that a public name stands for something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AliasEntry {
    /// The name that clients see.
    pub public: String,
    /// What it stands for.
    pub target: Target,
}

//! Contract versions 0.1.x: the bindings made from `wit/`, and the translation between them and the words of this crate. One such module
//! per version that is still served; nothing outside it names a type of its contract. Called by `load` and `call`.

use wasmtime::StoreContextMut;
use wasmtime::component::{Component, HasSelf, Instance, InstancePre, Linker, Resource};

use crate::call::{HostState, Lent};
use crate::error::PolicyErrorKind;
use crate::log;
use crate::session::{BackendState, Quota};
use crate::types::{self, Hooks, Item, Kind, Target};

/// The version of this contract as components name it.
pub(crate) const VERSION: &str = "0.1.1";

/// What the host offers: each interface with its functions, as they stand in import names. Nothing else may be imported.
pub(crate) const OFFERED: &[(&str, &[&str])] = &[
    ("types", &["kind", "item-head", "verdict", "target", "alias-entry", "decision", "welcome", "failure"]),
    (
        "host",
        &[
            "backend-state",
            "backend",
            "level",
            "quota",
            "session",
            "[method]session.principal",
            "[method]session.virtual-host",
            "[method]session.backends",
            "[method]session.setting",
            "[method]session.recall",
            "[method]session.remember",
            "[method]session.forget",
            "[method]session.claims",
            "[method]session.claim",
            "[method]session.log",
        ],
    ),
];

mod bindings {
    #![allow(missing_docs)]
    wasmtime::component::bindgen!({
        world: "policy",
        path: "../../wit",
        with: { "lockgate:policy/host.session": crate::call::Lent },
        ownership: Borrowing { duplicate_if_necessary: true },
        imports: { default: trappable },
        exports: { default: async },
    });
}

use bindings::exports::lockgate::policy::{alias, lifecycle, namespace, router};
use bindings::lockgate::policy::{host, types as wit};

/// Where a component's hooks are, found once when it is loaded.
pub(crate) struct Exports {
    alias: Option<alias::GuestIndices>,
    router: Option<router::GuestIndices>,
    namespace: Option<namespace::GuestIndices>,
    lifecycle: Option<lifecycle::GuestIndices>,
}

/// The hooks of one instance, each found the first time that it is called: comparing its types takes longer than a call.
#[derive(Default)]
pub(crate) struct Bound {
    alias: Option<alias::Guest>,
    router: Option<router::Guest>,
    namespace: Option<namespace::Guest>,
    lifecycle: Option<lifecycle::Guest>,
}

/// The instance that a hook is called in.
pub(crate) struct At<'a> {
    pub(crate) bound: &'a mut Bound,
    pub(crate) store: StoreContextMut<'a, HostState>,
    pub(crate) instance: &'a Instance,
}

// === loading ===

/// Puts what the host offers into a linker.
pub(crate) fn link(linker: &mut Linker<HostState>) -> wasmtime::Result<()> {
    bindings::Policy::add_to_linker::<_, HasSelf<_>>(linker, |state| state)
}

impl Exports {
    /// Which hooks the component has; a hook interface that is there must be whole.
    pub(crate) fn find(pre: &InstancePre<HostState>) -> wasmtime::Result<Exports> {
        let has = |name: &str| -> bool {
            let component: &Component = pre.component();
            component.get_export_index(None, format!("lockgate:policy/{name}@{VERSION}")).is_some()
        };
        Ok(Exports {
            alias: if has("alias") { Some(alias::GuestIndices::new(pre)?) } else { None },
            router: if has("router") { Some(router::GuestIndices::new(pre)?) } else { None },
            namespace: if has("namespace") { Some(namespace::GuestIndices::new(pre)?) } else { None },
            lifecycle: if has("lifecycle") { Some(lifecycle::GuestIndices::new(pre)?) } else { None },
        })
    }

    pub(crate) fn hooks(&self) -> Hooks {
        Hooks {
            alias: self.alias.is_some(),
            router: self.router.is_some(),
            namespace: self.namespace.is_some(),
            lifecycle: self.lifecycle.is_some(),
        }
    }

    /// Compares the types of all exported hooks with the contract's; needs an instance.
    pub(crate) fn check(&self, mut store: StoreContextMut<'_, HostState>, instance: &Instance) -> wasmtime::Result<()> {
        if let Some(alias) = &self.alias {
            alias.load(&mut store, instance)?;
        }
        if let Some(router) = &self.router {
            router.load(&mut store, instance)?;
        }
        if let Some(namespace) = &self.namespace {
            namespace.load(&mut store, instance)?;
        }
        if let Some(lifecycle) = &self.lifecycle {
            lifecycle.load(&mut store, instance)?;
        }
        Ok(())
    }
}

// === the hooks ===

/// What a hook call ends in: the answer or the policy's own failure, inside what the engine says.
type Answer<T> = wasmtime::Result<Result<T, PolicyErrorKind>>;

impl Exports {
    pub(crate) async fn alias_resolve(&self, at: At<'_>, session: Resource<Lent>, kind: Kind, public: &str) -> Answer<Option<Target>> {
        let Some(alias) = &self.alias else {
            return Ok(Err(no_such_hook()));
        };
        let At { bound, mut store, instance } = at;
        let guest = match &bound.alias {
            Some(guest) => guest,
            None => bound.alias.insert(alias.load(&mut store, instance)?),
        };
        let answer = guest.call_resolve(&mut store, session, kind.into(), public).await?;
        Ok(answer.map(|t| t.map(Target::from)).map_err(failure))
    }

    pub(crate) async fn alias_publish(&self, at: At<'_>, session: Resource<Lent>, kind: Kind) -> Answer<Vec<types::AliasEntry>> {
        let Some(alias) = &self.alias else {
            return Ok(Err(no_such_hook()));
        };
        let At { bound, mut store, instance } = at;
        let guest = match &bound.alias {
            Some(guest) => guest,
            None => bound.alias.insert(alias.load(&mut store, instance)?),
        };
        let answer = guest.call_publish(&mut store, session, kind.into()).await?;
        let entry = |e: wit::AliasEntry| types::AliasEntry { public: e.public, target: e.target.into() };
        Ok(answer.map(|entries| entries.into_iter().map(entry).collect()).map_err(failure))
    }

    pub(crate) async fn router_resolve(
        &self,
        at: At<'_>,
        session: Resource<Lent>,
        kind: Kind,
        public: &str,
        target: &Target,
    ) -> Answer<types::Decision> {
        let Some(router) = &self.router else {
            return Ok(Err(no_such_hook()));
        };
        let At { bound, mut store, instance } = at;
        let guest = match &bound.router {
            Some(guest) => guest,
            None => bound.router.insert(router.load(&mut store, instance)?),
        };
        let target = wit::TargetParam { backend: &target.backend, name: &target.name };
        let answer = guest.call_resolve(&mut store, session, kind.into(), public, target).await?;
        let decision = |d: wit::Decision| match d {
            wit::Decision::Pass => types::Decision::Pass,
            wit::Decision::Route(target) => types::Decision::Route(target.into()),
            wit::Decision::Refuse(reason) => types::Decision::Refuse(log::clean(&reason, MOST_SHOWN)),
        };
        Ok(answer.map(decision).map_err(failure))
    }

    /// The reason of a refusal, if it is one.
    pub(crate) async fn lifecycle_opened(&self, at: At<'_>, session: Resource<Lent>) -> Answer<Option<String>> {
        let Some(lifecycle) = &self.lifecycle else {
            return Ok(Err(no_such_hook()));
        };
        let At { bound, mut store, instance } = at;
        let guest = match &bound.lifecycle {
            Some(guest) => guest,
            None => bound.lifecycle.insert(lifecycle.load(&mut store, instance)?),
        };
        let answer = guest.call_opened(&mut store, session).await?;
        let refused = |w: wit::Welcome| match w {
            wit::Welcome::Accept => None,
            wit::Welcome::Refuse(reason) => Some(log::clean(&reason, MOST_SHOWN)),
        };
        Ok(answer.map(refused).map_err(failure))
    }

    pub(crate) async fn lifecycle_closing(&self, at: At<'_>, session: Resource<Lent>) -> Answer<()> {
        let Some(lifecycle) = &self.lifecycle else {
            return Ok(Err(no_such_hook()));
        };
        let At { bound, mut store, instance } = at;
        let guest = match &bound.lifecycle {
            Some(guest) => guest,
            None => bound.lifecycle.insert(lifecycle.load(&mut store, instance)?),
        };
        Ok(guest.call_closing(&mut store, session).await?.map_err(failure))
    }

    pub(crate) async fn namespace_expose(
        &self,
        at: At<'_>,
        session: Resource<Lent>,
        kind: Kind,
        items: &[Item<'_>],
    ) -> Answer<Vec<types::Verdict>> {
        let Some(namespace) = &self.namespace else {
            return Ok(Err(no_such_hook()));
        };
        let At { bound, mut store, instance } = at;
        let guest = match &bound.namespace {
            Some(guest) => guest,
            None => bound.namespace.insert(namespace.load(&mut store, instance)?),
        };
        let heads: Vec<_> =
            items.iter().map(|i| namespace::ItemHead { backend: i.backend, name: i.name, title: i.title, shared: i.shared }).collect();
        let answer = guest.call_expose(&mut store, session, kind.into(), &heads).await?;
        let verdict = |v: wit::Verdict| match v {
            wit::Verdict::Keep => types::Verdict::Keep,
            wit::Verdict::Hide => types::Verdict::Hide,
            wit::Verdict::Rename(name) => types::Verdict::Rename(name),
        };
        Ok(answer.map(|verdicts| verdicts.into_iter().map(verdict).collect()).map_err(failure))
    }

    pub(crate) async fn namespace_resolve(&self, at: At<'_>, session: Resource<Lent>, kind: Kind, public: &str) -> Answer<Option<Target>> {
        let Some(namespace) = &self.namespace else {
            return Ok(Err(no_such_hook()));
        };
        let At { bound, mut store, instance } = at;
        let guest = match &bound.namespace {
            Some(guest) => guest,
            None => bound.namespace.insert(namespace.load(&mut store, instance)?),
        };
        let answer = guest.call_resolve(&mut store, session, kind.into(), public).await?;
        Ok(answer.map(|t| t.map(Target::from)).map_err(failure))
    }
}

fn no_such_hook() -> PolicyErrorKind {
    PolicyErrorKind::Internal("it does not export this hook".into())
}

fn failure(f: wit::Failure) -> PolicyErrorKind {
    match f {
        wit::Failure::BadSetting(what) => PolicyErrorKind::BadSetting(log::clean(&what, MOST_REASON)),
        wit::Failure::Other(what) => PolicyErrorKind::Failed(log::clean(&what, MOST_REASON)),
    }
}

/// Bytes of a failure's reason that are kept.
const MOST_REASON: usize = 2 << 10;

/// Bytes of a refusal's reason that a client is shown.
const MOST_SHOWN: usize = 500;

impl From<Kind> for wit::Kind {
    fn from(kind: Kind) -> wit::Kind {
        match kind {
            Kind::Tool => wit::Kind::Tool,
            Kind::Prompt => wit::Kind::Prompt,
            Kind::Resource => wit::Kind::Resource,
            Kind::ResourceTemplate => wit::Kind::ResourceTemplate,
        }
    }
}

impl From<wit::TargetResult> for Target {
    fn from(t: wit::TargetResult) -> Target {
        Target { backend: t.backend, name: t.name }
    }
}

// === what a guest may ask ===

impl wit::Host for HostState {}

impl host::Host for HostState {}

impl host::HostSession for HostState {
    fn principal(&mut self, s: Resource<Lent>) -> wasmtime::Result<String> {
        Ok(self.view(&s)?.principal.to_string())
    }

    fn virtual_host(&mut self, s: Resource<Lent>) -> wasmtime::Result<String> {
        Ok(self.view(&s)?.virtual_host.to_string())
    }

    fn backends(&mut self, s: Resource<Lent>) -> wasmtime::Result<Vec<host::Backend>> {
        let backend = |b: &crate::BackendView| host::Backend {
            name: b.name.to_string(),
            state: match b.state {
                BackendState::Connected => host::BackendState::Connected,
                BackendState::Connecting => host::BackendState::Connecting,
                BackendState::Down => host::BackendState::Down,
            },
        };
        Ok(self.view(&s)?.backends.iter().map(backend).collect())
    }

    fn setting(&mut self, s: Resource<Lent>) -> wasmtime::Result<String> {
        self.view(&s)?;
        Ok(self.setting.to_string())
    }

    fn recall(&mut self, s: Resource<Lent>, key: String) -> wasmtime::Result<Option<String>> {
        Ok(self.view(&s)?.scratch.recall(&self.policy.name, &key))
    }

    fn remember(&mut self, s: Resource<Lent>, key: String, value: String) -> wasmtime::Result<Result<(), host::Quota>> {
        let (name, limits) = (&self.policy.name, self.policy.limits());
        let stored = self.view(&s)?.scratch.remember(name, key, value, limits.state_keys, limits.state_bytes);
        Ok(stored.map_err(|q| match q {
            Quota::KeyTooLong => host::Quota::KeyTooLong,
            Quota::ValueTooLong => host::Quota::ValueTooLong,
            Quota::TooManyKeys => host::Quota::TooManyKeys,
            Quota::TooManyBytes => host::Quota::TooManyBytes,
        }))
    }

    fn forget(&mut self, s: Resource<Lent>, key: String) -> wasmtime::Result<()> {
        self.view(&s)?.scratch.forget(&self.policy.name, &key);
        Ok(())
    }

    fn claims(&mut self, s: Resource<Lent>) -> wasmtime::Result<Vec<String>> {
        Ok(self.granted_claims(&s)?.map(|(name, _)| name.to_owned()).collect())
    }

    fn claim(&mut self, s: Resource<Lent>, name: String) -> wasmtime::Result<Option<String>> {
        Ok(self.granted_claims(&s)?.find(|(n, _)| *n == name).map(|(_, value)| value.to_owned()))
    }

    fn log(&mut self, s: Resource<Lent>, level: host::Level, message: String) -> wasmtime::Result<()> {
        let level = match level {
            host::Level::Debug => log::Level::Debug,
            host::Level::Info => log::Level::Info,
            host::Level::Warn => log::Level::Warn,
            host::Level::Error => log::Level::Error,
        };
        self.log_line(&s, level, &message)
    }

    fn drop(&mut self, _: Resource<Lent>) -> wasmtime::Result<()> {
        // Only an owned handle is dropped through here, and none is ever given out.
        Err(wasmtime::format_err!("a session handle can only be borrowed"))
    }
}

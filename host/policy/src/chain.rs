//! The policies of one virtual host, asked in their configured order, and what their answers add up to: whether a session may open, what an
//! alias stands for, what a list is published as, what a public name resolves to, which backend serves it. Every answer passes `verify` before it leaves this file. The gateway
//! calls it when it builds a list, and for names that are not in the session's published table.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use crate::call::{self, Guest};
use crate::engine::Engine;
use crate::error::{LoadError, PolicyError, quoted};
use crate::explain::{End, Explanation, Trace};
use crate::live::Census;
use crate::load::Policy;
use crate::session::SessionView;
use crate::stats::Stats;
use crate::terms::{Failing, OnFailure};
use crate::types::{AliasEntry, Decision, Hook, Hooks, Item, ItemHead, Kind, Refused, Route, Routers, Target, Verdict};
use crate::verify;
use crate::warm::Place;

/// One policy in a chain, with its configuration there.
#[derive(Clone, Debug)]
pub struct Entry {
    pub(crate) policy: Arc<Policy>,
    pub(crate) setting: Arc<str>,
    pub(crate) failing: Failing,
    /// What sessions keep its instances under: its own in each chain.
    pub(crate) place: Place,
    /// What its calls came to in this chain.
    pub(crate) stats: Arc<Stats>,
}

/// An ordered list of policies. Immutable: another configuration is another chain with another generation.
#[derive(Debug)]
pub struct Chain {
    engine: Arc<Engine>,
    virtual_host: Arc<str>,
    entries: Vec<Entry>,
    routers: Routers,
    generation: u64,
    census: OnceLock<Census>,
}

/// Items and bytes of items that go into one call of `expose`; longer lists go in pieces. One item may be larger than that.
const PIECE_ITEMS: usize = 4_096;
const PIECE_BYTES: usize = 512 << 10;

/// Bytes of a title that a policy is shown.
const TITLE_BYTES: usize = 256;

/// An alias that is to be listed, with the policy that said so.
struct Alias {
    public: String,
    target: Target,
}

/// The state of one item while the namespace policies speak.
struct Naming<'a> {
    head: &'a ItemHead<'a>,
    /// Its name so far; `None`: hidden.
    name: Option<String>,
    /// The last policy that renamed it.
    by: Option<usize>,
}

// === impl Chain ===

impl Chain {
    /// A chain of these policies, in this order, with a generation that no other chain of this process has.
    pub fn new(engine: Arc<Engine>, virtual_host: Arc<str>, entries: Vec<Entry>) -> Chain {
        static GENERATIONS: AtomicU64 = AtomicU64::new(1);
        let asks = |e: &Entry| match (e.policy.hooks().router, e.policy.capabilities().every_call) {
            (false, _) => Routers::None,
            (true, false) => Routers::OncePerName,
            (true, true) => Routers::EveryCall,
        };
        let routers = entries.iter().map(asks).max().unwrap_or(Routers::None);
        let generation = GENERATIONS.fetch_add(1, Ordering::Relaxed);
        let entries = entries.into_iter().map(|entry| entry.of(generation)).collect();
        Chain { engine, virtual_host, entries, routers, generation, census: OnceLock::new() }
    }

    /// Counts it among the chains that are alive, until it is dropped.
    pub(crate) fn count_in(&self, alive: &Arc<AtomicUsize>) {
        self.census.get_or_init(|| Census::new(alive));
    }

    /// A number that is larger for every chain made later.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The virtual host that it is for.
    pub fn virtual_host(&self) -> &Arc<str> {
        &self.virtual_host
    }

    /// Its policies in order.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// When its routers want to be asked: the most that any of them wants.
    pub fn routers(&self) -> Routers {
        self.routers
    }

    /// Asks every policy about empty lists, and routers about a made-up name: finds configuration that does not fit its policy before a client
    /// does. A failure counts here whatever the operator says of failures. What policies remember goes into the scratch state of `s`.
    pub async fn try_out(&self, s: &SessionView) -> Result<(), PolicyError> {
        const MADE_UP: &str = "lockgate-try-out";
        for kind in [Kind::Tool, Kind::Prompt, Kind::Resource, Kind::ResourceTemplate] {
            for (_, entry) in self.with(|h| h.alias) {
                self.aliases_of(s, kind, entry).await?;
            }
            for (_, entry) in self.with(|h| h.namespace) {
                let mut guest = Guest::fresh(&self.engine, entry, s, Hook::NamespaceExpose).await?;
                guest.namespace_expose(kind, &[], 0).await?;
            }
        }
        if let Some(backend) = s.backends.first() {
            let target = Target { backend: backend.name.to_string(), name: MADE_UP.to_owned() };
            for (_, entry) in self.with(|h| h.router) {
                self.decide(s, Kind::Tool, MADE_UP, &target, entry).await?;
            }
        }
        Ok(())
    }

    // --- the life of a session

    /// Asks the lifecycle policies whether the session may open. `Some`: one of them refuses it.
    pub async fn opened(&self, s: &SessionView) -> Result<Option<Refused>, PolicyError> {
        for (_, entry) in self.with(|h| h.lifecycle) {
            let asked = async { Guest::fresh(&self.engine, entry, s, Hook::LifecycleOpened).await?.lifecycle_opened().await };
            match asked.await {
                Ok(None) => {}
                Ok(Some(reason)) => return Ok(Some(Refused { policy: entry.policy.name.clone(), reason })),
                Err(error) => self.forgive(error)?,
            }
        }
        Ok(None)
    }

    /// Tells the lifecycle policies that the session closes. Failures are logged where they happen.
    pub async fn closing(&self, s: &SessionView) {
        for (_, entry) in self.with(|h| h.lifecycle) {
            if let Ok(mut guest) = Guest::fresh(&self.engine, entry, s, Hook::LifecycleClosing).await {
                let _ = guest.lifecycle_closing().await;
            }
        }
    }

    // --- names

    /// The alias stage alone: what a public name stands for; the first policy that knows it wins. The target is a backend of the
    /// session; whether the namespace policies show it is for [`resolve`](Chain::resolve) to say.
    pub async fn alias(&self, s: &SessionView, kind: Kind, public: &str) -> Result<Option<Target>, PolicyError> {
        self.alias_traced(s, kind, public, &mut Trace::off()).await
    }

    /// What each item of a list is published as, in the order and length of `heads`; `None`: it is not. The caller keeps the answer:
    /// it is the inverse, too.
    ///
    /// An item that an alias stands for has the alias's name (the first one's, if several). Hidden are: what a namespace policy hides;
    /// an item whose name an alias took for something else; the second and later of items that one backend lists twice under one name.
    /// In a chain without a namespace policy, names stay as they are and of several items of one name the first is published.
    ///
    /// # Errors
    ///
    /// Verified are: no two items under one name; what policies make up, and with more than one backend everything, is legal
    /// (tools and prompts: 1 to 64 characters of `A-Z a-z 0-9 _ -`); alias targets are backends of the session. Otherwise
    /// [`PolicyErrorKind::BadAnswer`](crate::PolicyErrorKind::BadAnswer) names the items.
    pub async fn publish(&self, s: &SessionView, kind: Kind, heads: &[ItemHead<'_>]) -> Result<Vec<Option<String>>, PolicyError> {
        let aliases = self.aliases(s, kind).await?;
        let mut names = self.expose(s, kind, heads, &mut Trace::off()).await?;

        let mut by_target: HashMap<(&str, &str), &str> = HashMap::new();
        for alias in &aliases {
            by_target.entry((&alias.target.backend, &alias.target.name)).or_insert(&alias.public);
        }
        let taken: HashSet<&str> = aliases.iter().map(|a| &*a.public).collect();
        for (head, name) in heads.iter().zip(&mut names) {
            let Some(own) = name else { continue };
            if let Some(public) = by_target.get(&(head.backend, head.name)) {
                *own = (*public).to_owned();
            } else if taken.contains(&**own) {
                tracing::info!(backend = head.backend, name = ?head.name, %kind, "not listed: an alias has taken its public name");
                *name = None;
            }
        }
        Ok(names)
    }

    /// What a public name that was not published to this session stands for: an alias, else by the inverse of the namespace policies.
    /// `None`: nothing, it cannot be told from the name, or it is hidden. Whatever is returned is a backend of the session
    /// and is shown by the namespace policies; if it is not an alias, they give it exactly this name.
    pub async fn resolve(&self, s: &SessionView, kind: Kind, public: &str) -> Result<Option<Target>, PolicyError> {
        Ok(self.resolve_traced(s, kind, public, &mut Trace::off()).await?.ok())
    }

    /// Whether the namespace policies show a thing, under whatever name.
    pub async fn shows(&self, s: &SessionView, kind: Kind, target: &Target) -> Result<bool, PolicyError> {
        Ok(self.expose_one(s, kind, target, &mut Trace::off()).await?.is_some())
    }

    /// Which backend serves the use of a public name that stands for `target`. Routers are asked in order, each about what the one before
    /// decided; the first refusal ends it.
    pub async fn route(&self, s: &SessionView, kind: Kind, public: &str, target: Target) -> Result<Route, PolicyError> {
        self.route_traced(s, kind, public, target, &mut Trace::off()).await
    }

    /// What each policy says about a public name, and what a call to it would do. `listed`: what the session's published list says that
    /// it stands for, which is then what counts.
    pub async fn explain(&self, s: &SessionView, kind: Kind, public: &str, listed: Option<&Target>) -> Explanation {
        let mut trace = Trace::on();
        let end = self.end_of(s, kind, public, listed, &mut trace).await;
        trace.end(kind, public, end.unwrap_or_else(|error| End::Failed { error: error.to_string() }))
    }

    async fn end_of(
        &self,
        s: &SessionView,
        kind: Kind,
        public: &str,
        listed: Option<&Target>,
        trace: &mut Trace,
    ) -> Result<End, PolicyError> {
        let target = match listed {
            Some(target) => {
                trace.host(|| format!("a list of this session published {} under this name", Quoted(target)));
                target.clone()
            }
            None => match self.resolve_traced(s, kind, public, trace).await? {
                Ok(target) => target,
                Err(end) => return Ok(end),
            },
        };
        Ok(match self.route_traced(s, kind, public, target, trace).await? {
            Route::To(target) => target.into(),
            Route::Refused(refused) => refused.into(),
        })
    }

    // --- the stages

    fn with(&self, hook: impl Fn(Hooks) -> bool) -> impl Iterator<Item = (usize, &Entry)> {
        self.entries.iter().enumerate().filter(move |(_, e)| hook(e.policy.hooks()))
    }

    /// The position of the policy that failed, if the operator says that its failures are to be passed over; else the error.
    fn forgiven(&self, error: PolicyError) -> Result<usize, PolicyError> {
        let entry = self.entries.iter().position(|e| Arc::ptr_eq(&e.policy.name, &error.policy));
        match entry.filter(|&i| self.entries[i].failing.of(error.hook) == OnFailure::Open) {
            Some(entry) => Ok(entry),
            None => Err(error),
        }
    }

    fn refuted(&self, entry: &Entry, hook: Hook, what: String) -> PolicyError {
        call::refuted(&self.engine, entry, hook, what)
    }

    fn forgive(&self, error: PolicyError) -> Result<(), PolicyError> {
        self.forgiven(error).map(drop)
    }

    async fn alias_traced(&self, s: &SessionView, kind: Kind, public: &str, trace: &mut Trace) -> Result<Option<Target>, PolicyError> {
        for (_, entry) in self.with(|h| h.alias) {
            let asked = async {
                let mut guest = Guest::own(&self.engine, entry, s, Hook::AliasResolve).await?;
                let target = guest.alias_resolve(kind, public).await?;
                match target.as_ref().map_or(Ok(()), |t| verify::target(s, t)) {
                    Ok(()) => guest.keep(),
                    Err(what) => return Err(guest.refute(Hook::AliasResolve, what)),
                }
                Ok(target)
            };
            match asked.await {
                Ok(Some(target)) => {
                    trace.note(entry, Hook::AliasResolve, || format!("an alias of {}", Quoted(&target)));
                    return Ok(Some(target));
                }
                Ok(None) => trace.note(entry, Hook::AliasResolve, || "no alias of this policy".into()),
                Err(error) => self.pass_over(entry, error, trace)?,
            }
        }
        Ok(None)
    }

    fn pass_over(&self, entry: &Entry, error: PolicyError, trace: &mut Trace) -> Result<(), PolicyError> {
        let (hook, what) = (error.hook, error.kind.to_string());
        let forgiven = self.forgive(error);
        trace.note(entry, hook, || match &forgiven {
            Ok(()) => format!("passed over (fail: open): {what}"),
            Err(_) => format!("failed: {what}"),
        });
        forgiven
    }

    /// `Err`: what becomes of a call instead.
    async fn resolve_traced(
        &self,
        s: &SessionView,
        kind: Kind,
        public: &str,
        trace: &mut Trace,
    ) -> Result<Result<Target, End>, PolicyError> {
        let hidden = |t: Target| Ok(Err(End::Hidden { backend: t.backend, name: t.name }));
        if let Some(target) = self.alias_traced(s, kind, public, trace).await? {
            let shown = self.expose_one(s, kind, &target, trace).await?.is_some();
            return if shown { Ok(Ok(target)) } else { hidden(target) };
        }
        let Some(target) = self.inverse(s, kind, public, trace).await? else {
            return Ok(Err(End::Unknown));
        };
        match self.expose_one(s, kind, &target, trace).await? {
            Some(name) if name == public => Ok(Ok(target)),
            Some(name) => {
                trace.host(|| format!("{} is published as {name:?}, not under this name", Quoted(&target)));
                Ok(Err(End::Unknown))
            }
            None => hidden(target),
        }
    }

    async fn route_traced(
        &self,
        s: &SessionView,
        kind: Kind,
        public: &str,
        mut target: Target,
        trace: &mut Trace,
    ) -> Result<Route, PolicyError> {
        for (_, entry) in self.with(|h| h.router) {
            match self.decide(s, kind, public, &target, entry).await {
                Ok(Decision::Pass) => trace.note(entry, Hook::RouterResolve, || "nothing: it goes where it was to go".into()),
                Ok(Decision::Route(to)) => {
                    trace.note(entry, Hook::RouterResolve, || format!("routed to {}", Quoted(&to)));
                    target = to;
                }
                Ok(Decision::Refuse(reason)) => {
                    trace.note(entry, Hook::RouterResolve, || format!("refused: {reason}"));
                    return Ok(Route::Refused(Refused { policy: entry.policy.name.clone(), reason }));
                }
                Err(error) => self.pass_over(entry, error, trace)?,
            }
        }
        Ok(Route::To(target))
    }

    async fn decide(&self, s: &SessionView, kind: Kind, public: &str, target: &Target, entry: &Entry) -> Result<Decision, PolicyError> {
        let mut guest = Guest::own(&self.engine, entry, s, Hook::RouterResolve).await?;
        let decision = guest.router_resolve(kind, public, target).await?;
        if let Decision::Route(to) = &decision
            && let Err(what) = verify::target(s, to)
        {
            return Err(guest.refute(Hook::RouterResolve, what));
        }
        guest.keep();
        Ok(decision)
    }

    /// All aliases that are to be listed, verified, in the order of the chain; of two policies that give one name the first counts.
    async fn aliases(&self, s: &SessionView, kind: Kind) -> Result<Vec<Alias>, PolicyError> {
        let mut all: Vec<Alias> = Vec::new();
        let mut seen: HashSet<String> = HashSet::new();
        for (_, entry) in self.with(|h| h.alias) {
            match self.aliases_of(s, kind, entry).await {
                Ok(aliases) => all.extend(aliases.into_iter().filter(|a| seen.insert(a.public.clone()))),
                Err(error) => self.forgive(error)?,
            }
        }
        Ok(all)
    }

    /// The aliases of one policy, each public name once.
    async fn aliases_of(&self, s: &SessionView, kind: Kind, entry: &Entry) -> Result<Vec<Alias>, PolicyError> {
        let mut guest = Guest::fresh(&self.engine, entry, s, Hook::AliasPublish).await?;
        let mut all: Vec<Alias> = Vec::new();
        let mut seen: HashMap<String, usize> = HashMap::new();
        for AliasEntry { public, target } in guest.alias_publish(kind).await? {
            let bad = |what| self.refuted(entry, Hook::AliasPublish, what);
            verify::alias_name(kind, &public).map_err(bad)?;
            verify::target(s, &target).map_err(bad)?;
            match seen.get(&public) {
                Some(&at) if all[at].target != target => {
                    return Err(bad(format!("the alias {public:?} stands for both {} and {target}", all[at].target)));
                }
                Some(_) => {}
                None => {
                    seen.insert(public.clone(), all.len());
                    all.push(Alias { public, target });
                }
            }
        }
        Ok(all)
    }

    /// The namespace stage: the name of each item after all its policies, verified.
    async fn expose(
        &self,
        s: &SessionView,
        kind: Kind,
        heads: &[ItemHead<'_>],
        trace: &mut Trace,
    ) -> Result<Vec<Option<String>>, PolicyError> {
        let mut passed_over = Vec::new();
        loop {
            match self.expose_without(s, kind, heads, &passed_over, trace).await {
                Ok(names) => return Ok(names),
                // Its verdicts are undone with it: all begins again without the policy.
                Err(error) => {
                    let what = error.kind.to_string();
                    let entry = self.forgiven(error)?;
                    trace.note(&self.entries[entry], Hook::NamespaceExpose, || format!("passed over (fail: open): {what}"));
                    passed_over.push(entry);
                }
            }
        }
    }

    async fn expose_without(
        &self,
        s: &SessionView,
        kind: Kind,
        heads: &[ItemHead<'_>],
        passed_over: &[usize],
        trace: &mut Trace,
    ) -> Result<Vec<Option<String>>, PolicyError> {
        let mut items: Vec<Naming<'_>> = heads.iter().map(|head| Naming { head, name: Some(head.name.to_owned()), by: None }).collect();
        let mut last = None;
        for (i, entry) in self.with(|h| h.namespace).filter(|(i, _)| !passed_over.contains(i)) {
            last = Some(i);
            let mut guest = match heads {
                [_] => Guest::own(&self.engine, entry, s, Hook::NamespaceExpose).await?,
                _ => Guest::fresh(&self.engine, entry, s, Hook::NamespaceExpose).await?,
            };
            let mut shown: Vec<&mut Naming<'_>> = items.iter_mut().filter(|n| n.name.is_some()).collect();
            let asked = !shown.is_empty();
            while !shown.is_empty() {
                let rest = shown.split_off(piece(&shown));
                self.ask(&mut guest, i, kind, &mut shown).await?;
                shown = rest;
            }
            guest.keep();
            if let ([one], true) = (&*items, asked) {
                trace.note(entry, Hook::NamespaceExpose, || match (&one.name, one.by == Some(i)) {
                    (None, _) => format!("hides {:?} of {}", one.head.name, one.head.backend),
                    (Some(name), true) => format!("publishes {:?} of {} as {name:?}", one.head.name, one.head.backend),
                    (Some(name), false) => format!("keeps the name {name:?}"),
                });
            }
        }
        let several = s.backends.len() > 1;
        let blame = |item: &Naming<'_>, other: Option<usize>| item.by.max(other).or(last).map(|i| &self.entries[i]);
        let mut published: HashMap<&str, usize> = HashMap::with_capacity(items.len());
        let mut again: Vec<usize> = Vec::new();
        for (at, item) in items.iter().enumerate() {
            let Some(name) = &item.name else { continue };
            if several && let Some(entry) = blame(item, None) {
                verify::public_name(kind, name, item.head).map_err(|what| self.refuted(entry, Hook::NamespaceExpose, what))?;
            }
            match published.get(&**name) {
                None => _ = published.insert(name, at),
                Some(&first) => {
                    let other = &items[first];
                    let same_item = other.head.backend == item.head.backend && other.head.name == item.head.name;
                    match blame(item, other.by) {
                        Some(entry) if !same_item => {
                            let what = verify::duplicate(kind, name, other.head, item.head);
                            return Err(self.refuted(entry, Hook::NamespaceExpose, what));
                        }
                        _ => again.push(at),
                    }
                }
            }
        }
        for at in again {
            items[at].name = None;
        }
        Ok(items.into_iter().map(|item| item.name).collect())
    }

    /// One call of one policy about one piece of a list; its verdicts go into the items.
    async fn ask(&self, guest: &mut Guest<'_>, i: usize, kind: Kind, piece: &mut [&mut Naming<'_>]) -> Result<(), PolicyError> {
        let entry = &self.entries[i];
        let bad = |what| self.refuted(entry, Hook::NamespaceExpose, what);
        let bytes = piece.iter().map(|n| weight(n)).sum();
        let verdicts = {
            let items: Vec<Item<'_>> = piece.iter().map(|n| n.item()).collect();
            guest.namespace_expose(kind, &items, bytes).await?
        };
        if verdicts.len() != piece.len() {
            return Err(bad(format!("{} verdicts for {} items", verdicts.len(), piece.len())));
        }
        for (naming, verdict) in piece.iter_mut().zip(verdicts) {
            match verdict {
                Verdict::Keep => {}
                Verdict::Hide => naming.name = None,
                Verdict::Rename(name) => {
                    verify::public_name(kind, &name, naming.head).map_err(bad)?;
                    naming.name = Some(name);
                    naming.by = Some(i);
                }
            }
        }
        Ok(())
    }

    /// What the namespace stage publishes one item as, all by itself.
    async fn expose_one(&self, s: &SessionView, kind: Kind, target: &Target, trace: &mut Trace) -> Result<Option<String>, PolicyError> {
        // A single name does not show who else has it, and "cannot tell" is `shared`.
        let head = ItemHead { backend: &target.backend, name: &target.name, title: None, shared: true };
        Ok(self.expose(s, kind, &[head], trace).await?.pop().flatten())
    }

    /// The namespace policies backwards: each undoes what it did, or leaves the name as it is.
    async fn inverse(&self, s: &SessionView, kind: Kind, public: &str, trace: &mut Trace) -> Result<Option<Target>, PolicyError> {
        let mut name = public.to_owned();
        let mut backend: Option<String> = None;
        let namespaces: Vec<&Entry> = self.with(|h| h.namespace).map(|(_, entry)| entry).collect();
        for entry in namespaces.into_iter().rev() {
            let asked = async {
                let mut guest = Guest::own(&self.engine, entry, s, Hook::NamespaceResolve).await?;
                let target = guest.namespace_resolve(kind, &name).await?;
                match target.as_ref().map_or(Ok(()), |t| verify::target(s, t)) {
                    Ok(()) => guest.keep(),
                    Err(what) => return Err(guest.refute(Hook::NamespaceResolve, what)),
                }
                Ok(target)
            };
            match asked.await {
                Ok(Some(target)) => {
                    trace.note(entry, Hook::NamespaceResolve, || format!("reads {} out of the name", Quoted(&target)));
                    if backend.as_ref().is_some_and(|b| *b != target.backend) {
                        trace.host(|| "two policies read two backends out of one name: it cannot be told".into());
                        return Ok(None);
                    }
                    (backend, name) = (Some(target.backend), target.name);
                }
                Ok(None) => trace.note(entry, Hook::NamespaceResolve, || "cannot tell a backend from the name".into()),
                Err(error) => self.pass_over(entry, error, trace)?,
            }
        }
        let only = match &*s.backends {
            [only] => Some(only.name.to_string()),
            _ => None,
        };
        Ok(backend.or(only).map(|backend| Target { backend, name }))
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        // Nobody asks it any more: what sessions keep of it only holds its code.
        self.engine.evict_generation(self.generation);
    }
}

// === impl Entry ===

impl Entry {
    /// A policy with its configuration (JSON text; `null` for none) and what its failures mean.
    ///
    /// # Errors
    ///
    /// [`LoadError::Setting`]: the configuration does not fit the schema in the policy's manifest.
    pub fn new(policy: Arc<Policy>, setting: impl Into<Arc<str>>, failing: Failing) -> Result<Entry, LoadError> {
        let setting = setting.into();
        policy.check_setting(&setting)?;
        Ok(Entry { policy, setting, failing, place: Place::of(0), stats: Arc::default() })
    }

    /// The code. Its name also marks the scratch state: entries of one name share it.
    pub fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    /// Its configuration as JSON text.
    pub fn setting(&self) -> &Arc<str> {
        &self.setting
    }

    /// What its failures mean.
    pub fn failing(&self) -> &Failing {
        &self.failing
    }

    /// Calls of this policy in this chain that ended, whichever way.
    pub fn calls(&self) -> u64 {
        self.stats.calls()
    }

    /// Calls among them that ended in a [fault](crate::PolicyErrorKind::is_fault), or whose answers broke the contract.
    pub fn faults(&self) -> u64 {
        self.stats.faults()
    }

    /// The same in a chain of this generation: its instances and numbers are that chain's.
    fn of(self, generation: u64) -> Entry {
        Entry { place: Place::of(generation), stats: Arc::default(), ..self }
    }
}

// === impl Naming ===

impl Naming<'_> {
    fn item(&self) -> Item<'_> {
        let title = self.head.title.map(|t| &t[..t.floor_char_boundary(TITLE_BYTES)]);
        Item { backend: self.head.backend, name: self.name.as_deref().unwrap_or_default(), title, shared: self.head.shared }
    }
}

/// A target whose name others chose, fit for a message.
struct Quoted<'a>(&'a Target);

impl std::fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {}", quoted(&self.0.name), quoted(&self.0.backend))
    }
}

/// About how many bytes an item is on its way into a guest.
fn weight(naming: &Naming<'_>) -> usize {
    let item = naming.item();
    64 + item.backend.len() + item.name.len() + item.title.map_or(0, str::len)
}

/// How many of the items, at least one, go into the next call.
fn piece(items: &[&mut Naming<'_>]) -> usize {
    let mut bytes = 0;
    let fit = items.iter().take(PIECE_ITEMS).take_while(|naming| {
        bytes += weight(naming);
        bytes <= PIECE_BYTES
    });
    fit.count().max(1)
}

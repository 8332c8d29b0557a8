//! The policies of one virtual host, asked in their configured order, and what their answers add up to: what an alias stands for, what a
//! list is published as, what a public name resolves to. Every answer passes `verify` before it leaves this file. The gateway
//! calls it when it builds a list, and for names that are not in the session's published table.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::call::{self, Guest};
use crate::engine::Engine;
use crate::error::{PolicyError, PolicyErrorKind};
use crate::load::Policy;
use crate::session::SessionView;
use crate::types::{AliasEntry, Hook, Item, ItemHead, Kind, Target, Verdict};
use crate::verify;

/// One policy in a chain, with its configuration there.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The code. Its name also marks the scratch state: entries of one name share it.
    pub policy: Arc<Policy>,
    /// Its configuration as JSON text; `null` for none.
    pub setting: Arc<str>,
}

/// An ordered list of policies. Immutable: another configuration is another chain with another generation.
#[derive(Debug)]
pub struct Chain {
    engine: Arc<Engine>,
    entries: Vec<Entry>,
    generation: u64,
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
    pub fn new(engine: Arc<Engine>, entries: Vec<Entry>) -> Chain {
        static GENERATIONS: AtomicU64 = AtomicU64::new(1);
        Chain { engine, entries, generation: GENERATIONS.fetch_add(1, Ordering::Relaxed) }
    }

    /// A number that is larger for every chain made later.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Its policies in order.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Asks every policy about empty lists: finds configuration that does not fit its policy before a client does.
    pub async fn try_out(&self, s: &SessionView) -> Result<(), PolicyError> {
        for kind in [Kind::Tool, Kind::Prompt, Kind::Resource, Kind::ResourceTemplate] {
            self.aliases(s, kind).await?;
            for (_, entry) in self.namespaces() {
                let mut guest = Guest::enter(&self.engine, entry, s, Hook::NamespaceExpose).await?;
                guest.namespace_expose(kind, &[], 0).await?;
            }
        }
        Ok(())
    }

    /// The alias stage alone: what a public name stands for; the first policy that knows it wins. The target is a backend of the
    /// session; whether the namespace policies show it is for [`resolve`](Chain::resolve) to say.
    pub async fn alias(&self, s: &SessionView, kind: Kind, public: &str) -> Result<Option<Target>, PolicyError> {
        for entry in self.entries.iter().filter(|e| e.policy.hooks().alias) {
            let guest = Guest::enter(&self.engine, entry, s, Hook::AliasResolve).await?;
            if let Some(target) = guest.alias_resolve(kind, public).await? {
                verify::target(s, &target).map_err(|what| bad(entry, Hook::AliasResolve, what))?;
                return Ok(Some(target));
            }
        }
        Ok(None)
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
    /// [`PolicyErrorKind::BadAnswer`] names the items.
    pub async fn publish(&self, s: &SessionView, kind: Kind, heads: &[ItemHead<'_>]) -> Result<Vec<Option<String>>, PolicyError> {
        let aliases = self.aliases(s, kind).await?;
        let mut names = self.expose(s, kind, heads).await?;

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
        if let Some(target) = self.alias(s, kind, public).await? {
            let shown = self.expose_one(s, kind, &target).await?.is_some();
            return Ok(shown.then_some(target));
        }
        let Some(target) = self.inverse(s, kind, public).await? else {
            return Ok(None);
        };
        let same = self.expose_one(s, kind, &target).await?.as_deref() == Some(public);
        Ok(same.then_some(target))
    }

    fn namespaces(&self) -> impl DoubleEndedIterator<Item = (usize, &Entry)> {
        self.entries.iter().enumerate().filter(|(_, e)| e.policy.hooks().namespace)
    }

    /// All aliases that are to be listed, verified, in the order of the chain; of two policies that give one name the first counts.
    async fn aliases(&self, s: &SessionView, kind: Kind) -> Result<Vec<Alias>, PolicyError> {
        let mut all: Vec<Alias> = Vec::new();
        let mut seen: HashMap<String, (usize, usize)> = HashMap::new();
        for (i, entry) in self.entries.iter().enumerate().filter(|(_, e)| e.policy.hooks().alias) {
            let guest = Guest::enter(&self.engine, entry, s, Hook::AliasPublish).await?;
            for AliasEntry { public, target } in guest.alias_publish(kind).await? {
                let bad = |what| bad(entry, Hook::AliasPublish, what);
                verify::alias_name(kind, &public).map_err(bad)?;
                verify::target(s, &target).map_err(bad)?;
                if let Some(&(policy, at)) = seen.get(&public) {
                    if policy == i && all[at].target != target {
                        return Err(bad(format!("the alias {public:?} stands for both {} and {target}", all[at].target)));
                    }
                    continue;
                }
                seen.insert(public.clone(), (i, all.len()));
                all.push(Alias { public, target });
            }
        }
        Ok(all)
    }

    /// The namespace stage: the name of each item after all its policies, verified.
    async fn expose(&self, s: &SessionView, kind: Kind, heads: &[ItemHead<'_>]) -> Result<Vec<Option<String>>, PolicyError> {
        let mut items: Vec<Naming<'_>> = heads.iter().map(|head| Naming { head, name: Some(head.name.to_owned()), by: None }).collect();
        let mut last = None;
        for (i, entry) in self.namespaces() {
            last = Some(i);
            let mut guest = Guest::enter(&self.engine, entry, s, Hook::NamespaceExpose).await?;
            let mut shown: Vec<&mut Naming<'_>> = items.iter_mut().filter(|n| n.name.is_some()).collect();
            while !shown.is_empty() {
                let rest = shown.split_off(piece(&shown));
                self.ask(&mut guest, i, kind, &mut shown).await?;
                shown = rest;
            }
        }
        let several = s.backends.len() > 1;
        let blame = |item: &Naming<'_>, other: Option<usize>| item.by.max(other).or(last).map(|i| &self.entries[i]);
        let mut published: HashMap<&str, usize> = HashMap::with_capacity(items.len());
        let mut again: Vec<usize> = Vec::new();
        for (at, item) in items.iter().enumerate() {
            let Some(name) = &item.name else { continue };
            if several && let Some(entry) = blame(item, None) {
                verify::public_name(kind, name, item.head).map_err(|what| bad(entry, Hook::NamespaceExpose, what))?;
            }
            match published.get(&**name) {
                None => _ = published.insert(name, at),
                Some(&first) => {
                    let other = &items[first];
                    let same_item = other.head.backend == item.head.backend && other.head.name == item.head.name;
                    match blame(item, other.by) {
                        Some(entry) if !same_item => {
                            let what = verify::duplicate(kind, name, other.head, item.head);
                            return Err(bad(entry, Hook::NamespaceExpose, what));
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
        let bad = |what| bad(entry, Hook::NamespaceExpose, what);
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
    async fn expose_one(&self, s: &SessionView, kind: Kind, target: &Target) -> Result<Option<String>, PolicyError> {
        // A single name does not show who else has it, and "cannot tell" is `shared`.
        let head = ItemHead { backend: &target.backend, name: &target.name, title: None, shared: true };
        Ok(self.expose(s, kind, &[head]).await?.pop().flatten())
    }

    /// The namespace policies backwards: each undoes what it did, or leaves the name as it is.
    async fn inverse(&self, s: &SessionView, kind: Kind, public: &str) -> Result<Option<Target>, PolicyError> {
        let mut name = public.to_owned();
        let mut backend: Option<String> = None;
        for (_, entry) in self.namespaces().rev() {
            let guest = Guest::enter(&self.engine, entry, s, Hook::NamespaceResolve).await?;
            if let Some(target) = guest.namespace_resolve(kind, &name).await? {
                verify::target(s, &target).map_err(|what| bad(entry, Hook::NamespaceResolve, what))?;
                if backend.as_ref().is_some_and(|b| *b != target.backend) {
                    // Two policies read two backends out of one name: it cannot be told.
                    return Ok(None);
                }
                (backend, name) = (Some(target.backend), target.name);
            }
        }
        let only = match &*s.backends {
            [only] => Some(only.name.to_string()),
            _ => None,
        };
        Ok(backend.or(only).map(|backend| Target { backend, name }))
    }
}

// === impl Naming ===

impl Naming<'_> {
    fn item(&self) -> Item<'_> {
        let title = self.head.title.map(|t| &t[..t.floor_char_boundary(TITLE_BYTES)]);
        Item { backend: self.head.backend, name: self.name.as_deref().unwrap_or_default(), title, shared: self.head.shared }
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

fn bad(entry: &Entry, hook: Hook, what: String) -> PolicyError {
    call::report(&entry.policy, hook, PolicyErrorKind::BadAnswer(what))
}

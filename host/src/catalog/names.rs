//! The published names of one kind in one session: what each item of the backends is called, what a name stands for, and where routers
//! send it. Filled from lists; a look-up is a hash and a short lock, and allocates nothing.
//!
//! Names that are the same in several sessions are there once (`pool`): what of them changes in one session is written into a copy.

use super::pool::Pool;
use super::template;
use lockgate_policy::{Kind, Refused};
use std::collections::{HashMap, HashSet};
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

/// One thing of one backend, by its own name there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// Index of the backend in the virtual host.
    pub backend: usize,
    /// Name, URI or URI template as the backend gave it.
    pub name: Arc<str>,
}

/// Items that one session remembers of one kind; a list that has more is served, but names beyond are resolved by policy alone.
pub const ITEMS: usize = 50_000;

/// Bytes of a title that are kept: as many as a policy is shown.
const TITLE: usize = 256;

/// What a backend lists of one kind.
#[derive(Clone, Debug)]
pub struct Listed {
    pub backend: usize,
    /// It begins with the first page: what was known of the backend's items is replaced.
    pub first: bool,
    /// It ends with the last page.
    pub complete: bool,
    pub items: Vec<Listing>,
}

/// An item as policies see it.
#[derive(Clone, Debug)]
pub struct Listing {
    pub name: Arc<str>,
    pub title: Option<Arc<str>>,
}

/// What routers said about a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Routed {
    To(Target),
    Refused(Arc<Refused>),
}

/// What a public name leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub target: Target,
    /// What routers said, if they were asked since the lists changed.
    pub routed: Option<Routed>,
    /// The state of the lists that this is from, for [`Table::keep`].
    epoch: u32,
}

/// The names of one kind.
pub struct Table {
    inner: Mutex<Inner>,
    /// A list with these names was given to the client.
    told: AtomicBool,
}

struct Inner {
    names: Arc<Names>,
    /// By backend: what it lists has changed since. Shorter where nothing has.
    stale: Box<[bool]>,
    /// What routers said about public names, since something changed.
    #[expect(clippy::box_collection, reason = "most sessions have none, and a map takes 48 bytes for that")]
    routed: Option<Box<HashMap<Arc<str>, Routed>>>,
    /// Moves with every change.
    epoch: u32,
    /// A policy failed to name what was known, so that nobody knows what the client has.
    lost: bool,
}

/// What is listed and how it is called. Of equal ones a [`Pool`] keeps one.
#[derive(Clone, Default)]
pub(super) struct Names {
    /// By backend; as many as something is known of.
    shelves: Vec<Shelf>,
    /// Follows from the shelves.
    by_public: HashMap<Arc<str>, Place>,
    /// Items on all shelves.
    count: usize,
}

#[derive(Clone, Default)]
struct Shelf {
    /// In the order of the backend's list.
    items: Vec<Known>,
    /// Follows from the items.
    by_name: HashMap<Arc<str>, u32>,
    /// All its pages are here.
    complete: bool,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Known {
    name: Arc<str>,
    title: Option<Arc<str>>,
    public: Option<Arc<str>>,
}

/// Where the item of a public name is.
#[derive(Clone)]
struct Place {
    backend: u32,
    item: u32,
}

// === impl Listing ===

impl Listing {
    pub fn new(name: Arc<str>, title: Option<&str>) -> Self {
        Listing { name, title: title.map(|t| t[..t.floor_char_boundary(TITLE)].into()) }
    }
}

// === impl Found ===

impl From<Target> for Found {
    /// Of a name that is in no list.
    fn from(target: Target) -> Self {
        Found { target, routed: None, epoch: 0 }
    }
}

// === impl Table ===

impl Default for Table {
    fn default() -> Self {
        /// What a session begins with.
        static NONE: LazyLock<Arc<Names>> = LazyLock::new(Arc::default);
        let inner = Inner { names: NONE.clone(), stale: Box::default(), routed: None, epoch: 0, lost: false };
        Table { inner: Mutex::new(inner), told: AtomicBool::new(false) }
    }
}

impl Table {
    /// A table of which nothing is known because a policy failed: whatever comes next is news for the client.
    pub fn lost() -> Self {
        let table = Table::default();
        table.lock().lost = true;
        table
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing panics under this lock; a poisoned value would still be whole.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The client is given a list of these names: it knows what they are.
    pub fn tell(&self) {
        self.told.store(true, Ordering::Release);
        self.lock().lost = false;
    }

    pub fn is_told(&self) -> bool {
        self.told.load(Ordering::Acquire)
    }

    /// What was known here could not be named by a policy.
    pub fn is_lost(&self) -> bool {
        self.lock().lost
    }

    pub fn is_empty(&self) -> bool {
        self.lock().names.count == 0
    }

    pub fn find(&self, public: &str) -> Option<Found> {
        let inner = self.lock();
        let place = inner.names.by_public.get(public)?;
        let routed = inner.routed.as_ref().and_then(|routed| routed.get(public).cloned());
        Some(Found { target: inner.names.target(place)?, routed, epoch: inner.epoch })
    }

    /// Keeps what routers said about a name, unless something has changed since it was found.
    pub fn keep(&self, public: &str, found: &Found, routed: Routed) {
        let mut inner = self.lock();
        if inner.epoch != found.epoch {
            return;
        }
        if let Some((public, _)) = inner.names.by_public.get_key_value(public) {
            let public = public.clone();
            inner.routed.get_or_insert_default().insert(public, routed);
        }
    }

    /// What routers said does not count any more.
    pub fn forget_routes(&self) {
        self.lock().changed();
    }

    /// The published name of a target: none where it is not known, or hidden.
    pub fn public_of(&self, target: &Target) -> Option<Arc<str>> {
        self.lock().names.known(target)?.public.clone()
    }

    /// Whether a target is published; none where it is not known.
    pub fn shows(&self, target: &Target) -> Option<bool> {
        self.lock().names.known(target).map(|known| known.public.is_some())
    }

    /// The backends that list `name` as their own.
    pub fn owners(&self, name: &str) -> Vec<usize> {
        let names = self.names();
        (0..names.shelves.len()).filter(|&backend| names.shelves[backend].by_name.contains_key(name)).collect()
    }

    /// The backends that list a template which matches `uri`, where this is the table of templates.
    pub fn template_owners(&self, uri: &str) -> Vec<usize> {
        let names = self.names();
        let has = |shelf: &Shelf| shelf.items.iter().any(|item| template::matches(&item.name, uri));
        (0..names.shelves.len()).filter(|&backend| has(&names.shelves[backend])).collect()
    }

    /// Whether everything that `backend` lists is in the table.
    pub fn is_complete(&self, backend: usize) -> bool {
        self.lock().is_complete(backend)
    }

    /// Notes what is listed with its public names, all at once: nobody finds a name missing that is only being renewed.
    /// Answers for each list the positions of items whose public name belongs to something else already: those are not published.
    pub fn record(&self, lists: &[(&Listed, &[Option<Arc<str>>])]) -> Vec<Vec<usize>> {
        let mut inner = self.lock();
        inner.changed();
        let replaced = |backend: usize| lists.iter().any(|(list, _)| list.first && list.backend == backend);
        if inner.names.shelves.iter().enumerate().all(|(backend, shelf)| shelf.items.is_empty() || replaced(backend)) {
            // Rather than copy what goes.
            inner.names = Arc::default();
        }
        let names = Arc::make_mut(&mut inner.names);
        lists.iter().filter(|(list, _)| list.first).for_each(|(list, _)| names.forget(list.backend));
        let taken = lists.iter().map(|(list, public)| names.record(list, public)).collect();
        for (list, _) in lists {
            inner.set_stale(list.backend, false);
        }
        taken
    }

    /// Keeps the names where other sessions have theirs, if they are the same. For lists that are complete: others still grow.
    pub fn share(&self, pool: &Pool) {
        let mut inner = self.lock();
        if inner.names.count > 0 && inner.names.shelves.iter().all(|shelf| shelf.complete) {
            inner.names = pool.one_of(&inner.names);
        }
    }

    /// What a backend lists has changed: names stay callable, the next miss reads the list again.
    pub fn changed(&self, backend: usize) {
        let mut inner = self.lock();
        inner.changed();
        inner.set_stale(backend, true);
    }

    /// What changed in `earlier`, of which this is the successor, has changed here.
    pub fn follow(&self, earlier: &Table) {
        let incomplete: Vec<usize> = {
            let earlier = earlier.lock();
            (0..earlier.names.shelves.len()).filter(|&backend| !earlier.is_complete(backend)).collect()
        };
        let mut inner = self.lock();
        incomplete.into_iter().for_each(|backend| inner.set_stale(backend, true));
    }

    /// All that is known, backend by backend, and its public names in the same order.
    pub fn stock(&self) -> (Vec<Listed>, Vec<Option<Arc<str>>>) {
        let inner = self.lock();
        let listing = |known: &Known| Listing { name: known.name.clone(), title: known.title.clone() };
        let listed = |(backend, shelf): (usize, &Shelf)| Listed {
            backend,
            first: true,
            complete: inner.is_complete(backend),
            items: shelf.items.iter().map(listing).collect(),
        };
        let shelves = &inner.names.shelves;
        let lists = shelves.iter().enumerate().map(listed).collect();
        (lists, shelves.iter().flat_map(|s| &s.items).map(|known| known.public.clone()).collect())
    }

    /// The names as they are now.
    fn names(&self) -> Arc<Names> {
        self.lock().names.clone()
    }

    /// Names that more than one backend lists, among `known` and what the table has of backends for which `counts` holds.
    pub fn shared<'a>(&self, known: impl Iterator<Item = (usize, &'a str)>, counts: impl Fn(usize) -> bool) -> HashSet<String> {
        let mut first: HashMap<String, usize> = HashMap::new();
        let mut shared = HashSet::new();
        let mut see = |backend: usize, name: &str| match first.get(name) {
            Some(&other) if other != backend => {
                shared.insert(name.to_owned());
            }
            Some(_) => {}
            None => {
                first.insert(name.to_owned(), backend);
            }
        };
        for (backend, name) in known {
            see(backend, name);
        }
        for (backend, shelf) in self.names().shelves.iter().enumerate().filter(|(backend, _)| counts(*backend)) {
            shelf.items.iter().for_each(|item| see(backend, &item.name));
        }
        shared
    }
}

impl Inner {
    fn changed(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
        self.routed = None;
    }

    fn is_complete(&self, backend: usize) -> bool {
        self.names.shelves.get(backend).is_some_and(|shelf| shelf.complete) && !self.stale.get(backend).is_some_and(|stale| *stale)
    }

    /// Of a backend of which nothing is known there is nothing that could be.
    fn set_stale(&mut self, backend: usize, stale: bool) {
        match self.stale.get_mut(backend) {
            Some(known) => *known = stale,
            None if stale && backend < self.names.shelves.len() => {
                self.stale = (0..=backend).map(|at| at == backend || self.stale.get(at).is_some_and(|stale| *stale)).collect();
            }
            None => {}
        }
    }
}

impl Names {
    fn record(&mut self, list: &Listed, names: &[Option<Arc<str>>]) -> Vec<usize> {
        let backend = list.backend;
        let before = self.shelf(backend).items.len();
        let mut taken = Vec::new();
        for (at, (listing, public)) in list.items.iter().zip(names).enumerate() {
            if self.count >= ITEMS {
                tracing::warn!(backend, limit = ITEMS, "more items are listed than a session remembers");
                return taken;
            }
            let mut public = public.clone();
            let item = self.shelf(backend).by_name.get(&listing.name).copied();
            if public.is_none() && item.is_some_and(|item| item as usize >= before) {
                // Listed twice in this page: the first one counts.
                continue;
            }
            let owner = public.as_ref().and_then(|public| self.by_public.get(public));
            if owner.is_some_and(|owner| owner.backend as usize != backend || Some(owner.item) != item) {
                taken.push(at);
                public = None;
            }
            let item = match item {
                Some(item) => {
                    self.unpublish(backend, item);
                    self.shelf(backend).items[item as usize] = Known::new(listing, public.clone());
                    item
                }
                None => {
                    self.count += 1;
                    self.shelf(backend).push(Known::new(listing, public.clone()))
                }
            };
            if let Some(public) = public {
                // Both are far below 2^32.
                self.by_public.insert(public, Place { backend: backend as u32, item });
            }
        }
        self.shelf(backend).complete = list.complete;
        taken
    }

    fn shelf(&mut self, backend: usize) -> &mut Shelf {
        if self.shelves.len() <= backend {
            self.shelves.resize_with(backend + 1, Shelf::default);
        }
        &mut self.shelves[backend]
    }

    fn target(&self, place: &Place) -> Option<Target> {
        let backend = place.backend as usize;
        let known = self.shelves.get(backend)?.items.get(place.item as usize)?;
        Some(Target { backend, name: known.name.clone() })
    }

    fn known(&self, target: &Target) -> Option<&Known> {
        let shelf = self.shelves.get(target.backend)?;
        shelf.items.get(*shelf.by_name.get(&target.name)? as usize)
    }

    /// Takes the public name of an item out, if it is the item's.
    fn unpublish(&mut self, backend: usize, item: u32) {
        let Some(public) = self.shelves[backend].items.get_mut(item as usize).and_then(|known| known.public.take()) else { return };
        if self.by_public.get(&public).is_some_and(|place| place.backend as usize == backend && place.item == item) {
            self.by_public.remove(&public);
        }
    }

    fn forget(&mut self, backend: usize) {
        let Some(shelf) = self.shelves.get_mut(backend) else { return };
        self.count -= shelf.items.len();
        *shelf = Shelf::default();
        self.by_public.retain(|_, place| place.backend as usize != backend);
    }
}

/// All but what follows from something else.
impl Hash for Names {
    fn hash<H: Hasher>(&self, to: &mut H) {
        for shelf in &self.shelves {
            (shelf.complete, &shelf.items).hash(to);
        }
    }
}

impl PartialEq for Names {
    fn eq(&self, other: &Self) -> bool {
        let same = |(a, b): (&Shelf, &Shelf)| a.complete == b.complete && a.items == b.items;
        self.shelves.len() == other.shelves.len() && self.shelves.iter().zip(&other.shelves).all(same)
    }
}

impl Eq for Names {}

impl Shelf {
    fn push(&mut self, known: Known) -> u32 {
        // At most `ITEMS`.
        let item = self.items.len() as u32;
        self.by_name.insert(known.name.clone(), item);
        self.items.push(known);
        item
    }
}

impl Known {
    fn new(listing: &Listing, public: Option<Arc<str>>) -> Self {
        Known { name: listing.name.clone(), title: listing.title.clone(), public }
    }
}

/// Where the table of a kind is among those of all kinds.
pub(super) fn index(kind: Kind) -> usize {
    match kind {
        Kind::Tool => 0,
        Kind::Prompt => 1,
        Kind::Resource => 2,
        Kind::ResourceTemplate => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(backend: usize, name: &str) -> Target {
        Target { backend, name: name.into() }
    }

    /// Records a page; `first`: it replaces what was known.
    fn record(table: &Table, backend: usize, (first, complete): (bool, bool), items: &[(&str, Option<&str>)]) -> Vec<usize> {
        let listings = items.iter().map(|(name, _)| Listing::new((*name).into(), None)).collect();
        let names: Vec<Option<Arc<str>>> = items.iter().map(|(_, public)| public.map(Into::into)).collect();
        table.record(&[(&Listed { backend, first, complete, items: listings }, &names)]).remove(0)
    }

    #[test]
    fn the_first_page_replaces_later_ones_add() {
        let names = Table::default();
        record(&names, 0, (true, false), &[("x", Some("a__x"))]);
        record(&names, 0, (false, true), &[("y", Some("a__y")), ("z", None)]);
        assert!(names.is_complete(0));
        assert_eq!(names.find("a__x").unwrap().target, target(0, "x"));
        let shown = ["y", "z"].map(|name| names.shows(&target(0, name)));
        assert_eq!((shown, names.shows(&target(1, "z"))), ([Some(true), Some(false)], None));
        record(&names, 0, (true, true), &[("y", Some("why"))]);
        assert_eq!(names.find("a__x"), None);
        assert_eq!(names.find("a__y"), None);
        assert_eq!(&*names.find("why").unwrap().target.name, "y");
        names.changed(0);
        assert!(!names.is_complete(0));
        assert!(names.find("why").is_some());
    }

    #[test]
    fn a_name_is_shared_when_two_backends_have_it() {
        let names = Table::default();
        record(&names, 0, (true, true), &[("info://x", Some("info://x")), ("info://y", None)]);
        let shared = names.shared([(1, "info://x"), (1, "info://z"), (0, "info://y")].into_iter(), |_| true);
        assert_eq!(shared, HashSet::from(["info://x".to_owned()]));
        assert!(names.shared([(1, "info://x")].into_iter(), |backend| backend != 0).is_empty(), "it is about to be replaced");
    }

    #[test]
    fn a_name_belongs_to_one_thing_and_moves_only_with_it() {
        let names = Table::default();
        assert!(record(&names, 0, (true, true), &[("x", Some("n")), ("x", None)]).is_empty());
        assert_eq!(record(&names, 1, (true, true), &[("y", Some("n"))]), [0]);
        assert_eq!(names.find("n").unwrap().target, target(0, "x"));
        record(&names, 0, (false, true), &[("x", Some("m"))]);
        assert_eq!(names.find("n"), None);
        assert!(record(&names, 1, (false, true), &[("y", Some("n"))]).is_empty());
        assert_eq!(names.find("n").unwrap().target, target(1, "y"));
    }

    #[test]
    fn what_a_router_said_is_kept_until_something_changes() {
        let names = Table::default();
        record(&names, 0, (true, true), &[("x", Some("n"))]);
        let found = names.find("n").unwrap();
        assert_eq!(found.routed, None);
        let routed = Routed::To(target(1, "y"));
        names.keep("n", &found, routed.clone());
        assert_eq!(names.find("n").unwrap().routed, Some(routed.clone()));
        names.changed(1);
        assert_eq!(names.find("n").unwrap().routed, None);
        names.keep("n", &found, routed);
        assert_eq!(names.find("n").unwrap().routed, None, "asked before the change");
    }

    #[test]
    fn a_successor_is_made_of_the_stock_and_follows_what_changed_meanwhile() {
        let old = Table::default();
        record(&old, 1, (true, true), &[("b", Some("b")), ("a", None)]);
        let (lists, names) = old.stock();
        assert_eq!(names, [Some("b".into()), None]);
        assert_eq!(lists.iter().map(|l| l.items.len()).collect::<Vec<_>>(), [0, 2]);
        let new = Table::default();
        for list in &lists {
            new.record(&[(list, &vec![None; list.items.len()])]);
        }
        assert!(new.is_complete(1) && !new.is_complete(0));
        old.changed(1);
        new.follow(&old);
        assert!(!new.is_complete(1));
    }

    #[test]
    fn equal_names_are_one_until_one_session_learns_something_else() {
        let (pool, one, other) = (Pool::default(), Table::default(), Table::default());
        let fill = |table: &Table, complete| record(table, 0, (true, complete), &[("x", Some("n")), ("y", None)]);
        for table in [&one, &other] {
            fill(table, true);
            table.share(&pool);
        }
        assert!(Arc::ptr_eq(&one.names(), &other.names()));
        // What routers said and what has changed stays with each.
        one.keep("n", &one.find("n").unwrap(), Routed::To(target(1, "z")));
        assert_eq!((one.find("n").unwrap().routed.is_some(), other.find("n").unwrap().routed), (true, None));
        one.changed(0);
        assert!(!one.is_complete(0) && other.is_complete(0));
        record(&one, 0, (true, true), &[("x", Some("m"))]);
        one.share(&pool);
        assert!(one.find("n").is_none() && one.is_complete(0));
        assert_eq!(other.find("n").unwrap().target, target(0, "x"));
        // A page that is added to names that are shared.
        record(&other, 1, (true, true), &[("z", Some("z"))]);
        let third = Table::default();
        fill(&third, true);
        third.share(&pool);
        assert!(third.find("z").is_none() && other.find("n").is_some() && other.find("z").is_some());
        // Lists that still grow are not shared.
        let (a, b) = (Table::default(), Table::default());
        for table in [&a, &b] {
            fill(table, false);
            table.share(&pool);
        }
        assert!(!Arc::ptr_eq(&a.names(), &b.names()));
    }

    #[test]
    fn of_a_title_as_much_is_kept_as_policies_are_shown() {
        let long = "é".repeat(200);
        assert_eq!(Listing::new("n".into(), Some(&long)).title.unwrap().len(), TITLE);
        assert_eq!(Listing::new("n".into(), Some("T")).title.as_deref(), Some("T"));
    }
}

//! The published names of one session and what they stand for.

use super::template;
use lockgate_policy::Kind;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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

pub struct Names {
    tables: [Mutex<Table>; 4],
}

struct Table {
    by_public: HashMap<Arc<str>, Target>,
    by_target: HashMap<Target, Option<Arc<str>>>,
    /// Per backend: all its pages are in the table, and nothing has changed since.
    complete: Vec<bool>,
}

impl Names {
    pub fn new(backends: usize) -> Self {
        let table = || Mutex::new(Table { by_public: HashMap::new(), by_target: HashMap::new(), complete: vec![false; backends] });
        Names { tables: [table(), table(), table(), table()] }
    }

    fn table(&self, kind: Kind) -> MutexGuard<'_, Table> {
        let index = match kind {
            Kind::Tool => 0,
            Kind::Prompt => 1,
            Kind::Resource => 2,
            Kind::ResourceTemplate => 3,
        };
        self.tables[index].lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn find(&self, kind: Kind, public: &str) -> Option<Target> {
        self.table(kind).by_public.get(public).cloned()
    }

    /// The published name of a target: none where it is not known, or hidden.
    pub fn public_of(&self, kind: Kind, target: &Target) -> Option<Arc<str>> {
        self.table(kind).by_target.get(target).cloned().flatten()
    }

    /// The backends that list `name` as their own.
    pub fn owners(&self, kind: Kind, name: &Arc<str>) -> Vec<usize> {
        let table = self.table(kind);
        (0..table.complete.len()).filter(|&backend| table.by_target.contains_key(&Target { backend, name: name.clone() })).collect()
    }

    /// The backends that have a template which matches `uri`.
    pub fn template_owners(&self, uri: &str) -> Vec<usize> {
        let table = self.table(Kind::ResourceTemplate);
        let mut owners: Vec<usize> = table.by_target.keys().filter(|t| template::matches(&t.name, uri)).map(|t| t.backend).collect();
        owners.sort_unstable();
        owners.dedup();
        owners
    }

    /// Whether everything that `backend` lists is in the table.
    pub fn is_complete(&self, kind: Kind, backend: usize) -> bool {
        self.table(kind).complete.get(backend).copied().unwrap_or(false)
    }

    /// Notes the items of a page. The first page replaces what was known of the backend's items; `complete`: this was the last page.
    /// Answers the positions of items whose public name belongs to something else already: those are not published.
    pub fn record(
        &self,
        kind: Kind,
        backend: usize,
        first: bool,
        complete: bool,
        items: impl IntoIterator<Item = (Arc<str>, Option<Arc<str>>)>,
    ) -> Vec<usize> {
        let mut table = self.table(kind);
        if first {
            table.forget(backend);
        }
        let mut taken = Vec::new();
        for (at, (name, mut public)) in items.into_iter().enumerate() {
            if table.by_target.len() >= ITEMS {
                tracing::warn!(backend, ?kind, limit = ITEMS, "more items are listed than a session remembers");
                return taken;
            }
            let target = Target { backend, name };
            if public.as_ref().is_some_and(|public| table.by_public.get(public).is_some_and(|owner| *owner != target)) {
                taken.push(at);
                public = None;
            }
            if let Some(Some(old)) = table.by_target.get(&target).cloned()
                && table.by_public.get(&old) == Some(&target)
            {
                table.by_public.remove(&old);
            }
            if let Some(public) = &public {
                table.by_public.insert(public.clone(), target.clone());
            }
            table.by_target.insert(target, public);
        }
        if let Some(slot) = table.complete.get_mut(backend) {
            *slot = complete;
        }
        taken
    }

    /// What a backend lists has changed: names stay callable, the next miss reads the list again.
    pub fn changed(&self, kind: Kind, backend: usize) {
        if let Some(slot) = self.table(kind).complete.get_mut(backend) {
            *slot = false;
        }
    }

    /// As `changed`, for everything of a backend.
    pub fn all_changed(&self, backend: usize) {
        for kind in [Kind::Tool, Kind::Prompt, Kind::Resource, Kind::ResourceTemplate] {
            self.changed(kind, backend);
        }
    }

    /// Names that more than one backend lists, among `known` and what the table has.
    pub fn shared<'a>(&self, kind: Kind, known: impl Iterator<Item = (usize, &'a str)>) -> HashSet<String> {
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
        for target in self.table(kind).by_target.keys() {
            see(target.backend, &target.name);
        }
        shared
    }
}

impl Table {
    fn forget(&mut self, backend: usize) {
        self.by_target.retain(|target, _| target.backend != backend);
        self.by_public.retain(|_, target| target.backend != backend);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(name: &str, public: Option<&str>) -> (Arc<str>, Option<Arc<str>>) {
        (name.into(), public.map(Into::into))
    }

    #[test]
    fn the_first_page_replaces_later_ones_add() {
        let names = Names::new(2);
        names.record(Kind::Tool, 0, true, false, [pair("x", Some("a__x"))]);
        names.record(Kind::Tool, 0, false, true, [pair("y", Some("a__y")), pair("z", None)]);
        assert!(names.is_complete(Kind::Tool, 0));
        assert_eq!(names.find(Kind::Tool, "a__x").unwrap().backend, 0);
        assert_eq!(names.find(Kind::Prompt, "a__x"), None);
        names.record(Kind::Tool, 0, true, true, [pair("y", Some("why"))]);
        assert_eq!(names.find(Kind::Tool, "a__x"), None);
        assert_eq!(names.find(Kind::Tool, "a__y"), None);
        assert_eq!(&*names.find(Kind::Tool, "why").unwrap().name, "y");
        names.changed(Kind::Tool, 0);
        assert!(!names.is_complete(Kind::Tool, 0));
        assert!(names.find(Kind::Tool, "why").is_some());
    }

    #[test]
    fn a_name_is_shared_when_two_backends_have_it() {
        let names = Names::new(2);
        names.record(Kind::Resource, 0, true, true, [pair("info://x", Some("info://x")), pair("info://y", None)]);
        let shared = names.shared(Kind::Resource, [(1, "info://x"), (1, "info://z"), (0, "info://y")].into_iter());
        assert_eq!(shared, HashSet::from(["info://x".to_owned()]));
    }
}

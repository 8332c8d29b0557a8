//! The located tree: what a YAML or JSON document says, with the line and column of each key and value.
//!
//! A node may be *pruned*: it was refused, and the reason has been reported. Readers skip pruned nodes, and checks that
//! would only repeat the news ("neither url nor command", because `url` was unreadable) ask [`Doc::incomplete`] first.

use std::collections::HashSet;
use std::sync::Arc;

use crate::config::problem::{Place, Problem};

/// Where a token begins, both counted from one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    pub line: u32,
    pub column: u32,
}

/// One value of the document. The id is unique within its [`Doc`].
#[derive(Debug)]
pub struct Node {
    pub id: u32,
    pub at: Mark,
    pub kind: Kind,
}

#[derive(Debug)]
pub enum Kind {
    Scalar(Scalar),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// A scalar as text. Only a plain one (no quotes, not expanded) may stand for null, a boolean or a number.
#[derive(Clone, Debug)]
pub struct Scalar {
    pub text: String,
    pub plain: bool,
    /// The text before `${…}` was expanded; error messages show this one.
    pub written: Option<String>,
}

#[derive(Debug)]
pub struct Entry {
    pub key: String,
    pub at: Mark,
    pub value: Node,
}

/// A step from a node to one of its children.
#[derive(Clone, Copy, Debug)]
pub enum Step<'a> {
    Key(&'a str),
    Index(usize),
}

impl<'a> From<&'a str> for Step<'a> {
    fn from(key: &'a str) -> Self {
        Step::Key(key)
    }
}

impl From<usize> for Step<'_> {
    fn from(index: usize) -> Self {
        Step::Index(index)
    }
}

/// A document with its name as the user wrote it.
#[derive(Debug)]
pub struct Doc {
    pub file: Arc<str>,
    pub root: Node,
    pruned: HashSet<u32>,
}

/// A node as its parent sees it: the written step, and where that stands.
struct Child<'a> {
    step: Step<'a>,
    at: Mark,
    node: &'a Node,
}

// === impl Scalar ===

impl Scalar {
    pub fn is_null(&self) -> bool {
        self.plain && matches!(self.text.as_str(), "" | "~" | "null" | "Null" | "NULL")
    }

    /// What an error message may show: never what came out of the environment.
    pub fn shown(&self) -> &str {
        self.written.as_deref().unwrap_or(&self.text)
    }
}

// === impl Node ===

impl Node {
    /// What it is, in the words of an error message.
    pub fn what(&self) -> &'static str {
        match &self.kind {
            Kind::Map(_) => "a mapping",
            Kind::List(_) => "a list",
            Kind::Scalar(s) if s.is_null() => "nothing",
            Kind::Scalar(_) => "a single value",
        }
    }

    fn children(&self) -> impl Iterator<Item = Child<'_>> {
        let (items, entries): (&[Node], &[Entry]) = match &self.kind {
            Kind::Scalar(_) => (&[], &[]),
            Kind::List(items) => (items, &[]),
            Kind::Map(entries) => (&[], entries),
        };
        let items = items.iter().enumerate().map(|(i, node)| Child { step: Step::Index(i), at: node.at, node });
        items.chain(entries.iter().map(|e| Child { step: Step::Key(&e.key), at: e.at, node: &e.value }))
    }
}

// === impl Doc ===

impl Doc {
    pub fn new(file: Arc<str>, root: Node) -> Self {
        Doc { file, root, pruned: HashSet::new() }
    }

    pub fn prune(&mut self, id: u32) {
        self.pruned.insert(id);
    }

    pub fn is_pruned(&self, id: u32) -> bool {
        self.pruned.contains(&id)
    }

    pub fn get(&self, path: &[Step<'_>]) -> Option<&Node> {
        path.iter().try_fold(&self.root, |node, step| self.child(node, *step).map(|child| child.node))
    }

    /// True if something at or below `path` was refused, so that what is missing there may only be unreadable.
    pub fn incomplete(&self, path: &[Step<'_>]) -> bool {
        !self.pruned.is_empty() && self.get(path).is_some_and(|node| self.prunes_in(node))
    }

    /// As [`Doc::incomplete`], of the node with this id.
    pub fn incomplete_node(&self, id: u32) -> bool {
        let trail = self.trail_to(id);
        self.prunes_in(trail.last().map_or(&self.root, |child| child.node))
    }

    fn prunes_in(&self, node: &Node) -> bool {
        self.is_pruned(node.id)
            || match &node.kind {
                Kind::Scalar(_) => false,
                Kind::List(items) => items.iter().any(|n| self.prunes_in(n)),
                Kind::Map(entries) => entries.iter().any(|e| self.prunes_in(&e.value)),
            }
    }

    /// The place of the value at `path`, or of its nearest ancestor that exists; the key is shown in full either way.
    pub fn place(&self, path: &[Step<'_>]) -> Place {
        self.place_along(path, false)
    }

    /// As [`Doc::place`], but of the key that introduces the value.
    pub fn key_place(&self, path: &[Step<'_>]) -> Place {
        self.place_along(path, true)
    }

    /// The place of the node with this id, or of its key. A walk over the tree: for error messages only.
    pub fn node_place(&self, id: u32, of_key: bool) -> Place {
        self.place_at(&self.trail_to(id), &[], of_key)
    }

    /// How many steps it takes to the node with this id.
    pub fn depth(&self, id: u32) -> usize {
        self.trail_to(id).len()
    }

    pub fn problem(&self, path: &[Step<'_>], message: impl Into<String>) -> Problem {
        Problem::new(self.place(path), message)
    }

    fn place_along(&self, path: &[Step<'_>], of_key: bool) -> Place {
        let mut trail = Vec::new();
        let mut node = &self.root;
        for step in path {
            let Some(child) = self.child(node, *step) else { break };
            node = child.node;
            trail.push(child);
        }
        self.place_at(&trail, &path[trail.len()..], of_key)
    }

    fn place_at(&self, trail: &[Child<'_>], beyond: &[Step<'_>], of_key: bool) -> Place {
        let mark = trail.last().map_or(self.root.at, |child| {
            // A collection that starts on a line of its own is best shown by its key.
            let own_line = !matches!(child.node.kind, Kind::Scalar(_)) && child.node.at.line != child.at.line;
            let nothing = matches!(&child.node.kind, Kind::Scalar(s) if s.is_null());
            if of_key || own_line || nothing { child.at } else { child.node.at }
        });
        let steps: Vec<Step<'_>> = trail.iter().map(|child| child.step).chain(beyond.iter().copied()).collect();
        Place::in_file(self.file.clone(), mark, show_path(&steps))
    }

    /// An index counts what a reader of the list got: pruned items are passed over. The step that is found is the written one.
    fn child<'a>(&self, node: &'a Node, step: Step<'_>) -> Option<Child<'a>> {
        match (&node.kind, step) {
            (Kind::Map(_), Step::Key(key)) => node.children().find(|c| matches!(c.step, Step::Key(k) if k == key)),
            (Kind::List(_), Step::Index(i)) => node.children().filter(|c| !self.is_pruned(c.node.id)).nth(i),
            _ => None,
        }
    }

    fn trail_to(&self, id: u32) -> Vec<Child<'_>> {
        fn walk<'a>(node: &'a Node, id: u32, trail: &mut Vec<Child<'a>>) -> bool {
            node.id == id
                || node.children().any(|child| {
                    let node = child.node;
                    trail.push(child);
                    let found = walk(node, id, trail);
                    if !found {
                        trail.pop();
                    }
                    found
                })
        }
        let mut trail = Vec::new();
        walk(&self.root, id, &mut trail);
        trail
    }
}

/// `backends.time.args[2]`; a key that would be read wrongly is quoted.
pub fn show_path(path: &[Step<'_>]) -> String {
    let mut shown = String::new();
    for step in path {
        match step {
            Step::Index(i) => shown.push_str(&format!("[{i}]")),
            Step::Key(key) => {
                if !shown.is_empty() {
                    shown.push('.');
                }
                let simple = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '/'));
                if simple { shown.push_str(key) } else { shown.push_str(&format!("{key:?}")) }
            }
        }
    }
    shown
}

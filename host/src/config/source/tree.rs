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
    pub fn what(&self) -> &'static str {
        match &self.kind {
            Kind::Map(_) => "a mapping",
            Kind::List(_) => "a list",
            Kind::Scalar(s) if s.is_null() => "nothing",
            Kind::Scalar(_) => "a single value",
        }
    }

    fn child(&self, step: Step<'_>) -> Option<(Mark, &Node)> {
        match (&self.kind, step) {
            (Kind::Map(entries), Step::Key(key)) => {
                entries.iter().find(|e| e.key == key).map(|e| (e.at, &e.value))
            }
            (Kind::List(items), Step::Index(i)) => items.get(i).map(|n| (n.at, n)),
            _ => None,
        }
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
        path.iter().try_fold(&self.root, |node, step| node.child(*step).map(|(_, n)| n))
    }

    /// True if something at or below `path` was refused, so that what is missing there may only be unreadable.
    pub fn incomplete(&self, path: &[Step<'_>]) -> bool {
        fn any(doc: &Doc, node: &Node) -> bool {
            doc.is_pruned(node.id)
                || match &node.kind {
                    Kind::Scalar(_) => false,
                    Kind::List(items) => items.iter().any(|n| any(doc, n)),
                    Kind::Map(entries) => entries.iter().any(|e| any(doc, &e.value)),
                }
        }
        !self.pruned.is_empty() && self.get(path).is_some_and(|node| any(self, node))
    }

    /// The place of the value at `path`, or of its nearest ancestor that exists; the key is shown in full either way.
    pub fn place(&self, path: &[Step<'_>]) -> Place {
        self.find_place(path, false)
    }

    /// As [`Doc::place`], but of the key that introduces the value.
    pub fn key_place(&self, path: &[Step<'_>]) -> Place {
        self.find_place(path, true)
    }

    fn find_place(&self, path: &[Step<'_>], of_key: bool) -> Place {
        let (mut node, mut mark) = (&self.root, self.root.at);
        for step in path {
            let Some((key, child)) = node.child(*step) else { break };
            // A collection that starts on a line of its own is best shown by its key.
            let own_line = !matches!(child.kind, Kind::Scalar(_)) && child.at.line != key.line;
            let nothing = matches!(&child.kind, Kind::Scalar(s) if s.is_null());
            mark = if of_key || own_line || nothing { key } else { child.at };
            node = child;
        }
        Place::in_file(self.file.clone(), mark, show_path(path))
    }

    /// The path to the node with this id. A walk over the tree: for error messages only.
    pub fn path_of(&self, id: u32) -> Vec<Step<'_>> {
        fn walk<'a>(node: &'a Node, id: u32, path: &mut Vec<Step<'a>>) -> bool {
            if node.id == id {
                return true;
            }
            let children: Box<dyn Iterator<Item = (Step<'a>, &'a Node)>> = match &node.kind {
                Kind::Scalar(_) => return false,
                Kind::List(items) => Box::new(items.iter().enumerate().map(|(i, n)| (Step::Index(i), n))),
                Kind::Map(entries) => {
                    Box::new(entries.iter().map(|e| (Step::Key(e.key.as_str()), &e.value)))
                }
            };
            for (step, child) in children {
                path.push(step);
                if walk(child, id, path) {
                    return true;
                }
                path.pop();
            }
            false
        }
        let mut path = Vec::new();
        walk(&self.root, id, &mut path);
        path
    }

    pub fn problem(&self, path: &[Step<'_>], message: impl Into<String>) -> Problem {
        Problem::new(self.place(path), message)
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
                let simple = !key.is_empty()
                    && key.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '/'));
                if simple { shown.push_str(key) } else { shown.push_str(&format!("{key:?}")) }
            }
        }
    }
    shown
}

//! YAML 1.2 text to the located tree. Anchors, aliases and merge keys (`<<`) work; tags other than the core ones do not.
//!
//! The event parser is used rather than a serde front end, because the tree must outlive the first mistake and must know
//! the place of every key. Bounds: [`MAX_NODES`] nodes (aliases counted each time they are used), [`MAX_DEPTH`] levels.

use std::collections::HashMap;
use std::sync::Arc;

use granit_parser::{Event, Parser, ScalarStyle, ScanError, Span, StrInput, Tag};

use super::tree::{Doc, Entry, Kind, Mark, Node, Scalar, Step, show_path};
use crate::config::problem::{Place, Problem, Problems};

/// A document with more values than this is refused: no gateway needs it, and aliases of aliases grow without end.
const MAX_NODES: u32 = 200_000;
/// Levels of nesting; the readers of the tree recurse.
const MAX_DEPTH: usize = 64;

/// Reads one document. A syntax error ends the reading; all else (duplicate keys, tags) is reported and left out.
pub fn parse(file: Arc<str>, text: &str, problems: &mut Problems) -> Option<Doc> {
    let mut options = granit_parser::Options::default();
    options.set_emit_comments(false);
    let parser = Parser::new_from_str_with_options(text, options);
    let mut builder =
        Builder { file: file.clone(), parser, next_id: 0, anchors: HashMap::new(), path: Vec::new(), tagged: Vec::new(), problems };
    match builder.document() {
        Ok(root) => {
            let mut doc = Doc::new(file, root);
            builder.tagged.into_iter().for_each(|id| doc.prune(id));
            Some(doc)
        }
        Err(stop) => {
            let problem = match stop {
                Stop::Syntax(error) => syntax_problem(file, text, &error),
                Stop::Refused(mark, key, message) => Problem::new(Place::in_file(file, mark, key), message),
            };
            problems.push(problem);
            None
        }
    }
}

enum Stop {
    Syntax(ScanError),
    Refused(Mark, String, String),
}

enum PathStep {
    Key(String),
    Index(usize),
}

struct Builder<'a, 'p> {
    file: Arc<str>,
    parser: Parser<'a, StrInput<'a>>,
    next_id: u32,
    anchors: HashMap<usize, Node>,
    path: Vec<PathStep>,
    /// Values with a tag that was refused.
    tagged: Vec<u32>,
    problems: &'p mut Problems,
}

// === impl Builder ===

impl<'a> Builder<'a, '_> {
    fn document(&mut self) -> Result<Node, Stop> {
        let mut root = None;
        while let Some((event, span)) = self.next()? {
            match event {
                Event::StreamStart | Event::DocumentStart(..) | Event::DocumentEnd => {}
                Event::StreamEnd => break,
                _ if root.is_some() => {
                    return Err(self.refuse(span, "a second document (`---`); a configuration is one document"));
                }
                event => root = Some(self.node(event, span)?),
            }
        }
        let empty = Kind::Map(Vec::new());
        Ok(match root {
            Some(Node { kind: Kind::Scalar(s), at, id }) if s.is_null() => Node { id, at, kind: empty },
            Some(node) => node,
            None => Node { id: self.id(Mark { line: 1, column: 1 })?, at: Mark { line: 1, column: 1 }, kind: empty },
        })
    }

    fn next(&mut self) -> Result<Option<(Event<'a>, Span)>, Stop> {
        self.parser.next_event().transpose().map_err(Stop::Syntax)
    }

    fn next_in_collection(&mut self) -> Result<(Event<'a>, Span), Stop> {
        self.next()?.ok_or_else(|| Stop::Refused(Mark::default(), String::new(), "the file ends too early".into()))
    }

    fn node(&mut self, event: Event<'a>, span: Span) -> Result<Node, Stop> {
        let at = mark(span);
        if self.path.len() > MAX_DEPTH {
            return Err(self.refuse(span, &format!("nested deeper than {MAX_DEPTH} levels")));
        }
        let fine = event.tag().is_none_or(|tag| self.check_tag(tag, span));
        let (kind, anchor) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                let text_tag = tag.is_some_and(|tag| tag.core_suffix() == Some("str"));
                let plain = matches!(style, ScalarStyle::Plain) && !text_tag;
                (Kind::Scalar(Scalar { text: text.into_owned(), plain, written: None }), anchor)
            }
            Event::SequenceStart(_, anchor, _) => (self.list()?, anchor),
            Event::MappingStart(_, anchor, _) => (self.map()?, anchor),
            Event::Alias(id) => {
                // An anchor that is still being read is not in the table: a loop cannot be built.
                let Some(target) = self.anchors.remove(&id) else {
                    return Err(self.refuse(span, "this alias stands inside what it refers to"));
                };
                let copy = self.copy(&target);
                self.anchors.insert(id, target);
                return copy.map(|node| Node { at, ..node });
            }
            _ => return Err(self.refuse(span, "unexpected YAML event")),
        };
        let node = Node { id: self.id(at)?, at, kind };
        if !fine {
            self.tagged.push(node.id);
        }
        if anchor != 0 {
            let copy = self.copy(&node)?;
            self.anchors.insert(anchor, copy);
        }
        Ok(node)
    }

    fn list(&mut self) -> Result<Kind, Stop> {
        let mut items = Vec::new();
        loop {
            let (event, span) = self.next_in_collection()?;
            if matches!(event, Event::SequenceEnd) {
                return Ok(Kind::List(items));
            }
            self.path.push(PathStep::Index(items.len()));
            let node = self.node(event, span)?;
            self.path.pop();
            items.push(node);
        }
    }

    fn map(&mut self) -> Result<Kind, Stop> {
        let mut entries: Vec<Entry> = Vec::new();
        let mut merged = Vec::new();
        loop {
            let (event, span) = self.next_in_collection()?;
            let at = mark(span);
            let key = match event {
                Event::MappingEnd => break,
                Event::Scalar(text, style, ..) => {
                    let merge = text == "<<" && matches!(style, ScalarStyle::Plain);
                    Some((text.into_owned(), merge))
                }
                other => {
                    self.node(other, span)?;
                    self.report(at, "a key must be text");
                    None
                }
            };
            self.path.push(PathStep::Key(key.as_ref().map_or_else(|| "?".to_owned(), |(k, _)| k.clone())));
            let (event, value_span) = self.next_in_collection()?;
            let value = self.node(event, value_span)?;
            match key {
                None => {}
                Some((_, true)) => match value.kind {
                    Kind::Map(more) => merged.extend(more),
                    Kind::List(items) if items.iter().all(|n| matches!(n.kind, Kind::Map(_))) => {
                        merged.extend(items.into_iter().flat_map(|n| match n.kind {
                            Kind::Map(more) => more,
                            _ => Vec::new(),
                        }));
                    }
                    _ => self.report(at, "`<<` takes a mapping or a list of mappings, usually an alias (`<<: *defaults`)"),
                },
                Some((key, false)) => match entries.iter().find(|e| e.key == key) {
                    Some(first) => {
                        let line = first.at.line;
                        self.report(at, &format!("this key is here twice, first in line {line}; keep one of them"));
                    }
                    None => entries.push(Entry { key, at, value }),
                },
            }
            self.path.pop();
        }
        for entry in merged {
            if !entries.iter().any(|e| e.key == entry.key) {
                entries.push(entry);
            }
        }
        Ok(Kind::Map(entries))
    }

    fn copy(&mut self, node: &Node) -> Result<Node, Stop> {
        let kind = match &node.kind {
            Kind::Scalar(s) => Kind::Scalar(s.clone()),
            Kind::List(items) => Kind::List(items.iter().map(|n| self.copy(n)).collect::<Result<_, _>>()?),
            Kind::Map(entries) => {
                let copied = entries.iter().map(|e| Ok(Entry { key: e.key.clone(), at: e.at, value: self.copy(&e.value)? }));
                Kind::Map(copied.collect::<Result<_, Stop>>()?)
            }
        };
        Ok(Node { id: self.id(node.at)?, at: node.at, kind })
    }

    fn id(&mut self, at: Mark) -> Result<u32, Stop> {
        if self.next_id == MAX_NODES {
            let message = format!("more than {MAX_NODES} values, aliases included");
            return Err(Stop::Refused(at, self.key(), message));
        }
        self.next_id += 1;
        Ok(self.next_id)
    }

    fn check_tag(&mut self, tag: &Tag, span: Span) -> bool {
        let fine = tag.core_suffix().is_some();
        if !fine {
            self.report(mark(span), &format!("tag `{}` is not supported; remove it", tag.original()));
        }
        fine
    }

    fn key(&self) -> String {
        let steps: Vec<Step<'_>> = self
            .path
            .iter()
            .map(|step| match step {
                PathStep::Key(key) => Step::Key(key),
                PathStep::Index(i) => Step::Index(*i),
            })
            .collect();
        show_path(&steps)
    }

    fn report(&mut self, at: Mark, message: &str) {
        let place = Place::in_file(self.file.clone(), at, self.key());
        self.problems.push(Problem::new(place, message));
    }

    fn refuse(&self, span: Span, message: &str) -> Stop {
        Stop::Refused(mark(span), self.key(), message.to_owned())
    }
}

fn mark(span: Span) -> Mark {
    position(&span.start)
}

fn position(marker: &granit_parser::Marker) -> Mark {
    let clamp = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    Mark { line: clamp(marker.line()), column: clamp(marker.col().saturating_add(1)) }
}

fn syntax_problem(file: Arc<str>, text: &str, error: &ScanError) -> Problem {
    let at = position(error.marker());
    let mut message = format!("not valid YAML: {}", error.info());
    let nearby = |back: u32| {
        let line = at.line.checked_sub(back + 1)? as usize;
        text.lines().nth(line)
    };
    if nearby(0).into_iter().chain(nearby(1)).any(has_bare_expansion) {
        message.push_str("; inside { } and [ ] a value with ${…} needs quotes: \"${NAME}\"");
    } else if nearby(0).is_some_and(|line| line.trim_start_matches(' ').starts_with('\t')) {
        message.push_str("; indent with spaces, not tabs");
    }
    Problem::new(Place::in_file(file, at, String::new()), message)
}

fn has_bare_expansion(line: &str) -> bool {
    line.match_indices("${").any(|(at, _)| line[..at].matches(['"', '\'']).count().is_multiple_of(2))
}

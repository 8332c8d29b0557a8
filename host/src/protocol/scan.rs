//! Looks through a large answer while it passes, chunk by chunk: whether it is the JSON of one answer, where its id stands, and which URIs in
//! it may have to be the client's.
//!
//! Builds no tree and copies no payload: what comes out are slices of what went in, with a gap for the id and for each URI. Holds the text of
//! one member name, id or URI, a bit for each level of nesting, and a content block whose URI came before its type. As strict as
//! [`super::Incoming::parse`]: what that refuses is never taken for whole here.

mod dress;
mod text;
mod values;

pub use dress::Dress;

use super::method;
use super::walk::plain;
use bytes::Bytes;
use dress::Member;
use std::collections::VecDeque;
use text::{Digits, Nesting, Utf8};

/// Bytes of a member name at the top of the message, as written.
const NAME: usize = 4096;
/// Bytes, as written, of other names and of values that are compared: none that means anything is longer.
const WORD: usize = 96;

/// Where a result may have URIs that its client has to know by another name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Places {
    /// Nowhere: there is one backend.
    Nowhere,
    /// In the content of a tool's result.
    Tool,
    /// In the messages of a prompt.
    Prompt,
    /// In the contents of a resource.
    Resource,
}

/// A part of the answer, in its order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    Bytes(Bytes),
    /// Here stood the id.
    Id,
    /// JSON text of a URI that may have to be another.
    Uri(Bytes),
}

/// Why it is no answer to the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Invalid(pub &'static str);

/// One answer, as far as it has come.
#[derive(Debug)]
pub struct Scanner {
    id: u64,
    places: Places,
    state: State,
    nesting: Nesting,
    /// The outer containers that mean something. The rest of the nesting does not.
    nodes: Vec<Node>,
    /// The name of the last member of the innermost of them.
    key: Key,
    taken: Option<Taken>,
    /// What of it has come.
    text: Vec<u8>,
    utf8: Utf8,
    has_version: bool,
    id_len: Option<usize>,
    has_result: bool,
    /// The type of the block at hand, once it is known.
    kind: Option<Kind>,
    ready: VecDeque<Piece>,
    /// From the first URI on that waits for the type of its block.
    held: Vec<Held>,
    held_bytes: usize,
    dress: Option<Dress>,
    member: Member,
    /// What stands between two members of the result, and the name of the next.
    between: Vec<u8>,
    /// Of the members of the result one was passed on, or left out.
    kept: bool,
    dropped: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before the message.
    Start,
    /// Where a value must begin.
    Value,
    /// The same at the start of an array, which may end instead.
    Element,
    /// Where a name must begin.
    Name,
    /// The same at the start of an object, which may end instead.
    FirstName,
    Colon,
    /// After a value.
    Next,
    /// After the message.
    End,
    /// In a string; of a member's name, or a value.
    Text {
        name: bool,
    },
    Escape {
        name: bool,
    },
    /// So many hexadecimal digits are missing.
    Hex {
        name: bool,
        left: u8,
    },
    Number(Digits),
    /// In `true`, `false` or `null`: what is missing.
    Word(&'static [u8]),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    Message,
    Result,
    Blocks,
    Block,
    Resource,
    Prompts,
    Prompt,
    Contents,
    Content,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    Version,
    Id,
    Result,
    Content,
    Contents,
    Messages,
    Type,
    Uri,
    Resource,
    /// Of a member that is left out.
    Out,
    Other,
}

/// What is being copied aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taken {
    Name,
    Version,
    Id,
    Type,
    Uri,
}

/// The types of blocks that have a URI, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Link,
    Embedded,
    Other,
}

#[derive(Debug)]
enum Held {
    Piece(Piece),
    /// A URI if the block is of this kind.
    If(Kind, Bytes),
}

impl Places {
    /// Where the result of `name` has URIs; none for methods whose results are always read whole.
    pub fn of(name: &str) -> Option<Places> {
        match name {
            method::TOOLS_CALL => Some(Places::Tool),
            method::PROMPTS_GET => Some(Places::Prompt),
            method::RESOURCES_READ => Some(Places::Resource),
            _ => None,
        }
    }
}

// === impl Scanner ===

impl Scanner {
    /// For the answer to the request `id`.
    pub fn new(id: u64, places: Places, dress: Option<Dress>) -> Self {
        Scanner {
            id,
            places,
            state: State::Start,
            nesting: Nesting::default(),
            nodes: Vec::new(),
            key: Key::Other,
            taken: None,
            text: Vec::new(),
            utf8: Utf8::default(),
            has_version: false,
            id_len: None,
            has_result: false,
            kind: None,
            ready: VecDeque::new(),
            held: Vec::new(),
            held_bytes: 0,
            dress,
            member: Member::Kept,
            between: Vec::new(),
            kept: false,
            dropped: false,
        }
    }

    /// Takes the next part of the text.
    ///
    /// # Errors
    /// When it is not JSON, not an answer with a result, or the answer to another request. Nothing more may be pushed then, and what is
    /// ready by then was good.
    pub fn push(&mut self, chunk: &Bytes) -> Result<(), Invalid> {
        self.utf8.push(chunk)?;
        let text = &chunk[..];
        // What was not passed on yet begins here, unless it is being held back.
        let (mut at, mut from) = (0, 0);
        while at < text.len() {
            match self.state {
                State::Text { name } => {
                    let end = at + plain(&text[at..]);
                    self.take(&text[at..end]);
                    at = end;
                    let Some(&byte) = text.get(at) else { break };
                    self.take(&[byte]);
                    at += 1;
                    match byte {
                        b'"' if name => {
                            self.name_ends()?;
                            self.member_begins(chunk, &mut from, at);
                        }
                        b'"' => self.value_ends(chunk, at, &mut from)?,
                        b'\\' => self.state = State::Escape { name },
                        _ => return Err(Invalid("a control character in a string")),
                    }
                }
                State::Escape { name } => {
                    self.take(&text[at..=at]);
                    self.state = match text[at] {
                        b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => State::Text { name },
                        b'u' => State::Hex { name, left: 4 },
                        _ => return Err(Invalid("an escape that is none")),
                    };
                    at += 1;
                }
                State::Hex { name, left } => {
                    self.take(&text[at..=at]);
                    if !text[at].is_ascii_hexdigit() {
                        return Err(Invalid("an escape that is none"));
                    }
                    self.state = if left > 1 { State::Hex { name, left: left - 1 } } else { State::Text { name } };
                    at += 1;
                }
                State::Number(digits) => match digits.and(text[at])? {
                    Some(more) => {
                        self.take(&text[at..=at]);
                        self.state = State::Number(more);
                        at += 1;
                    }
                    // It ended before this byte.
                    None => self.value_ends(chunk, at, &mut from)?,
                },
                State::Word(left) => {
                    if left.first() != Some(&text[at]) {
                        return Err(Invalid("a word that is none"));
                    }
                    self.take(&text[at..=at]);
                    at += 1;
                    match &left[1..] {
                        [] => self.value_ends(chunk, at, &mut from)?,
                        more => self.state = State::Word(more),
                    }
                }
                _ if matches!(text[at], b' ' | b'\n' | b'\r' | b'\t') => at += 1,
                State::Start if text[at] == b'{' => {
                    self.open(true, Some(Node::Message))?;
                    at += 1;
                }
                State::Value | State::Element if !(self.state == State::Element && text[at] == b']') => {
                    self.value_begins(text[at], chunk, from..at)?;
                    at += 1;
                    if self.state == State::FirstName {
                        // Where it is the result that has begun.
                        self.member_ends(chunk, &mut from, at);
                    }
                }
                State::Name | State::FirstName if text[at] == b'"' => {
                    // Names inside of what means nothing mean nothing.
                    self.taken = (self.nesting.depth == self.nodes.len()).then_some(Taken::Name);
                    self.take(b"\"");
                    self.state = State::Text { name: true };
                    at += 1;
                }
                State::Colon if text[at] == b':' => {
                    self.state = State::Value;
                    at += 1;
                }
                State::Next if text[at] == b',' => {
                    self.state = if self.nesting.in_object() { State::Name } else { State::Value };
                    at += 1;
                }
                State::Next | State::FirstName | State::Element if matches!(text[at], b'}' | b']') => {
                    if self.in_dressed() {
                        self.members_end(chunk, &mut from, at);
                    }
                    self.close(text[at] == b'}')?;
                    at += 1;
                    self.member_ends(chunk, &mut from, at);
                }
                State::End => return Err(Invalid("something after the message")),
                _ => return Err(Invalid("not valid JSON")),
            }
        }
        match self.member {
            Member::Kept if !self.holds_back() => self.pass(chunk.slice(from..)),
            Member::Unnamed => {
                self.between.extend_from_slice(&text[from..]);
                if self.between.len() > NAME {
                    return Err(Invalid("a member name is too long"));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The next piece that may be passed on.
    pub fn pop(&mut self) -> Option<Piece> {
        self.ready.pop_front()
    }

    /// The value of `result` has begun, and what stands before it is right.
    pub fn has_begun(&self) -> bool {
        self.has_result
    }

    /// Bytes of the id as the server wrote it, once that is known.
    pub fn id_len(&self) -> Option<usize> {
        self.id_len
    }

    /// Bytes that wait for what comes after them.
    pub fn held(&self) -> usize {
        self.held_bytes + self.text.len()
    }

    /// The text has ended.
    ///
    /// # Errors
    /// When something is missing.
    pub fn finish(&self) -> Result<(), Invalid> {
        match () {
            () if self.state != State::End || !self.utf8.is_whole() => Err(Invalid("the message ends too early")),
            () if !self.has_version => Err(Invalid("member `jsonrpc` must be \"2.0\"")),
            () if self.id_len.is_none() => Err(Invalid("a response with a result must have an id")),
            () if !self.has_result => Err(Invalid("the message has no result")),
            () => Ok(()),
        }
    }

    /// Copies aside, where this is wanted.
    fn take(&mut self, part: &[u8]) {
        let Some(taken) = self.taken else { return };
        let most = match taken {
            Taken::Uri => usize::MAX,
            Taken::Name if self.nodes.len() == 1 => NAME + 1,
            _ => WORD + 1,
        };
        let room = most.saturating_sub(self.text.len());
        self.text.extend_from_slice(&part[..part.len().min(room)]);
    }

    fn holds_back(&self) -> bool {
        matches!(self.taken, Some(Taken::Id | Taken::Uri))
    }

    fn pass(&mut self, part: Bytes) {
        if !part.is_empty() {
            self.put(Piece::Bytes(part));
        }
    }

    fn put(&mut self, piece: Piece) {
        if self.held.is_empty() {
            self.ready.push_back(piece);
        } else {
            self.held_bytes += if let Piece::Bytes(part) | Piece::Uri(part) = &piece { part.len() } else { 0 };
            self.held.push(Held::Piece(piece));
        }
    }
}

#[cfg(test)]
mod tests;

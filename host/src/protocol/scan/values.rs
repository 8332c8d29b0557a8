//! What names, values and containers mean where they stand: the id, the version, the result, and the URIs in it.

use super::text::Digits;
use super::{Dress, Held, Invalid, Key, Kind, NAME, Node, Piece, Places, Scanner, State, Taken};
use crate::protocol::RequestId;
use bytes::Bytes;
use std::ops::Range;

impl Scanner {
    /// A name has come whole.
    pub(super) fn name_ends(&mut self) -> Result<(), Invalid> {
        self.state = State::Colon;
        if self.taken.take().is_none() {
            return Ok(());
        }
        let top = self.nodes.len() == 1;
        if top && self.text.len() > NAME {
            return Err(Invalid("a member name is too long"));
        }
        let decoded = self.text.contains(&b'\\').then(|| serde_json::from_slice::<String>(&self.text));
        let name = match &decoded {
            None => &self.text[1..self.text.len() - 1],
            Some(Ok(name)) => name.as_bytes(),
            Some(Err(_)) if top => return Err(Invalid("a member name that is no text")),
            Some(Err(_)) => b"",
        };
        let out = |dress: &Dress| std::str::from_utf8(name).is_ok_and(dress.out);
        self.key = match name {
            _ if self.nodes.last() == Some(&Node::Result) && self.dress.as_ref().is_some_and(out) => Key::Out,
            b"error" | b"method" if top => return Err(Invalid("the message has another member than a result")),
            b"jsonrpc" => Key::Version,
            b"id" => Key::Id,
            b"result" => Key::Result,
            b"content" => Key::Content,
            b"contents" => Key::Contents,
            b"messages" => Key::Messages,
            b"type" => Key::Type,
            b"uri" => Key::Uri,
            b"resource" => Key::Resource,
            _ => Key::Other,
        };
        self.text.clear();
        Ok(())
    }

    /// `unsent`: the place in `chunk` of what was not passed on yet, up to the value.
    pub(super) fn value_begins(&mut self, byte: u8, chunk: &Bytes, unsent: Range<usize>) -> Result<(), Invalid> {
        let here = (self.nesting.depth == self.nodes.len() && self.nesting.in_object()).then(|| self.nodes.last().copied()).flatten();
        self.taken = match (here, self.key) {
            (Some(Node::Message), Key::Version) if byte == b'"' && !self.has_version => Some(Taken::Version),
            (Some(Node::Message), Key::Version) => return Err(Invalid("member `jsonrpc` must be \"2.0\", once")),
            (Some(Node::Message), Key::Id) if self.id_len.is_none() && !matches!(byte, b'{' | b'[') => Some(Taken::Id),
            (Some(Node::Message), Key::Id) => return Err(Invalid("member `id` must be a string or an integer, once")),
            (Some(Node::Message), Key::Result) if self.has_result => return Err(Invalid("member `result` occurs more than once")),
            (Some(Node::Message), Key::Result) => {
                self.has_result = true;
                None
            }
            (Some(Node::Block), Key::Type) if self.kind.is_none() => match byte {
                b'"' => Some(Taken::Type),
                _ => {
                    self.decide(Kind::Other);
                    None
                }
            },
            (Some(Node::Block | Node::Resource | Node::Content), Key::Uri) if byte == b'"' => Some(Taken::Uri),
            _ => None,
        };
        if self.holds_back() {
            self.pass(chunk.slice(unsent));
        }
        self.take(&[byte]);
        self.state = match byte {
            b'"' => State::Text { name: false },
            b'-' => State::Number(Digits::Minus),
            b'0' => State::Number(Digits::Zero),
            b'1'..=b'9' => State::Number(Digits::Whole),
            b't' => State::Word(b"rue"),
            b'f' => State::Word(b"alse"),
            b'n' => State::Word(b"ull"),
            b'{' | b'[' => {
                let object = byte == b'{';
                let node = if self.nesting.depth == self.nodes.len() { self.inner(object) } else { None };
                return self.open(object, node);
            }
            _ => return Err(Invalid("not valid JSON")),
        };
        Ok(())
    }

    /// What the container is that begins now.
    fn inner(&self, object: bool) -> Option<Node> {
        let places = self.places;
        Some(match (self.nodes.last()?, self.key, object) {
            (Node::Message, Key::Result, true) if places != Places::Nowhere || self.dress.is_some() => Node::Result,
            (Node::Result, Key::Content, false) if places == Places::Tool => Node::Blocks,
            (Node::Result, Key::Messages, false) if places == Places::Prompt => Node::Prompts,
            (Node::Result, Key::Contents, false) if places == Places::Resource => Node::Contents,
            (Node::Prompts, _, true) => Node::Prompt,
            (Node::Prompt, Key::Content, false) => Node::Blocks,
            (Node::Blocks, _, true) | (Node::Prompt, Key::Content, true) => Node::Block,
            (Node::Block, Key::Resource, true) => Node::Resource,
            (Node::Contents, _, true) => Node::Content,
            _ => return None,
        })
    }

    pub(super) fn open(&mut self, object: bool, node: Option<Node>) -> Result<(), Invalid> {
        self.nesting.push(object)?;
        if node == Some(Node::Block) {
            self.kind = None;
        }
        self.nodes.extend(node);
        self.state = if object { State::FirstName } else { State::Element };
        Ok(())
    }

    pub(super) fn close(&mut self, object: bool) -> Result<(), Invalid> {
        if !self.nesting.pop(object) {
            return Err(Invalid("not valid JSON"));
        }
        if self.nodes.len() > self.nesting.depth && self.nodes.pop() == Some(Node::Block) {
            // It said of no type.
            self.decide(Kind::Other);
        }
        self.state = if self.nesting.depth == 0 { State::End } else { State::Next };
        Ok(())
    }

    /// A string, number or word has come whole, and ends at `end` of the chunk.
    pub(super) fn value_ends(&mut self, chunk: &Bytes, end: usize, from: &mut usize) -> Result<(), Invalid> {
        self.state = State::Next;
        let Some(taken) = self.taken.take() else {
            self.member_ends(chunk, from, end);
            return Ok(());
        };
        match taken {
            Taken::Version if self.text == b"\"2.0\"" => self.has_version = true,
            Taken::Version => return Err(Invalid("member `jsonrpc` must be \"2.0\"")),
            Taken::Id => {
                *from = end;
                self.id_len = Some(self.text.len());
                let id = RequestId::from_raw(Bytes::copy_from_slice(&self.text));
                if !id.is_some_and(|id| id.stands_for(self.id)) {
                    return Err(Invalid("it answered a request that was not made"));
                }
                self.put(Piece::Id);
            }
            Taken::Type => {
                let kind = match serde_json::from_slice::<String>(&self.text).as_deref() {
                    Ok("resource_link") => Kind::Link,
                    Ok("resource") => Kind::Embedded,
                    _ => Kind::Other,
                };
                self.decide(kind);
            }
            Taken::Uri => {
                *from = end;
                let uri = Bytes::copy_from_slice(&self.text);
                let of = match self.nodes.last() {
                    Some(Node::Block) => Kind::Link,
                    Some(Node::Resource) => Kind::Embedded,
                    _ => Kind::Other,
                };
                match self.kind {
                    _ if of == Kind::Other => self.put(Piece::Uri(uri)),
                    Some(kind) if kind == of => self.put(Piece::Uri(uri)),
                    Some(_) => self.put(Piece::Bytes(uri)),
                    None => {
                        self.held_bytes += uri.len();
                        self.held.push(Held::If(of, uri));
                    }
                }
            }
            // Names end elsewhere.
            Taken::Name => {}
        }
        self.text.clear();
        Ok(())
    }

    /// The type of the block is known: what waited for it goes on, ahead of what was not passed on of the chunk.
    fn decide(&mut self, kind: Kind) {
        self.kind = Some(kind);
        self.held_bytes = 0;
        self.ready.extend(std::mem::take(&mut self.held).into_iter().map(|held| match held {
            Held::Piece(piece) => piece,
            Held::If(of, uri) if of == kind => Piece::Uri(uri),
            Held::If(_, uri) => Piece::Bytes(uri),
        }));
    }
}

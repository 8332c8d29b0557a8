//! Server-sent events (WHATWG HTML, section 9.2): an encoder for messages and an incremental decoder with a bound.

use super::Wire;
use bytes::{Buf, Bytes, BytesMut};
use std::time::Duration;

/// One event as a peer sent it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Event {
    /// The `event` field; none means `message`.
    pub name: Option<String>,
    /// The `id` field of this event.
    pub id: Option<String>,
    /// The `retry` field.
    pub retry: Option<Duration>,
    /// The `data` lines, joined by line feeds. None where there was no `data` field at all.
    pub data: Option<Bytes>,
}

impl Event {
    /// Whether this is a message event that says something.
    pub fn message(&self) -> Option<&Bytes> {
        let named = self.name.as_deref().is_some_and(|n| n != "message");
        self.data.as_ref().filter(|d| !named && !d.is_empty())
    }
}

/// An event is larger than the reader takes.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("an SSE event is larger than the limit of {limit} bytes")]
pub struct TooLarge {
    pub limit: usize,
}

/// Cuts a byte stream into events. Holds at most one event and one chunk.
#[derive(Debug)]
pub struct Decoder {
    buffer: BytesMut,
    /// Up to here `buffer` has been searched for a line end.
    searched: usize,
    started: bool,
    /// The last line ended in CR, so that an LF that follows belongs to it.
    after_cr: bool,
    event: Event,
    data: BytesMut,
    dirty: bool,
    limit: usize,
}

impl Decoder {
    /// `limit`: bytes that one event may have.
    pub fn new(limit: usize) -> Self {
        Decoder {
            buffer: BytesMut::new(),
            searched: 0,
            started: false,
            after_cr: false,
            event: Event::default(),
            data: BytesMut::new(),
            dirty: false,
            limit,
        }
    }

    /// Adds a chunk. Then call `next` until it gives none.
    pub fn push(&mut self, chunk: &[u8]) {
        self.buffer.extend_from_slice(chunk);
    }

    /// Bytes of the event that is not complete yet.
    pub fn held(&self) -> usize {
        self.buffer.len() + self.data.len() + self.event.data.as_ref().map_or(0, Bytes::len)
    }

    /// The data of the event that is not complete yet, where it is a message without an id, and all of it so far is one line of more than
    /// `least` bytes that goes on. After `next_event` has given none.
    pub fn begun(&self, least: usize) -> Option<&[u8]> {
        let named = self.event.name.as_deref().is_some_and(|name| name != "message");
        let first = !named && self.event.id.is_none() && self.event.data.is_none() && !self.dirty;
        let data = self.buffer.strip_prefix(b"data:").filter(|_| first && self.started && !self.after_cr)?;
        let data = data.strip_prefix(b" ").unwrap_or(data);
        (data.len() > least).then_some(data)
    }

    /// The next complete event, if there is one.
    pub fn next_event(&mut self) -> Result<Option<Event>, TooLarge> {
        while let Some(line) = self.line() {
            if line.is_empty() {
                if let Some(event) = self.dispatch() {
                    return Ok(Some(event));
                }
            } else {
                self.field(line);
            }
            self.check()?;
        }
        self.check()?;
        Ok(None)
    }

    fn check(&self) -> Result<(), TooLarge> {
        if self.buffer.len().saturating_add(self.data.len()).saturating_add(self.event.data.as_ref().map_or(0, Bytes::len))
            > self.limit.saturating_add(64 * 1024)
            && self.searched.saturating_add(self.data.len()) > self.limit
        {
            return Err(TooLarge { limit: self.limit });
        }
        Ok(())
    }

    fn line(&mut self) -> Option<Bytes> {
        if self.after_cr && !self.buffer.is_empty() {
            if self.buffer[0] == b'\n' {
                self.buffer.advance(1);
            }
            self.after_cr = false;
        }
        if !self.started {
            // A byte order mark may come first, and may come in pieces.
            const BOM: &[u8] = b"\xef\xbb\xbf";
            if self.buffer.len() < BOM.len() && BOM.starts_with(&self.buffer[..]) {
                return None;
            }
            if self.buffer.starts_with(BOM) {
                self.buffer.advance(BOM.len());
            }
            self.started = true;
        }
        let Some(found) = memchr::memchr2(b'\n', b'\r', &self.buffer[self.searched..]) else {
            self.searched = self.buffer.len();
            return None;
        };
        let end = self.searched + found;
        self.after_cr = self.buffer[end] == b'\r';
        let line = self.buffer.split_to(end).freeze();
        self.buffer.advance(1);
        self.searched = 0;
        Some(line)
    }

    fn field(&mut self, line: Bytes) {
        let (name, mut value) = match memchr::memchr(b':', &line) {
            Some(0) => return, // a comment
            Some(at) => (&line[..at], line.slice(at + 1..)),
            None => (&line[..], Bytes::new()),
        };
        if value.first() == Some(&b' ') {
            value.advance(1);
        }
        let text = || String::from_utf8_lossy(&value).into_owned();
        match name {
            b"data" => match (self.event.data.take(), self.data.is_empty()) {
                // The usual case, one line, is not copied.
                (None, true) if !self.dirty => self.event.data = Some(value),
                (first, _) => {
                    if let Some(first) = first {
                        self.data.extend_from_slice(&first);
                    }
                    self.data.extend_from_slice(b"\n");
                    self.data.extend_from_slice(&value);
                    self.dirty = true;
                }
            },
            b"event" => self.event.name = Some(text()),
            b"id" if !value.contains(&0) => self.event.id = Some(text()),
            b"retry" => self.event.retry = text().parse().ok().map(Duration::from_millis),
            _ => {}
        }
    }

    fn dispatch(&mut self) -> Option<Event> {
        let mut event = std::mem::take(&mut self.event);
        if self.dirty {
            event.data = Some(self.data.split().freeze());
            self.dirty = false;
        }
        (event != Event::default()).then_some(event)
    }
}

/// An event that carries one message; `id` makes the stream resumable. Line breaks inside the message (legal between JSON tokens)
/// become `data` lines of their own.
pub fn message(id: Option<&str>, message: &Wire) -> Wire {
    let mut out = Wire::new();
    if let Some(id) = id {
        out.push(format!("id: {id}\n"));
    }
    out.push(Bytes::from_static(b"data: "));
    for part in message.parts() {
        if memchr::memchr2(b'\n', b'\r', part).is_none() {
            out.push(part.clone());
            continue;
        }
        let mut rest = part.clone();
        while let Some(at) = memchr::memchr2(b'\n', b'\r', &rest) {
            out.push(rest.split_to(at));
            rest.advance(1);
            out.push(Bytes::from_static(b"\ndata: "));
        }
        out.push(rest);
    }
    out.push(Bytes::from_static(b"\n\n"));
    out
}

/// The first event of a resumable stream: an id, a time to wait before reconnecting, and no data (2025-11-25 transports, "Sending Messages").
pub fn priming(id: &str, retry: Duration) -> Wire {
    Wire::from(format!("id: {id}\nretry: {}\ndata: \n\n", retry.as_millis()))
}

/// A hint to reconnect after `retry`, sent before the gateway itself ends a stream.
pub fn retry(retry: Duration) -> Wire {
    Wire::from(format!("retry: {}\n\n", retry.as_millis()))
}

/// An event of another name than `message`; `data` is one line.
pub fn named(event: &str, data: &str) -> Wire {
    Wire::from(format!("event: {event}\ndata: {data}\n\n"))
}

/// A comment line: keeps a connection open, says nothing.
pub fn keep_alive() -> Wire {
    Wire::from(Bytes::from_static(b":\n\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(chunks: &[&[u8]]) -> Vec<Event> {
        let mut decoder = Decoder::new(1 << 20);
        let mut out = Vec::new();
        for chunk in chunks {
            decoder.push(chunk);
            while let Some(event) = decoder.next_event().unwrap() {
                out.push(event);
            }
        }
        out
    }

    #[test]
    fn every_line_end_a_mark_and_any_cut_give_the_same_events() {
        let text = b"\xef\xbb\xbf: hello\r\n\r\nevent: message\rid: 4\ndata: {\r\ndata:\"a\":1}\r\n\r\nretry: 100\n\ndata\n\ndata: x\n\n";
        let whole = all(&[text]);
        assert_eq!(whole.len(), 4);
        assert_eq!(whole[0].message().unwrap(), "{\n\"a\":1}");
        assert_eq!(whole[0].id.as_deref(), Some("4"));
        assert_eq!(whole[1].retry, Some(Duration::from_millis(100)));
        assert_eq!(whole[2].data.as_deref(), Some(&b""[..]));
        assert_eq!(whole[3].message().unwrap(), "x");
        let bytes: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(all(&bytes), whole);
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        let wire = message(Some("1-2"), &Wire::from(Bytes::from_static(b"{\r\n\"a\":\n1}")));
        let events = all(&[&wire.into_bytes()]);
        assert_eq!(events[0].message().unwrap(), "{\n\n\"a\":\n1}");
        assert_eq!(events[0].id.as_deref(), Some("1-2"));
    }

    #[test]
    fn three_data_lines_are_joined_and_an_empty_first_one_counts() {
        assert_eq!(all(&[b"data:\ndata: b\ndata: c\n\n"])[0].data.as_deref(), Some(&b"\nb\nc"[..]));
    }

    #[test]
    fn an_event_over_the_limit_is_an_error_whether_or_not_its_line_ends() {
        let mut decoder = Decoder::new(1000);
        decoder.push(b"data: ");
        let mut result = Ok(None);
        for _ in 0..200 {
            decoder.push(&[b'x'; 1000]);
            result = decoder.next_event();
            if result.is_err() {
                break;
            }
        }
        assert_eq!(result, Err(TooLarge { limit: 1000 }));
    }
}

//! A message on its way out: a few shared slices of bytes, in order. Splicing an id or a name into a 16 MiB result copies the id,
//! not the result.

use bytes::{Bytes, BytesMut};
use std::ops::Range;

/// Up to this length a message is copied rather than shared: its parts would cost more.
const SMALL: usize = 2048;

/// Bytes to be written in order. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wire {
    parts: Vec<Bytes>,
    len: usize,
}

impl Wire {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn push(&mut self, part: impl Into<Bytes>) {
        let part = part.into();
        if !part.is_empty() {
            self.len += part.len();
            self.parts.push(part);
        }
    }

    pub fn extend(&mut self, other: Wire) {
        self.len += other.len;
        self.parts.extend(other.parts);
    }

    /// Total length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn parts(&self) -> &[Bytes] {
        &self.parts
    }

    pub fn into_parts(self) -> Vec<Bytes> {
        self.parts
    }

    /// One contiguous buffer; no copy where there is one part already.
    pub fn into_bytes(mut self) -> Bytes {
        match self.parts.len() {
            0 => Bytes::new(),
            1 => self.parts.swap_remove(0),
            _ => {
                let mut all = BytesMut::with_capacity(self.len);
                for part in &self.parts {
                    all.extend_from_slice(part);
                }
                all.freeze()
            }
        }
    }

    /// The same JSON text on one line, for transports that frame by lines (stdio). Raw line breaks are only legal between JSON
    /// tokens, where a blank means the same.
    pub fn into_line(self) -> Wire {
        let mut line = Wire::new();
        for part in self.parts {
            if memchr::memchr2(b'\n', b'\r', &part).is_none() {
                line.push(part);
            } else {
                let flat: Vec<u8> = part.iter().map(|&b| if matches!(b, b'\n' | b'\r') { b' ' } else { b }).collect();
                line.push(flat);
            }
        }
        line.push(Bytes::from_static(b"\n"));
        line
    }
}

impl From<Bytes> for Wire {
    fn from(bytes: Bytes) -> Self {
        let len = bytes.len();
        Wire { parts: if len == 0 { Vec::new() } else { vec![bytes] }, len }
    }
}

impl From<String> for Wire {
    fn from(text: String) -> Self {
        Bytes::from(text).into()
    }
}

/// Replacements at places of one buffer. Places must not overlap; order of adding does not matter.
#[derive(Clone, Debug, Default)]
pub struct Edits {
    list: Vec<(Range<usize>, Bytes)>,
}

impl Edits {
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts `text` where `place` is now. An empty place inserts.
    pub fn replace(&mut self, place: Range<usize>, text: impl Into<Bytes>) -> &mut Self {
        self.list.push((place, text.into()));
        self
    }

    /// The other's replacements too.
    pub fn extend(&mut self, other: &Edits) {
        self.list.extend_from_slice(&other.list);
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// What comes to this place.
    pub fn at(&self, place: &Range<usize>) -> Option<&Bytes> {
        self.list.iter().find(|(at, _)| at == place).map(|(_, text)| text)
    }

    /// Those whose places are inside of `part`.
    pub fn inside(&self, part: &Range<usize>) -> Edits {
        let inside = |place: &Range<usize>| place.start >= part.start && place.end <= part.end;
        Edits { list: self.list.iter().filter(|(place, _)| inside(place)).cloned().collect() }
    }

    /// Those whose places are outside of `part`.
    pub fn outside(&self, part: &Range<usize>) -> Edits {
        let outside = |place: &Range<usize>| place.end <= part.start || place.start >= part.end;
        Edits { list: self.list.iter().filter(|(place, _)| outside(place)).cloned().collect() }
    }

    /// `raw` with all replacements made. An edit that overlaps an earlier place or lies outside of `raw` is left out: that is a
    /// fault of the caller, caught in debug builds, and must not become a panic on a peer's bytes.
    pub fn apply(self, raw: &Bytes) -> Wire {
        self.apply_in(raw, 0..raw.len())
    }

    /// Of `part` of `raw` only, which all the places must be in.
    pub fn apply_in(mut self, raw: &Bytes, part: Range<usize>) -> Wire {
        self.list.sort_by_key(|(place, _)| place.start);
        if part.len() <= SMALL {
            return self.joined(raw, part);
        }
        let mut out = Wire::new();
        let mut at = part.start;
        for (place, text) in self.list {
            let fits = place.start >= at && place.start <= place.end && place.end <= part.end;
            debug_assert!(fits, "edit {place:?} does not fit (at {at}, length {})", raw.len());
            if fits {
                out.push(raw.slice(at..place.start));
                out.push(text);
                at = place.end;
            }
        }
        out.push(raw.slice(at..part.end));
        out
    }

    /// The same as one buffer, of edits in order.
    fn joined(self, raw: &Bytes, part: Range<usize>) -> Wire {
        if self.list.is_empty() {
            return raw.slice(part).into();
        }
        let more: usize = self.list.iter().map(|(_, text)| text.len()).sum();
        let mut out = BytesMut::with_capacity(part.len() + more);
        let mut at = part.start;
        for (place, text) in self.list {
            let fits = place.start >= at && place.start <= place.end && place.end <= part.end;
            debug_assert!(fits, "edit {place:?} does not fit (at {at}, length {})", raw.len());
            if fits {
                out.extend_from_slice(&raw[at..place.start]);
                out.extend_from_slice(&text);
                at = place.end;
            }
        }
        out.extend_from_slice(&raw[at..part.end]);
        out.freeze().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_made_in_order_of_place_and_leave_the_rest_alone() {
        let raw = Bytes::from_static(b"{\"id\":1,\"x\":1.0}");
        let mut edits = Edits::new();
        edits.replace(12..15, "2.00").replace(6..7, "\"client\"");
        assert_eq!(edits.apply(&raw).into_bytes(), "{\"id\":\"client\",\"x\":2.00}");
    }

    #[test]
    fn a_line_has_no_line_breaks_of_its_own() {
        let line = Wire::from(Bytes::from_static(b"{\r\n \"a\": 1\n}")).into_line().into_bytes();
        assert_eq!(line, "{   \"a\": 1 }\n");
    }
}

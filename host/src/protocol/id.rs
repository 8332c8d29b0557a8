//! JSON-RPC request ids, kept as the text that was on the wire.

use super::json::RawValue;
use bytes::Bytes;
use std::fmt;
use std::hash::{Hash, Hasher};

/// A request id: a string or an integer, never null (MCP base protocol, "Requests"). Number and string with the same digits differ;
/// two spellings of one string are the same id. The text goes back to its owner exactly as it came.
#[derive(Clone)]
pub struct RequestId {
    raw: Bytes,
    /// The decoded string where the raw text has escapes.
    decoded: Option<Box<str>>,
}

impl RequestId {
    /// None when the value is not a string or an integer (`1.0` is an integer written with a fraction of zero).
    pub fn read(value: &RawValue) -> Option<Self> {
        Self::from_raw(Bytes::copy_from_slice(value.get().as_bytes()))
    }

    /// As `read`, sharing `raw`, which must be the text of one JSON value.
    pub fn from_raw(raw: Bytes) -> Option<Self> {
        let text = std::str::from_utf8(&raw).ok()?;
        if text.starts_with('"') {
            let decoded = if text.contains('\\') { Some(serde_json::from_str::<String>(text).ok()?.into_boxed_str()) } else { None };
            return Some(RequestId { raw, decoded });
        }
        is_integer(text).then_some(RequestId { raw, decoded: None })
    }

    /// An id of our own making.
    pub fn number(n: u64) -> Self {
        RequestId { raw: Bytes::from(n.to_string()), decoded: None }
    }

    /// The JSON text.
    pub fn raw(&self) -> &Bytes {
        &self.raw
    }

    /// The number, where this is the plain form of one that we could have made.
    pub fn as_number(&self) -> Option<u64> {
        std::str::from_utf8(&self.raw).ok()?.parse().ok()
    }

    /// Whether it is the number `n`, or what some servers make of it: the string of its digits.
    pub fn stands_for(&self, n: u64) -> bool {
        self.as_number() == Some(n) || self.raw[..] == *format!("\"{n}\"").as_bytes()
    }

    fn key(&self) -> (bool, &[u8]) {
        match &self.decoded {
            Some(text) => (true, text.as_bytes()),
            None if self.raw.first() == Some(&b'"') => (true, &self.raw[1..self.raw.len() - 1]),
            None => (false, &self.raw),
        }
    }
}

fn is_integer(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let whole = match digits.split_once('.') {
        Some((whole, fraction)) if !fraction.is_empty() && fraction.bytes().all(|b| b == b'0') => whole,
        Some(_) => return false,
        None => digits,
    };
    !whole.is_empty() && whole.bytes().all(|b| b.is_ascii_digit())
}

impl PartialEq for RequestId {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for RequestId {}

impl Hash for RequestId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.raw))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &'static str) -> Option<RequestId> {
        RequestId::from_raw(Bytes::from_static(text.as_bytes()))
    }

    #[test]
    fn strings_and_integers_are_ids_and_nothing_else_is() {
        for good in ["0", "-1", "9007199254740993", "1.0", "\"\"", "\"a b\"", r#""\u00e9/\"""#] {
            assert_eq!(id(good).unwrap().raw(), good);
        }
        for bad in ["null", "1.5", "true", "{}", "[1]", "1e3", "-", "1."] {
            assert!(id(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn a_number_is_not_the_string_of_its_digits_and_spelling_does_not_matter() {
        assert_ne!(id("1"), id("\"1\""));
        assert_eq!(id("\"a\""), id("\"\\u0061\""));
    }
}

//! The `Mcp-Param-*` headers that a request of 2026-07-28 came with, as they came (transports/streamable-http, "Custom Headers from Tool
//! Parameters").
//!
//! Owns which headers these are and how many there may be. What they repeat is `mirror`'s; here nothing is decoded.

use super::headers::PARAM_PREFIX;
use http::HeaderMap;
use std::sync::{Arc, LazyLock};

/// Headers of one request: more than any tool can mark (`mirror`).
const MAX: usize = 96;
/// Bytes of their names and values, all together.
const MAX_BYTES: usize = 32 << 10;

/// Cheap to clone; where a request has none, nothing is allocated.
#[derive(Clone, Debug, Default)]
pub struct Brought(Option<Arc<HeaderMap>>);

/// There are too many of them, or they are too long: to be answered with 431.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the Mcp-Param-* headers of a request may be {MAX} with {MAX_BYTES} bytes, all together")]
pub struct TooMany;

impl Brought {
    /// Those among `headers`.
    ///
    /// # Errors
    /// [`TooMany`]: none is left out in silence.
    pub fn of(headers: &HeaderMap) -> Result<Self, TooMany> {
        let mut brought: Option<HeaderMap> = None;
        let mut bytes = 0;
        for (name, value) in headers.iter().filter(|(name, _)| name.as_str().starts_with(PARAM_PREFIX)) {
            let brought = brought.get_or_insert_default();
            bytes += name.as_str().len() + value.len();
            if brought.len() >= MAX || bytes > MAX_BYTES {
                return Err(TooMany);
            }
            brought.append(name, value.clone());
        }
        Ok(Brought(brought.map(Arc::new)))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// They and no others.
    pub fn headers(&self) -> &HeaderMap {
        static NONE: LazyLock<HeaderMap> = LazyLock::new(HeaderMap::new);
        self.0.as_deref().unwrap_or(&NONE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderName, HeaderValue};

    fn head(lines: impl IntoIterator<Item = (String, String)>) -> HeaderMap {
        let mut head = HeaderMap::new();
        for (name, value) in lines {
            head.append(name.parse::<HeaderName>().unwrap(), HeaderValue::from_str(&value).unwrap());
        }
        head
    }

    #[test]
    fn these_headers_are_kept_as_they_came_and_no_others() {
        let line = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let all = head([
            line("Mcp-Param-A", "=?base64?***?="),
            line("mcp-param-a", "again"),
            line("MCP-NAME", "t"),
            line("authorization", "Bearer x"),
            line("x-mcp-param-b", "no"),
        ]);
        let brought = Brought::of(&all).unwrap();
        assert!(brought.headers().get_all("mcp-param-a").iter().eq(["=?base64?***?=", "again"]));
        assert_eq!(brought.headers().len(), 2);
        let none = Brought::of(&head([line("mcp-name", "t")])).unwrap();
        assert!(none.is_empty() && none.headers().is_empty());
    }

    #[test]
    fn there_may_be_so_many_and_they_may_be_so_long() {
        let many = |count: usize| head((0..count).map(|n| (format!("mcp-param-{n}"), "x".to_owned())));
        assert_eq!(Brought::of(&many(MAX)).unwrap().headers().len(), MAX);
        assert_eq!(Brought::of(&many(MAX + 1)).unwrap_err(), TooMany);
        let long = head([("mcp-param-a".to_owned(), "x".repeat(MAX_BYTES))]);
        assert_eq!(Brought::of(&long).unwrap_err(), TooMany);
    }
}

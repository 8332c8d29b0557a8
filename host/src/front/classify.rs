//! Which era a request belongs to (2026-07-28 basic/versioning, "Compatibility").
//!
//! Up to 2025-11-25 a conversation begins with `initialize` and every later message names its session. From 2026-07-28 on there are no
//! sessions: each request says in `_meta` which revision it is. Both may come to one endpoint; the request alone decides.
//! The later era is not served yet: its requests are recognised, so that their senders fall back at once.

use crate::protocol::{Request, headers, json, method};
use http::HeaderMap;

/// The `_meta` key that carries the revision of a single request.
const REVISION_KEY: &str = "io.modelcontextprotocol/protocolVersion";

/// The first revision without sessions. Revisions are dates, so that they sort as text.
const MODERN: &[u8] = b"2026-07-28";

/// What a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The handshake that opens a session, whatever revision it asks for.
    Initialize,
    /// `initialize` in the form of an era that does not have it.
    ModernInitialize,
    /// A request that carries its own revision and names no session.
    Modern,
    /// Anything else: it belongs to a session, and is refused if it does not say to which.
    InSession,
}

/// Classifies a request. `named`: it carries `Mcp-Session-Id`.
pub fn request(headers: &HeaderMap, named: bool, request: &Request) -> Class {
    let modern = || names_modern(headers) || carries_revision(request);
    if &*request.method == method::INITIALIZE {
        // Without either it is a handshake all the same, with a member missing: the gateway says so.
        let usable = !matches!(request.param(&["protocolVersion"]), Ok(None));
        return if !usable && modern() { Class::ModernInitialize } else { Class::Initialize };
    }
    if !named && modern() { Class::Modern } else { Class::InSession }
}

/// Whether `MCP-Protocol-Version` names a revision without sessions.
pub fn names_modern(headers: &HeaderMap) -> bool {
    headers.get_all(headers::PROTOCOL_VERSION).iter().any(|v| is_modern(v.as_bytes()))
}

fn carries_revision(request: &Request) -> bool {
    // A member that occurs twice is none: the request is then refused for want of a session.
    request.param(&["_meta", REVISION_KEY]).ok().flatten().and_then(json::string).is_some_and(|v| is_modern(v.as_bytes()))
}

fn is_modern(revision: &[u8]) -> bool {
    let date = revision.len() == MODERN.len()
        && revision.iter().enumerate().all(|(i, b)| if matches!(i, 4 | 7) { *b == b'-' } else { b.is_ascii_digit() });
    date && revision >= MODERN
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Incoming;
    use bytes::Bytes;

    fn class(version: Option<&'static str>, named: bool, text: &'static str) -> Class {
        let Ok(Incoming::Request(message)) = Incoming::parse(Bytes::from_static(text.as_bytes())) else { panic!("{text}") };
        let mut headers = HeaderMap::new();
        if let Some(version) = version {
            headers.insert(headers::PROTOCOL_VERSION, version.parse().unwrap());
        }
        request(&headers, named, &message)
    }

    const META: &str = r#"{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
    const LIST: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;

    #[test]
    fn a_handshake_is_one_whatever_revision_it_asks_for() {
        for version in ["2024-11-05", "2025-11-25", "2026-07-28", "2099-01-01"] {
            let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{{"protocolVersion":"{version}"}}}}"#);
            assert_eq!(class(Some("2026-07-28"), false, text.leak()), Class::Initialize);
        }
        assert_eq!(
            class(None, true, r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":5}}"#),
            Class::Initialize
        );
        assert_eq!(class(None, false, r#"{"jsonrpc":"2.0","id":1,"method":"initialize"}"#), Class::Initialize);
    }

    #[test]
    fn initialize_in_the_form_of_the_later_era_is_no_handshake() {
        let text =
            r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
        assert_eq!(class(None, false, text), Class::ModernInitialize);
        assert_eq!(
            class(Some("2026-07-28"), false, r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#),
            Class::ModernInitialize
        );
    }

    #[test]
    fn a_request_with_a_revision_of_its_own_and_no_session_is_of_the_later_era() {
        assert_eq!(class(None, false, META), Class::Modern);
        assert_eq!(class(Some("2026-07-28"), false, LIST), Class::Modern);
        assert_eq!(class(None, true, META), Class::InSession);
        assert_eq!(class(Some("2025-11-25"), false, LIST), Class::InSession);
        assert_eq!(class(Some("9"), false, LIST), Class::InSession);
        assert_eq!(class(None, false, LIST), Class::InSession);
    }
}

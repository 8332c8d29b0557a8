//! Which era a message belongs to (2026-07-28 basic/versioning, "Compatibility").
//!
//! Up to 2025-11-25 a conversation begins with `initialize` and every later message names its session. From 2026-07-28 on there are no
//! sessions: each request says in `_meta` which revision it is. Both come to one endpoint; the message alone decides, never what its sender
//! did before.
//!
//! Where a message points both ways, what it says in its body is believed before its headers, and a session that it names before the version
//! header. What contradicts itself is then refused by the rules of the era that it was taken for; it is never served as the other.
//!
//! | `_meta` names | `Mcp-Session-Id` | version header | it is |
//! |---|---|---|---|
//! | a revision without sessions, or an unknown one | any | any | modern; the session is not looked at |
//! | a revision with sessions, or nothing readable | yes | any | of the session |
//! | the same | no | any | modern, and refused there |
//! | nothing | yes | any | of the session; a modern header is refused there |
//! | nothing | no | modern | modern, and refused there |
//! | nothing | no | other, or none | of a session that it does not name |

use crate::protocol::{Request, Version, headers, json, meta, method};
use http::HeaderMap;
use memchr::memmem::Finder;
use std::sync::LazyLock;

/// The first revision without sessions. Revisions are dates, so that they sort as text.
const MODERN: &[u8] = b"2026-07-28";

/// What every request of a later revision has somewhere.
static TOLD: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("protocolVersion"));

/// What a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The handshake that opens a session, whatever revision it asks for.
    Initialize,
    /// `initialize` in the form of an era that does not have it.
    ModernInitialize,
    /// A request that carries its own revision, or should.
    Modern,
    /// Anything else: it belongs to a session, and is refused if it does not say to which.
    InSession,
}

/// What `_meta` says of the revision.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Carried {
    Nothing,
    /// One without sessions, or one that is not known here: only the later era says it in this place.
    Modern,
    /// A revision that begins with `initialize`, no string, or two members of the name.
    Odd,
}

/// Classifies a request. `named`: it carries `Mcp-Session-Id`.
pub fn request(headers: &HeaderMap, named: bool, request: &Request) -> Class {
    if &*request.method == method::INITIALIZE {
        // Without either it is a handshake all the same, with a member missing: the gateway says so.
        let usable = !matches!(request.param(&["protocolVersion"]), Ok(None));
        let modern = || names_modern(headers) || carried(request) == Carried::Modern;
        return if !usable && modern() { Class::ModernInitialize } else { Class::Initialize };
    }
    match carried(request) {
        Carried::Modern => Class::Modern,
        Carried::Odd if !named => Class::Modern,
        Carried::Nothing if !named && names_modern(headers) => Class::Modern,
        Carried::Odd | Carried::Nothing => Class::InSession,
    }
}

/// Whether `MCP-Protocol-Version` names a revision without sessions. GET and DELETE with it are 405, also if they name a session: that era
/// has neither method, and a session that was ended or read on the word of such a request would be a guess.
pub fn names_modern(headers: &HeaderMap) -> bool {
    headers.get_all(headers::PROTOCOL_VERSION).iter().any(|v| is_modern(v.as_bytes().trim_ascii()))
}

/// Whether what is no request, and can therefore carry no revision of its own, is of the later era: a version header that says so, and no
/// session.
pub fn stray(headers: &HeaderMap, named: bool) -> bool {
    !named && names_modern(headers)
}

fn carried(request: &Request) -> Carried {
    // Every request of a session comes by here, and hardly any has it: one look over the bytes, before anything is parsed. (No client writes
    // letters as escapes; one that does is asked for its session.)
    let told = request.params_at.clone().is_some_and(|at| TOLD.find(&request.raw[at]).is_some());
    if !told {
        return Carried::Nothing;
    }
    match request.param(&["_meta", meta::PROTOCOL_VERSION]) {
        Ok(None) => Carried::Nothing,
        Ok(Some(value)) => match json::string(value) {
            Some(text) if Version::parse(&text).is_none() => Carried::Modern,
            _ => Carried::Odd,
        },
        Err(_) => Carried::Odd,
    }
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
    fn the_body_is_believed_before_the_session_and_the_session_before_the_header() {
        let meta = |revision: &str| {
            let text = format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{{"_meta":{{"io.modelcontextprotocol\/protocolVersion":{revision}}}}}}}"#
            );
            &*text.leak()
        };
        for header in [None, Some("2026-07-28"), Some("2025-11-25"), Some("9")] {
            for named in [false, true] {
                assert_eq!(class(header, named, META), Class::Modern);
                for revision in ["\"2099-01-01\"", "\"v999.0.0\"", "\"\""] {
                    assert_eq!(class(header, named, meta(revision)), Class::Modern, "{revision}");
                }
            }
            for odd in ["\"2025-11-25\"", "\"2024-11-05\"", "5", "null", "{}"] {
                assert_eq!(class(header, false, meta(odd)), Class::Modern, "{odd}");
                assert_eq!(class(header, true, meta(odd)), Class::InSession, "{odd}");
            }
            assert_eq!(class(header, true, LIST), Class::InSession);
        }
        for (header, told) in [
            (None, Class::InSession),
            (Some("2025-11-25"), Class::InSession),
            (Some("9"), Class::InSession),
            (Some("v999.0.0"), Class::InSession),
            (Some("2026-07-28"), Class::Modern),
            (Some(" 2026-07-28\t"), Class::Modern),
            (Some("2099-01-01"), Class::Modern),
        ] {
            assert_eq!(class(header, false, LIST), told, "{header:?}");
        }
        let twice = r#"{"jsonrpc":"2.0","id":1,"method":"x","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/protocolVersion":"2025-11-25"}}}"#;
        assert_eq!(class(None, false, twice), Class::Modern);
        assert_eq!(class(None, true, twice), Class::InSession);
    }

    #[test]
    fn the_word_alone_means_nothing() {
        let text = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"},"_meta":{"protocolVersion":"2026-07-28"}}}"#;
        assert_eq!(class(None, true, text), Class::InSession);
        assert_eq!(class(None, false, text), Class::InSession);
    }

    #[test]
    fn what_is_no_request_is_of_the_later_era_by_its_header_alone() {
        let mut headers = HeaderMap::new();
        assert!(!stray(&headers, false));
        headers.insert(headers::PROTOCOL_VERSION, "2026-07-28".parse().unwrap());
        assert!(stray(&headers, false) && !stray(&headers, true));
    }
}

//! The client's request as a modern server gets it: its own bytes, with this client's metadata spliced into `params._meta`
//! (2026-07-28 basic/index, "_meta") and, from the second round on, the answers to the server's questions.

use crate::admission::Room;
use crate::backend::{Hello, Outbound};
use crate::protocol::json::{self, Object};
use crate::protocol::members::{splice, splice_object};
use crate::protocol::mirror::{self, Mirrored};
use crate::protocol::{Edits, Version, Wire, meta, method};
use bytes::Bytes;
use http::HeaderMap;
use std::borrow::Cow;

const OURS: [&str; 4] = [meta::PROTOCOL_VERSION, meta::CLIENT_CAPABILITIES, meta::CLIENT_INFO, meta::LOG_LEVEL];
const INPUT_RESPONSES: &str = "inputResponses";
const REQUEST_STATE: &str = "requestState";

/// The members of `_meta` that say who asks.
#[derive(Debug)]
pub struct Meta {
    members: String,
}

/// A request that may have to be sent several times.
#[derive(Debug)]
pub struct Ask {
    out: Outbound,
}

/// What a further round adds.
#[derive(Debug, Default)]
pub struct Retry {
    /// JSON text of `inputResponses`; none where nothing was asked.
    pub responses: Option<String>,
    /// JSON text of `requestState`, as the server wrote it.
    pub state: Option<Bytes>,
}

impl Meta {
    pub fn new(hello: &Hello) -> Meta {
        // What a client of this era can do it can do with a server of this era.
        let capabilities = if hello.modern { hello.capabilities.clone() } else { without_tasks(&hello.capabilities) };
        let members = format!(
            "\"{}\":\"{}\",\"{}\":{},\"{}\":{}",
            meta::PROTOCOL_VERSION,
            Version::V2026_07_28,
            meta::CLIENT_CAPABILITIES,
            String::from_utf8_lossy(&capabilities),
            meta::CLIENT_INFO,
            String::from_utf8_lossy(&hello.client_info),
        );
        Meta { members }
    }

    /// `level`: JSON text of the log level that the session has set.
    pub fn members(&self, level: Option<&str>) -> String {
        match level {
            Some(level) => format!("{},\"{}\":{level}", self.members, meta::LOG_LEVEL),
            None => self.members.clone(),
        }
    }
}

/// What the client declared, without the tasks of either era: a task of one cannot be followed in the other.
pub fn without_tasks(declared: &Bytes) -> Bytes {
    let mut edits = Edits::new();
    let extensions =
        Object::parse(declared).ok().and_then(|c| Some(json::place(declared, c.only("extensions").filter(|e| json::is_object(e))?)));
    if splice(declared, 0..declared.len(), |name| name == "tasks", "", &mut edits).is_err() {
        return Bytes::from_static(b"{}");
    }
    if let Some(at) = extensions {
        // Read as an object a moment ago.
        let _ = splice(declared, at, |name| name == meta::TASKS, "", &mut edits);
    }
    edits.apply(declared).into_bytes()
}

impl Ask {
    pub fn new(out: Outbound) -> Ask {
        Ask { out }
    }

    pub fn method(&self) -> &str {
        &self.out.request.method
    }

    /// JSON text of the log level that the request itself wants.
    pub fn level(&self) -> Option<&str> {
        self.out.level.as_ref().and_then(|l| std::str::from_utf8(l).ok())
    }

    /// The client's headers that repeat arguments, as they came.
    pub fn brought(&self) -> &HeaderMap {
        self.out.brought.headers()
    }

    /// Where its answers get their room from.
    pub fn room(&self) -> Option<&Room> {
        self.out.room.as_ref()
    }

    /// The message for an older server, under `id`, which is also its progress token.
    pub fn older(&self, id: u64) -> Wire {
        let mut edits = self.out.edits.clone();
        without_meta(&self.out.request, &mut edits);
        if let Some(at) = &self.out.progress_token_at {
            edits.replace(at.clone(), id.to_string());
        }
        self.out.request.numbered(id, edits)
    }

    /// The message under `id`, which is also its progress token.
    pub fn message(&self, id: u64, members: &str, retry: Option<&Retry>) -> Wire {
        let mut edits = self.out.edits.clone();
        if let Some(at) = &self.out.progress_token_at {
            edits.replace(at.clone(), id.to_string());
        }
        self.splice(members, retry, &mut edits);
        self.out.request.numbered(id, edits)
    }

    fn splice(&self, members: &str, retry: Option<&Retry>, edits: &mut Edits) {
        let request = &self.out.request;
        let raw = &request.raw;
        let again = retry.map(Retry::members).unwrap_or_default();
        let with_meta = || {
            let comma = if again.is_empty() { "" } else { "," };
            format!("\"_meta\":{{{members}}}{comma}{again}")
        };
        let is_retry = |name: &str| retry.is_some() && matches!(name, INPUT_RESPONSES | REQUEST_STATE);
        let Some(params) = request.params_at.clone() else {
            let end = request.id_at.end;
            edits.replace(end..end, format!(",\"params\":{{{}}}", with_meta()));
            return;
        };
        // Both are objects that were read when the message came.
        let _ = match request.meta() {
            Some((at, meta)) => {
                splice_object(raw, at, &meta, |name| OURS.contains(&name), members, edits);
                if retry.is_some() { splice(raw, params, is_retry, &again, edits) } else { Ok(()) }
            }
            None => splice(raw, params, |name| name == "_meta" || is_retry(name), &with_meta(), edits),
        };
    }

    /// What the headers of its messages repeat. None where only the message itself can tell.
    pub fn mirrored(&self) -> Option<Mirrored<'_>> {
        let Outbound { request, edits, .. } = &self.out;
        let place = |member: &str| Some(json::place(&request.raw, request.param(&[member]).ok()??));
        if place("arguments").is_some_and(|arguments| !edits.inside(&arguments).is_empty()) {
            return None;
        }
        let name = match mirror::name_member(&request.method) {
            None => None,
            Some(member) => Some(match edits.at(&place(member)?) {
                Some(text) => Cow::Owned(serde_json::from_slice(text).ok()?),
                None => json::string(request.param(&[member]).ok()??)?,
            }),
        };
        Some(Mirrored { request, name })
    }
}

impl Retry {
    fn members(&self) -> String {
        let responses = self.responses.as_ref().map(|r| format!("\"{INPUT_RESPONSES}\":{r}"));
        let state = self.state.as_ref().map(|s| format!("\"{REQUEST_STATE}\":{}", String::from_utf8_lossy(s)));
        responses.into_iter().chain(state).collect::<Vec<_>>().join(",")
    }
}

/// Takes what only this era has out of the `_meta` of a request that goes to an older server, and out of a call what would make it a task
/// there, which no client of this era could follow.
pub fn without_meta(request: &crate::protocol::Request, edits: &mut Edits) {
    if &*request.method == method::TOOLS_CALL
        && let Some(params) = request.params_at.clone()
    {
        // Read as an object when the message came.
        let _ = splice(&request.raw, params, |name| name == "task", "", edits);
    }
    let Ok(Some(at)) = request.param(&["_meta"]).map(|m| m.map(|m| json::place(&request.raw, m))) else { return };
    // Not an object: it was refused before.
    let _ = splice(&request.raw, at, |name| OURS.contains(&name), "", edits);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Incoming;

    fn sent(text: &'static str, retry: Option<&Retry>) -> String {
        let Ok(Incoming::Request(request)) = Incoming::parse(Bytes::from_static(text.as_bytes())) else { panic!("{text}") };
        let progress_token_at = request.progress_token().ok().flatten().map(|t| t.at);
        let message = Ask::new(Outbound { progress_token_at, ..Outbound::own(request) }).message(9, "\"m\":1", retry);
        let text = String::from_utf8(message.into_bytes().to_vec()).unwrap();
        assert!(Incoming::parse(Bytes::from(text.clone())).is_ok(), "{text}");
        text
    }

    #[test]
    fn metadata_is_put_where_the_message_has_room_for_it_and_nothing_else_moves() {
        for (text, want) in [
            (r#"{"jsonrpc":"2.0","id":1,"method":"x"}"#, r#"{"jsonrpc":"2.0","id":9,"params":{"_meta":{"m":1}},"method":"x"}"#),
            (r#"{"jsonrpc":"2.0","method":"x","id":"a" }"#, r#"{"jsonrpc":"2.0","method":"x","id":9,"params":{"_meta":{"m":1}} }"#),
            (r#"{"jsonrpc":"2.0","id":1,"method":"x","params":{}}"#, r#"{"jsonrpc":"2.0","id":9,"method":"x","params":{"_meta":{"m":1}}}"#),
            (
                r#"{"params":{ "name":"t","arguments":{"a":1.0,"a":2}},"jsonrpc":"2.0","id":1,"method":"x"}"#,
                r#"{"params":{"_meta":{"m":1}, "name":"t","arguments":{"a":1.0,"a":2}},"jsonrpc":"2.0","id":9,"method":"x"}"#,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"x","params":{"n":0,"_meta":{"x":1.0,"progressToken":"p"}}}"#,
                r#"{"jsonrpc":"2.0","id":9,"method":"x","params":{"n":0,"_meta":{"m":1,"x":1.0,"progressToken":9}}}"#,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"x","params":{"_meta":{"io.modelcontextprotocol/clientInfo":{},"progressToken":2,"io.modelcontextprotocol\/logLevel":"debug"}}}"#,
                r#"{"jsonrpc":"2.0","id":9,"method":"x","params":{"_meta":{"m":1,"progressToken":9}}}"#,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"x","params":{"_meta":null}}"#,
                r#"{"jsonrpc":"2.0","id":9,"method":"x","params":{"_meta":{"m":1}}}"#,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"x","params":{"_meta":{"a":1},"n":0,"_meta":{"b":1}}}"#,
                r#"{"jsonrpc":"2.0","id":9,"method":"x","params":{"_meta":{"m":1},"n":0}}"#,
            ),
        ] {
            assert_eq!(sent(text, None), want);
        }
    }

    #[test]
    fn headers_repeat_the_name_that_is_sent_and_nothing_that_has_changed_unseen() {
        let text = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"b__t","arguments":{"a":"x"}}}"#;
        let name = |change: Option<(&str, &str)>| {
            let Ok(Incoming::Request(request)) = Incoming::parse(Bytes::from_static(text.as_bytes())) else { panic!() };
            let mut edits = Edits::new();
            if let Some((from, to)) = change {
                let at = text.find(from).unwrap();
                edits.replace(at..at + from.len(), to.to_owned());
            }
            let ask = Ask::new(Outbound { edits, ..Outbound::own(request) });
            ask.mirrored().map(|of| of.name.map(Cow::into_owned))
        };
        assert_eq!(name(None), Some(Some("b__t".into())));
        assert_eq!(name(Some(("\"b__t\"", r#""\u0074""#))), Some(Some("t".into())));
        assert_eq!(name(Some(("\"x\"", "1"))), None);
    }

    #[test]
    fn a_further_round_brings_answers_and_state_and_none_of_the_client() {
        let retry = Retry { responses: Some("{\"q\":{}}".into()), state: Some(Bytes::from_static(br#""\u00e9\/""#)) };
        for (text, want) in [
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"x"}"#,
                r#"{"jsonrpc":"2.0","id":9,"params":{"_meta":{"m":1},"inputResponses":{"q":{}},"requestState":"\u00e9\/"},"method":"x"}"#,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"x","params":{"requestState":"mine","_meta":{},"name":"t"}}"#,
                r#"{"jsonrpc":"2.0","id":9,"method":"x","params":{"inputResponses":{"q":{}},"requestState":"\u00e9\/","_meta":{"m":1},"name":"t"}}"#,
            ),
        ] {
            assert_eq!(sent(text, Some(&retry)), want);
        }
        let only_state = Retry { responses: None, state: Some(Bytes::from_static(b"\"s\"")) };
        assert!(
            sent(r#"{"jsonrpc":"2.0","id":1,"method":"x","params":{}}"#, Some(&only_state))
                .contains(r#""params":{"_meta":{"m":1},"requestState":"s"}"#)
        );
    }
}

//! The words of `subscriptions/listen`: what is asked for, and what comes back in the form of older revisions.

use crate::protocol::json::{self, Object};
use crate::protocol::members::splice;
use crate::protocol::{Edits, Incoming, Notification, meta, method};
use std::collections::BTreeSet;

/// Capability, member of the filter, notification.
pub const LISTS: [(&str, &str, &str); 3] = [
    ("tools", "toolsListChanged", method::TOOLS_CHANGED),
    ("prompts", "promptsListChanged", method::PROMPTS_CHANGED),
    ("resources", "resourcesListChanged", method::RESOURCES_CHANGED),
];

const URIS: &str = "resourceSubscriptions";
/// Of the extension `io.modelcontextprotocol/tasks`.
const TASKS: &str = "taskIds";

/// What an acknowledgement names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Honoured {
    pub uris: BTreeSet<String>,
    pub tasks: BTreeSet<String>,
}

/// JSON text of `params.notifications`; empty where nothing is wanted.
pub fn filter<'a>(capabilities: &[u8], uris: impl Iterator<Item = &'a str>, tasks: impl Iterator<Item = &'a str>) -> String {
    let lists = LISTS.iter().filter(|(capability, ..)| flag(capabilities, capability, "listChanged"));
    let mut members: Vec<String> = lists.map(|(_, member, _)| format!("\"{member}\":true")).collect();
    let mut add = |name: &str, texts: Vec<String>| {
        if !texts.is_empty() {
            members.push(format!("\"{name}\":[{}]", texts.join(",")));
        }
    };
    add(URIS, uris.map(json::quote).collect());
    add(TASKS, tasks.map(json::quote).collect());
    if members.is_empty() { String::new() } else { format!("{{{}}}", members.join(",")) }
}

/// Whether the capabilities, JSON text, have the member `name` with this flag set.
pub fn flag(capabilities: &[u8], name: &str, flag: &str) -> bool {
    let member = Object::parse(capabilities).ok().and_then(|c| c.only(name)).and_then(Object::of);
    member.and_then(|m| m.only(flag)).is_some_and(|v| v.get() == "true")
}

/// What an acknowledgement names.
pub fn honoured(note: &Notification) -> Option<Honoured> {
    let filter = Object::of(note.param(&["notifications"]).ok()??)?;
    let texts = |name: &str| {
        let list = filter.only(name).and_then(json::array).unwrap_or_default();
        list.into_iter().filter_map(json::string).map(|text| text.into_owned()).collect()
    };
    Some(Honoured { uris: texts(URIS), tasks: texts(TASKS) })
}

/// The stream that a notification says that it belongs to, or that it ends: its id.
pub fn stream_of(note: &Notification) -> Option<u64> {
    let path: &[&str] = if &*note.method == method::CANCELLED { &["requestId"] } else { &["_meta", meta::SUBSCRIPTION_ID] };
    let id = note.token_param(path).ok()??.value;
    std::str::from_utf8(id.raw()).ok()?.trim_matches('"').parse().ok()
}

/// The notification without the id of its stream, which means nothing to the client.
pub fn untagged(note: &Notification) -> Option<Notification> {
    let Some(found) = note.param(&["_meta"]).ok()? else { return Some(note.clone()) };
    let only_the_tag = Object::of(found)?.members().all(|(name, _)| name == meta::SUBSCRIPTION_ID);
    let mut edits = Edits::new();
    if only_the_tag {
        splice(&note.raw, note.params_at.clone()?, |name| name == "_meta", "", &mut edits).ok()?;
    } else {
        splice(&note.raw, json::place(&note.raw, found), |name| name == meta::SUBSCRIPTION_ID, "", &mut edits).ok()?;
    }
    match Incoming::parse(edits.apply(&note.raw).into_bytes()) {
        Ok(Incoming::Notification(note)) => Some(note),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn note(text: &'static str) -> Notification {
        let Ok(Incoming::Notification(note)) = Incoming::parse(Bytes::from_static(text.as_bytes())) else { panic!("{text}") };
        note
    }

    #[test]
    fn only_what_the_server_can_tell_of_is_asked_for() {
        let capabilities = br#"{"tools":{"listChanged":true},"prompts":{},"resources":{"listChanged":false,"subscribe":true}}"#;
        let none = std::iter::empty;
        assert_eq!(
            filter(capabilities, ["a \"", "b"].into_iter(), none()),
            r#"{"toolsListChanged":true,"resourceSubscriptions":["a \"","b"]}"#
        );
        assert_eq!(filter(b"{}", none(), ["t"].into_iter()), r#"{"taskIds":["t"]}"#);
        assert_eq!(filter(b"{}", none(), none()), "");
        let text = r#"{"jsonrpc":"2.0","method":"n","params":{"notifications":{"resourceSubscriptions":["a"],"taskIds":["\u0074",7]}}}"#;
        assert_eq!(honoured(&note(text)), Some(Honoured { uris: ["a".to_owned()].into(), tasks: ["t".to_owned()].into() }));
    }

    #[test]
    fn the_tag_of_a_stream_goes_and_the_rest_of_the_notification_stays() {
        for (text, want) in [
            (
                r#"{"jsonrpc":"2.0","method":"n","params":{"uri":"a", "_meta":{"io.modelcontextprotocol/subscriptionId":3}}}"#,
                r#"{"jsonrpc":"2.0","method":"n","params":{"uri":"a"}}"#,
            ),
            (
                r#"{"jsonrpc":"2.0","method":"n","params":{"_meta":{"x":1.0,"io.modelcontextprotocol/subscriptionId":"3"},"uri":"a"}}"#,
                r#"{"jsonrpc":"2.0","method":"n","params":{"_meta":{"x":1.0},"uri":"a"}}"#,
            ),
        ] {
            assert_eq!(stream_of(&note(text)), Some(3));
            assert_eq!(untagged(&note(text)).unwrap().raw, want);
        }
        let plain = r#"{"jsonrpc":"2.0","method":"n"}"#;
        assert_eq!(stream_of(&note(plain)), None);
        assert_eq!(untagged(&note(plain)).unwrap().raw, plain);
        assert_eq!(stream_of(&note(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":4}}"#)), Some(4));
    }
}

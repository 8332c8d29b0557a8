//! What the gateway says of itself at initialize: what its backends have, as far as it can route it.

use crate::backend::ServerHello;
use crate::protocol::json::{self, Object};
use crate::protocol::meta;
use crate::session::VirtualHost;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Whether the capabilities, JSON text, have a member of this name.
pub(super) fn has(capabilities: &[u8], name: &str) -> bool {
    Object::parse(capabilities).ok().and_then(|c| c.only(name)).is_some_and(|v| v.get().starts_with('{'))
}

fn has_flag(capabilities: &[u8], name: &str, flag: &str) -> bool {
    let member = Object::parse(capabilities).ok().and_then(|c| c.only(name)).and_then(Object::of);
    member.and_then(|m| m.only(flag)).is_some_and(|v| v.get() == "true")
}

/// What the gateway calls itself.
pub(super) fn of_itself() -> Value {
    json!({ "name": "lockgate", "title": "Lockgate", "version": env!("CARGO_PKG_VERSION") })
}

/// The union of what the connected backends have and the gateway routes. A backend that is missing now may bring any kind of list
/// later, so all are announced then: an empty list is served until it comes. Lists can change whenever a backend comes or goes.
pub(super) fn merged(hellos: &[Option<Arc<ServerHello>>]) -> Value {
    let any = |name: &str| hellos.iter().flatten().any(|h| has(&h.capabilities, name));
    let incomplete = hellos.iter().any(Option::is_none);
    let mut out = Map::new();
    for list in ["tools", "prompts"] {
        if any(list) || incomplete {
            out.insert(list.into(), json!({ "listChanged": true }));
        }
    }
    if any("resources") || incomplete {
        let subscribe = incomplete || hellos.iter().flatten().any(|h| has_flag(&h.capabilities, "resources", "subscribe"));
        out.insert(
            "resources".into(),
            if subscribe { json!({ "listChanged": true, "subscribe": true }) } else { json!({ "listChanged": true }) },
        );
    }
    for plain in ["logging", "completions"] {
        if any(plain) {
            out.insert(plain.into(), json!({}));
        }
    }
    Value::Object(out)
}

/// Whether calls of this server's tools may be made as tasks of 2025-11-25.
pub(super) fn takes_tasks(hello: &ServerHello) -> bool {
    !hello.version.is_modern() && reaches(&hello.capabilities, &["tasks", "requests", "tools", "call"])
}

/// Whether this server lists its tasks of 2025-11-25.
pub(super) fn lists_tasks(hello: &ServerHello) -> bool {
    !hello.version.is_modern() && reaches(&hello.capabilities, &["tasks", "list"])
}

/// `capabilities.tasks` of 2025-11-25: what its servers have of it. None where none has any, those of 2026-07-28 among them.
pub(super) fn tasks(hellos: &[Option<Arc<ServerHello>>]) -> Option<Value> {
    let legacy = || hellos.iter().flatten().filter(|h| !h.version.is_modern());
    if !legacy().any(|h| has(&h.capabilities, "tasks")) {
        return None;
    }
    let mut out = Map::new();
    for operation in ["list", "cancel"] {
        if legacy().any(|h| reaches(&h.capabilities, &["tasks", operation])) {
            out.insert(operation.into(), json!({}));
        }
    }
    if legacy().any(|h| takes_tasks(h)) {
        out.insert("requests".into(), json!({ "tools": { "call": {} } }));
    }
    Some(Value::Object(out))
}

/// `capabilities.extensions` of 2026-07-28: those that the gateway routes.
pub(super) fn extensions(hellos: &[Option<Arc<ServerHello>>]) -> Option<Value> {
    hellos.iter().flatten().any(|h| follows_tasks(h)).then(|| json!({ meta::TASKS: {} }))
}

/// Whether this server may answer calls with tasks of the extension of 2026-07-28.
pub(super) fn follows_tasks(hello: &ServerHello) -> bool {
    hello.version.is_modern() && reaches(&hello.capabilities, &["extensions", meta::TASKS])
}

/// Whether the capabilities, JSON text, have an object at this path.
fn reaches(capabilities: &[u8], path: &[&str]) -> bool {
    let Some((last, before)) = path.split_last() else { return true };
    let mut at = Object::parse(capabilities).ok();
    for name in before {
        at = at.and_then(|o| o.only(name)).and_then(Object::of);
    }
    at.and_then(|o| o.only(last)).is_some_and(json::is_object)
}

/// The instructions of the virtual host and of its backends, each under its name where there are several.
pub(super) fn instructions(host: &VirtualHost, hellos: &[Option<Arc<ServerHello>>]) -> Option<String> {
    let own = host.instructions.iter().cloned();
    let several = host.backends.len() > 1;
    let backends = host.backends.iter().zip(hellos).filter_map(|(backend, hello)| {
        let text = hello.as_ref()?.instructions.as_ref().filter(|t| !t.trim().is_empty())?;
        Some(if several { format!("# {}\n\n{text}", backend.name) } else { text.clone() })
    });
    let parts: Vec<String> = own.chain(backends).collect();
    (!parts.is_empty()).then(|| parts.join("\n\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Version;
    use bytes::Bytes;

    fn hello(version: Version, capabilities: &'static str) -> Option<Arc<ServerHello>> {
        let (capabilities, server_info) = (Bytes::from_static(capabilities.as_bytes()), Bytes::from_static(b"{}"));
        Some(Arc::new(ServerHello { version, capabilities, server_info, instructions: None }))
    }

    #[test]
    fn tasks_are_announced_as_far_as_servers_of_the_era_have_them() {
        let extension = r#"{"extensions":{"io.modelcontextprotocol/tasks":{}},"tasks":{"list":{}}}"#;
        let modern = hello(Version::V2026_07_28, extension);
        let listing = hello(Version::V2025_11_25, r#"{"tasks":{"list":{}},"extensions":{"io.modelcontextprotocol/tasks":{}}}"#);
        let calling = hello(Version::V2025_11_25, r#"{"tasks":{"cancel":{},"requests":{"tools":{"call":{}},"x":{}}}}"#);
        assert_eq!((tasks(&[modern.clone(), None]), extensions(&[listing.clone(), None])), (None, None));
        assert_eq!(tasks(&[modern.clone(), listing.clone()]), Some(json!({ "list": {} })));
        let all = json!({ "list": {}, "cancel": {}, "requests": { "tools": { "call": {} } } });
        assert_eq!(tasks(&[listing, calling.clone()]), Some(all));
        assert_eq!(extensions(&[calling, modern]), Some(json!({ "io.modelcontextprotocol/tasks": {} })));
    }
}

//! What the gateway says of itself at initialize: what its backends have, as far as it can route it.

use crate::backend::ServerHello;
use crate::protocol::json::Object;
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

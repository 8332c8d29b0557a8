//! The words of `initialize`, for every transport (2025-11-25 lifecycle, "Initialization").

use super::{BackendError, Hello, ServerHello, modern};
use crate::protocol::{RequestId, Response, Version, Wire, codes, json, method};
use bytes::Bytes;
use std::sync::Arc;

/// The `initialize` request: this client's own capabilities and name, as they are but for tasks of another era.
pub fn initialize(hello: &Hello, id: u64) -> Wire {
    // A client that would not begin so itself has the newest revision that does.
    let version = if hello.version.is_modern() { Version::LATEST } else { hello.version };
    let mut out = Wire::from(format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"initialize\",\"params\":{{\"protocolVersion\":\"{}\",\"capabilities\":",
        version
    ));
    // Tasks of one era cannot be followed in the other.
    out.push(if hello.modern { modern::without_tasks(&hello.capabilities) } else { hello.capabilities.clone() });
    out.push(Bytes::from_static(b",\"clientInfo\":"));
    out.push(hello.client_info.clone());
    out.push(Bytes::from_static(b"}}"));
    out
}

pub fn initialized() -> Wire {
    codes::notification(method::INITIALIZED, None)
}

/// The answer to a `ping`.
pub fn pong(id: &RequestId) -> Wire {
    codes::result(id, Bytes::from_static(b"{}"))
}

/// `notifications/cancelled` for a request of ours. `reason` is JSON text.
pub fn cancelled(id: u64, reason: Option<&str>) -> Wire {
    let reason = reason.map(|r| format!(",\"reason\":{r}")).unwrap_or_default();
    codes::notification(method::CANCELLED, Some(&format!("{{\"requestId\":{id}{reason}}}")))
}

/// Reads the answer to `initialize`.
pub fn read(backend: &Arc<str>, answer: &Response) -> Result<ServerHello, BackendError> {
    let wrong = |reason: String| BackendError::Protocol { backend: backend.clone(), reason };
    let body = answer.body();
    let object = json::Object::parse(&body).map_err(|_| wrong("the result of initialize is not an object".into()))?;
    if !answer.ok {
        let code = object.only("code").map_or("", |c| c.get());
        let message = object.only("message").and_then(json::string).unwrap_or_default();
        let message: String = message.chars().filter(|c| !c.is_control()).take(200).collect();
        return Err(BackendError::Unavailable {
            backend: backend.clone(),
            reason: format!("it refused initialize with error {code}: {message}"),
            retry_after: None,
        });
    }
    let version = object
        .only("protocolVersion")
        .and_then(json::string)
        .ok_or_else(|| wrong("the result of initialize names no protocolVersion".into()))?;
    let Some(version) = Version::parse(&version) else {
        let version: String = version.chars().filter(|c| !c.is_control()).take(40).collect();
        return Err(wrong(format!("it wants protocol version {version:?}, which is not supported")));
    };
    let object_text = |name: &str| object.only(name).filter(|v| json::is_object(v)).map(|v| Bytes::copy_from_slice(v.get().as_bytes()));
    Ok(ServerHello {
        version,
        capabilities: object_text("capabilities").unwrap_or_else(|| Bytes::from_static(b"{}")),
        server_info: object_text("serverInfo")
            .unwrap_or_else(|| Bytes::from(format!("{{\"name\":{},\"version\":\"\"}}", json::quote(backend)))),
        instructions: object.only("instructions").and_then(json::string).map(|t| t.into_owned()),
    })
}

//! Which era a server is of, found out on a pipe (`reach` has the same for HTTP). It is asked in the era of the client first, so that a server
//! of both needs no bridge, and in the other where that is refused (2026-07-28 versioning, server/discover).

use crate::backend::error::BackendError;
use crate::backend::inner::Inner;
use crate::backend::known::Era;
use crate::backend::pipe::Pipe;
use crate::backend::{ServerHello, handshake};
use crate::protocol::json::{self, Object};
use crate::protocol::{Response, Version, Wire, codes, meta, method};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;

/// A server that has said nothing to `server/discover` by then is taken for an older one. One that only starts slowly is asked again when
/// it refuses `initialize`.
const SILENCE: Duration = Duration::from_secs(3);

/// Shakes hands on a fresh pipe. The caller bounds the time.
pub async fn shake(inner: &Arc<Inner>, pipe: &Arc<Pipe>) -> Result<ServerHello, BackendError> {
    let known = &inner.backend.known;
    if known.eras().first(inner.hello.era()) == Era::Modern && inner.hello.modern {
        match tokio::time::timeout(SILENCE, found(inner, pipe)).await {
            Ok(Ok(hello)) => return Ok(hello),
            Ok(Err(Refused::Failed(error))) => {
                // Some servers end when something comes before `initialize`: the next attempt begins with that.
                known.found(Era::Modern, false);
                return Err(error);
            }
            Ok(Err(Refused::NotModern(_))) | Err(_) => known.found(Era::Modern, false),
        }
    }
    let id = inner.next_id();
    let answer = pipe.request(inner, id, handshake::initialize(&inner.hello, id)).await?;
    if !may_be_modern(&answer) {
        let hello = handshake::read(&inner.backend.name, &answer)?;
        pipe.send(inner, handshake::initialized()).await?;
        known.found(Era::Legacy, true);
        return Ok(hello);
    }
    match found(inner, pipe).await {
        Ok(hello) => {
            known.found(Era::Legacy, false);
            Ok(hello)
        }
        Err(Refused::NotModern(why)) => {
            tracing::debug!(backend = %inner.backend.name, session = %inner.hello.session_tag, %why, "not a server of 2026-07-28 either");
            Err(handshake::read(&inner.backend.name, &answer).err().unwrap_or(why))
        }
        Err(Refused::Failed(error)) => Err(error),
    }
}

/// Asks with `server/discover`.
async fn found(inner: &Arc<Inner>, pipe: &Arc<Pipe>) -> Result<ServerHello, Refused> {
    let id = inner.next_id();
    let answer = pipe.request(inner, id, discover(inner, id)).await.map_err(Refused::Failed)?;
    let hello = read(inner, &answer)?;
    pipe.set_modern();
    inner.backend.known.found(Era::Modern, true);
    Ok(hello)
}

/// Whether this answer to `initialize` may come from a server that does not have it.
pub fn may_be_modern(answer: &Response) -> bool {
    if answer.ok {
        let body = answer.body();
        let named = Object::parse(&body).ok().and_then(|o| json::string(o.only("protocolVersion")?).map(|v| v.into_owned()));
        return named.is_some_and(|v| v == Version::V2026_07_28.as_str());
    }
    matches!(
        answer.error_code(),
        Some(
            codes::METHOD_NOT_FOUND
                | codes::INVALID_PARAMS
                | codes::INVALID_REQUEST
                | codes::UNSUPPORTED_VERSION
                | codes::MISSING_CAPABILITY
                | codes::HEADER_MISMATCH
        )
    )
}

pub fn discover(inner: &Inner, id: u64) -> Wire {
    let members = inner.modern().meta.members(None);
    Wire::from(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{}\",\"params\":{{\"_meta\":{{{members}}}}}}}", method::DISCOVER))
}

/// Why `server/discover` brought nothing.
pub enum Refused {
    /// The server does not have the method, or not this era.
    NotModern(BackendError),
    Failed(BackendError),
}

/// A server that names the revisions which it speaks, and not this one. An older one among them is spoken to with `initialize`.
fn others(inner: &Inner, supported: &[String]) -> Refused {
    let error = inner.unavailable(format!("it speaks only these revisions: {}", supported.join(", ")), None);
    if supported.iter().any(|v| Version::parse(v).is_some()) { Refused::NotModern(error) } else { Refused::Failed(error) }
}

/// Whether the server would rather have been asked in this very revision: to be asked again, as it was.
pub fn names_ours(answer: &Response) -> bool {
    if answer.error_code() != Some(codes::UNSUPPORTED_VERSION) {
        return false;
    }
    let body = answer.body();
    let data = Object::parse(&body).ok().and_then(|o| o.only("data")).and_then(Object::of);
    let supported = data.and_then(|d| d.only("supported")).and_then(json::array).unwrap_or_default();
    supported.into_iter().filter_map(json::string).any(|v| v == Version::V2026_07_28.as_str())
}

/// Reads the answer to `server/discover`.
pub fn read(inner: &Inner, answer: &Response) -> Result<ServerHello, Refused> {
    let failed = |reason: &str| Refused::Failed(inner.broke(reason));
    let body = answer.body();
    let object = Object::parse(&body).map_err(|_| failed("the result of server/discover is not an object"))?;
    let versions = |of: &Object<'_>, name: &str| -> Vec<String> {
        let list = of.only(name).and_then(json::array).unwrap_or_default();
        list.into_iter().filter_map(json::string).take(16).map(|v| v.chars().filter(|c| !c.is_control()).take(20).collect()).collect()
    };
    if !answer.ok {
        let text = super::answer::error_text(&object);
        let data = object.only("data").and_then(Object::of);
        return Err(match answer.error_code() {
            Some(codes::UNSUPPORTED_VERSION) => others(inner, &data.map(|d| versions(&d, "supported")).unwrap_or_default()),
            Some(codes::MISSING_CAPABILITY) => Refused::Failed(inner.unavailable(format!("it refused server/discover with {text}"), None)),
            _ => Refused::NotModern(inner.unavailable(format!("it refused server/discover with {text}"), None)),
        });
    }
    let supported = versions(&object, "supportedVersions");
    if !supported.iter().any(|v| v == Version::V2026_07_28.as_str()) {
        return Err(others(inner, &supported));
    }
    let text = |value: Option<&json::RawValue>| value.filter(|v| json::is_object(v)).map(|v| Bytes::copy_from_slice(v.get().as_bytes()));
    let of_itself = object.only("_meta").and_then(Object::of);
    Ok(ServerHello {
        version: Version::V2026_07_28,
        capabilities: text(object.only("capabilities")).unwrap_or_else(|| Bytes::from_static(b"{}")),
        server_info: text(of_itself.and_then(|m| m.only(meta::SERVER_INFO)))
            .unwrap_or_else(|| Bytes::from(format!("{{\"name\":{},\"version\":\"\"}}", json::quote(&inner.backend.name)))),
        instructions: object.only("instructions").and_then(json::string).map(|t| t.into_owned()),
    })
}

//! What a request of 2026-07-28 must say of itself before anybody looks at what it asks for: its metadata (basic/index, "_meta"), and
//! headers that agree with its body (transports/streamable-http, "Server Validation").
//!
//! Owns the order of the checks and what each failure is answered with. How headers repeat a body is `protocol::mirror`'s. Nothing of the
//! request was run when it refuses.

use crate::gateway::{Level, OwnChambers, Said};
use crate::protocol::brought::TooMany;
use crate::protocol::json::{self, Object, RawValue};
use crate::protocol::mirror::{self, Mismatch};
use crate::protocol::{Request, RpcError, Version, codes, headers, meta};
use crate::session::Declares;
use http::{HeaderMap, StatusCode};
use std::sync::Arc;

/// What a request says of the client that sent it.
#[derive(Clone, Debug)]
pub struct Envelope {
    pub client: Arc<Said>,
    /// `logLevel`; without it the client wants no log messages.
    pub level: Option<Level>,
}

/// Why the request is refused, and the status that goes with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub status: StatusCode,
    pub error: RpcError,
}

/// Bytes that a client may say of itself.
const WORDS: usize = 64 * 1024;
/// Capabilities that are objects wherever they are declared.
const CAPABILITIES: [&str; 5] = ["elicitation", "experimental", "extensions", "roots", "sampling"];

const UNKNOWN_CLIENT: &str = r#"{"name":"unknown","version":"0"}"#;

/// Checks all that can be checked without knowing the tools, in this order: the revision in `_meta`, the same in the header, that it is
/// served, the rest of `_meta`, `Mcp-Method` and `Mcp-Name`.
///
/// `own`: what the connection has of its own, which remembers what the last request on it said of its client.
///
/// # Errors
/// All with 400. -32602 for metadata that is missing or malformed, -32020 for a header that is missing, doubled, malformed or says
/// something else than the body, -32022 with `{supported, requested}` for a revision that is not served in this form.
pub fn envelope(headers: &HeaderMap, request: &Request, own: &OwnChambers) -> Result<Envelope, Fault> {
    let meta = Meta::of(request)?;
    check_version(headers, &meta)?;
    let capabilities = meta.object(meta::CLIENT_CAPABILITIES)?.ok_or_else(|| missing(meta::CLIENT_CAPABILITIES))?;
    let info = meta.object(meta::CLIENT_INFO)?;
    let words = (capabilities.get(), info.map_or(UNKNOWN_CLIENT, RawValue::get));
    let said = own.said(words);
    if said.is_none() {
        check_words(capabilities, info)?;
    }
    let level = meta.level()?;
    mirror::check(request, None, headers)?;
    let client = said.unwrap_or_else(|| own.says(words, declares(capabilities)));
    Ok(Envelope { client, level })
}

fn declares(capabilities: &RawValue) -> Declares {
    let declared = Object::of(capabilities);
    let declared = |name: &str| declared.as_ref().and_then(|all| all.only(name)).filter(|value| json::is_object(value));
    let extensions = declared("extensions").and_then(Object::of);
    Declares {
        sampling: declared("sampling").is_some(),
        elicitation: declared("elicitation").is_some(),
        roots: declared("roots").is_some(),
        tasks: extensions.and_then(|all| all.only(meta::TASKS)).is_some_and(json::is_object),
    }
}

/// What a client says of itself is kept and passed on to servers: as long as its requests are apart, and in the form that these expect
/// (2026-07-28 schema, `ClientCapabilities`).
fn check_words(capabilities: &RawValue, info: Option<&RawValue>) -> Result<(), Fault> {
    let bytes = capabilities.get().len() + info.map_or(0, |info| info.get().len());
    if bytes > WORDS {
        return Err(invalid(format!(
            "`{}` and `{}` have {bytes} bytes, and may have {WORDS}",
            meta::CLIENT_CAPABILITIES,
            meta::CLIENT_INFO
        )));
    }
    let members = Object::of(capabilities);
    for (name, value) in members.iter().flat_map(Object::members) {
        if CAPABILITIES.contains(&name) && !json::is_object(value) && !json::is_null(value) {
            return Err(invalid(format!("`{name}` in `{}` must be an object", meta::CLIENT_CAPABILITIES)));
        }
    }
    Ok(())
}

/// `params._meta` of a request, which is an object.
struct Meta<'a>(&'a Request);

impl<'a> Meta<'a> {
    fn of(request: &'a Request) -> Result<Self, Fault> {
        let value = request.param(&["_meta"]).map_err(invalid)?;
        let value = value.ok_or_else(|| missing(meta::PROTOCOL_VERSION))?;
        if json::is_object(value) { Ok(Meta(request)) } else { Err(invalid("`params._meta` must be an object")) }
    }

    fn get(&self, key: &str) -> Result<Option<&'a RawValue>, Fault> {
        self.0.param(&["_meta", key]).map_err(invalid)
    }

    fn object(&self, key: &str) -> Result<Option<&'a RawValue>, Fault> {
        match self.get(key)? {
            Some(value) if !json::is_object(value) => Err(invalid(format!("`{key}` in `params._meta` must be an object"))),
            value => Ok(value),
        }
    }

    fn level(&self) -> Result<Option<Level>, Fault> {
        let Some(value) = self.get(meta::LOG_LEVEL)? else { return Ok(None) };
        let level = json::string(value).and_then(|name| Level::named(&name));
        level.map(Some).ok_or_else(|| invalid(format!("`{}` must be one of {}", meta::LOG_LEVEL, Level::NAMES.join(", "))))
    }
}

fn check_version(headers: &HeaderMap, meta: &Meta<'_>) -> Result<(), Fault> {
    let value = meta.get(meta::PROTOCOL_VERSION)?.ok_or_else(|| missing(meta::PROTOCOL_VERSION))?;
    let wanted = json::string(value).ok_or_else(|| invalid(format!("`{}` in `params._meta` must be a string", meta::PROTOCOL_VERSION)))?;
    let mismatch = |why: &str| Fault::from(Mismatch(format!("{} {why}", headers::PROTOCOL_VERSION)));
    let said = mirror::single(headers, &headers::PROTOCOL_VERSION)?.ok_or_else(|| mismatch("is missing"))?;
    if said.as_bytes().trim_ascii() != wanted.as_bytes() {
        return Err(mismatch("names another revision than `params._meta`"));
    }
    if wanted == Version::V2026_07_28.as_str() {
        return Ok(());
    }
    let served = Version::SERVED.map(Version::as_str);
    let text = match Version::parse(&wanted) {
        Some(_) => format!("{wanted} begins with `initialize`; requests that stand alone are served in {}", Version::V2026_07_28),
        None => format!("this revision is not served here; served are {}", served.join(", ")),
    };
    Err(bad(RpcError::new(codes::UNSUPPORTED_VERSION, text).with_data(serde_json::json!({ "supported": served, "requested": wanted }))))
}

fn bad(error: RpcError) -> Fault {
    Fault { status: StatusCode::BAD_REQUEST, error }
}

fn invalid(why: impl Into<String>) -> Fault {
    bad(RpcError::invalid_params(why))
}

fn missing(key: &str) -> Fault {
    invalid(format!("`{key}` is missing in `params._meta`: each request of {} carries it", Version::V2026_07_28))
}

impl From<Mismatch> for Fault {
    fn from(mismatch: Mismatch) -> Self {
        bad(RpcError::new(codes::HEADER_MISMATCH, mismatch.to_string()))
    }
}

impl From<TooMany> for Fault {
    fn from(why: TooMany) -> Self {
        Fault { status: StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, error: RpcError::new(codes::INVALID_REQUEST, why.to_string()) }
    }
}

#[cfg(test)]
mod tests;

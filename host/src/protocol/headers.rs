//! Header names of the streamable HTTP transport, and media types.

use http::HeaderName;

pub const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
pub const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
pub const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
pub const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// 2026-07-28: what the body says, said again.
pub const METHOD: HeaderName = HeaderName::from_static("mcp-method");
/// 2026-07-28.
pub const NAME: HeaderName = HeaderName::from_static("mcp-name");
/// 2026-07-28: how the names of headers that repeat a tool's arguments begin.
pub const PARAM_PREFIX: &str = "mcp-param-";

pub const JSON: &str = "application/json";
pub const EVENT_STREAM: &str = "text/event-stream";

/// The media type of a `Content-Type` value: without parameters, in lower case.
pub fn media_type(value: &str) -> String {
    bare(value).to_ascii_lowercase()
}

/// Whether that is `media`, which is in lower case.
pub fn is_of(value: &str, media: &str) -> bool {
    bare(value).eq_ignore_ascii_case(media)
}

fn bare(value: &str) -> &str {
    value.split(';').next().unwrap_or("").trim()
}

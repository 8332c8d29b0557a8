//! JSON-RPC errors that the gateway itself answers with.
//!
//! Our own codes lie outside of -32768..-32000, which JSON-RPC and MCP reserve (2026-07-28 base protocol, "Error codes").

use super::{RequestId, Wire, json};
use bytes::Bytes;

pub const PARSE_ERROR: i64 = -32700;
pub const INVALID_REQUEST: i64 = -32600;
pub const METHOD_NOT_FOUND: i64 = -32601;
pub const INVALID_PARAMS: i64 = -32602;
pub const INTERNAL_ERROR: i64 = -32603;
/// Resource not found, up to 2025-11-25 (server/resources, "Error Handling").
pub const RESOURCE_NOT_FOUND: i64 = -32002;
/// Headers do not say what the body says (2026-07-28).
pub const HEADER_MISMATCH: i64 = -32020;
/// The request needs a capability that its client did not declare (2026-07-28).
pub const MISSING_CAPABILITY: i64 = -32021;
/// The revision that the request names is not spoken (2026-07-28).
pub const UNSUPPORTED_VERSION: i64 = -32022;

/// A backend is down, or cannot be reached. Nothing was run.
pub const BACKEND_UNAVAILABLE: i64 = -31001;
/// A backend did not answer in time. What it did is unknown.
pub const BACKEND_TIMEOUT: i64 = -31002;
/// The connection to a backend broke while it had the request. What it did is unknown, and the call is not repeated.
pub const BACKEND_FATE_UNKNOWN: i64 = -31003;
/// A backend answered with something that is not MCP.
pub const BACKEND_PROTOCOL: i64 = -31004;
/// A policy failed, so the request was refused. Nothing was run.
pub const POLICY_FAILED: i64 = -31005;
/// The session has no room for another request. Nothing was run.
pub const OVERLOADED: i64 = -31006;
/// Who is asking, or from where, is not acceptable (authentication, Origin, Host).
pub const REFUSED: i64 = -31007;
/// The session named by the request is not known (any more), or none was named.
pub const NO_SESSION: i64 = -31008;
/// The client did not answer a request of the server in time, or has gone.
pub const CLIENT_GONE: i64 = -31009;

/// A policy refuses the request, and says why. Nothing was run.
pub const POLICY_REFUSED: i64 = -31010;

/// An error of the gateway's own, not yet addressed to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RpcError {
    pub code: i64,
    pub message: String,
    /// JSON text of `error.data`.
    pub data: Option<String>,
}

impl RpcError {
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        RpcError { code, message: message.into(), data: None }
    }

    pub fn invalid_params(message: impl Into<String>) -> Self {
        Self::new(INVALID_PARAMS, message)
    }

    pub fn with_data(mut self, data: serde_json::Value) -> Self {
        self.data = Some(data.to_string());
        self
    }

    /// The response message. Without an id the member is left out: the message then answers no request in particular.
    pub fn to_message(&self, id: Option<&RequestId>) -> Wire {
        let mut out = Wire::new();
        out.push(Bytes::from_static(b"{\"jsonrpc\":\"2.0\","));
        if let Some(id) = id {
            out.push(Bytes::from_static(b"\"id\":"));
            out.push(id.raw().clone());
            out.push(Bytes::from_static(b","));
        }
        let mut error = format!("\"error\":{{\"code\":{},\"message\":{}", self.code, json::quote(&self.message));
        if let Some(data) = &self.data {
            error.push_str(",\"data\":");
            error.push_str(data);
        }
        error.push_str("}}");
        out.push(error);
        out
    }
}

/// `{"jsonrpc":"2.0","id":…,"result":…}` where `result` is JSON text.
pub fn result(id: &RequestId, result: impl Into<Bytes>) -> Wire {
    let mut out = Wire::new();
    out.push(Bytes::from_static(b"{\"jsonrpc\":\"2.0\",\"id\":"));
    out.push(id.raw().clone());
    out.push(Bytes::from_static(b",\"result\":"));
    out.push(result);
    out.push(Bytes::from_static(b"}"));
    out
}

/// `{"jsonrpc":"2.0","method":…,"params":…}` where `params` is JSON text, or absent.
pub fn notification(method: &str, params: Option<&str>) -> Wire {
    Wire::from(match params {
        Some(params) => format!("{{\"jsonrpc\":\"2.0\",\"method\":{},\"params\":{params}}}", json::quote(method)),
        None => format!("{{\"jsonrpc\":\"2.0\",\"method\":{}}}", json::quote(method)),
    })
}

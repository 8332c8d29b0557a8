//! What goes wrong on the way to a server, with what is known of the request's fate.

use crate::protocol::RpcError;
use crate::protocol::codes;
use std::sync::Arc;
use std::time::Duration;

/// What is known of a request that was not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The server has not processed it: it may be sent again.
    NotRun,
    /// The server may have processed it: it must not be sent again by itself.
    Unknown,
}

/// An error on the hop to one backend. Its text names the backend and is fit for the client: it holds no credential and no URL path.
#[derive(Clone, Debug, thiserror::Error)]
pub enum BackendError {
    /// Down, refused, cannot be started, or not yet connected.
    #[error("backend `{backend}` is not available: {reason}")]
    Unavailable { backend: Arc<str>, reason: String, retry_after: Option<Duration> },
    /// No answer within its time limit.
    #[error("backend `{backend}` did not answer within {limit:?}")]
    Timeout { backend: Arc<str>, limit: Duration },
    /// The connection, or the child process, ended while it had the request.
    #[error("backend `{backend}` broke off: {reason}; whether the call was run is not known, so it was not repeated")]
    Broken { backend: Arc<str>, reason: String },
    /// An HTTP status that is not an answer (401, 403, 429, 5xx, …).
    #[error("backend `{backend}` refused the request with HTTP status {status}")]
    Status { backend: Arc<str>, status: u16, retry_after: Option<Duration> },
    /// Not MCP: wrong content type, malformed JSON, an answer to another id, a message over the size limit.
    #[error("backend `{backend}` broke the protocol: {reason}")]
    Protocol { backend: Arc<str>, reason: String },
    /// The server asked the client for something that the call needs, and did not get it.
    #[error("backend `{backend}` needs an answer of the client and did not get it: {reason}")]
    Input { backend: Arc<str>, reason: String },
    /// The session (or the gateway) is closing.
    #[error("the session ended before the call was answered; whether it was run is not known")]
    Closed,
}

/// Whether a server with this status says that it did not do what it was asked (RFC 9110, 15.5). 408 may come in the middle of it.
fn refuses(status: u16) -> bool {
    matches!(status, 400..500) && status != 408
}

impl BackendError {
    pub fn fate(&self) -> Fate {
        match self {
            BackendError::Unavailable { .. } => Fate::NotRun,
            BackendError::Status { status, .. } if refuses(*status) => Fate::NotRun,
            _ => Fate::Unknown,
        }
    }

    /// The error that the client gets. `data` says which backend, what kind, and whether a retry is safe.
    pub fn to_rpc(&self) -> RpcError {
        let (code, kind, backend, retry_after) = match self {
            BackendError::Unavailable { backend, retry_after, .. } => {
                (codes::BACKEND_UNAVAILABLE, "unavailable", Some(backend), *retry_after)
            }
            BackendError::Timeout { backend, .. } => (codes::BACKEND_TIMEOUT, "timeout", Some(backend), None),
            BackendError::Broken { backend, .. } => (codes::BACKEND_FATE_UNKNOWN, "broken", Some(backend), None),
            BackendError::Status { backend, status, .. } if !refuses(*status) => {
                (codes::BACKEND_FATE_UNKNOWN, "status", Some(backend), None)
            }
            BackendError::Status { backend, retry_after, .. } => (codes::BACKEND_UNAVAILABLE, "status", Some(backend), *retry_after),
            BackendError::Protocol { backend, .. } => (codes::BACKEND_PROTOCOL, "protocol", Some(backend), None),
            BackendError::Input { backend, .. } => (codes::CLIENT_GONE, "input", Some(backend), None),
            BackendError::Closed => (codes::BACKEND_FATE_UNKNOWN, "closed", None, None),
        };
        let mut data = serde_json::json!({ "kind": kind, "retrySafe": self.fate() == Fate::NotRun });
        if let Some(backend) = backend {
            data["backend"] = serde_json::Value::from(&**backend);
        }
        if let Some(wait) = retry_after {
            data["retryAfterMs"] = serde_json::Value::from(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
        }
        RpcError::new(code, self.to_string()).with_data(data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_have_been_run_is_never_said_to_be_safe_to_repeat() {
        let status = |status| BackendError::Status { backend: "b".into(), status, retry_after: None };
        for (error, safe, code) in [
            (BackendError::Closed, false, codes::BACKEND_FATE_UNKNOWN),
            (status(500), false, codes::BACKEND_FATE_UNKNOWN),
            (status(403), true, codes::BACKEND_UNAVAILABLE),
            (status(408), false, codes::BACKEND_FATE_UNKNOWN),
            (status(304), false, codes::BACKEND_FATE_UNKNOWN),
            (status(101), false, codes::BACKEND_FATE_UNKNOWN),
            (BackendError::Broken { backend: "b".into(), reason: "r".into() }, false, codes::BACKEND_FATE_UNKNOWN),
            (BackendError::Unavailable { backend: "b".into(), reason: "r".into(), retry_after: None }, true, codes::BACKEND_UNAVAILABLE),
        ] {
            let rpc = error.to_rpc();
            assert_eq!(rpc.code, code, "{error}");
            assert!(rpc.data.unwrap().contains(&format!("\"retrySafe\":{safe}")), "{error}");
        }
    }
}

//! A configured backend: where it is, how to reach it, and how long and how large things may get.
//!
//! Built once per backend and shared by all sessions; holds nothing that belongs to a session.

use super::http::HttpClient;
use super::known::Known;
use http::{HeaderMap, Uri};
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// One configured backend.
#[derive(Clone, Debug)]
pub struct Backend {
    pub name: Arc<str>,
    pub target: Target,
    pub timeouts: Timeouts,
    pub limits: Limits,
    /// The client of the process; the connections are those of each session.
    pub http: HttpClient,
    /// What its sessions have found out about it.
    pub known: Known,
}

/// Where a backend is.
#[derive(Clone)]
pub enum Target {
    Http {
        /// Absolute, `http` or `https`. Never printed: it may hold a secret.
        uri: Uri,
        transport: HttpTransport,
        /// Sent with every request to this backend. Those that the transport itself needs (see `http::link`) are overruled.
        headers: HeaderMap,
    },
    Stdio {
        /// A path, or a name that is looked up in `PATH`.
        program: PathBuf,
        args: Vec<OsString>,
        /// Added to the few variables that a child gets from the gateway's own environment.
        env: Vec<(String, String)>,
        /// None: the gateway's own.
        cwd: Option<PathBuf>,
    },
}

/// Which of the HTTP transports a backend speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HttpTransport {
    /// Streamable HTTP; where its initialize is refused, HTTP+SSE (2025-11-25 transports, "Backwards Compatibility").
    #[default]
    Auto,
    /// 2025-03-26 and later.
    StreamableHttp,
    /// HTTP+SSE of 2024-11-05.
    Sse,
}

/// How long to wait for a backend.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// For connecting and `initialize` over HTTP. A child process may take up to a minute to start; callers do not wait that long.
    pub initialize: Duration,
    pub list: Duration,
    pub call: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Timeouts { initialize: Duration::from_secs(5), list: Duration::from_secs(5), call: Duration::from_secs(300) }
    }
}

/// How large things may get.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of one message from the backend. A larger one fails its call.
    pub message: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { message: 64 << 20 }
    }
}

impl fmt::Debug for Target {
    /// Without anything that may be a secret: no path, query, header value, argument or environment.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Http { uri, transport, .. } => {
                write!(f, "Http({transport:?}, {}://{}:{:?})", uri.scheme_str().unwrap_or(""), uri.host().unwrap_or(""), uri.port_u16())
            }
            Target::Stdio { program, .. } => write!(f, "Stdio({:?})", program.file_name().unwrap_or_default()),
        }
    }
}

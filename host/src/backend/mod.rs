//! One session's way to one MCP server: streamable HTTP, legacy HTTP+SSE, or a stdio child.
//!
//! Owns the connection, its initialize handshake, ids and progress tokens on that hop, re-initialisation, reconnecting with backoff, and
//! the end of all of it. An `Upstream` belongs to exactly one session and is never shared. It knows no other backend and nothing of
//! the downstream client's wire form; it is called by `session` and `gateway`.

mod announce;
mod backoff;
mod call;
mod connect;
mod error;
mod handshake;
mod http;
mod inbox;
mod inner;
mod known;
mod link;
mod modern;
mod phase;
mod pipe;
mod restore;
mod stdio;
mod target;
#[cfg(test)]
mod tests;
mod upstream;
mod waits;

pub use call::Call;
pub use error::{BackendError, Fate};
pub use http::HttpClient;
pub use http::flow::{Flow, Flows, Taker};
pub use inbox::{Inbox, Letters};
pub use known::{Era, Eras, Known};
pub use target::{Backend, HttpTransport, Limits, Target, Timeouts};
pub use upstream::Upstream;

use crate::protocol::brought::Brought;
use crate::protocol::{Edits, Notification, Request, RequestId, Response, Version};
use bytes::Bytes;
use std::sync::Arc;

/// What a session says of itself when it connects to a server: this client's own words, not the gateway's.
#[derive(Clone, Debug)]
pub struct Hello {
    /// The revision asked for: the one that the client negotiated.
    pub version: Version,
    /// The client is of 2026-07-28: what it says goes with its requests, and a server of both eras is spoken to in this one.
    pub modern: bool,
    /// JSON text of `capabilities`.
    pub capabilities: Bytes,
    /// JSON text of `clientInfo`.
    pub client_info: Bytes,
    /// A short hash that stands for the session in logs.
    pub session_tag: Arc<str>,
}

impl Hello {
    /// The era of the client.
    fn era(&self) -> known::Era {
        if self.modern { known::Era::Modern } else { known::Era::Legacy }
    }
}

/// What a server said of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerHello {
    pub version: Version,
    /// JSON text of `capabilities`; an object.
    pub capabilities: Bytes,
    /// JSON text of `serverInfo`.
    pub server_info: Bytes,
    pub instructions: Option<String>,
}

/// What comes from a server that is not the answer to one of our calls, nor part of a call's own stream.
#[derive(Debug)]
pub enum FromServer {
    /// Connected (for the first time, or again after it was down). Not sent for a silent re-initialisation
    /// after a lost session, unless the server says something else of itself than before.
    Up(Arc<ServerHello>),
    /// The connection is gone; calls fail until `Up`. The text says why.
    Down(Arc<str>),
    /// An unrelated notification (list_changed, updated, log messages, …). Never progress.
    Notification(Notification),
    /// A request to the client (sampling, elicitation, roots, …). Never ping: the upstream answers that itself.
    Request(Request),
}

/// What happens during a call, in the order in which the server sent it. Nothing follows `Answer`, `Flow` or `Failed`.
#[derive(Debug)]
pub enum CallEvent {
    /// A notification on the call's own stream; for stdio and HTTP+SSE, one that came while this was the only call.
    Notification(Notification),
    /// Progress of this call. The token in the message is the upstream's own; `token_at` is where it stands.
    Progress {
        message: Notification,
        token_at: std::ops::Range<usize>,
    },
    /// A request of the server that belongs to this call. Answer it with `Upstream::respond`.
    Request(Request),
    /// The answer; its id is the upstream's own.
    Answer(Response),
    /// The answer is large, and has only begun: nothing follows, and the call is over but for this. Only of a request that may flow.
    Flow(Box<Flow>),
    Failed(BackendError),
}

/// A request that is to be sent: the client's own bytes and what has to change in them. The upstream adds its id and progress token.
#[derive(Clone, Debug)]
pub struct Outbound {
    pub request: Arc<Request>,
    /// Replacements in `request.raw`, apart from the id and `params._meta.progressToken`.
    pub edits: Edits,
    /// The place of `params._meta.progressToken`, where the client gave one.
    pub progress_token_at: Option<std::ops::Range<usize>>,
    /// Where large messages that come for it get their room. None: it is not limited, because what comes is the gateway's own to keep.
    pub room: Option<crate::admission::Room>,
    /// That a large answer may be given on while it is read. Over pipes, and from a server of 2026-07-28, it is read whole all the same.
    pub flows: Option<Flows>,
    /// JSON text of the log level that this request wants; only of a client of 2026-07-28.
    pub level: Option<Bytes>,
    /// The `Mcp-Param-*` headers that such a client sent. Those that the server's lists do not explain go on to a modern one.
    pub brought: Brought,
}

impl Outbound {
    /// A request that the gateway makes itself.
    pub fn own(request: impl Into<Arc<Request>>) -> Self {
        Outbound {
            request: request.into(),
            edits: Edits::new(),
            progress_token_at: None,
            room: None,
            flows: None,
            level: None,
            brought: Brought::default(),
        }
    }
}

/// Id of a call on the upstream hop.
pub type CallId = u64;

/// The state of an upstream, for lists, errors and policies.
#[derive(Clone, Debug)]
pub enum State {
    /// The first attempt, or one after it was down, is under way.
    Connecting,
    Connected(Arc<ServerHello>),
    /// Down since the last attempt failed; it is tried again in the background.
    Down(Arc<str>),
    Closed,
}

/// The id that a server gave to a request of its own, to answer it with.
pub type ServerRequestId = RequestId;

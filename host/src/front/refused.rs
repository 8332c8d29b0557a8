//! Why the front refuses a request. Whatever is refused here was not run.

use super::body::Pace;
use super::modern::check::Fault;
use crate::gateway::Refusal;
use crate::protocol::{ParseError, RequestId};

/// A refusal, before it becomes HTTP in `respond`.
#[derive(Debug)]
pub enum Refused {
    /// The path leads to no virtual host.
    Path,
    /// No `Host` header, or several.
    NoHost,
    /// A `Host` that is not allowed.
    Host,
    /// An `Origin` that is not allowed.
    Origin,
    /// A method that the endpoint does not have.
    Method,
    /// GET and DELETE belong to sessions, which the named revision does not have.
    MethodOfSessions,
    NoToken,
    BadToken,
    /// The client can read no form of the answer; `wanted` are the forms there are.
    NotAcceptable {
        wanted: &'static str,
    },
    ContentType,
    ContentEncoding,
    BodyTooLarge {
        limit: usize,
    },
    BodySlow(Pace),
    BodyCut,
    Parse(ParseError),
    /// An array, where the session's revision has none.
    Batch,
    BatchEmpty,
    BatchTooLong {
        limit: usize,
    },
    /// Element `at` of a batch is no message.
    BatchElement {
        at: usize,
        error: ParseError,
    },
    BatchInitialize,
    /// No `Mcp-Session-Id`.
    NoSession(Option<RequestId>),
    /// A value that no server could have given out, or several.
    MalformedSession(Option<RequestId>),
    /// Unknown, ended, or somebody else's: the client is told the same for each.
    UnknownSession(Option<RequestId>),
    /// `MCP-Protocol-Version` names a revision that is not served.
    Revision(Option<RequestId>),
    /// A request of the era without sessions is not what it should be.
    Fault {
        fault: Box<Fault>,
        id: RequestId,
    },
    ModernInitialize(RequestId),
    /// A response, in the era in which servers ask nothing that it could answer.
    ModernResponse,
    /// `Last-Event-ID` is not one of ours, or what it names is not kept any more.
    EventId,
    /// The gateway did not take the request.
    Gateway {
        refusal: Box<Refusal>,
        id: Option<RequestId>,
    },
    /// A task of the gateway ended before its time.
    Broken(Option<RequestId>),
}

impl From<ParseError> for Refused {
    fn from(error: ParseError) -> Self {
        Refused::Parse(error)
    }
}

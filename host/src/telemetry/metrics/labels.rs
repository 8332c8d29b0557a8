//! The label values. A new one is a new enum case, here and nowhere else.

use http::StatusCode as HttpStatus;

use crate::protocol::method;

/// An enum whose cases are label values, numbered from zero.
pub trait Label: Copy + Send + Sync + std::fmt::Debug + 'static {
    const ALL: &'static [Self];
    fn index(self) -> usize;
    /// Label names and values of a series, in that order for all cases.
    fn labels(self) -> Vec<(&'static str, &'static str)>;
}

macro_rules! label {
    ($(#[$about:meta])* $name:ident ($($key:literal),+) { $($(#[$doc:meta])* $case:ident => $($value:expr),+;)+ }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$doc])* $case,)+ }

        impl Label for $name {
            const ALL: &'static [Self] = &[$($name::$case,)+];

            fn index(self) -> usize {
                self as usize
            }

            fn labels(self) -> Vec<(&'static str, &'static str)> {
                let values = match self { $($name::$case => [$($value),+],)+ };
                [$($key),+].into_iter().zip(values).collect()
            }
        }
    };
}

label! {
    /// What happened to a session.
    SessionEvent("event") {
        Opened => "opened";
        /// By DELETE.
        ClosedByClient => "closed_by_client";
        /// By DELETE at the admin port.
        ClosedByOperator => "closed_by_operator";
        /// By `session.idle_timeout` or `session.max_lifetime`.
        Expired => "expired";
        /// Made room for another session of its principal.
        Evicted => "evicted";
        Shutdown => "shutdown";
    }
}

label! {
    /// How a client's request ended.
    Outcome("outcome") {
        Ok => "ok";
        /// Answered with a JSON-RPC error that a backend or the protocol asked for.
        Error => "error";
        /// Turned away before it was looked at (authentication, admission, malformed).
        Refused => "refused";
        /// By `notifications/cancelled`.
        Cancelled => "cancelled";
        Timeout => "timeout";
        /// No backend to answer it.
        Unavailable => "unavailable";
        /// The answer broke off after its head was given on.
        Cut => "cut";
        /// The client left before the answer, or in the middle of it.
        Disconnected => "disconnected";
    }
}

label! {
    /// How a request to a backend ended.
    BackendOutcome("outcome") {
        Ok => "ok";
        /// A JSON-RPC error, or an HTTP status in place of an answer.
        Error => "error";
        Timeout => "timeout";
        Cancelled => "cancelled";
        /// Could not be sent: refused connection, dead child.
        Unreachable => "unreachable";
        /// Sent, and the connection or child ended before the answer.
        Lost => "lost";
        /// An answer that is not MCP, or too large.
        Malformed => "malformed";
    }
}

label! {
    /// A message that does not belong to the session it could name (promise 1).
    IsolationSignal("signal") {
        HeaderAbsent => "header_absent";
        ForeignPrincipal => "foreign_principal";
        InitializeNamesLiveSession => "initialize_names_live_session";
        UnknownProgressToken => "unknown_progress_token";
        UnknownCancelId => "unknown_cancel_id";
        UnknownAnswerId => "unknown_answer_id";
        DeadSession => "dead_session";
    }
}

label! {
    /// Why a notification of a backend did not reach its client.
    Dropped("reason") {
        /// The client does not read its stream.
        NotRead => "not_read";
    }
}

label! {
    /// Let in, or why not.
    Admission("verdict", "reason") {
        Admitted => "admitted", "none";
        /// The session has no credit, and does not read.
        HalfOpen => "refused", "half_open";
        /// The session has no credit; it reads, but not fast enough.
        Slow => "refused", "slow";
        /// `limits.in_flight` of this session.
        InFlight => "refused", "in_flight";
        /// `session.max_per_principal`, and none of its sessions is idle.
        SessionsOfPrincipal => "refused", "sessions_of_principal";
        /// `session.max_total`.
        SessionsTotal => "refused", "sessions_total";
        /// The process is on its way out.
        Stopping => "refused", "stopping";
    }
}

label! {
    /// How a change of policies ended.
    PolicySwap("outcome") {
        Swapped => "swapped";
        /// What ran goes on.
        Refused => "refused";
    }
}

label! {
    /// The method of a request; what is not in the list is `other`, so that no peer can make a series.
    Method("method") {
        Initialize => method::INITIALIZE;
        Ping => method::PING;
        ToolsList => method::TOOLS_LIST;
        ToolsCall => method::TOOLS_CALL;
        ResourcesList => method::RESOURCES_LIST;
        ResourcesTemplatesList => method::RESOURCES_TEMPLATES_LIST;
        ResourcesRead => method::RESOURCES_READ;
        ResourcesSubscribe => method::RESOURCES_SUBSCRIBE;
        ResourcesUnsubscribe => method::RESOURCES_UNSUBSCRIBE;
        PromptsList => method::PROMPTS_LIST;
        PromptsGet => method::PROMPTS_GET;
        Complete => method::COMPLETE;
        SetLevel => method::SET_LEVEL;
        Other => "other";
    }
}

label! {
    /// HTTP status of an answer; what the front never sends is `other`.
    StatusCode("status") {
        S200 => "200";
        S202 => "202";
        S204 => "204";
        S400 => "400";
        S401 => "401";
        S403 => "403";
        S404 => "404";
        S405 => "405";
        S406 => "406";
        S408 => "408";
        S409 => "409";
        S413 => "413";
        S415 => "415";
        S421 => "421";
        S429 => "429";
        S431 => "431";
        S500 => "500";
        S502 => "502";
        S503 => "503";
        S504 => "504";
        Other => "other";
    }
}

// === impl Method ===

impl Method {
    /// The label of a method as it stands on the wire.
    pub fn of(name: &str) -> Self {
        let named = |m: &&Method| m.labels().first().is_some_and(|(_, value)| *value == name);
        Method::ALL.iter().find(named).copied().unwrap_or(Method::Other)
    }
}

// === impl StatusCode ===

impl From<HttpStatus> for StatusCode {
    fn from(status: HttpStatus) -> Self {
        let named = |s: &&StatusCode| s.labels().first().is_some_and(|(_, value)| *value == status.as_str());
        StatusCode::ALL.iter().find(named).copied().unwrap_or(StatusCode::Other)
    }
}

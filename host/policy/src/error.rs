//! What can go wrong when a policy is loaded ([`LoadError`]) and when it is asked ([`PolicyError`]). Both are the policy's side or
//! the host's, never the client's; the gateway turns them into answers. Messages are for operators: they hold names that
//! backends and policies chose (escaped and cut), never payload or credentials.

use std::fmt;
use std::sync::Arc;

use crate::types::Hook;

/// Why a component cannot be a policy, or an engine cannot be made. Nothing of it was run, beyond an instantiation on trial.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The engine itself could not be set up.
    #[error("the WASM engine cannot be set up: {0}")]
    Engine(String),
    /// More bytes than [`Limits::component_bytes`](crate::Limits::component_bytes): compiling takes memory and time by size.
    #[error("policy {policy}: the component has {bytes} bytes, at most {limit} are allowed (limits.component of the policy)")]
    TooLarge { policy: String, bytes: usize, limit: usize },
    /// Not a component, or one that this engine cannot compile.
    #[error("policy {policy}: not a WASM component that can be compiled: {reason}")]
    Compile { policy: String, reason: String },
    /// A plain core module, the usual slip of those who build their first policy.
    #[error(
        "policy {policy}: this is a core WASM module, not a component: encode it with the component encoder of wit-component (`wasm-tools component new` does the same)"
    )]
    CoreModule { policy: String },
    /// Not the component that the operator pinned.
    #[error(
        "policy {policy}: its SHA-256 is {found}, but {pinned} is pinned (sha256): this is another component than the one that was reviewed"
    )]
    Digest { policy: String, found: String, pinned: String },
    /// Its manifest cannot be read, or is not true of the component.
    #[error("policy {policy}: {reason}")]
    Manifest { policy: String, reason: String },
    /// It wants a capability that the operator does not grant.
    #[error(
        "policy {policy}: it wants {capability}, which it is not granted: if it may have it, add `grants: {{ {grant} }}` to the policy in the configuration"
    )]
    NotGranted { policy: String, capability: String, grant: String },
    /// The operator's configuration for it does not fit the schema in its manifest.
    #[error("policy {policy}: its `config` does not fit: {reason}")]
    Setting { policy: String, reason: String },
    /// It wants something that a policy does not get.
    #[error(
        "policy {policy}: it imports {import}, which policies do not get: a policy may import lockgate:policy/host and lockgate:policy/types, nothing else"
    )]
    Import { policy: String, import: String },
    /// Built against a contract that this host does not know.
    #[error(
        "policy {policy}: it was built against contract version {wanted}, this gateway knows {known}: update the gateway, or build the policy against {known}"
    )]
    TooNew { policy: String, wanted: String, known: &'static str },
    /// Built against a contract that this host no longer knows.
    #[error(
        "policy {policy}: it was built against contract version {wanted}, this gateway knows {known}: build the policy against {known}"
    )]
    Contract { policy: String, wanted: String, known: &'static str },
    /// Within the known minor version it uses something that came later.
    #[error(
        "policy {policy}: it needs {what} of contract version {wanted}, which this gateway (contract {known}) does not have: update the gateway, or build the policy against {known}"
    )]
    Missing { policy: String, what: String, wanted: String, known: &'static str },
    /// No hook interface among its exports.
    #[error("policy {policy}: it exports no hook: one or more of lockgate:policy/alias, router, namespace and lifecycle are expected")]
    NoHooks { policy: String },
    /// The types of an import or export are not those of the contract.
    #[error("policy {policy}: it does not fit the contract {known}: {reason}")]
    Mismatch { policy: String, known: &'static str, reason: String },
    /// It could not be instantiated on trial: its start code failed or it needs more than the limits give.
    #[error("policy {policy}: it cannot be instantiated within the limits: {reason}")]
    Instantiate { policy: String, reason: String },
}

/// A hook did not give an answer that can be used. Names the policy, its version and the hook.
#[derive(Clone, Debug)]
pub struct PolicyError {
    /// What happened.
    pub kind: PolicyErrorKind,
    /// The operator's name for the policy.
    pub policy: Arc<str>,
    /// The version of its code (see [`Policy::version`](crate::Policy::version)).
    pub version: Arc<str>,
    /// The hook that was asked.
    pub hook: Hook,
}

/// What happened in a hook. Except for [`Overloaded`](PolicyErrorKind::Overloaded) asking again gives the same: these are errors of the policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyErrorKind {
    /// The guest trapped (panic, out of bounds, stack overflow, a handle that it does not have).
    Trap(String),
    /// It ran, or waited to run, for longer than the hook's deadline.
    Deadline,
    /// It asked for more memory than it may have, and could not go on without.
    OutOfMemory,
    /// What it returned, or handed to a host function, is larger than the host copies out of a guest.
    TooMuchData,
    /// The answer breaks the contract: an illegal or duplicate name, a wrong number of verdicts, a foreign backend, invalid UTF-8.
    BadAnswer(String),
    /// The policy says that its configuration does not fit.
    BadSetting(String),
    /// The policy says why it has no answer.
    Failed(String),
    /// As many policy calls as the engine has instances for are in flight; asking again later may work.
    Overloaded,
    /// The policy does not export this hook any more, or its exports changed shape between load and call: an error of the host.
    Internal(String),
}

// === impl PolicyError ===

impl PolicyError {
    /// What a client may read: which policy failed and how, without the reason, which is for the operator (the log has it).
    pub fn summary(&self) -> String {
        format!("policy {} ({}), hook {}: {}", self.policy, self.version, self.hook, self.kind.label())
    }
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "policy {} ({}), hook {}: {}", self.policy, self.version, self.hook, self.kind)
    }
}

impl std::error::Error for PolicyError {}

// === impl PolicyErrorKind ===

impl PolicyErrorKind {
    /// Whether it speaks against the code of the policy: what new code that was swapped in is judged by. A failure that the policy
    /// itself explains is an answer, a configuration that does not fit is the operator's, and a full engine is nobody's.
    pub fn is_fault(&self) -> bool {
        match self {
            PolicyErrorKind::Trap(_)
            | PolicyErrorKind::Deadline
            | PolicyErrorKind::OutOfMemory
            | PolicyErrorKind::TooMuchData
            | PolicyErrorKind::BadAnswer(_)
            | PolicyErrorKind::Internal(_) => true,
            PolicyErrorKind::BadSetting(_) | PolicyErrorKind::Failed(_) | PolicyErrorKind::Overloaded => false,
        }
    }

    /// A short stable word, fit for a metric label.
    pub fn label(&self) -> &'static str {
        match self {
            PolicyErrorKind::Trap(_) => "trap",
            PolicyErrorKind::Deadline => "deadline",
            PolicyErrorKind::OutOfMemory => "memory",
            PolicyErrorKind::TooMuchData => "too_much_data",
            PolicyErrorKind::BadAnswer(_) => "bad_answer",
            PolicyErrorKind::BadSetting(_) => "bad_setting",
            PolicyErrorKind::Failed(_) => "failed",
            PolicyErrorKind::Overloaded => "overloaded",
            PolicyErrorKind::Internal(_) => "internal",
        }
    }
}

impl fmt::Display for PolicyErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PolicyErrorKind::Trap(what) => write!(f, "it trapped: {what}"),
            PolicyErrorKind::Deadline => f.write_str("it did not finish before its deadline and was stopped"),
            PolicyErrorKind::OutOfMemory => f.write_str("it needs more memory than a policy may have and was stopped"),
            PolicyErrorKind::TooMuchData => f.write_str("it handed more data to the host than is accepted"),
            PolicyErrorKind::BadAnswer(what) => write!(f, "its answer breaks the contract: {what}"),
            PolicyErrorKind::BadSetting(what) => {
                write!(f, "its configuration does not fit: {what}")
            }
            PolicyErrorKind::Failed(what) => write!(f, "it gave no answer: {what}"),
            PolicyErrorKind::Overloaded => f.write_str("too many policy calls are in flight"),
            PolicyErrorKind::Internal(what) => write!(f, "the host could not call it: {what}"),
        }
    }
}

/// Text that a guest or a backend chose, fit for a message: escaped, and cut at 200 characters.
pub(crate) fn quoted(text: &str) -> String {
    const MOST: usize = 200;
    if text.chars().count() <= MOST {
        return format!("{text:?}");
    }
    let start: String = text.chars().take(MOST).collect();
    format!("{start:?}… ({} bytes)", text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_tells_the_operator_the_reason_and_a_client_only_who_failed() {
        let error = PolicyError {
            kind: PolicyErrorKind::BadSetting("line 3: secret".into()),
            policy: "alias".into(),
            version: "1.0".into(),
            hook: Hook::AliasPublish,
        };
        assert_eq!(error.to_string(), "policy alias (1.0), hook alias.publish: its configuration does not fit: line 3: secret");
        assert_eq!(error.summary(), "policy alias (1.0), hook alias.publish: bad_setting");
    }
}

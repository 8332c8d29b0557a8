//! What an operator sees: the log and the metrics, and what is kept out of them.
//!
//! `log` sets up `tracing` once for the process; `metrics` holds every counter there is, typed; `redact` holds the forms in which
//! ids and addresses may be shown. Never holds session state, and no label is ever a session id or a principal.

pub mod log;
pub mod metrics;
pub mod redact;

pub use log::init;
pub use metrics::Metrics;
pub use redact::{SafeUri, SessionTag};

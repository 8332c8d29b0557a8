//! The wire: JSON-RPC envelopes over raw bytes, SSE framing, protocol revisions, method and header names, error codes.
//!
//! Everything here is a pure function of bytes. Payloads are never turned into trees: a message is its original bytes plus the
//! places of the few members that a gateway has to know, and a change is a splice at such a place. No I/O, no sessions.

pub mod base64;
pub mod brought;
pub mod codes;
pub mod event;
pub mod headers;
pub mod id;
mod index;
pub mod json;
pub mod members;
pub mod message;
pub mod meta;
pub mod method;
pub mod mirror;
pub mod number;
pub mod salvage;
pub mod scan;
pub mod seal;
pub mod sse;
pub mod version;
mod walk;
pub mod wire;

pub use codes::RpcError;
pub use id::RequestId;
pub use message::{Incoming, Notification, ParseError, Request, Response};
pub use version::Version;
pub use wire::{Edits, Wire};

//! Streamable HTTP as a client (2025-11-25 transports, "Streamable HTTP"), and what HTTP+SSE shares with it.

mod body;
pub mod client;
pub mod exchange;
pub mod flow;
pub mod link;
pub mod listen;
pub mod messages;
mod pool;
pub mod sink;

pub use client::HttpClient;

//! Lockgate: an MCP gateway. One HTTP endpoint in front of many MCP servers.
//!
//! The rooms, ground floor first. A module imports only from modules above it in this list.

pub mod backend;
pub mod cli;
pub mod config;
pub mod protocol;
pub mod telemetry;
#[path = "/tmp/lg/front-stub/session.rs"]
pub mod session;
#[path = "/tmp/lg/front-stub/gateway.rs"]
pub mod gateway;
pub mod front;
pub mod admin;

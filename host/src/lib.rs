//! Lockgate: an MCP gateway. One HTTP endpoint in front of many MCP servers.
//!
//! The rooms, ground floor first. A module imports only from modules above it in this list.

pub mod backend;
pub mod cli;
pub mod config;
pub mod protocol;
pub mod telemetry;

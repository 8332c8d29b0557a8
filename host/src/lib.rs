//! Lockgate: an MCP gateway. One HTTP endpoint in front of many MCP servers.
//!
//! The rooms, ground floor first. A module imports only from modules above it in this list; the policy plane is a crate of its own,
//! `lockgate-policy`, because its compiler is heavy.
//!
//! `rare` what is made when it is needed · `protocol` the wire · `config` the file · `telemetry` log and metrics · `admission` what a client is owed · `backend` one session's way to
//! one server · `catalog` names · `session` what lives and dies with a session · `gateway` what a client can ask for · `policies` how policies
//! are swapped · `front` HTTP · `admin` health, metrics, sessions and policies · `cli` the commands

mod rare;

pub mod protocol;

pub mod config;

pub mod telemetry;

pub mod admission;

pub mod backend;

pub mod catalog;

pub mod session;

pub mod gateway;

pub mod policies;

pub mod front;

pub mod admin;

pub mod cli;

//! A backend that is a child process (2025-11-25 transports, "stdio"): started, spoken to by lines, ended and reaped.

mod child;
mod lines;
mod stderr;

pub use child::open;

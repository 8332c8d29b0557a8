//! Clients of 2026-07-28: requests that stand alone.

pub mod codes;

//! Requests of 2026-07-28: each stands alone, says in `_meta` who asks and how, and says in its headers what its body says.

pub mod check;

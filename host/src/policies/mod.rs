//! The policies that run: how they are made from the configuration, swapped while calls are in flight, and watched over.
//!
//! Whatever wants to change a policy (the admin API, a changed file, a reload) goes through one path in `swap`: read, check, compile off
//! the request path, try out, then flip one pointer. If anything fails, what ran goes on, and the reason is in the answer, the
//! log and the status. Never touches a request: sessions find the new policies by themselves (`gateway`). Called by `admin` and `cli`.
//!
//! # Layout
//! `load` (from the configuration to chains) · `control` (what runs, one change at a time) · `swap` (the path of every change) ·
//! `watch` (files) · `reload` (the configuration) · `status` (what operators see) ·
//! `trial` (before a client finds out)

mod control;
mod load;
mod reload;
mod status;
mod swap;
mod trial;
mod watch;

pub use control::{Control, Failure, FailureKind};
pub use load::Plane;
pub use reload::Reloaded;
pub use status::Kept;
pub use swap::{Push, Swapped};

//! What a session can call: published names and the backends behind them, resource ownership, merged lists and their cursors.
//!
//! One `Names` belongs to one session. It knows no wire and no backend connection; `gateway` fills it from lists and asks it.

pub mod cursor;
pub mod items;
mod names;
pub mod template;

pub use names::{Names, Target};

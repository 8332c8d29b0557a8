//! What a session can call: published names and the backends behind them, resource ownership, merged lists and their cursors.
//!
//! `Published` belongs to one session and one generation of its policies. It knows no wire and no backend connection; `gateway` fills
//! it from lists and asks it.

mod annotated;
pub mod cursor;
pub mod items;
pub mod keeping;
mod names;
mod pool;
mod published;
pub mod template;

pub use annotated::Annotated;
pub use names::{Found, Listed, Listing, Routed, Table, Target};
pub use pool::Pool;
pub use published::{KINDS, Published};

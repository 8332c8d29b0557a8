//! The policy plane of Lockgate: names, aliases (and, as the contract grows, routes) decided by WASM components that see one session at a
//! time. The only place that knows the WASM engine. It sees no HTTP, no payload, and never two sessions in one call.
//!
//! An [`Engine`] is made once per process; [`Policy::load`] compiles and checks a component; a [`Chain`] is the ordered list of
//! policies of one virtual host, and the only way to ask them anything. Every question is about one [`SessionView`] and gets
//! a store, an instance and a guest memory of its own, dropped with the answer.
//!
//! # Layout
//!
//! | module | owns |
//! |---|---|
//! | `types` | kinds, items, targets, hooks, free of any contract version |
//! | `error` | [`LoadError`], [`PolicyError`] |
//! | `session` | what a policy sees of a session, and its scratch state |
//! | `engine` | the engine's settings, the limits, the epoch thread |
//! | `log` | a guest's lines in the log |
//! | `since_v0_1` | contract 0.1: bindings and host functions |
//! | `terms` | what one policy is granted, its limits, what its failures mean |
//! | `manifest` | what a component says of itself |
//! | `wasi` | the little of WASI that can be granted, and stubs for the rest |
//! | `load` | from bytes to a checked policy |
//! | `call` | one call into one fresh instance, its limits, its outcome |
//! | `verify` | the checks on what policies claim |
//! | `chain` | several policies, one answer |
//! | `explain` | the same questions, with what each policy said |
//! | `live` | the chain that runs now, and how it is swapped |
//! | `shipped` | the components built from `plugins/` |

mod call;
mod chain;
mod engine;
mod error;
mod explain;
mod live;
mod load;
mod log;
mod manifest;
mod session;
pub mod shipped;
mod since_v0_1;
mod terms;
mod types;
mod verify;
mod wasi;

pub use chain::{Chain, Entry};
pub use engine::{Engine, EngineConfig};
pub use error::{LoadError, PolicyError, PolicyErrorKind};
pub use explain::{End, Explanation, Step};
pub use live::Live;
pub use load::{Code, Policy};
pub use manifest::{Manifest, SECTION as MANIFEST_SECTION, Wanted};
pub use session::{BackendState, BackendView, Claims, Scratch, SessionView};
pub use terms::{Capabilities, Failing, Limits, OnFailure, Terms};
pub use types::{Hook, Hooks, ItemHead, Kind, Refused, Route, Routers, Target};

//! The policy plane of Lockgate: names, aliases (and, as the contract grows, routes) decided by WASM components that see one session at a
//! time. The only place that knows the WASM engine. It sees no HTTP, no payload, and never two sessions in one call.
//!
//! An [`Engine`] is made once per process; [`Policy::load`] compiles and checks a component; a [`Chain`] is the ordered list of
//! policies of one virtual host, and the only way to ask them anything. Every question is about one [`SessionView`] and gets
//! a store, an instance and a guest memory that serves no other session: fresh and dropped with the answer, or kept by that session.
//!
//! # Layout
//!
//! | module | owns |
//! |---|---|
//! | `types` | kinds, items, targets, hooks, free of any contract version |
//! | `error` | [`LoadError`], [`PolicyError`] |
//! | `session` | what a policy sees of a session, and its scratch state |
//! | `engine` | the engine's settings, the epoch thread |
//! | `realm` | room for instances: in the pool, and outside of it |
//! | `warm` | the instances that one session keeps |
//! | `berths` | how many are kept in all, and which go first |
//! | `code` | compiled code in its envelope |
//! | `cache` | compiled code on disk |
//! | `apart` | large components are compiled in a process of their own |
//! | `compile` | from a component to code in a realm |
//! | `log` | a guest's lines in the log |
//! | `since_v0_1` | contract 0.1: bindings and host functions |
//! | `terms` | what one policy is granted, its limits, what its failures mean |
//! | `manifest` | what a component says of itself |
//! | `wasi` | the little of WASI that can be granted, and stubs for the rest |
//! | `load` | from bytes to a checked policy |
//! | `call` | one call into an instance, its limits, its outcome |
//! | `stats` | what calls came to, and who hears of it |
//! | `verify` | the checks on what policies claim |
//! | `chain` | several policies, one answer |
//! | `ask` | one question to one policy, with what it cost |
//! | `explain` | the same questions, with what each policy said |
//! | `live` | the chain that runs now, and how it is swapped |
//! | `shipped` | the components built from `plugins/` |
//! | `cargo`, `component` | how components are built, for the shipped ones and everybody's |

mod apart;
mod ask;
mod berths;
mod cache;
mod call;
pub mod cargo;
mod chain;
mod code;
mod compile;
pub mod component;
mod engine;
mod error;
mod explain;
mod live;
mod load;
mod log;
mod manifest;
mod realm;
mod session;
pub mod shipped;
mod since_v0_1;
mod stats;
mod terms;
mod types;
mod verify;
mod warm;
mod wasi;

pub use apart::compile_component;
pub use ask::{Answer, Asked, Head, Question, Welcome, ask};
pub use chain::{Chain, Entry};
pub use engine::{Engine, EngineConfig};
pub use error::{LoadError, PolicyError, PolicyErrorKind};
pub use explain::{End, Explanation, Step};
pub use live::{Live, LiveStatus, ProbationStatus, Swap, SwapOutcome};
pub use load::{Code, Policy};
pub use manifest::{Manifest, Optional, SECTION as MANIFEST_SECTION, Wanted};
pub use session::{BackendState, BackendView, Claims, Scratch, SessionView};
pub use stats::Observer;
pub use terms::{Capabilities, Failing, Limits, OnFailure, Terms};
pub use types::{AliasEntry, Decision, Hook, Hooks, ItemHead, Kind, Refused, Route, Routers, Target, Verdict};
pub use warm::Warm;

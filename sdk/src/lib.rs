//! What a Lockgate policy written in Rust depends on.
//!
//! A policy implements one trait per hook family ([`Alias`], [`Router`], [`Namespace`], [`Lifecycle`]) on a type of its own and names that
//! type in [`export!`], once. Which questions come, when, and what an answer must satisfy stands in `wit/policy.wit`; the traits repeat the
//! essence and have a whole policy each as an example. The types are those of the contract.
//!
//! # From an idea to a running policy
//!
//! ```text
//! lockgate policy new my-policy --hook router      a crate that builds, with a test and a fixture
//! cargo test                                       the decisions, natively
//! lockgate policy build                            my-policy.wasm: the component
//! lockgate policy test                             the fixtures, in the real engine with the real limits
//! lockgate dev --policy .                          a gateway that takes each save
//! lockgate policy swap my-policy my-policy.wasm    into a running gateway
//! ```
//!
//! # What a policy holds
//!
//! A [`Session`] is lent for one call: `&Session` is all that a hook ever gets, and it cannot be kept. Guest memory, statics too, may be gone at
//! the next call and is never shared by two sessions; what is to be kept goes through [`Session::remember_as`] and [`Session::recall_as`].
//! Configuration comes through [`Session::setting_as`], what is known of the principal through [`Session::principal`] and
//! [`Session::claim_as`]. A [clock](clock) and [random numbers](random) are there for policies that ask for them in `Cargo.toml` and are granted them:
//!
//! ```toml
//! [package.metadata.lockgate]
//! config-schema = "config.schema.json"                         # what the operator's `config` must look like
//! capabilities = { claims = ["team"], every-call = true }      # also: clock, random
//! ```
//!
//! # Failures and panics
//!
//! A hook that cannot answer returns a [`Failure`]; a panic is one that was not foreseen. Both are errors of the policy, and the operator
//! decides whether they refuse the call or skip the policy. The text of a panic reaches the gateway's log, with its place in the source, through the
//! session of the call that panicked.
//!
//! # Tests
//!
//! A [`Session`] exists only inside a gateway, so `cargo test` cannot make one. Keep the decisions in functions of plain values, and let
//! the hooks only fetch and pass on: the setting, the principal, the names of the backends go in, a [`Verdict`], a [`Decision`] or a [`Target`] comes
//! out; they can be compared and printed. The hooks themselves are tested by fixtures, in the engine of the gateway (`lockgate policy test`).
//!
//! ```
//! use lockgate_sdk::{Decision, Failure, Kind, Router, Session, Target, export};
//!
//! /// Nobody but `ops` may call what begins with `admin_`.
//! fn decide(principal: &str, own_name: &str) -> Decision {
//!     match own_name.starts_with("admin_") && principal != "ops" {
//!         true => Decision::Refuse("only ops may do that".into()),
//!         false => Decision::Pass,
//!     }
//! }
//!
//! struct Guarded;
//!
//! impl Router for Guarded {
//!     fn resolve(s: &Session, _: Kind, _: &str, target: &Target) -> Result<Decision, Failure> {
//!         Ok(decide(&s.principal(), &target.name))
//!     }
//! }
//!
//! export!(Guarded: router);
//!
//! # fn main() {
//! // In a #[test]:
//! assert_eq!(decide("ops", "admin_stop"), Decision::Pass);
//! assert!(matches!(decide("ann", "admin_stop"), Decision::Refuse(_)));
//! # }
//! ```

mod bindings;
pub mod clock;
mod export;
mod hooks;
mod lent;
pub mod random;
pub mod rules;
mod session;

pub use bindings::base::lockgate::policy::host::{Backend, BackendState, Level, Quota, Session};
pub use bindings::base::lockgate::policy::types::{AliasEntry, Decision, Failure, ItemHead, Kind, Target, Verdict, Welcome};
pub use hooks::{Alias, Lifecycle, Namespace, Router};

#[doc(hidden)]
pub mod __private {
    #[cfg(target_arch = "wasm32")]
    pub use crate::bindings::{alias, lifecycle, namespace, router};
    #[cfg(target_arch = "wasm32")]
    pub use crate::lent::during;

    pub fn is_alias<P: crate::Alias>() {}
    pub fn is_router<P: crate::Router>() {}
    pub fn is_namespace<P: crate::Namespace>() {}
    pub fn is_lifecycle<P: crate::Lifecycle>() {}
}

//! What a Lockgate policy written in Rust depends on.
//!
//! A policy implements one trait per hook family ([`Alias`], [`Namespace`]) on a type of its own and names that type in
//! [`export!`], once. Which questions come, when, and what an answer must satisfy stands in `wit/policy.wit`; the traits repeat the
//! essence. The types are those of the contract.
//!
//! A whole policy: on this gateway the tools of the backend `legacy` are hidden, and every other one is called
//! `<prefix><backend>-<tool>`, with the prefix from the operator's configuration.
//!
//! ```
//! use lockgate_sdk::{Failure, ItemHead, Kind, Namespace, Session, Target, Verdict, export};
//!
//! #[derive(serde::Deserialize)]
//! #[serde(deny_unknown_fields)]
//! struct Setting {
//!     prefix: String,
//! }
//!
//! struct Prefixed;
//!
//! impl Namespace for Prefixed {
//!     fn expose(s: &Session, kind: Kind, items: &[ItemHead]) -> Result<Vec<Verdict>, Failure> {
//!         let setting: Setting = s.setting_as()?;
//!         let verdict = |item: &ItemHead| match kind {
//!             Kind::Tool if item.backend == "legacy" => Verdict::Hide,
//!             Kind::Tool => Verdict::Rename(format!("{}{}-{}", setting.prefix, item.backend, item.name)),
//!             _ => Verdict::Keep,
//!         };
//!         Ok(items.iter().map(verdict).collect())
//!     }
//!
//!     fn resolve(s: &Session, kind: Kind, public: &str) -> Result<Option<Target>, Failure> {
//!         let setting: Setting = s.setting_as()?;
//!         let Some(rest) = public.strip_prefix(&setting.prefix) else { return Ok(None) };
//!         let target = |backend: String| {
//!             let name = rest.strip_prefix(&backend)?.strip_prefix('-')?.to_owned();
//!             Some(Target { backend, name })
//!         };
//!         Ok(match kind {
//!             Kind::Tool => s.backends().into_iter().find_map(|b| target(b.name)),
//!             _ => None,
//!         })
//!     }
//! }
//!
//! export!(Prefixed: namespace);
//! # fn main() {}
//! ```
//!
//! Build it as a `cdylib` for `wasm32-unknown-unknown` (no WASI, so it imports nothing but the contract) and turn the module into a
//! component with the component encoder of the `wit-component` crate. Give the profile `strip = true`: names and debug
//! information make a component a hundred times larger.

mod bindings;

use serde::de::DeserializeOwned;

pub use bindings::base::lockgate::policy::host::{Backend, BackendState, Level, Quota, Session};
pub use bindings::base::lockgate::policy::types::{AliasEntry, Failure, ItemHead, Kind, Target, Verdict};

/// Hook family: names that stand for other names. Exported as `alias`.
pub trait Alias {
    /// What a public name stands for; `None`: not an alias of this policy.
    ///
    /// Asked when a client uses a public name that is not in the list that was published to it.
    fn resolve(s: &Session, kind: Kind, public: &str) -> Result<Option<Target>, Failure>;

    /// The aliases that are to be listed, in place of the names of the items that they stand for. None by default: they work, unlisted.
    ///
    /// Asked when a list is built. Targets must be backends of the session, and `resolve` must give the same answer.
    fn publish(s: &Session, kind: Kind) -> Result<Vec<AliasEntry>, Failure> {
        let _ = (s, kind);
        Ok(Vec::new())
    }
}

/// Hook family: how things are called and what is shown. Exported as `namespace`.
pub trait Namespace {
    /// One verdict for each item, in the same order, each following from the session and that item alone.
    ///
    /// Asked when a list is built, and about a single item to check an answer of `resolve`.
    fn expose(s: &Session, kind: Kind, items: &[ItemHead]) -> Result<Vec<Verdict>, Failure>;

    /// The item that `expose` would publish under this name; `None`: cannot tell, or the name is not changed by this policy.
    /// That is the default, right for a policy that only keeps and hides.
    ///
    /// Asked when a client uses a public name that is not in the list that was published to it and is not an alias.
    fn resolve(s: &Session, kind: Kind, public: &str) -> Result<Option<Target>, Failure> {
        let _ = (s, kind, public);
        Ok(None)
    }
}

impl Session {
    /// This policy's configuration, read into a type of its own. Configuration that does not fit is [`Failure::BadSetting`] with
    /// the line, the column and what was expected, for the operator to read.
    pub fn setting_as<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        serde_json::from_str(&self.setting()).map_err(|e| Failure::BadSetting(e.to_string()))
    }
}

/// Makes a type the policy of this component: `export!(MyPolicy: alias, namespace);` with the hook families that it implements.
#[macro_export]
macro_rules! export {
    ($policy:ty : $($hook:ident),+ $(,)?) => { $( $crate::__export_one!($hook $policy); )+ };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __export_one {
    (alias $policy:ty) => {
        const _: fn() = $crate::__private::is_alias::<$policy>;
        // Natively (unit tests) there is no host to export to, and linkers do not take the names.
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            use $crate::__private::alias::exports::lockgate::policy::alias::Guest;
            struct Hook;
            impl Guest for Hook {
                fn resolve(s: &$crate::Session, kind: $crate::Kind, public: String) -> Result<Option<$crate::Target>, $crate::Failure> {
                    <$policy as $crate::Alias>::resolve(s, kind, &public)
                }
                fn publish(s: &$crate::Session, kind: $crate::Kind) -> Result<Vec<$crate::AliasEntry>, $crate::Failure> {
                    <$policy as $crate::Alias>::publish(s, kind)
                }
            }
    $crate::__private::alias::export_alias!(Hook with_types_in $crate::__private::alias);
        };
    };
    (namespace $policy:ty) => {
        const _: fn() = $crate::__private::is_namespace::<$policy>;
        // Natively (unit tests) there is no host to export to, and linkers do not take the names.
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            use $crate::__private::namespace::exports::lockgate::policy::namespace::Guest;
            struct Hook;
            impl Guest for Hook {
                fn expose(
                    s: &$crate::Session,
                    kind: $crate::Kind,
                    items: Vec<$crate::ItemHead>,
                ) -> Result<Vec<$crate::Verdict>, $crate::Failure> {
                    <$policy as $crate::Namespace>::expose(s, kind, &items)
                }
        fn resolve(s: &$crate::Session, kind: $crate::Kind, public: String) -> Result<Option<$crate::Target>, $crate::Failure> {
                    <$policy as $crate::Namespace>::resolve(s, kind, &public)
                }
            }
            $crate::__private::namespace::export_namespace!(Hook with_types_in $crate::__private::namespace);
        };
    };
    ($other:ident $policy:ty) => {
        compile_error!(concat!("there is no hook family `", stringify!($other), "`: use alias or namespace"));
    };
}

#[doc(hidden)]
pub mod __private {
    pub use crate::bindings::{alias, namespace};

    pub fn is_alias<P: crate::Alias>() {}
    pub fn is_namespace<P: crate::Namespace>() {}
}

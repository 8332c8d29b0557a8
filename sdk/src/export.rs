//! [`export!`](crate::export): from a type that implements the traits to the exports of a component. Every hook runs inside `during`, so that a panic's
//! text finds its way to the log.

/// Makes a type the policy of this component: `export!(MyPolicy: alias, router);` with the hook families that it implements, of `alias`,
/// `router`, `namespace` and `lifecycle`. Once per crate. In native builds (unit tests) it only checks that the traits are implemented.
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
            use $crate::{AliasEntry, Failure, Kind, Session, Target};
            struct Hook;
            impl Guest for Hook {
                fn resolve(s: &Session, kind: Kind, public: String) -> Result<Option<Target>, Failure> {
                    $crate::__private::during(s, || <$policy as $crate::Alias>::resolve(s, kind, &public))
                }
                fn publish(s: &Session, kind: Kind) -> Result<Vec<AliasEntry>, Failure> {
                    $crate::__private::during(s, || <$policy as $crate::Alias>::publish(s, kind))
                }
            }
    $crate::__private::alias::export_alias!(Hook with_types_in $crate::__private::alias);
        };
    };
    (router $policy:ty) => {
        const _: fn() = $crate::__private::is_router::<$policy>;
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            use $crate::__private::router::exports::lockgate::policy::router::Guest;
            use $crate::{Decision, Failure, Kind, Session, Target};
            struct Hook;
            impl Guest for Hook {
                fn resolve(s: &Session, kind: Kind, public: String, target: Target) -> Result<Decision, Failure> {
                    $crate::__private::during(s, || <$policy as $crate::Router>::resolve(s, kind, &public, &target))
                }
            }
    $crate::__private::router::export_router!(Hook with_types_in $crate::__private::router);
        };
    };
    (namespace $policy:ty) => {
        const _: fn() = $crate::__private::is_namespace::<$policy>;
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            use $crate::__private::namespace::exports::lockgate::policy::namespace::Guest;
            use $crate::{Failure, ItemHead, Kind, Session, Target, Verdict};
            struct Hook;
            impl Guest for Hook {
                fn expose(s: &Session, kind: Kind, items: Vec<ItemHead>) -> Result<Vec<Verdict>, Failure> {
                    $crate::__private::during(s, || <$policy as $crate::Namespace>::expose(s, kind, &items))
                }
                fn resolve(s: &Session, kind: Kind, public: String) -> Result<Option<Target>, Failure> {
                    $crate::__private::during(s, || <$policy as $crate::Namespace>::resolve(s, kind, &public))
                }
            }
    $crate::__private::namespace::export_namespace!(Hook with_types_in $crate::__private::namespace);
        };
    };
    (lifecycle $policy:ty) => {
        const _: fn() = $crate::__private::is_lifecycle::<$policy>;
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            use $crate::__private::lifecycle::exports::lockgate::policy::lifecycle::Guest;
            use $crate::{Failure, Session, Welcome};
            struct Hook;
            impl Guest for Hook {
                fn opened(s: &Session) -> Result<Welcome, Failure> {
                    $crate::__private::during(s, || <$policy as $crate::Lifecycle>::opened(s))
                }
                fn closing(s: &Session) -> Result<(), Failure> {
                    $crate::__private::during(s, || <$policy as $crate::Lifecycle>::closing(s))
                }
            }
    $crate::__private::lifecycle::export_lifecycle!(Hook with_types_in $crate::__private::lifecycle);
        };
    };
    ($other:ident $policy:ty) => {
        compile_error!(concat!("there is no hook family `", stringify!($other), "`: use alias, router, namespace or lifecycle"));
    };
}

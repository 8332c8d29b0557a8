//! The policies that ship inside the binary: the components of `plugins/`, built by this crate's build script. They go through
//! [`Policy::load`](crate::Policy::load) like anyone's.

/// Names that the operator gave to other names (`plugins/alias`).
pub const ALIAS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/lockgate-alias.wasm"));

/// What may be seen and called, by name pattern and caller (`plugins/filter`).
pub const FILTER: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/lockgate-filter.wasm"));

/// One backend unchanged, several as `backend__name` (`plugins/namespace`).
pub const NAMESPACE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/lockgate-namespace.wasm"));

/// Which backend serves a call, by name pattern, by caller, by weight (`plugins/route`).
pub const ROUTE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/lockgate-route.wasm"));

const ALL: &[(&str, &[u8])] = &[("alias", ALIAS), ("filter", FILTER), ("namespace", NAMESPACE), ("route", ROUTE)];

/// The component of a shipped policy.
pub fn by_name(name: &str) -> Option<&'static [u8]> {
    ALL.iter().find(|(n, _)| *n == name).map(|(_, component)| *component)
}

/// The names of all of them.
pub fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|(name, _)| *name)
}

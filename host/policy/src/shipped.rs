//! The policies that ship inside the binary: the components of `plugins/`, built by this crate's build script. They go through
//! [`Policy::load`](crate::Policy::load) like anyone's.

/// Names that the operator gave to other names (`plugins/alias`).
pub const ALIAS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/lockgate_alias.component.wasm"));

/// One backend unchanged, several as `backend__name` (`plugins/namespace`).
pub const NAMESPACE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/lockgate_namespace.component.wasm"));

const ALL: &[(&str, &[u8])] = &[("alias", ALIAS), ("namespace", NAMESPACE)];

/// The component of a shipped policy.
pub fn by_name(name: &str) -> Option<&'static [u8]> {
    ALL.iter().find(|(n, _)| *n == name).map(|(_, component)| *component)
}

/// The names of all of them.
pub fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|(name, _)| *name)
}

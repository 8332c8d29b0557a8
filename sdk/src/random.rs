//! Random numbers, for policies that ask for them (`capabilities = { random = true }` in `Cargo.toml`) and are granted them (`grants: { random:
//! true }` in the gateway's configuration). Without the grant a call of this function traps. In native builds it is the system's.

/// 64 random bits, fit for secrets.
pub fn number() -> u64 {
    #[cfg(target_arch = "wasm32")]
    {
        crate::bindings::wasi::wasi::random::random::get_random_u64()
    }
    #[cfg(not(target_arch = "wasm32"))]
    {
        // The keys of a `RandomState` come from the system; good enough for the unit tests that run here.
        use std::hash::{BuildHasher, Hasher};
        std::hash::RandomState::new().build_hasher().finish()
    }
}

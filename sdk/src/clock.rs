//! A clock, for policies that ask for it (`capabilities = { clock = true }` in `Cargo.toml`) and are granted it (`grants: { clock: true }` in the
//! gateway's configuration). Without the grant a call of these functions traps. In native builds they are the system's.

use std::time::{Duration, SystemTime};

/// The time of day.
pub fn now() -> SystemTime {
    #[cfg(target_arch = "wasm32")]
    {
        let now = crate::bindings::wasi::wasi::clocks::wall_clock::now();
        SystemTime::UNIX_EPOCH + Duration::new(now.seconds, now.nanoseconds)
    }
    #[cfg(not(target_arch = "wasm32"))]
    SystemTime::now()
}

/// Time since some moment in the past, which is the same for all calls of one gateway process: only differences mean something.
pub fn monotonic() -> Duration {
    #[cfg(target_arch = "wasm32")]
    {
        Duration::from_nanos(crate::bindings::wasi::wasi::clocks::monotonic_clock::now())
    }
    #[cfg(not(target_arch = "wasm32"))]
    {
        static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
        START.get_or_init(std::time::Instant::now).elapsed()
    }
}

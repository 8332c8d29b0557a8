//! The `lockgate` program. All of it is in the library's `cli`.

use std::process::ExitCode;

/// Chosen by measurement (docs/performance.md): a call makes some dozens of small allocations, and threads free what others made.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    lockgate::cli::main()
}

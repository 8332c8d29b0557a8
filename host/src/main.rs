//! The `lockgate` program. All of it is in the library's `cli`.

use std::process::ExitCode;

fn main() -> ExitCode {
    lockgate::cli::main()
}

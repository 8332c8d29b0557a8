//! Cargo, run for the target that policies are built for, in the same way by everybody: this crate's build script (which includes this
//! file by its path) for the shipped policies, and `lockgate policy build` for everybody's. The same sources give the same components.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

/// What policies are compiled for: no WASI, so that they import nothing but the contract.
pub const TARGET: &str = "wasm32-unknown-unknown";

/// Size matters more than speed, and an unstripped component is a hundred times larger.
const PROFILE: &str = "lockgate-policy";
const PROFILE_SETTINGS: [&str; 6] =
    ["inherits=\"release\"", "opt-level=\"s\"", "lto=true", "codegen-units=1", "panic=\"abort\"", "strip=true"];

/// Stack of a guest, instead of the linker's 1 MiB: less memory to clean after each call.
const STACK_BYTES: u32 = 256 << 10;

/// Says in one line what is missing, before cargo says it in fifty.
pub fn need_target() -> Result<(), String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let answer = Command::new(&rustc).args(["--print", "target-libdir", "--target", TARGET]).output();
    let answer = answer.map_err(|e| format!("{} cannot be run ({e}): install Rust, https://rustup.rs", rustc.display()))?;
    if answer.status.success() && Path::new(String::from_utf8_lossy(&answer.stdout).trim()).is_dir() {
        return Ok(());
    }
    Err(format!("policies are WASM components and the Rust target for them is missing: run `rustup target add {TARGET}`"))
}

/// The packages of the workspace of a `Cargo.toml`, as `cargo metadata` gives them.
pub fn packages(manifest: &Path) -> Result<Vec<Value>, String> {
    let mut command = cargo(manifest.parent().unwrap_or(Path::new(".")));
    command.args(["metadata", "--no-deps", "--format-version", "1", "--manifest-path"]).arg(manifest);
    let answer = command.output().map_err(cannot_run)?;
    if !answer.status.success() {
        return Err(format!("cargo metadata failed:\n{}", String::from_utf8_lossy(&answer.stderr).trim_end()));
    }
    let mut all: Value = serde_json::from_slice(&answer.stdout).map_err(|e| format!("cargo metadata gave no JSON: {e}"))?;
    match all["packages"].take() {
        Value::Array(packages) => Ok(packages),
        _ => Err("cargo metadata gave no packages".into()),
    }
}

/// Compiles the libraries of these packages and gives the core module of each library by its name. `arguments` go to `cargo build`. What cargo and
/// the compiler say goes to `log`.
pub fn compile<A: AsRef<OsStr>>(
    manifest: &Path,
    packages: &[&str],
    arguments: impl IntoIterator<Item = A>,
    log: Stdio,
) -> Result<HashMap<String, PathBuf>, String> {
    let mut command = cargo(manifest.parent().unwrap_or(Path::new(".")));
    command.args(["build", "--lib", "--message-format", "json-render-diagnostics", "--target", TARGET, "--profile", PROFILE]);
    for setting in PROFILE_SETTINGS {
        command.arg("--config").arg(format!("profile.{PROFILE}.{setting}"));
    }
    command.arg("--manifest-path").arg(manifest);
    for package in packages {
        command.arg("--package").arg(package);
    }
    command.args(arguments).stderr(log);
    command.env("CARGO_ENCODED_RUSTFLAGS", format!("-Clink-arg=-zstack-size={STACK_BYTES}"));
    let done = command.output().map_err(cannot_run)?;
    if !done.status.success() {
        // Empty unless `log` is a pipe.
        let said = String::from_utf8_lossy(&done.stderr);
        return Err(format!("it does not build for {TARGET}\n{}", said.trim_end()).trim_end().to_owned());
    }
    let messages = done.stdout.split(|b| *b == b'\n').filter_map(|line| serde_json::from_slice::<Value>(line).ok());
    let built = messages.filter(|m| m["reason"] == json!("compiler-artifact")).filter_map(|m| {
        let files = m["filenames"].as_array()?;
        let module = files.iter().filter_map(Value::as_str).find(|f| f.ends_with(".wasm"))?;
        Some((m["target"]["name"].as_str()?.to_owned(), PathBuf::from(module)))
    });
    Ok(built.collect())
}

fn cargo(dir: &Path) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(if dir.as_os_str().is_empty() { Path::new(".") } else { dir }).stdin(Stdio::null());
    // What an outer build was told (by clippy, nextest, coverage, a user's flags) is not for the guests.
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(is_for_an_outer_build) {
            command.env_remove(name);
        }
    }
    command
}

fn cannot_run(error: std::io::Error) -> String {
    format!("cargo cannot be run ({error}): install Rust, https://rustup.rs")
}

fn is_for_an_outer_build(name: &str) -> bool {
    const KEPT: &[&str] = &[
        "CARGO_HOME",
        "CARGO_MAKEFLAGS",
        "CARGO_NET_",
        "CARGO_HTTP_",
        "CARGO_REGISTRIES_",
        "CARGO_REGISTRY_",
        "CARGO_SOURCE_",
        "CARGO_TARGET_DIR",
        "CARGO_BUILD_TARGET_DIR",
        "CARGO_TERM_",
    ];
    const ALSO: &[&str] = &["CLIPPY_ARGS", "CLIPPY_CONF_DIR", "LLVM_PROFILE_FILE", "RUSTFLAGS", "RUSTDOCFLAGS", "SYSROOT"];
    let own = name.starts_with("CARGO_") || name.starts_with("RUSTC") || ALSO.contains(&name);
    own && !KEPT.iter().any(|kept| name.starts_with(kept))
}

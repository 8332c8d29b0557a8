//! Builds the policies that ship (`plugins/`) into components, for `src/shipped.rs` to embed: a cargo build of their own for
//! wasm32-unknown-unknown in this crate's output folder, then the component encoder. Nothing is downloaded that Cargo.lock does not name.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::{env, fs};

use wit_component::ComponentEncoder;

const TARGET: &str = "wasm32-unknown-unknown";
const PLUGINS: &[&str] = &["alias", "namespace"];

/// Stack of a guest, instead of the linker's 1 MiB: less memory to clean after each call.
const STACK_BYTES: u32 = 256 << 10;

fn main() -> ExitCode {
    match build() {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            println!("cargo::error={reason}");
            ExitCode::FAILURE
        }
    }
}

fn build() -> Result<(), Box<dyn Error>> {
    let root = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("../..").canonicalize()?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    println!("cargo::rerun-if-changed=build.rs");
    for watched in ["wit", "sdk/src", "sdk/Cargo.toml", "Cargo.toml", "Cargo.lock"] {
        println!("cargo::rerun-if-changed={}", root.join(watched).display());
    }
    for plugin in PLUGINS {
        println!("cargo::rerun-if-changed={}", root.join("plugins").join(plugin).join("src").display());
        println!("cargo::rerun-if-changed={}", root.join("plugins").join(plugin).join("Cargo.toml").display());
    }

    need_target()?;
    let target_dir = out.join("plugins");
    compile(&root, &target_dir)?;
    for plugin in PLUGINS {
        let module = fs::read(target_dir.join(TARGET).join("policy").join(format!("lockgate_{plugin}.wasm")))?;
        let encoded = ComponentEncoder::default().validate(true).module(&module).and_then(|mut e| e.encode());
        let mut component = encoded.map_err(|e| format!("the module of plugins/{plugin} cannot be made a component: {e:#}"))?;
        append_version(&mut component, &env::var("CARGO_PKG_VERSION")?);
        fs::write(out.join(format!("lockgate_{plugin}.component.wasm")), component)?;
    }
    Ok(())
}

/// Says in one line what is missing, before cargo says it in fifty.
fn need_target() -> Result<(), Box<dyn Error>> {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let answer = Command::new(rustc).args(["--print", "target-libdir", "--target", TARGET]).output()?;
    if answer.status.success() && Path::new(String::from_utf8_lossy(&answer.stdout).trim()).is_dir() {
        return Ok(());
    }
    Err(format!("the shipped policies are WASM components and the Rust target for them is missing: run `rustup target add {TARGET}`")
        .into())
}

fn compile(root: &Path, target_dir: &Path) -> Result<(), Box<dyn Error>> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(root).args(["build", "--quiet", "--locked", "--lib", "--profile", "policy", "--target", TARGET]);
    command.arg("--target-dir").arg(target_dir);
    for plugin in PLUGINS {
        command.arg("--package").arg(format!("lockgate-{plugin}"));
    }
    // What the outer build was told (by clippy, nextest, coverage, a user's flags) is not for the guests.
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(is_for_the_outer_build) {
            command.env_remove(name);
        }
    }
    command.env("CARGO_ENCODED_RUSTFLAGS", format!("-Clink-arg=-zstack-size={STACK_BYTES}"));
    let done = command.output()?;
    if done.status.success() {
        return Ok(());
    }
    // To the build script's stderr, which cargo shows because it failed.
    eprintln!("{}", String::from_utf8_lossy(&done.stderr));
    Err(format!("the policies in plugins/ do not build for {TARGET}; the compiler's messages are below").into())
}

fn is_for_the_outer_build(name: &str) -> bool {
    const KEPT: &[&str] =
        &["CARGO_HOME", "CARGO_MAKEFLAGS", "CARGO_NET_", "CARGO_HTTP_", "CARGO_REGISTRIES_", "CARGO_REGISTRY_", "CARGO_SOURCE_"];
    const ALSO: &[&str] = &["CLIPPY_ARGS", "CLIPPY_CONF_DIR", "LLVM_PROFILE_FILE", "RUSTFLAGS", "RUSTDOCFLAGS", "SYSROOT"];
    let own = name.starts_with("CARGO_") || name.starts_with("RUSTC") || ALSO.contains(&name);
    own && !KEPT.iter().any(|kept| name.starts_with(kept))
}

/// A custom section `version` with the version of the code, where the host looks for it.
fn append_version(component: &mut Vec<u8>, version: &str) {
    const NAME: &[u8] = b"version";
    // Both lengths are far below 128, so one byte each is their LEB128.
    let size = 1 + NAME.len() + version.len();
    assert!(size < 128, "a version of {} characters", version.len());
    component.extend([0, size as u8, NAME.len() as u8]);
    component.extend(NAME);
    component.extend(version.as_bytes());
}

//! Builds the policies that ship (`plugins/`) into components, for `src/shipped.rs` to embed: a cargo build of their own for
//! wasm32-unknown-unknown in this crate's output folder, then the component encoder. Nothing is downloaded that Cargo.lock does not name.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::{env, fs};

// The same code that `lockgate policy build` runs.
#[allow(dead_code)]
#[path = "src/cargo.rs"]
mod cargo;
#[allow(dead_code)]
#[path = "src/component.rs"]
mod component;

const PLUGINS: &[&str] = &["alias", "filter", "namespace", "route"];

fn main() -> ExitCode {
    match build() {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            // The compiler's messages go to stderr, which cargo shows because this failed.
            let reason = reason.to_string();
            let (first, rest) = reason.split_once('\n').unwrap_or((&reason, ""));
            eprintln!("{rest}");
            println!("cargo::error={first}");
            ExitCode::FAILURE
        }
    }
}

fn build() -> Result<(), Box<dyn Error>> {
    let root = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("../..").canonicalize()?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    for own in ["build.rs", "src/cargo.rs", "src/component.rs"] {
        println!("cargo::rerun-if-changed={own}");
    }
    for watched in ["wit", "sdk/src", "sdk/Cargo.toml", "Cargo.toml", "Cargo.lock"] {
        println!("cargo::rerun-if-changed={}", root.join(watched).display());
    }
    for plugin in PLUGINS {
        for watched in ["src", "Cargo.toml", "config.schema.json"] {
            println!("cargo::rerun-if-changed={}", root.join("plugins").join(plugin).join(watched).display());
        }
    }

    cargo::need_target()?;
    let manifest = root.join("Cargo.toml");
    let names: Vec<String> = PLUGINS.iter().map(|plugin| format!("lockgate-{plugin}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let target_dir = out.join("plugins");
    let arguments = ["--quiet".as_ref(), "--locked".as_ref(), "--target-dir".as_ref(), target_dir.as_os_str()];
    let modules = cargo::compile(&manifest, &names, arguments, Stdio::piped()).map_err(|e| format!("the policies in plugins/: {e}"))?;
    for package in cargo::packages(&manifest)?.iter().filter(|p| p["name"].as_str().is_some_and(|name| names.contains(&name))) {
        let package = component::Package::read(package)?;
        let module = modules.get(&package.library).ok_or_else(|| format!("cargo built no module of {}", package.name))?;
        let encoded = component::encode(&fs::read(module)?, package.manifest).map_err(|e| format!("{}: {e}", package.name))?;
        fs::write(out.join(format!("{}.wasm", package.name)), encoded)?;
    }
    Ok(())
}

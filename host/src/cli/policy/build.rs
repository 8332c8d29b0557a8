//! `lockgate policy build`: a policy crate compiled to a component with its manifest inside. The same code builds the policies that ship.

use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};

use anyhow::{Context as _, bail};
use lockgate_policy::{Policy, Terms, cargo, component};

use super::component::{all_wanted, engine};
use super::inspect::Facts;

/// Compile a policy crate to a component
///
/// Runs cargo for wasm32-unknown-unknown, optimised for size, encodes the module as a component, writes the manifest that Cargo.toml
/// describes into it, and loads it once to see that it fits the contract.
#[derive(Debug, clap::Args)]
pub struct BuildArgs {
    /// Folder of the crate
    #[arg(default_value = ".")]
    dir: PathBuf,

    /// Where the component goes [default: NAME.wasm in the folder of the crate]
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// More arguments for `cargo build`, such as --offline or --features x
    #[arg(last = true, value_name = "ARGUMENT")]
    cargo: Vec<String>,
}

/// A component that was built.
#[derive(Debug)]
pub struct Built {
    /// Name of the crate.
    pub name: String,
    pub component: Vec<u8>,
    pub file: PathBuf,
}

/// Builds, checks, and says what came of it.
pub fn run(args: BuildArgs) -> anyhow::Result<ExitCode> {
    let built = build(&args.dir, args.out, &args.cargo)?;
    let facts = Facts::of(&built.component, None)?;
    let terms = Terms { grants: all_wanted(&facts.manifest), ..Terms::default() };
    Policy::load(&engine()?, &built.name, &built.component, &terms)
        .with_context(|| format!("{} was written, but a gateway would not take it", built.file.display()))?;
    say!("component   {}", built.file.display());
    say_part!("{facts}");
    Ok(ExitCode::SUCCESS)
}

/// Builds the crate in `dir` and writes the component. What cargo says goes to standard error.
///
/// # Errors
///
/// When something is missing (the target, a `cdylib`, a hook) or the code does not compile, with what to do.
pub fn build(dir: &Path, out: Option<PathBuf>, arguments: &[String]) -> anyhow::Result<Built> {
    let dir = dir.canonicalize().with_context(|| format!("{} is not there", dir.display()))?;
    let toml = dir.join("Cargo.toml");
    if !toml.is_file() {
        bail!("{} has no Cargo.toml: `lockgate policy new NAME` writes a crate to begin with", dir.display());
    }
    cargo::need_target().map_err(anyhow::Error::msg)?;
    let packages = cargo::packages(&toml).map_err(anyhow::Error::msg)?;
    let Some(package) = packages.iter().find(|p| p["manifest_path"].as_str().map(Path::new) == Some(&toml)) else {
        bail!("{} is a workspace without a package of its own: give the folder of the policy's crate", toml.display());
    };
    let package = component::Package::read(package).map_err(anyhow::Error::msg)?;
    let modules = cargo::compile(&toml, &[&package.name], arguments, Stdio::inherit()).map_err(anyhow::Error::msg)?;
    let module = modules.get(&package.library).with_context(|| format!("cargo built no module of {}", package.name))?;
    let module = std::fs::read(module).with_context(|| format!("{} cannot be read", module.display()))?;
    let component = component::encode(&module, package.manifest).map_err(anyhow::Error::msg)?;
    let file = out.unwrap_or_else(|| dir.join(format!("{}.wasm", package.name)));
    replace(&file, &component).with_context(|| format!("{} cannot be written", file.display()))?;
    Ok(Built { name: package.name, component, file })
}

/// Writes a file so that whoever watches it sees the old or the new contents, never a part.
fn replace(file: &Path, contents: &[u8]) -> std::io::Result<()> {
    let mut part = file.as_os_str().to_owned();
    part.push(".part");
    std::fs::write(&part, contents)?;
    std::fs::rename(&part, file)
}

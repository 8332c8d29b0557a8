//! `lockgate policy inspect`: what a component is, what it wants, and whether a gateway takes it.

use std::fmt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use lockgate_policy::component::{self, Shape};
use lockgate_policy::{Manifest, Policy, Terms};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::component::{Component, all_wanted, engine, grouped, words};

/// Show what a component is, what it wants, and whether it loads
#[derive(Debug, clap::Args)]
pub struct InspectArgs {
    /// The component; a folder with a policy crate, which is built first; or the name of a policy that ships
    file: PathBuf,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What can be read from a component without running it.
#[derive(Debug)]
pub struct Facts {
    pub manifest: Manifest,
    pub shape: Shape,
    pub size: usize,
    /// SHA-256, 64 hexadecimal digits.
    pub digest: String,
}

/// Prints the facts. Exit code 1 if it does not load.
pub fn run(args: InspectArgs) -> anyhow::Result<ExitCode> {
    let component = Component::find(&args.file)?;
    let facts = Facts::of(&component.bytes, Some(component.manifest()?))?;
    let terms = Terms { grants: all_wanted(&facts.manifest), ..Terms::default() };
    let engine = engine()?;
    let started = Instant::now();
    let loaded = Policy::load(&engine, &component.name, component.code(), &terms);
    let took = started.elapsed();
    if args.json {
        let mut all = facts.json();
        all["loads"] = json!(loaded.is_ok());
        match &loaded {
            Ok(_) => all["load_ms"] = json!(took.as_millis() as u64),
            Err(error) => all["error"] = json!(error.to_string()),
        }
        println!("{all:#}");
    } else {
        print!("{facts}");
        match &loaded {
            Ok(_) => println!("loads       yes, in {} ms, if it is granted what it wants", took.as_millis()),
            Err(error) => println!("loads       no: {error}"),
        }
    }
    Ok(if loaded.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

// === impl Facts ===

impl Facts {
    /// Reads a component; `manifest` if it is known already.
    ///
    /// # Errors
    ///
    /// When it is not a component, or its manifest cannot be read.
    pub fn of(component: &[u8], manifest: Option<Manifest>) -> anyhow::Result<Facts> {
        let manifest = match manifest {
            Some(manifest) => manifest,
            None => Manifest::of(component).map_err(anyhow::Error::msg)?.unwrap_or_default(),
        };
        let shape = component::shape(component).map_err(anyhow::Error::msg)?;
        let digest = Sha256::digest(component).iter().map(|b| format!("{b:02x}")).collect();
        Ok(Facts { manifest, shape, size: component.len(), digest })
    }

    fn json(&self) -> Value {
        json!({
            "manifest": self.manifest,
            "contract": self.shape.contract,
            "hooks": self.shape.hooks,
            "imports": self.shape.imports,
            "size": self.size,
            "sha256": self.digest,
        })
    }

    fn optional(&self) -> String {
        let optional = &self.manifest.capabilities.optional;
        let capabilities = lockgate_policy::Capabilities {
            claims: optional.claims.clone(),
            every_call: optional.every_call,
            clock: optional.clock,
            random: optional.random,
        };
        words(&capabilities).replace("claims: [*]", "any claims")
    }
}

impl fmt::Display for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Facts { manifest, shape, size, digest } = self;
        let mut line = |label: &str, value: &str| writeln!(f, "{label:<11} {value}");
        let or = |text: &Option<String>, other: &str| text.clone().unwrap_or_else(|| other.to_owned());
        line("name", &format!("{} {}", or(&manifest.name, "(none given)"), or(&manifest.version, "(no version)")))?;
        if let Some(description) = &manifest.description {
            line("about", description)?;
        }
        line("contract", &or(&shape.contract, "(none)"))?;
        line("hooks", &shape.hooks.iter().map(String::as_str).collect::<Vec<_>>().join(", "))?;
        for (i, import) in shape.imports.iter().enumerate() {
            line(if i == 0 { "imports" } else { "" }, import)?;
        }
        line("wants", &words(&all_wanted(manifest)))?;
        if !manifest.capabilities.optional.is_empty() {
            line("can use", &self.optional())?;
        }
        let keys = |schema: &Value| match schema["properties"].as_object() {
            Some(keys) if !keys.is_empty() => format!("checked; keys {}", keys.keys().map(String::as_str).collect::<Vec<_>>().join(", ")),
            _ => "checked".to_owned(),
        };
        line("config", &manifest.config_schema.as_ref().map_or("anything".to_owned(), keys))?;
        line("size", &format!("{} bytes", grouped(*size)))?;
        line("sha256", digest)
    }
}

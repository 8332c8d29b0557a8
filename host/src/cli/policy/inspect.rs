//! `lockgate policy inspect`: what a component is, what it wants, and whether a gateway takes it.

use std::fmt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::bail;
use lockgate_policy::component::{self, Shape};
use lockgate_policy::{Capabilities, Engine, Entry, Failing, Manifest, Policy, Terms};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::component::{Component, all_wanted, engine, grouped, words};
use crate::config::{self, Config, PolicyRef, PolicySource, Sources, VirtualHost};

/// Show what a component is, what it wants, and whether it loads
#[derive(Debug, clap::Args)]
pub struct InspectArgs {
    /// The component; a folder with a policy crate, which is built first; or the name of a policy that ships
    file: PathBuf,

    /// Show what this configuration grants it, and whether it loads there
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,

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

/// On what terms a component is loaded, and how that went.
struct Loaded {
    /// `/mcp`, or that it is granted all that it wants.
    place: String,
    grants: Capabilities,
    took: Duration,
    refused: Option<String>,
}

/// Prints the facts. Exit code 1 if it does not load.
pub fn run(args: InspectArgs) -> anyhow::Result<ExitCode> {
    let component = Component::find(&args.file)?;
    let facts = Facts::of(&component.bytes, Some(component.manifest()?))?;
    let engine = engine()?;
    let mut all = Vec::new();
    match &args.config {
        None => {
            let terms = Terms { grants: all_wanted(&facts.manifest), ..Terms::default() };
            all.push(load(&engine, &component, "if it is granted what it wants".to_owned(), &terms, None));
        }
        Some(file) => {
            let sources = Sources { config: Some(file.clone()), ..Sources::default() };
            let config = config::load(&sources)?.config;
            for (path, policy) in uses(&config, &component) {
                // The aliases of a virtual host are made into a configuration when it starts.
                let setting = (policy.source != PolicySource::Shipped || policy.name != "alias").then(|| policy.config.to_string());
                all.push(load(&engine, &component, format!("at {path}"), &policy.terms, setting));
            }
            if all.is_empty() {
                bail!("{} does not use {}", file.display(), args.file.display());
            }
        }
    }
    if args.json {
        let mut json = facts.json();
        json["loads"] = all.iter().map(Loaded::json).collect();
        say!("{json:#}");
    } else {
        say_part!("{facts}");
        for loaded in &all {
            if args.config.is_some() {
                say!("granted     {}: {}", loaded.place, words(&loaded.grants));
            }
            match &loaded.refused {
                None => say!("loads       yes, {}, in {} ms", loaded.place, loaded.took.as_millis()),
                Some(why) => say!("loads       no, {}: {why}", loaded.place),
            }
        }
    }
    Ok(if all.iter().all(|l| l.refused.is_none()) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Where a configuration uses the component, by its file or, if it ships, by its name.
fn uses<'a>(config: &'a Config, component: &Component) -> Vec<(&'a str, &'a PolicyRef)> {
    let file = component.file.as_ref().and_then(|file| file.canonicalize().ok());
    let is_this = |policy: &PolicyRef| match &policy.source {
        PolicySource::Shipped => file.is_none() && policy.name == component.name,
        PolicySource::File(path) => file.is_some() && path.canonicalize().ok() == file,
    };
    let of = |host: &'a VirtualHost| host.policies.iter().filter(|p| is_this(p)).map(|p| (&*host.path, p));
    config.virtual_hosts.iter().flat_map(of).collect()
}

fn load(engine: &Arc<Engine>, component: &Component, place: String, terms: &Terms, setting: Option<String>) -> Loaded {
    let started = Instant::now();
    let loaded = Policy::load(engine, &component.name, component.code(), terms);
    let took = started.elapsed();
    let fits = loaded.and_then(|policy| match setting {
        Some(setting) => Entry::new(policy, setting, Failing::default()).map(drop),
        None => Ok(()),
    });
    Loaded { place, grants: terms.grants.clone(), took, refused: fits.err().map(|e| e.to_string()) }
}

impl Loaded {
    fn json(&self) -> Value {
        json!({
            "place": self.place,
            "granted": words(&self.grants),
            "ms": self.took.as_millis() as u64,
            "ok": self.refused.is_none(),
            "error": self.refused,
        })
    }
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

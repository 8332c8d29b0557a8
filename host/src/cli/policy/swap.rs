//! `lockgate policy swap`: new code for a policy of a running gateway. The gateway checks, compiles and tries it before it takes it; if anything
//! is wrong, the old code stays.

use std::path::PathBuf;
use std::process::ExitCode;

use bytes::Bytes;
use lockgate_policy::{Manifest, component};
use serde_json::Value;

use super::admin::{AdminFlags, AdminPort, Refusal, shown};
use super::component::Component;

/// Put new code for a policy into the running gateway
#[derive(Debug, clap::Args)]
pub struct SwapArgs {
    /// The policy, by its name in the gateway's configuration
    name: String,

    /// The component; a folder with a policy crate, which is built first; or the name of a policy that ships
    file: PathBuf,

    /// Only at this virtual host [default: wherever a policy of this name runs]
    #[arg(long, value_name = "PATH")]
    virtual_host: Option<String>,

    /// Only if this is the component's SHA-256
    #[arg(long, value_name = "HEX")]
    sha256: Option<String>,

    #[command(flatten)]
    admin: AdminFlags,
}

/// Swaps, and says what runs now. Exit code 1 if the gateway keeps the old.
pub async fn run(args: SwapArgs) -> anyhow::Result<ExitCode> {
    let component = Component::find(&args.file)?;
    let order = Order { name: &args.name, virtual_host: args.virtual_host.as_deref(), sha256: args.sha256.as_deref() };
    let answer = match swap(&args.admin.port()?, &order, whole(&component)?).await {
        Ok(answer) => answer,
        Err(error) => {
            return match error.downcast::<Refusal>() {
                Ok(refusal) => {
                    if args.admin.json {
                        say!("{:#}", refusal.answer);
                    }
                    eprintln!("lockgate: not swapped: {}{}", refusal.message, kept(&refusal.answer));
                    Ok(ExitCode::FAILURE)
                }
                Err(error) => Err(error),
            };
        }
    };
    if args.admin.json {
        say!("{answer:#}");
    } else {
        for line in lines(&answer) {
            say!("{line}");
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What to swap where.
#[derive(Debug, Clone, Copy)]
pub struct Order<'a> {
    pub name: &'a str,
    pub virtual_host: Option<&'a str>,
    pub sha256: Option<&'a str>,
}

/// Sends a component to a gateway.
///
/// # Errors
///
/// When there is no answer, or the gateway keeps the old ([`Refusal`]).
pub async fn swap(port: &AdminPort, order: &Order<'_>, component: Vec<u8>) -> anyhow::Result<Value> {
    let given = [("virtual_host", order.virtual_host), ("sha256", order.sha256)];
    let query: Vec<(&str, &str)> = given.into_iter().filter_map(|(key, value)| Some((key, value?))).collect();
    port.post(&format!("/policies/{}", order.name), &query, Bytes::from(component)).await
}

/// What is sent: the component, with the manifest of the file beside it inside.
pub fn whole(component: &Component) -> anyhow::Result<Vec<u8>> {
    match &component.beside {
        Some(manifest) if Manifest::of(&component.bytes).map_err(anyhow::Error::msg)?.is_none() => {
            Ok(component::with_manifest(component.bytes.clone(), manifest))
        }
        _ => Ok(component.bytes.clone()),
    }
}

/// What runs now, a line for each virtual host.
pub fn lines(answer: &Value) -> Vec<String> {
    let swapped = answer["swapped"].as_array().map(Vec::as_slice).unwrap_or_default();
    let line = |s: &Value| {
        let digest = shown(&s["digest"]);
        let digest = digest.get(..12).unwrap_or(&digest);
        format!("{}: generation {}, version {}, sha256 {digest}…", shown(&s["virtual_host"]), s["generation"], shown(&s["version"]))
    };
    swapped.iter().map(line).collect()
}

/// What still runs, after a refusal.
pub fn kept(answer: &Value) -> String {
    let kept = answer["kept"].as_array().map(Vec::as_slice).unwrap_or_default();
    kept.iter().map(|k| format!("\n{}: generation {} stays", shown(&k["virtual_host"]), k["generation"])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_answer_is_told_in_a_line_for_each_virtual_host() {
        let answer =
            json!({ "swapped": [{ "virtual_host": "/mcp", "generation": 7, "version": "1.2\u{1b}[3m", "digest": "a".repeat(64) }] });
        assert_eq!(lines(&answer), ["/mcp: generation 7, version 1.2\\u{1b}[3m, sha256 aaaaaaaaaaaa…"]);
        assert_eq!(kept(&json!({ "error": "no", "kept": [{ "virtual_host": "/mcp", "generation": 6 }] })), "\n/mcp: generation 6 stays");
        assert!(lines(&json!({})).is_empty() && kept(&json!(null)).is_empty());
    }
}

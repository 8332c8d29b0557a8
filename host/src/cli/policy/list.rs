//! `lockgate policy list`: the policies that a running gateway runs, by virtual host, and how they do.

use std::process::ExitCode;

use serde_json::Value;

use super::admin::{AdminFlags, shown};

/// Show the policies of the running gateway
#[derive(Debug, clap::Args)]
pub struct ListArgs {
    #[command(flatten)]
    admin: AdminFlags,
}

/// Asks and prints.
pub async fn run(args: ListArgs) -> anyhow::Result<ExitCode> {
    let answer = args.admin.port()?.get("/policies", &[]).await?;
    if args.admin.json {
        println!("{answer:#}");
    } else {
        print!("{}", table(&answer));
    }
    Ok(ExitCode::SUCCESS)
}

fn table(answer: &Value) -> String {
    let array = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut out = String::new();
    for host in array(&answer["virtual_hosts"]) {
        out.push_str(&format!("{}  generation {}\n", shown(&host["virtual_host"]), host["generation"]));
        for policy in array(&host["policies"]) {
            let hooks: Vec<String> = array(&policy["hooks"]).iter().map(shown).collect();
            let digest = shown(&policy["digest"]);
            let line = format!(
                "  {:<16} {:<14} {:<12} {}",
                shown(&policy["name"]),
                shown(&policy["version"]),
                digest.get(..12).unwrap_or(&digest),
                hooks.join(", ")
            );
            out.push_str(line.trim_end());
            out.push('\n');
        }
    }
    out
}

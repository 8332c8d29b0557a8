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
        say!("{answer:#}");
    } else {
        say_part!("{}", table(&answer));
    }
    Ok(ExitCode::SUCCESS)
}

fn table(answer: &Value) -> String {
    let array = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let short = |digest: &Value| shown(digest).chars().take(12).collect::<String>();
    let mut out = String::new();
    for host in array(&answer["virtual_hosts"]) {
        out.push_str(&format!("{}  generation {}\n", shown(&host["virtual_host"]), host["generation"]));
        for policy in array(&host["policies"]) {
            let hooks: Vec<String> = array(&policy["hooks"]).iter().map(shown).collect();
            let from = match policy["file"].as_str() {
                Some(_) => shown(&policy["file"]),
                None => shown(&policy["source"]),
            };
            let (name, version, digest) = (shown(&policy["name"]), shown(&policy["version"]), short(&policy["digest"]));
            out.push_str(&format!("  {name:<16} {version:<12} {digest}  {}  ({from})\n", hooks.join(", ")));
        }
        let last = &host["last_swap"];
        if last.is_object() {
            let why = if last["reason"].is_null() { String::new() } else { format!(": {}", shown(&last["reason"])) };
            out.push_str(&format!("  last change {} by {}: {}{why}\n", shown(&last["time"]), shown(&last["by"]), shown(&last["outcome"])));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_virtual_host_shows_its_policies_and_how_the_last_change_ended() {
        let policy = |name: &str, file: Value| json!({ "name": name, "version": "0.1.0", "digest": "0123456789abcdef", "hooks": ["router", "namespace"], "source": "file", "file": file });
        let last = json!({ "time": "2026-01-01T00:00:00Z", "by": "file", "outcome": "refused", "reason": "it trapped" });
        let answer = json!({ "virtual_hosts": [
            { "virtual_host": "/mcp", "generation": 3, "last_swap": last, "policies": [policy("mine", json!("/p/mine.wasm"))] },
            { "virtual_host": "/api", "generation": 1, "last_swap": null, "policies": [] },
        ] });
        let expected = "/mcp  generation 3
  mine             0.1.0        0123456789ab  router, namespace  (/p/mine.wasm)
  last change 2026-01-01T00:00:00Z by file: refused: it trapped
/api  generation 1
";
        assert_eq!(table(&answer), expected);
    }
}

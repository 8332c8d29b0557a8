//! `lockgate policy explain`: what each policy of a running gateway says about a name, and what a call to it would do.

use std::process::ExitCode;

use serde_json::Value;

use super::admin::{AdminFlags, shown};

/// Show which policy says what about a name
#[derive(Debug, clap::Args)]
pub struct ExplainArgs {
    /// The public name: of a tool or a prompt, or a URI
    name: String,

    #[arg(long, value_name = "PATH", default_value = "/mcp")]
    virtual_host: String,

    /// Whose session to imagine
    #[arg(long, value_name = "NAME", default_value = "anonymous")]
    principal: String,

    #[arg(long, value_parser = ["tool", "prompt", "resource", "resource-template"], default_value = "tool")]
    kind: String,

    #[command(flatten)]
    admin: AdminFlags,
}

/// Asks and prints.
pub async fn run(args: ExplainArgs) -> anyhow::Result<ExitCode> {
    let query = [("virtual_host", &*args.virtual_host), ("principal", &*args.principal), ("kind", &*args.kind), ("name", &*args.name)];
    let answer = args.admin.port()?.get("/policies/explain", &query).await?;
    if args.admin.json {
        say!("{answer:#}");
    } else {
        say_part!("{} {:?} at {} for {}\n{}", args.kind, args.name, args.virtual_host, args.principal, story(&answer));
    }
    Ok(ExitCode::SUCCESS)
}

fn story(answer: &Value) -> String {
    let steps = answer["steps"].as_array().map(Vec::as_slice).unwrap_or_default();
    let who = |step: &Value| match step["policy"].as_str() {
        Some(_) => format!("{} {}", shown(&step["policy"]), shown(&step["version"])),
        None => "gateway".to_owned(),
    };
    let hook = |step: &Value| step["hook"].as_str().unwrap_or_default().to_owned();
    let widest = |text: &dyn Fn(&Value) -> String| steps.iter().map(|s| text(s).chars().count()).max().unwrap_or(0);
    let (first, second) = (widest(&who), widest(&hook));
    let mut out = String::new();
    for step in steps {
        out.push_str(&format!("  {:<first$}  {:<second$}  {}\n", who(step), hook(step), shown(&step["outcome"])));
    }
    out + &end(&answer["end"]) + "\n"
}

fn end(end: &Value) -> String {
    let field = |name: &str| shown(&end[name]);
    match end["is"].as_str() {
        Some("served") => format!("served by {} as {:?}", field("backend"), field("name")),
        Some("refused") => format!("refused by {}: {}", field("policy"), field("reason")),
        Some("hidden") => format!("hidden: it stands for {:?} of {}", field("name"), field("backend")),
        Some("unknown") => {
            "unknown: no policy can tell what it stands for; names that only a list shows are known to sessions that have read it"
                .to_owned()
        }
        Some("failed") => format!("refused, because a policy failed: {}", field("error")),
        _ => shown(end),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_story_names_who_said_what_and_how_it_ends() {
        let answer = json!({ "kind": "tool", "name": "now", "steps": [
            { "policy": "alias", "version": "0.1.0", "hook": "alias.resolve", "outcome": "an alias of \"get_time\" of time" },
            { "policy": null, "version": null, "hook": null, "outcome": "it is so" },
        ], "end": { "is": "refused", "policy": "filter", "reason": "no" } });
        let expected = "  alias 0.1.0  alias.resolve  an alias of \"get_time\" of time\n  gateway                     it is so\nrefused by filter: no\n";
        assert_eq!(story(&answer), expected);
        assert_eq!(end(&json!({ "is": "served", "backend": "time", "name": "get_time" })), "served by time as \"get_time\"");
    }
}

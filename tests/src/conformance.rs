//! Runs `@modelcontextprotocol/conformance` against a URL, or against the gateway as a client, and reads what it wrote about every check.

use std::{collections::BTreeMap, path::Path};

use serde_json::Value;
use tokio::process::Command;

use crate::{
    process::{self, Folder},
    real, within_time,
};

/// Verdicts by scenario, check and ordinal (a scenario may report a check more than once).
pub type Verdicts = BTreeMap<(String, String, usize), Verdict>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// `SUCCESS`, `FAILURE`, `WARNING`, `SKIPPED` or `INFO`.
    pub status: String,
    pub error: String,
}

/// Runs the frozen requirements of `revision` against the server at `url`.
pub async fn run(url: &str, revision: &str) -> Verdicts {
    suite(&["server", "--url", url, "--requirements", revision], &format!("{revision} against {url}")).await
}

/// Runs one scenario of `revision` with the gateway as the client, driven by `suite-client`.
pub async fn run_client(scenario: &str, revision: &str) -> Verdicts {
    let command = process::binary("suite-client");
    let command = command.to_str().expect("the path is UTF-8");
    suite(&["client", "--command", command, "--scenario", scenario, "--spec-version", revision], &format!("client {scenario} {revision}"))
        .await
}

async fn suite(arguments: &[&str], what: &str) -> Verdicts {
    let folder = Folder::new("conformance");
    let mut command = Command::new(real::node22());
    command.arg(real::module("@modelcontextprotocol/conformance/dist/index.js"));
    command.args(arguments).arg("-o").arg(folder.path());
    command.kill_on_drop(true);
    let limit = std::time::Duration::from_secs(240);
    let output = within_time(limit, "the conformance suite", command.output()).await.expect("node runs");
    let verdicts = read(folder.path());
    let text = String::from_utf8_lossy(&output.stdout);
    let end = text.lines().rev().find(|line| line.starts_with("Total:") || line.starts_with("Passed:"));
    println!("conformance {what}: {} checks; {}", verdicts.len(), end.unwrap_or("no total"));
    assert!(!verdicts.is_empty(), "the suite wrote nothing: {text}{}", String::from_utf8_lossy(&output.stderr));
    verdicts
}

fn read(folder: &Path) -> Verdicts {
    let mut verdicts = Verdicts::new();
    for entry in std::fs::read_dir(folder).expect("the output folder can be read").flatten() {
        let Ok(text) = std::fs::read_to_string(entry.path().join("checks.json")) else {
            continue;
        };
        let checks: Vec<Value> = serde_json::from_str(&text).expect("checks.json is JSON");
        let name = entry.file_name().into_string().expect("the suite writes ASCII names");
        // `server-SCENARIO-2026-11-29T19-12-18-392Z`
        let scenario = name.trim_start_matches("server-");
        let scenario = scenario.get(..scenario.len().saturating_sub(25)).unwrap_or(scenario).to_owned();
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for check in checks {
            let id = check["id"].as_str().unwrap_or_default().to_owned();
            // Traffic notes, not checks; how many there are depends on timing.
            if check["status"] == "INFO" {
                continue;
            }
            let count = counts.entry(id.clone()).or_default();
            *count += 1;
            let text = |field: &str| check[field].as_str().unwrap_or_default().to_owned();
            let verdict = Verdict { status: text("status"), error: text("errorMessage") };
            verdicts.insert((scenario.clone(), id, *count), verdict);
        }
    }
    verdicts
}

/// How many checks have this status.
pub fn count(verdicts: &Verdicts, status: &str) -> usize {
    verdicts.values().filter(|verdict| verdict.status == status).count()
}

/// The checks that are worse in `through` than in `direct`, a line each.
pub fn worse(direct: &Verdicts, through: &Verdicts) -> Vec<String> {
    let bad = |verdict: &Verdict| verdict.status == "FAILURE" || verdict.status == "WARNING";
    let mut lines = Vec::new();
    for (check, was) in direct {
        let now = through.get(check);
        match now {
            None if was.status == "SUCCESS" => lines.push(format!("{check:?} passed directly and is missing")),
            Some(now) if bad(now) && !bad(was) => lines.push(format!("{check:?} {}: {}", now.status, now.error)),
            _ => {}
        }
    }
    for (check, now) in through {
        if bad(now) && !direct.contains_key(check) {
            lines.push(format!("{check:?} only through the gateway, {}: {}", now.status, now.error));
        }
    }
    lines
}

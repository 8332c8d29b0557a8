//! Instructions of a small call under callgrind, in either era: the figure that no other load on the machine moves. Two runs of the
//! gateway that differ in the number of calls alone; what the start and the end cost is in both.
//!
//! Held against `tests/bench/instructions.txt`, which `--record` renews. A change of the compiler moves it too: record it then.

use std::{path::PathBuf, process::Command, sync::Arc, time::Duration};

use anyhow::{Context, Result, bail};

use crate::{
    client::{Era, Target},
    lab::Lab,
    load::{self, Naming, Work},
    process::{Process, beside, find, free_address},
    subjects,
};

const CALLS: [u64; 2] = [200, 1200];
/// Calls in a session, and those that say everything by themselves; and how they are called in the file.
const ERAS: [(&str, Era); 2] = [("sessions", Era::Legacy), ("2026-07-28", Era::Modern)];
/// By how much the count may grow before that is an error.
const TOLERANCE: f64 = 1.05;

pub async fn run(record: bool) -> Result<()> {
    let Some(valgrind) = find("valgrind") else {
        println!("valgrind is not installed and instructions are not counted: `make bench-peers` installs it where it may");
        return Ok(());
    };
    let lab = Lab::set_up(0)?;
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("instructions.txt");
    let recorded = std::fs::read_to_string(&file).unwrap_or_default();
    let (mut counted, mut worse) = (String::new(), Vec::new());
    for (name, era) in ERAS {
        let mut counts = Vec::new();
        for calls in CALLS {
            counts.push(count(&lab, &valgrind, (name, era), calls).await?);
        }
        let each = (counts[1].saturating_sub(counts[0])) / (CALLS[1] - CALLS[0]);
        counted.push_str(&format!("{name} {each}\n"));
        let before = recorded_of(&recorded, name);
        match before {
            _ if record => println!("instructions of a small call, {name}: {each}"),
            None => bail!("{} has no count of {name} yet: `make bench-instructions ARGS=--record`", file.display()),
            Some(before) => {
                let ratio = each as f64 / before as f64;
                println!("instructions of a small call, {name}: {each}, recorded {before}, ratio {ratio:.3}");
                if ratio > TOLERANCE {
                    worse.push(format!("a call of {name} takes {:.1} % more instructions than recorded", (ratio - 1.0) * 100.0));
                }
            }
        }
    }
    if record {
        std::fs::write(&file, counted)?;
        println!("recorded in {}", file.display());
    }
    if worse.is_empty() { Ok(()) } else { bail!(worse.join("; ")) }
}

/// What the file says of an era: a line `NAME COUNT`.
fn recorded_of(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

/// Instructions of a whole run of the gateway with `calls` calls of one client.
async fn count(lab: &Lab, valgrind: &std::path::Path, (name, era): (&str, Era), calls: u64) -> Result<u64> {
    let address = free_address()?;
    // Without policies no WASM is set up, which valgrind has no room for; a call to a listed name enters none either.
    let config = subjects::bare(address, &lab.endpoint(era));
    let config = lab.folder.write("instructions.yaml", &config)?;
    let mut command = Command::new(valgrind);
    command
        .arg("--tool=callgrind")
        .arg(format!("--callgrind-out-file={}", lab.target.join(format!("bench/callgrind.{name}.{calls}")).display()));
    command.arg(beside("lockgate")?).arg("serve").arg("--config").arg(config);
    let mut process = Process::start(command, &lab.subject, &lab.folder.path().join("valgrind.log"))?;
    process.listens(address)?;
    let target = Arc::new(Target::new(address, "/mcp"));
    let mut callers = load::open(&target, era, 1, Naming::Listed).await?;
    for _ in 0..calls {
        callers[0].turn(Work::Echo(200)).await?;
    }
    load::close(callers).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    let log = process.stop();
    // `==123== Collected : 456`
    let line = log.lines().find_map(|line| line.split_once("Collected : ")).with_context(|| format!("callgrind counted nothing: {log}"))?;
    line.1.trim().parse().with_context(|| line.1.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_found_by_its_name() {
        let text = "sessions 120\n2026-07-28 180\n";
        assert_eq!(ERAS.map(|(name, _)| recorded_of(text, name)), [Some(120), Some(180)]);
        assert_eq!(recorded_of("120\n", "sessions"), None);
    }
}

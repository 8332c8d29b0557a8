//! Instructions of a small call under callgrind: the figure that no other load on the machine moves. Two runs of the gateway that differ
//! in the number of calls alone; what the start and the end cost is in both.
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
/// By how much the count may grow before that is an error.
const TOLERANCE: f64 = 1.05;

pub async fn run(record: bool) -> Result<()> {
    let Some(valgrind) = find("valgrind") else {
        println!("valgrind is not installed and instructions are not counted: `make bench-peers` installs it where it may");
        return Ok(());
    };
    let lab = Lab::set_up(0)?;
    let mut counts = Vec::new();
    for calls in CALLS {
        counts.push(count(&lab, &valgrind, calls).await?);
    }
    let each = (counts[1].saturating_sub(counts[0])) / (CALLS[1] - CALLS[0]);
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("instructions.txt");
    let before = std::fs::read_to_string(&file).ok().and_then(|text| text.trim().parse::<u64>().ok());
    println!("instructions of a small call: {each}");
    if record {
        std::fs::write(&file, format!("{each}\n"))?;
        println!("recorded in {}", file.display());
        return Ok(());
    }
    let Some(before) = before else { bail!("{} has no count yet: `make bench-instructions ARGS=--record`", file.display()) };
    let ratio = each as f64 / before as f64;
    println!("recorded: {before}, ratio {ratio:.3}");
    if ratio > TOLERANCE {
        bail!("a call takes {:.1} % more instructions than recorded", (ratio - 1.0) * 100.0);
    }
    Ok(())
}

/// Instructions of a whole run of the gateway with `calls` calls of one session.
async fn count(lab: &Lab, valgrind: &std::path::Path, calls: u64) -> Result<u64> {
    let address = free_address()?;
    // Without policies no WASM is set up, which valgrind has no room for; a call to a listed name enters none either.
    let config = subjects::bare(address, &lab.endpoint(Era::Legacy));
    let config = lab.folder.write("instructions.yaml", &config)?;
    let mut command = Command::new(valgrind);
    command.arg("--tool=callgrind").arg(format!("--callgrind-out-file={}", lab.target.join(format!("bench/callgrind.{calls}")).display()));
    command.arg(beside("lockgate")?).arg("serve").arg("--config").arg(config);
    let mut process = Process::start(command, &lab.subject, &lab.folder.path().join("valgrind.log"))?;
    process.listens(address)?;
    let target = Arc::new(Target::new(address, "/mcp"));
    let mut callers = load::open(&target, Era::Legacy, 1, Naming::Listed).await?;
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

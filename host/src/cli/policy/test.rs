//! `lockgate policy test`: the fixtures of a policy, in the engine of the gateway, with its limits and its checks of every answer. Each case gets a
//! session and an instance of its own.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use lockgate_policy::{Engine, Entry, Failing, Policy, Scratch, SessionView, Terms, Warm, ask};
use serde_json::Value;

use super::component::{Component, engine, grouped};
use super::fixture::{Case, Fixtures, Outcome, one_line};
use crate::config::{LogConfig, LogFormat};
use crate::telemetry;

/// Run a policy's fixtures in the real engine
///
/// Each file of fixtures is JSON with a `session`, a `config`, and `cases` of a question and the expected answer. Prints the time in the guest and its
/// memory for each case. Exit code 1 if an answer is not the expected one.
#[derive(Debug, clap::Args)]
pub struct TestArgs {
    /// A folder with a policy crate, which is built first; a component; or the name of a policy that ships
    #[arg(default_value = ".")]
    policy: PathBuf,

    /// Folder of the fixtures [default: fixtures in the crate's folder, or beside the component]
    #[arg(long, value_name = "DIR")]
    fixtures: Option<PathBuf>,

    /// Ask each question so often again in the same session, and print the median: what a call costs in an instance that is warm
    #[arg(long, value_name = "TIMES", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=100_000))]
    repeat: u32,

    /// Write the answers into the fixtures as what is expected
    #[arg(long)]
    bless: bool,
}

/// What a case cost.
struct Cost {
    time: Duration,
    memory: usize,
}

/// Runs all fixtures and prints.
pub async fn run(args: TestArgs) -> anyhow::Result<ExitCode> {
    // What the policy logs, and the text of its panics, belongs to the output of a test.
    let filter = std::env::var("LOCKGATE_LOG").unwrap_or_else(|_| "error,lockgate_policy::guest=debug".to_owned());
    telemetry::init(&LogConfig { format: LogFormat::Text, filter })?;
    let component = Component::find(&args.policy)?;
    let dir = args.fixtures.or_else(|| component.fixtures.clone()).context("say where the fixtures of this policy are: --fixtures DIR")?;
    let all = Fixtures::read_all(&dir)?;
    let engine = engine()?;
    let (mut fit, mut unfit, mut renewed) = (0, 0, 0);
    let mut loaded: Option<(Terms, Arc<Policy>)> = None;
    for fixtures in &all {
        let terms = Terms { grants: fixtures.grants.clone(), limits: fixtures.limits.clone(), sha256: None };
        let policy = match &loaded {
            Some((same, policy)) if *same == terms => policy.clone(),
            _ => {
                let started = Instant::now();
                let policy = Policy::load(&engine, &component.name, component.code(), &terms)
                    .with_context(|| format!("{}, with what it grants", fixtures.path.display()))?;
                let (size, took) = (grouped(component.bytes.len()), started.elapsed().as_millis());
                say!("{} {}: {size} bytes, loaded in {took} ms", policy.name(), policy.version());
                loaded = Some((terms, policy.clone()));
                policy
            }
        };
        say!("{}", fixtures.path.display());
        let mut outcomes = Vec::new();
        for case in &fixtures.cases {
            let (outcome, cost) = one(&engine, &policy, case, args.repeat).await?;
            let fits = case.fits(&outcome) && case.fits_state(&outcome);
            let word = match (fits, args.bless) {
                (true, _) => "ok",
                (false, true) => "renewed",
                (false, false) => "FAILED",
            };
            say!("  {word:<8} {:>9}  {:>9}  {}", milliseconds(cost.time), mebibytes(cost.memory), case.name);
            if !fits {
                say_part!("{}", difference(case, &outcome));
            }
            *(if fits { &mut fit } else { &mut unfit }) += 1;
            outcomes.push(outcome);
        }
        let text = fixtures.renewed(&outcomes);
        if args.bless && outcomes.iter().zip(&fixtures.cases).any(|(o, c)| !c.fits(o) || !c.fits_state(o)) {
            std::fs::write(&fixtures.path, text).with_context(|| format!("{} cannot be written", fixtures.path.display()))?;
            renewed += 1;
        }
    }
    let cases = fit + unfit;
    match (unfit, args.bless) {
        (0, _) => say!("{cases} cases, all as expected"),
        (_, true) => say!("{cases} cases, {unfit} renewed in {renewed} files: read the difference before you keep it"),
        (_, false) => say!("{cases} cases, {unfit} not as expected (if the answers are right: --bless)"),
    }
    Ok(if unfit == 0 || args.bless { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn one(engine: &Arc<Engine>, policy: &Arc<Policy>, case: &Case, repeat: u32) -> anyhow::Result<(Outcome, Cost)> {
    let s = &case.session;
    let scratch = Scratch::with(policy, s.state.clone().unwrap_or_default()).map_err(anyhow::Error::msg);
    let view = SessionView {
        principal: s.principal.as_deref().unwrap_or("anonymous").into(),
        claims: s.claims(),
        virtual_host: s.virtual_host.as_deref().unwrap_or("/mcp").into(),
        backends: s.backends(),
        scratch: scratch.with_context(|| format!("the state of {:?}", case.name))?,
        warm: Warm::new(),
    };
    let entry = match Entry::new(policy.clone(), &*case.config, Failing::default()) {
        Ok(entry) => entry,
        Err(error) => {
            let outcome = Outcome { answer: Err(("config".to_owned(), error.to_string())), state: view.scratch.of(policy.name()) };
            return Ok((outcome, Cost { time: Duration::ZERO, memory: 0 }));
        }
    };
    let asked = ask(engine, &entry, &view, &case.question).await;
    let outcome = Outcome::new(asked.answer, view.scratch.of(policy.name()));
    let (mut time, mut memory) = (asked.time, asked.memory_bytes);
    if repeat > 0 {
        let mut times = Vec::new();
        for _ in 0..repeat {
            let again = ask(engine, &entry, &view, &case.question).await;
            times.push(again.time);
            memory = memory.max(again.memory_bytes);
        }
        times.sort_unstable();
        time = times[times.len() / 2];
    }
    Ok((outcome, Cost { time, memory }))
}

fn milliseconds(time: Duration) -> String {
    format!("{:.3} ms", time.as_secs_f64() * 1e3)
}

fn mebibytes(bytes: usize) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

/// What was expected and what came, line by line.
fn difference(case: &Case, outcome: &Outcome) -> String {
    let mut out = String::new();
    if !case.fits(outcome) {
        let expected = case.expect.as_ref().map(lines).unwrap_or_default();
        out += &diff(&expected, &lines(&outcome.shown()));
    }
    if !case.fits_state(outcome) {
        let expected: Vec<String> = case.remembers.iter().flatten().map(|(k, v)| format!("remembers {k:?} = {v:?}")).collect();
        let found: Vec<String> = outcome.state.iter().map(|(k, v)| format!("remembers {k:?} = {v:?}")).collect();
        out += &diff(&expected, &found);
    }
    out
}

/// A list has a line for each of its elements, so that the one that differs is seen.
fn lines(value: &Value) -> Vec<String> {
    match value {
        Value::Array(all) if !all.is_empty() => all.iter().map(one_line).collect(),
        other => vec![one_line(other)],
    }
}

/// The lines of both, those that only one has marked: `-` expected, `+` answered. By the longest common subsequence.
fn diff(old: &[String], new: &[String]) -> String {
    // Beyond this many pairs the table would be larger than the difference is worth.
    const MOST: usize = 1 << 22;
    let line = |mark: char, text: &String| format!("      {mark} {text}\n");
    let mut out = String::new();
    let (mut i, mut j) = (0, 0);
    if old.len().saturating_mul(new.len()) <= MOST {
        let mut common = vec![vec![0u32; new.len() + 1]; old.len() + 1];
        for a in (0..old.len()).rev() {
            for b in (0..new.len()).rev() {
                common[a][b] = if old[a] == new[b] { common[a + 1][b + 1] + 1 } else { common[a + 1][b].max(common[a][b + 1]) };
            }
        }
        while i < old.len() && j < new.len() {
            if old[i] == new[j] {
                out += &line(' ', &old[i]);
                (i, j) = (i + 1, j + 1);
            } else if common[i + 1][j] >= common[i][j + 1] {
                out += &line('-', &old[i]);
                i += 1;
            } else {
                out += &line('+', &new[j]);
                j += 1;
            }
        }
    }
    out.extend(old[i..].iter().map(|l| line('-', l)));
    out.extend(new[j..].iter().map(|l| line('+', l)));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_marks_the_lines_that_only_one_side_has() {
        let texts = |all: &[&str]| all.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
        let shown = diff(&texts(&["a", "b", "c"]), &texts(&["a", "x", "c"]));
        assert_eq!(shown, "        a\n      - b\n      + x\n        c\n");
        assert_eq!(diff(&[], &texts(&["a"])), "      + a\n");
    }
}

//! The incident, side by side: Lockgate while everybody reads, and while one session in ten makes the same calls and has stopped
//! reading; Lockgate without those sessions and their calls; and a gateway made of rmcp's own session manager with stalled sessions.
//!
//! `cargo bench --workspace --bench stalled`, or with `--profile dev` what `make test` has built already. `INCIDENT_SESSIONS` (400),
//! `INCIDENT_SECONDS` (60), and `INCIDENT_ROUNDS` (1): on a machine that has other things to do, the runs of Lockgate in turns, the
//! ratios of each round, and their medians. Writes `target/bench/stalled.csv` (a line for each second and gateway) and
//! `target/bench/stalled.svg`.

use std::{fmt::Write as _, time::Duration};

use lockgate_tests::{
    gateway::{Gateway, http_backends},
    incident::{Outcome, Owed, Plan, Sample, backend, quantile, run},
    process::{Server, binary},
};
use tokio::process::Command;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

/// The runs of one kind.
struct Line {
    name: &'static str,
    colour: &'static str,
    runs: Vec<Outcome>,
}

impl Line {
    fn samples(&self) -> Vec<Sample> {
        self.runs.iter().flat_map(|run| &run.healthy).copied().collect()
    }
}

#[tokio::main]
async fn main() {
    let sessions = usize::try_from(setting("INCIDENT_SESSIONS", 400)).expect("a number");
    let plan = Plan {
        sessions,
        stalled: sessions / 10,
        stops: true,
        time: Duration::from_secs(setting("INCIDENT_SECONDS", 60)),
        pace: Duration::from_secs(1),
        answer: 100_000,
        logs: (128, 8000),
        limit: Duration::from_secs(10),
    };
    let reading = Plan { stops: false, ..plan };
    let fewer = Plan { sessions: plan.sessions - plan.stalled, stalled: 0, ..plan };
    let (mut without, mut read, mut with) = (Vec::new(), Vec::new(), Vec::new());
    let p99 = |run: &Outcome| quantile(&run.healthy, 0.99).as_secs_f64() * 1e3;
    let (mut to_read, mut to_without) = (Vec::new(), Vec::new());
    for round in 1..=setting("INCIDENT_ROUNDS", 1).max(1) {
        let (none, all, some) = (lockgate(fewer).await, lockgate(reading).await, lockgate(plan).await);
        println!(
            "round {round}: p99 {:.1} ms without the sessions that stall, {:.1} ms while they read, {:.1} ms while they do not",
            p99(&none),
            p99(&all),
            p99(&some)
        );
        to_read.push(p99(&some) / p99(&all));
        to_without.push(p99(&some) / p99(&none));
        without.push(none);
        read.push(all);
        with.push(some);
    }
    let lines = [
        Line { name: "Lockgate, without those that stall", colour: "#888888", runs: without },
        Line { name: "Lockgate, everybody reads", colour: "#0969da", runs: read },
        Line { name: "Lockgate, one in ten stalled", colour: "#1a7f37", runs: with },
        Line { name: "rmcp session manager, one in ten stalled", colour: "#cf222e", runs: vec![rmcp(plan).await] },
    ];
    println!("{sessions} sessions, {} of them stalled, {:?}; the others' calls", plan.stalled, plan.time);
    println!("{:<42} {:>7} {:>7} {:>10} {:>10} {:>10} {:>12} {:>10}", "", "calls", "failed", "p50", "p99", "longest", "memory", "newcomer");
    for line in &lines {
        let samples = line.samples();
        let of = |q| format!("{:.1} ms", quantile(&samples, q).as_secs_f64() * 1e3);
        let failed = samples.iter().filter(|s| !s.ok).count();
        let grown = line.runs.iter().map(|run| run.grown).max().unwrap_or(0);
        let newcomer = line.runs.iter().map(|run| run.newcomer).max().flatten();
        println!(
            "{:<42} {:>7} {failed:>7} {:>10} {:>10} {:>10} {:>8} MiB {:>10}",
            line.name,
            samples.len(),
            of(0.5),
            of(0.99),
            of(1.0),
            grown >> 20,
            newcomer.map_or("none".to_owned(), |took| format!("{:.0} ms", took.as_secs_f64() * 1e3)),
        );
    }
    println!("calls of the stalled, read afterwards");
    println!("{:<42} {:>8} {:>8} {:>8} {:>8} {:>10} {:>14}", "", "admitted", "answered", "cut", "refused", "no answer", "served again");
    for line in &lines[2..] {
        let owed = || line.runs.iter().flat_map(|run| &run.owed);
        let count = |wanted: fn(&Owed) -> bool| owed().filter(|o| wanted(o)).count();
        let served: Vec<_> = line.runs.iter().flat_map(|run| &run.recovered).collect();
        println!(
            "{:<42} {:>8} {:>8} {:>8} {:>8} {:>10} {:>14}",
            line.name,
            count(|o| o.status == 200),
            count(|o| o.answered),
            count(|o| o.cut && o.status == 200),
            count(|o| o.status == 429),
            count(|o| o.status == 0),
            format!("{} of {}", served.iter().filter(|s| s.is_some()).count(), served.len()),
        );
    }
    println!("p99 of the others while one in ten is stalled, to while these read: {:.2}", median(to_read));
    println!("to without these and their calls: {:.2}", median(to_without));
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/bench");
    std::fs::create_dir_all(&folder).expect("target can be written to");
    std::fs::write(folder.join("stalled.csv"), csv(&lines)).expect("target can be written to");
    std::fs::write(folder.join("stalled.svg"), svg(&lines, plan)).expect("target can be written to");
    println!("target/bench/stalled.csv, target/bench/stalled.svg");
}

async fn lockgate(plan: Plan) -> Outcome {
    let backend = backend(plan).await;
    let gateway = Gateway::start(&format!("{}log: {{ level: error }}\n", http_backends(&[("one", &backend.url())]))).await;
    run(gateway.listen, gateway.pid, plan).await
}

async fn rmcp(plan: Plan) -> Outcome {
    let backend = backend(plan).await;
    let mut command = Command::new(binary("rmcp-gateway"));
    command.arg(backend.url());
    let server = Server::start(command).await;
    let to = server.url.trim_start_matches("http://").trim_end_matches("/mcp").parse().expect("an address");
    let outcome = run(to, server.pid, plan).await;
    server.stop().await;
    outcome
}

/// The samples of each second.
fn seconds(samples: &[Sample]) -> Vec<(u64, Vec<Sample>)> {
    let last = samples.iter().map(|s| s.at.as_secs()).max().unwrap_or(0);
    (0..=last).map(|second| (second, samples.iter().filter(|s| s.at.as_secs() == second).copied().collect())).collect()
}

fn csv(lines: &[Line]) -> String {
    let mut out = "gateway,second,calls,failed,p50_ms,p99_ms\n".to_owned();
    for line in lines {
        let name = line.name;
        for (second, samples) in seconds(&line.samples()) {
            let ms = |q| quantile(&samples, q).as_secs_f64() * 1e3;
            let failed = samples.iter().filter(|s| !s.ok).count();
            let _ = writeln!(out, "\"{name}\",{second},{},{failed},{:.2},{:.2}", samples.len(), ms(0.5), ms(0.99));
        }
    }
    out
}

/// p99 of each second, on a logarithmic scale from 1 ms to 30 s.
fn svg(lines: &[Line], plan: Plan) -> String {
    let (width, height, left, bottom) = (760.0, 340.0, 60.0, 40.0);
    let x = |second: f64| left + second / plan.time.as_secs_f64() * (width - left - 20.0);
    let y = |ms: f64| height - bottom - (ms.clamp(1.0, 30_000.0).log10() / 30_000f64.log10()) * (height - bottom - 80.0);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    for (ms, label) in [(1.0, "1 ms"), (10.0, "10 ms"), (100.0, "100 ms"), (1000.0, "1 s"), (10_000.0, "10 s")] {
        let at = y(ms);
        let _ = writeln!(
            out,
            "<line x1=\"{left}\" x2=\"{}\" y1=\"{at}\" y2=\"{at}\" stroke=\"#ddd\"/><text x=\"8\" y=\"{}\">{label}</text>",
            width - 20.0,
            at + 4.0
        );
    }
    for (row, line) in lines.iter().enumerate() {
        let (name, colour) = (line.name, line.colour);
        let points: Vec<String> = seconds(&line.samples())
            .iter()
            .filter(|(_, samples)| !samples.is_empty())
            .map(|(second, samples)| format!("{:.1},{:.1}", x(*second as f64), y(quantile(samples, 0.99).as_secs_f64() * 1e3)))
            .collect();
        let _ = writeln!(out, "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" points=\"{}\"/>", points.join(" "));
        let _ = writeln!(out, "<text x=\"{left}\" y=\"{}\" fill=\"{colour}\">{name}</text>", 18 + 16 * row);
    }
    let _ = writeln!(
        out,
        "<text x=\"{left}\" y=\"{}\">p99 of the other sessions' calls, by the second in which they began</text>\n</svg>",
        height - 10.0
    );
    out
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

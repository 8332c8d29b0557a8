//! Tables, for a terminal and for a page.

use std::fmt::Write as _;

use crate::{
    lab::Lab,
    results::{Goal, Results},
    rounds::{Plan, Series, Table},
    stats::Spread,
};

/// Against whom calls/s and latency are put.
const DIRECT: &str = "direct";

/// The cells of one line.
struct Line {
    name: String,
    rate: String,
    rate_ratio: String,
    p50: String,
    p99: String,
    cpu: String,
    cpu_ratio: String,
}

const HEAD: [&str; 7] = ["", "calls/s", "of direct", "p50", "p99", "CPU a call", ""];

/// A table for a terminal.
pub fn text(table: &Table) -> String {
    let mut out = format!("\n{}\n", table.title);
    let [_, rate, of, p50, p99, cpu, _] = HEAD;
    let to = format!("to {}", table.base);
    let _ = writeln!(out, "{:<26} {rate:>8} {of:>10} {p50:>9} {p99:>9} {cpu:>10} {to:>24}", "");
    for series in &table.series {
        match line(table, series) {
            Some(l) => {
                let _ = writeln!(
                    out,
                    "{:<26} {:>8} {:>10} {:>9} {:>9} {:>10} {:>24}",
                    l.name, l.rate, l.rate_ratio, l.p50, l.p99, l.cpu, l.cpu_ratio
                );
            }
            None => {
                let _ = writeln!(out, "{:<26} {}", series.name, remark(series));
            }
        }
        if let (Some(remark), false) = (&series.remark, series.rounds.is_empty()) {
            let _ = writeln!(out, "{:<26} ({})", "", short(remark));
        }
    }
    out
}

/// The same for a page.
fn markdown(table: &Table) -> String {
    let mut out = format!("\n**{}**\n\n", table.title);
    let _ = writeln!(out, "| | calls/s | of direct | p50 | p99 | CPU a call | to {} |\n|---|--:|--:|--:|--:|--:|--:|", table.base);
    for series in &table.series {
        match line(table, series) {
            Some(l) => {
                let _ =
                    writeln!(out, "| {} | {} | {} | {} | {} | {} | {} |", l.name, l.rate, l.rate_ratio, l.p50, l.p99, l.cpu, l.cpu_ratio);
            }
            None => {
                let _ = writeln!(out, "| {} | {} | | | | | |", series.name, remark(series).replace('|', "\\|"));
            }
        }
    }
    out
}

fn line(table: &Table, series: &Series) -> Option<Line> {
    let of = |numbers: Vec<f64>| Spread::of(numbers).map(|spread| spread.median);
    let against = |base: &str, ours: Vec<f64>, of: fn(&Series) -> Vec<f64>| Spread::ratio(&ours, &of(table.series(base)?));
    let cpu = of(series.cpu());
    Some(Line {
        name: series.name.clone(),
        rate: format!("{:.0}", of(series.rates())?),
        rate_ratio: against(DIRECT, series.rates(), Series::rates).map_or(String::new(), |r| format!("{:.2}", r.median)),
        p50: time(of(series.p50s())?),
        p99: time(of(series.p99s())?),
        cpu: cpu.map_or(String::new(), time),
        cpu_ratio: against(&table.base, series.cpu(), Series::cpu)
            .map_or(String::new(), |r| format!("{:.2} ({:.2} to {:.2})", r.median, r.low, r.high)),
    })
}

fn remark(series: &Series) -> String {
    short(series.remark.as_deref().unwrap_or("nothing was measured"))
}

/// Long answers of servers are cut.
fn short(text: &str) -> String {
    let line: String = text.chars().filter(|c| !c.is_control()).take(110).collect();
    if line.len() < text.len() { line + " …" } else { line }
}

/// Seconds, for people.
pub fn time(seconds: f64) -> String {
    if seconds < 1e-3 { format!("{:.1} µs", seconds * 1e6) } else { format!("{:.2} ms", seconds * 1e3) }
}

pub fn goals_text(goals: &[Goal]) -> String {
    let mut out = format!("\n{:<52} {:<18} {:<30} met\n", "goal", "", "measured");
    for goal in goals {
        let _ = writeln!(out, "{:<52} {:<18} {:<30} {}", goal.figure, goal.goal, measured(goal), met(goal));
    }
    out
}

pub fn goals_markdown(goals: &[Goal]) -> String {
    let mut out = "| figure | goal | measured | met |\n|---|---|---|---|\n".to_owned();
    for goal in goals {
        let _ = writeln!(out, "| {} | {} | {} | {} |", goal.figure, goal.goal, measured(goal), met(goal));
    }
    out
}

fn measured(goal: &Goal) -> &str {
    goal.measured.as_deref().unwrap_or("not measured")
}

fn met(goal: &Goal) -> &'static str {
    match goal.met {
        Some(true) => "yes",
        Some(false) => "no",
        None => "–",
    }
}

/// Everything, for the page.
pub fn page(lab: &Lab, results: &Results, plan: Plan) -> String {
    let mut out = format!(
        "{} rounds of {} ms for each figure; medians, quartiles in brackets. {}\n",
        plan.rounds,
        plan.time.as_millis(),
        machine(lab)
    );
    for remark in &*lab.remarks.borrow() {
        let _ = writeln!(out, "\n{remark}.");
    }
    for table in &results.tables {
        out += &markdown(table);
    }
    if !results.held.is_empty() {
        out += "\n**memory of a session, KiB**\n\n| | idle | with its client's connection | with a stream | sessions |\n|---|--:|--:|--:|--:|\n";
        for held in &results.held {
            let stream = held.with_stream.map_or("refused".to_owned(), |kib| format!("{kib:.1}"));
            let _ = writeln!(out, "| {} | {:.1} | {:.1} | {stream} | {} |", held.name, held.idle, held.with_connection, held.sessions);
        }
    }
    if !results.in_flight.is_empty() {
        let all: Vec<String> = results.in_flight.iter().map(|(name, kib)| format!("{name} {kib:.0} KiB")).collect();
        let _ = writeln!(out, "\nFor each answer of 1 MiB in flight: {}.", all.join(", "));
    }
    if !results.system_share.is_empty() {
        let all: Vec<String> = results.system_share.iter().map(|(name, share)| format!("{name} {:.0} %", share * 100.0)).collect();
        let _ = writeln!(out, "\nOf that processor time, spent in the kernel (over all of the first part): {}.", all.join(", "));
    }
    out
}

/// The few lines that the README shows.
pub fn summary(results: &Results) -> String {
    let Some(table) = results.table("small-32") else { return "not measured".to_owned() };
    let mut out =
        "| a call of 200 bytes, 32 sessions | processor time | to nginx | added p50 | calls/s of direct |\n|---|--:|--:|--:|--:|\n"
            .to_owned();
    let direct = table.series(DIRECT).map(Series::p50s).unwrap_or_default();
    for series in table.series.iter().filter(|s| s.name != DIRECT) {
        let Some(l) = line(table, series) else { continue };
        let added = Spread::of(series.p50s().iter().zip(&direct).map(|(p50, direct)| p50 - direct));
        let added = added.map_or(String::new(), |s| time(s.median.max(0.0)));
        let ratio = l.cpu_ratio.split(' ').next().unwrap_or_default();
        let _ = writeln!(out, "| {} | {} | {ratio} | {added} | {} |", l.name, l.cpu, l.rate_ratio);
    }
    if let Some(table) = results.table("two-32") {
        for l in table.series.iter().filter(|s| s.name != DIRECT).filter_map(|s| line(table, s)) {
            let _ = writeln!(out, "| {}, two servers | {} | | | {} |", l.name, l.cpu, l.rate_ratio);
        }
    }
    out
}

fn machine(lab: &Lab) -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model =
        info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ")).map_or("unknown processor", |(_, name)| name);
    let pinned = match &*lab.subject {
        [core] => format!("the subject on core {core}, load and server on {:?}", lab.load),
        _ => "nothing pinned".to_owned(),
    };
    format!("{model}, load {:.1} of other things at the start; {pinned}.", lab.busy)
}

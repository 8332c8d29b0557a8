//! All that was measured, and the goals that it is held against.

use crate::{
    rounds::{Series, Table},
    stats::Spread,
};

#[derive(Debug, Default)]
pub struct Results {
    pub tables: Vec<Table>,
    pub held: Vec<Held>,
    /// KiB of a subject for each answer of 1 MiB in flight.
    pub in_flight: Vec<(String, f64)>,
    /// Seconds.
    pub start: Option<Spread>,
    /// How much of its processor time a subject spent in the kernel.
    pub system_share: Vec<(String, f64)>,
    /// The largest number of sessions of the part `growth`.
    pub most_sessions: usize,
}

/// KiB of memory for each session.
#[derive(Clone, Debug)]
pub struct Held {
    pub name: String,
    pub sessions: usize,
    /// The open-file limit may allow fewer of them.
    pub with_stream_of: usize,
    pub idle: f64,
    pub with_connection: f64,
    /// None where it refuses streams.
    pub with_stream: Option<f64>,
}

impl Held {
    pub fn line(&self) -> String {
        let stream = self.with_stream.map_or("no stream".to_owned(), |kib| format!("{kib:.1} ({} sessions)", self.with_stream_of));
        format!(
            "{:<28} KiB a session, {} sessions: idle {:.1}, with its connection {:.1}, with a stream {stream}",
            self.name, self.sessions, self.idle, self.with_connection
        )
    }
}

/// A goal, and whether it is reached.
#[derive(Clone, Debug)]
pub struct Goal {
    pub figure: &'static str,
    pub goal: &'static str,
    /// None where it was not measured.
    pub measured: Option<String>,
    pub met: Option<bool>,
}

/// Which side of the bound is good.
#[derive(Clone, Copy)]
enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

impl Results {
    pub fn table(&self, key: &str) -> Option<&Table> {
        self.tables.iter().find(|table| table.key == key)
    }

    fn series(&self, key: &str, name: &str) -> Option<&Series> {
        self.table(key)?.series(name)
    }

    /// Processor time of `ours` to `theirs`, round by round.
    fn cpu(&self, key: &str, ours: &str, theirs: &str) -> Option<Spread> {
        Spread::ratio(&self.series(key, ours)?.cpu(), &self.series(key, theirs)?.cpu())
    }

    fn rate(&self, key: &str, ours: &str, theirs: &str) -> Option<Spread> {
        Spread::ratio(&self.series(key, ours)?.rates(), &self.series(key, theirs)?.rates())
    }

    /// What `ours` adds to the median latency, to what `theirs` adds.
    fn added(&self, key: &str, ours: &str, theirs: &str) -> Option<Spread> {
        let direct = self.series(key, "direct")?.p50s();
        let over = |name| Some(self.series(key, name)?.p50s().iter().zip(&direct).map(|(p50, direct)| p50 - direct).collect::<Vec<_>>());
        Spread::ratio(&over(ours)?, &over(theirs)?)
    }

    /// The goals in their order.
    pub fn goals(&self) -> Vec<Goal> {
        let (us, bare) = ("Lockgate", "Lockgate, no policies");
        let ratio = |figure, goal, spread: Option<Spread>, bound| goal_of(figure, goal, spread, bound, "×");
        let held = |of: fn(&Held) -> Option<f64>| self.held.iter().find(|held| held.name == us).and_then(of).map(single);
        let in_flight = self.in_flight.iter().find(|(name, _)| name == us).map(|(_, kib)| single(*kib));
        let most = format!("{} sessions", self.most_sessions);
        let tools = self.cpu("tools", "1000 tools", "100 tools").map(|s| Spread {
            median: s.median / 10.0,
            low: s.low / 10.0,
            high: s.high / 10.0,
        });
        let start = self.start.map(|s| Spread { median: s.median * 1e3, low: s.low * 1e3, high: s.high * 1e3 });
        let percent = |s: Spread| Spread { median: (s.median - 1.0) * 100.0, low: (s.low - 1.0) * 100.0, high: (s.high - 1.0) * 100.0 };
        use Bound::{AtLeast, AtMost};
        vec![
            ratio("CPU of a small call, 32 sessions, to nginx", "≤ 2.0 ×", self.cpu("small-32", us, "nginx"), AtMost(2.0)),
            ratio("the same in 2026-07-28", "≤ 1.8 ×", self.cpu("modern-32", us, "nginx"), AtMost(1.8)),
            ratio("CPU, two servers, to Envoy's MCP router", "≤ 1/3", self.cpu("two-32", us, "Envoy's MCP router"), AtMost(1.0 / 3.0)),
            ratio("calls/s, two servers, to Envoy's MCP router", "≥ 3 ×", self.rate("two-32", us, "Envoy's MCP router"), AtLeast(3.0)),
            ratio("CPU, two servers, to the crate mcp-proxy", "≤ 1/3", self.cpu("two-32", us, "mcp-proxy (crate)"), AtMost(1.0 / 3.0)),
            ratio("calls/s, two servers, to the crate mcp-proxy", "≥ 3 ×", self.rate("two-32", us, "mcp-proxy (crate)"), AtLeast(3.0)),
            ratio(
                "CPU of a small call to the gateway built on rmcp",
                "≤ 1/4",
                self.cpu("small-32", us, "gateway built on rmcp"),
                AtMost(0.25),
            ),
            ratio("CPU at 16 KiB, structured, to the same", "≤ 1/10", self.cpu("structured", us, "gateway built on rmcp"), AtMost(0.1)),
            ratio("added p50 at 32 sessions to what nginx adds", "≤ 1.3 ×", self.added("small-32", us, "nginx"), AtMost(1.3)),
            ratio("calls/s of 1 MiB results to nginx", "≥ 0.9 ×", self.rate("mebibyte", us, "nginx"), AtLeast(0.9)),
            goal_of("memory for each 1 MiB result in flight", "< 256 KiB", in_flight, AtMost(256.0), "KiB"),
            goal_of("CPU of shipped policies over none", "≤ 3 %", self.cpu("policies", us, bare).map(percent), AtMost(3.0), "%"),
            ratio("CPU beside 5,000 sessions to beside 32", "≤ 1.1 ×", self.cpu("sessions", &most, "32 sessions"), AtMost(1.1)),
            ratio("CPU a tool, list of 1,000 to list of 100", "≤ 1.1 × (linear)", tools, AtMost(1.1)),
            goal_of("memory of an idle session", "≤ 4 KiB", held(|h| Some(h.idle)), AtMost(4.0), "KiB"),
            goal_of("with its client's connection", "≤ 24 KiB", held(|h| Some(h.with_connection)), AtMost(24.0), "KiB"),
            goal_of("with a stream of its client and one to the server", "≤ 64 KiB", held(|h| h.with_stream), AtMost(64.0), "KiB"),
            goal_of("start with five policies from the cache", "≤ 100 ms", start, AtMost(100.0), "ms"),
        ]
    }
}

fn single(value: f64) -> Spread {
    Spread { median: value, low: value, high: value }
}

fn goal_of(figure: &'static str, goal: &'static str, spread: Option<Spread>, bound: Bound, unit: &str) -> Goal {
    let number = |n: f64| if n.abs() >= 10.0 { format!("{n:.0}") } else { format!("{n:.2}") };
    let measured = spread.map(|s| {
        let around = if s.low == s.high { String::new() } else { format!(" ({} to {})", number(s.low), number(s.high)) };
        format!("{} {unit}{around}", number(s.median))
    });
    let met = spread.map(|s| match bound {
        Bound::AtMost(most) => s.median <= most,
        Bound::AtLeast(least) => s.median >= least,
    });
    Goal { figure, goal, measured, met }
}

impl Series {
    pub fn cpu(&self) -> Vec<f64> {
        self.rounds.iter().filter_map(|round| round.cpu).collect()
    }

    pub fn rates(&self) -> Vec<f64> {
        self.rounds.iter().map(crate::load::Figures::rate).collect()
    }

    pub fn p50s(&self) -> Vec<f64> {
        self.rounds.iter().map(|round| round.p50).collect()
    }

    pub fn p99s(&self) -> Vec<f64> {
        self.rounds.iter().map(|round| round.p99).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Figures;

    fn series(name: &str, cpu: f64, p50: f64) -> Series {
        let round = Figures { calls: 10, seconds: 1.0, cpu: Some(cpu), p50, ..Figures::default() };
        Series { name: name.to_owned(), rounds: vec![round], remark: None }
    }

    #[test]
    fn a_goal_is_met_missed_or_not_measured() {
        let table = Table {
            key: "small-32".into(),
            title: String::new(),
            base: "nginx".into(),
            series: vec![series("direct", 0.0, 0.001), series("nginx", 2e-5, 0.002), series("Lockgate", 5e-5, 0.0022)],
        };
        let goals = Results { tables: vec![table], ..Results::default() }.goals();
        let of = |text: &str| goals.iter().find(|goal| goal.figure.starts_with(text)).expect("a goal").clone();
        assert_eq!(of("CPU of a small call, 32").met, Some(false));
        assert_eq!(of("CPU of a small call, 32").measured.as_deref(), Some("2.50 ×"));
        assert_eq!(of("added p50").met, Some(true));
        assert_eq!(of("the same in 2026-07-28").met, None);
    }
}

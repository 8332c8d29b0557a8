//! What policies cost: the same calls through a gateway without policies, with those that ship, and with a router that is asked about each
//! call. Side by side in one run, round by round; the figures are ratios to the gateway without policies.
//!
//! `cargo bench --workspace --bench policies`, or with `--profile dev` what `make test` has built already.

use lockgate_tests::{
    backend::Backend,
    gateway::{Gateway, http_backends},
    load::{Figures, Load, median},
    raw,
};

const ROUNDS: usize = 40;
const SESSIONS: usize = 8;
const CALLS: usize = 250;
const BASE: &str = "no policies";

struct Contender {
    name: &'static str,
    load: Load,
    rounds: Vec<Figures>,
    _gateway: Gateway,
}

#[tokio::main]
async fn main() {
    let backend = Backend::builder("backend").tool("echo").result("tools/call", &raw::text("fine")).start().await;
    let backends = http_backends(&[("one", &backend.url())]);
    let contender = async |name, policies: &str| {
        let gateway =
            Gateway::start(&format!("{backends}virtual_hosts:\n  /mcp: {{ policies: {policies} }}\nlog: {{ level: warn }}\n")).await;
        let load = Load::open(&gateway, SESSIONS).await;
        Contender { name, load, rounds: Vec::new(), _gateway: gateway }
    };
    let mut contenders = [
        contender(BASE, "[]").await,
        contender("no policies, again", "[]").await,
        contender("alias, namespace", "[alias, namespace]").await,
    ];
    for round in 0..=ROUNDS {
        // Who comes first changes, so that whatever comes and goes on the machine meets each of them.
        contenders.rotate_left(1);
        for contender in &mut contenders {
            let figures = contender.load.run("echo", CALLS, "fine").await;
            // The first round warms up.
            if round > 0 {
                contender.rounds.push(figures);
            }
        }
    }
    let base: Vec<f64> =
        contenders[contenders.iter().position(|c| c.name == BASE).unwrap_or(0)].rounds.iter().map(|f| f.cpu.as_secs_f64()).collect();
    println!("{ROUNDS} rounds of {SESSIONS} sessions with {CALLS} calls each; medians");
    println!("{:<24} {:>12} {:>10} {:>10} {:>10}", "", "CPU a call", "ratio", "p50", "p99");
    for contender in &contenders {
        let of = |value: fn(&Figures) -> f64| median(contender.rounds.iter().map(value).collect());
        let ratio = median(contender.rounds.iter().zip(&base).map(|(f, base)| f.cpu.as_secs_f64() / base).collect());
        println!(
            "{:<24} {:>9.1} µs {ratio:>10.3} {:>7.2} ms {:>7.2} ms",
            contender.name,
            of(|f| f.cpu.as_secs_f64() * 1e6),
            of(|f| f.p50.as_secs_f64() * 1e3),
            of(|f| f.p99.as_secs_f64() * 1e3)
        );
    }
}

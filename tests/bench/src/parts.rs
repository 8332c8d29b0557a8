//! The parts of the benchmark, in the order in which they run. Each starts its own subjects and ends them.

use anyhow::Result;

use crate::{
    Options,
    client::Era,
    lab::Lab,
    load::{Naming, Work},
    memory, proc,
    results::Results,
    rounds::{self, Plan, Table, enter, leave, side_by_side},
    start,
    subjects::{Kind, Subject},
};

/// The parts by name.
pub const PARTS: [&str; 9] = ["calls", "modern", "several", "lists", "policies", "growth", "memory", "inflight", "start"];

/// Bytes of a small call.
const SMALL: usize = 200;

/// What is measured in the part `calls`, by name: what it is, sessions, work.
const CALLS: [(&str, &str, usize, Work); 7] = [
    ("small-32", "small call (200 B), 32 sessions", 32, Work::Echo(SMALL)),
    ("small-1", "small call (200 B), one session", 1, Work::Echo(SMALL)),
    ("small-512", "small call (200 B), 512 sessions", 512, Work::Echo(SMALL)),
    ("structured", "result of 16 KiB, structured, 16 sessions", 16, Work::Structured(16 << 10)),
    ("mebibyte", "result of 1 MiB, 8 sessions", 8, Work::Blob(1 << 20)),
    ("progress", "call with 50 progress notifications, 16 sessions", 16, Work::Progress(50)),
    ("lifecycle", "initialize, tools/list, DELETE, 8 clients", 8, Work::Lifecycle),
];

/// Whether there is a part, or a piece of one, of that name.
pub fn is_known(name: &str) -> bool {
    PARTS.contains(&name) || CALLS.iter().any(|call| call.0 == name)
}

pub async fn run(lab: &Lab, options: &Options, plan: Plan) -> Result<Results> {
    let mut results = Results::default();
    let asked = |name: &str| options.only.iter().any(|only| only == name);
    let wanted = |part: &str| options.only.is_empty() || asked(part) || (part == "calls" && CALLS.iter().any(|call| asked(call.0)));
    for part in PARTS.into_iter().filter(|part| wanted(part)) {
        println!("\n== {part}");
        match part {
            "calls" => calls(lab, options, plan, &mut results).await?,
            "modern" => modern(lab, plan, &mut results).await?,
            "several" => several(lab, plan, &mut results).await?,
            "lists" => lists(lab, plan, &mut results).await?,
            "policies" => policies(lab, plan, &mut results).await?,
            "growth" => growth(lab, plan, &mut results).await?,
            "memory" => memory::run(lab, plan, &mut results).await?,
            "inflight" => memory::in_flight(lab, plan, &mut results).await?,
            "start" => start::run(lab, plan, &mut results)?,
            _ => {}
        }
    }
    Ok(results)
}

/// One server, one hop.
async fn calls(lab: &Lab, options: &Options, plan: Plan, results: &mut Results) -> Result<()> {
    let mut kinds = vec![Kind::Direct, Kind::Nginx, Kind::Bare, Kind::Lockgate, Kind::Rmcp];
    kinds.extend(options.peers.iter().cloned().map(Kind::Peer));
    let subjects = rounds::start(lab, &kinds, &[("one", lab.endpoint(Era::Legacy))])?;
    let all = options.only.is_empty() || options.only.iter().any(|only| only == "calls");
    for (key, title, sessions, work) in CALLS.into_iter().filter(|call| all || options.only.iter().any(|only| only == call.0)) {
        let table = side_by_side(&subjects, Era::Legacy, (key, title, "nginx"), (sessions, work), plan).await;
        results.tables.push(table);
    }
    for subject in &subjects {
        let pids = subject.pids();
        if !pids.is_empty() {
            results.system_share.push((subject.kind.to_string(), proc::system_share(&pids)));
        }
    }
    Ok(())
}

/// Client and server both of 2026-07-28.
async fn modern(lab: &Lab, plan: Plan, results: &mut Results) -> Result<()> {
    let subjects = rounds::start(lab, &[Kind::Direct, Kind::Nginx, Kind::Lockgate], &[("one", lab.endpoint(Era::Modern))])?;
    let head = ("modern-32", "small call (200 B) in 2026-07-28, 32 clients", "nginx");
    results.tables.push(side_by_side(&subjects, Era::Modern, head, (32, Work::Echo(SMALL)), plan).await);
    Ok(())
}

/// Two servers behind gateways that put them together.
async fn several(lab: &Lab, plan: Plan, results: &mut Results) -> Result<()> {
    let backends = [("alpha", lab.endpoint(Era::Legacy)), ("beta", lab.endpoint(Era::Legacy))];
    let subjects = rounds::start(lab, &[Kind::Direct, Kind::Lockgate, Kind::Envoy, Kind::McpProxy], &backends)?;
    let head = ("two-32", "small call (200 B), two servers, 32 sessions", "Lockgate");
    results.tables.push(side_by_side(&subjects, Era::Legacy, head, (32, Work::Echo(SMALL)), plan).await);
    Ok(())
}

/// Lists that are put together, beside one that passes as it is.
async fn lists(lab: &Lab, plan: Plan, results: &mut Results) -> Result<()> {
    const BASE: &str = "Lockgate, one server of 300";
    let backends = ["a", "b", "c"].map(|name| (name, lab.list(name, 100)));
    let mut subjects = rounds::start(lab, &[Kind::Bare], &[("a", lab.list("a", 300))])?;
    subjects.extend(rounds::start(lab, &[Kind::Lockgate, Kind::Envoy, Kind::McpProxy], &backends)?);
    let (mut entrants, absent) = enter(subjects.iter().map(|s| (s, Naming::Listed)), Era::Legacy, 8).await;
    entrants.iter_mut().filter(|e| e.name == Kind::Bare.to_string()).for_each(|e| e.name = BASE.to_owned());
    let title = "tools/list of 3 servers with 100 tools each, 8 sessions";
    results.tables.push(Table::measure("list-300", title, BASE, (&mut entrants, &absent), (Work::List, 8), plan).await);
    leave(entrants).await;
    Ok(())
}

/// What policies cost a call.
async fn policies(lab: &Lab, plan: Plan, results: &mut Results) -> Result<()> {
    // Differences are small here: more rounds.
    let plan = Plan { rounds: plan.rounds * 2, ..plan };
    let kinds = [Kind::Bare, Kind::BareAgain, Kind::Lockgate, Kind::Aliased, Kind::EveryCall];
    let subjects = rounds::start(lab, &kinds, &[("one", lab.endpoint(Era::Legacy))])?;
    let named = subjects.iter().map(|s| (s, if s.kind == Kind::Aliased { Naming::Unlisted("echo") } else { Naming::Listed }));
    let (mut entrants, absent) = enter(named, Era::Legacy, 32).await;
    let title = "small call (200 B), 32 sessions: what policies cost";
    let work = (Work::Echo(SMALL), 32);
    results.tables.push(Table::measure("policies", title, "Lockgate, no policies", (&mut entrants, &absent), work, plan).await);
    leave(entrants).await;
    Ok(())
}

/// How the cost grows with the number of sessions that exist, and with the length of lists.
async fn growth(lab: &Lab, plan: Plan, results: &mut Results) -> Result<()> {
    let most = if plan.quick { 1000 } else { 5000 };
    // A connection for each at either end, and those to the server.
    let most = most.min(lab.files.saturating_sub(500) / 3);
    let backends = [("one", lab.endpoint(Era::Legacy))];
    let more = "limits: { connections: 30000 }\nsession: { max_per_principal: 30000 }\n";
    let (mut entrants, mut absent, mut subjects) = (Vec::new(), Vec::new(), Vec::new());
    // nginx beside it: connections that have been quiet for a while cost a plain hop more, too.
    for (kind, count) in [(Kind::Lockgate, 32), (Kind::Lockgate, most / 5), (Kind::Lockgate, most), (Kind::Nginx, 32), (Kind::Nginx, most)]
    {
        subjects.extend(Subject::start_with(lab, &kind, &backends, more)?.map(|subject| (subject, count)));
    }
    for (subject, count) in &subjects {
        let (mut entered, left) = enter([(subject, Naming::Listed)], Era::Legacy, *count).await;
        let of = if subject.kind == Kind::Lockgate { String::new() } else { format!(" ({})", subject.kind) };
        entered.iter_mut().for_each(|entrant| entrant.name = format!("{count} sessions{of}"));
        entrants.extend(entered);
        absent.extend(left);
    }
    let title = "small call (200 B) beside sessions that exist, 32 calls at once";
    let table = Table::measure("sessions", title, "32 sessions", (&mut entrants, &absent), (Work::Echo(SMALL), 32), plan).await;
    results.tables.push(table);
    results.most_sessions = most;
    leave(entrants).await;

    let mut entrants = Vec::new();
    let mut subjects = Vec::new();
    let counts = [100, 300, 1000];
    for count in counts {
        subjects.extend(Subject::start(lab, &Kind::Lockgate, &[("a", lab.list("a", count))])?);
    }
    for (subject, count) in subjects.iter().zip(counts) {
        let (mut entered, _) = enter([(subject, Naming::Listed)], Era::Legacy, 8).await;
        entered.iter_mut().for_each(|entrant| entrant.name = format!("{count} tools"));
        entrants.extend(entered);
    }
    let table = Table::measure("tools", "tools/list, 8 sessions", "100 tools", (&mut entrants, &[]), (Work::List, 8), plan).await;
    results.tables.push(table);
    leave(entrants).await;
    Ok(())
}

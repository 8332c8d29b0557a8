//! What a session holds while nothing happens, and what a large answer holds on its way.

use std::time::Duration;

use anyhow::Result;
use futures_util::StreamExt;

use crate::{
    client::Era,
    lab::Lab,
    load::{self, Naming, Work},
    proc,
    results::{Held, Results},
    rounds::{self, Plan},
    subjects::{Kind, Subject},
};

/// Sessions that change at the same time.
const AT_ONCE: usize = 32;
/// Sessions that come and go before anything is measured: pools and code pages are paid for by the first ones.
const WARM: usize = 100;
/// Longer than connections to servers are kept without need.
const SETTLE: Duration = Duration::from_secs(6);

/// Memory of one subject for each of its sessions, in three states.
pub async fn run(lab: &Lab, plan: Plan, results: &mut Results) -> Result<()> {
    let wanted = if plan.quick { 500 } else { 10_000 };
    let (ours, theirs) = (wanted, wanted.min(2000));
    let one = [("one", lab.endpoint(Era::Legacy))];
    let two = [("alpha", lab.endpoint(Era::Legacy)), ("beta", lab.endpoint(Era::Legacy))];
    let kinds: &[Kind] = if plan.quick { &[Kind::Nginx, Kind::Lockgate] } else { &[Kind::Nginx, Kind::Lockgate, Kind::Rmcp, Kind::Envoy] };
    for kind in kinds {
        let backends: &[_] = if *kind == Kind::Envoy { &two } else { &one };
        let more = "limits: { connections: 30000 }\nsession: { max_per_principal: 30000 }\n";
        let subject = match Subject::start_with(lab, kind, backends, more) {
            Ok(Some(subject)) => subject,
            Ok(None) => continue,
            Err(error) if !kind.is_ours() => {
                lab.remark(format!("left out: {error:#}"));
                continue;
            }
            Err(error) => return Err(error),
        };
        let many = if kind.is_ours() { ours } else { theirs };
        match measure(lab, &subject, many).await {
            Ok(held) => {
                println!("{}", held.line());
                results.held.push(held);
            }
            Err(error) => lab.remark(format!("memory of {kind}: {error:#}")),
        }
    }
    Ok(())
}

async fn measure(lab: &Lab, subject: &Subject, wanted: usize) -> Result<Held> {
    let room = lab.files.saturating_sub(500);
    // At the client: a connection, with a stream two. At the gateway those, and as many to the server.
    let (connected, listening) = (wanted.min(room / 2), wanted.min(room / 4));
    load::close(load::open(&subject.target, Era::Legacy, WARM, Naming::Listed).await?).await;
    tokio::time::sleep(SETTLE).await;
    let pids = subject.pids();
    let empty = proc::memory(&pids);
    let each = |sessions: usize| proc::memory(&pids).saturating_sub(empty) as f64 / 1024.0 / sessions.max(1) as f64;

    let mut callers = Vec::with_capacity(wanted);
    while callers.len() < wanted {
        let mut some = load::open(&subject.target, Era::Legacy, (wanted - callers.len()).min(250), Naming::Listed).await?;
        // Without a connection, as a client that has gone quiet.
        some.iter_mut().for_each(|caller| caller.session().hang_up());
        callers.append(&mut some);
    }
    tokio::time::sleep(SETTLE).await;
    let idle = each(wanted);

    let mut calling =
        futures_util::stream::iter(callers.iter_mut().take(connected)).map(|c| c.turn(Work::Echo(200))).buffer_unordered(AT_ONCE);
    while let Some(done) = calling.next().await {
        done?;
    }
    drop(calling);
    tokio::time::sleep(SETTLE).await;
    // Those that could not connect hold what they held.
    let rest = idle * (wanted - connected) as f64;
    let with_connection = (each(1) - rest) / connected as f64;

    let mut opening =
        futures_util::stream::iter(callers.iter_mut().take(listening)).map(|c| c.session().listen()).buffer_unordered(AT_ONCE);
    let mut refused = None;
    while let Some(done) = opening.next().await {
        refused = refused.or(done.err());
    }
    drop(opening);
    tokio::time::sleep(SETTLE).await;
    let rest = idle * (wanted - connected) as f64 + with_connection * (connected - listening) as f64;
    let with_stream = match refused {
        None => Some((each(1) - rest) / listening as f64),
        Some(_) => None,
    };
    // Sessions of a server that is stopped anyway.
    drop(callers);
    Ok(Held { name: subject.kind.to_string(), sessions: wanted, with_stream_of: listening, idle, with_connection, with_stream })
}

/// By how much the subjects grow for each answer of 1 MiB that is on its way.
pub async fn in_flight(lab: &Lab, plan: Plan, results: &mut Results) -> Result<()> {
    const CALLS: usize = 16;
    let subjects = rounds::start(lab, &[Kind::Nginx, Kind::Lockgate], &[("one", lab.endpoint(Era::Legacy))])?;
    for subject in &subjects {
        let mut callers = load::open(&subject.target, Era::Legacy, CALLS, Naming::Listed).await?;
        let pids = subject.pids();
        load::run(&mut callers, Work::Echo(200), CALLS, plan.time / 2, &[]).await;
        if !proc::forget_peak(&pids) {
            lab.remark("memory of calls in flight is left out: the kernel does not let the peak be measured anew");
            return Ok(());
        }
        let before = proc::peak(&pids);
        load::run(&mut callers, Work::Blob(1 << 20), CALLS, plan.time.max(Duration::from_secs(1)), &[]).await;
        let grown = proc::peak(&pids).saturating_sub(before);
        let each = grown as f64 / 1024.0 / CALLS as f64;
        println!("{:<28} {each:>8.0} KiB for each of {CALLS} answers of 1 MiB in flight", subject.kind.to_string());
        results.in_flight.push((subject.kind.to_string(), each));
        load::close(callers).await;
    }
    Ok(())
}

//! A closed loop of clients, for a time: each sends its next request when it has the answer. And what it came to.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result, bail};
use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::time::Instant;

use crate::{
    backend::STRUCTURED_MARK,
    client::{Answer, Era, Session, Target, contains, count},
    proc,
    stats::percentile,
};

/// Sessions that are opened at the same time.
const OPENING: usize = 32;

/// What each client does again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// A call with a text of so many bytes, which comes back.
    Echo(usize),
    /// A call whose result has about so many bytes of structured content.
    Structured(usize),
    /// A call whose result is a text of so many bytes.
    Blob(usize),
    /// A call that sends so many progress notifications before its result.
    Progress(usize),
    /// The list of all tools.
    List,
    /// `initialize`, the list of tools, DELETE, over a connection of its own.
    Lifecycle,
}

/// What a time of load came to.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    pub calls: u64,
    pub seconds: f64,
    /// Processor time of the subject for one call, in seconds. None for one whose process is not known.
    pub cpu: Option<f64>,
    /// Latencies in seconds.
    pub p50: f64,
    pub p99: f64,
    /// Calls that went wrong, and what was said of the first one.
    pub failed: u64,
    pub why: Option<String>,
}

impl Figures {
    pub fn rate(&self) -> f64 {
        self.calls as f64 / self.seconds.max(f64::EPSILON)
    }
}

/// A session and the names under which it calls.
#[derive(Debug)]
pub struct Caller {
    session: Session,
    number: usize,
    /// The tools of the backend by the names that the subject gave them, in the order of [`crate::backend::TOOLS`].
    tools: Arc<[String]>,
    calls: u64,
}

/// Which name a caller calls a tool by.
#[derive(Clone, Copy, Debug)]
pub enum Naming {
    /// As listed. Where several backends have it, the callers take turns.
    Listed,
    /// A name that is not in the list.
    Unlisted(&'static str),
}

/// Opens `many` sessions that have read the list of tools, as clients do.
pub async fn open(target: &Arc<Target>, era: Era, many: usize, naming: Naming) -> Result<Vec<Caller>> {
    let opening = futures_util::stream::iter(0..many).map(|number| async move {
        let mut session = Session::open(target, era).await?;
        let (listed, _) = session.list().await?;
        let name = |tool: &str| {
            let with: Vec<&String> = listed.iter().filter(|name| name.ends_with(tool)).collect();
            let of = number.checked_rem(with.len())?;
            with.get(of).map(|name| (*name).clone())
        };
        let tools = match naming {
            Naming::Listed => crate::backend::TOOLS.map(|tool| name(tool).unwrap_or_else(|| tool.to_owned())).into(),
            Naming::Unlisted(name) => crate::backend::TOOLS.map(|_| name.to_owned()).into(),
        };
        anyhow::Ok(Caller { session, number, tools, calls: 0 })
    });
    let mut opening = opening.buffer_unordered(OPENING);
    let mut callers = Vec::with_capacity(many);
    while let Some(caller) = opening.next().await {
        callers.push(caller?);
    }
    Ok(callers)
}

/// Ends sessions.
pub async fn close(callers: Vec<Caller>) {
    let mut ending = futures_util::stream::iter(callers).map(|caller| caller.session.end()).buffer_unordered(OPENING);
    while ending.next().await.is_some() {}
}

/// Lets `callers` work for `time`, `at_once` of them at any moment: sessions beyond that take turns. `pids`: whose processor time is
/// counted.
pub async fn run(callers: &mut [Caller], work: Work, at_once: usize, time: Duration, pids: &[u32]) -> Figures {
    let each = callers.len().div_ceil(at_once.max(1)).max(1);
    let before = proc::cpu(pids);
    let begun = Instant::now();
    let end = begun + time;
    let mut workers: FuturesUnordered<_> = callers.chunks_mut(each).map(|group| group_until(group, work, end)).collect();
    let (mut latencies, mut failed, mut why) = (Vec::new(), 0, None);
    while let Some((took, wrong, first)) = workers.next().await {
        latencies.extend(took);
        failed += wrong;
        why = why.or(first);
    }
    let seconds = begun.elapsed().as_secs_f64();
    let cpu = proc::cpu(pids).saturating_sub(before).as_secs_f64();
    let calls = latencies.len() as u64;
    Figures {
        calls,
        seconds,
        cpu: (!pids.is_empty() && calls > 0).then(|| cpu / calls as f64),
        p50: percentile(&mut latencies, 50) as f64 / 1e9,
        p99: percentile(&mut latencies, 99) as f64 / 1e9,
        failed,
        why,
    }
}

async fn group_until(group: &mut [Caller], work: Work, end: Instant) -> (Vec<u64>, u64, Option<String>) {
    let (mut latencies, mut failed, mut why) = (Vec::new(), 0, None);
    loop {
        for caller in &mut *group {
            if Instant::now() >= end {
                return (latencies, failed, why);
            }
            match caller.turn(work).await {
                Ok(took) => latencies.push(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX)),
                Err(error) => {
                    failed += 1;
                    why.get_or_insert_with(|| format!("{error:#}"));
                    // Not a busy loop of refusals.
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        }
    }
}

impl Caller {
    /// Does the work once, checks the answer and gives its time.
    pub async fn turn(&mut self, work: Work) -> Result<Duration> {
        self.calls += 1;
        let [echo, blob, structured, progress] = &*self.tools.clone() else { bail!("a caller has a name for each tool") };
        match work {
            Work::Echo(size) => {
                // No other session and no other call has sent this.
                let mark = format!("s{}-c{}-", self.number, self.calls);
                let answer = self.session.call(echo, &format!(r#"{{"text":"{mark:x<size$}"}}"#)).await?;
                expect(&answer, contains(&answer.body, &mark))
            }
            Work::Structured(size) => {
                let answer = self.session.call(structured, &format!(r#"{{"size":{size}}}"#)).await?;
                expect(&answer, answer.body.len() > size - size / 8 && contains(&answer.body[answer.body.len() * 7 / 8..], STRUCTURED_MARK))
            }
            Work::Blob(size) => {
                let answer = self.session.call(blob, &format!(r#"{{"size":{size}}}"#)).await?;
                expect(&answer, answer.body.len() > size)
            }
            Work::Progress(notes) => {
                let params = format!(r#""name":"{progress}","arguments":{{"count":{notes}}},"_meta":{{"progressToken":{}}}"#, self.calls);
                let answer = self.session.request("tools/call", &params, Some(progress)).await?;
                let came = count(&answer.body, "\"notifications/progress\"");
                if came < notes {
                    bail!("{came} of {notes} progress notifications came");
                }
                expect(&answer, contains(&answer.body, "\"done\""))
            }
            Work::List => {
                let begun = Instant::now();
                let (names, _) = self.session.list().await?;
                if names.is_empty() {
                    bail!("an empty list");
                }
                Ok(begun.elapsed())
            }
            Work::Lifecycle => {
                let begun = Instant::now();
                let mut session = Session::open(&self.session.target(), Era::Legacy).await?;
                session.list().await?;
                session.end().await?;
                Ok(begun.elapsed())
            }
        }
    }

    pub fn session(&mut self) -> &mut Session {
        &mut self.session
    }
}

fn expect(answer: &Answer, right: bool) -> Result<Duration> {
    if right {
        return Ok(answer.took);
    }
    Err(anyhow::anyhow!("{}", String::from_utf8_lossy(&answer.body[..answer.body.len().min(200)]))).context("not the answer to this call")
}

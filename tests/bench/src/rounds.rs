//! Subjects side by side: the same work on each, round by round, so that whatever comes and goes on the machine meets all of them.

use std::time::Duration;

use anyhow::Result;

use crate::{
    client::Era,
    lab::Lab,
    load::{self, Caller, Figures, Naming, Work},
    subjects::Subject,
};

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub rounds: usize,
    pub time: Duration,
    pub quick: bool,
}

/// The sessions at one subject.
#[derive(Debug)]
pub struct Entrant {
    pub name: String,
    pub callers: Vec<Caller>,
    pids: Vec<u32>,
}

/// The rounds of one subject.
#[derive(Clone, Debug)]
pub struct Series {
    pub name: String,
    pub rounds: Vec<Figures>,
    /// Why it has none, or what went wrong in some.
    pub remark: Option<String>,
}

/// The rounds of all subjects at one piece of work.
#[derive(Clone, Debug)]
pub struct Table {
    /// What goals and charts find it by.
    pub key: String,
    pub title: String,
    /// Whose processor time is 1.
    pub base: String,
    pub series: Vec<Series>,
}

/// Opens `sessions` sessions at each subject. A subject where that fails stands in the table with the reason.
pub async fn enter<'a>(
    subjects: impl IntoIterator<Item = (&'a Subject, Naming)>,
    era: Era,
    sessions: usize,
) -> (Vec<Entrant>, Vec<Series>) {
    let (mut entrants, mut absent) = (Vec::new(), Vec::new());
    for (subject, naming) in subjects {
        let name = subject.kind.to_string();
        match load::open(&subject.target, era, sessions, naming).await {
            Ok(callers) => entrants.push(Entrant { name, callers, pids: subject.pids() }),
            Err(error) => absent.push(Series { name, rounds: Vec::new(), remark: Some(format!("not served: {error:#}")) }),
        }
    }
    (entrants, absent)
}

/// Ends all sessions.
pub async fn leave(entrants: Vec<Entrant>) {
    for entrant in entrants {
        load::close(entrant.callers).await;
    }
}

impl Table {
    /// Measures `entrants` at `work`, with `at_once` of their sessions active at any moment.
    pub async fn measure(
        key: &str,
        title: &str,
        base: &str,
        (entrants, absent): (&mut [Entrant], &[Series]),
        (work, at_once): (Work, usize),
        plan: Plan,
    ) -> Table {
        let mut series: Vec<Series> = entrants.iter().map(|e| Series { name: e.name.clone(), rounds: Vec::new(), remark: None }).collect();
        let mut order: Vec<usize> = (0..entrants.len()).collect();
        for round in 0..plan.rounds {
            // Who comes first changes.
            let by = usize::from(!order.is_empty());
            order.rotate_left(by);
            for &at in &order {
                let (entrant, series) = (&mut entrants[at], &mut series[at]);
                if series.remark.as_ref().is_some_and(|remark| remark.starts_with("not served")) {
                    continue;
                }
                // A run-up, longer before the first: while the others had their turns, connections were closed and caches were theirs.
                let run_up = if round == 0 { plan.time / 2 } else { plan.time / 4 };
                load::run(&mut entrant.callers, work, at_once, run_up, &entrant.pids).await;
                let figures = load::run(&mut entrant.callers, work, at_once, plan.time, &entrant.pids).await;
                if let Some(why) = &figures.why {
                    let all = figures.calls == 0;
                    let what = if all { "not served".to_owned() } else { format!("{} calls failed", figures.failed) };
                    series.remark = Some(format!("{what}: {why}"));
                }
                if figures.calls > 0 {
                    series.rounds.push(figures);
                }
            }
        }
        series.extend(absent.iter().cloned());
        let table = Table { key: key.to_owned(), title: title.to_owned(), base: base.to_owned(), series };
        print!("{}", crate::report::text(&table));
        table
    }

    pub fn series(&self, name: &str) -> Option<&Series> {
        self.series.iter().find(|series| series.name == name && !series.rounds.is_empty())
    }
}

/// The usual way through: enter, measure, leave.
pub async fn side_by_side(
    subjects: &[Subject],
    era: Era,
    (key, title, base): (&str, &str, &str),
    (sessions, work): (usize, Work),
    plan: Plan,
) -> Table {
    let (mut entrants, absent) = enter(subjects.iter().map(|s| (s, Naming::Listed)), era, sessions).await;
    let table = Table::measure(key, title, base, (&mut entrants, &absent), (work, sessions), plan).await;
    leave(entrants).await;
    table
}

/// Starts those that are installed.
pub fn start(lab: &Lab, kinds: &[crate::subjects::Kind], backends: &[(&str, String)]) -> Result<Vec<Subject>> {
    let mut subjects = Vec::new();
    for kind in kinds {
        match Subject::start(lab, kind, backends) {
            Ok(subject) => subjects.extend(subject),
            // A peer that does not start is left out; ours has to.
            Err(error) if !kind.is_ours() => lab.remark(format!("left out: {error:#}")),
            Err(error) => return Err(error),
        }
    }
    Ok(subjects)
}

//! Credit is never lost, doubled or negative, under any order of what can happen to it: compared step by step with a model that counts
//! in the plainest way.

use super::*;
use crate::admission::ledger::Permit;
use proptest::collection::vec;
use proptest::prelude::*;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Waker};

const METERS: usize = 3;

#[derive(Clone, Debug)]
enum Step {
    Admit,
    /// Somebody who waits as long as it takes.
    Wait,
    Owe(usize),
    TryOwe(usize),
    Resize(usize, usize),
    Split(usize, usize),
    Join(usize, usize),
    Cancel(usize),
    StopWaiting(usize),
    Give(usize, usize, usize),
    Write(usize, usize),
    Flush(usize),
    Drain(usize, usize),
    Close(usize),
    Read(usize),
    Grow(usize, usize),
    StopReading(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let n = 0..8usize;
    let m = 0..METERS;
    let bytes = 0..600usize;
    prop_oneof![
        3 => Just(Step::Admit),
        2 => Just(Step::Wait),
        2 => bytes.clone().prop_map(Step::Owe),
        2 => bytes.clone().prop_map(Step::TryOwe),
        1 => (n.clone(), bytes.clone()).prop_map(|(a, b)| Step::Resize(a, b)),
        1 => (n.clone(), bytes.clone()).prop_map(|(a, b)| Step::Split(a, b)),
        1 => (n.clone(), n.clone()).prop_map(|(a, b)| Step::Join(a, b)),
        2 => n.clone().prop_map(Step::Cancel),
        1 => n.clone().prop_map(Step::StopWaiting),
        4 => (m.clone(), n.clone(), bytes.clone()).prop_map(|(m, p, b)| Step::Give(m, p, b)),
        4 => (m.clone(), bytes.clone()).prop_map(|(m, b)| Step::Write(m, b)),
        3 => m.clone().prop_map(Step::Flush),
        4 => (m.clone(), bytes.clone()).prop_map(|(m, b)| Step::Drain(m, b)),
        1 => m.clone().prop_map(Step::Close),
        1 => (0..2usize).prop_map(Step::Read),
        2 => (n.clone(), bytes).prop_map(|(a, b)| Step::Grow(a, b)),
        1 => n.prop_map(Step::StopReading),
    ]
}

/// What a connection holds, as the model sees it: frames, bytes, and the end in the stream once it is known.
#[derive(Default)]
struct Line {
    closed: bool,
    unwritten: u64,
    written: u64,
    drained: u64,
    held: Vec<(usize, usize, Option<u64>)>,
}

type Waiting = Pin<Box<dyn Future<Output = Permit>>>;

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn credit_is_never_lost_doubled_or_negative(steps in vec(step(), 1..120)) {
        let ledger = ledger();
        let connections: Vec<_> = (0..METERS).map(|_| connection()).collect();
        let mut lines: Vec<Line> = (0..METERS).map(|_| Line::default()).collect();
        let mut held: Vec<Permit> = Vec::new();
        let mut waiting: Vec<Waiting> = Vec::new();
        let mut readings: Vec<Reading> = Vec::new();
        let mut cx = Context::from_waker(Waker::noop());
        let now = Instant::now();
        for step in steps {
            match step {
                Step::Admit => held.extend(ledger.try_admit()),
                Step::Wait => {
                    let ledger = ledger.clone();
                    waiting.push(Box::pin(async move { ledger.forever().await }));
                }
                Step::Owe(n) => held.push(ledger.owe(n)),
                Step::TryOwe(n) => {
                    let credit = ledger.credit();
                    let permit = ledger.try_owe(n);
                    prop_assert_eq!(permit.is_some(), credit > 0);
                    held.extend(permit);
                }
                Step::Resize(at, n) => if let Some(p) = held.get_mut(at) { p.set_bytes(n) },
                Step::Split(at, n) => if let Some(p) = held.get_mut(at) {
                    let part = p.split(n);
                    held.push(part);
                },
                Step::Join(a, b) => if a != b && a < held.len() && b < held.len() {
                    let other = held.swap_remove(b);
                    let at = if a == held.len() { b } else { a };
                    prop_assert!(held[at].join(other).is_none());
                },
                Step::Cancel(at) => if at < held.len() { drop(held.swap_remove(at)) },
                Step::StopWaiting(at) => if at < waiting.len() { drop(waiting.remove(at)) },
                Step::Give(m, at, n) => if at < held.len() {
                    let permit = held.swap_remove(at);
                    if !lines[m].closed {
                        lines[m].unwritten += n as u64;
                        lines[m].held.push((permit.frames(), permit.bytes(), None));
                    }
                    connections[m].0.give_at(n, Some(permit), now);
                },
                Step::Write(m, n) => {
                    let line = &mut lines[m];
                    let n = line.unwritten.min(n as u64);
                    if !line.closed && n > 0 {
                        line.unwritten -= n;
                        line.written += n;
                        connections[m].1.fetch_add(n, Relaxed);
                        connections[m].0.wrote(usize::try_from(n).unwrap(), now);
                    }
                }
                Step::Flush(m) => {
                    let line = &mut lines[m];
                    if line.unwritten == 0 && !line.closed {
                        let end = line.written;
                        line.held.iter_mut().for_each(|h| { h.2.get_or_insert(end); });
                        connections[m].0.flushed();
                    }
                }
                Step::Drain(m, n) => {
                    let line = &mut lines[m];
                    let queue = connections[m].1.load(Relaxed);
                    let n = queue.min(n as u64);
                    connections[m].1.store(queue - n, Relaxed);
                    if !line.closed {
                        line.drained += n;
                        let drained = line.drained;
                        // A connection that owes nothing at all is not looked at; then nothing is held either.
                        line.held.retain(|h| h.2.is_none_or(|end| end > drained));
                    }
                    connections[m].0.look(now);
                }
                Step::Close(m) => {
                    lines[m] = Line { closed: true, ..Line::default() };
                    connections[m].0.close();
                }
                Step::Read(lane) => readings.push(ledger.reading(lane)),
                Step::Grow(at, n) => if let Some(reading) = readings.get_mut(at) {
                    let _ = Box::pin(reading.grow(n)).as_mut().poll(&mut cx);
                },
                Step::StopReading(at) => if at < readings.len() { drop(readings.remove(at)) },
            }
            // Those whose turn it is take what they are given.
            let mut still = Vec::new();
            for mut one in waiting.drain(..) {
                match one.as_mut().poll(&mut cx) {
                    std::task::Poll::Ready(permit) => held.push(permit),
                    std::task::Poll::Pending => still.push(one),
                }
            }
            waiting = still;
            let frames: usize = held.iter().map(Permit::frames).sum::<usize>() + lines.iter().flat_map(|l| &l.held).map(|h| h.0).sum::<usize>();
            let bytes: usize = held.iter().map(Permit::bytes).sum::<usize>()
                + lines.iter().flat_map(|l| &l.held).map(|h| h.1).sum::<usize>()
                + readings.iter().map(Reading::bytes).sum::<usize>();
            let standing = ledger.standing_unseen();
            prop_assert_eq!((standing.owed_frames, standing.owed_bytes), (frames, bytes));
            let expected = if bytes >= LIMITS.bytes { 0 } else { LIMITS.frames.saturating_sub(frames) };
            prop_assert_eq!(standing.credit, expected);
            prop_assert!(standing.credit == 0 || standing.waiting == 0, "somebody waits although there is credit");
        }
        drop((held, waiting, readings));
        connections.iter().for_each(|(meter, _)| meter.close());
        let end = ledger.standing();
        prop_assert_eq!((end.credit, end.owed_frames, end.owed_bytes, end.waiting), (LIMITS.frames, 0, 0, 0));
    }
}

impl Ledger {
    /// As `admit`, with all the patience in the world.
    async fn forever(self: Arc<Self>) -> Permit {
        let (permit, place) = match self.enter(Instant::now()) {
            Ok(Ok(permit)) => (Some(permit), None),
            Ok(Err(place)) => (None, Some(place)),
            Err(_) => (None, None),
        };
        match (permit, place) {
            (Some(permit), _) => permit,
            (None, Some(mut place)) => match (&mut place.grant).await {
                Ok(permit) => permit,
                Err(_) => std::future::pending().await,
            },
            _ => std::future::pending().await,
        }
    }

    fn standing_unseen(&self) -> Standing {
        let state = self.lock();
        self.standing_of(&state, Instant::now())
    }
}

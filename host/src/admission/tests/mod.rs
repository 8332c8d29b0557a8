//! Time is a parameter here, and the kernel's queue a number: nothing sleeps but what tests the patience itself.

mod model;
mod sockets;

use super::meter::Meter;
use super::socket::Queue;
use super::*;
use futures_util::FutureExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

pub(super) const LIMITS: Limits = Limits {
    frames: 3,
    bytes: 1000,
    drain_window: Duration::from_secs(5),
    patience: Duration::from_millis(20),
    teardown_after: Duration::from_secs(30),
};

pub(super) fn ledger() -> Arc<Ledger> {
    Ledger::new(LIMITS, "s".into(), Arc::default())
}

/// A connection whose kernel holds what the number says.
pub(super) fn connection() -> (Arc<Meter>, Arc<AtomicU64>) {
    let queue = Arc::new(AtomicU64::new(0));
    (Meter::new(Queue::Scripted(queue.clone())), queue)
}

/// Gives a frame to a connection and has the kernel take it, and keep it.
fn send(ledger: &Arc<Ledger>, meter: &Arc<Meter>, queue: &AtomicU64, bytes: usize, now: Instant) {
    meter.give_at(bytes, Some(ledger.owe(bytes)), now);
    queue.fetch_add(bytes as u64, Relaxed);
    meter.wrote(bytes, now);
    meter.flushed();
}

#[tokio::test]
async fn with_credit_a_request_is_admitted_at_once_whatever_drains() {
    let ledger = ledger();
    let held: Vec<_> = (0..3).map(|_| ledger.admit().now_or_never().unwrap().unwrap()).collect();
    assert_eq!(ledger.standing().credit, 0);
    drop(held);
    assert_eq!(ledger.standing(), Standing { credit: 3, ..Standing::default() });
}

#[tokio::test]
async fn used_up_bytes_are_used_up_credit() {
    let ledger = ledger();
    let mut answer = ledger.admit().await.unwrap();
    answer.set_bytes(1000);
    assert_eq!(ledger.standing().credit, 0);
    assert!(ledger.try_owe(1).is_none());
    let first = answer.split(600);
    drop(first);
    assert_eq!((ledger.standing().credit, ledger.standing().owed_bytes), (2, 400));
}

#[tokio::test]
async fn without_credit_a_request_of_a_session_that_reads_waits_its_turn_and_is_then_refused() {
    let ledger = ledger();
    let mut held: Vec<_> = (0..3).map(|_| ledger.try_admit().unwrap()).collect();
    let (mut first, mut second) = (Box::pin(ledger.admit()), Box::pin(ledger.admit()));
    assert!(first.as_mut().now_or_never().is_none() && second.as_mut().now_or_never().is_none());
    // Whoever comes later does not overtake.
    held.pop();
    assert!(ledger.try_admit().is_none());
    assert!(second.as_mut().now_or_never().is_none());
    let permit = first.now_or_never().unwrap().unwrap();
    let refused = second.await.unwrap_err();
    assert_eq!((refused.reason, refused.retry_after), (Reason::Slow, Duration::from_secs(1)));
    assert_eq!((refused.standing.credit, refused.standing.owed_frames), (0, 3));
    drop((permit, held));
    assert_eq!(ledger.standing().waiting, 0);
}

#[tokio::test]
async fn whoever_stops_waiting_gives_its_place_to_the_next() {
    let ledger = ledger();
    let held: Vec<_> = (0..3).map(|_| ledger.try_admit().unwrap()).collect();
    let (mut first, mut second) = (Box::pin(ledger.admit()), Box::pin(ledger.admit()));
    assert!(first.as_mut().now_or_never().is_none() && second.as_mut().now_or_never().is_none());
    drop(first);
    drop(held);
    assert!(second.now_or_never().unwrap().is_ok());
    assert_eq!(ledger.standing().owed_frames, 0);
}

#[tokio::test]
async fn a_session_that_does_not_drain_turns_half_open_and_is_refused_at_once_until_it_reads() {
    let ledger = ledger();
    let (meter, queue) = connection();
    // A moment more than a window ago, as `admit` looks at the clock.
    let start = Instant::now().checked_sub(LIMITS.drain_window).unwrap();
    for _ in 0..3 {
        send(&ledger, &meter, &queue, 100, start);
    }
    ledger.look(start + LIMITS.drain_window - Duration::from_millis(1));
    assert!(!ledger.is_half_open());
    ledger.look(start + LIMITS.drain_window);
    assert!(ledger.is_half_open());
    let refused = ledger.admit().now_or_never().expect("at once").unwrap_err();
    assert_eq!(refused.reason, Reason::HalfOpen);
    assert!(refused.retry_after >= Duration::from_secs(1) && refused.retry_after <= LIMITS.drain_window);
    // It reads one frame: that is enough.
    queue.store(200, Relaxed);
    ledger.look(start + LIMITS.drain_window + Duration::from_secs(1));
    assert!(!ledger.is_half_open());
    assert!(ledger.admit().now_or_never().unwrap().is_ok());
}

#[tokio::test]
async fn a_stream_that_drains_keeps_its_session_from_being_half_open() {
    let ledger = ledger();
    let ((stalled, s), (read, r)) = (connection(), connection());
    let start = Instant::now();
    send(&ledger, &stalled, &s, 100, start);
    for second in 1..20 {
        let now = start + Duration::from_secs(second);
        send(&ledger, &read, &r, 10, now);
        r.store(0, Relaxed);
        ledger.look(now);
        assert!(!ledger.is_half_open());
    }
    assert_eq!(stalled.look(start + Duration::from_secs(20)), Some(Duration::from_secs(20)));
    // Beginning to owe on another stream is not draining.
    send(&ledger, &read, &r, 10, start + Duration::from_secs(24));
    ledger.look(start + Duration::from_secs(24));
    assert!(ledger.is_half_open());
}

#[test]
fn a_frame_has_drained_when_its_last_byte_has_and_not_when_it_was_written() {
    let ledger = ledger();
    let (meter, queue) = connection();
    let now = Instant::now();
    meter.give(100, Some(ledger.owe(100)));
    queue.store(70, Relaxed);
    meter.wrote(70, now);
    // What the kernel got rid of is not known to be this frame's end before all of it was written.
    queue.store(0, Relaxed);
    meter.look(now);
    assert_eq!(ledger.standing().owed_frames, 1);
    queue.store(50, Relaxed);
    // A head or chunk framing goes along.
    meter.wrote(50, now);
    meter.flushed();
    queue.store(1, Relaxed);
    meter.look(now);
    assert_eq!(ledger.standing().owed_frames, 1);
    queue.store(0, Relaxed);
    meter.look(now);
    assert_eq!((ledger.standing().owed_frames, meter.owing_since()), (0, None));
}

#[test]
fn a_body_waits_until_what_it_gave_is_written() {
    let (meter, _) = connection();
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    meter.give(AHEAD - 1, None);
    assert!(meter.poll_room(&mut cx).is_ready());
    meter.give(1, None);
    assert!(meter.poll_room(&mut cx).is_pending());
    meter.wrote(AHEAD, Instant::now());
    meter.flushed();
    assert!(meter.poll_room(&mut cx).is_ready());
}

#[test]
fn a_connection_that_ends_returns_what_it_owed_and_takes_no_more() {
    let ledger = ledger();
    let (meter, queue) = connection();
    let start = Instant::now();
    send(&ledger, &meter, &queue, 100, start);
    meter.give(10, Some(ledger.owe(10)));
    ledger.look(start + Duration::from_secs(6));
    assert!(ledger.is_half_open());
    meter.close();
    assert!(!ledger.is_half_open());
    meter.give(10, Some(ledger.owe(10)));
    assert_eq!(ledger.standing(), Standing { credit: 3, ..Standing::default() });
}

#[test]
fn the_wait_that_a_client_is_told_follows_its_own_rate() {
    let ledger = ledger();
    let (meter, queue) = connection();
    let now = Instant::now();
    for second in 0..60 {
        send(&ledger, &meter, &queue, 100, now + Duration::from_secs(second));
        queue.store(0, Relaxed);
        ledger.look(now + Duration::from_secs(second));
    }
    let end = now + Duration::from_secs(59);
    let mut owed = ledger.owe(1399);
    let mut standing = ledger.standing();
    standing.drain_rate = 100.0;
    // 1,399 bytes in one frame at 100 bytes a second are 14 seconds, but in five it is known how fast it reads by then.
    assert_eq!(ledger.retry_after(&standing), LIMITS.drain_window);
    standing.drain_rate = 700.0;
    assert_eq!(ledger.retry_after(&standing), Duration::from_secs_f64(1399.0 / 700.0));
    owed.set_bytes(0);
    ledger.look(end);
}

#[tokio::test]
async fn the_first_that_reads_from_a_backend_always_goes_on_and_others_wait_for_room() {
    let ledger = ledger();
    let (mut a, mut b, mut other) = (ledger.reading(0), ledger.reading(0), ledger.reading(1));
    a.grow(900).now_or_never().unwrap();
    a.grow(900).now_or_never().unwrap();
    let mut waits = Box::pin(b.grow(10));
    assert!(waits.as_mut().now_or_never().is_none());
    // Another backend is not held up by it.
    other.grow(500).now_or_never().unwrap();
    assert_eq!((ledger.standing().owed_bytes, ledger.standing().credit), (2300, 0));
    drop(a);
    waits.now_or_never().unwrap();
    drop((b, other));
    assert_eq!(ledger.standing().owed_bytes, 0);
}

#[tokio::test]
async fn of_those_that_wait_for_room_the_call_that_began_first_is_next() {
    let ledger = ledger();
    let (early, late) = (Room::new(ledger.clone(), 0), Room::new(ledger.clone(), 0));
    let answer = ledger.owe(1000);
    // The later call's answer is there first.
    let (mut second, mut first) = (late.reading(), early.reading());
    let mut waits = Box::pin(second.grow(10));
    assert!(waits.as_mut().now_or_never().is_none());
    let mut before = Box::pin(first.grow(10));
    assert!(before.as_mut().now_or_never().is_none());
    drop(answer);
    assert!(waits.as_mut().now_or_never().is_none());
    before.now_or_never().unwrap();
    waits.now_or_never().unwrap();
}

#[tokio::test]
async fn one_message_of_a_backend_goes_beyond_what_fits_and_no_other_before_it_is_over() {
    let ledger = ledger();
    let (early, late) = (Room::new(ledger.clone(), 0), Room::new(ledger.clone(), 0));
    // The later call's answer is under way when the earlier one's begins.
    let mut second = late.reading();
    second.grow(900).now_or_never().unwrap();
    second.grow(900).now_or_never().unwrap();
    let mut first = early.reading();
    let mut waits = Box::pin(first.grow(10));
    assert!(waits.as_mut().now_or_never().is_none());
    second.grow(900).now_or_never().unwrap();
    assert_eq!(ledger.standing().owed_bytes, 2700);
    drop(second);
    waits.now_or_never().unwrap();
}

#[tokio::test]
async fn what_has_drained_stays_owed_until_the_client_has_proved_that_it_reads() {
    let ledger = ledger();
    let (meter, queue) = connection();
    let now = Instant::now().checked_sub(Duration::from_secs(20)).unwrap();
    ledger.ask_proof(now);
    ledger.proved(now);
    for _ in 0..2 {
        send(&ledger, &meter, &queue, 100, now);
    }
    queue.store(0, Relaxed);
    ledger.look(now);
    assert_eq!(ledger.standing().owed_frames, 2);
    // Half of the credit waits for it.
    assert!(ledger.wants_proof().now_or_never().is_some());
    ledger.ask_proof(now);
    send(&ledger, &meter, &queue, 100, now);
    queue.store(0, Relaxed);
    ledger.judge(now + LIMITS.drain_window);
    assert!(ledger.is_half_open() && ledger.is_proved().now_or_never().is_none());
    assert_eq!(ledger.admit().now_or_never().expect("at once").unwrap_err().reason, Reason::HalfOpen);
    // The answer proves what was there before the question, and nothing after it.
    ledger.proved(now + LIMITS.drain_window);
    assert_eq!((ledger.standing().owed_frames, ledger.is_half_open()), (1, false));
    ledger.stop_proving(now);
    assert_eq!(ledger.standing().owed_frames, 0);
}

#[tokio::test]
async fn nothing_large_is_read_while_the_client_owes_reading_all_its_bytes() {
    let ledger = ledger();
    let answer = ledger.owe(1000);
    let mut first = ledger.reading(0);
    let mut waits = Box::pin(first.grow(1));
    assert!(waits.as_mut().now_or_never().is_none());
    drop(answer);
    waits.now_or_never().unwrap();
    first.grow(5000).now_or_never().unwrap();
}

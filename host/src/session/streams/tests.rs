use super::*;
use crate::config::AdmissionConfig;
use bytes::Bytes;
use futures_util::FutureExt;

fn streams(events: usize, bytes: usize) -> Arc<Streams> {
    Arc::new(Streams::new(
        ReplayLimits { events, bytes, time: Duration::from_secs(60) },
        Ledger::new(AdmissionConfig::default().into(), "s".into(), Arc::default()),
    ))
}

/// As `streams`, for those who do not wait long.
fn impatient() -> Arc<Streams> {
    let config = AdmissionConfig { patience: Duration::from_millis(5), ..AdmissionConfig::default() };
    let ledger = Ledger::new(config.into(), "s".into(), Arc::default());
    Arc::new(Streams::new(ReplayLimits { events: 100, bytes: 1 << 20, time: Duration::from_secs(60) }, ledger))
}

fn text(n: usize) -> Wire {
    Wire::from(format!("m{n}"))
}

fn read(reader: &mut Reader) -> Option<String> {
    reader.next().now_or_never().flatten().map(|f| String::from_utf8(f.message.into_bytes().to_vec()).unwrap())
}

#[tokio::test]
async fn a_resumed_stream_continues_after_the_event_and_only_that_stream() {
    let s = streams(100, 1 << 20);
    let (mut a, mut b) = (s.open(), s.open());
    a.make_resumable();
    b.make_resumable();
    for n in 0..4 {
        s.note(a.stream(), text(n), Rule::Drop).await;
        s.note(b.stream(), text(10 + n), Rule::Drop).await;
    }
    assert_eq!(read(&mut a).as_deref(), Some("m0"));
    let seen = a.next().await.unwrap().event;
    assert_eq!(read(&mut b).as_deref(), Some("m10"));
    drop(a);
    s.answer(seen.stream, text(4), None, None);
    s.finish(seen.stream);
    let mut again = s.resume(EventId::parse(&seen.to_string()).unwrap()).unwrap();
    let got: Vec<String> = std::iter::from_fn(|| read(&mut again)).collect();
    assert_eq!(got, ["m2", "m3", "m4"]);
    // And once more from the start of what is kept.
    let mut once_more = s.resume(EventId { stream: seen.stream, sequence: 0 }).unwrap();
    assert_eq!(std::iter::from_fn(|| read(&mut once_more)).count(), 5);
    assert!(s.resume(EventId { stream: 99, sequence: 1 }).is_none());
    assert!(s.resume(EventId { stream: seen.stream, sequence: 99 }).is_none());
}

#[tokio::test]
async fn a_writer_waits_for_its_reader_and_goes_on_when_it_reads_or_leaves() {
    let s = streams(100, 1 << 20);
    let mut reader = s.open();
    let big = Wire::from(Bytes::from(vec![b'x'; WINDOW_BYTES]));
    assert_eq!(s.note(reader.stream(), big.clone(), Rule::Drop).await, Noted::Queued);
    let mut second = Box::pin(s.note(reader.stream(), big.clone(), Rule::Drop));
    assert!(second.as_mut().now_or_never().is_none());
    reader.next().await.unwrap();
    assert_eq!(second.await, Noted::Queued);
    let mut third = Box::pin(s.note(reader.stream(), big.clone(), Rule::Drop));
    assert!(third.as_mut().now_or_never().is_none());
    let id = reader.stream();
    drop(reader);
    assert_eq!(third.await, Noted::Gone);
    assert!(s.resume(EventId { stream: id, sequence: 0 }).is_none());
}

/// A stream whose window is full.
async fn full(s: &Arc<Streams>) -> Reader {
    let reader = s.open();
    let big = Wire::from(Bytes::from(vec![b'x'; WINDOW_BYTES]));
    assert_eq!(s.note(reader.stream(), big, Rule::Drop).await, Noted::Queued);
    reader
}

#[tokio::test]
async fn without_room_progress_is_replaced_changes_are_merged_and_the_rest_is_dropped_and_told() {
    let s = impatient();
    let mut reader = full(&s).await;
    let id = reader.stream();
    let token = RequestId::number(7);
    assert_eq!(s.note(id, text(1), Rule::Replace(token.clone())).await, Noted::Queued);
    assert_eq!(s.note(id, text(2), Rule::Replace(token.clone())).await, Noted::Replaced);
    assert_eq!(s.note(id, text(3), Rule::Replace(RequestId::number(8))).await, Noted::Queued);
    assert_eq!(s.note(id, text(4), Rule::Merge).await, Noted::Queued);
    assert_eq!(s.note(id, text(4), Rule::Merge).await, Noted::Merged);
    assert_eq!(s.note(id, text(5), Rule::Drop).await, Noted::Dropped);
    assert_eq!(s.note(id, text(6), Rule::Drop).await, Noted::Dropped);
    // A question needs credit, not the window: it is answered at once either way.
    assert_eq!(s.note(id, text(7), Rule::Ask(1)).now_or_never(), Some(Noted::Queued));
    // With the notice of what was missed, which goes ahead of it.
    assert_eq!(s.ledger.standing().owed_frames, 6);
    reader.next().await.unwrap();
    let got: Vec<String> = std::iter::from_fn(|| read(&mut reader)).collect();
    assert_eq!((&got[..3], &*got[4]), (&["m2".to_owned(), "m3".to_owned(), "m4".to_owned()][..], "m7"));
    assert!(got[3].contains("2 messages were not delivered"), "{got:?}");
    assert_eq!((got.len(), s.ledger.standing().owed_frames, s.ledger.standing().dropped), (5, 0, 2));
}

#[tokio::test]
async fn progress_that_replaces_another_stays_behind_what_came_before_it() {
    let s = impatient();
    let mut reader = s.open();
    let token = || Rule::Replace(RequestId::number(7));
    // Three fit.
    let step = |n: usize| Wire::from(format!("{n}{}", "x".repeat(WINDOW_BYTES / 3 - 10)));
    for n in 1..=3 {
        assert_eq!(s.note(reader.stream(), step(n), token()).await, Noted::Queued);
    }
    for n in 4..=9 {
        assert_eq!(s.note(reader.stream(), step(n), token()).await, Noted::Replaced);
    }
    let got: Vec<String> = std::iter::from_fn(|| read(&mut reader)).map(|text| text[..1].to_owned()).collect();
    assert_eq!(got, ["1", "2", "9"]);
}

#[tokio::test]
async fn what_is_kept_is_counted_by_what_replaced_it() {
    let s = impatient();
    let token = || Rule::Replace(RequestId::number(7));
    let mut reader = s.open();
    reader.make_resumable();
    let id = reader.stream();
    assert_eq!(s.note(id, text(0), Rule::Drop).await, Noted::Queued);
    let seen = reader.next().await.unwrap().event;
    assert_eq!(s.note(id, text(1), token()).await, Noted::Queued);
    drop(reader);
    // Kept for it, and owed to it again; then something larger takes its place.
    let mut reader = s.resume(seen).unwrap();
    let held: Vec<_> = std::iter::from_fn(|| s.ledger.try_admit()).collect();
    assert_eq!(s.note(id, Wire::from("y".repeat(5000)), token()).await, Noted::Replaced);
    drop(held);
    assert_eq!(s.lock().kept_bytes, 2 + 5000);
    assert_eq!(read(&mut reader).map(|text| text.len()), Some(5000));
    let mut counted = s.lock();
    let before = counted.kept_bytes;
    counted.recount();
    assert_eq!(counted.kept_bytes, before);
}

#[tokio::test]
async fn what_was_missed_is_told_before_the_answer() {
    let s = impatient();
    let mut reader = full(&s).await;
    assert_eq!(s.note(reader.stream(), text(1), Rule::Drop).await, Noted::Dropped);
    s.answer(reader.stream(), text(2), None, None);
    reader.next().await.unwrap();
    assert!(read(&mut reader).unwrap().contains("1 message was not delivered"));
    assert_eq!(read(&mut reader).as_deref(), Some("m2"));
}

#[tokio::test]
async fn a_question_without_credit_is_refused_at_once() {
    let s = impatient();
    let reader = full(&s).await;
    let held: Vec<_> = std::iter::from_fn(|| s.ledger.try_admit()).collect();
    assert_eq!(s.note(reader.stream(), text(1), Rule::Ask(1)).now_or_never(), Some(Noted::Dropped));
    assert_eq!(s.note(reader.stream(), text(1), Rule::Keep).now_or_never(), Some(Noted::Queued));
    drop(held);
}

#[tokio::test]
async fn what_nobody_reads_is_owed_only_while_somebody_could() {
    let s = streams(100, 1 << 20);
    s.note(STANDALONE, text(1), Rule::Drop).await;
    assert_eq!(s.ledger.standing().owed_frames, 0);
    let mut reader = s.attach_standalone().unwrap();
    s.note(STANDALONE, text(2), Rule::Drop).await;
    assert_eq!(s.ledger.standing().owed_frames, 2);
    let taken = reader.next().await.unwrap();
    drop(reader);
    // What was handed out is owed until it has drained.
    assert_eq!(s.ledger.standing().owed_frames, 1);
    drop(taken);
    assert_eq!(s.ledger.standing().owed_frames, 0);
}

#[tokio::test]
async fn what_is_kept_is_bounded_and_an_answer_that_nobody_took_outlives_notes() {
    let s = streams(4, 1 << 20);
    let reader = s.open();
    let id = reader.stream();
    reader.make_resumable();
    drop(reader);
    for n in 0..100 {
        s.note(id, text(n), Rule::Drop).await;
    }
    s.answer(id, text(100), None, None);
    s.finish(id);
    for n in 0..100 {
        s.note(STANDALONE, text(n), Rule::Drop).await;
    }
    assert!(s.lock().kept.len() <= 5);
    let mut again = s.resume(EventId { stream: id, sequence: 1 }).unwrap();
    assert_eq!(std::iter::from_fn(|| read(&mut again)).last().as_deref(), Some("m100"));
    drop(again);
    s.sweep(Instant::now() + Duration::from_secs(61));
    assert!(s.resume(EventId { stream: id, sequence: 1 }).is_none());
    let inner = s.lock();
    let held: usize = inner.streams.iter().flat_map(|(_, s)| &s.frames).map(|f| f.message.len()).sum();
    assert_eq!(held, inner.kept_bytes);
}

#[tokio::test]
async fn a_second_standalone_reader_takes_over_and_gets_what_waited() {
    let s = streams(10, 1 << 20);
    s.note(STANDALONE, text(1), Rule::Drop).await;
    let mut first = s.attach_standalone().unwrap();
    assert_eq!(read(&mut first).as_deref(), Some("m1"));
    let mut second = s.attach_standalone().unwrap();
    s.note(STANDALONE, text(2), Rule::Drop).await;
    assert!(first.next().await.is_none());
    assert_eq!(read(&mut second).as_deref(), Some("m2"));
    drop(first);
    assert!(s.standalone_attached());
    s.close();
    assert!(second.next().await.is_none());
}

#[tokio::test]
async fn equal_notices_are_merged_while_they_wait() {
    let s = streams(10, 1 << 20);
    for _ in 0..5 {
        s.note(STANDALONE, text(1), Rule::Merge).await;
    }
    let mut reader = s.attach_standalone().unwrap();
    assert_eq!(std::iter::from_fn(|| read(&mut reader)).count(), 1);
}

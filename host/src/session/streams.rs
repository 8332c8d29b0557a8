//! The downstream streams of one session: what is owed to the client on each, and what may be replayed.
//!
//! A stream is a queue of frames with one writer side (the gateway) and at most one reader (the HTTP response that carries it now).
//! Frames that were handed to a reader of a resumable stream are kept for a while, so that a client that lost its connection can
//! continue after the last event it saw (2025-11-25 transports, "Resumability and Redelivery"). Nothing here knows HTTP.
//!
//! Bounds: a live stream holds at most `WINDOW_BYTES` (or one frame, if that is larger) that its reader has not taken: then the
//! writer waits. What is kept for replay is bounded for the session as a whole, in events, bytes and time; the oldest goes first.

use crate::protocol::Wire;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Bytes that a writer may be ahead of its reader.
pub const WINDOW_BYTES: usize = 64 * 1024;

/// Finished streams that are remembered for replay.
const FINISHED_STREAMS: usize = 32;

/// The stream of messages that belong to no call: the GET stream.
pub const STANDALONE: StreamId = 0;

pub type StreamId = u32;

/// One JSON-RPC message owed to the client.
#[derive(Clone, Debug)]
pub struct Frame {
    pub message: Wire,
    /// The answer of the call: nothing follows it.
    pub last: bool,
    /// Event id of this frame on its stream.
    pub event: EventId,
}

/// `<stream>-<sequence>`: unique within the session, names the stream that it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventId {
    pub stream: StreamId,
    pub sequence: u64,
}

impl EventId {
    pub fn parse(text: &str) -> Option<Self> {
        let (stream, sequence) = text.split_once('-')?;
        Some(EventId { stream: stream.parse().ok()?, sequence: sequence.parse().ok()? })
    }
}

impl std::fmt::Display for EventId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.stream, self.sequence)
    }
}

/// How much a session keeps for replay.
#[derive(Clone, Copy, Debug)]
pub struct ReplayLimits {
    pub events: usize,
    pub bytes: usize,
    /// How long a finished stream can still be resumed.
    pub time: Duration,
}

/// All downstream streams of a session.
pub struct Streams {
    inner: Mutex<Inner>,
    limits: ReplayLimits,
}

struct Inner {
    streams: HashMap<StreamId, Stream>,
    next: StreamId,
    /// Frames that were handed out, or that nobody reads now, oldest first.
    kept: VecDeque<EventId>,
    kept_bytes: usize,
    closed: bool,
}

struct Stream {
    frames: VecDeque<Frame>,
    next_sequence: u64,
    /// The next frame for the reader.
    cursor: u64,
    /// Which reader is attached; none while nobody reads.
    reader: Option<u64>,
    readers: u64,
    /// The client has an event id by which it can come back.
    resumable: bool,
    finished: Option<Instant>,
    wake_reader: Arc<Notify>,
    wake_writer: Arc<Notify>,
}

impl Stream {
    fn new() -> Self {
        Stream {
            frames: VecDeque::new(),
            next_sequence: 1,
            cursor: 1,
            reader: None,
            readers: 0,
            resumable: false,
            finished: None,
            wake_reader: Arc::default(),
            wake_writer: Arc::default(),
        }
    }

    fn unread(&self) -> impl Iterator<Item = &Frame> {
        let cursor = self.cursor;
        self.frames.iter().rev().take_while(move |f| f.event.sequence >= cursor)
    }

    fn unread_bytes(&self) -> usize {
        self.unread().map(|f| f.message.len()).sum()
    }
}

/// What became of a message given to a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// The reader gets it, or it waits for one that comes back.
    Queued,
    /// Nobody can ever read it: the client went away and has no event id to come back with.
    Gone,
}

impl Streams {
    pub fn new(limits: ReplayLimits) -> Self {
        let mut standalone = Stream::new();
        standalone.resumable = true;
        Streams {
            inner: Mutex::new(Inner {
                streams: HashMap::from([(STANDALONE, standalone)]),
                next: 1,
                kept: VecDeque::new(),
                kept_bytes: 0,
                closed: false,
            }),
            limits,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // The guarded code does not panic; if it ever did, the queues are still whole.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A stream for one call, with its reader attached.
    pub fn open(self: &Arc<Self>) -> Reader {
        let mut inner = self.lock();
        let id = inner.next;
        inner.next = inner.next.checked_add(1).unwrap_or(1);
        let mut stream = Stream::new();
        stream.reader = Some(1);
        stream.readers = 1;
        if inner.closed {
            stream.finished = Some(Instant::now());
        }
        inner.streams.insert(id, stream);
        Reader { streams: self.clone(), stream: id, generation: 1 }
    }

    /// Attaches a reader to the standalone stream; an earlier one ends ("the server MUST send each of its JSON-RPC messages on only
    /// one of the connected streams").
    pub fn attach_standalone(self: &Arc<Self>) -> Option<Reader> {
        self.attach(STANDALONE, None)
    }

    /// Attaches a reader that continues after `last`. None when that stream is not known any more.
    pub fn resume(self: &Arc<Self>, last: EventId) -> Option<Reader> {
        self.attach(last.stream, Some(last.sequence))
    }

    fn attach(self: &Arc<Self>, id: StreamId, after: Option<u64>) -> Option<Reader> {
        let mut inner = self.lock();
        let stream = inner.streams.get_mut(&id).filter(|s| s.resumable)?;
        if let Some(after) = after {
            if after >= stream.next_sequence {
                return None; // an event that was never sent
            }
            stream.cursor = after + 1;
        }
        stream.readers += 1;
        stream.reader = Some(stream.readers);
        stream.wake_reader.notify_waiters();
        Some(Reader { streams: self.clone(), stream: id, generation: stream.readers })
    }

    /// Whether anyone reads the standalone stream now.
    pub fn standalone_attached(&self) -> bool {
        self.lock().streams.get(&STANDALONE).is_some_and(|s| s.reader.is_some())
    }

    /// Streams that a client reads now.
    pub fn attached(&self) -> usize {
        self.lock().streams.values().filter(|s| s.reader.is_some()).count()
    }

    /// Queues a message. Waits while the reader is more than a window behind; a stream that nobody reads keeps what the replay
    /// bounds allow.
    pub async fn push(&self, id: StreamId, message: Wire, last: bool) -> Pushed {
        loop {
            let wait = {
                let mut inner = self.lock();
                let Some(stream) = inner.streams.get_mut(&id).filter(|s| s.finished.is_none()) else { return Pushed::Gone };
                if stream.reader.is_none() && !stream.resumable {
                    inner.streams.remove(&id);
                    return Pushed::Gone;
                }
                let unread = stream.unread_bytes();
                if stream.reader.is_none() || last || unread == 0 || unread + message.len() <= WINDOW_BYTES {
                    inner.append(id, message, last, &self.limits);
                    return Pushed::Queued;
                }
                // Registered before the lock goes, so that no wake-up is lost.
                let mut wait = Box::pin(stream.wake_writer.clone().notified_owned());
                wait.as_mut().enable();
                wait
            };
            wait.await;
        }
    }

    /// As `push`, but only where no equal message waits already: one notice of a change is enough.
    pub async fn push_merged(&self, id: StreamId, message: Wire) -> Pushed {
        {
            let inner = self.lock();
            if inner.streams.get(&id).is_some_and(|s| s.unread().any(|f| f.message == message)) {
                return Pushed::Queued;
            }
        }
        self.push(id, message, false).await
    }

    /// Ends a stream. What is queued is still delivered.
    pub fn finish(&self, id: StreamId) {
        let mut inner = self.lock();
        let Some(stream) = inner.streams.get_mut(&id) else { return };
        stream.finished.get_or_insert_with(Instant::now);
        stream.wake_reader.notify_waiters();
        stream.wake_writer.notify_waiters();
        if stream.reader.is_none() && !stream.resumable {
            inner.streams.remove(&id);
        }
        inner.forget_finished(|_, count| count > FINISHED_STREAMS);
    }

    /// Ends all streams; the readers get what is queued, then the end.
    pub fn close(&self) {
        let mut inner = self.lock();
        inner.closed = true;
        for stream in inner.streams.values_mut() {
            stream.finished.get_or_insert_with(Instant::now);
            stream.wake_reader.notify_waiters();
            stream.wake_writer.notify_waiters();
        }
    }

    /// Drops what has been kept for replay longer than the limit.
    pub fn sweep(&self, now: Instant) {
        let time = self.limits.time;
        self.lock().forget_finished(|finished, _| now.saturating_duration_since(finished) > time);
    }
}

impl Inner {
    fn append(&mut self, id: StreamId, message: Wire, last: bool, limits: &ReplayLimits) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let event = EventId { stream: id, sequence: stream.next_sequence };
        stream.next_sequence += 1;
        let len = message.len();
        stream.frames.push_back(Frame { message, last, event });
        if stream.reader.is_none() {
            self.keep(event, len, limits);
        } else {
            stream.wake_reader.notify_waiters();
        }
    }

    /// Counts a frame as kept, and drops the oldest that are over the bounds. An answer nobody could take yet stays until its stream
    /// is forgotten: it is what the client waits for.
    fn keep(&mut self, event: EventId, len: usize, limits: &ReplayLimits) {
        self.kept.push_back(event);
        self.kept_bytes += len;
        let mut spared = VecDeque::new();
        while self.kept.len() + spared.len() > limits.events || self.kept_bytes > limits.bytes {
            let Some(oldest) = self.kept.pop_front() else { break };
            let Some(stream) = self.streams.get_mut(&oldest.stream) else { continue };
            let Some(at) = stream.frames.iter().position(|f| f.event == oldest) else { continue };
            if stream.frames[at].last && oldest.sequence >= stream.cursor && self.kept_bytes <= limits.bytes.saturating_mul(4) {
                spared.push_back(oldest);
                continue;
            }
            if let Some(frame) = stream.frames.remove(at) {
                self.kept_bytes -= frame.message.len();
            }
        }
        while let Some(event) = spared.pop_back() {
            self.kept.push_front(event);
        }
    }

    /// Removes a stream and what is kept of it.
    fn remove(&mut self, id: StreamId) {
        if self.streams.remove(&id).is_some() {
            let gone: Vec<EventId> = self.kept.iter().copied().filter(|e| e.stream == id).collect();
            if !gone.is_empty() {
                self.kept.retain(|e| e.stream != id);
                self.recount();
            }
        }
    }

    fn recount(&mut self) {
        let streams = &self.streams;
        self.kept_bytes =
            self.kept.iter().filter_map(|e| streams.get(&e.stream)?.frames.iter().find(|f| f.event == *e)).map(|f| f.message.len()).sum();
    }

    /// Forgets finished streams without a reader, oldest first, while `over(finished since, how many there are)`.
    fn forget_finished(&mut self, over: impl Fn(Instant, usize) -> bool) {
        let mut finished: Vec<(Instant, StreamId)> = self
            .streams
            .iter()
            .filter(|(id, s)| **id != STANDALONE && s.reader.is_none())
            .filter_map(|(id, s)| Some((s.finished?, *id)))
            .collect();
        finished.sort_unstable();
        let mut count = finished.len();
        for (since, id) in finished {
            if !over(since, count) {
                break;
            }
            self.remove(id);
            count -= 1;
        }
    }
}

/// The reading end of a stream: one HTTP response. Dropping it detaches; the call goes on ("disconnection SHOULD NOT be interpreted as
/// the client cancelling its request").
pub struct Reader {
    streams: Arc<Streams>,
    stream: StreamId,
    generation: u64,
}

impl Reader {
    pub fn stream(&self) -> StreamId {
        self.stream
    }

    /// From now on frames carry event ids that the client can resume from. The answer is the id for a priming event.
    pub fn make_resumable(&self) -> EventId {
        let mut inner = self.streams.lock();
        let sequence = match inner.streams.get_mut(&self.stream) {
            Some(stream) => {
                stream.resumable = true;
                stream.cursor.saturating_sub(1)
            }
            None => 0,
        };
        EventId { stream: self.stream, sequence }
    }

    /// Waits for the next frame without taking it, and says whether it is the answer; none as for `next`. Cancel-safe.
    pub async fn peek(&mut self) -> Option<bool> {
        loop {
            let wait = {
                let inner = self.streams.lock();
                let stream = inner.streams.get(&self.stream).filter(|s| s.reader == Some(self.generation))?;
                if let Some(frame) = stream.frames.iter().find(|f| f.event.sequence >= stream.cursor) {
                    return Some(frame.last);
                }
                if stream.finished.is_some() {
                    return None;
                }
                let mut wait = Box::pin(stream.wake_reader.clone().notified_owned());
                wait.as_mut().enable();
                wait
            };
            wait.await;
        }
    }

    /// The next frame; none at the end of the stream, or when another reader took over. Cancel-safe.
    pub async fn next(&mut self) -> Option<Frame> {
        loop {
            let wait = {
                let mut inner = self.streams.lock();
                let stream = inner.streams.get_mut(&self.stream).filter(|s| s.reader == Some(self.generation))?;
                let cursor = stream.cursor;
                if let Some(at) = stream.frames.iter().position(|f| f.event.sequence >= cursor) {
                    let frame = stream.frames[at].clone();
                    stream.cursor = frame.event.sequence + 1;
                    stream.wake_writer.notify_waiters();
                    if stream.resumable {
                        if !inner.kept.contains(&frame.event) {
                            inner.keep(frame.event, frame.message.len(), &self.streams.limits);
                        }
                    } else {
                        stream.frames.remove(at);
                    }
                    return Some(frame);
                }
                if stream.finished.is_some() {
                    return None;
                }
                let mut wait = Box::pin(stream.wake_reader.clone().notified_owned());
                wait.as_mut().enable();
                wait
            };
            wait.await;
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut inner = self.streams.lock();
        let limits = self.streams.limits;
        let closed = inner.closed;
        let Some(stream) = inner.streams.get_mut(&self.stream) else { return };
        if stream.reader != Some(self.generation) {
            return;
        }
        stream.reader = None;
        stream.wake_writer.notify_waiters();
        let everything_read = stream.cursor >= stream.next_sequence && stream.finished.is_some();
        if !stream.resumable || (everything_read && closed) {
            inner.remove(self.stream);
            return;
        }
        // What nobody took is now kept for whoever resumes.
        let unread: Vec<(EventId, usize)> = stream.unread().map(|f| (f.event, f.message.len())).collect();
        for (event, len) in unread.into_iter().rev() {
            if !inner.kept.contains(&event) {
                inner.keep(event, len, &limits);
            }
        }
        inner.forget_finished(|_, count| count > FINISHED_STREAMS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use futures_util::FutureExt;

    fn streams(events: usize, bytes: usize) -> Arc<Streams> {
        Arc::new(Streams::new(ReplayLimits { events, bytes, time: Duration::from_secs(60) }))
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
            s.push(a.stream(), text(n), false).await;
            s.push(b.stream(), text(10 + n), false).await;
        }
        assert_eq!(read(&mut a).as_deref(), Some("m0"));
        let seen = a.next().await.unwrap().event;
        assert_eq!(read(&mut b).as_deref(), Some("m10"));
        drop(a);
        s.push(seen.stream, text(4), true).await;
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
        assert_eq!(s.push(reader.stream(), big.clone(), false).await, Pushed::Queued);
        let mut second = Box::pin(s.push(reader.stream(), big.clone(), false));
        assert!(second.as_mut().now_or_never().is_none());
        reader.next().await.unwrap();
        assert_eq!(second.await, Pushed::Queued);
        let mut third = Box::pin(s.push(reader.stream(), big.clone(), false));
        assert!(third.as_mut().now_or_never().is_none());
        let id = reader.stream();
        drop(reader);
        assert_eq!(third.await, Pushed::Gone);
        assert!(s.resume(EventId { stream: id, sequence: 0 }).is_none());
    }

    #[tokio::test]
    async fn what_is_kept_is_bounded_and_an_answer_that_nobody_took_outlives_notes() {
        let s = streams(4, 1 << 20);
        let reader = s.open();
        let id = reader.stream();
        reader.make_resumable();
        drop(reader);
        for n in 0..100 {
            s.push(id, text(n), false).await;
        }
        s.push(id, text(100), true).await;
        s.finish(id);
        for n in 0..100 {
            s.push(STANDALONE, text(n), false).await;
        }
        assert!(s.lock().kept.len() <= 5);
        let mut again = s.resume(EventId { stream: id, sequence: 1 }).unwrap();
        assert_eq!(std::iter::from_fn(|| read(&mut again)).last().as_deref(), Some("m100"));
        drop(again);
        s.sweep(Instant::now() + Duration::from_secs(61));
        assert!(s.resume(EventId { stream: id, sequence: 1 }).is_none());
        let inner = s.lock();
        let held: usize = inner.streams.values().flat_map(|s| &s.frames).map(|f| f.message.len()).sum();
        assert_eq!(held, inner.kept_bytes);
    }

    #[tokio::test]
    async fn a_second_standalone_reader_takes_over_and_gets_what_waited() {
        let s = streams(10, 1 << 20);
        s.push(STANDALONE, text(1), false).await;
        let mut first = s.attach_standalone().unwrap();
        assert_eq!(read(&mut first).as_deref(), Some("m1"));
        let mut second = s.attach_standalone().unwrap();
        s.push(STANDALONE, text(2), false).await;
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
            s.push_merged(STANDALONE, text(1)).await;
        }
        let mut reader = s.attach_standalone().unwrap();
        assert_eq!(std::iter::from_fn(|| read(&mut reader)).count(), 1);
    }
}

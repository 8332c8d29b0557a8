//! The downstream streams of one session: what is owed to the client on each, and what may be replayed.
//!
//! A stream is a queue of frames with one writer side (the gateway) and at most one reader (the HTTP response that carries it now).
//! Frames that were handed to a reader of a resumable stream are kept for a while, so that a client that lost its connection can
//! continue after the last event it saw (2025-11-25 transports, "Resumability and Redelivery"). Nothing here knows HTTP.
//!
//! Every frame that waits for an attached reader, or was handed to one, is owed: it holds a permit of the session's ledger until the
//! bytes have drained. What nobody reads now is kept for replay instead, without credit.
//!
//! Bounds: a live stream holds at most `WINDOW_BYTES` (or one frame, if that is larger) of notifications that its reader has not taken;
//! `notes` says what becomes of the next one. Answers are bounded by the credit that they were admitted with. What is kept for replay is
//! bounded for the session as a whole, in events, bytes and time; the oldest goes first.

mod notes;
mod rest;
mod table;

pub use notes::{Noted, Rule};
pub use rest::{Cut, Cutter, Rest};

use crate::admission::{Ledger, Permit};
use crate::protocol::{RequestId, Wire};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use table::Table;
use tokio::sync::Notify;

/// Bytes that a writer of notifications may be ahead of its reader.
pub const WINDOW_BYTES: usize = 16 * 1024;

/// Finished streams that are remembered for replay.
const FINISHED_STREAMS: usize = 32;

/// The stream of messages that belong to no call: the GET stream.
pub const STANDALONE: StreamId = 0;

pub type StreamId = u32;

/// One JSON-RPC message owed to the client.
#[derive(Debug)]
pub struct Frame {
    pub message: Wire,
    /// The answer of the call: nothing follows it.
    pub last: bool,
    /// Event id of this frame on its stream.
    pub event: EventId,
    /// Its credit. None while it is kept for a reader that may come.
    pub permit: Option<Permit>,
    /// It is a question of a server, under this number.
    pub asks: Option<u64>,
    /// The code of the error that the answer is.
    pub error: Option<i64>,
    /// In place of a message: an answer that is still being read. Only for a reader that takes one.
    pub rest: Option<Rest>,
    /// The progress token that it reports on.
    token: Option<RequestId>,
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

/// A message that is to be queued.
#[derive(Default)]
struct Queued {
    message: Wire,
    last: bool,
    asks: Option<u64>,
    error: Option<i64>,
    token: Option<RequestId>,
    permit: Option<Permit>,
    rest: Option<Rest>,
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
    ledger: Arc<Ledger>,
}

struct Inner {
    streams: Table,
    next: StreamId,
    /// Frames that were handed out, or that nobody reads now, oldest first.
    kept: VecDeque<EventId>,
    kept_bytes: usize,
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
    /// Messages that were dropped since the client was last told.
    missed: u64,
    /// A message was dropped or merged for want of room, and none has found room since.
    crowded: bool,
    flowing: rest::Flowing,
    /// The reader waits for a frame, or the end.
    waits: Option<Waker>,
    /// Where a writer has waited for room.
    wake_writer: Option<Arc<Notify>>,
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
            missed: 0,
            crowded: false,
            flowing: rest::Flowing::Never,
            waits: None,
            wake_writer: None,
        }
    }

    fn wake_reader(&mut self) {
        if let Some(waker) = self.waits.take() {
            waker.wake();
        }
    }

    fn wake_writer(&self) {
        if let Some(writers) = &self.wake_writer {
            writers.notify_waiters();
        }
    }

    /// The reader of `cx` is woken by the next frame, or the end.
    fn wake_later(&mut self, cx: &Context<'_>) {
        match &mut self.waits {
            Some(waker) => waker.clone_from(cx.waker()),
            None => self.waits = Some(cx.waker().clone()),
        }
    }

    /// Nothing follows what is queued.
    fn end(&mut self, now: Instant) {
        self.finished.get_or_insert(now);
        self.wake_reader();
        self.wake_writer();
    }

    fn unread(&self) -> impl Iterator<Item = &Frame> {
        let cursor = self.cursor;
        self.frames.iter().rev().take_while(move |f| f.event.sequence >= cursor)
    }

    fn unread_bytes(&self) -> usize {
        self.unread().map(|f| f.message.len()).sum()
    }
}

impl Streams {
    /// `ledger`: whose credit the frames hold.
    pub fn new(limits: ReplayLimits, ledger: Arc<Ledger>) -> Self {
        let inner = Inner { streams: Table::default(), next: 1, kept: VecDeque::new(), kept_bytes: 0 };
        Streams { inner: Mutex::new(inner), limits, ledger }
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
        let stream = Stream { reader: Some(1), readers: 1, ..Stream::new() };
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
        let stream = inner.streams.get_mut(id).filter(|s| s.resumable)?;
        if let Some(after) = after {
            if after >= stream.next_sequence {
                return None; // an event that was never sent
            }
            stream.cursor = after + 1;
        }
        stream.readers += 1;
        stream.reader = Some(stream.readers);
        // What was kept is owed again, now that somebody is there to read it.
        let cursor = stream.cursor;
        for frame in stream.frames.iter_mut().filter(|f| f.event.sequence >= cursor && f.permit.is_none()) {
            frame.permit = Some(self.ledger.owe(frame.message.len()));
        }
        stream.wake_reader();
        Some(Reader { streams: self.clone(), stream: id, generation: stream.readers })
    }

    /// Whether anyone reads the standalone stream now.
    pub fn standalone_attached(&self) -> bool {
        self.lock().streams.get(STANDALONE).is_some_and(|s| s.reader.is_some())
    }

    /// Streams that a client reads now.
    pub fn attached(&self) -> usize {
        self.lock().streams.iter().filter(|(_, s)| s.reader.is_some()).count()
    }

    /// Queues the answer of a call: nothing follows it. Never waits: `permit` was its credit from the start.
    /// `error`: its code, where it is one.
    pub fn answer(&self, id: StreamId, message: Wire, permit: Option<Permit>, error: Option<i64>) -> Noted {
        let mut inner = self.lock();
        if inner.writable(id).is_none() {
            return Noted::Gone;
        }
        self.tell_missed(&mut inner, id);
        let mut permit = permit.unwrap_or_else(|| self.ledger.owe(0));
        permit.set_bytes(message.len());
        inner.append(id, Queued { message, last: true, error, permit: Some(permit), ..Queued::default() }, &self.limits);
        Noted::Queued
    }

    /// Queues the notice of what an attached reader has missed, ahead of what comes next.
    fn tell_missed(&self, inner: &mut Inner, id: StreamId) {
        let missed = inner.streams.get_mut(id).filter(|s| s.reader.is_some()).map_or(0, |s| std::mem::take(&mut s.missed));
        if missed > 0 {
            let notice = notes::notice(missed);
            let permit = self.ledger.owe(notice.len());
            inner.append(id, Queued { message: notice, permit: Some(permit), ..Queued::default() }, &self.limits);
        }
    }

    /// Ends the reader of a stream; what it has not taken is kept for another one.
    pub fn detach(&self, id: StreamId) {
        let mut inner = self.lock();
        let limits = self.limits;
        let Some(stream) = inner.streams.get_mut(id).filter(|s| s.reader.is_some() && s.resumable) else { return };
        stream.reader = None;
        stream.wake_reader();
        stream.wake_writer();
        inner.keep_unread(id, &limits);
    }

    /// Ends a stream. What is queued is still delivered.
    pub fn finish(&self, id: StreamId) {
        let mut inner = self.lock();
        let Some(stream) = inner.streams.get_mut(id) else { return };
        stream.end(Instant::now());
        if stream.reader.is_none() && !stream.resumable {
            inner.streams.remove(id);
        }
        inner.forget_finished(|_, count| count > FINISHED_STREAMS);
    }

    /// Ends all streams; the readers get what is queued, then the end.
    pub fn close(&self) {
        self.lock().streams.close();
    }

    /// Drops what has been kept for replay longer than the limit.
    pub fn sweep(&self, now: Instant) {
        let time = self.limits.time;
        self.lock().forget_finished(|finished, _| now.saturating_duration_since(finished) > time);
    }
}

impl Inner {
    /// The stream that `reader` reads, as long as it is its reader.
    fn read_by(&mut self, reader: &Reader) -> Option<&mut Stream> {
        self.streams.get_mut(reader.stream).filter(|s| s.reader == Some(reader.generation))
    }

    /// A stream that takes more messages. One that nobody can ever read is removed.
    fn writable(&mut self, id: StreamId) -> Option<&mut Stream> {
        let stream = self.streams.get_mut(id).filter(|s| s.finished.is_none())?;
        if stream.reader.is_none() && !stream.resumable {
            self.streams.remove(id);
            return None;
        }
        self.streams.get_mut(id)
    }

    fn append(&mut self, id: StreamId, queued: Queued, limits: &ReplayLimits) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        let Queued { message, last, asks, error, token, permit, rest } = queued;
        let event = EventId { stream: id, sequence: stream.next_sequence };
        stream.next_sequence += 1;
        let len = message.len();
        let attached = stream.reader.is_some();
        // Dropped where nobody reads: what is kept has bounds of its own.
        let permit = permit.filter(|_| attached);
        stream.frames.push_back(Frame { message, last, event, permit, asks, error, token, rest });
        if attached {
            stream.wake_reader();
        } else {
            self.keep(event, len, limits);
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
            let Some(stream) = self.streams.get_mut(oldest.stream) else { continue };
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

    /// The message of a frame was replaced: what is kept is counted by its bytes.
    fn resized(&mut self, event: EventId, before: usize, after: usize) {
        if self.kept.contains(&event) {
            self.kept_bytes = self.kept_bytes.saturating_sub(before) + after;
        }
    }

    /// What nobody took is now kept for whoever resumes, and no longer owed.
    fn keep_unread(&mut self, id: StreamId, limits: &ReplayLimits) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        stream.frames.iter_mut().for_each(|f| f.permit = None);
        let unread: Vec<(EventId, usize)> = stream.unread().map(|f| (f.event, f.message.len())).collect();
        for (event, len) in unread.into_iter().rev() {
            if !self.kept.contains(&event) {
                self.keep(event, len, limits);
            }
        }
    }

    /// Removes a stream and what is kept of it.
    fn remove(&mut self, id: StreamId) {
        if self.streams.remove(id) {
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
            self.kept.iter().filter_map(|e| streams.get(e.stream)?.frames.iter().find(|f| f.event == *e)).map(|f| f.message.len()).sum();
    }

    /// Forgets finished streams without a reader, oldest first, while `over(finished since, how many there are)`.
    fn forget_finished(&mut self, over: impl Fn(Instant, usize) -> bool) {
        let mut finished: Vec<(Instant, StreamId)> = self
            .streams
            .iter()
            .filter(|(id, s)| *id != STANDALONE && s.reader.is_none())
            .filter_map(|(id, s)| Some((s.finished?, id)))
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
        let sequence = match inner.streams.get_mut(self.stream) {
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
        poll_fn(|cx| self.poll_peek(cx)).await
    }

    fn poll_peek(&mut self, cx: &Context<'_>) -> Poll<Option<bool>> {
        let mut inner = self.streams.lock();
        let Some(stream) = inner.read_by(self) else { return Poll::Ready(None) };
        if let Some(frame) = stream.frames.iter().find(|f| f.event.sequence >= stream.cursor) {
            return Poll::Ready(Some(frame.last));
        }
        if stream.finished.is_some() {
            return Poll::Ready(None);
        }
        stream.wake_later(cx);
        Poll::Pending
    }

    /// The next frame; none at the end of the stream, or when another reader took over. Cancel-safe.
    pub async fn next(&mut self) -> Option<Frame> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    fn poll_next(&mut self, cx: &Context<'_>) -> Poll<Option<Frame>> {
        let mut inner = self.streams.lock();
        loop {
            let Some(stream) = inner.read_by(self) else { return Poll::Ready(None) };
            let cursor = stream.cursor;
            let next = stream.frames.iter().position(|f| f.event.sequence >= cursor);
            if next.is_none() && stream.missed > 0 && stream.finished.is_none() {
                // It has caught up: now it can be told what it missed. Without credit it has not; then the next message brings it.
                let notice = notes::notice(stream.missed);
                if let Some(permit) = self.streams.ledger.try_owe(notice.len()) {
                    stream.missed = 0;
                    inner.append(self.stream, Queued { message: notice, permit: Some(permit), ..Queued::default() }, &self.streams.limits);
                    continue;
                }
            }
            let Some((at, frame)) = next.and_then(|at| Some((at, stream.frames.get_mut(at)?))) else {
                if stream.finished.is_some() {
                    return Poll::Ready(None);
                }
                stream.wake_later(cx);
                return Poll::Pending;
            };
            let (event, permit, rest) = (frame.event, frame.permit.take(), frame.rest.take());
            stream.cursor = event.sequence + 1;
            stream.wake_writer();
            if !stream.resumable {
                return Poll::Ready(stream.frames.remove(at).map(|frame| Frame { permit, rest, token: None, ..frame }));
            }
            let frame = &stream.frames[at];
            let message = frame.message.clone();
            let taken = Frame { message, last: frame.last, event, permit, asks: frame.asks, error: frame.error, rest, token: None };
            if !inner.kept.contains(&event) {
                inner.keep(event, taken.message.len(), &self.streams.limits);
            }
            return Poll::Ready(Some(taken));
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut inner = self.streams.lock();
        let limits = self.streams.limits;
        let closed = inner.streams.is_closed();
        let Some(stream) = inner.streams.get_mut(self.stream) else { return };
        if stream.reader != Some(self.generation) {
            return;
        }
        stream.reader = None;
        stream.waits = None;
        stream.wake_writer();
        let everything_read = stream.cursor >= stream.next_sequence && stream.finished.is_some();
        if !stream.resumable || (everything_read && closed) {
            inner.remove(self.stream);
            return;
        }
        inner.keep_unread(self.stream, &limits);
        inner.forget_finished(|_, count| count > FINISHED_STREAMS);
    }
}

#[cfg(test)]
mod tests;

//! The messages in a response body, JSON or SSE, one at a time and no faster than they are asked for.
//!
//! What the body is, is decided by its first byte: servers get the content type wrong more often than the body.

use super::client::{self, Body};
use crate::admission::{Reading, Room};
use crate::backend::inner::Inner;
use crate::protocol::sse::{Decoder, Event};
use crate::protocol::{Incoming, headers, message};
use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Response};
use http_body::Body as _;
use http_body_util::BodyExt;
use std::collections::VecDeque;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::time::Duration;

/// Event ids that are remembered to recognise what a resumed stream sends twice.
const REMEMBERED: usize = 512;
/// Bytes and time to wait for the end of a body that has nothing left to say, so that its connection can be used again.
const DRAIN: (usize, Duration) = (64 * 1024, Duration::from_millis(200));

/// Why there is no further message.
#[derive(Debug)]
pub enum ReadError {
    /// The body ended before its end.
    Cut(String),
    /// Not what the transport allows.
    Bad(String),
}

/// Where a resumable stream stands. It outlives one response.
#[derive(Debug, Default)]
pub struct Cursor {
    /// The last event id. With one, the stream can be resumed.
    pub last_id: Option<String>,
    /// The server's wish for how long to wait before reconnecting.
    pub retry: Option<Duration>,
    /// Whether there was an event since this was last cleared.
    pub moved: bool,
    /// Whether the stream is a later one than the first. Before, equal ids are not taken for repetitions.
    pub resumed: bool,
    seen: VecDeque<u64>,
}

impl Cursor {
    /// Takes an event's id and retry. Answers false for an event that has been seen before.
    fn take(&mut self, event: &Event) -> bool {
        if let Some(retry) = event.retry {
            self.retry = Some(retry);
        }
        let Some(id) = &event.id else { return true };
        if id.is_empty() {
            // An empty id resets the last one (WHATWG HTML, 9.2.6).
            self.last_id = None;
            return true;
        }
        if HeaderValue::from_str(id).is_err() {
            // It could not be sent back.
            return true;
        }
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(id);
        if !self.seen.contains(&hash) {
            if self.seen.len() == REMEMBERED {
                self.seen.pop_front();
            }
            self.seen.push_back(hash);
        } else if self.resumed {
            return false;
        }
        self.last_id = Some(id.clone());
        self.moved = true;
        true
    }
}

#[derive(Debug)]
enum Form {
    Json,
    Sse(Decoder),
    Done,
}

/// A JSON body of which `first` was read.
#[derive(Debug)]
pub struct Json {
    pub body: Body,
    pub first: Bytes,
    /// The length that its head gave.
    pub announced: Option<usize>,
    pub limit: usize,
    pub room: Option<Room>,
    pub reading: Option<Reading>,
}

/// What a body is.
pub enum Opened {
    Json(Json),
    Events(Events),
    /// It says nothing.
    Nothing(Messages),
}

/// An event stream of which nothing was taken yet.
#[derive(Debug)]
pub struct Events {
    pub body: Body,
    pub decoder: Decoder,
    pub limit: usize,
    pub room: Option<Room>,
    pub reading: Option<Reading>,
}

#[derive(Debug)]
pub struct Messages {
    body: Body,
    form: Form,
    /// What was read to find out the form.
    first: Bytes,
    /// An event that was read already.
    early: Option<Event>,
    /// The rest of a batch (2025-03-26).
    waiting: VecDeque<Bytes>,
    limit: usize,
    announced: Option<usize>,
    room: Option<Room>,
    /// What the message that is being read holds of the room.
    reading: Option<Reading>,
}

impl Messages {
    /// Reads as far as it takes to know the form. `limit`: bytes of one message. `room`: where a large one gets its room from; without,
    /// it needs none.
    pub async fn open(response: Response<Body>, limit: usize, room: Option<Room>) -> Result<Messages, ReadError> {
        let (head, mut body) = response.into_parts();
        let mut first = BytesMut::new();
        let form = loop {
            let text = first.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&first);
            if let Some(at) = text.iter().position(|b| !b.is_ascii_whitespace()) {
                break sniff(&text[at..], &head.headers, limit);
            }
            if first.len() > 64 * 1024 {
                break None;
            }
            match body.frame().await {
                Some(Ok(frame)) => first.extend_from_slice(frame.data_ref().unwrap_or(&Bytes::new())),
                Some(Err(error)) => return Err(ReadError::Cut(client::root(&error))),
                None if is_event_stream(&head.headers) => break Some(Form::Done),
                None => return Err(ReadError::Bad(format!("its answer (HTTP status {}) is empty", head.status.as_u16()))),
            }
        };
        let Some(form) = form else {
            let declared = head.headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).map(headers::media_type);
            let declared = declared.filter(|d| d.len() < 80).unwrap_or_else(|| "none".into());
            return Err(ReadError::Bad(format!("its answer is neither JSON nor an event stream (content type: {declared})")));
        };
        let announced = head.headers.get(CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse().ok());
        Ok(Messages { body, form, first: first.freeze(), early: None, waiting: VecDeque::new(), limit, announced, room, reading: None })
    }

    /// Whether one of its messages may have more than `bytes`, as far as its head says.
    pub fn may_have(&self, bytes: usize) -> bool {
        match self.form {
            Form::Json => self.announced.is_none_or(|length| length > bytes),
            Form::Sse(_) => true,
            Form::Done => false,
        }
    }

    /// The body itself. `next` was not called yet.
    pub fn opened(self) -> Opened {
        let Messages { body, form, first, announced, limit, room, reading, .. } = self;
        match form {
            Form::Json => Opened::Json(Json { body, first, announced, limit, room, reading }),
            Form::Sse(mut decoder) => {
                decoder.push(&first);
                Opened::Events(Events { body, decoder, limit, room, reading })
            }
            Form::Done => {
                Opened::Nothing(Messages { body, form, first, early: None, waiting: VecDeque::new(), limit, announced, room, reading })
            }
        }
    }

    pub fn is_stream(&self) -> bool {
        !matches!(self.form, Form::Json)
    }

    /// The bytes of the next message; none at a proper end of the body. May be dropped and called again only for an event stream.
    pub async fn next(&mut self, cursor: &mut Cursor) -> Result<Option<Bytes>, ReadError> {
        loop {
            if let Some(message) = self.waiting.pop_front() {
                return Ok(Some(message));
            }
            let raw = match &mut self.form {
                Form::Done => return Ok(None),
                Form::Json => {
                    self.form = Form::Done;
                    let first = std::mem::take(&mut self.first);
                    let expected = self.announced.unwrap_or(0);
                    let whole = collect_with(&mut self.body, first, expected, self.limit, &self.room, &mut self.reading).await?;
                    self.keep();
                    whole
                }
                Form::Sse(decoder) => {
                    if !self.first.is_empty() {
                        decoder.push(&std::mem::take(&mut self.first));
                    }
                    let event = match self.early.take() {
                        Some(event) => Some(event),
                        None => decoder.next_event().map_err(|e| ReadError::Bad(e.to_string()))?,
                    };
                    match event {
                        Some(event) if cursor.take(&event) => match event.message() {
                            Some(message) => {
                                let message = message.clone();
                                self.keep();
                                message
                            }
                            None => continue,
                        },
                        Some(_) => continue,
                        None => {
                            Room::grow(&self.room, &mut self.reading, decoder.held()).await;
                            match self.body.frame().await {
                                Some(Ok(frame)) => {
                                    decoder.push(frame.data_ref().unwrap_or(&Bytes::new()));
                                    continue;
                                }
                                Some(Err(error)) => return Err(ReadError::Cut(client::root(&error))),
                                None => {
                                    // Some servers leave out the blank line after their last event.
                                    decoder.push(b"\n\n");
                                    let last = decoder.next_event().ok().flatten();
                                    self.form = Form::Done;
                                    match last.as_ref().and_then(Event::message) {
                                        Some(message) if Incoming::parse(message.clone()).is_ok() => message.clone(),
                                        _ => return Ok(None),
                                    }
                                }
                            }
                        }
                    }
                }
            };
            match message::batch(&raw) {
                None => return Ok(Some(raw)),
                Some(Ok(messages)) => self.waiting.extend(messages),
                Some(Err(error)) => return Err(ReadError::Bad(format!("its answer cannot be read: {error}"))),
            }
        }
    }

    /// The message that was read has come out: its room is kept for it by the call, and the next one begins anew.
    fn keep(&mut self) {
        if let Some(room) = &self.room {
            room.keep(self.reading.take());
        }
    }

    /// Lets go of a body whose answer has come.
    pub fn finish(self, inner: &Inner) {
        let_go(inner, self.body);
    }
}

impl Events {
    /// As it was, and `early` the event that was taken from it.
    pub fn with(self, early: Option<Event>) -> Messages {
        let Events { body, decoder, limit, room, reading } = self;
        let (form, first) = (Form::Sse(decoder), Bytes::new());
        Messages { body, form, first, early, waiting: VecDeque::new(), limit, announced: None, room, reading }
    }
}

impl From<Json> for Messages {
    fn from(json: Json) -> Self {
        let Json { body, first, announced, limit, room, reading } = json;
        Messages { body, form: Form::Json, first, early: None, waiting: VecDeque::new(), limit, announced, room, reading }
    }
}

/// Reads one more chunk; none at the end.
pub async fn more(body: &mut Body) -> Result<Option<Bytes>, ReadError> {
    match body.frame().await {
        Some(Ok(frame)) => Ok(Some(frame.into_data().unwrap_or_default())),
        Some(Err(error)) => Err(ReadError::Cut(client::root(&error))),
        None => Ok(None),
    }
}

impl Json {
    /// Puts what was read behind `first`.
    pub fn joined(mut self, more: &[u8]) -> Self {
        if !more.is_empty() {
            self.first = [&self.first[..], more].concat().into();
        }
        self
    }
}

/// Reads the little that may be left of a body, so that the connection can be used for the next request. Mostly there is nothing.
pub fn let_go(inner: &Inner, mut body: Body) {
    if body.is_end_stream() {
        return;
    }
    inner.spawn(async move {
        let (mut left, wait) = DRAIN;
        let _ = tokio::time::timeout(wait, async {
            while let Some(Ok(frame)) = body.frame().await {
                let read = frame.data_ref().map_or(0, Bytes::len);
                if read > left {
                    return;
                }
                left -= read;
            }
        })
        .await;
    });
}

fn is_event_stream(head: &HeaderMap) -> bool {
    head.get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).is_some_and(|v| headers::media_type(v) == headers::EVENT_STREAM)
}

fn sniff(text: &[u8], head: &HeaderMap, limit: usize) -> Option<Form> {
    let fields: [&[u8]; 5] = [b"data", b"event", b"id", b"retry", b":"];
    if text[0] == b'{' || text[0] == b'[' {
        return Some(Form::Json);
    }
    // The beginning may be shorter than the field name.
    let begins = |field: &[u8]| if text.len() < field.len() { field.starts_with(text) } else { text.starts_with(field) };
    if is_event_stream(head) || fields.iter().any(|f| begins(f)) {
        // Room for the field names around the message.
        return Some(Form::Sse(Decoder::new(limit)));
    }
    None
}

/// The whole of a body. One copy where it came in pieces, none where it came in one.
pub async fn collect(body: &mut Body, first: Bytes, expected: usize, limit: usize) -> Result<Bytes, ReadError> {
    collect_with(body, first, expected, limit, &None, &mut None).await
}

/// As `collect`, as far as there is room.
async fn collect_with(
    body: &mut Body,
    first: Bytes,
    expected: usize,
    limit: usize,
    room: &Option<Room>,
    reading: &mut Option<Reading>,
) -> Result<Bytes, ReadError> {
    let too_large = || ReadError::Bad(format!("its message is larger than the limit of {limit} bytes"));
    if expected > limit || first.len() > limit {
        return Err(too_large());
    }
    if first.len() == expected && body.is_end_stream() {
        return Ok(first);
    }
    // All that was announced at once, so that two messages do not wait for each other in the middle.
    Room::grow(room, reading, expected).await;
    let mut all = BytesMut::with_capacity(expected.max(first.len()));
    all.extend_from_slice(&first);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| ReadError::Cut(client::root(&e)))?;
        if let Some(data) = frame.data_ref() {
            if all.len() + data.len() > limit {
                return Err(too_large());
            }
            all.extend_from_slice(data);
        }
        Room::grow(room, reading, all.len()).await;
    }
    Ok(all.freeze())
}

//! A large answer that is given on while it is read: no faster than its reader asks, and never more of it than a chunk.
//!
//! Begins where the head of a JSON body, or of the first event of a stream, says that it is the result of the request, and its length that
//! it is large. Until then nothing is decided, and the body can still be read whole. From then on what is wrong with it cuts it: it was not
//! what it seemed, and who has the head has to see that the rest does not come.

use super::client::{self, Body};
use super::messages::{Events, Json, Messages, Opened, ReadError, let_go, more};
use crate::admission::{Reading, Room};
use crate::backend::error::BackendError;
use crate::backend::inner::Inner;
use crate::protocol::event::EventData;
use crate::protocol::scan::{Dress, Piece, Places, Scanner};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use std::fmt::{Debug, Display};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Answers up to this size are read whole: their memory is little, and what is wrong with them can be told as an error.
const LARGE: usize = 64 * 1024;
/// Room that an answer needs to begin: about what is held of it, the chunk at hand and what its client's connection has been given.
const HELD: usize = 128 * 1024;

/// Who takes an answer while it is still being read.
pub trait Taker: Send + Sync + Debug {
    /// Whether it would now.
    fn would(&self) -> bool;
    /// Whether it does: then it waits for this answer and nothing else.
    fn takes(&self) -> bool;
}

/// That the answer to a request may be given on while it is read.
#[derive(Clone, Debug)]
pub struct Flows {
    pub taker: Arc<dyn Taker>,
    /// Where in it there may be URIs that need another name.
    pub places: Places,
    /// What its result gets for a client of another era.
    pub dress: Option<Dress>,
}

/// The rest of an answer, and what was read of it. Dropping it closes the connection to the backend, unless the end was reached.
#[derive(Debug)]
pub struct Flow {
    inner: Arc<Inner>,
    /// None once all of it was read.
    body: Option<Body>,
    /// Where it is an event of a stream.
    event: Option<EventData>,
    scanner: Scanner,
    /// As it was announced.
    length: Option<usize>,
    /// Nothing changes in it but the id.
    plain: bool,
    read: usize,
    /// Bytes that it may have.
    limit: usize,
    /// How long the backend may be silent.
    patience: Duration,
    room: Option<Room>,
    /// What is held of the room: at first for the beginning, until its reader has that; then for what waits in the scanner.
    reading: Option<Reading>,
    over: bool,
}

/// How an answer begins.
#[expect(clippy::large_enum_variant, reason = "it is taken apart at once, and the usual case should not allocate")]
pub enum Begun {
    Flow(Box<Flow>),
    /// It is read whole.
    Whole(Messages),
}

impl Flow {
    /// Reads as far as it takes to know whether the answer to the request `id` is large, and looks right; then waits for room. Of an event
    /// stream it is the first event, if that has no id: one that breaks off could be had again otherwise.
    ///
    /// # Errors
    /// When the body breaks off, or is not what it has to be.
    pub async fn begin(inner: &Arc<Inner>, messages: Messages, id: u64, flows: &Flows) -> Result<Begun, ReadError> {
        if !messages.may_have(LARGE) || !flows.taker.would() {
            return Ok(Begun::Whole(messages));
        }
        match messages.opened() {
            // Boxed: calls are small without it.
            Opened::Json(json) => Box::pin(Self::in_json(inner, json, id, flows)).await,
            Opened::Events(events) => Box::pin(Self::in_event(inner, events, id, flows)).await,
            Opened::Nothing(messages) => Ok(Begun::Whole(messages)),
        }
    }

    async fn in_json(inner: &Arc<Inner>, mut json: Json, id: u64, flows: &Flows) -> Result<Begun, ReadError> {
        if json.announced.is_some_and(|length| length > json.limit) {
            return Ok(Begun::Whole(json.into()));
        }
        let mut behind = BytesMut::new();
        if json.announced.is_none() {
            while json.first.len() + behind.len() <= LARGE {
                let Some(chunk) = more(&mut json.body).await? else { return Ok(Begun::Whole(json.joined(&behind).into())) };
                behind.extend_from_slice(&chunk);
            }
            json = json.joined(&std::mem::take(&mut behind));
        }
        let mut scanner = Scanner::new(id, flows.places, flows.dress.clone());
        let mut good = scanner.push(&json.first).is_ok();
        let mut read = json.first.len();
        while good && !scanner.has_begun() && read <= LARGE {
            let Some(chunk) = more(&mut json.body).await? else { return Ok(Begun::Whole(json.joined(&behind).into())) };
            behind.extend_from_slice(&chunk);
            good = scanner.push(&chunk).is_ok();
            read += chunk.len();
        }
        if !good || !scanner.has_begun() || json.announced.is_some_and(|length| read >= length) {
            return Ok(Begun::Whole(json.joined(&behind).into()));
        }
        Room::grow(&json.room, &mut json.reading, HELD).await;
        if !flows.taker.takes() {
            return Ok(Begun::Whole(json.joined(&behind).into()));
        }
        let Json { body, announced, limit, room, reading, .. } = json;
        let patience = inner.backend.timeouts.call;
        let inner = inner.clone();
        Ok(Begun::Flow(Box::new(Flow {
            inner,
            body: Some(body),
            event: None,
            scanner,
            length: announced,
            plain: flows.places == Places::Nowhere && flows.dress.is_none(),
            read,
            limit,
            patience,
            room,
            reading,
            over: false,
        })))
    }

    async fn in_event(inner: &Arc<Inner>, mut events: Events, id: u64, flows: &Flows) -> Result<Begun, ReadError> {
        loop {
            if let Some(event) = events.decoder.next_event().map_err(|e| ReadError::Bad(e.to_string()))? {
                return Ok(Begun::Whole(events.with(Some(event))));
            }
            if events.decoder.held() > LARGE {
                break;
            }
            Room::grow(&events.room, &mut events.reading, events.decoder.held()).await;
            let Some(chunk) = more(&mut events.body).await? else { return Ok(Begun::Whole(events.with(None))) };
            events.decoder.push(&chunk);
        }
        let mut scanner = Scanner::new(id, flows.places, flows.dress.clone());
        // Its beginning is copied, so that it can still be read whole.
        let data = events.decoder.begun(0).map(Bytes::copy_from_slice);
        if data.is_none_or(|data| scanner.push(&data).is_err()) || !scanner.has_begun() {
            return Ok(Begun::Whole(events.with(None)));
        }
        Room::grow(&events.room, &mut events.reading, HELD).await;
        if !flows.taker.takes() {
            return Ok(Begun::Whole(events.with(None)));
        }
        let Events { body, decoder, limit, room, reading } = events;
        let patience = inner.backend.timeouts.call;
        let inner = inner.clone();
        Ok(Begun::Flow(Box::new(Flow {
            inner,
            body: Some(body),
            event: Some(EventData::begun()),
            scanner,
            length: None,
            plain: false,
            read: decoder.held(),
            limit,
            patience,
            room,
            reading,
            over: false,
        })))
    }

    /// The bytes that it has with an id of `id_len` bytes, where that is known by now.
    pub fn length(&self, id_len: usize) -> Option<u64> {
        let length = self.length.filter(|_| self.plain)?;
        Some(length.checked_sub(self.scanner.id_len()?)?.checked_add(id_len)? as u64)
    }

    /// The next piece that was read and is known to be right. It is its taker's to account for.
    pub fn ready(&mut self) -> Option<Piece> {
        if self.scanner.held() == 0 {
            self.reading = None;
        }
        self.scanner.pop()
    }

    /// All of it was read, and it was an answer from the first byte to the last.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Reads more.
    ///
    /// # Errors
    /// When it does not come, or is not what it seemed to be: what is ready may still be given on, and nothing after it.
    pub async fn read(&mut self) -> Result<(), BackendError> {
        Room::grow(&self.room, &mut self.reading, self.scanner.held()).await;
        let inner = &self.inner;
        let Some(body) = &mut self.body else { return Err(BackendError::Closed) };
        let invalid = |why: &dyn Display| inner.broke(format!("its answer cannot be read to the end: {why}"));
        match timeout(self.patience, body.frame()).await {
            Err(_) => return Err(inner.broken(format!("it was silent for {:?} in the middle of its answer", self.patience))),
            Ok(Some(Err(error))) => return Err(inner.broken(client::root(&error))),
            Ok(Some(Ok(frame))) => {
                let Ok(chunk) = frame.into_data() else { return Ok(()) };
                self.read += chunk.len();
                if self.read > self.limit {
                    return Err(inner.broke(format!("its message is larger than the limit of {} bytes", self.limit)));
                }
                let mut data = Vec::new();
                self.over = match &mut self.event {
                    Some(event) => {
                        event.push(&chunk, &mut data).map_err(|e| invalid(&e))?;
                        event.is_over()
                    }
                    None => {
                        data.push(chunk);
                        self.length == Some(self.read)
                    }
                };
                for part in data {
                    self.scanner.push(&part).map_err(|e| invalid(&e))?;
                }
            }
            // Some servers leave out the blank line after their last event.
            Ok(None) => self.over = true,
        }
        if self.over {
            self.scanner.finish().map_err(|e| invalid(&e))?;
            // There may be more of a stream than its answer.
            if let Some(body) = self.body.take().filter(|_| self.event.is_some()) {
                let_go(inner, body);
            }
        }
        Ok(())
    }
}

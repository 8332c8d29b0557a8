//! One call over streamable HTTP: sent, its stream read and, if need be, resumed, to the answer.
//!
//! Runs inside of `Call::next`, so that the body is read only as fast as the caller asks.

use super::client::Body;
use super::flow::{Begun, Flow, Flows};
use super::link::{Head, HttpLink};
use super::messages::{Cursor, Messages, ReadError};
use super::sink::{Answered, Sink, take};
use crate::admission::Room;
use crate::backend::CallEvent;
use crate::backend::call::Slot;
use crate::backend::error::BackendError;
use crate::backend::inner::Inner;
use crate::backend::known::Era;
use crate::backend::link::{Link, Wiring};
use crate::protocol::{Response, Wire, codes};
use http::{Response as HttpResponse, StatusCode};
use std::sync::Arc;
use std::time::Duration;

/// Wait before resuming a stream, where the server names none.
const RETRY: Duration = Duration::from_secs(1);
const RETRY_RANGE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(60));
/// Attempts to resume in a row that bring no event. The waits double: about 7 s with the default.
const FRUITLESS: u32 = 3;

/// `room`: where a large answer gets its room from. `flows`: that one may be given on before it was read; it comes as an event then.
pub async fn run(
    inner: Arc<Inner>,
    link: Arc<Link>,
    id: u64,
    message: Wire,
    slot: Slot,
    (room, flows): (Option<Room>, Option<Flows>),
) -> Result<Response, BackendError> {
    let mut link = link;
    let mut repeated = false;
    loop {
        let Wiring::Http(http) = &link.wiring else { return Err(inner.unavailable("it has changed its transport; try again", None)) };
        if link.hello.version.is_modern() {
            return Err(inner.unavailable("it speaks another revision now; try again", None));
        }
        slot.set_sent(true);
        let response = http.post(&inner, &message).await?;
        let status = response.status();
        let lost = match http.head(&inner, id, response).await {
            Head::Open(response) => return read(&inner, http, (id, response), &slot, room, flows).await,
            // In its place there is a server of 2026-07-28, which refuses it so before it runs anything.
            Head::Answer(response) if status == StatusCode::BAD_REQUEST && is_of_the_other_era(&response) => {
                inner.backend.known.doubt(Era::Legacy)
            }
            Head::Answer(response) => return Ok(response),
            Head::Refused(error) => return Err(error),
            // Refused, so not run: it may be sent once more, in the new session.
            Head::SessionLost => true,
        };
        if !lost || repeated {
            return Err(inner.status(status, None));
        }
        repeated = true;
        slot.set_sent(false);
        let renewed = inner.renew(link.epoch).await?;
        link = renewed;
    }
}

fn is_of_the_other_era(answer: &Response) -> bool {
    matches!(answer.error_code(), Some(codes::HEADER_MISMATCH | codes::UNSUPPORTED_VERSION))
}

async fn read(
    inner: &Arc<Inner>,
    http: &HttpLink,
    (id, response): (u64, HttpResponse<Body>),
    slot: &Slot,
    room: Option<Room>,
    flows: Option<Flows>,
) -> Result<Response, BackendError> {
    let mut cursor = Cursor::default();
    let mut fruitless = 0;
    let mut messages = match Messages::open(response, inner.backend.limits.message, room.clone()).await {
        Ok(messages) => messages,
        Err(error) => return Err(inner.unread(error)),
    };
    if let Some(flows) = flows {
        messages = match Flow::begin(inner, messages, id, &flows).await.map_err(|e| inner.unread(e))? {
            Begun::Whole(messages) => messages,
            Begun::Flow(flow) => {
                slot.emit(CallEvent::Flow(flow)).await;
                return Err(BackendError::Closed);
            }
        };
    }
    loop {
        cursor.moved = false;
        let why = loop {
            match messages.next(&mut cursor).await {
                Ok(Some(raw)) => {
                    if let Answered::Yes(answer) = take(inner, Some(id), raw, &Sink::Call(slot)).await? {
                        messages.finish(inner);
                        return Ok(answer);
                    }
                }
                Ok(None) if messages.is_stream() => break "its stream ended without an answer".to_owned(),
                Ok(None) => return Err(inner.broke("its answer holds no message")),
                Err(ReadError::Cut(why)) => break why,
                Err(error) => return Err(inner.unread(error)),
            }
        };
        // A stream whose events have ids can be resumed, also after the server ended it on purpose (2025-11-25 transports,
        // "Sending Messages" 6 and "Resumability and Redelivery").
        messages = loop {
            let Some(last) = cursor.last_id.clone() else { return Err(inner.broken(&why)) };
            cursor.resumed = true;
            fruitless = if std::mem::take(&mut cursor.moved) { 0 } else { fruitless + 1 };
            if fruitless > FRUITLESS {
                return Err(inner.broken(format!("{why}, and the stream could not be resumed")));
            }
            let wait = cursor.retry.unwrap_or(RETRY).clamp(RETRY_RANGE.0, RETRY_RANGE.1);
            tokio::time::sleep(wait * 2u32.pow(fruitless)).await;
            tracing::debug!(backend = %inner.backend.name, session = %inner.hello.session_tag, "resuming the stream of a call: {why}");
            let Ok(response) = http.get(inner, Some(&last)).await else { continue };
            let status = response.status();
            if status.is_success() {
                if let Ok(messages) = Messages::open(response, inner.backend.limits.message, room.clone()).await {
                    break messages;
                }
            } else if !(status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS) {
                return Err(inner.broken(format!("{why}, and resuming the stream was refused with HTTP status {}", status.as_u16())));
            }
        };
    }
}

//! A batch: several messages in one POST. Only 2025-03-26 has it, and a session of that revision is what it needs.
//!
//! All or nothing at the door: an array with anything in it that is no message is refused before any of it is run. Requests then run at
//! the same time. Their answers are one array where nothing precedes them, and events as they come otherwise; such a stream has no event
//! ids, as one id could not stand for the several calls on it.

use super::accept::Accepts;
use super::chamber::Verified;
use super::refused::Refused;
use super::reply::PATIENCE;
use super::respond::{self, Response};
use super::{Front, sse};
use crate::admission::Permit;
use crate::gateway::Reply;
use crate::protocol::{Incoming, Wire, method};
use crate::session::Session;
use crate::session::streams::Reader;
use bytes::Bytes;
use http::StatusCode;
use std::sync::Arc;
use tokio::time::timeout;

/// Messages in one batch.
const MOST: usize = 64;

pub async fn post(front: &Front, verified: &Verified<'_>, accepts: Accepts, messages: Vec<Bytes>) -> Result<Response, Refused> {
    let session = verified.session(None)?;
    if !session.version().has_batches() {
        return Err(Refused::Batch);
    }
    match messages.len() {
        0 => return Err(Refused::BatchEmpty),
        // Each request needs a frame of credit, and all of them at once.
        n if n > MOST.min(session.ledger.limits().frames) => {
            return Err(Refused::BatchTooLong { limit: MOST.min(session.ledger.limits().frames) });
        }
        _ => {}
    }
    let messages = read(messages)?;
    let questions = messages.iter().any(|m| matches!(m, Incoming::Request(_)));
    if questions {
        accepts.check_answer()?;
    }
    let mut admitted = Vec::with_capacity(messages.len());
    for message in messages {
        let credit = match &message {
            Incoming::Request(request) => front.gateway.admit(&session, request).await.map_err(|refusal| {
                // All or nothing: what was admitted before it is given back.
                Refused::Gateway { refusal: Box::new(refusal), id: Some(request.id.clone()) }
            })?,
            _ => None,
        };
        admitted.push((message, credit));
    }
    // All of it is run even if the client hangs up now.
    let taken = front.tasks.spawn(take(front.clone(), session.clone(), admitted)).await;
    let (answers, readers) = taken.map_err(|error| {
        tracing::error!(%error, "taking a batch failed");
        Refused::Broken(None)
    })?;
    if !questions {
        return Ok(respond::empty(StatusCode::ACCEPTED));
    }
    Ok(answer(front, &session, accepts, answers, readers).await)
}

/// Hands the messages to the gateway in their order. Answers those that are answered at once, and the streams of the others.
async fn take(front: Front, session: Arc<Session>, messages: Vec<(Incoming, Option<Permit>)>) -> (Vec<Wire>, Vec<Reader>) {
    let mut answers = Vec::new();
    let mut readers = Vec::new();
    for (message, credit) in messages {
        match message {
            Incoming::Notification(notification) => front.notify(&session, notification).await,
            Incoming::Response(response) => front.answer(&session, response).await,
            Incoming::Request(request) => {
                let id = request.id.clone();
                match front.gateway.request(&session, request, credit) {
                    Ok(Reply::Now(answer)) => answers.push(answer),
                    Ok(Reply::Stream(reader, ..)) => readers.push(reader),
                    Err(refusal) => answers.push(refusal.error.to_message(Some(&id))),
                }
            }
        }
    }
    (answers, readers)
}

fn read(messages: Vec<Bytes>) -> Result<Vec<Incoming>, Refused> {
    let one = |(at, raw)| match Incoming::parse(raw) {
        Ok(Incoming::Request(request)) if &*request.method == method::INITIALIZE => Err(Refused::BatchInitialize),
        Ok(message) => Ok(message),
        Err(error) => Err(Refused::BatchElement { at, error }),
    };
    messages.into_iter().enumerate().map(one).collect()
}

pub(super) async fn answer(
    front: &Front,
    session: &Arc<Session>,
    accepts: Accepts,
    mut answers: Vec<Wire>,
    mut readers: Vec<Reader>,
) -> Response {
    if accepts.events && !(accepts.json && answers_only(&mut readers).await) {
        return sse::batch(&front.gateway, &answers, readers);
    }
    let mut merged = sse::Merged::new(readers);
    let mut credit: Option<Permit> = None;
    while let Some(frame) = merged.next().await {
        if frame.last {
            // Their credit returns together: they go out as one.
            if let Some(permit) = frame.permit {
                credit = match credit.take() {
                    None => Some(permit),
                    Some(mut all) => {
                        all.join(permit);
                        Some(all)
                    }
                };
            }
            answers.push(frame.message);
        } else {
            front.cannot_tell(session, frame);
        }
    }
    if answers.is_empty() {
        // Every request was cancelled.
        return respond::empty(StatusCode::NO_CONTENT);
    }
    respond::owed(StatusCode::OK, array(answers), credit)
}

/// Whether each stream has its answer, and nothing before it, soon enough.
async fn answers_only(readers: &mut [Reader]) -> bool {
    let all = async {
        for reader in readers {
            if reader.peek().await == Some(false) {
                return false;
            }
        }
        true
    };
    timeout(PATIENCE, all).await.unwrap_or(false)
}

fn array(messages: Vec<Wire>) -> Wire {
    let mut array = Wire::new();
    for (at, message) in messages.into_iter().enumerate() {
        array.push(Bytes::from_static(if at == 0 { b"[" } else { b"," }));
        array.extend(message);
    }
    array.push(Bytes::from_static(b"]"));
    array
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_with_anything_in_it_that_is_no_message_is_refused_whole() {
        let good = Bytes::from_static(br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#);
        assert_eq!(read(vec![good.clone(), good.clone()]).unwrap().len(), 2);
        assert!(matches!(read(vec![good.clone(), Bytes::from_static(b"1")]), Err(Refused::BatchElement { at: 1, .. })));
        let initialize = Bytes::from_static(br#"{"jsonrpc":"2.0","id":2,"method":"initialize","params":{"protocolVersion":"2025-03-26"}}"#);
        assert!(matches!(read(vec![good, initialize]), Err(Refused::BatchInitialize)));
    }

    #[test]
    fn answers_are_joined_as_they_are() {
        let wire = |text: &'static str| Wire::from(Bytes::from_static(text.as_bytes()));
        assert_eq!(array(vec![wire("{\"a\": 1.0}"), wire("{}")]).into_bytes(), "[{\"a\": 1.0},{}]");
    }
}

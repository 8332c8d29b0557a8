//! Messages that are not answers: what becomes of them where the client does not read as fast as they come.
//!
//! With room and credit they are queued. Without, the writer waits, and with it the backend that sent the message, on its own connection:
//! for `patience`, for a tenth of it where the message before found no room either, and hardly at all where one that waits can be replaced.
//! Then each kind has its rule, so that what is queued stays bounded whatever a backend sends.

use super::{Queued, StreamId, Streams, WINDOW_BYTES};
use crate::protocol::{RequestId, Wire, codes, method};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// How long progress waits for room: its loss is none, and its call should not take for ever. Enough that a flood does not take a processor.
const PACE: Duration = Duration::from_millis(1);

/// What becomes of a message for which there is no room.
#[derive(Clone, Debug)]
pub enum Rule {
    /// One equal message that waits is enough (`list_changed`, `resources/updated`).
    Merge,
    /// The newest takes the place of the last one that waits with this token (`progress`).
    Replace(RequestId),
    /// Dropped and counted; one notice says how many (`message`, and what is not known).
    Drop,
    /// Not queued, at once: a request of a server, under this number, which gets an error instead.
    Ask(u64),
    /// Queued all the same: bounded in another way.
    Keep,
}

/// What became of a message given to a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noted {
    /// The reader gets it, or it waits for one that comes back.
    Queued,
    /// An equal one waits already.
    Merged,
    /// It stands where an older one of its kind stood.
    Replaced,
    /// There was no room for it.
    Dropped,
    /// Nobody can ever read it: the client went away and has no event id to come back with.
    Gone,
}

impl Streams {
    /// Queues a message that is not an answer, by its rule. Waits at most `patience`. Cancel-safe.
    pub async fn note(&self, id: StreamId, message: Wire, rule: Rule) -> Noted {
        let patience = self.ledger.limits().patience;
        let crowded = || self.lock().streams.get(id).is_some_and(|s| s.crowded);
        let wait = match rule {
            Rule::Replace(_) => patience.min(PACE),
            _ if crowded() => patience / 10,
            _ => patience,
        };
        let until = Instant::now() + wait;
        // What has drained since somebody looked may be credit enough.
        if self.ledger.credit() == 0 {
            self.ledger.look(Instant::now());
        }
        loop {
            // Registered before the state is looked at, so that no wake-up is lost.
            let mut credit = std::pin::pin!(self.ledger.changed().notified());
            credit.as_mut().enable();
            let wake = match self.try_note(id, &message, &rule, Instant::now() >= until) {
                Ok(noted) => return noted,
                Err(wake) => wake,
            };
            let mut room = std::pin::pin!(wake.notified());
            room.as_mut().enable();
            // And once more, now that both are registered.
            if let Ok(noted) = self.try_note(id, &message, &rule, false) {
                return noted;
            }
            let _ = tokio::time::timeout_at(until.into(), async {
                tokio::select! { () = &mut credit => {}, () = &mut room => {} }
            })
            .await;
        }
    }

    /// Queues it if there is room, or by the rule when it is too `late` to wait for any; otherwise says what wakes a writer.
    fn try_note(&self, id: StreamId, message: &Wire, rule: &Rule, late: bool) -> Result<Noted, Arc<Notify>> {
        let mut inner = self.lock();
        let Some(stream) = inner.writable(id) else { return Ok(Noted::Gone) };
        if matches!(rule, Rule::Merge) && stream.unread().any(|f| f.message == *message) {
            return Ok(Noted::Merged);
        }
        let token = match rule {
            Rule::Replace(token) => Some(token.clone()),
            _ => None,
        };
        let asks = match rule {
            Rule::Ask(number) => Some(*number),
            _ => None,
        };
        let queued = |permit| Queued { message: message.clone(), asks, token: token.clone(), permit, ..Queued::default() };
        if stream.reader.is_none() {
            inner.append(id, queued(None), &self.limits);
            return Ok(Noted::Queued);
        }
        let unread = stream.unread_bytes();
        let fits = unread == 0 || unread + message.len() <= WINDOW_BYTES || matches!(rule, Rule::Ask(_) | Rule::Keep);
        let permit = if fits { self.ledger.try_owe(message.len()) } else { None };
        if let Some(permit) = permit {
            stream.crowded = false;
            self.tell_missed(&mut inner, id);
            inner.append(id, queued(Some(permit)), &self.limits);
            return Ok(Noted::Queued);
        }
        stream.crowded |= late;
        match rule {
            Rule::Ask(_) => return Ok(Noted::Dropped),
            Rule::Keep => {}
            _ if !late => return Err(stream.wake_writer.get_or_insert_default().clone()),
            Rule::Drop => {
                stream.missed += 1;
                self.ledger.count_dropped();
                return Ok(Noted::Dropped);
            }
            Rule::Replace(token) => {
                let cursor = stream.cursor;
                // The last one that waits, so that those before it stay in their order.
                let waiting = stream.frames.iter_mut().rfind(|f| f.event.sequence >= cursor && f.token.as_ref() == Some(token));
                if let Some(frame) = waiting {
                    let (event, before) = (frame.event, frame.message.len());
                    frame.message = message.clone();
                    if let Some(permit) = &mut frame.permit {
                        permit.set_bytes(message.len());
                    }
                    inner.resized(event, before, message.len());
                    return Ok(Noted::Replaced);
                }
            }
            Rule::Merge => {}
        }
        // At most one for each kind, token or resource.
        let permit = self.ledger.owe(message.len());
        inner.append(id, queued(Some(permit)), &self.limits);
        Ok(Noted::Queued)
    }
}

/// What the client is told about messages that it missed.
pub(super) fn notice(missed: u64) -> Wire {
    let text = match missed {
        1 => "1 message was not delivered: it came faster than this client reads".to_owned(),
        n => format!("{n} messages were not delivered: they came faster than this client reads"),
    };
    let params = serde_json::json!({ "level": "warning", "logger": "lockgate", "data": text });
    codes::notification(method::LOG_MESSAGE, Some(&params.to_string()))
}

//! One call to a modern server, in as many rounds as its questions take (2026-07-28 patterns/mrtr).
//!
//! ```text
//! send ──► complete ──► the answer
//!  ▲  └──► input_required ──► questions to the client, on the call's own stream ──► all answered ─┐
//!  └───────────────────────── the same request, a new id, inputResponses, requestState ◄──────────┘
//! ```
//!
//! Runs inside of `Call::next`. Dropped with the call, it leaves nothing behind.

use super::answer::{Question, Required, Verdict, judge};
use super::ask::{Ask, Retry};
use super::cache::Lookup;
use super::flight::{self, Stopped};
use super::post::Posting;
use super::tools;
use crate::backend::CallEvent;
use crate::backend::call::Slot;
use crate::backend::error::BackendError;
use crate::backend::inner::Inner;
use crate::backend::link::{Link, Wiring};
use crate::backend::upstream::is_own_business;
use crate::protocol::json::{self, Object};
use crate::protocol::{Incoming, Request, RequestId, Response, Wire, codes, method};
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Rounds with questions that one call may take.
const ROUNDS: u32 = 8;
/// Times that a server may say "again" without a question. With the pauses, about a minute.
const AGAIN: u32 = 16;
/// The pause before the first of these, and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Sends the request and answers the server's questions until there is a result. `first`: the id of the first round.
///
/// # Errors
/// `OtherEra` only for the first of them, which has not been run then.
pub async fn run(inner: &Arc<Inner>, link: &Link, first: u64, ask: &Ask, slot: &Slot) -> Result<Response, Stopped> {
    let http = match &link.wiring {
        Wiring::Http(http) => Some(http),
        Wiring::Pipe(_) => None,
    };
    let (mut id, mut retry) = (first, None);
    let (mut rounds, mut again, mut relisted) = (0, 0, false);
    loop {
        let members = match inner.hello.modern {
            true => inner.modern().meta.members(ask.level()),
            false => inner.modern().meta.members(inner.restore.look(|restore| restore.level()).flatten().as_deref()),
        };
        let message = ask.message(id, &members, retry.as_ref()).into_bytes();
        let lookup = http.and_then(|_| Lookup::of(inner, ask.method(), &message));
        let kept = lookup.as_ref().and_then(|lookup| lookup.find(inner));
        let is_news = kept.is_none();
        let mut response = match kept {
            Some(response) => response,
            None => match leg(inner, link, id, message, ask, slot).await {
                Err(Stopped::OtherEra(error)) if rounds + again > 0 => return Err(error.into()),
                outcome => outcome?,
            },
        };
        if let Some(http) = http {
            if response.error_code() == Some(codes::HEADER_MISMATCH) && ask.method() == method::TOOLS_CALL && !relisted {
                // Refused, so not run. Its tools may want other headers than they did ("Client Behavior").
                relisted = true;
                inner.backend.known.lists().changed(method::TOOLS_CHANGED);
                inner.modern().lists.changed(method::TOOLS_CHANGED);
                tools::read(inner, http).await;
                id = inner.next_id();
                continue;
            }
            if let Some(lookup) = lookup.filter(|_| is_news) {
                lookup.keep(inner, &response);
            }
            if response.ok && ask.method() == method::TOOLS_LIST {
                response = inner.modern().tools.learn(inner, response);
            }
        }
        let required = match judge(inner, response, ask.method())? {
            Verdict::Final(response) => return Ok(response),
            Verdict::InputRequired(required) => required,
        };
        if let Some(room) = ask.room() {
            room.keep(None);
        }
        retry = Some(if required.questions.is_empty() {
            again += 1;
            if again > AGAIN {
                return Err(inner.broke(format!("it asked {AGAIN} times to be asked again")).into());
            }
            tokio::time::sleep((PAUSE.0 * 2u32.saturating_pow(again - 1)).min(PAUSE.1)).await;
            Retry { responses: None, state: required.state }
        } else {
            rounds += 1;
            if rounds > ROUNDS {
                return Err(inner.broke(format!("it still asks after {ROUNDS} rounds of questions")).into());
            }
            let responses = questions(inner, link, &required, slot).await?;
            Retry { responses: Some(responses), state: required.state }
        });
        id = inner.next_id();
    }
}

/// One request and its answer.
async fn leg(inner: &Arc<Inner>, link: &Link, id: u64, message: Bytes, ask: &Ask, slot: &Slot) -> Result<Response, Stopped> {
    if matches!(link.wiring, Wiring::Http(_)) {
        // From its first byte on the server may have it.
        slot.begin(id, Arc::new(AtomicBool::new(true)));
    }
    let end = fly(inner, link, id, message, ask, slot).await;
    slot.finish();
    end
}

async fn fly(inner: &Arc<Inner>, link: &Link, id: u64, message: Bytes, ask: &Ask, slot: &Slot) -> Result<Response, Stopped> {
    let posting = Posting { id, message, mirrored: ask.mirrored(), brought: ask.brought(), room: ask.room().cloned() };
    let mut flight = flight::send(inner, link, posting, !is_own_business(ask.method())).await?;
    if let Some(flag) = flight.flag() {
        slot.begin(id, flag);
    }
    loop {
        match flight.next(inner).await {
            CallEvent::Answer(response) => {
                flight.finish(inner);
                return Ok(response);
            }
            CallEvent::Failed(error) => return Err(error.into()),
            // The server has no requests of its own, and ends ours with an answer.
            CallEvent::Request(_) => {}
            CallEvent::Notification(note) if &*note.method == method::CANCELLED => flight.release(),
            event => slot.emit(event).await,
        }
    }
}

/// Puts the questions to the client, in their order, and waits for all answers: JSON text of `inputResponses`.
async fn questions(inner: &Arc<Inner>, link: &Link, required: &Required, slot: &Slot) -> Result<String, BackendError> {
    let asked = &required.questions;
    let ids: Vec<RequestId> = asked.iter().map(|_| own_id(inner.next_id())).collect();
    let requests = asked.iter().zip(&ids).map(|(question, id)| request(inner, question, id)).collect::<Result<Vec<_>, _>>()?;
    let mut round = inner.modern().inputs.open(ids);
    for request in requests {
        slot.emit(CallEvent::Request(request)).await;
    }
    let mut answers: Vec<Option<Bytes>> = vec![None; asked.len()];
    while answers.iter().any(Option::is_none) {
        let answer = tokio::select! {
            biased;
            answer = round.next() => answer,
            // What it asked for was for this process.
            why = link.ended() => return Err(inner.broken(&*why)),
        };
        let Some((index, response)) = answer else { return Err(BackendError::Closed) };
        if !response.ok {
            let body = response.body();
            let text = Object::parse(&body).map(|e| super::answer::error_text(&e)).unwrap_or_default();
            let reason = format!("`{}` was answered with {text}", asked[index].method);
            return Err(BackendError::Input { backend: inner.backend.name.clone(), reason });
        }
        answers[index] = Some(response.body());
    }
    let members = asked.iter().zip(answers.iter().flatten());
    let members: Vec<String> = members.map(|(q, answer)| format!("{}:{}", json::quote(&q.key), String::from_utf8_lossy(answer))).collect();
    Ok(format!("{{{}}}", members.join(",")))
}

/// An id that no server can have given: those of questions are ours.
fn own_id(number: u64) -> RequestId {
    RequestId::from_raw(Bytes::from(format!("\"input-{number}\""))).unwrap_or_else(|| RequestId::number(number))
}

/// A question as the request that an older server would have sent.
fn request(inner: &Inner, question: &Question, id: &RequestId) -> Result<Request, BackendError> {
    let needs = match &*question.method {
        method::ELICITATION => "elicitation",
        method::SAMPLING => "sampling",
        method::ROOTS_LIST => "roots",
        other => {
            let other: String = other.chars().filter(|c| !c.is_control()).take(40).collect();
            return Err(inner.broke(format!("it asks for {other:?}, which is no question for a client")));
        }
    };
    let declared = Object::parse(&inner.hello.capabilities).ok().is_some_and(|c| c.only(needs).is_some_and(json::is_object));
    if !declared {
        return Err(inner.broke(format!("it asks for `{}`, for which the client did not declare `{needs}`", question.method)));
    }
    let mut text = Wire::from(format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":{}",
        String::from_utf8_lossy(id.raw()),
        json::quote(&question.method)
    ));
    if let Some(params) = &question.params {
        text.push(Bytes::from_static(b",\"params\":"));
        text.push(older(&question.method, params, id));
    }
    text.push(Bytes::from_static(b"}"));
    match Incoming::parse(text.into_bytes()) {
        Ok(Incoming::Request(request)) => Ok(request),
        _ => Err(inner.broke("one of its inputRequests is no request")),
    }
}

/// An elicitation by URL had an id until 2025-11-25, which its schema demands.
fn older(of: &str, params: &Bytes, id: &RequestId) -> Bytes {
    let by_url = |o: &Object<'_>| o.only("mode").and_then(json::string).is_some_and(|m| m == "url") && o.only("elicitationId").is_none();
    if of != method::ELICITATION || !Object::parse(params).is_ok_and(|o| by_url(&o)) {
        return params.clone();
    }
    let mut edits = crate::protocol::Edits::new();
    let add = format!("\"elicitationId\":{}", String::from_utf8_lossy(id.raw()));
    // Read as an object a line before.
    let _ = crate::protocol::members::splice(params, 0..params.len(), |_| false, &add, &mut edits);
    edits.apply(params).into_bytes()
}

//! Calls to backends of older revisions that wait for their client: a question came in the middle, the client's request ended with it, and
//! its retry will bring the answer. Meanwhile the call and its stream are kept here, whatever becomes of the connection.
//!
//! Bounded in number, for each principal and in all, and in time; whoever takes a call out has it alone, so a state is good once.
//! Dropping a call cancels it at its backend.

use super::super::{Gateway, Refusal};
use super::state;
use super::{Answering, Asking};
use crate::protocol::{Incoming, RequestId, RpcError, codes};
use crate::session::{Client, Declares, Principal};
use bytes::Bytes;
use http::StatusCode;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How many calls may wait, and how long.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub total: usize,
    pub per_principal: usize,
    pub time: Duration,
}

/// The calls that wait.
#[derive(Default)]
pub struct Parked(Mutex<HashMap<[u8; 16], Waiting>>);

struct Waiting {
    answering: Answering,
    questions: Vec<Question>,
    until: Instant,
}

/// A question of a server as its client knows it.
#[derive(Debug)]
pub(super) struct Question {
    /// Its name among the `inputRequests`.
    pub key: String,
    /// Its number among the questions of the session.
    pub number: u64,
    /// JSON text: method and params.
    pub body: Bytes,
}

impl Parked {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<[u8; 16], Waiting>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether one more call of this principal may wait.
    pub(super) fn has_room(&self, limits: &Limits, principal: &Principal) -> bool {
        let waiting = self.lock();
        let of = |w: &&Waiting| w.answering.session().key().principal == *principal;
        waiting.len() < limits.total && waiting.values().filter(of).count() < limits.per_principal
    }

    pub(super) fn put(&self, key: [u8; 16], answering: Answering, questions: Vec<Question>, until: Instant) {
        self.lock().insert(key, Waiting { answering, questions, until });
    }

    /// Ends those whose time is over.
    pub(in crate::gateway) fn expire(&self, now: Instant) {
        let mut over = Vec::new();
        self.lock().retain(|_, waiting| {
            let keep = waiting.until > now;
            if !keep {
                over.push(std::mem::replace(&mut waiting.questions, Vec::new()).len());
            }
            keep
        });
        if !over.is_empty() {
            tracing::info!(
                calls = over.len(),
                "calls that waited for their clients are cancelled: their time is over (modern.parked_time)"
            );
        }
    }

    /// Ends all: the gateway stops.
    pub(in crate::gateway) fn clear(&self) {
        self.lock().clear();
    }
}

impl Gateway {
    /// Goes on with a call that waits, with the answers that `request`, its retry, brings.
    pub(super) async fn unpark(self: &Arc<Self>, key: [u8; 16], asking: Asking<'_>) -> Result<Answering, Refusal> {
        let Asking { client: Client { declares: now, .. }, brought, request, .. } = asking;
        let refuse = |error: RpcError| Refusal::new(StatusCode::OK, error);
        let responses = state::responses(&request).map_err(refuse)?;
        // Looked at before the call is taken: a retry that cannot be used leaves it where it is.
        if let Some((name, _)) = responses.iter().find(|(_, answer)| answer.first() != Some(&b'{')) {
            return Err(refuse(RpcError::invalid_params(format!(
                "`params.inputResponses.{}` must be an object",
                super::super::shorten(name)
            ))));
        }
        let session = self.parked.lock().get(&key).map(|w| w.answering.session().clone());
        let gone = || {
            refuse(RpcError::invalid_params(
                "the call that `params.requestState` stands for does not wait any more: it was continued already, or its time was over \
                 (modern.parked_time)",
            ))
        };
        let session = session.ok_or_else(gone)?;
        check_able(session.client.declares, now)?;
        let credit = self.admit(&session, &request).await?;
        if let Ok(Some(name)) = request.string_param(&["name"]) {
            let at = self.names(&session).await.map_err(refuse)?;
            let checked = self.check_params(&session, &request, &brought, &at, &name.value, None).await;
            checked.map_err(|why| Refusal::new(StatusCode::BAD_REQUEST, RpcError::new(codes::HEADER_MISMATCH, why.to_string())))?;
        }
        let Some(waiting) = self.parked.lock().remove(&key) else { return Err(gone()) };
        let Waiting { mut answering, questions, .. } = waiting;
        session.touch();
        let mut open = Vec::new();
        for question in questions {
            let Some((_, answer)) = responses.iter().find(|(name, _)| *name == question.key) else {
                open.push(question);
                continue;
            };
            let message = codes::result(&RequestId::number(question.number), answer.clone());
            if let Ok(Incoming::Response(response)) = Incoming::parse(message.into_bytes()) {
                self.answer(&session, response).await;
            }
        }
        // The credit of the first attempt, which the call still holds, is that of the answer.
        drop(credit);
        answering.continues(request, open);
        Ok(answering)
    }
}

/// The call may ask whatever its first request could answer, and a request is never asked what it did not declare: so its retry has to
/// declare all of that, too.
fn check_able(begun: Declares, now: Declares) -> Result<(), Refusal> {
    let kinds = [
        ("sampling", begun.sampling, now.sampling),
        ("elicitation", begun.elicitation, now.elicitation),
        ("roots", begun.roots, now.roots),
    ];
    let missing = kinds.into_iter().filter(|(_, begun, now)| *begun && !now).map(|(kind, ..)| (kind.to_owned(), serde_json::json!({})));
    let missing: serde_json::Map<_, _> = missing.collect();
    if missing.is_empty() {
        return Ok(());
    }
    let error = RpcError::new(codes::MISSING_CAPABILITY, "the call was begun by a client that can answer more: retry it as that client");
    Err(Refusal::new(StatusCode::BAD_REQUEST, error.with_data(serde_json::json!({ "requiredCapabilities": missing }))))
}

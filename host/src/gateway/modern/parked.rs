//! Calls to backends of older revisions that wait for their client: a question came in the middle, the client's request ended with it, and
//! its retry will bring the answer. Meanwhile the call and its stream are kept here, whatever becomes of the connection.
//!
//! Bounded in number, for each principal and in all, and in time; whoever takes a call out has it alone, so a state is good once.
//! Dropping a call cancels it at its backend.

use super::super::{Gateway, Refusal};
use super::state;
use super::{Answering, Asking};
use crate::protocol::{Incoming, RequestId, RpcError, codes};
use crate::session::{Declares, Session};
use crate::telemetry::metrics::LevelGuard;
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
    _counted: LevelGuard,
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

    /// Lets a call wait under `key`. Where there are too many in all, one makes room whose client's connection has gone, the oldest first: it
    /// is handed back. An error is the call itself, for which there is no room.
    fn put(&self, limits: &Limits, key: [u8; 16], new: Waiting) -> Result<Option<Waiting>, Box<Waiting>> {
        let mut waiting = self.lock();
        let session = new.answering.session();
        let one_owner = |of: &Session| {
            let principal = &of.key().principal;
            // Anonymous clients are told apart by their connections, each of which has an account of its own.
            *principal == session.key().principal && (!principal.is_anonymous() || Arc::ptr_eq(&of.ledger, &session.ledger))
        };
        if waiting.values().filter(|w| one_owner(w.answering.session())).count() >= limits.per_principal {
            return Err(Box::new(new));
        }
        let mut gone = None;
        if waiting.len() >= limits.total {
            let oldest = waiting.iter().filter(|(_, w)| w.answering.session().is_orphan()).min_by_key(|(_, w)| w.until);
            gone = oldest.map(|(key, _)| *key).and_then(|key| waiting.remove(&key));
            if gone.is_none() {
                return Err(Box::new(new));
            }
        }
        waiting.insert(key, new);
        Ok(gone)
    }

    /// Ends all: the gateway stops.
    pub(in crate::gateway) fn clear(&self) {
        let all = std::mem::take(&mut *self.lock());
        drop(all);
    }
}

impl Gateway {
    /// Lets a call wait for its client under `key`, with the questions that it was asked.
    ///
    /// # Errors
    /// The call, where there is no room for it.
    pub(super) async fn park(self: &Arc<Self>, key: [u8; 16], answering: Answering, questions: Vec<Question>) -> Result<(), Answering> {
        let limits = self.settings.parked;
        let counted = self.metrics.parked_calls.enter();
        let waiting = Waiting { answering, questions, until: Instant::now() + limits.time, _counted: counted };
        match self.parked.put(&limits, key, waiting) {
            Ok(gone) => {
                if let Some(gone) = gone {
                    self.end_waiting(gone, "the client has gone, and others need the place").await;
                }
                Ok(())
            }
            Err(waiting) => {
                let Waiting { answering, questions, .. } = *waiting;
                tracing::warn!(session = %answering.session().tag(), "a question of a server is not put to its client: too many calls wait for theirs");
                let why =
                    "the client cannot be asked now: too many calls wait for their clients (modern.parked, modern.parked_per_principal)";
                self.give_up_asked(answering.session(), questions, why).await;
                Err(answering)
            }
        }
    }

    /// Ends the calls whose time to wait is over.
    pub(in crate::gateway) async fn expire_parked(self: &Arc<Self>, now: Instant) {
        let over: Vec<Waiting> = self.parked.lock().extract_if(|_, waiting| waiting.until <= now).map(|(_, waiting)| waiting).collect();
        if !over.is_empty() {
            tracing::info!(
                calls = over.len(),
                "calls that waited for their clients are cancelled: their time is over (modern.parked_time)"
            );
        }
        for waiting in over {
            self.end_waiting(waiting, "the client did not answer in time").await;
        }
    }

    /// Cancels a call that waits, and answers for its client what it was asked.
    async fn end_waiting(self: &Arc<Self>, waiting: Waiting, why: &str) {
        let Waiting { answering, questions, .. } = waiting;
        let session = answering.session().clone();
        drop(answering);
        self.give_up_asked(&session, questions, why).await;
    }

    /// Answers for the client what it was asked.
    pub(super) async fn give_up_asked(&self, session: &Session, questions: Vec<Question>, why: &str) {
        let open = questions.into_iter().filter_map(|q| session.asked.take(q.number)).collect();
        self.give_up(session, open, why).await;
    }

    /// Goes on with a call that waits, with the answers that `request`, its retry, brings.
    pub(super) async fn unpark(self: &Arc<Self>, key: [u8; 16], asking: Asking<'_>) -> Result<Answering, Refusal> {
        let Asking { client, brought, request, .. } = asking;
        let now = client.client().declares;
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
                "the call that `params.requestState` stands for does not wait any more: it was continued already, cancelled by a retry that hung up, \
                 or its time was over (modern.parked_time)",
            ))
        };
        let session = session.ok_or_else(gone)?;
        check_able(session.client.declares, now)?;
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
        if let Some(stream) = answering.stream() {
            session.carriers.waits(stream, false);
        }
        // Not admitted anew: it answers a server, and the call still holds the credit of its first attempt, which is that of the answer.
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

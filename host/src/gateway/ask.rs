//! Requests of servers to the client, and what the client sends that is no request: answers, cancellations, progress.

use super::Gateway;
use super::probe::PROBE;
use super::tasks;
use crate::protocol::{Edits, Notification, Request, RequestId, Response, RpcError, Wire, codes, method};
use crate::session::streams::{Noted, Rule, STANDALONE, StreamId};
use crate::session::{Question, Session};
use crate::telemetry::metrics::IsolationSignal;
use bytes::Bytes;
use std::sync::Arc;

impl Gateway {
    /// Puts a server's request to the client, on `stream`, under a number of the session. One that the client cannot answer, or for
    /// which there is no room, is answered with an error at once.
    pub(super) async fn ask(self: &Arc<Self>, session: &Arc<Session>, backend: usize, request: Request, stream: StreamId) {
        if let Err(error) = self.put(session, backend, &request, stream).await {
            self.respond(session, backend, error.to_message(Some(&request.id))).await;
        }
    }

    async fn put(&self, session: &Arc<Session>, backend: usize, request: &Request, stream: StreamId) -> Result<(), RpcError> {
        let declares = session.client.declares;
        let able = match &*request.method {
            method::SAMPLING => declares.sampling,
            method::ELICITATION => declares.elicitation,
            method::ROOTS_LIST => declares.roots,
            // The client runs tasks for servers of its own era.
            method::TASKS_GET | method::TASKS_RESULT | method::TASKS_LIST | method::TASKS_CANCEL => {
                declares.tasks && !session.version().is_modern()
            }
            _ => true,
        };
        if !able {
            return Err(RpcError::new(
                codes::METHOD_NOT_FOUND,
                format!("the client did not declare the capability that `{}` needs", request.method),
            ));
        }
        let carrier = match session.version().is_modern() && stream == STANDALONE {
            true => session.carriers.pick(backend).ok_or_else(|| {
                RpcError::new(
                    codes::CLIENT_GONE,
                    "this client can be asked only in the course of one of its requests, and none is under way that does not wait for it already",
                )
            })?,
            false => stream,
        };
        let token = request.progress_token().map_err(RpcError::invalid_params)?;
        let about = tasks::about(session, backend, request)?;
        let question = Question { backend, id: request.id.clone(), progress_token: token.as_ref().map(|t| t.value.clone()), stream, about };
        let number = session.asked.ask(question).ok_or_else(|| {
            RpcError::new(codes::OVERLOADED, "too many requests to this client wait for an answer (limits.server_requests)")
        })?;
        let mut edits = Edits::new();
        if let Some(token) = token {
            edits.replace(token.at, number.to_string());
        }
        tasks::relate_params(session, backend, &request.raw, request.params_at.clone(), &mut edits);
        let message = request.numbered(number, edits);
        let refused = match session.streams.note(carrier, message, Rule::Ask(number)).await {
            Noted::Gone => RpcError::new(codes::CLIENT_GONE, "the client has closed the stream that this request belongs to"),
            Noted::Dropped => RpcError::new(codes::CLIENT_GONE, "the client does not read its stream, so it cannot be asked now"),
            _ => return Ok(()),
        };
        session.asked.take(number);
        Err(refused)
    }

    /// The client's answer to a question: to the backend that asked, under its id.
    pub(super) async fn client_answer(self: &Arc<Self>, session: &Arc<Session>, response: Response) {
        let question = response.id.as_ref().and_then(RequestId::as_number).and_then(|n| session.asked.take(n));
        match question {
            Some(question) if question.backend == PROBE => self.probe_answered(session),
            Some(question) => {
                let edits = tasks::answered(session, question.backend, question.about, &response);
                let message = response.rewritten(&question.id, edits);
                self.respond(session, question.backend, message).await;
            }
            None => {
                self.metrics.isolation_signals_total.inc(IsolationSignal::UnknownAnswerId);
                tracing::debug!(session = %session.tag(), "an answer to no open question was dropped");
            }
        }
    }

    async fn respond(&self, session: &Session, backend: usize, message: Wire) {
        let Some(upstream) = session.upstreams().get(backend) else { return };
        if let Err(error) = upstream.respond(message).await {
            tracing::info!(session = %session.tag(), backend = %upstream.name(), %error, "an answer of the client could not be given to its backend");
        }
    }

    /// Questions that have waited too long are answered for the client.
    pub(super) async fn expire_questions(&self, session: &Session, now: tokio::time::Instant) {
        self.give_up(session, session.asked.expired(now), "the client did not answer in time").await;
    }

    /// Answers questions for the client, which will not.
    pub(super) async fn give_up(&self, session: &Session, questions: Vec<Question>, why: &str) {
        for question in questions.into_iter().filter(|q| q.backend != PROBE) {
            let error = RpcError::new(codes::CLIENT_GONE, why);
            self.respond(session, question.backend, error.to_message(Some(&question.id))).await;
        }
    }

    /// A server takes back its request: so is the client told, on the stream where it was asked.
    pub(super) async fn withdraw(&self, session: &Session, backend: usize, notification: &Notification) {
        let Ok(Some(id)) = notification.token_param(&["requestId"]) else { return };
        match session.asked.withdraw(backend, &id.value) {
            Some((number, question)) => {
                let mut edits = Edits::new();
                edits.replace(id.at, Bytes::from(number.to_string()));
                session.streams.note(question.stream, edits.apply(&notification.raw), Rule::Keep).await;
            }
            None => self.metrics.isolation_signals_total.inc(IsolationSignal::UnknownCancelId),
        }
    }

    pub(super) async fn client_notification(self: &Arc<Self>, session: &Arc<Session>, notification: Notification) {
        match &*notification.method {
            // Each upstream got its own when it was initialised.
            method::INITIALIZED => {}
            method::CANCELLED => self.cancel(session, &notification),
            method::PROGRESS => self.client_progress(session, &notification).await,
            method::TASK_STATUS => self.client_task(session, notification).await,
            method::ROOTS_CHANGED => {
                let tell = session.upstreams().iter().map(|u| u.notify(Wire::from(notification.raw.clone())));
                for result in futures_util::future::join_all(tell).await {
                    if let Err(error) = result {
                        tracing::debug!(session = %session.tag(), %error, "roots/list_changed did not reach a backend");
                    }
                }
            }
            other => {
                tracing::debug!(session = %session.tag(), method = %super::shorten(other), "a notification that leads nowhere was dropped")
            }
        }
    }

    /// The client cancels a request of its own. An id that is not in flight in *this* session is ignored.
    fn cancel(&self, session: &Session, notification: &Notification) {
        let Ok(Some(id)) = notification.token_param(&["requestId"]) else { return };
        match session.call(&id.value) {
            Some(call) => {
                let reason = notification.param(&["reason"]).ok().flatten().map(|r| Bytes::copy_from_slice(r.get().as_bytes()));
                call.cancel(reason);
            }
            None => self.metrics.isolation_signals_total.inc(IsolationSignal::UnknownCancelId),
        }
    }

    /// Progress of the client on a question: to the backend that asked, under its token.
    async fn client_progress(&self, session: &Session, notification: &Notification) {
        let Ok(Some(token)) = notification.token_param(&["progressToken"]) else { return };
        let question = token.value.as_number().and_then(|n| session.asked.get(n));
        let Some((question, own)) = question.and_then(|q| Some((q.clone(), q.progress_token?))) else {
            return self.metrics.isolation_signals_total.inc(IsolationSignal::UnknownProgressToken);
        };
        let mut edits = Edits::new();
        edits.replace(token.at, own.raw().clone());
        if let Some(params) = notification.params_at.clone() {
            tasks::relate_to_server(session, question.backend, &notification.raw, params, &mut edits);
        }
        let Some(upstream) = session.upstreams().get(question.backend) else { return };
        if let Err(error) = upstream.notify(edits.apply(&notification.raw)).await {
            tracing::debug!(session = %session.tag(), backend = %upstream.name(), %error, "progress of the client did not reach its backend");
        }
    }

    /// The client says how a task is that it runs: to the backend for which it does.
    async fn client_task(&self, session: &Session, notification: Notification) {
        let backend = tasks::runs_for(session, &notification);
        let Some(upstream) = backend.and_then(|backend| session.upstreams().get(backend)) else { return };
        if let Err(error) = upstream.notify(Wire::from(notification.raw)).await {
            tracing::debug!(session = %session.tag(), backend = %upstream.name(), %error, "the state of a task did not reach its backend");
        }
    }
}

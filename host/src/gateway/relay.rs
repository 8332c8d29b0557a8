//! Sends a request to one backend and carries what comes back to the call's own stream, in order.

use super::job::{Job, Outcome};
use super::modern::Level;
use super::{Gateway, flow, tasks};
use crate::admission::Room;
use crate::backend::{BackendError, Call, CallEvent, Flow, Flows, Outbound};
use crate::catalog::Published;
use crate::protocol::{Edits, RequestId, Response, RpcError, method};
use crate::session::streams::Rule;
use crate::telemetry::metrics::BackendOutcome;
use crate::telemetry::metrics::IsolationSignal;
use serde_json::value::RawValue;
use std::sync::Arc;
use std::time::Duration;

/// How a relayed request ended at the backend.
pub(super) enum Relayed {
    Answer(Response),
    /// The answer has begun. Only where it may flow.
    Flow(Box<Flow>),
    Failed(BackendError),
    /// It was not sent.
    Refused(RpcError),
    Cancelled,
}

impl Relayed {
    /// How it ended at the backend; none where nothing was sent.
    fn counted(&self) -> Option<BackendOutcome> {
        Some(match self {
            Relayed::Refused(_) => return None,
            Relayed::Answer(response) if response.ok => BackendOutcome::Ok,
            Relayed::Flow(_) => BackendOutcome::Ok,
            Relayed::Cancelled => BackendOutcome::Cancelled,
            Relayed::Answer(_) | Relayed::Failed(BackendError::Status { .. } | BackendError::Input { .. }) => BackendOutcome::Error,
            Relayed::Failed(BackendError::Timeout { .. }) => BackendOutcome::Timeout,
            Relayed::Failed(BackendError::Unavailable { .. }) => BackendOutcome::Unreachable,
            Relayed::Failed(BackendError::Broken { .. } | BackendError::Closed) => BackendOutcome::Lost,
            Relayed::Failed(BackendError::Protocol { .. }) => BackendOutcome::Malformed,
        })
    }
}

impl Gateway {
    /// The job's own request, with `edits` made, to `backend`.
    pub(super) async fn relay(self: &Arc<Self>, job: &Job, backend: usize, edits: Edits, limit: Duration) -> Relayed {
        self.relay_with(job, backend, edits, limit, None).await
    }

    /// The same; `flows` says that a large answer may be given on while it is read.
    async fn relay_with(self: &Arc<Self>, job: &Job, backend: usize, mut edits: Edits, limit: Duration, flows: Option<Flows>) -> Relayed {
        // A token of the wrong type is not mapped; the backend is the judge of what it gets.
        let token = job.request.progress_token().unwrap_or_default();
        let progress_token_at = token.as_ref().map(|t| t.at.clone());
        if let Some(echo) = &job.extras.echo {
            if echo.backend != backend {
                return Relayed::Refused(RpcError::invalid_params(
                    "`params.requestState` is another server's: names lead elsewhere by now; make the request anew",
                ));
            }
            echo.put(&mut edits);
        }
        let level = job.extras.level.as_ref().map(|l| l.raw.clone());
        let brought = job.extras.brought.clone();
        let out = Outbound { request: job.request.clone(), edits, progress_token_at, room: Some(job.room(backend)), flows, level, brought };
        self.send(job, backend, out, token.map(|t| t.value), limit).await
    }

    /// `out` to `backend`, as part of the job.
    pub(super) async fn send(
        self: &Arc<Self>,
        job: &Job,
        backend: usize,
        out: Outbound,
        token: Option<RequestId>,
        limit: Duration,
    ) -> Relayed {
        let ended = self.carry(job, backend, out, token, limit).await;
        if let (Some(outcome), Some(backend)) = (ended.counted(), job.session().host.backends.get(backend)) {
            self.metrics.backend_requests_total.inc(&backend.name, outcome);
        }
        ended
    }

    async fn carry(self: &Arc<Self>, job: &Job, backend: usize, out: Outbound, token: Option<RequestId>, limit: Duration) -> Relayed {
        let session = job.session();
        let Some(upstream) = session.upstreams().get(backend) else { return Relayed::Failed(BackendError::Closed) };
        let room = out.room.clone();
        if job.control.is_cancelled() {
            return Relayed::Cancelled;
        }
        let mut call = {
            let start = async {
                let ready = upstream.ready(session.host.backends[backend].timeouts.initialize).await;
                let hello = ready.map_err(Relayed::Failed)?;
                if session.version().is_modern() && !hello.version.is_modern() {
                    Box::pin(self.prepare(job, backend)).await.map_err(Relayed::Refused)?;
                }
                upstream.call(out, limit).await.map_err(Relayed::Failed)
            };
            tokio::select! {
                biased;
                call = start => match call {
                    Ok(call) => call,
                    Err(ended) => return ended,
                },
                () = job.control.cancelled() => return Relayed::Cancelled,
            }
        };
        let _carrier = session.version().is_modern().then(|| session.carriers.add(backend, job.stream));
        let ended = tokio::select! {
            biased;
            () = job.control.cancelled() => None,
            ended = self.drive(job, backend, &mut call, token.as_ref(), room.as_ref()) => Some(ended),
        };
        match ended {
            Some(Ok(answer)) => answer,
            Some(Err(error)) => {
                tracing::info!(session = %session.tag(), backend = %upstream.name(), method = %job.request.method, %error, "request failed");
                Relayed::Failed(error)
            }
            None => {
                let reason = job.control.reason();
                let reason = reason.as_deref().and_then(|r| serde_json::from_slice::<&RawValue>(r).ok());
                Box::pin(call.cancel(reason)).await;
                Relayed::Cancelled
            }
        }
    }

    /// Carries the call's messages to `stream` until its answer is there.
    async fn drive(
        self: &Arc<Self>,
        job: &Job,
        backend: usize,
        call: &mut Call,
        token: Option<&RequestId>,
        room: Option<&Room>,
    ) -> Result<Relayed, BackendError> {
        let (session, stream) = (job.session(), job.stream);
        let modern = session.version().is_modern();
        loop {
            match call.next().await {
                CallEvent::Answer(response) => return Ok(Relayed::Answer(response)),
                CallEvent::Flow(flow) => return Ok(Relayed::Flow(flow)),
                CallEvent::Failed(error) => return Err(error),
                CallEvent::Notification(note)
                    if modern && &*note.method == method::LOG_MESSAGE && !Level::wants(job.extras.level.as_ref(), &note) => {}
                // Boxed, as what a server asks: most calls have none of them, and are small without.
                CallEvent::Notification(notification) => {
                    Box::pin(self.server_notification(session, backend, notification, stream)).await;
                }
                CallEvent::Request(request) => Box::pin(self.ask(session, backend, request, stream)).await,
                CallEvent::Progress { message, token_at } => match token {
                    Some(token) => {
                        let mut edits = Edits::new();
                        edits.replace(token_at, token.raw().clone());
                        tasks::relate_params(session, backend, &message.raw, message.params_at.clone(), &mut edits);
                        session.streams.note(stream, edits.apply(&message.raw), Rule::Replace(token.clone())).await;
                    }
                    None => self.metrics.isolation_signals_total.inc(IsolationSignal::UnknownProgressToken),
                },
            }
            // It is owed to the client by now, or dropped.
            if let Some(room) = room {
                room.keep(None);
            }
        }
    }

    /// The job's own request to `backend`, and its answer with the URIs in it as the client knows them by the names `at`. `may_flow`: nothing
    /// else has to be known of the answer.
    pub(super) async fn relay_published(
        self: &Arc<Self>,
        job: &Job,
        at: &Arc<Published>,
        backend: usize,
        edits: Edits,
        may_flow: bool,
    ) -> Outcome {
        let limit = job.session().host.backends[backend].timeouts.call;
        let flows = if may_flow { flow::may(job) } else { None };
        match self.relay_with(job, backend, edits, limit, flows).await {
            Relayed::Answer(response) if response.ok => {
                let result = (&response.raw, response.body_at.clone());
                let edits = self.publish_uris(job.session(), at, backend, result, &job.request.method).await;
                Outcome::Response { response, edits, backend }
            }
            Relayed::Flow(flow) => Outcome::Flow(flow::Begun { flow, at: at.clone(), backend }),
            other => other.into_outcome(backend),
        }
    }
}

impl Relayed {
    /// The answer of `backend` as it is.
    pub(super) fn into_outcome(self, backend: usize) -> Outcome {
        match self {
            Relayed::Answer(response) => Outcome::Response { response, edits: Edits::new(), backend },
            Relayed::Failed(error) => error.into(),
            Relayed::Refused(error) => error.into(),
            // What flows is seen to by who asked for it.
            Relayed::Flow(_) => BackendError::Closed.into(),
            Relayed::Cancelled => Outcome::Cancelled,
        }
    }
}

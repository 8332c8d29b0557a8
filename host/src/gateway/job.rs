//! One request of a client while it is worked on: its registration, its stream, its end.

use super::modern::{Extras, codes as era};
use super::{Gateway, Refusal, Reply, Work, flow};
use crate::admission::{Permit, Room};
use crate::backend::BackendError;
use crate::protocol::mirror::Mismatch;
use crate::protocol::{Edits, Request, RequestId, Response, RpcError, Wire, codes, json};
use crate::session::streams::StreamId;
use crate::session::{Begin, CallControl, Session};
use crate::telemetry::metrics::{Admission, Method, Outcome as Counted};
use http::StatusCode;
use std::future::Future;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// A request, and where its frames go.
pub(super) struct Job {
    pub request: Arc<Request>,
    pub stream: StreamId,
    pub control: CallControl,
    /// What a client of 2026-07-28 wants beside.
    pub extras: Extras,
    /// Room for what backends send for it.
    rooms: Arc<Rooms>,
}

/// The rooms of one request: one for most, and more for lists.
#[derive(Default)]
struct Rooms {
    first: OnceLock<Room>,
    more: Mutex<Vec<Room>>,
}

/// How a request ended.
pub(super) enum Outcome {
    /// The whole answer message, under the client's id and in its form.
    Answer(Wire),
    /// The answer of a backend, and what has to change in it for the client.
    Response {
        response: Response,
        edits: Edits,
        backend: usize,
    },
    /// The answer of a backend that is still being read.
    Flow(flow::Begun),
    Error(RpcError),
    /// Its headers do not say what its body says: nothing was run. Only for clients of 2026-07-28.
    Mismatch(Mismatch),
    /// The client cancelled it: no answer is sent ("SHOULD NOT send a response for the cancelled request").
    Cancelled,
}

impl From<RpcError> for Outcome {
    fn from(error: RpcError) -> Self {
        Outcome::Error(error)
    }
}

impl From<BackendError> for Outcome {
    fn from(error: BackendError) -> Self {
        Outcome::Error(error.to_rpc())
    }
}

impl Job {
    pub fn session(&self) -> &Arc<Session> {
        self.control.session()
    }

    pub fn id(&self) -> &RequestId {
        &self.request.id
    }

    /// Where messages from `backend` get their room. What they hold is given back when the answer is queued, or the job is over.
    pub fn room(&self, backend: usize) -> Room {
        let room = Room::new(self.session().ledger.clone(), backend);
        if let Err(room) = self.rooms.first.set(room.clone()) {
            self.rooms.more.lock().unwrap_or_else(PoisonError::into_inner).push(room);
        }
        room
    }
}

impl Gateway {
    /// Registers the request, opens its stream and makes the work of it. Every request gets exactly one answer, unless its client
    /// cancelled it.
    pub(super) fn run<F, W>(
        self: &Arc<Self>,
        session: &Arc<Session>,
        request: Arc<Request>,
        credit: Option<Permit>,
        extras: Extras,
        work: W,
    ) -> Result<Reply, Refusal>
    where
        F: Future<Output = Outcome> + Send,
        W: FnOnce(Arc<Gateway>, Arc<Job>) -> F + Send + 'static,
    {
        // A server that cannot read `_meta` may not answer at all, so what is wrong with it is said here.
        if let Err(why) = check_meta(&request) {
            return Ok(Reply::Now(RpcError::invalid_params(why).to_message(Some(&request.id))));
        }
        let control = match session.begin(&request) {
            Begin::Started(control) => control,
            Begin::Duplicate => {
                let error =
                    RpcError::new(codes::INVALID_REQUEST, "a request with this id is in flight already; ids are unique within a session");
                return Ok(Reply::Now(error.to_message(Some(&request.id))));
            }
            Begin::Full { limit } => {
                self.metrics.admission_total.inc(Admission::InFlight);
                return Err(Refusal::overloaded(
                    StatusCode::TOO_MANY_REQUESTS,
                    format!("this session has {limit} requests in flight, which is its limit (limits.in_flight)"),
                ));
            }
        };
        if session.ended().is_cancelled() {
            return Err(Refusal::new(
                StatusCode::NOT_FOUND,
                RpcError::new(codes::NO_SESSION, "the session has ended; send initialize for a new one"),
            ));
        }
        self.metrics.admission_total.inc(Admission::Admitted);
        let reader = session.streams.open();
        let cancel = control.cancel().clone();
        let asked = request.clone();
        let job = Arc::new(Job { request, stream: reader.stream(), control, extras, rooms: Arc::default() });
        let of = (session.clone(), asked.clone(), reader.stream());
        let (gateway, session) = (self.clone(), session.clone());
        let tracked = self.calls.token();
        let started = std::time::Instant::now();
        let doing = async move {
            let _tracked = tracked;
            let stream = job.stream;
            let rooms = job.rooms.clone();
            let outcome = tokio::select! {
                biased;
                () = session.ended().cancelled() => Outcome::Error(BackendError::Closed.to_rpc()),
                outcome = work(gateway.clone(), job) => outcome,
            };
            // The job, and with it the registration, is gone by now: the client may use the id again as soon as it sees the answer.
            let unanswered = session.asked.end_of_stream(stream);
            if !unanswered.is_empty() && !matches!(outcome, Outcome::Answer(_) | Outcome::Response { .. } | Outcome::Flow(_)) {
                // The server may still wait for them, in a call that it does not know to be over.
                // Boxed: it is seldom needed, and calls are small without it.
                Box::pin(gateway.give_up(&session, unanswered, "the call in which the client was asked is over")).await;
            }
            let given = gateway.give(&session, &asked, stream, outcome, credit);
            // What was read for it is owed by now, or is not wanted.
            drop(rooms);
            session.streams.finish(stream);
            let counted = match given {
                Ok(counted) => counted,
                // Boxed: only a large answer needs it.
                Err(flow) => Box::pin(flow.ended(&session, &asked)).await,
            };
            session.touch();
            gateway.metrics.requests_total.inc(Method::of(&asked.method), counted);
            gateway.metrics.request_seconds.observe(Method::of(&asked.method), started.elapsed());
        };
        let (session, request, stream) = of;
        let work = Work::new((session.tasks(), &session.streams), request, stream, doing);
        Ok(Reply::Stream(reader, cancel, work))
    }

    /// Gives the answer to its stream. How the request ended is known, or will be when the answer has flowed.
    fn give(
        self: &Arc<Self>,
        session: &Arc<Session>,
        request: &Request,
        stream: StreamId,
        outcome: Outcome,
        credit: Option<Permit>,
    ) -> Result<Counted, flow::Given> {
        let outcome = match outcome {
            Outcome::Flow(begun) => return Err(self.begin_flow(session, request, stream, begun, credit)),
            outcome => outcome,
        };
        let Some((answer, error)) = self.message(session, request, outcome) else { return Ok(Counted::Cancelled) };
        session.streams.answer(stream, answer, credit, error.map(|(code, _)| code));
        Ok(match error {
            Some((codes::BACKEND_TIMEOUT, true)) => Counted::Timeout,
            Some((codes::BACKEND_UNAVAILABLE, true)) => Counted::Unavailable,
            Some((_, true)) => Counted::Error,
            _ => Counted::Ok,
        })
    }

    /// The answer to `request` as its client gets it; where it is an error, its code, and whether it is the gateway's own. None where the
    /// client cancelled it.
    fn message(&self, session: &Session, request: &Request, outcome: Outcome) -> Option<(Wire, Option<(i64, bool)>)> {
        let modern = session.version().is_modern();
        let error = match outcome {
            Outcome::Answer(answer) => return Some((answer, None)),
            Outcome::Response { response, mut edits, backend } if modern => {
                match self.shape(session, backend, request, &response, &mut edits) {
                    Ok(code) => return Some((response.rewritten(&request.id, edits), code.map(|code| (code, false)))),
                    Err(error) => error,
                }
            }
            Outcome::Response { response, edits, .. } => return Some((response.rewritten(&request.id, edits), None)),
            Outcome::Error(error) => error,
            Outcome::Mismatch(why) => {
                // The one error with this code that is about the client's own headers.
                let error = RpcError::new(codes::HEADER_MISMATCH, why.to_string());
                return Some((error.to_message(Some(&request.id)), Some((error.code, true))));
            }
            Outcome::Cancelled => return None,
            // Given in another way.
            Outcome::Flow(_) => BackendError::Closed.to_rpc(),
        };
        let code = if modern { era::modern(&request.method, error.code) } else { error.code };
        Some((RpcError { code, ..error }.to_message(Some(&request.id)), Some((code, true))))
    }
}

/// `params._meta` is an object, and a progress token in it a string or an integer.
fn check_meta(request: &Request) -> Result<(), String> {
    match request.param(&["_meta"])? {
        Some(meta) if !json::is_object(meta) => Err("`params._meta` must be an object".into()),
        _ => request.progress_token().map(drop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Incoming;

    #[test]
    fn a_meta_that_servers_stumble_over_is_refused() {
        let check = |meta: &str| {
            let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"t","_meta":{meta}}}}}"#);
            let Ok(Incoming::Request(request)) = Incoming::parse(text.into()) else { panic!("not a request") };
            check_meta(&request)
        };
        for good in ["{}", r#"{"progressToken":"a"}"#, r#"{"progressToken":7,"x":null}"#] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for bad in [
            "5",
            "\"x\"",
            "[]",
            "null",
            r#"{"progressToken":1.5}"#,
            r#"{"progressToken":null}"#,
            r#"{"progressToken":1,"progressToken":2}"#,
        ] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }
}

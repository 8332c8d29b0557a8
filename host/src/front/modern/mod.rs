//! Requests of 2026-07-28: each stands alone, says in `_meta` who asks and how, and says in its headers what its body says
//! (2026-07-28 basic/transports/streamable-http).
//!
//! Owns the HTTP side of them: the checks, the statuses, and the two forms of an answer. An answer that is there soon, with nothing before
//! it, is JSON; else the response is an event stream, without ids, since a broken one is not resumed in this revision. When the client
//! closes it, the request is cancelled: `gateway` does that when the [`Answering`] is dropped.

pub mod check;

use super::accept::Accepts;
use super::body::{Body, Event};
use super::chamber::Verified;
use super::refused::Refused;
use super::reply::PATIENCE;
use super::respond::{self, Response};
use super::{Front, sse as stream};
use crate::gateway::{Answering, Asking, Part, is_known};
use crate::protocol::brought::Brought;
use crate::protocol::{Request, RequestId, RpcError, Version, codes, sse};
use crate::telemetry::metrics::LevelGuard;
use check::Fault;
use http::StatusCode;
use std::sync::Arc;
use tokio::time::timeout;

struct Carrier {
    answering: Answering,
    first: Option<Event>,
    over: bool,
    _open: LevelGuard,
}

impl Front {
    pub(super) async fn modern(&self, verified: &Verified<'_>, accepts: Accepts, request: Request) -> Result<Response, Refused> {
        let request = Arc::new(request);
        let fault = |fault: Fault| Refused::Fault { fault: Box::new(fault), id: request.id.clone() };
        let envelope = check::envelope(verified.headers, &request, verified.own).map_err(fault)?;
        let brought = Brought::of(verified.headers).map_err(|why| fault(why.into()))?;
        if !is_known(&request.method) {
            let error =
                RpcError::new(codes::METHOD_NOT_FOUND, format!("{} has no method of this name that is served here", Version::V2026_07_28));
            return Err(fault(Fault { status: StatusCode::NOT_FOUND, error }));
        }
        let (host, principal) = (&verified.host, verified.principal.clone());
        let asking = Asking {
            host,
            principal,
            own: verified.own,
            client: envelope.client,
            level: envelope.level,
            brought,
            request: request.clone(),
        };
        let answering = self.gateway.ask_modern(asking).await;
        let answering = answering.map_err(|refusal| Refused::Gateway { refusal: Box::new(refusal), id: Some(request.id.clone()) })?;
        // Before HTTP/1.1 a cut looks like an end.
        let flows = verified.version >= http::Version::HTTP_11;
        Ok(self.modern_answer(accepts, flows, answering, &request.id).await)
    }

    async fn modern_answer(&self, accepts: Accepts, flows: bool, mut answering: Answering, id: &RequestId) -> Response {
        let mut first = None;
        if answering.is_stream() {
            if !accepts.events {
                return respond::refused(Refused::NotAcceptable { wanted: "text/event-stream" });
            }
        } else {
            if flows && accepts.json {
                answering.take_flow();
            }
            loop {
                // Waited for in place: parts are not lost when the wait is given up.
                let part = match accepts.events {
                    true => match timeout(PATIENCE, answering.ready()).await {
                        Ok(()) => answering.next().await,
                        // It has begun, and cannot be an event any more.
                        Err(_) if answering.is_promised() => answering.next().await,
                        Err(_) => break,
                    },
                    false => answering.next().await,
                };
                match part {
                    Some(Part::Answer { message, permit, status }) if accepts.json => return respond::owed(status, message, permit),
                    Some(Part::Answer { message, permit, .. }) => {
                        return respond::events(Body::events(futures_util::stream::iter([event(message, permit)])));
                    }
                    // A client that reads no events is told nothing before its answer.
                    Some(Part::Flow(frame, reader)) => return respond::answer(frame, reader),
                    Some(Part::Message(..)) if !accepts.events || answering.is_promised() => {}
                    Some(Part::Message(message, permit)) => {
                        first = Some(event(message, permit));
                        break;
                    }
                    None => {
                        let error =
                            RpcError::new(codes::BACKEND_FATE_UNKNOWN, "the gateway ended the request; what became of it is not known");
                        return respond::json(StatusCode::OK, error.to_message(Some(id)));
                    }
                }
            }
        }
        answering.let_go();
        let carrier = Carrier { answering, first, over: false, _open: self.gateway.metrics().streams_open.enter() };
        respond::events(Body::events(futures_util::stream::unfold(carrier, Carrier::next)))
    }
}

fn event(message: crate::protocol::Wire, permit: Option<crate::admission::Permit>) -> Event {
    Event { wire: sse::message(None, &message), permit }
}

impl Carrier {
    async fn next(mut self) -> Option<(Event, Self)> {
        if let Some(event) = self.first.take() {
            return Some((event, self));
        }
        if self.over {
            return None;
        }
        if timeout(stream::KEEP_ALIVE, self.answering.ready()).await.is_err() {
            return Some((sse::keep_alive().into(), self));
        }
        match self.answering.next().await? {
            Part::Message(message, permit) => Some((event(message, permit), self)),
            Part::Answer { message, permit, .. } => {
                self.over = true;
                Some((event(message, permit), self))
            }
            // None was asked for.
            Part::Flow(..) => None,
        }
    }
}

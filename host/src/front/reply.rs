//! From what the gateway answers to a response: JSON where the answer is all there is to say, an event stream as soon as anything must
//! precede it or it takes its time.

use super::accept::Accepts;
use super::respond::{self, Response};
use super::{Front, sse};
use crate::gateway::{Reply, Work};
use crate::protocol::{Incoming, Notification, Response as Answer, RpcError, Wire, codes};
use crate::session::Session;
use crate::session::streams::{Frame, Reader};
use futures_util::future::BoxFuture;
use http::StatusCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// An answer that is not there by then is given as an event stream: its head and the comments in it tell client and proxies that the
/// call is alive, and a client that loses the connection can come back for the answer.
pub const PATIENCE: Duration = Duration::from_secs(1);

/// How long a notification or an answer of the client may take to be dealt with before its sender is told that it was accepted.
const ACCEPTED: Duration = Duration::from_secs(5);

/// One message that is there already.
pub fn whole(accepts: Accepts, message: Wire) -> Response {
    if accepts.json { respond::json(StatusCode::OK, message) } else { sse::single(&message) }
}

/// `flows`: a large answer may be given on before it was read whole, as JSON; it is cut where it breaks off, and the client sees that.
pub async fn to_response(front: &Front, session: &Arc<Session>, accepts: Accepts, flows: bool, reply: Reply) -> Response {
    // Done here as long as there is nothing to write: a client that reads slowly would hold it up. Dropped, it goes on by itself.
    let (mut reader, mut work) = match reply {
        Reply::Now(message) => return whole(accepts, message),
        Reply::Stream(reader, _, work) => (reader, work),
    };
    if flows && accepts.json {
        reader.take_flow();
    }
    if !accepts.events {
        return only_json(front, session, reader, work).await;
    }
    match timeout(PATIENCE, work.beside(reader.peek())).await {
        Ok(Some(true)) if accepts.json => match reader.next().await {
            Some(frame) => respond::answer(frame, reader),
            None => sse::nothing(),
        },
        // Cancelled by the client: there is no answer, and nothing to come back for.
        Ok(None) => sse::nothing(),
        // It has begun, and cannot be an event any more.
        _ if reader.is_promised() => only_json(front, session, reader, work).await,
        _ => sse::stream(&front.gateway, session, reader),
    }
}

/// The answer alone, for a client that reads no event stream.
async fn only_json(front: &Front, session: &Arc<Session>, mut reader: Reader, mut work: Work) -> Response {
    while let Some(frame) = work.beside(reader.next()).await {
        if frame.last {
            return respond::answer(frame, reader);
        }
        front.cannot_tell(session, frame);
    }
    respond::empty(StatusCode::NO_CONTENT)
}

impl Front {
    /// A message for which the client left no way to come. A notification is dropped; a request of the server is answered for the
    /// client, so that nobody waits for it.
    pub(super) fn cannot_tell(&self, session: &Arc<Session>, frame: Frame) {
        tracing::debug!(session = %session.tag(), "a message before the answer is dropped: the request accepts only application/json");
        let Ok(Incoming::Request(request)) = Incoming::parse(frame.message.into_bytes()) else { return };
        let error = RpcError::new(codes::CLIENT_GONE, "the client cannot be asked during this call: it accepts only application/json");
        if let Ok(Incoming::Response(answer)) = Incoming::parse(error.to_message(Some(&request.id)).into_bytes()) {
            let (gateway, session) = (self.gateway.clone(), session.clone());
            // The session's limit on requests of servers bounds these.
            self.tasks.spawn(async move {
                let _ = timeout(ACCEPTED, gateway.answer(&session, answer)).await;
            });
        }
    }

    /// Hands a notification to the gateway. What was accepted is dealt with even if the client hangs up now.
    pub(super) async fn notify(&self, session: &Arc<Session>, notification: Notification) {
        let (gateway, session) = (self.gateway.clone(), session.clone());
        self.see_through(Box::pin(async move { gateway.notification(&session, notification).await })).await;
    }

    /// Hands the answer to a server's request to the gateway.
    pub(super) async fn answer(&self, session: &Arc<Session>, answer: Answer) {
        let (gateway, session) = (self.gateway.clone(), session.clone());
        self.see_through(Box::pin(async move { gateway.answer(&session, answer).await })).await;
    }

    /// Runs `work` in a task of its own, for at most `ACCEPTED`, and waits for it.
    async fn see_through(&self, work: BoxFuture<'static, ()>) {
        let task = self.tasks.spawn(timeout(ACCEPTED, work));
        match task.await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => tracing::warn!("a message of the client could not be dealt with within {ACCEPTED:?} and was dropped"),
            Err(error) => tracing::error!(%error, "a task that deals with a message of the client failed"),
        }
    }
}

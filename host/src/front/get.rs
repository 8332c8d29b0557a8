//! GET: the session's own stream, or the continuation of one that broke off (2025-11-25 transports, "Listening for Messages from the
//! Server" and "Resumability and Redelivery").

use super::accept::Accepts;
use super::chamber::Verified;
use super::refused::Refused;
use super::respond::{self, Response};
use super::{Front, classify, sse};
use crate::protocol::headers;
use crate::session::streams::EventId;
use futures_util::FutureExt;
use http::StatusCode;

impl Front {
    pub(super) fn get(&self, verified: &Verified<'_>) -> Result<Response, Refused> {
        if classify::names_modern(verified.headers) {
            return Err(Refused::MethodOfSessions);
        }
        if !Accepts::read(verified.headers).events {
            return Err(Refused::NotAcceptable { wanted: "text/event-stream" });
        }
        let session = verified.session(None)?;
        let mut events = verified.headers.get_all(headers::LAST_EVENT_ID).iter();
        let Some(event) = events.next() else {
            let reader = self.gateway.listen(&session).ok_or(Refused::UnknownSession(None))?;
            return Ok(sse::stream(&self.gateway, &session, reader));
        };
        let event = event.to_str().ok().and_then(|text| EventId::parse(text.trim())).filter(|_| events.next().is_none());
        let mut reader = event.and_then(|event| self.gateway.resume(&session, event)).ok_or(Refused::EventId)?;
        if matches!(reader.peek().now_or_never(), Some(None)) {
            // All of it was delivered. To clients of event streams this says not to come back (WHATWG HTML, 9.2.3); an empty stream
            // would have them try again for ever.
            return Ok(respond::empty(StatusCode::NO_CONTENT));
        }
        Ok(sse::resumed(&self.gateway, reader))
    }
}

//! GET: the session's own stream, or the continuation of one that broke off (2025-11-25 transports, "Listening for Messages from the
//! Server" and "Resumability and Redelivery").

use super::accept::Accepts;
use super::chamber::{Named, Verified};
use super::refused::Refused;
use super::respond::Response;
use super::{Front, classify, sse};
use crate::protocol::headers;
use crate::session::streams::EventId;

impl Front {
    pub(super) fn get(&self, verified: &Verified<'_>) -> Result<Response, Refused> {
        if classify::names_modern(verified.headers) && matches!(verified.named, Named::Absent) {
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
        let reader = event.and_then(|event| self.gateway.resume(&session, event)).ok_or(Refused::EventId)?;
        // Where all of it was delivered this is an empty stream: the client has its answer, and does not come back.
        Ok(sse::resumed(&self.gateway, reader))
    }
}

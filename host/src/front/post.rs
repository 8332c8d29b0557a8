//! POST: one message from the client (2025-11-25 transports, "Sending Messages to the Server").

use super::accept::Accepts;
use super::chamber::Verified;
use super::classify::{self, Class};
use super::refused::Refused;
use super::respond::{self, Response};
use super::{Front, batch, body, reply};
use crate::protocol::message::batch as split;
use crate::protocol::{Incoming, Request, headers};
use crate::telemetry::metrics::IsolationSignal;
use bytes::{Buf, Bytes};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use std::sync::Arc;

/// Some platforms put one before every text. It is no JSON, and means nothing.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

impl Front {
    pub(super) async fn post<B>(&self, verified: &Verified<'_>, body: B) -> Result<Response, Refused>
    where
        B: http_body::Body<Data = Bytes> + Send,
    {
        let accepts = Accepts::read(verified.headers);
        check_content(verified.headers)?;
        let raw = without_mark(body::read(body, verified.headers, self.body_limit, body::PACE).await?);
        let stray = classify::stray(verified.headers, verified.is_named());
        if let Some(messages) = split(&raw) {
            if stray {
                return Err(Refused::Batch);
            }
            return Box::pin(batch::post(self, verified, accepts, messages?)).await;
        }
        match Incoming::parse(raw)? {
            Incoming::Request(request) => self.request(verified, accepts, request).await,
            // 2026-07-28 has none that a client sends over HTTP, so there is nothing that it could be about. Clients that send one all the
            // same, such as a cancellation beside the stream that they close, need not hear of an error.
            Incoming::Notification(notification) if stray => {
                tracing::debug!(method = %notification.method, "a notification without a session is ignored");
                Ok(respond::empty(StatusCode::ACCEPTED))
            }
            Incoming::Response(_) if stray => Err(Refused::ModernResponse),
            Incoming::Notification(notification) => {
                let session = verified.session(None)?;
                self.notify(&session, notification).await;
                Ok(respond::empty(StatusCode::ACCEPTED))
            }
            Incoming::Response(response) => {
                let session = verified.session(None)?;
                self.answer(&session, response).await;
                Ok(respond::empty(StatusCode::ACCEPTED))
            }
        }
    }

    async fn request(&self, verified: &Verified<'_>, accepts: Accepts, request: Request) -> Result<Response, Refused> {
        tracing::Span::current().record("rpc", &*request.method);
        accepts.check_answer()?;
        match classify::request(verified.headers, verified.is_named(), &request) {
            // Boxed, as what follows: calls are small without them.
            Class::Initialize => Box::pin(self.initialize(verified, accepts, request)).await,
            Class::ModernInitialize => Err(Refused::ModernInitialize(request.id)),
            Class::Modern => Box::pin(self.modern(verified, accepts, request)).await,
            Class::InSession => {
                let session = verified.session(Some(&request.id))?;
                let request = Arc::new(request);
                let refused = |refusal| Refused::Gateway { refusal: Box::new(refusal), id: Some(request.id.clone()) };
                let credit = self.gateway.admit(&session, &request).await.map_err(refused)?;
                let answer = self.gateway.request(&session, request.clone(), credit).map_err(refused)?;
                // Before HTTP/1.1 a body of unknown length ends with its connection, whether it was cut or not.
                let flows = verified.version >= http::Version::HTTP_11;
                Ok(reply::to_response(self, &session, accepts, flows, answer).await)
            }
        }
    }

    /// A new session always: one that the request names is not touched, so that what it negotiated never changes.
    async fn initialize(&self, verified: &Verified<'_>, accepts: Accepts, request: Request) -> Result<Response, Refused> {
        if verified.names_live_session() {
            self.gateway.metrics().isolation_signals_total.inc(IsolationSignal::InitializeNamesLiveSession);
            tracing::warn!("an initialize names a live session; it gets one of its own");
        }
        let id = request.id.clone();
        // Not detached: when the client has gone, nobody can ever use the session.
        let opened = self.gateway.initialize(&verified.host, verified.principal.clone(), request).await;
        let opened = opened.map_err(|refusal| Refused::Gateway { refusal: Box::new(refusal), id: Some(id.clone()) })?;
        tracing::Span::current().record("session", &**opened.session.tag());
        let mut response = reply::whole(accepts, opened.answer);
        // Ids are visible ASCII.
        let value = HeaderValue::try_from(opened.session.id().as_str()).map_err(|_| Refused::Broken(Some(id)))?;
        response.headers_mut().insert(headers::SESSION_ID, value);
        Ok(response)
    }
}

pub fn without_mark(mut raw: Bytes) -> Bytes {
    if raw.starts_with(BYTE_ORDER_MARK) {
        raw.advance(BYTE_ORDER_MARK.len());
    }
    raw
}

/// A web page can send some media types to anywhere without asking; JSON is not one of them.
pub fn check_content(headers: &HeaderMap) -> Result<(), Refused> {
    let mut types = headers.get_all(header::CONTENT_TYPE).iter();
    let json = types.next().and_then(|v| v.to_str().ok()).is_some_and(|v| headers::is_of(v, headers::JSON));
    if !json || types.next().is_some() {
        return Err(Refused::ContentType);
    }
    let plain = |v: &HeaderValue| v.as_bytes().trim_ascii().eq_ignore_ascii_case(b"identity") || v.is_empty();
    if headers.get_all(header::CONTENT_ENCODING).iter().all(plain) { Ok(()) } else { Err(Refused::ContentEncoding) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(lines: &[(&'static str, &str)]) -> Result<(), Refused> {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, value.parse().unwrap());
        }
        check_content(&headers)
    }

    #[test]
    fn only_plain_json_is_taken() {
        assert!(check(&[("content-type", "application/json")]).is_ok());
        assert!(check(&[("content-type", "Application/JSON; charset=utf-8"), ("content-encoding", "identity")]).is_ok());
        for bad in [
            &[][..],
            &[("content-type", "text/plain")],
            &[("content-type", "application/jsonx")],
            &[("content-type", "application/json"), ("content-type", "text/plain")],
        ] {
            assert!(matches!(check(bad), Err(Refused::ContentType)), "{bad:?}");
        }
        assert!(matches!(check(&[("content-type", "application/json"), ("content-encoding", "gzip")]), Err(Refused::ContentEncoding)));
    }
}

//! One initialised session with a streamable HTTP backend: its headers, and the requests that are answered at once. A server of 2026-07-28 has
//! no session; what is sent to it beyond its headers is in `modern`.
//!
//! Exactly one of each header goes out: the configured ones, overruled by those of the transport; nothing of the client's.

use super::client::{Address, Body, SendError};
use super::messages::{Cursor, Messages, ReadError, collect, let_go};
use super::sink::{Answered, Sink, take};
use crate::backend::ServerHello;
use crate::backend::error::BackendError;
use crate::backend::handshake;
use crate::backend::inner::Inner;
use crate::backend::link::{Link, Wiring};
use crate::backend::modern::era::may_be_modern;
use crate::protocol::{Incoming, Response, Version, Wire, headers, json, method};
use bytes::Bytes;
use http::header::{ACCEPT, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, RETRY_AFTER, TRANSFER_ENCODING, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response as HttpResponse, StatusCode};
use std::sync::Arc;
use std::time::Duration;

/// Bytes of an error response that are looked at.
const ERROR_BODY: usize = 1 << 20;
/// How long the body of an error response may take.
const ERROR_WAIT: Duration = Duration::from_secs(2);
/// How long ending a session that came to nothing may take.
const GIVE_UP: Duration = Duration::from_secs(5);
const BOTH: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");
const STREAM: HeaderValue = HeaderValue::from_static(headers::EVENT_STREAM);
static SESSION_ID: HeaderName = headers::SESSION_ID;
const JSON: HeaderValue = HeaderValue::from_static(headers::JSON);

#[derive(Debug)]
pub struct HttpLink {
    at: Address,
    /// For POST, without the session: the same for many sessions, and then there once.
    post: Arc<HeaderMap>,
    /// The id that the backend gave.
    session: Option<HeaderValue>,
    /// Whether the backend gave a session id.
    pub has_session: bool,
}

/// Why there is no session.
#[derive(Debug)]
pub struct Refusal {
    pub error: BackendError,
    /// The status with which initialize itself was refused.
    pub status: Option<StatusCode>,
    /// It was refused as by a server that has no initialize (2026-07-28).
    pub other_era: bool,
}

impl From<BackendError> for Refusal {
    fn from(error: BackendError) -> Self {
        Refusal { error, status: None, other_era: false }
    }
}

/// What the status of a response to a POST says.
pub enum Head {
    /// The answer is in the body.
    Open(HttpResponse<Body>),
    /// The backend does not know the session; it has not run the request.
    SessionLost,
    /// The backend's own JSON-RPC error.
    Answer(Response),
    Refused(BackendError),
}

impl HttpLink {
    /// Before initialize: without a session and version.
    pub fn new(at: Address, configured: &HeaderMap) -> HttpLink {
        let mut post = HeaderMap::new();
        for (name, value) in configured {
            // Of a name that was configured twice the first counts.
            post.entry(name).or_insert_with(|| value.clone());
        }
        for name in
            [HOST, CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING, headers::SESSION_ID, headers::PROTOCOL_VERSION, headers::LAST_EVENT_ID]
        {
            post.remove(name);
        }
        post.entry(USER_AGENT).or_insert(HeaderValue::from_static(concat!("lockgate/", env!("CARGO_PKG_VERSION"))));
        post.insert(ACCEPT, BOTH);
        post.insert(CONTENT_TYPE, JSON);
        post.insert(HOST, at.host().clone());
        HttpLink { at, post: Arc::new(post), session: None, has_session: false }
    }

    /// `initialize` and `notifications/initialized`. The caller bounds the time.
    pub async fn open(inner: &Arc<Inner>, mut link: HttpLink, epoch: u64) -> Result<Link, Refusal> {
        let id = inner.next_id();
        let response = link.post(inner, &handshake::initialize(&inner.hello, id)).await?;
        // Copied: what the connection read it with would stay with the session.
        let session = response.headers().get(headers::SESSION_ID).and_then(|id| HeaderValue::from_bytes(id.as_bytes()).ok());
        let status = response.status();
        let refused = |error, other_era| Err(Refusal { error, status: (!status.is_success()).then_some(status), other_era });
        let response = match link.head(inner, id, response).await {
            Head::Open(response) => response,
            Head::Refused(error) => return refused(error, false),
            Head::SessionLost => return refused(inner.status(StatusCode::NOT_FOUND, None), false),
            Head::Answer(response) => {
                let error = handshake::read(&inner.backend.name, &response).err().unwrap_or_else(|| inner.broke("it gave no result"));
                return refused(error, may_be_modern(&response));
            }
        };
        if let Some(mut session) = session {
            session.set_sensitive(true);
            // Its place, so that none has to be made for each request.
            Arc::make_mut(&mut link.post).insert(headers::SESSION_ID, HeaderValue::from_static(""));
            link.session = Some(session);
            link.has_session = true;
        }
        match link.finish(inner, id, response).await {
            Ok(hello) => {
                link.post = inner.backend.known.headers(link.post);
                Ok(Link { epoch, hello: Arc::new(hello), wiring: Wiring::Http(link) })
            }
            Err(refusal) => {
                let shared = inner.clone();
                inner.spawn(async move {
                    let _ = tokio::time::timeout(GIVE_UP, link.delete(&shared)).await;
                });
                Err(refusal)
            }
        }
    }

    /// The rest of the handshake, in the session that there is by now.
    async fn finish(&mut self, inner: &Arc<Inner>, id: u64, response: HttpResponse<Body>) -> Result<ServerHello, Refusal> {
        let answer = self.read_answer(inner, id, response, &Sink::Inbox).await?;
        let refused = |error| Refusal { error, status: None, other_era: may_be_modern(&answer) };
        let hello = handshake::read(&inner.backend.name, &answer).map_err(refused)?;
        if hello.version.has_version_header() {
            Arc::make_mut(&mut self.post).insert(headers::PROTOCOL_VERSION, HeaderValue::from_static(hello.version.as_str()));
        }
        match self.send(inner, &handshake::initialized()).await {
            // Some servers want no notifications, and work all the same.
            Err(BackendError::Status { status, .. }) if (400..500).contains(&status) && status != 404 => {
                tracing::warn!(backend = %inner.backend.name, session = %inner.hello.session_tag, status, "the backend refused {}", method::INITIALIZED);
            }
            result => result?,
        }
        Ok(ServerHello {
            capabilities: inner.backend.known.text(hello.capabilities),
            server_info: inner.backend.known.text(hello.server_info),
            ..hello
        })
    }

    /// The same for requests of 2026-07-28, each of which adds the headers that repeat its own body.
    pub fn modern(mut self) -> HttpLink {
        let repeating =
            |name: &HeaderName| *name == headers::METHOD || *name == headers::NAME || name.as_str().starts_with(headers::PARAM_PREFIX);
        let configured: Vec<HeaderName> = self.post.keys().filter(|name| repeating(name)).cloned().collect();
        let post = Arc::make_mut(&mut self.post);
        for name in configured {
            post.remove(name);
        }
        post.insert(headers::PROTOCOL_VERSION, HeaderValue::from_static(Version::V2026_07_28.as_str()));
        self
    }

    /// What goes with every POST, apart from the id of a session.
    pub fn headers(&self) -> &HeaderMap {
        &self.post
    }

    /// POSTs a message and waits for the head of the response.
    pub async fn post(&self, inner: &Arc<Inner>, message: &Wire) -> Result<HttpResponse<Body>, BackendError> {
        let session = self.session.as_ref().map(|id| (&SESSION_ID, id));
        inner.backend.http.send_with(Method::POST, &self.at, (&self.post, session), message).await.map_err(|e| inner.unsent(e))
    }

    /// As `post`, with other headers.
    pub async fn post_with(&self, inner: &Arc<Inner>, head: &HeaderMap, message: &Wire) -> Result<HttpResponse<Body>, BackendError> {
        inner.backend.http.send(Method::POST, &self.at, head, message).await.map_err(|e| inner.unsent(e))
    }

    /// Opens the GET stream, or resumes a stream after an event.
    pub async fn get(&self, inner: &Arc<Inner>, last_event_id: Option<&str>) -> Result<HttpResponse<Body>, SendError> {
        let mut head = self.head_for_session();
        head.remove(CONTENT_TYPE);
        head.insert(ACCEPT, STREAM);
        if let Some(id) = last_event_id.and_then(|id| HeaderValue::from_bytes(id.as_bytes()).ok()) {
            head.insert(headers::LAST_EVENT_ID, id);
        }
        inner.backend.http.send(Method::GET, &self.at, &head, &Wire::new()).await
    }

    /// What goes with a request of the session.
    fn head_for_session(&self) -> HeaderMap {
        let mut head = HeaderMap::clone(&self.post);
        if let Some(session) = &self.session {
            head.insert(headers::SESSION_ID, session.clone());
        }
        head
    }

    /// Ends the session at the backend. What the backend says to that does not matter.
    pub async fn delete(&self, inner: &Arc<Inner>) {
        if !self.has_session {
            return;
        }
        let mut head = self.head_for_session();
        head.remove(CONTENT_TYPE);
        if let Err(error) = inner.backend.http.send(Method::DELETE, &self.at, &head, &Wire::new()).await {
            tracing::debug!(backend = %inner.backend.name, session = %inner.hello.session_tag, ?error, "could not end the backend's session");
        }
    }

    /// Sends a notification or an answer.
    pub async fn send(&self, inner: &Arc<Inner>, message: &Wire) -> Result<(), BackendError> {
        let response = self.post(inner, message).await?;
        if response.status().is_success() {
            let_go(inner, response.into_body());
            return Ok(());
        }
        Err(match self.head(inner, 0, response).await {
            Head::Refused(error) => error,
            Head::SessionLost => inner.status(StatusCode::NOT_FOUND, None),
            Head::Open(_) | Head::Answer(_) => inner.status(StatusCode::BAD_REQUEST, None),
        })
    }

    /// Sends a request of the gateway's own and waits for the answer.
    pub async fn request(&self, inner: &Arc<Inner>, id: u64, message: &Wire) -> Result<Response, BackendError> {
        let response = self.post(inner, message).await?;
        match self.head(inner, id, response).await {
            Head::Open(response) => self.read_answer(inner, id, response, &Sink::Inbox).await,
            Head::Answer(response) => Ok(response),
            Head::Refused(error) => Err(error),
            Head::SessionLost => Err(inner.status(StatusCode::NOT_FOUND, None)),
        }
    }

    async fn read_answer(
        &self,
        inner: &Arc<Inner>,
        id: u64,
        response: HttpResponse<Body>,
        sink: &Sink<'_>,
    ) -> Result<Response, BackendError> {
        let mut messages = Messages::open(response, inner.backend.limits.message, None).await.map_err(|e| inner.unread(e))?;
        let mut cursor = Cursor::default();
        while let Some(raw) = messages.next(&mut cursor).await.map_err(|e| inner.unread(e))? {
            if let Answered::Yes(answer) = take(inner, Some(id), raw, sink).await? {
                messages.finish(inner);
                return Ok(answer);
            }
        }
        Err(inner.broken("its stream ended without an answer"))
    }

    /// Sorts a response by its status. `id`: the request's.
    pub async fn head(&self, inner: &Arc<Inner>, id: u64, response: HttpResponse<Body>) -> Head {
        let status = response.status();
        if status.is_success() {
            if matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) && id != 0 {
                return Head::Refused(inner.broke(format!("it answered a request with HTTP status {} and no message", status.as_u16())));
            }
            return Head::Open(response);
        }
        let retry_after = retry_after(response.headers());
        let mut body = response.into_body();
        let body = tokio::time::timeout(ERROR_WAIT, collect(&mut body, Bytes::new(), 0, ERROR_BODY)).await;
        let error = match body {
            Ok(Ok(body)) => match Incoming::parse(body) {
                Ok(Incoming::Response(error)) if !error.ok => Some(error),
                _ => None,
            },
            _ => None,
        };
        match (status, error) {
            (_, Some(error))
                if id != 0
                    && answers(&error, id)
                    && !(status == StatusCode::NOT_FOUND && self.has_session && !about_the_request(&error)) =>
            {
                Head::Answer(error)
            }
            (StatusCode::NOT_FOUND, _) if self.has_session => Head::SessionLost,
            // The reference servers of several SDKs answer 400 for a session that they do not know, in words only.
            (StatusCode::BAD_REQUEST, Some(error)) if self.has_session && error.id.is_none() && names_the_session(&error) => {
                Head::SessionLost
            }
            // An error that could not name its request, but says what is wrong.
            (StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND | StatusCode::UNPROCESSABLE_ENTITY, Some(error))
                if id != 0 && error.id.is_none() =>
            {
                Head::Answer(error)
            }
            _ => Head::Refused(inner.status(status, retry_after)),
        }
    }
}

/// Whether this answers our request.
pub fn answers(response: &Response, id: u64) -> bool {
    response.id.as_ref().is_some_and(|got| got.stands_for(id))
}

fn about_the_request(error: &Response) -> bool {
    use crate::protocol::codes::{INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, RESOURCE_NOT_FOUND};
    error.error_code().is_some_and(|code| matches!(code, INTERNAL_ERROR | INVALID_PARAMS | METHOD_NOT_FOUND | RESOURCE_NOT_FOUND))
}

fn names_the_session(error: &Response) -> bool {
    let body = error.body();
    let Ok(object) = json::Object::parse(&body) else { return false };
    object.only("message").and_then(json::string).is_some_and(|text| text.to_ascii_lowercase().contains("session"))
}

/// Seconds only; a date is not worth a clock.
pub fn retry_after(head: &HeaderMap) -> Option<Duration> {
    let seconds: u64 = head.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds.min(3600)))
}

impl Inner {
    pub(in crate::backend) fn unsent(&self, error: SendError) -> BackendError {
        match error {
            SendError::NotSent(reason) => self.unavailable(reason, None),
            SendError::Lost(reason) => self.broken(&reason),
        }
    }

    pub(in crate::backend) fn unread(&self, error: ReadError) -> BackendError {
        match error {
            ReadError::Cut(reason) => self.broken(&reason),
            ReadError::Bad(reason) => self.broke(&reason),
        }
    }

    pub(in crate::backend) fn status(&self, status: StatusCode, retry_after: Option<Duration>) -> BackendError {
        BackendError::Status { backend: self.backend.name.clone(), status: status.as_u16(), retry_after }
    }
}

//! One request in the hands of a script: every way in which it can be answered, or not.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::{BodyExt, Full, StreamBody, combinators::BoxBody};
use hyper::body::Frame;
use tokio::sync::{mpsc, oneshot};

use super::{Seen, State};
use crate::{raw, within};

pub(super) type Body = BoxBody<Bytes, Infallible>;

/// Where the answer goes.
pub(super) enum Out {
    /// The response of the POST.
    Response(oneshot::Sender<Response<Body>>),
    /// The only stream of a session of the legacy transport.
    Shared(mpsc::Sender<Bytes>),
}

/// A request to answer. Dropped without an answer, its connection is closed.
pub struct Call {
    pub seen: Seen,
    pub(super) state: Arc<State>,
    pub(super) out: Out,
    /// Set once an answer is on its way: leaving after that is not abandoning.
    pub(super) answered: Arc<AtomicBool>,
}

impl Call {
    pub fn id(&self) -> String {
        self.seen.message().id.map_or("null", |id| id.get()).to_owned()
    }

    pub fn session(&self) -> String {
        self.seen.session.clone().unwrap_or_default()
    }

    /// The name of the tool or prompt, or the URI.
    pub fn target(&self) -> String {
        // Not by way of a tree: the rest of the params may hold numbers that no tree can.
        let params = self.seen.params_raw();
        let name = raw::member(params, "name").or_else(|| raw::member(params, "uri"));
        name.and_then(|name| serde_json::from_str(name).ok()).unwrap_or_default()
    }

    pub fn progress_token(&self) -> Option<String> {
        let meta = raw::member(self.seen.params_raw(), "_meta")?;
        raw::member(meta, "progressToken").map(str::to_owned)
    }

    /// Answers with a raw result.
    pub fn result(self, result: &str) {
        let message = raw::result(&self.id(), &of_its_era(&self.seen, result));
        self.message(&message);
    }

    pub fn error(self, code: i64, message: &str) {
        let message = raw::error(&self.id(), code, message);
        self.message(&message);
    }

    /// Answers with this text as the whole JSON body, whatever it is.
    pub fn message(self, message: &str) {
        match self.out {
            Out::Response(_) => self.http(200, &[("content-type", "application/json")], message.to_owned()),
            Out::Shared(stream) => {
                self.answered.store(true, Ordering::SeqCst);
                let event = event(None, message);
                tokio::spawn(async move { stream.send(event).await });
            }
        }
    }

    /// Answers with any HTTP response.
    pub fn http(self, status: u16, headers: &[(&str, &str)], body: impl Into<Bytes>) {
        self.answered.store(true, Ordering::SeqCst);
        let Out::Response(out) = self.out else { panic!("the legacy transport answers on its stream") };
        let mut response = Response::new(Full::new(body.into()).boxed());
        *response.status_mut() = StatusCode::from_u16(status).expect("a status");
        set(&mut response, headers);
        let _ = out.send(response);
    }

    /// Starts a JSON body that comes in pieces, in whatever length it is announced.
    pub fn pour(self, announced: Option<usize>) -> Pouring {
        self.answered.store(true, Ordering::SeqCst);
        let Out::Response(out) = self.out else { panic!("the legacy transport answers on its stream") };
        let (sender, receiver) = mpsc::channel(1);
        let mut response = stream_response(receiver);
        response.headers_mut().clear();
        set(&mut response, &[("content-type", "application/json")]);
        if let Some(length) = announced {
            set(&mut response, &[("content-length", &length.to_string())]);
        }
        let _ = out.send(response);
        Pouring { sender }
    }

    /// Never answers; ends when the client gives up.
    pub async fn hang(self) {
        std::future::pending().await
    }

    /// Starts an event stream.
    pub fn stream(self) -> Stream {
        let (id, session) = (self.id(), self.session());
        let sender = match self.out {
            Out::Shared(sender) => sender,
            Out::Response(out) => {
                let (sender, receiver) = mpsc::channel(16);
                let _ = out.send(stream_response(receiver));
                sender
            }
        };
        Stream { id, session, sender, state: self.state, answered: self.answered, seen: self.seen }
    }
}

/// A body that comes in pieces. Ends when dropped: properly, or cut where more was announced.
pub struct Pouring {
    sender: mpsc::Sender<Bytes>,
}

impl Pouring {
    /// Sends a piece; gives `false` when the client is gone.
    pub async fn send(&self, piece: impl Into<Bytes>) -> bool {
        self.sender.send(piece.into()).await.is_ok()
    }

    /// Waits until the client has closed the connection.
    pub async fn closed(&self) {
        self.sender.closed().await;
    }
}

/// The event stream of one request. Ends when dropped.
pub struct Stream {
    id: String,
    session: String,
    sender: mpsc::Sender<Bytes>,
    state: Arc<State>,
    answered: Arc<AtomicBool>,
    seen: Seen,
}

impl Stream {
    /// Sends a raw message; gives `false` when the client is gone.
    pub async fn send(&self, message: &str) -> bool {
        self.bytes(event(None, message)).await
    }

    pub async fn send_with_id(&self, id: &str, message: &str) -> bool {
        self.bytes(event(Some(id), message)).await
    }

    /// Sends any bytes.
    pub async fn bytes(&self, bytes: impl Into<Bytes>) -> bool {
        self.sender.send(bytes.into()).await.is_ok()
    }

    pub async fn notify(&self, method: &str, params: &str) -> bool {
        self.send(&raw::notification(method, params)).await
    }

    /// Sends a request of the server's own and gives the raw response of the client.
    pub async fn ask(&self, id: &str, method: &str, params: &str) -> String {
        let response = self.state.expect_response(&self.session, id);
        self.send(&raw::request(id, method, params)).await;
        within("the client's response", response).await.expect("the backend lives")
    }

    /// Sends the result of the request and ends the stream.
    pub async fn answer(self, result: &str) {
        self.answered.store(true, Ordering::SeqCst);
        let _ = self.send(&raw::result(&self.id, &of_its_era(&self.seen, result))).await;
    }

    pub(super) fn sender(&self) -> mpsc::Sender<Bytes> {
        self.sender.clone()
    }

    /// True when the client has closed the stream.
    pub fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Waits until the client closes the stream.
    pub async fn closed(&self) {
        self.sender.closed().await;
    }
}

/// A result says in the modern era what kind it is of.
fn of_its_era(seen: &Seen, result: &str) -> String {
    match result.strip_prefix('{') {
        Some(rest) if seen.is_modern() && !result.contains("\"resultType\"") => {
            let comma = if rest.trim_start().starts_with('}') { "" } else { "," };
            format!("{{\"resultType\":\"complete\"{comma}{rest}")
        }
        _ => result.to_owned(),
    }
}

pub(super) fn event(id: Option<&str>, message: &str) -> Bytes {
    let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
    let data: String = message.split('\n').map(|line| format!("data: {line}\n")).collect();
    format!("event: message\n{id}{data}\n").into()
}

pub(super) fn stream_response(receiver: mpsc::Receiver<Bytes>) -> Response<Body> {
    let frames = futures_util::stream::unfold(receiver, |mut receiver| async move {
        let bytes = receiver.recv().await?;
        Some((Ok::<_, Infallible>(Frame::data(bytes)), receiver))
    });
    let mut response = Response::new(BodyExt::boxed(StreamBody::new(frames)));
    set(&mut response, &[("content-type", "text/event-stream"), ("cache-control", "no-cache")]);
    response
}

pub(super) fn set(response: &mut Response<Body>, headers: &[(&str, &str)]) {
    for (name, value) in headers {
        let name = http::HeaderName::from_bytes(name.as_bytes()).expect("a header name");
        response.headers_mut().append(name, http::HeaderValue::from_str(value).expect("a header value"));
    }
}

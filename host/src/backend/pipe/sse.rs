//! HTTP+SSE, the transport of 2024-11-05: one stream for all that comes, and an endpoint that it names for all that goes.

use super::{LastWord, Outlet, Pipe};
use crate::admission::{Reading, Room};
use crate::backend::error::BackendError;
use crate::backend::handshake;
use crate::backend::http::client::{self, Address, Body, resolve, same_origin};
use crate::backend::http::link::retry_after;
use crate::backend::http::messages::let_go;
use crate::backend::inner::Inner;
use crate::backend::link::{Link, Wiring};
use crate::protocol::sse::Decoder;
use crate::protocol::{Version, Wire, headers, message};
use bytes::Bytes;
use http::header::{ACCEPT, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, TRANSFER_ENCODING, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Uri};
use http_body_util::BodyExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How long the endpoint may take to accept a message.
const POST: Duration = Duration::from_secs(30);

/// Where messages are posted.
#[derive(Clone, Debug)]
pub struct Endpoint(Arc<State>);

#[derive(Debug)]
struct State {
    at: Address,
    headers: HeaderMap,
    version: OnceLock<Version>,
}

struct Stream {
    body: Body,
    decoder: Decoder,
    room: Option<Room>,
    /// What the message that is being read holds of the room.
    reading: Option<Reading>,
}

/// GET, `endpoint` event, `initialize`, `notifications/initialized`. The caller bounds the time.
pub async fn open(inner: &Arc<Inner>, uri: &Uri, configured: &HeaderMap, epoch: u64) -> Result<Link, BackendError> {
    let mut common = HeaderMap::new();
    for (name, value) in configured {
        common.entry(name).or_insert_with(|| value.clone());
    }
    for name in [
        HOST,
        CONNECTION,
        CONTENT_LENGTH,
        TRANSFER_ENCODING,
        headers::SESSION_ID,
        headers::PROTOCOL_VERSION,
        headers::LAST_EVENT_ID,
        CONTENT_TYPE,
    ] {
        common.remove(name);
    }
    common.entry(USER_AGENT).or_insert(HeaderValue::from_static(concat!("lockgate/", env!("CARGO_PKG_VERSION"))));
    common.insert(ACCEPT, HeaderValue::from_static(headers::EVENT_STREAM));

    let at = inner.backend.http.address(uri);
    let response = inner.backend.http.send(Method::GET, &at, &common, &Wire::new()).await.map_err(|e| inner.unsent(e))?;
    if !response.status().is_success() {
        return Err(inner.status(response.status(), retry_after(response.headers())));
    }
    let mut stream =
        Stream { body: response.into_body(), decoder: Decoder::new(inner.backend.limits.message), room: inner.room.clone(), reading: None };
    let endpoint = loop {
        let event = stream.event().await.map_err(|why| inner.broke(format!("its event stream named no endpoint: {why}")))?;
        if event.name.as_deref() == Some("endpoint") {
            let text = event.data.unwrap_or_default();
            let to = std::str::from_utf8(&text)
                .ok()
                .and_then(|text| resolve(uri, text))
                .ok_or_else(|| inner.broke("its endpoint is not a URL"))?;
            if !same_origin(uri, &to) {
                return Err(inner.broke("its endpoint is of another origin"));
            }
            break to;
        }
    };
    let mut post = common;
    post.insert(CONTENT_TYPE, HeaderValue::from_static(headers::JSON));
    post.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
    let endpoint = Endpoint(Arc::new(State { at: at.beside(&endpoint), headers: post, version: OnceLock::new() }));
    let pipe = Pipe::new(Outlet::Post(endpoint.clone()), inner.stop.child_token());
    let guard = pipe.stop.clone().drop_guard();
    inner.spawn(read(inner.clone(), pipe.clone(), stream));

    let id = inner.next_id();
    let answer = pipe.request(inner, id, handshake::initialize(&inner.hello, id)).await?;
    let hello = handshake::read(&inner.backend.name, &answer)?;
    let _ = endpoint.0.version.set(hello.version);
    pipe.send(inner, handshake::initialized()).await?;
    guard.disarm();
    Ok(Link { epoch, hello: Arc::new(hello), wiring: Wiring::Pipe(pipe) })
}

/// Reads the stream to its end.
async fn read(inner: Arc<Inner>, pipe: Arc<Pipe>, mut stream: Stream) {
    let _last = LastWord(pipe.clone());
    let reading = async {
        loop {
            let event = match stream.event().await {
                Ok(event) => event,
                Err(why) => return format!("its event stream ended: {why}"),
            };
            let Some(raw) = event.message() else { continue };
            match message::batch(raw) {
                None => pipe.take(&inner, raw.clone(), stream.reading.take()).await,
                Some(Ok(messages)) => {
                    for raw in messages {
                        pipe.take(&inner, raw, None).await;
                    }
                }
                Some(Err(_)) => inner.noise("a message that is not JSON was skipped"),
            }
        }
    };
    let why = tokio::select! {
        why = reading => why,
        () = pipe.stop.cancelled() => "it was closed".to_owned(),
    };
    drop(stream);
    pipe.gone(&why);
}

impl Stream {
    async fn event(&mut self) -> Result<crate::protocol::sse::Event, String> {
        loop {
            if let Some(event) = self.decoder.next_event().map_err(|e| e.to_string())? {
                return Ok(event);
            }
            Room::grow(&self.room, &mut self.reading, self.decoder.held()).await;
            match self.body.frame().await {
                Some(Ok(frame)) => self.decoder.push(frame.data_ref().unwrap_or(&Bytes::new())),
                Some(Err(error)) => return Err(client::root(&error)),
                None => return Err("the server closed it".into()),
            }
        }
    }
}

impl Endpoint {
    /// Posts one message and waits until the server has accepted it.
    pub async fn post(&self, inner: &Arc<Inner>, message: &Wire) -> Result<(), BackendError> {
        let sending = async {
            let mut head = self.0.headers.clone();
            if let Some(version) = self.0.version.get().filter(|v| v.has_version_header()) {
                head.insert(headers::PROTOCOL_VERSION, HeaderValue::from_static(version.as_str()));
            }
            let response = inner.backend.http.send(Method::POST, &self.0.at, &head, message).await.map_err(|e| inner.unsent(e))?;
            if !response.status().is_success() {
                return Err(inner.status(response.status(), retry_after(response.headers())));
            }
            let_go(inner, response.into_body());
            Ok(())
        };
        tokio::time::timeout(POST, sending)
            .await
            .unwrap_or_else(|_| Err(BackendError::Timeout { backend: inner.backend.name.clone(), limit: POST }))
    }

    /// Posts a request beside whatever else is under way: a server may hold the POST until it has the answer.
    pub fn spawn_post(&self, inner: &Arc<Inner>, pipe: Arc<Pipe>, id: u64, message: Wire, written: Arc<AtomicBool>) {
        let (endpoint, shared) = (self.clone(), inner.clone());
        inner.spawn(async move {
            written.store(true, Ordering::Relaxed);
            match endpoint.post(&shared, &message).await {
                Ok(()) => {}
                // The answer may come on the stream all the same.
                Err(BackendError::Timeout { .. }) => {}
                Err(error) => pipe.fail(id, error),
            }
        });
    }
}

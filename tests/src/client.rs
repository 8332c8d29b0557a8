//! An MCP client that can do what the SDKs cannot: send any bytes with any headers, read half a stream and leave, resume,
//! hold several sessions and several streams at once, and show every answer as it was on the wire.
//!
//! One TCP connection per request, closed when its [`Reply`] is dropped: what a test drops, the server sees go. Where the
//! connection itself matters, a [`Connection`] takes several requests, one after the other.

use std::{collections::VecDeque, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use http::HeaderMap;
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, client::conn::http1::SendRequest};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::{net::TcpStream, sync::Mutex, task::AbortHandle};

use crate::{
    raw,
    sse::{Event, Parser},
    within, within_time,
};

/// What a client sends when it follows the specification to the letter.
pub const ACCEPT: (&str, &str) = ("accept", "application/json, text/event-stream");
pub const JSON: (&str, &str) = ("content-type", "application/json");

/// The newest revision with an `initialize` handshake.
pub const LATEST: &str = "2025-11-25";

/// A URL and the headers that go with every request to it.
#[derive(Debug, Clone)]
pub struct Endpoint {
    pub addr: SocketAddr,
    pub path: String,
    pub headers: Vec<(String, String)>,
}

impl Endpoint {
    /// `url` is `http://IP:PORT/path`.
    pub fn new(url: &str) -> Self {
        let rest = url.strip_prefix("http://").unwrap_or_else(|| panic!("{url} is not an http URL"));
        let (addr, path) = rest.split_once('/').unwrap_or((rest, ""));
        Self { addr: addr.parse().unwrap_or_else(|_| panic!("{url} has no IP:PORT")), path: format!("/{path}"), headers: vec![] }
    }

    #[must_use]
    pub fn with_header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    #[must_use]
    pub fn with_bearer(self, token: &str) -> Self {
        self.with_header("authorization", &format!("Bearer {token}"))
    }

    /// One request with exactly these headers, besides `host`, the length and the endpoint's own, on a connection of its own.
    pub async fn send(&self, method: &str, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Reply {
        let connection = Connection::open(self.addr).await;
        self.send_on(&connection, method, headers, body).await
    }

    /// The same on a connection that stays open for more, unless the reply is dropped before its end.
    pub async fn send_on(&self, connection: &Arc<Connection>, method: &str, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Reply {
        let mut request = http::Request::builder().method(method).uri(&self.path);
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            request = request.header("host", self.addr.to_string());
        }
        let own = self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        for (name, value) in own.chain(headers.iter().copied()) {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(body.into())).expect("the test's headers are valid");
        within("the head of an answer", async {
            let mut sender = connection.sender.lock().await;
            sender.ready().await.unwrap_or_else(|error| panic!("{method} {}: the connection is gone: {error}", self.path));
            let response = sender.send_request(request).await.unwrap_or_else(|error| panic!("{method} {}: {error}", self.path));
            let (head, body) = response.into_parts();
            Reply { status: head.status.as_u16(), headers: head.headers, body, _connection: connection.clone() }
        })
        .await
    }

    /// A POST as a well-behaved client sends it, with `extra` headers.
    pub async fn post(&self, extra: &[(&str, &str)], body: impl Into<Bytes>) -> Reply {
        self.send("POST", &[&[JSON, ACCEPT], extra].concat(), body).await
    }

    pub async fn initialize(&self) -> Session {
        self.initialize_as(LATEST, json!({})).await
    }

    /// `initialize` and `notifications/initialized`.
    ///
    /// # Panics
    /// Unless the answer is a result with a session id.
    pub async fn initialize_as(&self, version: &str, capabilities: Value) -> Session {
        let reply = self.post(&[], initialize_body(version, &capabilities)).await;
        let reply = reply.must_be(200).await;
        let id = reply.header("mcp-session-id").expect("initialize gives a session id").to_owned();
        let answer = reply.answer().await;
        let init = answer.result();
        let version = init["protocolVersion"].as_str().expect("a version was negotiated").to_owned();
        let session = Session { at: self.clone(), id, version, init, next: std::sync::atomic::AtomicU64::new(1) };
        assert_eq!(session.tell("notifications/initialized", json!({})).await, 202);
        session
    }
}

pub fn initialize_body(version: &str, capabilities: &Value) -> String {
    let params = json!({
        "protocolVersion": version, "capabilities": capabilities,
        "clientInfo": { "name": "lockgate-tests", "version": "1" },
    });
    raw::request("0", "initialize", &params.to_string())
}

/// A TCP connection to the gateway. Closed when the last that holds it is dropped.
pub struct Connection {
    sender: Mutex<SendRequest<Full<Bytes>>>,
    task: AbortHandle,
}

impl Connection {
    pub async fn open(addr: SocketAddr) -> Arc<Self> {
        within("a connection", async {
            let socket = TcpStream::connect(addr).await.unwrap_or_else(|error| panic!("{addr}: {error}"));
            socket.set_nodelay(true).expect("a socket takes TCP_NODELAY");
            let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(socket)).await.expect("a handshake over TCP");
            let task = tokio::spawn(async move {
                let _ = connection.await;
            });
            Arc::new(Self { sender: Mutex::new(sender), task: task.abort_handle() })
        })
        .await
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The head of an answer and a body not yet read. Dropping it closes the connection.
pub struct Reply {
    pub status: u16,
    pub headers: HeaderMap,
    body: Incoming,
    /// Held so that the connection is not ended from our side before the body is read.
    _connection: Arc<Connection>,
}

impl Reply {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("the header is ASCII"))
    }

    /// # Panics
    /// With the body, when the status is another one.
    pub async fn must_be(self, status: u16) -> Self {
        if self.status != status {
            let (found, body) = (self.status, self.bytes().await);
            panic!("status {found} instead of {status}: {}", String::from_utf8_lossy(&body));
        }
        self
    }

    pub fn is_stream(&self) -> bool {
        self.header("content-type").is_some_and(|value| value.starts_with("text/event-stream"))
    }

    pub async fn bytes(mut self) -> Bytes {
        within("the rest of a body", async {
            let mut all = Vec::new();
            while let Some(frame) = self.body.frame().await {
                if let Ok(data) = frame.expect("the body arrives whole").into_data() {
                    all.extend_from_slice(&data);
                }
            }
            all.into()
        })
        .await
    }

    pub async fn text(self) -> String {
        String::from_utf8(self.bytes().await.to_vec()).expect("the body is UTF-8")
    }

    pub async fn json(self) -> Value {
        let text = self.text().await;
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{text:?}: {error}"))
    }

    pub fn events(self) -> Events {
        assert!(self.is_stream(), "status {}, type {:?}: not an event stream", self.status, self.header("content-type"));
        Events { reply: self, parser: Parser::default(), queue: VecDeque::new() }
    }

    /// Reads up to the answer of the request: the only message of a JSON body, or the first response on the stream.
    pub async fn answer(self) -> Answer {
        let status = self.status;
        if !self.is_stream() {
            let raw = self.text().await;
            return Answer { status, raw, before: vec![], streamed: false };
        }
        self.events().answer().await
    }
}

/// A response to one request and what preceded it on its stream.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    /// The JSON-RPC response as it was on the wire.
    pub raw: String,
    /// Everything before it: messages, comments, priming events.
    pub before: Vec<Event>,
    pub streamed: bool,
}

impl Answer {
    pub fn message(&self) -> raw::Message<'_> {
        raw::Message::parse(self.raw.as_bytes()).unwrap_or_else(|| panic!("status {}: {:?} is no message", self.status, self.raw))
    }

    pub fn result_raw(&self) -> &str {
        self.message().result.unwrap_or_else(|| panic!("no result in {}", self.raw)).get()
    }

    pub fn error_raw(&self) -> &str {
        self.message().error.unwrap_or_else(|| panic!("no error in {}", self.raw)).get()
    }

    pub fn id_raw(&self) -> &str {
        self.message().id.unwrap_or_else(|| panic!("no id in {}", self.raw)).get()
    }

    pub fn result(&self) -> Value {
        serde_json::from_str(self.result_raw()).expect("the result is JSON")
    }

    pub fn error(&self) -> Value {
        serde_json::from_str(self.error_raw()).expect("the error is JSON")
    }

    /// The JSON-RPC messages that came before the answer.
    pub fn messages(&self) -> Vec<Value> {
        self.before.iter().filter(|event| event.is_message()).map(Event::json).collect()
    }
}

/// A stream being read.
pub struct Events {
    pub reply: Reply,
    parser: Parser,
    queue: VecDeque<Event>,
}

impl Events {
    /// The next event or comment; `None` at the end of the stream, also when it was cut.
    pub async fn next(&mut self) -> Option<Event> {
        within("an event", self.pull()).await
    }

    /// The next event that carries a message.
    pub async fn message(&mut self) -> Option<Event> {
        loop {
            let event = self.next().await?;
            if event.is_message() {
                return Some(event);
            }
        }
    }

    /// Reads up to the first response.
    pub async fn answer(&mut self) -> Answer {
        let (status, mut before) = (self.reply.status, Vec::new());
        loop {
            let event = self.next().await.unwrap_or_else(|| panic!("the stream ended without an answer, after {before:?}"));
            let message = event.data.as_deref().and_then(raw::Message::parse);
            if message.is_some_and(|message| message.method.is_none()) {
                return Answer { status, raw: event.text().to_owned(), before, streamed: true };
            }
            before.push(event);
        }
    }

    /// Reads until a message has this method, dropping others.
    pub async fn method(&mut self, method: &str) -> Value {
        // All of it in one deadline: keep-alives are no progress.
        within(method, async {
            loop {
                let event = self.message().await.unwrap_or_else(|| panic!("the stream ended before {method}"));
                let message = event.json();
                if message["method"] == method {
                    return message;
                }
            }
        })
        .await
    }

    /// Everything up to the end of the stream.
    pub async fn rest(&mut self) -> Vec<Event> {
        let mut all = Vec::new();
        while let Some(event) = self.next().await {
            all.push(event);
        }
        all
    }

    /// Fails if a message arrives within `time`.
    pub async fn quiet_for(&mut self, time: Duration) {
        let message = tokio::time::timeout(time, async {
            loop {
                match self.pull().await {
                    Some(event) if event.is_message() => return event,
                    Some(_) => {}
                    None => std::future::pending().await,
                }
            }
        });
        if let Ok(event) = message.await {
            panic!("a stream that had to be quiet carried {}", event.text());
        }
    }

    /// Waits for the end of the stream for at most `limit`.
    pub async fn ended(&mut self, limit: Duration) {
        within_time(limit, "the end of a stream", async { while self.pull().await.is_some() {} }).await;
    }

    async fn pull(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.queue.pop_front() {
                return Some(event);
            }
            let data = self.reply.body.frame().await?.ok()?.into_data().unwrap_or_default();
            self.parser.feed(&data, &mut self.queue);
        }
    }
}

/// A legacy session: its id, and requests that carry it.
#[derive(Debug)]
pub struct Session {
    pub at: Endpoint,
    pub id: String,
    pub version: String,
    /// The result of `initialize`.
    pub init: Value,
    next: std::sync::atomic::AtomicU64,
}

impl Session {
    /// Posts any body with the session's headers.
    pub async fn post(&self, body: impl Into<Bytes>) -> Reply {
        self.at.post(&self.headers(), body).await
    }

    pub fn headers(&self) -> [(&str, &str); 2] {
        [("mcp-session-id", &self.id), ("mcp-protocol-version", &self.version)]
    }

    fn next_id(&self) -> String {
        self.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed).to_string()
    }

    /// A request with the next free id.
    pub async fn ask(&self, method: &str, params: Value) -> Answer {
        self.ask_raw(&self.next_id(), method, &params.to_string()).await
    }

    /// A request whose id and params are sent as they are.
    pub async fn ask_raw(&self, id: &str, method: &str, params: &str) -> Answer {
        self.post(raw::request(id, method, params)).await.answer().await
    }

    /// The head only: for streams that are read, or left, by the test.
    pub async fn start(&self, id: &str, method: &str, params: &str) -> Reply {
        self.post(raw::request(id, method, params)).await
    }

    /// # Panics
    /// When the answer is an error.
    pub async fn result(&self, method: &str, params: Value) -> Value {
        self.ask(method, params).await.result()
    }

    /// # Panics
    /// When the answer is a result.
    pub async fn error(&self, method: &str, params: Value) -> Value {
        self.ask(method, params).await.error()
    }

    pub async fn call(&self, tool: &str, arguments: Value) -> Value {
        self.result("tools/call", json!({ "name": tool, "arguments": arguments })).await
    }

    /// Every page of a list, and how many pages there were.
    pub async fn list(&self, method: &str, field: &str) -> Vec<Value> {
        let (mut items, mut params) = (Vec::new(), json!({}));
        for _ in 0..1000 {
            let page = self.result(method, params).await;
            items.extend(page[field].as_array().unwrap_or_else(|| panic!("no {field} in {page}")).iter().cloned());
            match page.get("nextCursor") {
                None | Some(Value::Null) => return items,
                Some(cursor) => params = json!({ "cursor": cursor }),
            }
        }
        panic!("{method} has no last page");
    }

    /// The names in a list, sorted.
    pub async fn names(&self, method: &str, field: &str) -> Vec<String> {
        let items = self.list(method, field).await;
        let key = if field == "resources" { "uri" } else { "name" };
        let mut names: Vec<_> = items.iter().map(|item| item[key].as_str().expect("items have names").to_owned()).collect();
        names.sort();
        names
    }

    /// A notification; gives the status.
    pub async fn tell(&self, method: &str, params: Value) -> u16 {
        let reply = self.post(raw::notification(method, &params.to_string())).await;
        let status = reply.status;
        let body = reply.bytes().await;
        assert!(status != 202 || body.is_empty(), "202 with a body: {body:?}");
        status
    }

    /// The answer to a request of the server.
    pub async fn reply(&self, id: &Value, result: Value) -> u16 {
        self.post(raw::result(&id.to_string(), &result.to_string())).await.status
    }

    /// Opens the session's own stream.
    pub async fn stream(&self) -> Events {
        self.get(&[]).await.must_be(200).await.events()
    }

    /// Resumes a stream after the event `last`.
    pub async fn resume(&self, last: &str) -> Reply {
        self.get(&[("last-event-id", last)]).await
    }

    pub async fn get(&self, extra: &[(&str, &str)]) -> Reply {
        self.at.send("GET", &[&[("accept", "text/event-stream")], &self.headers()[..], extra].concat(), "").await
    }

    pub async fn delete(&self) -> u16 {
        self.at.send("DELETE", &self.headers(), "").await.status
    }
}

//! Tests of the room against raw servers on loopback and small child scripts.

mod http;
mod modern;
mod modern_http;
mod sse;
mod stdio;

use super::*;
use crate::protocol::{Incoming, Request};
use ::http::HeaderMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Mutex;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

pub const LONG: Duration = Duration::from_secs(20);

/// A request as it was on the wire.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub verb: String,
    pub path: String,
    /// Names in lower case, in order.
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Seen {
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut found = self.headers.iter().filter(|(n, _)| n == name).map(|(_, v)| v.as_str());
        let first = found.next();
        assert!(found.next().is_none(), "header {name} came twice");
        first
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_default()
    }

    pub fn method(&self) -> String {
        self.json()["method"].as_str().unwrap_or_default().to_owned()
    }

    pub fn id(&self) -> String {
        self.json()["id"].to_string()
    }
}

/// One request and the socket that it came on.
pub struct Exchange {
    pub seen: Seen,
    pub socket: TcpStream,
    /// Whether the connection may be used again.
    pub keep: bool,
}

impl Exchange {
    pub async fn raw(&mut self, text: impl AsRef<[u8]>) -> bool {
        self.socket.write_all(text.as_ref()).await.is_ok()
    }

    pub async fn reply(&mut self, status: u16, headers: &str, body: &str) {
        self.raw(format!("HTTP/1.1 {status} X\r\n{headers}content-length: {}\r\n\r\n{body}", body.len())).await;
    }

    pub async fn json(&mut self, body: impl Into<String>) {
        self.reply(200, "content-type: application/json\r\n", &body.into()).await;
    }

    pub async fn result(&mut self, result: &str) {
        let id = self.seen.id();
        self.json(format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)).await;
    }

    pub async fn stream(&mut self) {
        self.keep = false;
        self.raw("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n").await;
    }

    pub async fn event(&mut self, id: Option<&str>, data: &str) -> bool {
        let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
        self.raw(format!("{id}data: {data}\n\n")).await
    }

    /// Waits for the peer to close.
    pub async fn hold(&mut self) {
        let mut byte = [0];
        let _ = self.socket.read(&mut byte).await;
        self.keep = false;
    }
}

type Boxed<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;
type Handler = dyn for<'a> Fn(&'a mut Exchange) -> Boxed<'a> + Send + Sync;

pub struct Server {
    pub port: u16,
    pub log: Arc<Mutex<Vec<Seen>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Server {
    pub async fn start(handler: impl for<'a> Fn(&'a mut Exchange) -> Boxed<'a> + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self::on(listener, handler)
    }

    pub fn on(listener: TcpListener, handler: impl for<'a> Fn(&'a mut Exchange) -> Boxed<'a> + Send + Sync + 'static) -> Server {
        let port = listener.local_addr().unwrap().port();
        let log: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let (handler, kept): (Arc<Handler>, _) = (Arc::new(handler), log.clone());
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                let (handler, log) = (handler.clone(), kept.clone());
                connections.spawn(async move {
                    let mut socket = Some(socket);
                    while let Some(mut at) = socket.take() {
                        let Some(seen) = read_request(&mut at).await else { return };
                        log.lock().unwrap().push(seen.clone());
                        let mut exchange = Exchange { seen, socket: at, keep: true };
                        handler(&mut exchange).await;
                        if exchange.keep {
                            socket = Some(exchange.socket);
                        }
                    }
                });
            }
        });
        Server { port, log, task }
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/mcp", self.port)
    }

    /// The requests with this method.
    pub fn with(&self, method: &str) -> Vec<Seen> {
        self.log.lock().unwrap().iter().filter(|s| s.method() == method).cloned().collect()
    }

    pub fn verbs(&self, verb: &str) -> Vec<Seen> {
        self.log.lock().unwrap().iter().filter(|s| s.verb == verb).cloned().collect()
    }

    /// Waits until the log satisfies `what`.
    pub async fn until(&self, what: impl Fn(&Self) -> bool) {
        let wait = async {
            while !what(self) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(LONG, wait).await.expect("the server never saw it");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn read_request(socket: &mut TcpStream) -> Option<Seen> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(socket.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).ok()?;
    let mut lines = head.lines();
    let mut first = lines.next()?.split(' ');
    let mut seen = Seen { verb: first.next()?.into(), path: first.next()?.into(), ..Seen::default() };
    seen.headers = lines.filter_map(|l| l.split_once(':')).map(|(n, v)| (n.to_ascii_lowercase(), v.trim().to_owned())).collect();
    let mut body = vec![0; seen.header("content-length").map_or(0, |v| v.parse().unwrap())];
    socket.read_exact(&mut body).await.ok()?;
    seen.body = String::from_utf8(body).ok()?;
    Some(seen)
}

pub const INFO: &str = r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}"#;

/// What every streamable HTTP server does: initialize with a session id, 202 for notifications, 405 for GET, 200 for DELETE.
/// True when it was one of these.
pub async fn usual(x: &mut Exchange, session: &str) -> bool {
    match (x.seen.verb.as_str(), x.seen.method().as_str()) {
        ("POST", "initialize") => {
            let body = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{INFO}}}"#, x.seen.id());
            x.reply(200, &format!("content-type: application/json\r\nmcp-session-id: {session}\r\n"), &body).await;
        }
        ("POST", method) if method.starts_with("notifications/") || method.is_empty() => x.reply(202, "", "").await,
        ("GET", _) => x.reply(405, "", "").await,
        ("DELETE", _) => x.reply(200, "", "").await,
        _ => return false,
    }
    true
}

pub fn timeouts() -> Timeouts {
    Timeouts { initialize: Duration::from_secs(5), list: Duration::from_secs(5), call: LONG }
}

pub fn http_backend(url: &str, transport: HttpTransport) -> Backend {
    let target = Target::Http { uri: url.parse().unwrap(), transport, headers: HeaderMap::new() };
    Backend { name: "b".into(), target, timeouts: timeouts(), limits: Limits::default(), http: HttpClient::new(), known: Known::default() }
}

pub fn hello() -> Arc<Hello> {
    Arc::new(Hello {
        version: Version::V2025_11_25,
        modern: false,
        capabilities: Bytes::from_static(b"{\"roots\":{\"zz\":1.0}}"),
        client_info: Bytes::from_static(b"{\"name\":\"c\",\"version\":\"1\"}"),
        session_tag: "t".into(),
    })
}

pub fn open(backend: Backend) -> (Arc<Upstream>, mpsc::Receiver<FromServer>) {
    let (inbox, received) = inbox();
    (Upstream::open(Arc::new(backend), hello(), inbox, None), received)
}

/// An inbox, and what comes out of it.
pub fn inbox() -> (Inbox, mpsc::Receiver<FromServer>) {
    let (sender, received) = mpsc::channel(64);
    let inbox = Inbox::new(8, move |mut letters| {
        let sender = sender.clone();
        tokio::spawn(async move {
            while let Some(message) = letters.take() {
                if sender.send(message).await.is_err() {
                    return;
                }
            }
        });
    });
    (inbox, received)
}

pub fn outbound(text: &str) -> Outbound {
    let Ok(Incoming::Request(request)) = Incoming::parse(Bytes::from(text.to_owned())) else { panic!("not a request: {text}") };
    let progress_token_at = request.progress_token().unwrap().map(|t| t.at);
    Outbound {
        request: request.into(),
        edits: Edits::new(),
        progress_token_at,
        room: None,
        flows: None,
        level: None,
        brought: Brought::default(),
    }
}

pub fn tool(name: &str) -> Outbound {
    outbound(&format!(
        r#"{{"jsonrpc":"2.0","id":"client","method":"tools/call","params":{{"name":"{name}","_meta":{{"progressToken":"tok"}}}}}}"#
    ))
}

pub async fn call(up: &Arc<Upstream>, name: &str) -> Call {
    up.call(tool(name), LONG).await.unwrap()
}

/// Calls and waits for the end.
pub async fn run(up: &Arc<Upstream>, out: Outbound) -> Result<String, BackendError> {
    let mut call = up.call(out, LONG).await?;
    end(&mut call).await
}

/// The text of the result or error of a call.
pub async fn end(call: &mut Call) -> Result<String, BackendError> {
    loop {
        match next(call).await {
            CallEvent::Answer(response) => return Ok(String::from_utf8(response.body().to_vec()).unwrap()),
            CallEvent::Failed(error) => return Err(error),
            _ => {}
        }
    }
}

pub async fn next(call: &mut Call) -> CallEvent {
    tokio::time::timeout(LONG, call.next()).await.expect("no event")
}

pub async fn received(inbox: &mut mpsc::Receiver<FromServer>) -> FromServer {
    tokio::time::timeout(LONG, inbox.recv()).await.expect("nothing came").expect("closed")
}

pub fn request(event: CallEvent) -> Request {
    match event {
        CallEvent::Request(request) => request,
        other => panic!("{other:?}"),
    }
}

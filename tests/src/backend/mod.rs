//! Scripted MCP servers over HTTP, on raw hyper: they record every request as it was on the wire and answer with exactly
//! the bytes that a test wants, at the moment it wants.
//!
//! Without a script a backend is a well-behaved legacy server: sessions, lists of what it was built with, `ping`,
//! subscriptions, DELETE. [`Builder::on`] replaces the answer to one method by a function of the test's own, which gets a
//! [`Call`] and does with it what it likes: a result, an error, a stream, a status, or nothing at all.
//!
//! [`Builder::modern`] makes it a server of 2026-07-28, [`Builder::of_both_eras`] one that speaks both.
//!
//! Both transports share scripts: [`Builder::start`] serves streamable HTTP at `/mcp`, [`Builder::start_legacy_sse`] the
//! 2024-11-05 transport at `/sse`.

mod call;
mod http;
mod modern;

use std::{
    collections::HashMap,
    future::Future,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering},
    },
};

use ::http::HeaderMap;
use bytes::Bytes;
use serde_json::Value;
use tokio::{
    net::TcpListener,
    sync::{Notify, mpsc, oneshot},
    task::AbortHandle,
};

pub use call::{Call, Pouring, Stream};
pub use modern::{META, VERSION};

use crate::{
    raw::{self, Message},
    within,
};

type Script = Arc<dyn Fn(Call) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// A request as the backend received it.
#[derive(Debug, Clone)]
pub struct Seen {
    pub verb: String,
    pub path: String,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// The JSON-RPC method; `None` for responses and for bodies that are no message.
    pub method: Option<String>,
    /// `Mcp-Session-Id`, or the `session` query parameter of the legacy transport.
    pub session: Option<String>,
    /// The connection that it came on, by number.
    pub connection: usize,
}

impl Seen {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    pub fn message(&self) -> Message<'_> {
        Message::parse(&self.body).expect("the body is a message")
    }

    /// The `params` as they were sent.
    pub fn params_raw(&self) -> &str {
        self.message().params.map_or("{}", |params| params.get())
    }

    pub fn params(&self) -> Value {
        serde_json::from_str(self.params_raw()).expect("params are JSON")
    }

    /// `params.arguments` as they were sent.
    pub fn arguments_raw(&self) -> &str {
        raw::member(self.params_raw(), "arguments").unwrap_or("(none)")
    }
}

/// What is scripted, before the backend runs.
#[derive(Clone)]
pub struct Builder {
    name: String,
    capabilities: String,
    instructions: Option<String>,
    /// Raw items, by field of the list result.
    lists: HashMap<&'static str, Vec<String>>,
    page: usize,
    scripts: HashMap<String, Script>,
    get_stream: bool,
    sessions: bool,
    era: modern::Era,
    /// `ttlMs` and `cacheScope` of lists, in the modern era.
    cache: (u64, &'static str),
}

/// A running backend. It ends when this is dropped.
pub struct Backend {
    pub addr: SocketAddr,
    pub(crate) state: Arc<State>,
    accept: AbortHandle,
}

pub(crate) struct State {
    built: Builder,
    log: Mutex<Vec<Seen>>,
    changed: Notify,
    sessions: Mutex<HashMap<String, Session>>,
    /// Requests of ours that wait for the client's response, by session and raw id.
    waiting: Mutex<HashMap<(String, String), oneshot::Sender<String>>>,
    count: AtomicUsize,
    /// Calls whose client went away before the answer.
    abandoned: AtomicUsize,
    /// Connections accepted so far.
    connections: AtomicUsize,
    /// Streams of those who listen, in the modern era.
    listens: Mutex<Vec<modern::Listen>>,
}

struct Session {
    init: Value,
    /// The GET stream, or the only stream of the legacy transport.
    stream: Option<mpsc::Sender<Bytes>>,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Backend {
    pub fn builder(name: &str) -> Builder {
        Builder {
            name: name.to_owned(),
            capabilities: r#"{"tools":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true},"prompts":{"listChanged":true},"logging":{},"completions":{}}"#.to_owned(),
            instructions: None,
            lists: HashMap::new(),
            page: usize::MAX,
            scripts: HashMap::new(),
            get_stream: true,
            sessions: true,
            era: modern::Era::Legacy,
            cache: (0, "private"),
        }
    }

    /// A backend with these tools, each of which answers with its own name and its arguments.
    pub async fn with_tools(name: &str, tools: &[&str]) -> Self {
        tools.iter().fold(Self::builder(name), |builder, tool| builder.tool(tool)).start().await
    }

    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.addr)
    }

    pub fn sse_url(&self) -> String {
        format!("http://{}/sse", self.addr)
    }

    /// Every request so far.
    pub fn seen(&self) -> Vec<Seen> {
        lock(&self.state.log).clone()
    }

    /// The requests with this JSON-RPC method, or HTTP verb.
    pub fn seen_of(&self, method: &str) -> Vec<Seen> {
        let wanted = |seen: &Seen| seen.method.as_deref() == Some(method) || seen.verb == method;
        lock(&self.state.log).iter().filter(|seen| wanted(seen)).cloned().collect()
    }

    /// Waits until `count` requests with this method arrived, and gives them.
    pub async fn saw(&self, method: &str, count: usize) -> Vec<Seen> {
        within(&format!("{count} × {method} at the backend"), async {
            loop {
                let changed = self.state.changed.notified();
                let seen = self.seen_of(method);
                if seen.len() >= count {
                    return seen;
                }
                changed.await;
            }
        })
        .await
    }

    /// Ids of the sessions that were opened and not deleted.
    pub fn sessions(&self) -> Vec<String> {
        lock(&self.state.sessions).keys().cloned().collect()
    }

    /// Waits until this many sessions are open.
    pub async fn has_sessions(&self, count: usize) {
        crate::eventually(&format!("{count} open sessions at the backend"), || (self.sessions().len() == count).then_some(())).await;
    }

    /// What the client of a session said about itself at `initialize`.
    pub fn init_of(&self, session: &str) -> Value {
        lock(&self.state.sessions).get(session).map(|session| session.init.clone()).unwrap_or_default()
    }

    /// Forgets all sessions, as a restart does: the next request of each gets 404.
    pub fn forget_sessions(&self) {
        lock(&self.state.sessions).clear();
    }

    /// Calls whose client closed the connection before the script had answered.
    pub fn abandoned(&self) -> usize {
        self.state.abandoned.load(Ordering::SeqCst)
    }

    pub fn connections(&self) -> usize {
        self.state.connections.load(Ordering::SeqCst)
    }

    /// Sends a message on the session's own stream; waits until that is open.
    pub async fn push(&self, session: &str, message: &str) {
        let stream = crate::eventually("the session's own stream at the backend", || {
            lock(&self.state.sessions).get(session)?.stream.clone().filter(|stream| !stream.is_closed())
        });
        let _ = stream.await.send(call::event(None, message)).await;
    }

    /// Sends a request on the session's own stream and gives the client's response.
    pub async fn ask(&self, session: &str, id: &str, method: &str, params: &str) -> String {
        let response = self.state.expect_response(session, id);
        self.push(session, &raw::request(id, method, params)).await;
        within("the client's response", response).await.expect("the backend lives")
    }

    /// True when the client has closed the session's own stream.
    pub fn stream_is_closed(&self, session: &str) -> bool {
        lock(&self.state.sessions).get(session).is_none_or(|session| session.stream.as_ref().is_none_or(mpsc::Sender::is_closed))
    }

    /// Ends the session's own stream.
    pub fn close_stream(&self, session: &str) {
        if let Some(session) = lock(&self.state.sessions).get_mut(session) {
            session.stream = None;
        }
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.accept.abort();
    }
}

impl State {
    fn expect_response(&self, session: &str, id: &str) -> oneshot::Receiver<String> {
        let (send, receive) = oneshot::channel();
        lock(&self.waiting).insert((session.to_owned(), id.to_owned()), send);
        receive
    }

    fn new_session(&self, init: Value, stream: Option<mpsc::Sender<Bytes>>) -> String {
        let id = format!("{}-{}", self.built.name, self.count.fetch_add(1, Ordering::SeqCst));
        lock(&self.sessions).insert(id.clone(), Session { init, stream });
        id
    }
}

impl Builder {
    /// Replaces the answer to `method`.
    #[must_use]
    pub fn on<F>(mut self, method: &str, script: impl Fn(Call) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.scripts.insert(method.to_owned(), Arc::new(move |call| Box::pin(script(call))));
        self
    }

    /// Answers `method` with this raw result, always.
    #[must_use]
    pub fn result(self, method: &str, result: &str) -> Self {
        let result = result.to_owned();
        self.on(method, move |call| {
            let result = result.clone();
            async move { call.result(&result) }
        })
    }

    #[must_use]
    pub fn tool(self, name: &str) -> Self {
        self.item("tools", &format!(r#"{{"name":"{name}","description":"Scripted: {name}","inputSchema":{{"type":"object"}}}}"#))
    }

    #[must_use]
    pub fn prompt(self, name: &str) -> Self {
        self.item("prompts", &format!(r#"{{"name":"{name}","description":"Scripted: {name}"}}"#))
    }

    #[must_use]
    pub fn resource(self, uri: &str) -> Self {
        self.item("resources", &format!(r#"{{"uri":"{uri}","name":"{uri}","mimeType":"text/plain"}}"#))
    }

    #[must_use]
    pub fn template(self, template: &str) -> Self {
        self.item("resourceTemplates", &format!(r#"{{"uriTemplate":"{template}","name":"{template}"}}"#))
    }

    /// Adds a raw item to the list result whose field is `tools`, `prompts`, `resources` or `resourceTemplates`.
    #[must_use]
    pub fn item(mut self, field: &'static str, item: &str) -> Self {
        self.lists.entry(field).or_default().push(item.to_owned());
        self
    }

    /// Lists have at most this many items a page.
    #[must_use]
    pub fn page(mut self, items: usize) -> Self {
        self.page = items;
        self
    }

    /// The raw `capabilities` of the `initialize` result.
    #[must_use]
    pub fn capabilities(mut self, capabilities: &str) -> Self {
        self.capabilities = capabilities.to_owned();
        self
    }

    #[must_use]
    pub fn instructions(mut self, text: &str) -> Self {
        self.instructions = Some(text.to_owned());
        self
    }

    /// GET is answered with 405, as by a server that never speaks first.
    #[must_use]
    pub fn without_get_stream(mut self) -> Self {
        self.get_stream = false;
        self
    }

    /// No session id is given or wanted.
    #[must_use]
    pub fn without_sessions(mut self) -> Self {
        self.sessions = false;
        self
    }

    /// A server of 2026-07-28 and of nothing else.
    #[must_use]
    pub fn modern(mut self) -> Self {
        self.era = modern::Era::Modern;
        self
    }

    /// A server of 2026-07-28 and of the revisions before.
    #[must_use]
    pub fn of_both_eras(mut self) -> Self {
        self.era = modern::Era::Both;
        self
    }

    /// What lists say of how long and by whom they may be kept, in the modern era.
    #[must_use]
    pub fn cached(mut self, ttl_ms: u64, scope: &'static str) -> Self {
        self.cache = (ttl_ms, scope);
        self
    }

    pub async fn start(self) -> Backend {
        self.serve("127.0.0.1:0".parse().expect("an address")).await
    }

    /// Starts at a given address, to stand in for a backend that comes back.
    pub async fn start_at(self, addr: SocketAddr) -> Backend {
        self.serve(addr).await
    }

    /// Serves the HTTP+SSE transport of 2024-11-05 at `/sse`.
    pub async fn start_legacy_sse(self) -> Backend {
        self.serve("127.0.0.1:0".parse().expect("an address")).await
    }

    async fn serve(self, addr: SocketAddr) -> Backend {
        let listener = TcpListener::bind(addr).await.unwrap_or_else(|error| panic!("{addr}: {error}"));
        let addr = listener.local_addr().expect("a bound socket has an address");
        let state = Arc::new(State {
            built: self,
            log: Mutex::default(),
            changed: Notify::new(),
            sessions: Mutex::default(),
            waiting: Mutex::default(),
            count: AtomicUsize::new(0),
            abandoned: AtomicUsize::new(0),
            connections: AtomicUsize::new(0),
            listens: Mutex::default(),
        });
        let accept = tokio::spawn(http::accept(listener, state.clone())).abort_handle();
        Backend { addr, state, accept }
    }
}

/// A socket that accepts connections and never says a word: what a hung server looks like.
pub struct Hole {
    pub addr: SocketAddr,
    accept: AbortHandle,
}

impl Hole {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("the loopback has free ports");
        let addr = listener.local_addr().expect("a bound socket has an address");
        let accept = tokio::spawn(async move {
            let mut held = Vec::new();
            while let Ok((socket, _)) = listener.accept().await {
                held.push(socket);
            }
        });
        Self { addr, accept: accept.abort_handle() }
    }

    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.addr)
    }
}

impl Drop for Hole {
    fn drop(&mut self) {
        self.accept.abort();
    }
}

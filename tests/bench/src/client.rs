//! A client of MCP over HTTP, on raw hyper: a session with one connection that is kept. It does no more than is needed to call and to
//! know that the answer is the right one.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, header};
use http_body_util::{BodyExt, Full};
use hyper::{
    body::Incoming,
    client::conn::http1::{self, SendRequest},
};
use hyper_util::rt::TokioIo;
use tokio::{
    net::TcpStream,
    task::JoinHandle,
    time::{Instant, timeout},
};

/// What a legacy client asks for. A server may answer with an earlier one.
const LEGACY: &str = "2025-11-25";
const MODERN: &str = "2026-07-28";
const META: &str = concat!(
    r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"#,
    r#""io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"}}"#
);
/// One answer may take so long.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pages of one list.
const PAGES: usize = 64;

/// Sessions, or a request that says everything itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Era {
    Legacy,
    Modern,
}

/// Where a server is.
#[derive(Clone, Debug)]
pub struct Target {
    pub address: SocketAddr,
    pub path: String,
    /// What the Host header says.
    pub host: String,
}

impl Target {
    pub fn new(address: SocketAddr, path: &str) -> Target {
        Target { address, path: path.to_owned(), host: address.to_string() }
    }

    /// From `http://HOST:PORT/PATH`.
    pub fn parse(url: &str) -> Result<Target> {
        let uri: http::Uri = url.parse().with_context(|| url.to_owned())?;
        let authority = uri.authority().with_context(|| format!("{url} has no host"))?;
        if uri.scheme_str() != Some("http") {
            bail!("{url}: only http:// can be measured");
        }
        let place = (authority.host().to_owned(), authority.port_u16().unwrap_or(80));
        let address = std::net::ToSocketAddrs::to_socket_addrs(&place)?.next().with_context(|| format!("{url} has no address"))?;
        Ok(Target { address, path: uri.path().to_owned(), host: authority.as_str().to_owned() })
    }
}

/// A connection that is kept.
#[derive(Debug)]
struct Connection {
    sender: SendRequest<Full<Bytes>>,
    task: JoinHandle<()>,
}

impl Connection {
    async fn open(target: &Target) -> Result<Connection> {
        let socket = TcpStream::connect(target.address).await?;
        socket.set_nodelay(true)?;
        let (sender, connection) = http1::handshake(TokioIo::new(socket)).await?;
        let task = tokio::spawn(async move {
            let _ = connection.await;
        });
        Ok(Connection { sender, task })
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// One client of a server.
#[derive(Debug)]
pub struct Session {
    target: Arc<Target>,
    era: Era,
    headers: HeaderMap,
    connection: Option<Connection>,
    /// The stream that the server may speak on, and its connection.
    stream: Option<(Connection, Response<Incoming>)>,
    next: u64,
}

/// An answer, whole, and how long it took.
#[derive(Debug)]
pub struct Answer {
    pub body: Bytes,
    pub took: Duration,
}

impl Session {
    /// Connects and says what the era wants said first.
    ///
    /// # Errors
    /// Also where the server does not speak the era.
    pub async fn open(target: &Arc<Target>, era: Era) -> Result<Session> {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_str(&target.host)?);
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        let connection = Some(Connection::open(target).await?);
        let mut session = Session { target: target.clone(), era, headers, connection, stream: None, next: 0 };
        match era {
            Era::Legacy => session.initialize().await?,
            Era::Modern => {
                session.headers.insert("mcp-protocol-version", HeaderValue::from_static(MODERN));
                let answer = session.request("server/discover", "", None).await?;
                if !contains(&answer.body, "supportedVersions") {
                    bail!("server/discover was answered with {}", start(&answer.body));
                }
            }
        }
        Ok(session)
    }

    async fn initialize(&mut self) -> Result<()> {
        let params = format!(r#""protocolVersion":"{LEGACY}","capabilities":{{}},"clientInfo":{{"name":"bench","version":"1"}}"#);
        let message = self.message("initialize", &params);
        let (response, _) = self.send(Method::POST, message, None).await?;
        let (status, session) = (response.status(), response.headers().get("mcp-session-id").cloned());
        let body = timeout(PATIENCE, response.into_body().collect()).await??.to_bytes();
        if !status.is_success() || !contains(&body, "\"result\"") {
            bail!("initialize was answered with {status}: {}", start(&body));
        }
        if let Some(session) = session {
            self.headers.insert("mcp-session-id", session);
        }
        let version = ["2025-11-25", "2025-06-18", "2025-03-26"].into_iter().find(|version| contains(&body, version));
        self.headers.insert("mcp-protocol-version", HeaderValue::from_static(version.unwrap_or(LEGACY)));
        let ready = Bytes::from_static(br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        let (response, _) = self.send(Method::POST, ready, None).await?;
        let status = response.status();
        timeout(PATIENCE, response.into_body().collect()).await??;
        if !status.is_success() {
            bail!("notifications/initialized was answered with {status}");
        }
        Ok(())
    }

    /// A request and its whole answer. `params` is what stands between the braces, `name` what the header `Mcp-Name` says.
    pub async fn request(&mut self, method: &str, params: &str, name: Option<&str>) -> Result<Answer> {
        let body = self.message(method, params);
        let mirrored = (self.era == Era::Modern).then_some((method, name));
        let (response, begun) = self.send(Method::POST, body, mirrored).await?;
        let status = response.status();
        let body = timeout(PATIENCE, response.into_body().collect()).await??.to_bytes();
        let took = begun.elapsed();
        if !status.is_success() {
            bail!("{method} was answered with {status}: {}", start(&body));
        }
        Ok(Answer { body, took })
    }

    /// A tool call; `arguments` is a JSON object.
    pub async fn call(&mut self, tool: &str, arguments: &str) -> Result<Answer> {
        self.request("tools/call", &format!(r#""name":"{tool}","arguments":{arguments}"#), Some(tool)).await
    }

    /// The names of all tools, over all pages, and the bytes of the answers.
    pub async fn list(&mut self) -> Result<(Vec<String>, usize)> {
        let (mut names, mut bytes, mut params) = (Vec::new(), 0, String::new());
        for _ in 0..PAGES {
            let answer = self.request("tools/list", &params, None).await?;
            bytes += answer.body.len();
            let message = message(&answer.body)?;
            let tools = message["result"]["tools"].as_array().with_context(|| format!("no tools in {}", start(&answer.body)))?;
            names.extend(tools.iter().filter_map(|tool| tool["name"].as_str().map(str::to_owned)));
            match &message["result"]["nextCursor"] {
                serde_json::Value::Null => break,
                cursor => params = format!(r#""cursor":{cursor}"#),
            }
        }
        Ok((names, bytes))
    }

    /// Opens the stream that the server may speak on.
    pub async fn listen(&mut self) -> Result<()> {
        let mut connection = Connection::open(&self.target).await?;
        let request = self.build(Method::GET, Bytes::new(), None)?;
        let response = timeout(PATIENCE, connection.sender.send_request(request)).await??;
        if !response.status().is_success() {
            bail!("GET was answered with {}", response.status());
        }
        self.stream = Some((connection, response));
        Ok(())
    }

    pub fn target(&self) -> Arc<Target> {
        self.target.clone()
    }

    /// Closes its connection. The next request opens another.
    pub fn hang_up(&mut self) {
        self.connection = None;
    }

    /// Ends it. Servers that have no DELETE are left as they are.
    pub async fn end(mut self) -> Result<()> {
        if self.headers.contains_key("mcp-session-id") {
            self.stream = None;
            let (response, _) = self.send(Method::DELETE, Bytes::new(), None).await?;
            timeout(PATIENCE, response.into_body().collect()).await??;
        }
        Ok(())
    }

    fn message(&mut self, method: &str, params: &str) -> Bytes {
        self.next += 1;
        let params = match (self.era, params) {
            (Era::Legacy, params) => params.to_owned(),
            (Era::Modern, "") => META.to_owned(),
            (Era::Modern, params) => format!("{params},{META}"),
        };
        format!(r#"{{"jsonrpc":"2.0","id":{},"method":"{method}","params":{{{params}}}}}"#, self.next).into()
    }

    fn build(&self, method: Method, body: Bytes, mirrored: Option<(&str, Option<&str>)>) -> Result<Request<Full<Bytes>>> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = self.target.path.parse()?;
        *request.headers_mut() = self.headers.clone();
        if let Some((method, name)) = mirrored {
            request.headers_mut().insert("mcp-method", HeaderValue::from_str(method)?);
            if let Some(name) = name {
                request.headers_mut().insert("mcp-name", HeaderValue::from_str(name)?);
            }
        }
        Ok(request)
    }

    async fn send(&mut self, method: Method, body: Bytes, mirrored: Option<(&str, Option<&str>)>) -> Result<(Response<Incoming>, Instant)> {
        let request = self.build(method, body, mirrored)?;
        if self.connection.as_ref().is_none_or(|connection| connection.sender.is_closed()) {
            self.connection = Some(Connection::open(&self.target).await?);
        }
        let connection = self.connection.as_mut().context("it was just opened")?;
        let begun = Instant::now();
        timeout(PATIENCE, connection.sender.ready()).await??;
        let response = timeout(PATIENCE, connection.sender.send_request(request)).await.context("no answer")??;
        Ok((response, begun))
    }
}

/// Whether `text` is in the body.
pub fn contains(body: &[u8], text: &str) -> bool {
    memchr::memmem::find(body, text.as_bytes()).is_some()
}

/// How often `text` is in the body.
pub fn count(body: &[u8], text: &str) -> usize {
    memchr::memmem::find_iter(body, text.as_bytes()).count()
}

/// The message in a body, the last one where it is a stream of events.
pub fn message(body: &[u8]) -> Result<serde_json::Value> {
    let text = std::str::from_utf8(body)?;
    if text.trim_start().starts_with('{') {
        return Ok(serde_json::from_str(text)?);
    }
    let last = text.lines().filter_map(|line| line.strip_prefix("data:")).rfind(|data| data.trim_start().starts_with('{'));
    Ok(serde_json::from_str(last.with_context(|| format!("no message in {}", start(body)))?)?)
}

/// The beginning of a body, for messages.
fn start(body: &[u8]) -> String {
    String::from_utf8_lossy(&body[..body.len().min(200)]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_found_in_json_and_in_events() {
        assert_eq!(message(b" {\"id\":1}").expect("JSON")["id"], 1);
        let events = b"id: 1\ndata:\n\nevent: message\ndata: {\"method\":\"x\"}\n\ndata: {\"id\":2}\n\n";
        assert_eq!(message(events).expect("an event")["id"], 2);
        assert!(message(b"data: hello\n\n").is_err());
        assert_eq!(count(events, "data: "), 2);
    }

    #[test]
    fn an_address_is_taken_from_a_url() {
        let target = Target::parse("http://127.0.0.1:8808/mcp").expect("a URL");
        assert_eq!((target.address.port(), &*target.path, &*target.host), (8808, "/mcp", "127.0.0.1:8808"));
        assert!(Target::parse("https://127.0.0.1/mcp").is_err());
        assert!(Target::parse("nonsense").is_err());
    }
}

//! The tour's client: MCP over streamable HTTP, revision 2025-11-25, raw enough to show statuses and to leave out a header on
//! purpose. It reads what a peer sends within a bound and a deadline, and knows nothing of the gateway's insides.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use bytes::{Bytes, BytesMut};
use http::{Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::{Client as HttpClient, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde_json::{Value, json};

use crate::protocol::sse::Decoder;

const VERSION: &str = "2025-11-25";
const SESSION_ID: &str = "mcp-session-id";
/// How long one request may take with its answer. Every call of the tour is done in well under a second.
const DEADLINE: Duration = Duration::from_secs(20);
/// The largest answer read, in bytes.
const MAX_ANSWER: usize = 1 << 20;

/// An MCP endpoint.
#[derive(Debug, Clone)]
pub struct Endpoint {
    http: HttpClient<HttpConnector, Full<Bytes>>,
    uri: Uri,
}

/// What came back from one POST.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    /// The `Mcp-Session-Id` header.
    pub session: Option<String>,
    /// The messages of the body in the order in which they came.
    pub messages: Vec<Message>,
    /// The body where it was not an event stream, for a person to read.
    pub text: String,
}

/// A message and when it came, counted from when the request was sent.
#[derive(Debug)]
pub struct Message {
    pub value: Value,
    pub after: Duration,
}

/// An open session.
#[derive(Debug)]
pub struct Session {
    endpoint: Endpoint,
    id: String,
    last_request: u64,
    /// The server's name, as it gave it.
    pub server: String,
}

/// The answer to a request, and the notifications that came before it.
#[derive(Debug)]
pub struct Reply {
    /// The `result`, or the `error` object.
    pub outcome: Result<Value, Value>,
    pub before: Vec<Message>,
    pub took: Duration,
}

impl Endpoint {
    /// The endpoint at an `http` URL. Connects when it is first used.
    ///
    /// # Errors
    ///
    /// When the URL is none.
    pub fn new(url: &str) -> anyhow::Result<Self> {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let http = HttpClient::builder(TokioExecutor::new()).build(connector);
        Ok(Self { http, uri: url.parse().with_context(|| format!("'{url}' is not a URL"))? })
    }

    /// Opens a session: `initialize`, then `notifications/initialized`.
    ///
    /// # Errors
    ///
    /// When the server does not answer as the handshake wants it, with what it answered.
    pub async fn open(&self) -> anyhow::Result<Session> {
        let params = json!({
            "protocolVersion": VERSION,
            "capabilities": {},
            "clientInfo": { "name": "lockgate-demo", "version": env!("CARGO_PKG_VERSION") },
        });
        let answer = self.post(None, &request(0, "initialize", params)).await?;
        let Some(id) = answer.session.clone() else {
            bail!("initialize was answered {} without a session id: {}", answer.status, answer.text)
        };
        let reply = answer.reply(0)?;
        let result = reply.outcome.map_err(|error| anyhow::anyhow!("initialize failed: {error}"))?;
        let server = result["serverInfo"]["name"].as_str().unwrap_or_default().to_owned();
        let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        let accepted = self.post(Some(&id), &initialized).await?;
        if accepted.status != StatusCode::ACCEPTED {
            bail!("notifications/initialized was answered {}: {}", accepted.status, accepted.text)
        }
        Ok(Session { endpoint: self.clone(), id, last_request: 0, server })
    }

    /// Sends one message, with the session id given or with none.
    ///
    /// # Errors
    ///
    /// When no whole answer came within the deadline. A status of 4xx or 5xx is an answer.
    pub async fn post(&self, session: Option<&str>, message: &Value) -> anyhow::Result<Answer> {
        let body = Full::new(Bytes::from(message.to_string()));
        let request = self.request(Method::POST, session)?.body(body)?;
        let id = message.get("id");
        let started = Instant::now();
        let answer = async {
            let response = self.http.request(request).await?;
            read(response, id, started).await
        };
        match tokio::time::timeout(DEADLINE, answer).await {
            Ok(answer) => answer.with_context(|| format!("POST {}", self.uri)),
            Err(_) => bail!("POST {}: no answer within {} s", self.uri, DEADLINE.as_secs()),
        }
    }

    fn request(&self, method: Method, session: Option<&str>) -> anyhow::Result<http::request::Builder> {
        let mut request = Request::builder()
            .method(method)
            .uri(self.uri.clone())
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json, text/event-stream");
        if let Some(session) = session {
            request = request.header(SESSION_ID, session).header("mcp-protocol-version", VERSION);
        }
        Ok(request)
    }
}

impl Session {
    /// The session id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Sends a request and waits for its answer.
    ///
    /// # Errors
    ///
    /// When the HTTP status is not 200 or the answer is missing. An error of JSON-RPC is an outcome.
    pub async fn request(&mut self, method: &str, params: Value) -> anyhow::Result<Reply> {
        self.last_request += 1;
        let id = self.last_request;
        self.endpoint.post(Some(&self.id), &request(id, method, params)).await?.reply(id)
    }

    /// Calls a tool; the outcome is an error also where the tool itself says that it failed.
    ///
    /// # Errors
    ///
    /// As [`Session::request`].
    pub async fn call(&mut self, tool: &str, arguments: Value, meta: Value) -> anyhow::Result<Reply> {
        let params = json!({ "name": tool, "arguments": arguments, "_meta": meta });
        let mut reply = self.request("tools/call", params).await?;
        if let Ok(result) = &reply.outcome
            && result["isError"] == json!(true)
        {
            reply.outcome = Err(result.clone());
        }
        Ok(reply)
    }

    /// Ends the session with DELETE and returns the status.
    ///
    /// # Errors
    ///
    /// When no answer came within the deadline.
    pub async fn close(&self) -> anyhow::Result<StatusCode> {
        let request = self.endpoint.request(Method::DELETE, Some(&self.id))?.body(Full::default())?;
        let response = tokio::time::timeout(DEADLINE, self.endpoint.http.request(request));
        Ok(response.await.context("DELETE: no answer")??.status())
    }
}

impl Answer {
    fn reply(self, id: u64) -> anyhow::Result<Reply> {
        if self.status != StatusCode::OK {
            bail!("HTTP {}: {}", self.status, self.text)
        }
        let mut messages = self.messages;
        match messages.pop() {
            Some(last) if last.value["id"] == json!(id) => Ok(Reply {
                outcome: match last.value.get("error") {
                    Some(error) => Err(error.clone()),
                    None => Ok(last.value["result"].clone()),
                },
                before: messages,
                took: last.after,
            }),
            Some(last) => bail!("the last message was not the answer to request {id}: {}", last.value),
            None => bail!("HTTP 200 without a message: {}", self.text),
        }
    }
}

fn request(id: u64, method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

/// Reads a response until its end, or until the answer to `id` has come: a server should end the stream then, but need not.
async fn read(response: http::Response<Incoming>, id: Option<&Value>, started: Instant) -> anyhow::Result<Answer> {
    let (head, mut body) = response.into_parts();
    let field = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let kind = field("content-type").unwrap_or_default();
    let mut answer = Answer { status: head.status, session: field(SESSION_ID), messages: Vec::new(), text: String::new() };
    if !kind.starts_with("text/event-stream") {
        let mut text = BytesMut::new();
        while let Some(frame) = body.frame().await {
            if let Ok(data) = frame?.into_data() {
                text.extend_from_slice(&data);
            }
            check(text.len())?;
        }
        answer.text = String::from_utf8_lossy(&text).into_owned();
        if let Ok(value) = serde_json::from_slice(&text) {
            answer.messages.push(Message { value, after: started.elapsed() });
        }
        return Ok(answer);
    }
    let mut events = Decoder::new(MAX_ANSWER);
    let mut length = 0;
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else {
            continue;
        };
        length += data.len();
        check(length)?;
        events.push(&data);
        while let Some(event) = events.next_event()? {
            let Some(message) = event.message() else {
                continue;
            };
            let value: Value = serde_json::from_slice(message).context("an event that is not JSON")?;
            let answered = value.get("method").is_none() && id.is_some() && value.get("id") == id;
            answer.messages.push(Message { value, after: started.elapsed() });
            if answered {
                return Ok(answer);
            }
        }
    }
    Ok(answer)
}

fn check(length: usize) -> anyhow::Result<()> {
    if length > MAX_ANSWER {
        bail!("an answer of more than {MAX_ANSWER} bytes")
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::demo_server::{ANY_LOOPBACK_PORT, DemoServer, HttpServer};

    async fn serve(server: DemoServer) -> (HttpServer, Endpoint) {
        let server = HttpServer::start(server, ANY_LOOPBACK_PORT).await.expect("a free port");
        let endpoint = Endpoint::new(&server.url()).expect("a URL");
        (server, endpoint)
    }

    #[tokio::test]
    async fn progress_comes_in_order_and_before_the_answer() {
        let (server, endpoint) = serve(DemoServer::Text).await;
        let mut session = endpoint.open().await.expect("a handshake");
        let arguments = json!({ "text": "a\nb\nc\n", "steps": 3, "pause_ms": 1 });
        let meta = json!({ "progressToken": 7 });
        let reply = session.call("analyze", arguments, meta).await.expect("an answer");
        let progress: Vec<_> = reply.before.iter().map(|m| m.value["params"]["progress"].as_f64()).collect();
        assert_eq!(progress, [Some(1.0), Some(2.0), Some(3.0)]);
        assert_eq!(reply.outcome.expect("it succeeds")["structuredContent"]["words"], json!(3));
        server.stop().await;
    }

    #[tokio::test]
    async fn the_notes_of_one_http_session_are_not_those_of_another() {
        let (server, endpoint) = serve(DemoServer::Notes).await;
        let mut a = endpoint.open().await.expect("a handshake");
        let mut b = endpoint.open().await.expect("a handshake");
        assert_eq!(a.server, "lockgate-demo-notes");
        let note = json!({ "text": "mine" });
        let added = a.call("add_note", note, json!({})).await.expect("an answer");
        assert_eq!(added.outcome.expect("it succeeds")["structuredContent"]["uri"], json!("notes://1"));
        let read = json!({ "uri": "notes://1" });
        let read_by = async |session: &mut Session| session.request("resources/read", read.clone()).await.expect("an answer").outcome;
        assert_eq!(read_by(&mut a).await.expect("its own")["contents"][0]["text"], json!("mine"));
        assert_eq!(read_by(&mut b).await.expect_err("not its own")["code"], json!(-32002));
        let failed = b.call("delete_note", json!({ "id": 1 }), json!({})).await.expect("an answer");
        assert!(failed.outcome.is_err());
        server.stop().await;
    }

    #[tokio::test]
    async fn statuses_of_requests_without_a_session_are_seen_as_they_are() {
        let (server, endpoint) = serve(DemoServer::Time).await;
        let session = endpoint.open().await.expect("a handshake");
        let list = request(1, "tools/list", json!({}));
        let status = async |id| endpoint.post(id, &list).await.expect("an answer").status;
        assert_eq!(status(None).await, StatusCode::BAD_REQUEST);
        assert_eq!(status(Some("unknown")).await, StatusCode::NOT_FOUND);
        assert_eq!(status(Some(session.id())).await, StatusCode::OK);
        assert!(session.close().await.expect("an answer").is_success());
        assert_eq!(status(Some(session.id())).await, StatusCode::NOT_FOUND);
        server.stop().await;
        assert!(endpoint.post(None, &list).await.is_err());
    }
}

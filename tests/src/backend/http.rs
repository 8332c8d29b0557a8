//! The HTTP side of a scripted backend: both transports, the record of requests, and what a backend does without a script.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::{
    net::TcpListener,
    sync::{mpsc, oneshot},
    task::{AbortHandle, JoinSet},
};

use super::{
    Call, Seen, State,
    call::{Body, Out, set, stream_response},
    lock,
    modern::{self, Era},
};
use crate::raw::{self, Message};

pub(super) async fn accept(listener: TcpListener, state: Arc<State>) {
    // Dropped with this task: the connections of a backend end with it.
    let mut connections = JoinSet::new();
    while let Ok((socket, _)) = listener.accept().await {
        let _ = socket.set_nodelay(true);
        let connection = state.connections.fetch_add(1, Ordering::SeqCst);
        let state = state.clone();
        connections.spawn(async move {
            let service = service_fn(move |request| serve(state.clone(), request, connection));
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(socket), service).await;
        });
        while connections.try_join_next().is_some() {}
    }
}

/// An error closes the connection without an answer.
async fn serve(state: Arc<State>, request: Request<Incoming>, connection: usize) -> Result<Response<Body>, &'static str> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(|_| "the body broke off")?.to_bytes();
    let message = Message::parse(&body);
    let header = head.headers.get("mcp-session-id").and_then(|value| value.to_str().ok()).map(str::to_owned);
    let query = head.uri.query().and_then(|query| query.strip_prefix("session=")).map(str::to_owned);
    let seen = Seen {
        verb: head.method.to_string(),
        path: head.uri.path().to_owned(),
        headers: head.headers,
        method: message.and_then(|message| message.method),
        session: header.or(query),
        connection,
        body,
    };
    lock(&state.log).push(seen.clone());
    state.changed.notify_waiters();
    if let Some(script) = state.built.scripts.get(&seen.verb).cloned() {
        return run(state, seen, script).await;
    }
    match (seen.verb.as_str(), seen.path.as_str()) {
        ("POST", "/mcp") => post(state, seen).await,
        ("GET" | "DELETE", "/mcp") if state.built.era == Era::Modern => Ok(plain(405, "POST only")),
        ("GET", "/mcp") => Ok(get(&state, &seen)),
        ("DELETE", "/mcp") => {
            let gone = seen.session.and_then(|id| lock(&state.sessions).remove(&id));
            Ok(plain(if gone.is_some() { 200 } else { 404 }, ""))
        }
        ("GET", "/sse") => Ok(open_legacy(&state)),
        ("POST", "/messages") => Ok(post_legacy(state, seen)),
        _ => Ok(plain(404, "no such path")),
    }
}

async fn post(state: Arc<State>, seen: Seen) -> Result<Response<Body>, &'static str> {
    let Some(message) = Message::parse(&seen.body) else {
        return Ok(plain(400, "Parse error"));
    };
    match state.built.era {
        Era::Modern | Era::Both if seen.is_modern() => return modern::post(state, seen).await,
        Era::Modern => return Ok(modern::refuse_older(&seen)),
        Era::Legacy | Era::Both => {}
    }
    let initialize = seen.method.as_deref() == Some("initialize");
    if state.built.sessions && !initialize {
        match &seen.session {
            None => return Ok(plain(400, "Bad Request: Mcp-Session-Id header is required")),
            Some(id) if !lock(&state.sessions).contains_key(id) => {
                return Ok(plain(404, "Session not found"));
            }
            Some(_) => {}
        }
    }
    match (&seen.method, message.id) {
        (None, Some(id)) => {
            let key = (seen.session.clone().unwrap_or_default(), id.get().to_owned());
            respond(&state, &key, &seen);
            Ok(plain(202, ""))
        }
        (Some(method), None) => match state.built.scripts.get(method).cloned() {
            Some(script) => run(state, seen, script).await,
            None => Ok(plain(202, "")),
        },
        (Some(method), Some(_)) => match state.built.scripts.get(method).cloned() {
            Some(script) => run(state, seen, script).await,
            None => {
                let script: super::Script = Arc::new(|call| Box::pin(async move { by_default(call) }));
                run(state, seen, script).await
            }
        },
        (None, None) => Ok(plain(400, "Invalid Request")),
    }
}

fn respond(state: &State, key: &(String, String), seen: &Seen) {
    let waiting = lock(&state.waiting).remove(key);
    if let Some(waiting) = waiting {
        let _ = waiting.send(String::from_utf8_lossy(&seen.body).into_owned());
    }
}

/// Runs a script in a task that ends with the client's connection.
pub(super) async fn run(state: Arc<State>, seen: Seen, script: super::Script) -> Result<Response<Body>, &'static str> {
    let (send, receive) = oneshot::channel();
    let answered = Arc::new(AtomicBool::new(false));
    let initialize = seen.method.as_deref() == Some("initialize");
    let init = if initialize { seen.params() } else { Value::Null };
    let call = Call { seen, state: state.clone(), out: Out::Response(send), answered: answered.clone() };
    let task = tokio::spawn(script(call)).abort_handle();
    let guard = Guard { task, state: state.clone(), answered };
    let mut response = receive.await.map_err(|_| "the script gave no answer")?;
    if initialize && state.built.sessions && response.status().is_success() {
        let id = state.new_session(init, None);
        set(&mut response, &[("mcp-session-id", &id)]);
    }
    // The script may still be writing: it lives as long as the body does.
    Ok(response.map(|body| {
        BodyExt::boxed(body.map_frame(move |frame| {
            let _held = &guard;
            frame
        }))
    }))
}

struct Guard {
    task: AbortHandle,
    state: Arc<State>,
    answered: Arc<AtomicBool>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.answered.load(Ordering::SeqCst) {
            self.state.abandoned.fetch_add(1, Ordering::SeqCst);
        }
        self.task.abort();
        self.state.changed.notify_waiters();
    }
}

fn get(state: &State, seen: &Seen) -> Response<Body> {
    if !state.built.get_stream {
        return plain(405, "no stream here");
    }
    let mut sessions = lock(&state.sessions);
    let Some(session) = seen.session.as_ref().and_then(|id| sessions.get_mut(id)) else {
        return plain(404, "Session not found");
    };
    let (sender, receiver) = mpsc::channel(64);
    session.stream = Some(sender);
    stream_response(receiver)
}

fn open_legacy(state: &State) -> Response<Body> {
    let (sender, receiver) = mpsc::channel::<Bytes>(64);
    let id = state.new_session(Value::Null, Some(sender.clone()));
    let endpoint = format!("event: endpoint\ndata: /messages?session={id}\n\n");
    let _ = sender.try_send(endpoint.into());
    stream_response(receiver)
}

fn post_legacy(state: Arc<State>, seen: Seen) -> Response<Body> {
    let Some(message) = Message::parse(&seen.body) else {
        return plain(400, "Parse error");
    };
    let id = seen.session.clone().unwrap_or_default();
    let Some(stream) = lock(&state.sessions).get(&id).and_then(|session| session.stream.clone()) else {
        return plain(404, "Session not found");
    };
    match (&seen.method, message.id) {
        (None, Some(reply)) => respond(&state, &(id, reply.get().to_owned()), &seen),
        (Some(method), Some(_)) => {
            if method == "initialize"
                && let Some(session) = lock(&state.sessions).get_mut(&id)
            {
                session.init = seen.params();
            }
            let script = state.built.scripts.get(method).cloned();
            let call = Call { seen, state, out: Out::Shared(stream), answered: Arc::default() };
            match script {
                Some(script) => drop(tokio::spawn(script(call))),
                None => by_default(call),
            }
        }
        _ => {}
    }
    plain(202, "Accepted")
}

/// What a backend does when nothing else is scripted.
pub(super) fn by_default(call: Call) {
    let built = call.state.built.clone();
    let method = call.seen.method.clone().unwrap_or_default();
    let field = match method.as_str() {
        "tools/list" => "tools",
        "prompts/list" => "prompts",
        "resources/list" => "resources",
        "resources/templates/list" => "resourceTemplates",
        _ => "",
    };
    match method.as_str() {
        "initialize" => {
            let asked = call.seen.params()["protocolVersion"].as_str().unwrap_or_default().to_owned();
            let version = if asked.as_str() < "2026" { asked } else { "2025-11-25".to_owned() };
            let info = json!({ "name": built.name, "version": "1" });
            let instructions = built.instructions.map(|text| format!(r#","instructions":{}"#, json!(text))).unwrap_or_default();
            let capabilities = built.capabilities;
            call.result(&format!(r#"{{"protocolVersion":"{version}","capabilities":{capabilities},"serverInfo":{info}{instructions}}}"#));
        }
        _ if !field.is_empty() => {
            let items = built.lists.get(field).cloned().unwrap_or_default();
            let from: usize = match call.seen.params()["cursor"].as_str() {
                None => 0,
                Some(cursor) => match cursor.strip_prefix("from ").and_then(|from| from.parse().ok()) {
                    Some(from) => from,
                    None => return call.error(-32602, "Invalid cursor"),
                },
            };
            let page: Vec<_> = items.iter().skip(from).take(built.page).cloned().collect();
            let next = from.saturating_add(built.page);
            let cursor = if next < items.len() { format!(r#","nextCursor":"from {next}""#) } else { String::new() };
            let cache = match (call.seen.is_modern(), built.cache) {
                (true, (ttl, scope)) => format!(r#","ttlMs":{ttl},"cacheScope":"{scope}""#),
                (false, _) => String::new(),
            };
            call.result(&format!(r#"{{"{field}":[{}]{cursor}{cache}}}"#, page.join(",")));
        }
        "tools/call" => {
            let arguments = raw::member(call.seen.params_raw(), "arguments").unwrap_or("null").to_owned();
            let name = json!(call.target());
            let known = built
                .lists
                .get("tools")
                .is_some_and(|tools| tools.iter().any(|tool| raw::member(tool, "name") == Some(name.to_string().as_str())));
            if !known {
                return call.error(-32602, "Unknown tool");
            }
            let backend = json!(built.name);
            call.result(&format!(
                r#"{{"content":[{{"type":"text","text":{name}}}],"structuredContent":{{"backend":{backend},"arguments":{arguments}}}}}"#
            ));
        }
        "prompts/get" => {
            let text = json!(format!("{} of {}", call.target(), built.name));
            call.result(&format!(r#"{{"messages":[{{"role":"user","content":{{"type":"text","text":{text}}}}}]}}"#));
        }
        "resources/read" => {
            let (uri, text) = (json!(call.target()), json!(format!("{} of {}", call.target(), built.name)));
            call.result(&format!(r#"{{"contents":[{{"uri":{uri},"mimeType":"text/plain","text":{text}}}]}}"#));
        }
        "completion/complete" => call.result(r#"{"completion":{"values":["one","two"],"hasMore":false}}"#),
        "ping" | "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe" => call.result("{}"),
        _ => call.error(-32601, "Method not found"),
    }
}

pub(super) fn plain(status: u16, text: &str) -> Response<Body> {
    let mut response = Response::new(BodyExt::boxed(Full::new(Bytes::copy_from_slice(text.as_bytes()))));
    *response.status_mut() = StatusCode::from_u16(status).expect("a status");
    response
}

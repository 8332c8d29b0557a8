//! A scripted backend as a server of 2026-07-28: no sessions, everything in each request, a stream for whoever listens.
//!
//! It holds requests against the rules that a gateway could break: version, method and name in headers and body, the metadata, and that
//! nothing of the older era is sent.

use std::sync::{Arc, atomic::Ordering};

use bytes::Bytes;
use http::Response;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{
    Backend, Call, Seen, State,
    call::{Body, event, set},
    http::{by_default, plain, run},
    lock,
};
use crate::raw;

pub const VERSION: &str = "2026-07-28";
pub const META: &str = "io.modelcontextprotocol/";

/// Which revisions a backend speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Era {
    Legacy,
    Modern,
    Both,
}

/// A `subscriptions/listen` that was acknowledged.
pub(super) struct Listen {
    id: String,
    filter: Value,
    stream: mpsc::Sender<Bytes>,
}

impl Seen {
    pub(super) fn is_modern(&self) -> bool {
        self.header("mcp-protocol-version") == Some(VERSION)
    }

    /// A member of `params._meta` that this revision defines.
    pub fn meta(&self, name: &str) -> Value {
        self.params()["_meta"][format!("{META}{name}")].clone()
    }
}

pub(super) async fn post(state: Arc<State>, seen: Seen) -> Result<Response<Body>, &'static str> {
    let Some(method) = seen.method.clone() else { return Ok(refusal(&seen, 400, -32600, "only requests")) };
    if seen.message().id.is_none() {
        return Ok(refusal(&seen, 400, -32600, "no notifications"));
    }
    let params = seen.params();
    let name = match method.as_str() {
        "tools/call" | "prompts/get" => params["name"].as_str(),
        "resources/read" => params["uri"].as_str(),
        _ => None,
    };
    let given = seen.header("mcp-name");
    // What is encoded the tests look at themselves.
    let same = given.is_some_and(|given| given.starts_with("=?base64?")) || given == name;
    if !seen.is_modern() || seen.meta("protocolVersion") != VERSION || seen.header("mcp-method") != Some(&method) || !same {
        return Ok(refusal(&seen, 400, -32020, "Header mismatch"));
    }
    if !seen.meta("clientCapabilities").is_object() || seen.session.is_some() {
        return Ok(refusal(&seen, 400, -32602, "no metadata, or a session"));
    }
    let script = state.built.scripts.get(&method).cloned();
    let script = script.unwrap_or_else(|| Arc::new(|call| Box::pin(default(call))));
    run(state, seen, script).await
}

/// What a server of this revision alone answers to an older client.
pub(super) fn refuse_older(seen: &Seen) -> Response<Body> {
    match seen.method.as_deref() {
        Some("initialize") => refusal(seen, 404, -32601, "Method not found"),
        _ => refusal(seen, 400, -32020, "MCP-Protocol-Version is missing"),
    }
}

fn refusal(seen: &Seen, status: u16, code: i64, message: &str) -> Response<Body> {
    let id = raw::Message::parse(&seen.body).and_then(|m| m.id.map(|id| id.get().to_owned()));
    let mut response = plain(status, "");
    set(&mut response, &[("content-type", "application/json")]);
    *response.body_mut() = BodyExt::boxed(Full::new(raw::error(&id.unwrap_or("null".to_owned()), code, message).into()));
    response
}

async fn default(call: Call) {
    match call.seen.method.as_deref() {
        Some("server/discover") => {
            let built = call.state.built.clone();
            let info = json!({ "name": built.name, "version": "1" });
            let instructions = built.instructions.map(|text| format!(r#","instructions":{}"#, json!(text))).unwrap_or_default();
            call.result(&format!(
                r#"{{"supportedVersions":["{VERSION}"],"capabilities":{}{instructions},"ttlMs":0,"cacheScope":"private","_meta":{{"{META}serverInfo":{info}}}}}"#,
                built.capabilities
            ));
        }
        Some("subscriptions/listen") => listen(call).await,
        _ => by_default(call),
    }
}

async fn listen(call: Call) {
    let (id, filter, state) = (call.id(), call.seen.params()["notifications"].clone(), call.state.clone());
    call.answered.store(true, Ordering::SeqCst);
    let stream = call.stream();
    stream.notify("notifications/subscriptions/acknowledged", &tagged(&id, &json!({ "notifications": filter }))).await;
    lock(&state.listens).push(Listen { id, filter, stream: stream.sender() });
    state.changed.notify_waiters();
    stream.closed().await;
}

fn tagged(id: &str, params: &Value) -> String {
    let mut params = params.clone();
    params["_meta"][format!("{META}subscriptionId")] = serde_json::from_str(id).expect("an id is JSON");
    params.to_string()
}

impl Backend {
    /// What those who listen now want to hear.
    pub fn listens(&self) -> Vec<Value> {
        lock(&self.state.listens).iter().filter(|listen| !listen.stream.is_closed()).map(|listen| listen.filter.clone()).collect()
    }

    /// Waits until exactly `count` streams are open and all satisfy `what`.
    pub async fn is_listened_to(&self, count: usize, what: impl Fn(&Value) -> bool) {
        crate::eventually(&format!("{count} subscriptions at the backend"), || {
            let open = self.listens();
            (open.len() == count && open.iter().all(&what)).then_some(())
        })
        .await;
    }

    /// Sends a notification, tagged as it has to be, to all who listen.
    pub async fn tell(&self, method: &str, params: Value) {
        let all: Vec<_> = lock(&self.state.listens).iter().map(|listen| (listen.id.clone(), listen.stream.clone())).collect();
        for (id, stream) in all {
            let _ = stream.send(event(None, &raw::notification(method, &tagged(&id, &params)))).await;
        }
    }

    /// Ends all streams of those who listen, as a server does that goes down in order.
    pub async fn end_listens(&self) {
        let all = std::mem::take(&mut *lock(&self.state.listens));
        for listen in all {
            let _ = listen.stream.send(event(None, &raw::result(&listen.id, r#"{"resultType":"complete"}"#))).await;
        }
    }
}

//! A client of 2026-07-28: every request stands for itself, with its `_meta` and the headers that repeat the body. A test may
//! leave out, add or falsify any of them.
//!
//! Each request has a TCP connection of its own, as with [`crate::client`], unless the client was put
//! [on one connection](Modern::on_one_connection). No answer may carry a session id, whatever it answers: the client itself
//! sees to that.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use serde_json::{Value, json};

use crate::{
    PATIENCE,
    client::{ACCEPT, Answer, Connection, Endpoint, Events, JSON, Reply},
    raw,
};

/// The revision without sessions.
pub const REVISION: &str = "2026-07-28";

/// What a request says about itself in `_meta`.
pub const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
pub const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
pub const CLIENT: &str = "io.modelcontextprotocol/clientInfo";
pub const LEVEL: &str = "io.modelcontextprotocol/logLevel";
/// What a notification of a listen stream says.
pub const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";
/// What a result may say.
pub const SERVER: &str = "io.modelcontextprotocol/serverInfo";
/// The extension for tasks.
pub const TASKS: &str = "io.modelcontextprotocol/tasks";

/// A client: where it speaks to, as whom, and what it can do.
#[derive(Clone)]
pub struct Modern {
    pub at: Endpoint,
    pub capabilities: Value,
    connection: Option<Arc<Connection>>,
    next: Arc<AtomicU64>,
}

impl Modern {
    /// A client that can do nothing but call.
    pub fn new(at: Endpoint) -> Self {
        Self { at, capabilities: json!({}), connection: None, next: Arc::new(AtomicU64::new(1)) }
    }

    /// The same client with these capabilities.
    #[must_use]
    pub fn able(mut self, capabilities: Value) -> Self {
        self.capabilities = capabilities;
        self
    }

    /// The same client on one connection, which it keeps: one request at a time.
    pub async fn on_one_connection(mut self) -> Self {
        self.connection = Some(Connection::open(self.at.addr).await);
        self
    }

    /// A request that is right in all respects until the test says otherwise.
    pub fn request(&self, method: &str, params: Value) -> Ask<'_> {
        let mut params = params;
        let meta = params.as_object_mut().and_then(|params| params.remove("_meta"));
        let ask = self.request_raw(method, &params.to_string());
        let members = meta.as_ref().and_then(Value::as_object).into_iter().flatten();
        members.fold(ask, |ask, (name, value)| ask.meta(name, value.clone()))
    }

    /// The same with params as they are to be sent: an object without `_meta`, which is put at its end.
    pub fn request_raw(&self, method: &str, params: &str) -> Ask<'_> {
        let mut headers = vec![("mcp-protocol-version".to_owned(), REVISION.to_owned()), ("mcp-method".to_owned(), method.to_owned())];
        let named = match method {
            "tools/call" | "prompts/get" => Some("name"),
            "resources/read" => Some("uri"),
            _ if method.starts_with("tasks/") => Some("taskId"),
            _ => None,
        };
        let name = named.and_then(|named| serde_json::from_str::<String>(raw::member(params, named)?).ok());
        headers.extend(name.map(|name| ("mcp-name".to_owned(), encoded(&name))));
        let meta = vec![
            (VERSION.to_owned(), json!(REVISION).to_string()),
            (CLIENT.to_owned(), json!({ "name": "lockgate-tests", "version": "1" }).to_string()),
            (CAPABILITIES.to_owned(), self.capabilities.to_string()),
        ];
        let id = self.next.fetch_add(1, Ordering::Relaxed).to_string();
        Ask { client: self, id, method: method.to_owned(), params: params.to_owned(), meta: Some(meta), headers }
    }

    pub async fn ask(&self, method: &str, params: Value) -> Answer {
        self.request(method, params).answer().await
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

    /// # Panics
    /// Unless the call is complete.
    pub async fn call(&self, tool: &str, arguments: Value) -> Value {
        let result = self.result("tools/call", json!({ "name": tool, "arguments": arguments })).await;
        assert_eq!(result["resultType"], "complete", "{result}");
        result
    }

    /// Every page of a list.
    pub async fn list(&self, method: &str, field: &str) -> Vec<Value> {
        let (mut items, mut params) = (Vec::new(), json!({}));
        for _ in 0..1000 {
            let page = self.result(method, params).await;
            assert_eq!(page["resultType"], "complete", "{page}");
            items.extend(page[field].as_array().unwrap_or_else(|| panic!("no {field} in {page}")).iter().cloned());
            match page.get("nextCursor") {
                None | Some(Value::Null) => return items,
                Some(cursor) => params = json!({ "cursor": cursor }),
            }
        }
        panic!("{method} has no last page");
    }

    /// The names in a list, as they are ordered.
    pub async fn names(&self, method: &str, field: &str) -> Vec<String> {
        let key = if field == "resources" { "uri" } else { "name" };
        let items = self.list(method, field).await;
        items.iter().map(|item| item[key].as_str().expect("items have names").to_owned()).collect()
    }

    /// Opens a `subscriptions/listen` with this raw id. Gives what was acknowledged, and the stream behind it.
    ///
    /// # Panics
    /// Unless the acknowledgement is the first message and carries the id.
    pub async fn listen(&self, id: &str, notifications: Value) -> (Value, Events) {
        let ask = self.request("subscriptions/listen", json!({ "notifications": notifications })).id(id);
        let mut events = ask.send().await.must_be(200).await.events();
        let first = events.message().await.expect("an acknowledgement").json();
        assert_eq!(first["method"], "notifications/subscriptions/acknowledged", "{first}");
        assert_eq!(subscription(&first), id, "{first}");
        (first["params"]["notifications"].clone(), events)
    }
}

/// The subscription id of a notification, as it is written in JSON; empty when there is none.
pub fn subscription(message: &Value) -> String {
    message["params"]["_meta"].get(SUBSCRIPTION).map(Value::to_string).unwrap_or_default()
}

/// A header value as the specification has it encoded: as it is where that is possible, else in Base64 between markers.
pub fn encoded(value: &str) -> String {
    let plain = value.bytes().all(|byte| (0x20..0x7f).contains(&byte)) && value.trim() == value && !value.starts_with("=?base64?");
    if plain { value.to_owned() } else { sentinel(value) }
}

/// A header value in Base64, needed or not.
pub fn sentinel(value: &str) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in value.as_bytes().chunks(3) {
        let bits = group.iter().fold(0, |bits, &byte| bits << 8 | u32::from(byte)) << (8 * (3 - group.len()));
        for at in 0..4 {
            let digit = bits >> (18 - 6 * at) & 63;
            text.push(if at <= group.len() { char::from(ALPHABET[digit as usize]) } else { '=' });
        }
    }
    format!("=?base64?{text}?=")
}

/// A request that is being put together.
#[must_use = "a request does nothing until it is sent"]
#[derive(Clone)]
pub struct Ask<'a> {
    client: &'a Modern,
    id: String,
    method: String,
    params: String,
    /// Members of `_meta`, raw.
    meta: Option<Vec<(String, String)>>,
    headers: Vec<(String, String)>,
}

impl Ask<'_> {
    /// The raw JSON of the id.
    pub fn id(mut self, id: &str) -> Self {
        id.clone_into(&mut self.id);
        self
    }

    /// Sets a member of `_meta`, in place of one that is there.
    pub fn meta(self, name: &str, value: Value) -> Self {
        self.meta_raw(name, &value.to_string())
    }

    pub fn meta_raw(mut self, name: &str, value: &str) -> Self {
        let members = self.meta.get_or_insert_default();
        members.retain(|(known, _)| known != name);
        members.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn without_meta(mut self, name: &str) -> Self {
        self.meta.get_or_insert_default().retain(|(known, _)| known != name);
        self
    }

    pub fn without_any_meta(mut self) -> Self {
        self.meta = None;
        self
    }

    /// Sets a header, in place of one that is there.
    pub fn header(self, name: &str, value: &str) -> Self {
        self.without_header(name).another_header(name, value)
    }

    /// Adds a header beside others of its name.
    pub fn another_header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn without_header(mut self, name: &str) -> Self {
        self.headers.retain(|(known, _)| known != name);
        self
    }

    /// Names another revision in both places.
    pub fn revision(self, revision: &str) -> Self {
        self.meta(VERSION, json!(revision)).header("mcp-protocol-version", revision)
    }

    pub fn body(&self) -> String {
        let Some(meta) = &self.meta else {
            return raw::request(&self.id, &self.method, &self.params);
        };
        let members: Vec<_> = meta.iter().map(|(name, value)| format!("{}:{value}", json!(name))).collect();
        let open = self.params.trim_end().strip_suffix('}').expect("params are an object");
        let comma = if open.trim() == "{" { "" } else { "," };
        raw::request(&self.id, &self.method, &format!(r#"{open}{comma}"_meta":{{{}}}}}"#, members.join(",")))
    }

    /// The head of the answer, for streams that are read, or left, by the test.
    ///
    /// # Panics
    /// When the answer carries a session id.
    pub async fn send(&self) -> Reply {
        self.send_body(self.body()).await
    }

    /// The headers of this request around any body.
    pub async fn send_body(&self, body: String) -> Reply {
        let own = self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let headers: Vec<_> = [JSON, ACCEPT].into_iter().chain(own).collect();
        let at = &self.client.at;
        let reply = match &self.client.connection {
            Some(connection) => at.send_on(connection, "POST", &headers, body).await,
            None => at.send("POST", &headers, body).await,
        };
        assert!(reply.header("mcp-session-id").is_none(), "{} was answered with a session id", self.method);
        reply
    }

    /// The answer. A stream has to end with it, and to be without event ids.
    pub async fn answer(&self) -> Answer {
        let reply = self.send().await;
        let answer = if reply.is_stream() {
            let mut events = reply.events();
            let answer = events.answer().await;
            events.ended(PATIENCE).await;
            answer
        } else {
            reply.answer().await
        };
        assert!(
            answer.before.iter().all(|event| event.id.is_none() && event.retry.is_none()),
            "there is no resumption in this era: {:?}",
            answer.before
        );
        answer
    }

    /// Sends it and wants this status and error, with the request's own id.
    #[track_caller]
    pub fn refused(&self, status: u16, code: i64) -> impl Future<Output = Value> {
        let (ask, caller) = (self.answer(), std::panic::Location::caller());
        let id = &self.id;
        async move {
            let answer = ask.await;
            let error = answer.message().error.map(|error| error.get().to_owned());
            let error: Value = error.and_then(|error| serde_json::from_str(&error).ok()).unwrap_or_default();
            let got = (answer.status, error["code"].as_i64());
            assert_eq!(got, (status, Some(code)), "{} (at {caller})", answer.raw);
            assert_eq!(answer.id_raw(), id, "{} (at {caller})", answer.raw);
            error
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_encoded_only_where_they_must_be() {
        assert_eq!(encoded("echo x"), "echo x");
        assert_eq!(encoded("日本"), "=?base64?5pel5pys?=");
        assert_eq!(encoded(" a"), "=?base64?IGE=?=");
        assert_eq!(encoded("=?base64?x"), sentinel("=?base64?x"));
        assert_eq!(sentinel("abcd"), "=?base64?YWJjZA==?=");
    }

    #[test]
    fn meta_is_put_at_the_end_of_params_as_they_are() {
        let client = Modern::new(Endpoint::new("http://127.0.0.1:1/mcp"));
        let ask = client.request_raw("tools/call", r#"{ "name":"t","arguments":{"z":1.0,"a":1} }"#).id("\"x\"").without_any_meta();
        assert_eq!(ask.body(), raw::request("\"x\"", "tools/call", r#"{ "name":"t","arguments":{"z":1.0,"a":1} }"#));
        let ask = ask.meta("k", json!(1));
        assert_eq!(ask.body(), raw::request("\"x\"", "tools/call", r#"{ "name":"t","arguments":{"z":1.0,"a":1} ,"_meta":{"k":1}}"#));
        let ask = client.request("tools/list", json!({ "_meta": { "own": 2 } })).without_meta(CLIENT);
        let value: Value = serde_json::from_str(&ask.body()).unwrap();
        assert_eq!(value["params"]["_meta"], json!({ VERSION: REVISION, CAPABILITIES: {}, "own": 2 }));
    }
}

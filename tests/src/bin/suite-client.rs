//! The gateway as the client under test of the conformance suite: `suite-client URL` starts it in front of the suite's server and drives it as
//! `MCP_CONFORMANCE_SCENARIO` wants. Everything is listed and called once, and every question is answered.
//!
//! The client in front is of an older revision wherever the scenario can be met so: then all that the suite looks at is the gateway's own.

use std::sync::Arc;

use lockgate_tests::{
    client::{LATEST, Session},
    gateway::{Gateway, http_backends},
    modern::Modern,
};
use serde_json::{Map, Value, json};

/// Lists, their members, and how one of theirs is asked for.
const LISTS: [(&str, &str, &str, &str); 3] = [
    ("tools", "tools/list", "tools/call", "name"),
    ("resources", "resources/list", "resources/read", "uri"),
    ("prompts", "prompts/list", "prompts/get", "name"),
];

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let url = std::env::args().next_back().expect("a URL");
    let scenario = std::env::var("MCP_CONFORMANCE_SCENARIO").unwrap_or_default();
    let gateway = Gateway::start(&http_backends(&[("suite", &url)])).await;
    match scenario.as_str() {
        // These look at every request that the server gets, and one of an older client begins with `initialize`.
        "request-metadata" | "http-standard-headers" => modern(&gateway).await,
        _ => legacy(&gateway).await,
    }
    gateway.stop().await;
}

async fn modern(gateway: &Gateway) {
    let client = Modern::new(gateway.mcp()).able(json!({ "roots": {}, "sampling": {}, "elicitation": {} }));
    for (field, list, method, key) in LISTS {
        let listed = client.ask(list, json!({})).await;
        let Some(result) = listed.message().result else { continue };
        let result: Value = serde_json::from_str(result.get()).expect("a result is JSON");
        for item in result[field].as_array().into_iter().flatten() {
            client.ask(method, json!({ key: item[key] })).await;
        }
    }
}

async fn legacy(gateway: &Gateway) {
    let session = Arc::new(gateway.mcp().initialize_as(LATEST, json!({ "elicitation": {} })).await);
    // Some servers ask on the session's own stream.
    let (asked, mut events) = (session.clone(), session.stream().await);
    let stream = tokio::spawn(async move {
        loop {
            match events.message().await {
                Some(event) => answer(&asked, &event.json()).await,
                None => return,
            }
        }
    });
    let tools = session.list("tools/list", "tools").await;
    let context: Value =
        std::env::var("MCP_CONFORMANCE_CONTEXT").ok().and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
    let calls: Vec<Value> = match context["toolCalls"].as_array() {
        Some(calls) => calls.clone(),
        None => tools.iter().map(|tool| json!({ "name": tool["name"], "arguments": arguments(tool, &tools) })).collect(),
    };
    for (id, call) in calls.iter().enumerate() {
        run(&session, &format!("\"call {id}\""), call).await;
    }
    stream.abort();
    session.delete().await;
}

/// Answers a question of the server.
async fn answer(session: &Session, message: &Value) {
    if message["method"] == "elicitation/create" {
        let content = values(&message["params"]["requestedSchema"], true);
        session.reply(&message["id"], json!({ "action": "accept", "content": content })).await;
    }
}

/// One call, with an answer to each question on the way.
async fn run(session: &Session, id: &str, call: &Value) {
    let reply = session.start(id, "tools/call", &call.to_string()).await;
    if !reply.is_stream() {
        reply.answer().await;
        return;
    }
    let mut events = reply.events();
    while let Some(event) = events.message().await {
        let message = event.json();
        if message.get("method").is_none() {
            return;
        }
        answer(session, &message).await;
    }
}

/// What a tool needs; a tool that gives a schema back gets that of the other.
fn arguments(tool: &Value, all: &[Value]) -> Value {
    if tool["name"] == "json_schema_echo" {
        let other = all.iter().find(|other| other["name"] != tool["name"]);
        return json!({ "schema": other.map_or(Value::Null, |other| other["inputSchema"].clone()) });
    }
    values(&tool["inputSchema"], false)
}

/// A value for each property: its default, where it has one, or any of its type.
fn values(schema: &Value, with_optional: bool) -> Value {
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let properties = schema["properties"].as_object().cloned().unwrap_or_default();
    let wanted = properties.iter().filter(|(name, _)| with_optional || required.contains(&json!(name)));
    let of = |schema: &Value| match schema.get("default") {
        Some(default) => default.clone(),
        None => match schema["type"].as_str() {
            Some("integer" | "number") => json!(5),
            Some("boolean") => json!(true),
            Some("object") => json!({}),
            Some("array") => json!([]),
            _ => json!("text"),
        },
    };
    Value::Object(wanted.map(|(name, schema)| (name.clone(), of(schema))).collect::<Map<_, _>>())
}

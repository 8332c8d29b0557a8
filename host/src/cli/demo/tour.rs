//! The tour: what a gateway is for, one step at a time, each with a check. The first step that goes wrong ends it, with what was
//! expected and what came.

use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};

use super::{
    client::{Endpoint, Session},
    page::{Page, shortened},
};

/// What a step shows when it went well.
type Step = Result<String, Wrong>;

/// A step that went wrong.
#[derive(Debug)]
struct Wrong {
    expected: String,
    came: String,
}

/// Where a client did not get as far as an answer.
impl From<anyhow::Error> for Wrong {
    fn from(error: anyhow::Error) -> Self {
        Self { expected: "an answer".to_owned(), came: format!("{error:#}") }
    }
}

/// Walks through the tour, printing each step as it is done. Returns whether all of them went well.
pub async fn run(url: &str, page: &Page) -> bool {
    match walk(url, page).await {
        Ok(()) => true,
        Err((title, wrong)) => {
            page.print(&page.failed(title, &wrong.expected, &wrong.came));
            false
        }
    }
}

async fn walk(url: &str, page: &Page) -> Result<(), (&'static str, Wrong)> {
    let report = |title: &'static str, step: Step| match step {
        Ok(text) => {
            page.print(&page.done(title, &text));
            Ok(())
        }
        Err(wrong) => Err((title, wrong)),
    };
    let opening = |error: anyhow::Error| ("A session", Wrong::from(error));
    let endpoint = Endpoint::new(url).map_err(opening)?;
    let mut a = endpoint.open().await.map_err(opening)?;
    let mut b = endpoint.open().await.map_err(opening)?;

    report("One list", one_list(&mut a).await)?;
    report("A call", call(&mut a).await)?;
    report("An alias", alias(&mut a).await)?;
    report("Progress", progress(&mut a).await)?;
    report("Two sessions", two_sessions(&mut a, &mut b).await)?;
    report("No session id", refused(&endpoint, None, StatusCode::BAD_REQUEST).await)?;
    let unknown = "00000000-0000-4000-8000-000000000000";
    report("Unknown id", refused(&endpoint, Some(unknown), StatusCode::NOT_FOUND).await)?;
    report("Ended session", ended(&endpoint, &a).await)?;
    // Nothing hangs on it: the gateway is about to stop, or ends the session when it has been idle for long enough.
    let _ = b.close().await;
    Ok(())
}

async fn one_list(session: &mut Session) -> Step {
    if !session.server.eq_ignore_ascii_case("lockgate") {
        return wrong("the gateway's own name, lockgate", &session.server);
    }
    let tools = names(session, "tools/list", "tools", "name").await?;
    let prompts = names(session, "prompts/list", "prompts", "name").await?;
    let templates = names(session, "resources/templates/list", "resourceTemplates", "uriTemplate").await?;
    let all = tools.join("  ");
    for name in ["now", "time__convert_time", "text__word_count", "notes__add_note"] {
        if !tools.iter().any(|tool| tool == name) {
            return wrong(&format!("a list of tools with {name}"), &all);
        }
    }
    if tools.iter().any(|tool| tool == "time__get_time") {
        return wrong("time__get_time listed once, under its alias 'now'", &all);
    }
    if !prompts.iter().any(|prompt| prompt == "text__summarize") {
        return wrong("a list of prompts with text__summarize", &prompts.join("  "));
    }
    for template in ["clock://{utc_offset}", "notes://{id}"] {
        if !templates.iter().any(|found| found == template) {
            return wrong(&format!("a resource template {template}"), &templates.join("  "));
        }
    }
    Ok(format!("{} tools: {all}\nprompts: {}   resources: {}", tools.len(), prompts.join("  "), templates.join("  ")))
}

async fn call(session: &mut Session) -> Step {
    let text = "The lock opens when the water is level.";
    let result = call_tool(session, "text__word_count", json!({ "text": text })).await?;
    match result["words"].as_u64() {
        Some(words @ 8) => Ok(format!("text__word_count \"{text}\" -> {words} words")),
        _ => wrong("8 words", &result.to_string()),
    }
}

async fn alias(session: &mut Session) -> Step {
    let offset = json!({ "utc_offset": "+02:00" });
    let now = call_tool(session, "now", offset.clone()).await?;
    let full = call_tool(session, "time__get_time", offset).await?;
    let (Some(time), Some(weekday)) = (now["time"].as_str(), now["weekday"].as_str()) else {
        return wrong("a time with its weekday", &now.to_string());
    };
    let seconds = |result: &Value| result["unix_seconds"].as_i64();
    match (seconds(&now), seconds(&full)) {
        (Some(first), Some(second)) if (0..60).contains(&(second - first)) => {
            Ok(format!("now -> {weekday}, {time}   (it stands for time__get_time)"))
        }
        _ => wrong("the same time from 'now' and 'time__get_time'", &full.to_string()),
    }
}

async fn progress(session: &mut Session) -> Step {
    /// How long the tool pauses after each piece, before it tells of it.
    const PAUSE: Duration = Duration::from_millis(100);
    let text = "the gate\nthe lock\nthe water\nthe vessel\n";
    let arguments = json!({ "text": text, "steps": 4, "pause_ms": PAUSE.as_millis() as u64 });
    let token = json!("demo-progress");
    let reply = session.call("text__analyze", arguments, json!({ "progressToken": token })).await?;
    let result = outcome(&reply.outcome)?;
    let mut steps = Vec::new();
    for message in &reply.before {
        let params = &message.value["params"];
        if message.value["method"] == json!("notifications/progress") && params["progressToken"] == token {
            steps.push((params["progress"].as_f64().unwrap_or_default(), message.after));
        }
    }
    let values: Vec<f64> = steps.iter().map(|(progress, _)| *progress).collect();
    if values != [1.0, 2.0, 3.0, 4.0] {
        return wrong("progress 1, 2, 3, 4 before the answer", &format!("{values:?}, then {result}"));
    }
    let times: Vec<String> = steps.iter().map(|(_, after)| after.as_millis().to_string()).collect();
    let (times, took) = (times.join(", "), reply.took.as_millis());
    // All at once at the end would be progress in form only. Three pauses lie between the first and the answer; half of one allows
    // for a machine that is busy.
    if reply.took - steps[0].1 < PAUSE / 2 {
        return wrong("progress well before the answer", &format!("{times} ms, the answer at {took} ms"));
    }
    Ok(format!("text__analyze: 4 messages, at {times} ms, and the answer at {took} ms"))
}

async fn two_sessions(a: &mut Session, b: &mut Session) -> Step {
    let added = call_tool(a, "notes__add_note", json!({ "text": "the key is under the mat" })).await?;
    let Some(uri) = added["uri"].as_str().map(str::to_owned) else {
        return wrong("a note with a URI", &added.to_string());
    };
    let notes = |result: &Value| result["notes"].as_array().map(Vec::len);
    let of_a = call_tool(a, "notes__list_notes", json!({})).await?;
    let of_b = call_tool(b, "notes__list_notes", json!({})).await?;
    if (notes(&of_a), notes(&of_b)) != (Some(1), Some(0)) {
        return wrong("one note in session A and none in session B", &format!("A {of_a}, B {of_b}"));
    }
    let read = json!({ "uri": uri });
    let by_a = a.request("resources/read", read.clone()).await?;
    let text = outcome(&by_a.outcome)?["contents"][0]["text"].clone();
    if text != json!("the key is under the mat") {
        return wrong("the note, read by session A", &text.to_string());
    }
    match b.request("resources/read", read).await?.outcome {
        Err(error) => Ok(format!(
            "A adds a note. Then A lists 1, B lists 0.\n{uri} read by A -> {text}\n{uri} read by B -> {}",
            shortened(error["message"].as_str().unwrap_or("an error"), 60)
        )),
        Ok(result) => wrong("an error for session B, which has no such note", &result.to_string()),
    }
}

async fn refused(endpoint: &Endpoint, session: Option<&str>, status: StatusCode) -> Step {
    let request = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
    let answer = endpoint.post(session, &request).await?;
    let reason = answer.messages.first().and_then(|message| message.value["error"]["message"].as_str());
    let reason = reason.unwrap_or(&answer.text);
    if answer.status != status {
        return wrong(&format!("HTTP {status}"), &format!("HTTP {}: {reason}", answer.status));
    }
    Ok(format!("tools/list -> {status}: {}", shortened(reason, 110)))
}

async fn ended(endpoint: &Endpoint, session: &Session) -> Step {
    let deleted = session.close().await?;
    if !deleted.is_success() {
        return wrong("a success for DELETE", &deleted.to_string());
    }
    let after = refused(endpoint, Some(session.id()), StatusCode::NOT_FOUND).await?;
    Ok(format!("DELETE -> {deleted}, then {after}"))
}

/// Calls a tool that answers with structured content, and returns that.
async fn call_tool(session: &mut Session, tool: &str, arguments: Value) -> Result<Value, Wrong> {
    let reply = session.call(tool, arguments, json!({})).await?;
    let result = outcome(&reply.outcome)?;
    match result.get("structuredContent") {
        Some(content) => Ok(content.clone()),
        None => wrong(&format!("structured content from {tool}"), &result.to_string()),
    }
}

fn outcome(outcome: &Result<Value, Value>) -> Result<&Value, Wrong> {
    outcome.as_ref().map_err(|error| Wrong { expected: "a result".to_owned(), came: error.to_string() })
}

/// The names of all items of a list, all of its pages.
async fn names(session: &mut Session, method: &str, items: &str, key: &str) -> Result<Vec<String>, Wrong> {
    /// More than the demo has; a cursor that never ends is a mistake that has to show.
    const MAX_PAGES: usize = 20;
    let mut names = Vec::new();
    let mut params = json!({});
    for _ in 0..MAX_PAGES {
        let reply = session.request(method, params).await?;
        let result = outcome(&reply.outcome)?;
        let page = result[items].as_array();
        names.extend(page.into_iter().flatten().filter_map(|item| item[key].as_str().map(str::to_owned)));
        match result.get("nextCursor") {
            Some(cursor) if !cursor.is_null() => params = json!({ "cursor": cursor }),
            _ => return Ok(names),
        }
    }
    wrong(&format!("at most {MAX_PAGES} pages of {method}"), "another cursor")
}

fn wrong<T>(expected: &str, came: &str) -> Result<T, Wrong> {
    Err(Wrong { expected: expected.to_owned(), came: shortened(came, 400) })
}

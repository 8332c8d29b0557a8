//! What a modern server's answer means, and the shape in which an older client may have it.

use crate::backend::error::BackendError;
use crate::backend::inner::Inner;
use crate::protocol::json::{self, Object};
use crate::protocol::members::splice_object;
use crate::protocol::{Edits, Response, codes, meta, method};
use bytes::Bytes;

/// Members of results that no older revision has (2026-07-28 schema, `Result` and `CacheableResult`).
const NEW: [&str; 3] = ["resultType", "ttlMs", "cacheScope"];
/// Questions that one result may hold.
const MAX_QUESTIONS: usize = 32;

/// What an answer is.
pub enum Verdict {
    /// The end of the call, shaped for the client.
    Final(Response),
    /// The server wants something before it goes on.
    InputRequired(Required),
}

/// The parts of an `InputRequiredResult` (2026-07-28 patterns/mrtr).
#[derive(Debug, Default)]
pub struct Required {
    /// Key, method and JSON text of `params`, in the order of the text.
    pub questions: Vec<Question>,
    /// JSON text of `requestState`.
    pub state: Option<Bytes>,
}

#[derive(Debug)]
pub struct Question {
    pub key: String,
    pub method: String,
    pub params: Option<Bytes>,
}

/// `of`: the method of the request.
pub fn judge(inner: &Inner, mut response: Response, of: &str) -> Result<Verdict, BackendError> {
    let no_object = || inner.broke("its result is not an object");
    if inner.hello.modern {
        let judged = of_one_era(inner, &response, &response.object().ok_or_else(no_object)?, of);
        return judged.map(|()| Verdict::Final(response)).map_err(|why| inner.broke(why));
    }
    let body = response.body();
    let Ok(object) = Object::parse(&body) else { return Err(no_object()) };
    if !response.ok {
        return match response.error_code() {
            // Faults between the gateway and the server. The client took no part in them.
            Some(codes::HEADER_MISMATCH | codes::MISSING_CAPABILITY | codes::UNSUPPORTED_VERSION) => {
                Err(inner.broke(format!("it answered with {}", error_text(&object))))
            }
            Some(codes::INVALID_PARAMS) if of == method::RESOURCES_READ && names_a_uri(&object) => {
                // Its old code (2025-11-25 server/resources, "Error Handling").
                if let Some(code) = object.only("code") {
                    response.shaped.replace(json::place(&response.raw, code), codes::RESOURCE_NOT_FOUND.to_string());
                }
                Ok(Verdict::Final(response))
            }
            _ => Ok(Verdict::Final(response)),
        };
    }
    let kind = object.get("resultType").map_err(|e| inner.broke(format!("its result: {e}")))?;
    match kind.map(json::string) {
        // Absent: complete (2026-07-28 basic/index, "Result type").
        None => {}
        Some(Some(kind)) if kind == "complete" => {}
        Some(Some(kind)) if kind == "input_required" => {
            return required(&object, of).map(Verdict::InputRequired).map_err(|why| inner.broke(why));
        }
        Some(kind) => {
            let kind: String = kind.unwrap_or_default().chars().filter(|c| !c.is_control()).take(40).collect();
            return Err(inner.broke(format!("its result is of a kind that is not known: {kind:?}")));
        }
    }
    let no_object =
        of == method::TOOLS_CALL && object.members().any(|(name, value)| name == "structuredContent" && !json::is_object(value));
    let mut shaped = Edits::new();
    let out = |name: &str| NEW.contains(&name) || no_object && name == "structuredContent";
    splice_object(&response.raw, response.body_at.clone(), &object, out, "", &mut shaped);
    if of == method::TOOLS_LIST {
        for tool in object.only("tools").and_then(json::array).unwrap_or_default() {
            let Some(object) = Object::of(tool) else { continue };
            if object.members().any(|(name, value)| name == "outputSchema" && !is_of_objects(value)) {
                let at = json::place(&response.raw, tool);
                splice_object(&response.raw, at, &object, |name| name == "outputSchema", "", &mut shaped);
            }
        }
    }
    response.shaped = shaped;
    Ok(Verdict::Final(response))
}

fn required(result: &Object<'_>, of: &str) -> Result<Required, String> {
    if !matches!(of, method::TOOLS_CALL | method::PROMPTS_GET | method::RESOURCES_READ) {
        return Err(format!("it answered {of} with a question, which only calls may be"));
    }
    let mut required = Required::default();
    if let Some(state) = result.get("requestState").map_err(|e| e.to_string())?.filter(|s| !json::is_null(s)) {
        if !state.get().starts_with('"') {
            return Err("its requestState is not a string".into());
        }
        required.state = Some(Bytes::copy_from_slice(state.get().as_bytes()));
    }
    if let Some(requests) = result.get("inputRequests").map_err(|e| e.to_string())?.filter(|r| !json::is_null(r)) {
        let requests = Object::of(requests).ok_or("its inputRequests are not an object")?;
        for (key, value) in requests.members() {
            let question = Object::of(value).ok_or("one of its inputRequests is not an object")?;
            let method = question
                .get("method")
                .map_err(|e| e.to_string())?
                .and_then(json::string)
                .ok_or("one of its inputRequests has no method")?;
            let params = question.get("params").map_err(|e| e.to_string())?.filter(|p| !json::is_null(p));
            if params.is_some_and(|p| !json::is_object(p)) {
                return Err("the params of one of its inputRequests are not an object".into());
            }
            if required.questions.iter().any(|q| q.key == key) {
                return Err("two of its inputRequests have the same key".into());
            }
            if required.questions.len() >= MAX_QUESTIONS {
                return Err(format!("its result holds more than {MAX_QUESTIONS} inputRequests"));
            }
            let params = params.map(|p| Bytes::copy_from_slice(p.get().as_bytes()));
            required.questions.push(Question { key: key.to_owned(), method: method.into_owned(), params });
        }
    }
    if required.questions.is_empty() && required.state.is_none() {
        return Err("its result asks for input and says neither which nor in what state".into());
    }
    Ok(required)
}

/// For a client of the same era an answer stays as it is. What is wrong with it between the gateway and the server is no business of
/// the client's, nor are questions that it did not say it can answer, or tasks that it did not say it can follow.
fn of_one_era(inner: &Inner, response: &Response, object: &Object<'_>, of: &str) -> Result<(), String> {
    if !response.ok {
        return match response.error_code() {
            Some(codes::HEADER_MISMATCH | codes::UNSUPPORTED_VERSION) => Err(format!("it answered with {}", error_text(object))),
            _ => Ok(()),
        };
    }
    let kind = object.get("resultType").map_err(|e| format!("its result: {e}"))?.map(json::string);
    let kind = kind.flatten().unwrap_or_default();
    let declared = || Object::parse(&inner.hello.capabilities).ok();
    if kind == "task" {
        let extensions = declared().and_then(|d| Object::of(d.only("extensions")?));
        return match extensions.is_some_and(|e| e.only(meta::TASKS).is_some_and(json::is_object)) {
            true if of == method::TOOLS_CALL => Ok(()),
            true => Err(format!("it answered {of} with a task, which only calls of tools may be")),
            false => Err(format!("it answered with a task, though the client did not declare `{}`", meta::TASKS)),
        };
    }
    // A task asks its questions in the answers that say how it is.
    if kind != "input_required" && of != method::TASKS_GET {
        return Ok(());
    }
    let declared = declared();
    let able = |name: &str| declared.as_ref().is_some_and(|d| d.only(name).is_some_and(json::is_object));
    for (_, question) in object.only("inputRequests").and_then(Object::of).iter().flat_map(Object::members) {
        let of = Object::of(question).and_then(|q| q.only("method").and_then(json::string)).unwrap_or_default();
        let needs = match &*of {
            method::ELICITATION => "elicitation",
            method::SAMPLING => "sampling",
            method::ROOTS_LIST => "roots",
            _ => return Err("it asks for something that is no question for a client".into()),
        };
        if !able(needs) {
            return Err(format!("it asks for `{of}`, for which the client did not declare `{needs}`"));
        }
    }
    Ok(())
}

/// Older clients know no other output, and refuse a whole list for one such schema (2025-11-25 schema, `Tool`).
fn is_of_objects(schema: &json::RawValue) -> bool {
    Object::of(schema).is_some_and(|s| s.only("type").is_some_and(|t| t.get() == "\"object\""))
}

fn names_a_uri(error: &Object<'_>) -> bool {
    error.only("data").and_then(Object::of).is_some_and(|d| d.only("uri").is_some())
}

/// Code and message of an error object, for a log or an error of ours.
pub fn error_text(error: &Object<'_>) -> String {
    let code = error.only("code").map_or("", |c| c.get());
    let message = error.only("message").and_then(json::string).unwrap_or_default();
    let message: String = message.chars().filter(|c| !c.is_control()).take(200).collect();
    format!("error {code}: {message}")
}

//! The texts of the server's answers. What is large is made once and shared.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    fmt::Write as _,
};

use bytes::Bytes;
use http::HeaderValue;

/// The tools that are called.
pub const TOOLS: [&str; 4] = ["echo", "blob", "structured", "progress"];

/// Stands near the end of each structured answer.
pub const STRUCTURED_MARK: &str = "\"last\":true";

const VERSION: &str = "2025-11-25";

thread_local! {
    static SESSIONS: Cell<u64> = const { Cell::new(0) };
    /// Large values by kind and size.
    static LARGE: RefCell<HashMap<(&'static str, usize), Bytes>> = RefCell::default();
}

/// An id that no other session has.
pub fn session() -> HeaderValue {
    let next = SESSIONS.get() + 1;
    SESSIONS.set(next);
    HeaderValue::try_from(format!("bench-session-{next:016x}")).unwrap_or(HeaderValue::from_static("bench"))
}

fn large(kind: &'static str, size: usize, make: impl FnOnce() -> String) -> Bytes {
    LARGE.with_borrow_mut(|large| large.entry((kind, size)).or_insert_with(|| Bytes::from(make())).clone())
}

/// An answer around a result that is put together from parts.
fn around(id: &str, before: &str, middle: Bytes, after: &str) -> Vec<Bytes> {
    let head = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{{before}");
    vec![head.into(), middle, format!("{after}}}}}").into()]
}

pub fn result(id: &str, result: String) -> Vec<Bytes> {
    vec![format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}").into()]
}

pub fn error(id: &str, code: i32, why: &str) -> Vec<Bytes> {
    vec![format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{{\"code\":{code},\"message\":\"{why}\"}}}}").into()]
}

pub fn initialize(id: &str) -> Vec<Bytes> {
    let text = format!(
        r#"{{"protocolVersion":"{VERSION}","capabilities":{{"tools":{{"listChanged":true}}}},"serverInfo":{{"name":"bench","version":"1"}}}}"#
    );
    result(id, text)
}

pub fn discover(id: &str) -> Vec<Bytes> {
    let text = r#"{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":3600000,"cacheScope":"public","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"bench","version":"1"}}}"#;
    result(id, text.into())
}

/// What begins a result in the era.
fn opening(modern: bool) -> &'static str {
    if modern { r#""resultType":"complete","# } else { "" }
}

pub fn tools(id: &str, modern: bool) -> Vec<Bytes> {
    let list: Vec<String> = TOOLS.iter().map(|name| tool(name, 0)).collect();
    let caching = if modern { r#","ttlMs":3600000,"cacheScope":"public""# } else { "" };
    result(id, format!("{{{}\"tools\":[{}]{caching}}}", opening(modern), list.join(",")))
}

pub fn list(id: &str, name: &str, count: usize) -> Vec<Bytes> {
    let key: &'static str = match name {
        "a" => "list a",
        "b" => "list b",
        _ => "list c",
    };
    let middle = large(key, count, || {
        let tools: Vec<String> = (0..count).map(|n| tool(&format!("{name}_tool_{n:04}"), n)).collect();
        tools.join(",")
    });
    around(id, "\"tools\":[", middle, "]")
}

/// One tool as a server would describe it, in about 500 bytes.
fn tool(name: &str, n: usize) -> String {
    format!(
        r#"{{"name":"{name}","title":"Tool {n}","description":"Looks up record {n} and says what is known of it: who made it, when it was last changed, and where it is kept. Give a text to search for, and how many to return.","inputSchema":{{"type":"object","properties":{{"text":{{"type":"string","description":"what to look for"}},"size":{{"type":"integer","minimum":0}},"count":{{"type":"integer","minimum":0}}}}}},"annotations":{{"readOnlyHint":true,"openWorldHint":false}}}}"#
    )
}

/// `text` is JSON as it came.
pub fn echo(id: &str, text: &str, modern: bool) -> Vec<Bytes> {
    result(id, format!(r#"{{{}"content":[{{"type":"text","text":{text}}}]}}"#, opening(modern)))
}

/// A text of `size` bytes.
pub fn blob(id: &str, size: usize, modern: bool) -> Vec<Bytes> {
    let middle = large("blob", size, || "0123456789abcdef".chars().cycle().take(size).collect());
    around(id, &format!(r#"{}"content":[{{"type":"text","text":""#, opening(modern)), middle, r#""}]"#)
}

/// About `size` bytes of structured content: rows of numbers, texts, lists and objects.
pub fn structured(id: &str, size: usize, modern: bool) -> Vec<Bytes> {
    let middle = large("structured", size, || {
        let mut rows = String::new();
        for n in 0.. {
            if rows.len() + 120 > size {
                break;
            }
            let _ = write!(
                rows,
                r#"{{"id":{n},"name":"record {n}","price":{n}.5,"tags":["red","large",null],"stock":{{"here":{n},"there":-3}},"sold":false}},"#
            );
        }
        rows
    });
    let before = format!(r#"{}"content":[{{"type":"text","text":"records"}}],"structuredContent":{{"rows":["#, opening(modern));
    around(id, &before, middle, &format!("{{\"id\":-1,{STRUCTURED_MARK}}}]}}"))
}

/// Events: `count` notifications under the token, and the answer.
pub fn progress(id: &str, token: Option<String>, count: usize, modern: bool) -> Vec<Bytes> {
    let notes = (1..=count).filter_map(|n| {
        let token = token.as_deref()?;
        let params = format!(r#"{{"progressToken":{token},"progress":{n},"total":{count},"message":"step {n}"}}"#);
        Some(format!("event: message\ndata: {{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{params}}}\n\n").into())
    });
    let answer = echo(id, "\"done\"", modern).concat();
    let last = [&b"event: message\ndata: "[..], &answer, b"\n\n"].concat();
    notes.chain([last.into()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn parse(parts: Vec<Bytes>) -> Value {
        serde_json::from_slice(&parts.concat()).expect("JSON")
    }

    #[test]
    fn answers_are_json_of_about_the_size_that_was_asked_for() {
        for modern in [false, true] {
            for answer in [tools("1", modern), echo("1", "\"x\"", modern), blob("1", 1000, modern), structured("1", 16 << 10, modern)] {
                assert_eq!(parse(answer)["id"], 1);
            }
        }
        let size = structured("1", 16 << 10, false).concat().len();
        assert!((16_000..16_700).contains(&size), "{size}");
        assert_eq!(parse(list("\"x\"", "a", 300))["result"]["tools"].as_array().map(Vec::len), Some(300));
        assert_ne!(session(), session());
    }

    #[test]
    fn progress_goes_under_the_token_and_only_where_there_is_one() {
        assert_eq!(progress("1", Some("\"t\"".into()), 50, false).len(), 51);
        assert_eq!(progress("1", None, 50, false).len(), 1);
    }
}

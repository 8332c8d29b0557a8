//! JSON-RPC messages as text: builds them without touching the payload, and cuts the members out of them as they were sent.

use serde::Deserialize;
use serde_json::value::RawValue;

/// The members of a JSON-RPC message, each as the bytes that were on the wire.
#[derive(Debug, Deserialize)]
pub struct Message<'a> {
    #[serde(borrow)]
    pub id: Option<&'a RawValue>,
    pub method: Option<String>,
    #[serde(borrow)]
    pub params: Option<&'a RawValue>,
    #[serde(borrow)]
    pub result: Option<&'a RawValue>,
    #[serde(borrow)]
    pub error: Option<&'a RawValue>,
}

impl<'a> Message<'a> {
    /// `None` when `bytes` is not one JSON object.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }
}

/// The member `name` of the object `object`, as it was sent.
pub fn member<'a>(object: &'a str, name: &str) -> Option<&'a str> {
    let members: std::collections::HashMap<&str, &RawValue> = serde_json::from_str(object).ok()?;
    members.get(name).map(|value| value.get())
}

pub fn request(id: &str, method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
}

pub fn notification(method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{params}}}"#)
}

pub fn result(id: &str, result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
}

pub fn error(id: &str, code: i64, message: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":"{message}"}}}}"#)
}

/// A tool result with one block of text. `text` must need no escaping.
pub fn text(text: &str) -> String {
    format!(r#"{{"content":[{{"type":"text","text":"{text}"}}]}}"#)
}

/// The text of the first content block of a tool result.
pub fn first_text(result: &serde_json::Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text in {result}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_come_out_as_they_were_sent() {
        let sent = r#"{"jsonrpc":"2.0","id":1.0,"method":"m","params":{ "b":1e3,"a":123456789012345678901234567890,"b":"\ud800" }}"#;
        let message = Message::parse(sent.as_bytes()).unwrap();
        assert_eq!(message.id.unwrap().get(), "1.0");
        assert_eq!(message.params.unwrap().get(), r#"{ "b":1e3,"a":123456789012345678901234567890,"b":"\ud800" }"#);
        assert_eq!(member(message.params.unwrap().get(), "a"), Some("123456789012345678901234567890"));
    }
}

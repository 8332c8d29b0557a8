//! Resource URIs inside results: a client must be able to read what it is shown.
//!
//! Only where several backends are behind one endpoint, and only in the places that MCP gives to URIs: resource links and embedded
//! resources of tool results and prompt messages, and the contents of a resource. Text is never searched.

use super::Gateway;
use crate::catalog::Published;
use crate::protocol::json::{self, Object, RawValue};
use crate::protocol::{Edits, method};
use crate::session::Session;
use bytes::Bytes;
use memchr::memmem::Finder;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, LazyLock};

/// What is in every result that has URIs.
static RESOURCE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("resource"));

/// URIs of one answer whose names are remembered.
const KNOWN: usize = 1024;

/// What was found out for one answer.
#[derive(Default)]
pub(super) struct Known(HashMap<String, Option<String>>);

impl Gateway {
    /// The changes that make the URIs in a result the client's, which stands at a place of `raw` and answers the method `of`. For
    /// `notifications/tasks` it is the params.
    pub(super) async fn publish_uris(
        self: &Arc<Self>,
        session: &Arc<Session>,
        at: &Arc<Published>,
        backend: usize,
        (raw, body_at): (&Bytes, Range<usize>),
        of: &str,
    ) -> Edits {
        if !may_have_uris(session, &raw[body_at.clone()], of) {
            return Edits::new();
        }
        // Boxed: most results have none, and their calls are small without it.
        Box::pin(async {
            let (mut edits, mut known) = (Edits::new(), Known::default());
            for (uri, place) in places(raw, body_at, of) {
                if let Some(public) = self.as_published(session, at, backend, uri, &mut known).await {
                    edits.replace(place, json::quote(&public));
                }
            }
            edits
        })
        .await
    }

    /// What the client knows a URI of `backend` by; none where that is the same.
    pub(super) async fn as_published(
        self: &Arc<Self>,
        session: &Arc<Session>,
        at: &Arc<Published>,
        backend: usize,
        uri: String,
        known: &mut Known,
    ) -> Option<String> {
        if let Some(public) = known.0.get(&uri) {
            return public.clone();
        }
        let public = match self.public_uri(session, at, backend, &uri).await {
            Ok(public) => (public != uri).then_some(public),
            Err(error) => {
                tracing::warn!(session = %session.tag(), error = %error.message, "a resource URI in a result could not be published");
                None
            }
        };
        if known.0.len() == KNOWN {
            known.0.clear();
        }
        known.0.insert(uri, public.clone());
        public
    }
}

/// Whether there may be URIs in a result that are not what the client knows. Most results have none; this is cheaper than looking at their
/// structure.
fn may_have_uris(session: &Session, body: &[u8], of: &str) -> bool {
    session.host.backends.len() > 1 && (of == method::RESOURCES_READ || RESOURCE.find(body).is_some())
}

/// The URIs of a result with their places in the message.
fn places(raw: &Bytes, body_at: Range<usize>, of: &str) -> Vec<(String, Range<usize>)> {
    let Ok(result) = Object::parse(&raw[body_at]) else { return Vec::new() };
    let mut found = Vec::new();
    let mut note = |value: Option<&RawValue>| {
        if let Some((uri, value)) = value.and_then(|v| Some((json::string(v)?, v))) {
            found.push((uri.into_owned(), json::place(raw, value)));
        }
    };
    match of {
        method::RESOURCES_READ => {
            for contents in result.only("contents").and_then(json::array).unwrap_or_default() {
                note(Object::of(contents).and_then(|c| c.only("uri")));
            }
        }
        method::PROMPTS_GET => {
            for message in result.only("messages").and_then(json::array).unwrap_or_default() {
                let content = Object::of(message).and_then(|m| m.only("content"));
                for block in content.map(one_or_many).unwrap_or_default() {
                    note(uri_of(block));
                }
            }
        }
        // The result of the call is a part of what is told of its task.
        method::TASKS_GET | method::TASK_CHANGED => {
            let result = result.only("result").and_then(Object::of);
            for block in result.and_then(|r| r.only("content")).and_then(json::array).unwrap_or_default() {
                note(uri_of(block));
            }
        }
        _ => {
            for block in result.only("content").and_then(json::array).unwrap_or_default() {
                note(uri_of(block));
            }
        }
    }
    found
}

fn one_or_many(value: &RawValue) -> Vec<&RawValue> {
    json::array(value).unwrap_or_else(|| vec![value])
}

/// The URI of a content block that is a resource link or an embedded resource.
fn uri_of(block: &RawValue) -> Option<&RawValue> {
    let block = Object::of(block)?;
    match &*json::string(block.only("type")?)? {
        "resource_link" => block.only("uri"),
        "resource" => Object::of(block.only("resource")?)?.only("uri"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Incoming;

    fn uris(text: &'static str, of: &str) -> Vec<String> {
        let Ok(Incoming::Response(response)) = Incoming::parse(Bytes::from_static(text.as_bytes())) else { panic!() };
        places(&response.raw, response.body_at, of)
            .into_iter()
            .map(|(uri, at)| {
                assert_eq!(serde_json::from_slice::<String>(&response.raw[at]).unwrap(), uri);
                uri
            })
            .collect()
    }

    #[test]
    fn uris_are_found_where_they_are_meant_and_not_in_text() {
        let call = r#"{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"info://x resource"},{"type":"resource_link","uri":"info://a"},{"type":"resource","resource":{"uri":"info:\/\/b"}}],"uri":"info://no"}}"#;
        assert_eq!(uris(call, method::TOOLS_CALL), ["info://a", "info://b"]);
        let read = r#"{"jsonrpc":"2.0","id":1,"result":{"contents":[{"uri":"info://a","text":"x"}]}}"#;
        assert_eq!(uris(read, method::RESOURCES_READ), ["info://a"]);
        let task = r#"{"jsonrpc":"2.0","id":1,"result":{"taskId":"1","result":{"content":[{"type":"resource_link","uri":"info://a"}]}}}"#;
        assert_eq!(uris(task, method::TASKS_GET), ["info://a"]);
        let prompt = r#"{"jsonrpc":"2.0","id":1,"result":{"messages":[{"role":"user","content":{"type":"resource","resource":{"uri":"info://p"}}}]}}"#;
        assert_eq!(uris(prompt, method::PROMPTS_GET), ["info://p"]);
    }
}

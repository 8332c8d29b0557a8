//! One JSON-RPC message: its bytes and the places of id, method and payload in them.

use super::index::Index;
use super::json::{self, Duplicate, Object, RawValue};
use super::{Edits, RequestId, Wire, codes, salvage};
use bytes::Bytes;
use std::ops::Range;

/// A message as it came from a peer.
#[derive(Clone, Debug)]
pub enum Incoming {
    Request(Request),
    Notification(Notification),
    Response(Response),
}

/// A request: it has a method and an id.
#[derive(Clone, Debug)]
pub struct Request {
    pub raw: Bytes,
    pub id: RequestId,
    pub id_at: Range<usize>,
    pub method: Box<str>,
    /// The place of `params`; always an object where present.
    pub params_at: Option<Range<usize>>,
    /// Where the members of `params` stand.
    index: Index,
}

/// A notification: a method and no id.
#[derive(Clone, Debug)]
pub struct Notification {
    pub raw: Bytes,
    pub method: Box<str>,
    /// The place of `params`; always an object where present.
    pub params_at: Option<Range<usize>>,
    /// Where the members of `params` stand.
    index: Index,
}

/// An answer. `id` is none where the peer could not tell which request it answers.
#[derive(Clone, Debug)]
pub struct Response {
    pub raw: Bytes,
    pub id: Option<RequestId>,
    pub id_at: Range<usize>,
    /// A result; otherwise an error.
    pub ok: bool,
    /// The place of the `result` or `error` value.
    pub body_at: Range<usize>,
    /// What has to be changed in it for a client of another era. Part of every `rewritten`.
    pub shaped: Edits,
    /// Where the members of the `result` or `error` stand.
    index: Index,
}

/// Why bytes are not a message. `id` is the id of the request wherever it could be read.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{why}")]
pub struct ParseError {
    /// -32700 for what is not JSON, -32600 for what is not JSON-RPC, -32602 for `params` of the wrong type.
    pub code: i64,
    pub why: String,
    pub id: Option<RequestId>,
}

impl Incoming {
    /// Reads one message. Arrays (batches) are not messages: see `batch`.
    pub fn parse(raw: Bytes) -> Result<Incoming, ParseError> {
        let object = match Object::parse(&raw) {
            Ok(object) => object,
            Err(e) if e.is_data() => {
                return Err(ParseError { code: codes::INVALID_REQUEST, why: "a JSON-RPC message is a JSON object".into(), id: None });
            }
            Err(e) => return Err(ParseError { code: codes::PARSE_ERROR, why: format!("not valid JSON: {e}"), id: salvage::id(&raw) }),
        };
        let id_value = object.get("id");
        let id = id_value.as_ref().ok().copied().flatten().and_then(RequestId::read);
        let fail = |code, why: String| ParseError { code, why, id: id.clone() };
        let invalid = |why: String| fail(codes::INVALID_REQUEST, why);
        let member = |name| object.get(name).map_err(|e| invalid(e.to_string()));

        if member("jsonrpc")?.map(RawValue::get) != Some("\"2.0\"") {
            return Err(invalid("member `jsonrpc` must be \"2.0\"".into()));
        }
        let id_value = id_value.map_err(|e| invalid(e.to_string()))?;
        let Some(method) = member("method")? else {
            return Self::response(&raw, id.clone(), id_value, member("result")?, member("error")?).map_err(|why| invalid(why.to_owned()));
        };
        let Some(method) = json::string(method) else {
            return Err(invalid("member `method` must be a string".into()));
        };
        let params = member("params")?;
        if params.is_some_and(|p| !json::is_object(p)) {
            return Err(fail(codes::INVALID_PARAMS, "member `params` must be an object".into()));
        }
        let params_at = params.map(|p| json::place(&raw, p));
        let method: Box<str> = method.into();
        match (id_value, id.clone()) {
            (None, _) => Ok(Incoming::Notification(Notification { method, params_at, raw: raw.clone(), index: Index::default() })),
            (Some(value), Some(id)) => Ok(Incoming::Request(Request {
                id_at: json::place(&raw, value),
                id,
                method,
                params_at,
                raw: raw.clone(),
                index: Index::default(),
            })),
            (Some(_), None) => Err(invalid("member `id` must be a string or an integer".into())),
        }
    }

    fn response(
        raw: &Bytes,
        id: Option<RequestId>,
        id_value: Option<&RawValue>,
        result: Option<&RawValue>,
        error: Option<&RawValue>,
    ) -> Result<Incoming, &'static str> {
        let (ok, body) = match (result, error) {
            (Some(result), None) => (true, result),
            (None, Some(error)) if json::is_object(error) => (false, error),
            (None, Some(_)) => return Err("member `error` must be an object"),
            (Some(_), Some(_)) => return Err("a response has either a result or an error"),
            (None, None) => return Err("a message has a `method`, a `result` or an `error`"),
        };
        let id_at = match id_value {
            None if ok => return Err("a response with a result must have an id"),
            None => 0..0,
            Some(value) if id.is_none() && (ok || !json::is_null(value)) => return Err("member `id` must be a string or an integer"),
            Some(value) => json::place(raw, value),
        };
        Ok(Incoming::Response(Response {
            id,
            id_at,
            ok,
            body_at: json::place(raw, body),
            raw: raw.clone(),
            shaped: Edits::new(),
            index: Index::default(),
        }))
    }

    pub fn raw(&self) -> &Bytes {
        match self {
            Incoming::Request(m) => &m.raw,
            Incoming::Notification(m) => &m.raw,
            Incoming::Response(m) => &m.raw,
        }
    }
}

/// The elements of a batch (2025-03-26), each to be read as a message of its own. None when the text is not an array.
pub fn batch(raw: &Bytes) -> Option<Result<Vec<Bytes>, ParseError>> {
    let first = raw.iter().find(|b| !b.is_ascii_whitespace())?;
    (*first == b'[').then(|| match json::array_of(raw) {
        Ok(elements) => Ok(elements.into_iter().map(|e| raw.slice(json::place(raw, e))).collect()),
        Err(e) => Err(ParseError { code: codes::PARSE_ERROR, why: format!("not valid JSON: {e}"), id: None }),
    })
}

/// A member of `params` that a message is routed by: its value and its place in the message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member<T> {
    pub value: T,
    pub at: Range<usize>,
}

/// Why `params` cannot be used. The text is for the peer.
pub type BadParams = String;

macro_rules! with_params {
    ($type:ty) => {
        impl $type {
            /// The members of `params`. None where there are no params.
            pub fn params(&self) -> Option<Object<'_>> {
                self.index.object(&self.raw, self.params_at.clone()?)
            }

            /// The members of `params._meta`, and where it is. None where there is none, more than one, or no object.
            pub fn meta(&self) -> Option<(Range<usize>, Object<'_>)> {
                let at = self.index.find(&self.raw, self.params_at.clone()?, "_meta").ok()??;
                Some((at.clone(), self.index.meta(&self.raw, at)?))
            }

            /// A string member of `params`, by its path of member names. Missing is none; another type, or a member that occurs twice, is an error.
            pub fn string_param(&self, path: &[&str]) -> Result<Option<Member<String>>, BadParams> {
                let Some(value) = self.param(path)? else { return Ok(None) };
                match json::string(value) {
                    Some(text) => Ok(Some(Member { value: text.into_owned(), at: json::place(&self.raw, value) })),
                    None => Err(format!("`params.{}` must be a string", path.join("."))),
                }
            }

            /// A member of `params` by its path, as raw text. Missing (or inside something that is no object) is none.
            pub fn param(&self, path: &[&str]) -> Result<Option<&RawValue>, BadParams> {
                let (Some(at), Some((first, rest))) = (self.params_at.clone(), path.split_first()) else { return Ok(None) };
                let wrong = |depth: usize, e: Duplicate| format!("`params.{}`: {e}", path[..=depth].join("."));
                let Some(place) = self.index.find(&self.raw, at, first).map_err(|e| wrong(0, e))? else { return Ok(None) };
                if let ("_meta", [name], true) = (*first, rest, self.raw[place.clone()].starts_with(b"{")) {
                    let place = self.index.find_in_meta(&self.raw, place, name).map_err(|e| wrong(1, e))?;
                    return Ok(place.and_then(|place| std::str::from_utf8(&self.raw[place]).ok()).map(RawValue::known));
                }
                // Read as a value before.
                let Ok(text) = std::str::from_utf8(&self.raw[place]) else { return Ok(None) };
                let mut value = RawValue::known(text);
                for (depth, name) in rest.iter().enumerate() {
                    match json::member(value, name).map_err(|e| wrong(depth + 1, e))? {
                        None => return Ok(None),
                        Some(inner) => value = inner,
                    }
                }
                Ok(Some(value))
            }

            /// A progress token or request id in `params`: a string or an integer.
            pub fn token_param(&self, path: &[&str]) -> Result<Option<Member<RequestId>>, BadParams> {
                let Some(value) = self.param(path)? else { return Ok(None) };
                match RequestId::read(value) {
                    Some(id) => Ok(Some(Member { value: id, at: json::place(&self.raw, value) })),
                    None => Err(format!("`params.{}` must be a string or an integer", path.join("."))),
                }
            }
        }
    };
}

with_params!(Request);
with_params!(Notification);

impl Request {
    /// A request of our own. `params` is JSON text, of an object.
    pub fn own(method: &str, params: &str) -> Self {
        let raw = Bytes::from(format!("{{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"{method}\",\"params\":{params}}}"));
        let id_at = raw.len().min(22)..raw.len().min(23);
        debug_assert_eq!(&raw[id_at.clone()], b"0");
        let params_at = raw.len() - 1 - params.len()..raw.len() - 1;
        Request { id: RequestId::number(0), id_at, method: method.into(), params_at: Some(params_at), raw, index: Index::default() }
    }

    /// The message under a number of ours, with the other replacements made.
    pub fn numbered(&self, id: u64, mut edits: Edits) -> Wire {
        edits.replace(self.id_at.clone(), id.to_string());
        edits.apply(&self.raw)
    }

    /// The place and value of `params._meta.progressToken`.
    pub fn progress_token(&self) -> Result<Option<Member<RequestId>>, BadParams> {
        self.token_param(&["_meta", "progressToken"])
    }
}

impl Response {
    /// The message under the id that its receiver knows, with the other replacements made.
    pub fn rewritten(&self, id: &RequestId, mut edits: Edits) -> Wire {
        edits.extend(&self.shaped);
        if self.id_at.is_empty() {
            // An error without an id: it becomes one that says which request it answers.
            let start = self.raw.iter().position(|&b| b == b'{').map_or(0, |at| at + 1);
            edits.replace(start..start, Bytes::from([b"\"id\":", &id.raw()[..], b","].concat()));
        } else {
            edits.replace(self.id_at.clone(), id.raw().clone());
        }
        edits.apply(&self.raw)
    }

    /// The members of the `result` or `error`; none where that is no object.
    pub fn object(&self) -> Option<Object<'_>> {
        self.index.object(&self.raw, self.body_at.clone())
    }

    /// The bytes of the `result` or `error` value.
    pub fn body(&self) -> Bytes {
        self.raw.slice(self.body_at.clone())
    }

    /// `error.code`, where this is an error that has one.
    pub fn error_code(&self) -> Option<i64> {
        if self.ok {
            return None;
        }
        self.object()?.only("code")?.get().parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &'static str) -> Result<Incoming, ParseError> {
        Incoming::parse(Bytes::from_static(text.as_bytes()))
    }

    #[test]
    fn a_request_is_rewritten_only_where_asked() {
        let Incoming::Request(r) =
            parse(r#"{ "zz":1.0,"params":{"name":"b__t","arguments":{"a":1,"a":2},"_meta":{"progressToken":"p"}},"method":"tools/call","id":"x","jsonrpc":"2.0"}"#).unwrap()
        else {
            panic!("not a request")
        };
        let name = r.string_param(&["name"]).unwrap().unwrap();
        assert_eq!(name.value, "b__t");
        let token = r.progress_token().unwrap().unwrap();
        let mut edits = Edits::new();
        edits.replace(name.at, "\"t\"").replace(token.at, "7");
        assert_eq!(
            r.numbered(7, edits).into_bytes(),
            r#"{ "zz":1.0,"params":{"name":"t","arguments":{"a":1,"a":2},"_meta":{"progressToken":7}},"method":"tools/call","id":7,"jsonrpc":"2.0"}"#
        );
    }

    #[test]
    fn a_member_is_found_however_its_name_is_written() {
        let member = |params: &str| {
            let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"x","params":{params}}}"#);
            let Incoming::Request(r) = Incoming::parse(text.into()).unwrap() else { panic!() };
            r.param(&["_meta"]).map(|found| found.map(|value| value.get().to_owned()))
        };
        assert_eq!(member(r#"{"_meta":1}"#), Ok(Some("1".into())));
        assert_eq!(member(r#"{"\u005fmeta":2}"#), Ok(Some("2".into())));
        assert_eq!(member(r#"{"a":"_meta"}"#), Ok(None));
        assert_eq!(member(r#"{"a":{}}"#), Ok(None));
        assert!(member(r#"{"_meta":1,"\u005fmeta":2}"#).is_err());
    }

    #[test]
    fn what_is_not_json_rpc_is_refused_with_the_id() {
        for (text, code, id) in [
            (r#"{"jsonrpc":"2.0","id":1,"method":"x","params":[1]}"#, -32602, Some("1")),
            (r#"{"jsonrpc":"2.0","id":1,"method":5}"#, -32600, Some("1")),
            (r#"{"jsonrpc":"1.0","id":1,"method":"x"}"#, -32600, Some("1")),
            (r#"{"jsonrpc":"2.0","id":null,"method":"x"}"#, -32600, None),
            (r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"x"}"#, -32600, None),
            (r#"{"jsonrpc":"2.0","id":1,"method":"x","method":"y"}"#, -32600, Some("1")),
            (r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{}}"#, -32600, Some("1")),
            (r#"{"jsonrpc":"2.0","id":1}"#, -32600, Some("1")),
            (r#"{"jsonrpc":"2.0","id":5,"method":"x","params":{}"#, -32700, Some("5")),
            ("3", -32600, None),
            ("", -32700, None),
        ] {
            let e = parse(text).unwrap_err();
            assert_eq!(e.code, code, "{text}");
            assert_eq!(e.id.map(|i| String::from_utf8(i.raw().to_vec()).unwrap()).as_deref(), id, "{text}");
        }
    }

    #[test]
    fn an_error_without_an_id_gets_the_id_of_its_request() {
        let Incoming::Response(r) = parse(r#"{"jsonrpc":"2.0","error":{"code":-1,"message":"m"}}"#).unwrap() else { panic!() };
        assert_eq!(r.error_code(), Some(-1));
        assert_eq!(
            r.rewritten(&RequestId::number(3), Edits::new()).into_bytes(),
            r#"{"id":3,"jsonrpc":"2.0","error":{"code":-1,"message":"m"}}"#
        );
        let Incoming::Response(r) = parse(r#"{"jsonrpc":"2.0","id":null,"error":{"code":-1}}"#).unwrap() else { panic!() };
        assert_eq!(r.rewritten(&RequestId::number(3), Edits::new()).into_bytes(), r#"{"jsonrpc":"2.0","id":3,"error":{"code":-1}}"#);
    }

    #[test]
    fn a_batch_is_cut_into_its_messages() {
        let raw = Bytes::from_static(b" [ {\"a\":1}, 2 ] ");
        assert_eq!(batch(&raw).unwrap().unwrap(), ["{\"a\":1}", "2"]);
        assert!(batch(&Bytes::from_static(b"[1,")).unwrap().is_err());
        assert!(batch(&Bytes::from_static(b"{}")).is_none());
    }
}

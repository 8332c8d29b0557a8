//! `requestState`: what a client is given when its request ends in a question, and has to bring back (2026-07-28 patterns/mrtr).
//!
//! It comes from a client's hands, so it is sealed: bound to the principal, the virtual host, and the request with which it has to come
//! back, and good for a time. Inside is either the key of a call that waits here, or what a backend of the same era gave out.

use super::super::{Gateway, Refusal};
use super::Asking;
use crate::protocol::message::Member;
use crate::protocol::{Edits, Request, RpcError, json};
use crate::session::Session;
use bytes::Bytes;
use http::StatusCode;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const STATE: &str = "requestState";
const RESPONSES: &str = "inputResponses";
/// What a sealed state is for, so that nothing else that is sealed here can stand for it.
const PURPOSE: &str = "requestState";

/// The state of a backend, on its way back to it.
#[derive(Clone, Debug)]
pub struct Echo {
    /// Index of the backend in the virtual host.
    pub backend: usize,
    /// JSON text, as the backend wrote it.
    text: Bytes,
    /// The place of the sealed one in the request.
    at: std::ops::Range<usize>,
}

/// What a request brings back.
pub(super) enum Given {
    Nothing,
    Parked([u8; 16]),
    Echo(Echo),
}

/// What is inside.
pub(super) enum Inside<'a> {
    Parked(&'a [u8; 16]),
    /// A backend's state, as JSON text.
    Of {
        backend: &'a str,
        text: &'a [u8],
    },
}

impl Echo {
    /// Puts the backend's own state where the sealed one stands.
    pub fn put(&self, edits: &mut Edits) {
        edits.replace(self.at.clone(), self.text.clone());
    }
}

impl Gateway {
    /// Seals a state for `request` of the owner of `session`.
    pub(super) fn seal_state(&self, session: &Session, request: &Request, inside: Inside<'_>) -> Result<String, RpcError> {
        let until = now().saturating_add(self.settings.parked.time);
        let mut plain = until.as_secs().to_le_bytes().to_vec();
        match inside {
            Inside::Parked(key) => {
                plain.push(b'p');
                plain.extend_from_slice(key);
            }
            Inside::Of { backend, text } => {
                plain.push(b'b');
                plain.extend_from_slice(&(backend.len() as u64).to_le_bytes());
                plain.extend_from_slice(backend.as_bytes());
                plain.extend_from_slice(text);
            }
        }
        let key = session.key();
        let digest = digest(request);
        let bound = [key.principal.name().as_bytes(), key.virtual_host.as_bytes(), request.method.as_bytes(), &digest[..]];
        self.sealer.seal(PURPOSE, &bound, &plain)
    }

    /// What the request brings back.
    pub(super) fn read_state(&self, asking: &Asking<'_>) -> Result<Given, Refusal> {
        let request = &asking.request;
        let refuse = |why: &str| Err(Refusal::new(StatusCode::OK, RpcError::invalid_params(why)));
        let given = request.string_param(&[STATE]).map_err(|why| Refusal::new(StatusCode::OK, RpcError::invalid_params(why)))?;
        let Some(Member { value, at }) = given else { return Ok(Given::Nothing) };
        let digest = digest(request);
        let bound = [asking.principal.name().as_bytes(), asking.host.path.as_bytes(), request.method.as_bytes(), &digest[..]];
        let Some(plain) = self.sealer.open(PURPOSE, &bound, &value) else {
            return refuse(
                "`params.requestState` was not given out here for this request: send it back unchanged, with the same method, name and \
                 arguments, to the same endpoint, as the same principal",
            );
        };
        let read = || {
            let (until, rest) = plain.split_first_chunk::<8>()?;
            let (kind, rest) = rest.split_first()?;
            let until = Duration::from_secs(u64::from_le_bytes(*until));
            match kind {
                b'p' => Some((until, Given::Parked(rest.try_into().ok()?))),
                _ => {
                    let (len, rest) = rest.split_first_chunk::<8>()?;
                    let (name, text) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*len)).ok()?)?;
                    let backend = asking.host.backends.iter().position(|b| b.name.as_bytes() == name)?;
                    Some((until, Given::Echo(Echo { backend, text: Bytes::copy_from_slice(text), at: at.clone() })))
                }
            }
        };
        match read() {
            Some((until, _)) if until < now() => {
                refuse("the time of `params.requestState` is over (modern.parked_time): make the request anew")
            }
            Some((_, given)) => Ok(given),
            None => refuse("`params.requestState` belongs to a server that is not there any more: make the request anew"),
        }
    }
}

/// JSON text of `params.inputResponses`: key and answer.
pub(super) fn responses(request: &Request) -> Result<Vec<(String, Bytes)>, RpcError> {
    let given = request.param(&[RESPONSES]).map_err(RpcError::invalid_params)?;
    let Some(given) = given else { return Ok(Vec::new()) };
    let object = json::Object::of(given).ok_or_else(|| RpcError::invalid_params("`params.inputResponses` must be an object"))?;
    Ok(object.members().map(|(key, value)| (key.to_owned(), Bytes::copy_from_slice(value.get().as_bytes()))).collect())
}

/// Whether the request answers questions of an earlier one.
pub(super) fn has_responses(request: &Request) -> bool {
    !matches!(request.param(&[RESPONSES]), Ok(None))
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// What a retry has in common with the request before it: all of `params` but what belongs to one attempt. Order and spelling do not
/// matter: a client may write the same request anew.
fn digest(request: &Request) -> [u8; 32] {
    let mut hash = Sha256::new();
    let params = request.params_at.clone().and_then(|at| serde_json::from_slice::<Value>(&request.raw[at]).ok());
    if let Some(Value::Object(mut params)) = params {
        for own in ["_meta", STATE, RESPONSES] {
            params.remove(own);
        }
        feed(&mut hash, &Value::Object(params));
    }
    hash.finalize().into()
}

/// Members in the order of their names. Every value says its kind and length, so that no two have one text.
fn feed(hash: &mut Sha256, value: &Value) {
    let mut text = |kind: u8, text: &str| {
        hash.update([kind]);
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text);
    };
    match value {
        Value::Null => text(b'n', ""),
        Value::Bool(b) => text(b'b', if *b { "1" } else { "" }),
        Value::Number(n) => text(b'i', &n.to_string()),
        Value::String(s) => text(b's', s),
        Value::Array(items) => {
            text(b'a', &items.len().to_string());
            items.iter().for_each(|item| feed(hash, item));
        }
        Value::Object(members) => {
            text(b'o', &members.len().to_string());
            let mut sorted: Vec<_> = members.iter().collect();
            sorted.sort_unstable_by_key(|(name, _)| *name);
            for (name, value) in sorted {
                hash.update((name.len() as u64).to_le_bytes());
                hash.update(name);
                feed(hash, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Incoming;

    fn of(params: &str) -> [u8; 32] {
        let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#);
        let Ok(Incoming::Request(request)) = Incoming::parse(text.into()) else { panic!("no request") };
        digest(&request)
    }

    #[test]
    fn a_retry_is_the_same_request_whatever_its_attempt_and_spelling() {
        let first = of(r#"{"name":"t","arguments":{"a":1,"b":[true,null,"x"]}}"#);
        assert_eq!(
            first,
            of(r#"{"arguments":{"b":[true,null,"\u0078"],"a":1},"requestState":"s","inputResponses":{},"name":"t","_meta":{"x":1}}"#)
        );
        for other in [
            r#"{"name":"u","arguments":{"a":1,"b":[true,null,"x"]}}"#,
            r#"{"name":"t","arguments":{"a":2,"b":[true,null,"x"]}}"#,
            r#"{"name":"t","arguments":{"a":1,"b":[true,"x",null]}}"#,
            r#"{"name":"t","arguments":{"a":1,"b":["true",null,"x"]}}"#,
            r#"{"name":"t"}"#,
        ] {
            assert_ne!(first, of(other), "{other}");
        }
    }
}

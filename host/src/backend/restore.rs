//! What a session has set at a backend and would lose with the connection: the log level and the resource subscriptions.

use crate::protocol::json::Object;
use crate::protocol::{Incoming, Wire, json, method};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// Subscriptions that are remembered for one upstream; those beyond it are lost with the connection.
const MAX_SUBSCRIPTIONS: usize = 4096;
/// Bytes of `params` that are remembered for one of them.
const MAX_PARAMS: usize = 16 * 1024;

/// What is to be said again on the next connection.
#[derive(Debug, Default)]
pub struct Restore {
    level: Option<Bytes>,
    subscriptions: BTreeMap<String, Bytes>,
    /// Only of a server of 2026-07-28.
    tasks: BTreeSet<String>,
}

/// What a request changes if it succeeds. `params` as they were sent.
#[derive(Debug)]
pub enum Memo {
    Level(Bytes),
    Subscribe(String, Bytes),
    Unsubscribe(String),
    /// Of a task, by its id.
    Watch(String),
    Unwatch(String),
}

impl Memo {
    /// `message`: the request as it goes out.
    pub fn of(name: &str, message: &Wire) -> Option<Memo> {
        if !matches!(name, method::SET_LEVEL | method::RESOURCES_SUBSCRIBE | method::RESOURCES_UNSUBSCRIBE) {
            return None;
        }
        let Ok(Incoming::Request(request)) = Incoming::parse(message.clone().into_bytes()) else { return None };
        let params = Bytes::copy_from_slice(&request.raw[request.params_at.clone()?]);
        if params.len() > MAX_PARAMS {
            return None;
        }
        let uri = || Some(request.string_param(&["uri"]).ok()??.value);
        match name {
            method::SET_LEVEL => Some(Memo::Level(params)),
            method::RESOURCES_SUBSCRIBE => Some(Memo::Subscribe(uri()?, params)),
            _ => Some(Memo::Unsubscribe(uri()?)),
        }
    }
}

impl Restore {
    pub fn keep(&mut self, memo: Memo) {
        match memo {
            Memo::Level(params) => self.level = Some(params),
            Memo::Subscribe(uri, params) => {
                if self.subscriptions.len() < MAX_SUBSCRIPTIONS || self.subscriptions.contains_key(&uri) {
                    self.subscriptions.insert(uri, params);
                }
            }
            Memo::Unsubscribe(uri) => {
                self.subscriptions.remove(&uri);
            }
            Memo::Watch(id) => {
                if self.tasks.len() < MAX_SUBSCRIPTIONS {
                    self.tasks.insert(id);
                }
            }
            Memo::Unwatch(id) => {
                self.tasks.remove(&id);
            }
        }
    }

    /// JSON text of the log level.
    pub fn level(&self) -> Option<String> {
        let params = Object::parse(self.level.as_ref()?).ok()?;
        params.only("level").map(|level| level.get().to_owned())
    }

    /// The subscribed URIs, in order.
    pub fn uris(&self) -> impl Iterator<Item = &str> {
        self.subscriptions.keys().map(String::as_str)
    }

    /// The tasks that are watched, in order.
    pub fn tasks(&self) -> impl Iterator<Item = &str> {
        self.tasks.iter().map(String::as_str)
    }

    /// Method and params of each request to make, the log level first.
    pub fn requests(&self) -> Vec<(&'static str, Bytes)> {
        let level = self.level.iter().map(|p| (method::SET_LEVEL, p.clone()));
        level.chain(self.subscriptions.values().map(|p| (method::RESOURCES_SUBSCRIBE, p.clone()))).collect()
    }
}

/// A request of the gateway's own. `params` is JSON text.
pub fn request(id: u64, name: &str, params: Bytes) -> Wire {
    let mut out = Wire::from(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":{},\"params\":", json::quote(name)));
    out.push(params);
    out.push(Bytes::from_static(b"}"));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memo(text: &str) -> Option<Memo> {
        let Ok(Incoming::Request(r)) = Incoming::parse(Bytes::from(text.to_owned())) else { return None };
        Memo::of(&r.method, &Wire::from(text.to_owned()))
    }

    #[test]
    fn the_last_level_and_the_living_subscriptions_are_said_again() {
        let mut restore = Restore::default();
        for text in [
            r#"{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"info"}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"debug","x":1.0}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"a:1"}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"a:2"}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"resources/unsubscribe","params":{"uri":"a:\u0031"}}"#,
        ] {
            restore.keep(memo(text).unwrap());
        }
        let said: Vec<_> = restore.requests().into_iter().map(|(m, p)| (m, String::from_utf8(p.to_vec()).unwrap())).collect();
        assert_eq!(
            said,
            [("logging/setLevel", r#"{"level":"debug","x":1.0}"#.to_owned()), ("resources/subscribe", r#"{"uri":"a:2"}"#.to_owned())]
        );
        assert!(memo(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}"#).is_none());
    }
}

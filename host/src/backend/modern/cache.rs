//! Lists that a server of 2026-07-28 allows to be kept (2026-07-28 server/utilities/caching): whole answers, by method and cursor, as long as
//! their own `ttlMs` says. Those of scope `public` are kept for all sessions of the backend, all others for the one that asked.
//!
//! Bounded in number and bytes. A change that the server tells of takes out what it concerns, also what is on its way just then.

use crate::backend::inner::{Inner, lock};
use crate::protocol::json::{self, Object};
use crate::protocol::{Edits, Incoming, Request, Response, method};
use bytes::Bytes;
use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;
use tokio::time::Instant;

/// No list is kept longer, whatever its server says.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
/// Bytes of a cursor.
const CURSOR: usize = 4096;

/// What a list is kept under.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    method: &'static str,
    cursor: Option<String>,
}

/// Who may be given a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    Public,
    Private,
}

#[derive(Debug)]
pub struct Cache {
    entries: usize,
    bytes: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    kept: HashMap<Key, Kept>,
    bytes: usize,
    /// Counts the changes.
    changes: u64,
}

#[derive(Debug)]
struct Kept {
    raw: Bytes,
    until: Instant,
}

impl Key {
    /// None where the request is no list, or asks for more than a page of it.
    pub fn of(request: &Request) -> Option<Key> {
        let method = listed(&request.method)?;
        let mut cursor = None;
        if let Some(params) = request.params() {
            for (name, value) in params.members() {
                match name {
                    "_meta" => {}
                    "cursor" if cursor.is_none() && value.get().len() <= CURSOR => cursor = Some(json::string(value)?.into_owned()),
                    _ => return None,
                }
            }
        }
        Some(Key { method, cursor })
    }
}

/// One list that is wanted: where it may be kept, and what had changed there when it was asked for.
#[derive(Debug)]
pub struct Lookup {
    key: Key,
    changes: (u64, u64),
}

impl Lookup {
    /// `message`: the request as the server gets it. None where it is none for a list.
    pub fn of(inner: &Inner, method: &str, message: &Bytes) -> Option<Lookup> {
        listed(method)?;
        let Ok(Incoming::Request(request)) = Incoming::parse(message.clone()) else { return None };
        Some(Lookup { key: Key::of(&request)?, changes: (inner.modern().lists.changes(), inner.backend.known.lists().changes()) })
    }

    /// An answer that is kept for this session, or for all.
    pub fn find(&self, inner: &Inner) -> Option<Response> {
        let (response, left) = inner.modern().lists.find(&self.key).or_else(|| inner.backend.known.lists().find(&self.key))?;
        // A client that keeps it, too, must not keep it longer than its server allowed. Older ones are told nothing of it.
        if inner.hello.modern { aged(&response, left) } else { Some(response) }
    }

    /// Keeps the answer where it says that it may be.
    pub fn keep(self, inner: &Inner, answer: &Response) {
        match permission(answer) {
            Some((Scope::Private, ttl)) => inner.modern().lists.keep(self.key, answer, ttl, self.changes.0),
            Some((Scope::Public, ttl)) => inner.backend.known.lists().keep(self.key, answer, ttl, self.changes.1),
            None => {}
        }
    }
}

fn listed(of: &str) -> Option<&'static str> {
    let lists = [method::TOOLS_LIST, method::PROMPTS_LIST, method::RESOURCES_LIST, method::RESOURCES_TEMPLATES_LIST];
    lists.into_iter().find(|list| *list == of)
}

/// The answer, saying how long it may still be kept.
fn aged(answer: &Response, left: Duration) -> Option<Response> {
    let body = answer.body();
    let at = json::place(&body, Object::parse(&body).ok()?.only("ttlMs")?);
    let mut edits = Edits::new();
    edits.replace(at.start + answer.body_at.start..at.end + answer.body_at.start, left.as_millis().to_string());
    match Incoming::parse(edits.apply(&answer.raw).into_bytes()) {
        Ok(Incoming::Response(response)) => Some(response),
        _ => None,
    }
}

/// How long an answer may be kept, and for whom. None: not at all.
pub fn permission(answer: &Response) -> Option<(Scope, Duration)> {
    if !answer.ok {
        return None;
    }
    let body = answer.body();
    let object = Object::parse(&body).ok()?;
    let complete = object.get("resultType").ok()?.is_none_or(|kind| kind.get() == "\"complete\"");
    let scope = match json::string(object.only("cacheScope")?)?.as_ref() {
        "public" => Scope::Public,
        "private" => Scope::Private,
        _ => return None,
    };
    let ttl = Duration::from_millis(object.only("ttlMs")?.get().parse().ok()?);
    (complete && !ttl.is_zero()).then_some((scope, ttl.min(LONGEST)))
}

impl Cache {
    /// Keeps at most so many answers, of so many bytes altogether.
    pub fn new(entries: usize, bytes: usize) -> Cache {
        Cache { entries, bytes, state: Mutex::new(State { kept: HashMap::new(), bytes: 0, changes: 0 }) }
    }

    /// An answer to another request of the same, under that one's id, and how long it may still be kept.
    pub fn find(&self, key: &Key) -> Option<(Response, Duration)> {
        let (raw, left) = {
            let mut state = lock(&self.state);
            let kept = state.kept.get(key)?;
            let left = kept.until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                state.forget(key);
                return None;
            }
            (kept.raw.clone(), left)
        };
        match Incoming::parse(raw) {
            Ok(Incoming::Response(response)) => Some((response, left)),
            _ => None,
        }
    }

    /// To be asked before a request is sent, for `keep`.
    pub fn changes(&self) -> u64 {
        lock(&self.state).changes
    }

    /// Keeps an answer, unless something has changed since `changes`.
    pub fn keep(&self, key: Key, answer: &Response, ttl: Duration, changes: u64) {
        let size = answer.raw.len();
        let mut state = lock(&self.state);
        if size > self.bytes || self.entries == 0 || state.changes != changes {
            return;
        }
        state.forget(&key);
        while state.kept.len() >= self.entries || state.bytes + size > self.bytes {
            // The one that would go first anyway.
            let Some(first) = state.kept.iter().min_by_key(|(_, kept)| kept.until).map(|(key, _)| key.clone()) else { break };
            state.forget(&first);
        }
        state.bytes += size;
        // A copy: what was read with it is not to be held as long.
        state.kept.insert(key, Kept { raw: Bytes::copy_from_slice(&answer.raw), until: Instant::now() + ttl });
    }

    /// The server tells of a change, by this notification: the lists that it concerns are not kept any longer.
    pub fn changed(&self, notification: &str) {
        let concerned: &[&str] = match notification {
            method::TOOLS_CHANGED => &[method::TOOLS_LIST],
            method::PROMPTS_CHANGED => &[method::PROMPTS_LIST],
            method::RESOURCES_CHANGED => &[method::RESOURCES_LIST, method::RESOURCES_TEMPLATES_LIST],
            _ => return,
        };
        let mut state = lock(&self.state);
        state.changes += 1;
        let gone: Vec<Key> = state.kept.keys().filter(|key| concerned.contains(&key.method)).cloned().collect();
        gone.iter().for_each(|key| state.forget(key));
    }

    pub fn clear(&self) {
        let mut state = lock(&self.state);
        state.changes += 1;
        state.kept = HashMap::new();
        state.bytes = 0;
    }
}

impl State {
    fn forget(&mut self, key: &Key) {
        if let Some(kept) = self.kept.remove(key) {
            self.bytes -= kept.raw.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: &str, params: &str) -> Request {
        let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
        let Ok(Incoming::Request(request)) = Incoming::parse(Bytes::from(text)) else { panic!("{params}") };
        request
    }

    fn answer(result: &str) -> Response {
        let Ok(Incoming::Response(answer)) = Incoming::parse(Bytes::from(format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#)))
        else {
            panic!("{result}")
        };
        answer
    }

    fn key(cursor: &str) -> Key {
        Key::of(&request("tools/list", &format!(r#"{{"cursor":"{cursor}","_meta":{{}}}}"#))).unwrap()
    }

    #[test]
    fn only_complete_lists_are_kept_and_only_as_long_as_they_say() {
        assert!(Key::of(&request("tools/call", "{}")).is_none() && Key::of(&request("tools/list", r#"{"filter":1}"#)).is_none());
        assert_ne!(key("a"), key("b"));
        let may = |result: &str| permission(&answer(result));
        let minute = Duration::from_secs(60);
        assert_eq!(may(r#"{"resultType":"complete","ttlMs":60000,"cacheScope":"public"}"#), Some((Scope::Public, minute)));
        assert_eq!(may(r#"{"ttlMs":60000,"cacheScope":"private"}"#), Some((Scope::Private, minute)));
        assert_eq!(may(r#"{"ttlMs":99999999999999,"cacheScope":"private"}"#), Some((Scope::Private, LONGEST)));
        for never in [
            r#"{"ttlMs":0,"cacheScope":"public"}"#,
            r#"{"ttlMs":-1,"cacheScope":"public"}"#,
            r#"{"ttlMs":1.5,"cacheScope":"public"}"#,
            r#"{"ttlMs":60000}"#,
            r#"{"ttlMs":60000,"cacheScope":"shared"}"#,
            r#"{"cacheScope":"public"}"#,
            r#"{"resultType":"input_required","ttlMs":60000,"cacheScope":"public"}"#,
        ] {
            assert_eq!(may(never), None, "{never}");
        }
    }

    #[test]
    fn answers_go_with_their_time_with_a_change_and_where_there_are_too_many() {
        let cache = Cache::new(2, 1000);
        let page = answer(r#"{"tools":[],"ttlMs":60000,"cacheScope":"private"}"#);
        let keep = |name: &str, seconds| cache.keep(key(name), &page, Duration::from_secs(seconds), cache.changes());
        keep("a", 10);
        let (kept, left) = cache.find(&key("a")).unwrap();
        assert_eq!(kept.raw, page.raw);
        let older = aged(&kept, left).unwrap();
        assert!(permission(&older).unwrap().1 <= left, "it says how long it may still be kept");
        keep("a", 0);
        assert!(cache.find(&key("a")).is_none());
        for (name, seconds) in [("a", 500), ("b", 900), ("c", 700)] {
            keep(name, seconds);
        }
        assert!(cache.find(&key("a")).is_none() && cache.find(&key("b")).is_some() && cache.find(&key("c")).is_some());
        let before = cache.changes();
        cache.changed("notifications/prompts/list_changed");
        assert!(cache.find(&key("b")).is_some());
        cache.changed("notifications/tools/list_changed");
        assert!(cache.find(&key("b")).is_none() && lock(&cache.state).bytes == 0);
        cache.keep(key("b"), &page, LONGEST, before);
        assert!(cache.find(&key("b")).is_none(), "an answer from before the change was kept");
        cache.keep(key("b"), &answer(&format!(r#"{{"x":"{}"}}"#, "x".repeat(1000))), LONGEST, cache.changes());
        assert!(cache.find(&key("b")).is_none(), "it is larger than all there is");
    }
}

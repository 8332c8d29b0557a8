//! What the tools of a server of 2026-07-28 want repeated in headers, as its lists say (2026-07-28 server/tools, "x-mcp-header"). Over HTTP
//! only: nobody else reads headers.

use super::post;
use crate::backend::http::link::HttpLink;
use crate::backend::inner::{Inner, lock};
use crate::protocol::json::{self, Object};
use crate::protocol::members::drop_elements;
use crate::protocol::mirror::Params;
use crate::protocol::{Edits, Incoming, Response, Wire, method};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// Tools with annotations that are remembered. Calls of those beyond carry no such headers.
const MAX_TOOLS: usize = 1024;
/// Pages that are read to find out what a tool wants.
const PAGES: usize = 64;

#[derive(Debug, Default)]
pub struct Tools(Mutex<HashMap<String, Arc<Params>>>);

impl Tools {
    /// What the tool wants, as far as it was listed.
    pub fn of(&self, name: &str) -> Option<Arc<Params>> {
        lock(&self.0).get(name).cloned()
    }

    /// Reads a page of `tools/list`. Hands it back without the tools whose annotations are not valid, which nobody may list or call.
    pub fn learn(&self, inner: &Inner, page: Response) -> Response {
        let body = page.body();
        let tools = Object::parse(&body).ok().and_then(|o| o.only("tools")).and_then(json::array).unwrap_or_default();
        let mut bad = vec![false; tools.len()];
        for (tool, bad) in tools.iter().zip(&mut bad) {
            let Some(tool) = Object::of(tool) else { continue };
            let Some(name) = tool.only("name").and_then(json::string) else { continue };
            match tool.only("inputSchema").map_or(Ok(Params::default()), Params::of_schema) {
                Ok(params) => self.keep(&name, params),
                Err(why) => {
                    let name: String = name.chars().filter(|c| !c.is_control()).take(128).collect();
                    inner.noise(&format!("tool `{name}` was left out of the list: {why}"));
                    self.keep(&name, Params::default());
                    *bad = true;
                }
            }
        }
        if !bad.contains(&true) {
            return page;
        }
        let places: Vec<_> = tools
            .iter()
            .map(|tool| json::place(&body, tool))
            .map(|at| at.start + page.body_at.start..at.end + page.body_at.start)
            .collect();
        let mut edits = Edits::new();
        drop_elements(&places, |index| bad[index], &mut edits);
        match Incoming::parse(edits.apply(&page.raw).into_bytes()) {
            Ok(Incoming::Response(response)) => response,
            _ => page,
        }
    }

    fn keep(&self, name: &str, params: Params) {
        let mut tools = lock(&self.0);
        if params.is_empty() {
            tools.remove(name);
        } else if tools.len() < MAX_TOOLS || tools.contains_key(name) {
            tools.insert(name.to_owned(), Arc::new(params));
        }
    }
}

/// Reads all tools anew, after the server missed a header.
pub async fn read(inner: &Arc<Inner>, http: &HttpLink) {
    let mut cursor: Option<String> = None;
    for _ in 0..PAGES {
        let id = inner.next_id();
        let members = inner.modern().meta.members(None);
        let next = cursor.as_ref().map(|c| format!(",\"cursor\":{}", json::quote(c))).unwrap_or_default();
        let message = format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{}\",\"params\":{{\"_meta\":{{{members}}}{next}}}}}",
            method::TOOLS_LIST
        );
        let Ok(page) = post::ask(inner, http, id, Wire::from(message)).await else { return };
        if !page.ok {
            return;
        }
        let page = inner.modern().tools.learn(inner, page);
        let body = page.body();
        let next = Object::parse(&body).ok().and_then(|o| o.only("nextCursor")).and_then(json::string).map(|c| c.into_owned());
        if next.is_none() || next == cursor {
            return;
        }
        cursor = next;
    }
}

//! What the tools of a client of 2026-07-28 want repeated in headers, by the lists that this client was given or the gateway has read for it
//! (2026-07-28 server/tools, "x-mcp-header").
//!
//! Only for holding the client's own headers against its calls: what a backend wants to be sent is the upstream's. A tool beyond the
//! bounds, or with annotations that no client may follow, is as one without: its headers are nobody's business here.

use super::Target;
use super::items::Page;
use crate::protocol::json::Object;
use crate::protocol::mirror::{ANNOTATION, Params};
use crate::rare::Rare;
use std::collections::HashMap;
use std::sync::Arc;

/// Tools of one session that are remembered.
const TOOLS: usize = 512;
/// Bytes that they take, all together.
const BYTES: usize = 256 << 10;

/// By backend and own name: policies may name things anew.
#[derive(Debug, Default)]
pub struct Annotated(Rare<Inner>);

#[derive(Debug, Default)]
struct Inner {
    tools: HashMap<Target, Arc<Params>>,
    bytes: usize,
}

impl Annotated {
    pub fn is_empty(&self) -> bool {
        self.0.look(|inner| inner.tools.is_empty()).unwrap_or(true)
    }

    /// What a tool wants, as far as it is known; none where it wants nothing.
    pub fn of(&self, target: &Target) -> Option<Arc<Params>> {
        self.0.look(|inner| inner.tools.get(target).cloned())?
    }

    /// Reads a page of `tools/list`. `whole`: it is all that the backend lists.
    pub fn learn(&self, backend: usize, page: &Page, whole: bool) {
        // Most pages have none, and are not looked into.
        let any = memchr::memmem::find(&page.raw[page.items_at.clone()], ANNOTATION.as_bytes()).is_some();
        if !any && self.is_empty() {
            return;
        }
        let read = |at: std::ops::Range<usize>| {
            let tool = Object::parse(&page.raw[at]).ok()?;
            Params::of_schema(tool.only("inputSchema")?).ok().filter(|params| !params.is_empty())
        };
        let read: Vec<_> = page.items.iter().map(|item| (&item.name, if any { read(item.at.clone()) } else { None })).collect();
        let full = self.0.change(|inner| {
            if whole {
                inner.forget(backend);
            }
            let mut full = false;
            for (name, params) in read {
                full |= !inner.keep(Target { backend, name: name.clone() }, params);
            }
            full
        });
        if full {
            tracing::warn!(backend, tools = TOOLS, bytes = BYTES, "more tools repeat arguments in headers than a session remembers");
        }
    }

    /// What a backend lists has changed.
    pub fn forget(&self, backend: usize) {
        self.0.look(|inner| inner.forget(backend));
    }
}

impl Inner {
    /// False where there is no room.
    fn keep(&mut self, target: Target, params: Option<Params>) -> bool {
        if let Some(old) = self.tools.remove(&target) {
            self.bytes -= weight(&target, &old);
        }
        let Some(params) = params else { return true };
        let bytes = weight(&target, &params);
        if self.tools.len() >= TOOLS || self.bytes + bytes > BYTES {
            return false;
        }
        self.bytes += bytes;
        self.tools.insert(target, Arc::new(params));
        true
    }

    fn forget(&mut self, backend: usize) {
        self.tools.retain(|target, params| {
            let keep = target.backend != backend;
            if !keep {
                self.bytes -= weight(target, params);
            }
            keep
        });
    }
}

fn weight(target: &Target, params: &Params) -> usize {
    target.name.len() + params.bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Incoming;
    use lockgate_policy::Kind;

    fn page(tools: &[String]) -> Page {
        let text = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"tools":[{}]}}}}"#, tools.join(","));
        let Ok(Incoming::Response(response)) = Incoming::parse(text.into()) else { panic!("no response") };
        Page::of(Kind::Tool.into(), &response).unwrap()
    }

    fn tool(name: &str, header: &str) -> String {
        format!(
            r#"{{"name":"{name}","inputSchema":{{"type":"object","properties":{{"a":{{"type":"string","x-mcp-header":"{header}"}}}}}}}}"#
        )
    }

    fn plain(name: &str) -> String {
        format!(r#"{{"name":"{name}","inputSchema":{{"type":"object"}}}}"#)
    }

    fn target(backend: usize, name: &str) -> Target {
        Target { backend, name: name.into() }
    }

    #[test]
    fn what_a_tool_wants_is_known_until_its_list_says_otherwise_or_changes() {
        let known = Annotated::default();
        known.learn(0, &page(&[plain("p"), plain("q")]), true);
        assert!(known.is_empty());
        known.learn(0, &page(&[tool("t", "A"), tool("bad", "A B"), plain("p")]), false);
        known.learn(1, &page(&[tool("t", "B")]), true);
        let has = |at: &Target, header: &'static str| known.of(at).is_some_and(|p| p.has(&http::HeaderName::from_static(header)));
        assert!(has(&target(0, "t"), "mcp-param-a") && has(&target(1, "t"), "mcp-param-b"));
        assert!(known.of(&target(0, "bad")).is_none() && known.of(&target(0, "p")).is_none());
        // A further page says nothing of those before it; the same tool in it does, and so does a list of all.
        known.learn(0, &page(&[tool("u", "A")]), false);
        assert!(has(&target(0, "t"), "mcp-param-a"));
        known.learn(0, &page(&[plain("t")]), false);
        assert!(known.of(&target(0, "t")).is_none() && has(&target(0, "u"), "mcp-param-a"));
        known.learn(0, &page(&[plain("t")]), true);
        assert!(known.of(&target(0, "u")).is_none());
        known.forget(1);
        assert!(known.is_empty());
        assert_eq!(known.0.look(|inner| inner.bytes).unwrap_or(0), 0);
    }

    #[test]
    fn there_is_room_for_so_many() {
        let known = Annotated::default();
        let many: Vec<_> = (0..TOOLS + 3).map(|n| tool(&format!("t{n}"), "A")).collect();
        known.learn(0, &page(&many), true);
        assert_eq!(known.0.look(|inner| inner.tools.len()), Some(TOOLS));
        let long =
            format!(r#"{{"name":"l","inputSchema":{{"properties":{{"{}":{{"type":"string","x-mcp-header":"A"}}}}}}}}"#, "x".repeat(BYTES));
        known.learn(0, &page(&[long, tool("short", "A")]), true);
        assert!(known.of(&target(0, "l")).is_none() && known.of(&target(0, "short")).is_some());
    }
}

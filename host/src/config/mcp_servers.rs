//! The server list that desktop clients keep (`mcpServers`, or `servers` in the shape of VS Code) as backends.
//!
//! These files belong to other programs: keys that mean nothing here are a warning, and a name outside our alphabet is
//! changed in a stable way. What is meant for this purpose and wrong is a problem as in our own file.

use std::collections::HashMap;

use serde::Deserialize;

use super::file::{BackendFile, Entries, Word};
use super::model::Transport;
use super::problem::{Problem, Problems};
use super::resolve::{Draft, Source};
use super::secret::Secret;
use super::source::tree::{Doc, Step};

/// The document. One of the two maps; all else in the file is the client's own and passed over in silence.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct McpServersFile {
    #[serde(rename = "mcpServers")]
    mcp_servers: Option<Entries<McpServer>>,
    servers: Option<Entries<McpServer>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct McpServer {
    command: Option<String>,
    args: Vec<Word>,
    env: Option<Entries<Secret>>,
    cwd: Option<String>,
    url: Option<String>,
    server_url: Option<String>,
    http_url: Option<String>,
    r#type: Option<String>,
    transport: Option<String>,
    headers: Option<Entries<Secret>>,
    disabled: bool,
    enabled: Option<bool>,
}

/// The key of the map that this document has; the first step of every path into it.
pub fn root(doc: &Doc) -> &'static str {
    if doc.get(&["mcpServers".into()]).is_none() && doc.get(&["servers".into()]).is_some() { "servers" } else { "mcpServers" }
}

/// The enabled servers as backends, in the order of the file.
pub fn drafts<'a>(source: &'a Source<'a>, file: McpServersFile, problems: &mut Problems, warnings: &mut Problems) -> Vec<Draft<'a>> {
    let root = root(source.doc);
    let root_step: Step<'a> = root.into();
    let entries = if root == "servers" { file.servers } else { file.mcp_servers };
    let Some(Entries(entries)) = entries else {
        if !source.doc.incomplete(&[]) {
            let message = "has no `mcpServers` (or `servers`); give the file in which a client lists its MCP servers";
            problems.push(source.doc.problem(&[], message));
        }
        return Vec::new();
    };
    let mut drafts: Vec<Draft<'a>> = Vec::new();
    let mut renamed: HashMap<String, String> = HashMap::new();
    for (written, server) in entries {
        if server.disabled || server.enabled == Some(false) {
            continue;
        }
        // The key as it stands in the tree, which outlives this loop.
        let Some(key) = key_in(source.doc, root, &written) else { continue };
        let path = [root_step, key.into()];
        let name = sanitise(&written);
        if name != written {
            let message = format!("this name does not fit a backend; it is `{name}` here");
            warnings.push(Problem::new(source.doc.key_place(&path), message));
            if let Some(first) = renamed.get(&name).cloned().or_else(|| drafts.iter().any(|d| d.name == name).then(|| name.clone())) {
                let message = format!("becomes `{name}` here, as does `{first}`; rename one of them");
                problems.push(Problem::new(source.doc.key_place(&path), message));
                continue;
            }
            renamed.insert(name.clone(), written.clone());
        }
        if let Some(entry) = server.into_backend(source.doc, &path, problems) {
            drafts.push(Draft { name, source, path, entry });
        }
    }
    drafts
}

fn key_in<'a>(doc: &'a Doc, root: &str, key: &str) -> Option<&'a str> {
    match &doc.get(&[root.into()])?.kind {
        super::source::tree::Kind::Map(entries) => entries.iter().find(|e| e.key == key).map(|e| e.key.as_str()),
        _ => None,
    }
}

/// A name of our alphabet: each run of what does not fit becomes one `-`. Depends on the name alone.
fn sanitise(name: &str) -> String {
    if super::resolve::name_fault(name).is_none() {
        return name.to_owned();
    }
    let mut out = String::new();
    for c in name.chars() {
        match c {
            c if c.is_ascii_alphanumeric() || c == '_' => out.push(c),
            _ if out.ends_with('-') => {}
            _ => out.push('-'),
        }
    }
    let trimmed = out.trim_matches(['-', '_']);
    let cut = trimmed.get(..64).unwrap_or(trimmed).trim_end_matches('-');
    if cut.is_empty() { "server".to_owned() } else { cut.to_owned() }
}

// === impl McpServer ===

impl McpServer {
    fn into_backend(self, doc: &Doc, path: &[Step<'_>; 2], problems: &mut Problems) -> Option<BackendFile> {
        let place = |key: &'static str| doc.place(&[path[0], path[1], key.into()]);
        let (kind_key, kind) = match (&self.r#type, &self.transport) {
            (Some(kind), _) => ("type", Some(kind.as_str())),
            (None, kind) => ("transport", kind.as_deref()),
        };
        // `http` means streamable HTTP with the fall-back to HTTP+SSE in the clients that use it.
        let transport = match kind.map(str::to_ascii_lowercase).as_deref() {
            None | Some("http" | "streamable-http" | "streamablehttp" | "streamable_http") => None,
            Some("sse") => Some(Transport::Sse),
            Some("stdio") => None,
            Some(other) => {
                let message = format!("`{other}` is not a transport; known here: stdio, http, streamable-http, sse");
                problems.push(Problem::new(place(kind_key), message));
                return None;
            }
        };
        let url = self.url.or(self.server_url).or(self.http_url);
        let command = self.command.map(|program| super::resolve::words(program, self.args));
        let (is_http, is_stdio) = (url.is_some(), command.is_some());
        Some(BackendFile {
            transport: transport.filter(|_| is_http),
            // Clients write empty maps for what the other kind of server would need.
            headers: self.headers.filter(|h| is_http || !h.0.is_empty()),
            env: self.env.filter(|e| is_stdio || !e.0.is_empty()),
            cwd: self.cwd,
            url,
            command,
            timeouts: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::sanitise;

    #[test]
    fn names_are_made_to_fit_in_a_stable_way() {
        for (name, fits) in [
            ("time", "time"),
            ("my-server_2", "my-server_2"),
            ("My Server (local)", "My-Server-local"),
            ("@scope/pkg", "scope-pkg"),
            ("a__b", "a__b"),
            ("a-", "a-"),
            ("_a", "a"),
            ("a - b", "a-b"),
            ("café", "caf"),
            ("日本", "server"),
            ("", "server"),
        ] {
            assert_eq!(sanitise(name), fits, "{name}");
        }
        assert_eq!(sanitise(&"x".repeat(80)).len(), 64);
    }
}

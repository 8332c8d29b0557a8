//! The endpoints: paths, who stands behind them, aliases and policies. Finds what can never take effect.

use std::collections::HashMap;
use std::sync::Arc;

use super::policies::default_policies;
use super::{Cx, Source};
use crate::config::file::{AliasFile, File, VirtualHostFile};
use crate::config::model::{Alias, AliasKind, Backend, PolicyConfig, PolicyRef, VirtualHost};
use crate::config::problem::{Place, suggest};
use crate::config::source::tree::Step;

const DEFAULT_PATH: &str = "/mcp";
/// More than any client would show to its model.
const MAX_INSTRUCTIONS: usize = 64 << 10;

/// The virtual hosts of the file, or the one that stands for all.
pub fn virtual_hosts(
    main: &Source<'_>,
    file: &File,
    plane: &PolicyConfig,
    backends: &[Backend],
    places: &[Place],
    cx: &mut Cx<'_>,
) -> Vec<VirtualHost> {
    let Some(written) = &file.virtual_hosts else {
        return vec![VirtualHost {
            path: Arc::from(DEFAULT_PATH),
            backends: (0..backends.len()).collect(),
            aliases: Vec::new(),
            policies: default_policies(plane),
            instructions: None,
        }];
    };
    let root: Step<'_> = "virtual_hosts".into();
    if written.0.is_empty() && !main.doc.incomplete(&[root]) {
        cx.problem(
            main.doc.key_place(&[root]),
            "no path to serve; add one such as `/mcp: {}`, or remove the key to have `/mcp` with every backend",
        );
    }
    let mut hosts: Vec<VirtualHost> = Vec::new();
    let mut used = vec![false; backends.len()];
    for (key, entry) in &written.0 {
        let at = [root, key.as_str().into()];
        let path = normal_path(key).unwrap_or_else(|message| {
            cx.problem(main.doc.key_place(&at), message);
            key.clone()
        });
        if hosts.iter().any(|h| *h.path == *path) {
            let message = format!("is the same endpoint as `{path}` above; keep one of them");
            cx.problem(main.doc.key_place(&at), message);
        }
        let empty = VirtualHostFile::default();
        let host = Host { main, at, entry: entry.as_ref().unwrap_or(&empty), plane, backends };
        let members = host.members(cx);
        members.iter().for_each(|i| used[*i] = true);
        let policies = host.policies(&members, cx);
        let aliases = host.aliases(&members, &policies, cx);
        let instructions = host.instructions(cx);
        hosts.push(VirtualHost { path: Arc::from(path), backends: members, aliases, policies, instructions });
    }
    if !hosts.is_empty() && !main.doc.incomplete(&[root]) {
        for (i, _) in used.iter().enumerate().filter(|(_, used)| !**used) {
            let message = "no virtual host uses this backend, so nobody can reach it; add it to the `backends` of one, or remove it";
            cx.problem(places[i].clone(), message);
        }
    }
    hosts
}

/// `/mcp/` and `/mcp` are one endpoint; anything that a client or proxy might rewrite on the way is refused.
fn normal_path(path: &str) -> Result<String, String> {
    if !path.starts_with('/') {
        return Err(format!("a path begins with `/`; write `/{path}`"));
    }
    let trimmed = path.strip_suffix('/').unwrap_or(path);
    if trimmed.is_empty() {
        return Ok("/".to_owned());
    }
    for segment in trimmed[1..].split('/') {
        if segment.is_empty() {
            return Err("`//` in a path is folded by some proxies; write one `/`".to_owned());
        }
        if segment == "." || segment == ".." {
            return Err(format!("`{segment}` in a path is resolved by clients; write the path without it"));
        }
        if let Some(c) = segment.chars().find(|c| !c.is_ascii_alphanumeric() && !matches!(c, '-' | '_' | '.' | '~')) {
            return Err(format!("{c:?} cannot be in a path; use letters, digits, `-`, `_`, `.` and `~`"));
        }
    }
    if trimmed == "/.well-known" || trimmed.starts_with("/.well-known/") {
        return Err("`/.well-known` is kept for metadata (RFC 8615); take another path".to_owned());
    }
    Ok(trimmed.to_owned())
}

/// One virtual host while it is checked. Its policies are checked in `policies`.
pub(super) struct Host<'a> {
    pub main: &'a Source<'a>,
    pub at: [Step<'a>; 2],
    pub entry: &'a VirtualHostFile,
    pub plane: &'a PolicyConfig,
    backends: &'a [Backend],
}

// === impl Host ===

impl Host<'_> {
    pub(super) fn place(&self, rest: &[Step<'_>]) -> Place {
        self.main.doc.place(&[&self.at, rest].concat())
    }

    pub(super) fn key_place(&self, rest: &[Step<'_>]) -> Place {
        self.main.doc.key_place(&[&self.at, rest].concat())
    }

    pub(super) fn incomplete(&self, rest: &[Step<'_>]) -> bool {
        self.main.doc.incomplete(&[&self.at, rest].concat())
    }

    /// Is there a backend of this name that was refused? Then what refers to it is not to blame.
    fn refused_backend(&self, name: &str) -> bool {
        self.main.doc.get(&["backends".into(), name.into()]).is_some()
    }

    fn names(&self, members: impl IntoIterator<Item = usize>) -> Vec<&str> {
        members.into_iter().map(|i| &*self.backends[i].name).collect()
    }

    /// Indices of the backends behind this path.
    fn members(&self, cx: &mut Cx<'_>) -> Vec<usize> {
        let Some(names) = &self.entry.backends else { return (0..self.backends.len()).collect() };
        let key: Step<'_> = "backends".into();
        if names.is_empty() && !self.incomplete(&[key]) {
            let message = "the list is empty, so the endpoint would offer nothing; name a backend, or remove the key to have all";
            cx.problem(self.key_place(&[key]), message);
        }
        let mut members = Vec::new();
        for (i, name) in names.iter().enumerate() {
            match self.backends.iter().position(|b| *b.name == **name) {
                Some(index) if members.contains(&index) => {
                    cx.problem(self.place(&[key, i.into()]), format!("`{name}` is in this list already; remove it"));
                }
                Some(index) => members.push(index),
                None if self.refused_backend(name) => {}
                None => {
                    let known = self.names(0..self.backends.len());
                    cx.problem(self.place(&[key, i.into()]), format!("there is no backend `{name}`; {}", suggest(name, &known)));
                }
            }
        }
        members
    }

    fn aliases(&self, members: &[usize], policies: &[PolicyRef], cx: &mut Cx<'_>) -> Vec<Alias> {
        let Some(entries) = &self.entry.aliases else { return Vec::new() };
        let key: Step<'_> = "aliases".into();
        let unreadable = self.incomplete(&["policies".into()]) || self.entry.policies.as_ref().is_some_and(|p| p.len() != policies.len());
        if !entries.0.is_empty() && !unreadable && !policies.iter().any(|p| p.name == "alias") {
            let message = "aliases have no effect here, because `policies` leaves out `alias`; add it in front, or remove them";
            cx.problem(self.key_place(&[key]), message);
        }
        let mut aliases: Vec<Alias> = Vec::new();
        let mut targets: HashMap<(AliasKind, usize, String), String> = HashMap::new();
        for (public, entry) in &entries.0 {
            let at = [key, public.as_str().into()];
            let (to, kind, to_at) = match entry {
                AliasFile::Short(to) => (to, AliasKind::Tool, self.place(&at)),
                AliasFile::Full(full) => (&full.to, full.kind.unwrap_or_default(), self.place(&[at[0], at[1], "to".into()])),
            };
            if let Some(fault) = public_fault(public, kind) {
                cx.problem(self.key_place(&at), fault);
            }
            let (backend, name) = match to.split_once('/') {
                Some((backend, name)) if !backend.is_empty() && !name.is_empty() => (backend, name),
                _ => {
                    cx.problem(to_at, format!("`{to}` is not `backend/name`; write for example time/get_time"));
                    continue;
                }
            };
            let Some(index) = self.backends.iter().position(|b| *b.name == *backend) else {
                if !self.refused_backend(backend) {
                    let known = self.names(members.iter().copied());
                    cx.problem(to_at, format!("there is no backend `{backend}`; {}", suggest(backend, &known)));
                }
                continue;
            };
            if !members.contains(&index) {
                let message = format!("backend `{backend}` is not behind this path; add it to `backends` here, or remove the alias");
                cx.problem(to_at, message);
                continue;
            }
            if let Some(first) = targets.insert((kind, index, name.to_owned()), public.clone()) {
                let message = format!("`{first}` stands for {to} already, and a thing has one public name; keep one of them");
                cx.problem(self.key_place(&at), message);
            }
            if members.len() > 1
                && let Some((prefix, rest)) = public.split_once("__")
                && let Some(hidden) = members.iter().find(|i| *self.backends[**i].name == *prefix)
                && (*hidden, rest) != (index, name)
            {
                let message =
                    format!("would hide `{rest}` of the backend `{prefix}`, which is published under this very name; choose another");
                cx.problem(self.key_place(&at), message);
            }
            aliases.push(Alias { public: public.clone(), kind, backend: index, name: name.to_owned() });
        }
        aliases
    }

    fn instructions(&self, cx: &mut Cx<'_>) -> Option<String> {
        let text = self.entry.instructions.as_deref()?.trim_end();
        if text.len() > MAX_INSTRUCTIONS {
            let message = format!("is longer than {MAX_INSTRUCTIONS} bytes; clients put it before every conversation");
            cx.problem(self.key_place(&["instructions".into()]), message);
        }
        (!text.is_empty()).then(|| text.to_owned())
    }
}

/// What is wrong with a public name. Clients pass tool and prompt names on to models that take `[A-Za-z0-9_-]{1,64}`.
fn public_fault(public: &str, kind: AliasKind) -> Option<String> {
    if kind == AliasKind::Resource {
        let scheme = public.split_once(':').map(|(scheme, _)| scheme).unwrap_or_default();
        let fits = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
        let printable = public.chars().all(|c| !c.is_control() && !c.is_whitespace());
        return (!fits || !printable || public.len() > 2048)
            .then(|| "the public name of a resource is a URI, such as docs://readme".to_owned());
    }
    if public.is_empty() || public.len() > 64 {
        return Some(format!("a public name has 1 to 64 characters, this one has {}", public.len()));
    }
    let bad = public.chars().find(|c| !c.is_ascii_alphanumeric() && !matches!(c, '_' | '-'))?;
    Some(format!("{bad:?} cannot be in a public name; use letters, digits, `-` and `_`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_normalised_or_refused() {
        assert_eq!(normal_path("/mcp/").as_deref(), Ok("/mcp"));
        assert_eq!(normal_path("/").as_deref(), Ok("/"));
        assert_eq!(normal_path("/a/b.c~d").as_deref(), Ok("/a/b.c~d"));
        for bad in ["mcp", "", "//", "/a//b", "/a/../b", "/a b", "/a%20b", "/a?b", "/.well-known/x", "/ü"] {
            assert!(normal_path(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn public_names_fit_what_models_take() {
        assert_eq!(public_fault("get_time-2", AliasKind::Tool), None);
        assert_eq!(public_fault("docs://readme", AliasKind::Resource), None);
        for bad in ["", "a.b", "a b", &"x".repeat(65)] {
            assert!(public_fault(bad, AliasKind::Prompt).is_some(), "{bad}");
        }
        assert!(public_fault("readme", AliasKind::Resource).is_some());
    }
}

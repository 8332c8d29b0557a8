//! The endpoints: paths, who stands behind them, aliases and policies. Finds what can never take effect.

use std::collections::HashMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Cx, Source, name_fault, resolve_path};
use crate::config::file::{AliasFile, File, PolicyFile, VirtualHostFile};
use crate::config::model::{Alias, AliasKind, Backend, PolicyRef, PolicySource, SHIPPED_POLICIES, VirtualHost};
use crate::config::problem::{Place, suggest};
use crate::config::source::tree::Step;

const DEFAULT_PATH: &str = "/mcp";
/// More than any client would show to its model.
const MAX_INSTRUCTIONS: usize = 64 << 10;

/// The virtual hosts of the file, or the one that stands for all.
pub fn virtual_hosts(main: &Source<'_>, file: &File, backends: &[Backend], places: &[Place], cx: &mut Cx<'_>) -> Vec<VirtualHost> {
    let Some(written) = &file.virtual_hosts else {
        return vec![VirtualHost {
            path: Arc::from(DEFAULT_PATH),
            backends: (0..backends.len()).collect(),
            aliases: Vec::new(),
            policies: default_policies(),
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
        let host = Host { main, at, entry: entry.as_ref().unwrap_or(&empty), backends };
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

fn shipped(name: &str, config: serde_json::Value, place: Place) -> PolicyRef {
    PolicyRef { name: name.to_owned(), source: PolicySource::Shipped, config, place }
}

fn default_policies() -> Vec<PolicyRef> {
    let one = |name: &&str| shipped(name, serde_json::Value::Null, Place::named("the policies that ship"));
    SHIPPED_POLICIES.iter().map(one).collect()
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

/// One virtual host while it is checked.
struct Host<'a> {
    main: &'a Source<'a>,
    at: [Step<'a>; 2],
    entry: &'a VirtualHostFile,
    backends: &'a [Backend],
}

// === impl Host ===

impl Host<'_> {
    fn place(&self, rest: &[Step<'_>]) -> Place {
        self.main.doc.place(&[&self.at, rest].concat())
    }

    fn key_place(&self, rest: &[Step<'_>]) -> Place {
        self.main.doc.key_place(&[&self.at, rest].concat())
    }

    fn incomplete(&self, rest: &[Step<'_>]) -> bool {
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

    fn policies(&self, members: &[usize], cx: &mut Cx<'_>) -> Vec<PolicyRef> {
        let Some(entries) = &self.entry.policies else {
            return default_policies();
        };
        let key: Step<'_> = "policies".into();
        if entries.is_empty() && members.len() > 1 && !self.incomplete(&[key]) {
            let message = "without a policy the names of several backends would collide; add `namespace`, or remove the key to have `[alias, namespace]`";
            cx.problem(self.key_place(&[key]), message);
        }
        let mut policies: Vec<PolicyRef> = Vec::new();
        for (i, entry) in entries.iter().enumerate() {
            let at = [key, i.into()];
            let (policy, name_at) = match entry {
                PolicyFile::Shipped(name) => (self.shipped(&at, name, serde_json::Value::Null, cx), self.place(&at)),
                PolicyFile::Full(full) => {
                    let name_at = self.place(&[at[0], at[1], "name".into()]);
                    let config = full.config.clone().unwrap_or_default();
                    let policy = match &full.component {
                        None => self.shipped(&[at[0], at[1], "name".into()], &full.name, config, cx),
                        Some(file) => self.component(&at, &full.name, file, config, cx),
                    };
                    (policy, name_at)
                }
            };
            let Some(policy) = policy else { continue };
            if policies.iter().any(|p| p.name == policy.name) {
                cx.problem(name_at, format!("there is a policy `{}` in this list already; names are unique", policy.name));
                continue;
            }
            policies.push(policy);
        }
        policies
    }

    fn shipped(&self, at: &[Step<'_>], name: &str, config: serde_json::Value, cx: &mut Cx<'_>) -> Option<PolicyRef> {
        if SHIPPED_POLICIES.contains(&name) {
            return Some(shipped(name, config, self.place(at)));
        }
        let message = format!(
            "no policy `{name}` ships with Lockgate (one of your own is {{ name: …, component: ./file.wasm }}); {}",
            suggest(name, SHIPPED_POLICIES)
        );
        cx.problem(self.place(at), message);
        None
    }

    fn component(&self, at: &[Step<'_>; 2], name: &str, file: &str, config: serde_json::Value, cx: &mut Cx<'_>) -> Option<PolicyRef> {
        if SHIPPED_POLICIES.contains(&name) {
            let message = format!("`{name}` is a policy that ships; give your own another name");
            cx.problem(self.place(&[at[0], at[1], "name".into()]), message);
        } else if let Some(fault) = name_fault(name) {
            cx.problem(self.place(&[at[0], at[1], "name".into()]), fault);
        }
        let checked = resolve_path(&self.main.base, file).and_then(|path| check_component(&path, &self.main.base));
        let place = self.place(&[at[0], at[1], "component".into()]);
        match checked {
            Ok(path) => Some(PolicyRef { name: name.to_owned(), source: PolicySource::File(path), config, place }),
            Err(message) => {
                cx.problem(place, message);
                None
            }
        }
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

/// A WASM component begins with this; a core module differs in the last four bytes.
const COMPONENT: [u8; 8] = *b"\0asm\x0d\0\x01\0";

fn check_component(path: &Path, base: &Path) -> Result<PathBuf, String> {
    let shown = path.display();
    let mut head = [0; 8];
    let read = std::fs::File::open(path).and_then(|mut f| {
        if f.metadata()?.is_dir() {
            return Err(std::io::Error::from(std::io::ErrorKind::IsADirectory));
        }
        f.read_exact(&mut head)
    });
    match read {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            Err(format!("{shown} does not exist; relative paths start at {}", base.display()))
        }
        Err(e) if e.kind() != std::io::ErrorKind::UnexpectedEof => Err(format!("{shown} cannot be read: {e}")),
        Ok(()) if head == COMPONENT => Ok(path.to_owned()),
        Ok(()) if head.starts_with(b"\0asm") => {
            Err(format!("{shown} is a core WASM module, not a component; make one of it, for example with `wasm-tools component new`"))
        }
        _ => Err(format!("{shown} is not a WASM component")),
    }
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

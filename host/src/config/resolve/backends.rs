//! The backends: names, addresses, headers, programs.

use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::{HeaderName, HeaderValue, Uri};

use super::limits::timeouts;
use super::{Cx, Draft, name_fault, resolve_path};
use crate::config::file::{BackendFile, Entries, Word};
use crate::config::model::{Backend, Limits, Target};
use crate::config::problem::Place;
use crate::config::secret::Secret;
use crate::config::source::tree::Step;

/// Headers that the connection or the protocol owns. One set by hand would break either.
const OWNED_HEADERS: &[&str] = &[
    "accept",
    "connection",
    "content-length",
    "content-type",
    "host",
    "keep-alive",
    "last-event-id",
    "mcp-protocol-version",
    "mcp-session-id",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// The backends in order, with the place of each name for later complaints.
pub fn backends(drafts: Vec<Draft<'_>>, limits: &Limits, listen: &[SocketAddr], cx: &mut Cx<'_>) -> (Vec<Backend>, Vec<Place>) {
    let mut backends: Vec<Backend> = Vec::new();
    let mut places: Vec<Place> = Vec::new();
    for draft in drafts {
        let place = draft.source.doc.key_place(&draft.path);
        if let Some(fault) = name_fault(&draft.name) {
            cx.problem(place.clone(), fault);
        }
        if let Some(first) = backends.iter().position(|b| *b.name == *draft.name) {
            cx.problem(place, format!("this name is taken by {}; rename one of them", places[first]));
            continue;
        }
        let target = target(&draft, listen, cx);
        let timeouts = timeouts(draft.source, &draft.path, draft.entry.timeouts.as_ref(), limits, cx);
        // A backend whose target was refused keeps its seat, so that what refers to it by name is still understood.
        let target = target.unwrap_or(Target::Http { uri: Uri::default(), transport: Default::default(), headers: Vec::new() });
        backends.push(Backend { name: Arc::from(draft.name), target, timeouts });
        places.push(place);
    }
    (backends, places)
}

fn target(draft: &Draft<'_>, listen: &[SocketAddr], cx: &mut Cx<'_>) -> Option<Target> {
    let BackendFile { url, transport, headers, command, env, cwd, timeouts: _ } = &draft.entry;
    let doc = draft.source.doc;
    let at = |key: &'static str| doc.key_place(&[draft.path[0], draft.path[1], key.into()]);
    let mut only_with = |key: &'static str, given: bool, owner: &str| {
        if given {
            cx.problem(at(key), format!("belongs to a backend with `{owner}`; remove it"));
        }
    };
    match (url, command) {
        (Some(url), None) => {
            only_with("env", env.is_some(), "command");
            only_with("cwd", cwd.is_some(), "command");
            let uri = match parse_url(url) {
                Ok(uri) => {
                    check_url(&uri, headers.as_ref(), listen, doc.place(&[draft.path[0], draft.path[1], "url".into()]), cx);
                    Some(uri)
                }
                Err(message) => {
                    cx.problem(doc.place(&[draft.path[0], draft.path[1], "url".into()]), message);
                    None
                }
            };
            let headers = parse_headers(draft, headers.as_ref(), cx);
            Some(Target::Http { uri: uri?, transport: transport.unwrap_or_default(), headers })
        }
        (None, Some(command)) => {
            only_with("headers", headers.is_some(), "url");
            only_with("transport", transport.is_some(), "url");
            stdio(draft, command, env.as_ref(), cwd.as_deref(), cx)
        }
        (Some(_), Some(_)) => {
            cx.problem(at("command"), "`url` and `command` exclude each other; keep one of them");
            None
        }
        (None, None) => {
            if !doc.incomplete(&draft.path) {
                let message = "needs `url` (an MCP server over HTTP) or `command` (a program to start)";
                cx.problem(doc.key_place(&draft.path), message);
            }
            None
        }
    }
}

/// The address of an HTTP backend. No message repeats the address: it may hold what should not be seen.
fn parse_url(text: &str) -> Result<Uri, String> {
    let Some((scheme, rest)) = text.split_once("://") else {
        return Err("has no scheme; write http:// or https:// in front".to_owned());
    };
    if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
        return Err("is neither http:// nor https://".to_owned());
    }
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.contains('@') {
        let advice = "holds credentials, which would end up in logs; remove them and set `headers: { Authorization: \"…\" }`, with the secret from the environment";
        return Err(advice.to_owned());
    }
    if rest.contains('#') {
        return Err("has a fragment (`#…`), which is never sent; remove it".to_owned());
    }
    let uri: Uri = text.parse().map_err(|e| format!("is not a URL: {e}; write http://host:port/path"))?;
    let Some(authority) = uri.authority() else { return Err("has no host; write http://host:port/path".to_owned()) };
    let port = authority.as_str().strip_prefix(authority.host()).unwrap_or_default();
    if authority.host().is_empty() {
        return Err("has no host; write http://host:port/path".to_owned());
    }
    if !port.is_empty() && authority.port_u16().unwrap_or(0) == 0 {
        return Err("has a port that is not a number from 1 to 65535".to_owned());
    }
    Ok(uri)
}

fn check_url(uri: &Uri, headers: Option<&Entries<Secret>>, listen: &[SocketAddr], place: Place, cx: &mut Cx<'_>) {
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    let ip: Option<IpAddr> = if host.eq_ignore_ascii_case("localhost") { Some([127, 0, 0, 1].into()) } else { host.parse().ok() };
    let tls = uri.scheme_str() == Some("https");
    let port = uri.port_u16().unwrap_or(if tls { 443 } else { 80 });
    let own = |a: &SocketAddr| a.port() == port && ip.is_some_and(|ip| ip == a.ip() || (a.ip().is_unspecified() && ip.is_loopback()));
    if listen.iter().any(own) {
        cx.problem(place, "is this gateway's own address, so that calls would go in circles; name the MCP server behind it");
        return;
    }
    let secret = headers.is_some_and(|h| h.0.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization")));
    if !tls && secret && !ip.is_some_and(|ip| ip.is_loopback()) {
        cx.warn(place, "sends `Authorization` over http:// in clear text; prefer https://");
    }
}

fn parse_headers(draft: &Draft<'_>, headers: Option<&Entries<Secret>>, cx: &mut Cx<'_>) -> Vec<(HeaderName, Secret)> {
    let mut parsed: Vec<(HeaderName, Secret)> = Vec::new();
    for (name, value) in headers.map(|h| h.0.as_slice()).unwrap_or_default() {
        let path = [draft.path[0], draft.path[1], "headers".into(), name.as_str().into()];
        let place = draft.source.doc.key_place(&path);
        match HeaderName::from_bytes(name.as_bytes()) {
            Err(_) => cx.problem(place, "is not a header name; use letters, digits and `-`"),
            Ok(name) if OWNED_HEADERS.contains(&name.as_str()) => {
                cx.problem(place, "is set by the gateway itself; remove it");
            }
            Ok(name) if parsed.iter().any(|(other, _)| *other == name) => {
                cx.problem(place, "this header is here twice (case does not count); keep one of them");
            }
            Ok(name) => match HeaderValue::from_str(value.expose()) {
                Ok(_) => parsed.push((name, value.clone())),
                Err(_) => cx.problem(place, "the value holds a line break or another character that a header cannot carry"),
            },
        }
    }
    parsed
}

fn stdio(draft: &Draft<'_>, command: &[Word], env: Option<&Entries<Secret>>, cwd: Option<&str>, cx: &mut Cx<'_>) -> Option<Target> {
    let doc = draft.source.doc;
    let path = |key: &'static str| [draft.path[0], draft.path[1], key.into()];
    let mut variables = Vec::new();
    for (name, value) in env.map(|e| e.0.as_slice()).unwrap_or_default() {
        let key: Step<'_> = name.as_str().into();
        let place = || doc.key_place(&[draft.path[0], draft.path[1], "env".into(), key]);
        if name.is_empty() || name.contains(['=', '\0']) {
            cx.problem(place(), "is not the name of an environment variable");
        } else if value.expose().contains('\0') {
            cx.problem(place(), "the value holds a NUL character, which no environment can carry");
        } else {
            variables.push((name.clone(), value.clone()));
        }
    }
    let cwd = match cwd.map(|text| resolve_path(&draft.source.base, text)) {
        None => None,
        Some(Ok(dir)) if dir.is_dir() => Some(dir),
        Some(Ok(dir)) => {
            let what = if dir.exists() { "is not a directory" } else { "does not exist" };
            cx.problem(
                doc.place(&path("cwd")),
                format!("{} {what}; relative paths start at {}", dir.display(), draft.source.base.display()),
            );
            None
        }
        Some(Err(message)) => {
            cx.problem(doc.place(&path("cwd")), message);
            None
        }
    };
    let Some((Word(program), args)) = command.split_first() else {
        if !doc.incomplete(&path("command")) {
            cx.problem(doc.key_place(&path("command")), "is empty; write the program and its arguments: [program, argument]");
        }
        return None;
    };
    let search = variables.iter().find(|(name, _)| name == "PATH").map(|(_, v)| v.expose().to_owned());
    let search = search.or_else(|| (cx.env)("PATH")).unwrap_or_default();
    if command.iter().any(|Word(w)| w.contains('\0')) {
        cx.problem(doc.key_place(&path("command")), "holds a NUL character, which no program can be given");
        return None;
    }
    match find_program(program, command.len(), &draft.source.base, &search) {
        Ok(program) => Some(Target::Stdio { program, args: args.iter().map(|Word(w)| w.clone()).collect(), env: variables, cwd }),
        Err(message) => {
            cx.problem(doc.place(&[draft.path[0], draft.path[1], "command".into(), 0.into()]), message);
            None
        }
    }
}

/// The absolute path of an executable file: relative to the file's directory if it holds a `/`, else from PATH.
fn find_program(program: &str, words: usize, base: &Path, search: &str) -> Result<PathBuf, String> {
    let executable = |path: &Path| path.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0);
    if program.contains('/') {
        let path = resolve_path(base, program)?;
        return match path.metadata() {
            Err(_) => Err(format!("{} does not exist; relative paths start at {}", path.display(), base.display())),
            Ok(m) if !m.is_file() => Err(format!("{} is not a file", path.display())),
            Ok(_) if !executable(&path) => Err(format!("{0} is not executable; try chmod +x {0}", path.display())),
            Ok(_) => Ok(path),
        };
    }
    let found = std::env::split_paths(search).map(|dir| dir.join(program)).find(|path| executable(path));
    match found {
        Some(path) if !program.is_empty() => std::path::absolute(&path).map_err(|e| e.to_string()),
        _ if words == 1 && program.contains(' ') => {
            let split: Vec<_> = program.split_whitespace().collect();
            Err(format!("no program of this name; no shell splits it, so write each word by itself: [{}]", split.join(", ")))
        }
        _ => Err(format!("`{program}` was not found on PATH; install it, or write the path of the program")),
    }
}

/// For a `command` that came as program and arguments apart (client files).
pub fn words(program: String, args: Vec<Word>) -> Vec<Word> {
    std::iter::once(Word(program)).chain(args).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_or_refused_without_repeating_them() {
        for good in ["http://127.0.0.1:9000/mcp", "https://example.com", "HTTP://[::1]:80/x?y=z"] {
            assert!(parse_url(good).is_ok(), "{good}");
        }
        for bad in [
            "example.com/mcp",
            "ftp://s3cret.example",
            "http://user:s3cret@example.com/",
            "http://example.com/#s3cret",
            "http:///s3cret",
            "http://example.com:0/s3cret",
            "http://example.com:99999/s3cret",
            "http://s3cret example.com",
            "http://example.com:/s3cret",
        ] {
            let message = parse_url(bad).expect_err(bad);
            assert!(!message.contains("s3cret"), "{message}");
        }
    }
}

//! The front door: `listen`, `admin`, `auth` and `http`.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use lockgate_policy::Claims;

use super::policies::claim_fault;
use super::{Cx, Overrides, Source};
use crate::config::auth::{ANONYMOUS, AdminToken, Auth, Token, digest};
use crate::config::file::{AdminAddress, Entries, File, OneOrMany, TokenFile};
use crate::config::hosts::{Allow, HttpConfig, Pattern};
use crate::config::problem::Place;
use crate::config::source::tree::Step;

const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8808);
const DEFAULT_ADMIN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8809);

/// Where to listen and where the admin port is.
pub fn addresses(main: &Source<'_>, file: &File, overrides: &Overrides, cx: &mut Cx<'_>) -> (Vec<SocketAddr>, Option<SocketAddr>) {
    let place = |i: usize| match &file.listen {
        _ if !overrides.listen.is_empty() => Place::named("--listen"),
        Some(OneOrMany::Many(_)) => main.doc.place(&["listen".into(), i.into()]),
        _ => main.doc.place(&["listen".into()]),
    };
    let listen: Vec<SocketAddr> = match &file.listen {
        _ if !overrides.listen.is_empty() => overrides.listen.clone(),
        None => vec![DEFAULT_LISTEN],
        Some(OneOrMany::One(address)) => vec![address.0],
        Some(OneOrMany::Many(list)) => list.iter().map(|a| a.0).collect(),
    };
    if listen.is_empty() && !main.doc.incomplete(&["listen".into()]) {
        cx.problem(place(0), "the list is empty; name an address such as 127.0.0.1:8808, or remove the key");
    }
    for (i, address) in listen.iter().enumerate() {
        if let Some(other) = listen[..i].iter().find(|other| overlap(**other, *address)) {
            cx.problem(place(i), format!("{address} is already covered by {other}; keep one of them"));
        }
    }

    let (admin, admin_place) = match (overrides.admin, file.admin) {
        (Some(AdminAddress(admin)), _) => (admin, Some(Place::named("--admin"))),
        (None, Some(AdminAddress(admin))) => (admin, Some(main.doc.place(&["admin".into()]))),
        (None, None) => (Some(DEFAULT_ADMIN), None),
    };
    if let Some(admin) = admin
        && let Some(i) = listen.iter().position(|address| overlap(*address, admin))
    {
        match admin_place {
            Some(place) => {
                let message = format!("{admin} is where clients connect (`listen`); give the admin port its own address, or turn it `off`");
                cx.problem(place, message);
            }
            None => {
                let message =
                    format!("{admin} is the default address of the admin port; take another, or set `admin` to another address or `off`");
                cx.problem(place(i), message);
            }
        }
    } else if let (Some(admin), Some(place)) = (admin, admin_place)
        && !admin.ip().is_loopback()
    {
        cx.warn(
            place,
            format!("{admin} is not loopback, and the admin port asks nobody who reads for a token; keep it off public networks"),
        );
    }
    (listen, admin)
}

/// Would binding one of them keep the other from being bound? Port 0 is a new port each time.
fn overlap(a: SocketAddr, b: SocketAddr) -> bool {
    let any = |ip: IpAddr, other: IpAddr| ip.is_unspecified() && (ip.is_ipv6() || other.is_ipv4());
    a.port() != 0 && a.port() == b.port() && (a.ip() == b.ip() || any(a.ip(), b.ip()) || any(b.ip(), a.ip()))
}

/// What operators show at the admin port to change something.
pub fn admin_token(main: &Source<'_>, file: &File, admin: Option<SocketAddr>, cx: &mut Cx<'_>) -> Option<AdminToken> {
    let token = file.admin_token.as_ref()?;
    let place = || main.doc.place(&["admin_token".into()]);
    if admin.is_none() {
        cx.warn(place(), "has no effect: there is no admin port");
    }
    check_token(token.expose(), place, cx).then(|| AdminToken::new(token.expose().as_bytes()))
}

/// Whether a client could send this token.
fn check_token(text: &str, place: impl Fn() -> Place, cx: &mut Cx<'_>) -> bool {
    if text.is_empty() || !text.chars().all(|c| c.is_ascii_graphic()) {
        let what = if text.is_empty() { "is empty" } else { "holds more than visible ASCII characters, or a space" };
        cx.problem(place(), format!("the token {what}; no client could send it"));
        return false;
    }
    if text.len() < 16 {
        cx.warn(place(), "a token of fewer than 16 characters can be guessed; take a longer, random one");
    }
    true
}

/// Who may connect; insists that an open door on a public address is said aloud.
pub fn auth(main: &Source<'_>, file: &File, listen: &[SocketAddr], overrides: &Overrides, cx: &mut Cx<'_>) -> Auth {
    let written = file.auth.as_ref();
    let tokens_path = ["auth".into(), "tokens".into()];
    let open_path = ["auth".into(), "open".into()];
    let open = written.and_then(|a| a.open);
    let list = written.and_then(|a| a.tokens.as_deref());
    let incomplete = main.doc.incomplete(&["auth".into()]);

    let mut tokens: Vec<Token> = Vec::new();
    let mut seen: HashMap<[u8; 32], usize> = HashMap::new();
    let mut claims: HashMap<Arc<str>, (usize, Arc<Claims>)> = HashMap::new();
    for (i, entry) in list.unwrap_or_default().iter().enumerate() {
        let path = [tokens_path[0], tokens_path[1], i.into()];
        if let Some(token) = token(main, &path, entry, cx) {
            if let Some(first) = seen.insert(token.sha256, i) {
                let message = format!("the same token as auth.tokens[{first}]; a token stands for one principal, once");
                cx.problem(main.doc.place(&path), message);
            }
            if let Some(written) = &entry.claims {
                let of_token = read_claims(main, &path, written, cx);
                match claims.get(&token.principal) {
                    Some((first, before)) if **before != of_token => {
                        let message = format!(
                            "auth.tokens[{first}] says other claims of `{}`; claims are those of a principal: say the same, or leave them out here",
                            token.principal
                        );
                        cx.problem(main.doc.key_place(&[path[0], path[1], path[2], "claims".into()]), message);
                    }
                    Some(_) => {}
                    None => _ = claims.insert(token.principal.clone(), (i, Arc::new(of_token))),
                }
            }
            tokens.push(token);
        }
    }
    let claims = claims.into_iter().map(|(principal, (_, claims))| (principal, claims)).collect();

    match (list, open) {
        _ if incomplete => {}
        (Some([]), _) => {
            cx.problem(main.doc.key_place(&tokens_path), "the list is empty, so nobody could connect; add a token, or remove the key");
        }
        (Some(_), Some(true)) => {
            cx.problem(main.doc.key_place(&open_path), "`open: true` and `tokens` contradict each other; remove one of them");
        }
        (None, Some(false)) => {
            cx.problem(main.doc.key_place(&open_path), "without tokens, nobody could connect; add `auth.tokens`, or remove `open: false`");
        }
        (None, None) => {
            for (i, address) in listen.iter().enumerate().filter(|(_, a)| !a.ip().is_loopback()) {
                let place = match &file.listen {
                    _ if !overrides.listen.is_empty() => Place::named("--listen"),
                    Some(OneOrMany::Many(_)) => main.doc.place(&["listen".into(), i.into()]),
                    _ => main.doc.place(&["listen".into()]),
                };
                let message = format!(
                    "{address} is not loopback and nobody is asked for a token; add `auth.tokens`, or say `auth: {{ open: true }}` if anybody may connect"
                );
                cx.problem(place, message);
            }
        }
        _ => {}
    }
    Auth::new(tokens, claims)
}

/// Claims of one principal, and bytes of their names and values, that are accepted.
const CLAIMS: usize = 64;
const CLAIM_BYTES: usize = 16 << 10;

fn read_claims(main: &Source<'_>, path: &[Step<'_>; 3], written: &Entries<serde_json::Value>, cx: &mut Cx<'_>) -> Claims {
    let at = [path[0], path[1], path[2], "claims".into()];
    let mut claims = Claims::new();
    let mut bytes = 0;
    for (name, value) in &written.0 {
        if let Some(fault) = claim_fault(name) {
            cx.problem(main.doc.key_place(&[&at[..], &[name.as_str().into()]].concat()), fault);
        }
        let value = value.to_string();
        bytes += name.len() + value.len();
        claims.insert(name.as_str().into(), value.into());
    }
    if claims.len() > CLAIMS || bytes > CLAIM_BYTES {
        let message =
            format!("{} claims of {bytes} bytes; at most {CLAIMS} of {CLAIM_BYTES} bytes in all are carried for a principal", claims.len());
        cx.problem(main.doc.key_place(&at), message);
    }
    claims
}

fn token(main: &Source<'_>, path: &[Step<'_>; 3], entry: &TokenFile, cx: &mut Cx<'_>) -> Option<Token> {
    let at = |key: &'static str| main.doc.place(&[path[0], path[1], path[2], key.into()]);
    let name = entry.principal.as_str();
    let mut fine = true;
    if name == ANONYMOUS {
        cx.problem(at("principal"), format!("`{ANONYMOUS}` is whoever shows no token; choose another name"));
        fine = false;
    } else if name.is_empty() || name.len() > 128 || !name.chars().all(|c| c.is_ascii_graphic()) {
        cx.problem(at("principal"), "a principal has 1 to 128 visible ASCII characters, no spaces");
        fine = false;
    }
    let sha256 = match (&entry.sha256, &entry.token) {
        (Some(hex), None) => {
            let hash = hex_32(hex);
            if hash.is_none() {
                cx.problem(at("sha256"), "a SHA-256 has 64 hexadecimal digits; make one with `printf %s \"$TOKEN\" | sha256sum`");
            }
            hash
        }
        (None, Some(token)) => check_token(token.expose(), || at("token"), cx).then(|| digest(token.expose().as_bytes())),
        (Some(_), Some(_)) => {
            cx.problem(main.doc.place(path), "`sha256` and `token` exclude each other; keep one of them");
            None
        }
        (None, None) => {
            if !main.doc.incomplete(path) {
                cx.problem(main.doc.place(path), "needs `sha256`, or `token: \"${NAME}\"` with the token in the environment");
            }
            None
        }
    }?;
    fine.then(|| Token { principal: Arc::from(name), sha256 })
}

/// 32 bytes in hexadecimal.
pub(super) fn hex_32(hex: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if hex.len() != 64 || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    for (byte, digits) in bytes.iter_mut().zip(hex.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(bytes)
}

/// The allow-lists for `Host` and `Origin`.
pub fn http(main: &Source<'_>, file: &File, listen: &[SocketAddr], cx: &mut Cx<'_>) -> HttpConfig {
    let written = file.http.as_ref();
    let hosts = written.and_then(|h| h.allowed_hosts.as_deref());
    let origins = written.and_then(|h| h.allowed_origins.as_deref());
    let loopback = listen.iter().all(|a| a.ip().is_loopback());
    HttpConfig::new(
        match hosts {
            Some(list) => allow(main, "allowed_hosts", list, Pattern::host, cx),
            None if loopback => Allow::loopback(),
            None => Allow::Any,
        },
        match origins {
            Some(list) => allow(main, "allowed_origins", list, Pattern::origin, cx),
            None => Allow::loopback(),
        },
    )
}

fn allow(main: &Source<'_>, key: &'static str, list: &[String], parse: fn(&str) -> Result<Pattern, String>, cx: &mut Cx<'_>) -> Allow {
    let mut patterns = Vec::new();
    let mut any = false;
    for (i, text) in list.iter().enumerate() {
        match parse(text) {
            _ if text == "*" => any = true,
            Ok(pattern) => patterns.push(pattern),
            Err(message) => cx.problem(main.doc.place(&["http".into(), key.into(), i.into()]), message),
        }
    }
    if key == "allowed_hosts" && list.is_empty() {
        cx.problem(
            main.doc.key_place(&["http".into(), key.into()]),
            "the list is empty, so every request would be refused; name a host, or remove the key",
        );
    }
    if any { Allow::Any } else { Allow::Only(patterns) }
}

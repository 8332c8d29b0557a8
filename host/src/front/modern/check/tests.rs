//! Each rule by itself, on a request in which everything else is right.

use super::*;
use crate::protocol::Incoming;
use crate::session::Client;
use bytes::Bytes;
use http::{HeaderName, HeaderValue};

const V: &str = "2026-07-28";

fn request(method: &str, params: &str) -> Request {
    let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
    let Ok(Incoming::Request(request)) = Incoming::parse(Bytes::from(text)) else { panic!("{params}") };
    request
}

fn head(lines: &[(&str, &str)]) -> HeaderMap {
    let mut head = HeaderMap::new();
    for (name, value) in lines {
        head.append(name.parse::<HeaderName>().unwrap(), HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }
    head
}

/// `tools/list` with this `_meta` and the headers that go with it, but for the revision: that is `version`.
fn with_meta(version: Option<&str>, meta: &str) -> Result<Envelope, Fault> {
    let mut lines = vec![("mcp-method", "tools/list")];
    lines.extend(version.map(|version| ("MCP-Protocol-Version", version)));
    envelope(&head(&lines), &request("tools/list", &format!(r#"{{"_meta":{meta}}}"#)), &OwnChambers::default())
}

fn meta(more: &str) -> String {
    format!(r#"{{"io.modelcontextprotocol/protocolVersion":"{V}","io.modelcontextprotocol/clientCapabilities":{{}}{more}}}"#)
}

/// A request with good metadata and these headers beside the one for the revision.
fn with_headers(lines: &[(&str, &str)], method: &str, params: &str) -> Result<Envelope, Fault> {
    let mut all = head(lines);
    all.insert("mcp-protocol-version", HeaderValue::from_static(V));
    let comma = if params.is_empty() { "" } else { "," };
    envelope(&all, &request(method, &format!(r#"{{{params}{comma}"_meta":{}}}"#, meta(""))), &OwnChambers::default())
}

impl Envelope {
    fn client(&self) -> &Client {
        self.client.client()
    }
}

#[track_caller]
fn refused<T: std::fmt::Debug>(outcome: Result<T, Fault>, code: i64) -> RpcError {
    let Fault { status, error } = outcome.expect_err("was accepted");
    assert_eq!((status.as_u16(), error.code), (400, code), "{error:?}");
    error
}

#[test]
fn a_connection_remembers_what_was_said_last_and_nothing_that_is_only_like_it() {
    let own = OwnChambers::default();
    let said = |capabilities: &str| {
        let meta =
            format!(r#"{{"io.modelcontextprotocol/protocolVersion":"{V}","io.modelcontextprotocol/clientCapabilities":{capabilities}}}"#);
        let lines = head(&[("mcp-method", "tools/list"), ("mcp-protocol-version", V)]);
        envelope(&lines, &request("tools/list", &format!(r#"{{"_meta":{meta}}}"#)), &own)
    };
    let first = said(r#"{"roots":{}}"#).unwrap().client;
    assert!(Arc::ptr_eq(&first, &said(r#"{"roots":{}}"#).unwrap().client));
    let other = said(r#"{"roots": {}}"#).unwrap().client;
    assert!(!Arc::ptr_eq(&first, &other) && other.client().declares.roots);
    assert!(!said("{}").unwrap().client().declares.roots);
    refused(said(r#"{"roots":1}"#), codes::INVALID_PARAMS);
    refused(said(r#"{"roots":1}"#), codes::INVALID_PARAMS);
    let long = format!(r#"{{"experimental":{{"x":"{}"}}}}"#, "x".repeat(8000));
    assert!(!Arc::ptr_eq(&said(&long).unwrap().client, &said(&long).unwrap().client));
}

#[test]
fn a_request_says_who_asks() {
    let plain = with_meta(Some(V), &meta("")).unwrap();
    assert_eq!((&plain.client().capabilities[..], &plain.client().info[..]), (&b"{}"[..], UNKNOWN_CLIENT.as_bytes()));
    assert!(
        plain.level.is_none()
            && !plain.client().declares.tasks
            && !plain.client().declares.sampling
            && !plain.client().declares.elicitation
            && !plain.client().declares.roots
    );
    let full = with_meta(
        Some(V),
        r#"{"io.modelcontextprotocol/logLevel":"w\u0061rning","io.modelcontextprotocol/clientInfo":{ "name":"c" },"progressToken":1,
            "io.modelcontextprotocol/clientCapabilities":{"elicitation":{"url":{}},"roots": {},"sampling":null,"extensions":{"io.modelcontextprotocol/tasks":{}}},
            "io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#,
    )
    .unwrap();
    assert_eq!(full.client().info, r#"{ "name":"c" }"#);
    assert_eq!(full.level.as_ref().map(|level| level.raw.clone()), Some(Bytes::from_static(b"\"warning\"")));
    assert!(full.client().capabilities.starts_with(br#"{"elicitation":{"url":{}},"roots": {},"#));
    assert!(
        full.client().declares.tasks
            && full.client().declares.elicitation
            && full.client().declares.roots
            && !full.client().declares.sampling
    );
    for capabilities in [r#"{"extensions":{}}"#, r#"{"extensions":{"io.modelcontextprotocol/tasks":null}}"#, r#"{"tasks":{}}"#] {
        let text =
            format!(r#"{{"io.modelcontextprotocol/protocolVersion":"{V}","io.modelcontextprotocol/clientCapabilities":{capabilities}}}"#);
        assert!(!with_meta(Some(V), &text).unwrap().client().declares.tasks, "{capabilities}");
    }
}

#[test]
fn metadata_that_is_missing_or_malformed_is_32602() {
    let capabilities = r#""io.modelcontextprotocol/clientCapabilities""#;
    let version = format!(r#""io.modelcontextprotocol/protocolVersion":"{V}""#);
    for bad in [
        "null".into(),
        "[]".into(),
        "{}".into(),
        format!("{{{capabilities}:{{}}}}"),
        format!(r#"{{"io.modelcontextprotocol/protocolVersion":5,{capabilities}:{{}}}}"#),
        format!("{{{version},{version},{capabilities}:{{}}}}"),
        format!("{{{version}}}"),
        format!("{{{version},{capabilities}:null}}"),
        format!("{{{version},{capabilities}:[]}}"),
        format!("{{{version},{capabilities}:{{}},{capabilities}:{{}}}}"),
        meta(r#","io.modelcontextprotocol/clientInfo":"name""#),
        meta(r#","io.modelcontextprotocol/clientInfo":null"#),
        meta(r#","io.modelcontextprotocol/logLevel":"loud""#),
        meta(r#","io.modelcontextprotocol/logLevel":"Info""#),
        meta(r#","io.modelcontextprotocol/logLevel":3"#),
        meta(r#","io.modelcontextprotocol/logLevel":null"#),
    ] {
        refused(with_meta(Some(V), &bad), codes::INVALID_PARAMS);
    }
    let head = head(&[("mcp-protocol-version", V), ("mcp-method", "tools/list")]);
    refused(envelope(&head, &request("tools/list", "{}"), &OwnChambers::default()), codes::INVALID_PARAMS);
    let Ok(Incoming::Request(bare)) = Incoming::parse(Bytes::from_static(br#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#)) else {
        panic!()
    };
    refused(envelope(&head, &bare, &OwnChambers::default()), codes::INVALID_PARAMS);
}

#[test]
fn every_level_there_is_may_be_asked_for() {
    for level in Level::NAMES {
        let told = with_meta(Some(V), &meta(&format!(r#","io.modelcontextprotocol/logLevel":"{level}""#))).unwrap().level;
        assert_eq!(told.map(|told| told.raw), Some(Bytes::from(format!("\"{level}\""))));
    }
}

#[test]
fn the_header_names_the_revision_of_the_body() {
    assert!(with_meta(Some(&format!(" \t{V} ")), &meta("")).is_ok());
    refused(with_meta(None, &meta("")), codes::HEADER_MISMATCH);
    for other in ["2025-11-25", "2099-01-01", "", "2026-07-28, 2026-07-28"] {
        refused(with_meta(Some(other), &meta("")), codes::HEADER_MISMATCH);
    }
    let twice = head(&[("mcp-protocol-version", V), ("mcp-protocol-version", V), ("mcp-method", "tools/list")]);
    refused(
        envelope(&twice, &request("tools/list", &format!(r#"{{"_meta":{}}}"#, meta(""))), &OwnChambers::default()),
        codes::HEADER_MISMATCH,
    );
    // It is wrong before it is unknown.
    refused(with_meta(Some(V), &meta("").replace(V, "v999.0.0")), codes::HEADER_MISMATCH);
}

#[test]
fn a_revision_that_is_not_served_is_told_which_are() {
    for other in ["2099-01-01", "v999.0.0", "", "2025-11-25"] {
        // The rest of `_meta` is not looked at: another revision may have other rules.
        let text = format!(r#"{{"io.modelcontextprotocol/protocolVersion":"{other}"}}"#);
        let error = refused(with_meta(Some(other), &text), codes::UNSUPPORTED_VERSION);
        let data: serde_json::Value = serde_json::from_str(&error.data.unwrap()).unwrap();
        assert_eq!(data["requested"], other);
        assert_eq!(data["supported"], serde_json::json!(["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"]));
    }
}

#[test]
fn the_headers_say_method_and_name_of_the_body() {
    for (method, member) in [
        ("tools/call", "name"),
        ("prompts/get", "name"),
        ("resources/read", "uri"),
        ("tasks/get", "taskId"),
        ("tasks/update", "taskId"),
        ("tasks/cancel", "taskId"),
    ] {
        let params = format!(r#""{member}":"x é""#);
        let with = |lines: &[(&str, &str)]| with_headers(lines, method, &params);
        for good in ["=?base64?eCDDqQ==?=", "  =?base64?eCDDqQ==?= "] {
            assert!(with(&[("MCP-METHOD", method), ("Mcp-Name", good)]).is_ok(), "{method} {good}");
        }
        for bad in ["x é", "X é", "x", "", "=?base64?eCDDqQ?=", "=?base64?eCDD!Q==?=", "=?base64?/w==?=", "=?BASE64?eCDDqQ==?=", "eCDDqQ=="]
        {
            refused(with(&[("mcp-method", method), ("mcp-name", bad)]), codes::HEADER_MISMATCH);
        }
        refused(with(&[("mcp-method", method)]), codes::HEADER_MISMATCH);
        refused(with(&[("mcp-name", "=?base64?eCDDqQ==?=")]), codes::HEADER_MISMATCH);
        let name = ("mcp-name", "=?base64?eCDDqQ==?=");
        refused(with(&[("mcp-method", method), name, name]), codes::HEADER_MISMATCH);
        refused(with(&[("mcp-method", method), ("mcp-method", method), name]), codes::HEADER_MISMATCH);
        refused(with(&[("mcp-method", &method.to_uppercase()), name]), codes::HEADER_MISMATCH);
        refused(with(&[("mcp-method", "tools/list"), name]), codes::HEADER_MISMATCH);
    }
    // Those without a name need no header for one, and a body without one is refused for that, later.
    assert!(with_headers(&[("mcp-method", "tools/list")], "tools/list", "").is_ok());
    assert!(with_headers(&[("mcp-method", "x/y"), ("mcp-name", "any")], "x/y", r#""name":"x""#).is_ok());
    assert!(with_headers(&[("mcp-method", "tools/call")], "tools/call", "").is_ok());
    assert!(with_headers(&[("mcp-method", "tools/call"), ("mcp-name", "5")], "tools/call", r#""name":5"#).is_ok());
}

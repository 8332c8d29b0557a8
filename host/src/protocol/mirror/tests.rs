//! Values and headers as the revision has them written and read.

use super::*;
use crate::protocol::Incoming;
use bytes::Bytes;

fn request(method: &str, params: &str) -> Request {
    let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
    let Ok(Incoming::Request(request)) = Incoming::parse(Bytes::from(text)) else { panic!("{params}") };
    request
}

fn params(properties: &str) -> Result<Params, String> {
    let schema = format!(r#"{{"type":"object","properties":{properties}}}"#);
    Params::of_schema(RawValue::read(&schema).unwrap())
}

fn head(lines: &[(&str, &str)]) -> HeaderMap {
    let line = |(name, value): &(&str, &str)| (name.parse::<HeaderName>().unwrap(), HeaderValue::from_bytes(value.as_bytes()).unwrap());
    lines.iter().map(line).collect()
}

#[test]
fn values_that_a_header_cannot_hold_are_put_between_markers() {
    for (text, value) in [
        ("us-west1", "us-west1"),
        ("a b", "a b"),
        ("", ""),
        ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
        (" padded ", "=?base64?IHBhZGRlZCA=?="),
        ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
        ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
        ("=?BASE64?x?=", "=?BASE64?x?="),
        ("=?base64?", "=?base64?"),
    ] {
        assert_eq!(encode(text), value);
        assert_eq!(decode(&encode(text)).unwrap(), text);
    }
    for bad in [&b"=?base64?SGVsbG8?="[..], b"=?base64?SGV%bG8=?=", b"=?base64?/w==?=", b"\xc3\xa4"] {
        assert!(decode(&HeaderValue::from_bytes(bad).unwrap()).is_err(), "{bad:?}");
    }
    assert_eq!(decode(&HeaderValue::from_static("\t x \t")).unwrap(), "x");
}

#[test]
fn headers_repeat_the_body_and_replace_what_was_there() {
    let tool = params(
        r#"{"region":{"type":"string","x-mcp-header":"Region"},"o":{"type":"object","properties":{"n":{"type":"integer","x-mcp-header":"N"},"f":{"type":["boolean","null"],"x-mcp-header":"F"}}},"q":{"type":"string"}}"#,
    )
    .unwrap();
    let mut lines = head(&[("mcp-name", "old"), ("mcp-param-f", "old"), ("mcp-param-other", "kept")]);
    let call = request("tools/call", r#"{"name":"tö","arguments":{"region":"eu","o":{"n":42.0,"f":null},"q":"s"}}"#);
    write(&Mirrored::of(&call), Some(&tool), &mut lines);
    assert_eq!(
        lines,
        head(&[
            ("mcp-method", "tools/call"),
            ("mcp-name", "=?base64?dMO2?="),
            ("mcp-param-region", "eu"),
            ("mcp-param-n", "42"),
            ("mcp-param-other", "kept")
        ])
    );
    assert_eq!(check(&call, Some(&tool), &lines), Ok(()));
    let mut lines = head(&[("mcp-name", "old")]);
    write(&Mirrored::of(&request("tools/list", "{}")), None, &mut lines);
    assert_eq!(lines, head(&[("mcp-method", "tools/list")]));
    write(&Mirrored::of(&request("resources/read", r#"{"uri":"file:///a"}"#)), None, &mut lines);
    assert_eq!(lines["mcp-name"], "file:///a");
    write(&Mirrored::of(&request("tasks/get", r#"{"taskId":"t"}"#)), None, &mut lines);
    assert_eq!(lines["mcp-name"], "t");
}

#[test]
fn a_header_that_says_something_else_is_found() {
    let tool = params(
        r#"{"s":{"type":"string","x-mcp-header":"S"},"n":{"type":"integer","x-mcp-header":"N"},"b":{"type":"boolean","x-mcp-header":"B"}}"#,
    )
    .unwrap();
    let call = request("tools/call", r#"{"name":"t","arguments":{"s":"x","n":42,"b":true}}"#);
    let with = |lines: &[(&str, &str)]| {
        let mut all = head(&[
            ("Mcp-Method", "tools/call"),
            ("MCP-NAME", "t"),
            ("mcp-param-s", "x"),
            ("mcp-param-n", "42.0"),
            ("mcp-param-b", "true"),
        ]);
        for (name, value) in head(lines) {
            all.insert(name.unwrap(), value);
        }
        check(&call, Some(&tool), &all)
    };
    assert_eq!(with(&[]), Ok(()));
    assert_eq!(with(&[("mcp-param-s", "=?base64?eA==?="), ("mcp-name", " t "), ("mcp-param-unknown", "=?base64?*?=")]), Ok(()));
    for wrong in [
        ("mcp-method", "Tools/call"),
        ("mcp-method", "=?base64?dG9vbHMvY2FsbA==?="),
        ("mcp-name", "T"),
        ("mcp-name", "=?base64?dA=?="),
        ("mcp-param-s", "=?BASE64?eA==?="),
        ("mcp-param-s", "X"),
        ("mcp-param-n", "43"),
        ("mcp-param-n", "0x2a"),
        ("mcp-param-b", "True"),
    ] {
        assert!(with(&[wrong]).is_err(), "{wrong:?}");
    }
    let all = head(&[("mcp-method", "tools/call"), ("mcp-name", "t")]);
    assert_eq!(check(&call, Some(&tool), &all).unwrap_err().to_string(), "Header mismatch: mcp-param-s is missing");
    let none = request("tools/call", r#"{"name":"t","arguments":{"s":null}}"#);
    assert_eq!(check(&none, Some(&tool), &all), Ok(()));
    let mut twice = all.clone();
    twice.append("mcp-name", HeaderValue::from_static("t"));
    assert!(check(&none, Some(&tool), &twice).is_err());
    assert!(check(&none, None, &head(&[("mcp-method", "tools/call")])).is_err());
    assert_eq!(check(&request("tools/list", "{}"), None, &head(&[("mcp-method", "tools/list")])), Ok(()));
}

#[test]
fn annotations_that_no_client_may_follow_are_refused() {
    for good in [
        r#"{"x-mcp-header":{"type":"string"}}"#,
        r#"{"a":{"type":"string","default":{"x-mcp-header":1},"enum":[{"x-mcp-header":1}]}}"#,
        r#"{"a":{"type":"integer","x-mcp-header":"A"},"b":{"type":"string","x-mcp-header":"B"}}"#,
    ] {
        assert!(params(good).is_ok(), "{good}");
    }
    for bad in [
        r#"{"a":{"type":"number","x-mcp-header":"A"}}"#,
        r#"{"a":{"type":"object","x-mcp-header":"A"}}"#,
        r#"{"a":{"type":["string","integer"],"x-mcp-header":"A"}}"#,
        r#"{"a":{"x-mcp-header":"A"}}"#,
        r#"{"a":{"type":"string","x-mcp-header":""}}"#,
        r#"{"a":{"type":"string","x-mcp-header":"A B"}}"#,
        r#"{"a":{"type":"string","x-mcp-header":"A:"}}"#,
        r#"{"a":{"type":"string","x-mcp-header":"ä"}}"#,
        r#"{"a":{"type":"string","x-mcp-header":"A\r\nB"}}"#,
        r#"{"a":{"type":"string","x-mcp-header":7}}"#,
        r#"{"a":{"type":"string","x-mcp-header":"A"},"b":{"type":"string","x-mcp-header":"a"}}"#,
        r#"{"a":{"type":"array","items":{"type":"string","x-mcp-header":"A"}}}"#,
        r#"{"a":{"type":"array","items":{"properties":{"b":{"type":"string","x-mcp-he\u0061der":"A"}}}}}"#,
        r#"{"a":{"oneOf":[{"type":"string","x-mcp-header":"A"}]}}"#,
        r#"{"a":{"$defs":{"d":{"type":"string","x-mcp-header":"A"}}}}"#,
    ] {
        assert!(params(bad).is_err(), "{bad}");
    }
    let root = RawValue::read(r#"{"type":"string","x-mcp-header":"A"}"#).unwrap();
    assert!(Params::of_schema(root).is_err());
    let deep = format!(r#"{{"a":{}"x-mcp-header"{}}}"#, "[".repeat(100), "]".repeat(100));
    assert!(params(&deep).is_err());
}

#[test]
fn the_headers_repeat_the_arguments_that_the_tool_marks() {
    let schema = r#"{"type":"object","properties":{
        "s":{"type":"string","x-mcp-header":"S"},"n":{"type":"integer","x-mcp-header":"Num"},"b":{"type":"boolean","x-mcp-header":"B"},
        "o":{"type":"object","properties":{"i":{"type":"string","x-mcp-header":"Inner"}}},"free":{"type":"string"}}}"#;
    let tool = Params::of_schema(RawValue::read(schema).unwrap()).unwrap();
    let call = |lines: &[(&str, &str)], arguments: &str| {
        check_params(&request("tools/call", &format!(r#"{{"name":"t","arguments":{arguments}}}"#)), &tool, &head(lines))
    };
    for (lines, arguments) in [
        (&[][..], "{}"),
        (&[], r#"{"s":null,"free":"x"}"#),
        (&[("mcp-param-s", "x"), ("Mcp-Param-Other", "=?base64?!?=")], r#"{"s":"x"}"#),
        (&[("MCP-PARAM-S", "=?base64?SGVsbG8=?=")], r#"{"s":"Hello"}"#),
        (&[("mcp-param-s", "SGVsbG8=")], r#"{"s":"SGVsbG8="}"#),
        (&[("mcp-param-s", "=?base64?SGVsbG8=")], r#"{"s":"=?base64?SGVsbG8="}"#),
        (&[("mcp-param-s", "  x ")], r#"{"s":"x"}"#),
        (&[("mcp-param-s", "")], r#"{"s":""}"#),
        (&[("mcp-param-num", "42")], r#"{"n":42.0}"#),
        (&[("mcp-param-num", "9007199254740993")], r#"{"n":9007199254740993}"#),
        (&[("mcp-param-num", "-1")], r#"{"n":-1}"#),
        (&[("mcp-param-b", "true")], r#"{"b":true}"#),
        (&[("mcp-param-inner", "y")], r#"{"o":{"i":"y"}}"#),
    ] {
        assert_eq!(call(lines, arguments), Ok(()), "{lines:?} {arguments}");
    }
    for (lines, arguments) in [
        (&[][..], r#"{"s":"x"}"#),
        (&[], r#"{"n":0}"#),
        (&[], r#"{"b":false}"#),
        (&[], r#"{"o":{"i":""}}"#),
        (&[("mcp-param-s", "x")], "{}"),
        (&[("mcp-param-s", "null")], r#"{"s":null}"#),
        (&[("mcp-param-s", "X")], r#"{"s":"x"}"#),
        (&[("mcp-param-s", "x"), ("mcp-param-s", "x")], r#"{"s":"x"}"#),
        (&[("mcp-param-s", "é")], r#"{"s":"é"}"#),
        (&[("mcp-param-s", "=?base64?SGVsbG8?=")], r#"{"s":"Hello"}"#),
        (&[("mcp-param-s", "=?base64?SGVs!!!bG8=?=")], r#"{"s":"Hello"}"#),
        (&[("mcp-param-num", "9007199254740992")], r#"{"n":9007199254740993}"#),
        (&[("mcp-param-num", "0x2a")], r#"{"n":42}"#),
        (&[("mcp-param-num", "")], r#"{"n":0}"#),
        (&[("mcp-param-b", "True")], r#"{"b":true}"#),
        (&[("mcp-param-b", "1")], r#"{"b":true}"#),
        (&[("mcp-param-inner", "y")], r#"{"i":"y"}"#),
    ] {
        assert!(call(lines, arguments).is_err(), "{lines:?} {arguments}");
    }
    // A call without arguments at all.
    let none = request("tools/call", r#"{"name":"t"}"#);
    assert_eq!(check_params(&none, &tool, &head(&[])), Ok(()));
    assert!(check_params(&none, &tool, &head(&[("mcp-param-b", "true")])).is_err());
}

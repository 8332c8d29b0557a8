//! Peers that break the rules, by mistake or on purpose: each gets the answer that the specification names, and nobody else
//! notices.

use std::time::{Duration, Instant};

use lockgate_tests::{
    backend::{Backend, Call},
    client::{ACCEPT, JSON, LATEST, Session, initialize_body},
    gateway::{Gateway, http_backends},
    raw, within, within_time,
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

async fn setup() -> (Backend, Gateway, Session) {
    let backend = Backend::with_tools("b", &["t"]).await;
    let gateway = Gateway::start(&http_backends(&[("one", &backend.url())])).await;
    let session = gateway.initialize().await;
    (backend, gateway, session)
}

async fn still_serves(session: &Session) {
    let start = Instant::now();
    assert_eq!(session.call("t", json!({})).await["content"][0]["text"], "t");
    assert!(start.elapsed() < Duration::from_secs(5), "a call took {:?}", start.elapsed());
}

/// Sends bytes on a connection of their own, gives what comes back until the gateway closes or a second passes.
async fn send_raw(gateway: &Gateway, bytes: &[u8]) -> String {
    let mut socket = TcpStream::connect(gateway.listen).await.expect("it listens");
    // It may close while we still write.
    let _ = socket.write_all(bytes).await;
    let mut answer = Vec::new();
    let _ = tokio::time::timeout(Duration::from_secs(2), socket.read_to_end(&mut answer)).await;
    String::from_utf8_lossy(&answer).into_owned()
}

// --- bodies

#[tokio::test]
async fn malformed_json_is_400_with_a_parse_error_and_the_id_where_it_can_be_read() {
    let (_backend, gateway, session) = setup().await;
    for (body, id) in [
        (r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"#, json!(7)),
        (r#"{"jsonrpc":"2.0","id":"a","method":"ping","params":{},}"#, json!("a")),
        (r#"{"jsonrpc":"2.0","id":7,"method":"ping"} trailing"#, json!(7)),
        ("not json at all", Value::Null),
        ("", Value::Null),
        ("{", Value::Null),
        (r#"{"jsonrpc":"2.0","id":"#, Value::Null),
    ] {
        let reply = session.post(body).await;
        assert_eq!(reply.status, 400, "{body}");
        let error = reply.json().await;
        assert_eq!((&error["error"]["code"], &error["id"]), (&json!(-32700), &id), "{body}: {error}");
    }
    still_serves(&session).await;
    gateway.stop().await;
}

#[tokio::test]
async fn bytes_that_are_not_utf_8_are_400_with_a_parse_error() {
    let (backend, gateway, session) = setup().await;
    for bytes in [
        &b"\xff\xfe"[..],
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"t\",\"arguments\":{\"a\":\"\xc3\x28\"}}}",
    ] {
        let reply = session.post(bytes.to_vec()).await;
        assert_eq!(reply.status, 400);
        assert_eq!(reply.json().await["error"]["code"], -32700);
    }
    assert!(backend.seen_of("tools/call").is_empty());
    gateway.stop().await;
}

#[tokio::test]
async fn messages_that_are_no_json_rpc_are_400_with_invalid_request() {
    let (backend, gateway, session) = setup().await;
    for body in [
        "{}",
        "7",
        "\"text\"",
        "null",
        "true",
        r#"{"id":1,"method":"ping"}"#,
        r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":[1],"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":true,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":7}"#,
        r#"{"jsonrpc":"2.0","id":1}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":[1]}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":"x"}"#,
    ] {
        let reply = session.post(body).await;
        let (status, error) = (reply.status, reply.json().await);
        assert_eq!(status, 400, "{body}: {error}");
        assert!([json!(-32600), json!(-32602)].contains(&error["error"]["code"]), "{body}: {error}");
    }
    assert!(backend.seen().iter().all(|seen| seen.method.as_deref() != Some("ping")));
    still_serves(&session).await;
    gateway.stop().await;
}

#[tokio::test]
async fn parameters_of_the_wrong_type_are_invalid_params() {
    let (backend, gateway, session) = setup().await;
    for (method, params) in [
        ("tools/call", r#"{"name":7}"#),
        ("tools/call", "{}"),
        ("tools/call", r#"{"name":{"a":1}}"#),
        ("prompts/get", r#"{"name":null}"#),
        ("resources/read", r#"{"uri":[]}"#),
        ("tools/list", r#"{"cursor":7}"#),
        ("logging/setLevel", r#"{"level":"loud"}"#),
    ] {
        let answer = session.ask_raw("1", method, params).await;
        assert_eq!(answer.error()["code"], -32602, "{method} {params}: {}", answer.raw);
    }
    assert!(backend.seen_of("tools/call").is_empty());
    gateway.stop().await;
}

#[tokio::test]
async fn a_cursor_that_the_gateway_did_not_give_is_invalid_params() {
    let backend = Backend::builder("b").tool("a").tool("c").tool("d").page(1).start().await;
    let gateway = Gateway::start(&http_backends(&[("one", &backend.url())])).await;
    let session = gateway.initialize().await;
    let page = session.result("tools/list", json!({})).await;
    let cursor = page["nextCursor"].as_str().expect("there are more").to_owned();
    let cut = cursor[..cursor.len() - 1].to_owned();
    for wrong in ["", "x", "from 1", "../../etc", &cut, &"A".repeat(10_000)] {
        let answer = session.ask("tools/list", json!({ "cursor": wrong })).await;
        assert_eq!(answer.error()["code"], -32602, "{wrong:.30}: {}", answer.raw);
    }
    assert_eq!(session.names("tools/list", "tools").await, ["a", "c", "d"]);
    gateway.stop().await;
}

#[tokio::test]
async fn json_that_is_nested_deeply_does_no_harm() {
    let (_backend, gateway, session) = setup().await;
    for depth in [1_000, 200_000] {
        let arguments = format!("{{\"a\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
        let reply = session.post(raw::request("1", "tools/call", &format!(r#"{{"name":"t","arguments":{arguments}}}"#))).await;
        assert!(reply.status == 200 || reply.status == 400 || reply.status == 413, "{depth}: {}", reply.status);
        drop(reply);
        let open = "[".repeat(depth);
        assert_eq!(session.post(open).await.status, 400, "{depth}");
    }
    still_serves(&session).await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_backend_that_nests_deeply_does_no_harm() {
    let deep = format!("{{\"content\":[],\"x\":{}{}}}", "[".repeat(200_000), "]".repeat(200_000));
    let script = move |call: Call| {
        let deep = deep.clone();
        async move { if call.target() == "deep" { call.result(&deep) } else { call.result(&raw::text("t")) } }
    };
    let backend = Backend::builder("b").tool("t").tool("deep").on("tools/call", script).start().await;
    let gateway = Gateway::start(&http_backends(&[("one", &backend.url())])).await;
    let session = gateway.initialize().await;
    let _ = session.ask("tools/call", json!({ "name": "deep", "arguments": {} })).await;
    still_serves(&session).await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_body_that_is_too_large_is_413_before_it_is_read() {
    let (_backend, gateway, session) = setup().await;
    let head = format!(
        "POST /mcp HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\naccept: application/json, text/event-stream\r\n\
         mcp-session-id: {}\r\ncontent-length: 10000000000\r\n\r\n{{",
        gateway.listen, session.id
    );
    let answer = send_raw(&gateway, head.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer:.200}");
    still_serves(&session).await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_chunked_body_that_never_ends_is_cut_off() {
    let (_backend, gateway, session) = setup().await;
    let head = format!(
        "POST /mcp HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\nmcp-session-id: {}\r\ntransfer-encoding: chunked\r\n\r\n",
        gateway.listen, session.id
    );
    let mut socket = TcpStream::connect(gateway.listen).await.expect("it listens");
    socket.write_all(head.as_bytes()).await.expect("a head is read");
    let chunk = format!("{:x}\r\n{}\r\n", 1 << 20, "x".repeat(1 << 20));
    let mut sent = 0;
    let closed = within_time(Duration::from_secs(60), "the gateway cuts it off", async {
        while sent < 512 {
            if tokio::time::timeout(Duration::from_secs(5), socket.write_all(chunk.as_bytes())).await.map_or(true, |sent| sent.is_err()) {
                return true;
            }
            sent += 1;
        }
        false
    })
    .await;
    assert!(closed, "{sent} MiB were read");
    still_serves(&session).await;
    gateway.stop().await;
}

// --- batches

#[tokio::test]
async fn a_batch_is_answered_in_the_revision_that_has_batches() {
    let (_backend, gateway, _) = setup().await;
    let session = gateway.mcp().initialize_as("2025-03-26", json!({})).await;
    let batch = format!(
        "[{},{},{}]",
        raw::request("1", "ping", "{}"),
        raw::notification("notifications/roots/list_changed", "{}"),
        raw::request("\"two\"", "tools/call", r#"{"name":"t"}"#)
    );
    let reply = session.post(batch).await;
    assert_eq!(reply.status, 200);
    let answers: Vec<Value> = if reply.is_stream() {
        let events = reply.events().rest().await;
        let messages = events.into_iter().filter(|event| event.is_message()).map(|event| event.json());
        messages.flat_map(|message| message.as_array().cloned().unwrap_or_else(|| vec![message])).collect()
    } else {
        reply.json().await.as_array().expect("an array").clone()
    };
    assert_eq!(answers.len(), 2, "{answers:?}");
    assert!(answers.iter().any(|answer| answer["id"] == 1 && answer["result"].is_object()), "{answers:?}");
    assert!(answers.iter().any(|answer| answer["id"] == "two" && answer["result"]["content"][0]["text"] == "t"), "{answers:?}");
    let notes = format!("[{}]", raw::notification("notifications/roots/list_changed", "{}"));
    assert_eq!(session.post(notes).await.status, 202);
    assert_eq!(session.post("[]").await.status, 400);
    gateway.stop().await;
}

#[tokio::test]
async fn a_batch_is_refused_in_revisions_that_have_none() {
    let (backend, gateway, _) = setup().await;
    for version in ["2025-06-18", LATEST] {
        let session = gateway.mcp().initialize_as(version, json!({})).await;
        let reply = session.post(format!("[{}]", raw::request("1", "tools/call", r#"{"name":"t"}"#))).await;
        assert_eq!(reply.status, 400, "{version}");
        assert_eq!(reply.json().await["error"]["code"], -32600, "{version}");
    }
    assert!(backend.seen_of("tools/call").is_empty());
    gateway.stop().await;
}

// --- heads

#[tokio::test]
async fn wrong_verbs_paths_and_types_get_405_404_and_415() {
    let (_backend, gateway, session) = setup().await;
    for verb in ["PUT", "PATCH", "TRACE"] {
        let reply = session.at.send(verb, &session.headers(), "").await;
        assert_eq!(reply.status, 405, "{verb}");
        assert!(reply.header("allow").is_some_and(|allow| allow.contains("POST")), "{verb}");
    }
    for path in ["/", "/other", "/mcp/more", "/mcpx", "//mcp", "/MCP"] {
        assert_eq!(gateway.at(path).post(&[], initialize_body(LATEST, &json!({}))).await.status, 404, "{path}");
    }
    for kind in ["text/plain", "application/xml", "application/jsonx", "multipart/form-data; boundary=x"] {
        let headers = [&[ACCEPT, ("content-type", kind)], &session.headers()[..]].concat();
        assert_eq!(session.at.send("POST", &headers, raw::request("1", "ping", "{}")).await.status, 415, "{kind}");
    }
    for kind in ["application/json; charset=utf-8", "Application/JSON"] {
        let headers = [&[ACCEPT, ("content-type", kind)], &session.headers()[..]].concat();
        assert_eq!(session.at.send("POST", &headers, raw::request("1", "ping", "{}")).await.status, 200, "{kind}");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_client_that_could_read_the_answer_is_never_refused_for_its_accept_header() {
    let (_backend, gateway, session) = setup().await;
    let accepts = [
        None,
        Some("*/*"),
        Some("application/json"),
        Some("text/event-stream"),
        Some("application/*"),
        Some("text/event-stream;q=0.5, */*;q=0.1"),
        Some(""),
    ];
    for accept in accepts {
        let mut headers = vec![JSON];
        headers.extend(session.headers());
        headers.extend(accept.map(|accept| ("accept", accept)));
        let reply = session.at.send("POST", &headers, raw::request("1", "tools/call", r#"{"name":"t"}"#)).await;
        assert_eq!(reply.status, 200, "accept: {accept:?}");
        if accept == Some("application/json") {
            assert!(!reply.is_stream());
        }
        if accept == Some("text/event-stream") {
            assert!(reply.is_stream());
        }
        assert_eq!(reply.answer().await.result()["content"][0]["text"], "t", "accept: {accept:?}");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn the_protocol_version_header_is_checked() {
    let (_backend, gateway, session) = setup().await;
    let ping = || raw::request("1", "ping", "{}");
    let id = ("mcp-session-id", session.id.as_str());
    for version in ["1999-01-01", "latest", "2025-11-25 ", ""] {
        let status = session.at.post(&[id, ("mcp-protocol-version", version)], ping()).await.status;
        // Blanks around a value are not part of it.
        assert_eq!(status, if version.trim() == LATEST { 200 } else { 400 }, "{version:?}");
    }
    assert_eq!(session.at.post(&[id], ping()).await.status, 200, "absent: the negotiated one holds");
    gateway.stop().await;
}

#[tokio::test]
async fn an_unknown_version_at_initialize_is_answered_with_the_newest_that_is_spoken() {
    let (_backend, gateway, _) = setup().await;
    for (asked, given) in
        [("2025-03-26", "2025-03-26"), ("2025-06-18", "2025-06-18"), (LATEST, LATEST), ("2099-01-01", LATEST), ("2026-07-28", LATEST)]
    {
        let session = gateway.mcp().initialize_as(asked, json!({})).await;
        assert_eq!(session.version, given, "asked for {asked}");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn foreign_origins_and_hosts_are_refused_and_told_which_setting_allows_them() {
    let (backend, gateway, session) = setup().await;
    let before = backend.seen().len();
    let port = gateway.listen.port();
    let body = || initialize_body(LATEST, &json!({}));
    for origin in ["https://evil.example", "http://localhost.evil.example", "null", "http://127.0.0.1.evil.example", "file://"] {
        let reply = gateway.mcp().post(&[("origin", origin)], body()).await;
        assert_eq!(reply.status, 403, "{origin}");
        assert!(reply.text().await.contains("origin"), "the message names the setting");
    }
    for host in ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:80", "10.0.0.1"] {
        let reply = gateway.mcp().post(&[("host", host)], body()).await;
        assert!((400..500).contains(&reply.status), "{host}: {}", reply.status);
        assert!(reply.text().await.contains("host"), "the message names the setting");
    }
    assert_eq!(backend.seen().len(), before, "nothing reached the backend");
    for origin in [format!("http://localhost:{port}"), format!("http://127.0.0.1:{port}"), "http://localhost:6274".to_owned()] {
        assert_eq!(gateway.mcp().post(&[("origin", &origin)], body()).await.status, 200, "{origin}");
    }
    for host in [format!("localhost:{port}"), format!("127.0.0.1:{port}"), "localhost".to_owned()] {
        assert_eq!(gateway.mcp().post(&[("host", &host)], body()).await.status, 200, "{host}");
    }
    let evil = session.at.send("GET", &[&session.headers()[..], &[("origin", "https://evil.example")]].concat(), "").await.status;
    assert_eq!(evil, 403, "streams are guarded too");
    gateway.stop().await;
}

#[tokio::test]
async fn huge_heads_are_refused() {
    let (_backend, gateway, session) = setup().await;
    let huge = format!("POST /mcp HTTP/1.1\r\nhost: {}\r\nx-huge: {}\r\n\r\n", gateway.listen, "h".repeat(2 << 20));
    let answer = send_raw(&gateway, huge.as_bytes()).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer:.100}");
    let many: String = (0..5000).map(|at| format!("x-{at}: 1\r\n")).collect();
    let answer = send_raw(&gateway, format!("POST /mcp HTTP/1.1\r\nhost: {}\r\n{many}\r\n", gateway.listen).as_bytes()).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer:.100}");
    let answer = send_raw(&gateway, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03").await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "TLS on a plain port: {answer:.100}");
    still_serves(&session).await;
    gateway.stop().await;
}

// --- slowness

#[tokio::test]
async fn slow_heads_and_half_bodies_hold_up_nobody() {
    let (_backend, gateway, session) = setup().await;
    let mut open = Vec::new();
    for at in 0..200 {
        let mut socket = TcpStream::connect(gateway.listen).await.expect("it accepts");
        let half = if at % 2 == 0 {
            "POST /mcp HTTP/1.1\r\nhost: loc".to_owned()
        } else {
            format!(
                "POST /mcp HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\nmcp-session-id: {}\r\ncontent-length: 1000\r\n\r\n{{\"json",
                gateway.listen, session.id
            )
        };
        socket.write_all(half.as_bytes()).await.expect("it reads");
        open.push(socket);
    }
    for _ in 0..5 {
        still_serves(&session).await;
    }
    let other = gateway.initialize().await;
    still_serves(&other).await;
    drop(open);
    still_serves(&session).await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_stopped_gateway_does_not_wait_for_half_requests() {
    let (_backend, mut gateway, _) = setup().await;
    let mut socket = TcpStream::connect(gateway.listen).await.expect("it accepts");
    socket.write_all(b"POST /mcp HTTP/1.1\r\nhost: loc").await.expect("it reads");
    let start = Instant::now();
    gateway.terminate();
    assert!(gateway.wait().await.success());
    assert!(start.elapsed() < Duration::from_secs(35), "{:?}", start.elapsed());
    drop(socket);
}

#[tokio::test]
async fn a_session_whose_streams_nobody_reads_holds_up_no_other() {
    let filler = "f".repeat(8 << 10);
    let script = move |call: Call| {
        let filler = filler.clone();
        async move {
            if call.target() == "t" {
                return call.result(&raw::text("t"));
            }
            let stream = call.stream();
            let params = format!(r#"{{"level":"info","data":"{filler}"}}"#);
            while stream.notify("notifications/message", &params).await {}
        }
    };
    let backend = Backend::builder("b").tool("t").tool("flood").on("tools/call", script).start().await;
    let gateway = Gateway::start(&http_backends(&[("one", &backend.url())])).await;
    let (deaf, session) = (gateway.initialize().await, gateway.initialize().await);
    let before = lockgate_tests::process::resident(gateway.pid);
    let unread: Vec<_> =
        [deaf.start("1", "tools/call", r#"{"name":"flood"}"#).await, deaf.start("2", "tools/call", r#"{"name":"flood"}"#).await].into();
    for _ in 0..10 {
        still_serves(&session).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let grown = lockgate_tests::process::resident(gateway.pid).saturating_sub(before);
    assert!(grown < 32 << 20, "grown by {} KiB", grown >> 10);
    drop(unread);
    still_serves(&session).await;
    gateway.stop().await;
}

// --- backends

#[tokio::test]
async fn nonsense_from_a_backend_is_an_error_for_its_call_only() {
    let script = |call: Call| async move {
        match call.target().as_str() {
            "text" => call.http(200, &[("content-type", "text/plain")], "hello"),
            "half" => call.message(r#"{"jsonrpc":"2.0","id":"#),
            "array" => call.message("[]"),
            "other" => call.message(&raw::result("\"not yours\"", "{}")),
            "empty" => call.http(200, &[("content-type", "application/json")], ""),
            "accepted" => call.http(202, &[], ""),
            "teapot" => call.http(418, &[("content-type", "text/html")], "<html>short and stout</html>"),
            "broken" => call.http(500, &[], "stack trace with secrets"),
            "away" => call.http(307, &[("location", "http://127.0.0.1:1/mcp")], ""),
            "cut" => {
                let stream = call.stream();
                stream.bytes("data: {\"jsonrpc\":\"2.0\",").await;
            }
            "latin" => {
                call.http(200, &[("content-type", "application/json")], b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":\"\xe9\"}".to_vec())
            }
            _ => call.result(&raw::text("t")),
        }
    };
    let names = ["text", "half", "array", "other", "empty", "accepted", "teapot", "broken", "away", "cut", "latin"];
    let builder = names.iter().fold(Backend::builder("b").tool("t"), |builder, name| builder.tool(name));
    let backend = builder.on("tools/call", script).start().await;
    let yaml = format!("{}limits: {{ call_timeout: 3s }}\n", http_backends(&[("one", &backend.url())]));
    let gateway = Gateway::start(&yaml).await;
    let session = gateway.initialize().await;
    for name in names {
        let answer = within(name, session.ask("tools/call", json!({ "name": name, "arguments": {} }))).await;
        let error = answer.error();
        assert!(error["code"].is_i64(), "{name}: {}", answer.raw);
        let text = error["message"].as_str().unwrap_or_default();
        assert!(!text.contains("secrets") && !text.contains("<html>"), "{name}: {text}");
        still_serves(&session).await;
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_redirect_to_another_host_is_not_followed() {
    let other = Backend::with_tools("other", &["t"]).await;
    let target = other.url();
    let script = move |call: Call| {
        let target = target.clone();
        async move { call.http(307, &[("location", &target)], "") }
    };
    let backend = Backend::builder("b").on("initialize", script).start().await;
    let yaml = format!("{}limits: {{ initialize_timeout: 2s }}\n", http_backends(&[("one", &backend.url())]));
    let gateway = Gateway::start(&yaml).await;
    let _ = gateway.mcp().post(&[], initialize_body(LATEST, &json!({}))).await.bytes().await;
    assert!(other.seen().is_empty(), "followed to {}", other.url());
    gateway.stop().await;
}

#[tokio::test]
async fn responses_and_notifications_that_nobody_waits_for_are_accepted_and_ignored() {
    let (_backend, gateway, session) = setup().await;
    assert_eq!(session.post(raw::result("\"nobody\"", "{}")).await.status, 202);
    assert_eq!(session.post(raw::error("99", -1, "no")).await.status, 202);
    assert_eq!(session.tell("notifications/cancelled", json!({ "requestId": "nobody" })).await, 202);
    assert_eq!(session.tell("notifications/progress", json!({ "progressToken": "nobody", "progress": 1 })).await, 202);
    assert_eq!(session.tell("notifications/com.example/unknown", json!({})).await, 202);
    still_serves(&session).await;
    let signals = gateway.metric("lockgate_isolation_signals_total").await;
    assert!(signals >= 2.0, "an unknown id and an unknown token are counted: {signals}");
    gateway.stop().await;
}

//! Sessions over the wire: their life, their key, their stream.

use super::*;
use crate::protocol::Wire;
use crate::session::streams::{Rule, STANDALONE};
use crate::telemetry::metrics::IsolationSignal;

fn message(n: u32) -> Wire {
    Wire::from(format!(r#"{{"jsonrpc":"2.0","method":"notifications/n","params":{{"n":{n}}}}}"#))
}

#[tokio::test]
async fn a_session_lives_from_initialize_to_delete() {
    let mut site = Site::open("").await;
    let reply = site.initialize("2025-11-25").await;
    assert_eq!(reply.header("content-type"), Some("application/json"));
    assert!(reply.body.contains(r#""protocolVersion":"2025-11-25""#), "{reply:?}");
    assert_eq!(site.client.send("POST", &[("Accept", "text/html")], NOTE).await.status, 202, "there is no answer to accept");
    let reply = site.client.post(PING).await;
    assert_eq!((reply.status, reply.body.as_str()), (200, r#"{"jsonrpc":"2.0","id":7,"result":{}}"#));
    assert_eq!(reply.header("content-length"), Some("36"));
    assert_eq!(site.client.send("DELETE", &[], "").await.status, 204);
    for (method, body) in [("POST", PING), ("GET", ""), ("DELETE", "")] {
        assert_eq!(site.client.send(method, &[], body).await.status, 404, "{method}");
    }
}

#[tokio::test]
async fn an_id_of_somebody_else_or_of_another_place_is_answered_like_one_that_never_was() {
    let mut site = Site::open(TWO_PRINCIPALS).await;
    site.client.token = Some("token-of-ann-0001");
    site.initialize("2025-11-25").await;
    let elsewhere = site.client.raw(&site.client.request("POST", "/other", &[], PING)).await;
    site.client.token = Some("token-of-bob-0001");
    let foreign = site.client.post(PING).await;
    let mut unknown = Vec::new();
    for id in ["deadbeef-0000-4000-8000-000000000000", "a"] {
        unknown.push(site.client.send("POST", &[("Mcp-Session-Id", id)], PING).await);
    }
    for reply in unknown.iter().chain([&elsewhere]) {
        assert_eq!((reply.status, &reply.body), (404, &foreign.body));
    }
    assert!(foreign.body.contains(r#""id":7"#), "{foreign:?}");
    site.client.token = Some("token-of-ann-0001");
    assert_eq!(site.client.post(PING).await.status, 200);
}

#[tokio::test]
async fn a_request_without_a_session_is_refused_and_counted() {
    let site = Site::open("").await;
    let signals = || site.gateway.metrics().isolation_signals_total.get(IsolationSignal::HeaderAbsent);
    for (method, body) in [("POST", PING), ("POST", NOTE), ("GET", ""), ("DELETE", "")] {
        let reply = site.client.send(method, &[], body).await;
        assert!(reply.status == 400 && reply.body.contains("Mcp-Session-Id"), "{reply:?}");
    }
    assert_eq!(signals(), 4);
    let probe = r#"{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
    let reply = site.client.send("POST", &[("MCP-Protocol-Version", "2026-07-28")], probe).await;
    assert!(reply.status == 400 && reply.body.contains("-32602") && reply.body.contains("clientCapabilities"), "{reply:?}");
    assert_eq!(signals(), 4, "a client of the later era is no fault");
    assert_eq!(site.client.send("GET", &[("MCP-Protocol-Version", "2026-07-28")], "").await.status, 405);
}

#[tokio::test]
async fn a_header_of_the_later_era_moves_nothing_in_a_session() {
    let mut site = Site::open("").await;
    site.initialize("2025-11-25").await;
    let later = ("MCP-Protocol-Version", "2026-07-28");
    for method in ["GET", "DELETE"] {
        assert_eq!(site.client.send(method, &[later], "").await.status, 405, "{method}");
    }
    for body in [PING, NOTE] {
        let reply = site.client.send("POST", &[later], body).await;
        assert!(reply.status == 400 && reply.body.contains("MCP-Protocol-Version"), "{reply:?}");
    }
    assert_eq!(site.client.post(PING).await.status, 200, "the session is still there");
}

#[tokio::test]
async fn what_the_later_era_does_not_have_is_ignored_or_refused_and_counted_for_no_session() {
    let site = Site::open("").await;
    let later = [("MCP-Protocol-Version", "2026-07-28")];
    let reply = site.client.send("POST", &later, NOTE).await;
    assert_eq!((reply.status, reply.body.as_str()), (202, ""));
    let reply = site.client.send("POST", &later, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#).await;
    assert!(reply.status == 400 && reply.body.contains("inputResponses"), "{reply:?}");
    let reply = site.client.send("POST", &later, &format!("[{PING}]")).await;
    assert!(reply.status == 400 && reply.body.contains("not an array"), "{reply:?}");
    assert_eq!(site.gateway.metrics().isolation_signals_total.get(IsolationSignal::HeaderAbsent), 0);
}

#[tokio::test]
async fn a_malformed_id_is_no_id() {
    let site = Site::open("").await;
    for extra in [&[("Mcp-Session-Id", "a b")][..], &[("Mcp-Session-Id", "a"), ("Mcp-Session-Id", "a")], &[("Mcp-Session-Id", "")]] {
        assert_eq!(site.client.send("POST", extra, PING).await.status, 400, "{extra:?}");
    }
}

#[tokio::test]
async fn an_initialize_that_names_a_session_gets_another_and_is_counted() {
    let mut site = Site::open("").await;
    site.initialize("2025-06-18").await;
    let reply = site.client.post(&initialize("2025-11-25")).await;
    assert_eq!(reply.status, 200);
    assert_ne!(reply.header("mcp-session-id"), site.client.session.as_deref());
    assert_eq!(site.session().version().as_str(), "2025-06-18");
    let signals = || site.gateway.metrics().isolation_signals_total.get(IsolationSignal::InitializeNamesLiveSession);
    assert_eq!(signals(), 1);
    assert_eq!(site.client.send("POST", &[("Mcp-Session-Id", "invented")], &initialize("2025-11-25")).await.status, 200);
    assert_eq!(signals(), 1);
}

#[tokio::test]
async fn a_revision_that_is_not_served_is_refused_and_another_that_is_served_is_let_pass() {
    let mut site = Site::open("").await;
    site.initialize("2025-11-25").await;
    assert_eq!(site.client.send("POST", &[("MCP-Protocol-Version", "2025-06-18")], PING).await.status, 200);
    let reply = site.client.send("POST", &[("MCP-Protocol-Version", "1999-01-01")], PING).await;
    assert!(reply.status == 400 && reply.body.contains(r#""supported":["2024-11-05""#), "{reply:?}");
}

#[tokio::test]
async fn the_stream_of_a_session_is_open_at_once_and_continues_where_it_broke_off() {
    let mut site = Site::open("").await;
    site.initialize("2025-11-25").await;
    let mut stream = site.client.open(&site.client.request("GET", "/mcp", &[], "")).await;
    stream.until("id: 0-0\nretry: 1000\ndata: \n\n").await;
    assert!(stream.seen.contains("x-accel-buffering: no") && stream.seen.contains("cache-control: no-cache"));
    let streams = site.session().streams.clone();
    streams.note(STANDALONE, message(1), Rule::Drop).await;
    stream.until("id: 0-1\ndata: ").await;
    drop(stream);
    streams.note(STANDALONE, message(2), Rule::Drop).await;
    let mut again = site.client.open(&site.client.request("GET", "/mcp", &[("Last-Event-ID", "0-1")], "")).await;
    again.until(r#""n":2"#).await;
    assert!(!again.seen.contains(r#""n":1"#));
    assert_eq!(site.client.send("DELETE", &[], "").await.status, 204);
    again.rest().await;
}

#[tokio::test]
async fn clients_before_2025_11_25_get_no_event_without_data() {
    let mut site = Site::open("").await;
    site.initialize("2025-06-18").await;
    let mut stream = site.client.open(&site.client.request("GET", "/mcp", &[], "")).await;
    stream.until("\r\n\r\n").await;
    site.session().streams.note(STANDALONE, message(1), Rule::Drop).await;
    stream.until(r#""n":1"#).await;
    assert!(!stream.seen.contains("retry:"), "{}", stream.seen);
}

#[tokio::test]
async fn a_second_stream_takes_over_from_the_first() {
    let mut site = Site::open("").await;
    site.initialize("2025-11-25").await;
    let request = site.client.request("GET", "/mcp", &[], "");
    let mut first = site.client.open(&request).await;
    first.until("data: ").await;
    let mut second = site.client.open(&request).await;
    second.until("data: ").await;
    first.rest().await;
    site.session().streams.note(STANDALONE, message(1), Rule::Drop).await;
    second.until(r#""n":1"#).await;
    assert!(!first.seen.contains(r#""n":1"#));
}

#[tokio::test]
async fn only_events_that_are_kept_can_be_resumed_from() {
    let mut site = Site::open("").await;
    site.initialize("2025-11-25").await;
    for id in ["0-5", "9-1", "nonsense", "", "1-1-1"] {
        let reply = site.client.send("GET", &[("Last-Event-ID", id)], "").await;
        assert!(reply.status == 400 && reply.body.contains("Last-Event-ID"), "{id}: {reply:?}");
    }
    // One that ended, and of which all was delivered: there is nothing to come back for.
    let session = site.session();
    let mut reader = session.streams.open();
    let stream = reader.stream();
    reader.make_resumable();
    session.streams.answer(stream, message(1), None, None);
    session.streams.finish(stream);
    let event = reader.next().await.unwrap().event.to_string();
    drop(reader);
    assert_eq!(site.client.send("GET", &[("Last-Event-ID", &event)], "").await.status, 204);
    let before = format!("{stream}-0");
    assert_eq!(site.client.send("GET", &[("Last-Event-ID", &before)], "").await.events().len(), 1);
}

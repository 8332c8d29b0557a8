//! What the front turns away, and with which words.

use super::*;

#[tokio::test]
async fn an_unknown_path_is_404_and_a_slash_at_the_end_does_not_matter() {
    let site = Site::open("").await;
    let client = &site.client;
    assert_eq!(client.raw(&client.request("POST", "/mcp/?x=1", &[], &initialize("2025-11-25"))).await.status, 200);
    for path in ["/", "/mcp/x", "/mcp//", "/.well-known/oauth-protected-resource"] {
        let reply = client.raw(&client.request("POST", path, &[], PING)).await;
        assert!(reply.status == 404 && reply.body.contains("no MCP endpoint"), "{reply:?}");
        assert!(!reply.body.contains("/other"), "{reply:?}");
    }
}

#[tokio::test]
async fn a_foreign_host_or_origin_is_refused_and_told_which_setting_allows_it() {
    let site = Site::open("").await;
    let reply = site.client.send("POST", &[("Host", "evil.example")], PING).await;
    assert!(reply.status == 403 && reply.body.contains("http.allowed_hosts") && !reply.body.contains("evil"), "{reply:?}");
    let reply = site.client.send("POST", &[("Origin", "http://evil.example")], PING).await;
    assert!(reply.status == 403 && reply.body.contains("http.allowed_origins") && !reply.body.contains("evil"), "{reply:?}");
    assert_eq!(reply.header("access-control-allow-origin"), None);
}

#[tokio::test]
async fn an_allowed_page_can_read_refusals_too() {
    let site = Site::open(TWO_PRINCIPALS).await;
    let origin = ("Origin", "http://localhost:5173");
    let reply = site.client.send("POST", &[origin], PING).await;
    assert_eq!((reply.status, reply.header("access-control-allow-origin")), (401, Some(origin.1)));
    let preflight = site.client.send("OPTIONS", &[origin, ("Access-Control-Request-Method", "POST")], "").await;
    assert_eq!((preflight.status, preflight.header("access-control-allow-origin")), (204, Some(origin.1)));
}

#[tokio::test]
async fn other_methods_are_405_with_those_there_are() {
    let site = Site::open("").await;
    for method in ["PUT", "PATCH", "HEAD", "PROPFIND"] {
        let reply = site.client.send(method, &[], "").await;
        assert_eq!((reply.status, reply.header("allow")), (405, Some("GET, POST, DELETE, OPTIONS")), "{method}");
    }
    assert_eq!(site.client.send("OPTIONS", &[], "").await.header("allow"), Some("GET, POST, DELETE, OPTIONS"));
}

#[tokio::test]
async fn without_its_token_nobody_is_served_and_a_token_in_the_query_is_none() {
    let mut site = Site::open(TWO_PRINCIPALS).await;
    let query = "/mcp?access_token=token-of-ann-0001&token=token-of-ann-0001";
    let reply = site.client.raw(&site.client.request("POST", query, &[], &initialize("2025-11-25"))).await;
    assert_eq!((reply.status, reply.header("www-authenticate")), (401, Some(r#"Bearer realm="lockgate""#)));
    for value in ["Bearer wrong", "Basic token-of-ann-0001", "Bearer", "token-of-ann-0001"] {
        let reply = site.client.send("POST", &[("Authorization", value)], &initialize("2025-11-25")).await;
        assert!(reply.status == 401 && reply.header("www-authenticate").unwrap().contains("invalid_token"), "{value}: {reply:?}");
        assert!(!reply.body.contains("wrong") && !reply.body.contains("token-of"), "{reply:?}");
    }
    site.client.token = Some("token-of-ann-0001");
    assert_eq!(site.client.post(&initialize("2025-11-25")).await.status, 200);
}

#[tokio::test]
async fn what_is_no_json_is_told_so_under_its_id() {
    let site = Site::open("").await;
    let reply = site.client.post(r#"{"jsonrpc":"2.0","id":5,"method":"x","params":{"#).await;
    assert!(reply.status == 400 && reply.body.starts_with(r#"{"jsonrpc":"2.0","id":5,"error":{"code":-32700"#), "{reply:?}");
    for body in ["", "nonsense", "\u{feff}"] {
        let reply = site.client.post(body).await;
        assert!(reply.status == 400 && reply.body.contains("-32700"), "{reply:?}");
    }
    assert!(site.client.post("{}").await.body.contains("-32600"));
    assert_eq!(site.client.post(&format!("\u{feff}{}", initialize("2025-11-25"))).await.status, 200);
}

#[tokio::test]
async fn only_plain_json_is_read_and_only_who_can_read_the_answer_is_answered() {
    let site = Site::open("").await;
    let body = initialize("2025-11-25");
    assert_eq!(site.client.send("POST", &[("Content-Type", "text/plain")], &body).await.status, 415);
    assert_eq!(site.client.send("POST", &[("Content-Encoding", "gzip")], &body).await.status, 415);
    assert_eq!(site.client.send("POST", &[("Accept", "text/html")], &body).await.status, 406);
    assert_eq!(site.client.send("GET", &[("Accept", "application/json")], "").await.status, 406);
    assert_eq!(
        site.client.send("POST", &[("Accept", "*/*"), ("Content-Type", "application/json; charset=utf-8")], &body).await.status,
        200
    );
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_in_words_that_arrive() {
    let site = Site::open("limits: { request_body: 1KiB }").await;
    let large = "x".repeat(1 << 20);
    let reply = site.client.post(&large).await;
    assert!(reply.status == 413 && reply.body.contains("limits.request_body"), "{reply:?}");
    let chunked = format!("{:x}\r\n{large}\r\n0\r\n\r\n", large.len());
    let request = site
        .client
        .request("POST", "/mcp", &[("Transfer-Encoding", "chunked"), ("Content-Length", "")], "")
        .replace("Content-Length: \r\n", "");
    assert_eq!(site.client.raw(&(request + &chunked)).await.status, 413);
    let asks_first = site.client.request("POST", "/mcp", &[("Content-Length", "5000"), ("Expect", "100-continue")], "");
    assert_eq!(site.client.raw(&asks_first).await.status, 413);
}

#[tokio::test]
async fn a_head_that_is_too_large_is_431() {
    let site = Site::open("limits: { header_bytes: 8KiB }").await;
    let big = "x".repeat(10_000);
    assert_eq!(site.client.send("POST", &[("X-Big", &big)], "").await.status, 431);
}

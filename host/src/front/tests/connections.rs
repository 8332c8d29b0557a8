//! Connections: their limit, their reuse, their end.

use super::*;
use crate::front::{Handler, Peer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(5);

async fn read_some(socket: &mut tokio::net::TcpStream) -> String {
    let mut buffer = vec![0; 4096];
    let n = timeout(SOON, socket.read(&mut buffer)).await.expect("something is read").unwrap_or(0);
    String::from_utf8_lossy(&buffer[..n]).into_owned()
}

#[tokio::test]
async fn a_connection_serves_one_request_after_another_and_is_counted() {
    let site = Site::open("").await;
    let mut socket = site.client.connect().await;
    let request = site.client.request("OPTIONS", "/mcp", &[("Connection", "keep-alive")], "");
    for _ in 0..3 {
        socket.write_all(request.as_bytes()).await.unwrap();
        assert!(read_some(&mut socket).await.starts_with("HTTP/1.1 204"));
    }
    assert_eq!(site.gateway.metrics().connections.get(), 1);
}

#[tokio::test]
async fn one_connection_more_than_the_limit_waits_for_another_to_end() {
    let site = Site::open("limits: { connections: 1 }").await;
    let request = site.client.request("OPTIONS", "/mcp", &[("Connection", "keep-alive")], "");
    let mut first = site.client.connect().await;
    first.write_all(request.as_bytes()).await.unwrap();
    assert!(read_some(&mut first).await.starts_with("HTTP/1.1 204"));
    let mut second = site.client.connect().await;
    second.write_all(request.as_bytes()).await.unwrap();
    let mut byte = [0];
    assert!(timeout(Duration::from_millis(100), second.peek(&mut byte)).await.is_err(), "served beyond the limit");
    drop(first);
    assert!(read_some(&mut second).await.starts_with("HTTP/1.1 204"));
}

#[tokio::test]
async fn a_stop_ends_idle_connections_at_once_and_lets_an_answer_finish() {
    let mut site = Site::open("").await;
    site.initialize("2025-11-25").await;
    let mut unused = site.client.connect().await;
    let mut idle = site.client.connect().await;
    idle.write_all(site.client.request("OPTIONS", "/mcp", &[("Connection", "keep-alive")], "").as_bytes()).await.unwrap();
    assert!(read_some(&mut idle).await.starts_with("HTTP/1.1 204"));
    let mut stream = site.client.open(&site.client.request("GET", "/mcp", &[], "")).await;
    stream.until("data: ").await;
    // Both are accepted by now: connections are accepted in order.
    site.server.stop();
    assert_eq!(read_some(&mut idle).await, "");
    assert_eq!(read_some(&mut unused).await, "");
    site.gateway.shutdown(Duration::from_secs(1)).await;
    stream.rest().await;
    assert!(stream.seen.ends_with("retry: 1000\n\n\r\n0\r\n\r\n"), "the stream ends in good order: {}", stream.seen);
    timeout(SOON, site.server.drained(SOON)).await.expect("no connection is left");
    timeout(SOON, site.front.drained()).await.expect("nothing is left to do");
}

#[tokio::test]
async fn what_is_still_open_at_the_deadline_is_cut() {
    let mut site = Site::open("").await;
    site.initialize("2025-11-25").await;
    let mut stream = site.client.open(&site.client.request("GET", "/mcp", &[], "")).await;
    stream.until("data: ").await;
    site.server.stop();
    timeout(SOON, site.server.drained(Duration::from_millis(20))).await.expect("the connection is cut");
    stream.rest().await;
    assert_eq!(site.gateway.metrics().connections.get(), 0);
}

#[tokio::test]
async fn a_client_that_hangs_up_lets_go_of_its_stream() {
    let mut site = Site::open("").await;
    site.initialize("2025-11-25").await;
    let mut stream = site.client.open(&site.client.request("GET", "/mcp", &[], "")).await;
    stream.until("data: ").await;
    assert!(site.session().streams.standalone_attached());
    drop(stream);
    let gone = async {
        while site.session().streams.standalone_attached() {
            tokio::task::yield_now().await;
        }
    };
    timeout(SOON, gone).await.expect("the stream has no reader any more");
}

#[tokio::test]
async fn what_a_connection_holds_for_its_requests_is_small() {
    let site = Site::open("").await;
    let request = http::Request::builder().body(http_body_util::Empty::<bytes::Bytes>::new()).unwrap();
    let peer = Peer { address: ([127, 0, 0, 1], 1).into(), own: Arc::default() };
    let handling = site.front.handle(request, &peer);
    // The HTTP implementation keeps this much for each connection, open streams included.
    assert!(size_of_val(&handling) < 1024, "{} bytes", size_of_val(&handling));
}

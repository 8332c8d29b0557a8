//! Against sockets: which requests share a connection, and which are never sent twice.

use super::*;
use crate::backend::HttpClient;
use crate::backend::http::client::Address;
use crate::protocol::Wire;
use http::{HeaderMap, Method};
use http_body_util::BodyExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream as Socket};

/// What a server does with each request.
#[derive(Clone, Copy)]
enum Manner {
    Answer,
    /// Closes the connection after an answer, without having said so.
    AnswerAndClose,
    /// Closes it instead of an answer.
    Close,
    /// Answers with a mebibyte.
    Large,
    /// Answers with one answer too many, at once or after a while.
    Twice(Duration),
}

#[derive(Default)]
struct Counts {
    connections: AtomicUsize,
    requests: AtomicUsize,
    closed: AtomicUsize,
}

impl Counts {
    fn of(&self) -> (usize, usize) {
        (self.connections.load(Ordering::SeqCst), self.requests.load(Ordering::SeqCst))
    }

    async fn closed(&self, count: usize) {
        let wait = async {
            while self.closed.load(Ordering::SeqCst) < count {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), wait).await.expect("the connection was not closed");
    }
}

async fn server(manner: Manner) -> (Address, Arc<Counts>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri: Uri = format!("http://{}/mcp?a=b", listener.local_addr().unwrap()).parse().unwrap();
    let counts = Arc::new(Counts::default());
    let shared = counts.clone();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            shared.connections.fetch_add(1, Ordering::SeqCst);
            let counts = shared.clone();
            tokio::spawn(async move {
                serve(socket, manner, &counts).await;
                counts.closed.fetch_add(1, Ordering::SeqCst);
            });
        }
    });
    (HttpClient::new().address(&uri), counts)
}

async fn serve(mut socket: Socket, manner: Manner, counts: &Counts) {
    let mut head = Vec::new();
    let mut byte = [0];
    while let Ok(1) = socket.read(&mut byte).await {
        head.push(byte[0]);
        if !head.ends_with(b"\r\n\r\n") {
            continue;
        }
        let text = String::from_utf8(std::mem::take(&mut head)).unwrap();
        assert!(text.starts_with("POST /mcp?a=b HTTP/1.1\r\n"), "{text}");
        assert_eq!(text.matches(&format!("\r\nhost: {}\r\n", socket.local_addr().unwrap())).count(), 1, "{text}");
        let mut body = [0; 4];
        socket.read_exact(&mut body).await.unwrap();
        counts.requests.fetch_add(1, Ordering::SeqCst);
        let answer = match manner {
            Manner::Close => return,
            Manner::Large => format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{}", 1 << 20, "x".repeat(1 << 20)),
            _ if counts.requests.load(Ordering::SeqCst) > 1 => "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nlater".to_owned(),
            _ => "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n".to_owned(),
        };
        let answer = if let Manner::Twice(Duration::ZERO) = manner { answer.repeat(2) } else { answer };
        if socket.write_all(answer.as_bytes()).await.is_err() || matches!(manner, Manner::AnswerAndClose) {
            return;
        }
        if let Manner::Twice(after) = manner
            && !after.is_zero()
        {
            tokio::time::sleep(after).await;
            let _ = socket.write_all(answer.as_bytes()).await;
        }
    }
}

async fn post(at: &Address) -> Result<Response<Body>, SendError> {
    HttpClient::new().send(Method::POST, at, &HeaderMap::new(), &Wire::from(Bytes::from_static(b"ping"))).await
}

async fn text(response: Response<Body>) -> Bytes {
    response.into_body().collect().await.unwrap().to_bytes()
}

#[tokio::test]
async fn a_connection_is_used_again_when_its_response_was_read() {
    let (at, counts) = server(Manner::Answer).await;
    for _ in 0..3 {
        text(post(&at).await.unwrap()).await;
    }
    assert_eq!(counts.of(), (1, 3));
    // Two at once need two, and the next two have both.
    for _ in 0..2 {
        let (one, two) = tokio::join!(post(&at), post(&at));
        assert_eq!((text(one.unwrap()).await, text(two.unwrap()).await), ("later".into(), "later".into()));
    }
    assert_eq!(counts.of(), (2, 7));
}

#[tokio::test]
async fn a_kept_connection_that_was_closed_costs_no_request() {
    let (at, counts) = server(Manner::AnswerAndClose).await;
    for n in 1..=5 {
        assert_eq!(text(post(&at).await.unwrap()).await, if n == 1 { "ok" } else { "later" });
        counts.closed(n).await;
        assert_eq!(counts.of(), (n, n));
    }
}

#[tokio::test]
async fn what_may_have_been_read_is_not_sent_again() {
    let (at, counts) = server(Manner::Close).await;
    assert!(matches!(post(&at).await, Err(SendError::Lost(_))));
    assert_eq!(counts.of(), (1, 1));
}

#[tokio::test]
async fn nothing_is_sent_where_nobody_listens() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri: Uri = format!("http://{}/mcp", listener.local_addr().unwrap()).parse().unwrap();
    drop(listener);
    let refused = post(&HttpClient::new().address(&uri)).await;
    assert!(matches!(&refused, Err(SendError::NotSent(why)) if why == "connection refused"), "{refused:?}");
}

#[tokio::test]
async fn a_response_that_is_not_read_to_its_end_closes_its_connection() {
    let (at, counts) = server(Manner::Large).await;
    drop(post(&at).await.unwrap());
    counts.closed(1).await;
    let mut body = post(&at).await.unwrap().into_body();
    assert!(body.frame().await.unwrap().is_ok());
    drop(body);
    counts.closed(2).await;
    assert_eq!(text(post(&at).await.unwrap()).await.len(), 1 << 20);
    assert_eq!(counts.of(), (3, 3));
}

#[tokio::test]
async fn a_request_that_is_given_up_closes_its_connection() {
    let (at, _) = server(Manner::Large).await;
    let given_up = tokio::time::timeout(Duration::ZERO, post(&at)).await;
    assert!(given_up.is_err());
    assert_eq!(text(post(&at).await.unwrap()).await.len(), 1 << 20);
}

#[tokio::test]
async fn what_is_idle_for_too_long_is_closed() {
    let (at, counts) = server(Manner::Answer).await;
    assert_eq!(text(post(&at).await.unwrap()).await, "ok");
    counts.closed(1).await;
    assert_eq!(text(post(&at).await.unwrap()).await, "later");
    assert_eq!(counts.of(), (2, 2));
}

/// Responses have no names: what a server says too much must never be taken for the response to the next request.
#[tokio::test]
async fn a_response_too_many_is_nobodys() {
    for after in [Duration::ZERO, Duration::from_millis(20)] {
        let (at, counts) = server(Manner::Twice(after)).await;
        assert_eq!(text(post(&at).await.unwrap()).await, "ok");
        tokio::time::sleep(5 * after).await;
        assert_eq!(text(post(&at).await.unwrap()).await, "later", "{after:?}");
        assert_eq!(counts.of(), (2, 2));
    }
}

/// Nobody can tell whose a response is that comes while a request of another session waits on the same connection.
#[tokio::test]
async fn sessions_have_no_connections_in_common() {
    let (at, counts) = server(Manner::Answer).await;
    let client = HttpClient::new();
    let uri = at.url();
    let (one, two) = (client.address(&uri), client.address(&uri));
    for n in 1..=3 {
        for session in [&one, &two] {
            text(post(session).await.unwrap()).await;
        }
        assert_eq!(counts.of(), (2, 2 * n));
    }
}

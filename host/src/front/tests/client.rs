//! A client that sends exactly what it is told, one request a connection.

use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

pub struct Client {
    address: SocketAddr,
    pub session: Option<String>,
    pub token: Option<&'static str>,
}

#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    head: String,
    pub body: String,
}

/// A response whose end is not there yet.
pub struct Open {
    socket: TcpStream,
    pub seen: String,
}

impl Client {
    pub fn new(address: SocketAddr) -> Self {
        Client { address, session: None, token: None }
    }

    pub async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// A request as text. `extra` headers come last; a `Host`, `Accept` or `Content-Type` among them stands in for the usual one.
    pub fn request(&self, method: &str, path: &str, extra: &[(&str, &str)], body: &str) -> String {
        let mut usual = vec![
            ("Host", "localhost".to_owned()),
            ("Accept", "application/json, text/event-stream".to_owned()),
            ("Content-Type", "application/json".to_owned()),
            ("Connection", "close".to_owned()),
            ("Content-Length", body.len().to_string()),
        ];
        usual.extend(self.session.iter().map(|id| ("Mcp-Session-Id", id.clone())));
        usual.extend(self.token.iter().map(|token| ("Authorization", format!("Bearer {token}"))));
        usual.retain(|(name, _)| extra.iter().all(|(other, _)| !name.eq_ignore_ascii_case(other)));
        let mut text = format!("{method} {path} HTTP/1.1\r\n");
        for (name, value) in usual.iter().map(|(n, v)| (*n, v.as_str())).chain(extra.iter().copied()) {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text + "\r\n" + body
    }

    pub async fn send(&self, method: &str, extra: &[(&str, &str)], body: &str) -> Reply {
        self.raw(&self.request(method, "/mcp", extra, body)).await
    }

    pub async fn post(&self, body: &str) -> Reply {
        self.send("POST", &[], body).await
    }

    /// Sends `text` and reads to the end.
    pub async fn raw(&self, text: &str) -> Reply {
        let mut open = self.open(text).await;
        open.rest().await;
        Reply::read(&open.seen)
    }

    pub async fn open(&self, text: &str) -> Open {
        let mut socket = self.connect().await;
        socket.write_all(text.as_bytes()).await.unwrap();
        Open { socket, seen: String::new() }
    }
}

impl Open {
    /// Reads until `text` has been seen.
    pub async fn until(&mut self, text: &str) {
        while !self.seen.contains(text) {
            assert!(self.more().await, "ended before {text:?}: {}", self.seen);
        }
    }

    /// Reads to the end.
    pub async fn rest(&mut self) {
        while self.more().await {}
    }

    async fn more(&mut self) -> bool {
        let mut buffer = [0; 4096];
        let read = timeout(Duration::from_secs(10), self.socket.read(&mut buffer)).await;
        let n = read.unwrap_or_else(|_| panic!("nothing came for 10 s after {}", self.seen)).unwrap_or(0);
        self.seen.push_str(&String::from_utf8_lossy(&buffer[..n]));
        n > 0
    }
}

impl Reply {
    pub fn read(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no response: {text:?}"));
        let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap();
        let mut reply = Reply { status, head: head.to_owned(), body: body.to_owned() };
        if reply.header("transfer-encoding") == Some("chunked") {
            reply.body = unchunk(body);
        }
        reply
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().filter_map(|line| line.split_once(": ")).find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v)
    }

    /// The `data` of events that have any.
    pub fn events(&self) -> Vec<&str> {
        assert_eq!(self.header("content-type"), Some("text/event-stream"), "{self:?}");
        self.body.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|data| !data.is_empty()).collect()
    }
}

fn unchunk(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            return whole;
        }
        whole.push_str(&rest[..size]);
        body = &rest[size + 2..];
    }
    panic!("the last chunk is missing after {whole:?}")
}

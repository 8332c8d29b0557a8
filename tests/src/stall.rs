//! Clients that do not read: a socket that posts and leaves its answer in the kernel, and a relay that stops passing answers on.
//!
//! Their receive buffers are as small as the kernel allows, so that what is not read backs up into the gateway at once.

use std::{net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpSocket, TcpStream},
    sync::watch,
    task::{AbortHandle, JoinSet},
};

use crate::{client::Endpoint, within, within_time};

const SMALL: u32 = 4096;

/// Connects with a small receive buffer.
pub async fn connect(to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(SMALL).expect("a socket takes SO_RCVBUF");
    within("a connection", socket.connect(to)).await.unwrap_or_else(|error| panic!("{to}: {error}"))
}

/// A request that was sent and whose answer nobody reads yet.
pub struct Unread {
    socket: TcpStream,
    seen: Vec<u8>,
}

/// An answer that was read to its end.
#[derive(Debug)]
pub struct Read {
    pub status: u16,
    pub head: String,
    /// Without chunk framing.
    pub body: Vec<u8>,
}

impl Unread {
    /// Sends a request with these headers, besides those that every client sends, and reads nothing.
    pub async fn send(at: &Endpoint, method: &str, headers: &[(&str, &str)], body: &str) -> Self {
        let mut socket = connect(at.addr).await;
        let mut head = format!(
            "{method} {} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-type: application/json\r\naccept: application/json, text/event-stream\r\ncontent-length: {}\r\n",
            at.path,
            at.addr,
            body.len()
        );
        for (name, value) in at.headers.iter().map(|(n, v)| (n.as_str(), v.as_str())).chain(headers.iter().copied()) {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        within("a request is taken", socket.write_all(format!("{head}\r\n{body}").as_bytes())).await.expect("it reads requests");
        Self { socket, seen: Vec::new() }
    }

    /// Reads up to `bytes` more, at most a buffer's worth.
    pub async fn sip(&mut self, bytes: usize) -> usize {
        let mut buffer = vec![0; bytes];
        let n = within("a byte", self.socket.read(&mut buffer)).await.unwrap_or(0);
        self.seen.extend_from_slice(&buffer[..n]);
        n
    }

    /// What was read so far.
    pub fn seen(&self) -> String {
        String::from_utf8_lossy(&self.seen).into_owned()
    }

    /// The status, as soon as it is there; nothing more is read than that.
    pub async fn status(&mut self) -> u16 {
        while self.seen.len() < 12 {
            assert!(self.sip(12 - self.seen.len()).await > 0, "closed before a status");
        }
        std::str::from_utf8(&self.seen[9..12]).expect("a status line").parse().expect("a status")
    }

    /// From now on it reads as fast as others do.
    fn open_up(&self) {
        rustix::net::sockopt::set_socket_recv_buffer_size(&self.socket, 1 << 20).expect("a socket takes SO_RCVBUF");
    }

    /// Whether the gateway has closed it within `limit`; what was sent before is thrown away.
    pub async fn closed_within(mut self, limit: Duration) -> bool {
        self.open_up();
        let mut buffer = vec![0; 1 << 16];
        let closed = async {
            loop {
                match self.socket.read(&mut buffer).await {
                    Ok(0) | Err(_) => return,
                    Ok(_) => {}
                }
            }
        };
        tokio::time::timeout(limit, closed).await.is_ok()
    }

    /// Reads to the end.
    pub async fn read(mut self, limit: Duration) -> Read {
        self.open_up();
        within_time(limit, "the rest of an unread answer", self.socket.read_to_end(&mut self.seen)).await.expect("it ends in order");
        let at = self.seen.windows(4).position(|w| w == b"\r\n\r\n").expect("a head") + 4;
        let head = String::from_utf8_lossy(&self.seen[..at]).into_owned();
        let status = head[9..12].parse().expect("a status");
        let mut rest = &self.seen[at..];
        let mut body = Vec::new();
        if head.to_ascii_lowercase().contains("transfer-encoding: chunked") {
            while let Some(end) = rest.windows(2).position(|w| w == b"\r\n") {
                let size = std::str::from_utf8(&rest[..end]).ok().and_then(|s| usize::from_str_radix(s, 16).ok()).expect("a chunk size");
                let chunk = &rest[end + 2..];
                body.extend_from_slice(&chunk[..size]);
                rest = &chunk[(size + 2).min(chunk.len())..];
                if size == 0 {
                    break;
                }
            }
        } else {
            body.extend_from_slice(rest);
        }
        Read { status, head, body }
    }
}

impl Read {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().filter_map(|line| line.split_once(": ")).find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v)
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("the body is UTF-8")
    }

    /// The messages in it, JSON or events.
    pub fn messages(&self) -> Vec<serde_json::Value> {
        if self.header("content-type").is_some_and(|kind| kind.starts_with("text/event-stream")) {
            let data = self.text().lines().filter_map(|line| line.strip_prefix("data: ")).filter(|data| !data.is_empty());
            return data.map(|data| serde_json::from_str(data).expect("data is JSON")).collect();
        }
        vec![serde_json::from_str(self.text()).unwrap_or_else(|error| panic!("{}: {error}", self.text()))]
    }
}

/// A proxy between a client and the gateway. It passes everything on, until it is told to stop passing answers.
pub struct Relay {
    pub addr: SocketAddr,
    stalled: watch::Sender<bool>,
    accept: AbortHandle,
}

impl Relay {
    pub async fn start(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("the loopback has free ports");
        let addr = listener.local_addr().expect("a bound socket has an address");
        let stalled = watch::Sender::new(false);
        let state = stalled.subscribe();
        let accept = tokio::spawn(async move {
            // Dropped with this task: its connections end with it.
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let state = state.clone();
                connections.spawn(pass(client, to, state));
                while connections.try_join_next().is_some() {}
            }
        });
        Self { addr, stalled, accept: accept.abort_handle() }
    }

    /// From now on answers are passed on, or not.
    pub fn stall(&self, stalled: bool) {
        self.stalled.send_replace(stalled);
    }

    /// The endpoint of the gateway, by way of this relay.
    pub fn at(&self, path: &str) -> Endpoint {
        Endpoint::new(&format!("http://{}{path}", self.addr))
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.accept.abort();
    }
}

async fn pass(client: TcpStream, to: SocketAddr, mut stalled: watch::Receiver<bool>) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_gateway, mut to_gateway) = connect(to).await.into_split();
    let up = async {
        let _ = tokio::io::copy(&mut from_client, &mut to_gateway).await;
        let _ = to_gateway.shutdown().await;
    };
    let down = async {
        let mut buffer = [0; 4096];
        loop {
            if stalled.wait_for(|stalled| !stalled).await.is_err() {
                return;
            }
            match from_gateway.read(&mut buffer).await {
                Ok(0) | Err(_) => break,
                Ok(n) if to_client.write_all(&buffer[..n]).await.is_err() => break,
                Ok(_) => {}
            }
        }
        let _ = to_client.shutdown().await;
    };
    // The client that goes away ends both.
    tokio::select! {
        () = async { tokio::join!(up, down); } => {}
    }
}

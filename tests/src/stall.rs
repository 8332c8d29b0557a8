//! Clients that do not read: a socket that posts and leaves its answer in the kernel, and a relay that stops passing answers on.
//!
//! Their receive buffers are as small as the kernel allows, so that what is not read backs up into the gateway at once.

use std::{collections::VecDeque, net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpSocket, TcpStream},
    sync::watch,
    task::{AbortHandle, JoinSet},
};

use crate::{
    client::Endpoint,
    sse::{Event, Parser},
    within,
};

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

/// An answer that was read to its end, or until it was cut.
#[derive(Debug)]
pub struct Read {
    pub status: u16,
    pub head: String,
    /// Without chunk framing.
    pub body: Vec<u8>,
    /// Its end was there: the last chunk, or as many bytes as its head had announced.
    pub whole: bool,
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
    pub fn open_up(&self) {
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
    ///
    /// # Panics
    /// When it is cut before that.
    pub async fn read(self, limit: Duration) -> Read {
        let read = self.read_what_comes(limit).await.expect("an answer has a head");
        assert!(read.whole, "cut, or not at its end in {limit:?}, after {} bytes of its body: {}", read.body.len(), read.head);
        read
    }

    /// Reads to the end, or what comes before the connection is closed or `limit` is over; none without a whole head.
    pub async fn read_what_comes(mut self, limit: Duration) -> Option<Read> {
        self.open_up();
        // A connection that is reset was cut, as is one that is closed too early.
        let _ = tokio::time::timeout(limit, self.socket.read_to_end(&mut self.seen)).await;
        Read::parse(&self.seen)
    }
}

impl Read {
    fn parse(seen: &[u8]) -> Option<Self> {
        let at = seen.windows(4).position(|w| w == b"\r\n\r\n")? + 4;
        let head = String::from_utf8_lossy(&seen[..at]).into_owned();
        let status = head.get(9..12)?.parse().ok()?;
        let mut read = Self { status, head, body: Vec::new(), whole: false };
        let rest = &seen[at..];
        if read.header("transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked")) {
            (read.body, read.whole) = unchunk(rest);
        } else {
            let announced = read.header("content-length").map(|length| length.parse::<usize>().expect("a length"));
            read.whole = announced.is_none_or(|announced| announced == rest.len());
            read.body = rest.to_vec();
        }
        Some(read)
    }

    /// The id of the last event that came whole: where the stream can be resumed.
    pub fn last_event_id(&self) -> Option<String> {
        self.events().into_iter().filter_map(|event| event.id).next_back()
    }

    fn events(&self) -> VecDeque<Event> {
        let (mut events, mut parser) = (VecDeque::new(), Parser::default());
        parser.feed(&self.body, &mut events);
        events
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().filter_map(|line| line.split_once(": ")).find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v)
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("the body is UTF-8")
    }

    /// The messages in it, JSON or events. Of an answer that was cut, those that came whole.
    pub fn messages(&self) -> Vec<serde_json::Value> {
        if self.header("content-type").is_some_and(|kind| kind.starts_with("text/event-stream")) {
            return self.events().iter().filter(|event| event.is_message()).map(Event::json).collect();
        }
        if !self.whole {
            return Vec::new();
        }
        vec![serde_json::from_str(self.text()).unwrap_or_else(|error| panic!("{}: {error}", self.text()))]
    }
}

/// What chunked framing carries, and whether its last chunk was there.
fn unchunk(mut rest: &[u8]) -> (Vec<u8>, bool) {
    let mut body = Vec::new();
    while let Some(end) = rest.windows(2).position(|w| w == b"\r\n") {
        let size = std::str::from_utf8(&rest[..end]).ok().and_then(|s| usize::from_str_radix(s, 16).ok()).expect("a chunk size");
        let chunk = &rest[end + 2..];
        if size == 0 {
            return (body, true);
        }
        body.extend_from_slice(&chunk[..size.min(chunk.len())]);
        let Some(next) = chunk.get(size + 2..) else { break };
        rest = next;
    }
    (body, false)
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

#[cfg(test)]
mod tests {
    use super::*;

    const EVENTS: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    const FIRST: &str = "12\r\nid: 7-1\ndata: {}\n\n\r\n";

    #[test]
    fn an_answer_that_is_cut_is_told_from_a_whole_one_and_keeps_what_came() {
        let read = |text: &str| Read::parse(text.as_bytes());
        assert!(read("HTTP/1.1 200 OK\r\ncontent-").is_none());
        for (rest, whole) in [("0\r\n\r\n", true), ("", false), ("1f96\r\ndata: {\"id", false), ("1f", false)] {
            let read = read(&format!("{EVENTS}{FIRST}{rest}")).expect("a head");
            assert_eq!((read.status, read.whole, read.last_event_id().as_deref()), (200, whole, Some("7-1")), "{rest}");
            assert_eq!(read.messages(), [serde_json::json!({})], "{rest}");
        }
        let known = |body: &str| read(&format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{body}")).expect("a head").whole;
        assert!(known("{}") && !known("{"));
    }
}

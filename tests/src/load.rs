//! Load for benchmarks: sessions that call in a closed loop over connections that stay open, and the processor time that a process
//! spends meanwhile. Figures are compared within one run, side by side: this machine's speed is nobody's business.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use tokio::{net::TcpStream, task::JoinHandle};

use crate::{
    client::{ACCEPT, JSON, Session},
    gateway::Gateway,
    raw, within_time,
};

/// Sessions with a connection each, ready to call.
pub struct Load {
    pid: u32,
    callers: Vec<Caller>,
}

/// What one measurement gave.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    /// Processor time of the gateway for one call.
    pub cpu: Duration,
    /// Wall time of one call as its client sees it: median and 99th percentile.
    pub p50: Duration,
    pub p99: Duration,
}

struct Caller {
    session: Session,
    sender: SendRequest<Full<Bytes>>,
    connection: JoinHandle<()>,
    calls: u64,
}

impl Load {
    /// Opens `sessions` sessions that have read the list of tools, as clients do.
    pub async fn open(gateway: &Gateway, sessions: usize) -> Self {
        let mut callers = Vec::new();
        for _ in 0..sessions {
            let session = gateway.initialize().await;
            session.names("tools/list", "tools").await;
            let socket = TcpStream::connect(gateway.listen).await.expect("the gateway listens");
            socket.set_nodelay(true).expect("a socket takes TCP_NODELAY");
            let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(socket)).await.expect("a handshake over TCP");
            let connection = tokio::spawn(async move {
                let _ = connection.await;
            });
            callers.push(Caller { session, sender, connection, calls: 0 });
        }
        Self { pid: gateway.pid, callers }
    }

    /// Every session calls `tool` `calls` times, all at once.
    ///
    /// # Panics
    /// When an answer is not a result with `expected` in it.
    pub async fn run(&mut self, tool: &str, calls: usize, expected: &str) -> Figures {
        let before = cpu(self.pid);
        let all = self.callers.iter_mut().map(|caller| caller.run(tool, calls, expected));
        let mut times: Vec<Duration> =
            within_time(Duration::from_secs(300), "a round of calls", futures_util::future::join_all(all)).await.concat();
        let cpu = cpu(self.pid).saturating_sub(before);
        times.sort_unstable();
        let at = |percent: usize| times[(times.len() - 1) * percent / 100];
        Figures { cpu: cpu / u32::try_from(times.len()).unwrap_or(u32::MAX), p50: at(50), p99: at(99) }
    }
}

impl Caller {
    async fn run(&mut self, tool: &str, calls: usize, expected: &str) -> Vec<Duration> {
        let mut times = Vec::with_capacity(calls);
        for _ in 0..calls {
            self.calls += 1;
            let body = raw::request(&self.calls.to_string(), "tools/call", &format!(r#"{{"name":"{tool}","arguments":{{"text":"x"}}}}"#));
            let request = http::Request::post(&self.session.at.path)
                .header("host", self.session.at.addr.to_string())
                .header(JSON.0, JSON.1)
                .header(ACCEPT.0, ACCEPT.1)
                .header("mcp-session-id", &self.session.id)
                .header("mcp-protocol-version", &self.session.version)
                .body(Full::new(Bytes::from(body)))
                .expect("the headers are valid");
            let start = Instant::now();
            self.sender.ready().await.expect("the connection stays open");
            let response = self.sender.send_request(request).await.expect("the gateway answers");
            let answer = response.into_body().collect().await.expect("a whole answer").to_bytes();
            times.push(start.elapsed());
            let text = String::from_utf8_lossy(&answer);
            assert!(text.contains("\"result\"") && text.contains(expected), "{text}");
        }
        times
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

/// The processor time that a process has used so far, over all its threads that still live.
pub fn cpu(pid: u32) -> Duration {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let nanoseconds = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("schedstat")).ok());
    Duration::from_nanos(nanoseconds.filter_map(|line| line.split(' ').next()?.parse::<u64>().ok()).sum())
}

/// The middle of some numbers.
pub fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

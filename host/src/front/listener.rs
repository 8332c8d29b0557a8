//! Listening sockets: binding, accepting, the limit on connections, and their end.

use super::connection::{self, Handler};
use crate::admission;
use crate::telemetry::metrics::Level;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The first pause after `accept` failed (file descriptors or memory are short); it doubles up to `LONGEST_PAUSE`.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A socket that is bound and takes no connections yet.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
}

/// Why an address cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {source}; {advice}")]
pub struct BindError {
    pub address: SocketAddr,
    source: io::Error,
    advice: String,
}

/// Bounds of a server.
#[derive(Clone, Copy, Debug)]
pub struct ServerLimits {
    /// Open connections. One more waits to be accepted until another ends.
    pub connections: usize,
    /// Bytes of a request's head. A longer one is answered 431.
    pub header_bytes: usize,
    /// When a connection whose client does not read is closed.
    pub admission: admission::Limits,
}

/// What the connections of one or several listeners share. Dropping it ends none of them: see `stop`.
pub struct Server<H> {
    pub(super) handler: H,
    pub(super) limits: ServerLimits,
    permits: Arc<Semaphore>,
    /// The limit was reached and was logged.
    full: AtomicBool,
    open: Level,
    tasks: TaskTracker,
    /// Take no more connections; those there are end when their request is answered.
    pub(super) stopping: CancellationToken,
    /// Cut what is left.
    pub(super) stopped: CancellationToken,
}

// === impl Listener ===

impl Listener {
    /// Binds `address`; port 0 takes a free one. `setting` is the configuration key that the error names.
    pub async fn bind(address: SocketAddr, setting: &str) -> Result<Self, BindError> {
        let bound = async {
            let socket = TcpListener::bind(address).await?;
            let address = socket.local_addr()?;
            Ok(Listener { socket, address })
        };
        bound.await.map_err(|source: io::Error| {
            let advice = match source.kind() {
                io::ErrorKind::AddrInUse => {
                    format!("another process has it, perhaps another gateway: stop that one, or set `{setting}` to another address")
                }
                io::ErrorKind::AddrNotAvailable => format!("this machine has no such address: set `{setting}` to one that it has"),
                io::ErrorKind::PermissionDenied => format!("ports below 1024 need a privilege: set `{setting}` to a higher one"),
                _ => format!("set `{setting}` to another address"),
            };
            BindError { address, source, advice }
        })
    }

    /// The address that is bound, with the port that was taken.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

// === impl Server ===

impl<H: Handler> Server<H> {
    /// `open` counts the connections.
    pub fn new(handler: H, limits: ServerLimits, open: Level) -> Arc<Self> {
        Arc::new(Server {
            handler,
            limits,
            permits: Arc::new(Semaphore::new(limits.connections.min(Semaphore::MAX_PERMITS))),
            full: AtomicBool::new(false),
            open,
            tasks: TaskTracker::new(),
            stopping: CancellationToken::new(),
            stopped: CancellationToken::new(),
        })
    }

    /// Accepts connections on `listener` from now on, until `stop`.
    pub fn listen(self: &Arc<Self>, listener: Listener) {
        self.tasks.spawn(self.clone().accept(listener.socket));
    }

    /// Takes no more connections. Those that wait for a request end at once, the others when theirs is answered.
    pub fn stop(&self) {
        self.stopping.cancel();
        self.tasks.close();
    }

    /// Waits until the last connection has ended, at most for `limit`; then cuts what is left. After `stop`.
    pub async fn drained(&self, limit: Duration) {
        if tokio::time::timeout(limit, self.tasks.wait()).await.is_err() {
            tracing::warn!(connections = self.open.get(), "connections are cut: they were still open at the deadline");
            self.stopped.cancel();
            self.tasks.wait().await;
        }
    }

    async fn accept(self: Arc<Self>, socket: TcpListener) {
        let mut pause = FIRST_PAUSE;
        let accepting = async {
            loop {
                match socket.accept().await {
                    Ok((stream, peer)) => {
                        if pause != FIRST_PAUSE {
                            tracing::info!("connections are accepted again");
                            pause = FIRST_PAUSE;
                        }
                        let permit = self.permit().await;
                        self.spawn(stream, peer, permit);
                    }
                    // It was gone before it was accepted.
                    Err(e)
                        if matches!(
                            e.kind(),
                            io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::Interrupted
                        ) => {}
                    Err(error) => {
                        if pause == FIRST_PAUSE {
                            tracing::error!(%error, "connections cannot be accepted; trying again");
                        }
                        tokio::time::sleep(pause).await;
                        pause = (pause * 2).min(LONGEST_PAUSE);
                    }
                }
            }
        };
        tokio::select! {
            biased;
            () = self.stopping.cancelled() => {}
            () = accepting => {}
        }
    }

    /// Waits for a place. Meanwhile new connections queue in the kernel; says so once, and once when it is over.
    async fn permit(&self) -> Option<OwnedSemaphorePermit> {
        if let Ok(permit) = self.permits.clone().try_acquire_owned() {
            if self.full.swap(false, Ordering::Relaxed) {
                tracing::info!("the number of connections is below its limit again");
            }
            return Some(permit);
        }
        if !self.full.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                limit = self.limits.connections,
                "the limit on connections is reached; more wait until others end (`limits.connections`)"
            );
        }
        // The semaphore is never closed.
        self.permits.clone().acquire_owned().await.ok()
    }

    fn spawn(self: &Arc<Self>, stream: TcpStream, peer: SocketAddr, permit: Option<OwnedSemaphorePermit>) {
        let server = self.clone();
        let counted = self.open.enter();
        self.tasks.spawn(async move {
            connection::serve(stream, peer, &server).await;
            drop((permit, counted));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_address_that_is_taken_is_named_with_what_to_do() {
        let first = Listener::bind("127.0.0.1:0".parse().unwrap(), "listen").await.unwrap();
        assert_ne!(first.address().port(), 0);
        let error = Listener::bind(first.address(), "listen").await.unwrap_err().to_string();
        assert!(
            error.contains(&first.address().to_string()) && error.contains("another process has it") && error.contains("`listen`"),
            "{error}"
        );
    }
}

//! The accepted socket, wrapped: it counts what the kernel accepts and bounds what the kernel holds.
//!
//! Stands at the bottom, below TLS where there is any: bytes are bytes. With `TCP_NOTSENT_LOWAT` a socket is writable only while little
//! waits to be sent, so that the kernel does not swallow megabytes for a client that stopped reading; no single write is larger than what
//! the body at hand allows, as a kernel may go over that mark by one.

use super::meter::Meter;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Bytes that may wait in the kernel to be sent before it takes no more.
const NOT_SENT: u32 = 16 * 1024;
/// Buffers of one write.
const SLICES: usize = 16;

/// A socket with a meter.
#[derive(Debug)]
pub struct Metered {
    socket: TcpStream,
    meter: Arc<Meter>,
}

/// Where to ask how much of what was written is still in the kernel.
#[derive(Debug)]
pub(super) enum Queue {
    #[cfg(target_os = "linux")]
    Socket(std::os::fd::RawFd),
    /// Not to be asked: what is written counts as drained.
    #[cfg(not(target_os = "linux"))]
    Unknown,
    #[cfg(test)]
    Scripted(Arc<std::sync::atomic::AtomicU64>),
    Closed,
}

impl Metered {
    pub fn new(socket: TcpStream) -> Self {
        #[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
        if let Err(error) = socket2::SockRef::from(&socket).set_tcp_notsent_lowat(NOT_SENT) {
            tracing::debug!(%error, "TCP_NOTSENT_LOWAT cannot be set: the kernel may hold more for a client that does not read");
        }
        #[cfg(target_os = "linux")]
        let queue = Queue::Socket(std::os::fd::AsRawFd::as_raw_fd(&socket));
        #[cfg(not(target_os = "linux"))]
        let queue = Queue::Unknown;
        Metered { socket, meter: Meter::new(queue) }
    }

    pub fn meter(&self) -> &Arc<Meter> {
        &self.meter
    }

    fn wrote(&self, bytes: usize) {
        let now = Instant::now();
        if self.meter.wrote(bytes, now) {
            // It could not be written to, and now it can: the client has read.
            self.meter.look(now);
            if let Some(ledger) = self.meter.ledger() {
                ledger.judge(now);
            }
        }
    }

    fn note(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match &written {
            Poll::Pending => self.meter.blocked(),
            Poll::Ready(Ok(n)) => self.wrote(*n),
            Poll::Ready(Err(_)) => {}
        }
        written
    }
}

impl AsyncRead for Metered {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(cx, buf)
    }
}

impl AsyncWrite for Metered {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let most = self.meter.write();
        let written = Pin::new(&mut self.socket).poll_write(cx, &buf[..buf.len().min(most)]);
        self.note(written)
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let mut some = [IoSlice::new(&[]); SLICES];
        let (mut left, mut count) = (self.meter.write(), 0);
        for buf in bufs.iter().filter(|b| !b.is_empty()) {
            if left == 0 || count == SLICES {
                break;
            }
            let part = &buf[..buf.len().min(left)];
            left -= part.len();
            some[count] = IoSlice::new(part);
            count += 1;
        }
        let written = Pin::new(&mut self.socket).poll_write_vectored(cx, &some[..count]);
        self.note(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.socket).poll_flush(cx))?;
        self.meter.flushed();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

impl Drop for Metered {
    fn drop(&mut self) {
        // Before the socket is closed, so that nobody asks a descriptor that is another's by then.
        if self.meter.is_torn() {
            // What the kernel still holds for it goes at once, not after the last retry of a window that stays shut.
            let _ = socket2::SockRef::from(&self.socket).set_linger(Some(std::time::Duration::ZERO));
        }
        self.meter.close();
    }
}

// === impl Queue ===

impl Queue {
    pub fn is_closed(&self) -> bool {
        matches!(self, Queue::Closed)
    }

    /// Bytes that were written and that the peer's kernel has not acknowledged.
    pub fn unacknowledged(&self) -> u64 {
        match self {
            #[cfg(target_os = "linux")]
            Queue::Socket(fd) => {
                let mut bytes: libc::c_int = 0;
                // SAFETY: TIOCOUTQ writes one int, to which the pointer leads. The descriptor is open: `Metered::drop` makes this
                // `Closed`, under the lock that this is called under, before its socket is closed.
                let done = unsafe { libc::ioctl(*fd, libc::TIOCOUTQ, &raw mut bytes) };
                // Without an answer, what is written counts as drained, as on systems that cannot be asked.
                if done == 0 { u64::try_from(bytes).unwrap_or(0) } else { 0 }
            }
            #[cfg(not(target_os = "linux"))]
            Queue::Unknown => 0,
            #[cfg(test)]
            Queue::Scripted(bytes) => bytes.load(std::sync::atomic::Ordering::Relaxed),
            Queue::Closed => 0,
        }
    }
}

//! One connection: HTTP/1.1 on a socket, with a deadline for whatever it waits for.

use super::listener::Server;
use super::respond::Response;
use crate::admission::{Metered, Watch};
use crate::gateway::OwnChambers;
use bytes::Bytes;
use http::Request;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::net::TcpStream;

/// The first request's head has to be there by then: who connects has something to say.
const FIRST_HEAD: Duration = Duration::from_secs(15);

/// A later one, counted from the end of the answer before it. Above the common 60 s for which clients and balancers keep a connection
/// that is not in use: it is they who should close it, lest a request meets a socket that is just closing.
const NEXT_HEAD: Duration = Duration::from_secs(75);

/// Who is at the other end of a connection.
pub struct Peer {
    pub address: SocketAddr,
    /// What anonymous clients without sessions have; ends with the connection.
    pub own: Arc<OwnChambers>,
}

/// Answers requests.
pub trait Handler: Clone + Send + Sync + 'static {
    fn handle<B>(&self, request: Request<B>, peer: &Peer) -> impl Future<Output = Response> + Send
    where
        B: http_body::Body<Data = Bytes> + Send;
}

/// Serves `stream` until the peer, an error, a deadline or the server ends it.
pub(super) async fn serve<H: Handler>(stream: TcpStream, peer: SocketAddr, server: &Server<H>) {
    // Without it, a small answer waits for the peer's delayed acknowledgement of the one before: 40 ms a call.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%peer, %error, "TCP_NODELAY cannot be set");
    }
    let stream = Metered::new(stream);
    let meter = stream.meter().clone();
    let asked = Arc::new(AtomicBool::new(false));
    let service = {
        let (handler, asked, meter) = (server.handler.clone(), asked.clone(), meter.clone());
        let peer = Arc::new(Peer { address: peer, own: Arc::default() });
        hyper::service::service_fn(move |request| {
            asked.store(true, Ordering::Relaxed);
            let (handler, meter, peer) = (handler.clone(), meter.clone(), peer.clone());
            async move {
                let mut response = handler.handle(request, &peer).await;
                response.body_mut().carried_by(meter);
                Ok::<_, Infallible>(response)
            }
        })
    };
    let mut watch = Watch::new(meter, server.limits.admission.drain_window, server.limits.admission.teardown_after);
    let head = server.limits.header_bytes.max(8192);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(NEXT_HEAD)
        .max_header_size(head)
        // Bounds what is read ahead of the head and written ahead of the socket.
        .max_buf_size(head)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let mut first = std::pin::pin!(tokio::time::sleep(FIRST_HEAD));
    let (mut waiting, mut stopping) = (true, false);
    loop {
        tokio::select! {
            biased;
            // Never before `stopping`.
            () = server.stopped.cancelled(), if stopping => return,
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%peer, %error, "connection ended");
                }
                return;
            }
            // After the connection, which may have made it owe something.
            torn = std::future::poll_fn(|cx| watch.poll(cx)) => {
                tracing::debug!(%peer, ?torn, "connection ended: its client does not read");
                return;
            }
            () = server.stopping.cancelled(), if !stopping => {
                stopping = true;
                if !asked.load(Ordering::Relaxed) {
                    return;
                }
                connection.as_mut().graceful_shutdown();
            }
            () = first.as_mut(), if waiting => {
                waiting = false;
                if !asked.load(Ordering::Relaxed) {
                    tracing::debug!(%peer, "connection ended: no request came");
                    return;
                }
            }
        }
    }
}

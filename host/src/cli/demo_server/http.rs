//! A demo server on streamable HTTP: the listener, its connections and their end. The protocol itself is `rmcp`'s.
//!
//! Never listens beyond loopback: these servers have no authentication. Called by `demo-server --http` and by `demo`, which
//! runs two of them inside its own process.

use std::{convert::Infallible, io, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, combinators::BoxBody};
use hyper::{Request, Response, StatusCode, body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use rmcp::{
    ServerHandler,
    transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager},
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::{JoinHandle, JoinSet},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use super::{DemoServer, notes::NotesServer, text::TextServer, time::TimeServer};

/// Connections served at a time. Further ones wait in the listen backlog.
const MAX_CONNECTIONS: usize = 256;
/// A session that nobody has used for so long is forgotten; its next request is answered 404.
const SESSION_IDLE: Duration = Duration::from_secs(60 * 60);
/// How long requests in flight may take to finish once the server has been told to stop.
const DRAIN: Duration = Duration::from_secs(2);
/// How long to wait before accepting again when the system has no resources left for a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A running demo server. Dropping it ends it at once; [`HttpServer::stop`] lets requests in flight finish.
#[derive(Debug)]
pub struct HttpServer {
    addr: SocketAddr,
    cancel: CancellationToken,
    task: Option<JoinHandle<()>>,
}

impl HttpServer {
    /// Binds `addr` and serves `server` at `/mcp` there. Port 0 takes a free port.
    ///
    /// # Errors
    ///
    /// When `addr` is not a loopback address or cannot be bound.
    pub async fn start(server: DemoServer, addr: SocketAddr) -> io::Result<Self> {
        if !addr.ip().is_loopback() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a demo server has no authentication and listens on loopback addresses only, such as 127.0.0.1:0",
            ));
        }
        let listener = TcpListener::bind(addr).await?;
        let addr = listener.local_addr()?;
        let cancel = CancellationToken::new();
        let task = match server {
            DemoServer::Time => spawn(TimeServer::new, listener, &cancel),
            DemoServer::Text => spawn(TextServer::new, listener, &cancel),
            DemoServer::Notes => spawn(NotesServer::new, listener, &cancel),
        };
        Ok(Self { addr, cancel, task: Some(task) })
    }

    /// The URL of the MCP endpoint.
    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.addr)
    }

    /// Stops accepting, ends idle streams, and waits at most two seconds for requests in flight.
    pub async fn stop(mut self) {
        self.cancel.cancel();
        if let Some(task) = self.task.take() {
            // An error here is a panic of the task, already reported by the panic hook; there is nothing left to stop.
            let _ = task.await;
        }
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.cancel.cancel();
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

fn spawn<S: ServerHandler>(make: fn() -> S, listener: TcpListener, cancel: &CancellationToken) -> JoinHandle<()> {
    let mut sessions = LocalSessionManager::default();
    sessions.session_config.keep_alive = Some(SESSION_IDLE);
    let mut config = StreamableHttpServerConfig::default();
    config.cancellation_token = cancel.child_token();
    let service = StreamableHttpService::new(move || Ok(make()), Arc::new(sessions), config);
    tokio::spawn(accept(listener, service, cancel.clone()))
}

async fn accept<S: ServerHandler>(
    listener: TcpListener,
    service: StreamableHttpService<S, LocalSessionManager>,
    cancel: CancellationToken,
) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            () = cancel.cancelled() => break,
            Some(_) = connections.join_next() => continue,
            accepted = accept_one(&listener, &places) => accepted,
        };
        match accepted {
            Ok((stream, place)) => {
                let (service, cancel) = (service.clone(), cancel.clone());
                connections.spawn(async move {
                    serve_connection(stream, service, cancel).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "demo server: accept failed");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    let drained = timeout(DRAIN, async { while connections.join_next().await.is_some() {} }).await;
    if drained.is_err() {
        connections.shutdown().await;
    }
}

/// One connection and its place among [`MAX_CONNECTIONS`]. Safe to drop while waiting.
async fn accept_one(listener: &TcpListener, places: &Arc<Semaphore>) -> io::Result<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let place = Arc::clone(places).acquire_owned().await.map_err(io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    Ok((stream, place))
}

async fn serve_connection<S: ServerHandler>(
    stream: TcpStream,
    service: StreamableHttpService<S, LocalSessionManager>,
    cancel: CancellationToken,
) {
    // Without it, small answers wait for the peer's delayed acknowledgement.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "demo server: TCP_NODELAY not set");
    }
    let service = service_fn(move |request| {
        let service = service.clone();
        async move { Ok::<_, Infallible>(answer(&service, request).await) }
    });
    let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let outcome = tokio::select! {
        outcome = connection.as_mut() => outcome,
        () = cancel.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = outcome {
        tracing::debug!(%error, "demo server: connection ended");
    }
}

async fn answer<S: ServerHandler>(
    service: &StreamableHttpService<S, LocalSessionManager>,
    request: Request<Incoming>,
) -> Response<BoxBody<Bytes, Infallible>> {
    if request.uri().path() == "/mcp" {
        return service.handle(request).await;
    }
    let mut response = Response::new(Full::from("This is a demo MCP server. Its endpoint is /mcp.\n").boxed());
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
}

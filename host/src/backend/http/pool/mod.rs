//! Connections of one session to one server over HTTP/1.1, kept for its next request.
//!
//! Never for another session's: HTTP/1.1 tells by nothing but the order which response belongs to which request, so what a confused server
//! says too much would be taken for the response to somebody else.
//!
//! A connection has no task of its own: who waits for its response drives it, in the task that waits. So a call goes through no queue, and a
//! response is read no faster than it is asked for. A connection that is kept is driven by nobody; what became of it is found out with the
//! next request, before a byte of that is written, and it is closed when it was not used for `IDLE`. Knows nothing of methods, redirects
//! and messages.

use super::body::WireBody;
use super::client::{SendError, root};
use bytes::Bytes;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderValue, Request, Response, Uri};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, Connection, SendRequest};
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tower_service::Service;

/// Servers commonly close an idle connection after 5 s. A request that meets the close is lost and may not be repeated, so
/// connections are given up a little earlier.
const IDLE: Duration = Duration::from_secs(4);
/// How often it is looked for those that are idle for too long.
const SWEEP: Duration = Duration::from_secs(1);
/// Connections that a session keeps; of more the one that was idle for longest is closed.
const KEPT: usize = 64;
/// Of those that were kept, how many may turn out to be closed before a request gets a new one.
const STALE: usize = 4;
/// How long saying goodbye may take (TLS has a word for it).
const CLOSE: Duration = Duration::from_millis(200);
/// Bytes that are read of a connection before somebody wants them, and the largest head of a response. What is read ahead is held for
/// nobody's account, and there is a connection for each call in flight.
const READ_AHEAD: usize = 64 * 1024;

pub type Connector = HttpsConnector<HttpConnector>;
type Io = MaybeHttpsStream<TokioIo<TcpStream>>;

/// Scheme, host and port of a server.
pub struct Origin {
    uri: Uri,
    host: HeaderValue,
    connector: Connector,
}

/// The connections that one session has there.
pub struct Pool {
    origin: Arc<Origin>,
    idle: Mutex<Idle>,
}

#[derive(Default)]
struct Idle {
    /// The one that was used last is at the end, and is used first.
    kept: VecDeque<(Box<Line>, Instant)>,
    swept: bool,
}

/// A connection, and the way to send over it.
struct Line {
    sender: SendRequest<WireBody>,
    /// None once it was closed.
    driver: Option<Connection<Io, WireBody>>,
}

/// The body of a response. Reading it drives its connection, which is kept for the next request at its end; dropped before that, it
/// closes the connection.
pub struct Body {
    incoming: Incoming,
    line: Option<(Box<Line>, Arc<Pool>)>,
}

impl Origin {
    pub fn new(scheme: &Scheme, authority: &Authority, connector: Connector) -> Origin {
        let port = authority.port_u16().filter(|port| *port != if *scheme == Scheme::HTTPS { 443 } else { 80 });
        let host = port.map_or_else(|| authority.host().to_owned(), |port| format!("{}:{port}", authority.host()));
        Origin {
            uri: Uri::builder().scheme(scheme.clone()).authority(authority.clone()).path_and_query("/").build().unwrap_or_default(),
            // An authority consists of visible ASCII.
            host: HeaderValue::try_from(host).unwrap_or_else(|_| HeaderValue::from_static("")),
            connector,
        }
    }

    /// The absolute URL of something there.
    pub fn url(&self, path: &PathAndQuery) -> Uri {
        let mut parts = self.uri.clone().into_parts();
        parts.path_and_query = Some(path.clone());
        Uri::from_parts(parts).unwrap_or_else(|_| self.uri.clone())
    }

    /// What the header `Host` of its requests says (RFC 9110, 7.2).
    pub fn host(&self) -> &HeaderValue {
        &self.host
    }

    async fn connect(&self) -> Result<Line, SendError> {
        let mut connector = self.connector.clone();
        poll_fn(|cx| connector.poll_ready(cx)).await.map_err(|error| SendError::NotSent(root(&*error)))?;
        let io = connector.call(self.uri.clone()).await.map_err(|error| SendError::NotSent(root(&*error)))?;
        let (sender, driver) =
            Builder::new().max_buf_size(READ_AHEAD).handshake(io).await.map_err(|error| SendError::NotSent(root(&error)))?;
        Ok(Line { sender, driver: Some(driver) })
    }
}

impl Pool {
    pub fn new(origin: Arc<Origin>) -> Pool {
        Pool { origin, idle: Mutex::default() }
    }

    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Sends a request, whose URI is in origin-form and which has a `Host`, and waits for the head of the response. It is repeated only
    /// where a kept connection had gone before a byte of it was written.
    pub async fn request(self: &Arc<Self>, mut request: Request<WireBody>) -> Result<Response<Body>, SendError> {
        let mut stale = 0;
        loop {
            let kept = if stale < STALE { self.take() } else { None };
            let (mut line, is_new) = match kept {
                Some(line) => (line, false),
                None => (Box::new(Box::pin(self.origin.connect()).await?), true),
            };
            match line.send(request).await {
                Ok(response) => {
                    let (head, incoming) = response.into_parts();
                    let mut body = Body { incoming, line: Some((line, self.clone())) };
                    if http_body::Body::is_end_stream(&body.incoming) {
                        poll_fn(|cx| {
                            body.release(cx);
                            Poll::Ready(())
                        })
                        .await;
                    }
                    return Ok(Response::from_parts(head, body));
                }
                Err((error, None)) => return Err(SendError::Lost(root(&error))),
                Err((error, Some(_))) if is_new => return Err(SendError::NotSent(root(&error))),
                Err((_, Some(unsent))) => request = *unsent,
            }
            stale += 1;
        }
    }

    /// One that was kept. The server may have closed it, or said what nobody asked for: hyper reads before it writes, and gives the
    /// request back then.
    fn take(&self) -> Option<Box<Line>> {
        let (line, since) = self.lock().kept.pop_back()?;
        // What is too old is closed here, and the older ones by the sweep.
        (since.elapsed() < IDLE).then_some(line)
    }

    fn keep(self: &Arc<Self>, line: Box<Line>) {
        let mut idle = self.lock();
        idle.kept.push_back((line, Instant::now()));
        let above = if idle.kept.len() > KEPT { idle.kept.pop_front() } else { None };
        let sweep = !std::mem::replace(&mut idle.swept, true);
        drop(idle);
        drop(above);
        if sweep {
            // Ends when there is nothing left to sweep, which is at the latest when the session is gone.
            tokio::spawn(sweep_idle(Arc::downgrade(self)));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes what is idle for too long, as long as there is anything that is idle.
async fn sweep_idle(pool: Weak<Pool>) {
    loop {
        tokio::time::sleep(SWEEP).await;
        let Some(pool) = pool.upgrade() else { return };
        loop {
            let old = {
                let mut idle = pool.lock();
                match idle.kept.front() {
                    Some((_, since)) if since.elapsed() >= IDLE => idle.kept.pop_front(),
                    Some(_) => break,
                    None => {
                        idle.swept = false;
                        idle.kept = VecDeque::new();
                        return;
                    }
                }
            };
            if let Some((line, _)) = old {
                line.close().await;
            }
        }
    }
}

impl Line {
    /// Does what the connection has to do now.
    fn drive(&mut self, cx: &mut Context<'_>) {
        if let Some(driver) = &mut self.driver
            && Pin::new(driver).poll(cx).is_ready()
        {
            // An error has been given to whoever waits for the response; dropping it tells those whom it did not reach.
            self.driver = None;
        }
    }

    fn is_idle(&self) -> bool {
        self.driver.is_some() && self.sender.is_ready()
    }

    /// The request comes back with the error where no byte of it was written.
    async fn send(&mut self, request: Request<WireBody>) -> Result<Response<Incoming>, (hyper::Error, Option<Box<Request<WireBody>>>)> {
        let mut response = pin!(self.sender.try_send_request(request));
        let outcome = poll_fn(|cx| {
            if let Some(driver) = &mut self.driver
                && Pin::new(driver).poll(cx).is_ready()
            {
                self.driver = None;
            }
            response.as_mut().poll(cx)
        });
        outcome.await.map_err(|mut error| {
            let unsent = error.take_message().map(Box::new);
            (error.into_error(), unsent)
        })
    }

    async fn close(self) {
        let Line { sender, driver } = self;
        drop(sender);
        if let Some(driver) = driver {
            let _ = tokio::time::timeout(CLOSE, driver).await;
        }
    }
}

impl Body {
    /// At the end of the response: keeps the connection, if it can be used again.
    fn release(&mut self, cx: &mut Context<'_>) {
        let Some((mut line, pool)) = self.line.take() else { return };
        if !line.is_idle() {
            line.drive(cx);
        }
        if line.is_idle() {
            pool.keep(line);
        }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        let frame = match Pin::new(&mut this.incoming).poll_frame(cx) {
            Poll::Ready(frame) => frame,
            Poll::Pending => {
                let Some((line, _)) = &mut this.line else { return Poll::Pending };
                line.drive(cx);
                ready!(Pin::new(&mut this.incoming).poll_frame(cx))
            }
        };
        match &frame {
            // It broke: no other request may follow over it.
            Some(Err(_)) => this.line = None,
            Some(Ok(_)) if !http_body::Body::is_end_stream(&this.incoming) => {}
            _ => this.release(cx),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        http_body::Body::is_end_stream(&self.incoming)
    }

    fn size_hint(&self) -> SizeHint {
        http_body::Body::size_hint(&self.incoming)
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("kept", &self.lock().kept.len()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Body").field("incoming", &self.incoming).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;

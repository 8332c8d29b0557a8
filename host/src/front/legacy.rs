//! HTTP+SSE, the transport of 2024-11-05: GET opens the one stream of a session, whose first event names the endpoint that the client
//! posts to; a POST there is answered with 202, and what it asks for comes on the stream.
//!
//! Beside a virtual host `/path` the stream is `/path/sse`; beside `/mcp` it is `/sse` as well, which is where clients look for it. There
//! is nothing to resume in this revision: the session ends with its stream. A refusal for want of credit is 429 on the POST.

use super::accept::Accepts;
use super::body::{Body, Event};
use super::chamber::Verified;
use super::refused::Refused;
use super::respond::{self, Response};
use super::sse::{KEEP_ALIVE, Merged};
use super::{Front, body, post};
use crate::admission::Permit;
use crate::gateway::{Gateway, Refusal, Reply, VirtualHost};
use crate::protocol::message::batch as split;
use crate::protocol::{Incoming, Request, Wire, method, sse};
use crate::session::streams::Reader;
use crate::session::{Principal, Session, SessionId};
use crate::telemetry::metrics::LevelGuard;
use bytes::Bytes;
use dashmap::DashMap;
use futures_util::stream;
use http::StatusCode;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// What a path beside a virtual host stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Stream,
    Messages,
}

/// The query parameter that names the stream.
const PARAMETER: &str = "session=";
/// Streams and answers on their way to the carrier, beyond the frames that may be owed: pings, errors, the answer to initialize.
const BESIDE: usize = 16;
/// A stream on which nobody has begun a session by then is closed.
const INITIALIZE: Duration = Duration::from_secs(60);

/// The streams that are open, by the id in the endpoint that they named. Each is taken out by its own body.
#[derive(Default)]
pub struct Lines {
    open: DashMap<SessionId, Arc<Line>>,
}

/// One stream and who may post to it.
struct Line {
    principal: Principal,
    virtual_host: Arc<str>,
    session: OnceLock<Arc<Session>>,
    to_carrier: mpsc::Sender<Arrival>,
}

/// What the body is told.
enum Arrival {
    Opened(Arc<Session>, Reader),
    Stream(Reader),
    Message(Wire),
}

/// The body of the stream. Dropping it ends the session.
struct Carrier {
    first: Option<Wire>,
    arrivals: mpsc::Receiver<Arrival>,
    merged: Merged,
    ended: Option<CancellationToken>,
    /// A stream without a session ends then.
    begin_by: Instant,
    _guard: Guard,
    _open: LevelGuard,
}

struct Guard {
    id: SessionId,
    lines: Arc<Lines>,
    gateway: Arc<Gateway>,
    tasks: TaskTracker,
}

/// The virtual host that a path is beside, and which part of the transport it is.
pub fn beside<'a>(gateway: &'a Gateway, path: &str) -> Option<(&'a Arc<VirtualHost>, Part)> {
    let (host, last) = path.rsplit_once('/')?;
    let part = match last {
        "sse" => Part::Stream,
        "messages" => Part::Messages,
        _ => return None,
    };
    let found = gateway.virtual_host(if host.is_empty() { "/" } else { host });
    let usual = || if host.is_empty() && part == Part::Stream { gateway.virtual_host("/mcp") } else { None };
    found.or_else(usual).map(|host| (host, part))
}

impl Front {
    /// GET: opens a stream, and names its endpoint.
    pub(super) fn open_line(&self, verified: &Verified<'_>) -> Result<Response, Refused> {
        if !Accepts::read(verified.headers).events {
            return Err(Refused::NotAcceptable { wanted: "text/event-stream" });
        }
        if !self.gateway.ready() {
            return Err(Refused::Gateway { refusal: Box::new(Refusal::stopping()), id: None });
        }
        let id = SessionId::generate().map_err(|_| Refused::Broken(None))?;
        let host = &verified.host.path;
        let endpoint = format!("{}/messages?{PARAMETER}{}", if &**host == "/" { "" } else { host }, id.as_str());
        let (to_carrier, arrivals) = mpsc::channel(self.config.admission.frames + BESIDE);
        let line = Line { principal: verified.principal.clone(), virtual_host: host.clone(), session: OnceLock::new(), to_carrier };
        self.lines.open.insert(id.clone(), Arc::new(line));
        let carrier = Carrier {
            first: Some(sse::named("endpoint", &endpoint)),
            arrivals,
            merged: Merged::new(Vec::new()),
            ended: None,
            begin_by: Instant::now() + INITIALIZE,
            _guard: Guard { id, lines: self.lines.clone(), gateway: self.gateway.clone(), tasks: self.tasks.clone() },
            _open: self.gateway.metrics().streams_open.enter(),
        };
        Ok(respond::events(Body::events(stream::unfold(carrier, Carrier::next))))
    }

    /// POST to the endpoint that a stream named.
    pub(super) async fn post_to_line<B>(&self, verified: &Verified<'_>, query: Option<&str>, body: B) -> Result<Response, Refused>
    where
        B: http_body::Body<Data = Bytes> + Send,
    {
        post::check_content(verified.headers)?;
        let raw = post::without_mark(body::read(body, verified.headers, self.body_limit, body::PACE).await?);
        if split(&raw).is_some() {
            return Err(Refused::Batch);
        }
        let message = Incoming::parse(raw)?;
        let of = match &message {
            Incoming::Request(request) => Some(request.id.clone()),
            _ => None,
        };
        let line = self.line(verified, query).ok_or(Refused::UnknownSession(of.clone()))?;
        let (session, message) = match (line.session.get(), message) {
            (None, Incoming::Request(request)) if &*request.method == method::INITIALIZE => {
                self.begin_on(verified, &line, request).await?;
                return Ok(respond::empty(StatusCode::ACCEPTED));
            }
            // Before `initialize` there is nothing that it could belong to.
            (None, _) => return Err(Refused::NoSession(of)),
            (Some(session), message) => (session.clone(), message),
        };
        session.touch();
        tracing::Span::current().record("session", &**session.tag());
        match message {
            Incoming::Request(request) => self.ask_on(&line, &session, request).await?,
            Incoming::Notification(notification) => self.notify(&session, notification).await,
            Incoming::Response(response) => self.answer(&session, response).await,
        }
        Ok(respond::empty(StatusCode::ACCEPTED))
    }

    /// The line that the query names, if it is this principal's and of this virtual host.
    fn line(&self, verified: &Verified<'_>, query: Option<&str>) -> Option<Arc<Line>> {
        let id = query?.split('&').find_map(|pair| pair.strip_prefix(PARAMETER)).and_then(SessionId::read)?;
        let line = self.lines.open.get(&id)?.value().clone();
        (line.principal == verified.principal && line.virtual_host == verified.host.path).then_some(line)
    }

    /// `initialize`: the session of this stream.
    async fn begin_on(&self, verified: &Verified<'_>, line: &Arc<Line>, request: Request) -> Result<(), Refused> {
        let id = request.id.clone();
        let opened = self.gateway.initialize(&verified.host, verified.principal.clone(), request).await;
        let opened = opened.map_err(|refusal| Refused::Gateway { refusal: Box::new(refusal), id: Some(id.clone()) })?;
        let session = opened.session;
        tracing::Span::current().record("session", &**session.tag());
        let told = async {
            // Two at once: the first has it.
            line.session.set(session.clone()).ok()?;
            let reader = self.gateway.listen(&session)?;
            line.to_carrier.try_send(Arrival::Opened(session.clone(), reader)).ok()?;
            line.to_carrier.try_send(Arrival::Message(opened.answer)).ok()
        };
        if told.await.is_none() {
            self.gateway.delete(session).await;
            return Err(Refused::UnknownSession(Some(id)));
        }
        Ok(())
    }

    /// A request in the session of this stream. Its answer comes there.
    async fn ask_on(&self, line: &Line, session: &Arc<Session>, request: Request) -> Result<(), Refused> {
        let id = request.id.clone();
        let refused = |refusal| Refused::Gateway { refusal: Box::new(refusal), id: Some(id.clone()) };
        let credit: Option<Permit> = match self.gateway.admit(session, &request).await {
            Ok(credit) => credit,
            Err(refusal) => {
                // On the stream too, where that is still read and has room to spare: some clients look for errors nowhere else.
                if !session.ledger.is_half_open() && line.to_carrier.capacity() > BESIDE {
                    let _ = line.to_carrier.try_send(Arrival::Message(refusal.error.to_message(Some(&id))));
                }
                return Err(refused(refusal));
            }
        };
        // A place on the way to the stream before anything is run. Who has credit finds one, unless it cancels what it asks for and
        // reads nothing.
        let place = match line.to_carrier.try_reserve() {
            Ok(place) => place,
            Err(_) if credit.is_some() => return Err(refused(self.gateway.refuse_unread(session))),
            Err(_) => self.wait_for_place(line, session).await.ok_or(Refused::UnknownSession(Some(id.clone())))?,
        };
        match self.gateway.request(session, request, credit).map_err(refused)? {
            Reply::Now(answer) => place.send(Arrival::Message(answer)),
            Reply::Stream(reader, ..) => place.send(Arrival::Stream(reader)),
        }
        Ok(())
    }

    /// A place for the answer to a ping, which is never refused and never accepted in vain: it waits for as long as a stream may go
    /// unread. After that the stream ends, and its session with it; none then.
    async fn wait_for_place<'a>(&self, line: &'a Line, session: &Arc<Session>) -> Option<mpsc::Permit<'a, Arrival>> {
        match timeout(session.ledger.limits().teardown_after, line.to_carrier.reserve()).await {
            Ok(place) => place.ok(),
            Err(_) => {
                tracing::warn!(session = %session.tag(), "a session is closed: its stream leaves no room for the answers to its pings");
                self.gateway.delete(session.clone()).await;
                None
            }
        }
    }
}

// === impl Carrier ===

impl Carrier {
    async fn next(mut self) -> Option<(Event, Self)> {
        if let Some(endpoint) = self.first.take() {
            return Some((endpoint.into(), self));
        }
        let silence = Instant::now() + KEEP_ALIVE;
        loop {
            let ended = self.ended.clone();
            tokio::select! {
                arrival = self.arrivals.recv() => match arrival? {
                    Arrival::Opened(session, reader) => {
                        self.ended = Some(session.ended().clone());
                        self.merged.push(reader);
                    }
                    Arrival::Stream(reader) => self.merged.push(reader),
                    Arrival::Message(message) => return Some((message_event(&message, None), self)),
                },
                Some(frame) = self.merged.next() => return Some((message_event(&frame.message, frame.permit), self)),
                () = async { match &ended { Some(ended) => ended.cancelled().await, None => tokio::time::sleep_until(self.begin_by).await } } => {
                    // What was answered is still delivered.
                    return match self.merged.next().await {
                        Some(frame) => Some((message_event(&frame.message, frame.permit), self)),
                        None => None,
                    };
                }
                () = tokio::time::sleep_until(silence) => return Some((sse::keep_alive().into(), self)),
            }
        }
    }
}

fn message_event(message: &Wire, permit: Option<Permit>) -> Event {
    let mut wire = Wire::from(Bytes::from_static(b"event: message\n"));
    wire.extend(sse::message(None, message));
    Event { wire, permit }
}

// === impl Guard ===

impl Drop for Guard {
    fn drop(&mut self) {
        let Some((_, line)) = self.lines.open.remove(&self.id) else { return };
        let Some(session) = line.session.get().cloned() else { return };
        let gateway = self.gateway.clone();
        // The gateway bounds its time.
        self.tasks.spawn(async move { gateway.delete(session).await });
    }
}

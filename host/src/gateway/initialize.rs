//! initialize: a new session, with an upstream of its own to every backend, opened side by side within one time limit.

use super::{Gateway, Refusal, capabilities};
use crate::admission::{Ledger, Room};
use crate::backend::{FromServer, Hello, ServerHello, Upstream};
use crate::protocol::json::Object;
use crate::protocol::{Request, RpcError, Version, Wire, codes, json};
use crate::session::{Client, Declares, Full, NewSession, Place, Principal, Session, SessionId, SessionKey, VirtualHost};
use crate::telemetry::SessionTag;
use crate::telemetry::metrics::{Admission, SessionEvent};
use bytes::Bytes;
use http::StatusCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// Messages of one backend that wait for the session: enough not to stall a burst, small enough to hold a flood at its source.
const INBOX: usize = 8;

/// A new session and the answer to its initialize.
pub struct Opened {
    pub session: Arc<Session>,
    pub answer: Wire,
}

/// Closes a session that did not come to be: its client went away in the middle of initialize.
struct Unfinished {
    gateway: Arc<Gateway>,
    session: Option<Arc<Session>>,
}

impl Gateway {
    /// Opens a session. The session id that the request may have carried plays no part: what a session negotiated never changes.
    pub async fn initialize(self: &Arc<Self>, host: &Arc<VirtualHost>, principal: Principal, request: Request) -> Result<Opened, Refusal> {
        if !self.ready() {
            return Err(Refusal::stopping());
        }
        let client = client_of(&request).map_err(|e| Refusal::new(StatusCode::BAD_REQUEST, e))?;
        let place = self.place(&principal).await?;
        let id = SessionId::generate().map_err(|e| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, e))?;
        let tag = Arc::<str>::from(SessionTag(id.as_str()).to_string());
        let key = SessionKey { principal, virtual_host: host.path.clone(), id };
        let counted = self.metrics.sessions.enter();
        let claims = self.claims(key.principal.name());
        let ledger = Ledger::new(self.settings.session.admission, tag.clone(), self.metrics.owed.clone());
        let session = Session::new(NewSession {
            key,
            tag: tag.clone(),
            client: client.clone(),
            host: host.clone(),
            claims,
            limits: self.settings.session,
            ledger,
            place: (place, counted),
        });
        // Before anything is begun on behalf of whoever it is: no backend hears of a session that policies refuse.
        let chain = session.published().chain().clone();
        if let Some(refused) = chain.opened(&session.view()).await.map_err(|e| Refusal::policy_failed(&e))? {
            tracing::info!(
                principal = %session.key().principal.name(), virtual_host = %host.path, policy = %refused.policy, reason = refused.reason,
                "a policy refuses a session"
            );
            return Err(Refusal::by_policy(&refused));
        }
        let mut unfinished = Unfinished { gateway: self.clone(), session: Some(session.clone()) };

        let hello =
            Arc::new(Hello { version: client.version, capabilities: client.capabilities, client_info: client.info, session_tag: tag });
        let mut inboxes = Vec::with_capacity(host.backends.len());
        let upstreams = host
            .backends
            .iter()
            .enumerate()
            .map(|(lane, backend)| {
                let (inbox, messages) = mpsc::channel::<FromServer>(INBOX);
                inboxes.push(messages);
                Upstream::open(backend.clone(), hello.clone(), inbox, Some(Room::new(session.ledger.clone(), lane)))
            })
            .collect();
        session.set_upstreams(upstreams);
        for (backend, messages) in inboxes.into_iter().enumerate() {
            session.spawn(self.clone().serve_inbox(Arc::downgrade(&session), backend, messages));
        }

        let limit = self.settings.initialize_timeout;
        let tag = session.tag();
        let ready = session.upstreams().iter().map(|u| async move {
            match u.ready(limit.min(u.backend().timeouts.initialize)).await {
                Ok(hello) => Some(hello),
                Err(error) => {
                    tracing::warn!(session = %tag, backend = %u.name(), %error, "session starts without a backend");
                    None
                }
            }
        });
        let hellos: Vec<Option<Arc<ServerHello>>> = futures_util::future::join_all(ready).await;
        session.set_registered();
        for (backend, hello) in hellos.iter().enumerate() {
            if let Some(hello) = hello {
                session.announce(backend, hello);
            }
        }
        let answer = answer(&request, &session, &hellos);
        unfinished.session = None;
        self.start_probe(&session);
        self.registry.insert(session.clone());
        self.metrics.sessions_total.inc(SessionEvent::Opened);
        tracing::info!(
            session = %session.tag(), principal = %session.key().principal.name(), virtual_host = %host.path, version = %session.version(),
            backends = hellos.iter().flatten().count(), "session opened"
        );
        Ok(Opened { session, answer })
    }

    /// The right to one more session. At the principal's bound its longest idle session makes room; never anybody else's.
    async fn place(self: &Arc<Self>, principal: &Principal) -> Result<Place, Refusal> {
        for _ in 0..2 {
            let full = match self.registry.reserve(principal) {
                Ok(place) => return Ok(place),
                Err(full) => full,
            };
            match self.registry.longest_idle(principal) {
                Some(idle) => self.end_session(&idle, SessionEvent::Evicted).await,
                None => return Err(self.refuse_session(full)),
            }
        }
        self.registry.reserve(principal).map_err(|full| self.refuse_session(full))
    }

    fn refuse_session(&self, full: Full) -> Refusal {
        let (status, counted, text) = match full {
            Full::Principal { limit } => (
                StatusCode::TOO_MANY_REQUESTS,
                Admission::SessionsOfPrincipal,
                format!(
                    "{limit} sessions are open and busy, which is the limit for one principal (session.max_per_principal); end one with DELETE"
                ),
            ),
            Full::Total { limit } => (
                StatusCode::SERVICE_UNAVAILABLE,
                Admission::SessionsTotal,
                format!("{limit} sessions are open, which is the limit of this gateway (session.max_total)"),
            ),
        };
        self.metrics.admission_total.inc(counted);
        Refusal { retry_after: Some(Duration::from_secs(5)), ..Refusal::overloaded(status, text) }
    }
}

/// What the client says of itself (2025-11-25 lifecycle, "Initialization").
fn client_of(request: &Request) -> Result<Client, RpcError> {
    let invalid = |why: String| RpcError::new(codes::INVALID_PARAMS, why);
    let wanted = request
        .string_param(&["protocolVersion"])
        .map_err(invalid)?
        .ok_or_else(|| invalid("`params.protocolVersion` is missing".into()))?;
    let object = |name: &str, default: &'static str| -> Result<Bytes, RpcError> {
        match request.param(&[name]).map_err(invalid)? {
            None => Ok(Bytes::from_static(default.as_bytes())),
            // Kept by itself: the rest of the message can go.
            Some(value) if json::is_object(value) => Ok(Bytes::copy_from_slice(value.get().as_bytes())),
            Some(_) => Err(invalid(format!("`params.{name}` must be an object"))),
        }
    };
    let capabilities = object("capabilities", "{}")?;
    let declared = Object::parse(&capabilities).map_err(|e| invalid(format!("`params.capabilities`: {e}")))?;
    let declares = |name| declared.only(name).is_some_and(json::is_object);
    let declares = Declares { sampling: declares("sampling"), elicitation: declares("elicitation"), roots: declares("roots") };
    drop(declared);
    Ok(Client {
        version: Version::negotiate(&wanted.value),
        info: object("clientInfo", r#"{"name":"unknown","version":"0"}"#)?,
        capabilities,
        declares,
    })
}

fn answer(request: &Request, session: &Session, hellos: &[Option<Arc<ServerHello>>]) -> Wire {
    let mut result = serde_json::json!({
        "protocolVersion": session.version().as_str(),
        "capabilities": capabilities::merged(hellos),
        "serverInfo": { "name": "lockgate", "title": "Lockgate", "version": env!("CARGO_PKG_VERSION") },
    });
    if let Some(text) = capabilities::instructions(&session.host, hellos) {
        result["instructions"] = text.into();
    }
    codes::result(&request.id, result.to_string())
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            self.gateway.background.spawn(async move { super::lifetime::close(&session).await });
        }
    }
}

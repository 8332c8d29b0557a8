//! A new session: its place, the consent of the policies, and an upstream of its own to every backend, opened side by side.

use super::{Gateway, Refusal};
use crate::admission::{Ledger, Room};
use crate::backend::{Hello, Inbox, ServerHello, State, Upstream};
use crate::protocol::Version;
use crate::session::{Client, Full, NewSession, Place, Principal, Session, SessionId, SessionKey, VirtualHost};
use crate::telemetry::SessionTag;
use crate::telemetry::metrics::{Admission, SessionEvent};
use http::StatusCode;
use std::sync::Arc;
use std::time::Duration;

/// Messages of one backend that wait for the session: enough not to stall a burst, small enough to hold a flood at its source.
const INBOX: u32 = 8;

/// A session that is not known to anybody yet. Dropped, it is closed: its client went away in the middle.
pub(super) struct Unfinished {
    gateway: Arc<Gateway>,
    session: Arc<Session>,
    finished: bool,
}

impl Gateway {
    /// A session with its upstreams on their way. `ledger`: the account that it shares with others of its owner; none: one of its own.
    pub(super) async fn open_session(
        self: &Arc<Self>,
        host: &Arc<VirtualHost>,
        principal: Principal,
        client: Client,
        ledger: Option<Arc<Ledger>>,
    ) -> Result<Unfinished, Refusal> {
        let place = self.place(&principal).await?;
        let id = SessionId::generate().map_err(|e| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, e))?;
        let tag = Arc::<str>::from(SessionTag(id.as_str()).to_string());
        let key = SessionKey { principal, virtual_host: host.path.clone(), id };
        let counted = self.metrics.sessions.enter();
        let claims = self.claims(key.principal.name());
        let ledger = ledger.unwrap_or_else(|| self.ledger(&tag));
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
        let unfinished = Unfinished { gateway: self.clone(), session: session.clone(), finished: false };

        let hello = Arc::new(Hello {
            // A server that begins with `initialize` is asked for the newest revision of that kind.
            version: client.version.min(Version::LATEST),
            modern: client.version.is_modern(),
            capabilities: client.capabilities,
            client_info: client.info,
            session_tag: tag,
        });
        let upstreams = host
            .backends
            .iter()
            .enumerate()
            .map(|(lane, backend)| {
                let inbox = self.inbox(&session, lane);
                Upstream::open(backend.clone(), hello.clone(), inbox, Some(Room::new(session.ledger.clone(), lane)))
            })
            .collect();
        session.set_upstreams(upstreams);
        Ok(unfinished)
    }

    /// What a backend says to the session outside of any call. Served by a task of the session while there is something.
    fn inbox(self: &Arc<Self>, session: &Arc<Session>, backend: usize) -> Inbox {
        let (gateway, session) = (Arc::downgrade(self), Arc::downgrade(session));
        Inbox::new(INBOX, move |letters| {
            let (Some(gateway), Some(session)) = (gateway.upgrade(), session.upgrade()) else { return };
            session.spawn(gateway.serve_inbox(session.clone(), backend, letters));
        })
    }

    /// A new account.
    pub(super) fn ledger(&self, tag: &Arc<str>) -> Arc<Ledger> {
        Ledger::new(self.settings.session.admission, tag.clone(), self.metrics.owed.clone())
    }

    /// Waits until every backend has come or has failed to, no longer than `limits.initialize_timeout`. Answers what each says of itself.
    pub(super) async fn settle(&self, session: &Session) -> Vec<Option<Arc<ServerHello>>> {
        let limit = self.settings.initialize_timeout;
        let ready = session.upstreams().iter().map(|u| async move {
            match u.state() {
                State::Connected(hello) => return Some(hello),
                State::Connecting => {}
                State::Down(_) | State::Closed => return None,
            }
            match u.ready(limit.min(u.backend().timeouts.initialize)).await {
                Ok(hello) => Some(hello),
                Err(error) => {
                    tracing::warn!(session = %session.tag(), backend = %u.name(), %error, "session starts without a backend");
                    None
                }
            }
        });
        futures_util::future::join_all(ready).await
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

impl Unfinished {
    pub fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// From now on it can be found.
    pub fn finish(mut self) {
        self.finished = true;
        self.gateway.registry.insert(self.session.clone());
        self.gateway.metrics.sessions_total.inc(SessionEvent::Opened);
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.finished {
            let session = self.session.clone();
            self.gateway.background.spawn(async move { super::lifetime::close(&session).await });
        }
    }
}

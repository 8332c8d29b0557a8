//! From a verified request to its session: `Mcp-Session-Id`, `MCP-Protocol-Version`, and the key that both need.
//!
//! A request that does not prove which session it belongs to is refused, never guessed.

use super::refused::Refused;
use crate::gateway::{Gateway, OwnChambers, VirtualHost};
use crate::protocol::{RequestId, Version, headers};
use crate::session::{Principal, Session, SessionId, SessionKey};
use crate::telemetry::metrics::IsolationSignal;
use http::HeaderMap;
use std::sync::Arc;

/// What a request says of its session.
#[derive(Clone, Debug)]
pub enum Named {
    Absent,
    Malformed,
    Id(SessionId),
}

/// A request whose sender and virtual host are known.
pub struct Verified<'a> {
    pub gateway: &'a Arc<Gateway>,
    pub host: Arc<VirtualHost>,
    pub principal: Principal,
    pub headers: &'a HeaderMap,
    pub named: Named,
    /// What the connection has of its own.
    pub own: &'a Arc<OwnChambers>,
    /// Of HTTP.
    pub version: http::Version,
}

impl Named {
    pub fn read(headers: &HeaderMap) -> Self {
        let mut values = headers.get_all(headers::SESSION_ID).iter();
        match (values.next(), values.next()) {
            (None, _) => Named::Absent,
            (Some(value), None) => value.to_str().ok().and_then(SessionId::read).map_or(Named::Malformed, Named::Id),
            _ => Named::Malformed,
        }
    }
}

impl Verified<'_> {
    /// The session that the request belongs to. `id` is that of the message, for the error.
    pub fn session(&self, id: Option<&RequestId>) -> Result<Arc<Session>, Refused> {
        let session = match &self.named {
            Named::Absent => {
                self.gateway.metrics().isolation_signals_total.inc(IsolationSignal::HeaderAbsent);
                return Err(Refused::NoSession(id.cloned()));
            }
            Named::Malformed => return Err(Refused::MalformedSession(id.cloned())),
            Named::Id(named) => self.find(named).ok_or_else(|| Refused::UnknownSession(id.cloned()))?,
        };
        self.check_revision(id, session.version())?;
        tracing::Span::current().record("session", &**session.tag());
        Ok(session)
    }

    /// Whether the request says anything of a session, be it nonsense.
    pub fn is_named(&self) -> bool {
        !matches!(self.named, Named::Absent)
    }

    /// Whether the request names a live session of its own principal.
    pub fn names_live_session(&self) -> bool {
        matches!(&self.named, Named::Id(id) if self.find(id).is_some())
    }

    fn find(&self, id: &SessionId) -> Option<Arc<Session>> {
        let key = SessionKey { principal: self.principal.clone(), virtual_host: self.host.path.clone(), id: id.clone() };
        self.gateway.session(&key)
    }

    /// 2025-11-25 transports, "Protocol Version Header": an invalid or unsupported revision is 400. Another than the negotiated one is
    /// let pass if it is served: some clients send the one they asked for, and what the session speaks does not change by it.
    fn check_revision(&self, id: Option<&RequestId>, negotiated: Version) -> Result<(), Refused> {
        for value in self.headers.get_all(headers::PROTOCOL_VERSION) {
            match value.to_str().ok().and_then(|v| Version::parse(v.trim())) {
                Some(named) if named == negotiated => {}
                Some(named) => tracing::debug!(%named, %negotiated, "MCP-Protocol-Version differs from what was negotiated"),
                None => return Err(Refused::Revision(id.cloned())),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_visible_value_names_a_session_and_nothing_else_does() {
        let read = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(headers::SESSION_ID, value.parse().unwrap());
            }
            Named::read(&headers)
        };
        assert!(matches!(read(&[]), Named::Absent));
        assert!(matches!(read(&["abc"]), Named::Id(id) if id.as_str() == "abc"));
        let long = "x".repeat(513);
        for bad in [&[""][..], &["a b"], &["a", "a"], &["é"], &[&long]] {
            assert!(matches!(read(bad), Named::Malformed), "{bad:?}");
        }
    }
}

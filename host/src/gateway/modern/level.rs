//! Which log messages a request wants (2026-07-28 server/utilities/logging): none, or those of a level and above.
//!
//! Servers of older revisions have one level for the whole session, so they are asked for the most that any request has wanted, and what a
//! request does not want is left out here.

use super::super::Gateway;
use super::super::capabilities::has;
use super::super::logging::LEVELS;
use crate::backend::{CallEvent, Outbound, State};
use crate::protocol::{Notification, Request, method};
use crate::session::Session;
use bytes::Bytes;
use std::sync::Arc;

/// A log level, as a request names it.
#[derive(Clone, Debug)]
pub struct Level {
    rank: u8,
    /// JSON text.
    pub raw: Bytes,
}

fn rank(name: &str) -> Option<u8> {
    LEVELS.iter().position(|l| *l == name).and_then(|at| u8::try_from(at).ok())
}

impl Level {
    /// The levels there are, least first (RFC 5424).
    pub const NAMES: [&str; 8] = LEVELS;

    /// None for what is no level.
    pub fn named(name: &str) -> Option<Self> {
        Some(Level { rank: rank(name)?, raw: crate::protocol::json::quote(name).into() })
    }

    /// Whether a request with this level (or none) wants this log message.
    pub fn wants(level: Option<&Level>, message: &Notification) -> bool {
        let Some(level) = level else { return false };
        // A message without a level that is known is not held back by one.
        let of = message.string_param(&["level"]).ok().flatten().and_then(|l| rank(&l.value));
        of.is_none_or(|of| of >= level.rank)
    }
}

impl Gateway {
    /// Sees to it that a backend with one level for all says at least what this request wants.
    pub(in crate::gateway) async fn lower_level(self: &Arc<Self>, session: &Arc<Session>, backend: usize, level: &Level) {
        let Some(upstream) = session.upstreams().get(backend) else { return };
        let State::Connected(hello) = upstream.state() else { return };
        if hello.version.is_modern() || !has(&hello.capabilities, "logging") || !session.lower_level(backend, level.rank) {
            return;
        }
        let params = format!("{{\"level\":{}}}", String::from_utf8_lossy(&level.raw));
        let request = Request::own(method::SET_LEVEL, &params);
        session.set_level(request.clone());
        let limit = session.host.backends[backend].timeouts.list;
        if let Ok(mut call) = upstream.call(Outbound::own(request), limit).await {
            while !matches!(call.next().await, CallEvent::Answer(_) | CallEvent::Failed(_)) {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Incoming;

    #[test]
    fn a_message_is_wanted_from_its_level_on_and_not_at_all_without() {
        let message = |level: &str| {
            let text = format!(r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"level":"{level}","data":1}}}}"#);
            let Ok(Incoming::Notification(note)) = Incoming::parse(text.into()) else { panic!("no notification") };
            note
        };
        let warning = Level::named("warning").expect("a level");
        assert!(Level::wants(Some(&warning), &message("error")) && Level::wants(Some(&warning), &message("warning")));
        assert!(!Level::wants(Some(&warning), &message("info")) && !Level::wants(None, &message("emergency")));
        assert!(Level::named("loud").is_none());
    }
}

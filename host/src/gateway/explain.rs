//! What policies say about one name, for an operator who asks; and the sight of a virtual host that new policies are tried on.

use super::Gateway;
use super::resolve::listed;
use crate::protocol::RpcError;
use crate::session::{Principal, VirtualHost};
use lockgate_policy::{BackendState, BackendView, Explanation, Kind, Scratch, SessionView, Warm};
use serde::Serialize;
use std::sync::Arc;

/// The story of a name, and whose it is.
#[derive(Clone, Debug, Serialize)]
pub struct Explained {
    pub virtual_host: Arc<str>,
    pub generation: u64,
    pub principal: Arc<str>,
    /// Whether it is told of a live session of the principal, the newest; otherwise of what the configuration says, where no list has been read.
    pub from_session: bool,
    #[serde(flatten)]
    pub explanation: Explanation,
}

impl Gateway {
    /// What a name leads to for a principal, and which policy said so.
    ///
    /// # Errors
    /// As for a call of the session.
    pub async fn explain(
        self: &Arc<Self>,
        host: &Arc<VirtualHost>,
        principal: &str,
        kind: Kind,
        name: &str,
    ) -> Result<Explained, RpcError> {
        let session = self.sessions_of(host).into_iter().find(|s| **s.key().principal.name() == *principal);
        let (chain, view, found) = match &session {
            Some(session) => {
                let at = self.names(session).await?;
                let found = listed(session, &at, kind, name).await?;
                (at.chain().clone(), session.view(), found.map(|found| session.policy_target(&found.target)))
            }
            None => (host.policies.current(), self.view_of(host, Some(&principal.into())), None),
        };
        Ok(Explained {
            virtual_host: host.path.clone(),
            generation: chain.generation(),
            principal: principal.into(),
            from_session: session.is_some(),
            explanation: chain.explain(&view, kind, name, found.as_ref()).await,
        })
    }

    /// A session as it would be if this principal had one, with every backend connected. None: anybody.
    pub(crate) fn view_of(&self, host: &VirtualHost, principal: Option<&Arc<str>>) -> SessionView {
        let principal = principal.cloned().unwrap_or_else(|| Principal::anonymous().name().clone());
        let backends = host.backends.iter().map(|b| BackendView { name: b.name.clone(), state: BackendState::Connected });
        SessionView {
            claims: self.claims(&principal),
            principal,
            virtual_host: host.path.clone(),
            backends: backends.collect(),
            scratch: Scratch::new(),
            warm: Warm::new(),
        }
    }
}

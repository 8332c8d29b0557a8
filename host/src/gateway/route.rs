//! Where the use of a name goes, and whether it may: what the routers among the policies say.
//!
//! Most names are routed once and then found with their route; without a router a name goes where it leads.

use super::{Gateway, Refusal};
use crate::catalog::{Found, Published, Routed, Target};
use crate::protocol::{RpcError, codes};
use crate::session::Session;
use http::StatusCode;
use lockgate_policy::{Kind, PolicyError, PolicyErrorKind, Refused, Route, Routers};
use std::sync::Arc;
use std::time::Duration;

use super::publish::policy_failed;

/// What a use of a name leads to, and the names and policies by which that was found: the request goes by them to its end.
pub(super) struct Resolved {
    pub at: Arc<Published>,
    pub target: Target,
}

impl Gateway {
    /// Where the use of `public` goes, which stands for `found`.
    pub(super) async fn route(
        &self,
        session: &Session,
        at: Arc<Published>,
        kind: Kind,
        public: &str,
        found: Found,
    ) -> Result<Resolved, RpcError> {
        let routers = at.chain().routers();
        let routed = match (routers, found.routed.clone()) {
            (Routers::None, _) => Routed::To(found.target),
            (Routers::OncePerName, Some(routed)) => routed,
            _ => {
                let routed = Box::pin(ask(session, &at, kind, public, &found.target)).await?;
                if routers == Routers::OncePerName {
                    at.table(kind).keep(public, &found, routed.clone());
                }
                routed
            }
        };
        match routed {
            Routed::To(target) => Ok(Resolved { at, target }),
            Routed::Refused(refused) => Err(policy_refused(&refused)),
        }
    }
}

async fn ask(session: &Session, at: &Published, kind: Kind, public: &str, target: &Target) -> Result<Routed, RpcError> {
    let asked = at.chain().route(&session.view(), kind, public, session.policy_target(target)).await;
    match asked.map_err(|e| policy_failed(&e))? {
        Route::To(to) => session
            .target(to)
            .map(Routed::To)
            // The policy plane lets no other pass.
            .ok_or_else(|| {
                RpcError::new(codes::POLICY_FAILED, "a policy routes to a backend that this session does not have; nothing was run")
            }),
        Route::Refused(refused) => Ok(Routed::Refused(Arc::new(refused))),
    }
}

/// A policy says no, and its reason is for the client.
pub(super) fn policy_refused(refused: &Refused) -> RpcError {
    RpcError::new(codes::POLICY_REFUSED, format!("refused by the policy {}: {}", refused.policy, refused.reason))
        .with_data(serde_json::json!({ "policy": &*refused.policy, "reason": refused.reason }))
}

impl Refusal {
    /// A policy does not let the session open.
    pub(super) fn by_policy(refused: &Refused) -> Self {
        Refusal::new(StatusCode::FORBIDDEN, policy_refused(refused))
    }

    /// A policy that is asked whether the session may open does not answer.
    pub(super) fn policy_failed(error: &PolicyError) -> Self {
        let busy = error.kind == PolicyErrorKind::Overloaded;
        let status = if busy { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::INTERNAL_SERVER_ERROR };
        Refusal { retry_after: busy.then_some(Duration::from_secs(1)), ..Refusal::new(status, policy_failed(error)) }
    }
}

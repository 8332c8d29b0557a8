//! resources/read, resources/subscribe and resources/unsubscribe.

use super::Gateway;
use super::job::{Job, Outcome};
use super::relay::Relayed;
use super::route::Resolved;
use crate::catalog::Target;
use crate::protocol::message::Member;
use crate::protocol::{Edits, RpcError, json};
use std::sync::Arc;

type StringParam = Member<String>;

impl Gateway {
    pub(super) async fn read_resource(self: &Arc<Self>, job: &Job) -> Outcome {
        let (Resolved { at, target }, uri) = match self.resource_of(job).await {
            Ok(found) => found,
            Err(error) => return error.into(),
        };
        self.relay_published(job, &at, target.backend, to_own(uri, &target.name), true).await
    }

    pub(super) async fn subscribe(self: &Arc<Self>, job: &Job) -> Outcome {
        let (Resolved { target, .. }, uri) = match self.resource_of(job).await {
            Ok(found) => found,
            Err(error) => return error.into(),
        };
        let session = job.session();
        if session.subscriptions() >= crate::session::SUBSCRIPTIONS {
            return RpcError::invalid_params(format!(
                "a session may have {} subscriptions; unsubscribe from some first",
                crate::session::SUBSCRIPTIONS
            ))
            .into();
        }
        // Updates arrive on the server's GET stream, which is therefore wanted from now on; noted before the answer, so that none is missed.
        if let Some(upstream) = session.upstreams().get(target.backend) {
            upstream.listen();
        }
        session.subscribe(target.backend, target.name.to_string(), uri.value.clone());
        let relayed = self.relay_to(job, &target, uri).await;
        if !is_ok(&relayed) {
            session.unsubscribe(target.backend, &target.name);
        }
        relayed.into_outcome(target.backend)
    }

    /// Goes to where the subscription is, whatever policies would say today: nobody is kept from taking back what was granted.
    pub(super) async fn unsubscribe(self: &Arc<Self>, job: &Job) -> Outcome {
        let session = job.session();
        let found = async {
            let uri = uri_of(job)?;
            let target = match session.subscription(&uri.value) {
                Some((backend, name)) => Target { backend, name: name.into() },
                None => self.resolve_resource(session, &uri.value).await?.target,
            };
            Ok::<_, RpcError>((target, uri))
        };
        let (target, uri) = match found.await {
            Ok(found) => found,
            Err(error) => return error.into(),
        };
        let relayed = self.relay_to(job, &target, uri).await;
        if is_ok(&relayed) {
            session.unsubscribe(target.backend, &target.name);
        }
        relayed.into_outcome(target.backend)
    }

    async fn relay_to(self: &Arc<Self>, job: &Job, target: &Target, uri: StringParam) -> Relayed {
        let limit = job.session().host.backends[target.backend].timeouts.call;
        self.relay(job, target.backend, to_own(uri, &target.name), limit).await
    }

    /// What the use of `params.uri` leads to, and the URI as the client wrote it.
    async fn resource_of(self: &Arc<Self>, job: &Job) -> Result<(Resolved, StringParam), RpcError> {
        let uri = uri_of(job)?;
        Ok((self.resolve_resource(job.session(), &uri.value).await?, uri))
    }
}

fn uri_of(job: &Job) -> Result<StringParam, RpcError> {
    let uri = job.request.string_param(&["uri"]).map_err(RpcError::invalid_params)?;
    uri.ok_or_else(|| RpcError::invalid_params("`params.uri` is missing"))
}

fn is_ok(relayed: &Relayed) -> bool {
    matches!(relayed, Relayed::Answer(response) if response.ok)
}

/// The change that makes the client's URI the backend's own.
fn to_own(uri: StringParam, own: &str) -> Edits {
    let mut edits = Edits::new();
    if *own != *uri.value {
        edits.replace(uri.at, json::quote(own));
    }
    edits
}

//! resources/read, resources/subscribe and resources/unsubscribe.

use super::Gateway;
use super::job::{Job, Outcome};
use super::relay::Relayed;
use crate::catalog::Target;
use crate::protocol::{Edits, RpcError, json};
use std::sync::Arc;

impl Gateway {
    pub(super) async fn read_resource(self: &Arc<Self>, job: &Job) -> Outcome {
        let (target, _, edits) = match self.resource_of(job).await {
            Ok(found) => found,
            Err(error) => return error.into(),
        };
        self.relay_published(job, target.backend, edits).await
    }

    pub(super) async fn subscribe(self: &Arc<Self>, job: &Job, on: bool) -> Outcome {
        let (target, public, edits) = match self.resource_of(job).await {
            Ok(found) => found,
            Err(error) => return error.into(),
        };
        let session = job.session();
        if on && session.subscriptions() >= crate::session::SUBSCRIPTIONS {
            return RpcError::invalid_params(format!(
                "a session may have {} subscriptions; unsubscribe from some first",
                crate::session::SUBSCRIPTIONS
            ))
            .into();
        }
        let limit = session.host.backends[target.backend].timeouts.call;
        if on {
            // Updates arrive on the server's GET stream, which is therefore wanted from now on; noted before the answer, so that none is missed.
            if let Some(upstream) = session.upstreams().get(target.backend) {
                upstream.listen();
            }
            session.subscribe(target.backend, target.name.to_string(), public);
        }
        let relayed = self.relay(job, target.backend, edits, limit).await;
        let done = matches!(&relayed, Relayed::Answer(response) if response.ok);
        if on != done {
            session.unsubscribe(target.backend, &target.name);
        }
        relayed.into_outcome(job)
    }

    /// The resource that `params.uri` stands for, the URI as the client wrote it, and the change that makes it the backend's own.
    async fn resource_of(self: &Arc<Self>, job: &Job) -> Result<(Target, String, Edits), RpcError> {
        let uri = job
            .request
            .string_param(&["uri"])
            .map_err(RpcError::invalid_params)?
            .ok_or_else(|| RpcError::invalid_params("`params.uri` is missing"))?;
        let target = self.resolve_resource(job.session(), &uri.value).await?;
        let mut edits = Edits::new();
        if *target.name != *uri.value {
            edits.replace(uri.at, json::quote(&target.name));
        }
        Ok((target, uri.value, edits))
    }
}

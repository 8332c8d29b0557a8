//! completion/complete: to the owner of the prompt or resource template that it refers to.

use super::Gateway;
use super::job::{Job, Outcome};
use super::route::Resolved;
use crate::protocol::{Edits, RpcError, json};
use lockgate_policy::Kind;
use std::sync::Arc;

impl Gateway {
    pub(super) async fn complete(self: &Arc<Self>, job: &Job) -> Outcome {
        match self.complete_at(job).await {
            Ok(outcome) => outcome,
            Err(error) => error.into(),
        }
    }

    async fn complete_at(self: &Arc<Self>, job: &Job) -> Result<Outcome, RpcError> {
        let invalid = RpcError::invalid_params;
        let sort =
            job.request.string_param(&["ref", "type"]).map_err(invalid)?.ok_or_else(|| invalid("`params.ref.type` is missing".into()))?;
        let member = match &*sort.value {
            "ref/prompt" => "name",
            "ref/resource" => "uri",
            _ => return Err(invalid("`params.ref.type` must be `ref/prompt` or `ref/resource`".into())),
        };
        let name = job
            .request
            .string_param(&["ref", member])
            .map_err(invalid)?
            .ok_or_else(|| invalid(format!("`params.ref.{member}` is missing")))?;
        let session = job.session();
        let Resolved { target, .. } = match member {
            "name" => self.resolve(session, Kind::Prompt, &name.value).await?,
            _ => match self.resolve_template(session, &name.value).await? {
                Some(resolved) => resolved,
                None => self.resolve_resource(session, &name.value).await?,
            },
        };
        let mut edits = Edits::new();
        if *target.name != *name.value {
            edits.replace(name.at, json::quote(&target.name));
        }
        let limit = session.host.backends[target.backend].timeouts.call;
        Ok(self.relay(job, target.backend, edits, limit).await.into_outcome(target.backend))
    }
}

//! tools/call and prompts/get: a published name leads to a backend and its own name there.

use super::Gateway;
use super::job::{Job, Outcome};
use super::route::Resolved;
use crate::protocol::{Edits, RpcError, json};
use lockgate_policy::Kind;
use std::sync::Arc;

impl Gateway {
    pub(super) async fn call_named(self: &Arc<Self>, job: &Job, kind: Kind) -> Outcome {
        let name = match job.request.string_param(&["name"]) {
            Ok(Some(name)) => name,
            Ok(None) => return RpcError::invalid_params("`params.name` is missing").into(),
            Err(why) => return RpcError::invalid_params(why).into(),
        };
        match job.request.param(&["arguments"]) {
            Ok(Some(arguments)) if !json::is_object(arguments) && !json::is_null(arguments) => {
                return RpcError::invalid_params("`params.arguments` must be an object").into();
            }
            Ok(_) => {}
            Err(why) => return RpcError::invalid_params(why).into(),
        }
        let Resolved { at, target } = match self.resolve(job.session(), kind, &name.value).await {
            Ok(resolved) => resolved,
            Err(error) => return error.into(),
        };
        let checked = self.check_params(job.session(), &job.request, &job.extras.brought, &at, &name.value, Some(&target));
        if let Err(why) = checked.await {
            return Outcome::Mismatch(why);
        }
        let mut edits = Edits::new();
        if *target.name != *name.value {
            edits.replace(name.at, json::quote(&target.name));
        }
        self.relay_published(job, &at, target.backend, edits).await
    }
}

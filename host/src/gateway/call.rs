//! tools/call and prompts/get: a published name leads to a backend and its own name there.

use super::Gateway;
use super::job::{Job, Outcome};
use super::route::Resolved;
use super::tasks::{self, AsTask};
use crate::protocol::message::{BadParams, Member};
use crate::protocol::{Edits, Request, RpcError, json};
use lockgate_policy::Kind;
use std::borrow::Cow;
use std::sync::Arc;

impl Gateway {
    pub(super) async fn call_named(self: &Arc<Self>, job: &Job, kind: Kind) -> Outcome {
        let Wanted { name, task } = match wanted(&job.request) {
            Ok(wanted) => wanted,
            Err(why) => return RpcError::invalid_params(why).into(),
        };
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
        // Clients of 2026-07-28 have no such member: there, servers decide.
        let mut way = AsTask::Unchanged;
        if task && kind == Kind::Tool && !job.session().version().is_modern() {
            // Boxed: it is seldom needed, and calls are small without it.
            way = match Box::pin(self.as_task(job.session(), target.backend)).await {
                Ok(way) => way,
                Err(error) => return error.into(),
            };
        }
        if matches!(way, AsTask::Plain) {
            tasks::plain(&job.request, &mut edits);
        }
        let made = matches!(way, AsTask::Task);
        let outcome = self.relay_published(job, &at, target.backend, edits, !made).await;
        if made { tasks::made(job.session(), outcome) } else { outcome }
    }
}

/// What the params of a call say.
struct Wanted<'a> {
    name: Member<Cow<'a, str>>,
    /// It is to become a task (2025-11-25).
    task: bool,
}

fn wanted(request: &Request) -> Result<Wanted<'_>, BadParams> {
    let member = |name: &str| request.param(&[name]);
    let name = member("name")?.ok_or("`params.name` is missing")?;
    let value = json::string(name).ok_or("`params.name` must be a string")?;
    if member("arguments")?.is_some_and(|a| !json::is_object(a) && !json::is_null(a)) {
        return Err("`params.arguments` must be an object".into());
    }
    let task = member("task")?.is_some_and(|task| !json::is_null(task));
    Ok(Wanted { name: Member { value, at: json::place(&request.raw, name) }, task })
}

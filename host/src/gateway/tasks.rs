//! Tasks: a client and a server of the same era follow them by id; across eras there are none, since a task of one cannot be followed in the
//! other (2025-11-25 basic/utilities/tasks; for 2026-07-28 see `modern::tasks`).
//!
//! An id leads to its backend without a table: in 2025-11-25 it begins with the name of its backend where there are several, and is else
//! as its server made it. A session uses the tasks that it was given, and no others: servers cannot tell sessions apart by the
//! credential that they see.

use super::Gateway;
use super::capabilities::{has, lists_tasks, takes_tasks};
use super::job::{Job, Outcome};
use super::relay::Relayed;
use crate::backend::{ServerHello, State};
use crate::catalog::items::{ListOf, Page};
use crate::protocol::json::{self, Object, RawValue};
use crate::protocol::members::{drop_elements, splice};
use crate::protocol::{Edits, Notification, Request, Response, RpcError, Wire, codes, meta, method};
use crate::session::{About, RunBy, Session};
use bytes::Bytes;
use std::ops::Range;
use std::sync::Arc;

/// Between the name of a backend, which has none in it, and the id of its task.
const SEPARATOR: char = '/';

/// How a call is made that its client wants as a task.
pub(super) enum AsTask {
    Task,
    /// As any other call, its `params.task` out: the server would not know what it means.
    Plain,
    /// As it is.
    Unchanged,
}

impl Gateway {
    /// tasks/get, tasks/result, tasks/update and tasks/cancel: to the backend that the id leads to, under its own id.
    pub(super) async fn task(self: &Arc<Self>, job: &Job) -> Outcome {
        match self.task_at(job).await {
            Ok(outcome) => outcome,
            Err(error) => error.into(),
        }
    }

    async fn task_at(self: &Arc<Self>, job: &Job) -> Result<Outcome, RpcError> {
        let session = job.session();
        let modern = session.version().is_modern();
        if !modern && !hellos(session).any(|(_, h)| !h.version.is_modern() && has(&h.capabilities, "tasks")) {
            return Err(none(&job.request));
        }
        let id = job.request.string_param(&["taskId"]).map_err(RpcError::invalid_params)?;
        let id = id.ok_or_else(|| RpcError::invalid_params("`params.taskId` is missing"))?;
        let found = if modern {
            self.open_task(session, &id.value)
        } else {
            own(session, &id.value).filter(|(backend, own)| session.known_tasks.has(RunBy::Server, *backend, own))
        };
        let unknown = || RpcError::invalid_params("`params.taskId` is the id of no task that there is here for this client");
        let (backend, own) = found.ok_or_else(unknown)?;
        let (upstream, of) = (session.upstreams().get(backend).ok_or_else(unknown)?, &session.host.backends[backend]);
        let hello = upstream.ready(of.timeouts.initialize).await.map_err(|e| e.to_rpc())?;
        if hello.version.is_modern() != modern {
            // It spoke another revision when it made the task.
            return Err(unknown());
        }
        let at = self.names(session).await?;
        let mut edits = Edits::new();
        if own != id.value {
            edits.replace(id.at, json::quote(&own));
        }
        let response = match self.relay(job, backend, edits, of.timeouts.call).await {
            Relayed::Answer(response) => response,
            other => return Ok(other.into_outcome(backend)),
        };
        let mut edits = self.publish_uris(session, &at, backend, (&response.raw, response.body_at.clone()), &job.request.method).await;
        if response.ok
            && let Ok(result) = Object::parse(&response.raw[response.body_at.clone()])
        {
            // `tasks/result` answers with that of the call, in which a member of this name would be the tool's.
            if &*job.request.method != method::TASKS_RESULT
                && let Some(there) = result.only("taskId").filter(|there| json::string(there).as_deref() == Some(&own))
                && own != id.value
            {
                edits.replace(json::place(&response.raw, there), json::quote(&id.value));
            }
            if !modern {
                relate(session, backend, &response.raw, &result, &mut edits);
            }
        }
        Ok(Outcome::Response { response, edits, backend })
    }

    /// tasks/list (2025-11-25): of all backends that list theirs, those of this session.
    pub(super) async fn list_tasks(self: &Arc<Self>, job: &Job) -> Outcome {
        let session = job.session();
        let backends: Vec<usize> = hellos(session).filter(|(_, h)| lists_tasks(h)).map(|(backend, _)| backend).collect();
        if backends.is_empty() {
            return none(&job.request).into();
        }
        let gathered = match self.gather(job, ListOf::Tasks, backends).await {
            Ok(gathered) => gathered,
            Err(ended) => return ended,
        };
        let shown = |backend: usize, id: &Arc<str>| {
            let shown = session.known_tasks.has(RunBy::Server, backend, id);
            shown.then(|| public(session, backend, id).map_or_else(|| id.clone(), Arc::from))
        };
        let names = gathered.parts.iter().map(|p| p.page.items.iter().map(|i| shown(p.backend, &i.name)).collect()).collect();
        Outcome::Answer(self.page(job, &gathered, &names))
    }

    /// How a call is made that its client, of an older revision, wants as a task.
    ///
    /// # Errors
    /// -32601 where some servers of the session take tasks and this one does not, as for a tool without them; nothing was run.
    pub(super) async fn as_task(&self, session: &Session, backend: usize) -> Result<AsTask, RpcError> {
        let upstream = &session.upstreams()[backend];
        let hello = upstream.ready(upstream.backend().timeouts.initialize).await.map_err(|e| e.to_rpc())?;
        if takes_tasks(&hello) {
            session.known_tasks.expect();
            return Ok(AsTask::Task);
        }
        if hellos(session).any(|(_, h)| takes_tasks(&h)) {
            return Err(RpcError::new(
                codes::METHOD_NOT_FOUND,
                format!(
                    "this tool cannot be called as a task: its server (`{}`) takes none that this client could follow",
                    upstream.name()
                ),
            ));
        }
        // Nobody said that there are tasks ("Task Support and Handling": to be processed normally).
        Ok(if hello.version.is_modern() { AsTask::Plain } else { AsTask::Unchanged })
    }
}

/// The answer to a call that was to become a task: its id, noted as one of the session's, as the client may use it.
pub(super) fn made(session: &Session, outcome: Outcome) -> Outcome {
    let Outcome::Response { response, mut edits, backend } = outcome else { return outcome };
    if response.ok
        && let Ok(result) = Object::parse(&response.raw[response.body_at.clone()])
    {
        if let Some(id) = task_id(&result)
            && let Some(own) = json::string(id)
        {
            session.known_tasks.add(RunBy::Server, backend, &own);
            if let Some(public) = public(session, backend, &own) {
                edits.replace(json::place(&response.raw, id), json::quote(&public));
            }
        }
        relate(session, backend, &response.raw, &result, &mut edits);
    }
    Outcome::Response { response, edits, backend }
}

/// Takes `task` out of the params of a request.
pub(super) fn plain(request: &Request, edits: &mut Edits) {
    if let Some(params) = request.params_at.clone() {
        // Read as an object when the message came.
        let _ = splice(&request.raw, params, |name| name == "task", "", edits);
    }
}

/// A notification of a server as the client gets it: the tasks in it by the ids that they have there.
pub(super) fn told(session: &Session, backend: usize, notification: &Notification) -> Wire {
    let mut edits = Edits::new();
    if &*notification.method == method::TASK_STATUS
        && let Ok(Some(id)) = notification.string_param(&["taskId"])
        && let Some(public) = public(session, backend, &id.value)
    {
        edits.replace(id.at, json::quote(&public));
    }
    relate_params(session, backend, &notification.raw, notification.params_at.clone(), &mut edits);
    edits.apply(&notification.raw)
}

/// Makes the task that a message of a server is about known to the client by its id there: `_meta` of `params`.
pub(super) fn relate_params(session: &Session, backend: usize, raw: &Bytes, params_at: Option<Range<usize>>, edits: &mut Edits) {
    if mapped(session)
        && let Some(at) = params_at
        && memchr::memmem::find(&raw[at.clone()], b"related-task").is_some()
        && let Ok(params) = Object::parse(&raw[at])
    {
        relate(session, backend, raw, &params, edits);
    }
}

/// The same for the members of `params` or a result.
fn relate(session: &Session, backend: usize, raw: &Bytes, of: &Object<'_>, edits: &mut Edits) {
    if mapped(session)
        && let Some(id) = related(of)
        && let Some(own) = json::string(id)
        // A task of the client has one id for both.
        && !session.known_tasks.has(RunBy::Client, backend, &own)
        && let Some(public) = public(session, backend, &own)
    {
        edits.replace(json::place(raw, id), json::quote(&public));
    }
}

/// The reverse, for what the client says: the server's own id of its own task.
pub(super) fn relate_to_server(session: &Session, backend: usize, raw: &Bytes, at: Range<usize>, edits: &mut Edits) {
    if mapped(session)
        && let Ok(of) = Object::parse(&raw[at])
        && let Some(id) = related(&of)
        && let Some((owner, own)) = json::string(id).and_then(|id| own(session, &id))
        && owner == backend
        && session.known_tasks.has(RunBy::Server, backend, &own)
    {
        edits.replace(json::place(raw, id), json::quote(&own));
    }
}

/// What has to be seen to when a question of `backend` is answered.
///
/// # Errors
/// For a question about a task that the client does not run for this backend: where there are several, none can ask after another's.
pub(super) fn about(session: &Session, backend: usize, request: &Request) -> Result<About, RpcError> {
    if session.host.backends.len() < 2 || !session.client.declares.tasks {
        return Ok(About::Other);
    }
    match &*request.method {
        method::TASKS_LIST => Ok(About::Tasks),
        method::TASKS_GET | method::TASKS_RESULT | method::TASKS_CANCEL => {
            let id = request.string_param(&["taskId"]).map_err(RpcError::invalid_params)?;
            match id.is_some_and(|id| session.known_tasks.has(RunBy::Client, backend, &id.value)) {
                true => Ok(About::Other),
                false => Err(RpcError::invalid_params("`params.taskId` is the id of no task that this client runs for this server")),
            }
        }
        _ => Ok(if matches!(request.param(&["task"]), Ok(Some(_))) { About::Task } else { About::Other }),
    }
}

/// What has to change in the client's answer to such a question.
pub(super) fn answered(session: &Session, backend: usize, about: About, response: &Response) -> Edits {
    let mut edits = Edits::new();
    relate_to_server(session, backend, &response.raw, response.body_at.clone(), &mut edits);
    if about == About::Other || !response.ok {
        return edits;
    }
    let Ok(result) = Object::parse(&response.raw[response.body_at.clone()]) else { return edits };
    match about {
        About::Other => {}
        About::Task => {
            if let Some(id) = task_id(&result).and_then(json::string) {
                session.known_tasks.add(RunBy::Client, backend, &id);
            }
        }
        About::Tasks => {
            let tasks = result.only("tasks").and_then(json::array).unwrap_or_default();
            let places: Vec<_> = tasks.iter().map(|task| json::place(&response.raw, task)).collect();
            let of_another = |at: usize| {
                let id = Object::of(tasks[at]).and_then(|t| t.only("taskId").and_then(json::string));
                !id.is_some_and(|id| session.known_tasks.has(RunBy::Client, backend, &id))
            };
            drop_elements(&places, of_another, &mut edits);
        }
    }
    edits
}

/// The backend for which the client runs the task that it tells of.
pub(super) fn runs_for(session: &Session, notification: &Notification) -> Option<usize> {
    let several = session.host.backends.len() > 1;
    let id = notification.string_param(&["taskId"]).ok()??.value;
    if several { (0..session.host.backends.len()).find(|b| session.known_tasks.has(RunBy::Client, *b, &id)) } else { Some(0) }
}

/// Whether tools of this backend may say that they can be called as tasks: not to a client of the other era, nor where that would be
/// understood with what another server has announced.
pub(super) fn may_be_tasks(session: &Session, backend: usize) -> bool {
    let Some((_, hello)) = hellos(session).find(|(at, _)| *at == backend) else { return true };
    if hello.version.is_modern() != session.version().is_modern() {
        return false;
    }
    hello.version.is_modern() || takes_tasks(&hello) || !hellos(session).any(|(_, h)| takes_tasks(&h))
}

/// Takes out what the tools of a page say of tasks (2025-11-25 schema, `ToolExecution`).
pub(super) fn without_support(page: &mut Page) {
    if memchr::memmem::find(&page.raw, b"taskSupport").is_none() {
        return;
    }
    let mut edits = Edits::new();
    for item in &page.items {
        let execution =
            Object::parse(&page.raw[item.at.clone()]).ok().and_then(|tool| tool.only("execution").filter(|e| json::is_object(e)));
        if let Some(execution) = execution {
            // Read as an object a line before.
            let _ = splice(&page.raw, json::place(&page.raw, execution), |name| name == "taskSupport", "", &mut edits);
        }
    }
    page.shaped.extend(&edits);
}

/// The connected backends, each with what it said of itself.
fn hellos(session: &Session) -> impl Iterator<Item = (usize, Arc<ServerHello>)> {
    session.upstreams().iter().enumerate().filter_map(|(at, upstream)| match upstream.state() {
        State::Connected(hello) => Some((at, hello)),
        _ => None,
    })
}

/// No server of the session has this.
fn none(request: &Request) -> RpcError {
    RpcError::new(codes::METHOD_NOT_FOUND, format!("no server has `{}` for this client", request.method))
}

/// Whether ids of tasks differ between the two sides of the session.
fn mapped(session: &Session) -> bool {
    session.known_tasks.any() && session.host.backends.len() > 1
}

/// How the client knows a task of 2025-11-25. None: as its server does.
fn public(session: &Session, backend: usize, own: &str) -> Option<String> {
    (session.host.backends.len() > 1).then(|| format!("{}{SEPARATOR}{own}", session.host.backends[backend].name))
}

/// The backend and its own id.
fn own(session: &Session, public: &str) -> Option<(usize, String)> {
    if session.host.backends.len() < 2 {
        return Some((0, public.to_owned()));
    }
    let (name, own) = public.split_once(SEPARATOR)?;
    Some((session.host.backends.iter().position(|b| *b.name == *name)?, own.to_owned()))
}

/// `task.taskId` of a result (2025-11-25 schema, `CreateTaskResult`).
fn task_id<'a>(result: &Object<'a>) -> Option<&'a RawValue> {
    Object::of(result.only("task")?)?.only("taskId")
}

fn related<'a>(of: &Object<'a>) -> Option<&'a RawValue> {
    Object::of(Object::of(of.only("_meta")?)?.only(meta::RELATED_TASK)?)?.only("taskId")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Incoming;

    #[test]
    fn what_tools_say_of_tasks_goes_and_nothing_else() {
        let text = r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"a","execution":{"taskSupport":"required"},"x":1.0},{"name":"b","execution":{"y":1,"taskSupport":"optional"}},{"name":"c"}]}}"#;
        let Ok(Incoming::Response(response)) = Incoming::parse(Bytes::from_static(text.as_bytes())) else { panic!("no response") };
        let mut page = Page::of(ListOf::Named(lockgate_policy::Kind::Tool), &response).expect("a page");
        without_support(&mut page);
        let shaped = page.shaped.apply(&page.raw).into_bytes();
        let want = r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"a","execution":{},"x":1.0},{"name":"b","execution":{"y":1}},{"name":"c"}]}}"#;
        assert_eq!(shaped, want);
    }

    #[test]
    fn a_call_is_made_plain_without_touching_the_rest() {
        let text = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","task":{"ttl":1},"arguments":{"task":1.0}}}"#;
        let Ok(Incoming::Request(request)) = Incoming::parse(Bytes::from_static(text.as_bytes())) else { panic!("no request") };
        let mut edits = Edits::new();
        plain(&request, &mut edits);
        let want = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{"task":1.0}}}"#;
        assert_eq!(edits.apply(&request.raw).into_bytes(), want);
    }
}

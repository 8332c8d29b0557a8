//! Tasks of 2026-07-28 (the extension `io.modelcontextprotocol/tasks`, SEP-2663), between clients and servers of this era.
//!
//! The id that a client is given is sealed, and has in it which backend runs the task and under which id. So it leads there without a
//! table and on any connection, and cannot be made up: servers see only the gateway's credential, and would take it from anybody. It is
//! bound to principal and virtual host, and outlives the process where `modern.state_key` does.

use super::super::{Gateway, Refusal, shorten};
use super::Asking;
use super::listen::tagged;
use crate::protocol::json::{self, Object};
use crate::protocol::{Edits, Notification, Request, RequestId, RpcError, codes, meta, method};
use crate::session::streams::{Noted, Rule, StreamId};
use crate::session::{SUBSCRIPTIONS, Session, Watched};
use crate::telemetry::metrics::Dropped;
use bytes::Bytes;
use http::StatusCode;
use std::sync::Arc;

/// What a sealed id is for, so that nothing else that is sealed here can stand for it.
const PURPOSE: &str = "task";

/// Refuses what is about tasks where its client did not say that it knows of them.
pub(super) fn check(asking: &Asking<'_>) -> Result<(), Refusal> {
    let request = &asking.request;
    let about_tasks = match &*request.method {
        method::TASKS_GET | method::TASKS_UPDATE | method::TASKS_CANCEL => true,
        method::LISTEN => !matches!(request.param(&["notifications", "taskIds"]), Ok(None)),
        _ => false,
    };
    if !about_tasks || asking.client.client().declares.tasks {
        return Ok(());
    }
    let error = RpcError::new(codes::MISSING_CAPABILITY, format!("the request did not declare the capability `{}`", meta::TASKS))
        .with_data(serde_json::json!({ "requiredCapabilities": { "extensions": { meta::TASKS: {} } } }));
    Err(Refusal::new(StatusCode::BAD_REQUEST, error))
}

/// What an id is bound to: who may use it, and where.
fn bound(session: &Session) -> [&[u8]; 2] {
    let key = session.key();
    [key.principal.name().as_bytes(), key.virtual_host.as_bytes()]
}

impl Gateway {
    /// The task of a backend that `public` stands for. None for what was not sealed for the owner of this session.
    pub(in crate::gateway) fn open_task(&self, session: &Session, public: &str) -> Option<(usize, String)> {
        let plain = String::from_utf8(self.sealer.open(PURPOSE, &bound(session), public)?).ok()?;
        let (name, own) = plain.split_once('/')?;
        Some((session.host.backends.iter().position(|b| *b.name == *name)?, own.to_owned()))
    }

    /// Seals the id of the task that a backend has answered a call with.
    pub(super) fn publish_task(
        &self,
        session: &Session,
        backend: usize,
        raw: &Bytes,
        result: &Object<'_>,
        edits: &mut Edits,
    ) -> Result<(), RpcError> {
        let id = result.only("taskId").and_then(|id| Some((id, json::string(id)?)));
        let name = &session.host.backends[backend].name;
        let (id, own) =
            id.ok_or_else(|| RpcError::new(codes::BACKEND_PROTOCOL, format!("backend `{name}` answered with a task that has no id")))?;
        // No name of a backend has a slash in it.
        let public = self.sealer.seal(PURPOSE, &bound(session), format!("{name}/{own}").as_bytes())?;
        edits.replace(json::place(raw, id), json::quote(&public));
        Ok(())
    }

    /// Sees to it that the backends tell of the tasks that a request of `subscriptions/listen` names, and notes for its stream those of which
    /// they do.
    pub(super) async fn watch_tasks(&self, session: &Session, stream: StreamId, request: &Request) -> Result<(), RpcError> {
        let given = request.param(&["notifications", "taskIds"]).map_err(RpcError::invalid_params)?;
        let Some(given) = given else { return Ok(()) };
        let wrong = || RpcError::invalid_params("`params.notifications.taskIds` must be an array of strings");
        let ids: Vec<String> = json::array(given)
            .ok_or_else(wrong)?
            .into_iter()
            .map(|id| json::string(id).map(|i| i.into_owned()))
            .collect::<Option<_>>()
            .ok_or_else(wrong)?;
        for (at, public) in ids.iter().enumerate() {
            if ids[..at].contains(public) {
                continue;
            }
            if let Err(why) = self.watch_task(session, stream, public).await {
                tracing::info!(session = %session.tag(), task = %shorten(public), %why, "a task is left out of a subscription");
            }
        }
        Ok(())
    }

    async fn watch_task(&self, session: &Session, stream: StreamId, public: &str) -> Result<(), String> {
        let (backend, own) = self.open_task(session, public).ok_or("it is not known")?;
        if session.listeners.tasks() >= SUBSCRIPTIONS {
            return Err(format!("{SUBSCRIPTIONS} tasks are watched, which is the limit"));
        }
        let watched = session.listeners.watchers(backend, &own) > 0;
        // Noted first: what ends the stream in the middle takes it back.
        let task = Watched { public: public.to_owned(), backend, own };
        session.listeners.change(stream, |l| l.wanted.tasks.push(task.clone()));
        if watched {
            return Ok(());
        }
        let told = match session.upstreams().get(backend) {
            Some(upstream) => upstream.watch_task(&task.own).await,
            None => Err("its backend is gone".into()),
        };
        told.inspect_err(|_| session.listeners.change(stream, |l| l.wanted.tasks.retain(|wanted| *wanted != task)))
    }

    /// Of the tasks of a stream that is over: those that no other wants are watched no more.
    pub(super) fn unwatch_tasks(&self, session: &Session, tasks: Vec<Watched>) {
        for task in tasks {
            if let Some(upstream) = session.upstreams().get(task.backend)
                && session.listeners.watchers(task.backend, &task.own) == 0
            {
                upstream.unwatch_task(&task.own);
            }
        }
    }

    /// A server tells how one of its tasks is: so are the streams told that want it, each under its id. One that does not read is told
    /// the last of it.
    pub(in crate::gateway) async fn task_changed(self: &Arc<Self>, session: &Arc<Session>, backend: usize, notification: &Notification) {
        let Ok(Some(id)) = notification.string_param(&["taskId"]) else { return };
        let streams = session.listeners.of_task(backend, &id.value);
        let (Some(params), false, Ok(at)) = (notification.params_at.clone(), streams.is_empty(), self.names(session).await) else { return };
        let uris = self.publish_uris(session, &at, backend, (&notification.raw, params), &notification.method).await;
        for (stream, tag, public) in streams {
            let quoted = Bytes::from(json::quote(&public));
            let mut edits = uris.clone();
            edits.replace(id.at.clone(), quoted.clone());
            let (Some(message), Some(task)) = (tagged(&edits.apply(&notification.raw).into_bytes(), &tag), RequestId::from_raw(quoted))
            else {
                continue;
            };
            if session.streams.note(stream, message, Rule::Replace(task)).await == Noted::Dropped {
                self.metrics.notifications_dropped_total.inc(Dropped::NotRead);
            }
        }
    }
}

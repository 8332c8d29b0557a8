//! What a backend says outside of any call: changes, updates, logs, questions, and that it came or went.

use super::Gateway;
use super::capabilities::has;
use super::tasks;
use crate::backend::{FromServer, Letters, Outbound, ServerHello};
use crate::protocol::{Edits, Notification, Wire, codes, json, method};
use crate::session::streams::{Noted, Rule, STANDALONE, StreamId};
use crate::session::{Session, Topic};
use crate::telemetry::metrics::{Dropped, IsolationSignal};
use lockgate_policy::Kind;
use std::sync::Arc;

impl Gateway {
    /// Serves what has come into the inbox of one upstream, until there is no more or the session ends.
    pub(super) async fn serve_inbox(self: Arc<Self>, session: Arc<Session>, backend: usize, mut letters: Letters) {
        while let Some(message) = letters.take() {
            match message {
                FromServer::Up(hello) => {
                    session.count_upstream(backend, Some(self.metrics.backend_upstreams.enter(&session.host.backends[backend].name)));
                    // What is known of its tools may be from the time before. Of a backend that is new it was read a moment ago.
                    if session.has_come(backend) {
                        session.annotated.forget(backend);
                    }
                    self.backend_up(&session, backend, &hello).await;
                }
                FromServer::Down(reason) => {
                    session.count_upstream(backend, None);
                    tracing::warn!(session = %session.tag(), backend = %session.host.backends[backend].name, %reason, "backend went down");
                    session.asked.backend_gone(backend);
                    session.forget_routes();
                }
                FromServer::Notification(n) => self.server_notification(&session, backend, n, STANDALONE).await,
                FromServer::Request(r) => self.ask(&session, backend, r, STANDALONE).await,
            }
        }
    }

    /// A backend connected after the client was told without it, or anew: its lists are news.
    pub(super) async fn backend_up(self: &Arc<Self>, session: &Arc<Session>, backend: usize, hello: &Arc<ServerHello>) {
        if !session.is_registered() || !session.announce(backend, hello) {
            return;
        }
        tracing::info!(session = %session.tag(), backend = %session.host.backends[backend].name, "backend connected");
        session.lists_changed(backend);
        if let (Some(level), true, Some(upstream)) =
            (session.level(), has(&hello.capabilities, "logging"), session.upstreams().get(backend))
            && let Ok(mut call) = upstream.call(Outbound::own(level), session.host.backends[backend].timeouts.list).await
        {
            call.next().await;
        }
        for (capability, notification, topic) in [
            ("tools", method::TOOLS_CHANGED, Topic::Tools),
            ("prompts", method::PROMPTS_CHANGED, Topic::Prompts),
            ("resources", method::RESOURCES_CHANGED, Topic::Resources),
        ] {
            if has(&hello.capabilities, capability) {
                self.tell_change(session, STANDALONE, &topic, codes::notification(notification, None)).await;
            }
        }
    }

    /// A notification of a server, on its way to the client on `stream`.
    pub(super) async fn server_notification(
        self: &Arc<Self>,
        session: &Arc<Session>,
        backend: usize,
        notification: Notification,
        stream: StreamId,
    ) {
        let topic = match &*notification.method {
            method::TOOLS_CHANGED => {
                session.list_changed(Kind::Tool, backend);
                Topic::Tools
            }
            method::PROMPTS_CHANGED => {
                session.list_changed(Kind::Prompt, backend);
                Topic::Prompts
            }
            method::RESOURCES_CHANGED => {
                session.list_changed(Kind::Resource, backend);
                session.list_changed(Kind::ResourceTemplate, backend);
                Topic::Resources
            }
            method::RESOURCE_UPDATED => {
                if let Ok(Some(uri)) = notification.string_param(&["uri"]) {
                    let mut edits = Edits::new();
                    let public = self.updated_uri(session, backend, &uri.value).await.unwrap_or_else(|_| uri.value.clone());
                    if public != uri.value {
                        edits.replace(uri.at, json::quote(&public));
                    }
                    self.tell_change(session, stream, &Topic::Updated(public), edits.apply(&notification.raw)).await;
                }
                return;
            }
            method::CANCELLED => return self.withdraw(session, backend, &notification).await,
            method::PROGRESS => return self.metrics.isolation_signals_total.inc(IsolationSignal::UnknownProgressToken),
            method::TASK_CHANGED | method::TASK_STATUS if session.version().is_modern() => {
                // Those of older servers are not offered.
                if &*notification.method == method::TASK_CHANGED {
                    self.task_changed(session, backend, &notification).await;
                }
                return;
            }
            method::TASK_CHANGED => return,
            _ => {
                self.notify(session, stream, tasks::told(session, backend, &notification), false).await;
                return;
            }
        };
        // A change of lists: one notice is enough, however many backends say so.
        self.tell_change(session, stream, &topic, codes::notification(&notification.method, None)).await;
    }

    /// Tells the client of a change: on the stream that it came on, or, for clients of 2026-07-28, where they asked to be told.
    pub(super) async fn tell_change(&self, session: &Session, stream: StreamId, topic: &Topic, message: Wire) {
        if session.version().is_modern() {
            self.tell_listeners(session, topic, &message.into_bytes()).await;
        } else {
            self.notify(session, stream, message, true).await;
        }
    }

    /// Puts a notification on a stream. A client that does not read holds up this backend's messages for a moment; then one that can be
    /// merged is, and another is dropped and counted.
    async fn notify(&self, session: &Session, stream: StreamId, message: Wire, merge: bool) {
        if stream == STANDALONE && session.version().is_modern() {
            // Belongs to no request, and is nothing that could have been asked for.
            return;
        }
        let rule = if merge { Rule::Merge } else { Rule::Drop };
        if session.streams.note(stream, message, rule).await == Noted::Dropped {
            self.metrics.notifications_dropped_total.inc(Dropped::NotRead);
        }
    }
}

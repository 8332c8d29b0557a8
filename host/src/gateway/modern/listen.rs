//! subscriptions/listen (2026-07-28 patterns/subscriptions): one stream for all that a client wants to be told, from all its backends.
//!
//! First comes what is honoured of it, then changes as they come, each with the id of the request; a stream that the gateway ends has its
//! result last. Resources are subscribed at backends of older revisions as long as any stream of the chamber wants them.

use super::super::{Gateway, Refusal};
use super::Answering;
use crate::backend::{CallEvent, Outbound};
use crate::protocol::json::{self, Object};
use crate::protocol::members::splice;
use crate::protocol::{Edits, Incoming, Notification, Request, RpcError, Wire, codes, meta, method};
use crate::session::streams::{Noted, Rule, STANDALONE};
use crate::session::{LISTENS, Listener, SUBSCRIPTIONS, Session, Topic, Wanted};
use crate::telemetry::metrics::Dropped;
use bytes::Bytes;
use http::StatusCode;
use std::sync::Arc;

impl Gateway {
    /// Opens such a stream.
    pub(super) async fn listen_modern(self: &Arc<Self>, session: &Arc<Session>, request: Arc<Request>) -> Result<Answering, Refusal> {
        let refuse = |error: RpcError| Refusal::new(StatusCode::OK, error);
        let asked = wanted(&request).map_err(|why| refuse(RpcError::invalid_params(why)))?;
        let reader = session.streams.open();
        let (stream, id) = (reader.stream(), request.id.raw().clone());
        if !session.listeners.add(Listener { stream, id: id.clone(), wanted: asked.clone(), told: false }) {
            return Err(Refusal::overloaded(
                StatusCode::TOO_MANY_REQUESTS,
                format!("{LISTENS} streams of subscriptions/listen are open, which is the limit for one client; close one"),
            ));
        }
        let (gateway, of) = (Arc::downgrade(self), Arc::downgrade(session));
        let at_end = move || {
            let (Some(gateway), Some(session)) = (gateway.upgrade(), of.upgrade()) else { return };
            if let Some(listener) = session.listeners.remove(stream) {
                session.touch();
                gateway.release(&session, listener.wanted.uris);
                gateway.unwatch_tasks(&session, listener.wanted.tasks);
            }
        };
        // From here on whatever ends it, a client that hangs up among others, takes back what was subscribed by then.
        let listening = Answering::listening(self, session, request.clone(), reader, at_end);
        for (backend, hello) in self.settle(session).await.iter().enumerate() {
            if let Some(hello) = hello {
                // It was there before the stream was: no news.
                session.announce(backend, hello);
            }
        }
        for upstream in session.upstreams() {
            upstream.listen();
        }
        for uri in asked.uris {
            if let Err(why) = self.subscribe_for(session, &uri).await {
                tracing::info!(session = %session.tag(), %why, "a resource is left out of a subscription");
                session.listeners.change(stream, |l| l.wanted.uris.retain(|wanted| *wanted != uri));
            }
        }
        self.watch_tasks(session, stream, &request).await.map_err(refuse)?;
        let mut honoured = Wanted::default();
        session.listeners.change(stream, |l| honoured = l.wanted.clone());
        session.streams.note(stream, acknowledged(&honoured, &id), Rule::Keep).await;
        session.listeners.change(stream, |l| l.told = true);
        Ok(listening)
    }

    /// Sees to it that the backend tells of this resource.
    async fn subscribe_for(self: &Arc<Self>, session: &Arc<Session>, uri: &str) -> Result<(), String> {
        if session.subscription(uri).is_some() {
            return Ok(());
        }
        if session.subscriptions() >= SUBSCRIPTIONS {
            return Err(format!("{SUBSCRIPTIONS} resources are subscribed, which is the limit"));
        }
        let target = self.resolve_resource(session, uri).await.map_err(|e| e.message)?.target;
        session.subscribe(target.backend, target.name.to_string(), uri.to_owned());
        let subscribed = self.quietly(session, target.backend, method::RESOURCES_SUBSCRIBE, &target.name).await;
        if subscribed.is_err() {
            session.unsubscribe(target.backend, &target.name);
        }
        subscribed
    }

    /// Takes back the subscriptions that no stream wants any more, in a task of the session.
    fn release(self: &Arc<Self>, session: &Arc<Session>, uris: Vec<String>) {
        for uri in uris {
            if session.listeners.want(&Topic::Updated(uri.clone())) {
                continue;
            }
            let Some((backend, own)) = session.subscription(&uri) else { continue };
            session.unsubscribe(backend, &own);
            let (gateway, of) = (self.clone(), session.clone());
            session.spawn(async move {
                if let Err(why) = gateway.quietly(&of, backend, method::RESOURCES_UNSUBSCRIBE, &own).await {
                    tracing::debug!(session = %of.tag(), %why, "a subscription was not taken back");
                }
            });
        }
    }

    /// A request about one resource that the gateway makes itself.
    async fn quietly(self: &Arc<Self>, session: &Arc<Session>, backend: usize, of: &str, uri: &str) -> Result<(), String> {
        let upstream = session.upstreams().get(backend).ok_or("there is no such backend")?;
        let request = Request::own(of, &format!("{{\"uri\":{}}}", json::quote(uri)));
        let limit = session.host.backends[backend].timeouts.list;
        let mut call = upstream.call(Outbound::own(request), limit).await.map_err(|e| e.to_string())?;
        loop {
            match call.next().await {
                CallEvent::Answer(response) if response.ok => return Ok(()),
                CallEvent::Answer(response) => {
                    return Err(format!("the backend answered with error {}", response.error_code().unwrap_or_default()));
                }
                CallEvent::Failed(error) => return Err(error.to_string()),
                CallEvent::Notification(n) => self.server_notification(session, backend, n, STANDALONE).await,
                CallEvent::Request(r) => self.ask(session, backend, r, STANDALONE).await,
                CallEvent::Progress { .. } | CallEvent::Flow(_) => {}
            }
        }
    }

    /// Tells a change on the streams that want it.
    pub(in crate::gateway) async fn tell_listeners(&self, session: &Session, topic: &Topic, message: &Bytes) {
        for (stream, id) in session.listeners.of(topic) {
            let Some(tagged) = tagged(message, &id) else { continue };
            if session.streams.note(stream, tagged, Rule::Merge).await == Noted::Dropped {
                self.metrics.notifications_dropped_total.inc(Dropped::NotRead);
            }
        }
    }

    /// Ends the streams with their results: the gateway stops, or the chamber is closed.
    pub(in crate::gateway) fn end_listens(&self, session: &Session) {
        for listener in session.listeners.take() {
            let result = format!("{{\"resultType\":\"complete\",\"_meta\":{{\"{}\":{}}}}}", meta::SUBSCRIPTION_ID, text(&listener.id));
            let mut message = Wire::from(Bytes::from_static(b"{\"jsonrpc\":\"2.0\",\"id\":"));
            message.push(listener.id.clone());
            message.push(format!(",\"result\":{result}}}"));
            session.streams.answer(listener.stream, message, None, None);
            session.streams.finish(listener.stream);
        }
    }
}

/// What `params.notifications` asks for.
fn wanted(request: &Request) -> Result<Wanted, String> {
    let given = request.param(&["notifications"])?.ok_or("`params.notifications` is missing: it says what is to be told")?;
    let given = Object::of(given).ok_or("`params.notifications` must be an object")?;
    let flag = |name: &str| match given.get(name).map_err(|e| e.to_string())?.map(|v| v.get()) {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(_) => Err(format!("`params.notifications.{name}` must be a boolean")),
    };
    let list = |name: &str| -> Result<Vec<String>, String> {
        let Some(value) = given.get(name).map_err(|e| e.to_string())? else { return Ok(Vec::new()) };
        let wrong = || format!("`params.notifications.{name}` must be an array of strings");
        let items = json::array(value).ok_or_else(wrong)?;
        let mut texts: Vec<String> =
            items.into_iter().map(|v| json::string(v).map(|t| t.into_owned())).collect::<Option<_>>().ok_or_else(wrong)?;
        texts.sort_unstable();
        texts.dedup();
        Ok(texts)
    };
    Ok(Wanted {
        tools: flag("toolsListChanged")?,
        prompts: flag("promptsListChanged")?,
        resources: flag("resourcesListChanged")?,
        uris: list("resourceSubscriptions")?,
        tasks: Vec::new(),
    })
}

/// The first message: what is honoured.
fn acknowledged(wanted: &Wanted, id: &Bytes) -> Wire {
    let mut honoured = serde_json::Map::new();
    for (name, wanted) in
        [("toolsListChanged", wanted.tools), ("promptsListChanged", wanted.prompts), ("resourcesListChanged", wanted.resources)]
    {
        if wanted {
            honoured.insert(name.into(), true.into());
        }
    }
    if !wanted.uris.is_empty() {
        honoured.insert("resourceSubscriptions".into(), wanted.uris.clone().into());
    }
    if !wanted.tasks.is_empty() {
        honoured.insert("taskIds".into(), wanted.tasks.iter().map(|t| t.public.as_str()).collect());
    }
    let params =
        format!("{{\"notifications\":{},\"_meta\":{{\"{}\":{}}}}}", serde_json::Value::Object(honoured), meta::SUBSCRIPTION_ID, text(id));
    codes::notification(method::ACKNOWLEDGED, Some(&params))
}

/// A notification with the id of the stream that it is told on.
pub(super) fn tagged(message: &Bytes, id: &Bytes) -> Option<Wire> {
    let Ok(Incoming::Notification(Notification { raw, params_at, .. })) = Incoming::parse(message.clone()) else { return None };
    let tag = format!("\"{}\":{}", meta::SUBSCRIPTION_ID, text(id));
    let mut edits = Edits::new();
    let Some(params) = params_at else {
        let end = raw.iter().rposition(|&b| b == b'}')?;
        edits.replace(end..end, format!(",\"params\":{{\"_meta\":{{{tag}}}}}"));
        return Some(edits.apply(&raw));
    };
    let object = Object::parse(&raw[params.clone()]).ok()?;
    match object.only("_meta").filter(|m| json::is_object(m)) {
        Some(of) => splice(&raw, json::place(&raw, of), |name| name == meta::SUBSCRIPTION_ID, &tag, &mut edits),
        None => splice(&raw, params, |name| name == "_meta", &format!("\"_meta\":{{{tag}}}"), &mut edits),
    }
    .ok()?;
    Some(edits.apply(&raw))
}

/// JSON text that was read as a value before.
fn text(raw: &Bytes) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_told_has_the_id_of_its_stream_and_nothing_else_moves() {
        let tag = |text: &'static str| {
            let wire = tagged(&Bytes::from_static(text.as_bytes()), &Bytes::from_static(b"\"L\"")).expect("a notification");
            String::from_utf8(wire.into_bytes().to_vec()).expect("text")
        };
        assert_eq!(
            tag(r#"{"jsonrpc":"2.0","method":"x"} "#),
            r#"{"jsonrpc":"2.0","method":"x","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"L"}}} "#
        );
        assert_eq!(
            tag(r#"{"jsonrpc":"2.0","method":"x","params":{"uri":"a"}}"#),
            r#"{"jsonrpc":"2.0","method":"x","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"L"},"uri":"a"}}"#
        );
        assert_eq!(
            tag(r#"{"jsonrpc":"2.0","method":"x","params":{"_meta":{"v":1.0,"io.modelcontextprotocol/subscriptionId":7},"uri":"a"}}"#),
            r#"{"jsonrpc":"2.0","method":"x","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"L","v":1.0},"uri":"a"}}"#
        );
    }

    #[test]
    fn what_is_wanted_is_read_strictly() {
        let read = |params: &str| {
            let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{params}}}"#);
            let Ok(Incoming::Request(request)) = Incoming::parse(text.into()) else { panic!("no request") };
            wanted(&request)
        };
        let all = read(
            r#"{"notifications":{"toolsListChanged":true,"promptsListChanged":false,"resourceSubscriptions":["b","a","b"],"vendor":1}}"#,
        );
        assert_eq!(all, Ok(Wanted { tools: true, uris: vec!["a".into(), "b".into()], ..Wanted::default() }));
        for bad in [
            r#"{}"#,
            r#"{"notifications":[]}"#,
            r#"{"notifications":{"toolsListChanged":1}}"#,
            r#"{"notifications":{"resourceSubscriptions":[1]}}"#,
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}

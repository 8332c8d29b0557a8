//! tools/list, prompts/list, resources/list, resources/templates/list: one merged list, in the order of the configuration.
//!
//! Each page holds one page of every backend that has more; the cursor carries each backend's own. A backend that fails or is late is
//! left out, and the result says so in `_meta["lockgate/missing"]`: never silently.

use super::Gateway;
use super::job::{Job, Outcome};
use super::relay::Relayed;
use super::resolve::capable;
use super::tasks;
use crate::backend::{BackendError, CallEvent, Outbound, State};
use crate::catalog::cursor::Position;
use crate::catalog::items::{ListOf, Page};
use crate::catalog::keeping::{Keeping, is_of_the_era};
use crate::catalog::{Listed, Listing};
use crate::protocol::members::splice;
use crate::protocol::{Edits, Request, RpcError, Wire, codes, json};
use crate::session::Session;
use bytes::Bytes;
use lockgate_policy::Kind;
use std::sync::Arc;
use std::time::Duration;

/// Pages that are read of one backend to know its names.
const WALK_PAGES: usize = 1000;

/// The capability that a server has when it lists this kind.
pub(super) fn capability(kind: Kind) -> &'static str {
    match kind {
        Kind::Tool => "tools",
        Kind::Prompt => "prompts",
        Kind::Resource | Kind::ResourceTemplate => "resources",
    }
}

/// A backend's part of a page.
pub(super) struct Part {
    pub backend: usize,
    pub page: Page,
}

/// A backend that is left out, and why.
struct Missing {
    backend: usize,
    reason: String,
    error: Option<RpcError>,
}

/// What the backends gave for one page of a merged list.
pub(super) struct Gathered {
    of: ListOf,
    /// The client asked for the beginning.
    first: bool,
    pub parts: Vec<Part>,
    missing: Vec<Missing>,
}

/// The name of each item of each part; none: it is not shown.
pub(super) type Names = Vec<Vec<Option<Arc<str>>>>;

impl Gateway {
    pub(super) async fn list(self: &Arc<Self>, job: &Job, kind: Kind) -> Outcome {
        let session = job.session();
        if session.version().is_modern() {
            // There was no `initialize` that waited for them.
            self.settle(session).await;
        }
        let gathered = match self.gather(job, kind.into(), capable(session, kind)).await {
            Ok(gathered) => gathered,
            Err(ended) => return ended,
        };
        match self.merge(job, kind, gathered).await {
            Ok(answer) => Outcome::Answer(answer),
            Err(error) => error.into(),
        }
    }

    /// One page of each of `backends`, or of those that the cursor of the client says have more. The error is how the request ends.
    pub(super) async fn gather(self: &Arc<Self>, job: &Job, of: ListOf, backends: Vec<usize>) -> Result<Gathered, Outcome> {
        let session = job.session();
        let cursor = job.request.string_param(&["cursor"]).map_err(RpcError::invalid_params)?;
        let (positions, first) = match &cursor {
            None => (backends.into_iter().map(|b| (b, None)).collect::<Vec<_>>(), true),
            Some(cursor) => match self.cursors.open(session.scope(), of, &cursor.value) {
                Some(positions) => (
                    positions.into_iter().filter(|p| p.backend < session.upstreams().len()).map(|p| (p.backend, Some(p.cursor))).collect(),
                    false,
                ),
                None => {
                    return Err(RpcError::invalid_params("`params.cursor` is not a cursor that was given out here for this list").into());
                }
            },
        };
        let asked = positions.len();
        let requests = positions.into_iter().map(|(backend, own)| {
            let mut edits = Edits::new();
            if let (Some(own), Some(cursor)) = (own, &cursor) {
                edits.replace(cursor.at.clone(), json::quote(&own));
            }
            async move { (backend, self.page_of(job, of, backend, edits, first).await) }
        });
        let answers = tokio::select! {
            biased;
            () = job.control.cancelled() => return Err(Outcome::Cancelled),
            answers = futures_util::future::join_all(requests) => answers,
        };
        let mut parts = Vec::new();
        let mut missing = if first { down(session) } else { Vec::new() };
        for (backend, answer) in answers {
            match answer {
                Ok(page) => parts.push(Part { backend, page }),
                Err(error) => {
                    let name = &session.host.backends[backend].name;
                    tracing::warn!(session = %session.tag(), backend = %name, list = of.method(), error = %error.message, "left out of a list");
                    missing.push(Missing { backend, reason: error.message.clone(), error: Some(error) });
                }
            }
        }
        if parts.is_empty() && asked > 0 {
            // Every backend that was asked failed: an empty list would be a lie.
            let error = missing.into_iter().find_map(|m| m.error);
            return Err(error.unwrap_or_else(|| RpcError::new(codes::INTERNAL_ERROR, "no backend answered")).into());
        }
        Ok(Gathered { of, first, parts, missing })
    }

    async fn page_of(self: &Arc<Self>, job: &Job, of: ListOf, backend: usize, edits: Edits, first: bool) -> Result<Page, RpcError> {
        let session = job.session();
        let limit = session.host.backends[backend].timeouts.list.min(self.settings.list_timeout);
        // Progress of one of several lists means nothing to the client: the token is not passed on.
        let out = Outbound { edits, ..Outbound::own(job.request.clone()) };
        match self.send(job, backend, out, None, limit).await {
            Relayed::Answer(response) if response.ok => {
                let mut page = Page::of(of, &response);
                if let Ok(page) = &mut page {
                    if page.unnamed > 0 {
                        let backend = &session.host.backends[backend].name;
                        tracing::warn!(session = %session.tag(), %backend, items = page.unnamed, "items without a readable name were left out of a list");
                    }
                    if of == ListOf::Named(Kind::Tool) {
                        learn(session, Kind::Tool, backend, page, first);
                        if !tasks::may_be_tasks(session, backend) {
                            tasks::without_support(page);
                        }
                    }
                }
                page.map_err(|reason| BackendError::Protocol { backend: session.host.backends[backend].name.clone(), reason }.to_rpc())
            }
            Relayed::Answer(response) => {
                let code = response.error_code().unwrap_or(codes::INTERNAL_ERROR);
                let text = String::from_utf8_lossy(&response.body()).chars().take(300).collect::<String>();
                Err(RpcError::new(code, format!("backend `{}` answered with an error: {text}", session.host.backends[backend].name)))
            }
            Relayed::Failed(error) => Err(error.to_rpc()),
            Relayed::Refused(error) => Err(error),
            Relayed::Cancelled | Relayed::Flow(_) => Err(BackendError::Closed.to_rpc()),
        }
    }

    async fn merge(self: &Arc<Self>, job: &Job, kind: Kind, gathered: Gathered) -> Result<Wire, RpcError> {
        let session = job.session();
        let several = session.host.backends.len() > 1;
        let Gathered { first, parts, .. } = &gathered;
        let mut listed: Vec<Listed> = parts.iter().map(|p| Listed::of(p.backend, *first, &p.page)).collect();
        // Whether a URI is unique is known when every list has been read to its end.
        let urgent = several && matches!(kind, Kind::Resource | Kind::ResourceTemplate) && *first;
        if urgent && listed.iter().any(|l| !l.complete) {
            let rest = parts
                .iter()
                .filter(|p| p.page.next_cursor.is_some())
                .map(|p| async { (p.backend, self.walk(session, kind, p.backend, p.page.next_cursor.clone()).await) });
            for (backend, rest) in futures_util::future::join_all(rest).await {
                if let (Ok(items), Some(list)) = (rest, listed.iter_mut().find(|l| l.backend == backend)) {
                    list.items.extend(items);
                    list.complete = true;
                }
            }
        }
        let (at, names) = self.publish(session, kind, &listed).await?;
        at.table(kind).tell();
        Ok(self.page(job, &gathered, &names))
    }

    /// The page as the client gets it, each item under its name.
    pub(super) fn page(&self, job: &Job, gathered: &Gathered, names: &Names) -> Wire {
        let session = job.session();
        let Gathered { of, parts, missing, .. } = gathered;
        let positions: Vec<Position> =
            parts.iter().filter_map(|p| Some(Position { backend: p.backend, cursor: p.page.next_cursor.clone()? })).collect();
        let next = (!positions.is_empty()).then(|| json::quote(&self.cursors.seal(session.scope(), *of, &positions)));

        let keeping = session.version().is_modern().then(|| keeping(session, parts, missing));
        if let ([part], true, 1) = (&parts[..], missing.is_empty(), session.host.backends.len()) {
            return single(job, part, &names[0], next, keeping);
        }
        let mut out = Wire::new();
        out.push(Bytes::from_static(b"{\"jsonrpc\":\"2.0\",\"id\":"));
        out.push(job.id().raw().clone());
        out.push(format!(",\"result\":{{\"{}\":[", of.members().0));
        let mut any = false;
        for (part, names) in parts.iter().zip(names) {
            push_items(&mut out, &part.page, names, &mut any);
        }
        out.push(Bytes::from_static(b"]"));
        if let Some(keeping) = keeping {
            out.push(format!(",{}", keeping.members()));
        }
        if let Some(next) = next {
            out.push(format!(",\"nextCursor\":{next}"));
        }
        if !missing.is_empty() {
            let list: Vec<_> = missing
                .iter()
                .map(|m| serde_json::json!({ "backend": &*session.host.backends[m.backend].name, "reason": m.reason }))
                .collect();
            out.push(format!(",\"_meta\":{}", serde_json::json!({ "lockgate/missing": list })));
        }
        out.push(Bytes::from_static(b"}}"));
        out
    }

    /// The names of a backend's list from `cursor` on, or all of it.
    pub(super) async fn walk(
        self: &Arc<Self>,
        session: &Arc<Session>,
        kind: Kind,
        backend: usize,
        cursor: Option<String>,
    ) -> Result<Vec<Listing>, BackendError> {
        let limit = session.host.backends[backend].timeouts.list.min(self.settings.list_timeout);
        let walk = async {
            let mut items = Vec::new();
            let mut cursor = cursor;
            for _ in 0..WALK_PAGES {
                let params = cursor.as_ref().map_or("{}".to_owned(), |c| format!("{{\"cursor\":{}}}", json::quote(c)));
                let page = self.quiet_page(session, kind, backend, Request::own(ListOf::from(kind).method(), &params), limit).await?;
                learn(session, kind, backend, &page, cursor.is_none());
                items.extend(page.items.into_iter().map(|i| Listing::new(i.name, i.title.as_deref())));
                match page.next_cursor {
                    Some(next) if Some(&next) != cursor.as_ref() => cursor = Some(next),
                    _ => break,
                }
            }
            Ok(items)
        };
        let late = || BackendError::Timeout { backend: session.host.backends[backend].name.clone(), limit };
        tokio::time::timeout(limit, walk).await.unwrap_or_else(|_| Err(late()))
    }

    /// A page that the gateway reads for itself. What else comes on its stream has no call to belong to.
    async fn quiet_page(
        self: &Arc<Self>,
        session: &Arc<Session>,
        kind: Kind,
        backend: usize,
        request: Request,
        limit: Duration,
    ) -> Result<Page, BackendError> {
        let upstream = session.upstreams().get(backend).ok_or(BackendError::Closed)?;
        let mut call = upstream.call(Outbound::own(request), limit).await?;
        let broken = |reason: String| BackendError::Protocol { backend: upstream.name().clone(), reason };
        loop {
            match call.next().await {
                CallEvent::Answer(response) if response.ok => return Page::of(kind.into(), &response).map_err(broken),
                CallEvent::Answer(response) => {
                    return Err(broken(format!("a list was answered with error {}", response.error_code().unwrap_or_default())));
                }
                CallEvent::Failed(error) => return Err(error),
                CallEvent::Notification(n) => self.server_notification(session, backend, n, crate::session::streams::STANDALONE).await,
                CallEvent::Request(r) => self.ask(session, backend, r, crate::session::streams::STANDALONE).await,
                CallEvent::Progress { .. } | CallEvent::Flow(_) => {}
            }
        }
    }
}

/// Keeps what a page of tools says of headers, for clients that send these. `first`: it is the first page.
fn learn(session: &Session, kind: Kind, backend: usize, page: &Page, first: bool) {
    if kind == Kind::Tool && session.version().is_modern() {
        session.annotated.learn(backend, page, first && page.next_cursor.is_none());
    }
}

/// The backends of a session that are not connected.
fn down(session: &Session) -> Vec<Missing> {
    let reason = |state| match state {
        State::Connected(_) => None,
        State::Connecting => Some("still connecting".to_owned()),
        State::Down(why) => Some(why.to_string()),
        State::Closed => Some("closed".to_owned()),
    };
    session
        .upstreams()
        .iter()
        .enumerate()
        .filter_map(|(backend, u)| Some(Missing { backend, reason: reason(u.state())?, error: None }))
        .collect()
}

/// How a merged page may be kept by a client of 2026-07-28: as its parts may. Policies may show each principal other things, so that what is
/// public at a backend is so here only where there are no principals.
fn keeping(session: &Session, parts: &[Part], missing: &[Missing]) -> Keeping {
    let all = parts.iter().map(|p| p.page.keeping).reduce(Keeping::and).unwrap_or(Keeping::NOT);
    let ttl = if missing.is_empty() { all.ttl } else { 0 };
    Keeping { ttl, public: all.public && session.key().principal.is_anonymous() }
}

/// The result of the only backend, changed where names differ: everything else stays as it was sent.
fn single(job: &Job, part: &Part, names: &[Option<Arc<str>>], next: Option<String>, keeping: Option<Keeping>) -> Wire {
    let page = &part.page;
    let mut edits = page.shaped.clone();
    if page.unnamed > 0 || names.iter().any(Option::is_none) {
        edits = edits.outside(&page.items_at);
        let (mut items, mut any) = (Wire::new(), false);
        items.push(Bytes::from_static(b"["));
        push_items(&mut items, page, names, &mut any);
        items.push(Bytes::from_static(b"]"));
        edits.replace(page.items_at.clone(), items.into_bytes());
    } else {
        for (item, name) in page.items.iter().zip(names) {
            if let Some(name) = name.as_ref().filter(|n| **n != item.name) {
                edits.replace(item.name_at.clone(), json::quote(name));
            }
        }
    }
    if let (Some(at), Some(next)) = (&page.next_cursor_at, next) {
        edits.replace(at.clone(), next);
    }
    // The id stands where the page's message has its own.
    match crate::protocol::Incoming::parse(page.raw.clone()) {
        Ok(crate::protocol::Incoming::Response(response)) => {
            if let Some(keeping) = keeping {
                // Read as an object when it came.
                let _ = splice(&response.raw, response.body_at.clone(), is_of_the_era, &keeping.members(), &mut edits);
            }
            response.rewritten(job.id(), edits)
        }
        _ => RpcError::new(codes::INTERNAL_ERROR, "a list result could not be read again").to_message(Some(job.id())),
    }
}

fn push_items(out: &mut Wire, page: &Page, names: &[Option<Arc<str>>], any: &mut bool) {
    for (item, name) in page.items.iter().zip(names) {
        let Some(name) = name else { continue };
        if std::mem::replace(any, true) {
            out.push(Bytes::from_static(b","));
        }
        let mut edits = page.shaped.inside(&item.at);
        if *name != item.name {
            edits.replace(item.name_at.clone(), json::quote(name));
        }
        out.extend(edits.apply_in(&page.raw, item.at.clone()));
    }
}

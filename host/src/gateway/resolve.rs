//! From a published name or URI to the backend that has it.
//!
//! First the session's table, then the names that the client may still know from before a swap, then the policies (aliases, names
//! that carry their backend), then the lists that were not read yet. What is still unknown, or could mean two things, is refused:
//! never guessed. What a name stands for is then routed (`route`).

use super::list::capability;
use super::publish::policy_failed;
use super::route::Resolved;
use super::{Gateway, shorten};
use crate::backend::State;
use crate::catalog::{Found, Listed, Published, Target};
use crate::protocol::{RpcError, codes};
use crate::session::Session;
use lockgate_policy::{ItemHead, Kind};
use std::sync::Arc;

impl Gateway {
    /// A tool or prompt. For a name that is in the session's table this is a look-up, and allocates nothing.
    pub(super) async fn resolve(self: &Arc<Self>, session: &Arc<Session>, kind: Kind, public: &str) -> Result<Resolved, RpcError> {
        let at = self.names(session).await?;
        let (at, found) = match at.table(kind).find(public) {
            Some(found) => (at, found),
            None => Box::pin(self.unlisted(session, at, kind, public)).await?,
        };
        self.route(session, at, kind, public, found).await
    }

    /// A resource: by who published it, by a URI that names its backend, by who lists it, or by whose template it matches.
    pub(super) async fn resolve_resource(self: &Arc<Self>, session: &Arc<Session>, uri: &str) -> Result<Resolved, RpcError> {
        let at = self.names(session).await?;
        let (at, found) = self.resource(session, at, uri).await?;
        self.route(session, at, Kind::Resource, uri, found).await
    }

    /// A resource template, as completion refers to it. None where the text is no template that anyone published.
    pub(super) async fn resolve_template(self: &Arc<Self>, session: &Arc<Session>, template: &str) -> Result<Option<Resolved>, RpcError> {
        let kind = Kind::ResourceTemplate;
        let mut at = self.names(session).await?;
        let mut found = at.table(kind).find(template);
        if found.is_none() {
            at = self.read_lists(session, at, kind).await?;
            found = at.table(kind).find(template);
        }
        if found.is_none()
            && let [backend] = at.table(kind).owners(template)[..]
        {
            found = Some(Target { backend, name: template.into() }.into());
        }
        match found {
            Some(found) => self.route(session, at, kind, template, found).await.map(Some),
            None => Ok(None),
        }
    }

    /// What a name stands for that is not in the table.
    async fn unlisted(
        self: &Arc<Self>,
        session: &Arc<Session>,
        at: Arc<Published>,
        kind: Kind,
        public: &str,
    ) -> Result<(Arc<Published>, Found), RpcError> {
        let (at, found) = self.known_or_read(session, at, kind, public).await?;
        let found = found.ok_or_else(|| RpcError::invalid_params(format!("unknown {kind}: {}", shorten(public))))?;
        Ok((at, found))
    }

    /// What the table, the names before or the policies know, else what the lists say that were not read yet.
    async fn known_or_read(
        self: &Arc<Self>,
        session: &Arc<Session>,
        at: Arc<Published>,
        kind: Kind,
        public: &str,
    ) -> Result<(Arc<Published>, Option<Found>), RpcError> {
        if let Some(found) = known(session, &at, kind, public).await? {
            return Ok((at, Some(found)));
        }
        let read = self.read_lists(session, at.clone(), kind).await?;
        let mut found = read.table(kind).find(public);
        if found.is_none() && !Arc::ptr_eq(&at, &read) {
            // Meanwhile the policies were swapped: the call goes by the new ones, and from the start.
            found = known(session, &read, kind, public).await?;
        }
        Ok((read, found))
    }

    /// What a URI stands for, before it is routed.
    async fn resource(
        self: &Arc<Self>,
        session: &Arc<Session>,
        at: Arc<Published>,
        uri: &str,
    ) -> Result<(Arc<Published>, Found), RpcError> {
        let (at, found) = self.known_or_read(session, at, Kind::Resource, uri).await?;
        if let Some(found) = found {
            return Ok((at, found));
        }
        let at = self.read_lists(session, at, Kind::ResourceTemplate).await?;
        let name: Arc<str> = uri.into();
        let mut owners = at.table(Kind::Resource).owners(&name);
        if owners.is_empty() {
            owners = at.table(Kind::ResourceTemplate).template_owners(uri);
        }
        if owners.is_empty() {
            // Neither listed nor described: clear all the same where one backend has resources at all.
            owners = capable(session, Kind::Resource);
            if owners.len() > 1 {
                owners.clear();
            }
        }
        match owners[..] {
            [backend] => Ok((at, Target { backend, name }.into())),
            [] => Err(RpcError::new(codes::RESOURCE_NOT_FOUND, format!("resource not found: {}", shorten(uri)))
                .with_data(serde_json::json!({ "uri": uri }))),
            _ => {
                let mut candidates = Vec::new();
                for &backend in &owners {
                    candidates.push(publish_shared(session, &at, backend, Kind::Resource, uri).await?);
                }
                Err(RpcError::invalid_params(format!(
                    "{} backends have {}; use one of the URIs in `data.candidates`",
                    owners.len(),
                    shorten(uri)
                ))
                .with_data(serde_json::json!({ "uri": uri, "candidates": candidates })))
            }
        }
    }

    /// How a URI of `backend` that is not in its published list is told to the client: as it is where it leads back, else in the
    /// form that names the backend. Routers are not asked: this is about names, not about the use of one.
    pub(super) async fn public_uri(
        self: &Arc<Self>,
        session: &Arc<Session>,
        at: &Arc<Published>,
        backend: usize,
        uri: &str,
    ) -> Result<String, RpcError> {
        let target = Target { backend, name: uri.into() };
        if let Some(public) = at.table(Kind::Resource).public_of(&target) {
            return Ok(public.to_string());
        }
        if let Some(used) = session.subscribed_as(backend, uri) {
            return Ok(used);
        }
        match Box::pin(self.resource(session, at.clone(), uri)).await {
            Ok((_, found)) if found.target == target => Ok(uri.to_owned()),
            _ => publish_shared(session, at, backend, Kind::Resource, uri).await,
        }
    }

    /// How a URI that was updated is told: as the client subscribed to it, wherever that was routed.
    pub(super) async fn updated_uri(self: &Arc<Self>, session: &Arc<Session>, backend: usize, uri: &str) -> Result<String, RpcError> {
        match session.subscribed_as(backend, uri) {
            Some(used) => Ok(used),
            None => self.public_uri(session, &self.names(session).await?, backend, uri).await,
        }
    }

    /// Reads the lists that are not completely known yet, of all backends that answer. Answers the names with what was read: those of
    /// the policies that there are then.
    pub(super) async fn read_lists(
        self: &Arc<Self>,
        session: &Arc<Session>,
        at: Arc<Published>,
        kind: Kind,
    ) -> Result<Arc<Published>, RpcError> {
        if session.version().is_modern() {
            // There was no `initialize` that waited for them.
            self.settle(session).await;
        }
        let missing =
            |at: &Published| -> Vec<usize> { capable(session, kind).into_iter().filter(|&b| !at.table(kind).is_complete(b)).collect() };
        if missing(&at).is_empty() {
            return Ok(at);
        }
        // Behind a list that hangs the others do not queue up: they go by what is known.
        let Ok(Some(_turn)) = tokio::time::timeout(self.settings.list_timeout, session.walk_turn()).await else { return Ok(at) };
        let at = self.names(session).await?;
        let missing = missing(&at);
        let walks = missing.iter().map(|&backend| self.walk(session, kind, backend, None));
        let listed: Vec<Listed> = futures_util::future::join_all(walks)
            .await
            .into_iter()
            .zip(missing)
            .filter_map(|(items, backend)| Some(Listed { backend, first: true, complete: true, items: items.ok()? }))
            .collect();
        if listed.is_empty() { Ok(at) } else { Ok(self.publish(session, kind, &listed).await?.0) }
    }
}

/// What is known of a name without asking a backend.
async fn known(session: &Session, at: &Published, kind: Kind, public: &str) -> Result<Option<Found>, RpcError> {
    if let Some(found) = listed(session, at, kind, public).await? {
        return Ok(Some(found));
    }
    let target = at.chain().resolve(&session.view(), kind, public).await.map_err(|e| policy_failed(&e))?;
    Ok(target.and_then(|t| session.target(t)).map(Found::from))
}

/// What the lists say that the session was given: the present one, and the one before the last swap, as far as the present policies
/// show what it listed and have not given its name to something else.
pub(super) async fn listed(session: &Session, at: &Published, kind: Kind, public: &str) -> Result<Option<Found>, RpcError> {
    if let Some(found) = at.table(kind).find(public) {
        return Ok(Some(found));
    }
    let Some(Found { target, .. }) = at.older(kind).and_then(|older| older.find(public)) else { return Ok(None) };
    let view = session.view();
    if at.chain().alias(&view, kind, public).await.map_err(|e| policy_failed(&e))?.is_some() {
        return Ok(None);
    }
    let shown = match at.table(kind).shows(&target) {
        Some(shown) => shown,
        None => at.chain().shows(&view, kind, &session.policy_target(&target)).await.map_err(|e| policy_failed(&e))?,
    };
    Ok(shown.then(|| target.into()))
}

/// The form of a URI that names its backend.
async fn publish_shared(session: &Session, at: &Published, backend: usize, kind: Kind, uri: &str) -> Result<String, RpcError> {
    let head = ItemHead { backend: &session.host.backends[backend].name, name: uri, title: None, shared: true };
    let mut names = at.chain().publish(&session.view(), kind, &[head]).await.map_err(|e| policy_failed(&e))?;
    Ok(names.pop().flatten().unwrap_or_else(|| uri.to_owned()))
}

/// The connected backends of a session that have lists of this kind.
pub(super) fn capable(session: &Session, kind: Kind) -> Vec<usize> {
    let able = |upstream: &Arc<crate::backend::Upstream>| matches!(upstream.state(), State::Connected(hello) if super::capabilities::has(&hello.capabilities, capability(kind)));
    session.upstreams().iter().enumerate().filter(|(_, u)| able(u)).map(|(index, _)| index).collect()
}

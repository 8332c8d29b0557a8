//! From a published name or URI to the backend that has it.
//!
//! First the session's table, then the policies (aliases, names that carry their backend), then the lists that were not read yet.
//! What is still unknown, or could mean two things, is refused: never guessed.

use super::list::capability;
use super::publish::{Listed, policy_failed};
use super::{Gateway, shorten};
use crate::backend::State;
use crate::catalog::Target;
use crate::protocol::{RpcError, codes};
use crate::session::Session;
use lockgate_policy::{ItemHead, Kind};
use std::sync::Arc;

impl Gateway {
    /// A tool or prompt.
    pub(super) async fn resolve(self: &Arc<Self>, session: &Arc<Session>, kind: Kind, public: &str) -> Result<Target, RpcError> {
        if let Some(target) = self.known(session, kind, public).await? {
            return Ok(target);
        }
        self.read_lists(session, kind).await?;
        session.names.find(kind, public).ok_or_else(|| RpcError::invalid_params(format!("unknown {kind}: {}", shorten(public))))
    }

    /// A resource: by who published it, by a URI that names its backend, by who lists it, or by whose template it matches.
    pub(super) async fn resolve_resource(self: &Arc<Self>, session: &Arc<Session>, uri: &str) -> Result<Target, RpcError> {
        if let Some(target) = self.known(session, Kind::Resource, uri).await? {
            return Ok(target);
        }
        self.read_lists(session, Kind::Resource).await?;
        self.read_lists(session, Kind::ResourceTemplate).await?;
        if let Some(target) = session.names.find(Kind::Resource, uri) {
            return Ok(target);
        }
        let name: Arc<str> = uri.into();
        let mut owners = session.names.owners(Kind::Resource, &name);
        if owners.is_empty() {
            owners = session.names.template_owners(uri);
        }
        if owners.is_empty() {
            // Neither listed nor described: clear all the same where one backend has resources at all.
            owners = capable(session, Kind::Resource);
            if owners.len() > 1 {
                owners.clear();
            }
        }
        match owners[..] {
            [backend] => Ok(Target { backend, name }),
            [] => Err(RpcError::new(codes::RESOURCE_NOT_FOUND, format!("resource not found: {}", shorten(uri)))
                .with_data(serde_json::json!({ "uri": uri }))),
            _ => {
                let mut candidates = Vec::new();
                for &backend in &owners {
                    candidates.push(self.publish_shared(session, backend, Kind::Resource, uri).await?);
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

    /// A resource template, as completion refers to it. None where the text is no template that anyone published.
    pub(super) async fn resolve_template(self: &Arc<Self>, session: &Arc<Session>, template: &str) -> Result<Option<Target>, RpcError> {
        if let Some(target) = session.names.find(Kind::ResourceTemplate, template) {
            return Ok(Some(target));
        }
        self.read_lists(session, Kind::ResourceTemplate).await?;
        if let Some(target) = session.names.find(Kind::ResourceTemplate, template) {
            return Ok(Some(target));
        }
        let name: Arc<str> = template.into();
        Ok(match session.names.owners(Kind::ResourceTemplate, &name)[..] {
            [backend] => Some(Target { backend, name }),
            _ => None,
        })
    }

    /// How a URI of `backend` that is not in its published list is told to the client: as it is where it leads back, else in the
    /// form that names the backend.
    pub(super) async fn public_uri(self: &Arc<Self>, session: &Arc<Session>, backend: usize, uri: &str) -> Result<String, RpcError> {
        let target = Target { backend, name: uri.into() };
        if let Some(public) = session.names.public_of(Kind::Resource, &target) {
            return Ok(public.to_string());
        }
        if let Some(used) = session.subscribed_as(backend, uri) {
            return Ok(used);
        }
        match self.resolve_resource(session, uri).await {
            Ok(found) if found == target => Ok(uri.to_owned()),
            _ => self.publish_shared(session, backend, Kind::Resource, uri).await,
        }
    }

    /// The form of a URI that names its backend.
    async fn publish_shared(&self, session: &Session, backend: usize, kind: Kind, uri: &str) -> Result<String, RpcError> {
        let head = ItemHead { backend: &session.host.backends[backend].name, name: uri, title: None, shared: true };
        let mut names = session.host.policies.publish(&session.view(), kind, &[head]).await.map_err(|e| policy_failed(&e))?;
        Ok(names.pop().flatten().unwrap_or_else(|| uri.to_owned()))
    }

    /// What the table or the policies know at once.
    async fn known(&self, session: &Session, kind: Kind, public: &str) -> Result<Option<Target>, RpcError> {
        if let Some(target) = session.names.find(kind, public) {
            return Ok(Some(target));
        }
        let target = session.host.policies.resolve(&session.view(), kind, public).await.map_err(|e| policy_failed(&e))?;
        Ok(target.and_then(|t| Some(Target { backend: session.backend_index(&t.backend)?, name: t.name.into() })))
    }

    /// Reads the lists that are not completely known yet, of all backends that answer.
    pub(super) async fn read_lists(self: &Arc<Self>, session: &Arc<Session>, kind: Kind) -> Result<(), RpcError> {
        let missing = || -> Vec<usize> { capable(session, kind).into_iter().filter(|&b| !session.names.is_complete(kind, b)).collect() };
        if missing().is_empty() {
            return Ok(());
        }
        // Behind a list that hangs the others do not queue up: they go by what is known.
        let Ok(Some(_turn)) = tokio::time::timeout(self.settings.list_timeout, session.walk_turn()).await else { return Ok(()) };
        let missing = missing();
        let walks = missing.iter().map(|&backend| self.walk(session, kind, backend, None));
        let listed: Vec<Listed> = futures_util::future::join_all(walks)
            .await
            .into_iter()
            .zip(missing)
            .filter_map(|(items, backend)| Some(Listed { backend, first: true, complete: true, items: items.ok()? }))
            .collect();
        self.publish(session, kind, &listed).await.map(drop)
    }
}

/// The connected backends of a session that have lists of this kind.
pub(super) fn capable(session: &Session, kind: Kind) -> Vec<usize> {
    let able = |upstream: &Arc<crate::backend::Upstream>| matches!(upstream.state(), State::Connected(hello) if super::capabilities::has(&hello.capabilities, capability(kind)));
    session.upstreams().iter().enumerate().filter(|(_, u)| able(u)).map(|(index, _)| index).collect()
}

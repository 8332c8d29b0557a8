//! Published names: asks the policies what items are called, and notes it in the session.

use super::Gateway;
use crate::catalog::items::Page;
use crate::protocol::{RpcError, codes};
use crate::session::Session;
use lockgate_policy::{ItemHead, Kind, PolicyError};
use std::sync::Arc;

/// The items of one backend that are to be published.
pub(super) struct Listed {
    pub backend: usize,
    pub first: bool,
    pub complete: bool,
    /// Name and title.
    pub items: Vec<(Arc<str>, Option<String>)>,
}

impl Listed {
    pub fn of(backend: usize, first: bool, page: &Page) -> Self {
        Listed {
            backend,
            first,
            complete: page.next_cursor.is_none(),
            items: page.items.iter().map(|i| (i.name.clone(), i.title.clone())).collect(),
        }
    }
}

impl Gateway {
    /// The public name of each item (none: hidden), in the order given, and noted in the session's table.
    pub(super) async fn publish(&self, session: &Session, kind: Kind, listed: &[Listed]) -> Result<Vec<Vec<Option<Arc<str>>>>, RpcError> {
        // Pages that replace what is known first, so that names that are gone do not count as shared.
        for list in listed.iter().filter(|l| l.first) {
            session.names.record(kind, list.backend, true, false, []);
        }
        let shared = session.names.shared(kind, listed.iter().flat_map(|l| l.items.iter().map(move |(name, _)| (l.backend, &**name))));
        let heads: Vec<ItemHead<'_>> = listed
            .iter()
            .flat_map(|l| {
                let backend: &str = &session.host.backends[l.backend].name;
                let shared = &shared;
                l.items.iter().map(move |(name, title)| ItemHead {
                    backend,
                    name,
                    title: title.as_deref(),
                    shared: shared.contains(&**name),
                })
            })
            .collect();
        let published = session.host.policies.publish(&session.view(), kind, &heads).await.map_err(|e| policy_failed(&e))?;
        let mut published = published.into_iter().map(|name| name.map(Arc::<str>::from));
        Ok(listed
            .iter()
            .map(|list| {
                let names: Vec<Option<Arc<str>>> = list.items.iter().map(|_| published.next().flatten()).collect();
                let pairs = list.items.iter().map(|(name, _)| name.clone()).zip(names.iter().cloned());
                session.names.record(kind, list.backend, false, list.complete, pairs);
                names
            })
            .collect())
    }
}

/// A policy failed: the request is refused, and says which policy it was.
pub(super) fn policy_failed(error: &PolicyError) -> RpcError {
    tracing::warn!(%error, "policy failed");
    RpcError::new(codes::POLICY_FAILED, error.to_string())
}

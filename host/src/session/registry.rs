//! All live sessions. An id alone finds nothing: the whole key must match.

use super::{Principal, Session, SessionId, SessionKey, lock};
use dashmap::DashMap;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use tokio::time::Instant;

/// How many sessions there may be.
#[derive(Clone, Copy, Debug)]
pub struct RegistryLimits {
    pub per_principal: usize,
    pub total: usize,
}

pub struct Registry {
    sessions: DashMap<SessionId, Arc<Session>>,
    counts: Arc<Mutex<Counts>>,
    limits: RegistryLimits,
}

#[derive(Default)]
struct Counts {
    total: usize,
    by_principal: HashMap<Principal, usize>,
}

/// The right to be one of the sessions of a principal; given back by drop.
pub struct Place {
    principal: Principal,
    counts: Arc<Mutex<Counts>>,
}

/// What a key finds.
pub enum Found {
    Session(Arc<Session>),
    /// The id belongs to another principal or virtual host. For counting only: the answer is that of an unknown id.
    Foreign,
    Unknown,
}

/// No place: which bound was hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    Principal { limit: usize },
    Total { limit: usize },
}

impl Registry {
    pub fn new(limits: RegistryLimits) -> Self {
        Registry { sessions: DashMap::new(), counts: Arc::default(), limits }
    }

    pub fn reserve(&self, principal: &Principal) -> Result<Place, Full> {
        let mut counts = lock(&self.counts);
        if counts.total >= self.limits.total {
            return Err(Full::Total { limit: self.limits.total });
        }
        let own = counts.by_principal.entry(principal.clone()).or_default();
        if *own >= self.limits.per_principal {
            return Err(Full::Principal { limit: self.limits.per_principal });
        }
        *own += 1;
        counts.total += 1;
        Ok(Place { principal: principal.clone(), counts: self.counts.clone() })
    }

    pub fn insert(&self, session: Arc<Session>) {
        self.sessions.insert(session.id().clone(), session);
    }

    pub fn get(&self, key: &SessionKey) -> Found {
        match self.sessions.get(&key.id) {
            None => Found::Unknown,
            Some(session) if session.value().key() == key => Found::Session(session.value().clone()),
            Some(_) => Found::Foreign,
        }
    }

    /// Takes a session out: from now on its id is unknown. None when somebody else did.
    pub fn remove(&self, key: &SessionKey) -> Option<Arc<Session>> {
        self.sessions.remove_if(&key.id, |_, session| session.key() == key).map(|(_, s)| s)
    }

    /// The session of this principal that has been idle longest.
    pub fn longest_idle(&self, principal: &Principal) -> Option<Arc<Session>> {
        self.sessions
            .iter()
            .filter(|s| s.value().key().principal == *principal)
            .filter_map(|s| Some((s.value().idle_since()?, s.value().clone())))
            .min_by_key(|(since, _)| *since)
            .map(|(_, s)| s)
    }

    /// A snapshot of all sessions.
    pub fn all(&self) -> Vec<Arc<Session>> {
        self.sessions.iter().map(|s| s.value().clone()).collect()
    }

    /// Those for which `over(idle since, created)` holds.
    pub fn expired(&self, over: impl Fn(Option<Instant>, Instant) -> bool) -> Vec<Arc<Session>> {
        self.sessions.iter().filter(|s| over(s.value().idle_since(), s.value().created())).map(|s| s.value().clone()).collect()
    }

    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = lock(&self.counts);
        counts.total = counts.total.saturating_sub(1);
        if let Some(own) = counts.by_principal.get_mut(&self.principal) {
            *own = own.saturating_sub(1);
            if *own == 0 {
                counts.by_principal.remove(&self.principal);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_principal_cannot_take_the_places_of_another() {
        let registry = Registry::new(RegistryLimits { per_principal: 2, total: 3 });
        let (a, b) = (Principal::named("a".into()), Principal::named("b".into()));
        let first = registry.reserve(&a).ok();
        let _second = registry.reserve(&a).ok();
        assert_eq!(registry.reserve(&a).err(), Some(Full::Principal { limit: 2 }));
        let _third = registry.reserve(&b).ok();
        assert_eq!(registry.reserve(&b).err(), Some(Full::Total { limit: 3 }));
        drop(first);
        assert!(registry.reserve(&b).is_ok());
    }
}

//! What one session has found out about a backend and the others need not find out again: the eras that it speaks, and lists that it
//! allows to be shared. And what is the same in many sessions: headers that go out, and what the server says of itself.
//!
//! Shared by all sessions of a backend. Holds nothing that a session said, and no result that is not for everybody. What it knows
//! of eras is a property of the server (2026-07-28 versioning, "Backward Compatibility"), and is doubted when the server contradicts it.

use super::inner::lock;
use super::modern::cache::Cache;
use bytes::Bytes;
use http::HeaderMap;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use tokio::time::Instant;

/// A server that contradicts what was just found out is not asked again so soon.
const AGAIN: Duration = Duration::from_secs(5);
/// Entries and bytes of the lists that all sessions of a backend share.
const SHARED: (usize, usize) = (256, 4 << 20);

/// Sets of headers that sessions share: one for each revision, as long as the configuration is the same.
const HEADERS: usize = 16;

/// Texts, and bytes of each, that are kept for other sessions.
const TEXTS: usize = 8;
const TEXT: usize = 16 << 10;

/// How a conversation with a server begins, and what each request says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Era {
    /// Up to 2025-11-25: `initialize`, and a session.
    Legacy,
    /// From 2026-07-28 on: each request for itself.
    Modern,
}

/// Which eras a server speaks. None: nobody has asked it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Eras {
    pub legacy: Option<bool>,
    pub modern: Option<bool>,
}

/// Cheap to clone; clones know the same.
#[derive(Clone, Debug)]
pub struct Known(Arc<State>);

#[derive(Debug)]
struct State {
    eras: Mutex<(Eras, Option<Instant>)>,
    lists: Cache,
    /// Sets of headers that are in use.
    headers: Mutex<Vec<Weak<HeaderMap>>>,
    /// What the server says of itself, the latest last.
    texts: Mutex<VecDeque<Bytes>>,
}

impl Default for Known {
    fn default() -> Self {
        Known(Arc::new(State {
            eras: Mutex::default(),
            lists: Cache::new(SHARED.0, SHARED.1),
            headers: Mutex::default(),
            texts: Mutex::default(),
        }))
    }
}

impl Eras {
    /// The era to begin with for a client of the era `client`: its own, where that is not known to be useless, so that a server of
    /// both is spoken to without a bridge.
    pub fn first(self, client: Era) -> Era {
        match client {
            Era::Legacy if self.legacy == Some(false) && self.modern == Some(true) => Era::Modern,
            Era::Modern if self.modern == Some(false) && self.legacy != Some(false) => Era::Legacy,
            own => own,
        }
    }
}

impl Known {
    pub fn eras(&self) -> Eras {
        lock(&self.0.eras).0
    }

    /// The server was asked.
    pub fn found(&self, era: Era, speaks: bool) {
        let mut state = lock(&self.0.eras);
        match era {
            Era::Legacy => state.0.legacy = Some(speaks),
            Era::Modern => state.0.modern = Some(speaks),
        }
        state.1 = Some(Instant::now());
    }

    /// The server answered as one that does not speak this era. True: what is known is forgotten, or was corrected by another session,
    /// and it is to be asked again. False: it was asked a moment ago, and means what it says.
    pub fn doubt(&self, era: Era) -> bool {
        let mut state = lock(&self.0.eras);
        let speaks = match era {
            Era::Legacy => state.0.legacy,
            Era::Modern => state.0.modern,
        };
        if speaks == Some(true) && state.1.is_some_and(|asked| asked.elapsed() < AGAIN) {
            return false;
        }
        if speaks == Some(true) {
            state.0 = Eras::default();
            self.0.lists.clear();
        }
        true
    }

    /// The one of all equal sets of headers that are in use, none of which may name a session.
    pub fn headers(&self, of: Arc<HeaderMap>) -> Arc<HeaderMap> {
        let mut known = lock(&self.0.headers);
        if let Some(one) = known.iter().filter_map(Weak::upgrade).find(|one| *one == of) {
            return one;
        }
        known.retain(|set| set.strong_count() > 0);
        if known.len() < HEADERS {
            known.push(Arc::downgrade(&of));
        }
        of
    }

    /// The one of all equal texts that the server said lately.
    pub fn text(&self, of: Bytes) -> Bytes {
        let mut known = lock(&self.0.texts);
        if let Some(one) = known.iter().rev().find(|one| **one == of) {
            return one.clone();
        }
        if of.len() > TEXT {
            return of;
        }
        if known.len() >= TEXTS {
            known.pop_front();
        }
        known.push_back(of.clone());
        of
    }

    /// Lists that are for everybody.
    pub fn lists(&self) -> &Cache {
        &self.0.lists
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_just_found_out_is_not_doubted_and_what_is_doubted_is_forgotten() {
        let known = Known::default();
        assert_eq!((known.eras().first(Era::Legacy), known.eras().first(Era::Modern)), (Era::Legacy, Era::Modern));
        known.found(Era::Legacy, false);
        known.found(Era::Modern, true);
        assert_eq!(known.clone().eras().first(Era::Legacy), Era::Modern);
        assert!(!known.doubt(Era::Modern));
        lock(&known.0.eras).1 = Instant::now().checked_sub(AGAIN);
        assert!(known.doubt(Era::Modern));
        assert_eq!(known.eras(), Eras::default());
        // For another session, which has not heard of it.
        assert!(known.doubt(Era::Modern));
    }
}

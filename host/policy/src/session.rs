//! What a policy can see of a session, and the scratch state that policies keep in it. A [`SessionView`] is a snapshot that the
//! gateway makes for a call; [`Scratch`] belongs to the session and ends with it. Nothing here holds a key to any other session.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::quoted;
use crate::load::Policy;
use crate::warm::Warm;

/// Whether a backend can be called now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackendState {
    /// Initialised: it answers.
    Connected,
    /// On its way.
    Connecting,
    /// Not reachable; the gateway keeps trying.
    Down,
}

/// One backend of a session as policies see it.
#[derive(Clone, Debug)]
pub struct BackendView {
    /// The operator's name for it, unique in the session.
    pub name: Arc<str>,
    /// Its state when the view was made.
    pub state: BackendState,
}

/// What is known of a principal beyond its name: name of the claim to its value as JSON text. Policies see those that they are granted.
pub type Claims = BTreeMap<Arc<str>, Arc<str>>;

/// One session as policies see it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct SessionView {
    /// Who the session belongs to.
    pub principal: Arc<str>,
    /// What else is known of the principal.
    pub claims: Arc<Claims>,
    /// The virtual host that it was opened at.
    pub virtual_host: Arc<str>,
    /// All its backends in configured order, those that are down too: which names there are never depends on who is up.
    pub backends: Arc<[BackendView]>,
    /// What its policies keep; the same one in every view of the session.
    pub scratch: Arc<Scratch>,
    /// Its instances of policies; the same one in every view of the session, and of no other session.
    pub warm: Arc<Warm>,
}

/// The state that policies keep in one session: for each policy (by its configured name) a small map of its own.
/// Bounds, for each policy: [`KEY_BYTES`](Scratch::KEY_BYTES), [`VALUE_BYTES`](Scratch::VALUE_BYTES), and the keys and bytes of its
/// [`Limits`](crate::Limits). At a bound the guest gets an error that says which, and nothing is stored.
#[derive(Debug, Default)]
pub struct Scratch {
    by_policy: Mutex<HashMap<Arc<str>, Notes>>,
}

/// Why a value was not stored. The cases are those of the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quota {
    KeyTooLong,
    ValueTooLong,
    TooManyKeys,
    TooManyBytes,
}

#[derive(Debug, Default)]
struct Notes {
    values: HashMap<String, String>,
    bytes: usize,
}

// === impl SessionView ===

impl SessionView {
    /// Whether the session has a backend of this name, in whatever state.
    pub fn has_backend(&self, name: &str) -> bool {
        self.backends.iter().any(|b| &*b.name == name)
    }
}

// === impl Scratch ===

impl Scratch {
    /// Bytes of one key.
    pub const KEY_BYTES: usize = 128;
    /// Bytes of one value.
    pub const VALUE_BYTES: usize = 16 << 10;

    /// Empty.
    pub fn new() -> Arc<Scratch> {
        Arc::default()
    }

    /// What one policy finds when a session begins: for tests of policies. The error says which key does not fit into its limits.
    pub fn with(policy: &Policy, values: impl IntoIterator<Item = (String, String)>) -> Result<Arc<Scratch>, String> {
        let (scratch, limits) = (Scratch::new(), policy.limits());
        for (key, value) in values {
            let stored = scratch.remember(&policy.name, key.clone(), value, limits.state_keys, limits.state_bytes);
            stored.map_err(|quota| format!("{} does not fit into the state of a policy: {quota:?}", quoted(&key)))?;
        }
        Ok(scratch)
    }

    /// All that one policy remembers, by key.
    pub fn of(&self, policy: &str) -> BTreeMap<String, String> {
        self.lock().get(policy).map(|notes| notes.values.clone().into_iter().collect()).unwrap_or_default()
    }

    pub(crate) fn recall(&self, policy: &str, key: &str) -> Option<String> {
        self.lock().get(policy)?.values.get(key).cloned()
    }

    pub(crate) fn remember(&self, policy: &Arc<str>, key: String, value: String, keys: usize, bytes: usize) -> Result<(), Quota> {
        if key.len() > Self::KEY_BYTES {
            return Err(Quota::KeyTooLong);
        }
        if value.len() > Self::VALUE_BYTES {
            return Err(Quota::ValueTooLong);
        }
        let mut by_policy = self.lock();
        let notes = by_policy.entry(policy.clone()).or_default();
        let before = notes.values.get(&key).map(|old| key.len() + old.len());
        if before.is_none() && notes.values.len() >= keys {
            return Err(Quota::TooManyKeys);
        }
        let all = notes.bytes - before.unwrap_or(0) + key.len() + value.len();
        if all > bytes {
            return Err(Quota::TooManyBytes);
        }
        notes.bytes = all;
        notes.values.insert(key, value);
        Ok(())
    }

    pub(crate) fn forget(&self, policy: &str, key: &str) {
        if let Some(notes) = self.lock().get_mut(policy)
            && let Some(old) = notes.values.remove(key)
        {
            notes.bytes -= key.len() + old.len();
        }
    }

    /// Nothing panics under this lock and it is never held across an await; a poisoned one is still whole.
    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Notes>> {
        self.by_policy.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remember(scratch: &Scratch, policy: &Arc<str>, key: &str, value: String) -> Result<(), Quota> {
        scratch.remember(policy, key.to_owned(), value, 256, 64 << 10)
    }

    #[test]
    fn what_one_policy_remembers_another_does_not_recall() {
        let (scratch, a): (_, Arc<str>) = (Scratch::new(), "a".into());
        remember(&scratch, &a, "k", "v".into()).unwrap();
        assert_eq!(scratch.recall("a", "k").as_deref(), Some("v"));
        assert_eq!(scratch.recall("b", "k"), None);
        scratch.forget("b", "k");
        assert_eq!(scratch.recall("a", "k").as_deref(), Some("v"));
        scratch.forget("a", "k");
        assert_eq!(scratch.recall("a", "k"), None);
    }

    #[test]
    fn each_bound_refuses_and_leaves_what_was_there() {
        let (scratch, a): (_, Arc<str>) = (Scratch::new(), "a".into());
        assert_eq!(remember(&scratch, &a, &"k".repeat(129), String::new()), Err(Quota::KeyTooLong));
        assert_eq!(remember(&scratch, &a, "k", "v".repeat((16 << 10) + 1)), Err(Quota::ValueTooLong));
        for i in 0..256 {
            remember(&scratch, &a, &i.to_string(), String::new()).unwrap();
        }
        assert_eq!(remember(&scratch, &a, "one more", String::new()), Err(Quota::TooManyKeys));
        let mut stored = 0;
        while remember(&scratch, &a, &stored.to_string(), "v".repeat(16 << 10)).is_ok() {
            stored += 1;
        }
        assert_eq!(stored, 3, "four values of 16 KiB and the keys are more than 64 KiB");
        remember(&scratch, &a, "0", "short".into()).unwrap();
        remember(&scratch, &a, "3", "v".repeat(16 << 10)).expect("the bytes of a replaced value are free again");
        assert_eq!(scratch.recall("a", "0").as_deref(), Some("short"));
    }
}

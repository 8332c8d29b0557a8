//! What makes the types of the contract handy: JSON read into types of the policy's own, and small constructors.

use serde::de::{DeserializeOwned, Deserializer, Error};
use serde::{Deserialize, Serialize, Serializer};

use crate::{Backend, Failure, Kind, Level, Quota, Session, Target};

impl Session {
    /// This policy's configuration, read into a type of its own. Configuration that does not fit is [`Failure::BadSetting`] with
    /// the line, the column and what was expected, for the operator to read.
    pub fn setting_as<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        serde_json::from_str(&self.setting()).map_err(|e| Failure::BadSetting(e.to_string()))
    }

    /// A claim of the principal, read into a type; `None` if the principal does not have it, or this policy is not granted it. One
    /// that is there but does not fit is a failure: a rule that hangs on it must not be skipped.
    pub fn claim_as<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, Failure> {
        let Some(json) = self.claim(name) else { return Ok(None) };
        serde_json::from_str(&json).map(Some).map_err(|e| Failure::Other(format!("the claim {name:?} is not what is expected: {e}")))
    }

    /// What was stored for this session with [`remember_as`](Session::remember_as). `None` if nothing was, or if it does not fit `T`: state
    /// survives a swap of the code, so what is found may be what other code kept.
    pub fn recall_as<T: DeserializeOwned>(&self, key: &str) -> Option<T> {
        match serde_json::from_str(&self.recall(key)?) {
            Ok(value) => Some(value),
            Err(e) => {
                self.log(Level::Debug, &format!("what was remembered as {key:?} is no longer read: {e}"));
                None
            }
        }
    }

    /// Stores a value for this session, as JSON, in place of what was there. What does not fit into the session's state is a [`Failure`];
    /// a policy that can do without ignores it.
    pub fn remember_as<T: Serialize + ?Sized>(&self, key: &str, value: &T) -> Result<(), Failure> {
        let json = serde_json::to_string(value).map_err(|e| Failure::Other(format!("{key:?} cannot be written as JSON: {e}")))?;
        self.remember(key, &json).map_err(|quota| Failure::Other(format!("{key:?} was not remembered: {}", words(quota))))
    }

    /// The backend of this name, if the session has it.
    pub fn backend(&self, name: &str) -> Option<Backend> {
        self.backends().into_iter().find(|b| b.name == name)
    }

    /// Whether the session has a backend of this name, in whatever state.
    pub fn has_backend(&self, name: &str) -> bool {
        self.backend(name).is_some()
    }
}

impl Target {
    /// The thing of this own name at this backend.
    pub fn new(backend: impl Into<String>, name: impl Into<String>) -> Target {
        Target { backend: backend.into(), name: name.into() }
    }
}

fn words(quota: Quota) -> &'static str {
    match quota {
        Quota::KeyTooLong => "the key is too long",
        Quota::ValueTooLong => "the value is too long",
        Quota::TooManyKeys => "there are too many keys",
        Quota::TooManyBytes => "there are too many bytes in all",
    }
}

/// The names of the contract, for configuration, and what they stand for in the same order.
const NAMES: [&str; 4] = ["tool", "prompt", "resource", "resource-template"];
const KINDS: [Kind; 4] = [Kind::Tool, Kind::Prompt, Kind::Resource, Kind::ResourceTemplate];

impl<'de> Deserialize<'de> for Kind {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Kind, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(from)?;
        let found = NAMES.iter().position(|name| *name == text);
        found.map(|i| KINDS[i]).ok_or_else(|| D::Error::unknown_variant(&text, &NAMES))
    }
}

impl Serialize for Kind {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let at = KINDS.iter().position(|kind| kind == self).unwrap_or_default();
        to.serialize_str(NAMES[at])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_read_and_written_by_the_names_of_the_contract() {
        for (kind, name) in KINDS.into_iter().zip(NAMES) {
            assert_eq!(serde_json::to_string(&kind).unwrap(), format!("{name:?}"));
            assert_eq!(serde_json::from_str::<Kind>(&format!("{name:?}")).unwrap(), kind);
        }
        let why = serde_json::from_str::<Kind>("\"tol\"").unwrap_err().to_string();
        assert!(why.contains("unknown variant `tol`") && why.contains("resource-template"), "{why}");
    }
}

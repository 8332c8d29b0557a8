//! What must not be seen: tokens, header values, environment of children, keys.
//!
//! `Debug` and `Display` print `[redacted]`, so that a log line or an error that holds one by accident says nothing.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};

/// A secret; [`Secret::expose`] is the only way to its content.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Box<str>);

/// The key under which state that clients carry is sealed; [`StateKey::expose`] is the only way to it.
#[derive(Clone, PartialEq, Eq)]
pub struct StateKey([u8; 32]);

// === impl Secret ===

impl Secret {
    pub fn new(text: impl Into<Box<str>>) -> Self {
        Secret(text.into())
    }

    /// The content. Call it where it goes onto the wire or into a child's environment, and nowhere else.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl StateKey {
    pub(super) fn new(key: [u8; 32]) -> Self {
        StateKey(key)
    }

    /// The key. For who seals with it, and nobody else.
    pub fn expose(&self) -> [u8; 32] {
        self.0
    }
}

impl fmt::Debug for StateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Secret::new)
    }
}

impl JsonSchema for Secret {
    fn schema_name() -> Cow<'static, str> {
        "Secret".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["string", "number", "boolean"],
            "description": "Text that is never logged. `${NAME}` is replaced by that environment variable; a literal `${` is written `$${`.",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_does_not_print_itself() {
        let secret = Secret::new("hunter2");
        assert_eq!(format!("{secret} {secret:?} {:?}", Some(&secret)), "[redacted] [redacted] Some([redacted])");
        assert_eq!(secret.expose(), "hunter2");
        assert_eq!(format!("{:?}", StateKey::new([7; 32])), "[redacted]");
    }
}

//! Who may connect, as hashes: the tokens themselves are dropped when the file is read.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use lockgate_policy::Claims;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// The principal of a request that shows no token where none is asked for.
pub const ANONYMOUS: &str = "anonymous";

/// Who may connect. With tokens, only who shows one of them; without, anybody, as [`ANONYMOUS`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Auth {
    tokens: Vec<Token>,
    claims: HashMap<Arc<str>, Arc<Claims>>,
}

/// A bearer token's hash and whom it stands for.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    pub principal: Arc<str>,
    pub sha256: [u8; 32],
}

/// The hash of what operators show at the admin port.
#[derive(Clone, PartialEq, Eq)]
pub struct AdminToken([u8; 32]);

// === impl Auth ===

impl Auth {
    pub(super) fn new(tokens: Vec<Token>, claims: HashMap<Arc<str>, Arc<Claims>>) -> Self {
        Auth { tokens, claims }
    }

    /// The principals in the order of their tokens; none where anybody may connect.
    pub fn principals(&self) -> impl Iterator<Item = &Arc<str>> {
        self.tokens.iter().map(|token| &token.principal)
    }

    /// What is known of each principal beyond its name; those of whom nothing is known are left out.
    pub fn claims(&self) -> &HashMap<Arc<str>, Arc<Claims>> {
        &self.claims
    }

    /// True if a request needs no token.
    pub fn is_open(&self) -> bool {
        self.tokens.is_empty()
    }

    /// How many tokens are known.
    pub fn tokens(&self) -> usize {
        self.tokens.len()
    }

    /// Whom a bearer token stands for. Takes as long for a wrong token as for a right one.
    pub fn principal(&self, token: &[u8]) -> Option<&Arc<str>> {
        let shown = digest(token);
        let mut found = None;
        for token in &self.tokens {
            if bool::from(token.sha256.ct_eq(&shown)) {
                found = Some(&token.principal);
            }
        }
        found
    }
}

impl AdminToken {
    pub(super) fn new(token: &[u8]) -> Self {
        AdminToken(digest(token))
    }

    /// Whether this is it. Takes as long for a wrong one as for the right one.
    pub fn is(&self, shown: &[u8]) -> bool {
        self.0.ct_eq(&digest(shown)).into()
    }
}

impl fmt::Debug for AdminToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("principal", &self.principal).finish_non_exhaustive()
    }
}

pub(super) fn digest(token: &[u8]) -> [u8; 32] {
    Sha256::digest(token).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_known_by_its_hash_alone() {
        let token = |principal: &str, token: &str| Token { principal: principal.into(), sha256: digest(token.as_bytes()) };
        let auth = Auth::new(vec![token("ann", "one"), token("bob", "two"), token("bob", "three")], HashMap::new());
        assert_eq!(auth.principal(b"one").map(|p| &**p), Some("ann"));
        assert_eq!(auth.principal(b"three").map(|p| &**p), Some("bob"));
        assert_eq!(auth.principal(b""), None);
        assert!(!auth.is_open() && Auth::default().is_open());
        assert!(!format!("{auth:?}").contains("sha256"));
    }
}

//! Text that a client carries for the gateway, and can neither read, change nor make: `requestState` and task ids of 2026-07-28
//! (basic/patterns/mrtr: what comes back is the client's word until it is proven to be the server's own).
//!
//! Owns the form of such text and its keys. Knows nothing of what is in it, of expiry, or of how often it may be used.
//!
//! # Form
//! base64url without padding of `salt (24 bytes) ‖ ciphertext ‖ tag (16 bytes)`. Each message is encrypted by ChaCha20-Poly1305 (RFC 8439)
//! under a key of its own, HMAC-SHA256 of the salt under the sealer's key, with a nonce of zeroes. The salt is random: 192 bits do not
//! repeat, however many instances share a key for however many years, while a random 96-bit nonce under one key should not be used for
//! more than 2^32 messages. What the message is for and what it is bound to are authenticated with it, each part with its length, so
//! that no two lists of parts look the same.

use super::{RpcError, base64, codes};
use ring::{aead, hmac};
use std::fmt;

/// Bytes of plain text that can be sealed.
pub const MAX_PLAIN: usize = 64 * 1024;

const SALT: usize = 24;
const TAG: usize = 16;
/// The longest text that `seal` makes.
const MAX_TEXT: usize = (SALT + MAX_PLAIN + TAG).div_ceil(3) * 4;

/// Seals and opens under one key.
pub struct Sealer {
    key: hmac::Key,
}

impl Sealer {
    /// Opens what any sealer of the same key sealed, in this process or another.
    pub fn new(key: [u8; 32]) -> Self {
        Sealer { key: hmac::Key::new(hmac::HMAC_SHA256, &key) }
    }

    /// A sealer with a key that nobody else has and that ends with it.
    ///
    /// # Errors
    /// Internal error (-32603) when the system's random generator fails.
    pub fn generate() -> Result<Self, RpcError> {
        let mut key = [0; 32];
        random(&mut key)?;
        Ok(Self::new(key))
    }

    /// Text that opens only under this key, for the same `purpose` and the same `bound_to`, part by part.
    ///
    /// # Errors
    /// Internal error (-32603) when `plain` has more than [`MAX_PLAIN`] bytes, or the system's random generator fails.
    pub fn seal(&self, purpose: &str, bound_to: &[&[u8]], plain: &[u8]) -> Result<String, RpcError> {
        if plain.len() > MAX_PLAIN {
            return Err(failed(format!("{} bytes of state are more than the {MAX_PLAIN} that can be handed to a client", plain.len())));
        }
        let mut out = Vec::with_capacity(SALT + plain.len() + TAG);
        out.resize(SALT, 0);
        random(&mut out)?;
        let key = self.key_of(&out).ok_or_else(|| failed("a key could not be made"))?;
        out.extend_from_slice(plain);
        let tag =
            key.seal_in_place_separate_tag(nonce(), aad(purpose, bound_to), &mut out[SALT..]).map_err(|_| failed("encryption failed"))?;
        out.extend_from_slice(tag.as_ref());
        Ok(base64::encode_url(&out))
    }

    /// What was sealed. None for anything that this key did not seal for exactly this purpose and binding; which of them it was is not
    /// told, so that a client learns nothing by trying.
    pub fn open(&self, purpose: &str, bound_to: &[&[u8]], text: &str) -> Option<Vec<u8>> {
        if text.len() > MAX_TEXT {
            return None;
        }
        // Strict: there is one text for one message.
        let mut bytes = base64::decode_url(text.as_bytes())?;
        let (salt, sealed) = bytes.split_at_mut_checked(SALT)?;
        let plain = self.key_of(salt)?.open_in_place(nonce(), aad(purpose, bound_to), sealed).ok()?;
        Some(plain.to_vec())
    }

    /// The key of the message with this salt.
    fn key_of(&self, salt: &[u8]) -> Option<aead::LessSafeKey> {
        let key = aead::UnboundKey::new(&aead::CHACHA20_POLY1305, hmac::sign(&self.key, salt).as_ref()).ok()?;
        Some(aead::LessSafeKey::new(key))
    }
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sealer(…)")
    }
}

/// Each key encrypts one message, so that its nonce need not vary.
fn nonce() -> aead::Nonce {
    aead::Nonce::assume_unique_for_key([0; aead::NONCE_LEN])
}

fn aad(purpose: &str, bound_to: &[&[u8]]) -> aead::Aad<Vec<u8>> {
    let parts = || std::iter::once(purpose.as_bytes()).chain(bound_to.iter().copied());
    let mut all = Vec::with_capacity(parts().map(|part| 8 + part.len()).sum());
    for part in parts() {
        all.extend_from_slice(&(part.len() as u64).to_le_bytes());
        all.extend_from_slice(part);
    }
    aead::Aad::from(all)
}

fn random(bytes: &mut [u8]) -> Result<(), RpcError> {
    getrandom::fill(bytes).map_err(|e| failed(format!("the system's random generator failed: {e}")))
}

fn failed(why: impl Into<String>) -> RpcError {
    RpcError::new(codes::INTERNAL_ERROR, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sealed_opens_for_the_same_purpose_and_binding_only() {
        let sealer = Sealer::new([7; 32]);
        let text = sealer.seal("state", &[b"ann", b"/mcp"], b"\x00plain").unwrap();
        assert!(text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_'), "{text}");
        assert_eq!(Sealer::new([7; 32]).open("state", &[b"ann", b"/mcp"], &text).as_deref(), Some(&b"\x00plain"[..]));
        for (purpose, bound_to) in [
            ("task", &[&b"ann"[..], b"/mcp"][..]),
            ("state", &[b"bob", b"/mcp"]),
            ("state", &[b"/mcp", b"ann"]),
            ("state", &[b"ann/", b"mcp"]),
            ("state", &[b"ann/mcp"]),
            ("state", &[b"ann", b"/mcp", b""]),
            ("state", &[b"ann"]),
            ("state", &[]),
            ("", &[b"state", b"ann", b"/mcp"]),
        ] {
            assert_eq!(sealer.open(purpose, bound_to, &text), None, "{purpose} {bound_to:?}");
        }
        assert_eq!(Sealer::new([8; 32]).open("state", &[b"ann", b"/mcp"], &text), None);
        assert_eq!(Sealer::generate().unwrap().open("state", &[b"ann", b"/mcp"], &text), None);
    }

    #[test]
    fn whatever_is_changed_about_the_text_makes_it_nothing() {
        let sealer = Sealer::generate().unwrap();
        let text = sealer.seal("p", &[], b"some state").unwrap();
        let open = |text: &str| sealer.open("p", &[], text);
        assert!(open(&text).is_some());
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
            assert_eq!(open(std::str::from_utf8(&bytes).unwrap()), None, "byte {at}");
            assert_eq!(open(&text[..at]), None, "cut at {at}");
        }
        for bad in [format!("{text}="), format!("{text}A"), format!(" {text}"), format!("{text}\n"), "é".into(), "A".repeat(MAX_TEXT + 1)]
        {
            assert_eq!(open(&bad), None, "{bad:.80}");
        }
    }

    #[test]
    fn equal_plain_texts_are_not_seen_to_be_equal() {
        let sealer = Sealer::generate().unwrap();
        let texts: std::collections::HashSet<_> = (0..100).map(|_| sealer.seal("p", &[], b"same").unwrap()).collect();
        assert_eq!(texts.len(), 100);
        assert!(!format!("{sealer:?}").contains(char::is_numeric));
    }

    #[test]
    fn there_is_a_bound_and_up_to_it_all_lengths_work() {
        let sealer = Sealer::generate().unwrap();
        for length in [0, 1, 2, 3, MAX_PLAIN] {
            let plain = vec![b'x'; length];
            let text = sealer.seal("p", &[b"b"], &plain).unwrap();
            assert!(text.len() <= MAX_TEXT);
            assert_eq!(sealer.open("p", &[b"b"], &text), Some(plain));
        }
        assert_eq!(sealer.seal("p", &[], &vec![0; MAX_PLAIN + 1]).unwrap_err().code, codes::INTERNAL_ERROR);
    }
}

//! The cursor of a merged list: where each backend's own list goes on.
//!
//! Opaque for clients, and bound to one session and one kind of list by a keyed digest: a cursor that was made up, changed, or taken
//! from another session is invalid (-32602), never page one again.

use super::items::ListOf;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Where the list of one backend goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    #[serde(rename = "b")]
    pub backend: usize,
    /// The backend's own cursor; an empty one is a cursor too.
    #[serde(rename = "c")]
    pub cursor: String,
}

/// Seals cursors for one process.
pub struct Cursors {
    key: [u8; 32],
}

const DIGEST: usize = 16;

impl Cursors {
    pub fn new(key: [u8; 32]) -> Self {
        Cursors { key }
    }

    pub fn seal(&self, session: &str, of: ListOf, positions: &[Position]) -> String {
        // Plain data always serialises.
        let text = serde_json::to_vec(positions).unwrap_or_default();
        let mut out = hex(&self.digest(session, of, &text));
        out.push('.');
        out.push_str(&hex(&text));
        out
    }

    /// None for what this process did not seal for this session and list.
    pub fn open(&self, session: &str, of: ListOf, cursor: &str) -> Option<Vec<Position>> {
        let (digest, text) = cursor.split_once('.')?;
        let text = unhex(text)?;
        let genuine: bool = subtle::ConstantTimeEq::ct_eq(&self.digest(session, of, &text)[..], &unhex(digest)?[..]).into();
        genuine.then(|| serde_json::from_slice(&text).ok()).flatten()
    }

    fn digest(&self, session: &str, of: ListOf, text: &[u8]) -> [u8; DIGEST] {
        // The key comes first and all lengths are fixed or delimited; what is sealed is no secret, and an extension would not parse.
        let mut hash = Sha256::new();
        hash.update(self.key);
        hash.update(Sha256::digest(session.as_bytes()));
        hash.update(of.method().as_bytes());
        hash.update([0]);
        hash.update(Sha256::digest(text));
        hash.update(self.key);
        let full = hash.finalize();
        let mut short = [0; DIGEST];
        short.copy_from_slice(&full[..DIGEST]);
        short
    }
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes.iter().flat_map(|b| [DIGITS[usize::from(b >> 4)], DIGITS[usize::from(b & 15)]]).map(char::from).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |b: u8| char::from(b).to_digit(16).and_then(|d| u8::try_from(d).ok());
    let bytes = text.as_bytes();
    (bytes.len().is_multiple_of(2))
        .then(|| bytes.chunks_exact(2).map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockgate_policy::Kind;

    #[test]
    fn a_cursor_opens_only_where_it_was_sealed() {
        let cursors = Cursors::new([7; 32]);
        let positions = vec![Position { backend: 0, cursor: "".into() }, Position { backend: 2, cursor: "é\"".into() }];
        let text = cursors.seal("s1", Kind::Tool.into(), &positions);
        assert_eq!(cursors.open("s1", Kind::Tool.into(), &text), Some(positions));
        assert_eq!(cursors.open("s2", Kind::Tool.into(), &text), None);
        assert_eq!(cursors.open("s1", Kind::Prompt.into(), &text), None);
        for bad in ["", "zzz", "eyJhIjoxfQ==", "..", &text[1..], &format!("{text}00"), "é.é"] {
            assert_eq!(cursors.open("s1", Kind::Tool.into(), bad), None, "{bad}");
        }
    }
}

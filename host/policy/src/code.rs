//! Compiled code as it leaves a process: in a file of the cache, or from the process that compiles large components. Its envelope says which
//! component it is of, for which engine, and its checksum. Pure: reads and writes no file.

use std::fmt::Write as _;
use std::hash::{Hash, Hasher};

use sha2::{Digest, Sha256};

/// Code in its envelope.
pub(crate) struct Sealed(Vec<u8>);

/// Names the form of the envelope, and changes with it.
const MAGIC: &str = "lockgate-code/1";

/// Magic, key and checksum, a line each.
const HEADER: usize = MAGIC.len() + 1 + 64 + 1 + 64 + 1;

/// Why something in an envelope is not used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unfit {
    #[error("it is no compiled code of this form, or was cut off")]
    Form,
    #[error("it was compiled from another component, or for another engine")]
    Key,
    #[error("its checksum does not match")]
    Checksum,
}

/// What code is kept under: the component that it is of (SHA-256, hexadecimal), the engine and its settings, and the form that it is kept in.
pub(crate) fn key(component: &str, compatibility: &str) -> String {
    hex(&Sha256::digest(format!("{MAGIC}\n{component}\n{compatibility}")))
}

/// All that decides whether an engine can run a piece of code: version, settings, processor.
pub(crate) fn compatibility(engine: &wasmtime::Engine) -> String {
    struct Sha(Sha256);
    impl Hasher for Sha {
        fn write(&mut self, bytes: &[u8]) {
            self.0.update(bytes);
        }
        fn finish(&self) -> u64 {
            0
        }
    }
    let mut sha = Sha(Sha256::new());
    engine.precompile_compatibility_hash().hash(&mut sha);
    hex(&sha.0.finalize())
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, b| {
        let _ = write!(text, "{b:02x}");
        text
    })
}

// === impl Sealed ===

impl Sealed {
    pub(crate) fn new(key: &str, code: &[u8]) -> Sealed {
        let checksum = hex(&Sha256::digest(code));
        let mut sealed = Vec::with_capacity(HEADER + code.len());
        sealed.extend(format!("{MAGIC}\n{key}\n{checksum}\n").into_bytes());
        sealed.extend(code);
        Sealed(sealed)
    }

    /// What was read, if it is whole and is what is wanted.
    pub(crate) fn check(bytes: Vec<u8>, key: &str) -> Result<Sealed, Unfit> {
        let (header, code) = bytes.split_at_checked(HEADER).ok_or(Unfit::Form)?;
        let mut lines = header.split(|&b| b == b'\n');
        if lines.next() != Some(MAGIC.as_bytes()) {
            return Err(Unfit::Form);
        }
        if lines.next() != Some(key.as_bytes()) {
            return Err(Unfit::Key);
        }
        if lines.next() != Some(hex(&Sha256::digest(code)).as_bytes()) {
            return Err(Unfit::Checksum);
        }
        Ok(Sealed(bytes))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn code(&self) -> &[u8] {
        &self.0[HEADER.min(self.0.len())..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_taken_only_whole_and_for_what_it_was_made_for() {
        let key_of = |component: &str| key(component, "engine");
        let sealed = Sealed::new(&key_of("a"), b"code").bytes().to_vec();
        let check = |bytes: &[u8], component: &str| Sealed::check(bytes.to_vec(), &key_of(component)).map(|s| s.code().to_vec());
        assert_eq!(check(&sealed, "a").unwrap(), b"code");
        assert_eq!(check(&sealed, "b"), Err(Unfit::Key));
        assert_eq!(check(&sealed[..sealed.len() - 1], "a"), Err(Unfit::Checksum));
        assert_eq!(check(&sealed[..HEADER - 1], "a"), Err(Unfit::Form));
        assert_eq!(check(b"", "a"), Err(Unfit::Form));
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert!(check(&changed, "a").is_err(), "byte {at}");
        }
    }

    #[test]
    fn settings_that_change_code_change_its_key() {
        let of = |c: wasmtime::Config| compatibility(&wasmtime::Engine::new(&c).unwrap());
        let plain = || crate::engine::code_settings(1 << 32);
        assert_eq!(of(plain()), of(plain()));
        assert_ne!(of(plain()), of(crate::engine::code_settings(1 << 24)));
    }
}

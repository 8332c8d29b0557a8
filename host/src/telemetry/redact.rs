//! The forms in which ids and addresses may be logged.

use std::fmt;

use http::Uri;
use sha2::{Digest, Sha256};

/// A session id as logs show it: the first 12 hexadecimal digits of its SHA-256. Enough to follow one session through the log,
/// useless to whoever reads it there.
#[derive(Clone, Copy)]
pub struct SessionTag<'a>(pub &'a str);

/// An address without its query, which is where credentials hide: `https://host:port/path`.
#[derive(Clone, Copy)]
pub struct SafeUri<'a>(pub &'a Uri);

// === impl SessionTag ===

impl fmt::Display for SessionTag<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hash = Sha256::digest(self.0.as_bytes());
        hash.iter().take(6).try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for SessionTag<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

// === impl SafeUri ===

impl fmt::Display for SafeUri<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let (Some(scheme), Some(authority)) = (self.0.scheme_str(), self.0.authority()) {
            let host = authority.as_str().rsplit('@').next().unwrap_or_default();
            write!(f, "{scheme}://{host}")?;
        }
        f.write_str(self.0.path())?;
        if self.0.query().is_some() {
            f.write_str("?[redacted]")?;
        }
        Ok(())
    }
}

impl fmt::Debug for SafeUri<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_logged_by_a_short_hash() {
        let tag = SessionTag("3f9c-secret-session").to_string();
        assert_eq!(tag.len(), 12);
        assert!(tag.bytes().all(|b| b.is_ascii_hexdigit()));
        assert_eq!(tag, format!("{:?}", SessionTag("3f9c-secret-session")));
        assert_ne!(tag, SessionTag("another").to_string());
    }

    #[test]
    fn an_address_is_logged_without_what_it_may_hide() {
        let uri: Uri = "https://user:pw@example.com:8443/mcp?key=s3cret".parse().unwrap();
        assert_eq!(SafeUri(&uri).to_string(), "https://example.com:8443/mcp?[redacted]");
        assert_eq!(SafeUri(&"http://a/".parse().unwrap()).to_string(), "http://a/");
    }
}

//! The revisions of MCP that the gateway speaks.

use std::fmt;

/// A protocol revision, oldest first, so that `<` means "older than".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    V2024_11_05,
    V2025_03_26,
    V2025_06_18,
    V2025_11_25,
    /// Without sessions: every request says who asks. Never the outcome of `initialize`.
    V2026_07_28,
}

impl Version {
    /// The newest revision that begins with `initialize`.
    pub const LATEST: Version = Version::V2025_11_25;
    /// The revisions that begin with `initialize`.
    pub const ALL: [Version; 4] = [Version::V2024_11_05, Version::V2025_03_26, Version::V2025_06_18, Version::V2025_11_25];

    /// All that a client may speak at an endpoint, the newest first: what `server/discover` and the refusal of another revision tell.
    pub const SERVED: [Version; 5] =
        [Version::V2026_07_28, Version::V2025_11_25, Version::V2025_06_18, Version::V2025_03_26, Version::V2024_11_05];

    pub fn as_str(self) -> &'static str {
        match self {
            Version::V2024_11_05 => "2024-11-05",
            Version::V2025_03_26 => "2025-03-26",
            Version::V2025_06_18 => "2025-06-18",
            Version::V2025_11_25 => "2025-11-25",
            Version::V2026_07_28 => "2026-07-28",
        }
    }

    /// Whether each request carries its own metadata instead of a session's (2026-07-28 versioning: "modern").
    pub fn is_modern(self) -> bool {
        self >= Version::V2026_07_28
    }

    /// A revision as `initialize` and the version header of a session name it: never a modern one.
    pub fn parse(text: &str) -> Option<Version> {
        Self::ALL.into_iter().find(|v| v.as_str() == text)
    }

    /// What a server answers to a client that asks for `wanted`: the same if it knows it, else its own latest
    /// (2025-11-25 lifecycle, "Version Negotiation").
    pub fn negotiate(wanted: &str) -> Version {
        Self::parse(wanted).unwrap_or(Self::LATEST)
    }

    /// JSON-RPC batches were introduced by 2025-03-26 and removed by 2025-06-18.
    pub fn has_batches(self) -> bool {
        self == Version::V2025_03_26
    }

    /// Clients of 2025-11-25 know an SSE event with an id and empty data, sent first so that a stream can be resumed; older ones
    /// may fail to parse it.
    pub fn has_priming_event(self) -> bool {
        self >= Version::V2025_11_25
    }

    /// The `MCP-Protocol-Version` header came with 2025-06-18.
    pub fn has_version_header(self) -> bool {
        self >= Version::V2025_06_18
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn initialize_never_leads_to_a_modern_revision() {
        assert_eq!(Version::parse("2026-07-28"), None);
        assert_eq!(Version::negotiate("2026-07-28"), Version::V2025_11_25);
        assert!(Version::V2026_07_28.is_modern() && !Version::LATEST.is_modern());
    }
}

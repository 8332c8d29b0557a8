//! How long and for whom a result may be kept (2026-07-28 server/utilities/caching), and what kind of result it is (basic/index, "Result
//! type"): the members that results have had since that revision.

use crate::protocol::json::{self, Object};

pub const KIND: &str = "resultType";
const TTL: &str = "ttlMs";
const SCOPE: &str = "cacheScope";

/// How long, in milliseconds, and whether for everybody, a result may be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keeping {
    pub ttl: u64,
    pub public: bool,
}

impl Keeping {
    /// What says nothing of it is not kept.
    pub const NOT: Keeping = Keeping { ttl: 0, public: false };

    /// What a result says.
    pub fn read(result: &Object<'_>) -> Keeping {
        let ttl = result.only(TTL).and_then(|v| v.get().parse().ok()).unwrap_or(0);
        Keeping { ttl, public: result.only(SCOPE).and_then(json::string).is_some_and(|s| s == "public") }
    }

    /// Whether a result says it.
    pub fn is_said(result: &Object<'_>) -> bool {
        result.only(TTL).is_some() && result.only(SCOPE).is_some()
    }

    /// What holds for both together: the shorter time, and private wins.
    pub fn and(self, other: Keeping) -> Keeping {
        Keeping { ttl: self.ttl.min(other.ttl), public: self.public && other.public }
    }

    /// The members of a complete result that may be kept so, as JSON text without braces.
    pub fn members(self) -> String {
        let scope = if self.public { "public" } else { "private" };
        format!("\"{KIND}\":\"complete\",\"{TTL}\":{},\"{SCOPE}\":\"{scope}\"", self.ttl)
    }
}

/// Whether a member says what a result is or how it may be kept: taken out where others are put in.
pub fn is_of_the_era(name: &str) -> bool {
    matches!(name, KIND | TTL | SCOPE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shorter_time_holds_and_private_wins() {
        let all = Keeping { ttl: 5000, public: true };
        assert_eq!(all.and(Keeping { ttl: 10, public: true }), Keeping { ttl: 10, public: true });
        assert_eq!(all.and(Keeping::NOT), Keeping::NOT);
        let read = |text: &str| Keeping::read(&Object::parse(text.as_bytes()).expect("an object"));
        assert_eq!(read(r#"{"ttlMs":7,"cacheScope":"public"}"#), Keeping { ttl: 7, public: true });
        assert_eq!(read(r#"{"ttlMs":-7,"cacheScope":"all"}"#), Keeping::NOT);
    }
}

//! Shipped policy: names that the operator gave to other names.
//!
//! Its configuration, as JSON:
//!
//! ```json
//! {"aliases": [{"public": "now", "kind": "tool", "backend": "time", "name": "get_time"}]}
//! ```
//!
//! `kind` is `tool`, `prompt`, `resource` or `resource-template`; `name` is the own name (or URI, or URI template) at the backend. A public
//! name stands for one thing of each kind. Aliases of backends that a session does not have do not exist for it.

mod table;

use lockgate_sdk::{Alias, AliasEntry, Failure, Kind, Session, Target, export};

use table::Table;

struct Configured;

impl Alias for Configured {
    fn resolve(s: &Session, kind: Kind, public: &str) -> Result<Option<Target>, Failure> {
        let table = Table::read(&s.setting())?;
        let entry = table.of_kind(kind).find(|a| a.public == public);
        Ok(entry.map(|a| a.target()).filter(|t| s.backends().iter().any(|b| b.name == t.backend)))
    }

    fn publish(s: &Session, kind: Kind) -> Result<Vec<AliasEntry>, Failure> {
        let table = Table::read(&s.setting())?;
        let backends = s.backends();
        let here = table.of_kind(kind).filter(|a| backends.iter().any(|b| b.name == a.backend));
        Ok(here.map(|a| AliasEntry { public: a.public.clone(), target: a.target() }).collect())
    }
}

export!(Configured: alias);

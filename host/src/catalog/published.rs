//! All names of one session on one generation of its policies, and what the client may still know from the generation before.
//! Immutable but for what lists bring in. A request takes it once and keeps it, so that no call sees half of each.

use super::names::{Table, index};
use lockgate_policy::{Chain, Kind};
use std::sync::{Arc, OnceLock};

pub const KINDS: [Kind; 4] = [Kind::Tool, Kind::Prompt, Kind::Resource, Kind::ResourceTemplate];

/// The names that one chain of policies made.
pub struct Published {
    chain: Arc<Chain>,
    /// Made when they are first wanted: few sessions list all there is.
    tables: [OnceLock<Arc<Table>>; 4],
    /// The last names before these of which the client was given a list, kind by kind. Never more than one table of a kind.
    older: [Option<Arc<Table>>; 4],
}

// === impl Published ===

impl Published {
    /// Nothing is known yet.
    pub fn new(chain: Arc<Chain>) -> Self {
        Published { chain, tables: Default::default(), older: Default::default() }
    }

    /// What follows when another chain has named what is known: `tables` in the order of [`KINDS`].
    pub fn succeed(&self, chain: Arc<Chain>, tables: [Arc<Table>; 4]) -> Self {
        let older = KINDS.map(|kind| {
            let (now, older) = (&self.tables[index(kind)], &self.older[index(kind)]);
            now.get().filter(|now| now.is_told()).or(older.as_ref()).cloned()
        });
        for (new, old) in tables.iter().zip(&self.tables) {
            if let Some(old) = old.get() {
                new.follow(old);
            }
        }
        Published { chain, tables: tables.map(OnceLock::from), older }
    }

    /// The policies that made these names.
    pub fn chain(&self) -> &Arc<Chain> {
        &self.chain
    }

    pub fn table(&self, kind: Kind) -> &Arc<Table> {
        self.tables[index(kind)].get_or_init(Arc::default)
    }

    /// The tables of which something may be known.
    pub fn made(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.tables.iter().filter_map(OnceLock::get)
    }

    /// The table of a kind, if something may be known of it.
    pub fn made_of(&self, kind: Kind) -> Option<&Arc<Table>> {
        self.tables[index(kind)].get()
    }

    /// The names that the client may know from before.
    pub fn older(&self, kind: Kind) -> Option<&Arc<Table>> {
        self.older[index(kind)].as_ref()
    }

    /// The tables in the order of [`KINDS`], without the policies that made them.
    pub fn tables(&self) -> [Arc<Table>; 4] {
        KINDS.map(|kind| self.made_of(kind).cloned().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{Listed, Listing};
    use lockgate_policy::{Engine, EngineConfig};

    #[test]
    fn of_the_names_before_those_are_kept_that_the_client_was_told_last() {
        let engine = Engine::new(EngineConfig { pool_instances: 1, ..EngineConfig::default() }).unwrap();
        let chain = || Arc::new(Chain::new(engine.clone(), "/mcp".into(), Vec::new()));
        let tables = |name: &str| {
            let tables: [Arc<Table>; 4] = Default::default();
            let list = Listed { backend: 0, first: true, complete: true, items: vec![Listing::new("x".into(), None)] };
            tables[0].record(&[(&list, &[Some(name.into())])]);
            tables
        };
        let first = Published::new(chain()).succeed(chain(), tables("first"));
        assert!(first.older(Kind::Tool).is_none());
        first.table(Kind::Tool).tell();
        let second = first.succeed(chain(), tables("second"));
        // The client never saw the second: it still goes by the first.
        let third = second.succeed(chain(), tables("third"));
        for later in [&second, &third] {
            assert!(later.older(Kind::Tool).is_some_and(|older| older.find("first").is_some()));
        }
        third.table(Kind::Tool).tell();
        let fourth = third.succeed(chain(), tables("fourth"));
        let older = fourth.older(Kind::Tool).unwrap();
        assert!(older.find("third").is_some() && older.find("first").is_none());
        assert!(fourth.older(Kind::Prompt).is_none());
    }
}

//! The configured aliases: read from JSON and checked, with words for the operator.

use std::collections::HashSet;

use lockgate_sdk::{Failure, Kind, Target};
use serde::Deserialize;

/// The whole configuration of this policy. `null` is the empty one.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    #[serde(default)]
    aliases: Vec<Entry>,
}

/// One alias.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    pub public: String,
    kind: Kind,
    pub backend: String,
    pub name: String,
}

impl Table {
    /// Reads it; refuses what does not fit and public names that stand for two things.
    pub fn read(json: &str) -> Result<Table, Failure> {
        let table: Option<Table> = serde_json::from_str(json).map_err(|e| Failure::BadSetting(e.to_string()))?;
        let table = table.unwrap_or_default();
        let mut seen = HashSet::new();
        match table.aliases.iter().find(|a| !seen.insert((a.kind, &a.public))) {
            Some(twice) => Err(Failure::BadSetting(format!("the alias {:?} is there twice for the same kind: remove one", twice.public))),
            None => Ok(table),
        }
    }

    /// The aliases of one kind, in configured order.
    pub fn of_kind(&self, kind: Kind) -> impl Iterator<Item = &Entry> {
        self.aliases.iter().filter(move |a| a.kind == kind)
    }
}

impl Entry {
    /// What it stands for.
    pub fn target(&self) -> Target {
        Target { backend: self.backend.clone(), name: self.name.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(json: &str) -> String {
        match Table::read(json) {
            Err(Failure::BadSetting(why)) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_alias_is_found_under_its_kind_alone() {
        let json = r#"{"aliases":[
            {"public":"now","kind":"tool","backend":"time","name":"get_time"},
            {"public":"now","kind":"resource-template","backend":"time","name":"time://{zone}"}]}"#;
        let table = Table::read(json).unwrap();
        let names = |kind| table.of_kind(kind).map(|a| a.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(Kind::Tool), ["get_time"]);
        assert_eq!(names(Kind::ResourceTemplate), ["time://{zone}"]);
        assert!(names(Kind::Prompt).is_empty());
    }

    #[test]
    fn no_configuration_is_no_aliases() {
        for empty in ["null", "{}", r#"{"aliases":[]}"#] {
            assert!(Table::read(empty).unwrap().aliases.is_empty(), "{empty}");
        }
    }

    #[test]
    fn what_does_not_fit_is_refused_with_the_reason() {
        assert!(refusal(r#"{"alias":[]}"#).contains("unknown field `alias`"));
        assert!(refusal(r#"{"aliases":[{"public":"now","kind":"tol","backend":"t","name":"n"}]}"#).contains("unknown variant `tol`"));
        assert!(refusal(r#"{"aliases":[{"public":"now","kind":"tool","backend":"t"}]}"#).contains("missing field `name`"));
        let twice = r#"{"public":"now","kind":"tool","backend":"t","name":"n"}"#;
        assert!(refusal(&format!(r#"{{"aliases":[{twice},{twice}]}}"#)).contains("\"now\" is there twice"));
    }
}

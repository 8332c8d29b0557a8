//! `${NAME}` and `${NAME:-default}` in values, from the environment. `$${` stands for a literal `${`.
//!
//! Only scalar values are touched: a key never changes, and what a variable holds can never become structure (it is not
//! parsed again). A missing variable prunes its value and is reported once, with the name and never with a content.

use super::tree::{Doc, Kind, Node};
use crate::config::problem::Problem;
use crate::config::problem::Problems;

/// Looks a variable up. A parameter, so that tests need not touch the process environment.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Expands every scalar value of the document.
pub fn expand(doc: &mut Doc, lookup: Lookup<'_>, problems: &mut Problems) {
    let mut failed = Vec::new();
    walk(&mut doc.root, lookup, &mut failed);
    for (id, message) in failed {
        problems.push(Problem::new(doc.node_place(id, false), message));
        doc.prune(id);
    }
}

fn walk(node: &mut Node, lookup: Lookup<'_>, failed: &mut Vec<(u32, String)>) {
    match &mut node.kind {
        Kind::List(items) => items.iter_mut().for_each(|n| walk(n, lookup, failed)),
        Kind::Map(entries) => entries.iter_mut().for_each(|e| walk(&mut e.value, lookup, failed)),
        Kind::Scalar(scalar) if scalar.text.contains("${") => match text(&scalar.text, lookup) {
            Ok(expanded) => {
                scalar.written = Some(std::mem::replace(&mut scalar.text, expanded));
                scalar.plain = false;
            }
            Err(message) => failed.push((node.id, message)),
        },
        Kind::Scalar(_) => {}
    }
}

fn text(mut rest: &str, lookup: Lookup<'_>) -> Result<String, String> {
    let mut out = String::with_capacity(rest.len());
    while let Some(at) = rest.find("${") {
        if rest[..at].ends_with('$') {
            out.push_str(&rest[..at - 1]);
            out.push_str("${");
            rest = &rest[at + 2..];
            continue;
        }
        out.push_str(&rest[..at]);
        let Some(end) = rest[at..].find('}').map(|n| at + n) else {
            return Err("`${` without `}`; write `$${` for a literal `${`".to_owned());
        };
        out.push_str(&variable(&rest[at + 2..end], lookup)?);
        rest = &rest[end + 1..];
    }
    out.push_str(rest);
    Ok(out)
}

fn variable(inside: &str, lookup: Lookup<'_>) -> Result<String, String> {
    let inside = inside.strip_prefix("env:").unwrap_or(inside);
    let (name, default) = match inside.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inside, None),
    };
    let starts_well = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if !starts_well || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        return Err(format!(
            "`${{{inside}}}` does not name an environment variable; write `${{NAME}}` or `${{NAME:-default}}`, or `$${{` for a literal `${{`"
        ));
    }
    match (lookup(name), default) {
        (Some(value), None) => Ok(value),
        (Some(value), Some(_)) if !value.is_empty() => Ok(value),
        (_, Some(default)) => Ok(default.to_owned()),
        (None, None) => Err(format!("environment variable {name} is not set; set it, or give a default with `${{{name}:-…}}`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(name: &str) -> Option<String> {
        match name {
            "TOKEN" => Some("s3cret".into()),
            "EMPTY" => Some(String::new()),
            "TRICKY" => Some("${TOKEN}".into()),
            _ => None,
        }
    }

    #[test]
    fn variables_defaults_and_escapes_are_expanded_once() {
        let ok = |s: &str| text(s, &env).unwrap();
        assert_eq!(ok("Bearer ${TOKEN}!"), "Bearer s3cret!");
        assert_eq!(ok("${env:TOKEN}"), "s3cret");
        assert_eq!(ok("${NONE:-a b}"), "a b");
        assert_eq!(ok("${EMPTY:-x}"), "x");
        assert_eq!(ok("[${EMPTY}]"), "[]");
        assert_eq!(ok("$${TOKEN} $TOKEN"), "${TOKEN} $TOKEN");
        assert_eq!(ok("${TRICKY}"), "${TOKEN}");
    }

    #[test]
    fn a_missing_or_malformed_variable_is_named() {
        let err = |s: &str| text(s, &env).unwrap_err();
        assert!(err("${NONE}").starts_with("environment variable NONE is not set"));
        assert!(err("${input:key}").contains("`${input:key}` does not name"));
        assert!(err("${TOKEN").contains("without `}`"));
    }
}

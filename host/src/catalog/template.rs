//! Whether a URI can have been made from a URI template (RFC 6570), for finding the backend that owns it.
//!
//! Simulated over all positions at once, so that no template and no URI costs more than their lengths multiplied.

/// Bytes of template and of URI that are looked at; longer ones match nothing.
const LIMIT: usize = 8 * 1024;

#[derive(Debug, PartialEq, Eq)]
enum Part<'a> {
    Literal(&'a [u8]),
    /// One or more bytes that are not reserved: `{var}`.
    Simple,
    /// Anything, also nothing: `{+var}`, `{#var}`, `{/var}`, `{?var}` and the other operators.
    Any,
}

fn parts(template: &str) -> Option<Vec<Part<'_>>> {
    let mut parts = Vec::new();
    let mut rest = template;
    while let Some(open) = rest.find('{') {
        let close = rest[open..].find('}')? + open;
        if open > 0 {
            parts.push(Part::Literal(&rest.as_bytes()[..open]));
        }
        let expression = &rest[open + 1..close];
        parts.push(match expression.as_bytes().first()? {
            b'+' | b'#' | b'.' | b'/' | b';' | b'?' | b'&' => Part::Any,
            _ => Part::Simple,
        });
        rest = &rest[close + 1..];
    }
    if !rest.is_empty() {
        parts.push(Part::Literal(rest.as_bytes()));
    }
    Some(parts)
}

/// Reserved characters end a simple expansion; a comma may be part of a list value.
fn is_simple(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'-' | b'.' | b'_' | b'~' | b'%' | b',' | b'=' | b'@' | b':' | b'!' | b'$' | b'\'' | b'(' | b')' | b'*' | b'+' | b' '
        )
        || !byte.is_ascii()
}

/// A template without an expression, or one that is not well formed, matches only its own text.
pub fn matches(template: &str, uri: &str) -> bool {
    if template.len() > LIMIT || uri.len() > LIMIT {
        return false;
    }
    let Some(parts) = parts(template) else { return template == uri };
    let uri = uri.as_bytes();
    // Cheap and common: what a template begins with.
    if let Some(Part::Literal(prefix)) = parts.first()
        && !uri.starts_with(prefix)
    {
        return false;
    }
    let mut at = vec![false; uri.len() + 1];
    at[0] = true;
    for part in parts {
        let mut next = vec![false; uri.len() + 1];
        match part {
            Part::Literal(text) => {
                for (from, _) in at.iter().enumerate().filter(|(_, reached)| **reached) {
                    if uri[from..].starts_with(text) {
                        next[from + text.len()] = true;
                    }
                }
            }
            Part::Simple | Part::Any => {
                let mut open = false;
                for position in 0..=uri.len() {
                    let extends = open && position > 0 && (part == Part::Any || is_simple(uri[position - 1]));
                    open = extends;
                    next[position] = extends || (part == Part::Any && at[position]);
                    open |= at[position];
                }
            }
        }
        at = next;
    }
    at[uri.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_match_what_can_be_made_from_them() {
        for (template, uri, yes) in [
            ("db://t/{id}", "db://t/7", true),
            ("db://t/{id}", "db://t/a%20b", true),
            ("db://t/{id}", "db://t/", false),
            ("db://t/{id}", "db://t/a/b", false),
            ("db://t/{id}/c", "db://t/7/c", true),
            ("db://t/{id}/c", "db://t/7/d", false),
            ("file:///{+path}", "file:///a/b/c", true),
            ("x://{a}-{b}", "x://1-2-3", true),
            ("x://s{?q,r}", "x://s?q=1&r=2", true),
            ("x://s{?q,r}", "x://s", true),
            ("x://plain", "x://plain", true),
            ("x://broken{", "x://broken{", true),
            ("x://{a}", "y://1", false),
        ] {
            assert_eq!(matches(template, uri), yes, "{template} {uri}");
        }
    }

    #[test]
    fn a_hostile_template_does_not_explode() {
        let template = "{a}".repeat(2000);
        assert!(!matches(&template, &format!("{}/", "a".repeat(4000))));
    }
}

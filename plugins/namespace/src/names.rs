//! `<slug>__<name>` and back: pure functions of the backend's name and the own name.
//!
//! Why the split at the first `__` is exact: a slug holds no `__` and does not end in `_`, so the first `__` of a public name is the
//! one that follows the slug, whatever the own name begins with.
//!
//! Why shortened names meet no others: they end in `--` and a hash, and whatever ends like that by itself is shortened too.

use sha2::{Digest, Sha256};

/// The most characters of a public name.
pub const MOST: usize = 64;

/// The most characters of a slug. Longer backend names are shortened, so that enough is left for the names of their tools.
pub const MOST_SLUG: usize = 24;

/// Characters of the hash in a slug and in a name, five bits each: 50 and 60 bits.
const SLUG_HASH: usize = 10;
const NAME_HASH: usize = 12;

/// What stands for a backend in public names: its name if it is at most 24 characters of `A-Z a-z 0-9 _ -`, begins with a letter or
/// digit, holds no `__` and does not end in `_`; otherwise `<start>--<hash>`.
pub fn slug(backend: &str) -> String {
    let fits = (1..=MOST_SLUG).contains(&backend.len())
        && is_plain(backend)
        && backend.starts_with(|c: char| c.is_ascii_alphanumeric())
        && !backend.contains("__")
        && !backend.ends_with('_')
        && !ends_in_hash(backend, SLUG_HASH);
    if fits {
        return backend.to_owned();
    }
    let mut start = clean(backend, MOST_SLUG - 2 - SLUG_HASH);
    while start.contains("__") {
        start = start.replace("__", "_");
    }
    format!("{}--{}", start.trim_matches('_'), hash(&[backend], SLUG_HASH))
}

/// The public name of one tool or prompt.
pub fn public(backend: &str, name: &str) -> String {
    let slug = slug(backend);
    let room = MOST - slug.len() - 2;
    if (1..=room).contains(&name.len()) && is_plain(name) && !ends_in_hash(name, NAME_HASH) {
        return format!("{slug}__{name}");
    }
    let start = clean(name, room - 2 - NAME_HASH);
    format!("{slug}__{start}--{}", hash(&[backend, name], NAME_HASH))
}

/// The backend and the own name that a public name was made of, if that can be read from it.
pub fn resolve<'a>(backends: &'a [String], name: &'a str) -> Option<(&'a str, &'a str)> {
    let (slug, own) = name.split_once("__")?;
    let backend = of_slug(backends, slug)?;
    (public(backend, own) == name).then_some((backend, own))
}

/// The one backend that a slug stands for; none if there are two, which takes a collision of hashes.
pub(crate) fn of_slug<'a>(backends: &'a [String], wanted: &str) -> Option<&'a str> {
    let mut all = backends.iter().filter(|b| slug(b) == wanted);
    match (all.next(), all.next()) {
        (Some(one), None) => Some(one),
        _ => None,
    }
}

fn is_plain(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

/// Whether a text looks as if it ended in a hash of ours.
fn ends_in_hash(text: &str, digits: usize) -> bool {
    let bytes = text.as_bytes();
    let Some(at) = bytes.len().checked_sub(digits + 2) else {
        return false;
    };
    bytes[at..].starts_with(b"--") && bytes[at + 2..].iter().all(|b| DIGITS.contains(b))
}

/// The start of a text, at most `most` characters, each run of others than `A-Z a-z 0-9 _ -` as one `_`.
fn clean(text: &str, most: usize) -> String {
    let mut out = String::new();
    let mut in_run = false;
    for c in text.chars() {
        let plain = c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if out.len() == most {
            break;
        }
        if plain || !in_run {
            out.push(if plain { c } else { '_' });
        }
        in_run = !plain;
    }
    out
}

/// The digits of base 32 (RFC 4648), in lower case.
const DIGITS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// The first bits of the SHA-256 of the parts, each followed by a zero byte, in base 32.
fn hash(parts: &[&str], digits: usize) -> String {
    let mut sha = Sha256::new();
    for part in parts {
        sha.update(part);
        sha.update([0]);
    }
    let first = sha.finalize().iter().take(8).fold(0u64, |bits, b| bits << 8 | u64::from(*b));
    (0..digits).map(|i| char::from(DIGITS[(first >> (59 - 5 * i)) as usize & 31])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn backends(names: &[&str]) -> Vec<String> {
        names.iter().map(|n| n.to_string()).collect()
    }

    fn is_legal(name: &str) -> bool {
        (1..=MOST).contains(&name.len()) && is_plain(name)
    }

    #[test]
    fn plain_names_are_joined_and_split_again() {
        let all = backends(&["time", "my-files"]);
        assert_eq!(public("time", "get_time"), "time__get_time");
        assert_eq!(resolve(&all, "time__get_time"), Some(("time", "get_time")));
        assert_eq!(resolve(&all, "my-files__read-2"), Some(("my-files", "read-2")));
        for unknown in ["other__get_time", "get_time", "time_get_time", "__get_time", "time__", ""] {
            assert_eq!(resolve(&all, unknown), None, "{unknown}");
        }
    }

    #[test]
    fn backends_and_tools_full_of_underscores_stay_apart() {
        let all = backends(&["a", "a__b", "a_"]);
        let items = [
            ("a", "b__c"),
            ("a", "b_c"),
            ("a", "_b__c"),
            ("a__b", "c"),
            ("a__b", "_c"),
            ("a_", "c"),
            ("a_", "_c"),
            ("a", "_c"),
            ("a", "__c"),
        ];
        let published: HashSet<String> = items.iter().map(|(b, n)| public(b, n)).collect();
        assert_eq!(published.len(), items.len());
        for (b, n) in items {
            let name = public(b, n);
            assert!(is_legal(&name), "{name}");
            assert_eq!(resolve(&all, &name), Some((b, n)), "{name}");
        }
        assert_eq!(public("a", "b__c"), "a__b__c");
        assert_eq!(public("a", "_c"), "a___c");
    }

    #[test]
    fn long_and_odd_names_are_shortened_legal_distinct_and_not_guessed_back() {
        let backend = "a-backend-with-a-name-of-sixty-four-characters-and-not-one-less__";
        let all = backends(&[backend, "b"]);
        let long: Vec<String> = (0..200).map(|i| format!("{}{i:03}", "x".repeat(125))).collect();
        let odd = ["", " ", "a b", "a  b", "a.b", "a/b", "ü", "天気", "a\nb", "-", "_"];
        let mut seen = HashSet::new();
        for b in [backend, "b"] {
            for name in long.iter().map(String::as_str).chain(odd) {
                let public = public(b, name);
                assert!(is_legal(&public), "{public}");
                assert!(seen.insert(public.clone()), "{public}");
                match resolve(&all, &public) {
                    None => {}
                    Some(found) => assert_eq!(found, (b, name)),
                }
            }
        }
        assert_eq!(resolve(&all, &public("b", &"x".repeat(128))), None);
    }

    #[test]
    fn a_name_that_looks_shortened_is_not_taken_for_one() {
        let shortened = public("b", "a b");
        let own = shortened.strip_prefix("b__").unwrap();
        assert_ne!(public("b", own), shortened);
        let slug_of_odd = slug("a__b");
        assert_ne!(slug(&slug_of_odd), slug_of_odd);
    }

    #[test]
    fn slugs_never_hold_the_separator_nor_end_in_half_of_it() {
        let long = "x".repeat(64);
        for backend in ["a", "a_", "a__b", "a___", "_a", "a-_", &long, "ab__________________________c", "é", "", "a--abcdefghij"] {
            let slug = slug(backend);
            assert!(
                !slug.contains("__") && !slug.ends_with('_') && (1..=MOST_SLUG).contains(&slug.len()) && is_plain(&slug),
                "{backend}: {slug}"
            );
        }
        for kept in ["a", "my_server", "A-1", "exactly-twenty-four-char"] {
            assert_eq!(slug(kept), kept);
        }
    }

    #[test]
    fn names_are_the_same_in_every_version_of_this_policy() {
        // Clients keep names in their configuration. If this fails, a release renames their tools.
        assert_eq!(slug("a__b"), "a_b--qrrb5ulkky");
        assert_eq!(public("weather", "get.forecast"), "weather__get_forecast--vurofoxbya4p");
    }
}

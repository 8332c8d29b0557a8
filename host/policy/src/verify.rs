//! What policies claim, checked: names, targets. Pure; says what is wrong in words that name the items. Called by `chain`.

use crate::error::quoted;
use crate::session::SessionView;
use crate::types::{ItemHead, Kind, Target};

/// The most characters that a public name of a tool or prompt has.
pub(crate) const NAME_CHARS: usize = 64;

/// How much longer than the own name a made-up URI may be, in bytes.
const URI_EXTRA: usize = 1 << 10;

/// The most bytes of an alias for a URI.
const URI_ALIAS_BYTES: usize = 8 << 10;

/// A name under which an item is to be published.
pub(crate) fn public_name(kind: Kind, name: &str, head: &ItemHead<'_>) -> Result<(), String> {
    let says = |what: &str| Err(format!("{} is published as {}, {what}", item(kind, head), quoted(name)));
    if name == head.name && kind.is_uri() {
        return Ok(());
    }
    if name.is_empty() {
        return says("an empty name");
    }
    if !kind.is_uri() {
        return if is_plain(name) { Ok(()) } else { says(NOT_PLAIN) };
    }
    if name.len() > head.name.len() + URI_EXTRA {
        return says("which is more than 1 KiB longer than its own name");
    }
    let odd = |text: &str| text.chars().filter(|c| c.is_control() || c.is_whitespace()).count();
    if odd(name) > odd(head.name) {
        return says("which has control characters or spaces that its own name does not have");
    }
    Ok(())
}

/// The public name of an alias.
pub(crate) fn alias_name(kind: Kind, public: &str) -> Result<(), String> {
    let says = |what: &str| Err(format!("the alias {} for a {kind} is {what}", quoted(public)));
    if public.is_empty() {
        return says("empty");
    }
    if !kind.is_uri() {
        return if is_plain(public) { Ok(()) } else { says(NOT_PLAIN) };
    }
    if public.len() > URI_ALIAS_BYTES {
        return says("longer than 8 KiB");
    }
    if public.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return says("no URI: it has control characters or spaces");
    }
    Ok(())
}

/// What a name is said to stand for.
pub(crate) fn target(s: &SessionView, target: &Target) -> Result<(), String> {
    if s.has_backend(&target.backend) {
        return Ok(());
    }
    Err(format!("{} of {} is not to be reached: the session has no such backend", quoted(&target.name), quoted(&target.backend)))
}

/// Two items under one name.
pub(crate) fn duplicate(kind: Kind, name: &str, first: &ItemHead<'_>, second: &ItemHead<'_>) -> String {
    format!("{} and {} are both published as {}", item(kind, first), item(kind, second), quoted(name))
}

const NOT_PLAIN: &str = "not 1 to 64 characters of A-Z a-z 0-9 _ -";

fn is_plain(name: &str) -> bool {
    (1..=NAME_CHARS).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

fn item(kind: Kind, head: &ItemHead<'_>) -> String {
    format!("the {kind} {} of backend {}", quoted(head.name), quoted(head.backend))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(name: &str) -> ItemHead<'_> {
        ItemHead { backend: "b", name, title: None, shared: true }
    }

    #[test]
    fn tool_and_prompt_names_have_a_narrow_alphabet_and_64_characters() {
        let t = head("x y");
        for good in ["a", "A-z_0", &"x".repeat(64)] {
            assert_eq!(public_name(Kind::Tool, good, &t), Ok(()));
            assert_eq!(alias_name(Kind::Prompt, good), Ok(()));
        }
        for bad in ["", "x y", "x.y", "ü", "a\n", &"x".repeat(65)] {
            assert!(public_name(Kind::Tool, bad, &t).is_err(), "{bad}");
            assert!(alias_name(Kind::Prompt, bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_uri_may_be_odd_as_its_backend_made_it_but_not_odder() {
        let odd = head("file:///a b\n");
        assert_eq!(public_name(Kind::Resource, "file:///a b\n", &odd), Ok(()));
        assert_eq!(public_name(Kind::Resource, "lockgate://x/file:///a b\n", &odd), Ok(()));
        assert!(public_name(Kind::Resource, "lockgate://x y/file:///a b\n", &odd).is_err());
        assert!(public_name(Kind::Resource, "", &odd).is_err());
        assert!(public_name(Kind::Resource, &"x".repeat(2000), &odd).is_err());
        assert!(alias_name(Kind::Resource, "a b").is_err());
    }

    #[test]
    fn a_message_names_the_item_and_quotes_what_others_chose() {
        let long = "x".repeat(1000);
        let message = public_name(Kind::Tool, &long, &head("evil\n")).unwrap_err();
        assert!(message.starts_with("the tool \"evil\\n\" of backend \"b\" is published as \"xxx"), "{message}");
        assert!(message.len() < 500, "{message}");
    }
}

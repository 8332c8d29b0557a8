//! Where the members of one object of a message stand, found out once however often they are asked for.

use super::json::{self, Duplicate, Object, RawValue};
use bytes::Bytes;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// Made at the first question. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Index {
    members: Members,
    /// Of the member `_meta`, into which many look.
    meta: Members,
}

type Members = OnceLock<Arc<[Entry]>>;

#[derive(Debug)]
struct Entry {
    name: Name,
    value: Range<usize>,
}

#[derive(Debug)]
enum Name {
    /// As it stands in the message.
    At(Range<usize>),
    /// Written with escapes.
    Decoded(Box<str>),
}

impl Index {
    /// The place of the member `name` of the object at `at` of `raw`, which have to be the same each time.
    pub fn find(&self, raw: &Bytes, at: Range<usize>, name: &str) -> Result<Option<Range<usize>>, Duplicate> {
        find(self.members.get_or_init(|| read(raw, at)), raw, name)
    }

    /// The same for its member `_meta`, which is at `at`.
    pub fn find_in_meta(&self, raw: &Bytes, at: Range<usize>, name: &str) -> Result<Option<Range<usize>>, Duplicate> {
        find(self.meta.get_or_init(|| read(raw, at)), raw, name)
    }

    /// All members of the object, in their order; none where it is no object.
    pub fn object<'a>(&'a self, raw: &'a Bytes, at: Range<usize>) -> Option<Object<'a>> {
        object(self.members.get_or_init(|| read(raw, at.clone())), raw, at)
    }

    /// The same for its member `_meta`, which is at `at`.
    pub fn meta<'a>(&'a self, raw: &'a Bytes, at: Range<usize>) -> Option<Object<'a>> {
        object(self.meta.get_or_init(|| read(raw, at.clone())), raw, at)
    }
}

fn find(entries: &[Entry], raw: &Bytes, name: &str) -> Result<Option<Range<usize>>, Duplicate> {
    let mut found = entries.iter().filter(|entry| match &entry.name {
        Name::At(place) => raw[place.clone()] == *name.as_bytes(),
        Name::Decoded(text) => **text == *name,
    });
    match (found.next(), found.next()) {
        (entry, None) => Ok(entry.map(|e| e.value.clone())),
        _ => Err(Duplicate(name.to_owned())),
    }
}

fn object<'a>(entries: &'a [Entry], raw: &'a Bytes, at: Range<usize>) -> Option<Object<'a>> {
    if !raw[at].trim_ascii_start().starts_with(b"{") {
        return None;
    }
    let text = |place: &Range<usize>| std::str::from_utf8(&raw[place.clone()]).ok();
    let member = |entry: &'a Entry| {
        let name = match &entry.name {
            Name::At(place) => text(place)?,
            Name::Decoded(name) => name,
        };
        Some((Cow::Borrowed(name), RawValue::known(text(&entry.value)?)))
    };
    entries.iter().map(member).collect::<Option<Vec<_>>>().map(Object::of_members)
}

fn read(raw: &Bytes, at: Range<usize>) -> Arc<[Entry]> {
    let text = &raw[at];
    // What is no object has no members.
    let Ok(object) = Object::parse(text) else { return Arc::default() };
    let inside = raw.as_ptr_range();
    let entry = |(name, value): (&str, &RawValue)| Entry {
        name: match inside.contains(&name.as_ptr()) {
            true => {
                let start = name.as_ptr() as usize - raw.as_ptr() as usize;
                Name::At(start..start + name.len())
            }
            false => Name::Decoded(name.into()),
        },
        value: json::place(raw, value),
    };
    object.members().map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_found_by_their_names_however_these_are_written() {
        let raw = Bytes::from_static(br#" x {"a":1.0,"\u0062":{"a":2},"":3,"c":4,"\u0063":5} "#);
        let index = Index::default();
        let at = 3..raw.len() - 1;
        let find =
            |name: &str| index.find(&raw, at.clone(), name).map(|place| place.map(|p| String::from_utf8_lossy(&raw[p]).into_owned()));
        assert_eq!(find("a"), Ok(Some("1.0".into())));
        assert_eq!(find("b"), Ok(Some("{\"a\":2}".into())));
        assert_eq!(find(""), Ok(Some("3".into())));
        assert_eq!(find("d"), Ok(None));
        assert_eq!(find("c"), Err(Duplicate("c".into())));
        let object = index.object(&raw, at.clone()).unwrap();
        let members: Vec<_> = object.members().map(|(name, value)| format!("{name}={}", value.get())).collect();
        assert_eq!(members, ["a=1.0", "b={\"a\":2}", "=3", "c=4", "c=5"]);
        assert!(Index::default().object(&raw, 1..2).is_none());
    }
}

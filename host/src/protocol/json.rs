//! Looking into JSON text without building a tree: the members of one object, each value as the raw text that it is.

use super::walk;
use bytes::Bytes;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

/// One JSON value as the text that it is, without blanks around it. As serde_json's, but one that was read already costs nothing.
#[derive(Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct RawValue {
    text: str,
}

impl RawValue {
    /// None for text that is no value, or has something around it.
    pub fn read(text: &str) -> Option<&RawValue> {
        let is_one = walk::is_value(text) || serde_json::from_str::<&serde_json::value::RawValue>(text).is_ok_and(|v| v.get() == text);
        is_one.then(|| RawValue::known(text))
    }

    /// Of text that was read as a value before.
    pub(super) fn known(text: &str) -> &RawValue {
        // SAFETY: it is a `str` and nothing else (`repr(transparent)`), and nothing that is unsafe relies on what stands in it.
        unsafe { &*(std::ptr::from_ref(text) as *const RawValue) }
    }

    pub fn get(&self) -> &str {
        &self.text
    }
}

/// The members of a JSON object in the order of the text. Values are checked for syntax and otherwise untouched.
#[derive(Debug)]
pub struct Object<'a> {
    members: Vec<(Cow<'a, str>, &'a RawValue)>,
}

/// A member that decides what a message means occurs twice. Two readers might take different ones, so nobody may act on it.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("member `{0}` occurs more than once")]
pub struct Duplicate(pub String);

impl<'a> Object<'a> {
    /// Fails when `text` is not one JSON object (and nothing else).
    pub fn parse(text: &'a [u8]) -> Result<Self, serde_json::Error> {
        match std::str::from_utf8(text).ok().and_then(Object::walk) {
            Some(object) => Ok(object),
            None => serde_json::from_slice(text),
        }
    }

    pub fn of(value: &'a RawValue) -> Option<Self> {
        if !is_object(value) {
            return None;
        }
        Object::walk(value.get()).or_else(|| serde_json::from_str(value.get()).ok())
    }

    /// Of members that were read before.
    pub(super) fn of_members(members: Vec<(Cow<'a, str>, &'a RawValue)>) -> Self {
        Object { members }
    }

    fn walk(text: &'a str) -> Option<Self> {
        // As many as a message, or what is looked into of it, usually has.
        let mut members = Vec::with_capacity(8);
        walk::members(text, |name, value| {
            members.push((name.decoded()?, RawValue::known(value)));
            Some(())
        })?;
        Some(Object { members })
    }

    pub fn get(&self, name: &str) -> Result<Option<&'a RawValue>, Duplicate> {
        let mut found = self.members.iter().filter(|(key, _)| key == name).map(|(_, value)| *value);
        match (found.next(), found.next()) {
            (value, None) => Ok(value),
            _ => Err(Duplicate(name.to_owned())),
        }
    }

    /// The member where there is exactly one; for members that decide nothing.
    pub fn only(&self, name: &str) -> Option<&'a RawValue> {
        self.get(name).ok().flatten()
    }

    pub fn members(&self) -> impl Iterator<Item = (&str, &'a RawValue)> {
        self.members.iter().map(|(key, value)| (key.as_ref(), *value))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Object<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Vec<(Cow<'de, str>, &'de RawValue)>;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a JSON object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(Key(key)) = map.next_key()? {
                    members.push((key, RawValue::known(map.next_value::<&serde_json::value::RawValue>()?.get())));
                }
                Ok(members)
            }
        }
        Ok(Object { members: deserializer.deserialize_map(Members)? })
    }
}

struct Key<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Key<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl<'de> Visitor<'de> for Text {
            type Value = Cow<'de, str>;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a member name")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Cow::Borrowed(text))
            }
            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Cow::Owned(text.to_owned()))
            }
        }
        deserializer.deserialize_str(Text).map(Key)
    }
}

/// The member `name` of the object that `value` is; none where it has none, or is no object. As `Object::get`, without the rest of it.
pub fn member<'a>(value: &'a RawValue, name: &str) -> Result<Option<&'a RawValue>, Duplicate> {
    if !is_object(value) {
        return Ok(None);
    }
    let (mut found, mut twice) = (None, false);
    let whole = walk::members(value.get(), |key, text| {
        if key.is(name)? {
            twice |= found.replace(RawValue::known(text)).is_some();
        }
        Some(())
    });
    match whole {
        Some(()) if twice => Err(Duplicate(name.to_owned())),
        Some(()) => Ok(found),
        None => Object::of(value).map_or(Ok(None), |object| object.get(name)),
    }
}

/// The elements of a JSON array as raw text.
pub fn array(value: &RawValue) -> Option<Vec<&RawValue>> {
    array_of(value.get().as_bytes()).ok()
}

/// The elements of `text`, which must be one JSON array.
pub fn array_of(text: &[u8]) -> Result<Vec<&RawValue>, serde_json::Error> {
    let mut elements = Vec::new();
    let whole = std::str::from_utf8(text).ok().and_then(|text| walk::elements(text, |element| elements.push(RawValue::known(element))));
    if whole.is_some() {
        return Ok(elements);
    }
    struct Elements;
    impl<'de> Visitor<'de> for Elements {
        type Value = Vec<&'de RawValue>;
        fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
            f.write_str("a JSON array")
        }
        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
            let mut elements = Vec::new();
            while let Some(element) = seq.next_element::<&serde_json::value::RawValue>()? {
                elements.push(RawValue::known(element.get()));
            }
            Ok(elements)
        }
    }
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let elements = deserializer.deserialize_seq(Elements)?;
    deserializer.end()?;
    Ok(elements)
}

/// The text of a JSON string; none for any other type, and for one with a lone surrogate (which no Rust string can hold).
pub fn string(value: &RawValue) -> Option<Cow<'_, str>> {
    let text = value.get();
    if !text.starts_with('"') {
        return None;
    }
    let inner = &text[1..text.len().saturating_sub(1)];
    if !inner.contains('\\') {
        return Some(Cow::Borrowed(inner));
    }
    serde_json::from_str::<String>(text).ok().map(Cow::Owned)
}

pub fn is_object(value: &RawValue) -> bool {
    value.get().starts_with('{')
}

pub fn is_null(value: &RawValue) -> bool {
    value.get() == "null"
}

/// `text` as a JSON string.
pub fn quote(text: &str) -> String {
    // A string always serialises.
    serde_json::to_string(text).unwrap_or_else(|_| "\"\"".to_owned())
}

/// Where `part`, a slice that was borrowed from `whole`, lies in it.
pub fn place(whole: &Bytes, part: &RawValue) -> Range<usize> {
    let start = (part.get().as_ptr() as usize).wrapping_sub(whole.as_ptr() as usize);
    debug_assert!(start + part.get().len() <= whole.len(), "not a part of this buffer");
    start..start + part.get().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_keep_their_text_and_place() {
        let whole = Bytes::from_static(br#" {"a": 1.0, "\u0062": {"k":[1E400, "\ud800"]} } "#);
        let object = Object::parse(&whole).unwrap();
        let a = object.get("a").unwrap().unwrap();
        assert_eq!(a.get(), "1.0");
        assert_eq!(&whole[place(&whole, a)], b"1.0");
        assert_eq!(object.get("b").unwrap().unwrap().get(), r#"{"k":[1E400, "\ud800"]}"#);
        assert!(object.get("c").unwrap().is_none());
    }

    #[test]
    fn a_member_that_occurs_twice_is_not_answered() {
        let object = Object::parse(br#"{"name":"a","n\u0061me":"b"}"#).unwrap();
        assert_eq!(object.get("name").unwrap_err(), Duplicate("name".into()));
    }

    #[test]
    fn one_member_is_found_as_in_the_whole_object() {
        let of = |text, name| member(RawValue::read(text).unwrap(), name).map(|found| found.map(RawValue::get));
        let text = r#"{"a":{"b":1},"b":2,"\u0063":3,"d":4,"\u0064":5}"#;
        assert_eq!(of(text, "b"), Ok(Some("2")));
        assert_eq!(of(text, "c"), Ok(Some("3")));
        assert_eq!(of(text, "e"), Ok(None));
        assert_eq!(of(text, "d"), Err(Duplicate("d".into())));
        assert_eq!(of("[1]", "a"), Ok(None));
        assert_eq!(of(&format!("{{\"a\":{}{}}}", "[".repeat(99), "]".repeat(99)), "b"), Ok(None));
        assert!(RawValue::read(" 1").is_none() && RawValue::read("").is_none());
    }

    #[test]
    fn deep_nesting_costs_no_stack() {
        let deep = format!("{{\"v\":{}{}}}", "[".repeat(200_000), "]".repeat(200_000));
        assert!(Object::parse(deep.as_bytes()).is_ok());
    }
}

//! The located tree to `Deserialize` types, going on after a fault.
//!
//! serde stops at the first error. Here an error prunes the value it stands at, is reported with that place, and the
//! document is read once more without it, until what remains can be read: each pass reports something new or is the last.
//! Unknown keys of a struct are found before its visitor runs, all of them at once.
//!
//! Two departures from serde's data model, for the file types in `config/file.rs` alone: a scalar is whatever its field
//! wants (text, number, boolean), and an enum with a variant `$text`, `$map` or `$list` is chosen by the shape of the value.

use std::cell::RefCell;
use std::fmt;

use serde::de::value::StrDeserializer;
use serde::de::{self, DeserializeOwned, DeserializeSeed, IntoDeserializer, Unexpected, Visitor};
use serde::forward_to_deserialize_any;

use super::tree::{Doc, Entry, Kind, Node, Scalar};
use crate::config::problem::{Problem, Problems, suggest};

/// Faults that are collected before reading is given up: more than anybody repairs at once, and each costs a pass.
const MAX_PASSES: usize = 256;

/// Keys that the format does not have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Unknown {
    /// Each is a problem (our own file).
    Refuse,
    /// Each is passed over, below the top level with a warning (files that other programs own).
    Tolerate,
}

/// Reads the whole document as `T`. `None` if nothing is left to read; what was wrong is in `problems`. Unknown keys that
/// were tolerated are added to `tolerated`.
pub fn decode<T: DeserializeOwned>(doc: &mut Doc, unknown: Unknown, problems: &mut Problems, tolerated: &mut Problems) -> Option<T> {
    for _ in 0..MAX_PASSES {
        let unknown_keys = RefCell::new(Vec::new());
        let result = T::deserialize(De { node: &doc.root, doc, unknown: &unknown_keys });
        for (id, message) in unknown_keys.into_inner() {
            let place = doc.node_place(id, true);
            match unknown {
                Unknown::Refuse => {
                    problems.push(Problem::new(place, message));
                    doc.prune(id);
                }
                // The top level of such a file is all its owner's own.
                Unknown::Tolerate if doc.depth(id) > 1 => tolerated.push(Problem::new(place, "is not used here")),
                Unknown::Tolerate => {}
            }
        }
        match result {
            Ok(value) => return Some(value),
            Err(fault) => {
                let id = fault.node.unwrap_or(doc.root.id);
                // A key that is missing because it was refused is no news.
                if !(fault.missing && doc.incomplete_node(id)) {
                    problems.push(Problem::new(doc.node_place(id, false), fault.message));
                }
                doc.prune(id);
                if id == doc.root.id {
                    return None;
                }
            }
        }
    }
    None
}

/// Why a value could not be read; the innermost place wins.
#[derive(Debug)]
pub struct Fault {
    node: Option<u32>,
    missing: bool,
    message: String,
}

impl Fault {
    fn at(mut self, node: &Node) -> Self {
        if self.node.is_none() {
            self.node = Some(node.id);
            // The field's own message may quote the value; what came out of the environment stays there.
            if let Kind::Scalar(Scalar { text, written: Some(written), .. }) = &node.kind
                && !text.is_empty()
            {
                self.message = self.message.replace(text.as_str(), written);
            }
        }
        self
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Fault {}

impl de::Error for Fault {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Fault { node: None, missing: false, message: message.to_string() }
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        let found = match found {
            Unexpected::Map => "a mapping",
            Unexpected::Seq => "a list",
            Unexpected::Unit | Unexpected::Option => "nothing",
            _ => "a single value",
        };
        Self::custom(format_args!("expected {expected}, found {found}"))
    }

    fn missing_field(field: &'static str) -> Self {
        Fault { missing: true, ..Self::custom(format_args!("the key `{field}` is missing; add it")) }
    }
}

#[derive(Clone, Copy)]
struct De<'a> {
    node: &'a Node,
    doc: &'a Doc,
    unknown: &'a RefCell<Vec<(u32, String)>>,
}

// === impl De ===

impl<'a> De<'a> {
    fn child(self, node: &'a Node) -> Self {
        De { node, ..self }
    }

    fn wrong(self, expected: &str) -> Fault {
        let advice = match &self.node.kind {
            Kind::Scalar(scalar) if scalar.is_null() && expected == "text" => "; put it in quotes if it is meant as text",
            _ => "",
        };
        de::Error::custom(format_args!("expected {expected}, found {}{advice}", self.node.what()))
    }

    fn scalar(self, expected: &str) -> Result<&'a Scalar, Fault> {
        match &self.node.kind {
            Kind::Scalar(scalar) if !scalar.is_null() => Ok(scalar),
            _ => Err(self.wrong(expected)),
        }
    }

    fn map<'de, V: Visitor<'de>>(self, entries: &'a [Entry], visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_map(Entries { entries: entries.iter(), value: None, de: self })
    }

    fn list<'de, V: Visitor<'de>>(self, items: &'a [Node], visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_seq(Items { items: items.iter(), de: self })
    }
}

macro_rules! number {
    ($method:ident, $visit:ident, $type:ty, $expected:literal) => {
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
            let scalar = self.scalar($expected)?;
            match scalar.text.replace('_', "").parse::<$type>() {
                Ok(number) => visitor.$visit(number),
                Err(_) => Err(de::Error::custom(format_args!("expected {}, found `{}`", $expected, scalar.shown()))),
            }
        }
    };
}

impl<'de> de::Deserializer<'de> for De<'_> {
    type Error = Fault;

    /// Values whose type the file decides (a policy's `config`): the YAML 1.2 core schema, plain scalars only.
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match &self.node.kind {
            Kind::List(items) => self.list(items, visitor),
            Kind::Map(entries) => self.map(entries, visitor),
            Kind::Scalar(scalar) => {
                let text = scalar.text.as_str();
                match text {
                    _ if scalar.is_null() => visitor.visit_unit(),
                    _ if !scalar.plain => visitor.visit_str(text),
                    "true" | "True" | "TRUE" => visitor.visit_bool(true),
                    "false" | "False" | "FALSE" => visitor.visit_bool(false),
                    _ => {
                        let numeric = text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.'));
                        match (text.parse::<i64>(), text.parse::<u64>(), text.parse::<f64>()) {
                            (Ok(number), _, _) => visitor.visit_i64(number),
                            (_, Ok(number), _) => visitor.visit_u64(number),
                            (_, _, Ok(number)) if numeric && number.is_finite() => visitor.visit_f64(number),
                            _ => visitor.visit_str(text),
                        }
                    }
                }
            }
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        let scalar = self.scalar("true or false")?;
        match scalar.text.as_str() {
            "true" => visitor.visit_bool(true),
            "false" => visitor.visit_bool(false),
            _ => Err(de::Error::custom(format_args!("expected true or false, found `{}`", scalar.shown()))),
        }
    }

    number!(deserialize_u64, visit_u64, u64, "a whole number");
    number!(deserialize_u32, visit_u64, u64, "a whole number");
    number!(deserialize_u16, visit_u64, u64, "a whole number");
    number!(deserialize_i64, visit_i64, i64, "a whole number");
    number!(deserialize_f64, visit_f64, f64, "a number");

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_str(&self.scalar("text")?.text)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match &self.node.kind {
            Kind::Scalar(scalar) if scalar.is_null() => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match &self.node.kind {
            Kind::List(items) => self.list(items, visitor),
            _ => Err(self.wrong("a list (`- item` lines or [ … ])")),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match &self.node.kind {
            Kind::Map(entries) => self.map(entries, visitor),
            Kind::Scalar(scalar) if scalar.is_null() => self.map(&[], visitor),
            _ => Err(self.wrong("a mapping (`key: value` lines or { … })")),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(self, _: &'static str, fields: &'static [&'static str], visitor: V) -> Result<V::Value, Fault> {
        let entries: &[Entry] = match &self.node.kind {
            Kind::Map(entries) => entries,
            Kind::Scalar(scalar) if scalar.is_null() => &[],
            _ => return Err(self.wrong("a mapping (`key: value` lines or { … })")),
        };
        let known = |e: &&Entry| fields.contains(&e.key.as_str());
        for entry in entries.iter().filter(|e| !known(e) && !self.doc.is_pruned(e.value.id)) {
            let message = format!("unknown key; {}", suggest(&entry.key, fields));
            self.unknown.borrow_mut().push((entry.value.id, message));
        }
        visitor.visit_map(Known { fields, inner: Entries { entries: entries.iter(), value: None, de: self } })
    }

    fn deserialize_enum<V: Visitor<'de>>(self, _: &'static str, variants: &'static [&'static str], visitor: V) -> Result<V::Value, Fault> {
        if variants.iter().any(|v| v.starts_with('$')) {
            let (shape, name) = match &self.node.kind {
                Kind::Scalar(_) => ("$text", "a single value"),
                Kind::List(_) => ("$list", "a list"),
                Kind::Map(_) => ("$map", "a mapping"),
            };
            if !variants.contains(&shape) {
                let wanted = variants.iter().map(|v| match *v {
                    "$text" => "a single value",
                    "$list" => "a list",
                    _ => "a mapping",
                });
                let wanted: Vec<_> = wanted.collect();
                return Err(de::Error::custom(format_args!("expected {}, found {name}", wanted.join(" or "))));
            }
            return visitor.visit_enum(Shape { shape, de: self });
        }
        let scalar = self.scalar(&format!("one of {}", variants.join(", ")))?;
        if !variants.contains(&scalar.text.as_str()) {
            return Err(de::Error::custom(format_args!("`{}` is not one of {}", scalar.shown(), variants.join(", "))));
        }
        visitor.visit_enum(scalar.text.as_str().into_deserializer())
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! { i8 i16 i32 i128 u8 u128 f32 char bytes byte_buf unit unit_struct tuple tuple_struct identifier }
}

struct Items<'a> {
    items: std::slice::Iter<'a, Node>,
    de: De<'a>,
}

impl<'de> de::SeqAccess<'de> for Items<'_> {
    type Error = Fault;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Fault> {
        let Some(node) = self.items.by_ref().find(|n| !self.de.doc.is_pruned(n.id)) else { return Ok(None) };
        seed.deserialize(self.de.child(node)).map(Some).map_err(|fault| fault.at(node))
    }
}

struct Entries<'a> {
    entries: std::slice::Iter<'a, Entry>,
    value: Option<&'a Node>,
    de: De<'a>,
}

impl<'a> Entries<'a> {
    fn advance(&mut self, wanted: impl Fn(&str) -> bool) -> Option<&'a Entry> {
        let doc = self.de.doc;
        let entry = self.entries.by_ref().find(|e| wanted(&e.key) && !doc.is_pruned(e.value.id))?;
        self.value = Some(&entry.value);
        Some(entry)
    }
}

impl<'de> de::MapAccess<'de> for Entries<'_> {
    type Error = Fault;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Fault> {
        let Some(entry) = self.advance(|_| true) else { return Ok(None) };
        let key: StrDeserializer<'_, Fault> = entry.key.as_str().into_deserializer();
        seed.deserialize(key).map(Some).map_err(|fault| fault.at(&entry.value))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Fault> {
        let node = self.value.take().ok_or_else(|| <Fault as de::Error>::custom("value asked for before its key"))?;
        seed.deserialize(self.de.child(node)).map_err(|fault| fault.at(node))
    }
}

/// The entries of a struct without its unknown keys.
struct Known<'a> {
    fields: &'static [&'static str],
    inner: Entries<'a>,
}

impl<'de> de::MapAccess<'de> for Known<'_> {
    type Error = Fault;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Fault> {
        let fields = self.fields;
        let Some(entry) = self.inner.advance(|key| fields.contains(&key)) else { return Ok(None) };
        let key: StrDeserializer<'_, Fault> = entry.key.as_str().into_deserializer();
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Fault> {
        self.inner.next_value_seed(seed)
    }
}

/// An enum whose variant is the shape of the value.
struct Shape<'a> {
    shape: &'static str,
    de: De<'a>,
}

impl<'de, 'a> de::EnumAccess<'de> for Shape<'a> {
    type Error = Fault;
    type Variant = De<'a>;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, De<'a>), Fault> {
        let name: StrDeserializer<'_, Fault> = self.shape.into_deserializer();
        Ok((seed.deserialize(name)?, self.de))
    }
}

impl<'de> de::VariantAccess<'de> for De<'_> {
    type Error = Fault;

    fn unit_variant(self) -> Result<(), Fault> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Fault> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Fault> {
        de::Deserializer::deserialize_seq(self, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(self, fields: &'static [&'static str], visitor: V) -> Result<V::Value, Fault> {
        de::Deserializer::deserialize_struct(self, "", fields, visitor)
    }
}

//! The headers that say again what a request of 2026-07-28 says in its body: `Mcp-Method`, `Mcp-Name`, and `Mcp-Param-*` for the
//! arguments that a tool marks with `x-mcp-header` (2026-07-28 transports/streamable-http, "Request Metadata").
//!
//! Owns both directions: writing them for a body that is sent, and holding those that came against the body. The body decides; a header
//! is never the source of anything. Which version header belongs to a request, and what a mismatch is answered with, is its caller's.

use super::json::{self, Object, RawValue};
use super::number::Number;
use super::{Request, base64, headers, method};
use http::{HeaderMap, HeaderName, HeaderValue};
use std::borrow::Cow;

const BEGIN: &str = "=?base64?";
const END: &str = "?=";
/// The annotation in a tool's schema.
pub const ANNOTATION: &str = "x-mcp-header";
/// Levels of a schema that are looked into.
const DEPTH: usize = 64;
/// Annotated arguments of one tool.
const MAX_PARAMS: usize = 64;
/// Bytes of the name in an annotation.
const MAX_NAME: usize = 128;

/// Headers and body do not say the same: to be answered with 400 and -32020. The text says which header and why, for the peer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Header mismatch: {0}")]
pub struct Mismatch(pub String);

/// What is repeated in headers: the method and the arguments of a request, and the name that it is sent with.
#[derive(Debug)]
pub struct Mirrored<'a> {
    pub request: &'a Request,
    /// What `Mcp-Name` repeats.
    pub name: Option<Cow<'a, str>>,
}

/// The member of `params` that `Mcp-Name` repeats; none for methods without that header (`tasks/*`: SEP-2663).
pub fn name_member(of: &str) -> Option<&'static str> {
    match of {
        method::TOOLS_CALL | method::PROMPTS_GET => Some("name"),
        method::RESOURCES_READ => Some("uri"),
        method::TASKS_GET | method::TASKS_UPDATE | method::TASKS_CANCEL => Some("taskId"),
        _ => None,
    }
}

/// `text` as a header value: as it is where that is plain, else in Base64 between markers ("Value Encoding").
pub fn encode(text: &str) -> HeaderValue {
    let plain = text.bytes().all(|b| matches!(b, 0x20..=0x7e)) && text.trim_matches(' ').len() == text.len() && !is_marked(text);
    let value =
        if plain { HeaderValue::from_str(text) } else { HeaderValue::try_from(format!("{BEGIN}{}{END}", base64::encode(text.as_bytes()))) };
    // Both are visible ASCII.
    value.unwrap_or(HeaderValue::from_static(""))
}

/// What a header value stands for.
///
/// # Errors
/// For characters that may not stand in it, and between the markers for what is not Base64 of UTF-8. The text is for the peer.
pub fn decode(value: &HeaderValue) -> Result<Cow<'_, str>, &'static str> {
    let text = std::str::from_utf8(value.as_bytes()).ok().filter(|t| t.bytes().all(|b| matches!(b, b'\t' | 0x20..=0x7e)));
    let text = text.ok_or("has invalid characters")?.trim_matches([' ', '\t']);
    if !is_marked(text) {
        return Ok(Cow::Borrowed(text));
    }
    let inner = &text.as_bytes()[BEGIN.len()..text.len() - END.len()];
    let bytes = base64::decode(inner).ok_or("has invalid Base64")?;
    String::from_utf8(bytes).map(Cow::Owned).map_err(|_| "is not UTF-8")
}

fn is_marked(text: &str) -> bool {
    text.len() >= BEGIN.len() + END.len() && text.starts_with(BEGIN) && text.ends_with(END)
}

/// Writes the headers of `request`, in the form in which it is sent, over whatever `head` has under their names. `params`: of the tool
/// that it calls.
pub fn write(of: &Mirrored<'_>, params: Option<&Params>, head: &mut HeaderMap) {
    head.insert(headers::METHOD, encode(&of.request.method));
    match &of.name {
        Some(name) => head.insert(headers::NAME, encode(name)),
        None => head.remove(headers::NAME),
    };
    if let Some(params) = params {
        params.write(arguments(of.request).as_ref(), head);
    }
}

impl<'a> Mirrored<'a> {
    /// Of a request that is sent as it is.
    pub fn of(request: &'a Request) -> Self {
        Mirrored { request, name: name_of(request) }
    }

    pub fn method(&self) -> &str {
        &self.request.method
    }
}

/// Holds `Mcp-Method`, `Mcp-Name` and the `Mcp-Param-*` of the tool against the body. Other `Mcp-Param-*` are nobody's business here.
///
/// # Errors
/// With the first header that is missing, occurs twice, cannot be read, or says something else than the body.
pub fn check(request: &Request, params: Option<&Params>, head: &HeaderMap) -> Result<(), Mismatch> {
    // The markers are for names and arguments: a method is always written as it is.
    let said = single(head, &headers::METHOD)?.ok_or_else(|| missing(&headers::METHOD))?;
    if said.as_bytes().trim_ascii() != request.method.as_bytes() {
        return Err(differs(&headers::METHOD, &String::from_utf8_lossy(said.as_bytes()), &request.method));
    }
    // A body whose name is missing or no string is refused for that, not for its headers.
    if let Some(name) = name_of(request) {
        let said = optional(head, &headers::NAME)?.ok_or_else(|| missing(&headers::NAME))?;
        if said != name {
            return Err(differs(&headers::NAME, &said, &name));
        }
    }
    params.map_or(Ok(()), |params| check_params(request, params, head))
}

/// The part of `check` that is about the `Mcp-Param-*` of the tool, for who learns later which tool it is.
///
/// # Errors
/// As for `check`.
pub fn check_params(request: &Request, params: &Params, head: &HeaderMap) -> Result<(), Mismatch> {
    params.check(arguments(request).as_ref(), head)
}

/// What `Mcp-Name` repeats of the body, where that has it.
fn name_of(request: &Request) -> Option<Cow<'_, str>> {
    json::string(request.param(&[name_member(&request.method)?]).ok()??)
}

fn arguments(request: &Request) -> Option<Object<'_>> {
    Object::of(request.param(&["arguments"]).ok()??)
}

fn differs(name: &HeaderName, said: &str, body: &str) -> Mismatch {
    let short = |text: &str| -> String { text.chars().filter(|c| !c.is_control()).take(120).collect() };
    Mismatch(format!("{name} says '{}', the body '{}'", short(said), short(body)))
}

fn missing(name: &HeaderName) -> Mismatch {
    Mismatch(format!("{name} is missing"))
}

/// The value of a header that may occur once.
///
/// # Errors
/// Where it occurs more often.
pub fn single<'a>(head: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a HeaderValue>, Mismatch> {
    let mut values = head.get_all(name).iter();
    match (values.next(), values.next()) {
        (value, None) => Ok(value),
        _ => Err(Mismatch(format!("{name} occurs more than once"))),
    }
}

fn optional<'a>(head: &'a HeaderMap, name: &HeaderName) -> Result<Option<Cow<'a, str>>, Mismatch> {
    let Some(value) = single(head, name)? else { return Ok(None) };
    decode(value).map(Some).map_err(|why| Mismatch(format!("{name} {why}")))
}

/// The arguments of one tool that headers repeat.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Params {
    list: Vec<Param>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Param {
    header: HeaderName,
    /// Member names from `arguments` on.
    path: Vec<String>,
}

impl Params {
    /// Reads the annotations in an `inputSchema`.
    ///
    /// # Errors
    /// With what is wrong with one of them. A client over HTTP may not use such a tool, nor list it ("Schema Extension").
    pub fn of_schema(schema: &RawValue) -> Result<Params, String> {
        let mut params = Params::default();
        let text = schema.get().as_bytes();
        // Most schemas have none. Escapes may hide one.
        if memchr::memmem::find(text, ANNOTATION.as_bytes()).is_some() || memchr::memmem::find(text, b"\\u").is_some() {
            params.walk(schema, Some(&mut Vec::new()), 0)?;
        }
        Ok(params)
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Bytes that it takes, about.
    pub fn bytes(&self) -> usize {
        let one =
            |p: &Param| p.path.iter().fold(size_of::<Param>() + p.header.as_str().len(), |sum, n| sum + size_of::<String>() + n.len());
        self.list.iter().map(one).sum()
    }

    /// Whether the header is one of these.
    pub fn has(&self, header: &HeaderName) -> bool {
        self.list.iter().any(|p| p.header == header)
    }

    /// Looks at one schema. `path`: of the argument that it describes; none where it describes none for certain.
    fn walk(&mut self, schema: &RawValue, mut path: Option<&mut Vec<String>>, depth: usize) -> Result<(), String> {
        if depth > DEPTH {
            return Err(format!("its inputSchema is nested more than {DEPTH} levels deep"));
        }
        if let Some(list) = json::array(schema) {
            return list.into_iter().try_for_each(|schema| self.walk(schema, None, depth + 1));
        }
        let Some(object) = Object::of(schema) else { return Ok(()) };
        for (name, value) in object.members() {
            match name {
                ANNOTATION => {
                    let path = path.as_deref().filter(|p| !p.is_empty());
                    let path = path.ok_or_else(|| format!("`{ANNOTATION}` stands where no single argument is described"))?.clone();
                    self.annotated(&object, value, path)?;
                }
                "properties" => {
                    let Some(properties) = Object::of(value) else { continue };
                    for (name, schema) in properties.members() {
                        match &mut path {
                            Some(path) => {
                                path.push(name.to_owned());
                                let walked = self.walk(schema, Some(&mut **path), depth + 1);
                                path.pop();
                                walked?;
                            }
                            None => self.walk(schema, None, depth + 1)?,
                        }
                    }
                }
                // Names of its own, each with a schema.
                "$defs" | "definitions" | "patternProperties" | "dependentSchemas" => {
                    let Some(schemas) = Object::of(value) else { continue };
                    schemas.members().try_for_each(|(_, schema)| self.walk(schema, None, depth + 1))?;
                }
                // Values, not schemas.
                "const" | "enum" | "default" | "example" | "examples" => {}
                _ => self.walk(value, None, depth + 1)?,
            }
        }
        Ok(())
    }

    fn annotated(&mut self, schema: &Object<'_>, value: &RawValue, path: Vec<String>) -> Result<(), String> {
        let name = json::string(value).ok_or_else(|| format!("an `{ANNOTATION}` is not a string"))?;
        let shown: String = name.chars().filter(|c| !c.is_control()).take(40).collect();
        let token = !name.is_empty() && name.len() <= MAX_NAME && name.bytes().all(is_tchar);
        let header = token.then(|| HeaderName::try_from(format!("{}{name}", headers::PARAM_PREFIX)).ok()).flatten();
        let header = header.ok_or_else(|| format!("`{ANNOTATION}` {shown:?} is no name for a header"))?;
        if !schema.get("type").ok().flatten().is_some_and(is_primitive) {
            return Err(format!("`{ANNOTATION}` {shown:?} is on an argument that is not declared as a string, an integer or a boolean"));
        }
        if self.has(&header) {
            return Err(format!("`{ANNOTATION}` {shown:?} occurs more than once"));
        }
        if self.list.len() >= MAX_PARAMS {
            return Err(format!("more than {MAX_PARAMS} arguments have an `{ANNOTATION}`"));
        }
        self.list.push(Param { header, path });
        Ok(())
    }

    fn write(&self, arguments: Option<&Object<'_>>, head: &mut HeaderMap) {
        for param in &self.list {
            match param.value(arguments).and_then(text) {
                Some(text) => head.insert(&param.header, encode(&text)),
                None => head.remove(&param.header),
            };
        }
    }

    fn check(&self, arguments: Option<&Object<'_>>, head: &HeaderMap) -> Result<(), Mismatch> {
        for Param { header, .. } in &self.list {
            let (said, value) = (optional(head, header)?, self.value_of(header, arguments));
            match (said, value) {
                (None, None) => {}
                (Some(_), None) => return Err(Mismatch(format!("{header} is there, and the body has no such argument"))),
                // What no header can repeat is for the tool to judge.
                (None, Some(value)) if text(value).is_none() => {}
                (None, Some(_)) => return Err(missing(header)),
                (Some(said), Some(value)) if !says(&said, value) => return Err(differs(header, &said, value.get())),
                (Some(_), Some(_)) => {}
            }
        }
        Ok(())
    }

    fn value_of<'a>(&self, header: &HeaderName, arguments: Option<&Object<'a>>) -> Option<&'a RawValue> {
        self.list.iter().find(|p| p.header == header)?.value(arguments)
    }
}

impl Param {
    /// The argument, where there is one and it is not null. Of a member that occurs twice the last counts, as it does for most readers.
    fn value<'a>(&self, arguments: Option<&Object<'a>>) -> Option<&'a RawValue> {
        let last = |object: &Object<'a>, name: &str| object.members().filter(|(key, _)| *key == name).map(|(_, value)| value).last();
        let (first, rest) = self.path.split_first()?;
        let mut value = last(arguments?, first)?;
        for name in rest {
            value = last(&Object::of(value)?, name)?;
        }
        Some(value).filter(|value| !json::is_null(value))
    }
}

/// RFC 9110, section 5.6.2.
fn is_tchar(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// One of the types that a header can repeat; it may be null instead.
fn is_primitive(of: &RawValue) -> bool {
    let primitive = |name: &str| matches!(name, "string" | "integer" | "boolean");
    if let Some(name) = json::string(of) {
        return primitive(&name);
    }
    let names: Vec<_> = json::array(of).unwrap_or_default().into_iter().filter_map(json::string).filter(|name| name != "null").collect();
    matches!(&names[..], [name] if primitive(name))
}

/// An argument as text: a string as it is, an integer in decimal digits, a boolean as its word.
fn text(value: &RawValue) -> Option<Cow<'_, str>> {
    match value.get().as_bytes().first()? {
        b'"' => json::string(value),
        b't' | b'f' => Some(Cow::Borrowed(value.get())),
        b'-' | b'0'..=b'9' => {
            let plain = Number::parse(value.get()).and_then(|n| n.integer());
            Some(plain.map_or(Cow::Borrowed(value.get()), Cow::Owned))
        }
        _ => None,
    }
}

/// Whether a header says what the argument says. Numbers are compared as numbers.
fn says(said: &str, value: &RawValue) -> bool {
    if let Some(number) = Number::parse(value.get()) {
        return Number::parse(said) == Some(number);
    }
    text(value).is_some_and(|text| text == said)
}

#[cfg(test)]
mod tests;

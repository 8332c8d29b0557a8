//! One pass over JSON text: where the members of an object or the elements of an array stand. All of the text is checked for syntax.
//!
//! Takes nothing that serde_json does not take. Where text is wrong, or nested more deeply than is counted here, the answer is none and no more:
//! `json` then asks serde_json, which has words for what is wrong. Allocates nothing.

use memchr::memchr2;
use std::borrow::Cow;

/// The name of a member.
#[derive(Clone, Copy, Debug)]
pub struct Name<'a> {
    /// As it stands, with its quotes.
    quoted: &'a str,
    escaped: bool,
}

/// Calls `each` with the members of the object that `text` is, in their order. It may stop by answering none.
pub fn members<'a>(text: &'a str, mut each: impl FnMut(Name<'a>, &'a str) -> Option<()>) -> Option<()> {
    let mut walk = Walk { text, at: 0 };
    if walk.opens(b'{', b'}')? {
        loop {
            let name = walk.name()?;
            each(name, walk.value()?)?;
            if walk.closes(b'}')? {
                break;
            }
        }
    }
    walk.end()
}

/// The same for the elements of an array.
pub fn elements<'a>(text: &'a str, mut each: impl FnMut(&'a str)) -> Option<()> {
    let mut walk = Walk { text, at: 0 };
    if walk.opens(b'[', b']')? {
        loop {
            each(walk.value()?);
            if walk.closes(b']')? {
                break;
            }
        }
    }
    walk.end()
}

/// Whether `text` is one value and nothing else.
pub fn is_value(text: &str) -> bool {
    let mut walk = Walk { text, at: 0 };
    walk.value().is_some_and(|value| value.len() == text.len())
}

impl<'a> Name<'a> {
    /// None for escapes that no string can have.
    pub fn decoded(self) -> Option<Cow<'a, str>> {
        if self.escaped {
            return serde_json::from_str::<String>(self.quoted).ok().map(Cow::Owned);
        }
        self.quoted.get(1..self.quoted.len() - 1).map(Cow::Borrowed)
    }

    /// As `decoded() == Some(name)`.
    pub fn is(self, name: &str) -> Option<bool> {
        match self.escaped {
            false => Some(self.quoted.as_bytes().get(1..self.quoted.len() - 1)? == name.as_bytes()),
            true => self.decoded().map(|decoded| decoded == name),
        }
    }
}

struct Walk<'a> {
    text: &'a str,
    at: usize,
}

/// The containers around a value, a bit each, the innermost the lowest: set for an object. The highest set bit only marks the end.
struct Open(u64);

impl Open {
    /// None where it would be too deep.
    fn push(&mut self, object: bool) -> Option<()> {
        if self.0 >> 63 != 0 {
            return None;
        }
        self.0 = self.0 << 1 | u64::from(object);
        Some(())
    }
}

impl<'a> Walk<'a> {
    /// The next byte that is no blank; it is not taken.
    fn peek(&mut self) -> Option<u8> {
        loop {
            let byte = *self.text.as_bytes().get(self.at)?;
            if !matches!(byte, b' ' | b'\n' | b'\r' | b'\t') {
                return Some(byte);
            }
            self.at += 1;
        }
    }

    /// Takes the beginning of a container. Whether there is anything in it: else its end is taken, too.
    fn opens(&mut self, open: u8, close: u8) -> Option<bool> {
        if self.peek()? != open {
            return None;
        }
        self.at += 1;
        let empty = self.peek()? == close;
        self.at += usize::from(empty);
        Some(!empty)
    }

    /// Takes what follows an element: whether that is the end.
    fn closes(&mut self, close: u8) -> Option<bool> {
        let byte = self.peek()?;
        self.at += 1;
        match byte {
            b',' => Some(false),
            _ => (byte == close).then_some(true),
        }
    }

    fn end(&mut self) -> Option<()> {
        self.peek().is_none().then_some(())
    }

    /// A name and the colon behind it.
    fn name(&mut self) -> Option<Name<'a>> {
        if self.peek()? != b'"' {
            return None;
        }
        let start = self.at;
        let escaped = self.string()?;
        let quoted = self.text.get(start..self.at)?;
        if self.peek()? != b':' {
            return None;
        }
        self.at += 1;
        Some(Name { quoted, escaped })
    }

    /// One value, without the blanks around it.
    fn value(&mut self) -> Option<&'a str> {
        let mut byte = self.peek()?;
        let start = self.at;
        let mut open = Open(1);
        loop {
            match byte {
                b'"' => {
                    self.string()?;
                }
                b'{' => {
                    if self.opens(b'{', b'}')? {
                        open.push(true)?;
                        self.name()?;
                        byte = self.peek()?;
                        continue;
                    }
                }
                b'[' => {
                    if self.opens(b'[', b']')? {
                        open.push(false)?;
                        byte = self.peek()?;
                        continue;
                    }
                }
                b'-' | b'0'..=b'9' => self.number()?,
                b't' => self.word(b"true")?,
                b'f' => self.word(b"false")?,
                b'n' => self.word(b"null")?,
                _ => return None,
            }
            // Behind a value: the next one, or the ends of what it is in.
            loop {
                if open.0 == 1 {
                    return self.text.get(start..self.at);
                }
                let object = open.0 & 1 == 1;
                if !self.closes(if object { b'}' } else { b']' })? {
                    if object {
                        self.name()?;
                    }
                    break;
                }
                open.0 >>= 1;
            }
            byte = self.peek()?;
        }
    }

    /// A string; whether there are escapes in it.
    fn string(&mut self) -> Option<bool> {
        let bytes = self.text.as_bytes();
        let (mut at, mut escaped) = (self.at + 1, false);
        loop {
            at += plain(bytes.get(at..)?);
            match bytes.get(at)? {
                b'"' => break,
                b'\\' => {
                    escaped = true;
                    at += match bytes.get(at + 1)? {
                        b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => 2,
                        b'u' if bytes.get(at + 2..at + 6)?.iter().all(u8::is_ascii_hexdigit) => 6,
                        _ => return None,
                    };
                }
                _ => return None,
            }
        }
        self.at = at + 1;
        Some(escaped)
    }

    fn number(&mut self) -> Option<()> {
        let bytes = self.text.as_bytes();
        let digits = |from: usize| {
            let count = bytes.get(from..)?.iter().take_while(|b| b.is_ascii_digit()).count();
            (count > 0).then_some(from + count)
        };
        let mut at = self.at + usize::from(bytes.get(self.at) == Some(&b'-'));
        at = if bytes.get(at) == Some(&b'0') { at + 1 } else { digits(at)? };
        if bytes.get(at) == Some(&b'.') {
            at = digits(at + 1)?;
        }
        if matches!(bytes.get(at), Some(b'e' | b'E')) {
            let signed = matches!(bytes.get(at + 1), Some(b'+' | b'-'));
            at = digits(at + 1 + usize::from(signed))?;
        }
        self.at = at;
        Some(())
    }

    fn word(&mut self, word: &[u8]) -> Option<()> {
        let there = self.text.as_bytes().get(self.at..)?.starts_with(word);
        self.at += word.len();
        there.then_some(())
    }
}

/// How many bytes stand for themselves before a quote, a backslash or a control character.
pub(super) fn plain(bytes: &[u8]) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    /// Most names and many values end within these; what is longer is worth the other way.
    const SHORT: usize = 64;
    let special = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..0x20);
    let mut at = 0;
    while let Some(word) = bytes.get(at..).and_then(<[u8]>::first_chunk::<8>) {
        if at >= SHORT {
            let rest = &bytes[at..];
            let end = memchr2(b'"', b'\\', rest).unwrap_or(rest.len());
            let control = rest[..end].iter().fold(0, |found, &byte| found | u8::from(byte < 0x20));
            return at + if control == 0 { end } else { rest.iter().position(special).unwrap_or(end) };
        }
        // The lowest bit that is set is right; those above it may not be.
        let word = u64::from_le_bytes(*word);
        let is = |byte: u8| {
            let differs = word ^ (ONES * u64::from(byte));
            differs.wrapping_sub(ONES) & !differs
        };
        let found = (is(b'"') | is(b'\\') | word.wrapping_sub(ONES * 0x20) & !word) & HIGH;
        if found != 0 {
            return at + found.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    let rest = bytes.get(at..).unwrap_or_default();
    at + rest.iter().position(special).unwrap_or(rest.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::value::RawValue;
    use std::collections::BTreeMap;

    const TEXTS: [&str; 6] = [
        r#" {"a":1,"b" : [ -0.5e+3 , {} , [], {"c":{"d":"e"}} ] , "\u0062\n":"\ud800\"", "":true,"f":false ,"n":null } "#,
        r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"t","arguments":{"text":"a text that is longer than what is short, \\ \" with more of it behind that"}}}"#,
        r#"{"é":"grüße, mehr als zweiunddreißig Zeichen lang, und dann noch ein paar","x":"😀"}"#,
        r#"[1,[2,"]"],{"a":[{}]},"x"]"#,
        "{}",
        "[ ]",
    ];

    fn ours(text: &str) -> Option<Vec<(String, String)>> {
        let mut found = Vec::new();
        members(text, |name, value| {
            found.push((name.decoded()?.into_owned(), value.to_owned()));
            Some(())
        })
        .map(|()| found)
    }

    /// What is taken here serde_json takes as well, and what that takes of shallow text is taken here.
    fn agrees(text: &str) {
        let theirs = serde_json::from_str::<BTreeMap<String, &RawValue>>(text).ok();
        let theirs: Option<BTreeMap<String, String>> =
            theirs.map(|all| all.into_iter().map(|(name, value)| (name, value.get().to_owned())).collect());
        assert_eq!(ours(text).map(BTreeMap::from_iter), theirs, "{text}");
        let theirs = serde_json::from_str::<Vec<&RawValue>>(text).ok();
        let theirs: Option<Vec<&str>> = theirs.map(|all| all.into_iter().map(RawValue::get).collect());
        let mut found = Vec::new();
        assert_eq!(elements(text, |element| found.push(element)).map(|()| found), theirs, "{text}");
        assert_eq!(is_value(text), serde_json::from_str::<&RawValue>(text).is_ok_and(|value| value.get() == text), "{text}");
    }

    #[test]
    fn it_takes_what_serde_json_takes_and_nothing_else() {
        for text in TEXTS {
            agrees(text);
            for at in (0..text.len()).filter(|at| text.is_char_boundary(*at)) {
                agrees(&text[..at]);
                agrees(&text[at..]);
                for put in ["", "\"", "\\", "{", "}", "[", "]", ",", ":", "0", "-", ".", "e", "u", " ", "\n", "\u{1}", "\u{7f}", "é"] {
                    let after = text[at..].chars().next().map_or(at, |c| at + c.len_utf8());
                    agrees(&format!("{}{put}{}", &text[..at], &text[after..]));
                    agrees(&format!("{}{put}{}", &text[..at], &text[at..]));
                }
            }
        }
    }

    #[test]
    fn members_come_in_their_order_as_often_as_they_are_there() {
        let of = |text| ours(text).unwrap().into_iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>();
        assert_eq!(of(r#"{"b":1,"a":[1, 2],"\u0062": "x" }"#), ["b=1", "a=[1, 2]", "b=\"x\""]);
    }

    #[test]
    fn a_string_ends_where_it_ends_however_long_it_is() {
        for length in 0..100 {
            for end in ["\"", "\\n\"", "\u{1}\""] {
                agrees(&format!("{{\"a\":\"{}{end}}}", "x".repeat(length)));
            }
        }
    }

    #[test]
    fn what_is_too_deep_is_left_to_others() {
        let deep = |levels: usize| format!("{{\"a\":{}{}}}", "[".repeat(levels), "]".repeat(levels));
        assert!(ours(&deep(64)).is_some());
        assert!(ours(&deep(65)).is_none() && ours(&deep(1000)).is_none());
    }
}

//! JSON with what desktop clients add to it (comments, trailing commas) to the located tree.
//!
//! A parser of its own, because the errors need lines and columns of every key, and YAML is not quite a superset of what
//! these files hold. Strict in all else: RFC 8259 strings and numbers. Depth is bounded by [`MAX_DEPTH`].

use std::sync::Arc;

use super::tree::{Doc, Entry, Kind, Mark, Node, Scalar};
use crate::config::problem::{Place, Problem, Problems};

const MAX_DEPTH: usize = 64;

/// Reads one document, or reports the first syntax error. Of duplicate keys the first is kept and the other reported.
pub fn parse(file: Arc<str>, text: &str, problems: &mut Problems) -> Option<Doc> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut reader = Reader { text, at: 0, line: 1, line_start: 0, next_id: 0, duplicates: Vec::new() };
    let root = reader.value(0).and_then(|root| {
        reader.blank()?;
        if reader.at < text.len() { reader.fail("expected the end of the file") } else { Ok(root) }
    });
    for (mark, key) in std::mem::take(&mut reader.duplicates) {
        let place = Place::in_file(file.clone(), mark, key);
        problems.push(Problem::new(place, "this key is here twice; keep one of them"));
    }
    match root {
        Ok(root) => Some(Doc::new(file, root)),
        Err((mark, message)) => {
            let place = Place::in_file(file, mark, String::new());
            problems.push(Problem::new(place, format!("not valid JSON: {message}")));
            None
        }
    }
}

type Fail = (Mark, String);

struct Reader<'a> {
    text: &'a str,
    at: usize,
    line: u32,
    line_start: usize,
    next_id: u32,
    duplicates: Vec<(Mark, String)>,
}

// === impl Reader ===

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn mark(&self) -> Mark {
        let column = self.text.get(self.line_start..self.at).map_or(0, |s| s.chars().count());
        Mark { line: self.line, column: u32::try_from(column + 1).unwrap_or(u32::MAX) }
    }

    fn fail<T>(&self, message: &str) -> Result<T, Fail> {
        Err((self.mark(), message.to_owned()))
    }

    /// Skips white space and comments.
    fn blank(&mut self) -> Result<(), Fail> {
        loop {
            let rest = &self.text[self.at..];
            if rest.starts_with("//") {
                self.at += rest.find('\n').unwrap_or(rest.len());
            } else if rest.starts_with("/*") {
                let Some(end) = rest.find("*/") else { return self.fail("comment without end") };
                let lines = rest[..end].matches('\n').count();
                if let Some(last) = rest[..end].rfind('\n') {
                    self.line = self.line.saturating_add(u32::try_from(lines).unwrap_or(u32::MAX));
                    self.line_start = self.at + last + 1;
                }
                self.at += end + 2;
            } else {
                match self.peek() {
                    Some(b'\n') => {
                        self.at += 1;
                        self.line = self.line.saturating_add(1);
                        self.line_start = self.at;
                    }
                    Some(b' ' | b'\t' | b'\r') => self.at += 1,
                    _ => return Ok(()),
                }
            }
        }
    }

    fn value(&mut self, depth: usize) -> Result<Node, Fail> {
        self.blank()?;
        let at = self.mark();
        if depth > MAX_DEPTH {
            return self.fail("nested too deeply");
        }
        let kind = match self.peek() {
            Some(b'{') => self.object(depth)?,
            Some(b'[') => self.array(depth)?,
            Some(b'"') => Kind::Scalar(Scalar { text: self.string()?, plain: false, written: None }),
            _ => self.literal()?,
        };
        self.next_id = self.next_id.saturating_add(1);
        Ok(Node { id: self.next_id, at, kind })
    }

    fn object(&mut self, depth: usize) -> Result<Kind, Fail> {
        let mut entries: Vec<Entry> = Vec::new();
        self.at += 1;
        loop {
            self.blank()?;
            match self.peek() {
                Some(b'}') => break,
                Some(b'"') => {}
                _ => return self.fail("expected a key in quotes or `}`"),
            }
            let at = self.mark();
            let key = self.string()?;
            self.blank()?;
            if self.peek() != Some(b':') {
                return self.fail("expected `:`");
            }
            self.at += 1;
            let value = self.value(depth + 1)?;
            if entries.iter().any(|e| e.key == key) {
                self.duplicates.push((at, key));
            } else {
                entries.push(Entry { key, at, value });
            }
            self.blank()?;
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => break,
                _ => return self.fail("expected `,` or `}`"),
            }
        }
        self.at += 1;
        Ok(Kind::Map(entries))
    }

    fn array(&mut self, depth: usize) -> Result<Kind, Fail> {
        let mut items = Vec::new();
        self.at += 1;
        loop {
            self.blank()?;
            if self.peek() == Some(b']') {
                break;
            }
            items.push(self.value(depth + 1)?);
            self.blank()?;
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => break,
                _ => return self.fail("expected `,` or `]`"),
            }
        }
        self.at += 1;
        Ok(Kind::List(items))
    }

    /// A token is cut out here and understood by `serde_json`.
    fn string(&mut self) -> Result<String, Fail> {
        let bytes = self.text.as_bytes();
        let mut end = self.at + 1;
        loop {
            match bytes.get(end) {
                Some(b'"') => break,
                Some(b'\\') => end += 2,
                Some(b'\n') | None => return self.fail("string without closing quote"),
                Some(_) => end += 1,
            }
        }
        let token = self.text.get(self.at..=end).unwrap_or_default();
        let Ok(text) = serde_json::from_str(token) else { return self.fail("malformed string") };
        self.at = end + 1;
        Ok(text)
    }

    fn literal(&mut self) -> Result<Kind, Fail> {
        let rest = &self.text[self.at..];
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '-' | '+' | '.')).unwrap_or(rest.len());
        let token = &rest[..end];
        let known = matches!(token, "true" | "false" | "null") || serde_json::from_str::<&serde_json::value::RawValue>(token).is_ok();
        if !known {
            return self.fail("expected a value");
        }
        self.at += end;
        Ok(Kind::Scalar(Scalar { text: token.to_owned(), plain: true, written: None }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Doc, String> {
        let mut problems = Problems::default();
        let doc = parse("f.json".into(), text, &mut problems);
        if problems.is_empty() { Ok(doc.unwrap()) } else { Err(problems.to_string()) }
    }

    #[test]
    fn comments_and_trailing_commas_are_read_and_places_are_kept() {
        let doc = read("{\n  // one\n  \"a\": [1, \"\\u00e9\",], /* two\n */ \"b\": {\"c\": null,}\n}").unwrap();
        assert_eq!(doc.key_place(&["b".into()]).to_string(), "f.json:4:5: b");
        assert_eq!(doc.place(&["a".into(), 1.into()]).to_string(), "f.json:3:12: a[1]");
    }

    #[test]
    fn a_mistake_is_told_with_its_place() {
        assert_eq!(read("{\n \"a\" 1}").unwrap_err(), "f.json:2:6: not valid JSON: expected `:`");
        assert_eq!(read("{\"a\": nope}").unwrap_err(), "f.json:1:7: not valid JSON: expected a value");
        assert_eq!(read("{\"a\": 1} x").unwrap_err(), "f.json:1:10: not valid JSON: expected the end of the file");
        assert_eq!(read("{\"a\": 1, \"a\": 2}").unwrap_err(), "f.json:1:10: a: this key is here twice; keep one of them");
        assert!(read("{\"a\": \"\\").unwrap_err().contains("without closing quote"));
        assert!(read(&"[".repeat(100)).unwrap_err().contains("nested too deeply"));
    }
}

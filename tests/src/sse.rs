//! Parses `text/event-stream` byte by byte, as it arrives, without losing anything that a test may want to see:
//! ids, `retry`, events without data, comments. Data stays bytes, because fidelity tests compare bytes.

/// One event, or one comment line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Event {
    /// The `id` field of this event itself, not the last one seen on the stream.
    pub id: Option<String>,
    pub event: Option<String>,
    /// The `data` lines joined by line feeds; `None` when the event had no `data` field at all.
    pub data: Option<Vec<u8>>,
    pub retry: Option<u64>,
    /// Set for a comment (`: …`), which has no other field.
    pub comment: Option<String>,
}

impl Event {
    /// True when there is a JSON-RPC message in it: neither a comment nor a priming event.
    pub fn is_message(&self) -> bool {
        self.data.as_ref().is_some_and(|data| !data.is_empty())
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(self.data.as_deref().unwrap_or_default()).expect("event data is UTF-8")
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(self.text()).unwrap_or_else(|error| panic!("event data {:?}: {error}", self.text()))
    }
}

/// Incremental parser: feed bytes, take events. Accepts LF, CRLF and CR line ends.
#[derive(Debug, Default)]
pub struct Parser {
    line: Vec<u8>,
    event: Event,
    touched: bool,
    after_cr: bool,
}

impl Parser {
    pub fn feed(&mut self, bytes: &[u8], out: &mut impl Extend<Event>) {
        for &byte in bytes {
            let skip = self.after_cr && byte == b'\n';
            self.after_cr = byte == b'\r';
            match byte {
                _ if skip => {}
                b'\n' | b'\r' => {
                    let line = std::mem::take(&mut self.line);
                    self.end_of_line(&line, out);
                }
                _ => self.line.push(byte),
            }
        }
    }

    fn end_of_line(&mut self, line: &[u8], out: &mut impl Extend<Event>) {
        if line.is_empty() {
            if std::mem::take(&mut self.touched) {
                out.extend([std::mem::take(&mut self.event)]);
            }
            return;
        }
        let colon = line.iter().position(|&byte| byte == b':').unwrap_or(line.len());
        let value = line.get(colon + 1..).unwrap_or_default();
        let value = value.strip_prefix(b" ").unwrap_or(value);
        let text = || String::from_utf8_lossy(value).into_owned();
        match &line[..colon] {
            b"" => out.extend([Event { comment: Some(text()), ..Event::default() }]),
            b"data" => {
                self.touched = true;
                match &mut self.event.data {
                    Some(data) => {
                        data.push(b'\n');
                        data.extend_from_slice(value);
                    }
                    empty => *empty = Some(value.to_vec()),
                }
            }
            b"id" => {
                self.touched = true;
                self.event.id = Some(text());
            }
            b"event" => {
                self.touched = true;
                self.event.event = Some(text());
            }
            b"retry" => {
                self.touched = true;
                self.event.retry = text().parse().ok();
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(chunks: &[&str]) -> Vec<Event> {
        let (mut parser, mut out) = (Parser::default(), Vec::new());
        for chunk in chunks {
            parser.feed(chunk.as_bytes(), &mut out);
        }
        out
    }

    #[test]
    fn events_survive_any_cut_between_chunks() {
        let whole = "id: 1\ndata: {\"a\":\ndata: 1}\n\n: ping\r\nretry: 50\r\nid: 2\r\ndata:\r\n\r\n";
        let expected = parse(&[whole]);
        assert_eq!(expected.len(), 3);
        assert_eq!(expected[0].text(), "{\"a\":\n1}");
        assert_eq!(expected[1].comment.as_deref(), Some("ping"));
        assert_eq!((expected[2].retry, expected[2].is_message()), (Some(50), false));
        for cut in 1..whole.len() {
            assert_eq!(parse(&[&whole[..cut], &whole[cut..]]), expected, "cut at {cut}");
        }
    }
}

//! The data of one event of a stream while it comes: its `data` lines without what frames them, joined by line feeds (WHATWG HTML, 9.2.6).
//!
//! Begins in the middle of a `data` line, where [`super::sse::Decoder`] has found the event to be large. Copies nothing.

use bytes::Bytes;

/// Bytes of a line that are looked at.
const LOOKED_AT: usize = 64;
const DATA: &[u8] = b"data";

/// What is left of an event.
#[derive(Debug)]
pub struct EventData {
    state: State,
    /// The last line ended in CR, so that an LF that follows belongs to it.
    after_cr: bool,
    /// What a line begins with that is no data, as far as it matters.
    line: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// In the data of a line.
    Data,
    /// At the start of a line, or in its name: so many bytes of `data` have come.
    Name(usize),
    /// Behind the colon: a blank belongs to it.
    Colon,
    /// In a line of another field.
    Other,
    Over,
}

/// The event turns out to be none that carries a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the event has another name than `message`")]
pub struct NoMessage;

impl EventData {
    /// Goes on behind the beginning of a `data` line.
    pub fn begun() -> Self {
        EventData { state: State::Data, after_cr: false, line: Vec::new() }
    }

    /// Puts what is data in `chunk` into `out`.
    ///
    /// # Errors
    /// When the event has a name that says so late that it is no message.
    pub fn push(&mut self, chunk: &Bytes, out: &mut Vec<Bytes>) -> Result<(), NoMessage> {
        let mut at = 0;
        while at < chunk.len() && self.state != State::Over {
            let byte = chunk[at];
            if std::mem::take(&mut self.after_cr) && byte == b'\n' {
                at += 1;
                continue;
            }
            let ends = matches!(byte, b'\n' | b'\r');
            match self.state {
                State::Data => {
                    let end = memchr::memchr2(b'\n', b'\r', &chunk[at..]).map_or(chunk.len(), |found| at + found);
                    if end > at {
                        out.push(chunk.slice(at..end));
                    }
                    at = end;
                    if at < chunk.len() {
                        self.line_ends(chunk[at])?;
                        at += 1;
                    }
                    continue;
                }
                State::Name(0) if ends => {
                    self.state = State::Over;
                    continue;
                }
                State::Name(DATA_LEN) if ends || byte == b':' => {
                    // One more line of data, empty where it has no colon.
                    out.push(Bytes::from_static(b"\n"));
                    self.state = State::Colon;
                }
                State::Name(known) if known < DATA.len() && byte == DATA[known] => self.state = State::Name(known + 1),
                State::Name(known) => {
                    self.line.clear();
                    self.line.extend_from_slice(&DATA[..known]);
                    self.state = State::Other;
                    // The byte is looked at again.
                    continue;
                }
                State::Colon => {
                    self.state = State::Data;
                    if byte != b' ' {
                        continue;
                    }
                }
                State::Other => {
                    if !ends && self.line.len() < LOOKED_AT {
                        self.line.push(byte);
                    }
                }
                State::Over => {}
            }
            if ends {
                self.line_ends(byte)?;
            }
            at += 1;
        }
        Ok(())
    }

    /// Its last line has come.
    pub fn is_over(&self) -> bool {
        self.state == State::Over
    }

    fn line_ends(&mut self, byte: u8) -> Result<(), NoMessage> {
        self.after_cr = byte == b'\r';
        if self.state == State::Other
            && let Some(name) = self.line.strip_prefix(b"event")
            && !matches!(name, b":message" | b": message")
            && matches!(name.first(), None | Some(b':'))
        {
            return Err(NoMessage);
        }
        self.state = State::Name(0);
        Ok(())
    }
}

/// As a pattern.
const DATA_LEN: usize = DATA.len();

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::sse::Decoder;

    /// What is data behind `data: `, in pieces of `size`.
    fn data(text: &str, size: usize) -> Option<Vec<u8>> {
        let (mut event, mut out) = (EventData::begun(), Vec::new());
        for chunk in text.as_bytes().chunks(size) {
            event.push(&Bytes::copy_from_slice(chunk), &mut out).ok()?;
        }
        event.is_over().then(|| out.concat())
    }

    #[test]
    fn it_is_what_the_decoder_makes_of_the_whole_event() {
        for text in [
            "{\"a\":1}\n\n",
            "a\r\n\r\nrest",
            "a\r\rdata: b\n\n",
            "\n\n",
            "a\ndata: b\ndata:c\ndata:  d\n\ndata: e\n\n",
            "a\ndata\ndata:\n\n",
            "a\nid: 7\nretry: 1\n: comment\nevent: message\ndatum: x\ndat\nd\ndata: b\n\n",
            "a\r\nevent:message\r\ndata: b\r\n\r\n",
            "a\nevents: x\n\n",
            ":\n\n",
        ] {
            let mut decoder = Decoder::new(1000);
            decoder.push(format!("data: {text}").as_bytes());
            let whole = decoder.next_event().unwrap().unwrap().data.unwrap();
            for size in 1..=text.len() {
                assert_eq!(data(text, size).as_deref(), Some(&whole[..]), "{text:?} by {size}");
            }
        }
    }

    #[test]
    fn it_goes_on_until_the_blank_line_and_no_other_name_passes() {
        assert_eq!(data("a\ndata: b\n", 3), None);
        for text in ["a\nevent: x\n\n", "a\nevent: messages\n\n", "a\nevent\n\n", "a\nevent:\n\n"] {
            assert_eq!(data(text, 2), None, "{text:?}");
        }
    }
}

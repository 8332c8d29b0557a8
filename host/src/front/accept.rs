//! `Accept` (RFC 9110, 12.5.1): which of the two media types of the transport a client can read.
//!
//! The specification asks clients to list both. Many list one, or `*/*`, or nothing; whoever can read an answer gets it.

use super::refused::Refused;
use crate::protocol::headers;
use http::{HeaderMap, header};

/// How most clients say that they take both: known without reading it.
const USUAL: [&[u8]; 2] = [b"application/json, text/event-stream", b"text/event-stream, application/json"];

/// What the client can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepts {
    pub json: bool,
    pub events: bool,
}

impl Accepts {
    /// Reads all `Accept` lines. None at all, or none that can be understood, accept everything.
    pub fn read(headers: &HeaderMap) -> Self {
        let mut lines = headers.get_all(header::ACCEPT).iter();
        if let (Some(line), None) = (lines.next(), lines.next())
            && USUAL.contains(&line.as_bytes())
        {
            return Accepts { json: true, events: true };
        }
        let lines = headers.get_all(header::ACCEPT).iter().filter_map(|v| v.to_str().ok());
        let ranges: Vec<Range> = lines.flat_map(|line| line.split(',')).filter_map(Range::parse).collect();
        let takes = |wanted: &str| {
            // The most specific range decides; of two equal ones the kinder.
            let best = ranges.iter().filter_map(|r| Some((r.fits(wanted)?, r.wanted))).max();
            ranges.is_empty() || best.is_some_and(|(_, wanted)| wanted)
        };
        Accepts { json: takes(headers::JSON), events: takes(headers::EVENT_STREAM) }
    }

    /// Refuses a client that could read no form of an answer. Messages that have none are not asked.
    pub fn check_answer(self) -> Result<(), Refused> {
        if self.json || self.events { Ok(()) } else { Err(Refused::NotAcceptable { wanted: "application/json or text/event-stream" }) }
    }
}

struct Range {
    media: String,
    /// Its weight is not zero.
    wanted: bool,
}

impl Range {
    fn parse(text: &str) -> Option<Self> {
        let media = headers::media_type(text);
        let weight = text.split(';').skip(1).find_map(|p| {
            let (name, value) = p.split_once('=')?;
            name.trim().eq_ignore_ascii_case("q").then(|| value.trim().parse::<f32>().unwrap_or(1.0))
        });
        media.contains('/').then_some(Range { media, wanted: weight.is_none_or(|q| q > 0.0) })
    }

    /// How specific the range is, where it covers `wanted`.
    fn fits(&self, wanted: &str) -> Option<u8> {
        match self.media.split_once('/')? {
            _ if self.media == wanted => Some(2),
            (kind, "*") if wanted.split_once('/').is_some_and(|(k, _)| k == kind) => Some(1),
            ("*", "*") => Some(0),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &[&str]) -> (bool, bool) {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(header::ACCEPT, line.parse().unwrap());
        }
        let Accepts { json, events } = Accepts::read(&headers);
        (json, events)
    }

    #[test]
    fn whoever_can_read_an_answer_is_served() {
        for (lines, wanted) in [
            (&["application/json, text/event-stream"][..], (true, true)),
            (&["text/event-stream, application/json"], (true, true)),
            (&["application/json, text/event-stream", "*/*;q=0"], (true, true)),
            (&["Text/Event-Stream", "Application/JSON; charset=utf-8"], (true, true)),
            (&["application/json;q=0.9, text/event-stream ; q=0.1"], (true, true)),
            (&[], (true, true)),
            (&[""], (true, true)),
            (&["nonsense"], (true, true)),
            (&["*/*"], (true, true)),
            (&["application/*, text/*"], (true, true)),
            (&["application/json"], (true, false)),
            (&["text/*"], (false, true)),
            (&["text/event-stream"], (false, true)),
            (&["text/html"], (false, false)),
        ] {
            assert_eq!(read(lines), wanted, "{lines:?}");
        }
    }

    #[test]
    fn a_weight_of_zero_refuses_and_the_most_specific_range_decides() {
        assert_eq!(read(&["text/event-stream;q=0, */*"]), (true, false));
        assert_eq!(read(&["*/*;q=0, application/json"]), (true, false));
        assert_eq!(read(&["application/*;q=0, */*;q=0.5"]), (false, true));
        assert_eq!(read(&["application/json;q=0.0"]), (false, false));
    }
}

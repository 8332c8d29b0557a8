//! Lines from a child's output, with a bound, each byte looked at once.

use crate::admission::{Reading, Room};
use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

const READ: usize = 64 * 1024;
/// Of a line that is too long so much is kept, to find the id in.
const HEAD: usize = 4096;

#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    /// Without its line end; not empty, and more than blanks.
    Text(Bytes),
    /// Longer than the limit; the rest is skipped.
    TooLong { head: Bytes },
}

#[derive(Debug)]
pub struct Lines<R> {
    from: R,
    buffer: BytesMut,
    /// Up to here `buffer` has been searched.
    searched: usize,
    skipping: bool,
    limit: usize,
    room: Option<Room>,
    /// What the line that is being read holds of the room.
    reading: Option<Reading>,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    /// `room`: where a long line gets its room from.
    pub fn new(from: R, limit: usize, room: Option<Room>) -> Self {
        Lines { from, buffer: BytesMut::new(), searched: 0, skipping: false, limit, room, reading: None }
    }

    /// What the line that just came holds of the room.
    pub fn reading(&mut self) -> Option<Reading> {
        self.reading.take()
    }

    /// The next line; none at the end. What stands after the last line end is not a line. Cancel-safe.
    pub async fn next(&mut self) -> std::io::Result<Option<Line>> {
        loop {
            if let Some(found) = memchr::memchr(b'\n', &self.buffer[self.searched..]) {
                let line = self.buffer.split_to(self.searched + found).freeze();
                self.buffer.advance(1);
                self.searched = 0;
                let line = trim(line);
                if !std::mem::take(&mut self.skipping) && !line.is_empty() {
                    return Ok(Some(Line::Text(line)));
                }
                continue;
            }
            self.searched = self.buffer.len();
            if self.skipping {
                self.buffer.clear();
                self.searched = 0;
            } else if self.buffer.len() > self.limit {
                let head = Bytes::copy_from_slice(&self.buffer[..HEAD.min(self.buffer.len())]);
                self.buffer = BytesMut::new();
                self.searched = 0;
                self.skipping = true;
                self.reading = None;
                return Ok(Some(Line::TooLong { head }));
            }
            if self.buffer.is_empty() && self.buffer.capacity() < READ / 8 {
                // A buffer that was shared with a message goes with that message.
                self.buffer = BytesMut::with_capacity(READ / 8);
            }
            if self.buffer.capacity() - self.buffer.len() < READ / 8 {
                self.buffer.reserve(READ.max(self.buffer.len()));
            }
            Room::grow(&self.room, &mut self.reading, self.buffer.len()).await;
            if self.from.read_buf(&mut self.buffer).await? == 0 {
                return Ok(None);
            }
        }
    }
}

fn trim(line: Bytes) -> Bytes {
    let start = line.iter().position(|b| !b.is_ascii_whitespace()).unwrap_or(line.len());
    let end = line.iter().rposition(|b| !b.is_ascii_whitespace()).map_or(start, |at| at + 1);
    line.slice(start..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn all(text: &[u8], limit: usize) -> Vec<Line> {
        let mut lines = Lines::new(text, limit, None);
        let mut out = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            out.push(line);
        }
        out
    }

    #[tokio::test]
    async fn line_ends_blank_lines_and_a_cut_last_line() {
        let text = |t: &'static str| Line::Text(Bytes::from_static(t.as_bytes()));
        assert_eq!(all(b"\n{\"a\":1}\r\n  \n\r\n x \nrest", 100).await, [text("{\"a\":1}"), text("x")]);
    }

    #[tokio::test]
    async fn a_line_over_the_limit_is_named_by_its_head_and_skipped() {
        let long = [b"{\"id\":3,".as_slice(), &vec![b'x'; 300_000], b"\nnext\n"].concat();
        let lines = all(&long, 100_000).await;
        let Line::TooLong { head } = &lines[0] else { panic!("{lines:?}") };
        assert!(head.starts_with(b"{\"id\":3,"));
        assert_eq!(lines[1..], [Line::Text(Bytes::from_static(b"next"))]);
    }
}

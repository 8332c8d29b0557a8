//! The streams that a session has: few at a time, in a list. The standalone one is made when it is first wanted: most clients never have it.

use super::{STANDALONE, Stream, StreamId};
use std::time::Instant;

#[derive(Default)]
pub(super) struct Table {
    /// Boxed, so that looking for one touches little, and a session without any holds nothing.
    list: Vec<(StreamId, Box<Stream>)>,
    /// The standalone stream was here and is gone for good.
    standalone_gone: bool,
    /// Whatever is made from now on has ended already.
    closed: Option<Instant>,
}

impl Table {
    /// The stream, if it is here. The standalone one, of which nothing is known before it is first changed, may not be.
    pub fn get(&self, id: StreamId) -> Option<&Stream> {
        self.list.iter().rev().find(|(at, _)| *at == id).map(|(_, stream)| &**stream)
    }

    pub fn get_mut(&mut self, id: StreamId) -> Option<&mut Stream> {
        // From the end: the newest are those that something happens to.
        match self.list.iter().rposition(|(at, _)| *at == id) {
            Some(at) => self.list.get_mut(at).map(|(_, stream)| &mut **stream),
            None if id == STANDALONE && !self.standalone_gone => {
                let stream = Stream { resumable: true, ..Stream::new() };
                Some(self.insert(STANDALONE, stream))
            }
            None => None,
        }
    }

    /// `id` is that of none that is here.
    pub fn insert(&mut self, id: StreamId, mut stream: Stream) -> &mut Stream {
        stream.finished = stream.finished.or(self.closed);
        if self.list.capacity() == 0 {
            // One call at a time is what most have.
            self.list.reserve_exact(1);
        }
        self.list.push((id, Box::new(stream)));
        let last = self.list.len() - 1;
        &mut self.list[last].1
    }

    /// Whether it was here.
    pub fn remove(&mut self, id: StreamId) -> bool {
        self.standalone_gone |= id == STANDALONE;
        let Some(at) = self.list.iter().rposition(|(known, _)| *known == id) else { return false };
        self.list.remove(at);
        true
    }

    pub fn iter(&self) -> impl Iterator<Item = (StreamId, &Stream)> {
        self.list.iter().map(|(id, stream)| (*id, &**stream))
    }

    /// Ends all that are here, and those that are made later.
    pub fn close(&mut self) {
        let now = *self.closed.get_or_insert_with(Instant::now);
        for (_, stream) in &mut self.list {
            stream.end(now);
        }
    }

    pub fn is_closed(&self) -> bool {
        self.closed.is_some()
    }
}

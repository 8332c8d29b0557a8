//! Members of a result that are put in front of the others, and those that are taken out, as they pass.
//!
//! What stands between two members waits for the name of the next: the comma goes with it.

use super::{Key, Node, Scanner, State};
use bytes::Bytes;

/// What a result gets for a client of another era, as [`super::members::splice`] does with a whole one.
#[derive(Clone, Debug)]
pub struct Dress {
    /// Members that are put in front of the others: JSON text, without braces.
    pub add: Bytes,
    /// Which of its own members are taken out.
    pub out: fn(&str) -> bool,
}

/// What becomes of a member of a result that is dressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Member {
    Kept,
    /// Its name has not come yet.
    Unnamed,
    Dropped,
}

impl Scanner {
    /// Directly in a result that is dressed.
    pub(super) fn in_dressed(&self) -> bool {
        self.dress.is_some() && self.nodes.last() == Some(&Node::Result) && self.nesting.depth == self.nodes.len()
    }

    /// The name of a member has come, if it is one of a result that is dressed.
    pub(super) fn member_begins(&mut self, chunk: &Bytes, from: &mut usize, at: usize) {
        if self.member != Member::Unnamed {
            return;
        }
        if self.key == Key::Out {
            self.between.clear();
            self.dropped = true;
            self.member = Member::Dropped;
            return;
        }
        self.between.extend_from_slice(&chunk[*from..at]);
        let mut between = std::mem::take(&mut self.between);
        if !std::mem::replace(&mut self.kept, true) {
            if self.dropped {
                // The comma stood behind what is not there.
                let comma = between.iter().position(|&byte| byte == b',').map_or(0, |comma| comma + 1);
                between.drain(..comma);
            }
            self.put_on(&[b","]);
        }
        self.pass(between.into());
        *from = at;
        self.member = Member::Kept;
    }

    /// A member has come whole, or the result has begun.
    pub(super) fn member_ends(&mut self, chunk: &Bytes, from: &mut usize, at: usize) {
        if self.in_dressed() && matches!(self.state, State::Next | State::FirstName) {
            if self.member == Member::Kept {
                self.pass(chunk.slice(*from..at));
            }
            *from = at;
            self.member = Member::Unnamed;
        }
    }

    /// The result ends at `at`.
    pub(super) fn members_end(&mut self, chunk: &Bytes, from: &mut usize, at: usize) {
        if !self.kept {
            self.put_on(&[]);
        }
        self.between.extend_from_slice(&chunk[*from..at]);
        let between = std::mem::take(&mut self.between);
        self.pass(between.into());
        *from = at;
        self.member = Member::Kept;
    }

    fn put_on(&mut self, and: &[&'static [u8]]) {
        if let Some(dress) = &self.dress {
            let add = dress.add.clone();
            self.pass(add);
            and.iter().for_each(|part| self.pass(Bytes::from_static(part)));
        }
    }
}

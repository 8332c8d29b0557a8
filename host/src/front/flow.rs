//! The body of an answer that flows: what comes of it is given to the connection piece by piece, and nothing is asked for before that.
//!
//! Owes its client what it holds of the answer, and the frame until the end.

use super::body::Parts;
use crate::admission::{AHEAD_OF_ONE, Permit};
use crate::session::streams::{Cut, Reader, Rest};
use bytes::Bytes;
use std::task::{Context, Poll, ready};

/// Bytes, and what of the credit goes with them.
type Part = (Bytes, Option<Permit>);

/// An answer that is still being read.
pub struct Flowing {
    rest: Rest,
    parts: Parts,
    /// The frame; no bytes.
    permit: Option<Permit>,
    /// Bytes that are still to come, where that is known.
    pub(super) left: Option<u64>,
    /// While it is here the session is in use.
    _reader: Reader,
}

impl Flowing {
    pub fn new(rest: Rest, permit: Option<Permit>, reader: Reader) -> Self {
        Flowing { left: rest.length, rest, parts: Parts::default(), permit, _reader: reader }
    }

    /// The next piece and its share of the credit, as `Parts::next`. After the last piece of an answer of unknown length there is one
    /// without bytes, which returns the frame.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Part, Cut>>> {
        loop {
            if let Some((part, mut permit)) = self.parts.next() {
                self.left = self.left.map(|left| left.saturating_sub(part.len() as u64));
                if self.left == Some(0) {
                    permit = match (permit, self.permit.take()) {
                        (Some(mut all), Some(frame)) => {
                            all.join(frame);
                            Some(all)
                        }
                        (one, other) => one.or(other),
                    };
                }
                return Poll::Ready(Some(Ok((part, permit))));
            }
            match ready!(self.rest.poll_next(cx)) {
                Some(Ok(wire)) => {
                    let bytes = wire.len();
                    let held = self.permit.as_mut().map(|permit| {
                        permit.set_bytes(bytes);
                        permit.split(bytes)
                    });
                    self.parts = Parts::new(wire, held, AHEAD_OF_ONE);
                }
                Some(Err(cut)) => return Poll::Ready(Some(Err(cut))),
                None => return Poll::Ready(self.permit.take().map(|frame| Ok((Bytes::new(), Some(frame))))),
            }
        }
    }
}

//! A request body made of the shared parts of a message; its length is known.

use crate::protocol::Wire;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

#[derive(Debug, Default)]
pub struct WireBody {
    parts: std::vec::IntoIter<Bytes>,
    left: u64,
}

impl From<Wire> for WireBody {
    fn from(wire: Wire) -> Self {
        WireBody { left: wire.len() as u64, parts: wire.into_parts().into_iter() }
    }
}

impl Body for WireBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let part = self.parts.next();
        self.left -= part.as_ref().map_or(0, |p| p.len() as u64);
        Poll::Ready(part.map(|p| Ok(Frame::data(p))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

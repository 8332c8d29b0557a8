//! One connection of an upstream: from a successful initialize to its end. An upstream has one at a time.

use super::ServerHello;
use super::error::BackendError;
use super::http::link::HttpLink;
use super::inner::Inner;
use super::pipe::Pipe;
use crate::protocol::{Response, Wire};
use std::sync::Arc;

#[derive(Debug)]
pub struct Link {
    /// Counts the connections of this upstream.
    pub epoch: u64,
    pub hello: Arc<ServerHello>,
    pub wiring: Wiring,
}

#[derive(Debug)]
pub enum Wiring {
    Http(HttpLink),
    /// A stdio child or an HTTP+SSE stream: everything on one pipe.
    Pipe(Arc<Pipe>),
}

impl Link {
    /// Waits for the end of the connection and answers why. HTTP has no connection that could end; see `Inner::superseded`.
    pub async fn ended(&self) -> Arc<str> {
        match &self.wiring {
            Wiring::Http(_) => std::future::pending().await,
            Wiring::Pipe(pipe) => pipe.ended().await,
        }
    }

    /// A request of the gateway's own.
    pub async fn request(&self, inner: &Arc<Inner>, id: u64, message: &Wire) -> Result<Response, BackendError> {
        match &self.wiring {
            Wiring::Http(http) => http.request(inner, id, message).await,
            Wiring::Pipe(pipe) => pipe.request(inner, id, message.clone()).await,
        }
    }

    /// A notification, or an answer to a request of the server.
    pub async fn send(&self, inner: &Arc<Inner>, message: &Wire) -> Result<(), BackendError> {
        match &self.wiring {
            // It takes no message but requests (2026-07-28 transports/streamable-http, "Sending Messages").
            Wiring::Http(_) if self.hello.version.is_modern() => Ok(()),
            Wiring::Http(http) => http.send(inner, message).await,
            Wiring::Pipe(pipe) => pipe.send(inner, message.clone()).await,
        }
    }
}

//! The HTTP side: from a socket to a verified request, and from the gateway's answer to bytes.
//!
//! Owns the listeners, the connections on them, authentication, the Host and Origin checks, the streamable HTTP transport of
//! 2025-03-26 to 2025-11-25, HTTP+SSE of 2024-11-05, and the form of every answer. Never decides where a request goes: that is `gateway`'s. Called by `cli`.
//!
//! # Layout
//! `listener`, `connection` (sockets) · `origin`, `auth`, `chamber` (who asks, and for which session) · `accept`, `classify` (what can be
//! answered, and what it is) · `post`, `batch`, `get`, `delete` (the methods) · `body` (reading and writing) · `reply`, `sse`, `respond`
//! (answers) · `legacy` (HTTP+SSE) · `modern` (2026-07-28) · `refused` (why not; `respond` makes HTTP of it).

mod accept;
mod auth;
mod batch;
mod body;
mod chamber;
mod classify;
mod connection;
mod delete;
mod flow;
mod get;
mod legacy;
mod listener;
pub mod modern;
mod origin;
mod post;
mod refused;
mod reply;
mod respond;
mod sse;

#[cfg(test)]
pub(crate) mod tests;

pub use body::Body;
pub use connection::{Handler, Peer};
pub use listener::{BindError, Listener, Server, ServerLimits};
pub use origin::check_host;
pub use refused::Refused;
pub use respond::Response;

/// Refusals and messages as responses, for the other listener of the process.
pub mod answer {
    pub use super::respond::{empty, json, refused};
}

/// What the other listener needs to read requests.
pub mod request {
    pub use super::auth::bearer;
    pub use super::body::{PACE, discard, read};
}

use crate::config::Config;
use crate::gateway::Gateway;
use crate::session::Principal;
use bytes::Bytes;
use chamber::{Named, Verified};
use http::request::Parts;
use http::{Method, Request, StatusCode, header};
use std::sync::Arc;
use std::time::Instant;
use tokio_util::task::TaskTracker;
use tracing::Instrument;
use tracing::field::Empty;

/// Answers the requests of clients. Cheap to clone.
#[derive(Clone)]
pub struct Front {
    gateway: Arc<Gateway>,
    config: Arc<Config>,
    anonymous: Principal,
    /// Bytes that a request body may have.
    body_limit: usize,
    /// Work that was accepted and is seen through though its client hung up. Each task has a deadline.
    tasks: TaskTracker,
    /// Streams of HTTP+SSE that are open.
    lines: Arc<legacy::Lines>,
}

impl Front {
    pub fn new(gateway: Arc<Gateway>, config: Arc<Config>) -> Self {
        Front {
            body_limit: config.limits.request_body,
            gateway,
            config,
            anonymous: Principal::anonymous(),
            tasks: TaskTracker::new(),
            lines: Arc::default(),
        }
    }

    /// Waits for what was accepted. Call it when no connection is left, with a deadline.
    pub async fn drained(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// The story of a request, in the order in which it is checked.
    async fn story<B>(&self, head: &Parts, body: B, peer: &Peer) -> Response
    where
        B: http_body::Body<Data = Bytes> + Send,
    {
        let path = normal(head.uri.path());
        let own = self.gateway.virtual_host(path).map(|host| (host, None));
        let beside = || legacy::beside(&self.gateway, path).map(|(host, part)| (host, Some(part)));
        let Some((host, part)) = own.or_else(beside) else { return respond::refused(Refused::Path) };
        let page = match origin::check(&self.config.http, head) {
            Ok(page) => page,
            Err(refused) => return respond::refused(refused),
        };
        let outcome = async {
            match head.method {
                Method::OPTIONS => return Ok(page.preflight(head).unwrap_or_else(options)),
                Method::POST | Method::GET | Method::DELETE => {}
                _ => return Err(Refused::Method),
            }
            let principal = auth::principal(&self.config.auth, &self.anonymous, &head.headers)?;
            tracing::Span::current().record("principal", &**principal.name());
            let named = Named::read(&head.headers);
            let verified = Verified {
                gateway: &self.gateway,
                host: host.clone(),
                principal,
                headers: &head.headers,
                named,
                own: &peer.own,
                version: head.version,
            };
            match (part, &head.method) {
                (None, &Method::POST) => self.post(&verified, body).await,
                (None, &Method::GET) => self.get(&verified),
                (None, _) => Box::pin(self.delete(&verified)).await,
                (Some(legacy::Part::Stream), &Method::GET) => self.open_line(&verified),
                (Some(legacy::Part::Messages), &Method::POST) => Box::pin(self.post_to_line(&verified, head.uri.query(), body)).await,
                // Clients of both transports try a POST first: it tells them that this is the older one.
                (Some(_), _) => Err(Refused::Method),
            }
        };
        let mut response = outcome.await.unwrap_or_else(respond::refused);
        page.open(response.headers_mut());
        response
    }
}

impl Handler for Front {
    async fn handle<B>(&self, request: Request<B>, peer: &Peer) -> Response
    where
        B: http_body::Body<Data = Bytes> + Send,
    {
        let started = Instant::now();
        let (head, body) = request.into_parts();
        // The path alone: a query may hold what nobody should log.
        let span = tracing::debug_span!("http", method = %head.method, path = head.uri.path(), peer = %peer.address, principal = Empty, session = Empty, rpc = Empty);
        // Boxed: a connection keeps room for what its service returns, also while an answer streams for hours.
        let response = Box::pin(self.story(&head, body, peer)).instrument(span.clone()).await;
        self.gateway.metrics().http_responses_total.inc(response.status().into());
        span.in_scope(|| tracing::debug!(status = response.status().as_u16(), elapsed = ?started.elapsed(), "answered"));
        response
    }
}

/// A path without the slash at its end: clients do not follow a redirect of a POST.
fn normal(path: &str) -> &str {
    path.strip_suffix('/').filter(|rest| !rest.is_empty()).unwrap_or(path)
}

fn options() -> Response {
    let mut response = respond::empty(StatusCode::NO_CONTENT);
    response.headers_mut().insert(header::ALLOW, respond::ALLOW);
    response
}

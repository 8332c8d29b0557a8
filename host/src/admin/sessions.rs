//! Sessions at the admin port: listed, looked at, closed. By the hash that the log shows, never by their ids.

use super::Admin;
use super::policies::{Denied, error, json};
use crate::front::{Response, answer};
use crate::gateway::Gateway;
use http::request::Parts;
use http::{Method, StatusCode};
use std::sync::Arc;

impl Admin {
    /// `GET /sessions`, `GET /sessions/HASH` and `DELETE /sessions/HASH`. None for other paths.
    pub(super) async fn sessions(&self, gateway: &Arc<Gateway>, head: &Parts, path: &str) -> Option<Response> {
        let rest = path.strip_prefix("/sessions")?;
        let tag = match rest.strip_prefix('/') {
            None if rest.is_empty() => None,
            Some(tag) if !tag.is_empty() && !tag.contains('/') => Some(tag),
            _ => return None,
        };
        let allowed = match (&head.method, tag) {
            (&Method::DELETE, Some(_)) => self.may_change(&head.headers),
            (&Method::GET | &Method::HEAD, _) if self.http.loopback => Ok(()),
            // It names principals.
            (&Method::GET | &Method::HEAD, _) => self.may(&head.headers),
            (_, None) => return Some(super::not_allowed("GET, HEAD")),
            (_, Some(_)) => return Some(super::not_allowed("GET, HEAD, DELETE")),
        };
        if let Err(Denied(status, why)) = allowed {
            return Some(error(status, why));
        }
        let unknown = || error(StatusCode::NOT_FOUND, "there is no session with this hash; GET /sessions lists those there are");
        Some(match (&head.method, tag) {
            (&Method::DELETE, Some(tag)) if gateway.close_session(tag).await => answer::empty(StatusCode::NO_CONTENT),
            (&Method::DELETE, _) => unknown(),
            (_, None) => json(StatusCode::OK, &serde_json::json!({ "sessions": gateway.overview() })),
            (_, Some(tag)) => gateway.overview_of(tag).map_or_else(unknown, |one| json(StatusCode::OK, &one)),
        })
    }
}

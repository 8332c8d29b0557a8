//! DELETE: the client ends its session (2025-11-25 transports, "Session Management").

use super::chamber::Verified;
use super::refused::Refused;
use super::respond::{self, Response};
use super::{Front, classify};
use http::StatusCode;

impl Front {
    pub(super) async fn delete(&self, verified: &Verified<'_>) -> Result<Response, Refused> {
        if classify::names_modern(verified.headers) {
            return Err(Refused::MethodOfSessions);
        }
        let session = verified.session(None)?;
        let gateway = self.gateway.clone();
        // Seen through even if the client hangs up now. The gateway bounds its time.
        let done = self.tasks.spawn(async move { gateway.delete(session).await }).await;
        done.map_err(|error| {
            tracing::error!(%error, "ending a session failed");
            Refused::Broken(None)
        })?;
        Ok(respond::empty(StatusCode::NO_CONTENT))
    }
}

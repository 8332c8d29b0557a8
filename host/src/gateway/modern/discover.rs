//! server/discover (2026-07-28 server/discover): what this client finds here, put together from its backends.

use super::super::job::{Job, Outcome};
use super::super::{Gateway, capabilities};
use crate::catalog::keeping::Keeping;
use crate::protocol::{Version, codes, meta};
use serde_json::json;
use std::sync::Arc;

impl Gateway {
    pub(in crate::gateway) async fn discover(self: &Arc<Self>, job: &Job) -> Outcome {
        let session = job.session();
        let hellos = self.settle(session).await;
        for (backend, hello) in hellos.iter().enumerate() {
            if let Some(hello) = hello {
                session.announce(backend, hello);
            }
        }
        let mut result = json!({
            "supportedVersions": Version::SERVED.map(Version::as_str),
            "capabilities": capabilities::merged(&hellos),
            "_meta": { meta::SERVER_INFO: capabilities::of_itself() },
        });
        if let Some(extensions) = capabilities::extensions(&hellos) {
            result["capabilities"]["extensions"] = extensions;
        }
        if let Some(text) = capabilities::instructions(&session.host, &hellos) {
            result["instructions"] = text.into();
        }
        // Backends come and go.
        let members = result.to_string();
        let result = format!("{{{},{}", Keeping::NOT.members(), members.strip_prefix('{').unwrap_or("}"));
        Outcome::Answer(codes::result(job.id(), result))
    }
}

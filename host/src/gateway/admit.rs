//! The verdict on a request, before it is forwarded: whether this session reads what it was given before.
//!
//! Never refused are those that free credit or that somebody waits for: notifications and answers of the client, DELETE, GET (none of
//! which come here), and `ping`.

use super::{Gateway, Refusal};
use crate::admission::{Permit, Reason, Refused};
use crate::protocol::{Request, RpcError, codes, method};
use crate::session::Session;
use crate::telemetry::metrics::Admission;
use http::StatusCode;
use serde_json::json;
use std::sync::Arc;

impl Gateway {
    /// The credit for one request, or a refusal; none for what needs no credit. Waits for credit up to `admission.patience` where the
    /// session has none and reads.
    pub async fn admit(&self, session: &Arc<Session>, request: &Request) -> Result<Option<Permit>, Refusal> {
        if &*request.method == method::PING {
            return Ok(None);
        }
        match session.ledger.admit().await {
            Ok(permit) => Ok(Some(permit)),
            Err(refused) => {
                self.metrics.admission_total.inc(match refused.reason {
                    Reason::HalfOpen => Admission::HalfOpen,
                    Reason::Slow => Admission::Slow,
                });
                Err(Refusal::no_credit(&refused))
            }
        }
    }
}

impl Gateway {
    /// A refusal for a session that leaves no room on the way to its stream.
    pub fn refuse_unread(&self, session: &Session) -> Refusal {
        self.metrics.admission_total.inc(Admission::HalfOpen);
        let standing = session.ledger.standing();
        let retry_after = session.ledger.limits().drain_window;
        Refusal::no_credit(&Refused { reason: Reason::HalfOpen, retry_after, standing })
    }
}

impl Refusal {
    fn no_credit(refused: &Refused) -> Self {
        let standing = &refused.standing;
        let text = match refused.reason {
            Reason::HalfOpen => "this session has no credit left and does not read what it was sent; nothing was run: read, then try again",
            Reason::Slow => "this session is owed more than it reads; nothing was run: try again after the time in Retry-After",
        };
        let data = json!({
            "kind": "overloaded",
            "retrySafe": true,
            "reason": refused.reason.as_str(),
            "credit": standing.credit,
            "owedFrames": standing.owed_frames,
            "owedBytes": standing.owed_bytes,
            "retryAfterMs": u64::try_from(refused.retry_after.as_millis()).unwrap_or(u64::MAX),
        });
        Refusal {
            status: StatusCode::TOO_MANY_REQUESTS,
            error: RpcError::new(codes::OVERLOADED, text).with_data(data),
            retry_after: Some(refused.retry_after),
        }
    }
}

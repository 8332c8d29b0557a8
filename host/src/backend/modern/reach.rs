//! Which era a server behind streamable HTTP is of. It is asked in the era of the client first, so that a server of both needs no bridge,
//! unless it is known to speak only the other. Where that is refused as a server of the other era would refuse it, it is asked in the
//! other (2026-07-28 versioning, "Backward Compatibility").

use super::era::{self, Refused};
use super::post;
use crate::backend::error::BackendError;
use crate::backend::http::link::{HttpLink, Refusal};
use crate::backend::inner::Inner;
use crate::backend::known::Era;
use crate::backend::link::{Link, Wiring};
use http::{HeaderMap, Uri};
use std::sync::Arc;

/// Opens a connection in one of both eras. The caller bounds the time.
pub async fn open(inner: &Arc<Inner>, uri: &Uri, headers: &HeaderMap, epoch: u64) -> Result<Link, Refusal> {
    let known = &inner.backend.known;
    match known.eras().first(inner.hello.era()) {
        Era::Legacy => {
            let refusal = match legacy(inner, uri, headers, epoch).await {
                Err(refusal) if refusal.other_era => refusal,
                outcome => return outcome,
            };
            match modern(inner, uri, headers, epoch).await {
                Ok(link) => {
                    known.found(Era::Legacy, false);
                    Ok(link)
                }
                Err(Refused::Failed(error)) => Err(error.into()),
                Err(Refused::NotModern(why)) => {
                    tracing::debug!(backend = %inner.backend.name, session = %inner.hello.session_tag, %why, "not a server of 2026-07-28 either");
                    Err(refusal)
                }
            }
        }
        Era::Modern => match modern(inner, uri, headers, epoch).await {
            Ok(link) => Ok(link),
            Err(Refused::Failed(error)) => Err(error.into()),
            Err(Refused::NotModern(_)) => {
                known.found(Era::Modern, false);
                legacy(inner, uri, headers, epoch).await
            }
        },
    }
}

async fn legacy(inner: &Arc<Inner>, uri: &Uri, headers: &HeaderMap, epoch: u64) -> Result<Link, Refusal> {
    let link = HttpLink::open(inner, HttpLink::new(inner.backend.http.address(uri), headers), epoch).await?;
    inner.backend.known.found(Era::Legacy, true);
    Ok(link)
}

/// `server/discover`, which stands for all that `initialize` would have said.
async fn modern(inner: &Arc<Inner>, uri: &Uri, headers: &HeaderMap, epoch: u64) -> Result<Link, Refused> {
    let http = HttpLink::new(inner.backend.http.address(uri), headers).modern();
    let discover = async || {
        let id = inner.next_id();
        post::ask(inner, &http, id, era::discover(inner, id)).await
    };
    let answer = match discover().await {
        Ok(answer) if era::names_ours(&answer) => discover().await.map_err(Refused::Failed)?,
        Ok(answer) => answer,
        Err(error @ BackendError::Status { status, .. }) if (400..500).contains(&status) && !matches!(status, 401 | 403 | 429) => {
            return Err(Refused::NotModern(error));
        }
        Err(error) => return Err(Refused::Failed(error)),
    };
    let hello = era::read(inner, &answer)?;
    inner.backend.known.found(Era::Modern, true);
    Ok(Link { epoch, hello: Arc::new(hello), wiring: Wiring::Http(http) })
}

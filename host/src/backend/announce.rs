//! What the session is told of its connection to a backend: that it is there, or is not. Changes that follow each other quickly are told as one.

use super::inner::{Inner, lock};
use super::phase::Phase;
use super::{FromServer, ServerHello};
use std::sync::Arc;

/// What the session was told last of whether the backend is there.
#[derive(Debug, Default)]
pub struct Told {
    /// A task is at it.
    telling: bool,
    /// Up to which phase.
    seen: u64,
    said: Option<Result<Arc<ServerHello>, Arc<str>>>,
}

/// Goes on to a phase, and has the session told.
pub fn enter(inner: &Arc<Inner>, phase: Phase) {
    let is_news = matches!(phase, Phase::Up(_) | Phase::Down { .. });
    inner.phase.set(phase);
    if is_news && !std::mem::replace(&mut lock(&inner.told).telling, true) {
        let shared = inner.clone();
        inner.spawn(async move {
            shared.stop.run_until_cancelled(announce(&shared)).await;
        });
    }
}

/// Tells the session of each change between up and down. In a task of its own, because connecting must not wait for a full inbox.
async fn announce(inner: &Inner) {
    loop {
        let news = {
            let mut told = lock(&inner.told);
            let Some(phase) = inner.phase.newer(&mut told.seen) else {
                // Under the lock: whoever goes on to another phase meanwhile sees that nobody is at it.
                told.telling = false;
                return;
            };
            match (phase, &told.said) {
                // A silent renewal, unless the server is not what it was.
                (Phase::Up(link), Some(Ok(before))) if *before == link.hello => None,
                (Phase::Up(link), _) => {
                    told.said = Some(Ok(link.hello.clone()));
                    Some(FromServer::Up(link.hello.clone()))
                }
                (Phase::Down { .. }, Some(Err(_))) => None,
                (Phase::Down { why, .. }, _) => {
                    told.said = Some(Err(why.clone()));
                    Some(FromServer::Down(why))
                }
                (Phase::Connecting | Phase::Renewing(_) | Phase::Closed, _) => None,
            }
        };
        if let Some(news) = news {
            inner.tell(news).await;
        }
    }
}

//! A server of 2026-07-28 behind a client of an older revision: what `initialize` would have said goes with every request, questions of
//! the server come as results and are asked and answered in rounds, and one `subscriptions/listen` stands for all that is pushed.
//!
//! Owns the rules of that era on the upstream hop, whatever carries the messages. `upstream` and `connect` call it once a connection
//! has turned out to be modern; what comes out are the same events as from an older server.

mod answer;
mod ask;
pub mod cache;
pub mod era;
mod flight;
mod inputs;
pub mod listen;
mod post;
pub mod pushed;
pub mod reach;
mod rounds;
mod tools;

use super::call::{Call, Slot, Start, Way};
use super::error::BackendError;
use super::http::exchange;
use super::inner::Inner;
use super::link::Link;
use super::restore::Memo;
use super::{Hello, Outbound};
use crate::protocol::{Incoming, RequestId, Response, codes, method};
use ask::Ask;
pub use ask::{Meta, without_meta, without_tasks};
use bytes::Bytes;
use cache::Cache;
use flight::Stopped;
pub use inputs::Inputs;
use listen::Wishes;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tools::Tools;

/// Entries and bytes of the lists that are kept for one session and backend.
const OWN: (usize, usize) = (32, 256 << 10);

/// What an upstream keeps for a modern server; outlives connections.
#[derive(Debug)]
pub struct Modern {
    pub meta: Meta,
    pub inputs: Inputs,
    pub wishes: Wishes,
    pub tools: Tools,
    /// Lists that are for this session alone.
    pub lists: Cache,
}

impl Modern {
    pub fn new(hello: &Hello) -> Modern {
        Modern {
            meta: Meta::new(hello),
            inputs: Inputs::default(),
            wishes: Wishes::default(),
            tools: Tools::default(),
            lists: Cache::new(OWN.0, OWN.1),
        }
    }
}

/// A request of the client to a modern server. Those that the era does not have are answered here.
pub fn call(inner: &Arc<Inner>, link: Arc<Link>, out: Outbound, deadline: Instant, limit: Duration) -> Result<Call, BackendError> {
    let id = inner.next_id();
    let slot = Slot::default();
    let method = out.request.method.clone();
    let exchange: std::pin::Pin<Box<dyn Future<Output = Result<Response, BackendError>> + Send>> = match &*method {
        method::SET_LEVEL | method::RESOURCES_SUBSCRIBE | method::RESOURCES_UNSUBSCRIBE | method::PING => {
            let memo = Memo::of(&method, &out.request.numbered(id, out.edits));
            let (inner, link) = (inner.clone(), link.clone());
            Box::pin(async move { here(&inner, &link, id, &method, memo).await })
        }
        _ => Box::pin(request(inner.clone(), link.clone(), id, Ask::new(out), slot.clone())),
    };
    Ok(Call::new(inner.clone(), Start { link, id, way: Way::Http { exchange, slot }, aside: None, memo: None }, deadline, limit))
}

/// A request, to its answer; in the other era, where the server turns out to be of that by now. `id`: of the first message.
async fn request(inner: Arc<Inner>, link: Arc<Link>, id: u64, ask: Ask, slot: Slot) -> Result<Response, BackendError> {
    match rounds::run(&inner, &link, id, &ask, &slot).await {
        Err(Stopped::OtherEra(why)) => {
            tracing::info!(backend = %inner.backend.name, session = %inner.hello.session_tag, %why, "it is asked anew which revision it speaks");
        }
        outcome => return Ok(outcome?),
    }
    // Refused, so not run: it may be sent once more.
    slot.set_sent(false);
    let link = inner.renew(link.epoch).await?;
    if link.hello.version.is_modern() {
        return Ok(rounds::run(&inner, &link, inner.next_id(), &ask, &slot).await?);
    }
    let (message, room) = (ask.older(id), ask.room().cloned());
    exchange::run(inner, link, id, message, slot, (room, None)).await
}

/// Answers what only older servers would be asked.
async fn here(inner: &Arc<Inner>, link: &Link, id: u64, of: &str, memo: Option<Memo>) -> Result<Response, BackendError> {
    match memo {
        Some(Memo::Subscribe(uri, params)) => {
            let subscribed = listen::subscribe(inner, link, &uri.clone(), Memo::Subscribe(uri, params)).await;
            subscribed.map_err(|why| inner.unavailable(format!("it was not possible to subscribe: {why}"), None))?;
        }
        Some(memo @ Memo::Unsubscribe(_)) => listen::unwish(inner, memo),
        Some(memo @ Memo::Level(_)) => inner.restore.change(|restore| restore.keep(memo)),
        None if of == method::PING => {}
        // Tasks are not watched by requests.
        Some(Memo::Watch(_) | Memo::Unwatch(_)) | None => {
            return Err(inner.unavailable(format!("`params` of {of} are too long or not what they should be"), None));
        }
    }
    empty(inner, id)
}

/// A connection to a modern server is there: what the session wants of it beside its calls begins.
pub fn begin(inner: &Arc<Inner>, link: &Arc<Link>) {
    inner.modern().lists.clear();
    inner.spawn(listen::run(inner.clone(), link.clone()));
}

/// `{}` as the answer to request `id`.
fn empty(inner: &Inner, id: u64) -> Result<Response, BackendError> {
    match Incoming::parse(codes::result(&RequestId::number(id), Bytes::from_static(b"{}")).into_bytes()) {
        Ok(Incoming::Response(response)) => Ok(response),
        _ => Err(inner.broke("an answer on its behalf could not be made")),
    }
}

//! The one `subscriptions/listen` of an upstream (2026-07-28 patterns/subscriptions): for the lists that the server says may change and
//! for the resources and tasks that the session has subscribed to.
//!
//! Opened with the connection, opened anew when the subscriptions change (the old one is let go when the new one is acknowledged, so that
//! nothing is missed) and, with growing pauses, when the server ends it. What it brings leaves as the notifications of older revisions.

use super::flight::{self, Stopped};
use super::post::Posting;
use super::pushed::{Honoured, LISTS, filter, flag, honoured, untagged};
use crate::backend::backoff::Backoff;
use crate::backend::inner::Inner;
use crate::backend::link::{Link, Wiring};
use crate::backend::restore::{Memo, Restore};
use crate::backend::{CallEvent, FromServer, handshake};
use crate::protocol::json::Object;
use crate::protocol::{Incoming, Wire, codes, method};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use http::HeaderMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

/// How long a server may take to acknowledge.
const ACKNOWLEDGE: Duration = Duration::from_secs(10);
/// A stream that lived so long was a good one: the next pauses start small.
const GOOD: Duration = Duration::from_secs(10);
/// After a failure, a changed wish is tried again no sooner than this.
const AGAIN: Duration = Duration::from_millis(750);
/// What a stream that is replaced may still bring is read for so long.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// Acknowledgements on their way to the task that waits for them.
const ACKS: usize = 4;

/// What is wanted, and what has come of it.
#[derive(Debug)]
pub struct Wishes {
    /// Counts the changes. What is wanted stands in `Inner::restore`.
    version: watch::Sender<u64>,
    settled: watch::Sender<Settled>,
}

#[derive(Clone, Debug)]
struct Settled {
    version: u64,
    /// What the server tells of; none where it did not say.
    result: Result<Option<Honoured>, Arc<str>>,
}

/// One request that is open.
struct Open {
    id: u64,
    filter: String,
    since: Instant,
    /// Ends its reading.
    _stop: DropGuard,
}

/// How a stream ended.
enum End {
    /// By the server, in order.
    Closed,
    /// Not accepted. `never`: the server does not have the method.
    Refused { why: Arc<str>, never: bool },
    /// Let go by us.
    Stopped,
}

impl Default for Wishes {
    fn default() -> Self {
        Wishes { version: watch::Sender::new(1), settled: watch::Sender::new(Settled { version: 0, result: Ok(None) }) }
    }
}

impl Wishes {
    fn changed(&self) -> u64 {
        let mut now = 0;
        self.version.send_modify(|version| {
            *version += 1;
            now = *version;
        });
        now
    }

    fn settle(&self, version: u64, result: Result<Option<Honoured>, Arc<str>>) {
        self.settled.send_if_modified(|settled| {
            let news = settled.version < version;
            if news {
                *settled = Settled { version, result };
            }
            news
        });
    }
}

/// Subscribes to a resource, and waits until the server tells of it. The error says why it does not.
pub async fn subscribe(inner: &Inner, link: &Link, uri: &str, memo: Memo) -> Result<(), String> {
    let told = wish(inner, link, memo, |honoured| honoured.uris.contains(uri)).await;
    told.inspect_err(|_| unwish(inner, Memo::Unsubscribe(uri.to_owned())))
}

/// The same for a task.
pub async fn watch(inner: &Inner, link: &Link, id: &str) -> Result<(), String> {
    let told = wish(inner, link, Memo::Watch(id.to_owned()), |honoured| honoured.tasks.contains(id)).await;
    told.inspect_err(|_| unwish(inner, Memo::Unwatch(id.to_owned())))
}

async fn wish(inner: &Inner, link: &Link, memo: Memo, is_told: impl Fn(&Honoured) -> bool) -> Result<(), String> {
    let wishes = &inner.modern().wishes;
    inner.restore.change(|restore| restore.keep(memo));
    let version = wishes.changed();
    let mut settled = wishes.settled.subscribe();
    let result = tokio::select! {
        settled = settled.wait_for(|s| s.version >= version) => match settled {
            Ok(settled) => settled.result.clone(),
            Err(_) => Err("it was closed".into()),
        },
        () = tokio::time::sleep(ACKNOWLEDGE) => Err("it did not acknowledge in time".into()),
        why = link.ended() => Err(why),
    };
    match result {
        Ok(honoured) if honoured.as_ref().is_none_or(is_told) => Ok(()),
        Ok(_) => Err("it does not tell of this".into()),
        Err(why) => Err(why.to_string()),
    }
}

/// Takes back a wish.
pub fn unwish(inner: &Inner, memo: Memo) {
    inner.restore.change(|restore| restore.keep(memo));
    inner.modern().wishes.changed();
}

/// Runs until the connection or the upstream ends.
pub async fn run(inner: Arc<Inner>, link: Arc<Link>) {
    tokio::select! {
        () = keep_open(&inner, &link) => {}
        _ = link.ended() => {}
        () = inner.superseded(link.epoch) => {}
        () = inner.stop.cancelled() => {}
    }
}

async fn keep_open(inner: &Arc<Inner>, link: &Arc<Link>) {
    let mut version = inner.modern().wishes.version.subscribe();
    let (acks, mut acked) = mpsc::channel(ACKS);
    let mut streams = FuturesUnordered::new();
    let mut keeper = Keeper::new(inner, link);
    loop {
        let mut wake = None;
        if keeper.pending.is_none() {
            let wish = *version.borrow_and_update();
            match keeper.next(wish) {
                Next::Nothing => {}
                Next::Wait(until) => wake = Some(until),
                Next::Open(filter) => {
                    let (id, token) = (inner.next_id(), CancellationToken::new());
                    streams.push(stream(inner, link, id, request(inner, id, &filter), token.clone(), acks.clone()));
                    keeper.opened(Open { id, filter, since: Instant::now(), _stop: token.drop_guard() }, wish);
                }
            }
        }
        let wake = keeper.pending.as_ref().map(|(open, _)| open.since + ACKNOWLEDGE).or(wake);
        let timer = async {
            match wake {
                Some(wake) => tokio::time::sleep_until(wake).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = version.changed(), if keeper.pending.is_none() => match changed {
                Ok(()) => keeper.due = keeper.due.min(keeper.demand),
                Err(_) => return,
            },
            Some((id, honoured)) = acked.recv() => keeper.acknowledged(id, honoured),
            Some((id, end)) = streams.next() => {
                // It may have been acknowledged just before.
                while let Ok((id, honoured)) = acked.try_recv() {
                    keeper.acknowledged(id, honoured);
                }
                keeper.ended(id, end);
            }
            () = timer => keeper.late(),
        }
        if std::mem::take(&mut keeper.news) {
            lists_may_differ(inner, link).await;
        }
    }
}

/// What is open, and what is to be opened.
struct Keeper<'a> {
    inner: &'a Arc<Inner>,
    link: &'a Arc<Link>,
    current: Option<Open>,
    /// Not acknowledged yet, and the wish that it is for.
    pending: Option<(Open, u64)>,
    backoff: Backoff,
    /// When the next attempt may be made, and when for a changed wish.
    due: Instant,
    demand: Instant,
    /// What was refused, and for which wish.
    refused: Option<(String, u64)>,
    /// The server does not have the method.
    never: Option<Arc<str>>,
    /// A stream has ended, and none is open since.
    missed: bool,
    /// One is open again.
    news: bool,
}

enum Next {
    Nothing,
    Wait(Instant),
    Open(String),
}

impl<'a> Keeper<'a> {
    fn new(inner: &'a Arc<Inner>, link: &'a Arc<Link>) -> Self {
        let now = Instant::now();
        let (current, pending, refused, never) = (None, None, None, None);
        Keeper { inner, link, current, pending, backoff: Backoff::new(), due: now, demand: now, refused, never, missed: false, news: false }
    }

    /// What is to be done for a wish, while nothing is pending.
    fn next(&mut self, wish: u64) -> Next {
        let wishes = &self.inner.modern().wishes;
        let filter = {
            let of = |restore: &mut Restore| filter(&self.link.hello.capabilities, restore.uris(), restore.tasks());
            self.inner.restore.look(of).unwrap_or_else(|| of(&mut Restore::default()))
        };
        if self.current.as_ref().map_or(filter.is_empty(), |c| c.filter == filter) {
            wishes.settle(wish, Ok(None));
        } else if filter.is_empty() {
            if let Some(old) = self.current.take() {
                self.let_go(old);
            }
            wishes.settle(wish, Ok(None));
        } else if let Some(why) = &self.never {
            wishes.settle(wish, Err(why.clone()));
        } else if self.current.is_some() && self.refused.as_ref().is_some_and(|(what, when)| *what == filter && *when == wish) {
            // The one that is open is better than none.
        } else if Instant::now() < self.due {
            return Next::Wait(self.due);
        } else {
            return Next::Open(filter);
        }
        Next::Nothing
    }

    fn opened(&mut self, open: Open, wish: u64) {
        self.demand = Instant::now() + AGAIN;
        self.pending = Some((open, wish));
    }

    fn acknowledged(&mut self, id: u64, honoured: Option<Honoured>) {
        let Some((open, wish)) = self.pending.take_if(|(open, _)| open.id == id) else { return };
        self.replace(open);
        self.refused = None;
        self.news = std::mem::take(&mut self.missed);
        self.inner.modern().wishes.settle(wish, Ok(honoured));
    }

    fn ended(&mut self, id: u64, end: End) {
        let (why, never) = match end {
            End::Stopped => return,
            End::Closed => (Arc::<str>::from("it ended the subscription"), false),
            End::Refused { why, never } => (why, never),
        };
        if let Some((open, wish)) = self.pending.take_if(|(open, _)| open.id == id) {
            self.inner.modern().wishes.settle(wish, Err(why.clone()));
            self.refused = Some((open.filter, wish));
            if never {
                self.never = Some(why.clone());
            }
        } else if let Some(open) = self.current.take_if(|open| open.id == id) {
            self.missed = true;
            if open.since.elapsed() >= GOOD {
                self.backoff.reset();
            }
        } else {
            return;
        }
        tracing::debug!(backend = %self.inner.backend.name, session = %self.inner.hello.session_tag, %why, "a subscription ended");
        self.due = Instant::now() + self.backoff.wait();
    }

    /// The time for an acknowledgement is over. The stream may bring something all the same.
    fn late(&mut self) {
        let Some((open, wish)) = self.pending.take_if(|(open, _)| open.since.elapsed() >= ACKNOWLEDGE) else { return };
        self.inner.noise("a subscription was not acknowledged");
        self.replace(open);
        self.inner.modern().wishes.settle(wish, Err("it did not acknowledge in time".into()));
    }

    fn replace(&mut self, open: Open) {
        if let Some(old) = self.current.replace(open) {
            self.let_go(old);
        }
    }

    /// Tells the server that a stream is no longer wanted. What it has brought by then is still read.
    fn let_go(&self, old: Open) {
        let (inner, link) = (self.inner.clone(), self.link.clone());
        self.inner.spawn(async move {
            let _ = link.send(&inner, &handshake::cancelled(old.id, None)).await;
            inner.stop.run_until_cancelled(tokio::time::sleep(LAST_WORDS)).await;
            drop(old);
        });
    }
}

/// While no stream was open, a change may have gone by.
async fn lists_may_differ(inner: &Inner, link: &Link) {
    inner.modern().lists.clear();
    inner.backend.known.lists().clear();
    for (capability, _, name) in LISTS {
        if flag(&link.hello.capabilities, capability, "listChanged")
            && let Ok(Incoming::Notification(note)) = Incoming::parse(codes::notification(name, None).into_bytes())
        {
            inner.tell(FromServer::Notification(note)).await;
        }
    }
}

fn request(inner: &Inner, id: u64, filter: &str) -> Wire {
    let members = inner.modern().meta.members(None);
    Wire::from(format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{}\",\"params\":{{\"_meta\":{{{members}}},\"notifications\":{filter}}}}}",
        method::LISTEN
    ))
}

type Acks = mpsc::Sender<(u64, Option<Honoured>)>;

/// One request and all that it brings.
async fn stream(inner: &Arc<Inner>, link: &Arc<Link>, id: u64, message: Wire, stop: CancellationToken, acks: Acks) -> (u64, End) {
    let reading = async {
        let refused = |why: String, never| End::Refused { why: why.into(), never };
        // On a pipe there is one room for all that comes out of it.
        let room = inner.room.clone().filter(|_| matches!(link.wiring, Wiring::Http(_)));
        let posting = Posting { id, message: message.into_bytes(), mirrored: None, brought: &HeaderMap::new(), room };
        let mut flight = match flight::send(inner, link, posting, false).await {
            Ok(flight) => flight,
            Err(Stopped::Failed(error)) => return refused(error.to_string(), false),
            Err(Stopped::OtherEra(error)) => {
                inner.lost(link.epoch);
                return refused(error.to_string(), false);
            }
        };
        loop {
            match flight.next(inner).await {
                CallEvent::Answer(answer) if answer.ok => return End::Closed,
                CallEvent::Answer(answer) => {
                    let body = answer.body();
                    let text = Object::parse(&body).map(|e| super::answer::error_text(&e)).unwrap_or_default();
                    return refused(
                        format!("it refused the subscription with {text}"),
                        answer.error_code() == Some(codes::METHOD_NOT_FOUND),
                    );
                }
                CallEvent::Failed(error) => return refused(error.to_string(), false),
                CallEvent::Notification(note) => match &*note.method {
                    method::ACKNOWLEDGED => {
                        let _ = acks.send((id, honoured(&note))).await;
                    }
                    // Some servers end a stream so, others with a result (patterns/cancellation, patterns/subscriptions).
                    method::CANCELLED => return End::Closed,
                    _ => match untagged(&note) {
                        Some(note) => {
                            // Before anybody can ask for them anew.
                            inner.modern().lists.changed(&note.method);
                            inner.backend.known.lists().changed(&note.method);
                            inner.tell(FromServer::Notification(note)).await;
                        }
                        None => inner.noise("a notification of a subscription could not be read"),
                    },
                },
                CallEvent::Request(_) | CallEvent::Progress { .. } | CallEvent::Flow(_) => {}
            }
            // Whoever waits for room behind this stream is not to wait for its next message.
            flight.release();
        }
    };
    (id, stop.run_until_cancelled(reading).await.unwrap_or(End::Stopped))
}

//! The one `subscriptions/listen` of an upstream (2026-07-28 patterns/subscriptions): for the lists that the server says may change and
//! for the resources that the session has subscribed to.
//!
//! Opened with the connection, opened anew when the subscriptions change (the old one is let go when the new one is acknowledged, so that
//! nothing is missed) and, with growing pauses, when the server ends it. What it brings leaves as the notifications of older revisions.

use crate::backend::backoff::Backoff;
use crate::backend::inner::{Inner, lock};
use crate::backend::link::{Link, Wiring};
use crate::backend::restore::Memo;
use crate::backend::{CallEvent, FromServer, handshake};
use crate::protocol::json::{self, Object};
use crate::protocol::members::splice;
use crate::protocol::{Edits, Incoming, Notification, Wire, codes, meta, method};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use std::collections::BTreeSet;
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
    /// The resources that the server tells of; none where it did not say.
    result: Result<Option<BTreeSet<String>>, Arc<str>>,
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

    fn settle(&self, version: u64, result: Result<Option<BTreeSet<String>>, Arc<str>>) {
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
    let wishes = &inner.modern().wishes;
    lock(&inner.restore).keep(memo);
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
    let why = match result {
        Ok(honoured) if honoured.as_ref().is_none_or(|uris| uris.contains(uri)) => return Ok(()),
        Ok(_) => "it does not tell of this resource".into(),
        Err(why) => why,
    };
    unsubscribe(inner, Memo::Unsubscribe(uri.to_owned()));
    Err(why.to_string())
}

pub fn unsubscribe(inner: &Inner, memo: Memo) {
    lock(&inner.restore).keep(memo);
    inner.modern().wishes.changed();
}

/// Runs until the connection or the upstream ends.
pub async fn run(inner: Arc<Inner>, link: Arc<Link>) {
    tokio::select! {
        () = keep_open(&inner, &link) => {}
        _ = link.ended() => {}
        () = inner.stop.cancelled() => {}
    }
}

async fn keep_open(inner: &Arc<Inner>, link: &Arc<Link>) {
    let wishes = &inner.modern().wishes;
    let mut version = wishes.version.subscribe();
    let (acks, mut acked) = mpsc::channel(ACKS);
    let mut streams = FuturesUnordered::new();
    let mut current: Option<Open> = None;
    let mut pending: Option<(Open, u64)> = None;
    let mut backoff = Backoff::new();
    // When the next attempt is due, and since when it may be made for a changed wish.
    let (mut due, mut demand) = (Instant::now(), Instant::now());
    // What was refused, and for which wish.
    let mut refused: Option<(String, u64)> = None;
    let mut never: Option<Arc<str>> = None;
    let mut missed = false;
    loop {
        let mut wake = None;
        if pending.is_none() {
            let now = *version.borrow_and_update();
            let filter = filter(&link.hello.capabilities, lock(&inner.restore).uris());
            if current.as_ref().map_or(filter.is_empty(), |c| c.filter == filter) {
                wishes.settle(now, Ok(None));
            } else if filter.is_empty() {
                if let Some(old) = current.take() {
                    let_go(inner, link, old);
                }
                wishes.settle(now, Ok(None));
            } else if let Some(why) = &never {
                wishes.settle(now, Err(why.clone()));
            } else if current.is_some() && refused.as_ref().is_some_and(|(what, when)| *what == filter && *when == now) {
                // The one that is open is better than none.
            } else if Instant::now() < due {
                wake = Some(due);
            } else {
                let (id, token) = (inner.next_id(), CancellationToken::new());
                let message = request(inner, id, &filter);
                streams.push(stream(inner, link, id, message, token.clone(), acks.clone()));
                demand = Instant::now() + AGAIN;
                pending = Some((Open { id, filter, since: Instant::now(), _stop: token.drop_guard() }, now));
            }
        }
        let wake = pending.as_ref().map(|(open, _)| open.since + ACKNOWLEDGE).or(wake);
        let timer = async {
            match wake {
                Some(wake) => tokio::time::sleep_until(wake).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = version.changed(), if pending.is_none() => {
                if changed.is_err() {
                    return;
                }
                due = due.min(demand);
            }
            Some((id, honoured)) = acked.recv() => {
                if let Some((open, wanted)) = pending.take_if(|(open, _)| open.id == id) {
                    if let Some(old) = current.replace(open) {
                        let_go(inner, link, old);
                    }
                    refused = None;
                    wishes.settle(wanted, Ok(honoured));
                    if std::mem::take(&mut missed) {
                        lists_may_differ(inner, link).await;
                    }
                }
            }
            Some((id, end)) = streams.next() => {
                let (why, gone) = match end {
                    End::Stopped => continue,
                    End::Closed => (Arc::<str>::from("it ended the subscription"), false),
                    End::Refused { why, never } => (why, never),
                };
                tracing::debug!(backend = %inner.backend.name, session = %inner.hello.session_tag, %why, "a subscription ended");
                if let Some((open, wanted)) = pending.take_if(|(open, _)| open.id == id) {
                    wishes.settle(wanted, Err(why.clone()));
                    refused = Some((open.filter, wanted));
                    if gone {
                        never = Some(why);
                    }
                } else if let Some(open) = current.take_if(|open| open.id == id) {
                    missed = true;
                    if open.since.elapsed() >= GOOD {
                        backoff.reset();
                    }
                } else {
                    continue;
                }
                due = Instant::now() + backoff.wait();
            }
            () = timer => {
                if let Some((open, wanted)) = pending.take_if(|(open, _)| open.since.elapsed() >= ACKNOWLEDGE) {
                    // It may bring something all the same.
                    inner.noise("a subscription was not acknowledged");
                    wishes.settle(wanted, Err("it did not acknowledge in time".into()));
                    if let Some(old) = current.replace(open) {
                        let_go(inner, link, old);
                    }
                }
            }
        }
    }
}

/// Tells the server that a stream is no longer wanted.
fn let_go(inner: &Arc<Inner>, link: &Arc<Link>, old: Open) {
    let (shared, link, notice) = (inner.clone(), link.clone(), handshake::cancelled(old.id, None));
    drop(old);
    inner.spawn(async move {
        let _ = link.send(&shared, &notice).await;
    });
}

/// While no stream was open, a change may have gone by.
async fn lists_may_differ(inner: &Inner, link: &Link) {
    for (capability, _, name) in LISTS {
        if flag(&link.hello.capabilities, capability, "listChanged")
            && let Ok(Incoming::Notification(note)) = Incoming::parse(codes::notification(name, None).into_bytes())
        {
            inner.tell(FromServer::Notification(note)).await;
        }
    }
}

/// Capability, member of the filter, notification.
const LISTS: [(&str, &str, &str); 3] = [
    ("tools", "toolsListChanged", method::TOOLS_CHANGED),
    ("prompts", "promptsListChanged", method::PROMPTS_CHANGED),
    ("resources", "resourcesListChanged", method::RESOURCES_CHANGED),
];

/// JSON text of `params.notifications`; empty where nothing is wanted.
fn filter<'a>(capabilities: &[u8], uris: impl Iterator<Item = &'a str>) -> String {
    let lists = LISTS.iter().filter(|(capability, ..)| flag(capabilities, capability, "listChanged"));
    let mut members: Vec<String> = lists.map(|(_, member, _)| format!("\"{member}\":true")).collect();
    let uris: Vec<String> = uris.map(json::quote).collect();
    if !uris.is_empty() {
        members.push(format!("\"resourceSubscriptions\":[{}]", uris.join(",")));
    }
    if members.is_empty() { String::new() } else { format!("{{{}}}", members.join(",")) }
}

fn flag(capabilities: &[u8], name: &str, flag: &str) -> bool {
    let member = Object::parse(capabilities).ok().and_then(|c| c.only(name)).and_then(Object::of);
    member.and_then(|m| m.only(flag)).is_some_and(|v| v.get() == "true")
}

fn request(inner: &Inner, id: u64, filter: &str) -> Wire {
    let members = inner.modern().meta.members(None);
    Wire::from(format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{}\",\"params\":{{\"_meta\":{{{members}}},\"notifications\":{filter}}}}}",
        method::LISTEN
    ))
}

type Acks = mpsc::Sender<(u64, Option<BTreeSet<String>>)>;

/// One request and all that it brings.
async fn stream(inner: &Arc<Inner>, link: &Arc<Link>, id: u64, message: Wire, stop: CancellationToken, acks: Acks) -> (u64, End) {
    let reading = async {
        let refused = |why: String, never| End::Refused { why: why.into(), never };
        let Wiring::Pipe(pipe) = &link.wiring else { return refused("2026-07-28 over HTTP is not spoken".into(), true) };
        let mut registered = match pipe.call(inner, id, message, false).await {
            Ok(registered) => registered,
            Err(error) => return refused(error.to_string(), false),
        };
        loop {
            match std::future::poll_fn(|cx| registered.poll(cx, inner)).await {
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
                        Some(note) => inner.tell(FromServer::Notification(note)).await,
                        None => inner.noise("a notification of a subscription could not be read"),
                    },
                },
                CallEvent::Request(_) | CallEvent::Progress { .. } => {}
            }
        }
    };
    (id, stop.run_until_cancelled(reading).await.unwrap_or(End::Stopped))
}

/// The resources that an acknowledgement names.
fn honoured(note: &Notification) -> Option<BTreeSet<String>> {
    let filter = Object::of(note.param(&["notifications"]).ok()??)?;
    let uris = filter.only("resourceSubscriptions").and_then(json::array).unwrap_or_default();
    Some(uris.into_iter().filter_map(json::string).map(|uri| uri.into_owned()).collect())
}

/// The stream that a notification says that it belongs to, or that it ends: its id.
pub fn stream_of(note: &Notification) -> Option<u64> {
    let path: &[&str] = if &*note.method == method::CANCELLED { &["requestId"] } else { &["_meta", meta::SUBSCRIPTION_ID] };
    let id = note.token_param(path).ok()??.value;
    std::str::from_utf8(id.raw()).ok()?.trim_matches('"').parse().ok()
}

/// The notification without the id of its stream, which means nothing to the client.
fn untagged(note: &Notification) -> Option<Notification> {
    let Some(found) = note.param(&["_meta"]).ok()? else { return Some(note.clone()) };
    let only_the_tag = Object::of(found)?.members().all(|(name, _)| name == meta::SUBSCRIPTION_ID);
    let mut edits = Edits::new();
    if only_the_tag {
        splice(&note.raw, note.params_at.clone()?, |name| name == "_meta", "", &mut edits).ok()?;
    } else {
        splice(&note.raw, json::place(&note.raw, found), |name| name == meta::SUBSCRIPTION_ID, "", &mut edits).ok()?;
    }
    match Incoming::parse(edits.apply(&note.raw).into_bytes()) {
        Ok(Incoming::Notification(note)) => Some(note),
        _ => None,
    }
}

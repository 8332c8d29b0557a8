//! Published names: asks the policies what items are called, notes it in the session, and does it again when the policies were swapped.
//!
//! Names are made by one task of a session at a time, in its naming turn. Who only uses names takes [`Gateway::names`] once and goes by
//! it to the end. What was made by policies that are gone is made anew from the items that are known, without asking a backend: at
//! the next use, and for sessions that are idle by a task of the gateway, so that each client hears of what changed for it.

use super::Gateway;
use crate::catalog::items::Page;
use crate::catalog::{KINDS, Listed, Listing, Published, Table};
use crate::protocol::{RpcError, codes, method};
use crate::session::streams::STANDALONE;
use crate::session::{Session, Topic, VirtualHost};
use futures_util::StreamExt;
use lockgate_policy::{Chain, ItemHead, Kind, PolicyError, SessionView};
use std::sync::Arc;
use tokio::sync::SemaphorePermit;

/// Sessions whose names are made anew side by side after a swap. They compete with calls for the guests' slots.
const SIDE_BY_SIDE: usize = 8;

/// What a client can be told of changes, each with its bit among the session's news.
const NEWS: [(u8, &str, Topic); 3] = [
    (1, method::TOOLS_CHANGED, Topic::Tools),
    (2, method::PROMPTS_CHANGED, Topic::Prompts),
    (4, method::RESOURCES_CHANGED, Topic::Resources),
];

fn news(kind: Kind) -> u8 {
    match kind {
        Kind::Tool => 1,
        Kind::Prompt => 2,
        Kind::Resource | Kind::ResourceTemplate => 4,
    }
}

impl Listed {
    pub(super) fn of(backend: usize, first: bool, page: &Page) -> Self {
        let items = page.items.iter().map(|i| Listing::new(i.name.clone(), i.title.as_deref())).collect();
        Listed { backend, first, complete: page.next_cursor.is_none(), items }
    }
}

impl Gateway {
    /// The names of a session, made by the policies that its virtual host has now.
    ///
    /// # Errors
    /// When it takes too long until the policies have named what is known. A policy that fails is no error here: what it should
    /// have named is then unknown, and whoever asks for it hears of the failure.
    pub(crate) async fn names(self: &Arc<Self>, session: &Arc<Session>) -> Result<Arc<Published>, RpcError> {
        let at = session.published();
        if at.chain().generation() == session.host.policies.generation() {
            return Ok(at);
        }
        // Boxed: it is seldom needed, and calls are small without it.
        Box::pin(async {
            let _turn = self.turn(session).await?;
            Ok(self.renewed(session).await)
        })
        .await
    }

    async fn turn<'s>(&self, session: &'s Session) -> Result<SemaphorePermit<'s>, RpcError> {
        match tokio::time::timeout(self.settings.list_timeout, session.naming_turn()).await {
            Ok(Some(turn)) => Ok(turn),
            _ => Err(RpcError::new(codes::POLICY_FAILED, "the policies take too long to name what this session can use; nothing was run")),
        }
    }

    /// The same for who has the naming turn.
    async fn renewed(self: &Arc<Self>, session: &Arc<Session>) -> Arc<Published> {
        let (old, chain) = (session.published(), session.host.policies.current());
        if old.chain().generation() == chain.generation() {
            return old;
        }
        let view = session.view();
        let mut tables: [Arc<Table>; 4] = Default::default();
        let mut changed = 0;
        for (slot, kind) in tables.iter_mut().zip(KINDS) {
            let (table, differs) = rename(session, &view, &chain, kind, old.table(kind)).await;
            *slot = Arc::new(table);
            // A client without sessions may have been told the list elsewhere, where an anonymous one has another connection.
            let elsewhere = session.version().is_modern() && !old.table(kind).is_told();
            changed |= if differs || elsewhere { news(kind) } else { 0 };
        }
        tracing::debug!(session = %session.tag(), generation = chain.generation(), before = old.chain().generation(), changed, "names were made anew");
        let new = session.succeed(chain, tables);
        self.tell(session, changed);
        new
    }

    /// Tells the client that lists have changed, in a task of the session: it may be slow to read.
    fn tell(self: &Arc<Self>, session: &Arc<Session>, changed: u8) {
        if changed == 0 || !session.is_registered() || !session.add_news(changed) {
            return;
        }
        let (gateway, told) = (self.clone(), session.clone());
        session.spawn(async move {
            loop {
                let news = told.take_news();
                if news == 0 {
                    return;
                }
                for (_, notification, topic) in NEWS.iter().filter(|(bit, ..)| news & bit != 0) {
                    gateway.tell_change(&told, STANDALONE, topic, codes::notification(notification, None)).await;
                }
            }
        });
    }

    /// The policies of a virtual host were swapped: the names of its sessions are made anew, soon.
    pub fn policies_swapped(&self) {
        self.swapped.notify_one();
    }

    /// Makes names anew for sessions that do not ask for them.
    pub(super) fn start_renewing(self: &Arc<Self>) {
        let gateway = Arc::downgrade(self);
        let (stopped, swapped) = (self.stopped.clone(), self.swapped.clone());
        self.background.spawn(async move {
            let renew = async {
                loop {
                    swapped.notified().await;
                    let Some(gateway) = gateway.upgrade() else { return };
                    gateway.renew_all().await;
                }
            };
            tokio::select! {
                biased;
                () = stopped.cancelled() => {}
                () = renew => {}
            }
        });
    }

    async fn renew_all(self: &Arc<Self>) {
        futures_util::stream::iter(self.registry.all())
            .for_each_concurrent(SIDE_BY_SIDE, |session| async move {
                if !session.ended().is_cancelled()
                    && let Err(error) = self.names(&session).await
                {
                    tracing::info!(session = %session.tag(), error = %error.message, "names were not made anew");
                }
            })
            .await;
    }

    /// Whether policies can name what a session has listed. Nothing is noted.
    pub(crate) async fn try_names(
        &self,
        host: &VirtualHost,
        view: &SessionView,
        chain: &Chain,
        tables: &[Arc<Table>; 4],
    ) -> Result<(), PolicyError> {
        for (table, kind) in tables.iter().zip(KINDS) {
            if !table.is_empty() {
                name(host, view, chain, kind, &Table::default(), &table.stock().0).await?;
            }
        }
        Ok(())
    }

    /// The public name of each item (none: hidden), in the order given, and noted in the session's table; with the names that it was
    /// noted in, which are those of the policies that there are now.
    pub(super) async fn publish(
        self: &Arc<Self>,
        session: &Arc<Session>,
        kind: Kind,
        listed: &[Listed],
    ) -> Result<(Arc<Published>, Vec<Vec<Option<Arc<str>>>>), RpcError> {
        let _turn = self.turn(session).await?;
        let at = self.renewed(session).await;
        let table = at.table(kind);
        let names = name(&session.host, &session.view(), at.chain(), kind, table, listed).await.map_err(|e| policy_failed(&e))?;
        Ok((at, names))
    }
}

/// Asks the policies for the names of what is listed, and notes them in `table`.
async fn name(
    host: &VirtualHost,
    view: &SessionView,
    chain: &Chain,
    kind: Kind,
    table: &Table,
    listed: &[Listed],
) -> Result<Vec<Vec<Option<Arc<str>>>>, PolicyError> {
    // What these pages replace does not count: names that are gone are not shared.
    let replaced = |backend: usize| listed.iter().any(|l| l.first && l.backend == backend);
    let known = listed.iter().flat_map(|l| l.items.iter().map(move |item| (l.backend, &*item.name)));
    let shared = table.shared(known, |backend| !replaced(backend));
    let heads: Vec<ItemHead<'_>> = listed
        .iter()
        .flat_map(|l| {
            let (backend, shared): (&str, _) = (&host.backends[l.backend].name, &shared);
            l.items.iter().map(move |item| ItemHead {
                backend,
                name: &item.name,
                title: item.title.as_deref(),
                shared: shared.contains(&*item.name),
            })
        })
        .collect();
    let published = chain.publish(view, kind, &heads).await?;
    let mut published = published.into_iter();
    let mut names: Vec<Vec<Option<Arc<str>>>> =
        listed.iter().map(|list| list.items.iter().map(|item| Some(same(&item.name, published.next().flatten()?))).collect()).collect();
    let pairs: Vec<_> = listed.iter().zip(&names).map(|(list, names)| (list, names.as_slice())).collect();
    // A page was checked in itself by the policy plane; a name that an earlier page gave to something else is checked here.
    for (taken, (list, names)) in table.record(&pairs).into_iter().zip(listed.iter().zip(&mut names)) {
        for at in taken {
            tracing::warn!(virtual_host = %host.path, backend = %host.backends[list.backend].name, name = ?names[at], "left out of a list: its public name is taken");
            names[at] = None;
        }
    }
    table.share(&host.names);
    Ok(names)
}

/// What another chain makes of what a table knows, and whether that is news for the client.
async fn rename(session: &Session, view: &SessionView, chain: &Chain, kind: Kind, old: &Table) -> (Table, bool) {
    let (lists, before) = old.stock();
    let new = Table::default();
    if before.is_empty() {
        new.record(&lists.iter().map(|list| (list, &[][..])).collect::<Vec<_>>());
        return (new, old.is_lost());
    }
    match name(&session.host, view, chain, kind, &new, &lists).await {
        Ok(names) => (new, old.is_lost() || !names.into_iter().flatten().eq(before)),
        // The policy plane has logged it.
        Err(error) => {
            tracing::debug!(session = %session.tag(), %error, %kind, "what is known could not be named");
            (Table::lost(), true)
        }
    }
}

/// The public name, in the memory of the own name where they are equal, as they are for many.
fn same(own: &Arc<str>, public: String) -> Arc<str> {
    if **own == *public { own.clone() } else { public.into() }
}

/// A policy failed: the request is refused, and says which policy it was. Its reason is for the operator, and logged where it failed.
pub(super) fn policy_failed(error: &PolicyError) -> RpcError {
    RpcError::new(codes::POLICY_FAILED, error.summary())
}

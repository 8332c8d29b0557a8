//! Which chamber a request without a session belongs to.
//!
//! By principal, virtual host and what the client says of itself, since backends of older revisions are told that once and for all. Anonymous
//! clients cannot be told apart but by their connections, so each of these has chambers of its own, which end with it; a call that waits for
//! its client (`parked`) keeps its chamber until it is over. What a client is owed is one account over all its chambers at a
//! virtual host.

use super::super::{Gateway, Refusal, VirtualHost};
use crate::admission::Ledger;
use crate::protocol::Version;
use crate::session::{Client, Declares, Principal, Session};
use crate::telemetry::SessionTag;
use crate::telemetry::metrics::SessionEvent;
use arc_swap::ArcSwapOption;
use bytes::Bytes;
use dashmap::DashMap;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

/// What a client says of itself, whole and in short.
#[derive(Debug)]
pub struct Said {
    client: Client,
    words: Words,
}

/// Bytes up to which a connection remembers what its client says of itself: it is the same in each request of most.
const REMEMBERED: usize = 4096;

/// What a client says of itself, in short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Words([u8; 16]);

#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    principal: Principal,
    virtual_host: Arc<str>,
    words: Words,
}

type OwnKey = (Arc<str>, Words);

/// A place for one chamber; it is opened when it is first asked for, and again after it was closed.
#[derive(Default)]
struct Slot {
    current: ArcSwapOption<Session>,
    opening: tokio::sync::Mutex<()>,
    /// It came to nothing, and is found no more.
    gone: AtomicBool,
}

/// While a chamber is opened. Dropped before it is, its slot goes: whoever asks with other words each time leaves nothing behind.
struct Opening<'a> {
    gateway: &'a Gateway,
    /// None for the slots of a connection, which go with it.
    key: Option<&'a Key>,
    slot: &'a Arc<Slot>,
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        if let (None, Some(key)) = (&*self.slot.current.load(), self.key) {
            self.slot.gone.store(true, Ordering::Release);
            self.gateway.chambers.slots.remove_if(key, |_, slot| Arc::ptr_eq(slot, self.slot));
        }
    }
}

/// The chambers of principals that proved who they are.
#[derive(Default)]
pub struct Chambers {
    slots: DashMap<Key, Arc<Slot>>,
    /// As many as the configuration has principals and virtual hosts, at most.
    ledgers: DashMap<(Principal, Arc<str>), Weak<Ledger>>,
}

/// The chambers of one connection. Dropping it ends them, as soon as they have nothing left to do.
#[derive(Default)]
pub struct OwnChambers {
    /// By virtual host and words.
    slots: Mutex<HashMap<OwnKey, Arc<Slot>>>,
    ledgers: Mutex<HashMap<Arc<str>, Arc<Ledger>>>,
    /// What its last request said, where that was good.
    said: Mutex<Option<Arc<Said>>>,
    gateway: OnceLock<Weak<Gateway>>,
}

impl Words {
    fn of(client: &Client) -> Self {
        let mut hash = Sha256::new();
        hash.update((client.capabilities.len() as u64).to_le_bytes());
        hash.update(&client.capabilities);
        hash.update(&client.info);
        let full = hash.finalize();
        let mut short = [0; 16];
        short.copy_from_slice(&full[..16]);
        Words(short)
    }
}

impl Said {
    /// What a client says of itself: JSON text of its `clientCapabilities` and `clientInfo`.
    pub fn client(&self) -> &Client {
        &self.client
    }
}

impl Slot {
    fn live(&self) -> Option<Arc<Session>> {
        self.current.load_full().filter(|s| !s.ended().is_cancelled())
    }
}

impl Gateway {
    /// The chamber of this client.
    pub(super) async fn chamber(
        self: &Arc<Self>,
        host: &Arc<VirtualHost>,
        principal: Principal,
        own: &Arc<OwnChambers>,
        client: Arc<Said>,
    ) -> Result<Arc<Session>, Refusal> {
        let words = client.words;
        let anonymous = principal.is_anonymous();
        let key = (!anonymous).then(|| Key { principal: principal.clone(), virtual_host: host.path.clone(), words });
        let slot = match &key {
            None => own.slot(self, host, words),
            Some(key) => match self.chambers.slots.get(key).map(|slot| slot.clone()) {
                Some(slot) => slot,
                None => self.chambers.slots.entry(key.clone()).or_default().clone(),
            },
        };
        if let Some(session) = slot.live() {
            session.touch();
            return Ok(session);
        }
        // One request opens it; the others of the client wait for that.
        let opening = slot.opening.lock().await;
        if let Some(session) = slot.live() {
            return Ok(session);
        }
        if slot.gone.load(Ordering::Acquire) {
            // Whoever was at it has given up, and the slot is not found any more.
            drop(opening);
            return Box::pin(self.chamber(host, principal, own, client)).await;
        }
        let _slot = Opening { gateway: self, key: key.as_ref(), slot: &slot };
        let ledger = if anonymous { own.ledger(self, host) } else { self.chambers.ledger(self, &principal, host) };
        let unfinished = Box::pin(self.open_session(host, principal, client.client.clone(), Some(ledger))).await?;
        let session = unfinished.session().clone();
        session.set_registered();
        self.start_probe(&session);
        unfinished.finish();
        slot.current.store(Some(session.clone()));
        tracing::info!(
            session = %session.tag(), principal = %session.key().principal.name(), virtual_host = %host.path, version = %session.version(),
            "chamber opened"
        );
        Ok(session)
    }

    /// A chamber has ended.
    pub(in crate::gateway) fn forget_chamber(&self, session: &Session) {
        let key = session.key();
        let of = Key { principal: key.principal.clone(), virtual_host: key.virtual_host.clone(), words: Words::of(&session.client) };
        self.chambers.slots.remove_if(&of, |_, slot| slot.current.load().as_ref().is_some_and(|s| std::ptr::eq(&**s, session)));
    }
}

impl Chambers {
    fn ledger(&self, gateway: &Gateway, principal: &Principal, host: &VirtualHost) -> Arc<Ledger> {
        let mut entry = self.ledgers.entry((principal.clone(), host.path.clone())).or_default();
        if let Some(ledger) = entry.upgrade() {
            return ledger;
        }
        let tag = SessionTag(&format!("{} {}", principal.name(), host.path)).to_string();
        let ledger = gateway.ledger(&tag.into());
        *entry = Arc::downgrade(&ledger);
        ledger
    }
}

impl OwnChambers {
    /// What the last request on the connection said of its client, where this one says the same, byte for byte: `clientCapabilities` and
    /// `clientInfo`.
    pub fn said(&self, (capabilities, info): (&str, &str)) -> Option<Arc<Said>> {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.as_ref().filter(|said| said.client.capabilities == capabilities && said.client.info == info).cloned()
    }

    /// The same for what was checked now. It is remembered, unless it is long.
    pub fn says(&self, (capabilities, info): (&str, &str), declares: Declares) -> Arc<Said> {
        // Kept by themselves: the rest of the message can go.
        let text = |text: &str| Bytes::copy_from_slice(text.as_bytes());
        let client = Client { version: Version::V2026_07_28, capabilities: text(capabilities), info: text(info), declares };
        let said = Arc::new(Said { words: Words::of(&client), client });
        if capabilities.len() + info.len() <= REMEMBERED {
            *self.said.lock().unwrap_or_else(PoisonError::into_inner) = Some(said.clone());
        }
        said
    }

    fn slot(&self, gateway: &Arc<Gateway>, host: &VirtualHost, words: Words) -> Arc<Slot> {
        self.gateway.get_or_init(|| Arc::downgrade(gateway));
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        // Those that were closed meanwhile (idle, or for want of room) go.
        if slots.len() > 1 {
            slots.retain(|(path, of), slot| {
                (*of == words && *path == host.path) || slot.opening.try_lock().is_err() || slot.live().is_some()
            });
        }
        slots.entry((host.path.clone(), words)).or_default().clone()
    }

    fn ledger(&self, gateway: &Gateway, host: &VirtualHost) -> Arc<Ledger> {
        let mut ledgers = self.ledgers.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || gateway.ledger(&SessionTag(&format!("{:p} {}", self, host.path)).to_string().into());
        ledgers.entry(host.path.clone()).or_insert_with(new).clone()
    }
}

impl Drop for OwnChambers {
    fn drop(&mut self) {
        let Some(gateway) = self.gateway.get().and_then(Weak::upgrade) else { return };
        let slots = std::mem::take(self.slots.get_mut().unwrap_or_else(PoisonError::into_inner));
        for session in slots.into_values().filter_map(|slot| slot.live()) {
            session.orphan();
            if session.is_done() {
                let gateway = gateway.clone();
                gateway.background.clone().spawn(async move { gateway.end_session(&session, SessionEvent::ClosedByClient).await });
            }
        }
    }
}

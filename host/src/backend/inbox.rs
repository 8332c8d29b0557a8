//! The way from a backend to the session for all that belongs to no call: a bounded queue that takes no memory while it is empty, and wakes
//! whoever serves it with the first message. So nobody has to wait for messages that hardly ever come.

use super::FromServer;
use super::inner::lock;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use tokio::sync::{Semaphore, TryAcquireError};

/// Called with the messages when there are some and nobody serves them.
type Rouse = Box<dyn Fn(Letters) + Send + Sync>;

/// Where `FromServer` goes. A full one stops the reader of this upstream, and nobody else. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Inbox(Arc<Shared>);

struct Shared {
    queue: Mutex<Queue>,
    /// A place for each message; closed when nobody will serve them any more.
    room: Semaphore,
    capacity: u32,
    rouse: Rouse,
}

#[derive(Default)]
struct Queue {
    messages: VecDeque<FromServer>,
    /// There are `Letters`.
    served: bool,
    closed: bool,
}

/// The messages of an inbox, for the one who serves it now. Who lets go of it before it has answered that there are no more, closes the
/// inbox: what comes then goes nowhere, and holds up nobody.
#[derive(Debug)]
pub struct Letters(Option<Arc<Shared>>);

impl Inbox {
    /// Of so many messages. `rouse` is called in the middle of whatever brings a message, and only has to see to it that the letters are read.
    pub fn new(capacity: u32, rouse: impl Fn(Letters) + Send + Sync + 'static) -> Inbox {
        let capacity = capacity.max(1);
        Inbox(Arc::new(Shared { queue: Mutex::default(), room: Semaphore::new(capacity as usize), capacity, rouse: Box::new(rouse) }))
    }

    /// Puts a message in; waits while it is full, and with one that is to be `alone` until it is empty. Cancel-safe.
    pub async fn put(&self, message: FromServer, alone: bool) {
        let shared = &self.0;
        let places = if alone { shared.capacity } else { 1 };
        let taken = match shared.room.try_acquire_many(places) {
            Ok(taken) => taken,
            Err(TryAcquireError::Closed) => return,
            Err(TryAcquireError::NoPermits) => match shared.room.acquire_many(places).await {
                Ok(taken) => taken,
                Err(_) => return,
            },
        };
        let rouse = {
            let mut queue = lock(&shared.queue);
            if queue.closed {
                return;
            }
            queue.messages.push_back(message);
            // One place is given back with the message, the others now.
            taken.forget();
            shared.room.add_permits(places as usize - 1);
            !std::mem::replace(&mut queue.served, true)
        };
        if rouse {
            (shared.rouse)(Letters(Some(shared.clone())));
        }
    }
}

impl Letters {
    /// The next message. None: there is none, and the next one that comes calls for somebody anew.
    pub fn take(&mut self) -> Option<FromServer> {
        let shared = self.0.as_ref()?;
        let mut queue = lock(&shared.queue);
        let message = queue.messages.pop_front();
        if message.is_some() {
            shared.room.add_permits(1);
        } else {
            queue.messages = VecDeque::new();
            queue.served = false;
            drop(queue);
            self.0 = None;
        }
        message
    }
}

impl Drop for Letters {
    fn drop(&mut self) {
        let Some(shared) = self.0.take() else { return };
        shared.room.close();
        let unread = {
            let mut queue = lock(&shared.queue);
            queue.closed = true;
            std::mem::take(&mut queue.messages)
        };
        drop(unread);
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inbox").field("room", &self.room.available_permits()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use tokio::sync::mpsc;

    fn inbox(capacity: u32) -> (Inbox, mpsc::Receiver<Letters>) {
        let (sender, roused) = mpsc::channel(8);
        let rouse = move |letters| {
            let _ = sender.try_send(letters);
        };
        (Inbox::new(capacity, rouse), roused)
    }

    fn message(text: &str) -> FromServer {
        FromServer::Down(text.into())
    }

    fn text(message: Option<FromServer>) -> Option<String> {
        match message {
            Some(FromServer::Down(text)) => Some(text.to_string()),
            _ => None,
        }
    }

    #[test]
    fn the_first_message_calls_for_somebody_and_those_after_it_do_not() {
        let (inbox, mut roused) = inbox(4);
        inbox.put(message("a"), false).now_or_never().unwrap();
        inbox.put(message("b"), false).now_or_never().unwrap();
        let mut letters = roused.try_recv().unwrap();
        assert!(roused.try_recv().is_err());
        assert_eq!((text(letters.take()), text(letters.take())), (Some("a".into()), Some("b".into())));
        inbox.put(message("c"), false).now_or_never().unwrap();
        assert!(roused.try_recv().is_err(), "somebody is at it");
        assert_eq!((text(letters.take()), text(letters.take())), (Some("c".into()), None));
        assert_eq!(text(letters.take()), None);
        inbox.put(message("d"), false).now_or_never().unwrap();
        assert_eq!(text(roused.try_recv().unwrap().take()), Some("d".into()));
    }

    #[test]
    fn a_full_one_holds_up_whoever_brings_more_and_a_message_can_want_to_be_alone() {
        let (inbox, mut roused) = inbox(2);
        inbox.put(message("a"), false).now_or_never().unwrap();
        let mut alone = Box::pin(inbox.put(message("b"), true));
        assert!(alone.as_mut().now_or_never().is_none());
        let mut letters = roused.try_recv().unwrap();
        assert_eq!(text(letters.take()), Some("a".into()));
        alone.now_or_never().unwrap();
        inbox.put(message("c"), false).now_or_never().unwrap();
        let mut waiting = Box::pin(inbox.put(message("d"), false));
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(letters);
        // Nobody will ever read it.
        waiting.now_or_never().unwrap();
        inbox.put(message("e"), true).now_or_never().unwrap();
        assert!(roused.try_recv().is_err());
    }
}

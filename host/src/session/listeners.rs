//! The `subscriptions/listen` streams of a client of 2026-07-28 (2026-07-28 patterns/subscriptions): which there are, and what each wants.
//!
//! Knows nothing of backends: `gateway` tells it what happened and puts the messages on the streams that it names.

use super::lock;
use super::streams::StreamId;
use bytes::Bytes;
use std::sync::Mutex;

/// Streams of this kind that one chamber may have open at once.
pub const LISTENS: usize = 64;

/// What can be told on such a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Topic {
    Tools,
    Prompts,
    Resources,
    /// The resource with this public URI.
    Updated(String),
}

/// A task that a client wants to be told of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watched {
    /// The id by which the client knows it.
    pub public: String,
    /// Index of the backend that runs it, and its id there.
    pub backend: usize,
    pub own: String,
}

/// What a client wants to be told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    pub tools: bool,
    pub prompts: bool,
    pub resources: bool,
    /// Public URIs.
    pub uris: Vec<String>,
    pub tasks: Vec<Watched>,
}

/// One open stream.
#[derive(Clone, Debug)]
pub struct Listener {
    pub stream: StreamId,
    /// JSON text of the id of its request, which goes with everything on it.
    pub id: Bytes,
    pub wanted: Wanted,
    /// It was acknowledged: from then on it is told.
    pub told: bool,
}

#[derive(Debug, Default)]
pub struct Listeners(Mutex<Vec<Listener>>);

impl Wanted {
    fn wants(&self, topic: &Topic) -> bool {
        match topic {
            Topic::Tools => self.tools,
            Topic::Prompts => self.prompts,
            Topic::Resources => self.resources,
            Topic::Updated(uri) => self.uris.contains(uri),
        }
    }
}

impl Listeners {
    /// False where there are [`LISTENS`] already.
    pub fn add(&self, listener: Listener) -> bool {
        let mut all = lock(&self.0);
        let room = all.len() < LISTENS;
        if room {
            all.push(listener);
        }
        room
    }

    pub fn remove(&self, stream: StreamId) -> Option<Listener> {
        let mut all = lock(&self.0);
        let at = all.iter().position(|l| l.stream == stream)?;
        Some(all.swap_remove(at))
    }

    /// Takes all.
    pub fn take(&self) -> Vec<Listener> {
        std::mem::take(&mut *lock(&self.0))
    }

    /// The streams that want this, each with the id of its request.
    pub fn of(&self, topic: &Topic) -> Vec<(StreamId, Bytes)> {
        lock(&self.0).iter().filter(|l| l.told && l.wanted.wants(topic)).map(|l| (l.stream, l.id.clone())).collect()
    }

    /// Changes what a stream wants.
    pub fn change(&self, stream: StreamId, change: impl FnOnce(&mut Listener)) {
        lock(&self.0).iter_mut().find(|l| l.stream == stream).map(change);
    }

    /// Whether any stream wants this, told of it yet or not.
    pub fn want(&self, topic: &Topic) -> bool {
        lock(&self.0).iter().any(|l| l.wanted.wants(topic))
    }

    /// The streams that want to be told of a task of this backend, each with the id of its request and the one by which it knows the task.
    pub fn of_task(&self, backend: usize, own: &str) -> Vec<(StreamId, Bytes, String)> {
        let all = lock(&self.0);
        let of = |l: &Listener| {
            let task = l.wanted.tasks.iter().filter(|_| l.told).find(|t| t.backend == backend && t.own == own)?;
            Some((l.stream, l.id.clone(), task.public.clone()))
        };
        all.iter().filter_map(of).collect()
    }

    /// How many streams want a task of this backend, told of it yet or not.
    pub fn watchers(&self, backend: usize, own: &str) -> usize {
        lock(&self.0).iter().filter(|l| l.wanted.tasks.iter().any(|t| t.backend == backend && t.own == own)).count()
    }

    /// How many tasks are wanted, over all streams.
    pub fn tasks(&self) -> usize {
        lock(&self.0).iter().map(|l| l.wanted.tasks.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_stream_gets_what_it_wants_and_there_are_so_many() {
        let listeners = Listeners::default();
        let one = |stream, wanted| Listener { stream, id: Bytes::from_static(b"1"), wanted, told: true };
        assert!(listeners.add(one(1, Wanted { tools: true, ..Wanted::default() })));
        assert!(listeners.add(one(2, Wanted { uris: vec!["a".into()], ..Wanted::default() })));
        assert_eq!(listeners.of(&Topic::Tools).len(), 1);
        assert_eq!(listeners.of(&Topic::Updated("a".into()))[0].0, 2);
        assert!(!listeners.want(&Topic::Updated("b".into())) && !listeners.want(&Topic::Prompts));
        let task = |own: &str| Watched { public: "p".into(), backend: 1, own: own.into() };
        assert!(listeners.add(one(3, Wanted { tasks: vec![task("a"), task("b")], ..Wanted::default() })));
        assert_eq!((listeners.of_task(1, "b").len(), listeners.of_task(0, "b").len(), listeners.tasks()), (1, 0, 2));
        for stream in 4.. {
            if !listeners.add(one(stream, Wanted::default())) {
                assert_eq!(stream as usize, LISTENS + 1);
                break;
            }
        }
        listeners.change(2, |l| l.told = false);
        assert!(listeners.of(&Topic::Updated("a".into())).is_empty() && listeners.want(&Topic::Updated("a".into())));
        listeners.change(3, |l| l.told = false);
        assert_eq!((listeners.of_task(1, "b").len(), listeners.watchers(1, "b"), listeners.tasks()), (0, 1, 2));
        assert!(listeners.remove(1).is_some() && listeners.remove(1).is_none());
        assert!(listeners.of(&Topic::Tools).is_empty());
    }
}

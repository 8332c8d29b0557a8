//! Requests of servers to this client (sampling, elicitation, roots, …) that wait for their answer.

use super::lock;
use super::streams::StreamId;
use crate::protocol::RequestId;
use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;
use tokio::time::Instant;

/// A request of a server that was put to the client.
#[derive(Clone, Debug)]
pub struct Question {
    /// Index of the backend that asks.
    pub backend: usize,
    /// The id that the backend gave it.
    pub id: RequestId,
    /// The progress token that the backend gave it.
    pub progress_token: Option<RequestId>,
    /// The stream that it was sent on.
    pub stream: StreamId,
    pub about: About,
}

/// What has to be seen to when a question is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum About {
    #[default]
    Other,
    /// The answer may be a task, which is then this backend's.
    Task,
    /// The answer lists tasks, of which only this backend's are for it.
    Tasks,
}

/// The open questions of a session, by the number under which the client knows them. Bounded in number and time.
pub struct Asked {
    inner: Mutex<Inner>,
    limit: usize,
    timeout: Duration,
}

#[derive(Default)]
struct Inner {
    next: u64,
    open: HashMap<u64, (Question, Instant)>,
}

impl Asked {
    pub fn new(limit: usize, timeout: Duration) -> Self {
        Asked { inner: Mutex::default(), limit, timeout }
    }

    /// A number for the question; none when too many are open.
    pub fn ask(&self, question: Question) -> Option<u64> {
        let mut inner = lock(&self.inner);
        if inner.open.len() >= self.limit {
            return None;
        }
        inner.next += 1;
        let number = inner.next;
        inner.open.insert(number, (question, Instant::now() + self.timeout));
        Some(number)
    }

    /// Takes the question that the client answered.
    pub fn take(&self, number: u64) -> Option<Question> {
        lock(&self.inner).open.remove(&number).map(|(q, _)| q)
    }

    /// The question, which stays open (progress of the client on it).
    pub fn get(&self, number: u64) -> Option<Question> {
        lock(&self.inner).open.get(&number).map(|(q, _)| q.clone())
    }

    /// Takes the question that its backend withdraws.
    pub fn withdraw(&self, backend: usize, id: &RequestId) -> Option<(u64, Question)> {
        let mut inner = lock(&self.inner);
        let number = inner.open.iter().find(|(_, (q, _))| q.backend == backend && q.id == *id).map(|(n, _)| *n)?;
        inner.open.remove(&number).map(|(q, _)| (number, q))
    }

    /// Takes the questions of a call that is over.
    pub fn end_of_stream(&self, stream: StreamId) -> Vec<Question> {
        let mut inner = lock(&self.inner);
        if inner.open.is_empty() {
            return Vec::new();
        }
        inner.open.extract_if(|_, (q, _)| q.stream == stream).map(|(_, (q, _))| q).collect()
    }

    /// Takes the questions of a backend that went down.
    pub fn backend_gone(&self, backend: usize) {
        lock(&self.inner).open.retain(|_, (q, _)| q.backend != backend);
    }

    /// Takes those that have waited too long.
    pub fn expired(&self, now: Instant) -> Vec<Question> {
        let mut inner = lock(&self.inner);
        let over: Vec<u64> = inner.open.iter().filter(|(_, (_, until))| *until <= now).map(|(n, _)| *n).collect();
        over.into_iter().filter_map(|n| inner.open.remove(&n)).map(|(q, _)| q).collect()
    }

    pub fn clear(&self) {
        lock(&self.inner).open.clear();
    }
}

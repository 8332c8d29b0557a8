//! Requests of servers to this client (sampling, elicitation, roots, …) that wait for their answer.

use super::streams::StreamId;
use crate::protocol::RequestId;
use crate::rare::Rare;
use std::collections::HashMap;
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
    inner: Rare<Inner>,
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
        Asked { inner: Rare::default(), limit, timeout }
    }

    /// A number for the question; none when too many are open.
    pub fn ask(&self, question: Question) -> Option<u64> {
        self.inner.change(|inner| {
            if inner.open.len() >= self.limit {
                return None;
            }
            inner.next += 1;
            inner.open.insert(inner.next, (question, Instant::now() + self.timeout));
            Some(inner.next)
        })
    }

    /// Takes the question that the client answered.
    pub fn take(&self, number: u64) -> Option<Question> {
        self.inner.look(|inner| inner.open.remove(&number).map(|(q, _)| q))?
    }

    /// The question, which stays open (progress of the client on it).
    pub fn get(&self, number: u64) -> Option<Question> {
        self.inner.look(|inner| inner.open.get(&number).map(|(q, _)| q.clone()))?
    }

    /// Takes the question that its backend withdraws.
    pub fn withdraw(&self, backend: usize, id: &RequestId) -> Option<(u64, Question)> {
        let withdraw = |inner: &mut Inner| {
            let number = inner.open.iter().find(|(_, (q, _))| q.backend == backend && q.id == *id).map(|(n, _)| *n)?;
            inner.open.remove(&number).map(|(q, _)| (number, q))
        };
        self.inner.look(withdraw)?
    }

    /// Takes the questions of a call that is over.
    pub fn end_of_stream(&self, stream: StreamId) -> Vec<Question> {
        let end = |inner: &mut Inner| inner.open.extract_if(|_, (q, _)| q.stream == stream).map(|(_, (q, _))| q).collect();
        self.inner.look(end).unwrap_or_default()
    }

    /// Takes the questions of a backend that went down.
    pub fn backend_gone(&self, backend: usize) {
        self.inner.look(|inner| inner.open.retain(|_, (q, _)| q.backend != backend));
    }

    /// Takes those that have waited too long.
    pub fn expired(&self, now: Instant) -> Vec<Question> {
        let over = |inner: &mut Inner| inner.open.extract_if(|_, (_, until)| *until <= now).map(|(_, (q, _))| q).collect();
        self.inner.look(over).unwrap_or_default()
    }

    pub fn clear(&self) {
        self.inner.look(|inner| inner.open.clear());
    }
}

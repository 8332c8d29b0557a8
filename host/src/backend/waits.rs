//! The time in which a call waits for its client and not for its backend: from a question of the server to the answer.

use super::inner::lock;
use crate::protocol::RequestId;
use crate::rare::Rare;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;

/// Questions of one upstream that are followed; of those beyond, the wait counts as the backend's.
const MAX_QUESTIONS: usize = 256;

/// The waits of one call.
#[derive(Debug, Default)]
pub struct Waits(Mutex<Count>);

#[derive(Debug, Default)]
struct Count {
    open: usize,
    since: Option<Instant>,
    unclaimed: Duration,
}

/// The open questions of an upstream, by the server's id.
#[derive(Debug, Default)]
pub struct Questions(Rare<HashMap<RequestId, Arc<Waits>>>);

impl Waits {
    fn begin(&self) {
        let mut count = lock(&self.0);
        count.open += 1;
        count.since.get_or_insert_with(Instant::now);
    }

    fn finish(&self) {
        let mut count = lock(&self.0);
        count.open = count.open.saturating_sub(1);
        if count.open == 0
            && let Some(since) = count.since.take()
        {
            count.unclaimed += since.elapsed();
        }
    }

    /// The time that was waited since this was last asked.
    pub fn claim(&self) -> Duration {
        let mut count = lock(&self.0);
        let now = Instant::now();
        let running = count.since.as_mut().map(|since| now.duration_since(std::mem::replace(since, now)));
        std::mem::take(&mut count.unclaimed) + running.unwrap_or_default()
    }
}

impl Questions {
    pub fn asked(&self, id: &RequestId, waits: &Arc<Waits>) {
        self.0.change(|questions| {
            if questions.len() >= MAX_QUESTIONS {
                return;
            }
            waits.begin();
            if let Some(before) = questions.insert(id.clone(), waits.clone()) {
                before.finish();
            }
        });
    }

    pub fn answered(&self, id: &RequestId) {
        if let Some(waits) = self.0.look(|questions| questions.remove(id)).flatten() {
            waits.finish();
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.look(|questions| questions.is_empty()).unwrap_or(true)
    }

    /// Forgets the questions of a call that is over.
    pub fn forget(&self, waits: &Arc<Waits>) {
        self.0.look(|questions| questions.retain(|_, w| !Arc::ptr_eq(w, waits)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_runs_from_the_first_question_to_the_last_answer_and_is_claimed_once() {
        let (questions, waits) = (Questions::default(), Arc::new(Waits::default()));
        assert!(waits.claim().is_zero());
        for n in [1, 2, 2] {
            questions.asked(&RequestId::number(n), &waits);
        }
        std::thread::sleep(Duration::from_millis(5));
        assert!(waits.claim() >= Duration::from_millis(5));
        questions.answered(&RequestId::number(1));
        std::thread::sleep(Duration::from_millis(5));
        questions.answered(&RequestId::number(2));
        assert!(questions.is_empty());
        assert!(waits.claim() >= Duration::from_millis(5));
        assert!(waits.claim().is_zero());
    }
}

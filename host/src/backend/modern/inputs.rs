//! The questions of modern servers that wait for the client, and the way of its answers back to the call that asked.

use crate::backend::inner::lock;
use crate::protocol::{RequestId, Response};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use tokio::sync::mpsc;

/// The open questions of an upstream. Each belongs to one round of one call, and leaves with it.
#[derive(Debug, Default, Clone)]
pub struct Inputs(Arc<Mutex<HashMap<RequestId, Place>>>);

#[derive(Debug)]
struct Place {
    index: usize,
    to: mpsc::Sender<(usize, Response)>,
}

/// The questions of one round. Forgotten when dropped.
#[derive(Debug)]
pub struct Round {
    inputs: Inputs,
    ids: Vec<RequestId>,
    answers: mpsc::Receiver<(usize, Response)>,
}

impl Inputs {
    /// Opens questions under these ids, which are not in use.
    pub fn open(&self, ids: Vec<RequestId>) -> Round {
        let (to, answers) = mpsc::channel(ids.len().max(1));
        let mut open = lock(&self.0);
        for (index, id) in ids.iter().enumerate() {
            open.insert(id.clone(), Place { index, to: to.clone() });
        }
        drop(open);
        Round { inputs: self.clone(), ids, answers }
    }

    pub fn is_empty(&self) -> bool {
        lock(&self.0).is_empty()
    }

    /// Gives an answer to the round that waits for it. False: it is none of these.
    pub fn give(&self, response: &Response) -> bool {
        let Some(place) = response.id.as_ref().and_then(|id| lock(&self.0).remove(id)) else { return false };
        // There is room for all; an error means that the call is over.
        let _ = place.to.try_send((place.index, response.clone()));
        true
    }
}

impl Round {
    /// The next answer, with the index of its question. None when all are there.
    pub async fn next(&mut self) -> Option<(usize, Response)> {
        self.answers.recv().await
    }
}

impl Drop for Round {
    fn drop(&mut self) {
        let mut open = lock(&self.inputs.0);
        for id in &self.ids {
            open.remove(id);
        }
    }
}

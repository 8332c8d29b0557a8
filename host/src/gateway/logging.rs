//! logging/setLevel: told to every backend of the session that logs, and to those that connect later.

use super::Gateway;
use super::capabilities::has;
use super::job::{Job, Outcome};
use super::relay::Relayed;
use crate::backend::State;
use crate::protocol::{Edits, RpcError, codes};
use std::sync::Arc;

pub(super) const LEVELS: [&str; 8] = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

impl Gateway {
    pub(super) async fn set_level(self: &Arc<Self>, job: &Job) -> Outcome {
        match job.request.string_param(&["level"]) {
            Ok(Some(level)) if LEVELS.contains(&level.value.as_str()) => {}
            Ok(_) => return RpcError::invalid_params(format!("`params.level` must be one of {}", LEVELS.join(", "))).into(),
            Err(why) => return RpcError::invalid_params(why).into(),
        }
        let session = job.session();
        session.set_level((*job.request).clone());
        let logging = |(index, upstream): (usize, &Arc<crate::backend::Upstream>)| match upstream.state() {
            State::Connected(hello) => has(&hello.capabilities, "logging").then_some(index),
            _ => None,
        };
        let backends: Vec<usize> = session.upstreams().iter().enumerate().filter_map(logging).collect();
        let answers = futures_util::future::join_all(backends.iter().map(|&backend| {
            let limit = session.host.backends[backend].timeouts.list;
            self.relay(job, backend, Edits::new(), limit)
        }))
        .await;
        let mut first_error = None;
        let mut done = answers.is_empty();
        for (&backend, answer) in backends.iter().zip(answers) {
            match answer {
                Relayed::Answer(response) if response.ok => done = true,
                Relayed::Cancelled => return Outcome::Cancelled,
                other => first_error = first_error.or(Some((backend, other))),
            }
        }
        match first_error {
            Some((backend, error)) if !done => error.into_outcome(backend),
            _ => Outcome::Answer(codes::result(job.id(), "{}")),
        }
    }
}

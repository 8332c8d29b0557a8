//! Clients of 2026-07-28, which have no sessions: every request says who asks and what its client can do.
//!
//! What such a client has at the gateway hangs from a chamber: a `Session` like any other, with its own upstreams, names and account, whose
//! id is told to nobody. It is found by who asks: principal, virtual host, and what the client says of itself; for an anonymous principal by
//! the connection. So all that holds for sessions holds here, and this module only bridges what differs: results have a kind,
//! questions of servers end the request and come back with its retry, and changes are told on streams that were asked for.
//!
//! # Layout
//! `chambers` (whose request it is) · `level` (which log messages it wants) · `answering` (what comes back) · `shape` (results and errors in
//! the form of the era) · `params` (headers that repeat arguments) · `state`, `parked` (calls that wait for their client) · `discover` ·
//! `listen` · `tasks` · `codes`.

mod answering;
pub mod chambers;
pub mod codes;
mod discover;
mod level;
mod listen;
mod params;
mod parked;
pub(super) mod shape;
mod state;
mod tasks;

pub use answering::{Answering, Part};
pub use level::Level;
pub use parked::{Limits as ParkedLimits, Parked};
pub use state::Echo;

use super::job::Job;
use super::{Gateway, Refusal, Reply, VirtualHost};
use crate::protocol::brought::Brought;
use crate::protocol::{Request, RpcError, method};
use crate::session::Principal;
use chambers::{OwnChambers, Said};
use std::sync::Arc;

/// What a request of this era brings beside its message.
#[derive(Clone, Debug, Default)]
pub struct Extras {
    /// The log messages that it wants, and none without.
    pub level: Option<Level>,
    /// The state that a backend gave out, and now gets back.
    pub echo: Option<Echo>,
    /// The headers that repeat its arguments.
    pub brought: Brought,
}

/// A request with all that the front has verified of it.
pub struct Asking<'a> {
    pub host: &'a Arc<VirtualHost>,
    pub principal: Principal,
    /// The chambers of the connection that it came on.
    pub own: &'a Arc<OwnChambers>,
    pub client: Arc<Said>,
    pub level: Option<Level>,
    pub brought: Brought,
    pub request: Arc<Request>,
}

/// Whether the era has this method, and the gateway too.
pub fn is_known(name: &str) -> bool {
    matches!(
        name,
        method::DISCOVER
            | method::LISTEN
            | method::TOOLS_LIST
            | method::TOOLS_CALL
            | method::PROMPTS_LIST
            | method::PROMPTS_GET
            | method::RESOURCES_LIST
            | method::RESOURCES_TEMPLATES_LIST
            | method::RESOURCES_READ
            | method::COMPLETE
            | method::TASKS_GET
            | method::TASKS_UPDATE
            | method::TASKS_CANCEL
    )
}

impl Gateway {
    /// What has to be seen to before a request goes to a backend of an older revision.
    pub(super) async fn prepare(self: &Arc<Self>, job: &Job, backend: usize) -> Result<(), RpcError> {
        if state::has_responses(&job.request) {
            // Without its state it would begin anew, with its side effects.
            return Err(RpcError::invalid_params(
                "`params.inputResponses` without the `params.requestState` that came with the questions: send both back",
            ));
        }
        if let Some(level) = &job.extras.level {
            self.lower_level(job.session(), backend, level).await;
        }
        Ok(())
    }

    /// Takes a request of a client of 2026-07-28. Dropping what it returns cancels the request (2026-07-28 patterns/cancellation).
    ///
    /// # Errors
    /// A refusal: nothing was run.
    pub async fn ask_modern(self: &Arc<Self>, asking: Asking<'_>) -> Result<Answering, Refusal> {
        if !self.ready() {
            return Err(Refusal::stopping());
        }
        tasks::check(&asking)?;
        let echo = match self.read_state(&asking)? {
            state::Given::Nothing => None,
            state::Given::Echo(echo) => Some(echo),
            // It goes on where it waits, whatever connection the retry came on.
            state::Given::Parked(key) => return Box::pin(self.unpark(key, asking)).await,
        };
        let Asking { host, principal, own, client, level, brought, request } = asking;
        let session = self.chamber(host, principal, own, client).await?;
        tracing::Span::current().record("session", &**session.tag());
        let credit = self.admit(&session, &request).await?;
        if &*request.method == method::LISTEN {
            drop(credit);
            return Box::pin(self.listen_modern(&session, request)).await;
        }
        let origin = request.clone();
        match self.dispatch(&session, request, credit, Extras { level, echo, brought })? {
            Reply::Now(message) => Ok(Answering::now(self, &session, origin, message)),
            Reply::Stream(reader, cancel, work) => Ok(Answering::new(self, &session, origin, reader, cancel, work)),
        }
    }
}

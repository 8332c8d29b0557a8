//! The `Mcp-Param-*` headers of a call, held against its arguments (2026-07-28 transports/streamable-http, "Server Validation"), as soon as
//! it is known which tool it calls.
//!
//! A client repeats what the list that it was given marks, so it is the tool that stands in that list which counts, not the one that
//! a router sends the call to. Headers that no list marks are not looked at here.

use super::super::Gateway;
use crate::catalog::{Published, Target};
use crate::protocol::brought::Brought;
use crate::protocol::mirror::{self, Mismatch};
use crate::protocol::{Request, method};
use crate::session::Session;
use lockgate_policy::Kind;
use std::sync::Arc;

impl Gateway {
    /// Checks a call of `public`, which `at` has named and routers send to `routed`. Where headers came and not all tools of the backend are
    /// known yet, they are read first: that may take as long as a list may. For a client that has no such tools this is one short lock.
    ///
    /// # Errors
    /// To be answered with 400 and -32020. Nothing was run.
    pub(in crate::gateway) async fn check_params(
        self: &Arc<Self>,
        session: &Arc<Session>,
        request: &Request,
        brought: &Brought,
        at: &Arc<Published>,
        public: &str,
        routed: Option<&Target>,
    ) -> Result<(), Mismatch> {
        if !session.version().is_modern() || &*request.method != method::TOOLS_CALL {
            return Ok(());
        }
        if brought.is_empty() && session.annotated.is_empty() {
            return Ok(());
        }
        let table = at.table(Kind::Tool);
        let listed = table.find(public).or_else(|| at.older(Kind::Tool)?.find(public)).map(|found| found.target);
        let Some(target) = listed.or_else(|| routed.cloned()) else { return Ok(()) };
        if !brought.is_empty() && !table.is_complete(target.backend) {
            // A list that cannot be read is no reason to refuse: the backend is the judge of what it gets.
            let _ = Box::pin(self.read_lists(session, at.clone(), Kind::Tool)).await;
        }
        match session.annotated.of(&target) {
            Some(annotated) => mirror::check_params(request, &annotated, brought.headers()),
            None => Ok(()),
        }
    }
}

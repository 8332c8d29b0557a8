//! Answers in the form of 2026-07-28: every result says what kind it is (basic/index, "Result type"), what may be cached says how long and
//! for whom (server/utilities/caching), and errors have the codes of this revision.

use super::super::Gateway;
use super::codes as era;
use super::state::Inside;
use crate::backend::State;
use crate::catalog::keeping::{KIND, Keeping, is_of_the_era};
use crate::protocol::json;
use crate::protocol::members::splice_object;
use crate::protocol::{Edits, Request, Response, RpcError, codes, method};
use crate::session::Session;

impl Gateway {
    /// Adds to `edits` what the answer of a backend to `request` needs. Answers the code of the error that it is, as the client gets it.
    pub(in crate::gateway) fn shape(
        &self,
        session: &Session,
        backend: usize,
        request: &Request,
        response: &Response,
        edits: &mut Edits,
    ) -> Result<Option<i64>, RpcError> {
        let Some(object) = response.object() else { return Ok(None) };
        let modern = session.upstreams().get(backend).is_some_and(|u| matches!(u.state(), State::Connected(h) if h.version.is_modern()));
        if !response.ok {
            let Some(code) = response.error_code() else { return Ok(None) };
            let new = if modern { era::relayed(&request.method, code) } else { era::modern(&request.method, code) };
            if new != code
                && let Some(at) = object.only("code")
            {
                edits.replace(json::place(&response.raw, at), new.to_string());
            }
            if code == codes::RESOURCE_NOT_FOUND
                && new != code
                && object.only("data").is_none()
                && let Ok(Some(uri)) = request.param(&["uri"])
            {
                // By the code alone it could be anything by now (2026-07-28 server/resources, "Error Handling").
                splice_object(
                    &response.raw,
                    response.body_at.clone(),
                    &object,
                    |_| false,
                    &format!("\"data\":{{\"uri\":{}}}", uri.get()),
                    edits,
                );
            }
            return Ok(Some(new));
        }
        let kept = &*request.method == method::RESOURCES_READ;
        let kind = object.only(KIND).and_then(json::string).filter(|_| modern);
        match kind.as_deref() {
            Some("input_required") => {
                if let Some(state) = object.only("requestState") {
                    let name = &session.host.backends[backend].name;
                    let sealed = self.seal_state(session, request, Inside::Of { backend: name, text: state.get().as_bytes() })?;
                    edits.replace(json::place(&response.raw, state), json::quote(&sealed));
                }
            }
            Some("task") => self.publish_task(session, backend, &response.raw, &object, edits)?,
            // Whole already, or an extension's.
            Some(kind) if kind != "complete" || !kept || Keeping::is_said(&object) => {}
            _ => {
                let keeping = if modern { Keeping::read(&object) } else { Keeping::NOT };
                let add = if kept { keeping.members() } else { format!("\"{KIND}\":\"complete\"") };
                let out = |name: &str| name == KIND || kept && is_of_the_era(name);
                splice_object(&response.raw, response.body_at.clone(), &object, out, &add, edits);
            }
        }
        Ok(None)
    }
}

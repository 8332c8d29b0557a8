//! initialize: a new session, and what its client is told of it.

use super::{Gateway, Refusal, capabilities};
use crate::backend::{ServerHello, State};
use crate::protocol::json::Object;
use crate::protocol::{Request, RpcError, Version, Wire, codes, json};
use crate::session::{Client, Declares, Principal, Session, VirtualHost};
use crate::telemetry::metrics::{Method, Outcome as Counted};
use bytes::Bytes;
use http::StatusCode;
use std::sync::Arc;

/// A new session and the answer to its initialize.
pub struct Opened {
    pub session: Arc<Session>,
    pub answer: Wire,
}

impl Gateway {
    /// Opens a session. The session id that the request may have carried plays no part: what a session negotiated never changes.
    pub async fn initialize(self: &Arc<Self>, host: &Arc<VirtualHost>, principal: Principal, request: Request) -> Result<Opened, Refusal> {
        let started = std::time::Instant::now();
        let opened = self.open(host, principal, request).await;
        let outcome = if opened.is_ok() { Counted::Ok } else { Counted::Refused };
        self.metrics.requests_total.inc(Method::Initialize, outcome);
        self.metrics.request_seconds.observe(Method::Initialize, started.elapsed());
        opened
    }

    async fn open(self: &Arc<Self>, host: &Arc<VirtualHost>, principal: Principal, request: Request) -> Result<Opened, Refusal> {
        if !self.ready() {
            return Err(Refusal::stopping());
        }
        let client = client_of(&request).map_err(|e| Refusal::new(StatusCode::BAD_REQUEST, e))?;
        let unfinished = self.open_session(host, principal, client, None).await?;
        let session = unfinished.session().clone();
        let hellos = self.settle(&session).await;
        for (backend, hello) in hellos.iter().enumerate() {
            if let Some(hello) = hello {
                session.announce(backend, hello);
            }
        }
        // After that: its inbox would tell the client of backends that the answer has.
        session.set_registered();
        for (backend, upstream) in session.upstreams().iter().enumerate().filter(|(backend, _)| hellos[*backend].is_none()) {
            // And it did not tell of one that has come since.
            if let State::Connected(hello) = upstream.state() {
                self.backend_up(&session, backend, &hello).await;
            }
        }
        let answer = answer(&request, &session, &hellos);
        self.start_probe(&session);
        unfinished.finish();
        tracing::info!(
            session = %session.tag(), principal = %session.key().principal.name(), virtual_host = %host.path, version = %session.version(),
            backends = hellos.iter().flatten().count(), "session opened"
        );
        Ok(Opened { session, answer })
    }
}

/// What the client says of itself (2025-11-25 lifecycle, "Initialization").
fn client_of(request: &Request) -> Result<Client, RpcError> {
    let invalid = |why: String| RpcError::new(codes::INVALID_PARAMS, why);
    let wanted = request
        .string_param(&["protocolVersion"])
        .map_err(invalid)?
        .ok_or_else(|| invalid("`params.protocolVersion` is missing".into()))?;
    let object = |name: &str| match request.param(&[name]).map_err(invalid)? {
        Some(value) if !json::is_object(value) => Err(invalid(format!("`params.{name}` must be an object"))),
        value => Ok(value.map(|value| value.get())),
    };
    let (capabilities, info) = (object("capabilities")?.unwrap_or("{}"), object("clientInfo")?);
    let info = info.unwrap_or(r#"{"name":"unknown","version":"0"}"#);
    // Kept by themselves, together: the rest of the message can go.
    let mut info_after = Bytes::from([capabilities, info].concat());
    let capabilities = info_after.split_to(capabilities.len());
    let declared = Object::parse(&capabilities).map_err(|e| invalid(format!("`params.capabilities`: {e}")))?;
    let declares = |name| declared.only(name).is_some_and(json::is_object);
    let declares = Declares {
        sampling: declares("sampling"),
        elicitation: declares("elicitation"),
        roots: declares("roots"),
        tasks: declares("tasks"),
    };
    drop(declared);
    Ok(Client { version: Version::negotiate(&wanted.value), info: info_after, capabilities, declares })
}

fn answer(request: &Request, session: &Session, hellos: &[Option<Arc<ServerHello>>]) -> Wire {
    let mut result = serde_json::json!({
        "protocolVersion": session.version().as_str(),
        "capabilities": capabilities::merged(hellos),
        "serverInfo": capabilities::of_itself(),
    });
    if let Some(tasks) = capabilities::tasks(hellos) {
        result["capabilities"]["tasks"] = tasks;
    }
    if let Some(text) = capabilities::instructions(&session.host, hellos) {
        result["instructions"] = text.into();
    }
    codes::result(&request.id, result.to_string())
}

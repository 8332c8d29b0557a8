//! The front on real sockets, in front of a gateway that has no backends.

mod answers;
mod client;
mod connections;
mod refusals;
mod sessions;

use super::{Front, Listener, Server, ServerLimits};
use crate::catalog::Pool;
use crate::config::{self, Config};
use crate::gateway::{Gateway, ParkedLimits, Settings};
use crate::session::streams::ReplayLimits;
use crate::session::{LastNames, Principal, RegistryLimits, Session, SessionId, SessionKey, SessionLimits, VirtualHost};
use crate::telemetry::Metrics;
use client::{Client, Reply};
use lockgate_policy::{Chain, Engine, EngineConfig, Live};
use std::sync::Arc;
use std::time::Duration;

/// A front with its port open.
pub(crate) struct Site {
    pub(crate) gateway: Arc<Gateway>,
    front: Front,
    server: Arc<Server<Front>>,
    client: Client,
}

const TWO_PRINCIPALS: &str =
    "auth: { tokens: [{ principal: ann, token: token-of-ann-0001 }, { principal: bob, token: token-of-bob-0001 }] }";

impl Site {
    pub(crate) async fn open(yaml: &str) -> Self {
        let yaml = format!("backends: {{ unused: {{ url: http://127.0.0.1:9/mcp }} }}\n{yaml}\n");
        let config = config::load_text("test", &yaml).unwrap_or_else(|problems| panic!("{problems}")).config;
        Self::with(Arc::new(config)).await
    }

    async fn with(config: Arc<Config>) -> Self {
        let engine = Engine::new(EngineConfig::default()).unwrap();
        let host = |path: &str| VirtualHost {
            path: path.into(),
            backends: Vec::new(),
            policies: Arc::new(Live::new(Arc::new(Chain::new(engine.clone(), path.into(), Vec::new())))),
            instructions: None,
            last_names: LastNames::default(),
            names: Pool::default(),
        };
        let settings = Settings {
            idle_timeout: Duration::from_secs(60),
            max_lifetime: None,
            registry: RegistryLimits { per_principal: 100, total: 100 },
            session: SessionLimits {
                in_flight: 8,
                server_requests: 8,
                answer_timeout: Duration::from_secs(5),
                replay: ReplayLimits { events: 100, bytes: 1 << 20, time: Duration::from_secs(60) },
                admission: config.admission.into(),
            },
            initialize_timeout: Duration::from_secs(1),
            list_timeout: Duration::from_secs(1),
            claims: Default::default(),
            probe: config.admission.probe,
            parked: ParkedLimits { total: 8, per_principal: 4, time: Duration::from_secs(60) },
            state_key: None,
        };
        let gateway = Gateway::new(vec![host("/mcp"), host("/other")], settings, Arc::new(Metrics::new(&[]))).unwrap();
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), "listen").await.unwrap();
        let client = Client::new(listener.address());
        let limits = ServerLimits {
            connections: config.limits.connections,
            header_bytes: config.limits.header_bytes,
            admission: config.admission.into(),
        };
        let front = Front::new(gateway.clone(), config);
        let server = Server::new(front.clone(), limits, gateway.metrics().connections.clone());
        server.listen(listener);
        Site { gateway, front, server, client }
    }

    /// Initializes with a revision; the client sends the session's id from now on.
    async fn initialize(&mut self, version: &str) -> Reply {
        self.client.session = None;
        let reply = self.client.post(&initialize(version)).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        self.client.session = reply.header("mcp-session-id").map(str::to_owned);
        reply
    }

    /// The client's session.
    fn session(&self) -> Arc<Session> {
        let id = SessionId::read(self.client.session.as_deref().unwrap()).unwrap();
        let key = SessionKey { principal: Principal::anonymous(), virtual_host: "/mcp".into(), id };
        self.gateway.session(&key).unwrap()
    }
}

fn initialize(version: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":"i","method":"initialize","params":{{"protocolVersion":"{version}","capabilities":{{}},"clientInfo":{{"name":"c","version":"1"}}}}}}"#
    )
}

const PING: &str = r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#;
const NOTE: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

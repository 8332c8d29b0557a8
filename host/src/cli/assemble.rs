//! From a checked configuration to the parts that run: policies are compiled, backends described, the gateway made. Opens no port and
//! connects to nothing.

use crate::backend::{self, HttpClient};
use crate::catalog::Pool;
use crate::config::{Config, Problem, Problems, StateKey, Target, Transport, VirtualHost};
use crate::gateway::{Gateway, ParkedLimits, Settings};
use crate::policies::Plane;
use crate::session::streams::ReplayLimits;
use crate::session::{self, LastNames, RegistryLimits, SessionLimits};
use crate::telemetry::Metrics;
use anyhow::Context;
use http::{HeaderMap, HeaderValue};
use lockgate_policy::{Chain, Live};
use std::sync::Arc;
use std::time::Duration;

/// How long a stream that has ended can still be resumed.
const REPLAY_TIME: Duration = Duration::from_secs(300);

/// The policies of a configuration, compiled.
#[derive(Clone, Debug)]
pub struct Policies(Plane);

impl Policies {
    /// Compiles and tries out every policy of the configuration. Takes tens of milliseconds of CPU time for each.
    pub fn load(config: &Config) -> Result<Policies, Problems> {
        Plane::load(config).map(Policies)
    }

    /// What works, if not as it was configured.
    pub fn warnings(&self) -> Option<Problem> {
        self.0.warnings()
    }

    /// For who looks after them while the gateway runs.
    pub fn into_plane(self) -> Plane {
        self.0
    }
}

/// The gateway of a configuration, with its policies.
pub fn gateway(config: &Config, policies: &Policies) -> anyhow::Result<Arc<Gateway>> {
    let names: Vec<Arc<str>> = config.backends.iter().map(|b| b.name.clone()).collect();
    let metrics = Arc::new(Metrics::with_policies(&names, policies.0.metrics().clone()));
    let client = HttpClient::new();
    let backends = config.backends.iter().map(|b| describe(config, b, &client).map(Arc::new)).collect::<anyhow::Result<Vec<_>>>()?;
    let host = |(host, chain): (&VirtualHost, &Arc<Chain>)| session::VirtualHost {
        path: host.path.clone(),
        backends: host.backends.iter().filter_map(|i| backends.get(*i).cloned()).collect(),
        policies: Arc::new(Live::new(chain.clone())),
        instructions: host.instructions.clone(),
        last_names: LastNames::default(),
        names: Pool::default(),
    };
    let hosts = config.virtual_hosts.iter().zip(policies.0.chains()).map(host).collect();
    Gateway::new(hosts, settings(config), metrics).context("the system's random generator failed")
}

fn describe(config: &Config, backend: &crate::config::Backend, client: &HttpClient) -> anyhow::Result<backend::Backend> {
    let target = match &backend.target {
        Target::Http { uri, transport, headers } => {
            let mut all = HeaderMap::new();
            for (name, secret) in headers {
                let mut value =
                    HeaderValue::from_str(secret.expose()).with_context(|| format!("header {name} of backend {}", backend.name))?;
                value.set_sensitive(true);
                all.append(name.clone(), value);
            }
            let transport = match transport {
                Transport::Auto => backend::HttpTransport::Auto,
                Transport::StreamableHttp => backend::HttpTransport::StreamableHttp,
                Transport::Sse => backend::HttpTransport::Sse,
            };
            backend::Target::Http { uri: uri.clone(), transport, headers: all }
        }
        Target::Stdio { program, args, env, cwd } => backend::Target::Stdio {
            program: program.clone(),
            args: args.iter().map(Into::into).collect(),
            env: env.iter().map(|(name, value)| (name.clone(), value.expose().to_owned())).collect(),
            cwd: cwd.clone(),
        },
    };
    let timeouts = backend::Timeouts { initialize: backend.timeouts.initialize, list: backend.timeouts.list, call: backend.timeouts.call };
    Ok(backend::Backend {
        name: backend.name.clone(),
        target,
        timeouts,
        limits: backend::Limits { message: config.limits.message },
        http: client.clone(),
        known: backend::Known::default(),
    })
}

fn settings(config: &Config) -> Settings {
    Settings {
        idle_timeout: config.session.idle_timeout,
        max_lifetime: config.session.max_lifetime,
        registry: RegistryLimits { per_principal: config.session.max_per_principal, total: config.session.max_total },
        session: SessionLimits {
            in_flight: config.limits.in_flight,
            server_requests: config.limits.server_requests,
            answer_timeout: config.limits.call_timeout,
            replay: ReplayLimits { events: config.limits.replay_events, bytes: config.limits.replay_bytes, time: REPLAY_TIME },
            admission: config.admission.into(),
        },
        initialize_timeout: config.limits.initialize_timeout,
        list_timeout: config.limits.list_timeout,
        claims: config.auth.claims().clone(),
        probe: config.admission.probe,
        parked: ParkedLimits {
            total: config.modern.parked,
            per_principal: config.modern.parked_per_principal,
            time: config.modern.parked_time,
        },
        state_key: config.modern.state_key.as_ref().map(StateKey::expose),
    }
}

//! From a checked configuration to the parts that run: policies are compiled, backends described, the gateway made. Opens no port and
//! connects to nothing.

use crate::backend::{self, HttpClient};
use crate::config::{Alias, AliasKind, Config, PolicyRef, PolicySource, Problem, Problems, Target, Transport, VirtualHost};
use crate::gateway::{Gateway, Settings};
use crate::session::streams::ReplayLimits;
use crate::session::{self, RegistryLimits, SessionLimits};
use crate::telemetry::Metrics;
use anyhow::Context;
use http::{HeaderMap, HeaderValue};
use lockgate_policy::{Chain, Engine, EngineConfig, Entry, Failing, Policy, Terms, shipped};
use serde_json::json;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// How long a stream that has ended can still be resumed.
const REPLAY_TIME: Duration = Duration::from_secs(300);

/// The policies of each virtual host, in the order of `Config::virtual_hosts`.
#[derive(Clone, Debug)]
pub struct Policies(Vec<Arc<Chain>>);

impl Policies {
    /// Compiles and tries out every policy of the configuration. Takes tens of milliseconds of CPU time for each.
    pub fn load(config: &Config) -> Result<Policies, Problems> {
        let engine =
            Engine::new(EngineConfig::default()).map_err(|e| Problem::new(crate::config::Place::named("policies"), e.to_string()))?;
        let mut problems = Problems::default();
        let mut compiled: HashMap<(String, PolicySource), Arc<Policy>> = HashMap::new();
        let mut chains = Vec::new();
        for host in &config.virtual_hosts {
            let mut entries = Vec::new();
            for wanted in &host.policies {
                let key = (wanted.name.clone(), wanted.source.clone());
                let policy = match compiled.get(&key) {
                    Some(policy) => Ok(policy.clone()),
                    None => load(&engine, wanted),
                };
                match policy {
                    Ok(policy) => {
                        compiled.insert(key, policy.clone());
                        match Entry::new(policy, setting(config, host, wanted), Failing::default()) {
                            Ok(entry) => entries.push(entry),
                            Err(error) => problems.push(Problem::new(wanted.place.clone(), error.to_string())),
                        }
                    }
                    Err(message) => problems.push(Problem::new(wanted.place.clone(), message)),
                }
            }
            chains.push(Arc::new(Chain::new(engine.clone(), host.path.clone(), entries)));
        }
        if problems.is_empty() { Ok(Policies(chains)) } else { Err(problems) }
    }
}

fn load(engine: &Arc<Engine>, wanted: &PolicyRef) -> Result<Arc<Policy>, String> {
    let component = match &wanted.source {
        PolicySource::Shipped => {
            shipped::by_name(&wanted.name).map(Vec::from).ok_or_else(|| format!("no policy `{}` ships with this binary", wanted.name))?
        }
        PolicySource::File(path) => std::fs::read(path).map_err(|e| format!("{} cannot be read: {e}", path.display()))?,
    };
    Policy::load(engine, &wanted.name, &component, &Terms::default()).map_err(|e| e.to_string())
}

/// What a policy reads as its configuration. The shipped `alias` gets the aliases of the virtual host, which have a key of their own.
fn setting(config: &Config, host: &VirtualHost, wanted: &PolicyRef) -> String {
    if wanted.source == PolicySource::Shipped && wanted.name == "alias" {
        let entry = |alias: &Alias| {
            let backend = config.backends.get(alias.backend)?;
            let kind = match alias.kind {
                AliasKind::Tool => "tool",
                AliasKind::Prompt => "prompt",
                AliasKind::Resource => "resource",
            };
            Some(json!({ "public": alias.public, "kind": kind, "backend": &*backend.name, "name": alias.name }))
        };
        return json!({ "aliases": host.aliases.iter().filter_map(entry).collect::<Vec<_>>() }).to_string();
    }
    wanted.config.to_string()
}

/// The gateway of a configuration, with its policies.
pub fn gateway(config: &Config, policies: &Policies) -> anyhow::Result<Arc<Gateway>> {
    let names: Vec<Arc<str>> = config.backends.iter().map(|b| b.name.clone()).collect();
    let metrics = Arc::new(Metrics::new(&names));
    let client = HttpClient::new();
    let backends = config.backends.iter().map(|b| describe(config, b, &client).map(Arc::new)).collect::<anyhow::Result<Vec<_>>>()?;
    let host = |(host, chain): (&VirtualHost, &Arc<Chain>)| session::VirtualHost {
        path: host.path.clone(),
        backends: host.backends.iter().filter_map(|i| backends.get(*i).cloned()).collect(),
        policies: chain.clone(),
        instructions: host.instructions.clone(),
    };
    let hosts = config.virtual_hosts.iter().zip(&policies.0).map(host).collect();
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
        },
        initialize_timeout: config.limits.initialize_timeout,
        list_timeout: config.limits.list_timeout,
    }
}

//! The configuration as the gateway reads it: checked, paths resolved, in the order of the file.
//!
//! Built by `resolve` alone and shared by `Arc`. Every value is within its documented bounds; nothing here needs a second check.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, Uri};
use lockgate_policy::{Failing, Terms};
use schemars::JsonSchema;
use serde::Deserialize;

use super::auth::{AdminToken, Auth};
use super::hosts::HttpConfig;
use super::problem::Place;
use super::secret::{Secret, StateKey};

/// Policies that are part of the binary, by the name that the file uses.
pub const SHIPPED_POLICIES: &[&str] = &["alias", "filter", "namespace", "route"];

/// Those that a virtual host has which names none.
pub const DEFAULT_POLICIES: &[&str] = &["alias", "namespace"];

/// A valid configuration.
#[derive(Debug)]
pub struct Config {
    /// Never empty, without duplicates.
    pub listen: Vec<SocketAddr>,
    /// `None`: no admin port. Never one of `listen`.
    pub admin: Option<SocketAddr>,
    /// What operators must show to change something; `None`: nothing, on loopback.
    pub admin_token: Option<AdminToken>,
    /// Never empty; names are unique. The order of the file, which is that of merged lists.
    pub backends: Vec<Backend>,
    /// Never empty; paths are unique.
    pub virtual_hosts: Vec<VirtualHost>,
    pub policy: PolicyConfig,
    pub auth: Auth,
    pub session: SessionConfig,
    pub limits: Limits,
    pub admission: AdmissionConfig,
    pub modern: ModernConfig,
    pub http: HttpConfig,
    pub log: LogConfig,
    pub shutdown: ShutdownConfig,
}

/// One upstream MCP server.
#[derive(Debug, PartialEq)]
pub struct Backend {
    /// `[A-Za-z0-9][A-Za-z0-9_-]{0,63}`.
    pub name: Arc<str>,
    pub target: Target,
    pub timeouts: Timeouts,
}

/// How a backend is reached.
#[derive(Debug, PartialEq)]
pub enum Target {
    Http {
        /// Absolute, `http` or `https`, with a host, without credentials.
        uri: Uri,
        transport: Transport,
        /// Sent with every request. Never a header that the protocol or the connection owns.
        headers: Vec<(HeaderName, Secret)>,
    },
    Stdio {
        /// Absolute path of an executable file.
        program: PathBuf,
        args: Vec<String>,
        /// On top of the minimum that a child gets of the gateway's own environment.
        env: Vec<(String, Secret)>,
        /// An existing directory; `None`: that of the gateway.
        cwd: Option<PathBuf>,
    },
}

/// Which HTTP transport a backend speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// Streamable HTTP, and HTTP+SSE if the server does not know it.
    #[default]
    Auto,
    /// Streamable HTTP only (2025-03-26 and later).
    StreamableHttp,
    /// HTTP+SSE only (2024-11-05).
    Sse,
}

/// Deadlines of one backend; those of `limits` where it has none of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    pub initialize: Duration,
    pub list: Duration,
    pub call: Duration,
}

/// One endpoint.
#[derive(Debug)]
pub struct VirtualHost {
    /// Normalised: begins with `/`, does not end with it unless it is only that.
    pub path: Arc<str>,
    /// Indices into [`Config::backends`], in the order of merged lists. Never empty.
    pub backends: Vec<usize>,
    pub aliases: Vec<Alias>,
    /// First to last; names are unique.
    pub policies: Vec<PolicyRef>,
    pub instructions: Option<String>,
}

/// A public name that stands for something of a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alias {
    pub public: String,
    pub kind: AliasKind,
    /// Index into [`Config::backends`], one of the virtual host's.
    pub backend: usize,
    /// The backend's own name or URI.
    pub name: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AliasKind {
    #[default]
    Tool,
    Prompt,
    Resource,
}

/// A policy component to run.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyRef {
    pub name: String,
    pub source: PolicySource,
    /// What the file says under `config`; `null` if nothing.
    pub config: serde_json::Value,
    /// The pinned digest, the grants and the limits.
    pub terms: Terms,
    /// What its failures mean.
    pub failing: Failing,
    /// Where the file names it, for what is found when it is loaded.
    pub place: Place,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PolicySource {
    /// Part of the binary; the name is one of [`SHIPPED_POLICIES`].
    Shipped,
    /// A file that begins like a WASM component.
    File(PathBuf),
}

/// How policies are run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyConfig {
    /// Where compiled policies are kept; `None`: nowhere.
    pub cache: Option<PathBuf>,
    /// The program that compiles large components in a process of its own. Not of the file: it is the program that runs.
    pub compiler: Option<PathBuf>,
    pub instances: u32,
    /// How often files of components are looked at; `None`: never.
    pub watch: Option<Duration>,
    /// Zero: no probation.
    pub probation: Duration,
    /// What a policy may use that has no limits of its own.
    pub limits: lockgate_policy::Limits,
}

/// Lifetime and number of sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionConfig {
    pub idle_timeout: Duration,
    pub max_lifetime: Option<Duration>,
    pub max_per_principal: usize,
    pub max_total: usize,
}

/// Bounds on time and memory; what happens at each is told in the JSON Schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    pub initialize_timeout: Duration,
    pub list_timeout: Duration,
    pub call_timeout: Duration,
    /// Bytes.
    pub request_body: usize,
    /// Bytes.
    pub message: usize,
    /// Bytes.
    pub header_bytes: usize,
    pub in_flight: usize,
    pub connections: usize,
    pub replay_events: usize,
    /// Bytes.
    pub replay_bytes: usize,
    pub server_requests: usize,
}

/// What a session may be owed, and when it counts as one that does not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdmissionConfig {
    pub frames: usize,
    /// Bytes.
    pub bytes: usize,
    pub drain_window: Duration,
    pub patience: Duration,
    /// Never less than `drain_window`.
    pub teardown_after: Duration,
    pub probe: Option<Duration>,
}

/// What is kept between two requests of clients that have no session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModernConfig {
    /// `None`: a key is made at each start.
    pub state_key: Option<StateKey>,
    /// Parked calls of the process.
    pub parked: usize,
    /// Never more than `parked`.
    pub parked_per_principal: usize,
    pub parked_time: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogConfig {
    pub format: LogFormat,
    /// Filter directives that `tracing_subscriber::EnvFilter` takes; LOCKGATE_LOG already applied.
    pub filter: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShutdownConfig {
    /// How long calls in flight may take to finish.
    pub grace: Duration,
}

// === impl Config ===

impl Config {
    pub fn backend(&self, name: &str) -> Option<&Backend> {
        self.backends.iter().find(|b| &*b.name == name)
    }
}

// === impl Default: the values of an empty file ===

impl Default for PolicyConfig {
    fn default() -> Self {
        PolicyConfig {
            cache: None,
            compiler: None,
            instances: 1024,
            watch: Some(Duration::from_secs(1)),
            probation: Duration::from_secs(60),
            limits: lockgate_policy::Limits::default(),
        }
    }
}

impl Default for SessionConfig {
    fn default() -> Self {
        SessionConfig { idle_timeout: Duration::from_secs(30 * 60), max_lifetime: None, max_per_principal: 10_000, max_total: 50_000 }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            initialize_timeout: Duration::from_secs(5),
            list_timeout: Duration::from_secs(5),
            call_timeout: Duration::from_secs(10 * 60),
            request_body: 16 << 20,
            message: 64 << 20,
            header_bytes: 64 << 10,
            in_flight: 256,
            connections: 10_000,
            replay_events: 256,
            replay_bytes: 1 << 20,
            server_requests: 64,
        }
    }
}

impl Default for AdmissionConfig {
    fn default() -> Self {
        AdmissionConfig {
            frames: 64,
            bytes: 1 << 20,
            drain_window: Duration::from_secs(5),
            patience: Duration::from_millis(250),
            teardown_after: Duration::from_secs(30),
            probe: None,
        }
    }
}

impl Default for ModernConfig {
    fn default() -> Self {
        ModernConfig { state_key: None, parked: 1024, parked_per_principal: 64, parked_time: Duration::from_secs(10 * 60) }
    }
}

impl Default for LogConfig {
    fn default() -> Self {
        LogConfig { format: LogFormat::Text, filter: "info".to_owned() }
    }
}

impl Default for ShutdownConfig {
    fn default() -> Self {
        ShutdownConfig { grace: Duration::from_secs(5) }
    }
}

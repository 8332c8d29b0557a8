//! The file as it is written: one type for each mapping, all optional, nothing checked but shape.
//!
//! The doc comments are the descriptions of the JSON Schema (`lockgate schema`), so they speak to the person who writes
//! the file. `resolve` turns these types into [`Config`](super::Config); nothing else reads them.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::net::SocketAddr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

mod policies;

pub use policies::{FailFile, GrantsFile, OnFail, PlaneFile, PolicyEntry, PolicyFile, PolicyLimitsFile};

use super::model::{AliasKind, LogFormat, Transport};
use super::secret::Secret;
use super::units::{MaybeTime, Size, Time};

/// Configuration of the Lockgate gateway.
///
/// In values, `${NAME}` is replaced by that environment variable and `${NAME:-default}` falls back to the default; a literal
/// `${` is written `$${`. Relative paths are relative to this file. Durations and sizes carry their unit (`30m`, `16MiB`).
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(title = "Lockgate configuration")]
pub struct File {
    /// Where clients connect: `address:port`, or a list of them. Port 0 takes a free one. An address that is not loopback
    /// needs `auth.tokens`, or `auth.open: true` to say that anybody may connect.
    #[schemars(extend("default" = "127.0.0.1:8808"))]
    pub listen: Option<OneOrMany<Address>>,
    /// Where health (`/livez`, `/readyz`) and `/metrics` are served: `address:port`, or `off`. Nothing there asks for a token,
    /// so keep it off public networks. Policies can be swapped there (see `admin_token`). Never the same as `listen`.
    #[schemars(extend("default" = "127.0.0.1:8809"))]
    pub admin: Option<AdminAddress>,
    /// What who changes something at the admin port (`POST /policies/…`, `POST /reload`) must show as `Authorization: Bearer …`, best from the
    /// environment: `"${ADMIN_TOKEN}"`. Only its hash is kept. Absent: whoever reaches the port may, if it is a loopback
    /// address; elsewhere nobody.
    pub admin_token: Option<Secret>,
    /// The MCP servers behind this gateway, by name; at least one, here or in the file given with `--mcp-servers`. The order here is the order of merged lists. A name is one
    /// to 64 letters, digits, `-` and `_`, and starts with a letter or digit.
    pub backends: Option<Entries<BackendFile>>,
    /// The endpoints that clients see, by path. Absent: one at `/mcp` with every backend.
    pub virtual_hosts: Option<Entries<Option<VirtualHostFile>>>,
    /// How policies are run, for all virtual hosts.
    pub policy: Option<PlaneFile>,
    /// Who may connect. Absent: anybody, which is accepted only while every `listen` address is loopback.
    pub auth: Option<AuthFile>,
    /// How long sessions live and how many there may be.
    pub session: Option<SessionFile>,
    /// Bounds on time and memory. Each has a default that suits most deployments.
    pub limits: Option<LimitsFile>,
    /// What a client may be owed that it does not read, before its session's requests are refused.
    pub admission: Option<AdmissionFile>,
    /// Clients of 2026-07-28, which have no sessions: what is kept between two of their requests.
    pub modern: Option<ModernFile>,
    /// Which `Host` and `Origin` headers are accepted (protection against DNS rebinding and foreign web pages).
    pub http: Option<HttpFile>,
    /// What is logged, to standard error.
    pub log: Option<LogFile>,
    /// How the process stops.
    pub shutdown: Option<ShutdownFile>,
}

/// One MCP server: either `url` (HTTP) or `command` (a child process that speaks over its standard input and output).
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(title = "Backend")]
pub struct BackendFile {
    /// Address of a server that speaks streamable HTTP or the older HTTP+SSE, `http://` or `https://`. Credentials go into
    /// `headers`, not into the address.
    pub url: Option<String>,
    /// Which of the HTTP transports to speak. `auto` tries streamable HTTP first and falls back to HTTP+SSE. Only with `url`.
    #[schemars(extend("default" = "auto"))]
    pub transport: Option<Transport>,
    /// Headers sent with every request to this backend, for example `Authorization: "Bearer ${TOKEN}"`. Only with `url`.
    pub headers: Option<Entries<Secret>>,
    /// Program and arguments of a child process, one child per session: `[npx, -y, some-server]`. No shell is involved. A program
    /// without `/` is looked for on PATH; one with `/` is relative to this file.
    pub command: Option<Vec<Word>>,
    /// Environment variables of the child, on top of a minimum of the gateway's own (`PATH`, `HOME`, the locale and the like). Only with
    /// `command`.
    pub env: Option<Entries<Secret>>,
    /// Working directory of the child, relative to this file. Only with `command`. Absent: that of the gateway.
    pub cwd: Option<String>,
    /// Deadlines of this backend, in place of those in `limits`.
    pub timeouts: Option<TimeoutsFile>,
}

/// Deadlines of one backend, in place of those in `limits`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(title = "Timeouts")]
pub struct TimeoutsFile {
    /// How long connecting to this backend may take, in place of `limits.initialize_timeout`. Where it is longer than that, sessions start
    /// without the backend and get it later. A child has a minute in any case, because it may have to install itself. 10ms to 60s.
    pub initialize: Option<Time>,
    /// How long a list of this backend may take, in place of `limits.list_timeout` and not more than that. 10ms to 60s.
    pub list: Option<Time>,
    /// How long a call to this backend may take, in place of `limits.call_timeout`. 10ms to 24h.
    pub call: Option<Time>,
}

/// One endpoint: which backends it merges and under what names.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(title = "Virtual host")]
pub struct VirtualHostFile {
    /// Names of the backends behind this path, in the order of merged lists. Absent: all.
    pub backends: Option<Vec<String>>,
    /// Public names that stand for something of a backend: `now: time/get_time` shows the tool `get_time` of the backend `time` as
    /// `now`.
    pub aliases: Option<Entries<AliasFile>>,
    /// The policies that decide names and routes, first to last. Absent: `[alias, namespace]`, the two that ship with Lockgate.
    #[schemars(extend("default" = ["alias", "namespace"]))]
    pub policies: Option<Vec<PolicyFile>>,
    /// Text put before the instructions of the backends in the answer to `initialize`.
    pub instructions: Option<String>,
}

/// What an alias stands for: `backend/name`, or a mapping when it is not a tool.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(untagged)]
pub enum AliasFile {
    /// `backend/name` of a tool.
    #[serde(rename = "$text")]
    Short(String),
    #[serde(rename = "$map")]
    Full(AliasTarget),
}

/// What an alias stands for, with its kind.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Alias")]
pub struct AliasTarget {
    /// `backend/name`; for a resource, `backend/uri`.
    pub to: String,
    /// What is named: a tool, a prompt, or a resource (whose public name is a URI).
    #[serde(default)]
    #[schemars(extend("default" = "tool"))]
    pub kind: Option<AliasKind>,
}

/// Who may connect.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(title = "Auth")]
pub struct AuthFile {
    /// Bearer tokens and whom they stand for. With this, a request without a known token is answered 401.
    pub tokens: Option<Vec<TokenFile>>,
    /// `true`: anybody may connect, as `anonymous`. Must be said to listen without tokens on an address that is not loopback.
    #[schemars(extend("default" = false))]
    pub open: Option<bool>,
}

/// A bearer token: `principal` and either `sha256` or `token`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Token")]
pub struct TokenFile {
    /// Whom the token stands for. Sessions belong to a principal; one principal may have several tokens.
    pub principal: String,
    /// SHA-256 of the token in hexadecimal: `printf %s "$TOKEN" | sha256sum`.
    #[serde(default)]
    pub sha256: Option<String>,
    /// The token itself, best from the environment: `"${TOKEN}"`. Only its hash is kept.
    #[serde(default)]
    pub token: Option<Secret>,
    /// What else is known of the principal, by name; any values. Policies see the claims that they are granted. Of several tokens of a principal
    /// one may say it for all. At most 64 claims and 16 KiB.
    #[serde(default)]
    pub claims: Option<Entries<serde_json::Value>>,
}

/// How long sessions live and how many there may be.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(title = "Session")]
pub struct SessionFile {
    /// A session without a request in flight and without an open stream is closed after this long. 100ms to 7d.
    #[schemars(extend("default" = "30m"))]
    pub idle_timeout: Option<Time>,
    /// A session is closed when it is this old, whatever it does. 1s to 365d, or `none`.
    #[schemars(extend("default" = "none"))]
    pub max_lifetime: Option<MaybeTime>,
    /// Sessions of one principal. At the bound its longest idle session makes room; if none is idle, `initialize` is refused with
    /// 429. 1 to 1000000, at most `max_total`.
    #[schemars(range(min = 1, max = 1000000), extend("default" = 10000))]
    pub max_per_principal: Option<u64>,
    /// Sessions of the whole process. At the bound `initialize` is refused with 503, unless the principal has an idle session to
    /// give up. 1 to 1000000.
    #[schemars(range(min = 1, max = 1000000), extend("default" = 50000))]
    pub max_total: Option<u64>,
}

/// Bounds on time and memory.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(title = "Limits")]
pub struct LimitsFile {
    /// How long `initialize` waits for backends. A session starts without those that have not answered by then. 10ms to 60s.
    #[schemars(extend("default" = "5s"))]
    pub initialize_timeout: Option<Time>,
    /// How long a merged list waits for backends; it leaves out those that have not answered by then. 10ms to 60s.
    #[schemars(extend("default" = "5s"))]
    pub list_timeout: Option<Time>,
    /// How long a backend may take to answer a call. What the client takes to read, or to answer a question of the backend, does not
    /// count. The client gets an error then, and the backend a cancellation. 10ms to 24h.
    #[schemars(extend("default" = "10m"))]
    pub call_timeout: Option<Time>,
    /// The largest body of a client's request; a larger one is answered 413. 1KiB to 1GiB.
    #[schemars(extend("default" = "16MiB"))]
    pub request_body: Option<Size>,
    /// The largest single message from a backend; a larger one ends its call with an error. 1KiB to 1GiB.
    #[schemars(extend("default" = "64MiB"))]
    pub message: Option<Size>,
    /// The head of a client's request, all headers together; a larger one is answered 431. 8KiB to 1MiB.
    #[schemars(extend("default" = "64KiB"))]
    pub header_bytes: Option<Size>,
    /// Requests of one session at the same time; one more is answered 429. 1 to 65536.
    #[schemars(range(min = 1, max = 65536), extend("default" = 256))]
    pub in_flight: Option<u64>,
    /// Open connections of clients; one more waits to be accepted. 1 to 1000000. The process needs as many file descriptors.
    #[schemars(range(min = 1, max = 1000000), extend("default" = 10000))]
    pub connections: Option<u64>,
    /// Events that a session keeps for a client that reconnects with `Last-Event-ID`. 0 to 65536; 0 turns resumption off.
    #[schemars(range(min = 0, max = 65536), extend("default" = 256))]
    pub replay_events: Option<u64>,
    /// Bytes that a session keeps for the same purpose; the older events make room. 0 to 256MiB; 0 turns resumption off.
    #[schemars(extend("default" = "1MiB"))]
    pub replay_bytes: Option<Size>,
    /// Requests from backends (sampling, elicitation, roots) that may wait for one session's client; one more is answered with an
    /// error. 1 to 4096.
    #[schemars(range(min = 1, max = 4096), extend("default" = 64))]
    pub server_requests: Option<u64>,
}

/// What a client may be owed that it does not read. It counts against that client's session alone.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(title = "Admission")]
pub struct AdmissionFile {
    /// Frames that a session may be owed: requests in flight and messages that it has not read. Without credit a request waits for a
    /// moment and is then refused with 429, before it reaches a backend. 1 to 65536.
    #[schemars(range(min = 1, max = 65536), extend("default" = 64))]
    pub frames: Option<u64>,
    /// Bytes that a session may be owed. At the bound nothing new is admitted, and large answers stay at their backends until the client
    /// reads. 16KiB to 1GiB.
    #[schemars(extend("default" = "1MiB"))]
    pub bytes: Option<Size>,
    /// A session that is owed something and of which no byte has drained for so long is half-open: without credit its requests are
    /// refused at once. 100ms to 10m.
    #[schemars(extend("default" = "5s"))]
    pub drain_window: Option<Time>,
    /// How long a request waits for credit while its session reads, and a notification for room on its stream. 0 to 30s.
    #[schemars(extend("default" = "250ms"))]
    pub patience: Option<Time>,
    /// A stream that is half-open for so long is closed; its session goes on, and can be read through a new stream. At least
    /// `drain_window`. 100ms to 1h.
    #[schemars(extend("default" = "30s"))]
    pub teardown_after: Option<Time>,
    /// Asks the client with a `ping` on its own stream this often, while it is owed something, whether it reads: for clients behind a proxy
    /// that reads for them. One that does not answer within `drain_window` is half-open. 1s to 1h, or `none`. Off by default because a
    /// client may ignore pings without being at fault.
    #[schemars(extend("default" = "none"))]
    pub probe: Option<MaybeTime>,
}

/// Clients of 2026-07-28, which have no sessions: what is kept between two of their requests. A server of an older revision that asks something
/// in the middle of a call has its call parked, until the client repeats the request with its answers.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(title = "Modern clients")]
pub struct ModernFile {
    /// The key under which `requestState` and task ids are sealed: 32 bytes as 64 hexadecimal digits or in Base64, best from the environment,
    /// `"${STATE_KEY}"`; `openssl rand -hex 32` makes one. Absent: one is made at each start, and what was sealed before a restart, or by
    /// another instance, is refused. Instances that share a key accept each other's `requestState` and task ids; a call that is parked is found
    /// only where it is parked.
    pub state_key: Option<Secret>,
    /// Calls parked in the whole process. At the bound a question of a server is answered with an error. 1 to 65536.
    #[schemars(range(min = 1, max = 65536), extend("default" = 1024))]
    pub parked: Option<u64>,
    /// Calls parked for one principal. 1 to 65536, at most `parked`.
    #[schemars(range(min = 1, max = 65536), extend("default" = 64))]
    pub parked_per_principal: Option<u64>,
    /// How long a call stays parked; then it is cancelled at its server, and its `requestState` is worth nothing. 1s to 24h.
    #[schemars(extend("default" = "10m"))]
    pub parked_time: Option<Time>,
}

/// Which `Host` and `Origin` headers are accepted.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(title = "HTTP")]
pub struct HttpFile {
    /// Host names, as `name`, `name:port`, `*.name`, or `*` for any. Absent: the loopback names (`localhost`, `127.0.0.1`, `[::1]`)
    /// while every `listen` address is loopback, otherwise any.
    pub allowed_hosts: Option<Vec<String>>,
    /// Web origins whose pages may send requests, as `https://name`, `https://name:port`, `*` for any, or `null`. Absent: the loopback
    /// names with any port. Requests without `Origin`, which is all that do not come from a web page, are not affected.
    pub allowed_origins: Option<Vec<String>>,
}

/// What is logged, to standard error.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(title = "Log")]
pub struct LogFile {
    /// `text` for people, `json` for collectors: one object a line.
    #[schemars(extend("default" = "text"))]
    pub format: Option<LogFormat>,
    /// `error`, `warn`, `info`, `debug`, `trace`, `off`, or directives such as `info,lockgate::backend=debug`. The environment variable
    /// LOCKGATE_LOG wins over it.
    #[schemars(extend("default" = "info"))]
    pub level: Option<String>,
}

/// How the process stops on SIGTERM and SIGINT.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(title = "Shutdown")]
pub struct ShutdownFile {
    /// How long calls in flight may take to finish. 0 to 10m.
    #[schemars(extend("default" = "5s"))]
    pub grace: Option<Time>,
}

/// A value or a list of values.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(untagged)]
pub enum OneOrMany<T> {
    #[serde(rename = "$text")]
    One(T),
    #[serde(rename = "$list")]
    Many(Vec<T>),
}

/// Text, even if it looks like a number: `args: [--port, 80]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(transparent)]
pub struct Word(pub String);

impl JsonSchema for Word {
    fn schema_name() -> Cow<'static, str> {
        "Word".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["string", "number", "boolean"] })
    }
}

/// An address to listen on.
#[derive(Clone, Copy, Debug)]
pub struct Address(pub SocketAddr);

/// An address to listen on, or `off`.
#[derive(Clone, Copy, Debug)]
pub struct AdminAddress(pub Option<SocketAddr>);

/// A mapping whose order is kept.
#[derive(Debug)]
pub struct Entries<T>(pub Vec<(String, T)>);

/// Reads `127.0.0.1:8808`, `[::1]:8808` or `localhost:8808`; the error says what to write instead.
pub fn parse_address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    if let Some(Ok(address)) = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}").parse()) {
        return Ok(address);
    }
    let port = text.rsplit(':').next().and_then(|port| port.parse::<u16>().ok());
    Err(match port {
        Some(port) if text.len() <= 6 || text.starts_with("*:") => {
            format!("`{text}` has no address; write 127.0.0.1:{port} for this machine only, or 0.0.0.0:{port} for all interfaces")
        }
        Some(_) if text.parse::<std::net::Ipv6Addr>().is_err() => {
            format!(
                "`{text}` is not an address and port; names are not resolved here, write an IP address such as 127.0.0.1:8808 or [::1]:8808"
            )
        }
        _ => format!("`{text}` is not an address and port; write one such as 127.0.0.1:8808 or [::1]:8808"),
    })
}

// === impl Address ===

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse_address(&text).map(Address).map_err(de::Error::custom)
    }
}

impl JsonSchema for Address {
    fn schema_name() -> Cow<'static, str> {
        "Address".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "An IP address and port: `127.0.0.1:8808`, `[::1]:8808`, or `localhost:8808`, which is 127.0.0.1.",
        })
    }
}

// === impl AdminAddress ===

impl AdminAddress {
    /// Reads an address or `off`.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(AdminAddress(None)),
            _ => parse_address(text).map(|a| AdminAddress(Some(a))).map_err(|e| format!("{e}, or `off`")),
        }
    }
}

impl<'de> Deserialize<'de> for AdminAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        AdminAddress::parse(&text).map_err(de::Error::custom)
    }
}

impl JsonSchema for AdminAddress {
    fn schema_name() -> Cow<'static, str> {
        "AddressOrOff".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [generator.subschema_for::<Address>(), { "const": "off" }],
        })
    }
}

// === impl Entries ===

impl<T> Default for Entries<T> {
    fn default() -> Self {
        Entries(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Entries<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for InOrder<T> {
            type Value = Entries<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a mapping")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries<T>, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Entries(entries))
            }
        }

        deserializer.deserialize_map(InOrder(PhantomData))
    }
}

impl<T: JsonSchema> JsonSchema for Entries<T> {
    fn schema_name() -> Cow<'static, str> {
        format!("MapOf{}", T::schema_name()).into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "object", "additionalProperties": generator.subschema_for::<T>() })
    }
}

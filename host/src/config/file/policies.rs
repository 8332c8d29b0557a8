//! What the file says of policies: those of a virtual host, and how all of them are run.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::units::{Size, Time, TimeOrOff};

/// A policy: the name of one that ships (`alias`, `filter`, `namespace`, `route`), or a mapping.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(untagged)]
pub enum PolicyFile {
    /// A policy that ships with Lockgate.
    #[serde(rename = "$text")]
    Shipped(String),
    #[serde(rename = "$map")]
    Full(Box<PolicyEntry>),
}

/// A policy with its component, its configuration, and what it may have.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Policy")]
pub struct PolicyEntry {
    /// Name of the policy, unique in this virtual host; it appears in logs and metrics.
    pub name: String,
    /// File of the WASM component, relative to this file. Absent: the policy of that name that ships. A manifest may be in the component, or
    /// beside it: `NAME.manifest.json` for `NAME.wasm`.
    #[serde(default)]
    pub component: Option<String>,
    /// SHA-256 of the component in hexadecimal (`sha256sum FILE`). Another component is refused, also when policies are swapped.
    #[serde(default)]
    pub sha256: Option<String>,
    /// Handed to the policy as JSON. Any value that fits the schema in the policy's manifest.
    #[serde(default)]
    pub config: Option<serde_json::Value>,
    /// What the policy may have beyond the session that it is asked about. A policy whose manifest wants what is not granted does not load.
    #[serde(default)]
    pub grants: Option<GrantsFile>,
    /// What it means when the policy fails: `closed`, the request is refused; `open`, the policy is passed over. Either for all that the policy
    /// is asked, or a mapping with `alias`, `router`, `namespace` and `lifecycle`.
    #[serde(default)]
    #[schemars(extend("default" = "closed"))]
    pub fail: Option<FailFile>,
    /// What the policy may use, in place of `policy.limits`.
    #[serde(default)]
    pub limits: Option<PolicyLimitsFile>,
}

/// What a policy may have beyond the session that it is asked about. By default nothing.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(title = "Grants")]
pub struct GrantsFile {
    /// Claims of the principal that it may read, by name (see `auth.tokens`).
    pub claims: Option<Vec<String>>,
    /// It may be asked about every call, not once for each name.
    #[schemars(extend("default" = false))]
    pub every_call: Option<bool>,
    /// It may ask for the time (`wasi:clocks`).
    #[schemars(extend("default" = false))]
    pub clock: Option<bool>,
    /// It may ask for random numbers (`wasi:random`).
    #[schemars(extend("default" = false))]
    pub random: Option<bool>,
}

/// What a failure means: one word, or one for each hook.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(untagged)]
pub enum FailFile {
    /// The same for all that the policy is asked.
    #[serde(rename = "$text")]
    All(OnFail),
    #[serde(rename = "$map")]
    PerHook(FailPerHook),
}

/// What a failure means, hook by hook. What is left out is `closed`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(title = "Fail")]
pub struct FailPerHook {
    /// What an alias stands for, and which there are.
    #[schemars(extend("default" = "closed"))]
    pub alias: Option<OnFail>,
    /// Which backend serves a call, and whether.
    #[schemars(extend("default" = "closed"))]
    pub router: Option<OnFail>,
    /// How things are called, and what is shown.
    #[schemars(extend("default" = "closed"))]
    pub namespace: Option<OnFail>,
    /// Whether a session may open.
    #[schemars(extend("default" = "closed"))]
    pub lifecycle: Option<OnFail>,
}

/// What happens to a request when a policy fails.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum OnFail {
    /// It is refused.
    Closed,
    /// The policy is passed over, as if it had nothing to say.
    Open,
}

/// What a policy may use. A call that exceeds a bound is ended, and counts as a failure of the policy.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(title = "Policy limits")]
pub struct PolicyLimitsFile {
    /// Memory of one instance. 64KiB to 1GiB. Above 16MiB the policy is run outside of the pool of prepared instances, which is slower.
    #[schemars(extend("default" = "16MiB"))]
    pub memory: Option<Size>,
    /// How long it may run to say something about one name: time in which it computes, not in which it waits for a processor. 1ms to 10s.
    #[schemars(extend("default" = "50ms"))]
    pub resolve_time: Option<Time>,
    /// How long it may run over a list, or over the begin or end of a session. 1ms to 60s.
    #[schemars(extend("default" = "250ms"))]
    pub list_time: Option<Time>,
    /// Bytes of one answer, and of what it hands to the gateway at once. Lists get as much again as they are large. 1KiB to 64MiB.
    #[schemars(extend("default" = "1MiB"))]
    pub output: Option<Size>,
    /// Bytes that it may remember for one session; more is an error that the policy sees. 0 to 16MiB.
    #[schemars(extend("default" = "64KiB"))]
    pub state: Option<Size>,
    /// Keys under which it may remember something for one session; one more is an error that the policy sees. 0 to 65536.
    #[schemars(range(min = 0, max = 65536), extend("default" = 256))]
    pub state_keys: Option<u64>,
    /// Lines that it may log in a second, over all sessions; the rest is dropped and counted. 0 to 10000.
    #[schemars(range(min = 0, max = 10000), extend("default" = 100))]
    pub log_rate: Option<u64>,
    /// Size of its component; a larger one is refused. Compiling takes about a second of CPU time and 30 MiB for each megabyte. 1KiB to 256MiB.
    #[schemars(extend("default" = "4MiB"))]
    pub component: Option<Size>,
}

/// How policies are run, for all virtual hosts.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(title = "Policy plane")]
pub struct PlaneFile {
    /// Directory for compiled policies, relative to this file, so that a start need not compile; or `off`. It must belong to the user that the
    /// gateway runs as. Absent: `$XDG_CACHE_HOME/lockgate/policies` or `~/.cache/lockgate/policies`, and `off` where neither is known.
    pub cache: Option<String>,
    /// Instances of policies that may live at the same time; of them, three in four are kept for busy sessions. Calls beyond take the place of an
    /// idle one or wait, and are refused as overload when they wait too long. 1 to 8000.
    #[schemars(range(min = 1, max = 8000), extend("default" = 1024))]
    pub instances: Option<u64>,
    /// How often the files of components are looked at. One that has changed, and then rests for one more look, is swapped in if it passes every
    /// check; if not, what runs stays, and the log says why. 20ms to 1h, or `off`.
    #[schemars(extend("default" = "1s"))]
    pub watch: Option<TimeOrOff>,
    /// How long a policy that was swapped in is on probation: if it keeps failing, the one before it comes back. 0 to 24h; 0 turns it off.
    #[schemars(extend("default" = "1m"))]
    pub probation: Option<Time>,
    /// What each policy may use, where it has no `limits` of its own.
    pub limits: Option<PolicyLimitsFile>,
}

//! Method names (2025-11-25 schema, of which earlier revisions are subsets; 2026-07-28 where it says so).

pub const INITIALIZE: &str = "initialize";
pub const PING: &str = "ping";
pub const TOOLS_LIST: &str = "tools/list";
pub const TOOLS_CALL: &str = "tools/call";
pub const RESOURCES_LIST: &str = "resources/list";
pub const RESOURCES_TEMPLATES_LIST: &str = "resources/templates/list";
pub const RESOURCES_READ: &str = "resources/read";
pub const RESOURCES_SUBSCRIBE: &str = "resources/subscribe";
pub const RESOURCES_UNSUBSCRIBE: &str = "resources/unsubscribe";
pub const PROMPTS_LIST: &str = "prompts/list";
pub const PROMPTS_GET: &str = "prompts/get";
pub const COMPLETE: &str = "completion/complete";
pub const SET_LEVEL: &str = "logging/setLevel";
pub const ROOTS_LIST: &str = "roots/list";
pub const SAMPLING: &str = "sampling/createMessage";
pub const ELICITATION: &str = "elicitation/create";
/// 2026-07-28.
pub const DISCOVER: &str = "server/discover";
/// 2026-07-28.
pub const LISTEN: &str = "subscriptions/listen";
/// Extension of 2026-07-28 (SEP-2663), and 2025-11-25.
pub const TASKS_GET: &str = "tasks/get";
/// Extension of 2026-07-28 (SEP-2663).
pub const TASKS_UPDATE: &str = "tasks/update";
/// Extension of 2026-07-28 (SEP-2663), and 2025-11-25.
pub const TASKS_CANCEL: &str = "tasks/cancel";
/// 2025-11-25 only.
pub const TASKS_RESULT: &str = "tasks/result";
/// 2025-11-25 only.
pub const TASKS_LIST: &str = "tasks/list";

pub const INITIALIZED: &str = "notifications/initialized";
pub const CANCELLED: &str = "notifications/cancelled";
pub const PROGRESS: &str = "notifications/progress";
pub const LOG_MESSAGE: &str = "notifications/message";
pub const TOOLS_CHANGED: &str = "notifications/tools/list_changed";
pub const PROMPTS_CHANGED: &str = "notifications/prompts/list_changed";
pub const RESOURCES_CHANGED: &str = "notifications/resources/list_changed";
pub const RESOURCE_UPDATED: &str = "notifications/resources/updated";
pub const ROOTS_CHANGED: &str = "notifications/roots/list_changed";
/// 2026-07-28.
pub const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";
/// Extension of 2026-07-28 (SEP-2663).
pub const TASK_CHANGED: &str = "notifications/tasks";
/// 2025-11-25 only, in both directions.
pub const TASK_STATUS: &str = "notifications/tasks/status";

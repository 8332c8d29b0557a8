//! Names in `_meta` that 2026-07-28 gives a meaning (basic/index, "_meta"), and 2025-11-25 before it.

pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
pub const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
/// The extension of 2026-07-28 under which a call may be answered with a task.
pub const TASKS: &str = "io.modelcontextprotocol/tasks";
/// 2025-11-25 only: the task that a message is about (basic/utilities/tasks, "Related Task Metadata").
pub const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";

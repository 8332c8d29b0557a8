//! What a session is opened on: a path, the backends behind it, and the policies that name what they have.

use crate::backend::Backend;
use lockgate_policy::Chain;
use std::sync::Arc;

/// One virtual host. Immutable; sessions hold the one they were opened on.
pub struct VirtualHost {
    /// The path without a trailing slash.
    pub path: Arc<str>,
    /// In the order of the configuration, which is the order of merged lists.
    pub backends: Vec<Arc<Backend>>,
    pub policies: Arc<Chain>,
    /// Put before the instructions of the backends.
    pub instructions: Option<String>,
}

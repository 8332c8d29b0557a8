//! What a session is opened on: a path, the backends behind it, and the policies that name what they have.

use super::lock;
use crate::backend::Backend;
use crate::catalog::{Pool, Table};
use lockgate_policy::Live;
use std::sync::{Arc, Mutex};

/// One virtual host. Sessions hold the one they were opened on. All of it stays as it is but the policies, which are swapped in it.
pub struct VirtualHost {
    /// The path without a trailing slash.
    pub path: Arc<str>,
    /// In the order of the configuration, which is the order of merged lists.
    pub backends: Vec<Arc<Backend>>,
    pub policies: Arc<Live>,
    /// Put before the instructions of the backends.
    pub instructions: Option<String>,
    /// The names of a session that has ended, in the order of `catalog::KINDS`: what new policies are tried on where no session lives.
    pub last_names: LastNames,
    /// The names that its sessions have in common.
    pub names: Pool,
}

/// A place for the names of one session.
#[derive(Default)]
pub struct LastNames(Mutex<Option<[Arc<Table>; 4]>>);

impl LastNames {
    pub fn set(&self, tables: [Arc<Table>; 4]) {
        *lock(&self.0) = Some(tables);
    }

    pub fn get(&self) -> Option<[Arc<Table>; 4]> {
        lock(&self.0).clone()
    }
}

//! What differs between two configurations beyond the policies of virtual hosts: what a reload does not apply.

use super::model::{Config, VirtualHost};

/// The keys of `new` that differ from `running` and take effect only after a restart.
pub fn restart_keys(running: &Config, new: &Config) -> Vec<String> {
    let mut keys = Vec::new();
    let mut key = |same: bool, name: String| {
        if !same {
            keys.push(name);
        }
    };
    key(running.listen == new.listen, "listen".into());
    key(running.admin == new.admin, "admin".into());
    key(running.admin_token == new.admin_token, "admin_token".into());
    for backend in &running.backends {
        key(new.backend(&backend.name) == Some(backend), format!("backends.{}", backend.name));
    }
    for backend in &new.backends {
        key(running.backend(&backend.name).is_some(), format!("backends.{}", backend.name));
    }
    for host in &running.virtual_hosts {
        let path = &host.path;
        let Some(after) = new.virtual_hosts.iter().find(|h| h.path == *path) else {
            key(false, format!("virtual_hosts.{path}"));
            continue;
        };
        key(names(running, host) == names(new, after), format!("virtual_hosts.{path}.backends"));
        key(host.instructions == after.instructions, format!("virtual_hosts.{path}.instructions"));
    }
    for host in &new.virtual_hosts {
        key(running.virtual_hosts.iter().any(|h| h.path == host.path), format!("virtual_hosts.{}", host.path));
    }
    let (before, after) = (&running.policy, &new.policy);
    key(before.cache == after.cache, "policy.cache".into());
    key(before.instances == after.instances, "policy.instances".into());
    key(before.watch == after.watch, "policy.watch".into());
    key(before.probation == after.probation, "policy.probation".into());
    key(running.auth == new.auth, "auth".into());
    key(running.session == new.session, "session".into());
    key(running.limits == new.limits, "limits".into());
    key(running.admission == new.admission, "admission".into());
    key(running.http == new.http, "http".into());
    key(running.log == new.log, "log".into());
    key(running.shutdown == new.shutdown, "shutdown".into());
    keys
}

fn names<'a>(config: &'a Config, host: &VirtualHost) -> Vec<&'a str> {
    host.backends.iter().filter_map(|i| config.backends.get(*i)).map(|b| &*b.name).collect()
}

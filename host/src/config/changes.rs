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
    key(running.modern == new.modern, "modern".into());
    key(running.http == new.http, "http".into());
    key(running.log == new.log, "log".into());
    key(running.shutdown == new.shutdown, "shutdown".into());
    keys
}

fn names<'a>(config: &'a Config, host: &VirtualHost) -> Vec<&'a str> {
    host.backends.iter().filter_map(|i| config.backends.get(*i)).map(|b| &*b.name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::load_text;

    fn keys(before: &str, after: &str) -> Vec<String> {
        let load = |text: &str| load_text("test", text).unwrap_or_else(|problems| panic!("{problems}")).config;
        restart_keys(&load(before), &load(after))
    }

    const PLAIN: &str = "backends: { a: { url: http://127.0.0.1:1/mcp }, b: { url: http://127.0.0.1:2/mcp } }\n";

    #[test]
    fn what_policies_say_needs_no_restart() {
        let policies = |alias: &str, more: &str| format!("{PLAIN}virtual_hosts: {{ /mcp: {{ aliases: {{ {alias}: a/t }}{more} }} }}\n");
        let after = policies("y", ", policies: [alias, { name: filter, fail: open, limits: { state: 1KiB } }, namespace]");
        assert_eq!(keys(&policies("x", ""), &after), [""; 0]);
        assert_eq!(keys(PLAIN, &format!("{PLAIN}policy: {{ limits: {{ output: 2MiB }} }}\n")), [""; 0]);
    }

    #[test]
    fn everything_else_is_named_by_its_key() {
        let after = "listen: 127.0.0.1:9\nadmin: off\nadmin_token: 0123456789abcdef\nbackends: { a: { url: http://127.0.0.1:7/mcp }, c: { url: http://127.0.0.1:2/mcp } }\nvirtual_hosts: { /mcp: { instructions: x }, /other: { backends: [c] } }\npolicy: { cache: off, instances: 7, watch: off, probation: 0 }\nauth: { tokens: [{ principal: a, token: 0123456789abcdef }] }\nsession: { idle_timeout: 1s }\nlimits: { in_flight: 1 }\nmodern: { parked: 1 }\nhttp: { allowed_hosts: [x] }\nlog: { format: json }\nshutdown: { grace: 1s }\n";
        let mut found = keys(&format!("{PLAIN}policy: {{ cache: ./elsewhere }}\n"), after);
        let mut expected = [
            "listen",
            "admin",
            "admin_token",
            "backends.a",
            "backends.b",
            "backends.c",
            "virtual_hosts./mcp.backends",
            "virtual_hosts./mcp.instructions",
            "virtual_hosts./other",
            "policy.cache",
            "policy.instances",
            "policy.watch",
            "policy.probation",
            "auth",
            "session",
            "limits",
            "modern",
            "http",
            "log",
            "shutdown",
        ];
        found.sort();
        expected.sort_unstable();
        assert_eq!(found, expected);
        assert_eq!(keys(after, after), [""; 0]);
    }
}

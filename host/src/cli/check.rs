//! `lockgate check`: what would be served, and `ok`.

use std::fmt::Write as _;
use std::process::ExitCode;

use super::Prepared;
use crate::config::{Backend, Config, PolicySource, Target, VirtualHost};
use crate::telemetry::SafeUri;

/// Prints the summary. Getting here means that everything is fine.
pub fn run(prepared: &Prepared) -> ExitCode {
    say!("{}ok", summary(&prepared.config));
    ExitCode::SUCCESS
}

/// A few lines for people; holds no secret.
pub fn summary(config: &Config) -> String {
    let mut text = String::new();
    let mut line = |label: &str, value: &str| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{label:<10} {value}");
    };
    for address in &config.listen {
        for host in &config.virtual_hosts {
            line("endpoint", &format!("http://{address}{}", host.path));
        }
    }
    match config.admin {
        Some(admin) => line("admin", &format!("http://{admin}/livez /readyz /metrics")),
        None => line("admin", "off"),
    }
    line(
        "auth",
        &match config.auth.tokens() {
            0 => "open: anybody who can reach the endpoint".to_owned(),
            1 => "1 bearer token".to_owned(),
            n => format!("{n} bearer tokens"),
        },
    );
    for backend in &config.backends {
        line("backend", &describe(backend));
    }
    for host in &config.virtual_hosts {
        line("host", &describe_host(config, host));
    }
    text
}

fn describe(backend: &Backend) -> String {
    let target = match &backend.target {
        Target::Http { uri, .. } => SafeUri(uri).to_string(),
        // Arguments may hold secrets; the number of them tells enough.
        Target::Stdio { program, args, .. } => match args.len() {
            0 => program.display().to_string(),
            1 => format!("{} and 1 argument", program.display()),
            n => format!("{} and {n} arguments", program.display()),
        },
    };
    format!("{}: {target}", backend.name)
}

fn describe_host(config: &Config, host: &VirtualHost) -> String {
    let names: Vec<&str> = host.backends.iter().filter_map(|i| config.backends.get(*i)).map(|b| &*b.name).collect();
    let policies: Vec<String> = host
        .policies
        .iter()
        .map(|policy| match &policy.source {
            PolicySource::Shipped => policy.name.clone(),
            PolicySource::File(path) => format!("{} ({})", policy.name, path.display()),
        })
        .collect();
    let aliases = match host.aliases.len() {
        0 => String::new(),
        1 => ", 1 alias".to_owned(),
        n => format!(", {n} aliases"),
    };
    let policies = if policies.is_empty() { "none".to_owned() } else { policies.join(", ") };
    format!("{}: backends {}; policies {policies}{aliases}", host.path, names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    #[test]
    fn the_summary_names_what_is_served_and_no_secret() {
        let yaml = "
listen: 127.0.0.1:9000
backends:
  api:
    url: https://api.example.com/mcp?key=s3cret
    headers: { Authorization: Bearer s3cret }
  tool: { command: [sh, -c, s3cret], env: { KEY: s3cret } }
auth: { tokens: [{ principal: ann, token: s3cret-s3cret-s3cret }] }
virtual_hosts:
  /mcp: { backends: [api, tool], aliases: { go: tool/run } }
  /api: { backends: [api], policies: [namespace] }
";
        let loaded = config::load_text("test", yaml).unwrap_or_else(|problems| panic!("{problems}"));
        let text = summary(&loaded.config);
        assert!(!text.contains("s3cret"), "{text}");
        for expected in [
            "endpoint   http://127.0.0.1:9000/mcp\n",
            "endpoint   http://127.0.0.1:9000/api\n",
            "admin      http://127.0.0.1:8809/livez /readyz /metrics\n",
            "auth       1 bearer token\n",
            "backend    api: https://api.example.com/mcp?[redacted]\n",
            "/sh and 2 arguments\n",
            "host       /mcp: backends api, tool; policies alias, namespace, 1 alias\n",
            "host       /api: backends api; policies namespace\n",
        ] {
            assert!(text.contains(expected), "{expected}\n{text}");
        }
    }
}

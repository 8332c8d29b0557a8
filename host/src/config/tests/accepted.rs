//! What is accepted, and what it means.

use std::time::Duration;

use super::*;

#[test]
fn one_backend_is_enough_and_all_else_has_a_default() {
    let config = accepted("backends: { time: { url: http://127.0.0.1:9000/mcp } }");
    assert_eq!(config.listen, ["127.0.0.1:8808".parse().unwrap()]);
    assert_eq!(config.admin, Some("127.0.0.1:8809".parse().unwrap()));
    assert_eq!(config.session, SessionConfig::default());
    assert_eq!(config.limits, Limits::default());
    assert_eq!(config.modern, ModernConfig::default());
    assert_eq!(config.log, LogConfig::default());
    assert_eq!(config.shutdown, ShutdownConfig::default());
    assert_eq!(config.http, HttpConfig::default());
    assert!(config.auth.is_open());
    let [host] = &config.virtual_hosts[..] else { panic!("{:?}", config.virtual_hosts) };
    assert_eq!((&*host.path, &host.backends[..], host.aliases.len()), ("/mcp", &[0][..], 0));
    let names: Vec<_> = host.policies.iter().map(|p| p.name.as_str()).collect();
    assert_eq!(names, DEFAULT_POLICIES);
    assert_eq!(SHIPPED_POLICIES, lockgate_policy::shipped::names().collect::<Vec<_>>());
    let [backend] = &config.backends[..] else { panic!("{:?}", config.backends) };
    assert!(matches!(&backend.target, Target::Http { uri, transport: Transport::Auto, headers }
        if uri == "http://127.0.0.1:9000/mcp" && headers.is_empty()));
    let limits = Limits::default();
    let common = Timeouts { initialize: limits.initialize_timeout, list: limits.list_timeout, call: limits.call_timeout };
    assert_eq!(backend.timeouts, common);
}

/// The shape in which tools that start a gateway write their file: JSON inside YAML, flow style, quoted names.
#[test]
fn a_generated_file_is_accepted() {
    let config = accepted(
        r#"listen: 127.0.0.1:4711
admin: 127.0.0.1:4712
backends:
  "one": { url: "http://127.0.0.1:4713/mcp" }
  "two": { command: ["server", "--stdio", "x y"] }
session: { idle_timeout: 2s }
auth: { tokens: [ { principal: x, sha256: "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae" }, { principal: y, sha256: "FCDE2B2EDBA56BF408601FB721FE9B5C338D10EE429EA04FAE5511B68FBF8FB9" } ] }
"#,
    );
    assert_eq!(config.session.idle_timeout, Duration::from_secs(2));
    assert_eq!(config.auth.principal(b"foo").map(|p| &**p), Some("x"));
    assert_eq!(config.auth.principal(b"bar").map(|p| &**p), Some("y"));
    assert_eq!(config.auth.principal(b"baz"), None);
}

#[test]
fn the_order_of_the_file_is_kept() {
    let names = ["zeta", "alpha", "mid", "beta", "omega", "a1", "z9"];
    let yaml: String = names.iter().map(|n| format!("  {n}: {{ command: [server] }}\n")).collect();
    let config = accepted(&format!("backends:\n{yaml}"));
    let read: Vec<_> = config.backends.iter().map(|b| &*b.name).collect();
    assert_eq!(read, names);
    let config = accepted(&format!("backends:\n{yaml}virtual_hosts:\n  /z: {{ backends: [mid, zeta] }}\n  /a: {{}}\n  /all:\n"));
    let hosts: Vec<_> = config.virtual_hosts.iter().map(|h| (&*h.path, h.backends.clone())).collect();
    assert_eq!(hosts, [("/z", vec![2, 0]), ("/a", (0..7).collect()), ("/all", (0..7).collect())]);
}

#[test]
fn a_child_gets_words_whatever_they_look_like() {
    let config = accepted(
        "backends:\n  a:\n    command: [server, -p, 80, true, 1.50, '~', 'x y', \"${HOME}/x\", '$${HOME}']\n    env: { PORT: 080, ON: true, NOTHING: '', HOME: \"${HOME}\" }\n    cwd: bin\n",
    );
    let Target::Stdio { program, args, env, cwd } = &config.backends[0].target else { panic!() };
    assert_eq!(program, &fixture().join("bin/server"));
    assert_eq!(cwd.as_deref(), Some(fixture().join("bin").as_path()));
    assert_eq!(args[..3], ["-p", "80", "true"]);
    assert_eq!(args[3..], ["1.50", "~", "x y", "/home/ann/x", "${HOME}"].map(str::to_owned));
    let env: Vec<_> = env.iter().map(|(k, v)| (k.as_str(), v.expose())).collect();
    assert_eq!(env, [("PORT", "080"), ("ON", "true"), ("NOTHING", ""), ("HOME", "/home/ann")]);
}

#[test]
fn a_program_with_a_slash_is_relative_to_the_file() {
    let config = accepted("backends: { a: { command: [./bin/server] } }");
    let Target::Stdio { program, .. } = &config.backends[0].target else { panic!() };
    assert!(program.is_absolute() && program.ends_with("bin/server"));
}

#[test]
fn secrets_come_from_the_environment_and_do_not_show() {
    let config = accepted(
        "backends:\n  api:\n    url: https://api.example.com/mcp\n    headers: { Authorization: \"Bearer ${TOKEN}\" }\nauth: { tokens: [{ principal: ann, token: \"${TOKEN}\" }] }",
    );
    let Target::Http { headers, .. } = &config.backends[0].target else { panic!() };
    assert_eq!(headers[0].0, "authorization");
    assert_eq!(headers[0].1.expose(), "Bearer s3cret-from-the-environment");
    assert_eq!(config.auth.principal(b"s3cret-from-the-environment").map(|p| &**p), Some("ann"));
    assert!(!format!("{config:?}").contains("s3cret"));
}

#[test]
fn a_state_key_is_hexadecimal_or_base64_and_does_not_show() {
    let bytes: [u8; 32] = std::array::from_fn(|i| 0xe0 + i as u8);
    let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
    for text in [
        hex.as_str(),
        &hex.to_uppercase(),
        "4OHi4+Tl5ufo6err7O3u7/Dx8vP09fb3+Pn6+/z9/v8=",
        "4OHi4+Tl5ufo6err7O3u7/Dx8vP09fb3+Pn6+/z9/v8",
        "4OHi4-Tl5ufo6err7O3u7_Dx8vP09fb3-Pn6-_z9_v8",
    ] {
        let env = |name: &str| if name == "STATE_KEY" { Some(format!("{text}\n")) } else { super::env(name) };
        let yaml = "backends: { a: { command: [server] } }\nmodern: { state_key: \"${STATE_KEY}\", parked: 8, parked_time: 90s }\n";
        let config = check(input("f", yaml), None, &Overrides::default(), &env, Vec::new()).unwrap_or_else(|p| panic!("{p}")).config;
        let ModernConfig { state_key, parked, parked_per_principal, parked_time } = &config.modern;
        assert_eq!(state_key.as_ref().map(StateKey::expose), Some(bytes));
        assert_eq!((*parked, *parked_per_principal, *parked_time), (8, 8, Duration::from_secs(90)));
        let shown = format!("{config:?}");
        assert!(!shown.contains(&hex) && shown.contains("state_key: Some([redacted])"), "{shown}");
    }
    // Digits alone look like a number.
    let key = "1".repeat(64);
    assert!(accepted(&format!("backends: {{ a: {{ command: [server] }} }}\nmodern: {{ state_key: {key} }}\n")).modern.state_key.is_some());
}

#[test]
fn what_a_variable_holds_never_becomes_structure() {
    let env = |name: &str| match name {
        "NAME" => Some("{ a: 1 }\nlisten: 0.0.0.0:1".to_owned()),
        _ => super::env(name),
    };
    let yaml = "backends: { a: { command: [server] } }\nvirtual_hosts:\n  /mcp:\n    instructions: \"${NAME}\"\n    policies: [{ name: alias, config: { n: \"${NAME}\", t: true, i: 7, f: 1.5, s: '7', u: } }]\n";
    let config = check(input("f", yaml), None, &Overrides::default(), &env, Vec::new()).unwrap().config;
    let host = &config.virtual_hosts[0];
    assert_eq!(host.instructions.as_deref(), Some("{ a: 1 }\nlisten: 0.0.0.0:1"));
    let expected = serde_json::json!({ "n": "{ a: 1 }\nlisten: 0.0.0.0:1", "t": true, "i": 7, "f": 1.5, "s": "7", "u": null });
    assert_eq!(host.policies[0].config, expected);
}

#[test]
fn virtual_hosts_have_backends_aliases_and_policies() {
    let config = accepted(
        r#"
backends:
  time: { command: [server] }
  text: { command: [server] }
virtual_hosts:
  /mcp/:
    aliases:
      now: time/get_time
      sum: { to: "text/summary", kind: prompt }
      docs://readme: { to: "text/file:///a/b.md", kind: resource }
    policies: [alias, { name: mine, component: ./policy.wasm, config: { deny: [x] } }, namespace]
    instructions: Be brief.
"#,
    );
    let host = &config.virtual_hosts[0];
    assert_eq!(&*host.path, "/mcp");
    let alias = |public: &str, kind, backend, name: &str| Alias { public: public.into(), kind, backend, name: name.into() };
    assert_eq!(
        host.aliases,
        [
            alias("now", AliasKind::Tool, 0, "get_time"),
            alias("sum", AliasKind::Prompt, 1, "summary"),
            alias("docs://readme", AliasKind::Resource, 1, "file:///a/b.md"),
        ]
    );
    let sources: Vec<_> = host.policies.iter().map(|p| (p.name.as_str(), p.source.clone())).collect();
    let file = PolicySource::File(fixture().join("policy.wasm"));
    assert_eq!(sources, [("alias", PolicySource::Shipped), ("mine", file), ("namespace", PolicySource::Shipped)]);
    assert_eq!(host.policies[1].config, serde_json::json!({ "deny": ["x"] }));
    assert_eq!(host.policies[1].place.to_string(), "lockgate.yaml:11:48: virtual_hosts./mcp/.policies[1].component");
    assert_eq!(host.instructions.as_deref(), Some("Be brief."));
}

#[test]
fn anchors_and_merges_work() {
    let config = accepted(
        "backends:\n  a: &a { url: http://127.0.0.1:9000/a, timeouts: { call: 1s } }\n  b: { <<: *a, url: http://127.0.0.1:9000/b }\n",
    );
    assert_eq!(config.backends[1].timeouts.call, Duration::from_secs(1));
    assert!(matches!(&config.backends[1].target, Target::Http { uri, .. } if uri.path() == "/b"));
}

#[test]
fn public_addresses_need_tokens_or_a_word() {
    let backends = "backends: { a: { command: [server] } }\n";
    let open = accepted(&format!("{backends}listen: 0.0.0.0:8808\nauth: {{ open: true }}\n"));
    assert!(open.auth.is_open() && open.http.allows_host("gateway.example"));
    assert!(!open.http.allows_origin("https://gateway.example"));
    let tokens = accepted(&format!("{backends}listen: 0.0.0.0:8808\nauth: {{ tokens: [{{ principal: a, token: 0123456789abcdef }}] }}\n"));
    assert!(!tokens.auth.is_open());
}

#[test]
fn the_admin_port_can_be_off_and_port_zero_is_no_clash() {
    let config = accepted("listen: localhost:0\nadmin: off\nbackends: { a: { command: [server] } }");
    assert_eq!((config.listen[0], config.admin), ("127.0.0.1:0".parse().unwrap(), None));
    let config = accepted("listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\nbackends: { a: { command: [server] } }");
    assert!(config.admin.is_some());
}

#[test]
fn lowering_the_total_lowers_what_one_principal_may_have() {
    let config = accepted("session: { max_total: 100 }\nbackends: { a: { command: [server] } }");
    assert_eq!(config.session.max_per_principal, 100);
}

#[test]
fn the_log_variable_wins_and_is_checked() {
    let env = |level: &'static str| move |name: &str| if name == "LOCKGATE_LOG" { Some(level.to_owned()) } else { super::env(name) };
    let yaml = "log: { level: warn }\nbackends: { a: { command: [server] } }";
    let load = |level| check(input("f", yaml), None, &Overrides::default(), &env(level), Vec::new());
    assert_eq!(load("info,lockgate::backend=trace").unwrap().config.log.filter, "info,lockgate::backend=trace");
    assert_eq!(load("").unwrap().config.log.filter, "warn");
    assert!(load("loud").unwrap_err().to_string().starts_with("LOCKGATE_LOG: not a log level"));
}

#[test]
fn warnings_do_not_keep_a_configuration_from_loading() {
    let loaded = load_yaml(
        "admin: 0.0.0.0:8809\nbackends: { a: { url: http://example.com/mcp, headers: { authorization: x } } }\nauth: { tokens: [{ principal: a, token: short }] }",
    )
    .unwrap();
    let told = loaded.warnings.to_string();
    assert_eq!(told.lines().count(), 3, "{told}");
    assert!(told.starts_with("lockgate.yaml:1:8: admin: 0.0.0.0:8809 is not loopback"), "{told}");
}

#[test]
fn a_desktop_clients_list_is_a_configuration() {
    let loaded = load_json(
        None,
        r#"{
  "globalShortcut": "x",
  "mcpServers": {
    "time": { "command": "uvx", "args": ["mcp-server-time", "--port", 1], "env": { "TZ": "UTC" }, "alwaysAllow": [] },
    "My Server": { "type": "stdio", "command": "./bin/server", "env": {}, "headers": {} },
    "off": { "command": "no-such-program", "disabled": true },
    "docs": { "serverUrl": "https://docs.example.com/mcp", "headers": { "Authorization": "Bearer ${env:TOKEN}" }, "env": {} },
    "old": { "url": "https://old.example.com/sse", "transport": "sse" },
    "new": { "url": "https://new.example.com/mcp", "type": "streamable-http" },
  }
}"#,
    )
    .unwrap_or_else(|problems| panic!("{problems}"));
    let names: Vec<_> = loaded.config.backends.iter().map(|b| &*b.name).collect();
    assert_eq!(names, ["time", "My-Server", "docs", "old", "new"]);
    assert!(matches!(&loaded.config.backends[0].target, Target::Stdio { program, args, .. }
        if program.ends_with("uvx") && args[..] == ["mcp-server-time", "--port", "1"]));
    assert!(matches!(&loaded.config.backends[2].target, Target::Http { headers, .. }
        if headers[0].1.expose() == "Bearer s3cret-from-the-environment"));
    assert!(matches!(&loaded.config.backends[3].target, Target::Http { transport: Transport::Sse, .. }));
    assert!(matches!(&loaded.config.backends[4].target, Target::Http { transport: Transport::Auto, .. }));
    assert_eq!(loaded.config.virtual_hosts[0].backends, [0, 1, 2, 3, 4]);
    let told = loaded.warnings.to_string();
    assert!(!told.contains("globalShortcut"), "{told}");
    assert!(told.contains("servers.json:4:99: mcpServers.time.alwaysAllow: is not used here"), "{told}");
    assert!(told.contains("mcpServers.\"My Server\": this name does not fit a backend; it is `My-Server` here"), "{told}");
}

#[test]
fn a_clients_list_adds_to_the_file() {
    let yaml = "listen: 127.0.0.1:9999\nbackends: { own: { command: [server] } }";
    let json = r#"{ "servers": { "theirs": { "command": "server" } }, "inputs": [] }"#;
    let config = load_json(Some(yaml), json).unwrap().config;
    let names: Vec<_> = config.backends.iter().map(|b| &*b.name).collect();
    assert_eq!((names, config.listen[0].port()), (vec!["own", "theirs"], 9999));

    let json = r#"{ "servers": { "own": { "command": "server" } } }"#;
    let told = load_json(Some(yaml), json).unwrap_err().to_string();
    assert_eq!(told, "servers.json:1:16: servers.own: this name is taken by lockgate.yaml:2:13: backends.own; rename one of them");
}

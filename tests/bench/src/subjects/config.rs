//! The configurations that the subjects run with. The peers' are made as their documentation recommends, with everything off that costs
//! and that the others do not do: access logs, statistics of each request.

use std::{fmt::Write as _, net::SocketAddr};

use anyhow::Result;
use serde_json::json;

use super::Kind;
use crate::client::Target;

/// One worker, connections kept to both sides, buffers large enough for a megabyte. Events pass at once, because the server asks for
/// that with `X-Accel-Buffering`.
pub fn nginx(address: SocketAddr, backend: &str) -> Result<String> {
    let server = Target::parse(backend)?.address;
    Ok(format!(
        "daemon off;
worker_processes 1;
worker_rlimit_nofile 65536;
pid nginx.pid;
events {{ worker_connections 32768; }}
http {{
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    keepalive_timeout 1h;
    keepalive_requests 1000000000;
    tcp_nodelay on;
    client_max_body_size 64m;
    client_body_buffer_size 1m;
    upstream server {{
        server {server};
        keepalive 1024;
        keepalive_requests 1000000000;
    }}
    server {{
        listen {address} backlog=4096;
        location / {{
            proxy_pass http://server;
            proxy_http_version 1.1;
            proxy_set_header Connection \"\";
            proxy_buffers 16 64k;
            proxy_busy_buffers_size 128k;
            proxy_max_temp_file_size 0;
            proxy_read_timeout 1h;
        }}
    }}
}}
"
    ))
}

/// The MCP filter and the MCP router as the last one of the chain, a cluster for each server.
pub fn envoy(address: SocketAddr, backends: &[(&str, String)]) -> Result<String> {
    let socket = |address: SocketAddr| json!({ "socket_address": { "address": address.ip().to_string(), "port_value": address.port() } });
    let (mut clusters, mut servers) = (Vec::new(), Vec::new());
    for (name, url) in backends {
        let target = Target::parse(url)?;
        clusters.push(json!({
            "name": name, "type": "STATIC", "connect_timeout": "5s",
            // Its defaults are for 1,024 connections and requests at once.
            "circuit_breakers": { "thresholds": [{ "max_connections": 65536, "max_pending_requests": 65536, "max_requests": 65536 }] },
            "load_assignment": { "cluster_name": name, "endpoints": [{ "lb_endpoints": [{ "endpoint": { "address": socket(target.address) } }] }] },
        }));
        servers.push(json!({ "name": name, "mcp_cluster": { "cluster": name, "path": target.path, "timeout": "60s" } }));
    }
    let filter = |name: &str, more: serde_json::Value| {
        let mut config = json!({ "@type": format!("type.googleapis.com/envoy.extensions.filters.http.{name}.v3.{}", more["type"].as_str().unwrap_or_default()) });
        if let Some(servers) = more.get("servers") {
            config["servers"] = servers.clone();
        }
        json!({ "name": format!("envoy.filters.http.{name}"), "typed_config": config })
    };
    let manager = json!({
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "mcp",
        "stream_idle_timeout": "0s",
        "route_config": { "virtual_hosts": [{ "name": "all", "domains": ["*"], "routes": [{ "match": { "prefix": "/" }, "route": { "cluster": backends[0].0, "timeout": "60s" } }] }] },
        "http_filters": [filter("mcp", json!({ "type": "Mcp" })), filter("mcp_router", json!({ "type": "McpRouter", "servers": servers }))],
    });
    let config = json!({
        "static_resources": {
            "listeners": [{
                "name": "front", "address": socket(address),
                "filter_chains": [{ "filters": [{ "name": "envoy.filters.network.http_connection_manager", "typed_config": manager }] }],
            }],
            "clusters": clusters,
        },
    });
    Ok(format!("{config:#}"))
}

pub fn mcp_proxy(address: SocketAddr, backends: &[(&str, String)]) -> String {
    let mut text = format!(
        "[proxy]\nname = \"bench\"\nseparator = \"__\"\n\n[proxy.listen]\nhost = \"{}\"\nport = {}\n",
        address.ip(),
        address.port()
    );
    for (name, url) in backends {
        let _ = write!(text, "\n[[backends]]\nname = \"{name}\"\ntransport = \"http\"\nurl = \"{url}\"\n");
    }
    text
}

/// Everything at its defaults, but for the bounds on sessions and connections, which stand where they can be measured.
pub fn lockgate(kind: &Kind, address: SocketAddr, backends: &[(&str, String)], more: &str) -> String {
    let first = backends[0].0;
    let policies = match kind {
        Kind::Bare | Kind::BareAgain => "policies: []".to_owned(),
        Kind::Aliased => format!("aliases: {{ say: {first}/echo }}"),
        Kind::EveryCall => {
            format!(
                "policies: [{{ name: route, grants: {{ every_call: true }}, config: {{ rules: [{{ things: \"{first}/other*\", to: {first} }}] }} }}, alias, namespace]"
            )
        }
        _ => "policies: [alias, namespace]".to_owned(),
    };
    let mut text = format!("listen: {address}\nadmin: off\nlog: {{ level: warn }}\nbackends:\n");
    for (name, url) in backends {
        let _ = writeln!(text, "  {name}: {{ url: \"{url}\" }}");
    }
    let _ = write!(text, "virtual_hosts:\n  /mcp: {{ {policies} }}\n");
    text + more
}

/// Five policies on two paths: all that ship, and one of them once more.
pub fn five_policies(address: SocketAddr, backend: &str) -> String {
    format!(
        "listen: {address}
admin: off
log: {{ level: warn }}
backends:
  one: {{ url: \"{backend}\" }}
virtual_hosts:
  /mcp:
    policies:
      - alias
      - {{ name: filter, config: {{ rules: [{{ things: \"one/secret*\", do: deny }}] }} }}
      - {{ name: route, config: {{ rules: [{{ things: \"one/other*\", to: one }}] }} }}
      - namespace
  /more:
    policies:
      - {{ name: filter, config: {{ rules: [{{ things: \"one/hidden*\", do: deny }}] }} }}
"
    )
}

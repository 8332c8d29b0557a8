//! How to connect a client of one's own: the demo's last lines.

use std::net::SocketAddr;

use serde_json::json;

use super::page::Page;

/// The endpoint, the admin port, and what to paste into the common clients.
pub fn instructions(page: &Page, url: &str, admin: Option<SocketAddr>) -> String {
    let mut out = format!("\n{} {url}", page.strong("Up until Ctrl-C:"));
    if let Some(admin) = admin {
        out.push_str(&format!("   http://{admin}/livez /readyz /metrics"));
    }
    out.push_str("\n\n");
    out.push_str(&page.strong("Connect a client"));
    out.push('\n');
    for (client, line) in lines(url) {
        out.push_str(&format!("  {} {line}\n", page.faint(&format!("{client:<10}"))));
    }
    out.push_str(&format!("{} {}\n", page.strong("A configuration to start from:"), "lockgate demo --print-config > lockgate.yaml"));
    out
}

fn lines(url: &str) -> [(&'static str, String); 6] {
    let mcp_servers = json!({ "mcpServers": { "lockgate": { "type": "http", "url": url } } });
    let vs_code = json!({ "name": "lockgate", "type": "http", "url": url });
    [
        ("JSON", mcp_servers.to_string()),
        ("Claude", format!("claude mcp add --transport http lockgate {url}")),
        ("Codex", format!("codex mcp add lockgate --url {url}")),
        ("Gemini", format!("gemini mcp add --transport http lockgate {url}")),
        ("VS Code", format!("code --add-mcp '{vs_code}'")),
        ("Inspector", format!("npx @modelcontextprotocol/inspector --cli {url} \\\n{:15}--transport http --method tools/list", "")),
    ]
}

#[cfg(test)]
mod tests {
    use super::{super::page::WIDTH, *};

    #[test]
    fn every_line_to_paste_fits_the_width_and_names_the_endpoint() {
        let url = "http://127.0.0.1:65535/mcp";
        let admin = Some("127.0.0.1:65534".parse().expect("an address"));
        let text = instructions(&Page::new(false), url, admin);
        for line in text.lines() {
            assert!(line.chars().count() <= WIDTH, "{line}");
        }
        assert_eq!(text.matches(url).count(), 1 + lines(url).len());
        assert!(text.contains("http://127.0.0.1:65534/livez"));
    }
}

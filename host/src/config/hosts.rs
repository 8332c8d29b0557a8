//! Which `Host` and `Origin` a request may carry (MCP 2025-11-25, transports, "Security Warning").
//!
//! The lists are parsed once; `front` asks [`HttpConfig::allows_host`] and [`HttpConfig::allows_origin`] for each request.

/// The two allow-lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpConfig {
    hosts: Allow,
    origins: Allow,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Allow {
    Any,
    Only(Vec<Pattern>),
}

/// `scheme://name:port`, of which any part but the name may be left open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern {
    scheme: Option<String>,
    name: Name,
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Name {
    Exactly(String),
    /// `*.example.com`: holds `.example.com`.
    Under(String),
    /// An origin without a name, which browsers send as `null`.
    Null,
}

// === impl HttpConfig ===

impl HttpConfig {
    pub(super) fn new(hosts: Allow, origins: Allow) -> Self {
        HttpConfig { hosts, origins }
    }

    /// May a request name this `Host` (name and optional port)?
    pub fn allows_host(&self, host: &str) -> bool {
        self.hosts.allows(None, host)
    }

    /// May a web page of this `Origin` send requests?
    pub fn allows_origin(&self, origin: &str) -> bool {
        match origin.split_once("://") {
            Some((scheme, authority)) => self.origins.allows(Some(scheme), authority),
            None => match &self.origins {
                Allow::Any => true,
                Allow::Only(patterns) => origin == "null" && patterns.iter().any(|p| p.name == Name::Null),
            },
        }
    }
}

impl Default for HttpConfig {
    fn default() -> Self {
        HttpConfig { hosts: Allow::loopback(), origins: Allow::loopback() }
    }
}

// === impl Allow ===

impl Allow {
    /// `localhost`, `127.0.0.1` and `[::1]`, any port, any scheme.
    pub(super) fn loopback() -> Self {
        let name = |n: &str| Pattern { scheme: None, name: Name::Exactly(n.to_owned()), port: None };
        Allow::Only(vec![name("localhost"), name("127.0.0.1"), name("[::1]")])
    }

    fn allows(&self, scheme: Option<&str>, authority: &str) -> bool {
        let Allow::Only(patterns) = self else { return true };
        let (name, port) = split_port(authority);
        let Ok(port) = port.map(str::parse::<u16>).transpose() else { return false };
        patterns.iter().any(|p| p.matches(scheme, name, port))
    }
}

// === impl Pattern ===

impl Pattern {
    fn matches(&self, scheme: Option<&str>, name: &str, port: Option<u16>) -> bool {
        let default = match scheme {
            Some("https") => Some(443),
            Some("http") => Some(80),
            _ => None,
        };
        let named = match &self.name {
            Name::Exactly(exact) => name.eq_ignore_ascii_case(exact),
            Name::Under(suffix) => {
                let end = name.len().checked_sub(suffix.len()).filter(|start| *start > 0).and_then(|start| name.as_bytes().get(start..));
                end.is_some_and(|end| end.eq_ignore_ascii_case(suffix.as_bytes()))
            }
            Name::Null => false,
        };
        named
            && self.scheme.as_deref().is_none_or(|wanted| scheme.is_some_and(|s| s.eq_ignore_ascii_case(wanted)))
            && self.port.is_none_or(|wanted| port.or(default) == Some(wanted))
    }

    /// `name`, `name:port`, `*.name`. The error says what to write.
    pub(super) fn host(text: &str) -> Result<Self, String> {
        if text.contains("://") || text.contains('/') {
            return Err(format!("`{text}` is not a host; write only the name, with `:port` if it matters"));
        }
        let (name, port) = parse_authority(text)?;
        Ok(Pattern { scheme: None, name, port })
    }

    /// `https://name`, `https://name:port`, or `null`. An origin without a port means the default port of its scheme, except on
    /// loopback names, whose pages run on any.
    pub(super) fn origin(text: &str) -> Result<Self, String> {
        if text == "null" {
            return Ok(Pattern { scheme: None, name: Name::Null, port: None });
        }
        let Some((scheme, authority)) = text.split_once("://") else {
            return Err(format!("`{text}` is not an origin; write `https://name` or `http://name:port`"));
        };
        if authority.contains('/') {
            return Err(format!("`{text}` has a path; an origin is only `scheme://name:port`"));
        }
        let (name, port) = parse_authority(authority)?;
        let default = match scheme {
            "https" => Some(443),
            "http" => Some(80),
            _ => None,
        };
        let loopback = matches!(&name, Name::Exactly(n) if ["localhost", "127.0.0.1", "[::1]"].contains(&n.as_str()));
        let port = if loopback { port } else { port.or(default) };
        Ok(Pattern { scheme: Some(scheme.to_ascii_lowercase()), name, port })
    }
}

fn parse_authority(text: &str) -> Result<(Name, Option<u16>), String> {
    let (name, port) = split_port(text);
    let port = port.map(|p| p.parse::<u16>().map_err(|_| format!("`{p}` is not a port"))).transpose()?;
    let name = name.to_ascii_lowercase();
    let plain = name.strip_prefix("*.").unwrap_or(&name);
    let bracketed = plain.starts_with('[') && plain.ends_with(']');
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_') || (bracketed && matches!(c, '[' | ']' | ':'));
    if plain.is_empty() || !plain.chars().all(fits) {
        return Err(format!("`{text}` is not a host name; write `name`, `name:port` or `*.name`"));
    }
    let name = match name.strip_prefix('*') {
        Some(suffix) => Name::Under(suffix.to_owned()),
        None => Name::Exactly(name),
    };
    Ok((name, port))
}

/// Splits `name:port`; an IPv6 address keeps its brackets.
fn split_port(authority: &str) -> (&str, Option<&str>) {
    match authority.rfind(':') {
        Some(at) if !authority[at..].contains(']') => (&authority[..at], Some(&authority[at + 1..])),
        _ => (authority, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(hosts: &[&str], origins: &[&str]) -> HttpConfig {
        HttpConfig {
            hosts: Allow::Only(hosts.iter().map(|h| Pattern::host(h).unwrap()).collect()),
            origins: Allow::Only(origins.iter().map(|o| Pattern::origin(o).unwrap()).collect()),
        }
    }

    #[test]
    fn loopback_names_are_allowed_by_default_and_nothing_else() {
        let http = HttpConfig::default();
        for host in ["localhost", "LOCALHOST:8808", "127.0.0.1:1", "[::1]:8808", "[::1]"] {
            assert!(http.allows_host(host), "{host}");
        }
        for host in ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:80", "", "localhost:x"] {
            assert!(!http.allows_host(host), "{host}");
        }
        assert!(http.allows_origin("http://localhost:6274") && http.allows_origin("https://127.0.0.1"));
        for origin in ["null", "http://evil.example", "http://localhost.evil.example", "localhost"] {
            assert!(!http.allows_origin(origin), "{origin}");
        }
    }

    #[test]
    fn patterns_hold_to_the_parts_they_name() {
        let http = only(&["a.example", "*.b.example:8443"], &["https://app.example", "http://localhost", "null"]);
        assert!(http.allows_host("a.example:1") && http.allows_host("x.b.example:8443"));
        assert!(!http.allows_host("b.example:8443") && !http.allows_host("x.b.example"));
        assert!(http.allows_origin("https://app.example") && http.allows_origin("https://app.example:443"));
        assert!(!http.allows_origin("http://app.example") && !http.allows_origin("https://app.example:8443"));
        assert!(http.allows_origin("http://localhost:5173") && http.allows_origin("null"));
        assert!(!http.allows_origin("https://localhost:5173"));
    }

    #[test]
    fn a_malformed_pattern_is_refused_with_advice() {
        assert!(Pattern::host("https://a.example").unwrap_err().contains("write only the name"));
        assert!(Pattern::host("a b").unwrap_err().contains("not a host name"));
        assert!(Pattern::host("a:99999").unwrap_err().contains("not a port"));
        assert!(Pattern::origin("a.example").unwrap_err().contains("not an origin"));
        assert!(Pattern::origin("https://a.example/x").unwrap_err().contains("has a path"));
    }
}

//! The HTTP/1.1 client of the process, for all backends and sessions; each session has connections of its own.
//!
//! Follows redirects within one origin and never leaves it. Knows nothing of MCP.

use super::body::WireBody;
use super::pool::{Connector, Origin, Pool};
use crate::protocol::Wire;
use dashmap::DashMap;
use http::header::{HOST, LOCATION};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy::connect::HttpConnector;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use super::pool::Body;

/// Redirects that are followed for one request.
const MAX_REDIRECTS: usize = 3;
const CONNECT: Duration = Duration::from_secs(5);
/// A peer that vanished without a word is noticed on a quiet stream.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// A handle of the client; cheap to clone.
#[derive(Clone)]
pub struct HttpClient {
    connector: Connector,
    /// One for each scheme and authority that was asked for: those of the configured backends, never one that a server names.
    origins: Arc<DashMap<(Scheme, Authority), Arc<Origin>>>,
}

/// The headers of a request: those that many have in common, and one more.
pub type Head<'a> = (&'a HeaderMap, Option<(&'a HeaderName, &'a HeaderValue)>);

/// A URL of a backend, and the connections that one session has there. Never printed: it may hold a secret.
#[derive(Clone)]
pub struct Address {
    path: PathAndQuery,
    pool: Arc<Pool>,
}

/// Why there is no response. The texts name no URL.
#[derive(Debug)]
pub enum SendError {
    /// Nothing has reached the server.
    NotSent(String),
    /// The connection broke while the server may have had the request.
    Lost(String),
}

impl HttpClient {
    /// Trusts the certificate authorities of the system, or Mozilla's where the system has none.
    pub fn new() -> HttpClient {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT));
        tcp.set_keepalive(Some(KEEPALIVE));
        let builder = match HttpsConnectorBuilder::new().with_native_roots() {
            Ok(builder) => builder,
            Err(error) => {
                tracing::warn!(%error, "the system has no certificate authorities, using Mozilla's");
                HttpsConnectorBuilder::new().with_webpki_roots()
            }
        };
        HttpClient { connector: builder.https_or_http().enable_http1().wrap_connector(tcp), origins: Arc::default() }
    }

    /// Where an absolute URL leads, for one session: the connections are those of this address and its clones, and nobody else's. One that is not absolute leads nowhere: sending to it is an error.
    pub fn address(&self, uri: &Uri) -> Address {
        let scheme = uri.scheme().cloned().unwrap_or(Scheme::HTTP);
        let authority = uri.authority().cloned().unwrap_or_else(|| Authority::from_static("invalid.invalid"));
        let origin = match self.origins.get(&(scheme.clone(), authority.clone())) {
            Some(origin) => origin.clone(),
            None => self
                .origins
                .entry((scheme.clone(), authority.clone()))
                .or_insert_with(|| Arc::new(Origin::new(&scheme, &authority, self.connector.clone())))
                .clone(),
        };
        Address::new(uri, Arc::new(Pool::new(origin)))
    }

    /// Sends a request and waits for the head of the response. Dropping the future, or the body of the response before its end,
    /// closes the connection.
    pub async fn send(&self, method: Method, at: &Address, headers: &HeaderMap, body: &Wire) -> Result<Response<Body>, SendError> {
        self.send_with(method, at, (headers, None), body).await
    }

    /// As `send`, with one header more, or in place of that with its name.
    pub async fn send_with(&self, method: Method, at: &Address, head: Head<'_>, body: &Wire) -> Result<Response<Body>, SendError> {
        let response = at.send(method.clone(), head, body).await?;
        if !is_redirect(&response) {
            return Ok(response);
        }
        Box::pin(follow(method, at, response, head, body)).await
    }
}

impl Address {
    fn new(uri: &Uri, pool: Arc<Pool>) -> Address {
        Address { path: uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/")), pool }
    }

    /// Another URL of the same origin, over the connections that there are.
    pub fn beside(&self, uri: &Uri) -> Address {
        Address::new(uri, self.pool.clone())
    }

    /// The header `Host` of its requests. Headers that have it already are not made larger for each request.
    pub fn host(&self) -> &HeaderValue {
        self.pool.origin().host()
    }

    #[cfg(test)]
    pub fn url(&self) -> Uri {
        self.pool.origin().url(&self.path)
    }

    async fn send(&self, method: Method, (headers, more): Head<'_>, body: &Wire) -> Result<Response<Body>, SendError> {
        let mut request = Request::new(WireBody::from(body.clone()));
        *request.method_mut() = method;
        // In origin-form (RFC 9112, 3.2.1).
        *request.uri_mut() = Uri::from(self.path.clone());
        *request.headers_mut() = headers.clone();
        if let Some((name, value)) = more {
            request.headers_mut().insert(name, value.clone());
        }
        request.headers_mut().entry(HOST).or_insert_with(|| self.host().clone());
        self.pool.request(request).await
    }
}

impl fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpClient").field("origins", &self.origins.len()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Address").field("pool", &self.pool).finish_non_exhaustive()
    }
}

fn is_redirect(response: &Response<Body>) -> bool {
    response.status().is_redirection() && response.status() != StatusCode::NOT_MODIFIED
}

/// Goes where the redirects of `response` lead.
async fn follow(
    method: Method,
    from: &Address,
    mut response: Response<Body>,
    head: Head<'_>,
    body: &Wire,
) -> Result<Response<Body>, SendError> {
    let mut uri = from.pool.origin().url(&from.path);
    for _ in 0..MAX_REDIRECTS {
        uri = redirect(&uri, &response)?;
        // Of the same origin, or it would have been refused.
        response = from.beside(&uri).send(method.clone(), head, body).await?;
        if !is_redirect(&response) {
            return Ok(response);
        }
    }
    Err(SendError::NotSent(format!("it redirected more than {MAX_REDIRECTS} times")))
}

impl Default for HttpClient {
    fn default() -> Self {
        Self::new()
    }
}

/// Where a redirect leads, if it may be followed: 307 and 308 keep method and body, and the origin must stay the same, because the
/// backend's credentials go along.
fn redirect(from: &Uri, response: &Response<Body>) -> Result<Uri, SendError> {
    let status = response.status().as_u16();
    if !matches!(status, 307 | 308) {
        return Err(SendError::NotSent(format!(
            "it answered with a redirect (HTTP status {status}) that would change the request; configure the final URL"
        )));
    }
    let location = response.headers().get(LOCATION).and_then(|l| l.to_str().ok()).and_then(|l| resolve(from, l));
    match location {
        Some(to) if same_origin(from, &to) => Ok(to),
        Some(_) => Err(SendError::NotSent("it redirects to another origin, which is not followed; configure the final URL".into())),
        None => Err(SendError::NotSent("it redirects to a location that is not a URL".into())),
    }
}

/// A URL reference, as `Location` and the `endpoint` event of HTTP+SSE have it, resolved against `base`.
pub fn resolve(base: &Uri, reference: &str) -> Option<Uri> {
    let reference = reference.split('#').next()?.trim();
    let scheme = base.scheme_str()?;
    let authority = base.authority()?;
    let head = reference.split(['/', '?']).next()?;
    let text = if head.contains(':') {
        reference.to_owned()
    } else if reference.starts_with("//") {
        format!("{scheme}:{reference}")
    } else if reference.starts_with('/') {
        format!("{scheme}://{authority}{reference}")
    } else if reference.starts_with('?') {
        format!("{scheme}://{authority}{}{reference}", base.path())
    } else {
        let folder = &base.path()[..=base.path().rfind('/').unwrap_or(0)];
        let folder = if folder.is_empty() { "/" } else { folder };
        format!("{scheme}://{authority}{folder}{}", reference.strip_prefix("./").unwrap_or(reference))
    };
    let uri: Uri = text.parse().ok()?;
    (matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some()).then_some(uri)
}

pub fn same_origin(a: &Uri, b: &Uri) -> bool {
    fn port(uri: &Uri) -> Option<u16> {
        uri.port_u16().or(match uri.scheme_str() {
            Some("http") => Some(80),
            Some("https") => Some(443),
            _ => None,
        })
    }
    let host = |uri: &Uri| uri.host().map(str::to_ascii_lowercase);
    a.scheme_str() == b.scheme_str() && host(a) == host(b) && port(a) == port(b)
}

/// The innermost cause: the layers above it repeat themselves.
pub fn root(error: &(dyn Error + 'static)) -> String {
    let mut at = error;
    loop {
        if let Some(io) = at.downcast_ref::<std::io::Error>() {
            match io.kind() {
                std::io::ErrorKind::ConnectionRefused => return "connection refused".into(),
                std::io::ErrorKind::ConnectionReset => return "the connection was reset".into(),
                std::io::ErrorKind::TimedOut => return "the connection timed out".into(),
                _ => {}
            }
        }
        if at.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_incomplete_message) {
            return "the connection was closed before an answer".into();
        }
        match at.source() {
            Some(inner) => at = inner,
            None => return at.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_resolved_and_origins_compared() {
        let base: Uri = "http://Host:8080/a/sse?x=1".parse().unwrap();
        for (reference, want) in [
            ("/m?s=1", "http://Host:8080/m?s=1"),
            ("m", "http://Host:8080/a/m"),
            ("./m?u=http://x/", "http://Host:8080/a/m?u=http://x/"),
            ("?s=2", "http://Host:8080/a/sse?s=2"),
            ("//other/m", "http://other/m"),
            ("https://h/m", "https://h/m"),
        ] {
            assert_eq!(resolve(&base, reference).map(|u| u.to_string()).as_deref(), Some(want), "{reference}");
        }
        assert!(resolve(&base, "ftp://h/m").is_none());
        let uri = |t: &str| t.parse::<Uri>().unwrap();
        assert!(same_origin(&uri("http://h/a"), &uri("http://H:80/b")));
        assert!(!same_origin(&uri("http://h/a"), &uri("https://h/a")));
        assert!(!same_origin(&uri("http://h:1/a"), &uri("http://h:2/a")));
    }
}

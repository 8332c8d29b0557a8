//! The HTTP/1.1 client of the process: one pool for all backends and sessions.
//!
//! Repeats a request only where the pooled connection had gone before a byte of it was written. Follows redirects within one
//! origin and never leaves it. Knows nothing of MCP.

use super::body::WireBody;
use crate::protocol::Wire;
use http::header::LOCATION;
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use hyper::body::Incoming as Body;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use std::error::Error;
use std::time::Duration;

/// Redirects that are followed for one request.
const MAX_REDIRECTS: usize = 3;
/// Servers commonly close an idle connection after 5 s. A request that meets the close is lost and may not be repeated, so
/// connections are given up a little earlier.
const IDLE: Duration = Duration::from_secs(4);
/// Bytes that are read of a connection before somebody wants them, and the largest head of a response. What is read ahead is held for
/// nobody's account, and there is a connection for each call in flight.
const READ_AHEAD: usize = 64 * 1024;
const CONNECT: Duration = Duration::from_secs(5);
/// A peer that vanished without a word is noticed on a quiet stream.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// A handle of the client; cheap to clone.
#[derive(Clone, Debug)]
pub struct HttpClient {
    client: Client<HttpsConnector<HttpConnector>, WireBody>,
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
        let connector = builder.https_or_http().enable_http1().wrap_connector(tcp);
        let client = Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .http1_max_buf_size(READ_AHEAD)
            .build(connector);
        HttpClient { client }
    }

    /// Sends a request and waits for the head of the response. Dropping the future, or the body of the response before its end,
    /// closes the connection.
    pub async fn send(&self, method: Method, uri: &Uri, headers: &HeaderMap, body: &Wire) -> Result<Response<Body>, SendError> {
        let mut target = uri.clone();
        for _ in 0..=MAX_REDIRECTS {
            let mut request = Request::new(WireBody::from(body.clone()));
            *request.method_mut() = method.clone();
            *request.uri_mut() = target.clone();
            *request.headers_mut() = headers.clone();
            let response = self.client.request(request).await.map_err(classify)?;
            if !response.status().is_redirection() || response.status() == StatusCode::NOT_MODIFIED {
                return Ok(response);
            }
            target = redirect(&target, &response)?;
        }
        Err(SendError::NotSent(format!("it redirected more than {MAX_REDIRECTS} times")))
    }
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

fn classify(error: hyper_util::client::legacy::Error) -> SendError {
    let connect = error.is_connect();
    let reason = root(&error);
    if connect { SendError::NotSent(reason) } else { SendError::Lost(reason) }
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

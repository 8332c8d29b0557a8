//! `Host` and `Origin`: who may have made a browser send this request (2025-11-25 transports, "Security Warning"), and the CORS headers
//! that let pages of an allowed origin read the answer.

use super::body::Body;
use super::refused::Refused;
use super::respond::Response;
use crate::config::HttpConfig;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

/// Headers of answers that a page may read besides the few that it always may.
const EXPOSED: HeaderValue = HeaderValue::from_static("Mcp-Session-Id, MCP-Protocol-Version, WWW-Authenticate, Retry-After");
/// How long a browser remembers a preflight, in seconds: the two hours that are the most some browsers take.
const MAX_AGE: HeaderValue = HeaderValue::from_static("7200");
const METHODS: HeaderValue = HeaderValue::from_static("GET, POST, DELETE, OPTIONS");
/// For a preflight that names no headers.
const HEADERS: HeaderValue = HeaderValue::from_static(
    "Accept, Authorization, Content-Type, Last-Event-ID, Mcp-Session-Id, MCP-Protocol-Version, Mcp-Method, Mcp-Name",
);

/// The origin of the page that sent a request, which is allowed to read the answer; none where the request comes from no page.
pub struct Page(Option<HeaderValue>);

/// Checks `Host` and `Origin` against the allow-lists.
pub fn check(http: &HttpConfig, head: &Parts) -> Result<Page, Refused> {
    check_host(head, |host| http.allows_host(host))?;
    let mut origins = head.headers.get_all(header::ORIGIN).iter();
    match (origins.next(), origins.next()) {
        (None, _) => Ok(Page(None)),
        (Some(origin), None) if origin.to_str().is_ok_and(|o| http.allows_origin(o)) => Ok(Page(Some(origin.clone()))),
        _ => Err(Refused::Origin),
    }
}

/// Checks that a request names one host, and that `allowed` holds for it.
pub fn check_host(head: &Parts, allowed: impl Fn(&str) -> bool) -> Result<(), Refused> {
    let mut hosts = head.headers.get_all(header::HOST).iter();
    // A target in absolute form goes before the header (RFC 9112, 3.2.2), but a page controls neither: both have to fit.
    let target = head.uri.authority().map(http::uri::Authority::as_str);
    match (hosts.next(), hosts.next()) {
        (Some(host), None) => {
            let named = host.to_str().is_ok_and(&allowed);
            if named && target.is_none_or(&allowed) { Ok(()) } else { Err(Refused::Host) }
        }
        _ => Err(Refused::NoHost),
    }
}

impl Page {
    /// The answer to a preflight (Fetch standard, "CORS-preflight fetch"), where the request is one. It asks nobody for a token: browsers send none.
    pub fn preflight(&self, head: &Parts) -> Option<Response> {
        self.0.as_ref()?;
        head.headers.get(header::ACCESS_CONTROL_REQUEST_METHOD)?;
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        let headers = response.headers_mut();
        let wanted = head.headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS).filter(|v| is_name_list(v));
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, wanted.cloned().unwrap_or(HEADERS));
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, METHODS);
        headers.insert(header::ACCESS_CONTROL_MAX_AGE, MAX_AGE);
        headers.insert(header::VARY, HeaderValue::from_static("Access-Control-Request-Headers"));
        Some(response)
    }

    /// Lets the page read the answer.
    pub fn open(&self, headers: &mut HeaderMap) {
        let Some(origin) = &self.0 else { return };
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
        headers.append(header::VARY, HeaderValue::from_static("Origin"));
    }
}

/// Whether a value holds header names and nothing that could mean something else in an answer.
fn is_name_list(value: &HeaderValue) -> bool {
    value.len() <= 1024 && value.to_str().is_ok_and(|text| text.split(',').all(|name| HeaderName::try_from(name.trim()).is_ok()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn head(headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder().method("OPTIONS").uri("/mcp");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn a_request_names_one_allowed_host_and_comes_from_no_page_or_an_allowed_one() {
        let http = HttpConfig::default();
        let mine = ("host", "127.0.0.1:8808");
        assert!(check(&http, &head(&[mine])).is_ok());
        assert!(check(&http, &head(&[mine, ("origin", "http://localhost:6274")])).is_ok());
        assert!(matches!(check(&http, &head(&[("host", "evil.example")])), Err(Refused::Host)));
        assert!(matches!(check(&http, &head(&[])), Err(Refused::NoHost)));
        assert!(matches!(check(&http, &head(&[mine, mine])), Err(Refused::NoHost)));
        for origin in ["http://evil.example", "null", "http://localhost.evil.example"] {
            assert!(matches!(check(&http, &head(&[mine, ("origin", origin)])), Err(Refused::Origin)), "{origin}");
        }
        assert!(matches!(
            check(&http, &head(&[mine, ("origin", "http://localhost"), ("origin", "http://evil.example")])),
            Err(Refused::Origin)
        ));
    }

    #[test]
    fn a_target_that_names_another_host_is_refused() {
        let request = Request::builder().uri("http://evil.example/mcp").header("host", "localhost").body(()).unwrap();
        assert!(matches!(check(&HttpConfig::default(), &request.into_parts().0), Err(Refused::Host)));
    }

    #[test]
    fn a_preflight_of_an_allowed_page_may_send_what_it_asks_for_and_read_the_session_id() {
        let head = head(&[
            ("host", "localhost"),
            ("origin", "http://localhost:5173"),
            ("access-control-request-method", "POST"),
            ("access-control-request-headers", "content-type,mcp-session-id, x-of-its-own"),
        ]);
        let page = check(&HttpConfig::default(), &head).ok().unwrap();
        let mut response = page.preflight(&head).unwrap();
        page.open(response.headers_mut());
        assert_eq!(response.status(), 204);
        let get = |name: &str| response.headers()[name].to_str().unwrap();
        assert_eq!(get("access-control-allow-origin"), "http://localhost:5173");
        assert_eq!(get("access-control-allow-headers"), "content-type,mcp-session-id, x-of-its-own");
        assert!(get("access-control-expose-headers").contains("Mcp-Session-Id"));
        assert_eq!(response.headers().get_all("vary").iter().count(), 2);
    }

    #[test]
    fn a_request_from_no_page_has_no_preflight() {
        let head = head(&[("host", "localhost"), ("access-control-request-method", "POST")]);
        assert!(check(&HttpConfig::default(), &head).ok().unwrap().preflight(&head).is_none());
    }
}

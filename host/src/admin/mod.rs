//! The admin port: liveness, readiness, metrics, sessions, and the policies that run.
//!
//! On a listener of its own, so that what clients do cannot keep an orchestrator from asking. Never shows the id of a session, a token or
//! what a policy is configured with. Called by `cli`.

mod policies;
mod query;
mod sessions;

use crate::config::{AdminToken, Config, HttpConfig};
use crate::front::{Handler, Peer, Refused, Response, answer, check_host};
use crate::policies::Control;
use crate::protocol::{RpcError, codes};
use crate::telemetry::metrics;
use bytes::Bytes;
use http::{HeaderValue, Method, Request, StatusCode, header};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Answers the requests of operators. Cheap to clone.
#[derive(Clone)]
pub struct Admin {
    policies: Arc<Control>,
    http: Arc<Hosts>,
    /// What must be shown to change something.
    token: Option<Arc<AdminToken>>,
    started: Arc<AtomicBool>,
}

/// Which `Host` may be named.
struct Hosts {
    configured: HttpConfig,
    loopback: bool,
}

impl Admin {
    /// `address`: where the admin port is bound.
    pub fn new(policies: Arc<Control>, config: &Config, address: SocketAddr) -> Self {
        let http = Hosts { configured: config.http.clone(), loopback: address.ip().is_loopback() };
        let token = config.admin_token.clone().map(Arc::new);
        Admin { policies, http: Arc::new(http), token, started: Arc::default() }
    }

    /// From now on `/readyz` answers for the gateway: every port is open.
    pub fn started(&self) {
        self.started.store(true, Ordering::Release);
    }

    async fn answer<B>(&self, head: &http::request::Parts, body: B) -> Result<Response, Refused>
    where
        B: http_body::Body<Data = Bytes> + Send,
    {
        // A page that rebinds a name to this machine must not read along. Elsewhere probes name the address of the moment.
        check_host(head, |host| !self.http.loopback || self.http.configured.allows_host(host) || HttpConfig::default().allows_host(host))?;
        let path = head.uri.path();
        let posted = if path == "/reload" { Some(None) } else { path.strip_prefix("/policies/").filter(|name| !name.is_empty()).map(Some) };
        let read = matches!(head.method, Method::GET | Method::HEAD);
        let gateway = self.policies.gateway();
        if let Some(response) = self.sessions(gateway, head, path).await {
            return Ok(response);
        }
        Ok(match (path, posted) {
            (_, Some(policy)) if head.method == Method::POST => self.change(head, body, policy).await,
            ("/policies/explain", _) if read => self.explain(head).await,
            (_, Some(_)) => not_allowed("POST"),
            _ if !read && is_known(path) => not_allowed("GET, HEAD"),
            ("/livez", _) => text(StatusCode::OK, "live\n"),
            ("/readyz", _) if !self.started.load(Ordering::Acquire) => text(StatusCode::SERVICE_UNAVAILABLE, "starting\n"),
            ("/readyz", _) if !gateway.ready() => text(StatusCode::SERVICE_UNAVAILABLE, "stopping\n"),
            ("/readyz", _) => text(StatusCode::OK, "ready\n"),
            ("/metrics", _) => {
                let mut response = text(StatusCode::OK, gateway.metrics().encode());
                response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(metrics::CONTENT_TYPE));
                response
            }
            ("/policies", _) => policies::json(StatusCode::OK, &self.policies.status()),
            _ => not(
                StatusCode::NOT_FOUND,
                "the admin port has /livez, /readyz, /metrics, /sessions, /policies, /policies/explain, and takes POST for /policies/NAME and /reload",
            ),
        })
    }
}

fn is_known(path: &str) -> bool {
    matches!(path, "/livez" | "/readyz" | "/metrics" | "/policies")
}

impl Handler for Admin {
    async fn handle<B>(&self, request: Request<B>, _peer: &Peer) -> Response
    where
        B: http_body::Body<Data = Bytes> + Send,
    {
        let (head, body) = request.into_parts();
        let mut response = self.answer(&head, body).await.unwrap_or_else(answer::refused);
        response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }
}

fn text(status: StatusCode, text: impl Into<Bytes>) -> Response {
    let mut response = answer::json(status, text.into().into());
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

fn not(status: StatusCode, why: &str) -> Response {
    answer::json(status, RpcError::new(codes::INVALID_REQUEST, why).to_message(None))
}

fn not_allowed(methods: &'static str) -> Response {
    let mut response = not(StatusCode::METHOD_NOT_ALLOWED, &format!("here the admin port has {methods}"));
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(methods));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::front::tests::Site;
    use crate::policies::Plane;
    use http_body_util::{BodyExt, Empty};
    use std::time::Duration;

    fn admin(site: &Site, yaml: &str, address: [u8; 4]) -> Admin {
        let yaml = format!("backends: {{ unused: {{ url: http://127.0.0.1:9/mcp }} }}\npolicy: {{ cache: off }}\n{yaml}\n");
        let config = crate::config::load_text("test", &yaml).unwrap_or_else(|problems| panic!("{problems}")).config;
        let plane = Plane::load(&config).unwrap_or_else(|problems| panic!("{problems}"));
        let control = Control::new(plane, site.gateway.clone(), Arc::new(config), None);
        Admin::new(control.clone(), control.config(), (address, 8809).into())
    }

    async fn get(admin: &Admin, host: &str, method: &str, path: &str) -> (u16, String) {
        let request = Request::builder().method(method).uri(path).header("host", host).body(Empty::<Bytes>::new()).unwrap();
        let response = admin.handle(request, &Peer { address: ([127, 0, 0, 1], 1).into(), own: Arc::default() }).await;
        let status = response.status().as_u16();
        (status, String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap())
    }

    #[tokio::test]
    async fn readiness_begins_with_the_ports_and_ends_with_the_shutdown() {
        let site = Site::open("").await;
        let admin = admin(&site, "", [127, 0, 0, 1]);
        assert_eq!(get(&admin, "localhost", "GET", "/readyz").await, (503, "starting\n".into()));
        assert_eq!(get(&admin, "localhost", "GET", "/livez").await, (200, "live\n".into()));
        admin.started();
        assert_eq!(get(&admin, "localhost", "HEAD", "/readyz").await.0, 200);
        site.gateway.shutdown(Duration::from_millis(10)).await;
        assert_eq!(get(&admin, "localhost", "GET", "/readyz").await, (503, "stopping\n".into()));
        assert_eq!(get(&admin, "localhost", "GET", "/livez").await.0, 200);
    }

    #[tokio::test]
    async fn metrics_are_text_and_nothing_else_is_there() {
        let site = Site::open("").await;
        let admin = admin(&site, "", [127, 0, 0, 1]);
        let (status, text) = get(&admin, "localhost:8809", "GET", "/metrics").await;
        assert!(status == 200 && text.contains("lockgate_isolation_signals_total{signal=\"header_absent\"} 0"), "{text}");
        assert_eq!(get(&admin, "localhost", "GET", "/").await.0, 404);
        assert_eq!(get(&admin, "localhost", "POST", "/metrics").await.0, 405);
    }

    #[tokio::test]
    async fn on_loopback_a_foreign_name_is_refused_and_elsewhere_any_is_taken() {
        let site = Site::open("").await;
        let on = |address: [u8; 4]| admin(&site, "", address);
        assert_eq!(get(&on([127, 0, 0, 1]), "evil.example", "GET", "/metrics").await.0, 403);
        assert_eq!(get(&on([0, 0, 0, 0]), "10.1.2.3:8809", "GET", "/metrics").await.0, 200);
    }
}

//! Policies at the admin port: swapped, reloaded, explained.
//!
//! What changes something is asked for by no web page (no `Origin`, no form), and by who shows the token, or is on this machine where
//! there is none. Whatever is wrong is answered as JSON: `{"error": …}`, and what goes on running as `kept`.

use super::{Admin, query};
use crate::front::{Response, answer, request};
use crate::policies::{Failure, FailureKind, Push};
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use lockgate_policy::Kind;
use serde::Serialize;
use serde_json::json;

/// What a web page can send to anywhere without asking.
const FORMS: [&str; 3] = ["application/x-www-form-urlencoded", "multipart/form-data", "text/plain"];

/// Why a request is not even looked at.
pub(super) struct Denied(pub(super) StatusCode, pub(super) &'static str);

impl Admin {
    /// `POST /policies/NAME` and `POST /reload` (`policy`: none).
    pub(super) async fn change<B>(&self, head: &Parts, body: B, policy: Option<&str>) -> Response
    where
        B: http_body::Body<Data = Bytes> + Send,
    {
        let limit = if policy.is_some() { self.policies.largest_component() } else { 0 };
        if let Err(Denied(status, why)) = self.may_change(&head.headers) {
            if !head.headers.contains_key(header::EXPECT) {
                request::discard(std::pin::pin!(body), limit).await;
            }
            return error(status, why);
        }
        let component = match request::read(body, &head.headers, limit, request::PACE).await {
            Ok(component) => component,
            Err(crate::front::Refused::BodyTooLarge { limit }) if policy.is_some() => {
                let why = format!(
                    "the component is larger than {limit} bytes, which is the largest that a policy here may have (limits.component)"
                );
                return error(StatusCode::PAYLOAD_TOO_LARGE, &why);
            }
            Err(refused) => return answer::refused(refused),
        };
        let Some(policy) = policy else {
            return match self.policies.reload().await {
                Ok(reloaded) => json(StatusCode::OK, &reloaded),
                Err(failure) => failed(&failure),
            };
        };
        let push = match push(head, policy, component) {
            Ok(push) => push,
            Err(why) => return error(StatusCode::BAD_REQUEST, &why),
        };
        match self.policies.push(push).await {
            Ok(swapped) => json(StatusCode::OK, &json!({ "swapped": swapped })),
            Err(failure) => failed(&failure),
        }
    }

    /// `GET /policies/explain`.
    pub(super) async fn explain(&self, head: &Parts) -> Response {
        // It runs policies, and tells what they think of a principal.
        if !self.http.loopback
            && let Err(Denied(status, why)) = self.may(&head.headers)
        {
            return error(status, why);
        }
        let need = |name: &str| match query::parameter(head.uri.query(), name) {
            Ok(Some(value)) if !value.is_empty() => Ok(value),
            Ok(_) => Err(format!(
                "the parameter {name} is missing; ask for /policies/explain?virtual_host=/mcp&principal=NAME&kind=tool&name=NAME"
            )),
            Err(why) => Err(why),
        };
        let asked = || Ok::<_, String>((need("virtual_host")?, need("principal")?, need("kind")?, need("name")?));
        let (virtual_host, principal, kind, name) = match asked() {
            Ok(asked) => asked,
            Err(why) => return error(StatusCode::BAD_REQUEST, &why),
        };
        let kind = match kind.as_str() {
            "tool" => Kind::Tool,
            "prompt" => Kind::Prompt,
            "resource" => Kind::Resource,
            "resource-template" => Kind::ResourceTemplate,
            _ => return error(StatusCode::BAD_REQUEST, "the parameter kind is one of tool, prompt, resource, resource-template"),
        };
        let gateway = self.policies.gateway();
        let Some(host) = gateway.virtual_host(&virtual_host) else {
            return error(StatusCode::NOT_FOUND, &format!("there is no virtual host {virtual_host}"));
        };
        match gateway.explain(host, &principal, kind, &name).await {
            Ok(explained) => json(StatusCode::OK, &explained),
            Err(why) => error(StatusCode::INTERNAL_SERVER_ERROR, &why.message),
        }
    }

    pub(super) fn may_change(&self, headers: &HeaderMap) -> Result<(), Denied> {
        if headers.contains_key(header::ORIGIN) {
            return Err(Denied(StatusCode::FORBIDDEN, "web pages change nothing here: the request has an Origin header"));
        }
        self.may(headers)?;
        let mut types = headers.get_all(header::CONTENT_TYPE).iter();
        let form = |value: &HeaderValue| {
            value.to_str().is_ok_and(|v| FORMS.contains(&crate::protocol::headers::media_type(v).to_ascii_lowercase().as_str()))
        };
        if types.any(form) {
            return Err(Denied(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "no form is taken here: send a component with `Content-Type: application/wasm`, and a request without a body without one",
            ));
        }
        Ok(())
    }

    /// Whether the request shows the token, or comes to a port that needs none.
    pub(super) fn may(&self, headers: &HeaderMap) -> Result<(), Denied> {
        let Some(token) = &self.token else {
            return if self.http.loopback {
                Ok(())
            } else {
                Err(Denied(
                    StatusCode::FORBIDDEN,
                    "the admin port is not on loopback, so this needs a token: set `admin_token` in the configuration",
                ))
            };
        };
        let mut values = headers.get_all(header::AUTHORIZATION).iter();
        let shown = values.next().and_then(|value| request::bearer(value.as_bytes())).filter(|_| values.next().is_none());
        if shown.is_some_and(|shown| token.is(shown)) {
            return Ok(());
        }
        Err(Denied(StatusCode::UNAUTHORIZED, "this needs `Authorization: Bearer …` with the `admin_token` of the configuration"))
    }
}

fn push(head: &Parts, policy: &str, component: Bytes) -> Result<Push, String> {
    let policy = query::decode(policy).ok_or("the name of the policy is not percent-encoded UTF-8")?;
    let sha256 = query::parameter(head.uri.query(), "sha256")?;
    if sha256.as_ref().is_some_and(|hex| hex.len() != 64 || !hex.bytes().all(|b| b.is_ascii_hexdigit())) {
        return Err("the parameter sha256 has 64 hexadecimal digits".into());
    }
    Ok(Push { policy, virtual_host: query::parameter(head.uri.query(), "virtual_host")?, sha256, component })
}

fn failed(failure: &Failure) -> Response {
    let status = match failure.kind {
        FailureKind::Unknown => StatusCode::NOT_FOUND,
        FailureKind::Refused => StatusCode::UNPROCESSABLE_ENTITY,
        FailureKind::Busy => StatusCode::SERVICE_UNAVAILABLE,
        FailureKind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let mut response = json(status, failure);
    if failure.kind == FailureKind::Busy {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

pub(super) fn error(status: StatusCode, why: &str) -> Response {
    let mut response = json(status, &json!({ "error": why }));
    let headers = response.headers_mut();
    match status {
        StatusCode::UNAUTHORIZED => {
            _ = headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(r#"Bearer realm="lockgate admin""#))
        }
        // What was not read of the body would be taken for the next request.
        StatusCode::PAYLOAD_TOO_LARGE => _ = headers.insert(header::CONNECTION, HeaderValue::from_static("close")),
        _ => {}
    }
    response
}

/// A value as the whole answer, with a line's end for people.
pub(super) fn json(status: StatusCode, value: &impl Serialize) -> Response {
    // Plain data always serialises.
    let mut text = serde_json::to_vec(value).unwrap_or_default();
    text.push(b'\n');
    answer::json(status, Bytes::from(text).into())
}

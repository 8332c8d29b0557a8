//! Responses: the one place where refusals become HTTP and JSON-RPC.
//!
//! Texts say what is wrong, where, and what to do. They quote nothing of what was sent: no id of a session, no token, no header value.

use super::body::Body;
use super::refused::Refused;
use crate::admission::Permit;
use crate::gateway::Refusal;
use crate::protocol::{RequestId, RpcError, Version, Wire, codes, headers};
use crate::session::streams::{Frame, Reader};
use http::{HeaderValue, StatusCode, header};
use std::time::Duration;

pub type Response = http::Response<Body>;

/// The methods of the endpoint.
pub const ALLOW: HeaderValue = HeaderValue::from_static("GET, POST, DELETE, OPTIONS");

const JSON: HeaderValue = HeaderValue::from_static(headers::JSON);
const EVENT_STREAM: HeaderValue = HeaderValue::from_static(headers::EVENT_STREAM);

/// A message as the whole answer.
pub fn json(status: StatusCode, message: Wire) -> Response {
    owed(status, message, None)
}

/// As `json`, for a message that is owed to a session.
pub fn owed(status: StatusCode, message: Wire, permit: Option<Permit>) -> Response {
    let mut response = with(status, Body::whole(message, permit));
    response.headers_mut().insert(header::CONTENT_TYPE, JSON);
    response
}

/// The answer in `frame`, whole or as it comes. `reader`: of its stream.
pub fn answer(frame: Frame, reader: Reader) -> Response {
    let Some(rest) = frame.rest else { return owed(StatusCode::OK, frame.message, frame.permit) };
    let mut response = with(StatusCode::OK, Body::flow(rest, frame.permit, reader));
    response.headers_mut().insert(header::CONTENT_TYPE, JSON);
    response
}

/// A status that says everything.
pub fn empty(status: StatusCode) -> Response {
    with(status, Body::empty())
}

/// An event stream. The headers keep caches and proxies from holding it back.
pub fn events(body: Body) -> Response {
    let mut response = with(StatusCode::OK, body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, EVENT_STREAM);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    headers.insert(headers::ACCEL_BUFFERING, HeaderValue::from_static("no"));
    response
}

fn with(status: StatusCode, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response
}

/// A refusal as the client gets it.
pub fn refused(refused: Refused) -> Response {
    let told = Told::from(refused);
    let mut response = json(told.status, told.error.to_message(told.id.as_ref()));
    let headers = response.headers_mut();
    match told.status {
        StatusCode::METHOD_NOT_ALLOWED => {
            headers.insert(header::ALLOW, ALLOW);
        }
        StatusCode::UNAUTHORIZED => {
            let challenge = if told.bad_token { r#"Bearer realm="lockgate", error="invalid_token""# } else { r#"Bearer realm="lockgate""# };
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
        }
        // What was not read of the body would be taken for the next request.
        StatusCode::REQUEST_TIMEOUT | StatusCode::PAYLOAD_TOO_LARGE => {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        _ => {}
    }
    if let Some(wait) = told.retry_after {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(whole_seconds(wait)));
    }
    response
}

/// `Retry-After` has whole seconds; less than one would mean "at once".
fn whole_seconds(wait: Duration) -> u64 {
    wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0)).max(1)
}

struct Told {
    status: StatusCode,
    error: RpcError,
    id: Option<RequestId>,
    retry_after: Option<Duration>,
    bad_token: bool,
}

impl Told {
    fn new(status: StatusCode, code: i64, text: impl Into<String>) -> Self {
        Told { status, error: RpcError::new(code, text), id: None, retry_after: None, bad_token: false }
    }

    fn to(mut self, id: Option<RequestId>) -> Self {
        self.id = id;
        self
    }

    fn data(mut self, data: serde_json::Value) -> Self {
        self.error = self.error.with_data(data);
        self
    }
}

impl From<Refused> for Told {
    fn from(refused: Refused) -> Self {
        use StatusCode as S;
        match refused {
            Refused::Path => Told::new(S::NOT_FOUND, codes::REFUSED, "no MCP endpoint at this path; the paths are those of `virtual_hosts` in the configuration, or /mcp where there are none"),
            Refused::NoHost => Told::new(S::BAD_REQUEST, codes::REFUSED, "the request must carry exactly one Host header (RFC 9112, section 3.2)"),
            Refused::Host => Told::new(S::FORBIDDEN, codes::REFUSED, "the Host header names a host that is not allowed; `http.allowed_hosts` in the configuration allows another"),
            Refused::Origin => {
                Told::new(S::FORBIDDEN, codes::REFUSED, "the Origin header names a web origin that is not allowed; `http.allowed_origins` in the configuration allows another")
            }
            Refused::Method => Told::new(S::METHOD_NOT_ALLOWED, codes::INVALID_REQUEST, "an MCP endpoint has POST (messages), GET (the server's stream) and DELETE (end of the session)"),
            Refused::MethodOfSessions => {
                Told::new(S::METHOD_NOT_ALLOWED, codes::INVALID_REQUEST, "GET and DELETE belong to sessions, which the revision in MCP-Protocol-Version does not have")
            }
            Refused::NoToken => Told::new(S::UNAUTHORIZED, codes::REFUSED, "a token is needed: send `Authorization: Bearer …` with each request (a token in the URL is never accepted)"),
            Refused::BadToken => Told {
                bad_token: true,
                ..Told::new(S::UNAUTHORIZED, codes::REFUSED, "the Authorization header holds no token that is known here; send one `Authorization: Bearer …`, as listed in `auth.tokens` of the configuration")
            },
            Refused::NotAcceptable { wanted } => Told::new(S::NOT_ACCEPTABLE, codes::INVALID_REQUEST, format!("the answer is {wanted}, which the Accept header rules out")),
            Refused::ContentType => Told::new(S::UNSUPPORTED_MEDIA_TYPE, codes::INVALID_REQUEST, "a POST carries one JSON-RPC message with `Content-Type: application/json`"),
            Refused::ContentEncoding => Told::new(S::UNSUPPORTED_MEDIA_TYPE, codes::INVALID_REQUEST, "compressed requests are not accepted; leave Content-Encoding out"),
            Refused::BodyTooLarge { limit } => {
                Told::new(S::PAYLOAD_TOO_LARGE, codes::INVALID_REQUEST, format!("the body is larger than {limit} bytes; `limits.request_body` in the configuration allows more"))
            }
            Refused::BodySlow(pace) => Told::new(
                S::REQUEST_TIMEOUT,
                codes::INVALID_REQUEST,
                format!("the body did not come in time: it may pause for {} s and take {} s in all", pace.silence.as_secs(), pace.whole.as_secs()),
            ),
            Refused::BodyCut => Told::new(S::BAD_REQUEST, codes::INVALID_REQUEST, "the body ended before its length; nothing was run"),
            Refused::Parse(error) => Told::new(S::BAD_REQUEST, error.code, error.why).to(error.id),
            Refused::Batch => {
                Told::new(S::BAD_REQUEST, codes::INVALID_REQUEST, format!("a POST carries one message, not an array: batches exist only in sessions of {}; nothing was run", Version::V2025_03_26))
            }
            Refused::BatchEmpty => Told::new(S::BAD_REQUEST, codes::INVALID_REQUEST, "a batch has at least one message"),
            Refused::BatchTooLong { limit } => Told::new(S::BAD_REQUEST, codes::INVALID_REQUEST, format!("a batch has at most {limit} messages; nothing was run")),
            Refused::BatchElement { at, error } => Told::new(S::BAD_REQUEST, error.code, format!("message {at} of the batch: {}; nothing was run", error.why)).to(error.id),
            Refused::BatchInitialize => Told::new(S::BAD_REQUEST, codes::INVALID_REQUEST, "`initialize` must not be part of a batch; nothing was run"),
            Refused::NoSession(id) => {
                Told::new(S::BAD_REQUEST, codes::NO_SESSION, "the Mcp-Session-Id header is missing: send the one that came with the answer to `initialize`").to(id)
            }
            Refused::MalformedSession(id) => Told::new(S::BAD_REQUEST, codes::NO_SESSION, "the Mcp-Session-Id header must be one value of 1 to 512 visible ASCII characters").to(id),
            Refused::UnknownSession(id) => Told::new(S::NOT_FOUND, codes::NO_SESSION, "there is no such session (any more): begin a new one with `initialize`").to(id),
            Refused::Revision(id) => {
                let served = Version::ALL.map(Version::as_str);
                Told::new(S::BAD_REQUEST, codes::INVALID_REQUEST, format!("MCP-Protocol-Version names a revision that no session here speaks; sessions speak {}", served.join(", ")))
                    .data(serde_json::json!({ "supported": served }))
                    .to(id)
            }
            Refused::Fault { fault, id } => Told { status: fault.status, error: fault.error, id: Some(id), bad_token: false, retry_after: None },
            Refused::ModernInitialize(id) => {
                Told::new(S::NOT_FOUND, codes::METHOD_NOT_FOUND, "`initialize` does not exist in the revision that the request names; where `params.protocolVersion` names an earlier one it does").to(Some(id))
            }
            Refused::ModernResponse => Told::new(
                S::BAD_REQUEST,
                codes::INVALID_REQUEST,
                "in the revision that the header names no request of a server waits for a response: answers go into `params.inputResponses` of the repeated request",
            ),
            Refused::EventId => {
                Told::new(S::BAD_REQUEST, codes::INVALID_REQUEST, "Last-Event-ID names no event that is still kept in this session: open a new stream without it, and repeat what was not answered")
            }
            Refused::Gateway { refusal, id } => {
                let Refusal { status, error, retry_after } = *refusal;
                Told { status, error, id, retry_after, bad_token: false }
            }
            Refused::Broken(id) => Told::new(S::INTERNAL_SERVER_ERROR, codes::INTERNAL_ERROR, "the gateway failed to see this request through; its log says more").to(id),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use http_body_util::BodyExt;

    async fn text(response: Response) -> String {
        String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
    }

    #[tokio::test]
    async fn a_refusal_is_a_json_rpc_error_with_the_id_of_its_request() {
        let id = RequestId::from_raw(Bytes::from_static(b"\"a\""));
        let response = refused(Refused::UnknownSession(id));
        assert_eq!(response.status(), 404);
        assert_eq!(response.headers()["content-type"], "application/json");
        let text = text(response).await;
        assert!(text.starts_with(r#"{"jsonrpc":"2.0","id":"a","error":{"code":-31008,"#), "{text}");
    }

    #[test]
    fn a_wait_is_told_in_whole_seconds_and_never_as_none() {
        assert_eq!(whole_seconds(Duration::ZERO), 1);
        assert_eq!(whole_seconds(Duration::from_millis(1200)), 2);
        let refusal = Refusal {
            status: StatusCode::TOO_MANY_REQUESTS,
            error: RpcError::new(codes::OVERLOADED, "full"),
            retry_after: Some(Duration::from_millis(100)),
        };
        assert_eq!(refused(Refused::Gateway { refusal: Box::new(refusal), id: None }).headers()["retry-after"], "1");
    }

    #[test]
    fn statuses_carry_the_header_that_goes_with_them() {
        assert_eq!(refused(Refused::Method).headers()["allow"], ALLOW);
        assert_eq!(refused(Refused::NoToken).headers()["www-authenticate"], r#"Bearer realm="lockgate""#);
        assert!(refused(Refused::BadToken).headers()["www-authenticate"].to_str().unwrap().contains("invalid_token"));
    }
}

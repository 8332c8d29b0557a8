//! The client of a gateway's admin port: one request, one JSON answer, within a bound and a deadline. Errors say what to do: that nothing
//! listens, that a token is missing, what the gateway refused and why. Called by `list`, `swap`, `explain` and `lockgate dev`.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::bail;
use bytes::Bytes;
use http::{HeaderValue, Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

/// Where to ask, and how to answer.
#[derive(Debug, Clone, clap::Args)]
pub struct AdminFlags {
    /// The gateway's admin port (`admin` in its configuration); if it wants a token, that is taken from LOCKGATE_ADMIN_TOKEN
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8809", value_parser = admin_url)]
    pub admin: Uri,

    /// Print the gateway's answer as JSON
    #[arg(long)]
    pub json: bool,
}

/// A gateway's admin port.
#[derive(Debug, Clone)]
pub struct AdminPort {
    http: Client<HttpConnector, Full<Bytes>>,
    url: Uri,
    token: Option<HeaderValue>,
}

/// What the gateway refused.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    pub status: StatusCode,
    /// In the gateway's words.
    pub message: String,
    /// The whole answer.
    pub answer: Value,
}

/// Where the token is taken from.
const TOKEN: &str = "LOCKGATE_ADMIN_TOKEN";

/// Compiling a large component takes a minute of CPU.
const SWAP_DEADLINE: Duration = Duration::from_secs(180);
const DEADLINE: Duration = Duration::from_secs(20);
const MOST_ANSWER: usize = 16 << 20;

impl AdminFlags {
    /// The port that they name, with the token of the environment.
    ///
    /// # Errors
    ///
    /// When the token cannot be sent in a header.
    pub fn port(&self) -> anyhow::Result<AdminPort> {
        AdminPort::new(self.admin.clone(), std::env::var(TOKEN).ok().as_deref())
    }
}

impl AdminPort {
    /// # Errors
    ///
    /// When the token cannot be sent in a header.
    pub fn new(url: Uri, token: Option<&str>) -> anyhow::Result<AdminPort> {
        let bearer = |token: &str| {
            let mut value = HeaderValue::try_from(format!("Bearer {token}"))?;
            value.set_sensitive(true);
            Ok::<_, http::header::InvalidHeaderValue>(value)
        };
        let token = token.filter(|t| !t.is_empty()).map(bearer).transpose();
        let token = token.map_err(|_| anyhow::anyhow!("{TOKEN} has characters that a header cannot have"))?;
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        Ok(AdminPort { http: Client::builder(TokioExecutor::new()).build(connector), url, token })
    }

    /// A question.
    ///
    /// # Errors
    ///
    /// When there is no answer, or the gateway refuses ([`Refusal`]).
    pub async fn get(&self, path: &str, query: &[(&str, &str)]) -> anyhow::Result<Value> {
        self.ask(Method::GET, path, query, Bytes::new(), DEADLINE).await
    }

    /// An order.
    ///
    /// # Errors
    ///
    /// When there is no answer, or the gateway refuses ([`Refusal`]).
    pub async fn post(&self, path: &str, query: &[(&str, &str)], body: Bytes) -> anyhow::Result<Value> {
        self.ask(Method::POST, path, query, body, SWAP_DEADLINE).await
    }

    async fn ask(&self, method: Method, path: &str, query: &[(&str, &str)], body: Bytes, deadline: Duration) -> anyhow::Result<Value> {
        let base = self.url.to_string();
        let mut url = format!("{}{path}", base.trim_end_matches('/'));
        for (i, (key, value)) in query.iter().enumerate() {
            // Writing to a String cannot fail.
            let _ = write!(url, "{}{key}={}", if i == 0 { '?' } else { '&' }, escaped(value));
        }
        let mut request = Request::builder().method(method).uri(url).header(header::CONTENT_TYPE, "application/wasm");
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, token);
        }
        let request = request.body(Full::new(body))?;
        let answer = async {
            let response = self.http.request(request).await.map_err(|e| match e.is_connect() {
                true => anyhow::anyhow!(
                    "nothing answers at {base}: is the gateway running, and is this its admin port (`admin` in its configuration, --admin here)?"
                ),
                false => anyhow::Error::new(e).context(format!(
                    "{base} broke off before it answered (it does that where more is sent than it takes: is the component larger than `limits.component` of the policy?)"
                )),
            })?;
            let (head, body) = response.into_parts();
            let body = Limited::new(body, MOST_ANSWER).collect().await;
            let body = body.map_err(|e| anyhow::anyhow!("the answer of {base} broke off: {e}"))?.to_bytes();
            Ok::<_, anyhow::Error>((head.status, body))
        };
        let (status, body) = match tokio::time::timeout(deadline, answer).await {
            Ok(answer) => answer?,
            Err(_) => bail!("{base} gave no answer within {} s", deadline.as_secs()),
        };
        let answer: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
        if status.is_success() {
            return if answer.is_null() {
                Err(anyhow::anyhow!("{base} is no admin port of Lockgate: its answer is not JSON"))
            } else {
                Ok(answer)
            };
        }
        let said = answer["error"].as_str().or(answer["error"]["message"].as_str()).or(answer["message"].as_str());
        let message = match (status, said) {
            (StatusCode::UNAUTHORIZED, _) if self.token.is_none() => format!("the gateway wants its admin token: set {TOKEN}"),
            (StatusCode::UNAUTHORIZED, _) => format!("the gateway does not take the token in {TOKEN}"),
            (_, Some(said)) => said.to_owned(),
            (_, None) => format!("{base} answered with HTTP status {}", status.as_u16()),
        };
        Err(Refusal { status, message, answer }.into())
    }
}

fn admin_url(text: &str) -> Result<Uri, String> {
    let full = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    match full.parse::<Uri>() {
        Ok(url) if url.scheme_str() == Some("http") && url.authority().is_some() && url.query().is_none() => Ok(url),
        _ => Err("write http://HOST:PORT".to_owned()),
    }
}

/// Percent-encoded, for a query.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for b in text.bytes() {
        if b.is_ascii_alphanumeric() || b"-._~/:".contains(&b) {
            out.push(char::from(b));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(out, "%{b:02X}");
        }
    }
    out
}

/// What a person may read of an answer's text: one line, whatever the other side wrote.
pub fn shown(value: &Value) -> String {
    match value.as_str() {
        Some(text) => text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect(),
        None => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_admin_url_may_be_short_and_must_be_plain_http() {
        assert_eq!(admin_url("127.0.0.1:8809").unwrap().to_string(), "http://127.0.0.1:8809/");
        assert!(admin_url("http://localhost:1").is_ok());
        for bad in ["https://x", "http://", "ftp://x", "a b"] {
            assert!(admin_url(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn names_of_any_kind_fit_into_a_query() {
        assert_eq!(escaped("file:///a b?c&d=ü"), "file:///a%20b%3Fc%26d%3D%C3%BC");
    }

    #[tokio::test]
    async fn where_nothing_listens_the_error_says_what_to_look_at() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let port = AdminPort::new(format!("http://{free}").parse().unwrap(), None).unwrap();
        let why = port.get("/policies", &[]).await.unwrap_err().to_string();
        assert!(why.contains("nothing answers at") && why.contains("`admin`"), "{why}");
    }

    #[test]
    fn a_token_is_never_shown() {
        let port = AdminPort::new("http://127.0.0.1:1".parse().unwrap(), Some("s3cret")).unwrap();
        assert!(!format!("{port:?}").contains("s3cret"));
        assert!(!AdminPort::new("http://127.0.0.1:1".parse().unwrap(), Some("s3\ncret")).unwrap_err().to_string().contains("cret"));
    }
}

//! A client of HTTP+SSE, the transport of 2024-11-05: one stream, and POSTs to the endpoint that it named.

use serde_json::{Value, json};

use crate::{
    client::{Endpoint, Events, Reply, initialize_body},
    raw,
    stall::Unread,
};

/// A session on its stream.
pub struct SseSession {
    pub events: Events,
    /// Where messages are posted.
    pub messages: Endpoint,
    pub init: Value,
}

impl SseSession {
    /// Opens the stream at `path` and initializes.
    pub async fn open(at: &Endpoint) -> Self {
        let (mut events, messages) = open(at).await;
        post(&messages, initialize_body("2024-11-05", &json!({}))).await.must_be(202).await;
        let init = events.message().await.expect("an answer").json();
        let session = Self { events, messages, init };
        assert_eq!(session.post(raw::notification("notifications/initialized", "{}")).await.status, 202);
        session
    }

    pub async fn post(&self, body: String) -> Reply {
        post(&self.messages, body).await
    }

    /// A request, and its answer on the stream.
    pub async fn ask(&mut self, id: &str, method: &str, params: &Value) -> Value {
        self.post(raw::request(id, method, &params.to_string())).await.must_be(202).await;
        self.answer(id).await
    }

    /// The answer to a request that was posted; what comes before it is dropped.
    pub async fn answer(&mut self, id: &str) -> Value {
        let wanted: Value = serde_json::from_str(id).expect("an id is JSON");
        loop {
            let message = self.events.message().await.expect("the stream goes on").json();
            if message.get("method").is_none() && message["id"] == wanted {
                return message;
            }
        }
    }
}

/// The stream and the endpoint that it names.
pub async fn open(at: &Endpoint) -> (Events, Endpoint) {
    let mut events = at.send("GET", &[("accept", "text/event-stream")], "").await.must_be(200).await.events();
    let first = events.next().await.expect("the first event");
    assert_eq!(first.event.as_deref(), Some("endpoint"));
    let messages = Endpoint { path: first.text().to_owned(), ..at.clone() };
    (events, messages)
}

/// A session whose stream is not read, once it has named its endpoint.
pub async fn open_unread(at: &Endpoint) -> (Unread, Endpoint) {
    let mut stream = Unread::send(at, "GET", &[], "").await;
    while !stream.seen().contains("session=") || !stream.seen().ends_with("\n\n\r\n") {
        assert!(stream.sip(1024).await > 0, "closed before it named its endpoint: {}", stream.seen());
    }
    let path = stream.seen().lines().find_map(|line| line.strip_prefix("data: ")).expect("an endpoint").to_owned();
    let messages = Endpoint { path, ..at.clone() };
    post(&messages, initialize_body("2024-11-05", &json!({}))).await.must_be(202).await;
    (stream, messages)
}

/// As clients of that revision do it: the answer is not what they ask the POST for.
pub async fn post(messages: &Endpoint, body: String) -> Reply {
    messages.send("POST", &[("content-type", "application/json")], body).await
}

//! The form of answers: JSON or events, for one request and for batches.

use super::*;
use crate::front::accept::Accepts;
use crate::front::{Response, batch, reply};
use crate::gateway::{Reply as Answer, Work};
use crate::protocol::{Request, Wire};
use crate::session::Session;
use crate::session::streams::{Reader, Rule};
use http_body_util::BodyExt;

const BOTH: Accepts = Accepts { json: true, events: true };
const JSON: Accepts = Accepts { json: true, events: false };

const LIST: &str = r#"{"jsonrpc":"2.0","id":"l","method":"tools/list"}"#;

fn wire(text: &str) -> Wire {
    Wire::from(text.to_owned())
}

/// The reply to a request whose work is done already.
fn streamed(session: &Arc<Session>, reader: Reader) -> Answer {
    let request = Arc::new(Request::own("x", "{}"));
    let work = Work::new((session.tasks(), &session.streams), request, reader.stream(), async {});
    Answer::Stream(reader, Arc::default(), work)
}

async fn text(response: Response) -> String {
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

#[tokio::test]
async fn an_answer_that_nothing_precedes_is_json_and_events_for_those_who_read_nothing_else() {
    let mut site = Site::open("").await;
    site.initialize("2025-11-25").await;
    let reply = site.client.post(LIST).await;
    assert_eq!(reply.header("content-type"), Some("application/json"));
    assert_eq!(reply.header("content-length"), Some(reply.body.len().to_string().as_str()));
    let reply = site.client.send("POST", &[("Accept", "text/event-stream")], LIST).await;
    assert!(reply.events().len() == 1 && reply.events()[0].contains(r#""id":"l""#), "{reply:?}");
    let reply = site.client.send("POST", &[("Accept", "text/event-stream")], &initialize("2025-11-25")).await;
    assert!(reply.header("mcp-session-id").is_some() && reply.events().len() == 1, "{reply:?}");
}

#[tokio::test]
async fn what_precedes_the_answer_makes_it_a_stream_that_can_be_resumed_from_its_start() {
    let mut site = Site::open("").await;
    site.initialize("2025-11-25").await;
    let session = site.session();
    let reader = session.streams.open();
    let id = reader.stream();
    session.streams.note(id, wire("{\"a\":1}"), Rule::Drop).await;
    session.streams.answer(id, wire("{\"b\":2}"), None, None);
    let response = reply::to_response(&site.front, &session, BOTH, true, streamed(&session, reader)).await;
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    assert_eq!(
        text(response).await,
        format!("id: {id}-0\nretry: 1000\ndata: \n\nid: {id}-1\ndata: {{\"a\":1}}\n\nid: {id}-2\ndata: {{\"b\":2}}\n\n")
    );
    let mut again = session.streams.resume(crate::session::streams::EventId { stream: id, sequence: 0 }).unwrap();
    assert_eq!(again.next().await.unwrap().message, wire("{\"a\":1}"));
}

#[tokio::test]
async fn an_answer_that_takes_its_time_begins_as_a_stream() {
    let mut site = Site::open("").await;
    site.initialize("2025-11-25").await;
    let session = site.session();
    let reader = session.streams.open();
    let id = reader.stream();
    let response = reply::to_response(&site.front, &session, BOTH, true, streamed(&session, reader)).await;
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    assert_eq!(site.gateway.metrics().streams_open.get(), 1);
    session.streams.answer(id, wire("{}"), None, None);
    assert!(text(response).await.ends_with("data: {}\n\n"));
    assert_eq!(site.gateway.metrics().streams_open.get(), 0);
}

#[tokio::test]
async fn a_client_of_json_alone_gets_the_answer_and_the_server_is_not_left_waiting() {
    let mut site = Site::open("").await;
    site.initialize("2025-11-25").await;
    let session = site.session();
    let reader = session.streams.open();
    let id = reader.stream();
    session.streams.note(id, wire(r#"{"jsonrpc":"2.0","method":"notifications/progress"}"#), Rule::Drop).await;
    session.streams.note(id, wire(r#"{"jsonrpc":"2.0","id":99,"method":"roots/list"}"#), Rule::Drop).await;
    session.streams.answer(id, wire("{}"), None, None);
    let response = reply::to_response(&site.front, &session, JSON, true, streamed(&session, reader)).await;
    assert_eq!(response.headers()["content-type"], "application/json");
    assert_eq!(text(response).await, "{}");
    // The answer to the server's request reached the gateway, which knows no such request.
    site.front.drained().await;
    assert_eq!(site.gateway.metrics().isolation_signals_total.get(crate::telemetry::metrics::IsolationSignal::UnknownAnswerId), 1);
}

#[tokio::test]
async fn a_call_that_ends_without_an_answer_ends_its_response() {
    let mut site = Site::open("").await;
    site.initialize("2025-11-25").await;
    let session = site.session();
    for accepts in [BOTH, JSON] {
        let reader = session.streams.open();
        session.streams.finish(reader.stream());
        let response = reply::to_response(&site.front, &session, accepts, true, streamed(&session, reader)).await;
        assert!(response.status().is_success());
        assert_eq!(text(response).await, "");
    }
}

#[tokio::test]
async fn a_batch_is_answered_by_one_array() {
    let mut site = Site::open("").await;
    site.initialize("2025-03-26").await;
    let reply = site.client.post(&format!("[{PING},{NOTE},{LIST}]")).await;
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("application/json")), "{reply:?}");
    let answers: Vec<serde_json::Value> = serde_json::from_str(&reply.body).unwrap();
    assert_eq!((answers.len(), &answers[0]["id"], &answers[1]["id"]), (2, &7.into(), &"l".into()));
    let reply = site.client.send("POST", &[("Accept", "text/event-stream")], &format!("[{PING},{LIST}]")).await;
    assert_eq!(reply.events().len(), 2);
    let reply = site.client.post(&format!("[{NOTE},{NOTE}]")).await;
    assert_eq!((reply.status, reply.body.as_str()), (202, ""));
}

#[tokio::test]
async fn a_batch_with_anything_before_an_answer_is_a_stream_of_all_of_it() {
    let mut site = Site::open("").await;
    site.initialize("2025-03-26").await;
    let session = site.session();
    let (one, two) = (session.streams.open(), session.streams.open());
    session.streams.answer(one.stream(), wire("{\"a\":1}"), None, None);
    session.streams.note(two.stream(), wire("{\"b\":1}"), Rule::Drop).await;
    session.streams.answer(two.stream(), wire("{\"b\":2}"), None, None);
    let response = batch::answer(&site.front, &session, BOTH, vec![wire("{\"c\":1}")], vec![one, two]).await;
    let text = text(response).await;
    assert!(text.starts_with("data: {\"c\":1}\n\n") && !text.contains("id:"), "{text}");
    assert!(text.contains("data: {\"a\":1}\n\n") && text.find("{\"b\":1}") < text.find("{\"b\":2}"), "{text}");
}

#[tokio::test]
async fn batches_are_refused_whole_where_there_are_none_or_something_in_them_is_wrong() {
    let mut site = Site::open("").await;
    site.initialize("2025-11-25").await;
    for body in ["[]".to_owned(), format!("[{PING}]"), "[".to_owned(), format!("[[{PING}]]")] {
        assert_eq!(site.client.post(&body).await.status, 400, "{body}");
    }
    site.initialize("2025-03-26").await;
    let many = format!("[{}]", [PING; 65].join(","));
    for body in ["[]", &format!("[{PING},1]"), &format!("[{PING},{}]", initialize("2025-03-26")), &many] {
        let reply = site.client.post(body).await;
        assert!(reply.status == 400 && reply.body.contains("-32600"), "{reply:?}");
    }
}

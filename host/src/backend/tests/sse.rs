use super::*;
use tokio::sync::broadcast;

/// A server of 2024-11-05: GET /mcp is the stream, /post?s=1 the endpoint; POST /mcp is refused.
async fn old(answers: broadcast::Sender<String>) -> Server {
    Server::start(move |x| {
        let answers = answers.clone();
        Box::pin(async move {
            match (x.seen.verb.as_str(), x.seen.path.as_str()) {
                ("GET", "/mcp") => {
                    let mut queue = answers.subscribe();
                    x.stream().await;
                    x.raw("event: endpoint\ndata: /post?s=1\n\n").await;
                    while let Ok(text) = queue.recv().await {
                        if text == "cut" || !x.raw(format!("event: message\ndata: {text}\n\n")).await {
                            return;
                        }
                    }
                }
                ("POST", "/post?s=1") => {
                    let (id, seen) = (x.seen.id(), x.seen.json());
                    let say = |text: String| {
                        let _ = answers.send(text);
                    };
                    match seen["method"].as_str() {
                        Some("initialize") => {
                            say(format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{}}}"#, INFO.replace("2025-11-25", "2024-11-05")))
                        }
                        Some("tools/call") if seen["params"]["name"] == "ask" => {
                            say(r#"{"jsonrpc":"2.0","id":5,"method":"roots/list"}"#.into())
                        }
                        Some("tools/call") if seen["params"]["name"] == "cut" => say("cut".into()),
                        Some("tools/call") => {
                            say(r#"{"jsonrpc":"2.0","method":"notifications/message"}"#.into());
                            say(r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#.into());
                            say(format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"n":1.0}}}}"#));
                        }
                        _ => {}
                    }
                    x.reply(202, "content-type: text/plain\r\n", "Accepted").await;
                }
                _ => x.reply(405, "", "").await,
            }
        })
    })
    .await
}

#[tokio::test]
async fn an_old_server_is_recognised_and_served() {
    let server = old(broadcast::channel(64).0).await;
    let (up, mut inbox) = open(http_backend(&server.url(), HttpTransport::Auto));
    assert_eq!(up.ready(LONG).await.unwrap().version, Version::V2024_11_05);
    assert!(matches!(received(&mut inbox).await, FromServer::Up(_)));
    let mut call = call(&up, "t").await;
    assert!(matches!(next(&mut call).await, CallEvent::Notification(_)));
    assert!(matches!(next(&mut call).await, CallEvent::Answer(r) if r.body() == r#"{"n":1.0}"#));
    assert!(matches!(received(&mut inbox).await, FromServer::Notification(n) if &*n.method == "notifications/tools/list_changed"));
    let mut call = super::call(&up, "ask").await;
    let asked = request(next(&mut call).await);
    up.respond(crate::protocol::codes::result(&asked.id, "{}")).await.unwrap();
    let posts: Vec<_> = server.verbs("POST").into_iter().filter(|s| s.path == "/post?s=1").collect();
    assert_eq!(posts.last().unwrap().body, r#"{"jsonrpc":"2.0","id":5,"result":{}}"#);
    assert!(posts.iter().all(|s| s.header("mcp-session-id").is_none() && s.header("mcp-protocol-version").is_none()));
    up.close(LONG).await;
}

#[tokio::test]
async fn a_stream_that_ends_breaks_its_calls_and_is_opened_again() {
    let server = old(broadcast::channel(64).0).await;
    let (up, mut inbox) = open(http_backend(&server.url(), HttpTransport::Sse));
    assert!(matches!(received(&mut inbox).await, FromServer::Up(_)));
    let error = run(&up, tool("cut")).await.unwrap_err();
    assert!(matches!(error, BackendError::Broken { .. }), "{error:?}");
    assert!(matches!(received(&mut inbox).await, FromServer::Down(_)));
    assert!(matches!(received(&mut inbox).await, FromServer::Up(_)));
    assert_eq!(run(&up, tool("t")).await.unwrap(), r#"{"n":1.0}"#);
}

#[tokio::test]
async fn an_endpoint_elsewhere_is_refused() {
    let server = Server::start(|x| {
        Box::pin(async move {
            x.stream().await;
            x.raw("event: endpoint\ndata: http://127.0.0.1:1/post\n\n").await;
            x.hold().await;
        })
    })
    .await;
    let (up, mut inbox) = open(http_backend(&server.url(), HttpTransport::Sse));
    assert!(matches!(received(&mut inbox).await, FromServer::Down(why) if why.contains("another origin")));
    drop(up);
}

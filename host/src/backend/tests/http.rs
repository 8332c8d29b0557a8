use super::*;

fn streamable(server: &Server) -> Backend {
    http_backend(&server.url(), HttpTransport::StreamableHttp)
}

#[tokio::test]
async fn a_call_carries_this_session_and_the_bytes_of_the_client() {
    let server = Server::start(|x| {
        Box::pin(async move {
            if !usual(x, "s1").await {
                x.result(r#"{"a":1.0,"a":2}"#).await;
            }
        })
    })
    .await;
    let mut backend = streamable(&server);
    let Target::Http { headers, .. } = &mut backend.target else { unreachable!() };
    headers.insert("x-key", "k".parse().unwrap());
    headers.insert("accept", "nonsense".parse().unwrap());
    headers.insert("mcp-session-id", "mine".parse().unwrap());
    let (up, mut inbox) = open(backend);
    let hello = up.ready(LONG).await.unwrap();
    assert_eq!(hello.capabilities, r#"{"tools":{}}"#);
    assert!(matches!(received(&mut inbox).await, FromServer::Up(_)));
    assert_eq!(run(&up, tool("t")).await.unwrap(), r#"{"a":1.0,"a":2}"#);

    let init = &server.with("initialize")[0];
    assert!(init.body.contains(r#""capabilities":{"roots":{"zz":1.0}},"clientInfo":{"name":"c","version":"1"}"#), "{}", init.body);
    assert_eq!(init.header("mcp-session-id"), None);
    assert_eq!(init.header("mcp-protocol-version"), None);
    let called = &server.with("tools/call")[0];
    assert_eq!(called.header("mcp-session-id"), Some("s1"));
    assert_eq!(called.header("mcp-protocol-version"), Some("2025-11-25"));
    assert_eq!(called.header("accept"), Some("application/json, text/event-stream"));
    assert_eq!(called.header("content-type"), Some("application/json"));
    assert_eq!(called.header("x-key"), Some("k"));
    let id = called.id();
    assert_eq!(
        called.body,
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"t","_meta":{{"progressToken":{id}}}}}}}"#)
    );
    up.close(LONG).await;
    assert_eq!(server.verbs("DELETE")[0].header("mcp-session-id"), Some("s1"));
    assert!(matches!(up.ready(LONG).await, Err(BackendError::Closed)));
}

#[tokio::test]
async fn events_come_in_order_and_a_ping_in_between_is_answered() {
    let server = Server::start(|x| {
        Box::pin(async move {
            if usual(x, "s1").await {
                return;
            }
            let id = x.seen.id();
            x.stream().await;
            x.event(
                None,
                &format!(r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{id},"progress":1}}}}"#),
            )
            .await;
            x.event(None, r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#).await;
            x.event(None, r#"{"jsonrpc":"2.0","id":"e","method":"elicitation/create","params":{}}"#).await;
            x.event(None, r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1.0}}"#).await;
            x.event(None, &format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#)).await;
            x.event(None, r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"late"}}"#).await;
        })
    })
    .await;
    let (up, _inbox) = open(streamable(&server));
    let mut call = call(&up, "t").await;
    let CallEvent::Progress { message, token_at } = next(&mut call).await else { panic!("no progress") };
    assert_eq!(message.raw[token_at], *call.id().to_string().as_bytes());
    let asked = request(next(&mut call).await);
    up.respond(crate::protocol::codes::result(&asked.id, "{}")).await.unwrap();
    assert!(matches!(next(&mut call).await, CallEvent::Notification(n) if n.raw.ends_with(b"1.0}}")));
    assert!(matches!(next(&mut call).await, CallEvent::Answer(_)));
    assert!(matches!(next(&mut call).await, CallEvent::Failed(BackendError::Closed)));
    server.until(|s| s.log.lock().unwrap().iter().filter(|s| s.body == r#"{"jsonrpc":"2.0","id":"p","result":{}}"#).count() == 1).await;
    assert!(server.log.lock().unwrap().iter().any(|s| s.body == r#"{"jsonrpc":"2.0","id":"e","result":{}}"#));
}

/// A server that forgets its session `s1` when `forget` is set.
async fn forgetful(forget: Arc<std::sync::atomic::AtomicBool>, refusal: (u16, &'static str)) -> Server {
    use std::sync::atomic::Ordering;
    let count = Arc::new(std::sync::atomic::AtomicU32::new(0));
    Server::start(move |x| {
        let (forget, count) = (forget.clone(), count.clone());
        Box::pin(async move {
            if x.seen.method() == "initialize" {
                let n = count.fetch_add(1, Ordering::SeqCst) + 1;
                tokio::time::sleep(Duration::from_millis(50)).await;
                usual(x, &format!("s{n}")).await;
            } else if forget.load(Ordering::SeqCst) && x.seen.header("mcp-session-id") == Some("s1") {
                x.reply(refusal.0, "content-type: application/json\r\n", refusal.1).await;
            } else if !usual(x, "").await {
                x.result(r#"{"ok":true}"#).await;
            }
        })
    })
    .await
}

#[tokio::test]
async fn a_lost_session_is_renewed_once_for_all_and_what_was_set_is_restored() {
    for refusal in
        [(404, ""), (400, r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"},"id":null}"#)]
    {
        let forget = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let server = forgetful(forget.clone(), refusal).await;
        let (up, mut inbox) = open(streamable(&server));
        run(&up, outbound(r#"{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"debug"}}"#)).await.unwrap();
        run(&up, outbound(r#"{"jsonrpc":"2.0","id":2,"method":"resources/subscribe","params":{"uri":"x:1","z":1.0}}"#)).await.unwrap();
        forget.store(true, std::sync::atomic::Ordering::SeqCst);
        let calls: Vec<_> = (0..5).map(|_| run(&up, tool("t"))).collect();
        for result in futures_util::future::join_all(calls).await {
            assert_eq!(result.unwrap(), r#"{"ok":true}"#);
        }
        assert_eq!(server.with("initialize").len(), 2, "one renewal for five calls");
        assert_eq!(server.with("initialize")[1].header("mcp-session-id"), None);
        let again =
            |method: &str| server.with(method).iter().filter(|s| s.header("mcp-session-id") == Some("s2")).cloned().collect::<Vec<_>>();
        assert_eq!(again("tools/call").len(), 5, "each call is sent again exactly once");
        assert!(again("logging/setLevel")[0].body.contains(r#""params":{"level":"debug"}"#));
        assert!(again("resources/subscribe")[0].body.contains(r#""params":{"uri":"x:1","z":1.0}"#));
        assert!(matches!(received(&mut inbox).await, FromServer::Up(_)));
        assert!(inbox.try_recv().is_err(), "the session does not see it");
    }
}

#[tokio::test]
async fn a_call_is_sent_again_only_once() {
    let server = Server::start(|x| {
        Box::pin(async move {
            if !usual(x, "s").await {
                x.reply(404, "", "").await;
            }
        })
    })
    .await;
    let (up, _inbox) = open(streamable(&server));
    let error = run(&up, tool("t")).await.unwrap_err();
    assert!(matches!(error, BackendError::Status { status: 404, .. }), "{error:?}");
    assert_eq!(server.with("tools/call").len(), 2);
    assert_eq!(server.with("initialize").len(), 2);
}

#[tokio::test]
async fn a_call_whose_connection_breaks_is_not_repeated() {
    let server = Server::start(|x| {
        Box::pin(async move {
            if !usual(x, "s").await {
                match x.seen.json()["params"]["name"].as_str() {
                    Some("after") => {
                        x.raw("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 500\r\n\r\n{\"jsonrpc\":").await;
                    }
                    Some("stream") => {
                        x.stream().await;
                        x.event(None, r#"{"jsonrpc":"2.0","method":"notifications/message","params":{}}"#).await;
                    }
                    _ => {}
                }
                x.keep = false;
            }
        })
    })
    .await;
    let (up, _inbox) = open(streamable(&server));
    for name in ["before", "after", "stream"] {
        let error = run(&up, tool(name)).await.unwrap_err();
        assert!(matches!(error, BackendError::Broken { .. }) && error.fate() == Fate::Unknown, "{name}: {error:?}");
    }
    assert_eq!(server.with("tools/call").len(), 3);
}

#[tokio::test]
async fn a_dead_backend_is_unavailable_at_once_and_found_again_on_demand() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://127.0.0.1:{}/mcp?secret=1", listener.local_addr().unwrap().port());
    let address = listener.local_addr().unwrap();
    drop(listener);
    let (up, mut inbox) = open(http_backend(&url, HttpTransport::Auto));
    assert!(matches!(received(&mut inbox).await, FromServer::Down(why) if &*why == "connection refused"));
    let error = up.call(tool("t"), LONG).await.err().unwrap();
    assert_eq!(error.to_string(), "backend `b` is not available: connection refused");
    assert_eq!(error.fate(), Fate::NotRun);
    assert!(matches!(up.state(), State::Down(_)));
    let server = Server::on(TcpListener::bind(address).await.unwrap(), |x| {
        Box::pin(async move {
            if !usual(x, "s").await {
                x.result("{}").await;
            }
        })
    });
    tokio::time::sleep(Duration::from_millis(800)).await;
    up.ready(LONG).await.unwrap();
    assert!(matches!(received(&mut inbox).await, FromServer::Up(_)));
    assert_eq!(run(&up, tool("t")).await.unwrap(), "{}");
    assert_eq!(server.with("initialize").len(), 1);
}

#[tokio::test]
async fn what_is_not_an_answer_is_an_error_of_its_kind() {
    let server = Server::start(|x| {
        Box::pin(async move {
            if usual(x, "s").await {
                return;
            }
            let id = x.seen.id();
            let ok = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"n":5}}}}"#);
            let bad = format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-31999,"message":"m"}}}}"#);
            match x.seen.json()["params"]["name"].as_str().unwrap() {
                "html" => x.reply(200, "content-type: text/html\r\n", "<html>").await,
                "empty" => x.reply(200, "content-type: application/json\r\n", "").await,
                "accepted" => x.reply(202, "", "").await,
                "badjson" => x.json(format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{]}}"#)).await,
                "otherid" => x.json(r#"{"jsonrpc":"2.0","id":987654,"result":{}}"#).await,
                "large" => x.json(format!(r#"{{"jsonrpc":"2.0","id":{id},"result":"{}"}}"#, "x".repeat(200_000))).await,
                "largeevent" => x.reply(200, "content-type: text/event-stream\r\n", &format!("data: {}\n\n", "x".repeat(300_000))).await,
                "nosse" => x.reply(200, "content-type: text/event-stream\r\n", "").await,
                "500" => x.reply(500, "", "<html>").await,
                "429" => x.reply(429, "retry-after: 7\r\n", "").await,
                "401" => x.reply(401, "www-authenticate: Bearer\r\n", "").await,
                "error400" => x.reply(400, "content-type: application/json\r\n", &bad).await,
                "error400noid" => x.reply(400, "", r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"no"}}"#).await,
                "method404" => x.reply(404, "", &bad.replace("-31999", "-32601")).await,
                "charset" => x.reply(200, "content-type: APPLICATION/JSON; charset=UTF-8\r\n", &ok).await,
                "notype" => x.reply(200, "", &ok).await,
                "asjson" => x.reply(200, "content-type: application/json\r\n", &format!("\r\nevent: message\ndata: {ok}")).await,
                "assse" => x.reply(200, "content-type: text/event-stream\r\n", &ok).await,
                "batch" => x.json(format!(r#"[{{"jsonrpc":"2.0","method":"notifications/message"}},{ok}]"#)).await,
                "stringid" => x.json(ok.replace(&format!(":{id},"), &format!(":\"{id}\","))).await,
                name => panic!("{name}"),
            }
        })
    })
    .await;
    let mut backend = streamable(&server);
    backend.limits.message = 100_000;
    let (up, _inbox) = open(backend);
    let up = &up;
    let error = async |name: &str| run(up, tool(name)).await.unwrap_err();
    for name in ["html", "empty", "accepted", "badjson", "otherid", "large", "largeevent"] {
        let error = error(name).await;
        assert!(matches!(error, BackendError::Protocol { .. }) && error.fate() == Fate::Unknown, "{name}: {error:?}");
    }
    assert!(error("html").await.to_string().contains("text/html"));
    assert!(matches!(error("nosse").await, BackendError::Broken { .. }));
    assert!(matches!(error("500").await, BackendError::Status { status: 500, .. }));
    assert!(matches!(error("401").await, BackendError::Status { status: 401, .. }));
    assert!(matches!(error("429").await, BackendError::Status { status: 429, retry_after: Some(wait), .. } if wait.as_secs() == 7));
    for (name, code) in [("error400", "-31999"), ("error400noid", "-32600"), ("method404", "-32601")] {
        let answer = run(up, tool(name)).await.unwrap();
        assert!(answer.contains(code), "{name}: {answer}");
    }
    for name in ["charset", "notype", "asjson", "assse", "batch", "stringid"] {
        assert_eq!(run(up, tool(name)).await.unwrap(), r#"{"n":5}"#, "{name}");
    }
    assert_eq!(server.with("initialize").len(), 1);
}

#[tokio::test]
async fn a_stream_that_ends_early_is_resumed_after_its_last_event_and_nothing_comes_twice() {
    let server = Server::start(|x| {
        Box::pin(async move {
            if x.seen.verb != "GET" && usual(x, "s").await {
                return;
            }
            let id = x.seen.id();
            let note = |n: u32| format!(r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"n":{n}}}}}"#);
            x.stream().await;
            match x.seen.clone().header("last-event-id") {
                None => {
                    x.raw(format!("id: {id}-0\nretry: 20\ndata: \n\n")).await;
                    x.event(Some(&format!("{id}-1")), &note(1)).await;
                }
                Some(last) if last.ends_with("-1") => {
                    x.event(Some(last), &note(1)).await;
                    x.event(Some(&last.replace("-1", "-2")), &note(2)).await;
                }
                Some(last) => {
                    let id = last.trim_end_matches("-2");
                    x.event(Some(&format!("{id}-3")), &format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#)).await;
                }
            }
        })
    })
    .await;
    let (up, _inbox) = open(streamable(&server));
    let mut call = call(&up, "t").await;
    for n in ["1", "2"] {
        assert!(matches!(next(&mut call).await, CallEvent::Notification(note) if note.raw.ends_with(format!("{n}}}}}").as_bytes())), "{n}");
    }
    assert!(matches!(next(&mut call).await, CallEvent::Answer(_)));
    let gets = server.verbs("GET");
    assert_eq!(gets.len(), 2);
    assert_eq!(gets[0].header("mcp-session-id"), Some("s"));
    assert_eq!(gets[0].header("accept"), Some("text/event-stream"));
    assert_eq!(server.with("tools/call").len(), 1);
}

#[tokio::test]
async fn resuming_in_vain_ends() {
    let server = Server::start(|x| {
        Box::pin(async move {
            if x.seen.verb == "GET" || !usual(x, "s").await {
                x.stream().await;
                if x.seen.verb == "POST" {
                    x.raw("id: 1\nretry: 10\ndata: \n\n").await;
                }
            }
        })
    })
    .await;
    let (up, _inbox) = open(streamable(&server));
    assert!(matches!(run(&up, tool("t")).await.unwrap_err(), BackendError::Broken { .. }));
    assert_eq!(server.verbs("GET").len(), 4);
}

#[tokio::test]
async fn redirects_stay_within_the_origin() {
    let other = Server::start(|x| Box::pin(async move { x.reply(500, "", "").await })).await;
    let port = other.port;
    let server = Server::start(move |x| {
        Box::pin(async move {
            match x.seen.path.as_str() {
                "/mcp" => x.reply(307, "location: /mcp/\r\n", "").await,
                "/away" => x.reply(308, &format!("location: http://127.0.0.1:{port}/mcp\r\n"), "").await,
                "/found" => x.reply(302, "location: /mcp/\r\n", "").await,
                "/loop" => x.reply(307, "location: /loop\r\n", "").await,
                _ => {
                    if !usual(x, "s").await {
                        x.result("{}").await;
                    }
                }
            }
        })
    })
    .await;
    let (up, _inbox) = open(streamable(&server));
    assert_eq!(run(&up, tool("t")).await.unwrap(), "{}");
    for path in ["away", "found", "loop"] {
        let (up, _inbox) = open(http_backend(&server.url().replace("mcp", path), HttpTransport::StreamableHttp));
        let error = up.ready(LONG).await.unwrap_err();
        assert!(error.to_string().contains("redirect") && error.fate() == Fate::NotRun, "{path}: {error}");
    }
    assert!(other.log.lock().unwrap().is_empty(), "the other origin saw nothing");
}

#[tokio::test]
async fn the_get_stream_feeds_the_inbox_and_its_progress_the_call() {
    let (start, started) = tokio::sync::watch::channel(0u64);
    let start = Arc::new(start);
    let server = Server::start(move |x| {
        let (start, mut started) = (start.clone(), started.clone());
        Box::pin(async move {
            if x.seen.verb == "GET" {
                x.stream().await;
                x.event(None, r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#).await;
                x.event(None, r#"{"jsonrpc":"2.0","id":9,"method":"ping"}"#).await;
                x.event(None, r#"{"jsonrpc":"2.0","id":8,"method":"roots/list"}"#).await;
                let id = *started.wait_for(|id| *id != 0).await.unwrap();
                x.event(
                    None,
                    &format!(r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{id},"progress":1}}}}"#),
                )
                .await;
                x.event(None, r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":4711,"progress":1}}"#).await;
                x.event(None, r#"{"jsonrpc":"2.0","method":"notifications/prompts/list_changed"}"#).await;
                x.hold().await;
            } else if !usual(x, "s").await {
                start.send_replace(x.seen.id().parse().unwrap());
                x.hold().await;
            }
        })
    })
    .await;
    let (up, mut inbox) = open(streamable(&server));
    up.listen();
    up.listen();
    assert!(matches!(received(&mut inbox).await, FromServer::Up(_)));
    assert!(matches!(received(&mut inbox).await, FromServer::Notification(n) if &*n.method == "notifications/tools/list_changed"));
    assert!(matches!(received(&mut inbox).await, FromServer::Request(r) if &*r.method == "roots/list"));
    let mut call = call(&up, "t").await;
    assert!(matches!(next(&mut call).await, CallEvent::Progress { .. }));
    assert!(matches!(received(&mut inbox).await, FromServer::Notification(n) if &*n.method == "notifications/prompts/list_changed"));
    server.until(|s| s.log.lock().unwrap().iter().any(|s| s.body.contains(r#""id":9,"result""#))).await;
    assert_eq!(server.verbs("GET").len(), 1);
    up.close(LONG).await;
    assert!(matches!(next(&mut call).await, CallEvent::Failed(BackendError::Closed)));
}

#[tokio::test]
async fn the_get_stream_follows_the_session_when_that_is_renewed() {
    let count = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let server = Server::start(move |x| {
        let count = count.clone();
        Box::pin(async move {
            let session = x.seen.header("mcp-session-id").unwrap_or_default().to_owned();
            if x.seen.method() == "initialize" {
                let n = count.fetch_add(1, std::sync::atomic::Ordering::SeqCst) + 1;
                usual(x, &format!("s{n}")).await;
            } else if x.seen.verb == "GET" {
                x.stream().await;
                x.event(Some("7"), &format!(r#"{{"jsonrpc":"2.0","method":"notifications/{session}"}}"#)).await;
                x.hold().await;
            } else if session == "s1" && x.seen.method() == "tools/call" {
                x.reply(404, "", "").await;
            } else if !usual(x, "").await {
                x.result("{}").await;
            }
        })
    })
    .await;
    let (up, mut inbox) = open(streamable(&server));
    up.listen();
    assert!(matches!(received(&mut inbox).await, FromServer::Up(_)));
    assert!(matches!(received(&mut inbox).await, FromServer::Notification(n) if &*n.method == "notifications/s1"));
    assert_eq!(run(&up, tool("t")).await.unwrap(), "{}");
    assert!(matches!(received(&mut inbox).await, FromServer::Notification(n) if &*n.method == "notifications/s2"));
    let gets = server.verbs("GET");
    assert_eq!((gets.len(), gets[1].header("last-event-id")), (2, None));
}

#[tokio::test]
async fn closing_in_the_middle_of_initialize_leaves_no_session_behind() {
    let server = Server::start(|x| {
        Box::pin(async move {
            if x.seen.method() == "initialize" {
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
            usual(x, "s").await;
        })
    })
    .await;
    let (up, _inbox) = open(streamable(&server));
    server.until(|s| !s.with("initialize").is_empty()).await;
    up.close(LONG).await;
    assert_eq!(server.verbs("DELETE")[0].header("mcp-session-id"), Some("s"));
}

#[tokio::test]
async fn a_backend_without_a_get_stream_is_asked_once_and_one_that_keeps_closing_is_not_stormed() {
    let closing = Server::start(|x| {
        Box::pin(async move {
            if x.seen.verb == "GET" {
                x.stream().await;
            } else {
                usual(x, "s").await;
            }
        })
    })
    .await;
    let none = Server::start(|x| {
        Box::pin(async move {
            usual(x, "s").await;
        })
    })
    .await;
    let (one, _inbox1) = open(streamable(&closing));
    let (two, _inbox2) = open(streamable(&none));
    one.listen();
    two.listen();
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!((2..=4).contains(&closing.verbs("GET").len()), "{}", closing.verbs("GET").len());
    assert_eq!(none.verbs("GET").len(), 1);
}

#[tokio::test]
async fn a_flood_that_nobody_reads_is_held_at_the_server() {
    let sent = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = sent.clone();
    let server = Server::start(move |x| {
        let count = count.clone();
        Box::pin(async move {
            if usual(x, "s").await {
                return;
            }
            let id = x.seen.id();
            x.stream().await;
            let note = format!(r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"data":"{}"}}}}"#, "x".repeat(64 * 1024));
            for _ in 0..1000 {
                if !x.event(None, &note).await {
                    return;
                }
                count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            }
            x.event(None, &format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#)).await;
        })
    })
    .await;
    let (up, _inbox) = open(streamable(&server));
    let mut call = call(&up, "t").await;
    assert!(matches!(next(&mut call).await, CallEvent::Notification(_)));
    tokio::time::sleep(Duration::from_millis(500)).await;
    let held = sent.load(std::sync::atomic::Ordering::SeqCst);
    // What the kernel's buffers take, which is at most some 10 MB of the 64.
    assert!(held < 400, "{held} of 1000 were taken from the server");
    let mut got = 1;
    while let CallEvent::Notification(_) = next(&mut call).await {
        got += 1;
    }
    assert_eq!(got, 1000);
}

#[tokio::test]
async fn a_call_that_is_cancelled_or_late_tells_the_server_its_own_id() {
    let server = Server::start(|x| {
        Box::pin(async move {
            if !usual(x, "s").await {
                x.hold().await;
            }
        })
    })
    .await;
    let (up, _inbox) = open(streamable(&server));
    let mut first = call(&up, "t").await;
    let id = first.id();
    tokio::select! {
        _ = first.next() => panic!("nothing can come"),
        () = server.until(|s| !s.with("tools/call").is_empty()) => {}
    }
    let reason = serde_json::value::RawValue::from_string(r#""no \u00e9""#.to_owned()).unwrap();
    first.cancel(Some(&reason)).await;
    assert_eq!(
        server.with("notifications/cancelled")[0].body,
        format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id},"reason":"no \u00e9"}}}}"#)
    );
    let mut late = up.call(tool("t"), Duration::from_millis(200)).await.unwrap();
    assert!(matches!(next(&mut late).await, CallEvent::Failed(BackendError::Timeout { .. })));
    server.until(|s| s.with("notifications/cancelled").len() == 2).await;
    // One that was never sent has nothing to cancel.
    call(&up, "t").await.cancel(None).await;
    assert_eq!(server.with("notifications/cancelled").len(), 2);
}

#[tokio::test]
async fn the_clock_of_a_call_stands_still_while_the_client_is_asked_or_the_caller_takes_its_time() {
    let server = Server::start(|x| {
        Box::pin(async move {
            if usual(x, "s").await {
                return;
            }
            x.stream().await;
            x.event(None, r#"{"jsonrpc":"2.0","method":"notifications/message"}"#).await;
            x.event(None, r#"{"jsonrpc":"2.0","id":"q","method":"roots/list"}"#).await;
            tokio::time::sleep(Duration::from_millis(1500)).await;
            x.event(None, r#"{"jsonrpc":"2.0","method":"notifications/message"}"#).await;
            x.hold().await;
        })
    })
    .await;
    let (up, _inbox) = open(streamable(&server));
    let mut call = up.call(tool("t"), Duration::from_millis(600)).await.unwrap();
    assert!(matches!(next(&mut call).await, CallEvent::Notification(_)));
    tokio::time::sleep(Duration::from_millis(500)).await;
    let asked = request(next(&mut call).await);
    tokio::select! {
        event = next(&mut call) => panic!("{event:?}"),
        () = tokio::time::sleep(Duration::from_millis(700)) => {}
    }
    up.respond(crate::protocol::codes::result(&asked.id, "{}")).await.unwrap();
    assert!(matches!(next(&mut call).await, CallEvent::Notification(_)));
    assert!(matches!(next(&mut call).await, CallEvent::Failed(BackendError::Timeout { .. })));
}

#[tokio::test]
async fn an_initialize_that_hangs_holds_nobody_longer_than_its_limit() {
    let server = Server::start(|x| Box::pin(async move { x.hold().await })).await;
    let mut backend = streamable(&server);
    backend.timeouts.initialize = Duration::from_millis(300);
    let (up, mut inbox) = open(backend);
    let error = up.ready(Duration::from_millis(50)).await.unwrap_err();
    assert!(matches!(&error, BackendError::Unavailable { reason, .. } if reason.contains("not connected within")), "{error}");
    assert!(matches!(received(&mut inbox).await, FromServer::Down(why) if why.contains("did not answer initialize")));
    up.close(Duration::from_millis(100)).await;
}

#[tokio::test]
async fn sixteen_mebibytes_pass_as_json_and_as_an_event() {
    let server = Server::start(|x| {
        Box::pin(async move {
            if usual(x, "s").await {
                return;
            }
            let body = format!(r#"{{"jsonrpc":"2.0","id":{},"result":"{}"}}"#, x.seen.id(), "w".repeat(16 << 20));
            if x.seen.body.contains("sse") {
                x.reply(200, "content-type: text/event-stream\r\n", &format!("data: {body}\n\n")).await;
            } else {
                x.json(body).await;
            }
        })
    })
    .await;
    let (up, _inbox) = open(streamable(&server));
    for name in ["json", "sse"] {
        let started = std::time::Instant::now();
        assert_eq!(run(&up, tool(name)).await.unwrap().len(), (16 << 20) + 2);
        assert!(started.elapsed() < Duration::from_secs(8), "{name}: {:?}", started.elapsed());
    }
}

/// Two sessions at one server.
#[tokio::test]
async fn requests_of_two_sessions_have_different_ids() {
    let server = Server::start(|x| {
        Box::pin(async move {
            if !usual(x, "s1").await {
                x.result("{}").await;
            }
        })
    })
    .await;
    for _ in 0..4 {
        let (up, _inbox) = open(streamable(&server));
        run(&up, tool("t")).await.unwrap();
        run(&up, tool("t")).await.unwrap();
    }
    let ids: std::collections::HashSet<u64> = server.with("tools/call").iter().map(|seen| seen.id().parse().unwrap()).collect();
    assert_eq!(ids.len(), 8);
    assert!(ids.iter().all(|id| *id < 1 << 31), "{ids:?}");
}

//! Large answers are given on while they are read: nothing of them is touched but what has to be, a client that does not read holds its own
//! backend, and what breaks off or turns out wrong is never taken for whole.

use std::time::Duration;

use lockgate_tests::{
    backend::{Backend, Builder, Call},
    client::{self, Session},
    gateway::{Gateway, http_backends},
    modern::Modern,
    process::resident,
    raw,
    stall::Unread,
    within, within_time,
};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::{Mutex, mpsc},
};

/// Larger than what is read whole.
const BIG: usize = 300_000;

/// A backend whose calls are answered by the test, a gateway before it, and a session.
struct Setup {
    calls: Mutex<mpsc::Receiver<Call>>,
    _backend: Backend,
    gateway: Gateway,
    session: Session,
}

async fn setup(yaml: &str) -> Setup {
    let (sender, calls) = mpsc::channel(16);
    let script = move |call: Call| {
        let sender = sender.clone();
        async move {
            let _ = sender.send(call).await;
        }
    };
    let backend = Backend::builder("b").tool("t").on("tools/call", script).start().await;
    let gateway = Gateway::start(&format!("{}{yaml}", http_backends(&[("one", &backend.url())]))).await;
    let session = gateway.initialize().await;
    // Its names are known from here on.
    session.list("tools/list", "tools").await;
    Setup { calls: Mutex::new(calls), _backend: backend, gateway, session }
}

impl Setup {
    /// The next call as it came to the backend.
    async fn call(&self) -> Call {
        within("a call at the backend", async { self.calls.lock().await.recv().await }).await.expect("the backend lives")
    }

    /// A client that calls and reads nothing.
    async fn unread(&self, id: &str) -> Unread {
        Unread::send(&self.session.at, "POST", &self.session.headers(), &request(id)).await
    }

    async fn counted(&self, outcome: &str) -> f64 {
        self.gateway.metric(&format!("lockgate_requests_total{{method=\"tools/call\",outcome=\"{outcome}\"}}")).await
    }

    /// Waits until so many calls have ended so.
    async fn ends(&self, outcome: &str, count: usize) {
        within(outcome, async {
            while self.counted(outcome).await < count as f64 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await;
    }
}

fn request(id: &str) -> String {
    raw::request(id, "tools/call", r#"{"name":"t","arguments":{}}"#)
}

/// A result of at least `bytes` bytes that a parser and a serialiser would not give back as it was.
fn result(bytes: usize) -> String {
    let part = r#"{"type" :"text", "text":"a\u0041\/é日🎉\ud800 \"uri\":1","x":[1.0,1e3,-0,{"k":1,"k":2}]},"#;
    let parts = part.repeat(bytes / part.len() + 1);
    format!("{{\"content\":[{}\n],\t\"isError\":false}}", parts.trim_end_matches(','))
}

/// What a server answers to `id`, with the id in various places.
fn answers(id: &str, result: &str) -> Vec<String> {
    vec![
        format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#),
        format!(r#"{{"result":{result},"jsonrpc":"2.0","id":{id}}}"#),
        format!("{{\n \"jsonrpc\" : \"2.0\" ,\"result\":{result},\r\n\t\"\\u0069d\": {id} ,\"x\":{{\"id\":1,\"error\":{{}}}} }} \n"),
        format!(r#"{{"x":[7],"id":{id} ,"result":{result},"jsonrpc":"2.0"}}"#),
    ]
}

#[tokio::test]
async fn large_answers_arrive_byte_for_byte_wherever_their_id_stands_and_however_they_are_cut() {
    let setup = setup("").await;
    let (mine, result) = (r#""cl\u0069ent-7""#, result(BIG));
    for at in 0..4 {
        for size in [usize::MAX, 16 * 1024, 4999] {
            for announced in [true, false] {
                let asks = async { setup.session.post(request(mine)).await.must_be(200).await };
                let gives = async {
                    let call = setup.call().await;
                    let answer = answers(&call.id(), &result).remove(at);
                    let pours = call.pour(announced.then_some(answer.len()));
                    tokio::spawn(async move {
                        for piece in answer.as_bytes().chunks(size.min(answer.len())) {
                            pours.send(piece.to_vec()).await;
                        }
                    });
                };
                let (reply, ()) = tokio::join!(asks, gives);
                assert_eq!(reply.header("content-type"), Some("application/json"));
                // The length can be told where the head says all that changes it.
                let known = announced && matches!(at, 0 | 3);
                assert_eq!(reply.header("content-length").is_some(), known, "at {at}, announced: {announced}");
                let text = reply.text().await;
                assert!(text == answers(mine, &result)[at], "at {at}, pieces of {size}, announced: {announced}: {} bytes", text.len());
            }
        }
    }
    setup.ends("ok", 24).await;
    setup.gateway.stop().await;
}

#[tokio::test]
async fn the_head_is_given_on_before_the_end_has_come_and_the_id_of_the_call_is_free_then() {
    let setup = setup("").await;
    let text = result(BIG);
    let (reply, pours, answer) = begun(&setup, "1", &text).await;
    // A cancellation comes too late, and another call may have the id.
    assert_eq!(setup.session.tell("notifications/cancelled", json!({ "requestId": 1 })).await, 202);
    let (second, ()) = tokio::join!(setup.session.start("1", "tools/call", r#"{"name":"t"}"#), async {
        setup.call().await.result(r#"{"content":[],"second":true}"#);
    });
    assert_eq!(second.answer().await.result_raw(), r#"{"content":[],"second":true}"#);
    let all = tokio::spawn(reply.text());
    pours.send(answer[200_000..].to_owned()).await;
    drop(pours);
    assert!(within("the rest", all).await.expect("it is read") == answers("1", &text)[1]);
    setup.gateway.stop().await;
}

/// A call `id` whose answer, with the id at its end, was read to 200,000 bytes of it: the head of it at the client, and at the backend what is
/// still to be sent of the whole answer.
async fn begun(setup: &Setup, id: &str, result: &str) -> (client::Reply, lockgate_tests::backend::Pouring, String) {
    let asks = async { setup.session.post(request(id)).await.must_be(200).await };
    let gives = async {
        let call = setup.call().await;
        let answer = answers(&call.id(), result).remove(1);
        let pours = call.pour(None);
        pours.send(answer[..200_000].to_owned()).await;
        (pours, answer)
    };
    let (reply, (pours, answer)) = tokio::join!(asks, gives);
    (reply, pours, answer)
}

/// Pours without end, and says how much went.
fn endless(call: Call) -> (tokio::sync::watch::Receiver<usize>, tokio::task::JoinHandle<()>) {
    let (poured, seen) = tokio::sync::watch::channel(0);
    let task = tokio::spawn(async move {
        let head = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{"content":[{{"type":"text","text":""#, call.id());
        let pours = call.pour(None);
        pours.send(head).await;
        let piece = bytes::Bytes::from(vec![b'x'; 64 * 1024]);
        loop {
            tokio::select! {
                // Also where no more is taken: the connection may end meanwhile.
                () = pours.closed() => return,
                sent = pours.send(piece.clone()) => {
                    if !sent {
                        return;
                    }
                }
            }
            poured.send_modify(|sum| *sum += piece.len());
        }
    });
    (seen, task)
}

/// Waits until no more is poured.
async fn held(poured: &tokio::sync::watch::Receiver<usize>) -> usize {
    within("no more is taken", async {
        loop {
            let before = *poured.borrow();
            tokio::time::sleep(Duration::from_millis(700)).await;
            if before > 0 && *poured.borrow() == before {
                return before;
            }
        }
    })
    .await
}

#[tokio::test]
async fn an_endless_answer_that_nobody_reads_stays_at_its_backend_and_ends_with_its_session() {
    let setup = setup("limits: { message: 1GiB }\nadmission: { drain_window: 500ms, teardown_after: 5m }\n").await;
    let other = setup.gateway.initialize().await;
    let before = resident(setup.gateway.pid);
    let mut unread = Vec::new();
    let mut pouring = Vec::new();
    for id in ["1", "2", "3"] {
        unread.push(setup.unread(id).await);
        pouring.push(endless(setup.call().await));
    }
    for (poured, _) in &pouring {
        let poured = held(poured).await;
        // What the kernel takes of both connections, and no more.
        assert!(poured < 24 << 20, "{poured} bytes were taken");
    }
    let owed = setup.gateway.metric("lockgate_owed_bytes").await;
    let grown = resident(setup.gateway.pid).saturating_sub(before);
    println!("three endless answers that nobody reads: {owed} bytes owed, the gateway grew by {} KiB", grown >> 10);
    assert!(owed > 0.0 && owed < 3.0 * 128.0 * 1024.0, "{owed} bytes are owed");
    assert!(grown < 4 << 20, "grown by {} KiB", grown >> 10);
    // Nobody else is held up.
    let (answer, ()) = tokio::join!(other.call("t", json!({})), async { setup.call().await.result(&raw::text("t")) });
    assert_eq!(raw::first_text(&answer), "t");
    assert_eq!(setup.session.delete().await, 204);
    for (_, task) in pouring {
        within("the backend's connection is closed", task).await.expect("it pours until then");
    }
    for unread in unread {
        let read = unread.read_what_comes(Duration::from_secs(10)).await.expect("its head had come");
        assert!(!read.whole && read.body.len() > 1000, "{}", read.body.len());
    }
    setup.ends("cut", 3).await;
    within("nothing is owed any more", async {
        while setup.gateway.metric("lockgate_owed_bytes").await > 0.0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    setup.gateway.stop().await;
}

#[tokio::test]
async fn a_client_that_hangs_up_or_does_not_read_for_too_long_closes_the_connection_of_its_backend() {
    let setup = setup("limits: { message: 1GiB }\nadmission: { drain_window: 300ms, patience: 50ms, teardown_after: 1s }\n").await;
    let mut unread = setup.unread("1").await;
    let (poured, task) = endless(setup.call().await);
    assert_eq!(unread.status().await, 200);
    held(&poured).await;
    drop(unread);
    within("the backend's connection is closed", task).await.expect("it pours until then");
    setup.ends("disconnected", 1).await;
    let unread = setup.unread("2").await;
    let (_, task) = endless(setup.call().await);
    within("the backend's connection is closed", task).await.expect("it pours until then");
    assert!(unread.closed_within(Duration::from_secs(5)).await);
    // The session goes on.
    let (answer, ()) = tokio::join!(setup.session.call("t", json!({})), async { setup.call().await.result(&raw::text("t")) });
    assert_eq!(raw::first_text(&answer), "t");
    setup.gateway.stop().await;
}

#[tokio::test]
async fn a_slow_reader_gets_all_of_it() {
    // More than the kernel takes of two connections.
    const BYTES: usize = 24_000_000;
    let setup = setup("admission: { drain_window: 500ms, teardown_after: 2s }\n").await;
    let text = result(BYTES);
    let mut unread = setup.unread("1").await;
    let call = setup.call().await;
    let answer = answers(&call.id(), &text).remove(1);
    let pours = call.pour(None);
    let pouring = tokio::spawn(async move {
        for piece in answer.as_bytes().chunks(50_000) {
            assert!(pours.send(piece.to_vec()).await, "the gateway left");
        }
    });
    // For longer than a client may be silent.
    for _ in 0..30 {
        assert!(unread.sip(10_000).await > 0);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(!pouring.is_finished(), "all of it was taken");
    let read = unread.read(Duration::from_secs(20)).await;
    assert!(read.text() == answers("1", &text)[1], "{} bytes", read.body.len());
    setup.ends("ok", 1).await;
    setup.gateway.stop().await;
}

#[tokio::test]
async fn what_turns_out_wrong_after_its_head_was_given_on_is_cut_and_said_once() {
    let setup = setup("limits: { message: 1MiB, call_timeout: 2s }\n").await;
    let text = result(BIG);
    let head = |id: &str| format!(r#"{{"jsonrpc":"2.0","result":{text},"id":{id}"#);
    let good = r#"{"jsonrpc":"2.0","id":ID,"result":{"x":["#.to_owned() + &"1,".repeat(BIG / 2);
    let cases: Vec<(&str, String, Option<usize>)> = vec![
        ("another id at the end", head("7777") + "}", None),
        ("an id twice", head("ID") + ",\"id\":ID}", None),
        ("no id", format!(r#"{{"jsonrpc":"2.0","result":{text}}}"#), None),
        ("an error, too", head("ID") + r#","error":{"code":1,"message":"m"}}"#, None),
        ("something behind it", head("ID") + "}}", None),
        ("not JSON in the middle", good.clone() + "x" + &"1,".repeat(1000), None),
        ("no text", good.clone() + "\"\u{1}\"", None),
        ("it ends too early", good.clone(), None),
        ("it ends before the length that was announced", good.clone(), Some(2 * BIG)),
        ("larger than a message may be", good.clone() + &"1,".repeat(400_000), None),
        ("silent in the middle", good.clone() + "HANG", None),
    ];
    let count = cases.len();
    for (what, answer, announced) in cases {
        let unread = setup.unread("1").await;
        let call = setup.call().await;
        let (answer, hangs) = (answer.replace("ID", &call.id()), answer.ends_with("HANG"));
        let pours = call.pour(announced);
        let (answer, after) = (answer.trim_end_matches("HANG").to_owned(), Duration::from_secs(if hangs { 15 } else { 0 }));
        let pouring = tokio::spawn(async move {
            for piece in answer.as_bytes().chunks(100_000) {
                pours.send(piece.to_vec()).await;
            }
            tokio::time::sleep(after).await;
        });
        let read = unread.read_what_comes(Duration::from_secs(10)).await.expect("a head");
        assert!(read.status == 200 && read.body.len() > 50_000 && !read.whole, "{what}: {} bytes, whole: {}", read.body.len(), read.whole);
        pouring.abort();
    }
    setup.ends("cut", count).await;
    let log = setup.gateway.log();
    assert_eq!(log.matches("cut in the middle").count(), count, "{log}");
    assert!(log.contains("silent for 2s in the middle"), "{log}");
    assert_eq!(setup.counted("cut").await, count as f64);
    setup.gateway.stop().await;
}

#[tokio::test]
async fn what_is_wrong_before_anything_was_given_on_is_an_error_and_errors_are_whole() {
    let setup = setup("").await;
    let text = result(BIG);
    for (what, answer, code) in [
        ("another id", format!(r#"{{"jsonrpc":"2.0","id":7777,"result":{text}}}"#), "-31004"),
        ("an error first", format!(r#"{{"jsonrpc":"2.0","id":ID,"error":{{"code":-7,"message":"m","data":{text}}}}}"#), "-7"),
        ("not JSON", format!(r#"{{"jsonrpc":"2.0",,"result":{text}}}"#), "-31004"),
        ("larger than a message may be", format!(r#"{{"jsonrpc":"2.0","id":ID,"result":"{}"}}"#, "x".repeat(65 << 20)), "-31004"),
    ] {
        let (answered, ()) = tokio::join!(setup.session.ask("tools/call", json!({ "name": "t" })), async {
            let call = setup.call().await;
            let answer = answer.replace("ID", &call.id());
            call.http(200, &[client::JSON, ("content-length", &answer.len().to_string())], answer);
        });
        assert!(answered.error_raw().contains(&format!("\"code\":{code},")), "{what}: {:.200}", answered.error_raw());
    }
    assert_eq!(setup.counted("cut").await, 0.0);
    setup.gateway.stop().await;
}

#[tokio::test]
async fn an_answer_that_comes_late_is_an_event_and_can_be_had_again_and_json_alone_flows_however_late() {
    let setup = setup("limits: { replay_bytes: 4MiB }\n").await;
    let text = result(BIG);
    let late = async {
        let call = setup.call().await;
        tokio::time::sleep(Duration::from_millis(1500)).await;
        call.result(&text);
    };
    let (reply, ()) = tokio::join!(setup.session.post(request("1")), late);
    let mut events = reply.events();
    let priming = events.next().await.expect("a priming event").id.expect("it has an id");
    assert_eq!(events.answer().await.result_raw(), text);
    drop(events);
    assert_eq!(setup.session.resume(&priming).await.events().answer().await.result_raw(), text);

    let headers = [&setup.session.headers()[..], &[("accept", "application/json"), client::JSON]].concat();
    let asks = setup.session.at.send("POST", &headers, request("2"));
    let late = async {
        let call = setup.call().await;
        tokio::time::sleep(Duration::from_millis(1500)).await;
        let answer = answers(&call.id(), &text).remove(1);
        let pours = call.pour(None);
        pours.send(answer[..200_000].to_owned()).await;
        (pours, answer)
    };
    let (reply, (pours, answer)) = tokio::join!(asks, late);
    // Its head is here, and the end not even at the gateway.
    assert_eq!(reply.header("content-type"), Some("application/json"));
    let all = tokio::spawn(reply.text());
    pours.send(answer[200_000..].to_owned()).await;
    drop(pours);
    assert!(all.await.expect("it is read") == answers("2", &text)[1]);
    setup.gateway.stop().await;
}

#[tokio::test]
async fn the_first_event_of_a_servers_stream_flows_too_unless_it_could_be_had_again() {
    let setup = setup("").await;
    let text = result(BIG).replace('\n', "");
    let framed = |answer: &str, name: &str| format!(": hello\n\n{name}data: {answer}\r\n\r\n: bye\n\n");
    for name in ["", "event: message\n"] {
        let asks = async { setup.session.post(request("1")).await.must_be(200).await };
        let gives = async {
            let call = setup.call().await;
            let event = framed(&answers(&call.id(), &text)[1], name);
            let stream = call.stream();
            stream.bytes(event[..200_000].to_owned()).await;
            (stream, event)
        };
        let (reply, (stream, event)) = tokio::join!(asks, gives);
        assert_eq!((reply.header("content-type"), reply.header("content-length")), (Some("application/json"), None));
        let all = tokio::spawn(reply.text());
        stream.bytes(event[200_000..].to_owned()).await;
        assert!(within("the rest", all).await.expect("it is read") == answers("1", &text)[1]);
    }
    // One that breaks off is cut.
    let unread = setup.unread("2").await;
    let call = setup.call().await;
    let event = framed(&answers(&call.id(), &text)[1], "");
    let stream = call.stream();
    stream.bytes(event[..200_000].to_owned()).await;
    drop(stream);
    let read = unread.read_what_comes(Duration::from_secs(10)).await.expect("a head");
    assert!(read.body.len() > 50_000 && !read.whole, "{}", read.body.len());
    setup.ends("cut", 1).await;
    // With an id, or behind something else, it is read whole.
    for before in
        ["id: 7\n", "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"info\",\"data\":1}}\n\n"]
    {
        let asks = async { setup.session.post(request("3")).await.must_be(200).await };
        let gives = async {
            let call = setup.call().await;
            let event = framed(&answers(&call.id(), &text)[0], before);
            call.stream().bytes(event).await;
        };
        let (reply, ()) = tokio::join!(asks, gives);
        assert!(reply.is_stream() || reply.header("content-length").is_some());
        assert_eq!(reply.answer().await.result_raw(), text);
    }
    setup.gateway.stop().await;
}

#[tokio::test]
async fn a_client_of_2026_07_28_gets_the_answer_of_an_older_server_in_its_form_while_it_comes() {
    let setup = setup("").await;
    let text = result(BIG);
    let client = Modern::new(setup.gateway.mcp());
    // Its chamber is there from here on.
    client.list("tools/list", "tools").await;
    // What an older server says of its own of the kind means nothing.
    let says = text.replacen('{', r#"{"resultType":"odd", "a":1,"#, 1).replacen("\t\"isError\"", "\"resultType\":[1], \"isError\"", 1);
    let want = text.replacen('{', r#"{"resultType":"complete", "a":1,"#, 1).replacen(",\t\"isError\"", ", \"isError\"", 1);
    let asks = async { client.request("tools/call", json!({ "name": "t", "arguments": {} })).id("\"m\"").send().await.must_be(200).await };
    let gives = async {
        let call = setup.call().await;
        let answer = answers(&call.id(), &says).remove(1);
        let pours = call.pour(None);
        pours.send(answer[..200_000].to_owned()).await;
        (pours, answer)
    };
    let (reply, (pours, answer)) = tokio::join!(asks, gives);
    // Its head is here, and the end not even at the gateway.
    assert_eq!((reply.header("content-type"), reply.header("content-length")), (Some("application/json"), None));
    let all = tokio::spawn(reply.text());
    pours.send(answer[200_000..].to_owned()).await;
    drop(pours);
    let got = within("the rest", all).await.expect("it is read");
    let want = answers("\"m\"", &want).remove(1);
    assert!(got == want, "{:.300} … {}", got, &got[got.len() - 200..]);
    setup.gateway.stop().await;
}

#[tokio::test]
async fn http_before_1_1_which_cannot_tell_an_end_from_a_cut_gets_it_whole() {
    let setup = setup("").await;
    let text = result(BIG);
    let mut socket = tokio::net::TcpStream::connect(setup.session.at.addr).await.expect("it listens");
    let body = request("1");
    let mut head = format!(
        "POST {} HTTP/1.0\r\nhost: {}\r\ncontent-type: application/json\r\naccept: application/json\r\ncontent-length: {}\r\n",
        setup.session.at.path,
        setup.session.at.addr,
        body.len()
    );
    for (name, value) in setup.session.headers() {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    socket.write_all(format!("{head}\r\n{body}").as_bytes()).await.expect("it reads requests");
    let call = setup.call().await;
    let answer = answers(&call.id(), &text).remove(1);
    call.pour(None).send(answer).await;
    let mut all = String::new();
    within("an answer", socket.read_to_string(&mut all)).await.expect("text");
    let (head, body) = all.split_once("\r\n\r\n").expect("a head");
    assert!(head.to_ascii_lowercase().contains(&format!("content-length: {}", body.len())), "{head}");
    assert!(body == answers("1", &text)[1], "{} bytes", body.len());
    setup.gateway.stop().await;
}

#[tokio::test]
async fn an_answer_under_way_is_seen_through_when_the_gateway_is_told_to_stop() {
    let setup = setup("shutdown: { grace: 20s }\n").await;
    let text = result(BIG);
    let (reply, pours, answer) = begun(&setup, "1", &text).await;
    setup.gateway.terminate();
    within("it takes no more sessions", async {
        while tokio::net::TcpStream::connect(setup.gateway.listen).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let all = tokio::spawn(reply.text());
    pours.send(answer[200_000..].to_owned()).await;
    drop(pours);
    assert!(all.await.expect("it is read") == answers("1", &text)[1]);
    let mut gateway = setup.gateway;
    assert!(within_time(Duration::from_secs(15), "its end", gateway.wait()).await.success());
}

/// Two servers that list the same resource, and answer with `result` to all that has URIs in it.
async fn of_two(result: &'static str, fill: usize) -> (Gateway, Session, [Backend; 2], String) {
    let result = result.replace("FILL", &"x".repeat(fill));
    let one = |name: &str| -> Builder {
        let made = Backend::builder(name).tool("t").prompt("p").resource("info://a").resource(&format!("info://{name}"));
        ["tools/call", "prompts/get", "resources/read"].into_iter().fold(made, |made, method| made.result(method, &result))
    };
    let backends = [one("a").start().await, one("b").start().await];
    let urls = backends.each_ref().map(Backend::url);
    let gateway = Gateway::start(&http_backends(&[("a", &urls[0]), ("b", &urls[1])])).await;
    let session = gateway.initialize().await;
    for (method, field) in [("tools/list", "tools"), ("prompts/list", "prompts"), ("resources/list", "resources")] {
        session.list(method, field).await;
    }
    (gateway, session, backends, result)
}

#[tokio::test]
async fn uris_in_large_answers_of_several_backends_are_the_clients() {
    // With its fill in each block: what decides comes before it, and after it.
    const TOOL: &str = r#"{"content":[{"type":"text","text":"info://a FILL"},{"type":"resource_link","uri":"info:\/\/a","description":"FILL","name":"n"},{"resource":{"blob":"FILL","uri":"info://a"},"type":"resource"},{"uri":"info://b","title":"FILL","type":"resource_link","name":"b"},{"uri":"info://a","x":"FILL","type":"text","text":""}],"uri":"info://a"}"#;
    const PROMPT: &str = r#"{"messages":[{"role":"user","content":{"type":"text","text":"FILL"}},{"content":{"resource":{"uri":"info://a","text":"FILL"},"type":"resource"},"role":"user"}]}"#;
    const READ: &str = r#"{"contents":[{"text":"FILL","uri":"info://a"},{"uri":"info://a","blob":"FILL"}]}"#;
    // Read whole, and flowing: the same.
    for fill in [10, 100_000] {
        for (result, method, params) in [
            (TOOL, "tools/call", r#"{"name":"b__t"}"#),
            (PROMPT, "prompts/get", r#"{"name":"b__p"}"#),
            (READ, "resources/read", r#"{"uri":"lockgate://b/info://a"}"#),
        ] {
            let (gateway, session, _backends, given) = of_two(result, fill).await;
            let reply = session.start("\"x\"", method, params).await.must_be(200).await;
            assert_eq!(reply.header("content-length").is_none(), fill > 1000, "{method}: it flows if it is large");
            let public = r#""lockgate://b/info://a""#;
            let want = match method {
                "tools/call" => given
                    .replace(r#""uri":"info:\/\/a""#, &format!("\"uri\":{public}"))
                    .replace(r#""uri":"info://a"},"type":"resource""#, &format!("\"uri\":{public}}},\"type\":\"resource\"")),
                _ => given.replace(r#""info://a""#, public),
            };
            let got = reply.text().await;
            assert!(got == raw::result("\"x\"", &want), "{method}, {fill}: {}", got.replace(&"x".repeat(fill), "FILL"));
            gateway.stop().await;
        }
    }
}

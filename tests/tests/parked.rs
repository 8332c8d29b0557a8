//! A legacy server that asks the client something in the middle of a call, and a client of 2026-07-28, which can only be asked by a
//! result: the gateway ends the request with `input_required`, keeps the call, and finds it again by its `requestState`.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use lockgate_tests::{
    backend::{Backend, Builder, Call, Seen},
    client::Answer,
    eventually,
    gateway::{AUTH, Gateway, TOKEN_X, TOKEN_Y, http_backends},
    modern::Modern,
    raw::{self, first_text, member},
    stdio, within,
};
use serde_json::{Map, Value, json};

const QUESTION: &str =
    r#"{"message":"\u0041?","requestedSchema":{"type":"object","properties":{"n":{"type":"number","default":1.0}}},"x":{"z":1,"a":1e2}}"#;

/// Asks once, and answers with the response as it came.
async fn asks(call: Call) {
    // Calls of one session need different ids.
    let id = format!("\"q of {}\"", call.id().trim_matches('"'));
    let stream = call.stream();
    let response = stream.ask(&id, "elicitation/create", QUESTION).await;
    stream.answer(&format!(r#"{{"content":[],"structuredContent":{{"response":{response}}}}}"#)).await;
}

fn asking(name: &str) -> Builder {
    Backend::builder(name).tool("ask").tool("other").on("tools/call", asks)
}

async fn one(backend: &Backend, more: &str) -> Gateway {
    Gateway::start(&format!("{}{more}", http_backends(&[("one", &backend.url())]))).await
}

/// A client that can be asked everything.
fn able(gateway: &Gateway) -> Modern {
    Modern::new(gateway.mcp()).able(json!({ "elicitation": {}, "sampling": {}, "roots": {} }))
}

/// A request that was ended with questions.
#[derive(Debug, Clone)]
struct Parked {
    method: &'static str,
    params: Value,
    /// By the gateway's key: `method` and `params`, and the raw text of all of them.
    questions: Map<String, Value>,
    raw: String,
    state: String,
}

impl Parked {
    fn of(method: &'static str, params: Value, answer: &Answer) -> Self {
        let result = answer.result();
        assert_eq!(answer.status, 200);
        assert_eq!(result["resultType"], "input_required", "{result}");
        let questions = result["inputRequests"].as_object().cloned().unwrap_or_default();
        let state = result["requestState"].as_str().unwrap_or_else(|| panic!("no requestState in {result}")).to_owned();
        let raw = member(answer.result_raw(), "inputRequests").unwrap_or_default().to_owned();
        Self { method, params, questions, raw, state }
    }

    fn only(&self) -> (&str, &Value) {
        assert_eq!(self.questions.len(), 1, "{:?}", self.questions);
        let (key, question) = self.questions.iter().next().expect("there is one");
        (key, question)
    }

    /// The same answer to every question.
    fn answers(&self, answer: &Value) -> Value {
        self.questions.keys().map(|key| (key.clone(), answer.clone())).collect::<Map<_, _>>().into()
    }

    /// The params of the retry.
    fn retry(&self, answer: &Value) -> Value {
        let mut params = self.params.clone();
        params["inputResponses"] = self.answers(answer);
        params["requestState"] = json!(self.state);
        params
    }

    async fn complete(&self, client: &Modern, answer: &Value) -> Answer {
        client.ask(self.method, self.retry(answer)).await
    }
}

async fn park(client: &Modern, arguments: Value) -> Parked {
    let params = json!({ "name": "ask", "arguments": arguments });
    let answer = client.ask("tools/call", params.clone()).await;
    Parked::of("tools/call", params, &answer)
}

fn accept(n: i64) -> Value {
    json!({ "action": "accept", "content": { "n": n } })
}

/// A retry that must not be taken: a clear error, and nothing of the call.
fn refused(answer: &Answer) {
    assert!(matches!(answer.status, 200 | 400), "{}: {}", answer.status, answer.raw);
    let error = answer.error();
    assert_eq!(error["code"], -32602, "{error}");
    assert!(error["message"].as_str().is_some_and(|text| text.len() > 10), "it says why: {error}");
}

#[tokio::test]
async fn a_question_ends_the_request_and_the_answer_completes_the_same_call_from_another_connection() {
    let backend = asking("b").start().await;
    let gateway = one(&backend, "").await;
    let parked = {
        let first = able(&gateway).on_one_connection().await;
        park(&first, json!({ "k": 1 })).await
    };
    let (key, question) = parked.only();
    assert_eq!(question["method"], "elicitation/create");
    let key = key.to_owned();
    assert_eq!(member(member(&parked.raw, &key).expect("the question"), "params"), Some(QUESTION), "as the backend asked it");
    // Their connection is gone; the call is not.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(backend.seen_of("notifications/cancelled").is_empty() && backend.abandoned() == 0);
    let second = able(&gateway).on_one_connection().await;
    let given = r#"{"action":"accept","content":{"n":123456789012345678901234567890,"f":1.0,"n":2},"x":1e0}"#;
    let retry = format!(
        r#"{{"name":"ask","arguments":{{"k":1}},"inputResponses":{{{}:{given}}},"requestState":{}}}"#,
        json!(key),
        json!(parked.state)
    );
    let answer = second.request_raw("tools/call", &retry).id("\"again\"").answer().await;
    assert_eq!((answer.id_raw(), &answer.result()["resultType"]), ("\"again\"", &json!("complete")), "{}", answer.raw);
    let response = member(member(answer.result_raw(), "structuredContent").expect("it is there"), "response").expect("the backend got one");
    assert_eq!(member(response, "result"), Some(given), "as the client answered it");
    assert_eq!(backend.seen_of("tools/call").len(), 1, "the very same call");
    assert_eq!(backend.seen_of("initialize").len(), backend.seen_of("notifications/initialized").len());
    gateway.stop().await;
}

#[tokio::test]
async fn every_kind_of_question_in_every_method_that_may_ask() {
    let script = |call: Call| async move {
        let method = call.seen.method.clone().unwrap_or_default();
        let stream = call.stream();
        let response = match method.as_str() {
            "prompts/get" => stream.ask("1", "sampling/createMessage", r#"{"messages":[],"maxTokens":9}"#).await,
            _ => stream.ask("1", "roots/list", "{}").await,
        };
        let text = json!(response);
        match method.as_str() {
            "prompts/get" => {
                stream.answer(&format!(r#"{{"messages":[{{"role":"user","content":{{"type":"text","text":{text}}}}}]}}"#)).await
            }
            "resources/read" => stream.answer(&format!(r#"{{"contents":[{{"uri":"x://r","text":{text}}}]}}"#)).await,
            _ => stream.answer(&format!(r#"{{"content":[{{"type":"text","text":{text}}}]}}"#)).await,
        }
    };
    let builder = Backend::builder("b").tool("ask").prompt("p").resource("x://r");
    let builder = ["tools/call", "prompts/get", "resources/read"].into_iter().fold(builder, |builder, method| builder.on(method, script));
    let backend = builder.start().await;
    let gateway = one(&backend, "").await;
    let client = able(&gateway);
    for (method, params, asked) in [
        ("tools/call", json!({ "name": "ask", "arguments": {} }), "roots/list"),
        ("prompts/get", json!({ "name": "p" }), "sampling/createMessage"),
        ("resources/read", json!({ "uri": "x://r" }), "roots/list"),
    ] {
        let parked = Parked::of(method, params.clone(), &client.ask(method, params).await);
        assert_eq!(parked.only().1["method"], asked, "{method}");
        let given = json!({ "roots": [{ "uri": "file:///marked" }] });
        let answer = parked.complete(&client, &given).await;
        assert!(answer.result_raw().contains("file:///marked"), "{method}: {}", answer.raw);
        assert_eq!(answer.result()["resultType"], "complete", "{method}");
        assert_eq!(backend.seen_of(method).len(), 1, "{method}");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn two_questions_at_once_are_both_answered_and_the_call_runs_once() {
    let script = |call: Call| async move {
        let stream = Arc::new(call.stream());
        let other = stream.clone();
        let second = tokio::spawn(async move { other.ask("2", "roots/list", "{}").await });
        let first = stream.ask("1", "elicitation/create", QUESTION).await;
        let second = second.await.expect("no panic");
        let stream = Arc::into_inner(stream).expect("the other is done");
        stream.answer(&format!(r#"{{"content":[],"structuredContent":{{"first":{first},"second":{second}}}}}"#)).await;
    };
    let backend = Backend::builder("b").tool("ask").on("tools/call", script).start().await;
    let gateway = one(&backend, "").await;
    let client = able(&gateway);
    let mut parked = park(&client, json!({})).await;
    let mut asked = Vec::new();
    let result = loop {
        let answers: Map<_, _> = parked
            .questions
            .iter()
            .map(|(key, question)| {
                asked.push(question["method"].clone());
                let answer = if question["method"] == "roots/list" { json!({ "roots": [{ "uri": "file:///r" }] }) } else { accept(1) };
                (key.clone(), answer)
            })
            .collect();
        let mut params = parked.params.clone();
        params["inputResponses"] = answers.into();
        params["requestState"] = json!(parked.state);
        let answer = client.ask("tools/call", params.clone()).await;
        if answer.result()["resultType"] == "complete" {
            break answer.result();
        }
        assert!(asked.len() < 3, "asked for {asked:?}");
        parked = Parked::of("tools/call", parked.params, &answer);
    };
    asked.sort_by_key(Value::to_string);
    assert_eq!(asked, ["elicitation/create", "roots/list"], "each question once");
    let content = &result["structuredContent"];
    assert_eq!(content["first"]["result"], accept(1), "{content}");
    assert_eq!(content["second"]["result"]["roots"][0]["uri"], "file:///r", "{content}");
    assert_eq!(backend.seen_of("tools/call").len(), 1);
    gateway.stop().await;
}

#[tokio::test]
async fn questions_that_a_stdio_server_asks_are_parked_as_well() {
    let folder = lockgate_tests::process::Folder::new("parked");
    let log = folder.path().join("backend.log");
    let command = json!(stdio::command(&log, &[]));
    let gateway = Gateway::start(&format!("backends:\n  child: {{ command: {command} }}\n")).await;
    let parked = park(&able(&gateway), json!({})).await;
    assert_eq!(parked.only().1["params"]["message"], "Who?");
    let answer = parked.complete(&able(&gateway), &json!({ "action": "accept", "content": { "name": "Ada" } })).await;
    assert_eq!(answer.result()["structuredContent"]["content"]["name"], "Ada", "{}", answer.raw);
    let calls = stdio::read(&log).into_iter().filter(|line| line.text.contains("tools/call")).count();
    assert_eq!(calls, 1);
    gateway.stop().await;
}

#[tokio::test]
async fn a_stdio_server_may_ask_while_other_calls_wait_for_their_client_or_are_at_work() {
    let folder = lockgate_tests::process::Folder::new("parked");
    let log = folder.path().join("backend.log");
    let command = json!(stdio::command(&log, &[]));
    let gateway = Gateway::start(&format!("backends:\n  child: {{ command: {command} }}\n{AUTH}")).await;
    let client = Modern::new(gateway.mcp().with_bearer(TOKEN_X)).able(json!({ "elicitation": {} }));
    let first = park(&client, json!({ "k": 1 })).await;
    let second = park(&client, json!({ "k": 2 })).await;
    let named = |name: &str| json!({ "action": "accept", "content": { "name": name } });
    // The child asks in the second call while it is in the first, so it wants the answers in this order.
    for (parked, name) in [(second, "two"), (first, "one")] {
        let answer = parked.complete(&client, &named(name)).await;
        assert_eq!(answer.result()["structuredContent"]["content"]["name"], name, "{}", answer.raw);
    }
    gateway.stop().await;
}

#[tokio::test]
async fn an_anonymous_client_that_does_not_answer_takes_no_place_of_another() {
    let backend = asking("b").start().await;
    let gateway = one(&backend, "modern: { parked: 3, parked_per_principal: 1 }\n").await;
    let (a, b) = (able(&gateway).on_one_connection().await, able(&gateway).on_one_connection().await);
    park(&a, json!({ "n": 1 })).await;
    assert!(a.call("ask", json!({ "n": 2 })).await["structuredContent"]["response"]["error"]["code"].is_i64());
    let of_b = park(&b, json!({ "n": 3 })).await;
    // A connection each, which have gone: they make room, the oldest first.
    for n in 4..8 {
        // It may take a moment until the gateway sees that the one before has gone.
        within("a place", async {
            let params = json!({ "name": "ask", "arguments": { "n": n } });
            while able(&gateway).result("tools/call", params.clone()).await["resultType"] != "input_required" {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
    }
    of_b.complete(&b, &accept(3)).await.result();
    gateway.stop().await;
}

/// Asks twice, one question after the other, with progress before, between and after them.
async fn asks_twice(call: Call) {
    let token = call.progress_token();
    let stream = call.stream();
    let progress = async |step: u32| {
        if let Some(token) = &token {
            stream.notify("notifications/progress", &format!(r#"{{"progressToken":{token},"progress":{step}}}"#)).await;
        }
    };
    progress(1).await;
    let first = stream.ask("1", "elicitation/create", QUESTION).await;
    progress(2).await;
    let second = stream.ask("2", "sampling/createMessage", r#"{"messages":[],"maxTokens":1}"#).await;
    progress(3).await;
    stream.answer(&format!(r#"{{"content":[],"structuredContent":{{"first":{first},"second":{second}}}}}"#)).await;
}

#[tokio::test]
async fn two_rounds_have_a_state_each_and_progress_follows_the_request_that_waits() {
    let backend = Backend::builder("b").tool("ask").on("tools/call", asks_twice).start().await;
    let gateway = one(&backend, "").await;
    let client = able(&gateway);
    let params = json!({ "name": "ask", "arguments": {} });
    let progress = |answer: &Answer| -> Vec<(Value, Value)> {
        let messages = answer.messages().into_iter().filter(|note| note["method"] == "notifications/progress");
        messages.map(|note| (note["params"]["progressToken"].clone(), note["params"]["progress"].clone())).collect()
    };
    let with_token = |params: Value, token: Value| client.request("tools/call", params).meta("progressToken", token);
    let answer = with_token(params.clone(), json!("p-1")).answer().await;
    assert_eq!(progress(&answer), [(json!("p-1"), json!(1))]);
    let first = Parked::of("tools/call", params.clone(), &answer);
    assert_eq!(first.only().1["method"], "elicitation/create");
    let answer = with_token(first.retry(&accept(1)), json!(2)).answer().await;
    assert_eq!(progress(&answer), [(json!(2), json!(2))], "the token is that of the retry");
    let second = Parked::of("tools/call", params, &answer);
    assert_eq!(second.only().1["method"], "sampling/createMessage");
    assert_ne!(first.state, second.state);
    refused(&first.complete(&client, &accept(9)).await);
    let given = json!({ "role": "assistant", "model": "m", "content": { "type": "text", "text": "s" } });
    let answer = second.complete(&client, &given).await;
    assert_eq!(progress(&answer), [], "this retry asked for none");
    let content = &answer.result()["structuredContent"];
    assert_eq!((&content["first"]["result"], &content["second"]["result"]), (&accept(1), &given), "{content}");
    assert_eq!(backend.seen_of("tools/call").len(), 1);
    gateway.stop().await;
}

#[tokio::test]
async fn a_client_may_decline_or_fail() {
    let backend = asking("b").start().await;
    let gateway = one(&backend, "").await;
    let client = able(&gateway);
    for given in [json!({ "action": "decline" }), json!({ "action": "cancel" })] {
        let answer = park(&client, json!({})).await.complete(&client, &given).await;
        assert_eq!(answer.result()["structuredContent"]["response"]["result"], given, "{}", answer.raw);
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_state_that_was_tampered_with_is_refused_and_the_call_is_unharmed() {
    let backend = asking("b").start().await;
    let gateway = one(&backend, "").await;
    let stranger = one(&backend, "").await;
    let client = able(&gateway);
    let parked = park(&client, json!({})).await;
    let elsewhere = park(&able(&stranger), json!({})).await;
    let flip = |at: usize| {
        let mut bytes = parked.state.clone().into_bytes();
        bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
        String::from_utf8(bytes).expect("ASCII")
    };
    let length = parked.state.len();
    let mut wrong: Vec<String> = (0..length).step_by(1 + length / 24).map(flip).collect();
    wrong.extend([
        parked.state[..length - 1].to_owned(),
        format!("{}A", parked.state),
        format!("{0}{0}", parked.state),
        String::new(),
        "invented".to_owned(),
        "ü".to_owned(),
        "A".repeat(100_000),
        elsewhere.state,
    ]);
    for state in wrong {
        let mut forged = parked.clone();
        forged.state.clone_from(&state);
        refused(&forged.complete(&client, &accept(1)).await);
    }
    for state in [json!(1), json!({}), json!([parked.state])] {
        let mut params = parked.retry(&accept(1));
        params["requestState"] = state;
        refused(&client.ask("tools/call", params).await);
    }
    assert_eq!(backend.seen_of("tools/call").len(), 2, "that of each gateway");
    let answer = parked.complete(&client, &accept(7)).await;
    assert_eq!(answer.result()["structuredContent"]["response"]["result"], accept(7), "{}", answer.raw);
    stranger.stop().await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_state_tells_nothing_of_what_is_behind_it() {
    let backend = asking("b").start().await;
    let gateway = one(&backend, AUTH).await;
    let client = Modern::new(gateway.mcp().with_bearer(TOKEN_X)).able(json!({ "elicitation": {} }));
    let (first, second) = (park(&client, json!({ "secret": "word" })).await, park(&client, json!({ "secret": "word" })).await);
    assert_ne!(first.state, second.state);
    let prefix = first.state.bytes().zip(second.state.bytes()).take_while(|(a, b)| a == b).count();
    assert!(prefix <= 8, "two states have {prefix} characters in common: {} {}", first.state, second.state);
    let upstream = backend.seen_of("tools/call")[0].session.clone().expect("a session");
    for told in ["ask", "secret", "word", TOKEN_X, upstream.as_str()] {
        assert!(!first.state.contains(told), "{told} is in {}", first.state);
    }
    assert!(!gateway.log().contains(&first.state), "a state is in the log");
    gateway.stop().await;
}

#[tokio::test]
async fn a_state_of_another_principal_is_refused_like_one_that_never_was() {
    let backend = asking("b").start().await;
    let gateway = one(&backend, AUTH).await;
    let client = |token: &str| Modern::new(gateway.mcp().with_bearer(token)).able(json!({ "elicitation": {} }));
    let (x, y) = (client(TOKEN_X), client(TOKEN_Y));
    let parked = park(&x, json!({})).await;
    let foreign = parked.complete(&y, &accept(1)).await;
    refused(&foreign);
    let mut invented = parked.clone();
    invented.state = "invented".to_owned();
    let never = invented.complete(&y, &accept(1)).await;
    assert_eq!((foreign.status, foreign.error()), (never.status, never.error()), "it tells that there is such a call");
    assert_eq!(backend.seen_of("tools/call").len(), 1);
    let answer = parked.complete(&x, &accept(3)).await;
    assert_eq!(answer.result()["structuredContent"]["response"]["result"], accept(3), "{}", answer.raw);
    gateway.stop().await;
}

#[tokio::test]
async fn a_state_serves_once() {
    let backend = asking("b").start().await;
    let gateway = one(&backend, "").await;
    let client = able(&gateway);
    let parked = park(&client, json!({})).await;
    parked.complete(&client, &accept(1)).await.result();
    refused(&parked.complete(&client, &accept(2)).await);
    // Both at the same time: one of them is answered, whichever.
    let parked = park(&client, json!({})).await;
    let (given, also) = (accept(1), accept(2));
    let (one, two) = tokio::join!(parked.complete(&client, &given), parked.complete(&client, &also));
    let (done, not): (Vec<_>, Vec<_>) = [one, two].into_iter().partition(|answer| answer.message().result.is_some());
    assert_eq!((done.len(), not.len()), (1, 1), "{done:?} {not:?}");
    refused(&not[0]);
    assert_eq!(backend.seen_of("tools/call").len(), 2);
    gateway.stop().await;
}

#[tokio::test]
async fn a_state_belongs_to_its_tool_and_arguments() {
    let backend = asking("b").prompt("ask").start().await;
    let gateway = one(&backend, "").await;
    let client = able(&gateway);
    let parked = park(&client, json!({ "k": 1 })).await;
    for (name, arguments) in
        [("other", json!({ "k": 1 })), ("ask", json!({ "k": 2 })), ("ask", json!({})), ("ask", json!({ "k": 1, "l": 1 }))]
    {
        let mut params = parked.retry(&accept(1));
        params["name"] = json!(name);
        params["arguments"] = arguments;
        refused(&client.ask("tools/call", params).await);
    }
    let mut without = parked.retry(&accept(1));
    without.as_object_mut().expect("an object").remove("arguments");
    refused(&client.ask("tools/call", without).await);
    refused(&client.ask("prompts/get", parked.retry(&accept(1))).await);
    assert_eq!((backend.seen_of("tools/call").len(), backend.seen_of("prompts/get").len()), (1, 0));
    let answer = parked.complete(&client, &accept(4)).await;
    assert_eq!(answer.result()["structuredContent"]["response"]["result"], accept(4), "{}", answer.raw);
    gateway.stop().await;
}

#[tokio::test]
async fn a_state_belongs_to_its_virtual_host() {
    let backend = asking("b").start().await;
    let gateway = one(&backend, "virtual_hosts:\n  /a: { backends: [one] }\n  /b: { backends: [one] }\n").await;
    let client = |path: &str| Modern::new(gateway.at(path)).able(json!({ "elicitation": {} }));
    let parked = park(&client("/a"), json!({})).await;
    refused(&parked.complete(&client("/b"), &accept(1)).await);
    let answer = parked.complete(&client("/a"), &accept(5)).await;
    assert_eq!(answer.result()["structuredContent"]["response"]["result"], accept(5), "{}", answer.raw);
    assert_eq!(backend.seen_of("tools/call").len(), 1);
    gateway.stop().await;
}

#[tokio::test]
async fn a_parked_call_whose_time_is_over_is_cancelled_and_its_state_refused() {
    let backend = asking("b").start().await;
    let gateway = one(&backend, "modern: { parked_time: 1s }\n").await;
    let client = able(&gateway);
    let parked = park(&client, json!({})).await;
    let upstream = backend.seen_of("tools/call").remove(0);
    let cancelled = backend.saw("notifications/cancelled", 1).await.remove(0);
    assert_eq!(cancelled.session, upstream.session);
    assert_eq!(Some(cancelled.params()["requestId"].to_string()), upstream.message().id.map(|id| id.get().to_owned()));
    // The server may wait for its question all the same: it is answered, too.
    let given_up = |seen: &Seen| String::from_utf8_lossy(&seen.body).contains("-31009");
    eventually("the question is given up", || backend.seen().iter().any(given_up).then_some(())).await;
    refused(&parked.complete(&client, &accept(1)).await);
    assert_eq!(backend.seen_of("tools/call").len(), 1);
    gateway.stop().await;
}

#[tokio::test]
async fn parked_calls_are_bounded_in_all() {
    let backend = asking("b").start().await;
    let gateway = one(&backend, "modern: { parked: 2 }\n").await;
    // One that has gone would make room.
    let client = able(&gateway).on_one_connection().await;
    let (first, second) = (park(&client, json!({ "n": 1 })).await, park(&client, json!({ "n": 2 })).await);
    // The server is told that it cannot ask, and says what it says then.
    let result = client.call("ask", json!({ "n": 3 })).await;
    assert!(result["structuredContent"]["response"]["error"]["code"].is_i64(), "{result}");
    for (n, parked) in [(1, &first), (2, &second)] {
        let answer = parked.complete(&client, &accept(n)).await;
        assert_eq!(answer.result()["structuredContent"]["response"]["result"], accept(n), "{}", answer.raw);
    }
    // There is room again.
    park(&client, json!({ "n": 4 })).await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_retry_is_taken_though_calls_that_wait_and_work_hold_all_credit() {
    let script = |call: Call| async move {
        if call.target() == "hold" {
            std::future::pending::<()>().await;
        }
        asks(call).await;
    };
    let backend = Backend::builder("b").tool("ask").tool("hold").on("tools/call", script).start().await;
    let gateway = one(&backend, &format!("{AUTH}admission: {{ frames: 3, patience: 50ms }}\n")).await;
    let client = Modern::new(gateway.mcp().with_bearer(TOKEN_X)).able(json!({ "elicitation": {} }));
    let (first, second) = (park(&client, json!({ "n": 1 })).await, park(&client, json!({ "n": 2 })).await);
    let works = client.clone();
    let works = tokio::spawn(async move { works.ask("tools/call", json!({ "name": "hold", "arguments": {} })).await.status });
    backend.saw("tools/call", 3).await;
    assert_eq!(client.ask("tools/list", json!({})).await.status, 429);
    for (n, parked) in [(2, &second), (1, &first)] {
        let answer = parked.complete(&client, &accept(n)).await;
        assert_eq!(answer.result()["structuredContent"]["response"]["result"], accept(n), "{}", answer.raw);
    }
    works.abort();
    gateway.stop().await;
}

#[tokio::test]
async fn parked_calls_of_one_principal_leave_room_for_another() {
    let backend = asking("b").start().await;
    let gateway = one(&backend, &format!("{AUTH}modern: {{ parked: 10, parked_per_principal: 1 }}\n")).await;
    let client = |token: &str| Modern::new(gateway.mcp().with_bearer(token)).able(json!({ "elicitation": {} }));
    let (x, y) = (client(TOKEN_X), client(TOKEN_Y));
    let first = park(&x, json!({ "n": 1 })).await;
    let result = x.call("ask", json!({ "n": 2 })).await;
    assert!(result["structuredContent"]["response"]["error"]["code"].is_i64(), "{result}");
    let of_y = park(&y, json!({ "n": 3 })).await;
    first.complete(&x, &accept(1)).await.result();
    of_y.complete(&y, &accept(3)).await.result();
    park(&x, json!({ "n": 4 })).await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_client_is_only_asked_what_it_said_it_can_answer() {
    let backend = asking("b").start().await;
    let gateway = one(&backend, "").await;
    let client = Modern::new(gateway.mcp()).able(json!({ "sampling": {} })).on_one_connection().await;
    let answer = client.ask("tools/call", json!({ "name": "ask", "arguments": {} })).await;
    let raw = answer.raw.clone();
    assert!(!raw.contains("input_required"), "{raw}");
    if answer.message().result.is_some() {
        assert!(answer.result()["structuredContent"]["response"]["error"]["code"].is_i64(), "the backend was told: {raw}");
    } else if answer.error()["code"] == -32021 {
        assert_eq!(answer.status, 400, "{raw}");
        assert!(answer.error()["data"]["requiredCapabilities"].to_string().contains("elicitation"), "{raw}");
    }
    let init = backend.init_of(backend.seen_of("tools/call")[0].session.as_deref().expect("a session"));
    assert!(init["capabilities"]["elicitation"].is_null(), "announced without need: {init}");
    assert!(init["capabilities"]["sampling"].is_object(), "{init}");
    gateway.stop().await;
}

#[tokio::test]
async fn a_retry_may_not_be_able_to_less_than_the_call_that_was_asked() {
    // The next question would go to a client that says it cannot be asked.
    let backend = Backend::builder("b").tool("ask").on("tools/call", asks_twice).start().await;
    let gateway = one(&backend, "").await;
    let parked = park(&able(&gateway), json!({})).await;
    let less = Modern::new(gateway.mcp()).able(json!({ "elicitation": {} }));
    let answer = parked.complete(&less, &accept(1)).await;
    assert_eq!((answer.status, &answer.error()["code"]), (400, &json!(-32021)), "{}", answer.raw);
    assert!(answer.error()["data"]["requiredCapabilities"]["sampling"].is_object(), "{}", answer.raw);
    // As the client that it was, it goes on.
    let answer = parked.complete(&able(&gateway), &accept(1)).await;
    assert_eq!(answer.result()["resultType"], "input_required", "{}", answer.raw);
    gateway.stop().await;
}

#[tokio::test]
async fn a_call_that_its_server_ends_while_it_is_parked_gives_what_it_gave() {
    let script = |call: Call| async move {
        let stream = call.stream();
        stream.send(&raw::request("1", "elicitation/create", QUESTION)).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        stream.answer(&raw::text("without you")).await;
    };
    let backend = Backend::builder("b").tool("ask").on("tools/call", script).start().await;
    let gateway = one(&backend, "").await;
    let client = able(&gateway);
    let parked = park(&client, json!({})).await;
    tokio::time::sleep(Duration::from_millis(700)).await;
    let answer = parked.complete(&client, &accept(1)).await;
    assert_eq!(first_text(&answer.result()), "without you");
    gateway.stop().await;
}

#[tokio::test]
async fn a_server_that_dies_under_a_parked_call_is_an_error_of_the_retry() {
    let backend = asking("b").start().await;
    let gateway = one(&backend, "").await;
    let client = able(&gateway);
    let parked = park(&client, json!({})).await;
    drop(backend);
    tokio::time::sleep(Duration::from_millis(300)).await;
    let error = parked.complete(&client, &accept(1)).await.error();
    assert!(error["code"].is_i64() && error["message"].is_string(), "{error}");
    gateway.stop().await;
}

#[tokio::test]
async fn a_question_that_a_server_takes_back_is_asked_no_more() {
    let script = |call: Call| async move {
        let stream = call.stream();
        stream.send(&raw::request("\"q\"", "elicitation/create", QUESTION)).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        stream.notify("notifications/cancelled", r#"{"requestId":"q"}"#).await;
        let second = stream.ask("\"r\"", "roots/list", "{}").await;
        stream.answer(&format!(r#"{{"content":[],"structuredContent":{{"second":{second}}}}}"#)).await;
    };
    let backend = Backend::builder("b").tool("ask").on("tools/call", script).start().await;
    let gateway = one(&backend, "").await;
    let client = able(&gateway);
    let first = park(&client, json!({})).await;
    tokio::time::sleep(Duration::from_millis(700)).await;
    let answer = first.complete(&client, &accept(1)).await;
    let second = Parked::of("tools/call", first.params.clone(), &answer);
    assert_eq!(second.only().1["method"], "roots/list");
    let answer = second.complete(&client, &json!({ "roots": [] })).await;
    assert_eq!(answer.result()["structuredContent"]["second"]["result"], json!({ "roots": [] }), "{}", answer.raw);
    gateway.stop().await;
}

#[tokio::test]
async fn an_incomplete_retry_loses_nothing() {
    let backend = asking("b").start().await;
    let gateway = one(&backend, "").await;
    let client = able(&gateway);
    let parked = park(&client, json!({})).await;
    let mut params = parked.retry(&accept(1));
    params["inputResponses"] = json!({});
    let answer = client.ask("tools/call", params).await;
    // Asked again, or told that something is missing.
    let parked = if answer.message().result.is_some() { Parked::of("tools/call", parked.params.clone(), &answer) } else { parked };
    let mut params = parked.retry(&accept(6));
    params["inputResponses"]["of nobody"] = accept(0);
    let answer = client.ask("tools/call", params).await;
    assert_eq!(answer.result()["structuredContent"]["response"]["result"], accept(6), "{}", answer.raw);
    assert_eq!(backend.seen_of("tools/call").len(), 1);
    gateway.stop().await;
}

#[tokio::test]
async fn answers_without_a_state_belong_to_no_call() {
    let backend = asking("b").start().await;
    let gateway = one(&backend, "").await;
    let client = able(&gateway);
    let parked = park(&client, json!({})).await;
    let mut params = parked.retry(&accept(1));
    params.as_object_mut().expect("an object").remove("requestState");
    let answer = client.ask("tools/call", params).await;
    if answer.message().result.is_some() {
        // A call of its own, which asks as any other does.
        Parked::of("tools/call", parked.params.clone(), &answer);
    } else {
        refused(&answer);
    }
    let answer = parked.complete(&client, &accept(2)).await;
    assert_eq!(answer.result()["structuredContent"]["response"]["result"], accept(2), "{}", answer.raw);
    gateway.stop().await;
}

#[tokio::test]
async fn a_client_that_leaves_during_its_retry_has_cancelled_the_call() {
    let script = |call: Call| async move {
        let stream = call.stream();
        stream.ask("1", "elicitation/create", QUESTION).await;
        stream.closed().await;
    };
    let backend = Backend::builder("b").tool("ask").on("tools/call", script).start().await;
    let gateway = one(&backend, "").await;
    let client = able(&gateway);
    let parked = park(&client, json!({})).await;
    let caller = client.clone();
    let again = parked.clone();
    let retry = tokio::spawn(async move { again.complete(&caller, &accept(1)).await });
    eventually("the answer at the backend", || backend.seen().iter().any(|seen| seen.method.is_none()).then_some(())).await;
    retry.abort();
    backend.saw("notifications/cancelled", 1).await;
    refused(&parked.complete(&client, &accept(2)).await);
    gateway.stop().await;
}

#[tokio::test]
async fn the_end_of_the_gateway_ends_parked_calls_in_time() {
    let backend = asking("b").start().await;
    let gateway = one(&backend, "").await;
    let _parked = park(&able(&gateway), json!({})).await;
    let start = std::time::Instant::now();
    gateway.stop().await;
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    backend.has_sessions(0).await;
}

#[tokio::test]
async fn many_calls_are_parked_at_once_and_each_state_finds_its_own() {
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let backend = asking("b").start().await;
    let gateway = one(&backend, AUTH).await;
    let client = Modern::new(gateway.mcp().with_bearer(TOKEN_X)).able(json!({ "elicitation": {} }));
    let calls: Vec<_> = (0..8)
        .map(|n| {
            let (client, seen) = (client.clone(), seen.clone());
            tokio::spawn(async move {
                let parked = park(&client, json!({ "n": n })).await;
                seen.lock().expect("no panic").push(parked.state.clone());
                tokio::time::sleep(Duration::from_millis(100)).await;
                let answer = parked.complete(&client, &accept(n)).await;
                assert_eq!(answer.result()["structuredContent"]["response"]["result"], accept(n), "{}", answer.raw);
            })
        })
        .collect();
    for call in calls {
        within("a parked call", call).await.expect("each finds its own");
    }
    let mut states = seen.lock().expect("no panic").clone();
    states.sort();
    states.dedup();
    assert_eq!((states.len(), backend.seen_of("tools/call").len()), (8, 8));
    gateway.stop().await;
}

#[tokio::test]
async fn a_retry_whose_parameter_headers_say_something_else_is_refused_and_the_call_waits_on() {
    let tool = r#"{"name":"ask","inputSchema":{"type":"object","properties":{"r":{"type":"string","x-mcp-header":"R"}}}}"#;
    let backend = Backend::builder("b").item("tools", tool).on("tools/call", asks).start().await;
    let gateway = one(&backend, "").await;
    let client = able(&gateway);
    let params = json!({ "name": "ask", "arguments": { "r": "eu" } });
    let first = client.request("tools/call", params.clone()).header("mcp-param-r", "eu").answer().await;
    let parked = Parked::of("tools/call", params, &first);
    let retry = || client.request("tools/call", parked.retry(&accept(1)));
    retry().refused(400, -32020).await;
    retry().header("mcp-param-r", "us").refused(400, -32020).await;
    let result = retry().header("mcp-param-r", "eu").answer().await.result();
    assert_eq!(result["structuredContent"]["response"]["result"], accept(1), "{result}");
    assert_eq!(backend.seen_of("tools/call").len(), 1);
    gateway.stop().await;
}

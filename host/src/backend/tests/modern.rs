use super::*;
use crate::protocol::{RpcError, codes};
use serde_json::Value;
use std::path::PathBuf;

/// A server of 2026-07-28 in Python. `body` defines `tool(name, m)`, and may define `other(m)`, `listen(m)` and `discover`. The tool `log`
/// answers with all that the server was sent before.
fn server(body: &str) -> Backend {
    let script = r#"
import json, os, sys, time
out = sys.stdout
log, V = [], "2026-07-28"
K = "io.modelcontextprotocol/"
def say(m):
    out.write(json.dumps(m) + "\n"); out.flush()
def raw(id, result):
    out.write('{"jsonrpc":"2.0","id":%s,"result":%s}\n' % (json.dumps(id), result)); out.flush()
def answer(m, **result): say({"jsonrpc": "2.0", "id": m["id"], "result": {"resultType": "complete", **result}})
def fail(m, code, message="no", **data): say({"jsonrpc": "2.0", "id": m["id"], "error": {"code": code, "message": message, "data": data}})
def note(method, **params): say({"jsonrpc": "2.0", "method": method, "params": params})
def ask(m, state=None, **requests):
    r = {"resultType": "input_required"}
    if requests: r["inputRequests"] = requests
    if state is not None: r["requestState"] = state
    say({"jsonrpc": "2.0", "id": m["id"], "result": r})
def elicit(text, **more): return {"method": "elicitation/create", "params": {"message": text, **more}}
def acknowledge(m, **filter): note("notifications/subscriptions/acknowledged", notifications=filter or m["params"]["notifications"], _meta={K + "subscriptionId": m["id"]})
def other(m): fail(m, -32601)
def listen(m): acknowledge(m)
def initialize(m): fail(m, -32601)
def discover(m): answer(m, supportedVersions=[V], capabilities={"tools": {"listChanged": True}, "resources": {"subscribe": True}}, instructions="do", ttlMs=5, cacheScope="private", _meta={K + "serverInfo": {"name": "s", "zz": 1.0}})
def tool(name, m): answer(m)
BODY
for line in sys.stdin:
    m = json.loads(line)
    method, p = m.get("method"), m.get("params") or {}
    if method == "tools/call" and p["name"] == "log":
        answer(m, log=log); continue
    log.append(m)
    if "id" not in m: continue
    if method == "initialize": initialize(m); continue
    meta = p.get("_meta") or {}
    if meta.get(K + "protocolVersion") != V or K + "clientCapabilities" not in meta: fail(m, -32602, "missing _meta"); continue
    if method == "server/discover": discover(m)
    elif method == "subscriptions/listen": listen(m)
    elif method == "tools/call": tool(p["name"], m)
    else: other(m)
"#;
    let args = ["-u".to_owned(), "-c".into(), script.replace("BODY", body)];
    let target = Target::Stdio { program: PathBuf::from("python3"), args: args.iter().map(Into::into).collect(), env: vec![], cwd: None };
    Backend { name: "b".into(), target, timeouts: timeouts(), limits: Limits::default(), http: HttpClient::new(), known: Known::default() }
}

fn open_for(backend: Backend, capabilities: &str) -> (Arc<Upstream>, mpsc::Receiver<FromServer>) {
    let (inbox, received) = inbox();
    let hello = Hello { capabilities: Bytes::from(capabilities.to_owned()), ..(*hello()).clone() };
    (Upstream::open(Arc::new(backend), Arc::new(hello), inbox, None), received)
}

fn start(body: &str) -> (Arc<Upstream>, mpsc::Receiver<FromServer>) {
    open_for(server(body), r#"{"elicitation":{},"roots":{}}"#)
}

/// What the server was sent.
async fn log(up: &Arc<Upstream>) -> Vec<Value> {
    let text = run(up, tool("log")).await.unwrap();
    serde_json::from_str::<Value>(&text).unwrap()["log"].as_array().unwrap().clone()
}

async fn sent(up: &Arc<Upstream>, method: &str) -> Vec<Value> {
    log(up).await.into_iter().filter(|m| m["method"] == method).collect()
}

async fn until(up: &Arc<Upstream>, what: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    let wait = async {
        loop {
            let log = log(up).await;
            if what(&log) {
                return log;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LONG, wait).await.expect("the server never saw it")
}

fn of<'a>(log: &'a [Value], method: &str) -> Vec<&'a Value> {
    log.iter().filter(|m| m["method"] == method).collect()
}

async fn notification(inbox: &mut mpsc::Receiver<FromServer>) -> Value {
    loop {
        match received(inbox).await {
            FromServer::Notification(note) => return serde_json::from_slice(&note.raw).unwrap(),
            FromServer::Up(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

fn simple(method: &str, params: &str) -> Outbound {
    outbound(&format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#))
}

async fn down(backend: Backend) -> String {
    let (up, _inbox) = open_for(backend, "{}");
    up.ready(LONG).await.unwrap_err().to_string()
}

async fn reply(up: &Arc<Upstream>, to: &Request, result: &str) {
    up.respond(codes::result(&to.id, result.to_owned())).await.unwrap();
}

/// The answer to a call, as the client of id `7` gets it.
async fn answer(up: &Arc<Upstream>, out: Outbound) -> String {
    let mut call = up.call(out, LONG).await.unwrap();
    loop {
        match next(&mut call).await {
            CallEvent::Answer(r) => {
                return String::from_utf8(r.rewritten(&RequestId::number(7), Edits::new()).into_bytes().to_vec()).unwrap();
            }
            CallEvent::Failed(e) => panic!("{e}"),
            _ => {}
        }
    }
}

const META: &str = "io.modelcontextprotocol/";

#[tokio::test]
async fn a_server_without_initialize_is_discovered_and_told_with_every_request_who_asks() {
    let (up, _inbox) =
        open_for(server(""), r#"{"roots":{"zz":1.0},"tasks":{"list":{}},"extensions":{"io.modelcontextprotocol/tasks":{},"x":{}}}"#);
    let hello = up.ready(LONG).await.unwrap();
    assert_eq!(hello.version, Version::V2026_07_28);
    assert_eq!(hello.instructions.as_deref(), Some("do"));
    assert_eq!(hello.server_info, r#"{"name": "s", "zz": 1.0}"#);
    assert!(hello.capabilities.starts_with(b"{\"tools\""));
    run(&up, tool("t")).await.unwrap();
    assert_eq!(run(&up, simple("logging/setLevel", r#"{"level":"warning"}"#)).await.unwrap(), "{}");
    assert_eq!(run(&up, simple("ping", "{}")).await.unwrap(), "{}");
    run(&up, outbound(r#"{"jsonrpc":"2.0","id":1,"method":"prompts/list"}"#)).await.unwrap();
    up.notify(codes::notification("notifications/roots/list_changed", None)).await.unwrap();
    let log = until(&up, |log| of(log, "subscriptions/listen").len() == 1).await;
    let mut methods: Vec<_> = log.iter().map(|m| m["method"].as_str().unwrap()).filter(|m| *m != "subscriptions/listen").collect();
    methods.sort_unstable();
    assert_eq!(methods, ["initialize", "prompts/list", "server/discover", "tools/call"]);
    for m in &log[1..] {
        let meta = &m["params"]["_meta"];
        assert_eq!(meta[format!("{META}protocolVersion")], "2026-07-28", "{m}");
        assert_eq!(meta[format!("{META}clientInfo")]["name"], "c");
        assert_eq!(meta[format!("{META}clientCapabilities")], serde_json::json!({ "roots": { "zz": 1.0 }, "extensions": { "x": {} } }));
        let level = if m["method"] == "prompts/list" { Value::from("warning") } else { Value::Null };
        assert_eq!(meta[format!("{META}logLevel")], level, "{m}");
    }
    up.close(LONG).await;
}

#[tokio::test]
async fn a_server_of_both_eras_is_spoken_to_in_the_clients() {
    let (up, _inbox) = start(
        r#"
def initialize(m): say({"jsonrpc": "2.0", "id": m["id"], "result": {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}}})
"#,
    );
    assert_eq!(up.ready(LONG).await.unwrap().version, Version::V2025_11_25);
    up.close(LONG).await;
}

#[tokio::test]
async fn a_refused_initialize_stays_refused_where_there_is_no_discover_and_other_revisions_are_named() {
    let why = down(server("def initialize(m): fail(m, -32602, 'who are you')\ndef discover(m): fail(m, -32601)")).await;
    assert!(why.contains("refused initialize with error -32602: who are you"), "{why}");
    let why = down(server("def initialize(m): fail(m, -32000, 'not today')\ndef discover(m): os._exit(3)")).await;
    assert!(why.contains("not today"), "{why}");
    let why = down(server("def initialize(m): fail(m, -32022)\ndef discover(m): fail(m, -32022, supported=['2027-01-01'])")).await;
    assert!(why.contains("2027-01-01"), "{why}");
    let why = down(server("def discover(m): answer(m, supportedVersions=['2027-01-01'])")).await;
    assert!(why.contains("2027-01-01"), "{why}");
}

#[tokio::test]
async fn questions_are_asked_in_order_and_the_request_is_repeated_with_the_answers_and_the_state() {
    let (up, _inbox) = start(
        r#"
def tool(name, m):
    p = m["params"]
    if "inputResponses" not in p:
        out.write('{"jsonrpc":"2.0","id":%d,"result":{"requestState":"\\u00e9\\/+","resultType":"input_required","inputRequests":{"z \\"":{"method":"elicitation/create","params":{"message":"1","n":1.0}},"a":{"method":"roots/list"}}}}\n' % m["id"]); out.flush()
    elif len(p["inputResponses"]) == 2: ask(m, url=elicit("2", mode="url", url="https://x"))
    else:
        note("notifications/progress", progressToken=p["_meta"]["progressToken"], progress=1)
        answer(m, done=True)
"#,
    );
    let mut call = call(&up, "t").await;
    let (first, second) = (request(next(&mut call).await), request(next(&mut call).await));
    assert_eq!((&*first.method, &*second.method), ("elicitation/create", "roots/list"));
    assert!(String::from_utf8_lossy(&first.raw).contains(r#""params":{"message":"1","n":1.0}"#) && second.params_at.is_none());
    // Not in their order, and as they are.
    reply(&up, &second, r#"{"roots":[1.0]}"#).await;
    reply(&up, &first, r#"{"action":"accept","content":{"a":1,"a":2}}"#).await;
    let third = request(next(&mut call).await);
    assert!(third.string_param(&["elicitationId"]).unwrap().is_some(), "2025-11-25 wants an elicitationId");
    reply(&up, &third, r#"{"action":"decline"}"#).await;
    let CallEvent::Progress { .. } = next(&mut call).await else { panic!("no progress of the last round") };
    assert_eq!(end(&mut call).await.unwrap(), r#"{"resultType": "complete", "done": true}"#);
    let calls = sent(&up, "tools/call").await;
    assert_eq!(calls.len(), 3);
    assert_eq!(calls[1]["params"]["inputResponses"]["z \""]["content"]["a"], 2);
    assert_eq!(calls[1]["params"]["inputResponses"]["a"]["roots"][0], 1.0);
    assert_eq!(calls[1]["params"]["requestState"], "\u{e9}/+");
    assert!(calls[2]["params"].get("requestState").is_none(), "a state of an earlier round came back");
    assert_eq!(calls[2]["params"]["inputResponses"], serde_json::json!({ "url": { "action": "decline" } }));
    for round in &calls {
        assert_eq!(round["params"]["name"], "t");
        assert_eq!(round["params"]["_meta"]["progressToken"], round["id"]);
    }
    assert!(calls[0]["id"] != calls[1]["id"] && calls[1]["id"] != calls[2]["id"]);
    up.close(LONG).await;
}

#[tokio::test]
async fn what_the_client_cannot_or_will_not_answer_ends_the_call() {
    let (up, _inbox) = start(
        r#"
def tool(name, m):
    if name == "sample": ask(m, q={"method": "sampling/createMessage", "params": {}})
    elif name == "odd": ask(m, q={"method": "ping"})
    elif name == "nothing": ask(m)
    elif name == "forever": ask(m, q=elicit("x"))
    else: ask(m, q=elicit("x"))
def other(m): ask(m, q=elicit("x"))
"#,
    );
    let mut asked = call(&up, "t").await;
    let question = request(next(&mut asked).await);
    up.respond(RpcError::new(codes::CLIENT_GONE, "the client did not answer in time").to_message(Some(&question.id))).await.unwrap();
    let error = end(&mut asked).await.unwrap_err();
    assert!(matches!(&error, BackendError::Input { reason, .. } if reason.contains("did not answer in time")), "{error}");
    assert_eq!(error.to_rpc().code, codes::CLIENT_GONE);
    for (name, why) in [("sample", "did not declare `sampling`"), ("odd", "\"ping\""), ("nothing", "neither")] {
        let error = run(&up, tool(name)).await.unwrap_err();
        assert!(matches!(&error, BackendError::Protocol { reason, .. } if reason.contains(why)), "{error}");
    }
    let error = run(&up, simple("prompts/list", "{}")).await.unwrap_err();
    assert!(matches!(error, BackendError::Protocol { .. }), "{error}");
    let mut forever = call(&up, "forever").await;
    let mut rounds = 0;
    let error = loop {
        match next(&mut forever).await {
            CallEvent::Request(question) => {
                rounds += 1;
                reply(&up, &question, "{}").await;
            }
            CallEvent::Failed(error) => break error,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(rounds, 8);
    assert!(matches!(error, BackendError::Protocol { .. }), "{error}");
    up.close(LONG).await;
}

#[tokio::test]
async fn a_state_without_a_question_is_sent_again_after_a_pause() {
    let (up, _inbox) = start(
        r#"
def tool(name, m):
    state = m["params"].get("requestState", "")
    if len(state) < 3: ask(m, state + "x")
    else: answer(m, state=state, asked="inputResponses" in m["params"])
"#,
    );
    let began = std::time::Instant::now();
    let result: Value = serde_json::from_str(&run(&up, tool("t")).await.unwrap()).unwrap();
    assert_eq!((&result["state"], &result["asked"]), (&Value::from("xxx"), &Value::from(false)));
    assert!(began.elapsed() >= Duration::from_millis(700), "it did not pause: {:?}", began.elapsed());
    up.close(LONG).await;
}

#[tokio::test]
async fn a_call_can_be_cancelled_in_every_round() {
    let (up, _inbox) = start(
        r#"
def tool(name, m):
    if name == "quick": answer(m)
    elif "inputResponses" not in m["params"]: ask(m, q=elicit("x"))
"#,
    );
    // While the client is asked, the server has no request that could be cancelled.
    let mut asking = call(&up, "a").await;
    let question = request(next(&mut asking).await);
    asking.cancel(None).await;
    run(&up, tool("quick")).await.unwrap();
    assert!(sent(&up, "notifications/cancelled").await.is_empty());
    // Its answer comes too late and leads nowhere: not to the server either.
    reply(&up, &question, "{}").await;
    let mut second = call(&up, "b").await;
    let question = request(next(&mut second).await);
    reply(&up, &question, "{}").await;
    let _ = tokio::time::timeout(Duration::from_millis(10), second.next()).await;
    let log = until(&up, |log| of(log, "tools/call").iter().filter(|m| m["params"]["name"] == "b").count() == 2).await;
    let last = of(&log, "tools/call").last().unwrap()["id"].clone();
    second.cancel(None).await;
    let log = until(&up, |log| !of(log, "notifications/cancelled").is_empty()).await;
    assert_eq!(of(&log, "notifications/cancelled")[0]["params"]["requestId"], last);
    up.close(LONG).await;
}

#[tokio::test]
async fn a_question_ends_with_the_process_that_asked() {
    let (up, _inbox) = start("def tool(name, m): ask(m, q=elicit('x')); time.sleep(0.2); os._exit(3)");
    let mut call = call(&up, "t").await;
    request(next(&mut call).await);
    let error = end(&mut call).await.unwrap_err();
    assert!(matches!(error, BackendError::Broken { .. }), "{error}");
    up.close(LONG).await;
}

#[tokio::test]
async fn answers_are_shaped_for_an_older_client_and_faults_between_the_hops_stay_there() {
    let (up, _inbox) = start(
        r#"
def tool(name, m):
    if name == "list": raw(m["id"], '{"ttlMs":5,"content":[{"n":1.0}],"resultType":"complete", "structuredContent":[1,2] ,"cacheScope":"public","zz":{"ttlMs":1}}')
    elif name == "object": raw(m["id"], '{"structuredContent":{"a":1.0}}')
    elif name == "task": raw(m["id"], '{"resultType":"task","taskId":"1"}')
    else: fail(m, int(name), "why not", uri="x")
def other(m):
    if m["method"] == "tools/list": raw(m["id"], '{"resultType":"complete","tools":[{"name":"a","outputSchema":{"type":"array"},"x":1.0},{"outputSchema":{"type":"object"},"name":"b"}],"ttlMs":1,"cacheScope":"private"}')
    else: fail(m, -32602, "gone", uri="x")
"#,
    );
    assert_eq!(answer(&up, tool("list")).await, r#"{"jsonrpc":"2.0","id":7,"result":{"content":[{"n":1.0}],"zz":{"ttlMs":1}}}"#);
    assert_eq!(answer(&up, tool("object")).await, r#"{"jsonrpc":"2.0","id":7,"result":{"structuredContent":{"a":1.0}}}"#);
    assert_eq!(
        answer(&up, simple("tools/list", "{}")).await,
        r#"{"jsonrpc":"2.0","id":7,"result":{"tools":[{"name":"a","x":1.0},{"outputSchema":{"type":"object"},"name":"b"}]}}"#
    );
    for name in ["task", "-32020", "-32021", "-32022"] {
        let error = run(&up, tool(name)).await.unwrap_err();
        assert_eq!(error.to_rpc().code, codes::BACKEND_PROTOCOL, "{error}");
        assert!(name == "task" || error.to_string().contains("why not"), "{error}");
    }
    assert!(answer(&up, tool("-32602")).await.contains("-32602"));
    assert!(answer(&up, simple("resources/read", r#"{"uri":"x"}"#)).await.contains(r#""code": -32002"#));
    up.close(LONG).await;
}

#[tokio::test]
async fn changes_come_over_one_listen_without_its_tag() {
    let (up, mut inbox) = start(
        r#"
ids = []
def listen(m): ids.append(m["id"]); acknowledge(m); note("notifications/tools/list_changed", _meta={K + "subscriptionId": m["id"]})
def tool(name, m):
    note("notifications/resources/updated", uri=name, _meta={K + "subscriptionId": ids[-1], "x": 1})
    say({"jsonrpc": "2.0", "id": 9, "method": "ping"})
    answer(m)
"#,
    );
    assert_eq!(notification(&mut inbox).await["method"], "notifications/tools/list_changed");
    assert_eq!(run(&up, simple("resources/subscribe", r#"{"uri":"a:1"}"#)).await.unwrap(), "{}");
    assert!(notification(&mut inbox).await.get("params").is_none_or(|p| p == &serde_json::json!({})));
    let log = until(&up, |log| !of(log, "notifications/cancelled").is_empty()).await;
    let listens = of(&log, "subscriptions/listen");
    assert_eq!(listens[0]["params"]["notifications"], serde_json::json!({ "toolsListChanged": true }));
    assert_eq!(listens[1]["params"]["notifications"], serde_json::json!({ "toolsListChanged": true, "resourceSubscriptions": ["a:1"] }));
    assert_eq!(of(&log, "notifications/cancelled")[0]["params"]["requestId"], listens[0]["id"]);
    run(&up, tool("a:1")).await.unwrap();
    assert_eq!(notification(&mut inbox).await["params"], serde_json::json!({ "uri": "a:1", "_meta": { "x": 1 } }));
    assert_eq!(run(&up, simple("resources/unsubscribe", r#"{"uri":"a:1"}"#)).await.unwrap(), "{}");
    let log = until(&up, |log| of(log, "subscriptions/listen").len() == 3).await;
    assert!(of(&log, "subscriptions/listen")[2]["params"]["notifications"].get("resourceSubscriptions").is_none());
    assert!(log.iter().all(|m| m.get("method").is_some()), "something was answered: {log:?}");
    up.close(LONG).await;
}

#[tokio::test]
async fn a_resource_that_the_server_does_not_take_is_refused_and_the_open_stream_stays() {
    let (up, _inbox) = start(
        r#"
def listen(m):
    uris = m["params"]["notifications"].get("resourceSubscriptions", [])
    if "a:bad" in uris: fail(m, -32602, "no such resource")
    else: acknowledge(m, resourceSubscriptions=[u for u in uris if u != "a:mute"])
"#,
    );
    until(&up, |log| of(log, "subscriptions/listen").len() == 1).await;
    for uri in ["a:bad", "a:mute"] {
        let error = run(&up, simple("resources/subscribe", &format!(r#"{{"uri":"{uri}"}}"#))).await.unwrap_err();
        assert!(matches!(error, BackendError::Unavailable { .. }), "{error}");
    }
    run(&up, simple("resources/subscribe", r#"{"uri":"a:1"}"#)).await.unwrap();
    let log = log(&up).await;
    let last = of(&log, "subscriptions/listen").last().unwrap()["params"]["notifications"].clone();
    assert_eq!(last["resourceSubscriptions"], serde_json::json!(["a:1"]));
    up.close(LONG).await;
}

#[tokio::test]
async fn a_listen_that_ends_is_opened_again_and_what_went_by_is_made_good() {
    let (up, mut inbox) = start(
        r#"
n = 0
def listen(m):
    global n
    n += 1
    acknowledge(m)
    if n == 1: note("notifications/cancelled", requestId=m["id"])
    if n == 2: answer(m)
"#,
    );
    let log = until(&up, |log| of(log, "subscriptions/listen").len() == 3).await;
    assert!(of(&log, "notifications/cancelled").is_empty());
    for _ in 0..2 {
        assert_eq!(notification(&mut inbox).await["method"], "notifications/tools/list_changed");
    }
    up.close(LONG).await;
}

#[tokio::test]
async fn a_server_without_listen_is_not_asked_again_and_refuses_subscriptions() {
    let (up, _inbox) = start("def listen(m): fail(m, -32601)");
    until(&up, |log| of(log, "subscriptions/listen").len() == 1).await;
    let began = std::time::Instant::now();
    run(&up, simple("resources/subscribe", r#"{"uri":"a:1"}"#)).await.unwrap_err();
    assert!(began.elapsed() < Duration::from_secs(5));
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(sent(&up, "subscriptions/listen").await.len(), 1);
    up.close(LONG).await;
}

#[tokio::test]
async fn a_new_process_is_probed_again_and_hears_of_subscriptions_and_level() {
    let (up, mut inbox) = start("def tool(name, m):\n    if name == 'die': os._exit(3)\n    answer(m)");
    run(&up, simple("resources/subscribe", r#"{"uri":"a:1"}"#)).await.unwrap();
    run(&up, simple("logging/setLevel", r#"{"level":"info"}"#)).await.unwrap();
    run(&up, tool("die")).await.unwrap_err();
    while !matches!(received(&mut inbox).await, FromServer::Down(_)) {}
    while !matches!(received(&mut inbox).await, FromServer::Up(_)) {}
    run(&up, tool("t")).await.unwrap();
    let log = until(&up, |log| !of(log, "subscriptions/listen").is_empty()).await;
    assert_eq!(of(&log, "server/discover").len(), 1);
    assert_eq!(of(&log, "subscriptions/listen")[0]["params"]["notifications"]["resourceSubscriptions"], serde_json::json!(["a:1"]));
    assert_eq!(of(&log, "tools/call")[0]["params"]["_meta"][format!("{META}logLevel")], "info");
    up.close(LONG).await;
}

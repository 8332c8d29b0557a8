//! What the gateway need not rewrite it does not touch: every payload here is compared as bytes, never as a parsed value.

use lockgate_tests::{
    backend::{Backend, Builder, Call},
    gateway::{Gateway, http_backends},
    raw::{self, member},
};
use serde_json::json;

/// Objects that a parser and a serialiser would not give back as they were.
const PAYLOADS: &[(&str, &str)] = &[
    ("integers beyond 64 bits", r#"{"n":123456789012345678901234567890,"m":-9223372036854775809,"u":18446744073709551615}"#),
    ("floats as they were written", r#"{"a":1.0,"b":1e3,"c":1E+2,"d":-0.0,"e":0.1000,"f":1e400,"g":-0}"#),
    ("duplicate keys", r#"{"k":1,"k":2,"o":{"x":1,"x":[2]},"k":null}"#),
    ("the order of keys", r#"{"z":1,"a":2,"m":{"z":1,"b":2,"a":3},"_":0}"#),
    ("lone surrogates", r#"{"high":"\ud800","low":"a\udc00b","twice":"\ud83d\ud83d","pair":"\ud83d\ude00"}"#),
    ("escapes that need none", r#"{"\u0061":"\u0041\/\u002f","nul":"\u0000","tab":"\t","quote":"\""}"#),
    ("white space", "{ \"a\" :\t[ 1 , 2 ,{ } ] ,  \"b\" : \"\" }"),
    ("text beyond ASCII", r#"{"ключ":"日本語 🎉","c1":"","line":"  "}"#),
    (
        "fields named like those of the protocol",
        r#"{"id":7,"method":"tools/list","result":{"tools":[]},"error":{},"params":{"_meta":{"progressToken":1}}}"#,
    ),
    ("emptiness", r#"{"":"","a":{},"b":[],"c":null}"#),
];

fn nested() -> String {
    format!("{{\"deep\":{}1.0{}}}", "[".repeat(100), "]".repeat(100))
}

fn payloads() -> Vec<(String, String)> {
    let fixed = PAYLOADS.iter().map(|&(name, payload)| (name.to_owned(), payload.to_owned()));
    fixed.chain([("a hundred levels".to_owned(), nested())]).collect()
}

/// A tool result around a payload, with fields that no revision knows at every level.
fn wrapped(payload: &str) -> String {
    format!(
        r#"{{"vendor":{payload},"content":[{{"x-first":1.0,"type":"text","text":"t\u0041","annotations":{{"priority":1,"x":{payload}}},"last":1e0}},{{"type":"x-unknown","data":{payload}}}],"isError":false,"structuredContent":{payload},"_meta":{{"b":1.0,"a":{payload}}}}}"#
    )
}

async fn behind(builder: Builder) -> (Backend, Gateway) {
    let backend = builder.start().await;
    let gateway = Gateway::start(&http_backends(&[("one", &backend.url())])).await;
    (backend, gateway)
}

/// Gives the arguments back, wrapped; over SSE after a log message when the tool is `stream`.
async fn wrap(call: Call) {
    let result = wrapped(call.seen.arguments_raw());
    if call.target() == "stream" {
        let stream = call.stream();
        stream.notify("notifications/message", r#"{"level":"info","data":"first"}"#).await;
        stream.answer(&result).await;
    } else {
        call.result(&result);
    }
}

#[tokio::test]
async fn arguments_and_results_arrive_byte_for_byte() {
    let (backend, gateway) = behind(Backend::builder("b").tool("json").tool("stream").on("tools/call", wrap)).await;
    let session = gateway.initialize().await;
    for tool in ["json", "stream"] {
        for (name, payload) in payloads() {
            let extra = format!(r#"{{"keep":{payload}}}"#);
            let params = format!(r#"{{"x":{payload},"arguments":{payload},"name":"{tool}","_meta":{extra},"task":{{"ttl":1.0}}}}"#);
            let answer = session.ask_raw("1", "tools/call", &params).await;
            let seen = backend.seen_of("tools/call").pop().expect("the backend was called");
            assert_eq!(seen.arguments_raw(), payload, "{name}: arguments, {tool}");
            assert_eq!(member(seen.params_raw(), "x"), Some(payload.as_str()), "{name}: an unknown parameter, {tool}");
            let meta = member(seen.params_raw(), "_meta").expect("_meta arrives");
            assert_eq!(member(meta, "keep"), Some(payload.as_str()), "{name}: _meta, {tool}");
            assert_eq!(answer.result_raw(), wrapped(&payload), "{name}: result, {tool}");
        }
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_body_in_many_lines_arrives_with_its_line_feeds() {
    let result = "{\n  \"content\": [],\n\n  \"structuredContent\": {\n    \"a\": 1.0\n  }\n}";
    let (_backend, gateway) = behind(Backend::builder("b").tool("t").result("tools/call", result)).await;
    let session = gateway.initialize().await;
    let answer = session.ask_raw("1", "tools/call", "{\n\"name\": \"t\",\n\"arguments\": {\n}\n}").await;
    assert_eq!(answer.result_raw(), result);
    gateway.stop().await;
}

#[tokio::test]
async fn request_ids_come_back_as_they_were_written() {
    let (backend, gateway) = behind(Backend::builder("b").tool("t")).await;
    let session = gateway.initialize().await;
    let long = format!("\"{}\"", "i".repeat(500));
    let ids = ["1", "-7", "0", "9007199254740993", "18446744073709551616", "1.0", "\"1\"", r#""\u0041""#, r#""a\/\"b""#, "\"\"", &long];
    for id in ids {
        let called = session.ask_raw(id, "tools/call", r#"{"name":"t"}"#).await;
        assert_eq!(called.id_raw(), id, "an answer of the backend");
        let answer = session.ask_raw(id, "ping", "{}").await;
        assert_eq!(answer.id_raw(), id, "an answer of the gateway");
        let answer = session.ask_raw(id, "tools/call", r#"{"name":"no such tool"}"#).await;
        assert_eq!(answer.id_raw(), id, "an error");
    }
    let mut upstream: Vec<_> = backend.seen_of("tools/call").iter().map(|seen| seen.message().id.map(|id| id.get().to_owned())).collect();
    let count = upstream.len();
    upstream.sort();
    upstream.dedup();
    assert_eq!(upstream.len(), count, "ids towards a backend are never used twice");
    gateway.stop().await;
}

#[tokio::test]
async fn a_result_that_looks_like_another_kind_of_result_stays_what_it_is() {
    for field in ["tools", "contents", "messages", "completion", "resources", "prompts", "nextCursor", "task"] {
        let result =
            format!(r#"{{"{field}":[{{"name":"not a tool","uri":"x://y"}}],"content":[{{"type":"text","text":"kept"}}],"isError":false}}"#);
        let (_backend, gateway) = behind(Backend::builder("b").tool("t").result("tools/call", &result)).await;
        let session = gateway.initialize().await;
        let answer = session.ask_raw("1", "tools/call", r#"{"name":"t"}"#).await;
        assert_eq!(answer.result_raw(), result, "a tool result with a top-level {field}");
        gateway.stop().await;
    }
}

#[tokio::test]
async fn results_of_every_other_method_are_untouched_with_one_backend() {
    for (method, params, head) in [
        ("prompts/get", r#"{"name":"p","arguments":{"b":"\u0041","a":"1"}}"#, r#""messages":[]"#),
        ("resources/read", r#"{"uri":"x://r"}"#, r#""contents":[{"uri":"x://r","text":"","x":1.0}]"#),
        (
            "completion/complete",
            r#"{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a","value":"\u0041"}}"#,
            r#""completion":{"values":[],"x":1.0}"#,
        ),
    ] {
        for (name, payload) in payloads() {
            let result = format!(r#"{{"vendor":{payload},{head},"_meta":{payload}}}"#);
            let builder = Backend::builder("b").tool("t").prompt("p").resource("x://r").result(method, &result);
            let (backend, gateway) = behind(builder).await;
            let session = gateway.initialize().await;
            let answer = session.ask_raw("1", method, params).await;
            assert_eq!(answer.result_raw(), result, "{method}: {name}");
            let seen = backend.seen_of(method).pop().expect("the backend was asked");
            for field in ["arguments", "ref", "argument", "uri"] {
                assert_eq!(member(seen.params_raw(), field), member(params, field), "{method}: {field}");
            }
            gateway.stop().await;
            if method != "prompts/get" {
                break;
            }
        }
    }
}

#[tokio::test]
async fn an_error_of_a_backend_arrives_byte_for_byte() {
    let error = r#"{"code":9007199254740993,"message":"n\u006f","data":{"b":1.0,"a":123456789012345678901234567890,"b":"\ud800"},"x":{}}"#;
    let message = move |call: Call| async move {
        let message = format!(r#"{{"jsonrpc":"2.0","id":{},"error":{error}}}"#, call.id());
        call.message(&message);
    };
    let (_backend, gateway) = behind(Backend::builder("b").tool("t").on("tools/call", message)).await;
    let session = gateway.initialize().await;
    assert_eq!(session.ask_raw("1", "tools/call", r#"{"name":"t"}"#).await.error_raw(), error);
    gateway.stop().await;
}

#[tokio::test]
async fn notifications_of_a_call_keep_everything_but_the_token() {
    let note = r#""progress":1,"total":1.0,"message":"\u0041","x":{"z":1,"a":123456789012345678901234567890},"_meta":{"k":1.0}"#;
    let log = r#"{"level":"info","x":1.0,"data":{"z":1,"a":1.0,"z":"\ud800"},"logger":"l"}"#;
    let script = move |call: Call| async move {
        let token = call.progress_token().expect("a token arrives at the backend");
        let stream = call.stream();
        stream.notify("notifications/message", log).await;
        stream.notify("notifications/progress", &format!(r#"{{"progressToken":{token},{note}}}"#)).await;
        stream.notify("notifications/progress", &format!(r#"{{"progress":2,"progressToken":{token}}}"#)).await;
        stream.answer(r#"{"content":[]}"#).await;
    };
    let (_backend, gateway) = behind(Backend::builder("b").tool("t").on("tools/call", script)).await;
    let session = gateway.initialize().await;
    for token in ["7", "\"t\"", "9007199254740993", r#""\u0041""#, "\"\""] {
        let params = format!(r#"{{"name":"t","_meta":{{"progressToken":{token}}}}}"#);
        let answer = session.ask_raw("1", "tools/call", &params).await;
        let got: Vec<_> = answer.before.iter().filter(|event| event.is_message()).map(|event| event.text().to_owned()).collect();
        assert_eq!(got.len(), 3, "{got:?}");
        assert_eq!(member(&got[0], "params"), Some(log));
        assert_eq!(member(&got[1], "params"), Some(format!(r#"{{"progressToken":{token},{note}}}"#).as_str()));
        assert_eq!(member(&got[2], "params"), Some(format!(r#"{{"progress":2,"progressToken":{token}}}"#).as_str()));
    }
    gateway.stop().await;
}

#[tokio::test]
async fn requests_of_a_backend_and_their_responses_are_untouched() {
    let asked = r#"{"message":"\u0041?","requestedSchema":{"type":"object","properties":{"n":{"type":"number","default":1.0}}},"x":{"z":1,"a":1e2}}"#;
    let script = move |call: Call| async move {
        let stream = call.stream();
        let response = stream.ask(r#""q-1""#, "elicitation/create", asked).await;
        let failed = stream.ask("18446744073709551616", "sampling/createMessage", asked).await;
        stream.answer(&format!(r#"{{"content":[],"responses":[{response},{failed}]}}"#)).await;
    };
    let (_backend, gateway) = behind(Backend::builder("b").tool("t").on("tools/call", script)).await;
    let session = gateway.mcp().initialize_as("2025-11-25", json!({ "elicitation": {}, "sampling": {} })).await;
    let mut events = session.start("1", "tools/call", r#"{"name":"t"}"#).await.events();
    let result = r#"{"action":"accept","content":{"n":123456789012345678901234567890,"f":1.0,"n":2},"x":1e0}"#;
    let error = r#"{"code":-1,"message":"\u006e\u006f","data":1.0}"#;
    let first = events.message().await.expect("a request").text().to_owned();
    assert_eq!(member(&first, "params"), Some(asked));
    let id = member(&first, "id").expect("an id").to_owned();
    assert_eq!(session.post(raw::result(&id, result)).await.status, 202);
    let second = events.message().await.expect("a request").text().to_owned();
    assert_eq!(member(&second, "params"), Some(asked));
    let id = member(&second, "id").expect("an id").to_owned();
    assert_eq!(session.post(format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#)).await.status, 202);
    let answer = events.message().await.expect("an answer").text().to_owned();
    assert!(answer.contains(result) && answer.contains(error), "{answer}");
    assert!(answer.contains(r#""id":"q-1""#) && answer.contains(r#""id":18446744073709551616"#), "{answer}");
    gateway.stop().await;
}

/// Items of lists that no typed model keeps whole.
const TOOL: &str = r#"{"x-first":1.0,"name":"t","title":"T","inputSchema":{"type":"object","properties":{"n":{"maximum":123456789012345678901234567890}},"z":1,"a":2},"outputSchema":{"type":"object"},"execution":{"taskSupport":"optional","x":1.0},"annotations":{"readOnlyHint":true,"x":1.0},"icons":[{"src":"data:,","x":1.0}],"_meta":{"b":1.0,"a":1}}"#;
const PROMPT: &str = r#"{"name":"p","arguments":[{"name":"a","x":1.0}],"icons":[],"x":{"z":1,"a":1.0}}"#;
const RESOURCE: &str = r#"{"x":1.0,"uri":"x://r","name":"r","size":123456789012345678901234567890,"annotations":{"priority":1,"x":1.0}}"#;
const TEMPLATE: &str = r#"{"uriTemplate":"x://t/{id}","name":"t","x":{"z":1.0,"a":2}}"#;

fn with_items(name: &str) -> Builder {
    Backend::builder(name).item("tools", TOOL).item("prompts", PROMPT).item("resources", RESOURCE).item("resourceTemplates", TEMPLATE)
}

const LISTS: [(&str, &str, &str); 4] = [
    ("tools/list", "tools", TOOL),
    ("prompts/list", "prompts", PROMPT),
    ("resources/list", "resources", RESOURCE),
    ("resources/templates/list", "resourceTemplates", TEMPLATE),
];

#[tokio::test]
async fn the_items_of_a_list_are_untouched_with_one_backend() {
    let (_backend, gateway) = behind(with_items("b")).await;
    let session = gateway.initialize().await;
    for (method, field, item) in LISTS {
        let answer = session.ask_raw("1", method, "{}").await;
        assert_eq!(member(answer.result_raw(), field), Some(format!("[{item}]").as_str()), "{method}");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn only_the_name_of_a_listed_item_changes_with_several_backends() {
    let (one, two) = (with_items("one").start().await, Backend::with_tools("two", &["other"]).await);
    let gateway = Gateway::start(&http_backends(&[("one", &one.url()), ("two", &two.url())])).await;
    let session = gateway.initialize().await;
    for (method, field, item) in LISTS {
        let answer = session.ask_raw("1", method, "{}").await;
        let published = match field {
            "tools" => item.replacen(r#""name":"t""#, r#""name":"one__t""#, 1),
            "prompts" => item.replacen(r#""name":"p""#, r#""name":"one__p""#, 1),
            _ => item.to_owned(),
        };
        let list = member(answer.result_raw(), field).unwrap_or_default();
        assert!(list.contains(&published), "{method}: {published} is not in {list}");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_result_of_16_mib_arrives_whole() {
    let big = format!(r#"{{"content":[{{"type":"text","text":"{}"}}]}}"#, "0123456789abcdef".repeat(1 << 20));
    let copy = big.clone();
    let script = move |call: Call| {
        let big = copy.clone();
        async move {
            if call.target() == "stream" {
                let stream = call.stream();
                stream.notify("notifications/message", r#"{"level":"info","data":1}"#).await;
                stream.answer(&big).await;
            } else {
                call.result(&big);
            }
        }
    };
    let backend = Backend::builder("b").tool("json").tool("stream").on("tools/call", script).start().await;
    // Above the size of the message with its envelope, in case the default is exactly 16 MiB.
    let yaml = http_backends(&[("one", &backend.url())]);
    let gateway = Gateway::start(&yaml).await;
    let session = gateway.initialize().await;
    for tool in ["json", "stream"] {
        let answer = session.ask_raw("1", "tools/call", &format!(r#"{{"name":"{tool}"}}"#)).await;
        assert!(answer.result_raw() == big, "{tool}: {} bytes instead of {}", answer.result_raw().len(), big.len());
    }
    gateway.stop().await;
}

#[tokio::test]
async fn arguments_of_3_mib_arrive_whole() {
    let (backend, gateway) = behind(Backend::builder("b").tool("t").result("tools/call", r#"{"content":[]}"#)).await;
    let session = gateway.initialize().await;
    let arguments = format!(r#"{{"z":1.0,"text":"{}","a":2}}"#, "0123456789abcdef".repeat(3 << 16));
    session.ask_raw("1", "tools/call", &format!(r#"{{"name":"t","arguments":{arguments}}}"#)).await.result_raw();
    let seen = backend.seen_of("tools/call").pop().expect("the backend was called");
    assert!(seen.arguments_raw() == arguments, "{} bytes instead of {}", seen.arguments_raw().len(), arguments.len());
    gateway.stop().await;
}

#[tokio::test]
async fn instructions_and_unknown_capabilities_of_a_backend_reach_the_client() {
    let capabilities = r#"{"tools":{},"experimental":{"com.example/x":{"v":1}}}"#;
    let builder = Backend::builder("b").tool("t").instructions("Mind the gap.").capabilities(capabilities);
    let (_backend, gateway) = behind(builder).await;
    let session = gateway.initialize().await;
    assert!(session.init["instructions"].as_str().is_some_and(|text| text.contains("Mind the gap.")), "{}", session.init);
    assert!(session.init["capabilities"]["tools"].is_object(), "{}", session.init);
    assert!(session.init["capabilities"]["prompts"].is_null(), "nobody has prompts: {}", session.init);
    assert_ne!(session.init["serverInfo"]["name"], "b", "the gateway names itself");
    gateway.stop().await;
}

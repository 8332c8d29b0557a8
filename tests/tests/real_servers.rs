//! Servers of other projects behind the gateway: a small but real conversation with each.

use std::process::Stdio;

use lockgate_tests::{
    client::Session,
    eventually,
    gateway::{Gateway, free_port},
    process::Folder,
    raw::first_text,
    real,
};
use serde_json::{Value, json};
use tokio::process::{Child, Command};

fn stdio(name: &str, command: &[String]) -> String {
    format!("backends:\n  {name}:\n    command: {}\nlimits: {{ initialize_timeout: 20s, list_timeout: 20s }}\n", json!(command))
}

fn http(name: &str, url: &str) -> String {
    format!("backends:\n  {name}: {{ url: \"{url}\" }}\nlimits: {{ initialize_timeout: 20s, list_timeout: 20s }}\n")
}

/// Starts a server that says nothing of use on its standard output, and waits for its port.
async fn listening(mut command: Command, addr: std::net::SocketAddr) -> Child {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    let child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    eventually("a server to listen", || std::net::TcpStream::connect(addr).ok()).await;
    child
}

fn everything() -> String {
    real::module("@modelcontextprotocol/server-everything/dist/index.js").display().to_string()
}

fn node() -> String {
    real::node22().display().to_string()
}

/// A tool that is not there is an error in one of the two ways that the specification allows.
async fn refuses_unknown_tool(session: &Session) {
    let answer = session.ask("tools/call", json!({ "name": "no_such_tool", "arguments": {} })).await;
    let message: Value = serde_json::from_str(&answer.raw).expect("JSON");
    assert!(message["error"]["code"].is_i64() || message["result"]["isError"] == true, "{message}");
}

async fn talk_with_everything(gateway: &Gateway) {
    let session = gateway.mcp().initialize_as("2025-11-25", json!({ "elicitation": {}, "sampling": {} })).await;
    let tools = session.names("tools/list", "tools").await;
    assert!(tools.contains(&"echo".to_owned()) && tools.contains(&"get-sum".to_owned()), "{tools:?}");
    assert!(first_text(&session.call("echo", json!({ "message": "through the lock" })).await).contains("through the lock"));
    assert!(first_text(&session.call("get-sum", json!({ "a": 2, "b": 40 })).await).contains("42"));
    let failed = session.ask("tools/call", json!({ "name": "get-sum", "arguments": { "a": "two" } })).await;
    assert!(failed.raw.contains("isError") || failed.raw.contains("\"error\""), "{}", failed.raw);
    refuses_unknown_tool(&session).await;
    let resources = session.list("resources/list", "resources").await;
    let uri = resources[0]["uri"].clone();
    let read = session.result("resources/read", json!({ "uri": uri })).await;
    assert_eq!(read["contents"][0]["uri"], uri);
    let prompts = session.names("prompts/list", "prompts").await;
    assert!(prompts.contains(&"simple-prompt".to_owned()), "{prompts:?}");
    let prompt = session.result("prompts/get", json!({ "name": "simple-prompt" })).await;
    assert_eq!(prompt["messages"][0]["role"], "user");
    let params = json!({
        "name": "trigger-long-running-operation", "arguments": { "duration": 1, "steps": 4 },
        "_meta": { "progressToken": "steps" },
    });
    let answer = session.ask("tools/call", params).await;
    let progress: Vec<_> = answer.messages().into_iter().filter(|note| note["method"] == "notifications/progress").collect();
    assert_eq!(progress.len(), 4, "{progress:?}");
    assert!(progress.iter().all(|note| note["params"]["progressToken"] == "steps"));
    assert!((200..300).contains(&session.delete().await));
}

#[tokio::test]
async fn server_everything_over_stdio() {
    let gateway = Gateway::start(&stdio("everything", &[node(), everything(), "stdio".to_owned()])).await;
    talk_with_everything(&gateway).await;
    gateway.stop().await;
}

#[tokio::test]
async fn server_everything_over_streamable_http() {
    let addr = free_port();
    let mut command = Command::new(node());
    command.arg(everything()).arg("streamableHttp").env("PORT", addr.port().to_string());
    let _server = listening(command, addr).await;
    let gateway = Gateway::start(&http("everything", &format!("http://{addr}/mcp"))).await;
    talk_with_everything(&gateway).await;
    gateway.stop().await;
}

#[tokio::test]
async fn server_everything_over_the_legacy_sse_transport() {
    let addr = free_port();
    let mut command = Command::new(node());
    command.arg(everything()).arg("sse").env("PORT", addr.port().to_string());
    let _server = listening(command, addr).await;
    let gateway = Gateway::start(&http("everything", &format!("http://{addr}/sse"))).await;
    talk_with_everything(&gateway).await;
    gateway.stop().await;
}

#[tokio::test]
async fn mcp_server_time() {
    let program = real::python("mcp-server-time").display().to_string();
    let gateway = Gateway::start(&stdio("time", &[program, "--local-timezone=UTC".to_owned()])).await;
    let session = gateway.initialize().await;
    assert_eq!(session.names("tools/list", "tools").await, ["convert_time", "get_current_time"]);
    let now = session.call("get_current_time", json!({ "timezone": "Europe/Berlin" })).await;
    assert!(first_text(&now).contains("Europe/Berlin"), "{now}");
    let arguments = json!({ "source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo" });
    assert!(first_text(&session.call("convert_time", arguments).await).contains("21:00"));
    let wrong = session.ask("tools/call", json!({ "name": "get_current_time", "arguments": { "timezone": "Mars/Base" } })).await;
    assert!(wrong.raw.contains("\"isError\":true") || wrong.raw.contains("\"error\""), "{}", wrong.raw);
    refuses_unknown_tool(&session).await;
    gateway.stop().await;
}

#[tokio::test]
async fn mcp_server_git() {
    let folder = Folder::new("repository");
    let repository = folder.path().display().to_string();
    folder.write("lock.txt", "water\n");
    let git = |arguments: &[&str]| {
        let identity = ["-c", "user.name=ada", "-c", "user.email=ada@example.org"];
        let output = std::process::Command::new("git").current_dir(&repository).args(identity).args(arguments).output();
        let output = output.expect("git is installed");
        assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    };
    git(&["init", "--quiet"]);
    git(&["add", "."]);
    git(&["commit", "--quiet", "-m", "Fill the lock"]);
    let program = real::python("mcp-server-git").display().to_string();
    let gateway = Gateway::start(&stdio("git", &[program, "--repository".to_owned(), repository.clone()])).await;
    let session = gateway.initialize().await;
    let tools = session.names("tools/list", "tools").await;
    assert!(tools.contains(&"git_log".to_owned()), "{tools:?}");
    let log = session.call("git_log", json!({ "repo_path": repository })).await;
    assert!(first_text(&log).contains("Fill the lock"), "{log}");
    let status = session.call("git_status", json!({ "repo_path": repository })).await;
    assert!(first_text(&status).contains("nothing to commit"), "{status}");
    let wrong =
        session.ask("tools/call", json!({ "name": "git_show", "arguments": { "repo_path": repository, "revision": "nope" } })).await;
    assert!(wrong.raw.contains("\"isError\":true") || wrong.raw.contains("\"error\""), "{}", wrong.raw);
    gateway.stop().await;
}

async fn talk_with_fastmcp(gateway: &Gateway) {
    let session = gateway.initialize().await;
    assert_eq!(session.names("tools/list", "tools").await, ["add", "fail", "slow"]);
    let answer = session.ask_raw("1", "tools/call", r#"{"name":"add","arguments":{"a":123456789012345678901234567890,"b":1}}"#).await;
    assert!(answer.raw.contains("123456789012345678901234567891"), "{}", answer.raw);
    assert_eq!(session.call("fail", json!({})).await["isError"], true);
    refuses_unknown_tool(&session).await;
    let params = json!({ "name": "slow", "arguments": { "steps": 3 }, "_meta": { "progressToken": 7 } });
    let answer = session.ask("tools/call", params).await;
    let progress: Vec<_> = answer.messages().iter().map(|note| note["params"]["progress"].as_f64()).collect();
    assert_eq!(progress, [Some(1.0), Some(2.0), Some(3.0)], "{}", answer.raw);
    let read = session.result("resources/read", json!({ "uri": "memo://today" })).await;
    assert_eq!(read["contents"][0]["text"], "buy milk");
    let read = session.result("resources/read", json!({ "uri": "memo://of/monday" })).await;
    assert_eq!(read["contents"][0]["text"], "nothing on monday");
    let prompt = session.result("prompts/get", json!({ "name": "greet", "arguments": { "name": "Ada" } })).await;
    assert_eq!(prompt["messages"][0]["content"]["text"], "Please greet Ada.");
    assert!((200..300).contains(&session.delete().await));
}

#[tokio::test]
async fn a_fastmcp_server_over_http() {
    let addr = free_port();
    let mut command = Command::new(real::python("python"));
    command.arg(real::script("fastmcp_server.py")).arg("http").arg(addr.port().to_string());
    let _server = listening(command, addr).await;
    let gateway = Gateway::start(&http("memos", &format!("http://{addr}/mcp"))).await;
    talk_with_fastmcp(&gateway).await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_fastmcp_server_over_stdio() {
    let python = real::python("python").display().to_string();
    let script = real::script("fastmcp_server.py").display().to_string();
    let gateway = Gateway::start(&stdio("memos", &[python, script, "stdio".to_owned()])).await;
    talk_with_fastmcp(&gateway).await;
    gateway.stop().await;
}

#[tokio::test]
async fn several_real_servers_are_one_list() {
    let time = json!([real::python("mcp-server-time"), "--local-timezone=UTC"]);
    let everything = json!([node(), everything(), "stdio"]);
    let yaml = format!(
        "backends:\n  time: {{ command: {time} }}\n  everything: {{ command: {everything} }}\n\
         limits: {{ initialize_timeout: 20s, list_timeout: 20s }}\n"
    );
    let gateway = Gateway::start(&yaml).await;
    let session = gateway.initialize().await;
    let tools = session.names("tools/list", "tools").await;
    assert!(tools.contains(&"time__get_current_time".to_owned()) && tools.contains(&"everything__echo".to_owned()), "{tools:?}");
    let now = session.call("time__get_current_time", json!({ "timezone": "UTC" })).await;
    assert!(first_text(&now).contains("UTC"), "{now}");
    assert!(first_text(&session.call("everything__echo", json!({ "message": "both" })).await).contains("both"));
    gateway.stop().await;
}

//! Clients of other projects in front of the gateway, with the conformance fixture behind it: each lists, calls, reads, gets
//! a prompt, receives progress and log messages, and answers an elicitation where it can.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
};

use lockgate_tests::{
    client::LATEST,
    gateway::{Gateway, http_backends},
    process::Server,
    real, within,
};
use rmcp::{
    ClientHandler, RoleClient,
    model::{
        CallToolRequestParams, ClientCapabilities, ClientConfig, ElicitRequestParams, ElicitResult, ElicitationAction,
        GetPromptRequestParams, Implementation, ProgressNotificationParam, ProtocolVersion, ReadResourceRequestParams,
    },
    service::{ClientLifecycleMode, NotificationContext, RequestContext, serve_client_with_lifecycle},
    transport::StreamableHttpClientTransport,
};
use serde_json::{Value, json};
use tokio::process::Command;

/// The fixture with `dual`, `legacy` or `modern` revisions, behind a gateway.
async fn fixture_behind_gateway(eras: &str) -> (Server, Gateway) {
    let fixture = real::fixture_of(eras).await;
    let gateway = Gateway::start(&http_backends(&[("fixture", &fixture.url)])).await;
    (fixture, gateway)
}

/// What a client must have seen, whatever is behind the gateway.
fn expected(protocol: &str) -> Value {
    json!({
        "protocol": protocol, "tools": TOOLS, "has_echo": true, "echo": "hällo", "failed": true, "refused": true,
        "resources": 3, "read": "This is the content of the static text resource.", "template": "7",
        "prompts": 5, "prompt": "Prompt with arguments: arg1='one', arg2='two'", "progress": [0, 50, 100],
        "elicited": r#"Elicitation completed: action=accept, content={"email":"ada@example.org","username":"ada"}"#,
        "twice": "ada likes blue",
        "logs": ["Tool execution started", "Tool processing data", "Tool execution completed"],
        "completed": ["paris", "park", "party"],
    })
}

/// How many tools the fixture has.
const TOOLS: usize = 29;

const MODERN: &str = "2026-07-28";

/// Compares field by field, so that a failure names the step of the conversation.
fn assert_seen(output: &str, protocol: &str, eras: &str) {
    let line = output.lines().rfind(|line| line.starts_with('{')).unwrap_or_else(|| panic!("no result in {output}"));
    let seen: Value = serde_json::from_str(line).expect("a line of JSON");
    let mut expected = expected(protocol);
    if protocol == MODERN && eras == "legacy" {
        // rmcp tells a session what it logs on the session's own stream, whatever call it belongs to; to a client without sessions
        // it could only be told with a guess.
        expected["logs"] = json!([]);
    }
    for (step, wanted) in expected.as_object().expect("an object") {
        // 50 and 50.0 are one number to every client.
        let plain = |value: &Value| value.to_string().replace(".0", "");
        assert_eq!(plain(&seen[step]), plain(wanted), "{step}, in {seen}");
    }
}

/// A client's whole conversation with a fixture of these eras; it must end up with this revision.
async fn talks(mut client: Command, mode: &[&str], eras: &str, protocol: &str) {
    let (fixture, gateway) = fixture_behind_gateway(eras).await;
    client.arg(gateway.url()).args(mode);
    assert_seen(&real::run(client).await, protocol, eras);
    gateway.stop().await;
    fixture.stop().await;
}

fn python() -> Command {
    let mut command = Command::new(real::python("python"));
    command.arg(real::script("python.py"));
    command
}

#[tokio::test]
async fn the_typescript_sdk_version_1() {
    talks(real::node("typescript-v1.mjs"), &[], "dual", LATEST).await;
}

#[tokio::test]
async fn the_typescript_sdk_version_1_and_a_modern_server() {
    talks(real::node("typescript-v1.mjs"), &[], "modern", LATEST).await;
}

#[tokio::test]
async fn the_typescript_client_version_2() {
    talks(real::node("typescript-v2.mjs"), &[], "dual", LATEST).await;
}

#[tokio::test]
async fn the_typescript_client_version_2_and_a_modern_server() {
    talks(real::node("typescript-v2.mjs"), &[], "modern", LATEST).await;
}

#[tokio::test]
async fn the_typescript_client_version_2_in_the_modern_revision() {
    talks(real::node("typescript-v2.mjs"), &["", "auto"], "dual", MODERN).await;
}

#[tokio::test]
async fn the_typescript_client_version_2_in_the_modern_revision_and_a_modern_server() {
    talks(real::node("typescript-v2.mjs"), &["", "auto"], "modern", MODERN).await;
}

#[tokio::test]
async fn the_typescript_client_version_2_in_the_modern_revision_and_a_legacy_server() {
    talks(real::node("typescript-v2.mjs"), &["", "auto"], "legacy", MODERN).await;
}

#[tokio::test]
async fn the_python_client() {
    talks(python(), &[], "dual", MODERN).await;
}

#[tokio::test]
async fn the_python_client_and_a_modern_server() {
    talks(python(), &[], "modern", MODERN).await;
}

#[tokio::test]
async fn the_python_client_and_a_legacy_server() {
    talks(python(), &[], "legacy", MODERN).await;
}

#[tokio::test]
async fn the_python_client_with_sessions() {
    talks(python(), &["", "legacy"], "dual", LATEST).await;
}

#[tokio::test]
async fn the_python_client_with_sessions_and_a_modern_server() {
    talks(python(), &["", "legacy"], "modern", LATEST).await;
}

async fn the_inspector_talks(eras: &str, more: &[&str]) {
    let (fixture, gateway) = fixture_behind_gateway(eras).await;
    let inspect = async |arguments: &[&str]| {
        let mut command = Command::new(real::node22());
        command.arg(real::module("@modelcontextprotocol/inspector/clients/launcher/build/index.js"));
        command.args(["--cli", &gateway.url(), "--transport", "http", "--format", "json"]).args(more).arg("--method").args(arguments);
        // It keeps its settings and logs in the home folder.
        command.env("HOME", gateway.folder.path());
        let output = real::run(command).await;
        let json = output.find('{').map_or("", |at| &output[at..]);
        let value: Value = serde_json::from_str(json).unwrap_or_else(|error| panic!("{output}: {error}"));
        value.get("result").cloned().unwrap_or(value)
    };
    let tools = inspect(&["tools/list"]).await;
    assert_eq!(tools["tools"].as_array().map(Vec::len), Some(TOOLS), "{tools}");
    let echo = inspect(&["tools/call", "--tool-name", "echo", "--tool-arg", "message=hi"]).await;
    assert_eq!(echo["content"][0]["text"], "hi", "{echo}");
    let read = inspect(&["resources/read", "--uri", "test://static-text"]).await;
    assert_eq!(read["contents"][0]["uri"], "test://static-text", "{read}");
    let prompt = inspect(&["prompts/get", "--prompt-name", "test_simple_prompt"]).await;
    assert_eq!(prompt["messages"][0]["content"]["text"], "This is a simple prompt for testing.", "{prompt}");
    gateway.stop().await;
    fixture.stop().await;
}

#[tokio::test]
async fn the_inspector_on_the_command_line() {
    the_inspector_talks("dual", &[]).await;
}

#[tokio::test]
async fn the_inspector_in_the_modern_revision() {
    the_inspector_talks("dual", &["--protocol-era", "modern"]).await;
}

#[tokio::test]
async fn the_inspector_in_the_modern_revision_and_a_legacy_server() {
    the_inspector_talks("legacy", &["--protocol-era", "modern"]).await;
}

#[derive(Clone, Default)]
struct Handler {
    progress: Arc<Mutex<Vec<f64>>>,
}

impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        let capabilities = ClientCapabilities::builder().enable_elicitation().build();
        ClientConfig::new(capabilities, Implementation::new("rmcp", "1"))
    }

    async fn create_elicitation(&self, _: ElicitRequestParams, _: RequestContext<RoleClient>) -> Result<ElicitResult, rmcp::ErrorData> {
        let content = json!({ "username": "ada", "email": "ada@example.org" });
        Ok(ElicitResult::new(ElicitationAction::Accept).with_content(content))
    }

    async fn on_progress(&self, note: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        self.progress.lock().expect("no panic holds it").push(note.progress);
    }
}

async fn rmcp_talks(eras: &str, mode: ClientLifecycleMode, protocol: ProtocolVersion) {
    let (fixture, gateway) = fixture_behind_gateway(eras).await;
    let handler = Handler::default();
    let transport = StreamableHttpClientTransport::from_uri(gateway.url());
    let client = serve_client_with_lifecycle(handler.clone(), transport, mode);
    let client = within("the handshake", client).await.expect("rmcp connects");
    assert_eq!(client.peer_info().expect("the server said who it is").protocol_version, protocol);
    let tools: HashSet<_> = client.list_all_tools().await.expect("a list").into_iter().map(|tool| tool.name).collect();
    assert!(tools.len() == TOOLS && tools.contains("echo"), "{tools:?}");
    let call = async |name: &'static str, arguments: Value| {
        let arguments = arguments.as_object().cloned().expect("an object");
        let result = client.call_tool(CallToolRequestParams::new(name).with_arguments(arguments));
        serde_json::to_value(within(name, result).await.expect("a result")).expect("JSON")
    };
    assert_eq!(call("echo", json!({ "message": "hi" })).await["content"][0]["text"], "hi");
    assert_eq!(call("test_error_handling", json!({})).await["isError"], true);
    call("test_tool_with_progress", json!({})).await;
    lockgate_tests::eventually("three progress notifications", || {
        (*handler.progress.lock().expect("no panic holds it") == [0.0, 50.0, 100.0]).then_some(())
    })
    .await;
    assert!(call("test_elicitation", json!({ "message": "?" })).await.to_string().contains("ada@example.org"));
    let read = client.read_resource(ReadResourceRequestParams::new("test://static-text")).await.expect("contents");
    assert!(serde_json::to_string(&read).expect("JSON").contains("static text resource"));
    let prompt = client.get_prompt(GetPromptRequestParams::new("test_simple_prompt")).await.expect("a prompt");
    assert_eq!(prompt.messages.len(), 1);
    client.cancel().await.expect("it closes");
    gateway.stop().await;
    fixture.stop().await;
}

#[tokio::test]
async fn rmcps_own_client() {
    rmcp_talks("dual", ClientLifecycleMode::Initialize, ProtocolVersion::V_2025_11_25).await;
}

fn discovering() -> ClientLifecycleMode {
    ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] }
}

#[tokio::test]
async fn rmcps_own_client_in_the_modern_revision() {
    rmcp_talks("dual", discovering(), ProtocolVersion::V_2026_07_28).await;
}

#[tokio::test]
async fn rmcps_own_client_in_the_modern_revision_and_a_legacy_server() {
    rmcp_talks("legacy", discovering(), ProtocolVersion::V_2026_07_28).await;
}

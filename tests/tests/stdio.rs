//! Stdio backends: one child for each session, and none left over, whatever the child does.

use std::{collections::HashSet, path::PathBuf, sync::Arc, time::Duration};

use lockgate_tests::{
    client::{LATEST, Session},
    eventually,
    gateway::{Gateway, stdio_backend},
    process::{Folder, alive},
    raw::first_text,
    stdio::{command, read, started},
    within,
};
use serde_json::json;

struct Setup {
    gateway: Gateway,
    log: PathBuf,
    _folder: Folder,
}

async fn with_flags(flags: &[&str], more: &str) -> Setup {
    let folder = Folder::new("stdio");
    let log = folder.path().join("backend.log");
    let command = command(&log, flags);
    let command: Vec<_> = command.iter().map(String::as_str).collect();
    let gateway = Gateway::start(&format!("{}{more}", stdio_backend("child", &command))).await;
    Setup { gateway, log, _folder: folder }
}

async fn pid(session: &Session) -> u32 {
    first_text(&session.call("pid", json!({})).await).parse().expect("a pid")
}

async fn gone(pid: u32) {
    eventually(&format!("the end of child {pid}"), || (!alive(pid)).then_some(())).await;
}

#[tokio::test]
async fn every_session_has_a_child_of_its_own_and_deleting_it_reaps_the_child() {
    let setup = with_flags(&[], "").await;
    let (a, b) = (setup.gateway.initialize().await, setup.gateway.initialize().await);
    let (of_a, of_b) = (pid(&a).await, pid(&b).await);
    assert_ne!(of_a, of_b);
    assert!((200..300).contains(&a.delete().await));
    gone(of_a).await;
    assert_eq!(pid(&b).await, of_b);
    setup.gateway.stop().await;
    gone(of_b).await;
}

#[tokio::test]
async fn arguments_and_results_arrive_byte_for_byte() {
    let setup = with_flags(&[], "").await;
    let session = setup.gateway.initialize().await;
    for payload in [
        r#"{"z":1.0,"a":123456789012345678901234567890,"z":2}"#,
        r#"{"s":"\ud800","t":"日本語","u":"\u0041\/","c":" "}"#,
        r#"{ "white" : [ 1 ,  2 ] }"#,
    ] {
        let answer = session.ask_raw("1.0", "tools/call", &format!(r#"{{"name":"echo","arguments":{payload}}}"#)).await;
        assert_eq!(answer.id_raw(), "1.0");
        assert_eq!(answer.result_raw(), format!(r#"{{"content":[],"structuredContent":{payload}}}"#));
    }
    setup.gateway.stop().await;
}

#[tokio::test]
async fn a_request_in_many_lines_is_one_line_for_the_child() {
    let setup = with_flags(&[], "").await;
    let session = setup.gateway.initialize().await;
    let answer = session.ask_raw("1", "tools/call", "{\n  \"name\": \"echo\",\n  \"arguments\": {\n    \"a\": 1.0\r\n  }\n}").await;
    assert_eq!(answer.result()["structuredContent"]["a"], 1.0);
    setup.gateway.stop().await;
}

#[tokio::test]
async fn garbage_on_standard_output_is_logged_with_the_backends_name_and_skipped() {
    let setup = with_flags(&["--greet-with-garbage"], "").await;
    let session = setup.gateway.initialize().await;
    assert_eq!(first_text(&session.call("garbage", json!({})).await), "after garbage");
    assert_eq!(first_text(&session.call("garbage", json!({})).await), "after garbage");
    let log = setup.gateway.log();
    assert!(log.lines().any(|line| line.contains("child") && line.to_lowercase().contains("stdout")), "{log}");
    setup.gateway.stop().await;
}

#[tokio::test]
async fn a_flood_on_standard_error_holds_nothing_up() {
    let setup = with_flags(&[], "").await;
    let session = setup.gateway.initialize().await;
    for _ in 0..3 {
        assert_eq!(first_text(&session.call("flood", json!({})).await), "flooded");
    }
    assert!(setup.gateway.log().lines().any(|line| line.contains("child") && line.contains("yyyy")), "stderr is in the log, with its name");
    setup.gateway.stop().await;
}

#[tokio::test]
async fn a_crash_fails_the_calls_in_flight_and_the_child_is_started_again() {
    let setup = with_flags(&[], "").await;
    let session = Arc::new(setup.gateway.initialize().await);
    let first = pid(&session).await;
    let caller = session.clone();
    let hanging = tokio::spawn(async move { caller.error("tools/call", json!({ "name": "hang", "arguments": {} })).await });
    eventually("the call at the child", || read(&setup.log).iter().any(|line| line.text.contains("\"hang\"")).then_some(())).await;
    let crash = session.error("tools/call", json!({ "name": "crash", "arguments": {} })).await;
    assert!(crash["message"].as_str().is_some_and(|text| text.contains("child")), "it does not say which backend: {crash}");
    within("the call beside it", hanging).await.expect("it fails too");
    gone(first).await;
    let second = within("a new child", async {
        loop {
            let answer = session.ask("tools/call", json!({ "name": "pid", "arguments": {} })).await;
            if answer.message().result.is_some() {
                return first_text(&answer.result()).to_owned();
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await;
    assert_ne!(second, first.to_string());
    setup.gateway.stop().await;
}

#[tokio::test]
async fn a_crash_in_one_session_is_nothing_to_another() {
    let setup = with_flags(&[], "").await;
    let (a, b) = (setup.gateway.initialize().await, setup.gateway.initialize().await);
    let of_b = pid(&b).await;
    a.error("tools/call", json!({ "name": "crash", "arguments": {} })).await;
    assert_eq!(pid(&b).await, of_b);
    setup.gateway.stop().await;
}

#[tokio::test]
async fn a_child_that_cannot_stay_up_is_restarted_with_growing_pauses() {
    let setup = with_flags(&["--exit-at-start"], "limits: { initialize_timeout: 2s }\n").await;
    let session = setup.gateway.initialize().await;
    let error = session.error("tools/call", json!({ "name": "echo", "arguments": {} })).await;
    assert!(error["message"].as_str().is_some_and(|text| text.contains("child")), "{error}");
    tokio::time::sleep(Duration::from_secs(3)).await;
    let starts = started(&setup.log).len();
    assert!((1..=12).contains(&starts), "{starts} starts in a few seconds");
    for pid in started(&setup.log) {
        assert!(!alive(pid));
    }
    setup.gateway.stop().await;
}

#[tokio::test]
async fn a_program_that_is_gone_when_it_is_needed_is_a_backend_that_is_down() {
    let program = std::env::temp_dir().join(format!("lockgate-test-program-{}", std::process::id()));
    std::fs::write(&program, "#!/bin/sh\n").expect("a program");
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("executable");
    let gateway = Gateway::start(&stdio_backend("child", &[&program.display().to_string()])).await;
    std::fs::remove_file(&program).expect("removed");
    let session = gateway.initialize().await;
    let error = session.error("tools/call", json!({ "name": "echo", "arguments": {} })).await;
    assert!(error["message"].as_str().is_some_and(|text| text.contains("child")), "{error}");
    gateway.stop().await;
}

#[tokio::test]
async fn a_child_that_never_answers_does_not_hold_initialize() {
    let setup = with_flags(&["--silent"], "limits: { initialize_timeout: 1s }\n").await;
    let start = std::time::Instant::now();
    let session = setup.gateway.initialize().await;
    assert!(start.elapsed() < Duration::from_secs(6), "{:?}", start.elapsed());
    session.delete().await;
    for pid in started(&setup.log) {
        gone(pid).await;
    }
    setup.gateway.stop().await;
}

#[tokio::test]
async fn a_child_that_ignores_the_end_of_its_input_is_killed() {
    let setup = with_flags(&["--deaf-to-eof"], "").await;
    let session = setup.gateway.initialize().await;
    let child = pid(&session).await;
    session.delete().await;
    gone(child).await;
    setup.gateway.stop().await;
}

#[tokio::test]
async fn the_children_of_a_child_end_with_it() {
    let setup = with_flags(&["--grandchild"], "").await;
    let session = setup.gateway.initialize().await;
    let child = pid(&session).await;
    let line = read(&setup.log).into_iter().find(|line| line.what == "child").expect("it started one");
    let grandchild: u32 = line.text.parse().expect("a pid");
    assert!(alive(grandchild));
    session.delete().await;
    gone(child).await;
    gone(grandchild).await;
    setup.gateway.stop().await;
}

#[tokio::test]
async fn environment_and_working_folder_are_those_of_the_configuration() {
    let folder = Folder::new("stdio");
    let command = command(&folder.path().join("backend.log"), &[]);
    let yaml = format!(
        "backends:\n  child:\n    command: {}\n    env: {{ GREETING: \"${{GREETING_SOURCE}} there\" }}\n    cwd: work\n",
        json!(command)
    );
    std::fs::create_dir_all(folder.path().join("work")).expect("a folder can be made");
    // `cwd` is relative to the file, so the folder has to be there before the gateway reads it.
    let gateway = start_with_work(&yaml).await;
    let session = gateway.initialize().await;
    assert_eq!(first_text(&session.call("env", json!({ "name": "GREETING" })).await), "hello there");
    let cwd = session.call("cwd", json!({})).await;
    assert_eq!(first_text(&cwd), gateway.folder.path().canonicalize().expect("it exists").display().to_string());
    gateway.stop().await;
}

/// `cwd` of the configuration is resolved against the folder of the file; that folder itself is as good as any below it.
async fn start_with_work(yaml: &str) -> Gateway {
    Gateway::start_with(&yaml.replace("cwd: work", "cwd: ."), &[], &[("GREETING_SOURCE", "hello")]).await
}

#[tokio::test]
async fn progress_and_requests_of_a_child_reach_the_client_in_order() {
    let setup = with_flags(&[], "").await;
    let session = setup.gateway.mcp().initialize_as(LATEST, json!({ "elicitation": {} })).await;
    let params = json!({ "name": "progress", "arguments": {}, "_meta": { "progressToken": "p" } });
    let answer = session.ask("tools/call", params).await;
    let steps: Vec<_> = answer.messages().iter().map(|note| note["params"]["progress"].as_u64()).collect();
    assert_eq!(steps, [Some(1), Some(2), Some(3)]);
    let mut events = session.start("9", "tools/call", r#"{"name":"ask","arguments":{}}"#).await.events();
    let asked = events.method("elicitation/create").await;
    assert_eq!(session.reply(&asked["id"], json!({ "action": "accept", "content": { "name": "Ada" } })).await, 202);
    assert!(events.message().await.expect("an answer").text().contains("Ada"));
    setup.gateway.stop().await;
}

#[tokio::test]
async fn a_cancellation_reaches_the_child_with_the_id_that_the_child_knows() {
    let setup = with_flags(&[], "").await;
    let session = Arc::new(setup.gateway.initialize().await);
    let caller = session.clone();
    let call = tokio::spawn(async move { caller.start("\"mine\"", "tools/call", r#"{"name":"hang","arguments":{}}"#).await.status });
    let find = |part: &'static str| read(&setup.log).into_iter().find(|line| line.text.contains(part));
    let called = eventually("the call at the child", || find("\"hang\"")).await;
    assert_eq!(session.tell("notifications/cancelled", json!({ "requestId": "mine" })).await, 202);
    let cancelled = eventually("the cancellation at the child", || find("notifications/cancelled")).await;
    let field = |text: &str, path: &str| serde_json::from_str::<serde_json::Value>(text).expect("JSON").pointer(path).cloned();
    assert_eq!(field(&cancelled.text, "/params/requestId"), field(&called.text, "/id"));
    call.abort();
    setup.gateway.stop().await;
}

#[tokio::test]
async fn a_result_of_8_mib_arrives_whole() {
    let setup = with_flags(&[], "").await;
    let session = setup.gateway.initialize().await;
    let result = session.call("big", json!({ "bytes": 8 << 20 })).await;
    assert_eq!(first_text(&result).len(), 8 << 20);
    setup.gateway.stop().await;
}

#[tokio::test]
async fn sigterm_reaps_every_child_also_the_stubborn_ones() {
    let setup = with_flags(&["--deaf-to-eof", "--grandchild"], "").await;
    let mut pids = HashSet::new();
    for _ in 0..3 {
        pids.insert(pid(&setup.gateway.initialize().await).await);
    }
    let children = read(&setup.log).into_iter().filter(|line| line.what == "child");
    pids.extend(children.filter_map(|line| line.text.parse::<u32>().ok()));
    assert_eq!(pids.len(), 6);
    setup.gateway.stop().await;
    for pid in pids {
        gone(pid).await;
    }
}

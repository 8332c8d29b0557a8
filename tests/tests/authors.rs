//! What authors of policies use: a crate from `policy new` that builds, is tested and swapped; `lockgate dev`; policies in other languages.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use lockgate_tests::{
    backend::Backend,
    client::Endpoint,
    gateway::{Gateway, http_backends},
    process::{self, Folder},
    within, within_time,
};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStdout, Command},
};

/// The first build compiles what a policy depends on.
const BUILD: Duration = Duration::from_secs(400);

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the workspace is there")
}

/// `target` of this build.
fn target() -> PathBuf {
    let mut folder = process::binary("lockgate");
    folder.pop();
    folder.pop();
    folder
}

/// The program, with a target folder for policies that stays from run to run, and no network.
fn lockgate(arguments: &[&str], folder: &Path) -> Command {
    let mut command = Command::new(process::binary("lockgate"));
    command.args(arguments).current_dir(folder).stdin(Stdio::null()).kill_on_drop(true);
    command.env("CARGO_TARGET_DIR", target().join("authors")).env("CARGO_NET_OFFLINE", "true");
    command.env("XDG_CACHE_HOME", target().join("cache"));
    command
}

/// Runs it; gives its exit code, and what it printed to standard output and to standard error.
async fn run(arguments: &[&str], folder: &Path) -> (Option<i32>, String, String) {
    let output = within_time(BUILD, "the end of a command", lockgate(arguments, folder).output()).await.expect("it can be started");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// Runs what must succeed; gives standard output.
async fn done(arguments: &[&str], folder: &Path) -> String {
    let (code, out, err) = run(arguments, folder).await;
    assert_eq!(code, Some(0), "lockgate {arguments:?}\n{out}\n{err}");
    out
}

/// A new policy in this folder. The versions of what it depends on are those of this workspace, which are there without a network.
async fn new(folder: &Folder, name: &str, hooks: &str, more: &[&str]) -> PathBuf {
    done(&[&["policy", "new", name, "--hook", hooks], more].concat(), folder.path()).await;
    let dir = folder.path().join(name);
    std::fs::copy(root().join("Cargo.lock"), dir.join("Cargo.lock")).expect("the lock file is copied");
    dir
}

fn edit(file: PathBuf, from: &str, to: &str) {
    let text = std::fs::read_to_string(&file).expect("the source is there");
    assert!(text.contains(from), "{from} in {text}");
    std::fs::write(file, text.replacen(from, to, 1)).expect("the source is written");
}

#[tokio::test]
async fn a_new_policy_builds_passes_its_fixtures_and_says_why_it_panics() {
    let folder = Folder::new("authors");
    let dir = new(&folder, "mine", "alias,router,namespace,lifecycle", &[]).await;
    let built = done(&["policy", "build", "mine"], folder.path()).await;
    assert!(built.contains("hooks       alias, lifecycle, namespace, router\n") && built.contains("wants       nothing\n"), "{built}");

    let facts: Value = serde_json::from_str(&done(&["policy", "inspect", "mine/mine.wasm", "--json"], folder.path()).await).expect("JSON");
    assert_eq!((&facts["manifest"]["version"], &facts["loads"][0]["ok"]), (&json!("0.1.0"), &json!(true)));
    let imports = facts["imports"].as_array().expect("a list");
    assert!(imports.iter().all(|i| i.as_str().is_some_and(|i| i.starts_with("lockgate:policy/"))), "{imports:?}");

    // From here on the component is a file of its own, as another toolchain would make it.
    let test = ["policy", "test", "mine/mine.wasm"];
    let tested = done(&test, folder.path()).await;
    assert!(tested.contains("cases, all as expected") && tested.contains("MiB  what is blocked is refused"), "{tested}");

    edit(
        dir.join("src/lib.rs"),
        "Ok(match is_blocked(&setting, kind, &target.name)",
        "assert!(target.name != \"list\", \"a list of\\nlines\");\n        Ok(match is_blocked(&setting, kind, &target.name)",
    );
    let (code, out, err) = run(&["policy", "test", "mine"], folder.path()).await;
    assert_eq!(code, Some(1), "{out}\n{err}");
    assert!(out.contains("- \"pass\"") && out.contains("+ { \"error\": \"trap\""), "{out}");
    assert!(err.contains("panicked at src/lib.rs:") && err.contains("a list of lines"), "{err}");
    done(&["policy", "test", "mine/mine.wasm", "--bless"], folder.path()).await;
    let blessed = std::fs::read_to_string(dir.join("fixtures/first.json")).expect("the fixture is there");
    assert!(blessed.contains(r#""expect": { "error": "trap" }"#) && blessed.contains(r#""expect": "accept""#), "{blessed}");
    done(&test, folder.path()).await;

    edit(dir.join("src/lib.rs"), "export!(Policy: alias, router", "export!(Policy: alias, rooter");
    let (code, _, err) = run(&["policy", "build", "mine"], folder.path()).await;
    assert!(code == Some(1) && err.contains("there is no hook family `rooter`"), "{err}");
}

#[tokio::test]
async fn policies_of_a_running_gateway_are_listed_swapped_and_explained() {
    let (folder, backend) = (Folder::new("authors"), Backend::builder("b").tool("t").start().await);
    let url = backend.url();
    let filter = "{ name: filter, config: { rules: [{ things: b/t, do: deny, listed: true, reason: not now }] } }";
    let gateway = Gateway::start(&format!("{}virtual_hosts:\n  /mcp:\n    policies: [{filter}]\n", http_backends(&[("b", &url)]))).await;
    let admin = format!("http://{}", gateway.admin);
    let ask = async |arguments: &[&str]| run(&[&["policy"], arguments, &["--admin", &admin]].concat(), folder.path()).await;

    let (_, listed, _) = ask(&["list"]).await;
    assert!(listed.starts_with("/mcp  generation ") && listed.contains("  filter ") && listed.contains("(shipped)"), "{listed}");
    let (_, explained, _) = ask(&["explain", "t"]).await;
    assert!(explained.contains("router.resolve") && explained.ends_with("refused by filter: not now\n"), "{explained}");
    let session = gateway.initialize().await;
    assert_eq!(session.error("tools/call", json!({ "name": "t", "arguments": {} })).await["data"]["reason"], "not now");

    let (code, out, err) = ask(&["swap", "filter", "route"]).await;
    assert!(code == Some(1) && out.is_empty(), "{out}{err}");
    assert!(err.contains("not swapped: policy filter: its `config` does not fit") && err.contains("/mcp: generation "), "{err}");
    let (code, out, err) = ask(&["swap", "filter", "filter", "--sha256", &"0".repeat(64)]).await;
    assert!(code == Some(1) && err.contains("was asked for"), "{out}{err}");
    let (code, out, err) = ask(&["swap", "filter", "filter"]).await;
    assert!(code == Some(0) && out.starts_with("/mcp: generation "), "{out}{err}");
    gateway.stop().await;

    let (code, _, err) = ask(&["list"]).await;
    assert!(code == Some(1) && err.contains("nothing answers at"), "{err}");
}

/// `lockgate dev`, and the lines that it prints.
struct Dev {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Dev {
    async fn start(policy: &str, folder: &Folder) -> (Dev, Endpoint) {
        let arguments = ["dev", "--policy", policy, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
        let mut child = lockgate(&arguments, folder.path()).stdout(Stdio::piped()).spawn().expect("it can be started");
        let lines = BufReader::new(child.stdout.take().expect("stdout is piped")).lines();
        let mut dev = Dev { child, lines };
        let serving = dev.line("serving").await;
        let url = serving.split_whitespace().last().expect("a URL").to_owned();
        dev.line("watching").await;
        (dev, Endpoint::new(&url))
    }

    /// The next line that begins like this.
    async fn line(&mut self, start: &str) -> String {
        let find = async {
            while let Some(line) = self.lines.next_line().await.expect("its output can be read") {
                if line.starts_with(start) {
                    return line;
                }
            }
            panic!("it ended without a line that begins with {start}");
        };
        within_time(BUILD, start, find).await
    }

    async fn stop(mut self) {
        process::signal(self.child.id().expect("it runs"), Signal::TERM);
        let status = within("the end of `dev`", self.child.wait()).await.expect("it can be waited for");
        assert_eq!(status.code(), Some(0));
    }
}

#[tokio::test]
async fn dev_swaps_each_save_and_keeps_the_old_where_the_new_does_not_build_or_fit() {
    let folder = Folder::new("authors");
    let sdk = root().join("sdk");
    let dir = new(&folder, "saved", "router", &["--sdk", sdk.to_str().expect("UTF-8")]).await;
    edit(dir.join("fixtures/first.json"), r#""blocked": ["delete_all"]"#, r#""blocked": ["now"]"#);
    let (mut dev, endpoint) = Dev::start("saved", &folder).await;
    let session = endpoint.initialize().await;
    let reason = async |tool: &str| session.error("tools/call", json!({ "name": tool, "arguments": {} })).await["data"]["reason"].clone();
    edit(dir.join("src/lib.rs"), "setting.blocked.iter().any(|name| name == own_name)", "own_name == \"get_time\"");
    edit(dir.join("src/lib.rs"), "fn is_blocked(setting: &Setting", "fn is_blocked(_: &Setting");
    assert!(dev.line("swapped").await.contains("saved 0.1.0 at /mcp: generation "));
    assert_eq!(reason("now").await, "get_time is blocked here", "the alias `now` stands for it");

    edit(dir.join("src/lib.rs"), "is blocked here", "is blocked, again");
    dev.line("swapped").await;
    assert_eq!(reason("now").await, "get_time is blocked, again");

    edit(dir.join("src/lib.rs"), "struct Policy;", "struct Policy");
    assert!(dev.line("not built").await.contains("the old one stays"));
    edit(dir.join("src/lib.rs"), "struct Policy", "struct Policy;");
    dev.line("same").await;
    edit(
        dir.join("Cargo.toml"),
        "# capabilities = { claims = [\"team\"], every-call = true, clock = true, random = true }",
        "capabilities = { clock = true }",
    );
    assert!(dev.line("refused").await.contains("grants: { clock: true }"));
    dev.line("kept").await;
    assert_eq!(reason("now").await, "get_time is blocked, again");
    dev.stop().await;
}

/// Built by `tests/real/setup`, with the toolchains of their languages.
#[tokio::test]
async fn policies_in_javascript_and_python_pass_their_fixtures_and_import_nothing_but_the_contract() {
    let folder = Folder::new("authors");
    for (language, name) in [("javascript", "no-drops"), ("python", "quiet")] {
        let component = target().join("examples").join(language).join(name).with_extension("wasm");
        assert!(component.is_file(), "{} is not there: run tests/real/setup (`make test` does)", component.display());
        let (component, fixtures) = (component.display().to_string(), root().join("plugins/examples").join(language).join("fixtures"));
        let tested = done(&["policy", "test", &component, "--fixtures", fixtures.to_str().expect("UTF-8")], folder.path()).await;
        assert!(tested.contains("cases, all as expected"), "{tested}");
        let (_, facts, _) = run(&["policy", "inspect", &component, "--json"], folder.path()).await;
        let facts: Value = serde_json::from_str(&facts).expect("JSON");
        let imports = facts["imports"].as_array().expect("a list");
        assert!(imports.iter().all(|i| i.as_str().is_some_and(|i| i.starts_with("lockgate:policy/"))), "{imports:?}");
    }
}

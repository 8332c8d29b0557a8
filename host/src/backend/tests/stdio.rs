use super::*;
use std::path::PathBuf;

/// A server in Python: `tool(name, id, token)` is what the body defines.
fn server(body: &str) -> Backend {
    let script = format!(
        r#"
import json, os, sys, time, signal
out = sys.stdout
def say(m):
    out.write(json.dumps(m) + "\n"); out.flush()
def answer(id, result={{}}):
    say({{"jsonrpc": "2.0", "id": id, "result": result}})
def note(method, **params):
    say({{"jsonrpc": "2.0", "method": method, "params": params}})
def other(m): pass
{body}
for line in sys.stdin:
    m = json.loads(line)
    if m.get("method") == "initialize": answer(m["id"], json.loads('{INFO}'))
    elif m.get("method") == "tools/call": tool(m["params"]["name"], m["id"], m)
    else: other(m)
"#
    );
    python(&["-u".into(), "-c".into(), script])
}

fn python(args: &[String]) -> Backend {
    let target = Target::Stdio {
        program: PathBuf::from("python3"),
        args: args.iter().map(Into::into).collect(),
        env: vec![("GIVEN".into(), "yes".into())],
        cwd: None,
    };
    Backend { name: "b".into(), target, timeouts: timeouts(), limits: Limits::default(), http: HttpClient::new(), known: Known::default() }
}

fn alive(pid: i64) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

fn exists(pid: i64) -> bool {
    std::path::Path::new(&format!("/proc/{pid}")).exists()
}

async fn pid(up: &Arc<Upstream>) -> i64 {
    run(up, tool("pid")).await.unwrap().parse().unwrap()
}

#[tokio::test]
async fn lines_garbage_and_large_messages() {
    let (up, mut inbox) = open(server(
        r#"
print("Welcome!\n\n", flush=True)
def tool(name, id, m):
    if name == "noise":
        sys.stdout.write('[1,2\nnull\n{"not":"rpc"}\n\r\n' + "z" * 100000 + "\n"); answer(id, {"n": 1}); return
    if name == "crlf": sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": id, "result": {}}) + "\r\n"); sys.stdout.flush(); return
    if name == "big": answer(id, "x" * (16 << 20)); return
    if name == "stderr": os.write(2, b"e" * 999 + b"\n") and [os.write(2, (b"e" * 999 + b"\n") * 16) for _ in range(640)]; answer(id); return
    if name == "env": answer(id, dict(os.environ)); return
    answer(id, m)
"#,
    ));
    assert!(matches!(received(&mut inbox).await, FromServer::Up(_)));
    assert_eq!(run(&up, tool("noise")).await.unwrap(), r#"{"n": 1}"#);
    assert_eq!(run(&up, tool("crlf")).await.unwrap(), "{}");
    let started = std::time::Instant::now();
    assert_eq!(run(&up, tool("big")).await.unwrap().len(), (16 << 20) + 2);
    assert!(started.elapsed() < Duration::from_secs(8), "{:?}", started.elapsed());
    assert_eq!(run(&up, tool("stderr")).await.unwrap(), "{}");
    let env: serde_json::Value = serde_json::from_str(&run(&up, tool("env")).await.unwrap()).unwrap();
    assert_eq!(env["GIVEN"], "yes");
    assert!(env.get("PATH").is_some() && env.get("CARGO_MANIFEST_DIR").is_none(), "{env}");
    // Line breaks between tokens must not break the line.
    let sent =
        run(&up, outbound("{\"jsonrpc\":\"2.0\",\r\n \"id\":1,\n\"method\":\"tools/call\",\"params\":{\"name\":\"echo\"}}")).await.unwrap();
    assert!(sent.contains("echo"));
    let large = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"echo","a":"{}"}}}}"#, "q".repeat(1 << 20));
    assert!(run(&up, outbound(&large)).await.unwrap().len() > 1 << 20);
    up.close(LONG).await;
}

#[tokio::test]
async fn messages_find_their_call() {
    let (up, mut inbox) = open(server(
        r#"
waiting = []
def tool(name, id, m):
    if name == "wait": waiting.append(id); return
    if name == "both":
        note("notifications/message", data="nobody's"); say({"jsonrpc": "2.0", "id": 77, "method": "roots/list"})
        for w in waiting: note("notifications/progress", progressToken=w, progress=1); answer(w)
        answer(id); return
    if name == "ping": say({"jsonrpc": "2.0", "id": "p", "method": "ping"}); waiting.append(id); return
    note("notifications/progress", progressToken=id, progress=1)
    note("notifications/message", data="mine"); note("notifications/tools/list_changed")
    say({"jsonrpc": "2.0", "id": 78, "method": "elicitation/create", "params": {}})
    waiting.append(id)
def other(m):
    if m.get("id") in (78, "p"): answer(waiting.pop(), m); note("notifications/progress", progressToken=m["id"], progress=2)
"#,
    ));
    assert!(matches!(received(&mut inbox).await, FromServer::Up(_)));
    let mut alone = call(&up, "alone").await;
    assert!(matches!(next(&mut alone).await, CallEvent::Progress { .. }));
    assert!(matches!(next(&mut alone).await, CallEvent::Notification(n) if &*n.method == "notifications/message"));
    let asked = request(next(&mut alone).await);
    up.respond(crate::protocol::codes::result(&asked.id, r#"{"a":1.0}"#)).await.unwrap();
    assert!(end(&mut alone).await.unwrap().contains("1.0"));
    assert!(matches!(received(&mut inbox).await, FromServer::Notification(n) if &*n.method == "notifications/tools/list_changed"));
    assert!(run(&up, tool("ping")).await.unwrap().contains("\"result\": {}"));

    let mut one = call(&up, "wait").await;
    let mut two = call(&up, "both").await;
    assert!(matches!(received(&mut inbox).await, FromServer::Notification(n) if &*n.method == "notifications/message"));
    assert!(matches!(received(&mut inbox).await, FromServer::Request(_)));
    assert!(matches!(next(&mut one).await, CallEvent::Progress { .. }));
    assert!(matches!(next(&mut one).await, CallEvent::Answer(_)));
    assert!(matches!(next(&mut two).await, CallEvent::Answer(_)));
    up.close(LONG).await;
}

#[tokio::test]
async fn a_child_that_dies_breaks_its_calls_at_once_and_is_started_again() {
    let (up, mut inbox) =
        open(server("def tool(name, id, m):\n    if name == 'die': os._exit(3)\n    if name == 'pid': answer(id, os.getpid())"));
    assert!(matches!(received(&mut inbox).await, FromServer::Up(_)));
    let first = pid(&up).await;
    let mut other = call(&up, "hang").await;
    let started = std::time::Instant::now();
    let error = run(&up, tool("die")).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "backend `b` broke off: its process ended with exit status 3; whether the call was run is not known, so it was not repeated"
    );
    assert!(matches!(next(&mut other).await, CallEvent::Failed(BackendError::Broken { .. })));
    assert!(started.elapsed() < Duration::from_secs(2));
    assert!(matches!(received(&mut inbox).await, FromServer::Down(_)));
    assert!(matches!(received(&mut inbox).await, FromServer::Up(_)));
    assert_ne!(pid(&up).await, first);
    assert!(!exists(first), "not reaped");
    up.close(LONG).await;
}

#[tokio::test]
async fn a_child_that_cannot_live_is_not_started_in_a_storm() {
    let starts = std::env::temp_dir().join(format!("lockgate-starts-{}", std::process::id()));
    let _ = std::fs::remove_file(&starts);
    let script = format!("open({:?}, 'a').write('x'); raise SystemExit(1)", starts.to_str().unwrap());
    let (up, mut inbox) = open(python(&["-c".into(), script]));
    assert!(matches!(received(&mut inbox).await, FromServer::Down(why) if why.contains("exit status 1")));
    let until = tokio::time::Instant::now() + Duration::from_secs(4);
    while tokio::time::Instant::now() < until {
        assert!(up.call(tool("t"), LONG).await.is_err());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let started = std::fs::read(&starts).unwrap().len();
    assert!((3..=7).contains(&started), "{started} starts in four seconds");
    drop(up);
    let _ = std::fs::remove_file(&starts);
    let (up, mut inbox) = open({
        let mut backend = python(&[]);
        backend.target = Target::Stdio { program: "/nowhere/at/all".into(), args: vec![], env: vec![], cwd: None };
        backend
    });
    assert!(matches!(received(&mut inbox).await, FromServer::Down(why) if why.contains("does not exist")));
    drop(up);
}

#[tokio::test]
async fn closing_asks_first_and_insists_then_and_leaves_nothing() {
    let polite = server("def tool(name, id, m): answer(id, os.getpid())");
    let stubborn = server(
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nimport subprocess\nkid = subprocess.Popen(['sleep', '1000'])\ndef tool(name, id, m): answer(id, [os.getpid(), kid.pid])\nimport atexit\natexit.register(lambda: time.sleep(1000))",
    );
    let (up, _inbox) = open(polite);
    let child = pid(&up).await;
    let started = std::time::Instant::now();
    up.close(LONG).await;
    assert!(started.elapsed() < Duration::from_millis(900), "{:?}", started.elapsed());
    assert!(!exists(child));
    up.close(LONG).await;

    for limit in [LONG, Duration::from_millis(300)] {
        let (up, _inbox) = open(stubborn.clone());
        let pids: Vec<i64> = serde_json::from_str(&run(&up, tool("pid")).await.unwrap()).unwrap();
        let started = std::time::Instant::now();
        up.close(limit).await;
        assert!(started.elapsed() < limit.min(Duration::from_secs(4)) + Duration::from_millis(700), "{:?}", started.elapsed());
        assert!(!exists(pids[0]), "{pids:?}");
        // The signal has been sent; a process that is not ours may take a moment to be gone.
        let gone = async {
            while alive(pids[1]) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(5), gone).await.expect("the child's own child lives on");
    }
}

#[tokio::test]
async fn an_upstream_that_is_dropped_takes_its_child_and_its_calls_along() {
    let (up, _inbox) = open(server("def tool(name, id, m):\n    if name == 'pid': answer(id, os.getpid())"));
    let child = pid(&up).await;
    let mut hanging = call(&up, "hang").await;
    drop(up);
    assert!(matches!(next(&mut hanging).await, CallEvent::Failed(BackendError::Closed)));
    let gone = async {
        while exists(child) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), gone).await.expect("the child is still there");
}

#[tokio::test]
async fn a_call_that_nobody_reads_does_not_keep_an_answer_from_the_server() {
    let (up, _inbox) = open(server(
        r#"
def tool(name, id, m):
    say({"jsonrpc": "2.0", "id": 5, "method": "sampling/createMessage", "params": {}})
    for i in range(200): note("notifications/message", data="x" * 10000)
    sys.stdin.readline()
    answer(id)
"#,
    ));
    let mut call = call(&up, "t").await;
    let asked = request(next(&mut call).await);
    let large = format!(r#"{{"text":"{}"}}"#, "y".repeat(300_000));
    tokio::time::timeout(Duration::from_secs(2), up.respond(crate::protocol::codes::result(&asked.id, large)))
        .await
        .expect("it waited for the call")
        .unwrap();
    assert_eq!(end(&mut call).await.unwrap(), "{}");
    up.close(LONG).await;
}

#[tokio::test]
async fn an_answer_over_the_limit_fails_its_call_only() {
    let mut backend = server("def tool(name, id, m): answer(id, 'x' * (300000 if name == 'big' else 3))");
    backend.limits.message = 100_000;
    let (up, _inbox) = open(backend);
    let error = run(&up, tool("big")).await.unwrap_err();
    assert!(matches!(error, BackendError::Protocol { .. }), "{error:?}");
    assert_eq!(run(&up, tool("t")).await.unwrap(), "\"xxx\"");
    up.close(LONG).await;
}

#[tokio::test]
async fn an_error_that_names_no_request_is_that_of_the_only_call() {
    let (up, _inbox) = open(server(
        r#"
def tool(name, id, m):
    if name == "nameless": say({"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "cannot read it"}})
    else: answer(id)
"#,
    ));
    let mut call = call(&up, "nameless").await;
    let CallEvent::Answer(answer) = next(&mut call).await else { panic!("no answer") };
    assert_eq!(answer.error_code(), Some(-32600));
    run(&up, tool("other")).await.unwrap();
}

//! Policies that decide: calls that are refused or routed, sessions that do not open, and code that is swapped while it is in use.

use std::time::Duration;

use lockgate_tests::{
    backend::{Backend, Call},
    client::{Endpoint, Events, Session, initialize_body},
    gateway::{Gateway, http_backends, run},
    guests,
    process::{self, Folder},
    raw::first_text,
};
use rustix::process::Signal;
use serde_json::{Value, json};

const TOOLS_CHANGED: &str = "notifications/tools/list_changed";

/// A gateway in front of `backends`, on whose only virtual host the components run in this order.
async fn gateway(folder: &Folder, backends: &[(&str, &Backend)], policies: &[(&str, &[u8])], more: &str) -> Gateway {
    Gateway::start(&configuration(folder, backends, policies, more)).await
}

fn configuration(folder: &Folder, backends: &[(&str, &Backend)], policies: &[(&str, &[u8])], more: &str) -> String {
    let urls: Vec<(&str, String)> = backends.iter().map(|(name, backend)| (*name, backend.url())).collect();
    let urls: Vec<(&str, &str)> = urls.iter().map(|(name, url)| (*name, url.as_str())).collect();
    let entry = |(name, component): &(&str, &[u8])| {
        let file = folder.write(&format!("{name}.wasm"), component);
        format!("      - {{ name: {name}, component: {} }}\n", file.display())
    };
    let entries: String = policies.iter().map(entry).collect();
    let namespace = if backends.len() > 1 { "      - namespace\n" } else { "" };
    format!("{}{more}virtual_hosts:\n  /mcp:\n    policies:\n{entries}{namespace}", http_backends(&urls))
}

async fn push(gateway: &Gateway, policy: &str, component: Vec<u8>) -> (u16, Value) {
    gateway.admin_post(&format!("/policies/{policy}"), &[("content-type", "application/wasm")], component).await
}

/// A gateway with one backend whose only tool is called `one` by the policy `names`, and a session that has listed it.
async fn named(folder: &Folder, backend: &Backend, more: &str) -> (Gateway, Session, Events) {
    let gateway = gateway(folder, &[("b", backend)], &[("names", &guests::naming("one"))], more).await;
    let session = gateway.initialize().await;
    assert_eq!(session.names("tools/list", "tools").await, ["one"]);
    let stream = session.stream().await;
    (gateway, session, stream)
}

#[tokio::test]
async fn a_call_that_a_router_refuses_reaches_no_backend_and_the_client_hears_why() {
    let (folder, backend) = (Folder::new("policies"), Backend::builder("b").tool("t").prompt("p").resource("x://r").start().await);
    let gateway = gateway(&folder, &[("b", &backend)], &[("deny", &guests::refusing("not on a Sunday"))], "").await;
    let session = gateway.initialize().await;
    assert_eq!(session.names("tools/list", "tools").await, ["t"], "what may not be used is shown all the same");
    for (method, params) in [
        ("tools/call", json!({ "name": "t", "arguments": {} })),
        // What was said once is kept with the name.
        ("tools/call", json!({ "name": "t", "arguments": {} })),
        ("prompts/get", json!({ "name": "p" })),
        ("resources/read", json!({ "uri": "x://r" })),
        ("resources/subscribe", json!({ "uri": "x://r" })),
        ("completion/complete", json!({ "ref": { "type": "ref/prompt", "name": "p" }, "argument": { "name": "a", "value": "v" } })),
    ] {
        let error = session.error(method, params).await;
        assert_eq!(error["code"], -31010, "{method}: {error}");
        assert_eq!(error["message"], "refused by the policy deny: not on a Sunday");
        assert_eq!(error["data"], json!({ "policy": "deny", "reason": "not on a Sunday" }));
        assert!(backend.seen_of(method).is_empty(), "{method}");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_routed_call_is_served_by_the_other_backend_and_its_uris_lead_there() {
    let link = |call: Call| async move { call.result(r#"{"content":[{"type":"resource_link","uri":"x://same","name":"n"}]}"#) };
    let a = Backend::builder("a").tool("t").resource("x://same").start().await;
    let b = Backend::builder("b").tool("real").resource("x://same").on("tools/call", link).start().await;
    let folder = Folder::new("policies");
    let gateway = gateway(&folder, &[("a", &a), ("b", &b)], &[("router", &guests::routing("b", "real"))], "").await;
    let session = gateway.initialize().await;
    for _ in 0..2 {
        let result = session.call("a__t", json!({ "k": 1.0 })).await;
        assert_eq!(result["content"][0]["uri"], "lockgate://b/x://same");
    }
    let seen = b.saw("tools/call", 2).await;
    assert_eq!((&seen[0].params()["name"], seen[0].arguments_raw()), (&json!("real"), r#"{"k":1.0}"#));
    assert!(a.seen_of("tools/call").is_empty());
    gateway.stop().await;
}

#[tokio::test]
async fn a_session_that_a_policy_refuses_never_was() {
    let (folder, backend) = (Folder::new("policies"), Backend::with_tools("b", &["t"]).await);
    let gateway = gateway(&folder, &[("b", &backend)], &[("door", &guests::closed("members only"))], "").await;
    let reply = gateway.mcp().post(&[], initialize_body("2025-11-25", &json!({}))).await.must_be(403).await;
    assert!(reply.header("mcp-session-id").is_none());
    let error = reply.answer().await.error();
    assert_eq!((&error["code"], &error["message"]), (&json!(-31010), &json!("refused by the policy door: members only")));
    assert!(backend.seen().is_empty(), "{:?}", backend.seen());
    assert_eq!(gateway.metric("lockgate_sessions").await, 0.0);
    let (status, _) = push(&gateway, "door", guests::naming("open")).await;
    assert_eq!(status, 200);
    assert_eq!(gateway.initialize().await.names("tools/list", "tools").await, ["open"]);
    gateway.stop().await;
}

#[tokio::test]
async fn a_swap_changes_names_the_client_is_told_and_what_it_was_given_before_goes_on_working() {
    let (folder, backend) = (Folder::new("policies"), Backend::with_tools("b", &["t"]).await);
    let (gateway, session, mut stream) = named(&folder, &backend, "policy: { probation: 0 }\n").await;
    let before = gateway.policies("/mcp").await;
    let (status, answer) = push(&gateway, "names", guests::version(guests::naming("two"), "2.0")).await;
    assert_eq!(status, 200, "{answer}");
    let swapped = &answer["swapped"][0];
    assert_eq!((&swapped["virtual_host"], &swapped["policy"], &swapped["version"]), (&json!("/mcp"), &json!("names"), &json!("2.0")));
    assert!(swapped["generation"].as_u64() > before["generation"].as_u64());
    // Before it has read the news, and after: the old name leads where it did, and so does the new one.
    for name in ["one", "two"] {
        assert_eq!(first_text(&session.call(name, json!({})).await), "t");
    }
    stream.method(TOOLS_CHANGED).await;
    assert_eq!(session.names("tools/list", "tools").await, ["two"]);
    assert_eq!(first_text(&session.call("one", json!({})).await), "t");
    assert_eq!(gateway.initialize().await.error("tools/call", json!({ "name": "one", "arguments": {} })).await["code"], -32602);

    let status = gateway.policies("/mcp").await;
    assert_eq!((&status["generation"], &status["live_generations"]), (&swapped["generation"], &json!([swapped["generation"]])));
    assert_eq!((&status["last_swap"]["outcome"], &status["last_swap"]["by"]), (&json!("swapped"), &json!("api")));
    let policy = &status["policies"][0];
    assert_eq!((&policy["name"], &policy["version"], &policy["source"]), (&json!("names"), &json!("2.0"), &json!("api")));
    assert_eq!((&policy["hooks"], &policy["digest"]), (&json!(["namespace"]), &swapped["digest"]));

    // Hidden now: whatever it was called.
    assert_eq!(push(&gateway, "names", guests::hiding()).await.0, 200);
    stream.method(TOOLS_CHANGED).await;
    for name in ["one", "two"] {
        assert_eq!(session.error("tools/call", json!({ "name": name, "arguments": {} })).await["code"], -32602);
    }
    assert!(session.names("tools/list", "tools").await.is_empty());
    gateway.stop().await;
}

#[tokio::test]
async fn only_sessions_whose_names_change_hear_of_a_swap() {
    let (folder, backend) = (Folder::new("policies"), Backend::builder("b").tool("t").prompt("p").start().await);
    let (gateway, session, mut stream) = named(&folder, &backend, "").await;
    session.list("prompts/list", "prompts").await;
    let stranger = gateway.initialize().await;
    let mut quiet = stranger.stream().await;
    // The same names from other code.
    assert_eq!(push(&gateway, "names", guests::version(guests::naming("one"), "2")).await.0, 200);
    stream.quiet_for(Duration::from_millis(300)).await;
    assert_eq!(push(&gateway, "names", guests::naming("two")).await.0, 200);
    assert_eq!(stream.message().await.expect("a message").json()["method"], TOOLS_CHANGED);
    // Its prompts are what they were, and whoever has listed nothing has nothing to forget.
    stream.quiet_for(Duration::from_millis(300)).await;
    quiet.quiet_for(Duration::from_millis(1)).await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_component_that_is_no_good_is_refused_with_the_reason_and_the_old_one_goes_on() {
    let (folder, backend) = (Folder::new("policies"), Backend::with_tools("b", &["t"]).await);
    let (gateway, session, mut stream) = named(&folder, &backend, "").await;
    let generation = gateway.policies("/mcp").await["generation"].clone();
    let wants = guests::with_manifest(guests::naming("x"), r#"{"capabilities":{"claims":["team"]}}"#);
    for (what, component, reason) in [
        ("text", b"not wasm".to_vec(), "not a WASM component"),
        ("a trap", guests::trapping(), "it trapped"),
        ("a loop", guests::endless(), "did not finish before its deadline"),
        ("a trap on a list that a session has read", guests::choking(), "it trapped"),
        ("an illegal name", guests::naming("a name with spaces"), "its answer breaks the contract"),
        ("a wish that is not granted", wants, "grants: { claims: [team] }"),
    ] {
        let (status, answer) = push(&gateway, "names", component).await;
        assert_eq!(status, 422, "{what}: {answer}");
        assert!(answer["error"].as_str().is_some_and(|error| error.contains(reason)), "{what}: {answer}");
        assert_eq!(answer["kept"], json!([{ "virtual_host": "/mcp", "generation": generation }]), "{what}");
        let status = gateway.policies("/mcp").await;
        assert_eq!((&status["generation"], &status["last_swap"]["outcome"]), (&generation, &json!("refused")), "{what}");
        assert_eq!(status["last_swap"]["reason"], answer["error"], "{what}");
        assert_eq!(first_text(&session.call("one", json!({})).await), "t", "{what}");
    }
    assert_eq!(gateway.log().matches("policies are not swapped").count(), 6, "each once in the log");
    stream.quiet_for(Duration::from_millis(1)).await;
    for (path, status) in [("/policies/other", 404), ("/policies/names?virtual_host=/other", 404), ("/policies/names?sha256=xyz", 400)] {
        assert_eq!(gateway.admin_post(path, &[], guests::naming("x")).await.0, status, "{path}");
    }
    let (status, answer) = gateway.admin_post(&format!("/policies/names?sha256={}", "0".repeat(64)), &[], guests::naming("x")).await;
    assert!(status == 422 && answer["error"].as_str().is_some_and(|e| e.contains("was asked for")), "{answer}");
    let (status, answer) = gateway.admin_post("/policies/names", &[], vec![0; (4 << 20) + 1]).await;
    assert!(status == 413 && answer["error"].as_str().is_some_and(|e| e.contains("limits.component")), "{answer}");
    gateway.stop().await;
}

#[tokio::test]
async fn a_policy_that_keeps_failing_after_its_swap_goes_back_to_the_one_before() {
    let (folder, backend) = (Folder::new("policies"), Backend::with_tools("b", &["t"]).await);
    let gateway = gateway(&folder, &[("b", &backend)], &[("names", &guests::naming("one"))], "").await;
    let before = gateway.policies("/mcp").await["generation"].clone();
    // Nobody has listed a tool yet, so that the trial does not show what is wrong.
    assert_eq!(push(&gateway, "names", guests::choking()).await.0, 200);
    let status = gateway.policies("/mcp").await;
    assert_eq!((&status["probation"]["previous"], &status["trips"]), (&before, &json!(0)));
    let session = gateway.initialize().await;
    let mut failed = 0;
    while gateway.policies("/mcp").await["generation"] != before {
        let answer = session.ask("tools/list", json!({})).await;
        assert_eq!(answer.error()["code"], -31005, "{}", answer.raw);
        failed += 1;
        assert!(failed <= 8, "it does not go back");
    }
    assert_eq!(session.names("tools/list", "tools").await, ["one"]);
    let status = gateway.policies("/mcp").await;
    assert_eq!((&status["last_swap"]["by"], &status["last_swap"]["outcome"]), (&json!("probation"), &json!("went-back")));
    assert!(status["last_swap"]["reason"].as_str().is_some_and(|reason| reason.contains("names")), "{status}");
    for (metric, value) in [("lockgate_policy_trips_total", 1.0), ("lockgate_policy_generations_live", 1.0)] {
        assert_eq!(gateway.metric(metric).await, value, "{metric}");
    }
    assert_eq!(json!(gateway.metric("lockgate_policy_generation").await as u64), before);
    let (_, metrics) = gateway.admin("/metrics").await;
    assert!(metrics.contains(r#"hook="namespace.expose",outcome="trap"} "#), "{metrics}");
    gateway.stop().await;
}

#[tokio::test]
async fn what_the_configuration_pins_is_the_only_code_that_can_be_swapped_in() {
    let (folder, backend) = (Folder::new("policies"), Backend::with_tools("b", &["t"]).await);
    let file = folder.write("names.wasm", guests::naming("one"));
    let sha256 = std::process::Command::new("sha256sum").arg(&file).output().expect("sha256sum is there");
    let sha256 = String::from_utf8_lossy(&sha256.stdout)[..64].to_owned();
    let policies = format!("virtual_hosts:\n  /mcp:\n    policies: [{{ name: names, component: {}, sha256: {sha256} }}]\n", file.display());
    let gateway = Gateway::start(&format!("{}{policies}", http_backends(&[("b", &backend.url())]))).await;
    let (status, answer) = push(&gateway, "names", guests::naming("two")).await;
    assert!(status == 422 && answer["error"].as_str().is_some_and(|e| e.contains("is pinned (sha256)")), "{answer}");
    assert_eq!(push(&gateway, "names", guests::naming("one")).await.0, 200);
    let status = gateway.policies("/mcp").await;
    assert_eq!((&status["policies"][0]["digest"], &status["policies"][0]["pinned"]), (&json!(sha256), &json!(true)));
    gateway.stop().await;
}

#[tokio::test]
async fn a_file_that_changes_is_taken_when_it_is_good() {
    let (folder, backend) = (Folder::new("policies"), Backend::with_tools("b", &["t"]).await);
    let (gateway, session, mut stream) = named(&folder, &backend, "policy: { watch: 50ms }\n").await;
    folder.write("names.wasm", guests::naming("two"));
    stream.method(TOOLS_CHANGED).await;
    assert_eq!(session.names("tools/list", "tools").await, ["two"]);
    assert_eq!(gateway.policies("/mcp").await["last_swap"]["by"], "file");
    // Half of it: no change, and a reason.
    let whole = guests::naming("three");
    folder.write("names.wasm", &whole[..whole.len() / 2]);
    let refused = || async {
        loop {
            let last = gateway.policies("/mcp").await["last_swap"].clone();
            if last["outcome"] == "refused" {
                return last;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let last = lockgate_tests::within("the refusal", refused()).await;
    assert!(last["reason"].as_str().is_some_and(|reason| reason.contains("names")), "{last}");
    assert_eq!(session.names("tools/list", "tools").await, ["two"]);
    folder.write("names.wasm", &whole);
    stream.method(TOOLS_CHANGED).await;
    assert_eq!(session.names("tools/list", "tools").await, ["three"]);
    // Nothing more happens to a file that rests.
    stream.quiet_for(Duration::from_millis(300)).await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_reload_takes_what_policies_say_and_names_what_needs_a_restart() {
    let (folder, backend) = (Folder::new("policies"), Backend::with_tools("b", &["t"]).await);
    let policies = |alias: &str, more: &str| {
        format!("{}{more}virtual_hosts:\n  /mcp: {{ aliases: {{ {alias}: b/t }} }}\n", http_backends(&[("b", &backend.url())]))
    };
    let gateway = Gateway::start(&policies("one", "")).await;
    let session = gateway.initialize().await;
    assert_eq!(session.names("tools/list", "tools").await, ["one"]);
    let mut stream = session.stream().await;

    gateway.configure(&policies("two", "session: { idle_timeout: 1h }\n"));
    let (status, answer) = gateway.admin_post("/reload", &[], "").await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!((&answer["swapped"][0]["virtual_host"], &answer["needs_restart"]), (&json!("/mcp"), &json!(["session"])));
    stream.method(TOOLS_CHANGED).await;
    assert_eq!(session.names("tools/list", "tools").await, ["two"]);
    assert_eq!(first_text(&session.call("one", json!({})).await), "t");

    let (_, answer) = gateway.admin_post("/reload", &[], "").await;
    assert_eq!((&answer["swapped"], &answer["unchanged"][0]["virtual_host"]), (&json!([]), &json!("/mcp")));

    gateway.configure(&policies("three", "limits: { in_flight: none }\n"));
    let (status, answer) = gateway.admin_post("/reload", &[], "").await;
    assert!(status == 422 && answer["problems"][0].as_str().is_some_and(|p| p.contains("limits.in_flight")), "{answer}");
    assert_eq!(session.names("tools/list", "tools").await, ["two"], "nothing of it is applied");

    gateway.configure(&policies("four", ""));
    process::signal(gateway.pid, Signal::HUP);
    stream.method(TOOLS_CHANGED).await;
    assert_eq!(session.names("tools/list", "tools").await, ["four"]);
    folder.write("unused", "");
    gateway.stop().await;
}

#[tokio::test]
async fn a_component_from_the_api_lives_until_the_reload() {
    let (folder, backend) = (Folder::new("policies"), Backend::with_tools("b", &["t"]).await);
    let (gateway, session, _stream) = named(&folder, &backend, "policy: { watch: 20ms }\n").await;
    assert_eq!(push(&gateway, "names", guests::naming("pushed")).await.0, 200);
    assert_eq!(session.names("tools/list", "tools").await, ["pushed"]);
    folder.write("names.wasm", guests::naming("filed"));
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(session.names("tools/list", "tools").await, ["pushed"], "the file is not what runs");
    assert_eq!(gateway.admin_post("/reload", &[], "").await.0, 200);
    assert_eq!(session.names("tools/list", "tools").await, ["filed"]);
    assert_eq!(gateway.policies("/mcp").await["policies"][0]["source"], "file");
    gateway.stop().await;
}

#[tokio::test]
async fn explain_says_what_a_name_leads_to_and_who_decided() {
    let (folder, backend) = (Folder::new("policies"), Backend::with_tools("b", &["t"]).await);
    let policies: &[(&str, &[u8])] = &[("names", &guests::naming("one")), ("deny", &guests::refusing("no"))];
    let gateway = gateway(&folder, &[("b", &backend)], policies, "").await;
    let explain = |name: &'static str| {
        let path = format!("/policies/explain?virtual_host=%2Fmcp&principal=anonymous&kind=tool&name={name}");
        let gateway = &gateway;
        async move {
            let (status, text) = gateway.admin(&path).await;
            assert_eq!(status, 200, "{text}");
            serde_json::from_str::<Value>(&text).expect("JSON")
        }
    };
    let unknown = explain("other").await;
    assert_eq!((&unknown["from_session"], &unknown["end"]["is"]), (&json!(false), &json!("unknown")), "{unknown}");
    let session = gateway.initialize().await;
    session.list("tools/list", "tools").await;
    let told = explain("one").await;
    assert_eq!((&told["from_session"], &told["principal"], &told["kind"]), (&json!(true), &json!("anonymous"), &json!("tool")));
    assert_eq!(told["end"], json!({ "is": "refused", "policy": "deny", "reason": "no" }));
    let steps = told["steps"].as_array().expect("steps");
    assert!(steps.iter().any(|s| s["policy"] == "deny" && s["hook"] == "router.resolve"), "{told}");
    assert!(backend.seen_of("tools/call").is_empty());
    for path in ["/policies/explain", "/policies/explain?virtual_host=/mcp&principal=a&kind=verb&name=x"] {
        assert_eq!(gateway.admin(path).await.0, 400, "{path}");
    }
    assert_eq!(gateway.admin("/policies/explain?virtual_host=/no&principal=a&kind=tool&name=x").await.0, 404);
    gateway.stop().await;
}

#[tokio::test]
async fn claims_of_a_principal_decide_as_far_as_they_are_granted() {
    let backend = Backend::builder("b").tool("t").tool("u").start().await;
    let rule = r#"{ things: "b/t", who: { claims: { team: [ops] } }, do: deny, reason: "not for ops", listed: true }"#;
    let hosts =
        |grants: &str| format!("virtual_hosts:\n  /granted: {{ policies: [{{ name: filter, config: {{ rules: [{rule}] }}{grants} }}] }}\n");
    let token = |name: &str, team: &str| format!("{{ principal: {name}, token: token-of-{name}-0001, claims: {{ team: {team} }} }}");
    let auth = format!("auth: {{ tokens: [{}, {}] }}\n", token("ann", "docs"), token("bob", "ops"));
    let gateway =
        Gateway::start(&format!("{}{auth}{}", http_backends(&[("b", &backend.url())]), hosts(", grants: { claims: [team] }"))).await;
    let call = json!({ "name": "t", "arguments": {} });
    let at = |path: &str, name: &str| gateway.at(path).with_bearer(&format!("token-of-{name}-0001"));
    let (ann, bob) = (at("/granted", "ann").initialize().await, at("/granted", "bob").initialize().await);
    ann.result("tools/call", call.clone()).await;
    let error = bob.error("tools/call", call.clone()).await;
    assert_eq!((&error["code"], &error["data"]["reason"]), (&json!(-31010), &json!("not for ops")));
    assert_eq!(backend.seen_of("tools/call").len(), 1);
    // The same rule, but the claim is not for this policy to see: it would be about nobody, so nothing starts with it.
    let folder = Folder::new("policies");
    folder.write("blind.yaml", format!("{}{auth}{}", http_backends(&[("b", &backend.url())]), hosts("")));
    let (code, text) = run(&["check", "--config", "blind.yaml"], &folder).await;
    assert!(code == Some(2) && text.contains("speaks of the claim team") && text.contains("grants: { claims: [team] }"), "{text}");
    // Also for who has no session: what the configuration says of the principal counts.
    let (_, text) = gateway.admin("/policies/explain?virtual_host=/granted&principal=bob&kind=tool&name=t").await;
    let told: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(told["end"]["is"], "refused", "{told}");
    gateway.stop().await;
}

#[tokio::test]
async fn a_web_page_or_a_stranger_changes_nothing() {
    let (folder, backend) = (Folder::new("policies"), Backend::with_tools("b", &["t"]).await);
    let token = "a-token-of-operators-1";
    let (gateway, session, _stream) = named(&folder, &backend, &format!("admin_token: {token}\n")).await;
    let bearer = format!("Bearer {token}");
    let good = ("authorization", bearer.as_str());
    for (headers, status) in [
        (&[][..], 401),
        (&[("authorization", "Bearer another-token-at-all")], 401),
        (&[good, ("origin", "http://localhost")], 403),
        (&[good, ("content-type", "text/plain;charset=UTF-8")], 415),
        (&[good, ("content-type", "multipart/form-data; boundary=x")], 415),
    ] {
        for path in ["/policies/names", "/reload"] {
            let (got, answer) = gateway.admin_post(path, headers, guests::naming("evil")).await;
            assert_eq!(got, status, "{path} {headers:?}: {answer}");
            assert!(answer["error"].is_string(), "{answer}");
        }
    }
    assert_eq!(session.names("tools/list", "tools").await, ["one"]);
    assert_eq!(gateway.admin_post("/policies/names", &[good], guests::naming("two")).await.0, 200);
    let admin = Endpoint::new(&format!("http://{}/policies/names", gateway.admin));
    assert_eq!(admin.send("GET", &[], "").await.status, 405);
    let evil = admin.send("POST", &[good, ("host", "evil.example")], guests::naming("evil")).await;
    assert_eq!(evil.status, 403, "a name that was rebound to this machine");
    gateway.stop().await;
}

#[tokio::test]
async fn calls_go_on_while_policies_are_swapped_under_them() {
    let (folder, backend) = (Folder::new("policies"), Backend::with_tools("b", &["t"]).await);
    let (gateway, session, _stream) = named(&folder, &backend, "policy: { probation: 0 }\n").await;
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let mut callers = Vec::new();
    for _ in 0..4 {
        let (session, stop) = (gateway.initialize().await, stop.clone());
        callers.push(tokio::spawn(async move {
            let mut calls = 0;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let names = session.names("tools/list", "tools").await;
                assert_eq!(names.len(), 1, "{names:?}");
                for _ in 0..3 {
                    // Whatever is swapped meanwhile: the name that it was just given is good.
                    assert_eq!(first_text(&session.call(&names[0], json!({})).await), "t", "{names:?}");
                    calls += 1;
                }
            }
            calls
        }));
    }
    for i in 0..12 {
        let (component, expected) = match i % 4 {
            3 => (guests::trapping(), 422),
            _ => (guests::naming(&format!("n{i}")), 200),
        };
        assert_eq!(push(&gateway, "names", component).await.0, expected);
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    for caller in callers {
        assert!(caller.await.expect("no call fails") > 0);
    }
    drop(session);
    eventually_one_generation(&gateway).await;
    gateway.stop().await;
}

/// Old code goes when its last call ends.
async fn eventually_one_generation(gateway: &Gateway) {
    let one = async {
        while gateway.policies("/mcp").await["live_generations"].as_array().map(Vec::len) != Some(1) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    lockgate_tests::within("the end of old generations", one).await;
}

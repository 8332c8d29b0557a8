//! The conformance suite through the gateway: the oracle is the same suite against the same server without it.

use lockgate_tests::{
    conformance::{Verdicts, count, run, run_client, worse},
    gateway::{Gateway, http_backends},
    real,
};

/// Checks of the 2025-11-25 requirements that pass directly, the three scenarios that are not scored included.
const PASS: usize = 84;

/// What is worse, but for two checks that ask for less than the gateway gives. One is only made of answers that are event streams: a list is
/// answered with JSON, which needs none. The other wants the client to come back after the server has ended its stream in the middle
/// of a call: the gateway comes back to the server itself, and its client has the answer on the stream that it has.
fn worse_of_legacy(direct: &Verdicts, through: &Verdicts) -> Vec<String> {
    let mut worse = worse(direct, through);
    worse.retain(|line| {
        let less = line.contains("server-sse-streams-functional") || line.contains("server-sse-disconnect-resume");
        !(less && line.ends_with("passed directly and is missing"))
    });
    worse
}

#[tokio::test]
async fn nothing_fails_through_the_gateway_that_passes_directly() {
    let fixture = real::fixture().await;
    let gateway = Gateway::start(&http_backends(&[("fixture", &fixture.url)])).await;
    let direct = run(&fixture.url, "2025-11-25").await;
    let through = run(&gateway.url(), "2025-11-25").await;
    assert!(count(&direct, "SUCCESS") >= PASS, "the fixture itself does not pass: {direct:#?}");
    let worse = worse_of_legacy(&direct, &through);
    assert!(worse.is_empty(), "worse through the gateway:\n{}", worse.join("\n"));
    assert!(count(&through, "SUCCESS") >= PASS - 2, "{} checks passed through the gateway", count(&through, "SUCCESS"));
    gateway.stop().await;
    fixture.stop().await;
}

/// Checks of the 2026-07-28 requirements that pass directly.
const MODERN_PASS: usize = 120;

const MODERN: &str = "2026-07-28";

#[tokio::test]
async fn nothing_of_the_modern_revision_fails_through_the_gateway_that_passes_directly() {
    let fixture = real::fixture().await;
    let gateway = Gateway::start(&http_backends(&[("fixture", &fixture.url)])).await;
    let direct = run(&fixture.url, MODERN).await;
    let through = run(&gateway.url(), MODERN).await;
    assert!(count(&direct, "SUCCESS") >= MODERN_PASS, "the fixture itself does not pass: {direct:#?}");
    let mut worse = worse(&direct, &through);
    // As above: a list is answered with JSON.
    worse.retain(|line| !(line.contains("server-sse-streams-functional") && line.ends_with("passed directly and is missing")));
    assert!(worse.is_empty(), "worse through the gateway:\n{}", worse.join("\n"));
    gateway.stop().await;
    fixture.stop().await;
}

/// Checks of 2026-07-28 that a server with sessions cannot pass behind any bridge, or that ask for less than the gateway gives.
const NO_BRIDGE: &[(&str, &str)] = &[
    ("sep-2322-elicitation-incomplete", "the name of a question, `user_name`: questions of older revisions have none"),
    ("sep-2322-elicitation-complete", "follows from that: the suite does not go on"),
    ("sep-2322-missing-response-rerequests", "answers without the state that goes with them would begin the call a second time"),
    ("sep-2322-ignore-unexpected-params", "the same"),
    (
        "sep-2575-server-rejects-undeclared-capability",
        "a server with sessions is told that the client cannot be asked, and answers what it likes",
    ),
    ("sep-2575-missing-capability-http-400", "follows from that"),
    ("server-sse-streams-functional", "only made of answers that are event streams: a list is answered with JSON"),
];

#[tokio::test]
async fn a_modern_client_finds_in_a_legacy_server_what_it_finds_in_a_modern_one() {
    let (modern, legacy) = (real::fixture().await, real::fixture_of("legacy").await);
    let gateway = Gateway::start(&http_backends(&[("fixture", &legacy.url)])).await;
    let direct = run(&modern.url, MODERN).await;
    let bridged = run(&gateway.url(), MODERN).await;
    let mut worse = worse(&direct, &bridged);
    worse.retain(|line| !NO_BRIDGE.iter().any(|(check, _)| line.contains(check)));
    assert!(worse.is_empty(), "worse across the eras:\n{}", worse.join("\n"));
    gateway.stop().await;
    modern.stop().await;
    legacy.stop().await;
}

#[tokio::test]
async fn a_legacy_client_finds_in_a_modern_server_what_it_finds_in_a_legacy_one() {
    let (legacy, modern) = (real::fixture().await, real::fixture_of("modern").await);
    let gateway = Gateway::start(&http_backends(&[("fixture", &modern.url)])).await;
    let direct = run(&legacy.url, "2025-11-25").await;
    let bridged = run(&gateway.url(), "2025-11-25").await;
    let worse = worse_of_legacy(&direct, &bridged);
    assert!(worse.is_empty(), "worse across the eras:\n{}", worse.join("\n"));
    assert!(count(&bridged, "SUCCESS") >= PASS - 2, "{} checks passed across the eras", count(&bridged, "SUCCESS"));
    gateway.stop().await;
    legacy.stop().await;
    modern.stop().await;
}

#[tokio::test]
async fn as_a_client_the_gateway_does_what_the_suite_wants_of_clients() {
    let scenarios = [
        ("initialize", "2025-11-25"),
        ("tools_call", "2025-11-25"),
        ("tools_call", MODERN),
        ("sse-retry", "2025-11-25"),
        ("elicitation-sep1034-client-defaults", "2025-11-25"),
        ("request-metadata", MODERN),
        ("http-standard-headers", MODERN),
        ("http-custom-headers", MODERN),
        ("http-invalid-tool-headers", MODERN),
        ("sep-2322-client-request-state", MODERN),
        ("json-schema-2020-12-preservation", "2025-11-25"),
        ("json-schema-2020-12-preservation", MODERN),
        ("json-schema-ref-no-deref", MODERN),
    ];
    let mut bad = Vec::new();
    for (scenario, revision) in scenarios {
        let verdicts = run_client(scenario, revision).await;
        assert!(count(&verdicts, "SUCCESS") > 0, "{scenario} {revision}: {verdicts:#?}");
        let failed = verdicts.iter().filter(|(_, verdict)| matches!(verdict.status.as_str(), "FAILURE" | "WARNING"));
        bad.extend(failed.map(|((_, check, _), verdict)| format!("{scenario} {revision}: {check} {}: {}", verdict.status, verdict.error)));
    }
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

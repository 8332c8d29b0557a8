//! The conformance suite through the gateway: the oracle is the same suite against the same server without it.

use lockgate_tests::{
    conformance::{count, run, worse},
    gateway::{Gateway, http_backends},
    real,
};

/// Checks of the 2025-11-25 requirements that pass directly, the three scenarios that are not scored included.
const PASS: usize = 84;

#[tokio::test]
async fn nothing_fails_through_the_gateway_that_passes_directly() {
    let fixture = real::fixture().await;
    let gateway = Gateway::start(&http_backends(&[("fixture", &fixture.url)])).await;
    let direct = run(&fixture.url, "2025-11-25").await;
    let through = run(&gateway.url(), "2025-11-25").await;
    assert!(count(&direct, "SUCCESS") >= PASS, "the fixture itself does not pass: {direct:#?}");
    let mut worse = worse(&direct, &through);
    // Two checks ask for less than the gateway gives. One is only made of answers that are event streams: a list is answered with
    // JSON, which needs none. The other wants the client to come back after the server has ended its stream in the middle of a call:
    // the gateway comes back to the server itself, and its client has the answer on the stream that it has.
    worse.retain(|line| {
        let less = line.contains("server-sse-streams-functional") || line.contains("server-sse-disconnect-resume");
        !(less && line.ends_with("passed directly and is missing"))
    });
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
    let worse = worse(&direct, &through);
    assert!(worse.is_empty(), "worse through the gateway:\n{}", worse.join("\n"));
    gateway.stop().await;
    fixture.stop().await;
}

/// What no gateway can make a server with sessions do for a client without them.
const NO_BRIDGE: &[(&str, &str)] = &[];

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

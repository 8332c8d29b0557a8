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
    // This check is only made of answers that are event streams; the gateway answers a list with JSON, which needs no stream.
    worse.retain(|line| !line.contains("server-sse-streams-functional"));
    assert!(worse.is_empty(), "worse through the gateway:\n{}", worse.join("\n"));
    assert!(count(&through, "SUCCESS") >= PASS - 1, "{} checks passed through the gateway", count(&through, "SUCCESS"));
    gateway.stop().await;
    fixture.stop().await;
}

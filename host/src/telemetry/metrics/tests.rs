use std::time::Duration;

use super::labels::Label;
use super::*;

fn metrics() -> Metrics {
    Metrics::new(&["time".into(), "text".into()])
}

fn value(text: &str, series: &str) -> Option<String> {
    text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ').map(str::to_owned))
}

#[test]
fn every_series_is_there_at_zero_from_the_start() {
    let text = metrics().encode();
    for series in [
        "lockgate_sessions",
        "lockgate_sessions_total{event=\"evicted\"}",
        "lockgate_requests_total{method=\"tools/call\",outcome=\"ok\"}",
        "lockgate_requests_total{method=\"other\",outcome=\"disconnected\"}",
        "lockgate_request_seconds_count{method=\"initialize\"}",
        "lockgate_backend_requests_total{backend=\"text\",outcome=\"timeout\"}",
        "lockgate_backend_upstreams{backend=\"time\"}",
        "lockgate_isolation_signals_total{signal=\"dead_session\"}",
        "lockgate_admission_total{verdict=\"refused\",reason=\"in_flight\"}",
        "lockgate_http_responses_total{status=\"429\"}",
        "lockgate_connections",
        "lockgate_streams_open",
        "lockgate_stdio_children",
    ] {
        assert_eq!(value(&text, series).as_deref(), Some("0"), "{series}\n{text}");
    }
    let version = format!("lockgate_build_info{{version=\"{}\"}}", env!("CARGO_PKG_VERSION"));
    assert_eq!(value(&text, &version).as_deref(), Some("1"));
    assert!(value(&text, "process_start_time_seconds").unwrap().parse::<f64>().unwrap() > 1.0e9);
}

#[test]
fn counting_moves_the_series_of_that_label_only() {
    let metrics = metrics();
    metrics.requests_total.inc(Method::of("tools/call"), Outcome::Cancelled);
    metrics.backend_requests_total.inc("text", BackendOutcome::Lost);
    metrics.backend_requests_total.inc("nobody", BackendOutcome::Lost);
    metrics.http_responses_total.inc(http::StatusCode::TOO_MANY_REQUESTS.into());
    metrics.http_responses_total.inc(http::StatusCode::IM_A_TEAPOT.into());
    let text = metrics.encode();
    let ones: Vec<_> = text.lines().filter(|l| l.ends_with(" 1") && !l.contains("build_info")).collect();
    assert_eq!(
        ones,
        [
            "lockgate_requests_total{method=\"tools/call\",outcome=\"cancelled\"} 1",
            "lockgate_backend_requests_total{backend=\"text\",outcome=\"lost\"} 1",
            "lockgate_http_responses_total{status=\"429\"} 1",
            "lockgate_http_responses_total{status=\"other\"} 1",
        ]
    );
}

#[test]
fn a_level_falls_when_its_guard_is_dropped() {
    let metrics = metrics();
    let first = metrics.sessions.enter();
    let second = metrics.backend_upstreams.enter("time");
    assert_eq!((metrics.sessions.get(), metrics.backend_upstreams.get(0)), (1, 1));
    drop((first, second));
    assert_eq!((metrics.sessions.get(), metrics.backend_upstreams.get(0)), (0, 0));
}

#[test]
fn a_histogram_counts_into_the_bucket_of_its_duration() {
    let metrics = metrics();
    metrics.request_seconds.observe(Method::ToolsCall, Duration::from_millis(5));
    metrics.request_seconds.observe(Method::ToolsCall, Duration::from_secs(7200));
    let text = metrics.encode();
    let bucket = |le: &str| value(&text, &format!("lockgate_request_seconds_bucket{{method=\"tools/call\",le=\"{le}\"}}"));
    let bucket =
        |le: &str| bucket(le).or_else(|| value(&text, &format!("lockgate_request_seconds_bucket{{le=\"{le}\",method=\"tools/call\"}}")));
    assert_eq!(bucket("0.0025").as_deref(), Some("0"), "{text}");
    assert_eq!(bucket("0.005").as_deref(), Some("1"));
    assert_eq!(bucket("600").as_deref(), Some("1"));
    assert_eq!(bucket("+Inf").as_deref(), Some("2"));
    assert_eq!(value(&text, "lockgate_request_seconds_sum{method=\"tools/call\"}").as_deref(), Some("7200.005"));
}

#[test]
fn a_label_is_numbered_by_its_place_in_the_list() {
    fn check<L: Label>() {
        for (i, label) in L::ALL.iter().enumerate() {
            assert_eq!(label.index(), i, "{label:?}");
        }
    }
    check::<SessionEvent>();
    check::<Outcome>();
    check::<BackendOutcome>();
    check::<IsolationSignal>();
    check::<Admission>();
    check::<Method>();
    check::<StatusCode>();
    assert_eq!(Method::of("resources/templates/list"), Method::ResourcesTemplatesList);
    assert_eq!(Method::of("made/up"), Method::Other);
}

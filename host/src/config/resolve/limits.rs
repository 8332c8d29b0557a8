//! The sections that are numbers: `session`, `limits`, `shutdown`, and the log's level.
//!
//! Each bound stands in [`file`](crate::config::file) with what happens when it is hit; here are the same numbers as code.

use std::time::Duration;

use tracing_subscriber::EnvFilter;

use super::{Bounds, Cx, Source};
use crate::config::file::{File, TimeoutsFile};
use crate::config::model::{AdmissionConfig, Limits, LogConfig, SessionConfig, ShutdownConfig, Timeouts};
use crate::config::problem::Place;
use crate::config::source::tree::Step;
use crate::config::units::{Size, Time, show_duration, show_size};

/// Overrides `log.level`, so that a running deployment can be looked at without touching its file.
pub const LOG_VARIABLE: &str = "LOCKGATE_LOG";

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

const fn days(n: u64) -> Duration {
    Duration::from_secs(n * 86_400)
}

pub(super) fn time(default: Duration, least: Duration, most: Duration, why: &'static str) -> Bounds<Duration> {
    Bounds { default, least, most, show: show_duration, why }
}

pub(super) fn size(default: usize, least: usize, most: usize) -> Bounds<usize> {
    Bounds { default, least, most, show: |n| show_size(n as u64), why: "" }
}

pub(super) fn count(default: usize, least: usize, most: usize) -> Bounds<usize> {
    Bounds { default, least, most, show: |n| n.to_string(), why: "" }
}

fn wait(default: Duration) -> Bounds<Duration> {
    time(default, ms(10), ms(60_000), ": clients themselves give up by then")
}

fn call(default: Duration) -> Bounds<Duration> {
    time(default, ms(10), days(1), ": every wait ends")
}

/// Sizes and counts are far below `usize::MAX`; a larger number is refused by its bound either way.
pub(super) fn narrow(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

pub(super) fn bytes(value: Option<Size>) -> Option<usize> {
    value.map(|s| narrow(s.0))
}

pub(super) fn duration(value: Option<Time>) -> Option<Duration> {
    value.map(|t| t.0)
}

pub fn session(main: &Source<'_>, file: &File, cx: &mut Cx<'_>) -> SessionConfig {
    let default = SessionConfig::default();
    let Some(written) = &file.session else { return default };
    let at = |key: &'static str| move || main.doc.place(&["session".into(), key.into()]);

    let idle_timeout = cx.bounded(
        at("idle_timeout"),
        duration(written.idle_timeout),
        time(default.idle_timeout, ms(100), days(7), ": an idle session holds upstream connections and children"),
    );
    let max_lifetime = written
        .max_lifetime
        .and_then(|t| t.0)
        .map(|lifetime| cx.bounded(at("max_lifetime"), Some(lifetime), time(days(1), ms(1000), days(365), "; `none` turns it off")));
    let max_total = cx.bounded(at("max_total"), written.max_total.map(narrow), count(default.max_total, 1, 1_000_000));
    // Where only the total is lowered, the default for one principal follows it.
    let per_principal = count(default.max_per_principal.min(max_total), 1, 1_000_000);
    let max_per_principal = cx.bounded(at("max_per_principal"), written.max_per_principal.map(narrow), per_principal);
    if max_per_principal > max_total {
        let message = format!("{max_per_principal} can never be reached: max_total is {max_total}; lower this or raise that");
        cx.problem(at("max_per_principal")(), message);
    }
    if let Some(lifetime) = max_lifetime
        && written.idle_timeout.is_some()
        && lifetime < idle_timeout
    {
        let message = format!(
            "{} can never be reached: max_lifetime is {}; lower this or raise that",
            show_duration(idle_timeout),
            show_duration(lifetime)
        );
        cx.problem(at("idle_timeout")(), message);
    }
    SessionConfig { idle_timeout, max_lifetime, max_per_principal, max_total }
}

pub fn limits(main: &Source<'_>, file: &File, cx: &mut Cx<'_>) -> Limits {
    let default = Limits::default();
    let Some(written) = &file.limits else { return default };
    let at = |key: &'static str| move || main.doc.place(&["limits".into(), key.into()]);
    const KIB: usize = 1 << 10;
    const MIB: usize = 1 << 20;
    const GIB: usize = 1 << 30;

    Limits {
        initialize_timeout: cx.bounded(at("initialize_timeout"), duration(written.initialize_timeout), wait(default.initialize_timeout)),
        list_timeout: cx.bounded(at("list_timeout"), duration(written.list_timeout), wait(default.list_timeout)),
        call_timeout: cx.bounded(at("call_timeout"), duration(written.call_timeout), call(default.call_timeout)),
        request_body: cx.bounded(at("request_body"), bytes(written.request_body), size(default.request_body, KIB, GIB)),
        message: cx.bounded(at("message"), bytes(written.message), size(default.message, KIB, GIB)),
        // The HTTP implementation needs 8 KiB to read a head at all.
        header_bytes: cx.bounded(at("header_bytes"), bytes(written.header_bytes), size(default.header_bytes, 8 * KIB, MIB)),
        in_flight: cx.bounded(at("in_flight"), written.in_flight.map(narrow), count(default.in_flight, 1, 65_536)),
        connections: cx.bounded(at("connections"), written.connections.map(narrow), count(default.connections, 1, 1_000_000)),
        replay_events: cx.bounded(at("replay_events"), written.replay_events.map(narrow), count(default.replay_events, 0, 65_536)),
        replay_bytes: cx.bounded(at("replay_bytes"), bytes(written.replay_bytes), size(default.replay_bytes, 0, 256 * MIB)),
        server_requests: cx.bounded(at("server_requests"), written.server_requests.map(narrow), count(default.server_requests, 1, 4096)),
    }
}

pub fn admission(main: &Source<'_>, file: &File, cx: &mut Cx<'_>) -> AdmissionConfig {
    let default = AdmissionConfig::default();
    let Some(written) = &file.admission else { return default };
    let at = |key: &'static str| move || main.doc.place(&["admission".into(), key.into()]);
    let window = time(default.drain_window, ms(100), ms(600_000), ": a client may pause, and a network stall");
    let patience = time(default.patience, Duration::ZERO, ms(30_000), ": clients themselves give up by then");
    let drain_window = cx.bounded(at("drain_window"), duration(written.drain_window), window);
    // Where only the window is raised, the default follows it.
    let teardown = time(default.teardown_after.max(drain_window), ms(100), ms(3_600_000), ": a stalled stream holds memory until then");
    let teardown_after = cx.bounded(at("teardown_after"), duration(written.teardown_after), teardown);
    if teardown_after < drain_window {
        let message = format!(
            "{} is before a stream counts as stalled: drain_window is {}; raise this or lower that",
            show_duration(teardown_after),
            show_duration(drain_window)
        );
        cx.problem(at("teardown_after")(), message);
    }
    let probe = written
        .probe
        .and_then(|t| t.0)
        .map(|probe| cx.bounded(at("probe"), Some(probe), time(ms(10_000), ms(1000), ms(3_600_000), "; `none` turns it off")));
    AdmissionConfig {
        frames: cx.bounded(at("frames"), written.frames.map(narrow), count(default.frames, 1, 65_536)),
        bytes: cx.bounded(at("bytes"), bytes(written.bytes), size(default.bytes, 16 << 10, 1 << 30)),
        drain_window,
        patience: cx.bounded(at("patience"), duration(written.patience), patience),
        teardown_after,
        probe,
    }
}

/// The deadlines of one backend: its own, or those of `limits`.
pub fn timeouts(source: &Source<'_>, path: &[Step<'_>; 2], written: Option<&TimeoutsFile>, limits: &Limits, cx: &mut Cx<'_>) -> Timeouts {
    let common = Timeouts { initialize: limits.initialize_timeout, list: limits.list_timeout, call: limits.call_timeout };
    let Some(written) = written else { return common };
    let at = |key: &'static str| move || source.doc.place(&[path[0], path[1], "timeouts".into(), key.into()]);
    let own = Timeouts {
        initialize: cx.bounded(at("initialize"), duration(written.initialize), wait(common.initialize)),
        list: cx.bounded(at("list"), duration(written.list), wait(common.list)),
        call: cx.bounded(at("call"), duration(written.call), call(common.call)),
    };
    if own.list > common.list {
        let message = format!(
            "{} can never be reached: limits.list_timeout is {}; lower this or raise that",
            show_duration(own.list),
            show_duration(common.list)
        );
        cx.problem(at("list")(), message);
    }
    own
}

pub fn shutdown(main: &Source<'_>, file: &File, cx: &mut Cx<'_>) -> ShutdownConfig {
    let default = ShutdownConfig::default();
    let Some(written) = &file.shutdown else { return default };
    let place = || main.doc.place(&["shutdown".into(), "grace".into()]);
    let bounds = time(default.grace, Duration::ZERO, ms(600_000), ": whoever stops the process kills it sooner");
    ShutdownConfig { grace: cx.bounded(place, duration(written.grace), bounds) }
}

pub fn log(main: &Source<'_>, file: &File, cx: &mut Cx<'_>) -> LogConfig {
    let default = LogConfig::default();
    let written = file.log.as_ref();
    let format = written.and_then(|log| log.format).unwrap_or(default.format);
    let (place, filter) = match ((cx.env)(LOG_VARIABLE), written.and_then(|log| log.level.clone())) {
        (Some(filter), _) if !filter.trim().is_empty() => (Place::named(LOG_VARIABLE), filter),
        (_, Some(filter)) => (main.doc.place(&["log".into(), "level".into()]), filter),
        _ => return LogConfig { format, ..default },
    };
    // A bare word that is no level would be taken for the name of a module, and nothing at all would be logged.
    let levels = ["off", "error", "warn", "info", "debug", "trace"];
    let word = |d: &str| d.contains(['=', '[', ':']) || levels.iter().any(|l| d.eq_ignore_ascii_case(l));
    if !filter.split(',').map(str::trim).all(|d| !d.is_empty() && word(d)) || EnvFilter::try_new(&filter).is_err() {
        let message = format!("not a log level; write one of {}, or directives such as info,lockgate::backend=debug", levels.join(", "));
        cx.problem(place, message);
        return LogConfig { format, ..default };
    }
    LogConfig { format, filter }
}

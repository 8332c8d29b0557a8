//! Counters, levels and histograms in arrays that are indexed by their label: counting touches one atomic and nothing else.
//!
//! `prometheus_client::Family` does the same with a map behind a lock that all sessions would share.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use super::labels::{BackendOutcome, Label, Method, Outcome};
use crate::admission::Totals;

type Labels = Vec<(&'static str, &'static str)>;

/// A counter for each case of a label.
#[derive(Clone, Debug)]
pub struct Counters<L> {
    cells: Arc<[AtomicU64]>,
    label: std::marker::PhantomData<L>,
}

/// Requests by method and outcome.
#[derive(Clone, Debug)]
pub struct MethodCounters {
    cells: Arc<[AtomicU64]>,
}

/// Requests by backend and outcome.
#[derive(Clone, Debug)]
pub struct BackendCounters {
    names: Arc<[Arc<str>]>,
    cells: Arc<[AtomicU64]>,
}

/// A number of things that exist now.
#[derive(Clone, Debug, Default)]
pub struct Level(Arc<AtomicI64>);

/// One of the sums that ledgers keep.
#[derive(Clone, Debug)]
pub struct Sum {
    totals: Arc<Totals>,
    read: fn(&Totals) -> &AtomicI64,
    /// It only grows.
    grows: bool,
}

/// A level for each backend.
#[derive(Clone, Debug)]
pub struct BackendLevels {
    names: Arc<[Arc<str>]>,
    levels: Arc<[Level]>,
}

/// One of the things that a [`Level`] counts; dropping it takes it off.
#[derive(Debug)]
#[must_use = "the level falls again when this is dropped"]
pub struct LevelGuard(Level);

/// A histogram of durations for each case of a label.
#[derive(Clone, Debug)]
pub struct Histograms<L> {
    bounds: &'static [f64],
    cells: Arc<[Cell]>,
    label: std::marker::PhantomData<L>,
}

/// A histogram of durations.
#[derive(Debug)]
pub(super) struct Cell {
    /// One for each bound and one for what exceeds them all.
    buckets: Box<[AtomicU64]>,
    nanos: AtomicU64,
}

fn zeros(n: usize) -> Arc<[AtomicU64]> {
    (0..n).map(|_| AtomicU64::new(0)).collect()
}

fn add(cells: &[AtomicU64], index: usize) {
    // An index is made from a label or the configuration; one that is out of range must not take the process down.
    if let Some(cell) = cells.get(index) {
        cell.fetch_add(1, Relaxed);
    }
}

fn read(cells: &[AtomicU64], index: usize) -> u64 {
    cells.get(index).map_or(0, |cell| cell.load(Relaxed))
}

fn counter<S: EncodeLabelSet>(encoder: &mut MetricEncoder<'_>, labels: &S, value: u64) -> fmt::Result {
    encoder.encode_family(labels)?.encode_counter::<NoLabelSet, _, f64>(&value, None)
}

// === impl Counters ===

impl<L: Label> Default for Counters<L> {
    fn default() -> Self {
        Counters { cells: zeros(L::ALL.len()), label: std::marker::PhantomData }
    }
}

impl<L: Label> Counters<L> {
    pub fn inc(&self, label: L) {
        add(&self.cells, label.index());
    }

    pub fn get(&self, label: L) -> u64 {
        read(&self.cells, label.index())
    }
}

impl<L: Label> EncodeMetric for Counters<L> {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        L::ALL.iter().try_for_each(|label| counter(&mut encoder, &label.labels(), self.get(*label)))
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Counter
    }
}

// === impl MethodCounters ===

impl Default for MethodCounters {
    fn default() -> Self {
        MethodCounters { cells: zeros(Method::ALL.len() * Outcome::ALL.len()) }
    }
}

impl MethodCounters {
    pub fn inc(&self, method: Method, outcome: Outcome) {
        add(&self.cells, method.index() * Outcome::ALL.len() + outcome.index());
    }

    pub fn get(&self, method: Method, outcome: Outcome) -> u64 {
        read(&self.cells, method.index() * Outcome::ALL.len() + outcome.index())
    }
}

impl EncodeMetric for MethodCounters {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        for method in Method::ALL {
            for outcome in Outcome::ALL {
                let labels: Labels = [method.labels(), outcome.labels()].concat();
                counter(&mut encoder, &labels, self.get(*method, *outcome))?;
            }
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Counter
    }
}

// === impl BackendCounters ===

impl BackendCounters {
    pub(super) fn new(names: &[Arc<str>]) -> Self {
        BackendCounters { names: names.into(), cells: zeros(names.len() * BackendOutcome::ALL.len()) }
    }

    /// `name`: of the backend. One that is not known is not counted.
    pub fn inc(&self, name: &str, outcome: BackendOutcome) {
        if let Some(backend) = self.names.iter().position(|known| **known == *name) {
            add(&self.cells, backend * BackendOutcome::ALL.len() + outcome.index());
        }
    }

    pub fn get(&self, backend: usize, outcome: BackendOutcome) -> u64 {
        read(&self.cells, backend * BackendOutcome::ALL.len() + outcome.index())
    }
}

impl EncodeMetric for BackendCounters {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        for (i, name) in self.names.iter().enumerate() {
            for outcome in BackendOutcome::ALL {
                let mut labels = vec![("backend", &**name)];
                labels.extend(outcome.labels());
                counter(&mut encoder, &labels, self.get(i, *outcome))?;
            }
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Counter
    }
}

// === impl Level ===

impl Level {
    /// One more, until the guard is dropped.
    pub fn enter(&self) -> LevelGuard {
        self.0.fetch_add(1, Relaxed);
        LevelGuard(self.clone())
    }

    pub fn get(&self) -> i64 {
        self.0.load(Relaxed)
    }
}

impl EncodeMetric for Level {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        encoder.encode_gauge(&self.get())
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Gauge
    }
}

// === impl LevelGuard ===

impl Drop for LevelGuard {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Relaxed);
    }
}

// === impl Sum ===

impl Sum {
    pub(super) fn level(totals: Arc<Totals>, read: fn(&Totals) -> &AtomicI64) -> Self {
        Sum { totals, read, grows: false }
    }

    pub(super) fn counter(totals: Arc<Totals>, read: fn(&Totals) -> &AtomicI64) -> Self {
        Sum { totals, read, grows: true }
    }
}

impl EncodeMetric for Sum {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let value = (self.read)(&self.totals).load(Relaxed);
        if self.grows {
            encoder.encode_counter::<NoLabelSet, _, f64>(&u64::try_from(value).unwrap_or(0), None)
        } else {
            encoder.encode_gauge(&value)
        }
    }

    fn metric_type(&self) -> MetricType {
        if self.grows { MetricType::Counter } else { MetricType::Gauge }
    }
}

// === impl BackendLevels ===

impl BackendLevels {
    pub(super) fn new(names: &[Arc<str>]) -> Self {
        BackendLevels { names: names.into(), levels: names.iter().map(|_| Level::default()).collect() }
    }

    /// One more upstream of the backend of this name, until the guard is dropped.
    pub fn enter(&self, name: &str) -> LevelGuard {
        let level = self.names.iter().position(|known| **known == *name).and_then(|backend| self.levels.get(backend));
        level.map_or_else(|| Level::default().enter(), Level::enter)
    }

    pub fn get(&self, backend: usize) -> i64 {
        self.levels.get(backend).map_or(0, Level::get)
    }
}

impl EncodeMetric for BackendLevels {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        for (name, level) in self.names.iter().zip(self.levels.iter()) {
            encoder.encode_family(&[("backend", &**name)])?.encode_gauge(&level.get())?;
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Gauge
    }
}

// === impl Cell ===

impl Cell {
    pub(super) fn new(bounds: &[f64]) -> Self {
        Cell { buckets: (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect(), nanos: AtomicU64::new(0) }
    }

    pub(super) fn observe(&self, bounds: &[f64], took: Duration) {
        let seconds = took.as_secs_f64();
        add(&self.buckets, bounds.partition_point(|bound| *bound < seconds));
        self.nanos.fetch_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }

    /// How many were observed.
    pub(super) fn count(&self) -> u64 {
        self.buckets.iter().map(|b| b.load(Relaxed)).sum()
    }

    pub(super) fn encode(&self, bounds: &[f64], mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let bounds = bounds.iter().copied().chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds.zip(self.buckets.iter().map(|b| b.load(Relaxed))).collect();
        let count = buckets.iter().map(|(_, n)| n).sum();
        let seconds = Duration::from_nanos(self.nanos.load(Relaxed)).as_secs_f64();
        encoder.encode_histogram::<NoLabelSet>(seconds, count, &buckets, None)
    }
}

// === impl Histograms ===

impl<L: Label> Histograms<L> {
    pub(super) fn new(bounds: &'static [f64]) -> Self {
        Histograms { bounds, cells: L::ALL.iter().map(|_| Cell::new(bounds)).collect(), label: std::marker::PhantomData }
    }

    pub fn observe(&self, label: L, took: Duration) {
        if let Some(cell) = self.cells.get(label.index()) {
            cell.observe(self.bounds, took);
        }
    }

    /// How many were observed.
    pub fn count(&self, label: L) -> u64 {
        self.cells.get(label.index()).map_or(0, Cell::count)
    }
}

impl<L: Label> EncodeMetric for Histograms<L> {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        L::ALL.iter().zip(self.cells.iter()).try_for_each(|(label, cell)| cell.encode(self.bounds, encoder.encode_family(&label.labels())?))
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

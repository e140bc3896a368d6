//! The existing metrics of each job, their number of series, and their labels.

mod scrapes;
mod server;
mod stored;

use std::collections::BTreeMap;

use anyhow::Result;

pub(super) use scrapes::Scrapes;
pub(super) use server::Server;
pub(super) use stored::Stored;

/// A metric of a job.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct MetricId {
    pub(super) job: String,
    pub(super) name: String,
}

/// The size of a metric.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct MetricSize {
    pub(super) n_series: u64,
    /// Samples per second of one series.
    pub(super) samples_per_second: f64,
}

/// Queries on existing series.
pub(super) trait Inventory {
    /// Returns every metric of every job.
    fn metrics(&mut self) -> Result<BTreeMap<MetricId, MetricSize>>;

    /// Returns the number of series of a metric per value of `le`.
    fn buckets(&mut self, metric: &MetricId) -> Result<BTreeMap<String, u64>>;

    /// Returns the labels of a metric's series.
    fn labels(&mut self, metric: &MetricId) -> Result<Vec<String>>;

    /// Returns the number of series of a metric after removing labels and merging equal series.
    fn n_series_without(&mut self, metric: &MetricId, labels: &[&str]) -> Result<u64>;
}

//! What exists: the metrics of each job, how many series they have, and by which labels these differ.

mod scrapes;
mod server;

use std::collections::BTreeMap;

use anyhow::Result;

pub(super) use scrapes::Scrapes;
pub(super) use server::Server;

/// A metric of a job.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct MetricId {
    pub(super) job: String,
    pub(super) name: String,
}

/// How much there is of a metric.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Amount {
    pub(super) n_series: u64,
    /// Samples that a series gets in a second.
    pub(super) samples_per_second: f64,
}

/// What can be asked about existing series.
pub(super) trait Inventory {
    /// Returns every metric of every job.
    fn metrics(&mut self) -> Result<BTreeMap<MetricId, Amount>>;

    /// Returns how many series of a metric there are for each value of `le`.
    fn buckets(&mut self, metric: &MetricId) -> Result<BTreeMap<String, u64>>;

    /// Returns the labels that a metric's series have.
    fn labels(&mut self, metric: &MetricId) -> Result<Vec<String>>;

    /// Returns how many series a metric would have without some labels, were those that become equal added up.
    fn n_series_without(&mut self, metric: &MetricId, labels: &[&str]) -> Result<u64>;
}

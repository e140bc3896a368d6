//! Metrics and what is asked about their series.

use std::collections::BTreeMap;

use varve_model::Matcher;
use varve_model::labels::METRIC_NAME;

/// A metric of a job.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct MetricId {
    /// The value of the label `job`.
    pub job: String,
    /// The metric name.
    pub name: String,
}

/// The size of a metric.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MetricSize {
    /// Number of series.
    pub n_series: u64,
    /// Samples per second of one series.
    pub samples_per_second: f64,
}

/// Queries on existing series.
pub trait Inventory {
    /// Why the series cannot be read.
    type Error;

    /// Checks the deadline of the analysis. By default there is none.
    ///
    /// # Errors
    /// If the analysis must stop.
    fn check(&self) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Charges `size` bytes that the analysis is about to allocate. By default nothing bounds it.
    ///
    /// # Errors
    /// If memory is short.
    fn charge(&mut self, _size: usize) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Returns every metric of every job.
    ///
    /// # Errors
    /// If the series cannot be read.
    fn metrics(&mut self) -> Result<BTreeMap<MetricId, MetricSize>, Self::Error>;

    /// Returns the number of series of a metric per value of `le`.
    ///
    /// # Errors
    /// If the series cannot be read.
    fn buckets(&mut self, metric: &MetricId) -> Result<BTreeMap<String, u64>, Self::Error>;

    /// Returns the labels of a metric's series.
    ///
    /// # Errors
    /// If the series cannot be read.
    fn labels(&mut self, metric: &MetricId) -> Result<Vec<String>, Self::Error>;

    /// Returns the number of series of a metric after removing labels and merging equal series.
    ///
    /// # Errors
    /// If the series cannot be read.
    fn n_series_without(&mut self, metric: &MetricId, labels: &[&str]) -> Result<u64, Self::Error>;
}

impl MetricId {
    /// Returns the matchers of the metric's series.
    #[must_use]
    pub fn matchers(&self) -> [Matcher; 2] {
        [
            Matcher::equal(METRIC_NAME, &self.name),
            Matcher::equal("job", &self.job),
        ]
    }
}

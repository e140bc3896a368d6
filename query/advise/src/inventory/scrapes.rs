//! The series of scrapes.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::convert::Infallible;
use std::time::Duration;

use varve_model::labels::METRIC_NAME;

use super::metrics::{Inventory, MetricId, MetricSize};

/// The labels of a series, including the name, sorted by name.
type Series = Vec<(String, String)>;

/// The series of each metric.
#[derive(Debug, Default)]
pub struct Scrapes {
    series: BTreeMap<MetricId, Vec<Series>>,
    intervals: BTreeMap<String, Duration>,
    interval: Duration,
    targets: BTreeMap<String, u64>,
}

impl Scrapes {
    /// Creates an empty inventory. Jobs without an entry have the scrape interval `interval` and
    /// one target.
    #[must_use]
    pub fn new(
        interval: Duration,
        intervals: BTreeMap<String, Duration>,
        targets: BTreeMap<String, u64>,
    ) -> Self {
        Self {
            series: BTreeMap::new(),
            intervals,
            interval,
            targets,
        }
    }

    /// Adds a series of a target of a job, by its labels in any order.
    pub fn add(&mut self, job: &str, mut series: Vec<(String, String)>) {
        series.sort();
        let name = value(&series, METRIC_NAME).unwrap_or_default().to_owned();
        self.series
            .entry(MetricId {
                job: job.to_owned(),
                name,
            })
            .or_default()
            .push(series);
    }

    fn series_of(&self, metric: &MetricId) -> &[Series] {
        self.series.get(metric).map_or(&[], Vec::as_slice)
    }

    fn n_targets(&self, job: &str) -> u64 {
        self.targets.get(job).copied().unwrap_or(1)
    }
}

fn value<'a>(series: &'a Series, label: &str) -> Option<&'a str> {
    series
        .iter()
        .find(|(name, _)| name == label)
        .map(|(_, value)| value.as_str())
}

impl Inventory for Scrapes {
    type Error = Infallible;

    fn metrics(&mut self) -> Result<BTreeMap<MetricId, MetricSize>, Infallible> {
        Ok(self
            .series
            .iter()
            .map(|(metric, series)| {
                let interval = self.intervals.get(&metric.job).unwrap_or(&self.interval);
                let n_series = (series.len() as u64).saturating_mul(self.n_targets(&metric.job));
                (
                    metric.clone(),
                    MetricSize {
                        n_series,
                        samples_per_second: 1.0 / interval.as_secs_f64(),
                    },
                )
            })
            .collect())
    }

    fn buckets(&mut self, metric: &MetricId) -> Result<BTreeMap<String, u64>, Infallible> {
        let mut counts = BTreeMap::new();
        for bound in self
            .series_of(metric)
            .iter()
            .filter_map(|series| value(series, "le"))
        {
            *counts.entry(bound.to_owned()).or_default() += self.n_targets(&metric.job);
        }
        Ok(counts)
    }

    fn labels(&mut self, metric: &MetricId) -> Result<Vec<String>, Infallible> {
        let names: BTreeSet<&String> = self
            .series_of(metric)
            .iter()
            .flatten()
            .map(|(name, _)| name)
            .collect();
        Ok(names.into_iter().cloned().collect())
    }

    fn n_series_without(&mut self, metric: &MetricId, labels: &[&str]) -> Result<u64, Infallible> {
        let left: HashSet<Series> = self
            .series_of(metric)
            .iter()
            .map(|series| -> Vec<(String, String)> {
                series
                    .iter()
                    .filter(|(name, _)| !labels.contains(&name.as_str()))
                    .cloned()
                    .collect()
            })
            .collect();
        Ok((left.len() as u64).saturating_mul(self.n_targets(&metric.job)))
    }
}

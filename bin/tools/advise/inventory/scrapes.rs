//! Series of scrapes that lie in files.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, anyhow};

use super::super::documents;
use super::super::exposition::{self, Series};
use super::{Amount, Inventory, MetricId};

/// The series of each metric.
#[derive(Debug, Default)]
pub(in super::super) struct Scrapes {
    series: BTreeMap<MetricId, Vec<Series>>,
    intervals: BTreeMap<String, Duration>,
    interval: Duration,
    targets: BTreeMap<String, u64>,
}

impl Scrapes {
    /// Makes an inventory without series. `interval` is that of jobs that `intervals` does not name, and a job that
    /// `targets` does not name has one target.
    pub(in super::super) fn new(
        interval: Duration,
        intervals: BTreeMap<String, Duration>,
        targets: BTreeMap<String, u64>,
    ) -> Self {
        Self { series: BTreeMap::new(), intervals, interval, targets }
    }

    /// Adds the series of a file.
    ///
    /// # Errors
    /// If it cannot be read, or where it is no scrape.
    pub(in super::super) fn add(&mut self, job: &str, path: &Path) -> Result<()> {
        let file = documents::read_file(path)?;
        let found = exposition::parse(&file.text).map_err(|reason| anyhow!("{}: {reason}", file.name))?;
        for series in found {
            let name = value(&series, "__name__").unwrap_or_default().to_owned();
            self.series.entry(MetricId { job: job.to_owned(), name }).or_default().push(series);
        }
        Ok(())
    }

    fn of(&self, metric: &MetricId) -> &[Series] {
        self.series.get(metric).map_or(&[], Vec::as_slice)
    }

    fn n_targets(&self, job: &str) -> u64 {
        self.targets.get(job).copied().unwrap_or(1)
    }
}

fn value<'a>(series: &'a Series, label: &str) -> Option<&'a str> {
    series.iter().find(|(name, _)| name == label).map(|(_, value)| value.as_str())
}

impl Inventory for Scrapes {
    fn metrics(&mut self) -> Result<BTreeMap<MetricId, Amount>> {
        let amount = |(metric, series): (&MetricId, &Vec<Series>)| {
            let interval = self.intervals.get(&metric.job).unwrap_or(&self.interval);
            let n_series = (series.len() as u64).saturating_mul(self.n_targets(&metric.job));
            (metric.clone(), Amount { n_series, samples_per_second: 1.0 / interval.as_secs_f64() })
        };
        Ok(self.series.iter().map(amount).collect())
    }

    fn buckets(&mut self, metric: &MetricId) -> Result<BTreeMap<String, u64>> {
        let mut counts = BTreeMap::new();
        for bound in self.of(metric).iter().filter_map(|series| value(series, "le")) {
            *counts.entry(bound.to_owned()).or_default() += self.n_targets(&metric.job);
        }
        Ok(counts)
    }

    fn labels(&mut self, metric: &MetricId) -> Result<Vec<String>> {
        let names: BTreeSet<&String> = self.of(metric).iter().flatten().map(|(name, _)| name).collect();
        Ok(names.into_iter().cloned().collect())
    }

    fn n_series_without(&mut self, metric: &MetricId, labels: &[&str]) -> Result<u64> {
        let rest = |series: &Series| -> Vec<(String, String)> {
            series.iter().filter(|(name, _)| !labels.contains(&name.as_str())).cloned().collect()
        };
        let left: HashSet<Series> = self.of(metric).iter().map(rest).collect();
        Ok((left.len() as u64).saturating_mul(self.n_targets(&metric.job)))
    }
}

//! The series of scrapes in files.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use varve_ingest::text::{Line, LineReader, TextFormat};
use varve_tsdb::labels::METRIC_NAME;

use super::super::documents;
use super::{Inventory, MetricId, MetricSize};

/// The labels of a series, including the name, sorted by name.
type Series = Vec<(String, String)>;

/// The series of each metric.
#[derive(Debug, Default)]
pub(in super::super) struct Scrapes {
    series: BTreeMap<MetricId, Vec<Series>>,
    intervals: BTreeMap<String, Duration>,
    interval: Duration,
    targets: BTreeMap<String, u64>,
}

impl Scrapes {
    /// Creates an empty inventory. Jobs without an entry have the scrape interval `interval` and one target.
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
    /// If it cannot be read or has an invalid line.
    pub(in super::super) fn add(&mut self, job: &str, path: &Path) -> Result<()> {
        let file = documents::read_file(path)?;
        let is_open_metrics = file.text.trim_end().ends_with("# EOF");
        let format = if is_open_metrics { TextFormat::OpenMetrics } else { TextFormat::Prometheus };
        let mut lines = LineReader::new(file.text.as_bytes(), format);
        while let Some(line) = lines.read().with_context(|| file.name.to_string())? {
            let Line::Sample(sample) = line else { continue };
            let labels = sample.labels.into_iter().map(|(name, value)| (name.into_owned(), value.into_owned()));
            let mut series: Series = labels.collect();
            series.sort();
            let name = value(&series, METRIC_NAME).unwrap_or_default().to_owned();
            self.series.entry(MetricId { job: job.to_owned(), name }).or_default().push(series);
        }
        Ok(())
    }

    fn series_of(&self, metric: &MetricId) -> &[Series] {
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
    fn metrics(&mut self) -> Result<BTreeMap<MetricId, MetricSize>> {
        let amount = |(metric, series): (&MetricId, &Vec<Series>)| {
            let interval = self.intervals.get(&metric.job).unwrap_or(&self.interval);
            let n_series = (series.len() as u64).saturating_mul(self.n_targets(&metric.job));
            (metric.clone(), MetricSize { n_series, samples_per_second: 1.0 / interval.as_secs_f64() })
        };
        Ok(self.series.iter().map(amount).collect())
    }

    fn buckets(&mut self, metric: &MetricId) -> Result<BTreeMap<String, u64>> {
        let mut counts = BTreeMap::new();
        for bound in self.series_of(metric).iter().filter_map(|series| value(series, "le")) {
            *counts.entry(bound.to_owned()).or_default() += self.n_targets(&metric.job);
        }
        Ok(counts)
    }

    fn labels(&mut self, metric: &MetricId) -> Result<Vec<String>> {
        let names: BTreeSet<&String> = self.series_of(metric).iter().flatten().map(|(name, _)| name).collect();
        Ok(names.into_iter().cloned().collect())
    }

    fn n_series_without(&mut self, metric: &MetricId, labels: &[&str]) -> Result<u64> {
        let rest = |series: &Series| -> Vec<(String, String)> {
            series.iter().filter(|(name, _)| !labels.contains(&name.as_str())).cloned().collect()
        };
        let left: HashSet<Series> = self.series_of(metric).iter().map(rest).collect();
        Ok((left.len() as u64).saturating_mul(self.n_targets(&metric.job)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scrapes_are_read_in_both_formats() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut scrapes = Scrapes::default();
        for text in
            ["# TYPE a gauge\n\na{y=\"1\",x=\"2\",} 1 1700000000000\n", "a{x=\"3\"} 1 # {id=\"x\"} 0.5\n# EOF\n"]
        {
            std::fs::write(file.path(), text).unwrap();
            scrapes.add("j", file.path()).unwrap();
        }
        let a = MetricId { job: "j".to_owned(), name: "a".to_owned() };
        assert_eq!(
            (scrapes.series_of(&a).len(), scrapes.labels(&a).unwrap().join(",")),
            (2, "__name__,x,y".to_owned())
        );
        std::fs::write(file.path(), "a 1\nb\n").unwrap();
        assert!(format!("{:#}", scrapes.add("j", file.path()).unwrap_err()).contains("line 2"));
    }
}

//! The series of a store that have a sample in a time range.

use std::collections::{BTreeMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use varve_context::Charge;
use varve_model::labels::METRIC_NAME;
use varve_model::{Labels, Matcher, SampleColumns, TimeRange};
use varve_tsdb::{Db, Error, ReadContext, Result};

use super::metrics::{Inventory, MetricId, MetricSize};

/// Time over which the scrape interval of a job is measured.
const RATE_RANGE_MS: i64 = 600_000;
/// Approximate memory of a metric besides its strings.
const METRIC_SIZE: usize = 256;
/// Approximate memory of a job or of a bucket besides its string.
const BUCKET_SIZE: usize = 64;
/// Approximate memory of a hash in a set.
const HASH_SIZE: usize = 20;

/// A store, and the time range in which a series must have a sample to be counted.
pub struct Stored<'a> {
    db: &'a Db,
    ctx: &'a ReadContext,
    range: TimeRange,
    /// The scrape interval of jobs without `up`.
    interval: Duration,
    charge: Charge,
}

impl<'a> Stored<'a> {
    /// Creates an inventory of the series with a sample in `range`. `interval` is the scrape
    /// interval of jobs without `up`.
    #[must_use]
    pub fn new(db: &'a Db, ctx: &'a ReadContext, range: TimeRange, interval: Duration) -> Self {
        Self {
            db,
            ctx,
            range,
            interval,
            charge: ctx.charge(),
        }
    }

    /// Returns the charge of the analysis, which covers its result.
    #[must_use]
    pub fn into_charge(self) -> Charge {
        self.charge
    }

    /// Returns the bytes per sample on disk; `None` if there is no block.
    #[must_use]
    pub fn bytes_per_sample(&self) -> Option<f64> {
        let stats = self.db.stats();
        (stats.blocks_samples > 0)
            .then(|| stats.blocks_size_bytes as f64 / stats.blocks_samples as f64)
    }

    /// Calls a function with the labels of each series that passes the matchers.
    fn visit_series(
        &self,
        matchers: &[Matcher],
        mut each: impl FnMut(&Labels) -> Result<()>,
    ) -> Result<()> {
        for series in self.db.select_labels(self.ctx, matchers, self.range)? {
            each(series?.labels())?;
        }
        Ok(())
    }

    /// Returns the scrapes per second of a target of each job, measured with `up`.
    fn scrape_rates(&self) -> Result<BTreeMap<String, f64>> {
        let range = TimeRange {
            start_ms: self.range.end_ms - RATE_RANGE_MS + 1,
            end_ms: self.range.end_ms,
        };
        // Numbers of samples and of targets, by job.
        let mut found: BTreeMap<String, (usize, u32)> = BTreeMap::new();
        let mut charge = self.ctx.charge();
        let mut samples = SampleColumns::default();
        for series in self
            .db
            .select(self.ctx, &[Matcher::equal(METRIC_NAME, "up")], range)?
        {
            let series = series?;
            samples.clear();
            series.read(&mut samples)?;
            let job = job_of(series.labels());
            if !found.contains_key(&job) {
                charge.grow(job.len() + BUCKET_SIZE)?;
            }
            let (n_samples, n_targets) = found.entry(job).or_default();
            *n_samples += samples.len();
            *n_targets += 1;
        }
        let mut rates = BTreeMap::new();
        for (job, (n_samples, n_targets)) in found {
            let per_target = n_samples as f64 / f64::from(n_targets);
            rates.insert(job, per_target / (RATE_RANGE_MS as f64 / 1000.0));
        }
        Ok(rates)
    }
}

fn job_of(labels: &Labels) -> String {
    labels.get("job").unwrap_or_default().to_owned()
}

impl Inventory for Stored<'_> {
    type Error = Error;

    fn check(&self) -> Result<()> {
        self.ctx.check()?;
        Ok(())
    }

    fn charge(&mut self, size: usize) -> Result<()> {
        self.charge.grow(size)?;
        Ok(())
    }

    fn metrics(&mut self) -> Result<BTreeMap<MetricId, MetricSize>> {
        let rates = self.scrape_rates()?;
        let mut charge = self.ctx.charge();
        let default = 1.0 / self.interval.as_secs_f64();
        let mut metrics: BTreeMap<MetricId, MetricSize> = BTreeMap::new();
        self.visit_series(&[], |labels| {
            let metric = MetricId {
                job: job_of(labels),
                name: labels.metric_name().to_owned(),
            };
            if let Some(size) = metrics.get_mut(&metric) {
                size.n_series += 1;
                return Ok(());
            }
            charge.grow(metric.job.len() + metric.name.len() + METRIC_SIZE)?;
            let samples_per_second = rates.get(&metric.job).copied().unwrap_or(default);
            metrics.insert(
                metric,
                MetricSize {
                    n_series: 1,
                    samples_per_second,
                },
            );
            Ok(())
        })?;
        self.charge.absorb(charge);
        Ok(metrics)
    }

    fn buckets(&mut self, metric: &MetricId) -> Result<BTreeMap<String, u64>> {
        let mut buckets: BTreeMap<String, u64> = BTreeMap::new();
        let mut charge = self.ctx.charge();
        self.visit_series(&metric.matchers(), |labels| {
            let bound = labels.get("le").unwrap_or_default();
            if let Some(n_series) = buckets.get_mut(bound) {
                *n_series += 1;
                return Ok(());
            }
            charge.grow(bound.len() + BUCKET_SIZE)?;
            buckets.insert(bound.to_owned(), 1);
            Ok(())
        })?;
        Ok(buckets)
    }

    fn labels(&mut self, metric: &MetricId) -> Result<Vec<String>> {
        let names = self
            .db
            .label_names(self.ctx, &metric.matchers(), self.range)?;
        Ok(names.iter().map(str::to_owned).collect())
    }

    fn n_series_without(&mut self, metric: &MetricId, removed: &[&str]) -> Result<u64> {
        let hasher = RandomState::new();
        let mut charge = self.ctx.charge();
        let mut seen = HashSet::new();
        self.visit_series(&metric.matchers(), |labels| {
            let left: Vec<_> = labels
                .iter()
                .filter(|(name, _)| !removed.contains(name))
                .collect();
            if seen.insert(hasher.hash_one(left)) {
                charge.grow(HASH_SIZE)?;
            }
            Ok(())
        })?;
        Ok(seen.len() as u64)
    }
}

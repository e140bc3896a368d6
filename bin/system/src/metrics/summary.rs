//! Summaries: quantiles of recent observations, as of Prometheus' Go client.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use prometheus::core::{Collector, Desc};
use prometheus::proto::{Metric, MetricFamily, MetricType, Quantile, Summary};

use super::table::{describe, label};

/// Age above which an observation does not count for quantiles.
const AGE_MAX: Duration = Duration::from_secs(600);
/// Maximum number of observations that count for the quantiles of a summary.
const RECENT_MAX: usize = 1000;
const QUANTILES: &[f64] = &[0.5, 0.9, 0.99];

/// Summaries by the value of one label. Clones share them.
#[derive(Debug, Clone)]
pub struct SummaryVec {
    name: &'static str,
    desc: Desc,
    quantiles: &'static [f64],
    summaries: Arc<Mutex<BTreeMap<String, Observed>>>,
}

#[derive(Debug, Default)]
struct Observed {
    count: u64,
    sum: f64,
    recent: VecDeque<(Instant, f64)>,
}

impl SummaryVec {
    /// Creates the summaries of a metric of the table.
    ///
    /// # Errors
    /// If the name is not valid.
    pub(super) fn new(name: &'static str) -> prometheus::Result<Self> {
        let family = describe(name);
        let labels = family
            .labels
            .iter()
            .map(|label| (*label).to_owned())
            .collect();
        let desc = Desc::new(
            name.to_owned(),
            family.help.to_owned(),
            labels,
            Default::default(),
        )?;
        Ok(Self {
            name,
            desc,
            quantiles: QUANTILES,
            summaries: Arc::default(),
        })
    }

    /// Sets the quantiles.
    pub(super) fn with_quantiles(self, quantiles: &'static [f64]) -> Self {
        Self { quantiles, ..self }
    }

    /// Adds a value.
    pub fn observe(&self, label: &str, value: f64) {
        let mut summaries = self.summaries.lock();
        let observed = summaries.entry(label.to_owned()).or_default();
        observed.count += 1;
        observed.sum += value;
        if observed.recent.len() == RECENT_MAX {
            observed.recent.pop_front();
        }
        observed.recent.push_back((Instant::now(), value));
    }

    /// Removes the summary of a label.
    pub fn remove(&self, label: &str) {
        self.summaries.lock().remove(label);
    }
}

impl Collector for SummaryVec {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.desc]
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let described = describe(self.name);
        let mut metrics = Vec::new();
        for (value, observed) in &*self.summaries.lock() {
            let labels = described.labels.iter();
            let mut metric = Metric::default();
            metric.set_label(labels.map(|name| label(name, value)).collect());
            metric.set_summary(observed.summary(Instant::now(), self.quantiles));
            metrics.push(metric);
        }
        let mut family = MetricFamily::default();
        family.set_name(self.name.to_owned());
        family.set_help(described.help.to_owned());
        family.set_field_type(MetricType::SUMMARY);
        family.set_metric(metrics);
        vec![family]
    }
}

impl Observed {
    fn summary(&self, now: Instant, quantiles: &[f64]) -> Summary {
        let recent = self
            .recent
            .iter()
            .filter(|(at, _)| now.duration_since(*at) <= AGE_MAX);
        let mut values: Vec<f64> = recent.map(|(_, value)| *value).collect();
        values.sort_by(f64::total_cmp);
        let quantiles = quantiles.iter().map(|&quantile| {
            let rank = (quantile * values.len() as f64).ceil() as usize;
            let mut printed = Quantile::default();
            printed.set_quantile(quantile);
            printed.set_value(
                values
                    .get(rank.saturating_sub(1))
                    .copied()
                    .unwrap_or(f64::NAN),
            );
            printed
        });
        let mut summary = Summary::default();
        summary.set_sample_count(self.count);
        summary.set_sample_sum(self.sum);
        summary.set_quantile(quantiles.collect());
        summary
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_recent_observations() {
        let summaries = SummaryVec::new("prometheus_notifications_latency_seconds").unwrap();
        (1..=RECENT_MAX + 100).for_each(|i| summaries.observe("a", i as f64));
        summaries.observe("b", 1.0);
        summaries.remove("b");
        let families = summaries.collect();
        let [metric] = families[0].get_metric() else {
            panic!("one summary: {families:?}")
        };
        let summary = metric.get_summary();
        let quantiles: Vec<_> = summary
            .get_quantile()
            .iter()
            .map(|of| (of.quantile(), of.value()))
            .collect();
        assert_eq!(quantiles, [(0.5, 600.0), (0.9, 1000.0), (0.99, 1090.0)]);
        assert_eq!(
            (summary.sample_count(), summary.sample_sum()),
            (1100, 605_550.0)
        );
        let later = summaries.summaries.lock()["a"]
            .summary(Instant::now() + AGE_MAX + Duration::from_secs(1), QUANTILES);
        assert!(
            later.get_quantile().iter().all(|of| of.value().is_nan())
                && later.sample_count() == 1100
        );
    }
}

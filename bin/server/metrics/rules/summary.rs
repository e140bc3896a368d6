//! Quantiles of recent values, as Go's Prometheus client has them: over the last ten minutes.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use prometheus::proto::{self, MetricFamily};

use crate::server::metrics::table;

/// How long a value counts.
const AGE_MAX: Duration = Duration::from_secs(600);
/// Maximum number of values. Of more, the newest count.
const VALUES_MAX: usize = 4_096;

/// A summary without labels.
#[derive(Debug, Default)]
pub(super) struct Summary(Mutex<Values>);

#[derive(Debug, Default)]
struct Values {
    recent: VecDeque<(Instant, f64)>,
    sum: f64,
    count: u64,
}

impl Summary {
    /// Adds a value.
    pub(super) fn observe(&self, value: f64) {
        let values = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        values.sum += value;
        values.count += 1;
        if values.recent.len() == VALUES_MAX {
            values.recent.pop_front();
        }
        values.recent.push_back((Instant::now(), value));
    }

    /// Returns the family with these quantiles, NaN without recent values.
    pub(super) fn family(&self, name: &str, quantiles: &[f64]) -> MetricFamily {
        let (mut recent, sum, count) = {
            let values = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let recent = values.recent.iter().filter(|(time, _)| time.elapsed() <= AGE_MAX);
            (recent.map(|(_, value)| *value).collect::<Vec<_>>(), values.sum, values.count)
        };
        recent.sort_by(f64::total_cmp);
        let quantile = |&q: &f64| {
            let mut quantile = proto::Quantile::default();
            quantile.set_quantile(q);
            let rank = (recent.len() as f64 * q).ceil() as usize;
            quantile.set_value(recent.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN));
            quantile
        };
        let mut summary = proto::Summary::default();
        summary.set_sample_sum(sum);
        summary.set_sample_count(count);
        summary.set_quantile(quantiles.iter().map(quantile).collect());
        table::summary(name, summary)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_newest_values() {
        let summary = Summary::default();
        let values = |summary: &Summary| {
            let family = summary.family("prometheus_rule_group_duration_seconds", &[0.5, 0.99]);
            let of = family.get_metric()[0].get_summary().clone();
            (of.get_quantile().iter().map(|q| q.value()).collect::<Vec<_>>(), of.sample_count())
        };
        assert!(values(&summary).0.iter().all(|value| value.is_nan()));
        (1..=100).for_each(|value| summary.observe(f64::from(value)));
        assert_eq!(values(&summary), (vec![50.0, 99.0], 100));
        (0..VALUES_MAX).for_each(|_| summary.observe(7.0));
        assert_eq!(values(&summary), (vec![7.0, 7.0], 100 + VALUES_MAX as u64));
    }
}

//! The series of a Varve or Prometheus server, counted by instant queries.
//!
//! Metrics are counted a hundred at a time, which bounds the cost of a query. Details are queried
//! only for metrics that need them.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use varve_advise::inventory::{Inventory, MetricId, MetricSize};
use varve_client::{Client, escape};
use varve_promql::quote::quoted;
use varve_promql::{print_label, print_matchers};
use varve_regexp::Regexp;

/// Metrics per query.
const METRICS_PER_QUERY: usize = 100;
/// The scrapes per second of a target of each job: scrapes in the last ten minutes, divided by the
/// time between the first and the last one. A server, or a target, may be younger than that. The
/// first value of the subquery may be a scrape from before the range, which `count_over_time` does
/// not count.
const SCRAPE_RATES: &str = "avg by (job) ((count_over_time(up[10m]) \
    - (min_over_time(timestamp(up)[10m:5s]) > bool (time() - 600))) \
    / (timestamp(up) - min_over_time(timestamp(up)[10m:5s])) < +Inf)";
/// Maximum number of metrics of a server.
pub(super) const METRICS_MAX: usize = 200_000;

/// A server.
#[derive(Debug)]
pub(super) struct Server {
    client: Client,
    /// The scrape interval of jobs without `up`.
    interval: Duration,
    intervals: BTreeMap<String, Duration>,
}

impl Server {
    pub(super) fn new(
        client: Client,
        interval: Duration,
        intervals: BTreeMap<String, Duration>,
    ) -> Self {
        Self {
            client,
            interval,
            intervals,
        }
    }

    /// Returns the bytes per sample on disk of a Varve that stores its own metrics.
    pub(super) fn bytes_per_sample(&mut self) -> Option<f64> {
        let query =
            "sum(prometheus_tsdb_storage_blocks_bytes) / sum(varve_tsdb_blocks_samples > 0)";
        let found = self.query(query).ok()?;
        found
            .first()
            .map(|(_, value)| *value)
            .filter(|bytes| bytes.is_finite() && *bytes > 0.0)
    }

    /// Runs an instant query and returns labels and values.
    fn query(&mut self, query: &str) -> Result<Vec<(BTreeMap<String, String>, f64)>> {
        let data = self
            .client
            .get_data(&format!("/api/v1/query?query={}", escape(query)))?;
        let found = data
            .get("result")
            .and_then(Value::as_array)
            .context("find the vector in the response")?;
        Ok(found.iter().filter_map(parse_sample).collect())
    }

    fn strings(&mut self, path: &str) -> Result<Vec<String>> {
        serde_json::from_value(self.client.get_data(path)?)
            .with_context(|| format!("parse the response of {path}"))
    }

    /// Returns the scrapes per second of a target of each job.
    fn scrape_rates(&mut self) -> Result<BTreeMap<String, f64>> {
        let found = self.query(SCRAPE_RATES)?;
        // A target with a single sample has no rate yet.
        let found = found
            .into_iter()
            .filter(|(_, rate)| rate.is_finite() && *rate > 0.0);
        Ok(found
            .map(|(labels, rate)| (label(&labels, "job"), rate))
            .collect())
    }
}

/// Returns the labels and the value of an element of a vector.
fn parse_sample(sample: &Value) -> Option<(BTreeMap<String, String>, f64)> {
    let mut labels = BTreeMap::new();
    for (name, value) in sample.get("metric")?.as_object()? {
        if let Some(value) = value.as_str() {
            labels.insert(name.clone(), value.to_owned());
        }
    }
    let value = sample.pointer("/value/1")?.as_str()?.parse().ok()?;
    Some((labels, value))
}

fn label(labels: &BTreeMap<String, String>, name: &str) -> String {
    labels.get(name).cloned().unwrap_or_default()
}

impl Inventory for Server {
    type Error = anyhow::Error;

    fn metrics(&mut self) -> Result<BTreeMap<MetricId, MetricSize>> {
        let names = self.strings("/api/v1/label/__name__/values")?;
        ensure!(
            names.len() <= METRICS_MAX,
            "{} metrics exceed {METRICS_MAX}",
            names.len()
        );
        let rates = self.scrape_rates()?;
        let mut metrics = BTreeMap::new();
        for names in names.chunks(METRICS_PER_QUERY) {
            let names: Vec<_> = names.iter().map(|name| Regexp::escape(name)).collect();
            let query = format!(
                "count by (__name__, job) ({{__name__=~{}}})",
                quoted(names.join("|"))
            );
            for (labels, n_series) in self.query(&query)? {
                let job = label(&labels, "job");
                let set = self
                    .intervals
                    .get(&job)
                    .map(|interval| 1.0 / interval.as_secs_f64());
                let rate = set.or_else(|| rates.get(&job).copied());
                let samples_per_second = rate.unwrap_or_else(|| 1.0 / self.interval.as_secs_f64());
                let metric = MetricId {
                    job,
                    name: label(&labels, "__name__"),
                };
                metrics.insert(
                    metric,
                    MetricSize {
                        n_series: n_series as u64,
                        samples_per_second,
                    },
                );
            }
        }
        Ok(metrics)
    }

    fn buckets(&mut self, metric: &MetricId) -> Result<BTreeMap<String, u64>> {
        let found = self.query(&format!(
            "count by (le) ({})",
            print_matchers(&metric.matchers())
        ))?;
        Ok(found
            .into_iter()
            .map(|(labels, n_series)| (label(&labels, "le"), n_series as u64))
            .collect())
    }

    fn labels(&mut self, metric: &MetricId) -> Result<Vec<String>> {
        self.strings(&format!(
            "/api/v1/labels?match[]={}",
            escape(&print_matchers(&metric.matchers()))
        ))
    }

    fn n_series_without(&mut self, metric: &MetricId, labels: &[&str]) -> Result<u64> {
        let labels: Vec<_> = labels.iter().map(|label| print_label(label)).collect();
        let query = format!(
            "count(count without ({}) ({}))",
            labels.join(", "),
            print_matchers(&metric.matchers())
        );
        Ok(self
            .query(&query)?
            .first()
            .map_or(0, |(_, n_series)| *n_series as u64))
    }
}

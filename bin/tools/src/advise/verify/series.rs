//! The series and samples of a server, through the API of Prometheus.

use std::collections::BTreeSet;

use anyhow::{Result, anyhow, bail, ensure};
use serde::de::DeserializeOwned;
use varve_client::{Client, Response, escape};
use varve_model::labels::METRIC_NAME;
use varve_model::{Labels, Matcher, Sample};
use varve_promql::print_matchers;

use super::reads::LOOKBACK_MS;
use crate::advise::server::METRICS_MAX;
use crate::query::response::{Data, Labels as LabelMap, Stream, Value};

/// The series of a server in a range. The client bounds the size of each response, and a response
/// with a warning is an error: it may be incomplete.
pub(super) struct StoredSeries {
    pub(super) client: Client,
    /// The end of the range, which is the time of the evaluation.
    pub(super) time_ms: i64,
    /// The length of the range in milliseconds.
    pub(super) range_ms: i64,
}

/// A series with its samples before the evaluation.
pub(super) struct Sampled {
    pub(super) labels: Labels,
    pub(super) samples: Vec<Sample>,
    /// Whether a staleness marker follows the last sample: an instant query does not return the
    /// series, although the sample is recent.
    pub(super) has_ended: bool,
}

impl StoredSeries {
    /// Returns the names of all metrics.
    ///
    /// # Errors
    /// The server's error, or more than [`METRICS_MAX`] metrics.
    pub(super) fn metrics(&mut self) -> Result<Vec<String>> {
        let path = format!("/api/v1/label/{METRIC_NAME}/values?{}", self.range());
        let response = self.client.get(&path)?;
        let names: Vec<String> = self.read(&path, &response)?;
        ensure!(
            names.len() <= METRICS_MAX,
            "{} metrics exceed {METRICS_MAX}",
            names.len()
        );
        Ok(names)
    }

    /// Returns the label sets of a metric.
    ///
    /// # Errors
    /// The server's error, or a response that is too large.
    pub(super) fn label_sets(&mut self, metric: &str) -> Result<Vec<Labels>> {
        let selector = print_matchers(&[Matcher::equal(METRIC_NAME, metric)]);
        let form = format!("match[]={}&{}", escape(&selector), self.range());
        let maps: Vec<LabelMap> = self.post("/api/v1/series", &form)?;
        maps.iter().map(labels).collect()
    }

    /// Returns the series that a selector selects within `reach_ms` before the evaluation.
    ///
    /// # Errors
    /// The server's error, a response that is too large, or native histograms, whose JSON is not
    /// exact.
    pub(super) fn samples(&mut self, selector: &str, reach_ms: i64) -> Result<Vec<Sampled>> {
        // The start of a range is not part of it.
        let range = format!("{selector}[{}ms]", reach_ms.saturating_add(1));
        let Value::Matrix(stored) = self.query(&range)? else {
            bail!("the result of {range} is no matrix");
        };
        let Value::Vector(current) = self.query(selector)? else {
            bail!("the result of {selector} is no vector");
        };
        let current: BTreeSet<&LabelMap> = current.iter().map(|sample| &sample.metric).collect();
        let recent_s = seconds(self.time_ms - LOOKBACK_MS);
        stored
            .iter()
            .map(|stream| {
                ensure!(
                    stream.histograms.is_empty(),
                    "it reads native histograms, which are not supported"
                );
                let samples = stream.values.iter().map(|point| Sample {
                    timestamp_ms: (point.0 * 1000.0).round() as i64,
                    value: point.1,
                });
                Ok(Sampled {
                    labels: labels(&stream.metric)?,
                    samples: samples.collect(),
                    has_ended: has_sample_since(stream, recent_s)
                        && !current.contains(&stream.metric),
                })
            })
            .collect()
    }

    fn range(&self) -> String {
        format!(
            "start={}&end={}",
            seconds(self.time_ms.saturating_sub(self.range_ms)),
            seconds(self.time_ms)
        )
    }

    /// Evaluates an expression.
    fn query(&mut self, expr: &str) -> Result<Value> {
        let form = format!("query={}&time={}", escape(expr), seconds(self.time_ms));
        self.post("/api/v1/query", &form)
    }

    fn post<T: DeserializeOwned>(&mut self, path: &str, form: &str) -> Result<T> {
        let response = self.client.post_form(path, form)?;
        self.read(path, &response)
    }

    /// Returns the data of a response.
    fn read<T: DeserializeOwned>(&self, path: &str, response: &Response) -> Result<T> {
        self.client.ensure_success(path, response)?;
        let data = Data::parse(response)?;
        if let Some(warning) = data.warnings().first() {
            bail!("the server warns: {warning}");
        }
        data.read()
    }
}

fn labels(map: &LabelMap) -> Result<Labels> {
    let pairs = map.iter().map(|(name, value)| (&**name, &**value));
    Labels::from_pairs(pairs).map_err(|error| anyhow!("the series {map:?}: {error}"))
}

fn has_sample_since(stream: &Stream, start_s: f64) -> bool {
    stream.values.last().is_some_and(|last| last.0 > start_s)
}

fn seconds(time_ms: i64) -> f64 {
    time_ms as f64 / 1000.0
}

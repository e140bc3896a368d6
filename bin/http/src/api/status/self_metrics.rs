//! /api/v1/status/self_metrics: the server's own metrics as JSON, in the protobuf mapping of
//! `io.prometheus.client.MetricFamily`: 64-bit integers are strings, and so are NaN and infinities.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use prometheus::proto::{Metric, MetricFamily, MetricType};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};
use varve_regexp::Regexp;
use varve_server::requests::record::RequestRecord;

use crate::error::{ApiError, Result};
use crate::params::Form;
use crate::serving::run::{RequestClass, job_fn, run};
use crate::serving::state::HttpState;

/// GET /api/v1/status/self_metrics.
pub(crate) async fn self_metrics(
    State(state): State<HttpState>,
    Extension(record): Extension<Arc<RequestRecord>>,
    form: Form,
) -> Result {
    let app = Arc::clone(&state.app);
    let job = job_fn(move |work| {
        let pattern = Some(form.first("metric_name_pattern")).filter(|pattern| !pattern.is_empty());
        let wanted = pattern.map(Regexp::parse).transpose();
        let wanted = wanted
            .map_err(|error| ApiError::bad_data(format!("invalid metric_name_pattern: {error}")))?;
        let mut families = app.registry.gather();
        let n_metrics: usize = families
            .iter()
            .map(|family| family.get_metric().len())
            .sum();
        work.keep(n_metrics * METRIC_SIZE)?;
        if let Some(wanted) = wanted {
            let mut passing = Vec::new();
            for family in families {
                if wanted.is_match_in(&*work.ctx, family.name())? {
                    passing.push(family);
                }
            }
            families = passing;
        }
        work.respond_html_safe_json(&Described(&families))
    });
    run(&state, &record, RequestClass::Metadata, None, job).await
}

/// Bytes of a metric with its labels, about.
const METRIC_SIZE: usize = 512;

/// Describes families one after the other.
struct Described<'a>(&'a [MetricFamily]);

impl Serialize for Described<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(describe))
    }
}

fn describe(family: &MetricFamily) -> Value {
    let kind = family.get_field_type();
    let name_of_kind = match kind {
        MetricType::COUNTER => "COUNTER",
        MetricType::GAUGE => "GAUGE",
        MetricType::SUMMARY => "SUMMARY",
        MetricType::HISTOGRAM => "HISTOGRAM",
        MetricType::UNTYPED => "UNTYPED",
    };
    let metrics: Vec<_> = family
        .get_metric()
        .iter()
        .map(|metric| describe_metric(metric, kind))
        .collect();
    json!({ "name": family.name(), "help": family.help(), "type": name_of_kind, "metric": metrics })
}

fn describe_metric(metric: &Metric, kind: MetricType) -> Value {
    let mut object = Map::new();
    if !metric.get_label().is_empty() {
        let mut labels = Vec::new();
        for pair in metric.get_label() {
            labels.push(json!({ "name": pair.name(), "value": pair.value() }));
        }
        object.insert("label".into(), labels.into());
    }
    let (name, value) = match kind {
        MetricType::COUNTER => (
            "counter",
            json!({ "value": number(metric.get_counter().get_value()) }),
        ),
        MetricType::HISTOGRAM => ("histogram", histogram(metric.get_histogram())),
        MetricType::SUMMARY => ("summary", summary(metric.get_summary())),
        MetricType::GAUGE | MetricType::UNTYPED => (
            "gauge",
            json!({ "value": number(metric.get_gauge().get_value()) }),
        ),
    };
    object.insert(name.into(), value);
    Value::Object(object)
}

fn histogram(histogram: &prometheus::proto::Histogram) -> Value {
    let mut buckets = Vec::new();
    for bucket in histogram.get_bucket() {
        buckets.push(json!({
            "cumulativeCount": bucket.cumulative_count().to_string(),
            "upperBound": number(bucket.upper_bound()),
        }));
    }
    json!({
        "sampleCount": histogram.get_sample_count().to_string(),
        "sampleSum": number(histogram.get_sample_sum()),
        "bucket": buckets,
    })
}

fn summary(summary: &prometheus::proto::Summary) -> Value {
    let mut quantiles = Vec::new();
    for quantile in summary.get_quantile() {
        quantiles.push(json!({
            "quantile": quantile.quantile(),
            "value": number(quantile.value()),
        }));
    }
    json!({
        "sampleCount": summary.sample_count().to_string(),
        "sampleSum": number(summary.sample_sum()),
        "quantile": quantiles,
    })
}

fn number(value: f64) -> Value {
    match value {
        f64::INFINITY => json!("Infinity"),
        f64::NEG_INFINITY => json!("-Infinity"),
        _ if value.is_nan() => json!("NaN"),
        _ => json!(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_follow_the_json_mapping_of_protobuf() {
        let histogram = prometheus::Histogram::with_opts(
            prometheus::HistogramOpts::new("h", "Help.")
                .const_label("a", "b")
                .buckets(vec![0.5]),
        )
        .unwrap();
        histogram.observe(2.0);
        let families = prometheus::core::Collector::collect(&histogram);
        let metric = json!({
            "label": [{ "name": "a", "value": "b" }],
            "histogram": {
                "sampleCount": "1",
                "sampleSum": 2.0,
                "bucket": [{ "cumulativeCount": "0", "upperBound": 0.5 }],
            },
        });
        let expect =
            json!({ "name": "h", "help": "Help.", "type": "HISTOGRAM", "metric": [metric] });
        assert_eq!(describe(&families[0]), expect);
        assert_eq!(
            (number(f64::NAN), number(f64::INFINITY)),
            (json!("NaN"), json!("Infinity"))
        );
    }
}

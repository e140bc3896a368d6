//! /api/v1/status/self_metrics: the server's own metrics as JSON, in the form that protobuf prescribes for
//! `io.prometheus.client.MetricFamily`: 64-bit integers are strings, as are numbers that JSON has none for.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use prometheus::proto::{Metric, MetricFamily, MetricType};
use serde_json::{Map, Value, json};
use varve_tsdb::Regexp;

use super::runtime::success;
use crate::http::App;
use crate::http::error::{ApiError, ErrorKind};
use crate::http::params::Form;

/// GET /api/v1/status/self_metrics.
pub(crate) async fn self_metrics(State(app): State<Arc<App>>, form: Form) -> Response {
    let wanted = match form.first("metric_name_pattern") {
        "" => None,
        pattern => match Regexp::parse(pattern) {
            Ok(wanted) => Some(wanted),
            Err(refused) => {
                return ApiError::bad_data(format!("invalid metric_name_pattern: {refused}")).into_response();
            }
        },
    };
    let described = tokio::task::spawn_blocking(move || {
        let is_wanted = |family: &&MetricFamily| wanted.as_ref().is_none_or(|wanted| wanted.is_match(family.name()));
        app.gather().iter().filter(is_wanted).map(describe).collect::<Vec<_>>()
    });
    match described.await {
        Ok(families) => success(&families),
        Err(panicked) => ApiError::new(ErrorKind::Internal, panicked.to_string()).into_response(),
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
    let metrics: Vec<_> = family.get_metric().iter().map(|metric| describe_metric(metric, kind)).collect();
    json!({ "name": family.name(), "help": family.help(), "type": name_of_kind, "metric": metrics })
}

fn describe_metric(metric: &Metric, kind: MetricType) -> Value {
    let mut object = Map::new();
    if !metric.get_label().is_empty() {
        let label = |pair: &prometheus::proto::LabelPair| json!({ "name": pair.name(), "value": pair.value() });
        object.insert("label".into(), metric.get_label().iter().map(label).collect());
    }
    let (name, value) = match kind {
        MetricType::COUNTER => ("counter", json!({ "value": number(metric.get_counter().get_value()) })),
        MetricType::HISTOGRAM => ("histogram", histogram(metric.get_histogram())),
        MetricType::GAUGE | MetricType::SUMMARY | MetricType::UNTYPED => {
            ("gauge", json!({ "value": number(metric.get_gauge().get_value()) }))
        }
    };
    object.insert(name.into(), value);
    Value::Object(object)
}

fn histogram(histogram: &prometheus::proto::Histogram) -> Value {
    let bucket = |bucket: &prometheus::proto::Bucket| json!({ "cumulativeCount": bucket.cumulative_count().to_string(), "upperBound": number(bucket.upper_bound()) });
    json!({
        "sampleCount": histogram.get_sample_count().to_string(),
        "sampleSum": number(histogram.get_sample_sum()),
        "bucket": histogram.get_bucket().iter().map(bucket).collect::<Vec<_>>(),
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
    fn families_have_the_form_of_protobuf() {
        let histogram = prometheus::Histogram::with_opts(
            prometheus::HistogramOpts::new("h", "Help.").const_label("a", "b").buckets(vec![0.5]),
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
        let expect = json!({ "name": "h", "help": "Help.", "type": "HISTOGRAM", "metric": [metric] });
        assert_eq!(describe(&families[0]), expect);
        assert_eq!((number(f64::NAN), number(f64::INFINITY)), (json!("NaN"), json!("Infinity")));
    }
}

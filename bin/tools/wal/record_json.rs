//! Items of WAL records as JSON.

use serde_json::{Map, Value, json};
use varve_prometheus::recover::histogram_json;
use varve_tsdb::exemplars::Exemplar;
use varve_tsdb::histogram::Histogram;

/// Returns labels as an object.
pub(super) fn labels<'a>(labels: impl Iterator<Item = (&'a str, &'a str)>) -> Value {
    Value::Object(labels.map(|(name, value)| (name.to_owned(), json!(value))).collect::<Map<_, _>>())
}

/// Returns a sample. Its value is a string, since JSON has no NaN and no infinities.
pub(super) fn sample(series: u64, timestamp_ms: i64, value: f64) -> Value {
    json!({"series": series, "timestamp_ms": timestamp_ms, "value": format!("{value:?}")})
}

/// Returns a native histogram with its series.
pub(super) fn histogram(series: u64, timestamp_ms: i64, histogram: &Histogram) -> Value {
    let mut json = histogram_json(histogram);
    json["series"] = json!(series);
    json["timestamp_ms"] = json!(timestamp_ms);
    json
}

/// Returns an exemplar without its series.
pub(super) fn exemplar(exemplar: &Exemplar) -> Value {
    let value = format!("{:?}", exemplar.value);
    json!({"timestamp_ms": exemplar.timestamp_ms, "value": value, "labels": labels(exemplar.labels.iter())})
}

//! What records hold, one item each, as JSON.

use serde_json::{Map, Value, json};
use varve_tsdb::Labels;
use varve_tsdb::exemplars::Exemplar;
use varve_tsdb::histogram::{BucketSpan, Histogram, HistogramCounts};

/// Labels as an object.
pub(super) fn labels<'a>(labels: impl Iterator<Item = (&'a str, &'a str)>) -> Value {
    Value::Object(labels.map(|(name, value)| (name.to_owned(), json!(value))).collect::<Map<_, _>>())
}

/// A sample. JSON has no numbers for NaN and infinities, so values are texts.
pub(super) fn sample(series: u64, timestamp_ms: i64, value: f64) -> Value {
    json!({"series": series, "timestamp_ms": timestamp_ms, "value": format!("{value:?}")})
}

/// A native histogram.
pub(super) fn histogram(series: u64, timestamp_ms: i64, histogram: &Histogram) -> Value {
    let spans = |spans: &[BucketSpan]| spans.iter().map(|span| json!([span.offset, span.length])).collect::<Vec<_>>();
    let (count, zero_count, positive, negative) = match &histogram.counts {
        HistogramCounts::Integer { count, zero_count, positive, negative } => {
            (json!(count), json!(zero_count), json!(positive), json!(negative))
        }
        HistogramCounts::Float { count, zero_count, positive, negative } => {
            let texts = |values: &[f64]| json!(values.iter().map(|value| format!("{value:?}")).collect::<Vec<_>>());
            (json!(format!("{count:?}")), json!(format!("{zero_count:?}")), texts(positive), texts(negative))
        }
    };
    json!({
        "series": series,
        "timestamp_ms": timestamp_ms,
        "schema": histogram.schema,
        "sum": format!("{:?}", histogram.sum),
        "count": count,
        "zeroThreshold": histogram.zero_threshold,
        "zeroCount": zero_count,
        "positiveSpans": spans(&histogram.positive_spans),
        "positive": positive,
        "negativeSpans": spans(&histogram.negative_spans),
        "negative": negative,
        "customBounds": histogram.custom_bounds,
    })
}

/// An exemplar, without its series.
pub(super) fn exemplar(exemplar: &Exemplar) -> Value {
    let of = |labels_of: &Labels| labels(labels_of.iter());
    let value = format!("{:?}", exemplar.value);
    json!({"timestamp_ms": exemplar.timestamp_ms, "value": value, "labels": of(&exemplar.labels)})
}

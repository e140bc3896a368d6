//! WAL records and their items as JSON.

use std::io::Write;
use std::path::Path;

use serde_json::{Map, Value, json};
use varve_model::Exemplar;
use varve_model::histogram::Histogram;
use varve_prometheus::recover::histogram_json;

use super::filter::Filter;
use crate::output::Output;

/// Returns labels as an object.
pub(super) fn labels<'a>(labels: impl Iterator<Item = (&'a str, &'a str)>) -> Value {
    Value::Object(
        labels
            .map(|(name, value)| (name.to_owned(), json!(value)))
            .collect::<Map<_, _>>(),
    )
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

/// Prints a record on one line of JSON, or as text with a line per item, unless the filter excludes
/// all of it.
pub(super) fn print(
    out: &mut impl Write,
    filter: &Filter,
    format: Output,
    (path, offset, name): (&Path, u64, &str),
    fields: &[(&str, Value)],
    items: impl FnOnce() -> Vec<Value>,
) {
    if !filter.record(name) {
        return;
    }
    let items = items();
    if items.is_empty() && !filter.shows_empty() {
        return;
    }
    let text = match format {
        Output::Json => {
            let mut json = json!({"path": path, "offset": offset, "type": name, "items": items});
            fields
                .iter()
                .for_each(|(field, value)| json[*field] = value.clone());
            json.to_string()
        }
        Output::Table => {
            let head = format!("{}:{offset} {name} ({} items)", path.display(), items.len());
            items
                .iter()
                .fold(head, |text, item| format!("{text}\n  {item}"))
        }
    };
    // A failed write to standard output ends the process.
    let _ = writeln!(out, "{text}");
}

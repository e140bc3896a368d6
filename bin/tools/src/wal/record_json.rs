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

/// A record without its items.
pub(super) struct PrintedRecord<'a> {
    pub(super) path: &'a Path,
    pub(super) offset: u64,
    /// Its type.
    pub(super) name: &'a str,
    /// Further fields in JSON.
    pub(super) fields: &'a [(&'a str, Value)],
}

impl PrintedRecord<'_> {
    /// Prints the record on one line of JSON, or as text with a line per item, unless the filter
    /// excludes all of it.
    pub(super) fn print(
        &self,
        out: &mut impl Write,
        filter: &Filter,
        format: Output,
        items: impl FnOnce() -> Vec<Value>,
    ) {
        let Self {
            path,
            offset,
            name,
            fields,
        } = self;
        if !filter.includes_record(name) {
            return;
        }
        let items = items();
        if items.is_empty() && !filter.shows_empty() {
            return;
        }

        let text = match format {
            Output::Json => {
                let mut json =
                    json!({"path": path, "offset": offset, "type": name, "items": items});
                for (field, value) in *fields {
                    json[*field] = value.clone();
                }
                json.to_string()
            }
            Output::Table => {
                let mut text =
                    format!("{}:{offset} {name} ({} items)", path.display(), items.len());
                for item in &items {
                    text.push_str(&format!("\n  {item}"));
                }
                text
            }
        };
        // A failed write to standard output ends the process.
        let _ = writeln!(out, "{text}");
    }
}

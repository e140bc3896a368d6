//! Reads a usage record: a response of /api/v1/status/usage.

use serde::Deserialize;
use varve_advise::usage::{Entry, Snapshot};

#[derive(Deserialize)]
struct Response {
    data: Record,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    since_ms: i64,
    metrics: Vec<Use>,
    selectors: Vec<Use>,
    /// Selectors without a metric name, unless they are among `selectors`.
    #[serde(default)]
    exploration: Vec<Use>,
}

/// The parts of an entry that the analysis needs.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Use {
    #[serde(rename = "metric", alias = "selector")]
    text: Box<str>,
    last_ms: i64,
    all_labels: bool,
    matched_labels: Vec<Box<str>>,
    grouped_labels: Vec<Box<str>>,
}

/// Parses a response.
///
/// # Errors
/// If it is not a usage record.
pub(super) fn parse(text: &str) -> serde_json::Result<Snapshot> {
    let Response {
        data:
            Record {
                since_ms,
                metrics,
                selectors,
                exploration,
            },
    } = serde_json::from_str(text)?;

    Ok(Snapshot {
        since_ms,
        n_evicted: 0,
        metrics: metrics.into_iter().map(Use::entry).collect(),
        selectors: selectors
            .into_iter()
            .chain(exploration)
            .map(Use::entry)
            .collect(),
    })
}

impl Use {
    fn entry(self) -> Entry {
        Entry {
            text: self.text,
            last_ms: self.last_ms,
            all_labels: self.all_labels,
            matched: self.matched_labels.into_iter().collect(),
            grouped: self.grouped_labels.into_iter().collect(),
            ..Entry::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_is_read() {
        let entry = |key: &str| {
            let labels =
                r#""allLabels":false,"matchedLabels":["x"],"groupedLabels":["y"],"requesters":[]"#;
            format!("{{\"{key}\":\"{key}\",\"queries\":1,\"lastMs\":100,{labels}}}")
        };
        let metric = entry("metric");
        let selector = entry("selector");
        let data = format!(
            "\"sinceMs\":5,\"evicted\":1,\"metrics\":[{metric}],\"selectors\":[{selector}],\"exploration\":[{selector}]"
        );
        let record = parse(&format!("{{\"status\":\"success\",\"data\":{{{data}}}}}")).unwrap();
        assert_eq!(record.selectors.len(), 2);
        let [metric, selector] = [&record.metrics[0], &record.selectors[0]];
        assert_eq!(
            (
                record.since_ms,
                &*metric.text,
                &*selector.text,
                metric.last_ms
            ),
            (5, "metric", "selector", 100)
        );
        assert_eq!(
            [&metric.matched, &metric.grouped],
            [&["x".into()].into(), &["y".into()].into()]
        );
        assert!(parse("[]").is_err() && parse("{\"data\":{}}").is_err());
    }
}

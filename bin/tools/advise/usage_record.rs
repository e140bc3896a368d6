//! The needs of the usage record of a server, or of a copy of it in a file.

use std::rc::Rc;

use serde_json::Value;
use varve_query::usage::LabelSet;
use varve_tsdb::Matcher;

use super::needs::{Consumer, Location, Need, Needs, Selector};
use super::problems::Problem;
use super::template;

/// Adds the queries since a given time, and returns the start of the record in milliseconds.
///
/// `text` is a response of /api/v1/status/usage.
pub(super) fn read(
    file: &Rc<str>,
    text: &str,
    since_ms: i64,
    needs: &mut Needs,
    problems: &mut Vec<Problem>,
) -> Option<i64> {
    let location = |within: String| Location { file: Rc::clone(file), within };
    let data = match serde_json::from_str::<Value>(text) {
        Ok(response) if response.pointer("/data/metrics").is_some_and(Value::is_array) => response["data"].clone(),
        _ => {
            problems.push(Problem::new(&location(String::new()), "not a usage record", ""));
            return None;
        }
    };
    let list = |key: &str| data.get(key).and_then(Value::as_array).into_iter().flatten();
    let is_recent = |entry: &&Value| entry.get("lastMs").and_then(Value::as_i64).is_none_or(|last| last >= since_ms);
    for entry in list("metrics").filter(is_recent) {
        let Some(name) = entry.get("metric").and_then(Value::as_str) else { continue };
        let matchers = vec![Matcher::equal(varve_tsdb::labels::METRIC_NAME, name)];
        let selectors = vec![Selector { matchers, labels: labels(entry) }];
        needs.add(Need { location: location(format!("metric {name}")), consumer: Consumer::Reader, selectors });
    }
    // Selectors without a metric name are recorded as text.
    for text in list("selectors").filter(is_recent).filter_map(|entry| entry.get("selector")?.as_str()) {
        let location = location(format!("selector {text}"));
        let reading = template::read_plain(text);
        problems.extend(reading.problem.map(|reason| Problem::new(&location, reason, text)));
        needs.add(Need { location, consumer: Consumer::Reader, selectors: reading.selectors });
    }
    data.get("sinceMs").and_then(Value::as_i64)
}

fn labels(entry: &Value) -> LabelSet {
    if entry.get("allLabels").and_then(Value::as_bool).unwrap_or(true) {
        return LabelSet::all();
    }
    let names = |key: &str| entry.get(key).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let all: std::collections::BTreeSet<String> =
        names("matchedLabels").chain(names("groupedLabels")).map(str::to_owned).collect();
    LabelSet::none().union(LabelSet::Only(all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recently_queried_metrics_are_needed() {
        let (mut needs, mut problems) = (Needs::default(), Vec::new());
        let text = r#"{"status":"success","data":{"sinceMs":5,"metrics":[
            {"metric":"a","lastMs":100,"allLabels":false,"matchedLabels":["x"],"groupedLabels":["y"]},
            {"metric":"b","lastMs":99,"allLabels":true}],
            "selectors":[{"selector":"{__name__=~\"c.*\"}","lastMs":100}]}}"#;
        assert_eq!(read(&"f".into(), text, 100, &mut needs, &mut problems), Some(5));
        let found: Vec<_> = ["a", "b", "c"].into_iter().filter(|name| needs.of_metric(name).next().is_some()).collect();
        assert_eq!((found, problems.len()), (vec!["a", "c"], 0));
        let labels = &needs.of_metric("a").next().unwrap().1.labels;
        assert_eq!(["x", "y", "z"].map(|label| labels.contains(label)), [true, true, false]);
        assert_eq!(read(&"f".into(), "[]", 0, &mut needs, &mut problems), None);
        assert_eq!(problems.len(), 1);
    }
}

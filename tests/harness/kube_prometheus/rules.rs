//! The recording rules of ../shared/kube-prometheus/rules, and their results.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::super::{TimeSeries, series};
use super::shared;

/// A recording rule.
#[derive(Debug, Deserialize)]
pub(crate) struct RecordingRule {
    #[serde(rename = "record")]
    name: String,
    pub(crate) expr: String,
    /// Labels that it adds.
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct RuleFile {
    groups: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    rules: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Rule {
    Recording(RecordingRule),
    #[expect(dead_code, reason = "alerting rules are ignored")]
    Alerting {
        alert: String,
    },
}

/// Returns all recording rules, in the order of the files.
pub(crate) fn recording_rules() -> Vec<RecordingRule> {
    let mut files: Vec<_> = shared("kube-prometheus/rules")
        .read_dir()
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    let groups = files.iter().flat_map(|file| {
        let file: RuleFile =
            serde_yaml_ng::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
        file.groups
    });
    let rules = groups.flat_map(|group| group.rules);
    rules
        .filter_map(|rule| {
            if let Rule::Recording(rule) = rule {
                Some(rule)
            } else {
                None
            }
        })
        .collect()
}

impl RecordingRule {
    /// Returns the recorded series of a query result, a vector or a matrix with steps of whole
    /// seconds.
    pub(crate) fn record(&self, found: &Value) -> TimeSeries {
        let mut labels: BTreeMap<&str, &str> = BTreeMap::new();
        for (name, value) in found["metric"].as_object().expect("a metric is an object") {
            labels.insert(name, value.as_str().expect("a label is text"));
        }
        labels.extend(
            self.labels
                .iter()
                .map(|(name, value)| (name.as_str(), value.as_str())),
        );
        labels.insert("__name__", &self.name);
        let points = found["values"].as_array().into_iter().flatten();
        let points = points.chain(found["value"].is_array().then_some(&found["value"]));
        let samples: Vec<_> = points.map(sample).collect();
        series(&labels.into_iter().collect::<Vec<_>>(), &samples)
    }
}

fn sample(point: &Value) -> (i64, f64) {
    let value = point[1].as_str().and_then(|text| text.parse().ok());
    (
        point[0].as_i64().expect("a whole second") * 1000,
        value.expect("a value is printed"),
    )
}

//! Unit tests of rules, in the format of `promtool test rules`.
//!
//! ```text
//! text -> TestFile -> run: load samples (sequence), evaluate groups (store), compare alerts and samples
//! ```
//!
//! Used by `varve test rules`. Groups are evaluated by the code of the server, against a [`Db`] that the caller opens.
//! Evaluation order, verdicts and messages are those of promtool 3.16.

mod compare;
mod literal;
mod run;
pub mod sequence;
mod store;

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, de};
use varve_query::promql::{Features, parse_duration};
use varve_tsdb::Db;

use crate::file::Texts;

/// A file of unit tests.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TestFile {
    /// Patterns of rule files, relative to this file.
    #[serde(default)]
    pub rule_files: Vec<String>,
    #[serde(default, deserialize_with = "duration")]
    evaluation_interval: i64,
    #[serde(default)]
    group_eval_order: Vec<String>,
    #[serde(default)]
    tests: Vec<TestGroup>,
    #[serde(default)]
    fuzzy_compare: bool,
}

/// Input series, and tests on them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TestGroup {
    #[serde(default, deserialize_with = "duration")]
    interval: i64,
    #[serde(default)]
    input_series: Vec<InputSeries>,
    #[serde(default)]
    alert_rule_test: Vec<AlertTest>,
    #[serde(default)]
    promql_expr_test: Vec<ExprTest>,
    #[serde(default)]
    external_labels: Texts,
    #[serde(default)]
    external_url: String,
    #[serde(default)]
    name: String,
    /// RFC 3339, or seconds since the epoch.
    #[serde(default)]
    start_timestamp: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct InputSeries {
    series: String,
    values: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AlertTest {
    #[serde(default, deserialize_with = "duration")]
    eval_time: i64,
    #[serde(default)]
    alertname: String,
    #[serde(default, deserialize_with = "items")]
    exp_alerts: Vec<ExpectedAlert>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ExpectedAlert {
    exp_labels: Option<Texts>,
    exp_annotations: Option<Texts>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExprTest {
    #[serde(default)]
    expr: String,
    #[serde(default, deserialize_with = "duration")]
    eval_time: i64,
    #[serde(default, deserialize_with = "items")]
    exp_samples: Vec<ExpectedSample>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ExpectedSample {
    labels: String,
    value: f64,
    /// Replaces the value if it is not empty.
    histogram: String,
}

/// Options of [`TestFile::run`].
pub struct Settings<'a> {
    /// The optional parts of PromQL.
    pub features: Features,
    /// Ignores unknown fields in rule files.
    pub ignore_unknown_fields: bool,
    /// Prints the differing lines instead of both sides.
    pub diff: bool,
    /// Adds a dump of all samples to each result.
    pub debug: bool,
    /// Returns `true` for the names of the test groups to run.
    pub selects: &'a dyn Fn(&str) -> bool,
    /// Converts RFC 3339, or seconds since the epoch, to milliseconds.
    pub parse_time: &'a dyn Fn(&str) -> Result<i64, String>,
    /// Opens an empty store.
    pub open: &'a dyn Fn() -> Result<Db, String>,
}

/// The result of a test group.
#[derive(Debug)]
pub struct TestResult {
    /// The name.
    pub name: String,
    /// The messages of failed tests.
    pub failures: Vec<String>,
    /// All samples, with [`Settings::debug`].
    pub dump: Option<String>,
}

const EVALUATION_INTERVAL_MS: i64 = 60_000;

impl TestFile {
    /// Parses a file.
    ///
    /// # Errors
    /// A message with line and column.
    pub fn parse(text: &str) -> Result<Self, String> {
        serde_yaml_ng::from_str(text).map_err(|error| error.to_string())
    }

    /// Runs the selected test groups with the rules of files: names and texts.
    ///
    /// # Errors
    /// The order of evaluation names a group twice.
    pub fn run(&self, rule_files: &[(String, String)], settings: &Settings<'_>) -> Result<Vec<TestResult>, String> {
        let mut order = BTreeMap::new();
        for (name, position) in self.group_eval_order.iter().zip(0..) {
            if order.insert(name.as_str(), position).is_some() {
                return Err(format!("group name repeated in evaluation order: {name}"));
            }
        }
        let interval_ms = if self.evaluation_interval == 0 { EVALUATION_INTERVAL_MS } else { self.evaluation_interval };
        let is_selected = |group: &&TestGroup| (settings.selects)(&group.name);
        let results = self.tests.iter().enumerate().filter(|(_, group)| is_selected(group)).map(|(i, group)| {
            let name = if group.name.is_empty() { format!("unnamed#{i}") } else { group.name.clone() };
            let context =
                run::Context { order: &order, interval_ms, is_fuzzy: self.fuzzy_compare, rule_files, settings };
            let (failures, dump) = match run::run(group, &context) {
                Ok(outcome) => outcome,
                Err(failures) => (failures, None),
            };
            TestResult { name, failures, dump }
        });
        Ok(results.collect())
    }
}

fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    text.map_or(Ok(0), |text| parse_duration(&text).map_err(de::Error::custom))
}

fn items<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

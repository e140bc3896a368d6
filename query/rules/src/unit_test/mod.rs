//! Unit tests of rules, in the format of `promtool test rules`.
//!
//! ```text
//! text -> document -> test_run: load samples (sequence, store), evaluate groups, compare alerts and samples
//! ```
//!
//! Used by `varve test rules`. Groups are evaluated by the code of the server, against a [`Db`]
//! that the caller opens. Evaluation order, verdicts and messages are those of promtool 3.16.

mod compare;
mod document;
mod literal;
mod scanner;
pub mod sequence;
mod store;
mod test_run;

use std::collections::BTreeMap;

use varve_promql::Features;
use varve_tsdb::Db;

pub use document::TestFile;
use document::{AlertTest, ExpectedSample, ExprTest, TestGroup};

/// Options of [`TestFile::run`].
pub struct TestSettings<'a> {
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
    /// All samples, with [`TestSettings::debug`].
    pub dump: Option<String>,
}

const EVALUATION_INTERVAL_MS: i64 = 60_000;

impl TestFile {
    /// Runs the selected test groups with the rules of files: names and texts.
    ///
    /// # Errors
    /// The order of evaluation names a group twice.
    pub fn run(
        &self,
        rule_files: &[(String, String)],
        settings: &TestSettings<'_>,
    ) -> Result<Vec<TestResult>, String> {
        let mut order = BTreeMap::new();
        for (name, position) in self.group_eval_order.iter().zip(0..) {
            if order.insert(name.as_str(), position).is_some() {
                return Err(format!("group name repeated in evaluation order: {name}"));
            }
        }
        let interval_ms = if self.evaluation_interval == 0 {
            EVALUATION_INTERVAL_MS
        } else {
            self.evaluation_interval
        };
        let context = test_run::Context {
            order: &order,
            interval_ms,
            is_fuzzy: self.fuzzy_compare,
            rule_files,
            settings,
        };
        let mut results = Vec::new();
        for (i, group) in self.tests.iter().enumerate() {
            if !(settings.selects)(&group.name) {
                continue;
            }
            let name = if group.name.is_empty() {
                format!("unnamed#{i}")
            } else {
                group.name.clone()
            };
            let (failures, dump) = match test_run::run(group, &context) {
                Ok(outcome) => outcome,
                Err(failures) => (failures, None),
            };
            results.push(TestResult {
                name,
                failures,
                dump,
            });
        }
        Ok(results)
    }
}

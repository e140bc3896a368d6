//! Runs one test group.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use varve_promql::decimal::General;
use varve_promql::duration::print_duration;
use varve_promql::quote::quoted;
use varve_query::{Engine, EngineOptions, Value};

use super::compare::{
    self, AlertTexts, ParsedSample, indented, print_alerts, print_difference, print_samples,
};
use super::sequence;
use super::store::{Input, Store};
use super::{AlertTest, ExprTest, TestGroup, TestSettings};
use crate::alert::{ALERT_NAME, AlertState, RestoreOptions};
use crate::alerts_max::AlertsMax;
use crate::file;
use crate::group::{self, Group, Mode};
use crate::time::Time;

/// State that all test groups of a file share.
pub(super) struct Context<'a> {
    pub(super) order: &'a BTreeMap<&'a str, usize>,
    pub(super) interval_ms: i64,
    pub(super) is_fuzzy: bool,
    pub(super) rule_files: &'a [(String, String)],
    pub(super) settings: &'a TestSettings<'a>,
}

/// The year 1.
const NO_TIME_MS: i64 = -62_135_596_800_000;

/// promtool's lookback delta.
const LOOKBACK_DELTA_MS: i64 = 300_000;

/// Maximum number of evaluations of a test group.
const EVALUATIONS_MAX: i64 = 10_000_000;

/// Runs a test group. Returns the failures, and a dump of all samples if it is requested.
///
/// # Errors
/// The failures, if the group cannot run to its end.
pub(super) fn run(
    test: &TestGroup,
    context: &Context<'_>,
) -> Result<(Vec<String>, Option<String>), Vec<String>> {
    let mut test_run = TestRun::new(test, context)?;
    let mut failures = test_run.evaluate_rules()?;
    failures.extend(
        test.promql_expr_test
            .iter()
            .filter_map(|test| test_run.check_expr(test).err()),
    );
    let dump = if context.settings.debug {
        Some(test_run.dump())
    } else {
        None
    };
    Ok((failures, dump))
}

/// The run of one test group.
struct TestRun<'a> {
    test: &'a TestGroup,
    context: &'a Context<'a>,
    store: Store,
    groups: Vec<Group>,
    settings: group::GroupSettings,
    start_ms: i64,
}

impl<'a> TestRun<'a> {
    fn new(test: &'a TestGroup, context: &'a Context<'a>) -> Result<Self, Vec<String>> {
        let one = |error: String| vec![error];
        let series_interval_ms = if test.interval == 0 {
            context.interval_ms
        } else {
            test.interval
        };
        let start_ms = match &test.start_timestamp {
            None => 0,
            Some(text) => (context.settings.parse_time)(text).map_err(one)?,
        };
        // As in Go, the year 1 is no time.
        let start_ms = if start_ms == NO_TIME_MS { 0 } else { start_ms };
        let series = inputs(test).map_err(one)?;
        let features = context.settings.features;
        let engine = Engine::new(EngineOptions {
            lookback_delta_ms: LOOKBACK_DELTA_MS,
            samples_max: usize::MAX,
            subquery_step_ms: context.interval_ms,
            parallelism: 1,
            cache_size: 0,
            features,
        });
        let db = (context.settings.open)().map_err(one)?;
        let settings = group::GroupSettings {
            query_offset: Duration::ZERO,
            resend_delay: Duration::ZERO,
            restore: RestoreOptions {
                outage_tolerance: Duration::ZERO,
                grace_period: Duration::ZERO,
            },
            external_labels: test.external_labels.clone(),
            external_url: test.external_url.clone(),
            threads: None,
        };
        let groups = groups(
            context,
            Duration::from_millis(series_interval_ms.max(1) as u64),
        )?;
        let store = Store {
            db,
            engine,
            start_ms,
            interval_ms: series_interval_ms,
            series,
        };
        Ok(Self {
            test,
            context,
            store,
            groups,
            settings,
            start_ms,
        })
    }

    /// Evaluates all groups at all times, and checks alerts at the times of their tests. Returns the
    /// failures.
    ///
    /// # Errors
    /// The failures, if not all times could be evaluated.
    fn evaluate_rules(&mut self) -> Result<Vec<String>, Vec<String>> {
        let mut failures = Vec::new();
        let alert_times = self.test.alert_rule_test.iter().map(|test| test.eval_time);
        let times: BTreeSet<i64> = alert_times.clone().collect();
        let last_ms = alert_times
            .chain(self.test.promql_expr_test.iter().map(|test| test.eval_time))
            .max()
            .unwrap_or(0);
        if let Some(unnamed) = self
            .test
            .alert_rule_test
            .iter()
            .find(|test| test.alertname.is_empty())
        {
            let group = &self.test.name;
            let group = if group.is_empty() {
                String::new()
            } else {
                format!(" (in TestGroup {group})")
            };
            let time = print_duration(unnamed.eval_time);
            return Err(vec![format!(
                "an item under alert_rule_test misses required attribute alertname at eval_time {time}{group}"
            )]);
        }
        let evaluation_interval_ms = self.context.interval_ms;
        if last_ms / evaluation_interval_ms >= EVALUATIONS_MAX {
            return Err(vec![format!("more than {EVALUATIONS_MAX} evaluations")]);
        }
        for after_ms in (0..=last_ms).step_by(evaluation_interval_ms as usize) {
            let now_ms = self.start_ms + after_ms;
            if let Err(error) = self.store.load_until(now_ms) {
                failures.push(error);
                continue;
            }
            let errors = self.evaluate_groups(now_ms);
            if !errors.is_empty() {
                failures.extend(errors);
                return Err(failures);
            }
            for &time_ms in times.range(after_ms..after_ms + evaluation_interval_ms) {
                let tests = self
                    .test
                    .alert_rule_test
                    .iter()
                    .filter(|test| test.eval_time == time_ms);
                failures.extend(tests.filter_map(|test| self.check_alerts(test).err()));
            }
        }
        Ok(failures)
    }

    /// Evaluates all groups once. Returns the errors of rules.
    fn evaluate_groups(&self, now_ms: i64) -> Vec<String> {
        let mut errors = Vec::new();
        for group in &self.groups {
            group.evaluate(
                Time::from_ms(now_ms),
                Mode::Live,
                &self.store,
                &self.settings,
            );
            for rule in &group.rules {
                if let Some(error) = rule.last_error() {
                    let time = Duration::from_millis(now_ms.max(0) as u64);
                    let time = varve_template::print_go_duration(time);
                    errors.push(format!(
                        "    rule: {}, time: {time}, err: {error}",
                        rule.definition.name
                    ));
                }
            }
        }
        errors
    }

    fn check_alerts(&self, test: &AlertTest) -> Result<(), String> {
        let rules = self.groups.iter().flat_map(|group| &group.rules);
        let rules =
            rules.filter(|rule| rule.is_alerting() && rule.definition.name == test.alertname);
        let firing = rules
            .flat_map(|rule| rule.status().alerts)
            .filter(|alert| alert.state == AlertState::Firing);
        let mut found: Vec<_> = firing
            .map(|alert| AlertTexts {
                labels: alert
                    .labels
                    .iter()
                    .map(|(name, text)| (name.to_owned(), text.to_owned()))
                    .collect(),
                annotations: (*alert.annotations).clone(),
            })
            .collect();
        let mut expected: Vec<_> = test
            .exp_alerts
            .iter()
            .map(|alert| {
                let mut labels = alert.exp_labels.clone();
                labels.insert(ALERT_NAME.to_owned(), test.alertname.clone());
                AlertTexts {
                    labels,
                    annotations: alert.exp_annotations.clone(),
                }
            })
            .collect();
        found.sort();
        expected.sort();
        if found == expected {
            return Ok(());
        }
        let name = if self.test.name.is_empty() {
            String::new()
        } else {
            format!("    name: {},\n", self.test.name)
        };
        let [expected, found] = [print_alerts(&expected), print_alerts(&found)]
            .map(|text| indented(&text, "            "));
        let heading = format!(
            "{name}    alertname: {}, time: {}, \n",
            test.alertname,
            print_duration(test.eval_time)
        );
        Err(if self.context.settings.diff {
            let difference = indented(&print_difference(&expected, &found), "            ");
            format!("{heading}        diff: {difference}")
        } else {
            format!("{heading}        exp:{expected}, \n        got:{found}")
        })
    }

    fn check_expr(&self, test: &ExprTest) -> Result<(), String> {
        let heading = format!(
            "    expr: {}, time: {},",
            quoted(&test.expr),
            print_duration(test.eval_time)
        );
        let failed = |error| format!("{heading} err: {error}");
        let found = self
            .store
            .evaluate(&test.expr, self.start_ms + test.eval_time)
            .map_err(failed)?;
        let mut found: Vec<_> = found.into_iter().map(ParsedSample::of).collect();
        let features = &self.context.settings.features;
        let expected = test
            .exp_samples
            .iter()
            .map(|expected| ParsedSample::parse(expected, features));
        let expected = expected.collect::<Result<Vec<_>, _>>();
        let mut expected = expected.map_err(failed)?;
        compare::sort(&mut found);
        compare::sort(&mut expected);
        if compare::are_equal(&expected, &found, self.context.is_fuzzy) {
            return Ok(());
        }
        Err(format!(
            "{heading}\n        exp: {}\n        got: {}",
            print_samples(&expected),
            print_samples(&found)
        ))
    }

    /// Returns all samples of input series and rules.
    fn dump(&self) -> String {
        let times = self.test.alert_rule_test.iter().map(|test| test.eval_time);
        let last_ms = times
            .chain(self.test.promql_expr_test.iter().map(|test| test.eval_time))
            .max()
            .unwrap_or(0);
        let range_ms = (last_ms / 1000 + 1) * 1000;
        let expr = format!("{{__name__=~\".+\"}}[{}]", print_duration(range_ms));
        let mut out = String::new();
        if let Ok(Value::Matrix(matrix)) = self.store.value(&expr, self.start_ms + range_ms) {
            for series in matrix {
                let _ = writeln!(out, "{} =>", series.labels);
                for point in &series.points {
                    let _ = writeln!(out, "{} @[{}]", General(point.value), point.timestamp_ms);
                }
                for point in &series.histograms {
                    let _ = writeln!(out, "{} @[{}]", point.histogram, point.timestamp_ms);
                }
            }
        }
        out
    }
}

/// Returns the input series. As in promtool, each is a line of a text that ends at an empty line or
/// a comment. Of several series with the same labels, the last one counts.
fn inputs(test: &TestGroup) -> Result<Vec<Input>, String> {
    let text: String = test
        .input_series
        .iter()
        .map(|input| format!("{} {}\n", input.series, input.values))
        .collect();
    let lines = text
        .split('\n')
        .map(str::trim)
        .take_while(|line| !line.is_empty() && !line.starts_with('#'));
    let inputs = lines
        .map(|line| {
            let (labels, sequence) =
                sequence::parse_series(line).map_err(|error| format!("{line}: {error}"))?;
            Ok((
                labels.clone(),
                Input {
                    labels,
                    sequence,
                    next: 0,
                    last: None,
                },
            ))
        })
        .collect::<Result<BTreeMap<_, _>, String>>()?;
    Ok(inputs.into_values().collect())
}

/// Returns the groups of all rule files, in the order of evaluation.
fn groups(context: &Context<'_>, interval: Duration) -> Result<Vec<Group>, Vec<String>> {
    let TestSettings {
        features,
        ignore_unknown_fields,
        ..
    } = *context.settings;
    let options = file::Options {
        features,
        ignore_unknown_fields,
        request: None,
    };
    let alerts_max = Arc::new(AlertsMax::new(usize::MAX));
    let mut groups = Vec::new();
    for (name, text) in context.rule_files {
        let parsed = file::parse(text, &options);
        let parsed = parsed.map_err(|errors| {
            errors
                .iter()
                .map(|error| format!("{name}: {error}"))
                .collect::<Vec<_>>()
        })?;
        for group in parsed.files.into_iter().flat_map(|file| file.groups) {
            groups.push(Group::new(
                name.as_str().into(),
                group,
                interval,
                false,
                &alerts_max,
            ));
        }
    }
    groups.sort_by_key(|group| context.order.get(group.name()).copied().unwrap_or(0));
    Ok(groups)
}

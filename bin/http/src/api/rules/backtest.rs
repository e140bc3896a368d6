//! /api/v1/rules/backtest: when the alerts of a rule file would have fired. Evaluates the groups of
//! the file at the times of a range, over stored samples. Nothing is written or sent.
//!
//! Recording rules of the file are not evaluated: alerts read their series from the store.
//!
//! Templates run under the context of the request, which is charged with what is kept until the
//! response: results, alerts, errors and periods.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use parking_lot::Mutex;
use varve_context::{Charge, QueryContext};
use varve_model::labels::METRIC_NAME;
use varve_model::{Labels, MatchOp, Matcher, Rejection, Sample, TimeRange};
use varve_promql::selectors;
use varve_query::{MatrixSeries, Point, Request, Steps, Value, VectorSample};
use varve_rules::file::{self, RuleFile, RuleKind};
use varve_rules::storage::{Answer, Failure, Output, OutputBudget, Query, RuleRef, Storage};
use varve_rules::{AlertsMax, Group, GroupSettings, Mode, Notification, Time};
use varve_server::requests::record::RequestRecord;
use varve_server::store::Store;
use varve_tsdb::ReadContext;
use varve_tsdb::select::SelectHints;

use super::firings::Firings;
use crate::error::{ApiError, Result};
use crate::params::Form;
use crate::serving::run::{RequestClass, Work, job_fn, run};
use crate::serving::state::HttpState;
use varve_wire::api::backtest::{Backtest, BacktestedRule, Firing};

/// Maximum number of evaluations of a group.
const EVALUATIONS_MAX: i64 = 1_000_000;
/// Maximum number of returned periods of firing.
const FIRINGS_MAX: usize = 10_000;
/// Number of evaluations whose results are computed at once.
const STEPS_AT_ONCE: i64 = 500;
/// Maximum number of alerts at a time.
const ALERTS_MAX: usize = 100_000;
/// Bytes of the entry of an expression, besides its text and its series.
const RESULTS_SIZE: usize = 256;

/// POST /api/v1/rules/backtest.
pub(crate) async fn backtest(
    State(state): State<HttpState>,
    Extension(record): Extension<Arc<RequestRecord>>,
    form: Form,
) -> Result {
    let range = read_range(&form)?;
    let timeout = form.timeout()?;
    let app = state.app.clone();
    let job = job_fn(move |work| {
        let mut charge = work.ctx.charge();
        let text = form.yaml("rules", &mut charge)?;
        let parsed = parse(work, text, app.rules.features())?;
        let (default_interval, settings) = app.rules.settings();
        // A backtest runs on the thread of its request.
        let settings = GroupSettings {
            threads: None,
            ..settings
        };
        let mut out = Backtest {
            rules: Vec::new(),
            is_truncated: false,
            warnings: Vec::new(),
        };
        for file in &parsed.files {
            out.warnings.extend(missing_series(work, file, range)?);
        }

        // One more shows that there are too many.
        let mut left = FIRINGS_MAX + 1;
        for file in parsed.files {
            for definition in only_alerts(file).groups {
                if definition.rules.is_empty() {
                    continue;
                }
                let alerts_max = Arc::new(AlertsMax::new(ALERTS_MAX));
                let path = form.first("file").into();
                let group = Group::new(path, definition, default_interval, false, &alerts_max);
                let mut firings = Firings::new(work, &group, left);
                let rules = run_group(work, &group, &settings, range, &mut firings)?;
                out.rules.extend(rules);
                left = firings.left;
                charge.absorb(firings.charge);
            }
        }
        if left == 0 {
            out.is_truncated = true;
            remove_last_firing(&mut out.rules);
        }
        work.respond_json(&out)
    });
    run(&state, &record, RequestClass::Query, timeout, job).await
}

fn read_range(form: &Form) -> Result<TimeRange> {
    let start_ms = read_time(form, "start")?;
    let end_ms = read_time(form, "end")?;
    if end_ms < start_ms {
        return Err(ApiError::invalid_parameter(
            "end",
            "end timestamp must not be before start time",
        ));
    }
    Ok(TimeRange { start_ms, end_ms })
}

fn read_time(form: &Form, name: &'static str) -> Result<i64> {
    form.optional_time_ms(name)?
        .ok_or_else(|| ApiError::invalid_parameter(name, "the parameter is required"))
}

fn remove_last_firing(rules: &mut [BacktestedRule]) {
    for rule in rules.iter_mut().rev() {
        if rule.firings.pop().is_some() {
            return;
        }
    }
}

fn parse(work: &Work, text: &str, features: varve_promql::Features) -> Result<file::Parsed> {
    let options = file::Options {
        features,
        request: Some(QueryContext::clone(&work.ctx)),
        ..file::Options::default()
    };
    let parsed = file::parse(text, &options);
    // An error may be the deadline.
    work.ctx.check()?;
    parsed.map_err(|errors| {
        let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
        ApiError::invalid_parameter("rules", errors.join("; "))
    })
}

fn only_alerts(mut file: RuleFile) -> RuleFile {
    for group in &mut file.groups {
        group
            .rules
            .retain(|rule| matches!(rule.kind, RuleKind::Alerting(_)));
        group.state = file::GroupState::Active;
    }
    file
}

/// Returns a warning for each metric that the file records, that its alerts read, and that the
/// store does not have.
fn missing_series(work: &Work, file: &RuleFile, range: TimeRange) -> Result<Vec<String>> {
    let mut recorded = BTreeSet::new();
    let mut read = Vec::new();
    for rule in file.groups.iter().flat_map(|group| &group.rules) {
        match rule.kind {
            RuleKind::Alerting(_) => read.extend(selectors(&rule.expr.tree).into_iter().flatten()),
            RuleKind::Recording => {
                recorded.insert(rule.name.as_str());
            }
        }
    }
    let names: BTreeSet<&str> = read
        .iter()
        .filter(|matcher| matcher.name() == METRIC_NAME && matcher.op() == MatchOp::Equal)
        .map(Matcher::value)
        .collect();
    let mut warnings = Vec::new();
    for name in recorded.intersection(&names) {
        let hints = SelectHints {
            only_newest: true,
            ..SelectHints::default()
        };
        let mut found = work.store.db.select_with(
            &work.ctx,
            &[Matcher::equal(METRIC_NAME, name)],
            range,
            hints,
        )?;
        if found.next().is_none() {
            warnings.push(format!(
                "the store has no samples of {name}, which the file records: backfill it first"
            ));
        }
    }
    Ok(warnings)
}

/// Failed evaluations of a rule.
#[derive(Debug, Clone, Default)]
struct RuleFailures {
    n_failures: u64,
    /// Empty if there are none.
    last_error: String,
}

fn run_group(
    work: &Work,
    group: &Group,
    settings: &GroupSettings,
    range: TimeRange,
    firings: &mut Firings,
) -> Result<Vec<BacktestedRule>> {
    let schedule = group.schedule();
    let interval_ms = i64::try_from(schedule.interval().as_millis())
        .unwrap_or(i64::MAX)
        .max(1);
    let mut tick = schedule.at_or_before(Time::from_ms(range.start_ms));
    if tick.ms() < range.start_ms {
        tick = schedule.after(tick);
    }
    let n_ticks = n_evaluations(tick.ms(), range.end_ms, interval_ms);
    if n_ticks > EVALUATIONS_MAX {
        let reason = format!(
            "{n_ticks} evaluations of group {:?} exceed the limit of {EVALUATIONS_MAX}",
            group.name()
        );
        return Err(ApiError::bad_data(reason));
    }

    let offset_ms = i64::try_from(group.query_offset(settings).as_millis()).unwrap_or(i64::MAX);
    let history = History {
        store: &work.store,
        ctx: &work.ctx,
        interval_ms,
        end_ms: range.end_ms.saturating_sub(offset_ms),
        results: Mutex::default(),
    };
    let mut failures = vec![RuleFailures::default(); group.rules.len()];
    for _ in 0..n_ticks {
        work.ctx.check()?;
        let _durations = group.evaluate(tick, Mode::Live, &history, settings);
        for (rule_idx, rule) in group.rules.iter().enumerate() {
            if let Some(error) = rule.last_error() {
                let failures = &mut failures[rule_idx];
                failures.n_failures += 1;
                firings.charge.grow(error.len())?;
                firings.charge.shrink(failures.last_error.len());
                failures.last_error = error;
            }
            rule.for_each_firing(|alert| firings.note(rule_idx, alert, tick.ms()))?;
        }
        firings.end_others(tick.ms())?;
        tick = schedule.after(tick);
    }
    work.ctx.check()?;

    let firings = firings.finish()?;
    let n_ticks = n_ticks.max(0).cast_unsigned();
    Ok(backtested_rules(group, n_ticks, failures, firings))
}

fn backtested_rules(
    group: &Group,
    n_evaluations: u64,
    failures: Vec<RuleFailures>,
    firings: Vec<Vec<Firing>>,
) -> Vec<BacktestedRule> {
    let mut rules = Vec::with_capacity(group.rules.len());
    for ((rule, failures), firings) in group.rules.iter().zip(failures).zip(firings) {
        rules.push(BacktestedRule {
            group: group.name().to_owned(),
            name: rule.definition.name.clone(),
            query: rule.expr.to_string(),
            evaluations: n_evaluations,
            failures: failures.n_failures,
            last_error: failures.last_error,
            firings,
        });
    }
    rules
}

/// Returns the number of evaluations from the first one to the end, 0 or less if the first one is
/// after the end.
fn n_evaluations(first_ms: i64, end_ms: i64, interval_ms: i64) -> i64 {
    end_ms
        .saturating_sub(first_ms)
        .div_euclid(interval_ms)
        .saturating_add(1)
}

/// The store as a group sees it at past times.
struct History<'a> {
    store: &'a Store,
    ctx: &'a ReadContext,
    interval_ms: i64,
    /// The last evaluation.
    end_ms: i64,
    /// Results of expressions at the next evaluations.
    results: Mutex<BTreeMap<String, Results>>,
}

struct Results {
    until_ms: i64,
    series: Vec<Arc<MatrixSeries>>,
    _charge: Charge,
}

impl History<'_> {
    /// Returns the result of an expression at a time, which is computed for many times at once.
    fn result(&self, expr: &str, timestamp_ms: i64) -> Result<Vec<VectorSample>, String> {
        let mut results = self.results.lock();
        if results
            .get(expr)
            .is_none_or(|found| timestamp_ms > found.until_ms)
        {
            let until_ms = (timestamp_ms + (STEPS_AT_ONCE - 1) * self.interval_ms)
                .min(self.end_ms)
                .max(timestamp_ms);
            let times = Steps::range(timestamp_ms, until_ms, self.interval_ms);
            let result =
                self.store
                    .engine
                    .run(&self.store.db, self.ctx, &Request::new(expr, times));
            let result = result.map_err(|error| error.to_string())?;
            let Value::Matrix(series) = result.value else {
                return Err("the result is not a matrix".to_owned());
            };
            // Templates may have any number of expressions.
            let mut charge = result.charge;
            charge
                .grow_without_waiting(RESULTS_SIZE + expr.len())
                .map_err(|error| error.to_string())?;
            let found = Results {
                until_ms,
                series,
                _charge: charge,
            };
            results.insert(expr.to_owned(), found);
        }
        let found = results.get(expr).map_or(&[][..], |found| &found.series);
        Ok(found
            .iter()
            .filter_map(|series| sample_at(series, timestamp_ms))
            .collect())
    }
}

/// Returns the sample of a series at a time.
fn sample_at(series: &MatrixSeries, timestamp_ms: i64) -> Option<VectorSample> {
    if let Ok(idx) = series
        .points
        .binary_search_by_key(&timestamp_ms, |point| point.timestamp_ms)
    {
        return Some(VectorSample {
            labels: series.labels.clone(),
            point: series.points[idx],
            histogram: None,
        });
    }
    let idx = series
        .histograms
        .binary_search_by_key(&timestamp_ms, |point| point.timestamp_ms)
        .ok()?;
    Some(VectorSample {
        labels: series.labels.clone(),
        point: Point {
            timestamp_ms,
            value: 0.0,
        },
        histogram: Some(Arc::clone(&series.histograms[idx].histogram)),
    })
}

impl Storage for History<'_> {
    fn query(&self, _from: &RuleRef<'_>, query: &Query<'_>) -> Result<Answer, Failure> {
        let samples = self
            .result(query.expr, query.timestamp_ms)
            .map_err(Failure::new)?;
        Ok(Answer {
            samples,
            ..Answer::default()
        })
    }

    fn evaluation_context(&self, _interval: Duration) -> QueryContext {
        QueryContext::clone(self.ctx)
    }

    fn append(&self, _: OutputBudget, _: &[Output]) -> Result<Vec<Rejection>, Failure> {
        Ok(Vec::new())
    }

    fn newest(&self, _: &[Matcher], _: TimeRange) -> Result<Vec<(Labels, Sample)>, Failure> {
        Ok(Vec::new())
    }

    fn now(&self) -> Time {
        Time::default()
    }

    fn is_stopping(&self) -> bool {
        self.ctx.interrupted().is_some()
    }

    fn notify(&self, _alerts: Vec<Notification>) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With the earliest and the latest time, the number was negative, so that nothing was
    /// evaluated.
    #[test]
    fn a_range_of_any_length_has_its_evaluations() {
        for (range, expect) in [
            ((0, 119), 2),
            ((0, 120), 3),
            ((120, 119), 0),
            ((i64::MAX, i64::MIN), i64::MIN / 60),
        ] {
            assert_eq!(n_evaluations(range.0, range.1, 60), expect, "{range:?}");
        }
        assert!(n_evaluations(Time::from_ms(i64::MIN).ms(), i64::MAX, 60_000) > EVALUATIONS_MAX);
    }
}

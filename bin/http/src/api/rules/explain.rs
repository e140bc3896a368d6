//! /api/v1/rules/explain: why an alert fires or does not. Evaluates the expression of the rule and
//! each of its parts, and finds the part that leaves no series.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use varve_env::{Clock, SystemClock};
use varve_model::{Labels, TimeRange};
use varve_promql::ast::{BinaryOp, Expr, ExprKind, ValueType};
use varve_promql::duration::print_duration;
use varve_promql::print;
use varve_query::usage::{self, SelectorUse};
use varve_query::{Error, Request, Steps, Value, VectorSample};
use varve_rules::file::RuleKind;
use varve_rules::rule::{Rule, RuleStatus};
use varve_rules::{Alert, AlertState, Group, Time};
use varve_server::requests::record::RequestRecord;
use varve_system::excerpt::quotable;

use super::kept_status;
use crate::error::{ApiError, ErrorKind, Result};
use crate::params::Form;
use crate::serving::run::{RequestClass, Work, job_fn, run};
use crate::serving::state::HttpState;
use varve_wire::api::explain::{
    ExampleSeries, ExplainedAlert, ExplainedStep, Explanation, Explanations,
};

/// Maximum number of parts of an expression that are evaluated.
const STEPS_MAX: usize = 100;
/// Maximum number of series that are shown of a part.
const EXAMPLES_MAX: usize = 3;
/// Maximum number of alerts that are shown of a rule.
const ALERTS_MAX: usize = 100;

/// GET /api/v1/rules/explain.
pub(crate) async fn explain(
    State(state): State<HttpState>,
    Extension(record): Extension<Arc<RequestRecord>>,
    form: Form,
) -> Result {
    let name = match form.first("alert") {
        "" => return Err(ApiError::bad_data("missing required parameter \"alert\"")),
        name => name.to_owned(),
    };
    let [group, file] = ["rule_group", "file"].map(|name| form.first(name).to_owned());
    let time_ms = form
        .optional_time_ms("time")?
        .unwrap_or_else(|| SystemClock.now_ms());
    let timeout = form.timeout()?;
    let app = state.app.clone();
    let job = job_fn(move |work| {
        let set = app.rules.set();
        let (_default_interval, settings) = app.rules.settings();
        let mut rules = Vec::new();
        for rule_group in set.groups() {
            let is_wanted = (group.is_empty() || rule_group.name() == group)
                && (file.is_empty() || *rule_group.file == *file);
            if !is_wanted {
                continue;
            }
            let offset = rule_group.query_offset(&settings);
            for rule in &rule_group.rules {
                if rule.is_alerting() && rule.definition.name == name {
                    rules.push(explain_rule(work, rule_group, rule, time_ms, offset)?);
                }
            }
        }
        if rules.is_empty() {
            return Err(ApiError::new(
                ErrorKind::NotFound,
                format!("no alerting rule is named {:?}", quotable(&name)),
            ));
        }
        work.respond_json(&Explanations { rules })
    });
    run(&state, &record, RequestClass::Query, timeout, job).await
}

/// Explains a rule as if it were evaluated at a time, with this query offset.
fn explain_rule(
    work: &Work,
    group: &Group,
    rule: &Rule,
    time_ms: i64,
    offset: Duration,
) -> Result<Explanation> {
    let query_time_ms = (Time::from_ms(time_ms) - offset).ms();
    let steps = steps(&rule.definition.expr.tree, |expr| {
        evaluate(work, expr, query_time_ms)
    })?;
    let is_window_empty = match steps.first() {
        Some(whole) if whole.shown.series == 0 => {
            is_window_empty(work, steps[culprit(&steps)].expr)?
        }
        _ => false,
    };
    let status = kept_status(work, rule)?;
    let hold_ms = match &rule.definition.kind {
        RuleKind::Alerting(alerting) => alerting.for_ms,
        RuleKind::Recording => 0,
    };
    let alerts = status
        .alerts
        .iter()
        .filter(|alert| alert.is_active())
        .take(ALERTS_MAX);
    for alert in alerts.clone() {
        work.keep(owned_size(&alert.labels))?;
    }
    let last_error = status
        .last()
        .and_then(|last| last.error.clone())
        .unwrap_or_default();
    Ok(Explanation {
        file: group.file.to_string(),
        group: group.name().to_owned(),
        name: rule.definition.name.clone(),
        query: rule.expr.to_string(),
        time_ms,
        reason: reason(&status, &steps, is_window_empty, hold_ms, time_ms)
            + &remark(&last_error, group.is_dry_run()),
        state: status.alert_state().to_owned(),
        alerts: alerts
            .map(|alert| explained(alert, hold_ms, time_ms))
            .collect(),
        steps: steps.into_iter().map(|step| step.shown).collect(),
        last_error,
    })
}

fn remark(last_error: &str, is_dry_run: bool) -> String {
    let failed = match last_error {
        "" => String::new(),
        error => format!("; its last evaluation failed: {error}"),
    };
    failed
        + if is_dry_run {
            "; its group is in dry run, so no alert is sent"
        } else {
            ""
        }
}

/// A part of an expression, and what `reason` needs of it.
struct Step<'e> {
    expr: &'e Expr,
    shown: ExplainedStep,
}

/// The number of series of a result, and some of them.
type Found = (u64, Vec<ExampleSeries>);

/// Evaluates an expression and its parts that are vectors.
fn steps<'e>(expr: &'e Expr, evaluate: impl Fn(&Expr) -> Result<Found>) -> Result<Vec<Step<'e>>> {
    let mut steps = Vec::new();
    let mut pending = vec![(expr, 0)];
    while let Some((expr, depth)) = pending.pop() {
        let is_step = matches!(expr.value_type(), ValueType::Vector | ValueType::Matrix)
            && !matches!(expr.kind, ExprKind::Paren(_));
        if steps.len() == STEPS_MAX {
            break;
        }
        if is_step {
            let (series, examples) = evaluate(expr)?;
            steps.push(Step {
                expr,
                shown: ExplainedStep {
                    depth,
                    expr: print(expr),
                    series,
                    examples,
                },
            });
        }
        // The selector of a range has no value of its own.
        if !matches!(expr.kind, ExprKind::Matrix(_)) {
            let depth = depth + u64::from(is_step);
            pending.extend(
                expr.children()
                    .into_iter()
                    .rev()
                    .map(|child| (child, depth)),
            );
        }
    }
    Ok(steps)
}

fn evaluate(work: &Work, expr: &Expr, time_ms: i64) -> Result<Found> {
    let text = print(expr);
    // The step keeps a copy.
    work.keep(2 * text.len())?;
    let result = work.store.engine.run(
        &work.store.db,
        &work.ctx,
        &Request::new(&text, Steps::instant(time_ms)),
    );
    let value = match result {
        Ok(result) => result.value,
        // For example, labels that are not unique: the evaluation of the rule fails, too.
        Err(Error::Execution(_)) => return Ok((0, Vec::new())),
        Err(error) => return Err(error.into()),
    };
    Ok(match value {
        Value::Vector(samples) => {
            let shown = &samples[..samples.len().min(EXAMPLES_MAX)];
            for sample in shown {
                work.keep(owned_size(&sample.labels))?;
            }
            (samples.len() as u64, shown.iter().map(example).collect())
        }
        Value::Matrix(series) => (series.len() as u64, Vec::new()),
        Value::Scalar(_) | Value::String { .. } => (1, Vec::new()),
    })
}

/// Returns `true` for a selector whose series exist but have no sample in the window that it reads.
fn is_window_empty(work: &Work, expr: &Expr) -> Result<bool> {
    if !matches!(expr.kind, ExprKind::Vector(_) | ExprKind::Matrix(_)) {
        return Ok(false);
    }
    for SelectorUse { matchers, .. } in usage::of(expr) {
        let db = &work.store.db;
        let mut series = db.select_first_labels(&work.ctx, &matchers, TimeRange::ALL, 1)?;
        if let Some(found) = series.next() {
            found?;
            return Ok(true);
        }
    }
    Ok(false)
}

fn example(sample: &VectorSample) -> ExampleSeries {
    ExampleSeries {
        labels: owned(&sample.labels),
        value: match &sample.histogram {
            Some(histogram) => histogram.to_string(),
            None => printed(sample.point.value),
        },
    }
}

/// Returns why the alerts of a rule fire or do not, without the full stop. The alerts are those of
/// now, so they count only if no evaluation is later than the time. `is_window_empty` tells about
/// the part that leaves no series.
fn reason(
    status: &RuleStatus,
    steps: &[Step<'_>],
    is_window_empty: bool,
    hold_ms: i64,
    time_ms: i64,
) -> String {
    let is_past = status.last().is_some_and(|last| time_ms < last.tick.ms());
    let in_state = |state| {
        status
            .alerts
            .iter()
            .filter(move |alert| !is_past && alert.state == state)
    };
    match in_state(AlertState::Firing).count() {
        0 => {}
        1 => return "1 alert fires".to_owned(),
        n => return format!("{n} alerts fire"),
    }
    if let Some(left_ms) = in_state(AlertState::Pending)
        .map(|alert| fires_in_ms(alert, hold_ms, time_ms))
        .min()
    {
        let left = print_duration(left_ms);
        let hold = print_duration(hold_ms);
        return match in_state(AlertState::Pending).count() {
            1 => format!("1 alert is pending: it fires in {left} (for: {hold})"),
            n => format!("{n} alerts are pending: the first one fires in {left} (for: {hold})"),
        };
    }
    match steps.first() {
        None => "the expression is a number".to_owned(),
        Some(whole) if whole.shown.series == 1 && is_past => "1 series matches".to_owned(),
        Some(whole) if whole.shown.series > 1 && is_past => {
            format!("{} series match", whole.shown.series)
        }
        Some(whole) if whole.shown.series == 1 => {
            "1 series matches, and becomes an alert at the next evaluation".to_owned()
        }
        Some(whole) if whole.shown.series > 1 => {
            format!(
                "{} series match, and become alerts at the next evaluation",
                whole.shown.series
            )
        }
        Some(_) => reason_without_series(steps, is_window_empty),
    }
}

/// Returns why an expression has no series.
fn reason_without_series(steps: &[Step<'_>], is_window_empty: bool) -> String {
    let culprit = culprit(steps);
    let inputs: u64 = children(steps, culprit)
        .map(|child| steps[child].shown.series)
        .max()
        .unwrap_or(0);
    let expr = &steps[culprit].shown.expr;
    match (&steps[culprit].expr.kind, inputs) {
        (_, 0) if is_window_empty => format!("the series of {expr} have no sample in its window"),
        (_, 0) => format!("no series match {expr}"),
        (ExprKind::Binary(binary), n) if binary.op.is_comparison() => {
            format!("none of {n} series passes the comparison in {expr}")
        }
        (_, n) => format!("none of {n} series is left by {expr}"),
    }
}

/// Returns the part that leaves no series although its operands have some, or the selector that
/// matches none.
fn culprit(steps: &[Step<'_>]) -> usize {
    let mut parent = 0;
    loop {
        let is_unless = matches!(&steps[parent].expr.kind, ExprKind::Binary(binary) if binary.op == BinaryOp::Unless);
        let mut operands = children(steps, parent).take(if is_unless { 1 } else { usize::MAX });
        match operands.find(|&child| steps[child].shown.series == 0) {
            Some(child) => parent = child,
            None => return parent,
        }
    }
}

/// Returns the indexes of the operands of a part.
fn children<'s>(steps: &'s [Step<'_>], parent: usize) -> impl Iterator<Item = usize> + 's {
    let depth = steps[parent].shown.depth;
    let below = (parent + 1..steps.len()).take_while(move |&idx| steps[idx].shown.depth > depth);
    below.filter(move |&idx| steps[idx].shown.depth == depth + 1)
}

fn explained(alert: &Alert, hold_ms: i64, time_ms: i64) -> ExplainedAlert {
    ExplainedAlert {
        labels: owned(&alert.labels),
        state: alert.state.name().to_owned(),
        value: printed(alert.value),
        active_at_ms: alert.active_at.ms(),
        fires_in_ms: if alert.state == AlertState::Pending {
            fires_in_ms(alert, hold_ms, time_ms)
        } else {
            0
        },
    }
}

fn fires_in_ms(alert: &Alert, hold_ms: i64, time_ms: i64) -> i64 {
    (alert.active_at + Duration::from_millis(hold_ms.max(0).cast_unsigned()))
        .ms()
        .saturating_sub(time_ms)
        .max(0)
}

/// Returns about the bytes of [`owned`] labels.
fn owned_size(labels: &Labels) -> usize {
    const PAIR_SIZE: usize = 2 * size_of::<[String; 2]>();
    labels.size() + labels.len() * PAIR_SIZE
}

fn owned(labels: &Labels) -> BTreeMap<String, String> {
    labels
        .iter()
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

fn printed(value: f64) -> String {
    varve_promql::decimal::Plain(value).to_string()
}

#[cfg(test)]
mod tests {
    use varve_promql::{Features, parse};
    use varve_rules::rule::{Health, RuleCosts};

    use super::*;

    /// Checks the reason for an expression of which only some parts have series.
    fn check(text: &str, with_series: &[&str], expect: &str) {
        let expr = parse(text, &Features::default()).unwrap();
        let evaluate = |part: &Expr| {
            Ok((
                if with_series.contains(&print(part).as_str()) {
                    4
                } else {
                    0
                },
                Vec::new(),
            ))
        };
        let steps = steps(&expr, evaluate).unwrap();
        let health = Health::Good;
        let costs = RuleCosts::default();
        let status = RuleStatus {
            health,
            alerts: Vec::new(),
            evaluations: Vec::new(),
            has_matched: false,
            costs,
        };
        assert_eq!(reason(&status, &steps, false, 0, 0), expect, "{text}");
    }

    #[test]
    fn the_reason_is_the_part_that_leaves_no_series() {
        check(
            "a > 1",
            &["a"],
            "none of 4 series passes the comparison in a > 1",
        );
        check("a > 1", &[], "no series match a");
        check(
            "sum(rate(a[5m])) > 1",
            &["sum(rate(a[5m]))", "rate(a[5m])", "a[5m]"],
            "none of 4 series passes the comparison in sum(rate(a[5m])) > 1",
        );
        check(
            "sum(rate(a[5m])) > 1",
            &["a[5m]"],
            "none of 4 series is left by rate(a[5m])",
        );
        check(
            "a > 1 and b",
            &["a", "b", "a > 1"],
            "none of 4 series is left by a > 1 and b",
        );
        check(
            "a unless b",
            &["a"],
            "none of 4 series is left by a unless b",
        );
        check("absent(a)", &["a"], "none of 4 series is left by absent(a)");
        check("(a or b) == 0", &["b"], "no series match a");
        check(
            "(a or b) == 0",
            &["b", "a or b"],
            "none of 4 series passes the comparison in (a or b) == 0",
        );
        check(
            "a",
            &["a"],
            "4 series match, and become alerts at the next evaluation",
        );
        check("1", &[], "the expression is a number");
    }

    #[test]
    fn the_number_of_parts_is_bounded() {
        let text = vec!["a"; 80].join(" or ");
        let expr = parse(&text, &Features::default()).unwrap();
        assert_eq!(
            steps(&expr, |_| Ok((0, Vec::new()))).unwrap().len(),
            STEPS_MAX
        );
    }
}

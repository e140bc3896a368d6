//! One evaluation of a group.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use varve_context::{Charge, QueryContext};
use varve_model::Matcher;
use varve_query::{SharedScans, VectorSample};
use varve_template::{Environment, error_text};

use super::dependencies::may_read;
use super::group::{Group, GroupSettings, duration};
use crate::alert::{self, Alert, AlertState, RuleParts};
use crate::file::{Alerting, RuleKind};
use crate::rule::{EvaluationRecord, Rule};
use crate::storage::{Answer, ERROR_SIZE_MAX, Failure, Output, OutputBudget, Query, Storage};
use crate::time::Time;

/// The reason for an evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The evaluation is due.
    Live,
    /// The evaluation was missed during an outage. Alerts are not sent.
    CatchUp,
}

/// Durations of one evaluation of a group.
#[derive(Debug, Clone, Default)]
pub struct EvaluationDurations {
    /// Duration of the evaluation.
    pub total: Duration,
    /// Duration of each rule that was evaluated, in the order in which they ended.
    pub rules: Vec<Duration>,
}

/// One evaluation of a group.
pub(super) struct GroupEvaluation<'a> {
    pub(super) group: &'a Group,
    pub(super) tick: Time,
    pub(super) offset: Duration,
    pub(super) mode: Mode,
    pub(super) scans: Option<SharedScans>,
    /// Whether this is the first evaluation after a restart with alerts that several rules may have
    /// written.
    pub(super) has_shared_alerts: bool,
    pub(super) storage: &'a dyn Storage,
    pub(super) settings: &'a GroupSettings,
}

/// What the rules of an evaluation add up to.
#[derive(Default)]
struct Totals {
    /// Durations of the rules that were evaluated.
    durations: Vec<Duration>,
    n_results: u64,
    n_failures: u64,
}

/// The outcome of one rule.
struct RuleOutcome {
    answer: Answer,
    n_results: u64,
    /// The reason for the first sample that was not stored.
    rejection: Option<String>,
}

impl Group {
    /// Evaluates all rules at `tick`. Waits for an evaluation that is running.
    pub fn evaluate(
        &self,
        tick: Time,
        mode: Mode,
        storage: &dyn Storage,
        settings: &GroupSettings,
    ) -> EvaluationDurations {
        let _running = self.running.lock();
        if self.is_stopped() {
            return EvaluationDurations::default();
        }
        let started = storage.now();
        let clock = Instant::now();

        let offset = self.query_offset(settings);
        let evaluation = GroupEvaluation {
            group: self,
            tick,
            offset,
            mode,
            scans: storage.shared_scans(&self.scan_plan, (tick - offset).ms()),
            has_shared_alerts: std::mem::take(&mut self.state.lock().has_shared_alerts),
            storage,
            settings,
        };
        let totals = evaluation.evaluate_rules();

        // If a rule was skipped, it may still continue series that `write_stale` would end.
        if totals.durations.len() == self.rules.len() {
            evaluation.write_stale();
        }

        let duration = clock.elapsed();
        let is_first = evaluation.note(started, duration, &totals);
        // Not after the first evaluation: alerts may depend on recording rules that are not written
        // yet.
        if !is_first && self.state.lock().restores {
            self.restore(storage, settings);
        }
        EvaluationDurations {
            total: duration,
            rules: totals.durations,
        }
    }

    /// Sends firing alerts again while the group catches up. Otherwise Alertmanager would resolve
    /// them. Omits alerts that `keep_firing_for` no longer keeps: Alertmanager may have resolved
    /// them.
    pub fn resend(&self, now: Time, storage: &dyn Storage, settings: &GroupSettings) {
        for rule in &self.rules {
            let RuleKind::Alerting(alerting) = &rule.definition.kind else {
                continue;
            };
            let keep_firing_for = duration(alerting.keep_firing_for_ms);
            let fires = |alert: &Alert| {
                let is_kept = alert
                    .keep_firing_since
                    .is_none_or(|since| !now.has_passed(keep_firing_for, since));
                alert.state == AlertState::Firing && is_kept
            };
            self.notify_due(rule, now, &fires, storage, settings);
        }
    }

    /// Sends the alerts of a rule that are due and pass `selects`.
    fn notify_due(
        &self,
        rule: &Rule,
        now: Time,
        selects: &dyn Fn(&Alert) -> bool,
        storage: &dyn Storage,
        settings: &GroupSettings,
    ) {
        if self.is_dry_run() || !rule.is_alerting() {
            return;
        }
        let resend_delay = settings.resend_delay;
        let mut due = Vec::new();
        for alert in rule.state.lock().alerts.values_mut() {
            if selects(alert) && alert.needs_sending(now, resend_delay) {
                due.push(alert.take_notification(
                    now,
                    resend_delay,
                    self.schedule.interval(),
                    &rule.expr,
                ));
            }
        }
        if !due.is_empty() {
            storage.notify(due);
        }
    }
}

impl GroupEvaluation<'_> {
    pub(super) fn timestamp_ms(&self) -> i64 {
        (self.tick - self.offset).ms()
    }

    /// Evaluates the rules: one batch of independent rules after the other. With shared alerts, in
    /// the order of the file: a rule must know those of the rules before it.
    fn evaluate_rules(&self) -> Totals {
        let totals = Mutex::new(Totals {
            durations: Vec::with_capacity(self.group.rules.len()),
            ..Totals::default()
        });
        if self.has_shared_alerts {
            for idx in 0..self.group.rules.len() {
                self.evaluate_in_batch(idx, &totals);
                self.invalidate_written_scans(&[idx]);
            }
            return totals.into_inner();
        }
        for batch in &self.group.batches {
            match &self.settings.threads {
                Some(threads) => {
                    threads.run_each(batch, |&idx| self.evaluate_in_batch(idx, &totals))
                }
                None => {
                    for &idx in batch {
                        self.evaluate_in_batch(idx, &totals);
                    }
                }
            }
            self.invalidate_written_scans(batch);
        }
        totals.into_inner()
    }

    /// Evaluates a rule and records its evaluation, unless evaluations must end.
    fn evaluate_in_batch(&self, idx: usize, totals: &Mutex<Totals>) {
        if self.group.is_stopped() || self.storage.is_stopping() {
            return;
        }
        let rule = &self.group.rules[idx];
        let (mut record, is_failure) = self.evaluate_rule(rule);
        let charge = charge_error(&self.context(), &mut record);
        if let Some(error) = &record.error {
            self.log_failure(rule, error);
        }
        {
            let mut totals = totals.lock();
            totals.durations.push(record.duration);
            totals.n_results += record.n_results;
            totals.n_failures += u64::from(is_failure);
        }
        rule.record(record, charge);
    }

    /// Logs a failed evaluation, unless one of the rule was logged recently.
    fn log_failure(&self, rule: &Rule, error: &str) {
        let now = self.storage.now();
        let rule_ref = self.group.rule_ref(&rule.definition.name);
        if rule.is_failure_log_due(now) && self.storage.log_failure(&rule_ref, error) {
            rule.note_failure_logged(now);
        }
    }

    /// Returns deadline and memory of the evaluation of a rule, from now on.
    fn context(&self) -> QueryContext {
        let interval = self.group.schedule.interval();
        self.storage.evaluation_context(interval)
    }

    /// Invalidates the shared scans of series that the rules of a batch may have written, so that
    /// later rules read what these have written.
    fn invalidate_written_scans(&self, batch: &[usize]) {
        let Some(scans) = &self.scans else {
            return;
        };
        scans.end(|matchers: &[Matcher]| {
            batch
                .iter()
                .any(|&idx| may_read(&[matchers], &self.group.rules[idx].definition))
        });
    }

    /// Notes the evaluation in the status of the group. Returns `true` if it is the first one.
    fn note(&self, started: Time, duration: Duration, totals: &Totals) -> bool {
        let status = &mut self.group.state.lock().status;
        let is_first = status.last_tick.is_none();
        status.last_tick = Some(self.tick);
        status.last_started = Some(started);
        status.last_duration = duration;
        status.last_rules_duration = totals.durations.iter().sum();
        status.last_n_results = totals.n_results;
        status.last_n_scans = self.scans.as_ref().map_or(0, SharedScans::n_scans);
        status.n_iterations += 1;
        status.n_evaluations += totals.durations.len() as u64;
        status.n_failures += totals.n_failures;
        is_first
    }

    /// Evaluates a rule. Returns `true` if it failed. A panic is a failure of this rule; as in
    /// Prometheus, a rejected sample is no failure.
    fn evaluate_rule(&self, rule: &Rule) -> (EvaluationRecord, bool) {
        let started = self.storage.now();
        let clock = Instant::now();
        let _background = self.storage.start_background();
        let result = catch_unwind(AssertUnwindSafe(|| self.try_evaluate(rule)))
            .unwrap_or_else(|_logged_by_the_hook| Err(Failure::new("the evaluation panicked")));

        let mut record = EvaluationRecord {
            tick: self.tick,
            started,
            duration: Duration::ZERO,
            n_series: 0,
            n_samples: 0,
            peak_bytes: 0,
            n_results: 0,
            error: None,
        };
        let is_failure = result.is_err();
        match result {
            Ok(outcome) => {
                record.n_series = outcome.answer.n_series;
                record.n_samples = outcome.answer.n_samples;
                record.peak_bytes = outcome.answer.peak_bytes;
                record.n_results = outcome.n_results;
                record.error = outcome.rejection;
            }
            Err(failure) => {
                // An evaluation that fails before the write resolves no alert. Firing alerts are
                // sent again with their last annotations.
                self.notify_due(rule);
                record.error = Some(failure.message);
            }
        }
        record.duration = clock.elapsed();
        (record, is_failure)
    }

    pub(super) fn query_of<'q>(&'q self, rule: &'q Rule) -> Query<'q> {
        Query {
            expr: &rule.expr,
            timestamp_ms: self.timestamp_ms(),
            scans: self.scans.as_ref(),
        }
    }

    fn try_evaluate(&self, rule: &Rule) -> Result<RuleOutcome, Failure> {
        let definition = &rule.definition;
        let mut answer = self
            .storage
            .query(&self.group.rule_ref(&definition.name), &self.query_of(rule))?;
        let result = std::mem::take(&mut answer.samples);

        let (budget, outputs, series) = match &definition.kind {
            RuleKind::Recording => {
                let (outputs, series) = crate::recording::label_result(
                    &definition.name,
                    &definition.labels,
                    self.group.definition.limit,
                    result,
                )
                .map_err(Failure::new)?;
                (OutputBudget::Team, outputs, series)
            }
            RuleKind::Alerting(alerting) => {
                let outputs = self.evaluate_alerts(rule, alerting, &result)?;
                let series = outputs.iter().map(|output| output.labels.clone()).collect();
                (OutputBudget::Exempt, outputs, series)
            }
        };

        let n_results = outputs.len() as u64;
        let rejection = if self.group.is_dry_run() {
            // Writes no results, but ends the series that the rule wrote before the dry run.
            self.write(rule, budget, Vec::new(), BTreeSet::new())?
        } else {
            self.write(rule, budget, outputs, series)?
        };
        Ok(RuleOutcome {
            answer,
            n_results,
            rejection,
        })
    }

    fn evaluate_alerts(
        &self,
        rule: &Rule,
        alerting: &Alerting,
        result: &[VectorSample],
    ) -> Result<Vec<Output>, Failure> {
        // Each sample becomes an alert, so too many samples fail before their templates are
        // expanded.
        rule.check_n_alerts(result.len()).map_err(Failure::new)?;
        let mut previous = rule.state.lock().alerts.clone();
        if self.has_shared_alerts {
            self.group.forget_shared_alerts(rule, &mut previous);
        }
        let ((alerts, outputs), charge) = self.with_templates(rule, alerting, |evaluation| {
            alert::evaluate(evaluation, previous, result)
        })?;
        rule.set_alerts(alerts, charge).map_err(Failure::new)?;
        self.notify_due(rule);
        Ok(outputs)
    }

    /// Calls `evaluate` with the parts of an alerting rule, whose templates it may expand. Returns
    /// the charge of its result as well.
    pub(super) fn with_templates<T>(
        &self,
        rule: &Rule,
        alerting: &Alerting,
        evaluate: impl FnOnce(&mut alert::Evaluation<'_>) -> Result<T, String>,
    ) -> Result<(T, Charge), Failure> {
        let definition = &rule.definition;
        let ctx = self.context();
        let mut expand =
            |template: &str, sample: &VectorSample| self.expand(rule, &ctx, template, sample);
        let mut evaluation = alert::Evaluation {
            rule: RuleParts {
                name: &definition.name,
                pending_for: duration(alerting.for_ms),
                keep_firing_for: duration(alerting.keep_firing_for_ms),
                labels: &definition.labels,
                annotations: &alerting.annotations,
                limit: self.group.definition.limit,
            },
            tick: self.tick,
            timestamp_ms: self.timestamp_ms(),
            is_restored: rule.state.lock().is_restored,
            is_dry_run: self.group.is_dry_run(),
            ctx: &ctx,
            charge: ctx.charge(),
            expand: &mut expand,
        };
        let result = evaluate(&mut evaluation).map_err(Failure::new)?;
        Ok((result, evaluation.charge))
    }

    /// Sends the alerts that are due.
    fn notify_due(&self, rule: &Rule) {
        if self.mode == Mode::Live {
            self.group
                .notify_due(rule, self.tick, &|_| true, self.storage, self.settings);
        }
    }

    /// Expands a label or annotation. If that fails, returns the error as the text, as in
    /// Prometheus.
    fn expand(&self, rule: &Rule, ctx: &QueryContext, text: &str, sample: &VectorSample) -> String {
        let Some(template) = rule.template(text) else {
            return text.to_owned();
        };
        let rule_ref = self.group.rule_ref(&rule.definition.name);
        // As in Prometheus, the query offset does not apply to queries of templates.
        let tick_ms = self.tick.ms();
        let query = |expr: &str| {
            let query = Query {
                expr,
                timestamp_ms: tick_ms,
                scans: None,
            };
            match self.storage.query(&rule_ref, &query) {
                Ok(answer) => Ok(answer.samples),
                Err(failure) => Err(failure.message),
            }
        };
        let environment = Environment {
            ctx,
            timestamp_ms: tick_ms,
            external_labels: &self.settings.external_labels,
            external_url: &self.settings.external_url,
            query: &query,
        };
        let expanded = template.expand(&environment, sample);
        self.storage
            .note_expansion(&rule_ref, expanded.as_ref().err().map(String::as_str));
        expanded.unwrap_or_else(|error| error_text(&error))
    }
}

/// Cuts and charges the error of an evaluation, which is kept with those of earlier ones. Without
/// memory for it, the lack of memory is the error.
fn charge_error(ctx: &QueryContext, record: &mut EvaluationRecord) -> Charge {
    let mut charge = ctx.charge();
    if let Some(error) = &mut record.error {
        if error.len() > ERROR_SIZE_MAX {
            error.truncate(error.floor_char_boundary(ERROR_SIZE_MAX));
            error.shrink_to_fit();
        }
        if let Err(exhausted) = charge.grow_without_waiting(error.len()) {
            *error = exhausted.to_string();
        }
    }
    charge
}

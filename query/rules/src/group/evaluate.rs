//! One evaluation of a group.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use varve_context::{Limit, MemoryBudget, QueryContext};
use varve_model::staleness::STALE_NAN_BITS;
use varve_model::{Labels, Matcher, Sample};
use varve_query::{SharedScans, VectorSample};

use super::dependencies::may_read;
use super::{Group, Settings, duration};
use crate::alert::{self, Alert, AlertState, Source};
use crate::file::{Alerting, RuleKind};
use crate::rule::{EvaluationRecord, Rule};
use crate::storage::{Answer, Failure, Output, OutputKind, Query, Rejected, Storage};
use crate::time::Time;
use varve_template::{Environment, error_text};

/// Maximum memory of the regular expressions in templates of a rule, in bytes.
const TEMPLATES_SIZE_MAX: usize = 64 << 20;

/// The reason for an evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The evaluation is due.
    Live,
    /// The evaluation was missed during an outage. Alerts are not sent.
    CatchUp,
}

/// Times of one evaluation, for statistics.
#[derive(Debug, Clone, Default)]
pub struct Iteration {
    /// Duration of the evaluation.
    pub duration: Duration,
    /// Duration of each rule.
    pub rules: Vec<Duration>,
}

/// One evaluation of a group.
pub(super) struct Run<'a> {
    pub(super) group: &'a Group,
    pub(super) tick: Time,
    pub(super) offset: Duration,
    pub(super) mode: Mode,
    pub(super) scans: Option<SharedScans>,
    pub(super) storage: &'a dyn Storage,
    pub(super) settings: &'a Settings,
}

/// The outcome of one rule.
struct Ran {
    answer: Answer,
    n_results: u64,
    /// The first sample that was not stored.
    rejected: Option<String>,
}

impl Group {
    /// Evaluates all rules at `tick`. Waits for an evaluation that is running.
    pub fn evaluate(
        &self,
        tick: Time,
        mode: Mode,
        storage: &dyn Storage,
        settings: &Settings,
    ) -> Iteration {
        let _running = self.running.lock();
        if self.is_stopped() {
            return Iteration::default();
        }
        let (started, clock) = (storage.now(), Instant::now());
        let offset = self.query_offset(settings);
        let scans = storage.shared_scans(&self.scan_plan, (tick - offset).ms());
        let run = Run {
            group: self,
            tick,
            offset,
            mode,
            scans,
            storage,
            settings,
        };
        let durations = Mutex::new(Vec::with_capacity(self.rules.len()));
        let totals = Mutex::new((0, 0));
        for batch in &self.batches {
            let evaluate = |&idx: &usize| {
                if self.is_stopped() || storage.is_stopping() {
                    return;
                }
                let (record, is_failure) = run.rule(&self.rules[idx]);
                durations.lock().push(record.duration);
                let mut totals = totals.lock();
                totals.0 += record.n_results;
                totals.1 += u64::from(is_failure);
                drop(totals);
                self.rules[idx].record(record);
            };
            match &settings.threads {
                Some(threads) => threads.for_each(batch, evaluate),
                None => batch.iter().for_each(evaluate),
            }
            // Later rules read what these have written.
            let is_written = |matchers: &[Matcher]| {
                batch
                    .iter()
                    .any(|&idx| may_read(&[matchers], &self.rules[idx].definition))
            };
            run.scans.iter().for_each(|scans| scans.end(is_written));
        }
        let rules = durations.into_inner();
        // A rule that was skipped may continue these series.
        if rules.len() == self.rules.len() {
            run.write_stale();
        }
        let (n_samples, n_failures) = totals.into_inner();
        let iteration = Iteration {
            duration: clock.elapsed(),
            rules,
        };
        let is_first = {
            let status = &mut self.state.lock().status;
            let is_first = status.last_tick.is_none();
            status.last_tick = Some(tick);
            status.last_evaluation = Some(started);
            status.last_duration = iteration.duration;
            status.last_rules_duration = iteration.rules.iter().sum();
            status.last_n_samples = n_samples;
            status.last_n_scans = run.scans.as_ref().map_or(0, SharedScans::n_scans);
            status.n_iterations += 1;
            status.n_evaluations += iteration.rules.len() as u64;
            status.n_failures += n_failures;
            is_first
        };
        // Not after the first evaluation: alerts may depend on recording rules that are not written
        // yet.
        if !is_first && self.state.lock().restores {
            self.restore(storage, settings);
        }
        iteration
    }

    /// Sends firing alerts again while the group catches up. Otherwise Alertmanager would resolve
    /// them. Omits alerts that `keep_firing_for` no longer keeps: Alertmanager may have resolved
    /// them.
    pub fn resend(&self, now: Time, storage: &dyn Storage, settings: &Settings) {
        for rule in &self.rules {
            let RuleKind::Alerting(alerting) = &rule.definition.kind else {
                continue;
            };
            let keep_firing_for = duration(alerting.keep_firing_for_ms);
            let has_ended = |since| now.is_past(since, keep_firing_for);
            let fires = |alert: &Alert| {
                alert.state == AlertState::Firing && !alert.keep_firing_since.is_some_and(has_ended)
            };
            self.send(rule, now, &fires, storage, settings);
        }
    }

    /// Sends the alerts of a rule that are due and pass `selects`.
    fn send(
        &self,
        rule: &Rule,
        now: Time,
        selects: &dyn Fn(&Alert) -> bool,
        storage: &dyn Storage,
        settings: &Settings,
    ) {
        if self.is_dry_run() || !rule.is_alerting() {
            return;
        }
        let (resend_delay, interval) = (settings.resend_delay, self.schedule.interval());
        let due = {
            let alerts = &mut rule.state.lock().alerts;
            let due = alerts
                .values_mut()
                .filter(|alert| selects(alert) && alert.needs_sending(now, resend_delay));
            due.map(|alert| alert.send(now, resend_delay, interval, &rule.expr))
                .collect::<Vec<_>>()
        };
        if !due.is_empty() {
            storage.notify(due);
        }
    }
}

impl Run<'_> {
    fn timestamp_ms(&self) -> i64 {
        (self.tick - self.offset).ms()
    }

    /// Evaluates a rule. Returns `true` if it failed. A panic is a failure of this rule; as in
    /// Prometheus, a rejected sample is none.
    fn rule(&self, rule: &Rule) -> (EvaluationRecord, bool) {
        let (started, clock) = (self.storage.now(), Instant::now());
        let _background = self.storage.start_background();
        let ran = catch_unwind(AssertUnwindSafe(|| self.try_rule(rule)));
        let ran =
            ran.unwrap_or_else(|_logged_by_the_hook| Err(Failure::new("the evaluation panicked")));
        let is_failure = ran.is_err();
        if is_failure {
            // A failed evaluation resolves no alert. Firing alerts are sent again with their last
            // annotations.
            self.send(rule);
        }
        let (answer, n_results, error) = match ran {
            Ok(Ran {
                answer,
                n_results,
                rejected,
            }) => (answer, n_results, rejected),
            Err(failure) => (Answer::default(), 0, Some(failure.message)),
        };
        let record = EvaluationRecord {
            tick: self.tick,
            started,
            duration: clock.elapsed(),
            n_series: answer.n_series,
            n_samples: answer.n_samples,
            peak_bytes: answer.peak_bytes,
            n_results,
            error,
        };
        (record, is_failure)
    }

    pub(super) fn query<'q>(&'q self, rule: &'q Rule) -> Query<'q> {
        Query {
            expr: &rule.expr,
            timestamp_ms: self.timestamp_ms(),
            scans: self.scans.as_ref(),
        }
    }

    fn try_rule(&self, rule: &Rule) -> Result<Ran, Failure> {
        let mut answer = self
            .storage
            .query(&self.group.of(&rule.definition.name), &self.query(rule))?;
        let result = std::mem::take(&mut answer.samples);
        let (kind, outputs, series) = match &rule.definition.kind {
            RuleKind::Recording => {
                let limit = self.group.definition.limit;
                let (name, labels) = (&rule.definition.name, &rule.definition.labels);
                let recorded = crate::recording::evaluate(name, labels, limit, result);
                let (outputs, series) = recorded.map_err(Failure::new)?;
                (OutputKind::Recorded, outputs, series)
            }
            RuleKind::Alerting(alerting) => {
                let outputs = self.alerting(rule, alerting, &result)?;
                let series = outputs.iter().map(|output| output.labels.clone()).collect();
                (OutputKind::Alerts, outputs, series)
            }
        };
        let n_results = outputs.len() as u64;
        let rejected = if self.group.is_dry_run() {
            self.write(rule, kind, Vec::new(), BTreeSet::new())?
        } else {
            self.write(rule, kind, outputs, series)?
        };
        Ok(Ran {
            answer,
            n_results,
            rejected,
        })
    }

    fn alerting(
        &self,
        rule: &Rule,
        alerting: &Alerting,
        result: &[VectorSample],
    ) -> Result<Vec<Output>, Failure> {
        // Each sample becomes an alert, so too many samples fail before their templates are
        // expanded.
        rule.check_n_alerts(result.len()).map_err(Failure::new)?;
        let previous = rule.state.lock().alerts.clone();
        let evaluate =
            |evaluation: &mut alert::Evaluation<'_>| alert::evaluate(evaluation, previous, result);
        let (alerts, outputs) = self.with_templates(rule, alerting, evaluate)?;
        rule.set_alerts(alerts).map_err(Failure::new)?;
        self.send(rule);
        Ok(outputs)
    }

    /// Calls `run` with the parts of an alerting rule, whose templates it may expand.
    pub(super) fn with_templates<T>(
        &self,
        rule: &Rule,
        alerting: &Alerting,
        run: impl FnOnce(&mut alert::Evaluation<'_>) -> Result<T, String>,
    ) -> Result<T, Failure> {
        let definition = &rule.definition;
        let memory = MemoryBudget::new(Limit::Other("memory of templates"), TEMPLATES_SIZE_MAX);
        let ctx = QueryContext::new(self.group.schedule.interval(), memory);
        let mut expand =
            |template: &str, sample: &VectorSample| self.expand(rule, &ctx, template, sample);
        let mut evaluation = alert::Evaluation {
            source: Source {
                name: &definition.name,
                hold: duration(alerting.for_ms),
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
            expand: &mut expand,
        };
        run(&mut evaluation).map_err(Failure::new)
    }

    /// Sends the alerts that are due.
    fn send(&self, rule: &Rule) {
        if self.mode == Mode::Live {
            self.group
                .send(rule, self.tick, &|_| true, self.storage, self.settings);
        }
    }

    /// Writes the samples of a rule, whose series are `written`, and staleness markers for series
    /// that it no longer writes. Returns the reason for the first rejection.
    fn write(
        &self,
        rule: &Rule,
        kind: OutputKind,
        mut outputs: Vec<Output>,
        mut written: BTreeSet<Labels>,
    ) -> Result<Option<String>, Failure> {
        let n_outputs = outputs.len();
        let vanished: Vec<Labels> = rule
            .state
            .lock()
            .written
            .difference(&written)
            .cloned()
            .collect();
        outputs.extend(
            vanished
                .into_iter()
                .map(|labels| stale(labels, self.timestamp_ms())),
        );
        if outputs.is_empty() {
            return Ok(None);
        }
        let rejected =
            self.storage
                .append(&self.group.of(&rule.definition.name), kind, &outputs)?;
        // Another rule may write a series that this one no longer writes. The evaluation before an
        // outage is repeated: its samples may be in the store, computed from less data.
        let is_failure = |rejected: &&Rejected| {
            rejected.idx < n_outputs && !(rejected.is_duplicate && self.mode == Mode::CatchUp)
        };
        let failed: Vec<&Rejected> = rejected.iter().filter(is_failure).collect();
        let state = &mut rule.state.lock();
        for rejected in &failed {
            let labels = &outputs[rejected.idx].labels;
            // An earlier sample of the series is stored, so the series still has to end.
            if !state.written.contains(labels) {
                written.remove(labels);
            }
        }
        state.written = written;
        Ok(failed.first().map(|rejected| rejected.reason.clone()))
    }

    /// Ends series of earlier rules that no rule has continued.
    fn write_stale(&self) {
        let mut series = std::mem::take(&mut self.group.state.lock().stale);
        for rule in &self.group.rules {
            let state = rule.state.lock();
            series.retain(|labels| !state.written.contains(labels));
        }
        if series.is_empty() {
            return;
        }
        let _background = self.storage.start_background();
        let outputs: Vec<Output> = series
            .iter()
            .map(|labels| stale(labels.clone(), self.timestamp_ms()))
            .collect();
        if self
            .storage
            .append(&self.group.of(""), OutputKind::Alerts, &outputs)
            .is_err()
        {
            self.group.state.lock().stale = series;
        }
    }

    /// Expands a label or annotation. If that fails, returns the error as the text, as in
    /// Prometheus.
    fn expand(&self, rule: &Rule, ctx: &QueryContext, text: &str, sample: &VectorSample) -> String {
        let Some(template) = rule.template(text) else {
            return text.to_owned();
        };
        let from = self.group.of(&rule.definition.name);
        let timestamp_ms = self.tick.ms();
        let query = |expr: &str| {
            let answer = self.storage.query(
                &from,
                &Query {
                    expr,
                    timestamp_ms,
                    scans: None,
                },
            );
            answer
                .map(|answer| answer.samples)
                .map_err(|failure| failure.message)
        };
        let Settings {
            external_labels,
            external_url,
            ..
        } = self.settings;
        let environment = Environment {
            ctx,
            timestamp_ms,
            external_labels,
            external_url,
            query: &query,
        };
        let expanded = template.expand(&environment, sample);
        self.storage
            .note_expansion(&from, expanded.as_ref().err().map(String::as_str));
        expanded.unwrap_or_else(|error| error_text(&error))
    }
}

/// Returns a staleness marker.
pub(super) fn stale(labels: Labels, timestamp_ms: i64) -> Output {
    let sample = Sample {
        timestamp_ms,
        value: f64::from_bits(STALE_NAN_BITS),
    };
    Output {
        labels,
        sample,
        histogram: None,
    }
}

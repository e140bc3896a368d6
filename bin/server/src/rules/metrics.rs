//! Durations and counts that the evaluation loop reports.

use std::time::Duration;

use prometheus::{Histogram, IntCounter};
use varve_rules::{EvaluationDurations, Mode};
use varve_system::metrics::{Registrar, SummaryVec};

/// Bucket bounds of durations, as in Prometheus.
const SECONDS: [f64; 4] = [0.01, 0.1, 1.0, 10.0];
const DELAY_SECONDS: [f64; 6] = [0.1, 1.0, 2.0, 5.0, 10.0, 30.0];

/// Durations and counts that the evaluation loop reports.
#[derive(Debug)]
pub(super) struct RuleMetrics {
    rule_summary: SummaryVec,
    rule_seconds: Histogram,
    group_summary: SummaryVec,
    group_seconds: Histogram,
    start_delay_seconds: Histogram,
    incomplete: IntCounter,
    caught_up: IntCounter,
    expansions: IntCounter,
    expansions_failed: IntCounter,
}

impl RuleMetrics {
    /// Creates the metrics, at zero.
    ///
    /// # Errors
    /// If another metric has the same name.
    pub(super) fn new(registrar: &Registrar<'_>) -> prometheus::Result<Self> {
        Ok(Self {
            rule_summary: registrar.summary_of(
                "prometheus_rule_evaluation_duration_seconds",
                &[0.5, 0.9, 0.99],
            )?,
            rule_seconds: registrar.histogram(
                "prometheus_rule_evaluation_duration_histogram_seconds",
                &SECONDS,
            )?,
            group_summary: registrar.summary_of(
                "prometheus_rule_group_duration_seconds",
                &[0.01, 0.05, 0.5, 0.9, 0.99],
            )?,
            group_seconds: registrar
                .histogram("prometheus_rule_group_duration_histogram_seconds", &SECONDS)?,
            start_delay_seconds: registrar
                .histogram("varve_rule_group_start_delay_seconds", &DELAY_SECONDS)?,
            incomplete: registrar.counter("varve_rule_group_iterations_incomplete_total")?,
            caught_up: registrar.counter("varve_rule_group_iterations_caught_up_total")?,
            expansions: registrar.counter("prometheus_template_text_expansions_total")?,
            expansions_failed: registrar
                .counter("prometheus_template_text_expansion_failures_total")?,
        })
    }

    /// Counts an evaluation that starts `delay` after its time.
    pub(super) fn note_start(&self, mode: Mode, is_incomplete: bool, delay: Duration) {
        match mode {
            Mode::Live => self.start_delay_seconds.observe(delay.as_secs_f64()),
            Mode::CatchUp => self.caught_up.inc(),
        }
        self.incomplete.inc_by(u64::from(is_incomplete));
    }

    /// Counts the expansion of a template.
    pub(super) fn note_expansion(&self, is_failed: bool) {
        self.expansions.inc();
        self.expansions_failed.inc_by(u64::from(is_failed));
    }

    /// Notes the durations of an evaluation.
    pub(super) fn note_end(&self, times: &EvaluationDurations) {
        let group_s = times.total.as_secs_f64();
        self.group_summary.observe("", group_s);
        self.group_seconds.observe(group_s);
        for rule_s in times.rules.iter().map(Duration::as_secs_f64) {
            self.rule_summary.observe("", rule_s);
            self.rule_seconds.observe(rule_s);
        }
    }
}

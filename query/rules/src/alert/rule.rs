//! One evaluation of an alerting rule: from the result of its expression and the previous alerts to
//! the new ones.
//!
//! Pure: nothing changes if it fails. The transitions are those of Prometheus 3.16.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use varve_context::{Charge, QueryContext, scheduler};
use varve_model::labels::METRIC_NAME;
use varve_model::{Labels, Sample};
use varve_query::VectorSample;

use super::state::{ALERT_NAME, ALERT_STATE, ALERTS, ALERTS_FOR_STATE, Alert, AlertState, Alerts};
use crate::file::Texts;
use crate::label_set::with_labels;
use crate::storage::Output;
use crate::time::Time;

/// Time for which a resolved alert is kept and sent again.
const RESOLVED_RETENTION: Duration = Duration::from_secs(15 * 60);

/// The parts of an alerting rule that its evaluation needs.
pub(crate) struct RuleParts<'a> {
    pub(crate) name: &'a str,
    /// `for`: how long an alert is pending before it fires.
    pub(crate) pending_for: Duration,
    pub(crate) keep_firing_for: Duration,
    /// Labels of the rule, with templates.
    pub(crate) labels: &'a Texts,
    pub(crate) annotations: &'a Texts,
    /// Maximum number of pending and firing alerts; 0 is unlimited.
    pub(crate) limit: usize,
}

/// One evaluation.
pub(crate) struct Evaluation<'a> {
    pub(crate) rule: RuleParts<'a>,
    /// The time of the evaluation.
    pub(crate) tick: Time,
    /// The timestamp of the samples.
    pub(crate) timestamp_ms: i64,
    /// `true` if `ALERTS` and `ALERTS_FOR_STATE` are written, which begins once earlier alerts are
    /// restored.
    pub(crate) is_restored: bool,
    /// `true` if the group is a dry run, which sends no alerts.
    pub(crate) is_dry_run: bool,
    /// The deadline of all templates together, and their memory.
    pub(crate) ctx: &'a QueryContext,
    /// Covers the alerts and the samples.
    pub(crate) charge: Charge,
    /// Expands a template for one sample.
    pub(crate) expand: &'a mut dyn FnMut(&str, &VectorSample) -> String,
}

/// Returns the alerts after an evaluation, given those before it, and the samples to write.
///
/// # Errors
/// Two samples have the same labels, there are more alerts than the limit, the deadline has passed,
/// or memory is exhausted.
pub(crate) fn evaluate(
    evaluation: &mut Evaluation<'_>,
    mut alerts: Alerts,
    result: &[VectorSample],
) -> Result<(Alerts, Vec<Output>), String> {
    // The caller keeps the alerts before the evaluation until it has those after it.
    evaluation.grow(alerts.len() * 2 * size_of::<Alert>())?;
    let matched = evaluation.matched(result)?;
    let matched_labels: BTreeSet<Labels> = matched.keys().cloned().collect();
    for (labels, new) in matched {
        match alerts.get_mut(&labels) {
            Some(alert) if alert.state != AlertState::Inactive => {
                alert.value = new.value;
                alert.annotations = new.annotations;
            }
            _ => drop(alerts.insert(labels, new)),
        }
    }
    alerts.retain(|labels, alert| evaluation.update(alert, matched_labels.contains(labels)));

    let active: Vec<&Alert> = alerts
        .values()
        .filter(|alert| alert.state != AlertState::Inactive)
        .collect();
    let limit = evaluation.rule.limit;
    if limit > 0 && active.len() > limit {
        return Err(limit_exceeded(limit, active.len()));
    }

    let mut samples = Vec::new();
    if evaluation.is_restored {
        for alert in active {
            for output in evaluation.samples(alert) {
                evaluation.grow(size_of::<Output>() + output.labels.size())?;
                samples.push(output);
            }
        }
    }
    evaluation.charge_kept(&alerts, &samples)?;
    Ok((alerts, samples))
}

fn limit_exceeded(limit: usize, n_alerts: usize) -> String {
    format!("exceeded limit of {limit} with {n_alerts} alerts")
}

impl Evaluation<'_> {
    fn grow(&mut self, size: usize) -> Result<(), String> {
        let grown = self.charge.grow_without_waiting(size);
        grown.map_err(|error| format!("memory of alerts: {error}"))
    }

    /// Sets the charge to what the rule keeps: the alerts, of which some are older than this
    /// evaluation, and the labels of the samples.
    fn charge_kept(&mut self, alerts: &Alerts, samples: &[Output]) -> Result<(), String> {
        let alerts_size: usize = alerts.values().map(Alert::size).sum();
        let samples_size: usize = samples
            .iter()
            .map(|sample| size_of::<Output>() + sample.labels.size())
            .sum();
        let size = alerts_size + samples_size;
        match size.checked_sub(self.charge.size()) {
            Some(missing) => self.grow(missing),
            None => {
                self.charge.shrink(self.charge.size() - size);
                Ok(())
            }
        }
    }

    /// Expands a template. Charges its text to `charge`.
    fn expanded(
        &mut self,
        template: &str,
        sample: &VectorSample,
        charge: &mut Charge,
    ) -> Result<String, String> {
        let text = (self.expand)(template, sample);
        match charge.grow_without_waiting(text.len()) {
            Ok(()) => Ok(text),
            Err(error) => Err(format!("memory of labels and annotations: {error}")),
        }
    }

    /// Returns a pending alert per sample.
    ///
    /// # Errors
    /// See [`evaluate`].
    pub(crate) fn matched(&mut self, result: &[VectorSample]) -> Result<Alerts, String> {
        let mut alerts = Alerts::new();
        let limit = self.rule.limit;
        for sample in result {
            self.ctx
                .check()
                .map_err(|error| format!("expanding templates: {error}"))?;
            scheduler::pause();
            // Covers the texts until they are in an alert.
            let mut texts_charge = self.ctx.charge();
            let mut expanded: Vec<(&str, String)> = Vec::with_capacity(self.rule.labels.len() + 2);
            expanded.push((METRIC_NAME, String::new()));
            for (name, template) in self.rule.labels {
                expanded.push((name, self.expanded(template, sample, &mut texts_charge)?));
            }
            expanded.push((ALERT_NAME, self.rule.name.to_owned()));
            let labels = with_labels(
                &sample.labels,
                expanded.iter().map(|(name, value)| (*name, value.as_str())),
            );
            if alerts.contains_key(&labels) {
                return Err(
                    "vector contains metrics with the same labelset after applying alert labels"
                        .into(),
                );
            }
            if limit > 0 && alerts.len() == limit {
                return Err(limit_exceeded(limit, result.len()));
            }
            let mut annotations = Texts::new();
            for (name, template) in self.rule.annotations {
                let text = self.expanded(template, sample, &mut texts_charge)?;
                annotations.insert(name.clone(), text);
            }
            let alert = Alert {
                state: AlertState::Pending,
                labels: labels.clone(),
                annotations: Arc::new(annotations),
                value: sample
                    .histogram
                    .as_ref()
                    .map_or(sample.point.value, |_| 0.0),
                active_at: self.tick,
                fired_at: None,
                resolved_at: None,
                last_sent_at: None,
                was_sent_as_firing: false,
                keep_firing_since: None,
            };
            self.grow(alert.size())?;
            alerts.insert(labels, alert);
        }
        Ok(alerts)
    }

    /// Moves an alert to its next state. Returns `false` if it is forgotten.
    fn update(&self, alert: &mut Alert, is_matched: bool) -> bool {
        let RuleParts {
            pending_for,
            keep_firing_for,
            ..
        } = self.rule;
        if is_matched {
            alert.keep_firing_since = None;
        } else if !self.continue_firing(alert, keep_firing_for) {
            if alert.state == AlertState::Pending {
                return false;
            }
            if alert.state == AlertState::Firing {
                alert.state = AlertState::Inactive;
                alert.resolved_at = Some(self.tick);
            }
            // While a group catches up it sends nothing: keeps the alert until its resolution is
            // sent.
            let must_send = alert.was_sent_as_firing && !self.is_dry_run;
            let is_recent = match alert.resolved_at {
                Some(resolved_at) => self.tick.since(resolved_at) <= RESOLVED_RETENTION,
                None => true,
            };
            return must_send || is_recent;
        }
        let has_waited = self.tick.has_passed(pending_for, alert.active_at);
        if alert.state == AlertState::Pending && has_waited {
            alert.state = AlertState::Firing;
            alert.fired_at = Some(self.tick);
        } else if alert.state == AlertState::Firing && !has_waited {
            // A reload has made `for` longer.
            alert.state = AlertState::Pending;
            alert.fired_at = None;
            alert.last_sent_at = None;
            alert.keep_firing_since = None;
        }
        true
    }

    /// Notes since when a firing alert does not match, and returns `true` if it still fires because
    /// of `keep_firing_for`.
    fn continue_firing(&self, alert: &mut Alert, keep_firing_for: Duration) -> bool {
        if alert.state != AlertState::Firing || keep_firing_for.is_zero() {
            return false;
        }
        let since = *alert.keep_firing_since.get_or_insert(self.tick);
        !self.tick.has_passed(keep_firing_for, since)
    }

    /// Returns the samples of `ALERTS` and `ALERTS_FOR_STATE`.
    fn samples(&self, alert: &Alert) -> [Output; 2] {
        let state = (ALERT_STATE, alert.state.name());
        let active_at = alert.active_at.seconds() as f64;
        [
            self.sample(alert, ALERTS, Some(state), 1.0),
            self.sample(alert, ALERTS_FOR_STATE, None, active_at),
        ]
    }

    fn sample(
        &self,
        alert: &Alert,
        metric: &str,
        state: Option<(&str, &str)>,
        value: f64,
    ) -> Output {
        // As in Prometheus, a label whose template expands to nothing stays as written.
        let own = self
            .rule
            .labels
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()));
        let fixed = [(ALERT_NAME, self.rule.name), (METRIC_NAME, metric)];
        let labels = with_labels(
            &Labels::empty(),
            own.chain(alert.labels.iter()).chain(fixed).chain(state),
        );
        Output {
            labels,
            sample: Sample {
                timestamp_ms: self.timestamp_ms,
                value,
            },
            histogram: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use varve_context::Interrupt;
    use varve_query::Point;

    use super::*;

    /// Evaluates a rule with a label for five samples. The request is interrupted during expansion
    /// `interrupted_at`. Returns the error and the number of expansions.
    fn evaluate_five(limit: usize, interrupted_at: usize) -> (Option<String>, usize) {
        let texts = Texts::from([("l".to_owned(), "{{ $labels.a }}".to_owned())]);
        let no_time = Duration::ZERO;
        let rule = RuleParts {
            name: "A",
            pending_for: no_time,
            keep_firing_for: no_time,
            labels: &texts,
            annotations: &texts,
            limit,
        };
        let ctx = QueryContext::unbounded();
        let mut n_expansions = 0;
        let mut expand = |_: &str, _: &VectorSample| {
            n_expansions += 1;
            if n_expansions == interrupted_at {
                ctx.interrupt(Interrupt::Deadline);
            }
            "x".to_owned()
        };
        let sample = |i: usize| VectorSample {
            labels: Labels::from_pairs([("a", i.to_string().as_str())]).unwrap(),
            point: Point {
                timestamp_ms: 0,
                value: 1.0,
            },
            histogram: None,
        };
        let result: Vec<VectorSample> = (0..5).map(sample).collect();
        let tick = Time::default();
        let mut evaluation = Evaluation {
            rule,
            tick,
            timestamp_ms: 0,
            is_restored: true,
            is_dry_run: false,
            ctx: &ctx,
            charge: ctx.charge(),
            expand: &mut expand,
        };
        let error = evaluate(&mut evaluation, Alerts::new(), &result).err();
        (error, n_expansions)
    }

    #[test]
    fn an_evaluation_that_must_fail_expands_no_further_templates() {
        assert_eq!(evaluate_five(5, 0), (None, 10));
        // Labels of the third sample show that it is an alert of its own.
        assert_eq!(
            evaluate_five(2, 0),
            (Some("exceeded limit of 2 with 5 alerts".to_owned()), 5)
        );
        let (error, n_expansions) = evaluate_five(0, 3);
        assert!(error.unwrap().starts_with("expanding templates: "));
        assert_eq!(n_expansions, 4);
    }
}

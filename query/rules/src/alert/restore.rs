//! Continues alerts after a restart, from the series `ALERTS_FOR_STATE`.
//!
//! Without catch-up, [`restore`] works as in Prometheus 3.16: the outage does not count as pending
//! time, and a pending alert fires only after a grace period. With catch-up no evaluation is
//! missing, so [`Stored`] has the alerts of the last evaluation.
//!
//! `keep_firing_for`: Prometheus 3.16 restores only alerts that match after the restart, so an
//! alert that fires because of `keep_firing_for` is lost. With catch-up it continues: its samples
//! show that it fires, and repeated evaluations show since when it no longer matches. A staleness
//! marker of `ALERTS` shows that it was resolved. Without catch-up evaluations are missing, and
//! Varve does as Prometheus does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use varve_model::labels::METRIC_NAME;
use varve_model::staleness::is_stale_nan;
use varve_model::{Labels, Sample};

use super::state::{ALERT_STATE, Alert, AlertState, Alerts};
use crate::file::Texts;
use crate::label_set::with_labels;
use crate::time::{Time, as_ns};

/// Settings for the restoration of alerts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RestoreOptions {
    /// `--rules.alert.for-outage-tolerance`: longest outage after which alerts are restored.
    pub outage_tolerance: Duration,
    /// `--rules.alert.for-grace-period`: minimum time between restart and firing of a pending
    /// alert.
    pub grace_period: Duration,
}

/// The newest samples of series.
pub(crate) type Newest = Vec<(Labels, Sample)>;

/// Sets the time at which each alert became active, from the newest samples of `ALERTS_FOR_STATE`
/// before the outage. Those of alerts that an earlier rule has with the same labels have its times.
pub(crate) fn restore(
    alerts: &mut Alerts,
    stored: &Newest,
    earlier_rules: &BTreeSet<Labels>,
    pending_for: Duration,
    now: Time,
    options: RestoreOptions,
) {
    let stored: BTreeMap<Labels, Sample> = stored
        .iter()
        .map(|(labels, sample)| (with_labels(labels, [(METRIC_NAME, "")]), *sample))
        .collect();
    for (labels, alert) in alerts {
        if earlier_rules.contains(labels) {
            continue;
        }
        let Some(sample) = stored
            .get(labels)
            .filter(|sample| !is_stale_nan(sample.value))
        else {
            continue;
        };
        if let Some(active_at) = active_at(*sample, pending_for, now, options.grace_period) {
            alert.active_at = active_at;
        }
    }
}

/// Returns the time from which an alert counts as active, or `None` if it starts again.
fn active_at(
    sample: Sample,
    pending_for: Duration,
    now: Time,
    grace_period: Duration,
) -> Option<Time> {
    let down_at = Time::from_seconds(Time::from_ms(sample.timestamp_ms).seconds());
    let active_at = Time::from_seconds(sample.value as i64);
    let left_ns = as_ns(pending_for).saturating_sub(down_at.ns().saturating_sub(active_at.ns()));
    if left_ns <= 0 {
        // It was firing before the outage.
        Some(active_at)
    } else if pending_for < grace_period {
        None
    } else if left_ns < as_ns(grace_period) {
        Some(now + grace_period - pending_for)
    } else {
        Some(active_at + now.since(down_at))
    }
}

/// What the store has of the alerts of a rule up to an evaluation.
pub(crate) struct Stored {
    /// The newest samples of `ALERTS_FOR_STATE`, without those that are staleness markers.
    pub(crate) for_state: Newest,
    /// The newest samples of `ALERTS`, without those that are staleness markers.
    pub(crate) states: Newest,
    /// The series of `ALERTS` whose newest samples are staleness markers.
    ended: Newest,
}

impl Stored {
    /// Sorts the newest samples of `ALERTS_FOR_STATE` and `ALERTS`.
    pub(crate) fn new(mut for_state: Newest, states: Newest) -> Self {
        for_state.retain(|(_, sample)| !is_stale_nan(sample.value));
        let (ended, states) = states
            .into_iter()
            .partition(|(_, sample)| is_stale_nan(sample.value));
        Self {
            for_state,
            states,
            ended,
        }
    }

    /// Returns the active alerts. `texts` are the labels of the rule.
    pub(crate) fn alerts(&self, pending_for: Duration, texts: &Texts) -> Alerts {
        let mut firing: BTreeMap<Labels, i64> = BTreeMap::new();
        for (series, sample) in &self.states {
            if series.get(ALERT_STATE) == Some(AlertState::Firing.name()) {
                let labels = without_state(&labels_of(series, texts));
                firing.insert(labels, sample.timestamp_ms);
            }
        }
        self.for_state
            .iter()
            .map(|(series, sample)| {
                let labels = labels_of(series, texts);
                let active_at = Time::from_seconds(sample.value as i64);
                let is_firing = firing
                    .get(&without_state(&labels))
                    .is_some_and(|&fired_ms| fired_ms >= sample.timestamp_ms);
                let alert = Alert {
                    state: if is_firing {
                        AlertState::Firing
                    } else {
                        AlertState::Pending
                    },
                    labels: labels.clone(),
                    annotations: Arc::default(),
                    value: 0.0,
                    active_at,
                    fired_at: is_firing.then(|| active_at + pending_for),
                    resolved_at: None,
                    last_sent_at: None,
                    was_sent_as_firing: false,
                    keep_firing_since: None,
                };
                (labels, alert)
            })
            .collect()
    }

    /// Ends the alerts whose newest sample of `ALERTS` is a staleness marker: firing ones are
    /// resolved at `tick`, and pending ones are removed.
    pub(crate) fn end(&self, alerts: &mut Alerts, texts: &Texts, tick: Time) {
        let keys = |stored: &Newest| -> BTreeSet<Labels> {
            stored
                .iter()
                .map(|(series, _)| without_state(&labels_of(series, texts)))
                .collect()
        };
        let ended = keys(&self.ended);
        let active = keys(&self.states);
        alerts.retain(|labels, alert| {
            let labels = without_state(labels);
            // An alert that begins to fire has a marker of its pending state, and a sample.
            if !ended.contains(&labels) || active.contains(&labels) {
                return true;
            }
            let is_resolved = alert.state == AlertState::Firing;
            alert.state = AlertState::Inactive;
            alert.resolved_at = Some(tick);
            is_resolved
        });
    }
}

/// Returns the labels of the alert that wrote a series.
fn labels_of(series: &Labels, texts: &Texts) -> Labels {
    // A label whose template expands to nothing is stored as the text of the template.
    let raw = texts
        .iter()
        .filter(|(name, text)| text.contains("{{") && series.get(name) == Some(text.as_str()))
        .map(|(name, _)| (name.as_str(), ""));
    with_labels(series, raw.chain([(METRIC_NAME, "")]))
}

/// Returns the labels without that of the state, which replaces a label of the same name in
/// `ALERTS`.
fn without_state(labels: &Labels) -> Labels {
    with_labels(labels, [(ALERT_STATE, "")])
}

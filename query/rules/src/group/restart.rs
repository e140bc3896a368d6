//! State of a group after a restart: restored as in Prometheus, or continued from the last evaluation.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use varve_tsdb::staleness::is_stale_nan;
use varve_tsdb::{Labels, Matcher, Sample, TimeRange};

use super::evaluate::{Mode, Run};
use super::{Group, Settings, duration};
use crate::alert::{self, ALERTS, ALERTS_FOR_STATE, AlertState};
use crate::file::{Alerting, RuleKind};
use crate::rule::Rule;
use crate::storage::{Failure, Storage};
use crate::time::Time;

/// Number of intervals before an evaluation in which the alerts of that evaluation have a sample, unless they ended.
const CONTINUED_INTERVALS: u32 = 5;

impl Group {
    /// Restores the times at which alerts became active.
    pub(super) fn restore(&self, storage: &dyn Storage, settings: &Settings) {
        let (now, clock) = (storage.now(), Instant::now());
        let range = TimeRange { start_ms: (now - settings.restore.outage_tolerance).ms(), end_ms: now.ms() };
        for rule in &self.rules {
            if let RuleKind::Alerting(alerting) = &rule.definition.kind {
                // As in Prometheus, alerts that cannot be restored start again.
                if let Ok(stored) = storage.newest(&rule.matchers(ALERTS_FOR_STATE), range) {
                    let hold = duration(alerting.for_ms);
                    alert::restore(&mut rule.state.lock().alerts, &stored, hold, now, settings.restore);
                }
            }
            rule.state.lock().is_restored = true;
        }
        let mut state = self.state.lock();
        state.restores = false;
        state.status.last_restore = clock.elapsed();
    }

    /// Returns the newest evaluation at most `longest` before `now` whose samples the store has. Its samples may be
    /// incomplete.
    ///
    /// # Errors
    /// The store could not be read.
    pub fn last_stored(
        &self,
        now: Time,
        longest: Duration,
        storage: &dyn Storage,
        settings: &Settings,
    ) -> Result<Option<Time>, Failure> {
        let offset = self.query_offset(settings);
        let range = TimeRange { start_ms: (now - longest - offset).ms(), end_ms: (now - offset).ms() };
        let mut newest = None;
        for rule in &self.rules {
            let metric = if rule.is_alerting() { ALERTS_FOR_STATE } else { &rule.definition.name };
            let stored = storage.newest(&rule.matchers(metric), range)?;
            let tick = |(_, sample): &(Labels, Sample)| {
                let tick = self.schedule.at_or_before(Time::from_ms(sample.timestamp_ms + 1) + offset);
                ((tick - offset).ms() == sample.timestamp_ms).then_some(tick)
            };
            newest = newest.max(stored.iter().filter_map(tick).max());
        }
        Ok(newest)
    }

    /// Loads the alerts that were active at `last`, so that the evaluations after it continue from them. A failed
    /// evaluation writes no samples, so alerts may be some intervals older. Also loads the alerts that became active
    /// until `newest`, an evaluation that will be repeated, so that they are sent again before.
    ///
    /// # Errors
    /// The store could not be read.
    pub fn continue_from(
        &self,
        last: Time,
        newest: Time,
        storage: &dyn Storage,
        settings: &Settings,
    ) -> Result<(), Failure> {
        let offset = self.query_offset(settings);
        let start = last - offset - self.schedule.interval() * CONTINUED_INTERVALS;
        let mut all_shared = BTreeSet::new();
        for rule in &self.rules {
            if let RuleKind::Alerting(alerting) = &rule.definition.kind {
                let stored = |metric, end: Time| {
                    let range = TimeRange { start_ms: start.ms(), end_ms: (end - offset).ms() };
                    let mut stored = storage.newest(&rule.matchers(metric), range)?;
                    stored.retain(|(_, sample)| !is_stale_nan(sample.value));
                    Ok::<_, Failure>(stored)
                };
                let (for_state, mut states) = (stored(ALERTS_FOR_STATE, last)?, stored(ALERTS, last)?);
                let series = for_state.iter().chain(&states).map(|(labels, _)| labels.clone());
                let others = self.other_matchers(rule);
                let (shared, written) = series.partition::<BTreeSet<_>, _>(|labels| is_any(&others, labels));
                // Any of these rules may have a shared alert. Without its state it is pending: it fires again at once
                // if it matches, and no other rule sends it as resolved.
                states.retain(|(labels, _)| !shared.contains(labels));
                all_shared.extend(shared);
                let hold = duration(alerting.for_ms);
                let mut alerts = alert::continue_from(&for_state, &states, hold, &rule.definition.labels);
                if newest > last {
                    let mut for_state = stored(ALERTS_FOR_STATE, newest)?;
                    for_state.retain(|(labels, _)| !is_any(&others, labels));
                    let states = stored(ALERTS, newest)?;
                    let newer = alert::continue_from(&for_state, &states, hold, &rule.definition.labels);
                    for (labels, alert) in newer {
                        alerts.entry(labels).or_insert(alert);
                    }
                }
                if alerts.values().any(|alert| alert.state == AlertState::Firing) {
                    let mode = Mode::CatchUp;
                    let run = Run { group: self, tick: last, offset, mode, scans: None, storage, settings };
                    run.annotate(rule, alerting, &mut alerts);
                }
                rule.set_alerts(alerts).map_err(Failure::new)?;
                rule.state.lock().written = written;
            }
            rule.state.lock().is_restored = true;
        }
        let mut state = self.state.lock();
        state.restores = false;
        state.status.last_tick = Some(last);
        state.stale.extend(all_shared);
        Ok(())
    }

    /// Returns the matchers of the other alerting rules of the same name.
    fn other_matchers(&self, rule: &Rule) -> Vec<Vec<Matcher>> {
        let is_other = |other: &&Rule| {
            other.is_alerting() && other.definition.name == rule.definition.name && !std::ptr::eq(*other, rule)
        };
        self.rules.iter().filter(is_other).map(Rule::label_matchers).collect()
    }
}

impl Run<'_> {
    /// Sets the annotations and values of alerts as the evaluation has found them. If that fails, they stay empty until
    /// the next evaluation.
    fn annotate(&self, rule: &Rule, alerting: &Alerting, alerts: &mut alert::Alerts) {
        let from = self.group.of(&rule.definition.name);
        let found = self
            .storage
            .query(&from, &self.query(rule))
            .and_then(|answer| self.with_templates(rule, alerting, |evaluation| evaluation.matched(&answer.samples)));
        for (labels, new) in found.into_iter().flatten() {
            if let Some(alert) = alerts.get_mut(&labels) {
                (alert.annotations, alert.value) = (new.annotations, new.value);
            }
        }
    }
}

/// Returns `true` if a series passes all matchers of a rule.
fn is_any(rules: &[Vec<Matcher>], series: &Labels) -> bool {
    let passes = |matcher: &Matcher| matcher.matches(series.get(matcher.name()).unwrap_or_default());
    rules.iter().any(|matchers| matchers.iter().all(passes))
}


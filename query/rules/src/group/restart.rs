//! State of a group after a restart: restored as in Prometheus, or continued from the last
//! evaluation.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use varve_model::{Labels, Matcher, TimeRange};

use super::evaluate::{GroupEvaluation, Mode};
use super::group::{Group, GroupSettings, duration};
use crate::alert::{self, ALERTS, ALERTS_FOR_STATE, Alert, AlertState, Alerts, Stored};
use crate::file::{Alerting, RuleKind};
use crate::rule::Rule;
use crate::storage::{Failure, Storage};
use crate::time::Time;

/// Number of intervals before an evaluation in which its active alerts are looked up: an alert has
/// no sample of a failed evaluation.
const CONTINUED_INTERVALS: u32 = 5;

impl Group {
    /// Restores the times at which alerts became active.
    pub(super) fn restore(&self, storage: &dyn Storage, settings: &GroupSettings) {
        let now = storage.now();
        let clock = Instant::now();
        let range = TimeRange {
            start_ms: (now - settings.restore.outage_tolerance).ms(),
            end_ms: now.ms(),
        };
        let mut earlier_rules = BTreeSet::new();
        for rule in &self.rules {
            if let RuleKind::Alerting(alerting) = &rule.definition.kind {
                // As in Prometheus, alerts that cannot be restored start again.
                if let Ok(stored) = storage.newest(&rule.matchers(ALERTS_FOR_STATE), range) {
                    let pending_for = duration(alerting.for_ms);
                    alert::restore(
                        &mut rule.state.lock().alerts,
                        &stored,
                        &earlier_rules,
                        pending_for,
                        now,
                        settings.restore,
                    );
                }
                earlier_rules.extend(self.shared_alerts(rule));
            }
            rule.state.lock().is_restored = true;
        }
        let mut state = self.state.lock();
        state.restores = false;
        state.status.last_restore = clock.elapsed();
    }

    /// Returns the newest evaluation at most `longest` before `now` whose samples the store has.
    /// Its samples may be incomplete.
    ///
    /// # Errors
    /// The store could not be read.
    pub fn last_stored(
        &self,
        now: Time,
        longest: Duration,
        storage: &dyn Storage,
        settings: &GroupSettings,
    ) -> Result<Option<Time>, Failure> {
        let offset = self.query_offset(settings);
        let range = TimeRange {
            start_ms: (now - longest - offset).ms(),
            end_ms: (now - offset).ms(),
        };
        let mut newest = None;
        for rule in &self.rules {
            let metric = if rule.is_alerting() {
                ALERTS_FOR_STATE
            } else {
                &rule.definition.name
            };
            let stored = storage.newest(&rule.matchers(metric), range)?;
            newest = newest.max(
                stored
                    .iter()
                    .filter_map(|(_, sample)| {
                        // The tick was rounded down to milliseconds.
                        let tick = self
                            .schedule
                            .at_or_before(Time::from_ms(sample.timestamp_ms + 1) + offset);
                        ((tick - offset).ms() == sample.timestamp_ms).then_some(tick)
                    })
                    .max(),
            );
        }
        Ok(newest)
    }

    /// Loads the alerts that were active at `last`, so that the evaluations after it continue from
    /// them. A failed evaluation writes no samples, so alerts may be some intervals older. Also
    /// applies the changes of the evaluation at `newest`, which will be repeated, so that alerts
    /// that are sent meanwhile have the right state. Does nothing if the group is stopped: then a
    /// reload may have moved its alerts to a successor.
    ///
    /// # Errors
    /// The store could not be read.
    pub fn continue_from(
        &self,
        last: Time,
        newest: Time,
        storage: &dyn Storage,
        settings: &GroupSettings,
    ) -> Result<(), Failure> {
        let _running = self.running.lock();
        if self.is_stopped() {
            return Ok(());
        }
        let deadline = Instant::now() + self.schedule.interval();
        let continuation = Continuation {
            group: self,
            last,
            newest,
            storage,
            settings,
            deadline,
        };
        let mut shared = BTreeSet::new();
        for rule in &self.rules {
            if let RuleKind::Alerting(alerting) = &rule.definition.kind {
                shared.extend(continuation.load(rule, alerting)?);
            }
            rule.state.lock().is_restored = true;
        }
        let mut state = self.state.lock();
        state.restores = false;
        state.has_shared_alerts = !shared.is_empty();
        state.status.last_tick = Some(last);
        state.stale.extend(shared);
        Ok(())
    }

    /// Returns the active alerts of a rule that another rule of the group may have as well.
    fn shared_alerts(&self, rule: &Rule) -> Vec<Labels> {
        if self.other_matchers(rule).is_empty() {
            return Vec::new();
        }
        let state = rule.state.lock();
        let active = state
            .alerts
            .iter()
            .filter(|(_, alert)| alert.state != AlertState::Inactive);
        active.map(|(labels, _)| labels.clone()).collect()
    }

    /// Removes the alerts of a rule that an earlier rule has with the same labels. The store has one
    /// series for both, with the time of the earlier one: the sample of the other is a duplicate. So
    /// the alert of the later rule becomes active now, if it matches.
    pub(super) fn forget_shared_alerts(&self, rule: &Rule, alerts: &mut Alerts) {
        let earlier_rules = self
            .rules
            .iter()
            .take_while(|earlier| !std::ptr::eq(*earlier, rule));
        for earlier in earlier_rules.filter(|earlier| earlier.is_alerting()) {
            for labels in self.shared_alerts(earlier) {
                alerts.remove(&labels);
            }
        }
    }

    /// Returns the matchers of the other alerting rules of the same name.
    fn other_matchers(&self, rule: &Rule) -> Vec<Vec<Matcher>> {
        self.rules
            .iter()
            .filter(|other| {
                other.is_alerting()
                    && other.definition.name == rule.definition.name
                    && !std::ptr::eq(*other, rule)
            })
            .map(Rule::label_matchers)
            .collect()
    }
}

/// A group that continues after a restart. See [`Group::continue_from`].
struct Continuation<'a> {
    group: &'a Group,
    last: Time,
    newest: Time,
    storage: &'a dyn Storage,
    settings: &'a GroupSettings,
    /// When repeating evaluations ends.
    deadline: Instant,
}

impl Continuation<'_> {
    /// Loads the alerts and the series of a rule. Returns the series that other rules may have
    /// written as well.
    fn load(&self, rule: &Rule, alerting: &Alerting) -> Result<BTreeSet<Labels>, Failure> {
        let pending_for = duration(alerting.for_ms);
        let texts = &rule.definition.labels;
        let others = self.group.other_matchers(rule);
        let mut stored = self.stored(rule, self.last)?;
        let series = stored
            .for_state
            .iter()
            .chain(&stored.states)
            .map(|(labels, _)| labels.clone());
        let (shared, written) =
            series.partition::<BTreeSet<_>, _>(|labels| is_any(&others, labels));
        // It is unknown which rule wrote a shared series, so each rule gets its alert without its
        // state, as pending: it fires again at once if it matches, and no other rule sends it as
        // resolved.
        stored.states.retain(|(labels, _)| !shared.contains(labels));
        let mut alerts = stored.alerts(pending_for, texts);
        if self.newest > self.last {
            let mut newer = self.stored(rule, self.newest)?;
            newer
                .for_state
                .retain(|(labels, _)| !is_any(&others, labels));
            for (labels, alert) in newer.alerts(pending_for, texts) {
                alerts.entry(labels).or_insert(alert);
            }
            newer.end(&mut alerts, texts, self.newest);
        }
        self.recall(rule, alerting, &mut alerts);
        let ctx = self
            .storage
            .evaluation_context(self.group.schedule.interval());
        let mut charge = ctx.charge();
        charge
            .grow_without_waiting(alerts.values().map(Alert::size).sum())
            .map_err(|error| Failure::new(format!("memory of alerts: {error}")))?;
        rule.set_alerts(alerts, charge).map_err(Failure::new)?;
        rule.state.lock().previous_series = written;
        Ok(shared)
    }

    /// Returns what the store has of the alerts of a rule up to an evaluation.
    fn stored(&self, rule: &Rule, end: Time) -> Result<Stored, Failure> {
        let offset = self.group.query_offset(self.settings);
        let interval = self.group.schedule.interval();
        let start = self.last - offset - interval * CONTINUED_INTERVALS;
        let range = TimeRange {
            start_ms: start.ms(),
            end_ms: (end - offset).ms(),
        };
        let newest = |metric| self.storage.newest(&rule.matchers(metric), range);
        Ok(Stored::new(newest(ALERTS_FOR_STATE)?, newest(ALERTS)?))
    }

    /// Sets the annotations and values of firing alerts as their last match had them, and the time
    /// since which they fire only because of `keep_firing_for`. Repeats the evaluations before the
    /// restart, newest first, until each alert has matched. Ends early if an evaluation fails, if
    /// those of all rules take longer than the interval of the group, or if the group or the server
    /// stops. Then alerts fire longer, and their annotations are empty until they match.
    fn recall(&self, rule: &Rule, alerting: &Alerting, alerts: &mut Alerts) {
        let keep_firing_for = duration(alerting.keep_firing_for_ms);
        let mut tick = self.newest;
        let interval = self.group.schedule.interval();
        let mut left: BTreeMap<&Labels, &mut Alert> = alerts
            .iter_mut()
            .filter(|(_, alert)| alert.state == AlertState::Firing)
            .collect();
        while !left.is_empty() && Instant::now() < self.deadline {
            if self.group.is_stopped() || self.storage.is_stopping() {
                return;
            }
            let Ok(matched) = self.matched(rule, alerting, tick) else {
                return;
            };
            left.retain(|labels, alert| match matched.get(*labels) {
                Some(found) => {
                    alert.annotations = Arc::clone(&found.annotations);
                    alert.value = found.value;
                    false
                }
                None => {
                    alert.keep_firing_since = (!keep_firing_for.is_zero()).then_some(tick);
                    true
                }
            });
            if self.last.has_passed(keep_firing_for, tick) {
                return;
            }
            tick = tick - interval;
        }
    }

    /// Returns the alerts that match at an evaluation.
    /// Their charge ends with this function: `recall` takes only a few annotations.
    fn matched(&self, rule: &Rule, alerting: &Alerting, tick: Time) -> Result<Alerts, Failure> {
        let &Self {
            group,
            storage,
            settings,
            ..
        } = self;
        let offset = group.query_offset(settings);
        let evaluation = GroupEvaluation {
            group,
            tick,
            offset,
            mode: Mode::CatchUp,
            scans: None,
            has_shared_alerts: false,
            storage,
            settings,
        };
        let _background = storage.start_background();
        let rule_ref = group.rule_ref(&rule.definition.name);
        let answer = storage.query(&rule_ref, &evaluation.query_of(rule))?;
        let (alerts, _charge) = evaluation.with_templates(rule, alerting, |evaluation| {
            evaluation.matched(&answer.samples)
        })?;
        Ok(alerts)
    }
}

/// Returns `true` if a series passes all matchers of a rule.
fn is_any(rules: &[Vec<Matcher>], series: &Labels) -> bool {
    rules.iter().any(|matchers| {
        matchers
            .iter()
            .all(|matcher| matcher.matches(series.get(matcher.name()).unwrap_or_default()))
    })
}

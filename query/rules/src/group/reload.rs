//! Reload of a group: its successor takes over its state, or its series end.

use std::collections::{BTreeMap, BTreeSet};

use varve_model::labels::METRIC_NAME;
use varve_model::{Labels, Matcher, TimeRange};

use super::group::{Group, GroupSettings};
use super::write::stale;
use crate::file::{RuleKind, Texts};
use crate::rule::Rule;
use crate::storage::{Failure, Output, OutputBudget, Storage};
use crate::time::Time;

/// The series of a removed group. They end two intervals later, so that a renamed group can
/// continue them.
#[derive(Debug)]
pub struct RemovedGroup {
    /// Time at which the staleness markers are due.
    pub due: Time,
    timestamp_ms: i64,
    series: Vec<Labels>,
}

impl Group {
    /// Returns `true` if both groups have the same rules and settings.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        let settings = |group: &Self| {
            let definition = &group.definition;
            (
                group.schedule,
                definition.limit,
                definition.query_offset_ms,
                definition.state,
            )
        };
        settings(self) == settings(other)
            && self.rules.len() == other.rules.len()
            && self
                .rules
                .iter()
                .zip(&other.rules)
                .all(|(a, b)| is_same_rule(a, b))
    }

    /// Takes over the state of the group before a reload, which must be stopped: alerts, written
    /// series, evaluations. Two rules are the same if they have the same kind, name and labels. If
    /// several have, they are paired in order. The series of other rules end at the next
    /// evaluation.
    pub fn carry_over(&self, from: &Self) {
        let mut old: BTreeMap<(bool, &str, &Texts), Vec<&Rule>> = BTreeMap::new();
        for rule in from.rules.iter().rev() {
            old.entry(identity(rule)).or_default().push(rule);
        }
        for rule in &self.rules {
            if let Some(same) = old.get_mut(&identity(rule)).and_then(Vec::pop) {
                rule.carry_over(same);
            }
        }
        let mut state = self.state.lock();
        let old_state = from.state.lock();
        state.restores = old_state.restores;
        state.stale = old_state.stale.clone();
        state.stale.extend(
            old.into_values()
                .flatten()
                .flat_map(|rule| rule.state.lock().previous_series.clone()),
        );
        state.status = old_state.status;
    }

    /// Returns the series of a removed group, which must be stopped.
    #[must_use]
    pub fn removed(&self, now: Time, settings: &GroupSettings) -> RemovedGroup {
        let written = self
            .rules
            .iter()
            .flat_map(|rule| rule.state.lock().previous_series.clone());
        RemovedGroup {
            due: now + self.schedule.interval() * REMOVAL_INTERVALS,
            timestamp_ms: (now - self.query_offset(settings)).ms(),
            series: written.chain(self.state.lock().stale.clone()).collect(),
        }
    }
}

/// Number of intervals after which the series of a removed group end.
const REMOVAL_INTERVALS: u32 = 2;

impl RemovedGroup {
    /// Writes staleness markers for the series that no other rule has continued.
    ///
    /// # Errors
    /// The store failed.
    pub fn end_series(&self, storage: &dyn Storage) -> Result<(), Failure> {
        let range = TimeRange {
            start_ms: self.timestamp_ms + 1,
            end_ms: i64::MAX,
        };
        let metrics: BTreeSet<&str> = self.series.iter().map(Labels::metric_name).collect();
        let mut continued = BTreeSet::new();
        for metric in metrics {
            let newest = storage.newest(&[Matcher::equal(METRIC_NAME, metric)], range)?;
            continued.extend(newest.into_iter().map(|(labels, _)| labels));
        }
        let ending = self
            .series
            .iter()
            .filter(|labels| !continued.contains(*labels));
        let outputs: Vec<Output> = ending
            .map(|labels| stale(labels.clone(), self.timestamp_ms))
            .collect();
        if outputs.is_empty() {
            return Ok(());
        }
        storage.append(OutputBudget::Exempt, &outputs).map(drop)
    }
}

/// Returns what a rule keeps over a reload.
fn identity(rule: &Rule) -> (bool, &str, &Texts) {
    (
        rule.is_alerting(),
        &rule.definition.name,
        &rule.definition.labels,
    )
}

fn is_same_rule(a: &Rule, b: &Rule) -> bool {
    let is_same_kind = match (&a.definition.kind, &b.definition.kind) {
        (RuleKind::Recording, RuleKind::Recording) => true,
        (RuleKind::Alerting(a), RuleKind::Alerting(b)) => {
            (a.for_ms, a.keep_firing_for_ms, &a.annotations)
                == (b.for_ms, b.keep_firing_for_ms, &b.annotations)
        }
        _ => false,
    };
    is_same_kind && identity(a) == identity(b) && a.expr == b.expr
}

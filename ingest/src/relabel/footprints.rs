//! Footprints of the label sets that rules with `disable_on_use` have dropped.
//!
//! Dropped series are in no index, so this module remembers their footprints: the metric name, and the labels that the
//! rule compares. A selector uses dropped series if it may select a series with such a footprint and any other labels.
//!
//! Invariants
//! 1. There are at most [`FOOTPRINTS_MAX`] footprints per rule and [`FOOTPRINTS_TOTAL_MAX`] in total. Further dropped
//!    series are not remembered, and a query for them does not disable the rule.
//!
//! Threads: one lock, taken when a label set is first seen, and by queries if such rules exist.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use varve_tsdb::labels::METRIC_NAME;
use varve_tsdb::{MatchOp, Matcher};

use super::builder::Builder;

/// Maximum number of footprints of a rule.
const FOOTPRINTS_MAX: usize = 4_096;
/// Maximum number of footprints of all rules. A query may have to compare its selector with all of them.
const FOOTPRINTS_TOTAL_MAX: usize = 65_536;

/// See the module documentation.
#[derive(Debug, Default)]
pub(super) struct Footprints {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    by_metric: HashMap<Box<str>, HashSet<Footprint>>,
    n_by_rule: HashMap<u16, usize>,
    n_total: usize,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Footprint {
    rule: u16,
    /// The labels that the rule compares, except the metric name. A value may be empty.
    labels: Box<[(Box<str>, Box<str>)]>,
}

impl Footprints {
    /// Adds the footprint of a label set that a rule drops. `compared` are the names of the labels that the rule
    /// compares.
    pub(super) fn note<'a>(&self, rule: u16, compared: impl Iterator<Item = &'a str>, labels: &Builder<'_>) {
        let label = |name: &str| (name.into(), labels.get(name).into());
        let footprint = Footprint { rule, labels: compared.filter(|name| *name != METRIC_NAME).map(label).collect() };
        let State { by_metric, n_by_rule, n_total } = &mut *self.state();
        let n_of_rule = n_by_rule.entry(rule).or_default();
        if *n_of_rule >= FOOTPRINTS_MAX || *n_total >= FOOTPRINTS_TOTAL_MAX {
            return;
        }
        if by_metric.entry(labels.get(METRIC_NAME).into()).or_default().insert(footprint) {
            *n_of_rule += 1;
            *n_total += 1;
        }
    }

    /// Returns the indexes of the rules that have dropped series that `matchers` may select, ascending.
    pub(super) fn matching(&self, matchers: &[Matcher]) -> Vec<u16> {
        let state = self.state();
        let named = matchers.iter().find(|matcher| matcher.name() == METRIC_NAME && matcher.op() == MatchOp::Equal);
        let mut found: Vec<u16> = match named {
            Some(name) => state
                .by_metric
                .get(name.value())
                .map_or_else(Vec::new, |footprints| rules(footprints, name.value(), matchers)),
            None => state.by_metric.iter().flat_map(|(name, footprints)| rules(footprints, name, matchers)).collect(),
        };
        found.sort_unstable();
        found.dedup();
        found
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn rules(footprints: &HashSet<Footprint>, metric: &str, matchers: &[Matcher]) -> Vec<u16> {
    let name_matches = |matcher: &Matcher| matcher.name() != METRIC_NAME || matcher.matches(metric);
    if !matchers.iter().all(name_matches) {
        return Vec::new();
    }
    footprints.iter().filter(|footprint| footprint.matches(matchers)).map(|footprint| footprint.rule).collect()
}

impl Footprint {
    fn matches(&self, matchers: &[Matcher]) -> bool {
        let value = |name: &str| self.labels.iter().find(|(label, _)| **label == *name).map(|(_, value)| value);
        matchers.iter().all(|matcher| value(matcher.name()).is_none_or(|value| matcher.matches(value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_tsdb::Labels;

    fn note(footprints: &Footprints, rule: u16, compared: &[&str], labels: &[(&str, &str)]) {
        let labels = Labels::from_unsorted(&mut labels.to_vec()).unwrap();
        footprints.note(rule, compared.iter().copied(), &Builder::new(&labels));
    }

    #[test]
    fn a_selector_matches_the_footprints_that_it_may_select() {
        let footprints = Footprints::default();
        for pod in ["p", "q"] {
            note(&footprints, 0, &["__name__", "job"], &[("__name__", "a"), ("job", "x"), ("pod", pod)]);
        }
        note(&footprints, 7, &["namespace"], &[("__name__", "b"), ("job", "x")]);
        assert_eq!(footprints.state().n_total, 2);
        let check = |matchers: &[(MatchOp, &str, &str)], expect: &[u16]| {
            let matchers: Vec<_> =
                matchers.iter().map(|&(op, name, value)| Matcher::new(op, name, value).unwrap()).collect();
            assert_eq!(footprints.matching(&matchers), expect, "{matchers:?}");
        };
        use MatchOp::{Equal, NotEqual, NotRegexp, Regexp};
        check(&[(Equal, "__name__", "a")], &[0]);
        check(&[(Equal, "__name__", "a"), (Equal, "job", "x"), (Equal, "pod", "unknown")], &[0]);
        check(&[(Equal, "__name__", "a"), (Equal, "job", "y")], &[]);
        check(&[(Equal, "__name__", "a"), (NotEqual, "job", "x")], &[]);
        check(&[(Equal, "__name__", "c")], &[]);
        check(&[(Regexp, "__name__", "a|b")], &[0, 7]);
        check(&[(Equal, "job", "x")], &[0, 7]);
        check(&[(NotRegexp, "__name__", "a.*")], &[7]);
        // A missing label counts as empty.
        check(&[(Equal, "__name__", "b"), (Equal, "namespace", "n")], &[]);
        check(&[(Equal, "__name__", "b"), (Regexp, "namespace", ".*")], &[7]);
        check(&[(Equal, "__name__", "a"), (Equal, "__name__", "b")], &[]);
    }

    #[test]
    fn footprints_are_bounded_by_rule_and_in_total() {
        let footprints = Footprints::default();
        let metric = |i: usize| format!("m{i}");
        (0..=FOOTPRINTS_MAX).for_each(|i| note(&footprints, 0, &["__name__"], &[("__name__", &metric(i))]));
        assert_eq!(footprints.state().n_total, FOOTPRINTS_MAX);
        note(&footprints, 1, &["__name__"], &[("__name__", "m0")]);
        assert_eq!(footprints.matching(&[Matcher::equal("__name__", "m0")]), [0, 1]);
        assert!(footprints.matching(&[Matcher::equal("__name__", &metric(FOOTPRINTS_MAX))]).is_empty());
        for rule in 2..20 {
            (0..FOOTPRINTS_MAX).for_each(|i| note(&footprints, rule, &["__name__"], &[("__name__", &metric(i))]));
        }
        assert_eq!(footprints.state().n_total, FOOTPRINTS_TOTAL_MAX);
    }
}

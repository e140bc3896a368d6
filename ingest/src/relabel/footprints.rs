//! Rules that fall back to shadow by themselves when somebody asks for what they drop.
//!
//! Of each label set that an armed rule drops, the metric's name and the labels that the rule looks at are kept: its
//! footprint. A selector asks for what the rule drops if it may select a series of such a footprint, whatever the other
//! labels are. Dropped series are in no index, hence they are remembered here.
//!
//! Invariants
//! 1. There are at most [`FOOTPRINTS_MAX`] footprints of a rule, and of all rules [`FOOTPRINTS_TOTAL_MAX`]; what is dropped
//!    beyond that is not remembered, and asking for it does not let the rule fall back.
//! 2. A rule that has fallen stays so for as long as it stands in the configuration as it is (`fallen`).
//!
//! Threads: one lock, taken where a label set is seen for the first time, and by queries where there are armed rules.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use varve_tsdb::labels::METRIC_NAME;
use varve_tsdb::{MatchOp, Matcher};

use super::builder::Builder;

/// What is remembered of a rule.
const FOOTPRINTS_MAX: usize = 4_096;
/// What is remembered of all rules; a query may have to look at all of it.
const FOOTPRINTS_TOTAL_MAX: usize = 65_536;

/// What armed rules have dropped.
#[derive(Debug, Default)]
pub(super) struct Dropped {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    by_metric: HashMap<Box<str>, HashSet<Footprint>>,
    n_of_rule: HashMap<u16, usize>,
    n_all: usize,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Footprint {
    rule: u16,
    /// Names and values of the labels that the rule looks at, the metric's name excluded; a value may be empty.
    labels: Box<[(Box<str>, Box<str>)]>,
}

impl Dropped {
    /// Remembers a label set that a rule drops; `looked_at` are the labels that the rule looks at.
    pub(super) fn note<'a>(&self, rule: u16, looked_at: impl Iterator<Item = &'a str>, labels: &Builder<'_>) {
        let of_label = |name: &str| (name.into(), labels.get(name).into());
        let labels_of_rule = looked_at.filter(|name| *name != METRIC_NAME).map(of_label).collect();
        let footprint = Footprint { rule, labels: labels_of_rule };
        let mut state = self.state();
        let State { by_metric, n_of_rule, n_all } = &mut *state;
        let n_of_rule = n_of_rule.entry(rule).or_default();
        if *n_of_rule >= FOOTPRINTS_MAX || *n_all >= FOOTPRINTS_TOTAL_MAX {
            return;
        }
        if by_metric.entry(labels.get(METRIC_NAME).into()).or_default().insert(footprint) {
            *n_of_rule += 1;
            *n_all += 1;
        }
    }

    /// Returns the rules that have dropped what a selector may ask for, ascending.
    pub(super) fn asked(&self, matchers: &[Matcher]) -> Vec<u16> {
        let state = self.state();
        let named = matchers.iter().find(|matcher| matcher.name() == METRIC_NAME && matcher.op() == MatchOp::Equal);
        let mut found: Vec<u16> = match named {
            Some(name) => {
                state.by_metric.get(name.value()).map_or_else(Vec::new, |of| rules(of, name.value(), matchers))
            }
            None => state.by_metric.iter().flat_map(|(name, of)| rules(of, name, matchers)).collect(),
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
    let name_fits = |matcher: &Matcher| matcher.name() != METRIC_NAME || matcher.matches(metric);
    if !matchers.iter().all(name_fits) {
        return Vec::new();
    }
    footprints.iter().filter(|footprint| footprint.fits(matchers)).map(|footprint| footprint.rule).collect()
}

impl Footprint {
    fn fits(&self, matchers: &[Matcher]) -> bool {
        let value = |name: &str| self.labels.iter().find(|(label, _)| **label == *name).map(|(_, value)| value);
        matchers.iter().all(|matcher| value(matcher.name()).is_none_or(|value| matcher.matches(value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_tsdb::Labels;

    fn note(dropped: &Dropped, rule: u16, looked_at: &[&str], labels: &[(&str, &str)]) {
        let labels = Labels::from_unsorted(&mut labels.to_vec()).unwrap();
        dropped.note(rule, looked_at.iter().copied(), &Builder::new(&labels));
    }

    fn matcher(op: MatchOp, name: &str, value: &str) -> Matcher {
        Matcher::new(op, name, value).unwrap()
    }

    #[test]
    fn a_selector_asks_for_what_it_may_select() {
        let dropped = Dropped::default();
        for pod in ["p", "q"] {
            note(&dropped, 0, &["__name__", "job"], &[("__name__", "a"), ("job", "x"), ("pod", pod)]);
        }
        note(&dropped, 7, &["namespace"], &[("__name__", "b"), ("job", "x")]);
        assert_eq!(dropped.state().n_all, 2);
        let check = |matchers: &[(MatchOp, &str, &str)], expect: &[u16]| {
            let matchers: Vec<_> = matchers.iter().map(|(op, name, value)| matcher(*op, name, value)).collect();
            assert_eq!(dropped.asked(&matchers), expect, "{matchers:?}");
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
        // A label that is not there is empty.
        check(&[(Equal, "__name__", "b"), (Equal, "namespace", "n")], &[]);
        check(&[(Equal, "__name__", "b"), (Regexp, "namespace", ".*")], &[7]);
        check(&[(Equal, "__name__", "a"), (Equal, "__name__", "b")], &[]);
    }

    #[test]
    fn footprints_are_bounded_by_rule_and_in_all() {
        let dropped = Dropped::default();
        for i in 0..=FOOTPRINTS_MAX {
            note(&dropped, 0, &["__name__"], &[("__name__", &format!("m{i}"))]);
        }
        assert_eq!(dropped.state().n_all, FOOTPRINTS_MAX);
        note(&dropped, 1, &["__name__"], &[("__name__", "m0")]);
        assert_eq!(dropped.asked(&[matcher(MatchOp::Equal, "__name__", "m0")]), [0, 1]);
        let beyond = matcher(MatchOp::Equal, "__name__", &format!("m{FOOTPRINTS_MAX}"));
        assert!(dropped.asked(&[beyond]).is_empty());
        for rule in 2..20 {
            for i in 0..FOOTPRINTS_MAX {
                note(&dropped, rule, &["__name__"], &[("__name__", &format!("m{i}"))]);
            }
        }
        assert_eq!(dropped.state().n_all, FOOTPRINTS_TOTAL_MAX);
    }
}

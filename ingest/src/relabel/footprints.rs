//! Footprints of the label sets that rules with `disable_on_use` have dropped.
//!
//! Dropped series are in no index, so this module remembers their footprints: the metric name, and
//! the values of some labels. A selector uses dropped series if it may select a series with such a
//! footprint and any other labels. The selector of a tenant does so only if the footprint has all
//! labels of its matchers and passes them.
//!
//! Invariants
//! 1. There are at most [`FOOTPRINTS_MAX`] footprints per rule, and [`FOOTPRINTS_TOTAL_MAX`] of
//!    [`SIZE_MAX`] bytes in total. Further dropped series are counted and not remembered, and a
//!    query for them does not disable the rule.
//!
//! Threads: one lock, taken briefly when a label set is first seen, and by queries if such rules
//! exist. Queries match a shared state without it.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use varve_context::QueryContext;
use varve_model::labels::METRIC_NAME;
use varve_model::{MatchOp, Matcher};
use varve_tsdb::{ReadContext, Result};

use super::builder::Builder;

/// Maximum number of footprints of a rule.
const FOOTPRINTS_MAX: usize = 4_096;
/// Maximum number of footprints of all rules. A query may have to compare its selector with all of
/// them.
const FOOTPRINTS_TOTAL_MAX: usize = 65_536;
/// Maximum size of the strings of all footprints in bytes.
const SIZE_MAX: usize = 16 << 20;

/// See the module documentation.
#[derive(Debug, Default)]
pub(super) struct Footprints {
    state: Mutex<Arc<State>>,
    n_refused: AtomicU64,
}

#[derive(Debug, Default, Clone)]
struct State {
    by_metric: HashMap<Box<str>, HashSet<Footprint>>,
    n_by_rule: HashMap<u16, usize>,
    n_total: usize,
    size: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Footprint {
    rule: u16,
    /// The labels, except the metric name. A value may be empty.
    labels: Box<[(Box<str>, Box<str>)]>,
}

impl Footprints {
    /// Adds the footprint of a label set that a rule drops. `names` are the labels that it has.
    pub(super) fn note<'a>(
        &self,
        rule: u16,
        names: impl Iterator<Item = &'a str>,
        labels: &Builder<'_>,
    ) {
        let metric = labels.get(METRIC_NAME);
        let footprint = Footprint {
            rule,
            labels: names
                .filter(|name| *name != METRIC_NAME)
                .map(|name| (name.into(), labels.get(name).into()))
                .collect(),
        };
        let size = metric.len()
            + footprint
                .labels
                .iter()
                .map(|(name, value)| name.len() + value.len())
                .sum::<usize>();
        let mut state = self.state.lock();
        let is_known = state
            .by_metric
            .get(metric)
            .is_some_and(|footprints| footprints.contains(&footprint));
        if is_known {
            return;
        }
        let is_full = state
            .n_by_rule
            .get(&rule)
            .is_some_and(|n_of_rule| *n_of_rule >= FOOTPRINTS_MAX)
            || state.n_total >= FOOTPRINTS_TOTAL_MAX
            || state.size + size > SIZE_MAX;
        if is_full {
            self.n_refused.fetch_add(1, Ordering::Relaxed);
            return;
        }
        // Clones the state if a query still reads it.
        let State {
            by_metric,
            n_by_rule,
            n_total,
            size: size_total,
        } = Arc::make_mut(&mut state);
        by_metric
            .entry(metric.into())
            .or_default()
            .insert(footprint);
        *n_by_rule.entry(rule).or_default() += 1;
        *n_total += 1;
        *size_total += size;
    }

    /// Returns the indexes of the rules that have dropped series that `matchers` may select, and
    /// that the request may read, ascending.
    ///
    /// # Errors
    /// If the request is interrupted or exceeds its memory limit.
    pub(super) fn matching(&self, ctx: &ReadContext, matchers: &[Matcher]) -> Result<Vec<u16>> {
        let state = Arc::clone(&self.state.lock());
        let named = matchers
            .iter()
            .find(|matcher| matcher.name() == METRIC_NAME && matcher.op() == MatchOp::Equal);
        let mut found = BTreeSet::new();
        match named {
            Some(name) => {
                if let Some((name, footprints)) = state.by_metric.get_key_value(name.value()) {
                    add_rules(ctx, name, footprints, matchers, &mut found)?;
                }
            }
            None => {
                for (name, footprints) in &state.by_metric {
                    add_rules(ctx, name, footprints, matchers, &mut found)?;
                }
            }
        }
        Ok(found.into_iter().collect())
    }

    /// Removes all footprints.
    pub(super) fn clear(&self) {
        *self.state.lock() = Arc::default();
    }

    /// Returns the number of footprints.
    pub(super) fn len(&self) -> usize {
        self.state.lock().n_total
    }

    /// Returns how many footprints were not remembered because of the limits.
    pub(super) fn n_refused(&self) -> u64 {
        self.n_refused.load(Ordering::Relaxed)
    }
}

/// Adds the rules of a metric's footprints that `matchers` may select.
fn add_rules(
    ctx: &ReadContext,
    metric: &str,
    footprints: &HashSet<Footprint>,
    matchers: &[Matcher],
    found: &mut BTreeSet<u16>,
) -> Result<()> {
    ctx.check()?;
    for matcher in matchers.iter().chain(ctx.restriction()) {
        if matcher.name() == METRIC_NAME && !matcher.matches_in(ctx, metric)? {
            return Ok(());
        }
    }
    for footprint in footprints {
        ctx.check()?;
        if !found.contains(&footprint.rule)
            && ctx.may_read_all(|label| footprint.get(label))?
            && footprint.may_match(ctx, matchers)?
        {
            found.insert(footprint.rule);
        }
    }
    Ok(())
}

impl Footprint {
    /// Returns the value of a label, or `None` if the footprint does not have it.
    fn get(&self, name: &str) -> Option<&str> {
        let (_, value) = self.labels.iter().find(|(label, _)| **label == *name)?;
        Some(value)
    }

    /// Returns `true` if a series with this footprint may pass `matchers`, apart from those of the
    /// metric name.
    fn may_match(&self, ctx: &QueryContext, matchers: &[Matcher]) -> Result<bool> {
        for matcher in matchers {
            if matcher.name() == METRIC_NAME {
                continue;
            }
            if let Some(value) = self.get(matcher.name())
                && !matcher.matches_in(ctx, value)?
            {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_context::Interrupt;
    use varve_model::Labels;

    fn note(footprints: &Footprints, rule: u16, compared: &[&str], labels: &[(&str, &str)]) {
        let labels = Labels::from_unsorted(&mut labels.to_vec()).unwrap();
        footprints.note(rule, compared.iter().copied(), &Builder::new(&labels));
    }

    fn matching(footprints: &Footprints, matchers: &[Matcher]) -> Vec<u16> {
        footprints
            .matching(&ReadContext::unbounded(), matchers)
            .unwrap()
    }

    /// Matching held the lock and had no deadline, so a query with an expensive expression delayed
    /// all writes.
    #[test]
    fn matching_ends_at_the_deadline_and_blocks_no_writer() {
        let footprints = Footprints::default();
        let note_one = |i: usize| {
            note(
                &footprints,
                0,
                &["__name__"],
                &[("__name__", &i.to_string())],
            )
        };
        for i in 0..1000 {
            note_one(i);
        }
        let interrupted = ReadContext::unbounded();
        interrupted.interrupt(Interrupt::Canceled);
        for matchers in [vec![], vec![Matcher::equal("__name__", "7")]] {
            assert!(footprints.matching(&interrupted, &matchers).is_err());
        }
        let read = Arc::clone(&footprints.state.lock());
        note_one(1000);
        assert_eq!(
            (read.n_total, footprints.state.lock().n_total),
            (1000, 1001)
        );
    }

    /// A tenant used the series that a rule dropped for another one.
    #[test]
    fn a_tenant_uses_only_footprints_that_it_may_read() {
        let footprints = Footprints::default();
        let up = |team| [("__name__", "up"), ("job", "x"), ("team", team)];
        note(&footprints, 0, &["job", "team"], &up("a"));
        note(&footprints, 1, &["job", "team"], &up("b"));
        note(&footprints, 2, &["job"], &up("a"));
        let check = |restriction: Matcher, expect: &[u16]| {
            let ctx = ReadContext::restricted(QueryContext::unbounded(), [restriction].into());
            let used = footprints.matching(&ctx, &[Matcher::equal("__name__", "up")]);
            assert_eq!(used.unwrap(), expect, "{:?}", ctx.restriction());
        };
        check(Matcher::equal("team", "a"), &[0]);
        check(Matcher::equal("team", "c"), &[]);
        check(
            Matcher::new(MatchOp::Regexp, "team", "a|b").unwrap(),
            &[0, 1],
        );
        check(Matcher::new(MatchOp::NotEqual, "team", "a").unwrap(), &[1]);
        check(Matcher::equal("__name__", "down"), &[]);
        check(Matcher::equal("__name__", "up"), &[0, 1, 2]);
        assert_eq!(
            matching(&footprints, &[Matcher::equal("__name__", "up")]),
            [0, 1, 2]
        );
    }

    #[test]
    fn a_selector_matches_the_footprints_that_it_may_select() {
        let footprints = Footprints::default();
        for pod in ["p", "q"] {
            note(
                &footprints,
                0,
                &["__name__", "job"],
                &[("__name__", "a"), ("job", "x"), ("pod", pod)],
            );
        }
        note(
            &footprints,
            7,
            &["namespace"],
            &[("__name__", "b"), ("job", "x")],
        );
        assert_eq!(footprints.state.lock().n_total, 2);
        let check = |matchers: &[(MatchOp, &str, &str)], expect: &[u16]| {
            let matchers: Vec<_> = matchers
                .iter()
                .map(|&(op, name, value)| Matcher::new(op, name, value).unwrap())
                .collect();
            assert_eq!(matching(&footprints, &matchers), expect, "{matchers:?}");
        };
        use MatchOp::{Equal, NotEqual, NotRegexp, Regexp};
        check(&[(Equal, "__name__", "a")], &[0]);
        check(
            &[
                (Equal, "__name__", "a"),
                (Equal, "job", "x"),
                (Equal, "pod", "unknown"),
            ],
            &[0],
        );
        check(&[(Equal, "__name__", "a"), (Equal, "job", "y")], &[]);
        check(&[(Equal, "__name__", "a"), (NotEqual, "job", "x")], &[]);
        check(&[(Equal, "__name__", "c")], &[]);
        check(&[(Regexp, "__name__", "a|b")], &[0, 7]);
        check(&[(Equal, "job", "x")], &[0, 7]);
        check(&[(NotRegexp, "__name__", "a.*")], &[7]);
        // A missing label counts as empty.
        check(&[(Equal, "__name__", "b"), (Equal, "namespace", "n")], &[]);
        check(
            &[(Equal, "__name__", "b"), (Regexp, "namespace", ".*")],
            &[7],
        );
        check(&[(Equal, "__name__", "a"), (Equal, "__name__", "b")], &[]);
    }

    #[test]
    fn footprints_are_bounded_by_rule_and_in_total() {
        let footprints = Footprints::default();
        let metric = |i: usize| format!("m{i}");
        (0..=FOOTPRINTS_MAX)
            .for_each(|i| note(&footprints, 0, &["__name__"], &[("__name__", &metric(i))]));
        assert_eq!(footprints.state.lock().n_total, FOOTPRINTS_MAX);
        assert_eq!(footprints.n_refused(), 1);
        note(&footprints, 1, &["__name__"], &[("__name__", "m0")]);
        assert_eq!(
            matching(&footprints, &[Matcher::equal("__name__", "m0")]),
            [0, 1]
        );
        assert!(
            matching(
                &footprints,
                &[Matcher::equal("__name__", &metric(FOOTPRINTS_MAX))]
            )
            .is_empty()
        );
        for rule in 2..20 {
            (0..FOOTPRINTS_MAX).for_each(|i| {
                note(
                    &footprints,
                    rule,
                    &["__name__"],
                    &[("__name__", &metric(i))],
                )
            });
        }
        assert_eq!(footprints.state.lock().n_total, FOOTPRINTS_TOTAL_MAX);

        let footprints = Footprints::default();
        let value = "x".repeat(1 << 16);
        for i in 0..300 {
            note(
                &footprints,
                0,
                &["job"],
                &[("__name__", &metric(i)), ("job", &value)],
            );
        }
        assert_eq!(
            footprints.state.lock().n_total,
            SIZE_MAX / (value.len() + "m100job".len())
        );
    }
}

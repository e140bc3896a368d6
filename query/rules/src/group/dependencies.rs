//! Finds the rules of a group that may run at the same time.
//!
//! Two rules depend on each other if one reads or writes series that the other writes. They run in
//! the order of the file, so that their results equal the results of a sequential evaluation. All
//! other rules are independent.

use std::collections::BTreeSet;

use varve_model::Matcher;
use varve_model::labels::METRIC_NAME;
use varve_promql::selectors;

use crate::alert::{ALERT_NAME, ALERTS, ALERTS_FOR_STATE};
use crate::file::{RuleDefinition, RuleKind};

/// Returns batches of rules by index. The rules of a batch are independent. Batches run in order.
pub(super) fn batches(rules: &[RuleDefinition]) -> Vec<Vec<usize>> {
    let reads: Vec<Vec<Vec<Matcher>>> = rules
        .iter()
        .map(|rule| selectors(&rule.expr.tree))
        .collect();
    let mut levels: Vec<usize> = Vec::with_capacity(rules.len());
    for (idx, rule) in rules.iter().enumerate() {
        let level = (0..idx)
            .filter(|earlier| {
                let other = &rules[*earlier];
                may_read(&reads[idx], other)
                    || may_read(&reads[*earlier], rule)
                    || writes_same(rule, other)
            })
            .map(|earlier| levels[earlier] + 1)
            .max()
            .unwrap_or(0);
        levels.push(level);
    }
    let mut batches = vec![Vec::new(); levels.iter().max().map_or(0, |max| max + 1)];
    for (idx, level) in levels.into_iter().enumerate() {
        batches[level].push(idx);
    }
    batches
}

/// Recording rules of several groups in an order in which each one comes after those that it reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Levels {
    /// The rules by index. The rules of a level read those of earlier levels only, but for
    /// `cyclic`.
    pub levels: Vec<Vec<usize>>,
    /// Rules that read their own series, directly or through others. Each comes before the other
    /// rules of its cycle, and after all that it reads outside of the cycle.
    pub cyclic: Vec<usize>,
}

/// Orders recording rules, in whatever groups and files they are.
#[must_use]
pub fn levels(rules: &[&RuleDefinition]) -> Levels {
    let reads = Reads {
        rules,
        selectors: rules
            .iter()
            .map(|rule| selectors(&rule.expr.tree))
            .collect(),
    };
    let mut ordered = Levels {
        levels: Vec::new(),
        cyclic: Vec::new(),
    };
    let mut left: Vec<usize> = (0..rules.len()).collect();
    while !left.is_empty() {
        let mut level = left.clone();
        level.retain(|&idx| reads.among(&left, idx).is_empty());
        if level.is_empty() {
            let in_cycle = left.iter().find(|&&idx| reads.is_first_cycle(&left, idx));
            level.extend(in_cycle);
            ordered.cyclic.extend(&level);
        }
        left.retain(|idx| !level.contains(idx));
        ordered.levels.push(level);
    }
    ordered
}

/// Which rules read which others.
struct Reads<'a> {
    rules: &'a [&'a RuleDefinition],
    selectors: Vec<Vec<Vec<Matcher>>>,
}

impl Reads<'_> {
    /// Returns those of `others` that a rule may read.
    fn among(&self, others: &[usize], idx: usize) -> Vec<usize> {
        let others = others.iter().copied();
        others
            .filter(|&other| may_read(&self.selectors[idx], self.rules[other]))
            .collect()
    }

    /// Returns `true` if a rule is in a cycle that reads nothing of `others` outside of the cycle: all
    /// that it reads, directly or through others, read it, too. If each of `others` reads one of
    /// them, there is such a cycle.
    fn is_first_cycle(&self, others: &[usize], start: usize) -> bool {
        let reached = self.reached(others, start);
        let mut reached = reached.into_iter();
        reached.all(|idx| self.reached(others, idx).contains(&start))
    }

    /// Returns those of `others` that a rule may read, directly or through others.
    fn reached(&self, others: &[usize], start: usize) -> BTreeSet<usize> {
        let mut reached = BTreeSet::new();
        let mut to_visit = self.among(others, start);
        while let Some(idx) = to_visit.pop() {
            if reached.insert(idx) {
                to_visit.extend(self.among(others, idx));
            }
        }
        reached
    }
}

fn writes_same(a: &RuleDefinition, b: &RuleDefinition) -> bool {
    let have_same_kind = matches!(
        (&a.kind, &b.kind),
        (RuleKind::Recording, RuleKind::Recording) | (RuleKind::Alerting(_), RuleKind::Alerting(_))
    );
    a.name == b.name && have_same_kind
}

/// Returns `true` if one of the selectors may match a series that `rule` writes.
pub(super) fn may_read<S: AsRef<[Matcher]>>(selectors: &[S], rule: &RuleDefinition) -> bool {
    selectors.iter().any(|matchers| {
        let passes = |label: &str, value: &str| {
            matchers
                .as_ref()
                .iter()
                .filter(|matcher| matcher.name() == label)
                .all(|matcher| matcher.matches(value))
        };
        match rule.kind {
            RuleKind::Recording => {
                passes(METRIC_NAME, &rule.name)
                    && rule.labels.iter().all(|(name, value)| passes(name, value))
            }
            RuleKind::Alerting(_) => {
                (passes(METRIC_NAME, ALERTS) || passes(METRIC_NAME, ALERTS_FOR_STATE))
                    && passes(ALERT_NAME, &rule.name)
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::{Options, parse};

    fn check(rules: &[(&str, &str)], expect: &[&[usize]]) {
        let rule = |(name, expr): &(&str, &str)| {
            let kind = if name.starts_with(char::is_uppercase) {
                "alert"
            } else {
                "record"
            };
            format!("  - {kind}: {name}\n    expr: {expr:?}\n")
        };
        let text = format!(
            "groups:\n- name: g\n  rules:\n{}",
            rules.iter().map(rule).collect::<String>()
        );
        let parsed = parse(&text, &Options::default()).unwrap();
        assert_eq!(
            batches(&parsed.files[0].groups[0].rules),
            expect,
            "{rules:?}"
        );
    }

    #[test]
    fn rules_of_several_groups_are_ordered_by_what_they_read() {
        let text = "groups:
- name: g
  rules: [{record: c, expr: a + b}, {record: a, expr: x}]
- name: h
  rules: [{record: b, expr: 'rate(a[5m])'}, {record: a, expr: y}]
- name: i
  rules:
  - {record: n, labels: {state: free}, expr: 'n{state=\"all\"} - n{state=\"used\"}'}
  - {record: n, labels: {state: all}, expr: x}
  - {record: n, labels: {state: used}, expr: x + y}
  - {record: last, expr: self + s}
  - {record: after, expr: after offset 1m + self}
  - {record: self, expr: self offset 1m}
  - {record: s, expr: t + c}
  - {record: t, expr: s}
";
        let parsed = parse(text, &Options::default()).unwrap();
        let groups = &parsed.files[0].groups;
        let rules: Vec<&RuleDefinition> = groups.iter().flat_map(|group| &group.rules).collect();
        let expect = Levels {
            levels: vec![
                vec![1, 3, 5, 6],
                vec![2, 4],
                vec![0],
                vec![9],
                vec![8],
                vec![10],
                vec![7, 11],
            ],
            cyclic: vec![9, 8, 10],
        };
        assert_eq!(levels(&rules), expect);
        let none = Levels {
            levels: Vec::new(),
            cyclic: Vec::new(),
        };
        assert_eq!(levels(&[]), none);
    }

    #[test]
    fn rules_that_share_no_series_run_together() {
        check(&[("a", "x"), ("b", "y"), ("c", "z")], &[&[0, 1, 2]]);
        check(
            &[("a", "x"), ("b", "a"), ("c", "b"), ("d", "x")],
            &[&[0, 3], &[1], &[2]],
        );
        check(&[("a", "b"), ("b", "y")], &[&[0], &[1]]);
        check(&[("a", "x"), ("a", "y")], &[&[0], &[1]]);
        check(
            &[("a", "x"), ("b", "{job=\"y\"}"), ("c", "z")],
            &[&[0], &[1], &[2]],
        );
        check(&[("a", "x"), ("b", "{__name__=~\"a|q\"}")], &[&[0], &[1]]);
        check(
            &[
                ("A", "x"),
                ("B", "ALERTS{alertname=\"A\"}"),
                ("C", "ALERTS{alertname=\"Z\"}"),
            ],
            &[&[0, 2], &[1]],
        );
        check(&[("A", "x"), ("B", "ALERTS_FOR_STATE")], &[&[0], &[1]]);
    }
}

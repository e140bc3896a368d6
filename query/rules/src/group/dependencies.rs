//! Finds the rules of a group that may run at the same time.
//!
//! Two rules depend on each other if one reads or writes series that the other writes. They run in
//! the order of the file, so that their results equal the results of a sequential evaluation. All
//! other rules are independent.

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

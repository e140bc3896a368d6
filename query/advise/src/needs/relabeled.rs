//! Which rules and dashboards read a series that relabel rules drop or change.

use std::collections::{BTreeMap, BTreeSet};

use varve_model::Labels;
use varve_model::labels::METRIC_NAME;

use super::index::Needs;
use super::need::{Consumer, Need, Selector};

/// What relabel rules do to the selection of a rule or dashboard, the least first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SelectionChange {
    /// It selects the series with other labels, none of which the expression reads.
    OtherLabels,
    /// It selects the series with other labels, of which the expression reads some.
    ReadLabels,
    /// It selects the series only with its new labels.
    Enters,
    /// It selects the series only with its old labels.
    Leaves,
}

/// A rule, a panel or a variable of a dashboard.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a>(&'a Need);

impl<'a> Reader<'a> {
    /// Returns where it is, in words.
    #[must_use]
    pub fn place(self) -> String {
        self.0.location.to_string()
    }

    /// Returns its expressions as they can be evaluated: matchers on variables match all their
    /// values, and there is one for each value of a variable elsewhere. They parse with all
    /// features. There is none if the expression does not parse, or if only its metrics are known.
    #[must_use]
    pub fn exprs(self) -> &'a [String] {
        &self.0.exprs
    }

    /// Returns `true` if its expression contains variables, or if viewers can add matchers.
    #[must_use]
    pub fn has_variables(self) -> bool {
        self.0.has_variables
    }

    /// Returns the name that a recording rule writes.
    #[must_use]
    pub fn record(self) -> Option<&'a str> {
        match &self.0.consumer {
            Consumer::Record(name) => Some(name),
            Consumer::Reader | Consumer::Query => None,
        }
    }

    /// Returns `true` if it may read a metric.
    #[must_use]
    pub fn reads(self, metric: &str) -> bool {
        let mut selectors = self.0.selectors.iter();
        selectors.any(|selector| selector.matches_name(metric))
    }
}

impl Needs {
    /// Returns all rules, panels and variables, each with its index. Recorded queries are left out:
    /// their expressions are not known.
    pub fn readers(&self) -> impl Iterator<Item = (usize, Reader<'_>)> {
        self.needs
            .iter()
            .enumerate()
            .filter(|(_, need)| need.consumer != Consumer::Query)
            .map(|(idx, need)| (idx, Reader(need)))
    }

    /// Returns the selections that change if a series gets other labels, or is dropped, by the
    /// index of their reader.
    #[must_use]
    pub fn selection_changes(
        &self,
        before: &Labels,
        after: Option<&Labels>,
    ) -> BTreeMap<usize, SelectionChange> {
        let names: BTreeSet<&str> = [Some(before), after]
            .into_iter()
            .flatten()
            .map(|labels| labels.get(METRIC_NAME).unwrap_or_default())
            .collect();
        let fixed = names
            .into_iter()
            .filter_map(|name| self.by_name.get(name))
            .flatten();
        let mut changes = BTreeMap::new();
        for &(need_idx, selector_idx) in fixed.chain(&self.open) {
            let need = &self.needs[need_idx];
            if need.consumer == Consumer::Query {
                continue;
            }
            if let Some(change) = change(&need.selectors[selector_idx], before, after) {
                let worst = changes.entry(need_idx).or_insert(change);
                *worst = change.max(*worst);
            }
        }
        changes
    }
}

fn change(selector: &Selector, before: &Labels, after: Option<&Labels>) -> Option<SelectionChange> {
    match (selector.matches(before), after) {
        (true, Some(after)) if selector.matches(after) => {
            Some(if reads_difference(selector, before, after) {
                SelectionChange::ReadLabels
            } else {
                SelectionChange::OtherLabels
            })
        }
        (true, _) => Some(SelectionChange::Leaves),
        (false, Some(after)) if selector.matches(after) => Some(SelectionChange::Enters),
        (false, _) => None,
    }
}

/// Returns `true` if two label sets differ in a label that the expression of a selector reads.
fn reads_difference(selector: &Selector, before: &Labels, after: &Labels) -> bool {
    let mut names = before.iter().chain(after.iter()).map(|(name, _)| name);
    names.any(|name| selector.labels.contains(name) && before.get(name) != after.get(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(expr: &str, after: Option<&[(&str, &str)]>, expect: Option<SelectionChange>) {
        let mut needs = Needs::default();
        let rule =
            serde_json::json!({"groups": [{"name": "g", "rules": [{"alert": "A", "expr": expr}]}]});
        needs.add_rule_file(&"file".into(), &rule.to_string());
        let before = Labels::from_pairs([("__name__", "a"), ("job", "j"), ("pod", "p")]).unwrap();
        let after = after.map(|pairs| Labels::from_pairs(pairs.iter().copied()).unwrap());
        let changes = needs.selection_changes(&before, after.as_ref());
        assert_eq!(changes.get(&0).copied(), expect, "{expr}: {after:?}");
    }

    #[test]
    fn a_series_leaves_or_enters_a_selection_or_changes_in_it() {
        let without_pod = Some(&[("__name__", "a"), ("job", "j")][..]);
        let renamed = Some(&[("__name__", "b"), ("job", "j"), ("pod", "p")][..]);
        check("a", None, Some(SelectionChange::Leaves));
        check("b", None, None);
        check(
            "sum by (job) (a)",
            without_pod,
            Some(SelectionChange::OtherLabels),
        );
        check(
            "sum by (pod) (a)",
            without_pod,
            Some(SelectionChange::ReadLabels),
        );
        check(
            "sum(a{pod=\"\"})",
            without_pod,
            Some(SelectionChange::Enters),
        );
        check(
            "sum(a{pod=\"p\"})",
            without_pod,
            Some(SelectionChange::Leaves),
        );
        check("absent(b)", renamed, Some(SelectionChange::Enters));
        check("{job=\"j\"}", renamed, Some(SelectionChange::ReadLabels));
        check("info(c)", without_pod, None);
    }
}

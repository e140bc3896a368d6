//! Orders recording rules of several groups by what they read.
//!
//! The rules are the nodes of a graph, with an edge from each one to those whose series it may read.
//! A cycle has no such order: it is cut at one of its rules.

use std::collections::BTreeSet;

use varve_model::Matcher;
use varve_promql::selectors;

use super::dependencies::may_read;
use crate::file::RuleDefinition;

/// Recording rules of several groups in an order in which each one comes after those that it reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Levels {
    /// The rules by index. The rules of a level read those of earlier levels only, but for
    /// `cyclic`.
    pub levels: Vec<Vec<usize>>,
    /// All rules that read their own series, directly or through others, in ascending order. A cycle
    /// comes after all that it reads outside of the cycle. Of its rules, the one with the lowest
    /// index comes first, and reads rules of later levels.
    pub cyclic: BTreeSet<usize>,
}

/// Orders recording rules, in whatever groups and files they are.
#[must_use]
pub fn levels(rules: &[&RuleDefinition]) -> Levels {
    let graph = Graph {
        rules,
        selectors: rules
            .iter()
            .map(|rule| selectors(&rule.expr.tree))
            .collect(),
    };
    let mut ordered = Levels {
        levels: Vec::new(),
        cyclic: BTreeSet::new(),
    };
    let mut left: Vec<usize> = (0..rules.len()).collect();
    while !left.is_empty() {
        let mut level = left.clone();
        level.retain(|&idx| graph.read_by(idx, &left).is_empty());
        if level.is_empty() {
            let component = left
                .iter()
                .find_map(|&idx| graph.sink(idx, &left))
                .expect("a component of a finite graph is a sink");
            level.extend(component.first());
            ordered.cyclic.extend(component);
        }
        left.retain(|idx| !level.contains(idx));
        ordered.levels.push(level);
    }
    ordered
}

/// Which rules read which others.
struct Graph<'a> {
    rules: &'a [&'a RuleDefinition],
    selectors: Vec<Vec<Vec<Matcher>>>,
}

impl Graph<'_> {
    /// Returns those of `others` that a rule may read.
    fn read_by(&self, idx: usize, others: &[usize]) -> Vec<usize> {
        let others = others.iter().copied();
        others
            .filter(|&other| may_read(&self.selectors[idx], self.rules[other]))
            .collect()
    }

    /// Returns those of `others` that a rule may read, directly or through others.
    fn reachable(&self, start: usize, others: &[usize]) -> BTreeSet<usize> {
        let mut reachable = BTreeSet::new();
        let mut to_visit = self.read_by(start, others);
        while let Some(idx) = to_visit.pop() {
            if reachable.insert(idx) {
                to_visit.extend(self.read_by(idx, others));
            }
        }
        reachable
    }

    /// Returns the strongly connected component of a rule among `others`, if it is a sink: if its
    /// rules read nothing of `others` outside of it. A finite graph has at least one such component.
    fn sink(&self, start: usize, others: &[usize]) -> Option<BTreeSet<usize>> {
        let reachable = self.reachable(start, others);
        let is_sink = reachable
            .iter()
            .all(|&idx| self.reachable(idx, others).contains(&start));
        is_sink.then_some(reachable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::{Options, parse};

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
            // `s` and `t` read each other.
            cyclic: [8, 9, 10, 11].into(),
        };
        assert_eq!(levels(&rules), expect);
        let none = Levels {
            levels: Vec::new(),
            cyclic: BTreeSet::new(),
        };
        assert_eq!(levels(&[]), none);
    }
}

//! All needs, indexed by metric name.

use std::collections::{BTreeSet, HashMap, VecDeque};

use super::need::{Consumer, Location, Nameless, Need, Selector};
use super::problem::Problem;
use super::template::Extracted;

/// All needs.
#[derive(Debug, Default)]
pub struct Needs {
    pub(super) needs: Vec<Need>,
    pub(super) by_name: HashMap<String, Vec<(usize, usize)>>,
    /// Selectors without a fixed name.
    pub(super) open: Vec<(usize, usize)>,
    problems: Vec<Problem>,
}

impl Needs {
    /// Adds the needs of an expression, and reports why it does not parse, if it does not.
    pub(super) fn add_extracted(
        &mut self,
        location: Location,
        consumer: Consumer,
        text: &str,
        extracted: Extracted,
    ) {
        if let Some(reason) = extracted.problem {
            self.report(location.clone(), reason, text);
        }
        self.add(Need {
            location,
            consumer,
            selectors: extracted.selectors,
            exprs: extracted.exprs,
            has_variables: extracted.has_variables,
        });
    }

    /// Reports a file that could not be parsed.
    pub fn report_file(&mut self, file: &str, reason: &str) {
        self.report(Location::new(&file.into(), String::new()), reason, "");
    }

    /// Reports an input that could not be parsed. `text` is the expression, if it is one.
    pub(super) fn report(&mut self, location: Location, reason: impl Into<String>, text: &str) {
        let Location {
            file,
            within: place,
        } = location;
        self.problems.push(Problem {
            file: file.to_string(),
            place,
            reason: reason.into(),
            text: text.to_owned(),
        });
    }

    pub(super) fn add(&mut self, need: Need) {
        let need_idx = self.needs.len();
        for (idx, selector) in need.selectors.iter().enumerate() {
            match selector.fixed_name() {
                Some(name) => self
                    .by_name
                    .entry(name.to_owned())
                    .or_default()
                    .push((need_idx, idx)),
                None => self.open.push((need_idx, idx)),
            }
        }
        self.needs.push(need);
    }

    /// Returns the inputs that could not be parsed.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Returns `true` if there is no expression.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.needs.is_empty()
    }

    /// Returns the number of expressions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.needs.len()
    }

    /// Returns the names that recording rules write.
    pub(crate) fn recorded(&self) -> BTreeSet<&str> {
        self.needs
            .iter()
            .filter_map(|need| match &need.consumer {
                Consumer::Record(name) => Some(name.as_str()),
                Consumer::Reader | Consumer::Query => None,
            })
            .collect()
    }

    /// Returns the selectors that count as uses and may match series of a metric, each with the
    /// index of its need.
    pub(crate) fn of_metric<'a>(
        &'a self,
        name: &'a str,
        nameless: Nameless,
    ) -> impl Iterator<Item = (usize, &'a Selector)> {
        let fixed = self.by_name.get(name).into_iter().flatten();
        fixed
            .chain(&self.open)
            .map(|&(need, idx)| (need, &self.needs[need].selectors[idx]))
            .filter(move |(need, selector)| {
                selector.matches_name(name) && self.needs[*need].counts(selector, nameless)
            })
    }

    /// Returns the locations of the selectors that match metrics of any name: those of recorded
    /// queries, or those of rules and dashboards.
    pub(crate) fn nameless(&self, of_queries: bool) -> BTreeSet<String> {
        let mut locations = BTreeSet::new();
        for &(need_idx, selector_idx) in &self.open {
            let need = &self.needs[need_idx];
            if (need.consumer == Consumer::Query) == of_queries
                && need.selectors[selector_idx].is_nameless()
            {
                locations.insert(need.location.to_string());
            }
        }
        locations
    }

    /// Returns for each need whether its result is read. A recording rule is read if a selector that
    /// counts as a use reads its result. `check` is called before each selector is compared with the
    /// names of all recording rules.
    ///
    /// # Errors
    /// Those of `check`.
    pub(crate) fn which_are_read<E>(
        &self,
        nameless: Nameless,
        check: impl Fn() -> Result<(), E>,
    ) -> Result<Vec<bool>, E> {
        let mut writers: HashMap<&str, Vec<usize>> = HashMap::new();
        for (need_idx, need) in self.needs.iter().enumerate() {
            if let Consumer::Record(name) = &need.consumer {
                writers.entry(name).or_default().push(need_idx);
            }
        }
        let mut read: Vec<bool> = self
            .needs
            .iter()
            .map(|need| !matches!(need.consumer, Consumer::Record(_)))
            .collect();
        let mut queue: VecDeque<usize> =
            (0..read.len()).filter(|&need_idx| read[need_idx]).collect();
        while let Some(need_idx) = queue.pop_front() {
            let need = &self.needs[need_idx];
            for selector in &need.selectors {
                check()?;
                if !need.counts(selector, nameless) {
                    continue;
                }
                let written = writers
                    .iter()
                    .filter(|(name, _)| selector.matches_name(name));
                for &writer in written.flat_map(|(_, writers)| writers) {
                    if !std::mem::replace(&mut read[writer], true) {
                        queue.push_back(writer);
                    }
                }
            }
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use varve_model::labels::METRIC_NAME;
    use varve_model::{MatchOp, Matcher};
    use varve_query::usage::LabelSet;

    use super::*;

    fn need(consumer: Consumer, names: &[&str]) -> Need {
        let location = Location {
            file: "f".into(),
            within: String::new(),
        };
        Need {
            location,
            consumer,
            selectors: names.iter().map(|name| Selector::of_metric(name)).collect(),
            exprs: Vec::new(),
            has_variables: false,
        }
    }

    #[test]
    fn a_recording_rule_is_read_if_its_result_is_read() {
        let mut needs = Needs::default();
        needs.add(need(Consumer::Record("r:1".into()), &["a"]));
        needs.add(need(Consumer::Record("r:2".into()), &["r:1"]));
        needs.add(need(Consumer::Record("r:3".into()), &["r:3", "b"]));
        needs.add(need(Consumer::Reader, &["r:2", "c"]));
        assert_eq!(
            needs.which_are_read(Nameless::default(), || Ok::<_, ()>(())),
            Ok(vec![true, true, false, true])
        );
        assert_eq!(
            needs.which_are_read(Nameless::default(), || Err("canceled")),
            Err("canceled")
        );
        assert_eq!(
            needs.recorded().into_iter().collect::<Vec<_>>(),
            ["r:1", "r:2", "r:3"]
        );
    }

    #[test]
    fn selectors_are_found_by_fixed_and_open_names() {
        let mut needs = Needs::default();
        needs.add(need(Consumer::Reader, &["a", "b"]));
        let open = Matcher::new(MatchOp::Regexp, METRIC_NAME, "a.*").unwrap();
        let open = Selector {
            matchers: vec![open],
            labels: LabelSet::none(),
        };
        needs.add(Need {
            selectors: vec![open],
            ..need(Consumer::Reader, &[])
        });
        let found = |name| {
            needs
                .of_metric(name, Nameless::default())
                .map(|(need, _)| need)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            (found("a"), found("ab"), found("b"), found("c")),
            (vec![0, 1], vec![1], vec![0], vec![])
        );
        assert!(needs.nameless(false).is_empty() && needs.nameless(true).is_empty());
    }

    #[test]
    fn a_recorded_query_without_a_metric_name_is_exploration() {
        let every = Selector {
            matchers: vec![Matcher::new(MatchOp::NotEqual, METRIC_NAME, "").unwrap()],
            labels: LabelSet::none(),
        };
        for (consumer, nameless, expect) in [
            (Consumer::Query, Nameless::RulesAndDashboards, false),
            (Consumer::Reader, Nameless::RulesAndDashboards, true),
            (Consumer::Query, Nameless::All, true),
            (Consumer::Reader, Nameless::None, false),
        ] {
            let mut needs = Needs::default();
            needs.add(need(Consumer::Record("r:1".into()), &["a"]));
            needs.add(Need {
                selectors: vec![every.clone()],
                ..need(consumer.clone(), &[])
            });
            assert_eq!(needs.of_metric("b", nameless).count(), usize::from(expect));
            assert_eq!(
                needs.which_are_read(nameless, || Ok::<_, ()>(())),
                Ok(vec![expect, true])
            );
            let is_query = consumer == Consumer::Query;
            assert_eq!(needs.nameless(is_query).len(), 1);
            assert_eq!(needs.nameless(!is_query).len(), 0);
        }
    }
}

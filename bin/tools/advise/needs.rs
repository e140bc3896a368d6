//! What rules, dashboards and queries need: selectors by where they stand, looked up by the name of a metric.
//!
//! A selector is kept with whatever it might select: where the text of a dashboard leaves something open, a test is wider
//! than the query that Grafana will send, never narrower.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fmt;
use std::rc::Rc;

use varve_query::usage::LabelSet;
use varve_tsdb::{METRIC_NAME, MatchOp, Matcher};

/// Where a text stands.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    /// The file, or the URL.
    pub(super) file: Rc<str>,
    /// What inside of it, in words.
    pub(super) within: String,
}

/// Who needs something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Asker {
    /// An alert, a panel, a variable, a query that was asked.
    Reader,
    /// A recording rule of this name.
    Record(String),
}

/// An expression's needs.
#[derive(Debug, Clone)]
pub(super) struct Need {
    pub(super) place: Place,
    pub(super) asker: Asker,
    pub(super) selectors: Vec<Selector>,
}

/// Series that are selected, and the labels of them that are used.
#[derive(Debug, Clone)]
pub(super) struct Selector {
    /// What a series passes, among others those of its name.
    pub(super) tests: Vec<Matcher>,
    /// The labels that are used, those of the tests included.
    pub(super) labels: LabelSet,
}

/// All needs.
#[derive(Debug, Default)]
pub(super) struct Needs {
    needs: Vec<Need>,
    by_name: HashMap<String, Vec<(usize, usize)>>,
    /// Selectors whose name is not fixed.
    open: Vec<(usize, usize)>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.within.is_empty() { f.write_str(&self.file) } else { write!(f, "{}: {}", self.file, self.within) }
    }
}

impl Selector {
    /// Returns the selector of all series of a metric.
    pub(super) fn of_metric(name: &str) -> Self {
        Self { tests: vec![Matcher::equal(METRIC_NAME, name)], labels: LabelSet::all() }
    }

    /// Returns the name, if only one passes.
    fn fixed_name(&self) -> Option<&str> {
        let is_fixed = |test: &&Matcher| test.name() == METRIC_NAME && test.op() == MatchOp::Equal;
        self.tests.iter().find(is_fixed).map(Matcher::value)
    }

    /// Tells whether metrics of every name may pass.
    pub(super) fn is_nameless(&self) -> bool {
        let mut of_name = self.tests.iter().filter(|test| test.name() == METRIC_NAME);
        // `{__name__=~".+"}` says as little as no test at all.
        of_name.all(|test| test.matches("a") && test.matches("zz_9:z") && test.op() != MatchOp::Equal)
    }

    fn takes_name(&self, name: &str) -> bool {
        self.passes(METRIC_NAME, name)
    }

    /// Tells whether a series with this value of a label may be selected.
    pub(super) fn passes(&self, label: &str, value: &str) -> bool {
        self.tests.iter().filter(|test| test.name() == label).all(|test| test.matches(value))
    }
}

impl Needs {
    pub(super) fn add(&mut self, need: Need) {
        let at = self.needs.len();
        for (idx, selector) in need.selectors.iter().enumerate() {
            match selector.fixed_name() {
                Some(name) => self.by_name.entry(name.to_owned()).or_default().push((at, idx)),
                None => self.open.push((at, idx)),
            }
        }
        self.needs.push(need);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.needs.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.needs.len()
    }

    /// Returns the names that recording rules write.
    pub(super) fn recorded(&self) -> BTreeSet<&str> {
        self.needs
            .iter()
            .filter_map(|need| match &need.asker {
                Asker::Record(name) => Some(name.as_str()),
                Asker::Reader => None,
            })
            .collect()
    }

    /// Returns the selectors that may select series of a metric, each with the number of its need.
    pub(super) fn of_metric<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (usize, &'a Selector)> {
        let fixed = self.by_name.get(name).into_iter().flatten();
        fixed
            .chain(&self.open)
            .map(|&(need, idx)| (need, &self.needs[need].selectors[idx]))
            .filter(move |(_, selector)| selector.takes_name(name))
    }

    /// Returns the selectors that take metrics of any name, and where they stand.
    pub(super) fn nameless(&self) -> impl Iterator<Item = (&Place, &Selector)> {
        let of = |&(need, idx): &(usize, usize)| (&self.needs[need].place, &self.needs[need].selectors[idx]);
        self.open.iter().map(of).filter(|(_, selector)| selector.is_nameless())
    }

    /// Tells of each need whether somebody reads it in the end: a recording rule is read if what it records is.
    pub(super) fn read(&self) -> Vec<bool> {
        let mut writers: HashMap<&str, Vec<usize>> = HashMap::new();
        for (at, need) in self.needs.iter().enumerate() {
            if let Asker::Record(name) = &need.asker {
                writers.entry(name).or_default().push(at);
            }
        }
        let mut read: Vec<bool> = self.needs.iter().map(|need| need.asker == Asker::Reader).collect();
        let mut queue: VecDeque<usize> = (0..read.len()).filter(|&at| read[at]).collect();
        while let Some(at) = queue.pop_front() {
            for selector in &self.needs[at].selectors {
                let written = writers.iter().filter(|(name, _)| selector.takes_name(name));
                for &writer in written.flat_map(|(_, writers)| writers) {
                    if !std::mem::replace(&mut read[writer], true) {
                        queue.push_back(writer);
                    }
                }
            }
        }
        read
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn need(asker: Asker, names: &[&str]) -> Need {
        let place = Place { file: "f".into(), within: String::new() };
        Need { place, asker, selectors: names.iter().map(|name| Selector::of_metric(name)).collect() }
    }

    #[test]
    fn a_recording_rule_is_read_if_what_it_records_is() {
        let mut needs = Needs::default();
        needs.add(need(Asker::Record("r:1".into()), &["a"]));
        needs.add(need(Asker::Record("r:2".into()), &["r:1"]));
        needs.add(need(Asker::Record("r:3".into()), &["r:3", "b"]));
        needs.add(need(Asker::Reader, &["r:2", "c"]));
        assert_eq!(needs.read(), [true, true, false, true]);
        assert_eq!(needs.recorded().into_iter().collect::<Vec<_>>(), ["r:1", "r:2", "r:3"]);
    }

    #[test]
    fn selectors_are_found_by_fixed_and_by_open_names() {
        let mut needs = Needs::default();
        needs.add(need(Asker::Reader, &["a", "b"]));
        let open = Matcher::new(MatchOp::Regexp, METRIC_NAME, "a.*").unwrap();
        let open = Selector { tests: vec![open], labels: LabelSet::none() };
        needs.add(Need { selectors: vec![open], ..need(Asker::Reader, &[]) });
        let found = |name| needs.of_metric(name).map(|(need, _)| need).collect::<Vec<_>>();
        assert_eq!((found("a"), found("ab"), found("b"), found("c")), (vec![0, 1], vec![1], vec![0], vec![]));
        assert_eq!(needs.nameless().count(), 0);
    }

    #[test]
    fn a_selector_without_a_name_is_told() {
        let selector = |op, value: &str| Selector {
            tests: vec![Matcher::new(op, METRIC_NAME, value).unwrap(), Matcher::equal("job", "x")],
            labels: LabelSet::all(),
        };
        assert!(selector(MatchOp::Regexp, ".+").is_nameless() && selector(MatchOp::NotEqual, "").is_nameless());
        assert!(!selector(MatchOp::Regexp, "a.+").is_nameless() && !selector(MatchOp::Equal, "a").is_nameless());
        assert!(Selector { tests: vec![Matcher::equal("job", "x")], labels: LabelSet::all() }.is_nameless());
    }
}

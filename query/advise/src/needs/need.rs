//! One need: the selectors of an expression, and where it is.

use std::fmt;
use std::rc::Rc;

use varve_model::labels::METRIC_NAME;
use varve_model::{Labels, MatchOp, Matcher};
use varve_query::usage::LabelSet;

/// The location of an expression.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Location {
    /// The file, or the URL.
    pub(crate) file: Rc<str>,
    /// The part of the file, in words.
    pub(crate) within: String,
}

/// Which selectors without a metric name count as uses. Each uses all series that it may match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Nameless {
    /// Those of rules and dashboards. Those of recorded queries are exploration: a person looked at
    /// what there is.
    #[default]
    RulesAndDashboards,
    /// All of them.
    All,
    /// None of them.
    None,
}

/// The consumer of a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Consumer {
    /// An alert, a panel or a variable.
    Reader,
    /// A recorded query.
    Query,
    /// A recording rule of this name.
    Record(String),
}

/// The selectors of an expression.
#[derive(Debug, Clone)]
pub(crate) struct Need {
    pub(crate) location: Location,
    pub(crate) consumer: Consumer,
    pub(crate) selectors: Vec<Selector>,
    /// The expressions of rules and dashboards as they can be evaluated.
    pub(crate) exprs: Vec<String>,
    /// Whether the expression contains variables, or viewers can add matchers to it.
    pub(crate) has_variables: bool,
}

/// A series selector, and the labels that the expression uses.
#[derive(Debug, Clone)]
pub(crate) struct Selector {
    /// The matchers, including matchers of the name.
    pub(crate) matchers: Vec<Matcher>,
    /// The used labels, including the labels of matchers.
    pub(crate) labels: LabelSet,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.within.is_empty() {
            f.write_str(&self.file)
        } else {
            write!(f, "{}: {}", self.file, self.within)
        }
    }
}

impl Location {
    pub(super) fn new(file: &Rc<str>, within: String) -> Self {
        Self {
            file: Rc::clone(file),
            within,
        }
    }
}

impl Need {
    /// Returns `true` if a selector of this need counts as a use.
    pub(super) fn counts(&self, selector: &Selector, nameless: Nameless) -> bool {
        let counts_without_name = match nameless {
            Nameless::RulesAndDashboards => self.consumer != Consumer::Query,
            Nameless::All => true,
            Nameless::None => false,
        };
        counts_without_name || !selector.is_nameless()
    }
}

impl Selector {
    /// Returns the selector of all series of a metric.
    pub(crate) fn of_metric(name: &str) -> Self {
        Self {
            matchers: vec![Matcher::equal(METRIC_NAME, name)],
            labels: LabelSet::all(),
        }
    }

    /// Returns the metric name if it is fixed.
    pub(super) fn fixed_name(&self) -> Option<&str> {
        self.matchers
            .iter()
            .find(|matcher| matcher.name() == METRIC_NAME && matcher.op() == MatchOp::Equal)
            .map(Matcher::value)
    }

    /// Returns `true` if metrics of any name may match.
    pub(crate) fn is_nameless(&self) -> bool {
        let mut of_name = self
            .matchers
            .iter()
            .filter(|matcher| matcher.name() == METRIC_NAME);
        // `{__name__=~".+"}` is equivalent to no matcher at all.
        of_name.all(|matcher| {
            matcher.matches("a") && matcher.matches("zz_9:z") && matcher.op() != MatchOp::Equal
        })
    }

    pub(super) fn matches_name(&self, name: &str) -> bool {
        self.may_match(METRIC_NAME, name)
    }

    /// Returns `true` if a label set matches.
    pub(super) fn matches(&self, labels: &Labels) -> bool {
        self.matchers.iter().all(|matcher| {
            let value = labels.get(matcher.name()).unwrap_or_default();
            matcher.matches(value)
        })
    }

    /// Returns `true` if a series with this label value may match.
    pub(crate) fn may_match(&self, label: &str, value: &str) -> bool {
        self.matchers
            .iter()
            .filter(|matcher| matcher.name() == label)
            .all(|matcher| matcher.matches(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_without_a_name_are_recognized() {
        let selector = |op, value: &str| Selector {
            matchers: vec![
                Matcher::new(op, METRIC_NAME, value).unwrap(),
                Matcher::equal("job", "x"),
            ],
            labels: LabelSet::all(),
        };
        assert!(
            selector(MatchOp::Regexp, ".+").is_nameless()
                && selector(MatchOp::NotEqual, "").is_nameless()
        );
        assert!(
            !selector(MatchOp::Regexp, "a.+").is_nameless()
                && !selector(MatchOp::Equal, "a").is_nameless()
        );
        assert!(
            Selector {
                matchers: vec![Matcher::equal("job", "x")],
                labels: LabelSet::all()
            }
            .is_nameless()
        );
    }
}

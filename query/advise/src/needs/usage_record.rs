//! The needs of recorded queries.

use std::rc::Rc;

use varve_model::Matcher;
use varve_model::labels::METRIC_NAME;
use varve_promql::parse_selector;
use varve_query::usage::LabelSet;

use super::index::Needs;
use super::need::{Consumer, Location, Need, Selector};
use super::template;
use crate::usage::{Entry, Snapshot};

impl Needs {
    /// Adds the needs of the queries of a usage record since a given time. `file` is its file or
    /// URL.
    pub fn add_usage_record(&mut self, file: &Rc<str>, record: &Snapshot, since_ms: i64) {
        for entry in &record.metrics {
            if entry.last_ms < since_ms {
                continue;
            }
            let location = Location::new(file, format!("metric {}", entry.text));
            self.add(Need {
                location,
                consumer: Consumer::Query,
                selectors: vec![used_metric(entry)],
                exprs: Vec::new(),
                has_variables: false,
            });
        }
        // Selectors without a metric name are recorded as text.
        for entry in &record.selectors {
            if entry.last_ms < since_ms {
                continue;
            }
            let text = &entry.text;
            let location = Location::new(file, format!("selector {text}"));
            self.add_extracted(location, Consumer::Query, text, template::read_plain(text));
        }
    }
}

/// Returns `true` if a selector of a usage record has no metric name, so that it explores what there
/// is instead of using a metric ([`super::Nameless::RulesAndDashboards`]).
#[must_use]
pub fn is_exploration(selector: &str) -> bool {
    parse_selector(selector).is_ok_and(|matchers| {
        let selector = Selector {
            matchers,
            labels: LabelSet::none(),
        };
        selector.is_nameless()
    })
}

fn used_metric(entry: &Entry) -> Selector {
    let labels = if entry.all_labels {
        LabelSet::all()
    } else {
        LabelSet::Only(
            entry
                .matched
                .iter()
                .chain(&entry.grouped)
                .map(|name| (**name).to_owned())
                .collect(),
        )
    };
    Selector {
        matchers: vec![Matcher::equal(METRIC_NAME, &entry.text)],
        labels,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::needs::Nameless;

    #[test]
    fn selectors_without_a_metric_name_are_exploration() {
        for (selector, expect) in [
            ("{__name__!=\"\"}", true),
            ("{__name__=~\".+\", job=\"x\"}", true),
            ("{job=\"x\"}", true),
            ("{__name__=~\"node_.+\"}", false),
            ("up", false),
            ("not a selector", false),
        ] {
            assert_eq!(is_exploration(selector), expect, "{selector}");
        }
    }

    #[test]
    fn recently_queried_metrics_are_needed() {
        let entry = |text: &str, last_ms| Entry {
            text: text.into(),
            last_ms,
            ..Entry::default()
        };
        let labels = |name: &str| [name.into()].into();
        let record = Snapshot {
            since_ms: 5,
            n_evicted: 0,
            metrics: vec![
                Entry {
                    matched: labels("x"),
                    grouped: labels("y"),
                    ..entry("a", 100)
                },
                Entry {
                    all_labels: true,
                    ..entry("b", 99)
                },
            ],
            selectors: vec![entry("{__name__=~\"c.*\"}", 100)],
        };
        let mut needs = Needs::default();
        needs.add_usage_record(&"f".into(), &record, 100);
        let found: Vec<_> = ["a", "b", "c"]
            .into_iter()
            .filter(|name| needs.of_metric(name, Nameless::All).next().is_some())
            .collect();
        assert_eq!((found, needs.problems()), (vec!["a", "c"], &[][..]));
        let labels = &needs.of_metric("a", Nameless::All).next().unwrap().1.labels;
        assert_eq!(
            ["x", "y", "z"].map(|label| labels.contains(label)),
            [true, true, false]
        );
    }
}

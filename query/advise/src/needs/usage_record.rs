//! The needs of recorded queries.

use std::rc::Rc;

use varve_model::Matcher;
use varve_model::labels::METRIC_NAME;
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
                consumer: Consumer::Reader,
                selectors: vec![used_metric(entry)],
            });
        }
        // Selectors without a metric name are recorded as text.
        for entry in &record.selectors {
            if entry.last_ms < since_ms {
                continue;
            }
            let text = &entry.text;
            let location = Location::new(file, format!("selector {text}"));
            self.add_extracted(location, Consumer::Reader, text, template::read_plain(text));
        }
    }
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
            .filter(|name| needs.of_metric(name).next().is_some())
            .collect();
        assert_eq!((found, needs.problems()), (vec!["a", "c"], &[][..]));
        let labels = &needs.of_metric("a").next().unwrap().1.labels;
        assert_eq!(
            ["x", "y", "z"].map(|label| labels.contains(label)),
            [true, true, false]
        );
    }
}

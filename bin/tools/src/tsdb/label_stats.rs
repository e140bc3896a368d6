//! The cost of labels in a block: series, churn, bytes.

use std::collections::HashMap;

use varve_model::labels::METRIC_NAME;

/// Size of a posting: a series id in the list of a label pair.
const POSTING_SIZE: u64 = 4;

/// The statistics of all label names and values.
#[derive(Debug, Default)]
pub(super) struct LabelStats {
    names: HashMap<String, HashMap<String, PairStats>>,
    pub(super) n_series: u64,
    n_entries: u64,
}

#[derive(Debug, Default)]
struct PairStats {
    n_series: u64,
    uncovered_ms: u64,
    bytes: u64,
}

/// The names or label pairs with the largest numbers of something.
#[derive(Debug)]
pub(super) struct TopList {
    /// Name in JSON.
    pub(super) key: &'static str,
    pub(super) title: &'static str,
    pub(super) entries: Vec<(u64, String)>,
}

impl LabelStats {
    /// Adds a series: the part of the block's range without it, and the size of its samples.
    pub(super) fn add<'l>(
        &mut self,
        labels: impl Iterator<Item = (&'l str, &'l str)>,
        uncovered_ms: u64,
        bytes: u64,
    ) {
        self.n_series += 1;
        for (name, value) in labels {
            self.n_entries += 1;
            let pair = self.pair(name, value);
            pair.n_series += 1;
            pair.uncovered_ms = pair.uncovered_ms.wrapping_add(uncovered_ms);
            pair.bytes += bytes;
        }
    }

    /// Returns the entry of a label pair. Allocates only for new strings, which are rare.
    fn pair(&mut self, name: &str, value: &str) -> &mut PairStats {
        if !self.names.contains_key(name) {
            self.names.insert(name.to_owned(), HashMap::new());
        }
        let values = self.names.get_mut(name).expect("inserted above");
        if !values.contains_key(value) {
            values.insert(value.to_owned(), PairStats::default());
        }
        values.get_mut(value).expect("inserted above")
    }

    /// Returns the number of label names.
    pub(super) fn n_names(&self) -> usize {
        self.names.len()
    }

    /// Returns the number of label pairs, and of labels of all series.
    pub(super) fn n_postings(&self) -> (usize, u64) {
        (self.names.values().map(HashMap::len).sum(), self.n_entries)
    }

    /// Returns the lists of promtool with at most `limit` entries each, for a block of the given
    /// duration.
    pub(super) fn lists(&self, length_ms: u64, limit: usize) -> Vec<TopList> {
        // Converts partial presence to a number of series that are present all or none of the time.
        let churned = |uncovered_ms: u64| (uncovered_ms as f64 / length_ms.max(1) as f64) as u64;

        let list = |key, title, entries| TopList::new(key, title, entries, limit);
        vec![
            list(
                "churnByLabelPair",
                "Label pairs most involved in churning",
                self.by_pair(|pair| churned(pair.uncovered_ms)),
            ),
            list(
                "churnByLabelName",
                "Label names most involved in churning",
                self.by_name(|values| {
                    churned(
                        values
                            .values()
                            .fold(0, |sum, pair| sum.wrapping_add(pair.uncovered_ms)),
                    )
                }),
            ),
            list(
                "seriesByLabelPair",
                "Most common label pairs",
                self.by_pair(|pair| pair.n_series),
            ),
            list(
                "valueLengthByLabelName",
                "Label names with highest cumulative label value length",
                self.by_name(total_length),
            ),
            list(
                "valuesByLabelName",
                "Highest cardinality labels",
                self.by_name(|values| values.len() as u64),
            ),
            list(
                "seriesByMetric",
                "Highest cardinality metric names",
                self.by_metric(|pair| pair.n_series),
            ),
            list(
                "sampleBytesByMetric",
                "Metric names with most bytes of samples",
                self.by_metric(|pair| pair.bytes),
            ),
            list(
                "sampleBytesByLabelPair",
                "Label pairs with most bytes of samples",
                self.by_pair(|pair| pair.bytes),
            ),
            list(
                "indexBytesByLabelName",
                "Label names with most bytes of index (strings and postings)",
                self.by_name(|values| {
                    let n_postings: u64 = values.values().map(|pair| pair.n_series).sum();
                    total_length(values) + POSTING_SIZE * n_postings
                }),
            ),
        ]
    }

    fn by_name(&self, cost: impl Fn(&HashMap<String, PairStats>) -> u64) -> Vec<(u64, String)> {
        self.names
            .iter()
            .map(|(name, values)| (cost(values), name.clone()))
            .collect()
    }

    fn by_pair(&self, cost: impl Fn(&PairStats) -> u64) -> Vec<(u64, String)> {
        let pairs = self
            .names
            .iter()
            .flat_map(|(name, values)| values.iter().map(move |value| (name, value)));
        pairs
            .map(|(name, (value, pair))| (cost(pair), format!("{name}={value}")))
            .collect()
    }

    fn by_metric(&self, cost: impl Fn(&PairStats) -> u64) -> Vec<(u64, String)> {
        let metrics = self.names.get(METRIC_NAME).into_iter().flatten();
        metrics
            .map(|(name, pair)| (cost(pair), name.clone()))
            .collect()
    }
}

/// Returns the total length of the values of a label.
fn total_length(values: &HashMap<String, PairStats>) -> u64 {
    values.keys().map(|value| value.len() as u64).sum()
}

impl TopList {
    /// Creates a list of the `limit` largest entries. Equal ones are in alphabetical order.
    fn new(
        key: &'static str,
        title: &'static str,
        mut entries: Vec<(u64, String)>,
        limit: usize,
    ) -> Self {
        entries.sort_by(|(n, name), (other_n, other_name)| {
            other_n.cmp(n).then_with(|| name.cmp(other_name))
        });
        entries.truncate(limit);
        Self {
            key,
            title,
            entries,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_entries_are_first() {
        let mut stats = LabelStats::default();
        stats.add([("__name__", "a"), ("job", "x")].into_iter(), 50, 10);
        stats.add([("__name__", "a"), ("job", "y")].into_iter(), 100, 1);
        stats.add([("__name__", "b"), ("job", "y")].into_iter(), 100, 30);
        let lists = stats.lists(100, 2);
        let top = |key: &str| {
            let list = lists.iter().find(|list| list.key == key).expect(key);
            list.entries
                .iter()
                .map(|(n, name)| format!("{n} {name}"))
                .collect::<Vec<_>>()
        };
        for (key, expect) in [
            ("churnByLabelPair", ["2 job=y", "1 __name__=a"]),
            ("churnByLabelName", ["2 __name__", "2 job"]),
            ("seriesByLabelPair", ["2 __name__=a", "2 job=y"]),
            ("seriesByMetric", ["2 a", "1 b"]),
            ("sampleBytesByMetric", ["30 b", "11 a"]),
            ("sampleBytesByLabelPair", ["31 job=y", "30 __name__=b"]),
            ("indexBytesByLabelName", ["14 __name__", "14 job"]),
        ] {
            assert_eq!(top(key), expect, "{key}");
        }
        assert_eq!(stats.n_postings(), (4, 6));
        assert_eq!((stats.n_names(), stats.n_series), (2, 3));
    }
}

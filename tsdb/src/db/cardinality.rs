//! Label cardinality of the series in memory, to find labels with too many values.
//!
//! One label name is counted at a time, over all shards. Its values are charged to the request.
//! Only the largest counts are kept. Series created or evicted meanwhile may or may not be counted.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use varve_context::QueryContext;
use varve_model::labels::METRIC_NAME;
use varve_model::{StringSet, TimeRange};

use crate::error::Result;
use crate::index::LabelCounts;
use crate::shard::Shard;

/// A label name, value or pair with its count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameCount {
    /// The name, or a pair as `name=value`.
    pub name: String,
    /// Series, values or bytes.
    pub count: u64,
}

/// Counts over the series in memory. Every list is limited to the largest counts, in descending
/// order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cardinality {
    /// Series.
    pub n_series: u64,
    /// Pairs of label name and value.
    pub n_label_pairs: u64,
    /// From the oldest to the newest sample in memory. `None` while there is none.
    pub range: Option<TimeRange>,
    /// Series by metric name.
    pub series_by_metric: Vec<NameCount>,
    /// Values by label name.
    pub values_by_label: Vec<NameCount>,
    /// Bytes by label name: the strings of its values and their postings.
    pub bytes_by_label: Vec<NameCount>,
    /// Series by pair of label name and value.
    pub series_by_pair: Vec<NameCount>,
}

/// The largest of many counts.
#[derive(Debug)]
struct Top {
    limit: usize,
    /// The smallest on top. Of equal counts, the name that sorts last is on top.
    largest: BinaryHeap<Reverse<(u64, Reverse<String>)>>,
}

impl Top {
    fn new(limit: usize) -> Self {
        Self {
            limit,
            largest: BinaryHeap::new(),
        }
    }

    fn offer(&mut self, count: u64, name: impl FnOnce() -> String) {
        let is_full = self.largest.len() >= self.limit;
        // Fast path: the count is too small.
        if is_full
            && self
                .largest
                .peek()
                .is_none_or(|Reverse((smallest, _))| count < *smallest)
        {
            return;
        }
        self.largest.push(Reverse((count, Reverse(name()))));
        if is_full {
            self.largest.pop();
        }
    }

    fn finish(self) -> Vec<NameCount> {
        let sorted = self.largest.into_sorted_vec().into_iter();
        sorted
            .map(|Reverse((count, Reverse(name)))| NameCount { name, count })
            .collect()
    }
}

/// Counts the series in the heads of `shards` and keeps the `limit` largest counts of each kind.
///
/// # Errors
/// If the request is interrupted or exceeds its memory limit.
pub(crate) fn count(ctx: &QueryContext, shards: &[Shard], limit: usize) -> Result<Cardinality> {
    let mut names = StringSet::new(ctx);
    let mut found = Cardinality::default();
    for shard in shards {
        let head = shard.head();
        head.label_names(ctx, &[], &mut names)?;
        found.n_series += head.len() as u64;
        found.range = found
            .range
            .into_iter()
            .chain(head.range())
            .reduce(TimeRange::hull);
    }
    let [mut metrics, mut values, mut bytes, mut pairs] = [(); 4].map(|()| Top::new(limit));
    for name in names.iter() {
        let mut counts = LabelCounts::new(ctx);
        for shard in shards {
            shard.head().count_label(ctx, name, &mut counts)?;
        }
        let n_values = counts.series_by_value.len() as u64;
        // The last series with the label was removed meanwhile.
        if n_values == 0 {
            continue;
        }
        found.n_label_pairs += n_values;
        values.offer(n_values, || name.to_owned());
        bytes.offer(counts.size, || name.to_owned());
        for (value, &n_series) in &counts.series_by_value {
            if name == METRIC_NAME {
                metrics.offer(n_series, || value.clone());
            }
            pairs.offer(n_series, || format!("{name}={value}"));
        }
    }
    [
        found.series_by_metric,
        found.values_by_label,
        found.bytes_by_label,
        found.series_by_pair,
    ] = [metrics, values, bytes, pairs].map(Top::finish);
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_counts_are_kept_and_ties_are_broken_by_name() {
        let mut top = Top::new(2);
        for (name, count) in [("b", 1), ("c", 3), ("a", 1), ("d", 0)] {
            top.offer(count, || name.to_owned());
        }
        let kept: Vec<_> = top
            .finish()
            .into_iter()
            .map(|kept| (kept.name, kept.count))
            .collect();
        assert_eq!(kept, [("c".to_owned(), 3), ("a".to_owned(), 1)]);
        assert!(Top::new(0).finish().is_empty());
    }
}

//! What labels cost: counts over the series in memory, for operators who look for the label that explodes.
//!
//! One label name is counted at a time, over all shards; what that needs to hold of its values is charged to the request.
//! Only the largest counts are kept. Series that come or go meanwhile are counted or not.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use crate::context::QueryContext;
use crate::error::Result;
use crate::index::Texts;
use crate::labels::METRIC_NAME;
use crate::memory::Charge;
use crate::sample::TimeRange;
use crate::shard::Shard;

/// A label name, value or pair with its count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameCount {
    /// The name, or a pair as `name=value`.
    pub name: String,
    /// Series, values or bytes.
    pub count: u64,
}

/// Counts over the series in memory; every list is cut, the largest counts come first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cardinality {
    /// Series.
    pub n_series: u64,
    /// Pairs of label name and value.
    pub n_label_pairs: u64,
    /// From the oldest to the newest sample in memory; `None` while there is none.
    pub range: Option<TimeRange>,
    /// Series by metric name.
    pub series_by_metric: Vec<NameCount>,
    /// Values by label name.
    pub values_by_label: Vec<NameCount>,
    /// Bytes by label name: of the texts of its values, and of the index over them.
    pub bytes_by_label: Vec<NameCount>,
    /// Series by pair of label name and value.
    pub series_by_pair: Vec<NameCount>,
}

/// What an entry of [`LabelCounts`] takes besides its text: the `String`, the count and its share of the table.
const ENTRY_SIZE: usize = 2 * (size_of::<String>() + size_of::<u64>());

/// The values of one label, counted over shards.
#[derive(Debug)]
pub(crate) struct LabelCounts {
    series_by_value: HashMap<String, u64>,
    size: u64,
    charge: Charge,
}

impl LabelCounts {
    /// Counts `n` more series of a value.
    ///
    /// # Errors
    /// [`Error::Limit`](crate::Error::Limit) when the memory of the request is used up.
    pub(crate) fn add(&mut self, value: &str, n: u64) -> Result<()> {
        self.size += value.len() as u64;
        if let Some(count) = self.series_by_value.get_mut(value) {
            *count += n;
            return Ok(());
        }
        self.charge.grow(value.len() + ENTRY_SIZE)?;
        self.series_by_value.insert(value.to_owned(), n);
        Ok(())
    }

    /// Counts the bytes of an index.
    pub(crate) fn add_size(&mut self, size: usize) {
        self.size += size as u64;
    }
}

/// The largest counts of many.
#[derive(Debug)]
struct Top {
    limit: usize,
    /// The smallest on top; of equal counts the name that comes last.
    largest: BinaryHeap<Reverse<(u64, Reverse<String>)>>,
}

impl Top {
    fn new(limit: usize) -> Self {
        Self { limit, largest: BinaryHeap::new() }
    }

    fn offer(&mut self, count: u64, name: impl FnOnce() -> String) {
        let is_full = self.largest.len() >= self.limit;
        // Fast path: a count too small for its name to matter.
        if is_full && self.largest.peek().is_none_or(|Reverse((smallest, _))| count < *smallest) {
            return;
        }
        self.largest.push(Reverse((count, Reverse(name()))));
        if is_full {
            self.largest.pop();
        }
    }

    fn finish(self) -> Vec<NameCount> {
        let sorted = self.largest.into_sorted_vec().into_iter();
        sorted.map(|Reverse((count, Reverse(name)))| NameCount { name, count }).collect()
    }
}

/// Counts what is in the heads of `shards` and keeps the `limit` largest of each kind.
///
/// # Errors
/// When the request ends or its memory is used up.
pub(crate) fn count(ctx: &QueryContext, shards: &[Shard], limit: usize) -> Result<Cardinality> {
    let mut names = Texts::new(ctx);
    let mut found = Cardinality::default();
    for shard in shards {
        let head = shard.head();
        head.label_names(ctx, &[], &mut names)?;
        found.n_series += head.len() as u64;
        found.range = found.range.into_iter().chain(head.range()).reduce(TimeRange::hull);
    }
    let [mut metrics, mut values, mut bytes, mut pairs] = [(); 4].map(|()| Top::new(limit));
    for name in names.iter() {
        let mut counts = LabelCounts { series_by_value: HashMap::new(), size: 0, charge: ctx.charge() };
        for shard in shards {
            shard.head().count_label(ctx, name, &mut counts)?;
        }
        let n_values = counts.series_by_value.len() as u64;
        // A label whose last series went meanwhile is none.
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
    [found.series_by_metric, found.values_by_label, found.bytes_by_label, found.series_by_pair] =
        [metrics, values, bytes, pairs].map(Top::finish);
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_are_kept_and_equal_ones_by_name() {
        let mut top = Top::new(2);
        for (name, count) in [("b", 1), ("c", 3), ("a", 1), ("d", 0)] {
            top.offer(count, || name.to_owned());
        }
        let kept: Vec<_> = top.finish().into_iter().map(|kept| (kept.name, kept.count)).collect();
        assert_eq!(kept, [("c".to_owned(), 3), ("a".to_owned(), 1)]);
        assert!(Top::new(0).finish().is_empty());
    }
}

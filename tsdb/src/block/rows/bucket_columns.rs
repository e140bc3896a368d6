//! The mapping of histogram buckets to the columns of a run.

use std::collections::BTreeSet;

use crate::chunk::histogram::Layout;
use crate::sample::histogram::BucketSpan;

/// One column per bucket index that occurs in any of the layouts of a run.
#[derive(Debug, Clone, Default)]
pub(in crate::block) struct BucketColumns {
    /// `None` for a single layout, whose buckets are the columns.
    indexes: Option<Indexes>,
    n_columns: usize,
}

/// Indexes of positive and of negative buckets, ascending.
type Indexes = (BTreeSet<i32>, BTreeSet<i32>);

impl BucketColumns {
    /// Creates the columns of one layout. Its spans are not checked.
    pub(in crate::block) fn new(layout: &Layout) -> Self {
        Self { indexes: None, n_columns: layout.n_buckets() }
    }

    /// Returns these columns plus the columns of `layout`; `first` is the argument of [`Self::new`]. Returns `None` if
    /// the bucket indexes of either layout do not ascend.
    pub(in crate::block) fn with(&self, first: &Layout, layout: &Layout) -> Option<Self> {
        let (mut positive, mut negative) = self.indexes.clone().or_else(|| indexes_of(first))?;
        let (other_positive, other_negative) = indexes_of(layout)?;
        positive.extend(other_positive);
        negative.extend(other_negative);
        let n_columns = positive.len() + negative.len();
        Some(Self { indexes: Some((positive, negative)), n_columns })
    }

    /// Returns the number of columns.
    pub(in crate::block) fn len(&self) -> usize {
        self.n_columns
    }

    /// Returns the column of each bucket of `layout`, which must have been added by `new` or `with`.
    pub(in crate::block) fn columns_of(&self, layout: &Layout) -> Vec<usize> {
        let all = self.indexes.as_ref().and_then(|all| Some((all, indexes_of(layout)?)));
        // Fast path: one layout.
        let Some(((positive, negative), (of_positive, of_negative))) = all else {
            return (0..self.n_columns).collect();
        };
        let contained_in = |of: BTreeSet<i32>| move |(_, index): &(usize, &i32)| of.contains(index);
        let positive = positive.iter().enumerate().filter(contained_in(of_positive)).map(|(place, _)| place);
        let negative = negative.iter().enumerate().filter(contained_in(of_negative)).map(|(place, _)| place);
        let n_positive = self.indexes.as_ref().map_or(0, |(positive, _)| positive.len());
        positive.chain(negative.map(|place| n_positive + place)).collect()
    }
}

/// Returns the indexes of a layout's buckets, if they ascend on both sides and match the number of buckets.
fn indexes_of(layout: &Layout) -> Option<Indexes> {
    let (positive_spans, negative_spans) = layout.spans();
    let n_positive = layout.n_positive();
    Some((indexes(positive_spans, n_positive)?, indexes(negative_spans, layout.n_buckets() - n_positive)?))
}

fn indexes(spans: &[BucketSpan], n_buckets: usize) -> Option<BTreeSet<i32>> {
    let n_spanned: u64 = spans.iter().map(|span| u64::from(span.length)).sum();
    if n_spanned != n_buckets as u64 || spans.iter().skip(1).any(|span| span.offset < 0) {
        return None;
    }
    let (mut next, mut indexes) = (0_i32, BTreeSet::new());
    for span in spans {
        next = next.checked_add(span.offset)?;
        for _ in 0..span.length {
            indexes.insert(next);
            next = next.checked_add(1)?;
        }
    }
    Some(indexes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::histogram::{Histogram, HistogramCounts};

    fn layout(positive: &[(i32, u32)], negative: &[(i32, u32)]) -> Layout {
        let spans = |of: &[(i32, u32)]| of.iter().map(|&(offset, length)| BucketSpan { offset, length }).collect();
        let buckets = |of: &[(i32, u32)]| vec![0; of.iter().map(|(_, length)| *length as usize).sum()];
        let (positive_buckets, negative_buckets) = (buckets(positive), buckets(negative));
        let counts = HistogramCounts::Integer {
            count: 0,
            zero_count: 0,
            positive: positive_buckets,
            negative: negative_buckets,
        };
        let (positive_spans, negative_spans) = (spans(positive), spans(negative));
        Layout::of(&Histogram { counts, positive_spans, negative_spans, ..Histogram::default() })
    }

    #[test]
    fn columns_are_the_union_of_bucket_indexes() {
        let (a, b, none) = (layout(&[(-1, 2), (3, 1)], &[(0, 1)]), layout(&[(0, 2)], &[(5, 1)]), layout(&[], &[]));
        let alone = BucketColumns::new(&a);
        assert_eq!((alone.len(), alone.columns_of(&a)), (4, vec![0, 1, 2, 3]));
        // Indexes -1, 0, 4 and 0, 1 of positive buckets, 0 and 5 of negative ones.
        let both = alone.with(&a, &b).unwrap().with(&a, &none).unwrap();
        assert_eq!(both.len(), 6);
        assert_eq!((both.columns_of(&a), both.columns_of(&b)), (vec![0, 1, 3, 4], vec![1, 2, 5]));
        assert!(both.columns_of(&none).is_empty());
    }

    #[test]
    fn spans_that_do_not_ascend_are_not_combined() {
        let good = layout(&[(0, 1)], &[]);
        for bad in [layout(&[(0, 2), (-1, 1)], &[]), layout(&[(i32::MAX, 2)], &[]), layout(&[(i32::MAX, 1)], &[])] {
            assert!(BucketColumns::new(&good).with(&good, &bad).is_none());
            assert!(BucketColumns::new(&bad).with(&bad, &good).is_none());
            assert_eq!(BucketColumns::new(&bad).columns_of(&bad).len(), bad.n_buckets());
        }
    }
}

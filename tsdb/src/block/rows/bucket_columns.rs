//! The mapping of histogram buckets to the columns of a run.

use std::collections::BTreeSet;

use varve_model::histogram::BucketSpan;

use crate::chunk::histogram::Layout;

/// The columns of a run: one per bucket index that occurs in any of the layouts.
#[derive(Debug, Clone, Default)]
pub(crate) struct BucketColumns {
    /// `None` for a single layout, whose buckets are the columns.
    indexes: Option<Indexes>,
    n_columns: usize,
}

/// Bucket indexes in the order of their columns: sign (`false` for positive buckets), and index.
type Indexes = BTreeSet<(bool, i32)>;

impl BucketColumns {
    /// Creates the columns of one layout. Its spans are not checked.
    pub(crate) fn new(layout: &Layout) -> Self {
        Self {
            indexes: None,
            n_columns: layout.n_buckets(),
        }
    }

    /// Returns these columns and the columns of `layout`. `first` is the argument of [`Self::new`].
    /// Returns `None` if the bucket indexes of either layout do not ascend.
    pub(crate) fn with(&self, first: &Layout, layout: &Layout) -> Option<Self> {
        let mut indexes = self.indexes.clone().or_else(|| indexes_of(first))?;
        indexes.append(&mut indexes_of(layout)?);
        Some(Self {
            n_columns: indexes.len(),
            indexes: Some(indexes),
        })
    }

    /// Returns the number of columns.
    pub(crate) fn len(&self) -> usize {
        self.n_columns
    }

    /// Returns the column of each bucket of `layout`, which must have been added by `new` or
    /// `with`.
    pub(crate) fn columns_of(&self, layout: &Layout) -> Vec<usize> {
        match self.indexes.as_ref().zip(indexes_of(layout)) {
            Some((all, own)) => (0..)
                .zip(all)
                .filter(|(_, index)| own.contains(index))
                .map(|(i, _)| i)
                .collect(),
            // Fast path: one layout.
            None => (0..self.n_columns).collect(),
        }
    }
}

/// Returns the bucket indexes of a layout if they ascend for each sign and match the number of
/// buckets.
fn indexes_of(layout: &Layout) -> Option<Indexes> {
    let mut indexes = Indexes::new();
    insert_indexes(
        false,
        &layout.positive_spans,
        layout.n_positive,
        &mut indexes,
    )?;
    insert_indexes(
        true,
        &layout.negative_spans,
        layout.n_negative,
        &mut indexes,
    )?;
    Some(indexes)
}

fn insert_indexes(
    is_negative: bool,
    spans: &[BucketSpan],
    n_buckets: usize,
    indexes: &mut Indexes,
) -> Option<()> {
    let n_spanned: u64 = spans.iter().map(|span| u64::from(span.length)).sum();
    if n_spanned != n_buckets as u64 || spans.iter().skip(1).any(|span| span.offset < 0) {
        return None;
    }
    let mut next = 0_i32;
    for span in spans {
        next = next.checked_add(span.offset)?;
        for _ in 0..span.length {
            indexes.insert((is_negative, next));
            next = next.checked_add(1)?;
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_model::histogram::{Histogram, HistogramCounts};

    fn layout(positive: &[(i32, u32)], negative: &[(i32, u32)]) -> Layout {
        let spans = |of: &[(i32, u32)]| {
            of.iter()
                .map(|&(offset, length)| BucketSpan { offset, length })
                .collect()
        };
        let buckets =
            |of: &[(i32, u32)]| vec![0; of.iter().map(|(_, length)| *length as usize).sum()];
        let positive_spans = spans(positive);
        let negative_spans = spans(negative);
        let positive = buckets(positive);
        let negative = buckets(negative);
        let counts = HistogramCounts::Integer {
            count: 0,
            zero_count: 0,
            positive,
            negative,
        };
        Layout::of(&Histogram {
            counts,
            positive_spans,
            negative_spans,
            ..Histogram::default()
        })
    }

    #[test]
    fn columns_are_the_union_of_bucket_indexes() {
        let a = layout(&[(-1, 2), (3, 1)], &[(0, 1)]);
        let b = layout(&[(0, 2)], &[(5, 1)]);
        let none = layout(&[], &[]);
        let alone = BucketColumns::new(&a);
        assert_eq!((alone.len(), alone.columns_of(&a)), (4, vec![0, 1, 2, 3]));
        // Positive buckets -1, 0, 4 and 0, 1; negative buckets 0 and 5.
        let both = alone.with(&a, &b).unwrap().with(&a, &none).unwrap();
        assert_eq!(both.len(), 6);
        assert_eq!(
            (both.columns_of(&a), both.columns_of(&b)),
            (vec![0, 1, 3, 4], vec![1, 2, 5])
        );
        assert!(both.columns_of(&none).is_empty());
    }

    #[test]
    fn spans_that_do_not_ascend_are_not_combined() {
        let good = layout(&[(0, 1)], &[]);
        for bad in [
            layout(&[(0, 2), (-1, 1)], &[]),
            layout(&[(i32::MAX, 2)], &[]),
            layout(&[(i32::MAX, 1)], &[]),
        ] {
            assert!(BucketColumns::new(&good).with(&good, &bad).is_none());
            assert!(BucketColumns::new(&bad).with(&bad, &good).is_none());
            assert_eq!(
                BucketColumns::new(&bad).columns_of(&bad).len(),
                bad.n_buckets()
            );
        }
    }
}

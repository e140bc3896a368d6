//! The mapping of histogram buckets to the columns of a run.

use varve_model::histogram::BucketSpan;

use crate::chunk::histogram::Layout;

/// The columns of a run: one per bucket index that occurs in any of the layouts.
#[derive(Debug, Clone, Default)]
pub(crate) struct BucketColumns {
    /// `None` for a single layout, whose buckets are the columns.
    ranges: Option<Vec<IndexRange>>,
    n_columns: usize,
}

/// Consecutive bucket indexes of one sign, at least one. A list of them is in the order of the
/// columns: positive buckets first, and by index. No two of a list overlap or touch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct IndexRange {
    is_negative: bool,
    start: i32,
    end: i32,
}

impl BucketColumns {
    /// Creates the columns of one layout. Its spans are not checked.
    pub(crate) fn new(layout: &Layout) -> Self {
        Self {
            ranges: None,
            n_columns: layout.n_buckets(),
        }
    }

    /// Returns these columns and the columns of `layout`. `first` is the argument of [`Self::new`].
    /// Returns `None` if the bucket indexes of either layout do not ascend.
    pub(crate) fn with(&self, first: &Layout, layout: &Layout) -> Option<Self> {
        let added = ranges_of(layout)?;
        let ranges = match &self.ranges {
            Some(ranges) => union(ranges, &added),
            None => union(&ranges_of(first)?, &added),
        };
        Some(Self {
            n_columns: ranges.iter().map(|range| range.len()).sum(),
            ranges: Some(ranges),
        })
    }

    /// Returns the number of columns.
    pub(crate) fn len(&self) -> usize {
        self.n_columns
    }

    /// Returns the column of each bucket of `layout`, which must have been added by `new` or
    /// `with`.
    pub(crate) fn columns_of(&self, layout: &Layout) -> Vec<usize> {
        let Some((all, own)) = self.ranges.as_ref().zip(ranges_of(layout)) else {
            // Fast path: one layout.
            return (0..self.n_columns).collect();
        };
        let mut columns = Vec::with_capacity(layout.n_buckets());
        let mut own = own.into_iter().peekable();
        let mut first_column = 0;
        for range in all {
            while let Some(part) = own.next_if(|part| range.contains(part)) {
                let start = first_column + part.start.abs_diff(range.start) as usize;
                columns.extend(start..start + part.len());
            }
            first_column += range.len();
        }
        columns
    }
}

impl IndexRange {
    fn len(&self) -> usize {
        self.end.abs_diff(self.start) as usize
    }

    fn contains(&self, other: &Self) -> bool {
        self.is_negative == other.is_negative && self.start <= other.start && other.end <= self.end
    }
}

/// Returns the ranges of bucket indexes that are in either list.
fn union(a: &[IndexRange], b: &[IndexRange]) -> Vec<IndexRange> {
    let mut ranges = [a, b].concat();
    // Merges two sorted lists in linear time.
    ranges.sort();
    let mut merged: Vec<IndexRange> = Vec::with_capacity(ranges.len());
    for range in ranges {
        append(range, &mut merged);
    }
    merged
}

/// Appends a range that does not start before the last one.
fn append(range: IndexRange, ranges: &mut Vec<IndexRange>) {
    match ranges.last_mut() {
        Some(last) if last.is_negative == range.is_negative && range.start <= last.end => {
            last.end = last.end.max(range.end);
        }
        _ => ranges.push(range),
    }
}

/// Returns the bucket indexes of a layout if they ascend for each sign and match the number of
/// buckets.
fn ranges_of(layout: &Layout) -> Option<Vec<IndexRange>> {
    let mut ranges = Vec::new();
    append_side(
        false,
        &layout.positive_spans,
        layout.n_positive,
        &mut ranges,
    )?;
    append_side(true, &layout.negative_spans, layout.n_negative, &mut ranges)?;
    Some(ranges)
}

fn append_side(
    is_negative: bool,
    spans: &[BucketSpan],
    n_buckets: usize,
    ranges: &mut Vec<IndexRange>,
) -> Option<()> {
    let n_spanned: u64 = spans.iter().map(|span| u64::from(span.length)).sum();
    if n_spanned != n_buckets as u64 || spans.iter().skip(1).any(|span| span.offset < 0) {
        return None;
    }
    let mut end = 0_i32;
    for span in spans {
        let start = end.checked_add(span.offset)?;
        end = start.checked_add_unsigned(span.length)?;
        if start < end {
            append(
                IndexRange {
                    is_negative,
                    start,
                    end,
                },
                ranges,
            );
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

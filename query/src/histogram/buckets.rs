//! Positive or negative buckets of a native histogram: counts by bucket index.
//!
//! Invariants
//! 1. There is one count per index, and the indexes ascend strictly.

use varve_model::histogram::BucketSpan;

use super::bounds;
use crate::math::kahan::KahanSum;

/// Counts by bucket index. Missing buckets have a count of 0.
#[derive(Debug, Clone, Default)]
pub(crate) struct Buckets {
    indexes: Vec<i32>,
    counts: Vec<f64>,
}

impl Buckets {
    /// Creates buckets from spans. Skips buckets that have no count or are out of order.
    pub(super) fn from_spans(spans: &[BucketSpan], counts: impl IntoIterator<Item = f64>) -> Self {
        let mut counts = counts.into_iter();
        let n_counts = counts.size_hint().0;
        let mut buckets = Self {
            indexes: Vec::with_capacity(n_counts),
            counts: Vec::with_capacity(n_counts),
        };
        let mut index = 0_i32;
        for span in spans {
            index = index.saturating_add(span.offset);
            for _ in 0..span.length {
                let Some(count) = counts.next() else {
                    return buckets;
                };
                if buckets.indexes.last().is_none_or(|&last| last < index) {
                    buckets.push(index, count);
                }
                index = index.saturating_add(1);
            }
        }
        buckets
    }

    /// Returns the spans of the buckets.
    pub(super) fn spans(&self) -> Vec<BucketSpan> {
        let mut spans: Vec<BucketSpan> = Vec::new();
        let mut end = 0;
        for &index in &self.indexes {
            match spans.last_mut() {
                Some(span) if index == end => span.length += 1,
                _ => spans.push(BucketSpan {
                    offset: index.wrapping_sub(end),
                    length: 1,
                }),
            }
            end = index.saturating_add(1);
        }
        spans
    }

    /// Returns the number of [`Self::spans`].
    pub(super) fn n_spans(&self) -> usize {
        usize::from(!self.is_empty())
            + self
                .indexes
                .windows(2)
                .filter(|pair| pair[1] - 1 != pair[0])
                .count()
    }

    /// Returns the allocated size in bytes, including unused capacity.
    pub(super) fn size(&self) -> usize {
        self.indexes.capacity() * size_of::<i32>() + self.counts.capacity() * size_of::<f64>()
    }

    pub(super) fn len(&self) -> usize {
        self.indexes.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.indexes.is_empty()
    }

    pub(super) fn index(&self, at: usize) -> i32 {
        self.indexes[at]
    }

    pub(super) fn counts(&self) -> &[f64] {
        &self.counts
    }

    pub(super) fn counts_mut(&mut self) -> &mut [f64] {
        &mut self.counts
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = (i32, f64)> + '_ {
        self.indexes
            .iter()
            .copied()
            .zip(self.counts.iter().copied())
    }

    pub(super) fn get(&self, index: i32) -> Option<f64> {
        self.indexes
            .binary_search(&index)
            .ok()
            .map(|at| self.counts[at])
    }

    pub(super) fn clear(&mut self) {
        self.indexes.clear();
        self.counts.clear();
    }

    pub(super) fn push(&mut self, index: i32, count: f64) {
        self.indexes.push(index);
        self.counts.push(count);
    }

    /// Returns `true` if the buckets are equal bit for bit.
    pub(super) fn bits_eq(&self, other: &Self) -> bool {
        self.indexes == other.indexes
            && self
                .counts
                .iter()
                .zip(&other.counts)
                .all(|(a, b)| a.to_bits() == b.to_bits())
    }

    /// Removes empty buckets and their compensation terms. A bucket with a non-zero compensation is
    /// not empty.
    pub(super) fn compact(&mut self, mut compensation: Option<&mut Vec<f64>>) {
        // Fast path: no bucket is empty.
        if !self.counts.contains(&0.0) {
            return;
        }
        let mut kept = 0;
        for at in 0..self.len() {
            if self.counts[at] == 0.0
                && compensation
                    .as_ref()
                    .is_none_or(|compensation| compensation[at] == 0.0)
            {
                continue;
            }
            self.indexes[kept] = self.indexes[at];
            self.counts[kept] = self.counts[at];
            if let Some(compensation) = &mut compensation {
                compensation[kept] = compensation[at];
            }
            kept += 1;
        }
        self.indexes.truncate(kept);
        self.counts.truncate(kept);
        // The increase of a counter that hardly changes has few non-empty buckets. One result is
        // stored per series and step, so unused capacity adds up.
        if 2 * kept < self.indexes.capacity() {
            self.indexes.shrink_to_fit();
            self.counts.shrink_to_fit();
        }
        if let Some(compensation) = compensation {
            compensation.truncate(kept);
        }
    }

    /// Reduces the resolution: merges buckets into the buckets of a coarser schema.
    pub(super) fn reduce_resolution(&self, from_schema: i8, to_schema: i8) -> Self {
        let mut merged = Self::default();
        for (index, count) in self.iter() {
            let index = bounds::coarser(index, from_schema, to_schema);
            match merged.counts.last_mut() {
                Some(last) if merged.indexes.last() == Some(&index) => *last += count,
                _ => merged.push(index, count),
            }
        }
        merged
    }

    /// Reduces the resolution with Kahan summation. Returns the buckets and their compensation
    /// terms.
    pub(super) fn reduce_resolution_compensated(
        &self,
        compensation: &[f64],
        from_schema: i8,
        to_schema: i8,
    ) -> (Self, Vec<f64>) {
        let mut merged = Self::default();
        let mut merged_compensation = Vec::new();
        for ((index, count), &compensation) in self.iter().zip(compensation) {
            let index = bounds::coarser(index, from_schema, to_schema);
            match (merged.counts.last_mut(), merged_compensation.last_mut()) {
                (Some(sum), Some(sum_compensation)) if merged.indexes.last() == Some(&index) => {
                    let total = KahanSum {
                        sum: *sum,
                        compensation: *sum_compensation,
                    }
                    .plus(count)
                    .plus(compensation);
                    *sum = total.sum;
                    *sum_compensation = total.compensation;
                }
                _ => {
                    merged.push(index, count);
                    merged_compensation.push(compensation);
                }
            }
        }
        (merged, merged_compensation)
    }

    /// Adds `sign` times the buckets of `other`, skipping its first `from` buckets.
    pub(super) fn add(&mut self, other: &Self, from: usize, sign: f64) {
        // Fast path: the indexes are equal.
        if from == 0 && self.indexes == other.indexes {
            for (count, other) in self.counts.iter_mut().zip(&other.counts) {
                *count += sign * other;
            }
            return;
        }
        let mut sum = Self::default();
        for (index, ours, theirs) in union(&self.indexes, &other.indexes[from..]) {
            let theirs = theirs.map(|at| sign * other.counts[from + at]);
            sum.push(
                index,
                match (ours.map(|at| self.counts[at]), theirs) {
                    (Some(ours), Some(theirs)) => ours + theirs,
                    (ours, theirs) => ours.or(theirs).unwrap_or(0.0),
                },
            );
        }
        *self = sum;
    }

    /// Adds the buckets of `other`, skipping its first `from`, with Kahan summation: one
    /// compensation term per bucket.
    pub(super) fn add_compensated(
        &mut self,
        compensation: &mut Vec<f64>,
        other: &Self,
        other_compensation: Option<&[f64]>,
        from: usize,
    ) {
        let compensation_at =
            |at: usize| other_compensation.map_or(0.0, |compensation| compensation[at]);
        let plus = |sum: KahanSum, at: usize| {
            let sum = sum.plus(other.counts[at]);
            if compensation_at(at) == 0.0 {
                sum
            } else {
                sum.plus(compensation_at(at))
            }
        };
        // Fast path: the indexes are equal.
        if from == 0 && self.indexes == other.indexes {
            for (at, (count, compensation)) in self.counts.iter_mut().zip(compensation).enumerate()
            {
                let sum = plus(
                    KahanSum {
                        sum: *count,
                        compensation: *compensation,
                    },
                    at,
                );
                *count = sum.sum;
                *compensation = sum.compensation;
            }
            return;
        }
        let mut total = Self::default();
        let mut total_compensation = Vec::new();
        for (index, ours, theirs) in union(&self.indexes, &other.indexes[from..]) {
            let ours = ours.map(|at| KahanSum {
                sum: self.counts[at],
                compensation: compensation[at],
            });
            let theirs = theirs.map(|at| from + at);
            let sum = match (ours, theirs) {
                (Some(ours), Some(theirs)) => plus(ours, theirs),
                (Some(ours), None) => ours,
                (None, Some(theirs)) => KahanSum {
                    sum: other.counts[theirs],
                    compensation: compensation_at(theirs),
                },
                (None, None) => KahanSum::new(0.0),
            };
            total.push(index, sum.sum);
            total_compensation.push(sum.compensation);
        }
        *self = total;
        *compensation = total_compensation;
    }
}

/// Iterates over the union of two ascending lists of indexes, with the position of each index in
/// both lists.
fn union<'a>(
    a: &'a [i32],
    b: &'a [i32],
) -> impl Iterator<Item = (i32, Option<usize>, Option<usize>)> + 'a {
    let mut at_a = 0;
    let mut at_b = 0;
    std::iter::from_fn(move || {
        let index = match (a.get(at_a), b.get(at_b)) {
            (Some(&a), Some(&b)) => a.min(b),
            (a, b) => *a.or(b)?,
        };
        let in_a = a.get(at_a) == Some(&index);
        let in_b = b.get(at_b) == Some(&index);
        let item = (index, in_a.then_some(at_a), in_b.then_some(at_b));
        at_a += usize::from(in_a);
        at_b += usize::from(in_b);
        Some(item)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn buckets(map: &BTreeMap<i32, u8>) -> Buckets {
        let mut buckets = Buckets::default();
        for (&index, &count) in map.iter() {
            buckets.push(index, f64::from(count));
        }
        buckets
    }

    proptest! {
        #[test]
        fn sums_equal_those_of_maps(
            a in proptest::collection::btree_map(-20..20_i32, 0..9_u8, 0..20),
            b in proptest::collection::btree_map(-20..20_i32, 0..9_u8, 0..20),
        ) {
            let mut expected: BTreeMap<i32, f64> = a.iter().map(|(&index, &count)| (index, f64::from(count))).collect();
            for (&index, &count) in b.iter() { *expected.entry(index).or_default() += f64::from(count); }
            let mut sum = buckets(&a);
            sum.add(&buckets(&b), 0, 1.0);
            prop_assert_eq!(sum.iter().collect::<BTreeMap<_, _>>(), expected.clone());
            let mut sum = buckets(&a);
            let mut compensation = vec![0.0; a.len()];
            sum.add_compensated(&mut compensation, &buckets(&b), None, 0);
            prop_assert_eq!((compensation.len(), sum.iter().collect::<BTreeMap<_, _>>()), (sum.len(), expected.clone()));
            sum.compact(None);
            expected.retain(|_, count| *count != 0.0);
            prop_assert_eq!(sum.iter().collect::<BTreeMap<_, _>>(), expected);
            let back = Buckets::from_spans(&sum.spans(), sum.counts().iter().copied());
            prop_assert!(back.bits_eq(&sum));
            prop_assert_eq!(sum.n_spans(), sum.spans().len());
        }
    }

    #[test]
    fn spans_that_are_out_of_order_or_lack_counts_are_truncated() {
        let spans = [
            BucketSpan {
                offset: 2,
                length: 2,
            },
            BucketSpan {
                offset: -3,
                length: 2,
            },
            BucketSpan {
                offset: 0,
                length: 9,
            },
        ];
        let buckets = Buckets::from_spans(&spans, [1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(buckets.iter().collect::<Vec<_>>(), [(2, 1.0), (3, 2.0)]);
        let far = [BucketSpan {
            offset: i32::MAX,
            length: 3,
        }];
        assert_eq!(Buckets::from_spans(&far, [1.0, 2.0, 3.0]).len(), 1);
    }
}

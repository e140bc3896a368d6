//! Buckets of one sign: how often what was observed, by index.
//!
//! Invariants
//! 1. There are as many counts as indexes, and the indexes ascend strictly.

use varve_tsdb::histogram::BucketSpan;

use super::bounds;
use crate::float::KahanSum;

/// Counts by bucket; a bucket that is not there has a count of 0.
#[derive(Debug, Clone, Default)]
pub(crate) struct Buckets {
    indexes: Vec<i32>,
    counts: Vec<f64>,
}

impl Buckets {
    /// Reads spans; what has no count, or would go back, is left out.
    pub(super) fn from_spans(spans: &[BucketSpan], counts: impl IntoIterator<Item = f64>) -> Self {
        let mut counts = counts.into_iter();
        let n_counts = counts.size_hint().0;
        let mut buckets = Self { indexes: Vec::with_capacity(n_counts), counts: Vec::with_capacity(n_counts) };
        let mut index = 0_i32;
        for span in spans {
            index = index.saturating_add(span.offset);
            for _ in 0..span.length {
                let Some(count) = counts.next() else { return buckets };
                if buckets.indexes.last().is_none_or(|&last| last < index) {
                    buckets.push(index, count);
                }
                index = index.saturating_add(1);
            }
        }
        buckets
    }

    /// Returns the shortest spans that have these buckets.
    pub(super) fn spans(&self) -> Vec<BucketSpan> {
        let mut spans: Vec<BucketSpan> = Vec::new();
        let mut end = 0;
        for &index in &self.indexes {
            match spans.last_mut() {
                Some(span) if index == end => span.length += 1,
                _ => spans.push(BucketSpan { offset: index.wrapping_sub(end), length: 1 }),
            }
            end = index.saturating_add(1);
        }
        spans
    }

    /// Counts the spans that [`Self::spans`] would return.
    pub(super) fn n_spans(&self) -> usize {
        usize::from(!self.is_empty()) + self.indexes.windows(2).filter(|pair| pair[1] - 1 != pair[0]).count()
    }

    /// Returns the bytes that it has on the heap: also room that is not used.
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
        self.indexes.iter().copied().zip(self.counts.iter().copied())
    }

    pub(super) fn get(&self, index: i32) -> Option<f64> {
        self.indexes.binary_search(&index).ok().map(|at| self.counts[at])
    }

    pub(super) fn clear(&mut self) {
        self.indexes.clear();
        self.counts.clear();
    }

    pub(super) fn push(&mut self, index: i32, count: f64) {
        self.indexes.push(index);
        self.counts.push(count);
    }

    /// Tells whether there are the same buckets with the same bits.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let same = |(a, b): (&f64, &f64)| a.to_bits() == b.to_bits();
        self.indexes == other.indexes && self.counts.iter().zip(&other.counts).all(same)
    }

    /// Removes empty buckets, with what rounding lost of them; those of which something was lost stay.
    pub(super) fn compact(&mut self, mut lost: Option<&mut Vec<f64>>) {
        // Fast path: none is empty.
        if !self.counts.contains(&0.0) {
            return;
        }
        let mut kept = 0;
        for at in 0..self.len() {
            if self.counts[at] == 0.0 && lost.as_ref().is_none_or(|lost| lost[at] == 0.0) {
                continue;
            }
            self.indexes[kept] = self.indexes[at];
            self.counts[kept] = self.counts[at];
            if let Some(lost) = &mut lost {
                lost[kept] = lost[at];
            }
            kept += 1;
        }
        self.indexes.truncate(kept);
        self.counts.truncate(kept);
        // Increases of counters that hardly move: what is kept by series and step is mostly room.
        if 2 * kept < self.indexes.capacity() {
            self.indexes.shrink_to_fit();
            self.counts.shrink_to_fit();
        }
        if let Some(lost) = lost {
            lost.truncate(kept);
        }
    }

    /// Merges buckets into those of a coarser schema.
    pub(super) fn coarser(&self, from_schema: i8, to_schema: i8) -> Self {
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

    /// Merges buckets into those of a coarser schema, keeping what rounding loses; `lost` is what it has lost before.
    pub(super) fn coarser_compensated(&self, lost: &[f64], from_schema: i8, to_schema: i8) -> (Self, Vec<f64>) {
        let (mut merged, mut merged_lost) = (Self::default(), Vec::new());
        for ((index, count), &lost) in self.iter().zip(lost) {
            let index = bounds::coarser(index, from_schema, to_schema);
            match (merged.counts.last_mut(), merged_lost.last_mut()) {
                (Some(sum), Some(sum_lost)) if merged.indexes.last() == Some(&index) => {
                    let total = KahanSum { sum: *sum, lost: *sum_lost }.plus(count).plus(lost);
                    (*sum, *sum_lost) = (total.sum, total.lost);
                }
                _ => {
                    merged.push(index, count);
                    merged_lost.push(lost);
                }
            }
        }
        (merged, merged_lost)
    }

    /// Adds the buckets of another list from place `from` on, each times `sign`.
    pub(super) fn add(&mut self, other: &Self, from: usize, sign: f64) {
        // Fast path: the same buckets.
        if from == 0 && self.indexes == other.indexes {
            self.counts.iter_mut().zip(&other.counts).for_each(|(count, other)| *count += sign * other);
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

    /// Adds the buckets of another list from place `from` on, keeping what rounding loses in `lost`, one per bucket.
    /// `other_lost` is what rounding has lost of the other list.
    pub(super) fn add_compensated(
        &mut self,
        lost: &mut Vec<f64>,
        other: &Self,
        other_lost: Option<&[f64]>,
        from: usize,
    ) {
        let lost_at = |at: usize| other_lost.map_or(0.0, |lost| lost[at]);
        let plus = |sum: KahanSum, at: usize| {
            let sum = sum.plus(other.counts[at]);
            if lost_at(at) == 0.0 { sum } else { sum.plus(lost_at(at)) }
        };
        // Fast path: the same buckets.
        if from == 0 && self.indexes == other.indexes {
            for (at, (count, lost)) in self.counts.iter_mut().zip(lost).enumerate() {
                let sum = plus(KahanSum { sum: *count, lost: *lost }, at);
                (*count, *lost) = (sum.sum, sum.lost);
            }
            return;
        }
        let (mut total, mut total_lost) = (Self::default(), Vec::new());
        for (index, ours, theirs) in union(&self.indexes, &other.indexes[from..]) {
            let ours = ours.map(|at| KahanSum { sum: self.counts[at], lost: lost[at] });
            let theirs = theirs.map(|at| from + at);
            let sum = match (ours, theirs) {
                (Some(ours), Some(theirs)) => plus(ours, theirs),
                (Some(ours), None) => ours,
                (None, Some(theirs)) => KahanSum { sum: other.counts[theirs], lost: lost_at(theirs) },
                (None, None) => KahanSum::new(0.0),
            };
            total.push(index, sum.sum);
            total_lost.push(sum.lost);
        }
        (*self, *lost) = (total, total_lost);
    }
}

/// Iterates over the indexes of two ascending lists, with their places in each.
fn union<'a>(a: &'a [i32], b: &'a [i32]) -> impl Iterator<Item = (i32, Option<usize>, Option<usize>)> + 'a {
    let (mut at_a, mut at_b) = (0, 0);
    std::iter::from_fn(move || {
        let index = match (a.get(at_a), b.get(at_b)) {
            (Some(&a), Some(&b)) => a.min(b),
            (a, b) => *a.or(b)?,
        };
        let (in_a, in_b) = (a.get(at_a) == Some(&index), b.get(at_b) == Some(&index));
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
        map.iter().for_each(|(&index, &count)| buckets.push(index, f64::from(count)));
        buckets
    }

    proptest! {
        #[test]
        fn sums_are_those_of_maps(
            a in proptest::collection::btree_map(-20..20_i32, 0..9_u8, 0..20),
            b in proptest::collection::btree_map(-20..20_i32, 0..9_u8, 0..20),
        ) {
            let mut expected: BTreeMap<i32, f64> = a.iter().map(|(&index, &count)| (index, f64::from(count))).collect();
            b.iter().for_each(|(&index, &count)| *expected.entry(index).or_default() += f64::from(count));
            let mut sum = buckets(&a);
            sum.add(&buckets(&b), 0, 1.0);
            prop_assert_eq!(sum.iter().collect::<BTreeMap<_, _>>(), expected.clone());
            let (mut sum, mut lost) = (buckets(&a), vec![0.0; a.len()]);
            sum.add_compensated(&mut lost, &buckets(&b), None, 0);
            prop_assert_eq!((lost.len(), sum.iter().collect::<BTreeMap<_, _>>()), (sum.len(), expected.clone()));
            sum.compact(None);
            expected.retain(|_, count| *count != 0.0);
            prop_assert_eq!(sum.iter().collect::<BTreeMap<_, _>>(), expected);
            let back = Buckets::from_spans(&sum.spans(), sum.counts().iter().copied());
            prop_assert!(back.is_same(&sum));
            prop_assert_eq!(sum.n_spans(), sum.spans().len());
        }
    }

    #[test]
    fn spans_that_go_back_or_lack_counts_are_cut() {
        let spans = [
            BucketSpan { offset: 2, length: 2 },
            BucketSpan { offset: -3, length: 2 },
            BucketSpan { offset: 0, length: 9 },
        ];
        let buckets = Buckets::from_spans(&spans, [1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(buckets.iter().collect::<Vec<_>>(), [(2, 1.0), (3, 2.0)]);
        let far = [BucketSpan { offset: i32::MAX, length: 3 }];
        assert_eq!(Buckets::from_spans(&far, [1.0, 2.0, 3.0]).len(), 1);
    }
}

//! Samples, and columns of the samples of a series.

use std::sync::Arc;

use crate::histogram::Histogram;
use crate::start_timestamps::{self, Change};
use crate::time_range::TimeRange;

/// A float value at a time.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// Milliseconds since the Unix epoch.
    pub timestamp_ms: i64,
    /// Any double, bit for bit, including NaN payloads, -0 and infinities.
    pub value: f64,
}

/// What a store has of a series, for a caller that continues it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StoredSeries {
    /// The newest timestamp. `None` if the series is not in memory.
    pub newest_ms: Option<i64>,
    /// The series has a sample at the time in question.
    pub has_sample: bool,
}

/// Samples of one series as two columns of equal length, in ascending order of time.
///
/// The reset hint of a histogram refers to the previous sample in the columns. If a merge or
/// removal changes the previous sample, the hint becomes unknown. A gauge stays a gauge.
#[derive(Debug, Clone, Default)]
pub struct SampleColumns {
    /// Milliseconds since the Unix epoch, strictly ascending.
    pub timestamps_ms: Vec<i64>,
    /// The value at each timestamp, bit for bit. For a histogram, the sum.
    pub values: Vec<f64>,
    /// The histograms and their indexes in the columns, ascending.
    pub histograms: Vec<(u32, Arc<Histogram>)>,
    /// Start timestamps (the time since which the value of a sample has been counted): the indexes
    /// of changes, ascending, with the start timestamp from that index on. 0 is unknown, and
    /// applies before the first change.
    pub starts_ms: Vec<(u32, i64)>,
}

impl SampleColumns {
    /// Returns the number of samples.
    #[must_use]
    pub fn len(&self) -> usize {
        self.timestamps_ms.len()
    }

    /// Returns `true` if there are no samples.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.timestamps_ms.is_empty()
    }

    /// Removes all samples and keeps the memory.
    pub fn clear(&mut self) {
        self.timestamps_ms.clear();
        self.values.clear();
        self.histograms.clear();
        self.starts_ms.clear();
    }

    /// Appends a sample with its start timestamp; 0 is unknown.
    pub fn push_with_start(&mut self, sample: Sample, start_ms: i64) {
        self.push_start(start_ms);
        self.push(sample);
    }

    /// Sets the start timestamp of the samples that are appended next; 0 is unknown.
    pub fn push_start(&mut self, start_ms: i64) {
        start_timestamps::push(&mut self.starts_ms, self.timestamps_ms.len(), start_ms);
    }

    /// Returns the start timestamp of the sample at `idx`; 0 is unknown.
    #[must_use]
    pub fn start_ms(&self, idx: usize) -> i64 {
        // Fast path: no start timestamps.
        if self.starts_ms.is_empty() {
            0
        } else {
            start_timestamps::at(&self.starts_ms, idx)
        }
    }

    /// Sets the start timestamps of the samples from the index `from` on. These samples must exist.
    /// Indexes in `changes` are relative to `from`.
    pub fn set_starts(&mut self, from: usize, changes: &[Change]) {
        start_timestamps::append(&mut self.starts_ms, from, changes);
    }

    /// Appends a sample.
    pub fn push(&mut self, sample: Sample) {
        self.timestamps_ms.push(sample.timestamp_ms);
        self.values.push(sample.value);
    }

    /// Appends a histogram.
    pub fn push_histogram(&mut self, timestamp_ms: i64, histogram: Arc<Histogram>) {
        let value = histogram.sum;
        self.histograms.push((self.len() as u32, histogram));
        self.push(Sample {
            timestamp_ms,
            value,
        });
    }

    /// Returns the histogram at `idx`, or `None` if that sample is a float.
    #[must_use]
    pub fn histogram(&self, idx: usize) -> Option<&Arc<Histogram>> {
        // Fast path: only floats.
        if self.histograms.is_empty() {
            return None;
        }
        let at = self
            .histograms
            .binary_search_by_key(&(idx as u32), |(idx, _)| *idx)
            .ok()?;
        Some(&self.histograms[at].1)
    }

    /// Returns the range from the first to the last sample, or `None` if there are none.
    #[must_use]
    pub fn range(&self) -> Option<TimeRange> {
        Some(TimeRange {
            start_ms: *self.timestamps_ms.first()?,
            end_ms: *self.timestamps_ms.last()?,
        })
    }

    /// Moves the samples of `later` to the end. All of them must be newer than the samples in
    /// `self`.
    pub fn append(&mut self, later: &mut Self) {
        if later.is_empty() {
            return;
        }
        let first = self.len() as u32;
        if first > 0 {
            later.clear_reset_hint(0);
        }
        start_timestamps::append(
            &mut self.starts_ms,
            self.timestamps_ms.len(),
            &later.starts_ms,
        );
        later.starts_ms.clear();
        self.timestamps_ms.append(&mut later.timestamps_ms);
        self.values.append(&mut later.values);
        self.histograms.extend(
            later
                .histograms
                .drain(..)
                .map(|(idx, histogram)| (first + idx, histogram)),
        );
    }

    /// Returns the number of samples inside `range`.
    #[must_use]
    pub fn len_within(&self, range: TimeRange) -> usize {
        let start = self.timestamps_ms.partition_point(|&t| t < range.start_ms);
        let end = self.timestamps_ms.partition_point(|&t| t <= range.end_ms);
        end.saturating_sub(start)
    }

    /// Removes the samples inside `range`.
    pub fn remove(&mut self, range: TimeRange) {
        let start = self.timestamps_ms.partition_point(|&t| t < range.start_ms);
        let end = start + self.timestamps_ms[start..].partition_point(|&t| t <= range.end_ms);
        self.drain(start..end);
    }

    /// Removes the samples outside `range`.
    pub fn retain(&mut self, range: TimeRange) {
        if range.start_ms > i64::MIN {
            self.remove(TimeRange {
                start_ms: i64::MIN,
                end_ms: range.start_ms - 1,
            });
        }
        if range.end_ms < i64::MAX {
            self.remove(TimeRange {
                start_ms: range.end_ms + 1,
                end_ms: i64::MAX,
            });
        }
    }

    fn drain(&mut self, removed: std::ops::Range<usize>) {
        start_timestamps::drain(
            &mut self.starts_ms,
            removed.clone(),
            self.timestamps_ms.len(),
        );
        self.timestamps_ms.drain(removed.clone());
        self.values.drain(removed.clone());
        let first_from = |at: usize| {
            self.histograms
                .partition_point(|(idx, _)| (*idx as usize) < at)
        };
        let start = first_from(removed.start);
        let end = first_from(removed.end);
        self.histograms.drain(start..end);
        for (idx, _) in &mut self.histograms[start..] {
            *idx -= removed.len() as u32;
        }
        if !removed.is_empty() {
            self.clear_reset_hint(removed.start);
        }
    }

    /// Keeps the first `len` samples and removes the others.
    pub fn truncate(&mut self, len: usize) {
        self.timestamps_ms.truncate(len);
        self.values.truncate(len);
        self.histograms.truncate(
            self.histograms
                .partition_point(|(idx, _)| (*idx as usize) < len),
        );
        self.starts_ms.truncate(
            self.starts_ms
                .partition_point(|(idx, _)| (*idx as usize) < len),
        );
    }

    /// Sets the reset hint of a histogram to unknown, unless it is a gauge, because its predecessor
    /// changed.
    fn clear_reset_hint(&mut self, idx: usize) {
        let Ok(at) = self
            .histograms
            .binary_search_by_key(&(idx as u32), |(idx, _)| *idx)
        else {
            return;
        };
        let histogram = &mut self.histograms[at].1;
        let reset_hint = histogram.reset_hint.after_another();
        if reset_hint != histogram.reset_hint {
            Arc::make_mut(histogram).reset_hint = reset_hint;
        }
    }

    /// Merges the samples of `other`. Of two samples at one timestamp, the sample in `self` wins.
    /// Returns the number of timestamps at which the two samples differ.
    pub fn merge(&mut self, other: &Self) -> u64 {
        let Some(other_range) = other.range() else {
            return 0;
        };
        let ours = self.split_off(
            self.timestamps_ms
                .partition_point(|&t| t < other_range.start_ms),
        );
        // Fast path: all samples are newer.
        if ours.is_empty() {
            self.append(&mut other.clone());
            return 0;
        }
        self.push_merged(&ours, other)
    }

    /// Merges the samples from the index `from` on, which have another source, with the samples
    /// from `start` to `from`. Of two samples at one timestamp, the one with the lower index wins.
    pub fn merge_from(&mut self, start: usize, from: usize) {
        if start == from || from == self.len() {
            return;
        }
        // Fast path: all samples are newer and stay in place.
        if self.timestamps_ms[from - 1] < self.timestamps_ms[from] {
            return self.clear_reset_hint(from);
        }
        let theirs = self.split_off(from);
        let first_ms = theirs.timestamps_ms[0];
        let n_before = self.timestamps_ms[start..].partition_point(|&t| t < first_ms);
        let ours = self.split_off(start + n_before);
        self.push_merged(&ours, &theirs);
    }

    /// Appends the samples of `ours`, whose predecessor is the last sample, and of `theirs` in order
    /// of time. Of two samples at one timestamp, the sample in `ours` wins. Returns the number of
    /// timestamps at which the two samples differ.
    fn push_merged(&mut self, ours: &Self, theirs: &Self) -> u64 {
        let mut our = 0;
        let mut their = 0;
        let mut n_conflicts = 0;
        // Indexes at which the next sample of each side would follow its own predecessor.
        let mut our_next = self.len();
        let mut their_next = usize::MAX;
        while our < ours.len() || their < theirs.len() {
            let our_ms = ours.timestamps_ms.get(our).copied();
            let their_ms = theirs.timestamps_ms.get(their).copied();
            if our_ms.is_none_or(|our_ms| their_ms.is_some_and(|their_ms| their_ms < our_ms)) {
                their_next = self.push_from(theirs, their, their_next);
                their += 1;
                continue;
            }
            if their_ms == our_ms {
                n_conflicts += u64::from(!ours.is_same(our, theirs, their));
                their += 1;
                their_next = usize::MAX;
            }
            our_next = self.push_from(ours, our, our_next);
            our += 1;
        }
        n_conflicts
    }

    /// Splits off the samples from the index `at` on.
    pub fn split_off(&mut self, at: usize) -> Self {
        let starts_ms = start_timestamps::slice(&self.starts_ms, at..self.len());
        start_timestamps::drain(
            &mut self.starts_ms,
            at..self.timestamps_ms.len(),
            self.timestamps_ms.len(),
        );
        let from = self
            .histograms
            .partition_point(|(idx, _)| (*idx as usize) < at);
        let mut histograms = self.histograms.split_off(from);
        for (idx, _) in &mut histograms {
            *idx -= at as u32;
        }
        Self {
            timestamps_ms: self.timestamps_ms.split_off(at),
            values: self.values.split_off(at),
            histograms,
            starts_ms,
        }
    }

    /// Appends a sample of `other`. The sample keeps its reset hint if its index in `self` is
    /// `next`, because it then follows its predecessor. Returns `next` for the following sample.
    pub fn push_from(&mut self, other: &Self, idx: usize, next: usize) -> usize {
        if !(self.starts_ms.is_empty() && other.starts_ms.is_empty()) {
            start_timestamps::push(
                &mut self.starts_ms,
                self.timestamps_ms.len(),
                other.start_ms(idx),
            );
        }
        match other.histogram(idx) {
            Some(histogram) => {
                let at = self.len();
                self.push_histogram(other.timestamps_ms[idx], Arc::clone(histogram));
                if at > 0 && at != next {
                    self.clear_reset_hint(at);
                }
            }
            None => self.push(Sample {
                timestamp_ms: other.timestamps_ms[idx],
                value: other.values[idx],
            }),
        }
        self.len()
    }

    /// Returns `true` if two samples have equal values, bit for bit.
    fn is_same(&self, idx: usize, other: &Self, other_idx: usize) -> bool {
        match (self.histogram(idx), other.histogram(other_idx)) {
            (None, None) => self.values[idx].to_bits() == other.values[other_idx].to_bits(),
            (Some(ours), Some(theirs)) => ours.is_same(theirs),
            _ => false,
        }
    }

    /// Iterates over timestamps and values in order of time. The value of a histogram is its sum.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Sample> + '_ {
        self.timestamps_ms
            .iter()
            .zip(&self.values)
            .map(|(&timestamp_ms, &value)| Sample {
                timestamp_ms,
                value,
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::ResetHint;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// Odd values become histograms.
    fn columns(samples: &BTreeMap<i64, u64>) -> SampleColumns {
        let mut columns = SampleColumns::default();
        for (&timestamp_ms, &value) in samples {
            let len = columns.len();
            start_timestamps::push(&mut columns.starts_ms, len, value as i64 * 100);
            let value = value as f64;
            if value % 2.0 == 1.0 {
                columns.push_histogram(
                    timestamp_ms,
                    Arc::new(Histogram {
                        sum: value,
                        ..Histogram::default()
                    }),
                )
            } else {
                columns.push(Sample {
                    timestamp_ms,
                    value,
                })
            }
        }
        columns
    }

    fn map(columns: &SampleColumns) -> BTreeMap<i64, u64> {
        for (idx, &value) in columns.values.iter().enumerate() {
            assert_eq!(columns.start_ms(idx), value as i64 * 100);
            assert_eq!(
                columns.histogram(idx).map(|histogram| histogram.sum),
                (value % 2.0 == 1.0).then_some(value)
            );
        }
        assert!(columns.histograms.is_sorted_by(|a, b| a.0 < b.0));
        columns
            .iter()
            .map(|s| (s.timestamp_ms, s.value as u64))
            .collect()
    }

    proptest! {
        #[test]
        fn columns_are_maps_from_time_to_value(
            ours in proptest::collection::btree_map(0..40_i64, 0..3_u64, 0..20),
            theirs in proptest::collection::btree_map(0..60_i64, 0..3_u64, 0..20),
            kept_before in proptest::collection::btree_map(0..40_i64, 0..3_u64, 0..3),
            start_ms in 0..50_i64, len_ms in 0..20_i64,
        ) {
            let mut merged = columns(&ours);
            let n_conflicts = merged.merge(&columns(&theirs));
            let mut expected = theirs.clone();
            expected.extend(ours.clone());
            prop_assert_eq!(map(&merged), expected);
            prop_assert!(merged.timestamps_ms.is_sorted());
            let differ = |(t, v): (&i64, &u64)| ours.get(t).is_some_and(|our| our != v);
            prop_assert_eq!(n_conflicts as usize, theirs.iter().filter(|&sample| differ(sample)).count());

            let start = kept_before.len();
            let mut joined = columns(&kept_before);
            joined.append(&mut columns(&ours));
            joined.append(&mut columns(&theirs));
            joined.merge_from(start, start + ours.len());
            let behind = joined.split_off(start);
            prop_assert_eq!((map(&joined), map(&behind)), (kept_before, map(&merged)));

            let range = TimeRange { start_ms, end_ms: start_ms + len_ms };
            let mut kept = columns(&ours);
            let mut removed = columns(&ours);
            kept.retain(range);
            removed.remove(range);
            let (inside, outside) = ours.into_iter().partition(|&(t, _)| range.contains(t));
            prop_assert_eq!((map(&kept), map(&removed)), (inside, outside));
        }
    }

    /// Creates histograms with the hint that there was no reset before them.
    fn following(times_ms: &[i64]) -> SampleColumns {
        let mut columns = SampleColumns::default();
        for &timestamp_ms in times_ms {
            let reset_hint = if timestamp_ms % 10 == 9 {
                ResetHint::Gauge
            } else {
                ResetHint::NoReset
            };
            columns.push_histogram(
                timestamp_ms,
                Arc::new(Histogram {
                    reset_hint,
                    ..Histogram::default()
                }),
            );
        }
        columns
    }

    fn unknown(columns: &SampleColumns) -> Vec<i64> {
        let of = columns
            .histograms
            .iter()
            .filter(|(_, histogram)| histogram.reset_hint == ResetHint::Unknown);
        of.map(|(idx, _)| columns.timestamps_ms[*idx as usize])
            .collect()
    }

    #[test]
    fn hints_are_valid_while_a_histogram_follows_its_original_predecessor() {
        for (theirs, expected) in [
            (&[50, 60, 70][..], &[50][..]),
            (&[59, 60], &[]),
            (&[15, 16], &[15, 20]),
            (&[5, 6], &[10]),
            (&[20, 25], &[25, 30]),
            (&[35, 45, 46], &[35, 40, 45]),
        ] {
            let mut merged = following(&[10, 20, 30, 40]);
            merged.merge(&following(theirs));
            assert_eq!(unknown(&merged), expected, "{theirs:?}");
        }
        let mut cut = following(&[10, 20, 30, 40]);
        cut.remove(TimeRange {
            start_ms: 15,
            end_ms: 25,
        });
        assert_eq!(unknown(&cut), [30]);
    }
}

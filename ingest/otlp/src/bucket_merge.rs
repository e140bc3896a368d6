//! Addition of the buckets of exponential histograms, after a reduction of their scales.

use std::ops::Range;

use super::message::{Buckets, ExponentialPoint};

impl ExponentialPoint {
    pub(super) fn positive_at(&self, scale: i64) -> Side<'_> {
        Side::new(&self.positive, self.scale, scale)
    }

    pub(super) fn negative_at(&self, scale: i64) -> Side<'_> {
        Side::new(&self.negative, self.scale, scale)
    }
}

/// Maximum number of positive or negative buckets of the total of exponential histograms, without
/// empty ones at the ends.
pub(super) const BUCKETS_MAX: i64 = 160;

/// The buckets of one sign, without empty ones at the ends, seen at a lower scale: `1 << shift`
/// buckets are one.
#[derive(Clone, Copy)]
pub(super) struct Side<'a> {
    /// The index of the first bucket.
    first: i64,
    counts: &'a [u64],
    shift: u32,
}

impl<'a> Side<'a> {
    fn new(buckets: &'a Option<Buckets>, own_scale: i32, scale: i64) -> Self {
        let shift = u32::try_from(i64::from(own_scale) - scale).unwrap_or(0);
        let buckets = buckets.as_ref();
        let all = buckets.map_or(&[][..], |buckets| &buckets.counts);
        let start = all.iter().position(|&count| count != 0).unwrap_or(0);
        let last = all.iter().rposition(|&count| count != 0);
        let end = last.map_or(start, |last| last + 1);
        Self {
            first: buckets.map_or(0, |buckets| i64::from(buckets.offset)) + start as i64,
            counts: &all[start..end],
            shift: shift.min(i64::BITS - 1),
        }
    }

    /// Returns the indexes of the first bucket and of the one after the last. Returns `None` without
    /// buckets.
    fn range(self) -> Option<Range<i64>> {
        let last = self.first + self.counts.len().checked_sub(1)? as i64;
        Some(self.first >> self.shift..(last >> self.shift) + 1)
    }
}

/// Returns the range of the buckets that [`merge`] returns.
fn merged_range(total: Side<'_>, delta: Side<'_>) -> Option<Range<i64>> {
    match (total.range(), delta.range()) {
        (Some(total), Some(delta)) => Some(total.start.min(delta.start)..total.end.max(delta.end)),
        (total, delta) => total.or(delta),
    }
}

/// Returns the number of buckets that [`merge`] returns.
pub(super) fn n_merged(total: Side<'_>, delta: Side<'_>) -> i64 {
    match merged_range(total, delta) {
        Some(range) => range.end - range.start,
        None => 0,
    }
}

/// Adds the buckets of a delta to the buckets of a total, after a reduction of the scale of each.
pub(super) fn merge(total: Side<'_>, delta: Side<'_>) -> Option<Buckets> {
    let range = merged_range(total, delta)?;
    let len =
        usize::try_from(range.end - range.start).expect("the caller limits the number of buckets");
    let mut counts = vec![0_u64; len];
    for side in [total, delta] {
        for (position, count) in (side.first..).zip(side.counts) {
            let idx = usize::try_from((position >> side.shift) - range.start)
                .expect("the first bucket is at the start");
            counts[idx] = counts[idx].wrapping_add(*count);
        }
    }
    Some(Buckets {
        offset: i32::try_from(range.start).expect("an offset of an i32, or less after a shift"),
        counts,
    })
}

/// Widens the zero bucket of a histogram to the bucket that contains `threshold`, at least: it takes
/// the observations of all buckets in it.
pub(super) fn widen_zero_bucket(histogram: &mut ExponentialPoint, threshold: f64) {
    // Bucket i ends at 2^((i + 1) / 2^scale).
    let buckets_per_octave = f64::from(histogram.scale).exp2();
    let exact = threshold.log2() * buckets_per_octave;
    // The end of a bucket is an integer but for rounding.
    let end = if (exact - exact.round()).abs() < 1e-6 {
        exact.round()
    } else {
        exact.ceil()
    };
    // Only a scale or a threshold that no sender uses has no such bucket.
    if !end.is_finite() {
        histogram.zero_threshold = threshold;
        return;
    }
    for side in [&mut histogram.positive, &mut histogram.negative] {
        let Some(buckets) = side else {
            continue;
        };
        let n_inside = end - f64::from(buckets.offset);
        // The cast saturates: a negative number becomes 0.
        let n_inside = (n_inside as usize).min(buckets.counts.len());
        for count in buckets.counts.drain(..n_inside) {
            histogram.zero_count = histogram.zero_count.wrapping_add(count);
        }
        buckets.offset = buckets.offset.wrapping_add(n_inside as i32);
    }
    let bound = (end / buckets_per_octave).exp2();
    histogram.zero_threshold = if bound.is_finite() { bound } else { threshold };
}

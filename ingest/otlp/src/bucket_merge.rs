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

/// The buckets of one sign, seen at a lower scale: `1 << shift` buckets are one.
#[derive(Clone, Copy)]
pub(super) struct Side<'a> {
    /// `None` without buckets.
    buckets: Option<&'a Buckets>,
    shift: u32,
}

impl<'a> Side<'a> {
    fn new(buckets: &'a Option<Buckets>, own_scale: i32, scale: i64) -> Self {
        let shift = u32::try_from(i64::from(own_scale) - scale).unwrap_or(0);
        Self {
            buckets: buckets
                .as_ref()
                .filter(|buckets| !buckets.counts.is_empty()),
            shift: shift.min(i64::BITS - 1),
        }
    }

    /// Returns the indexes of the first bucket and of the one after the last.
    fn range(self) -> Option<Range<i64>> {
        let buckets = self.buckets?;
        let first = i64::from(buckets.offset);
        let last = first + buckets.counts.len() as i64 - 1;
        Some(first >> self.shift..(last >> self.shift) + 1)
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
        let Some(buckets) = side.buckets else {
            continue;
        };
        for (position, count) in (i64::from(buckets.offset)..).zip(&buckets.counts) {
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

//! The encoding of timestamps: a line, and the distance of each timestamp from it.
//!
//! Used by the pages of timestamp columns. Format: docs/format/block.md, "Timestamps".
//!
//! ```text
//! step     varint: 2 * zigzag(step), and 1 more if there are residuals
//! start    zigzag varint: the first timestamp
//! residuals  an integer column (see `integers`) of timestamp - (start + i * step), i counting from 0
//! ```
//! A clock with jitter leaves small residuals. A missed scrape shifts all later timestamps, which
//! the integer column encodes as one exceptional step. All arithmetic wraps, so that any timestamps
//! can be encoded.

use std::ops::Range;

use crate::integers::{IntegerEncoder, decode_integers};
use crate::varint::{put_i64, put_u64, take_i64, take_u64, unzigzag, zigzag};

/// Maximum number of steps that are sampled to find the usual step.
const PROBES: usize = 31;

/// Appends encoded timestamps, at least one. Their number is not stored.
///
/// # Panics
/// If there are no timestamps.
pub fn encode_timestamps(times_ms: &[i64], dst: &mut Vec<u8>) {
    let start_ms = *times_ms
        .first()
        .expect("a column of timestamps is not empty");
    let step_ms = usual_step(times_ms);
    let residuals: Vec<_> = times_ms
        .iter()
        .zip(line(start_ms, step_ms))
        .map(|(time, on)| time.wrapping_sub(on))
        .collect();
    let is_regular = residuals.iter().all(|&residual| residual == 0);
    // The step has 63 bits, as the lowest bit of the head is the flag. See `usual_step`.
    put_u64(dst, zigzag(step_ms) << 1 | u64::from(!is_regular));
    put_i64(dst, start_ms);
    if !is_regular {
        IntegerEncoder::default().encode(&residuals, dst);
    }
}

/// Decodes `n` timestamps from the front of `src` and appends them to `dst`.
///
/// Regular timestamps take a few bytes, whatever their number. So the caller must bound `n`.
///
/// Returns `None`, and `dst` is unchanged, if the bytes are not such a column or `n` is zero.
#[must_use]
pub fn decode_timestamps(src: &mut &[u8], n: usize, dst: &mut Vec<i64>) -> Option<()> {
    let start = dst.len();
    let decoded = decode_column(src, n, dst);
    if decoded.is_none() {
        dst.truncate(start);
    }
    decoded
}

fn decode_column(src: &mut &[u8], n: usize, dst: &mut Vec<i64>) -> Option<()> {
    if n == 0 {
        return None;
    }
    let head = take_u64(src)?;
    let start_ms = take_i64(src)?;
    let line = line(start_ms, unzigzag(head >> 1));
    // Fast path: a regular column.
    if head & 1 == 0 {
        dst.extend(line.take(n));
        return Some(());
    }
    let first = dst.len();
    dst.resize(first + n, 0);
    let times_ms = &mut dst[first..];
    decode_integers(src, times_ms)?;
    for (time_ms, on) in times_ms.iter_mut().zip(line) {
        *time_ms = time_ms.wrapping_add(on);
    }
    Some(())
}

fn line(start_ms: i64, step_ms: i64) -> impl Iterator<Item = i64> {
    let mut next_ms = start_ms;
    // Additions compile to vector instructions, multiplications of 64 bits to many more.
    (0_i64..).map(move |_| {
        let time_ms = next_ms;
        next_ms = next_ms.wrapping_add(step_ms);
        time_ms
    })
}

/// Timestamps at equal steps, as of most scrapes. They need no list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegularTimestamps {
    start_ms: i64,
    /// Positive.
    step_ms: i64,
    n: usize,
}

impl RegularTimestamps {
    /// Decodes `n` timestamps if they are regular and ascend. Returns `None` if they are not, or if
    /// they are damaged.
    #[must_use]
    pub fn decode(mut src: &[u8], n: usize) -> Option<Self> {
        let head = take_u64(&mut src)?;
        let start_ms = take_i64(&mut src)?;
        let step_ms = unzigzag(head >> 1);
        let is_regular = head & 1 == 0;
        if !is_regular || !src.is_empty() || step_ms <= 0 {
            return None;
        }
        let steps = i64::try_from(n.checked_sub(1)?).ok()?;
        start_ms.checked_add(steps.checked_mul(step_ms)?)?;
        Some(Self {
            start_ms,
            step_ms,
            n,
        })
    }

    /// Returns the number of timestamps.
    #[inline]
    #[must_use]
    pub fn n_timestamps(self) -> usize {
        self.n
    }

    /// Returns the indexes of the timestamps from `from_ms` to `to_ms`, both included.
    #[inline]
    #[must_use]
    pub fn cut(self, from_ms: i64, to_ms: i64) -> Range<usize> {
        // Cannot overflow: see `RegularTimestamps::decode`.
        let end_ms = self.start_ms + self.step_ms * (self.n as i64 - 1);
        // Fast path: all of them.
        if from_ms <= self.start_ms && end_ms <= to_ms {
            return 0..self.n;
        }
        if to_ms < self.start_ms || end_ms < from_ms || to_ms < from_ms {
            return 0..0;
        }
        let step_ms = self.step_ms.unsigned_abs();
        let from_distance_ms = from_ms.clamp(self.start_ms, end_ms).abs_diff(self.start_ms);
        let to_distance_ms = to_ms.clamp(self.start_ms, end_ms).abs_diff(self.start_ms);
        // Both are at most `n`.
        let first = from_distance_ms.div_ceil(step_ms) as usize;
        let last = (to_distance_ms / step_ms) as usize;
        first..last + 1
    }

    /// Appends the timestamps at `wanted`.
    pub fn append(self, wanted: Range<usize>, dst: &mut Vec<i64>) {
        debug_assert!(wanted.end <= self.n, "range outside the column");
        // Overflows only if `wanted` is empty: see `RegularTimestamps::decode`.
        let first_ms = self
            .start_ms
            .wrapping_add(self.step_ms.wrapping_mul(wanted.start as i64));
        dst.extend(line(first_ms, self.step_ms).take(wanted.len()));
    }
}

/// Returns the median of a few steps, or 0 if its zigzag needs 64 bits.
fn usual_step(times_ms: &[i64]) -> i64 {
    let stride = times_ms.len().div_ceil(PROBES);
    let mut steps: Vec<_> = times_ms
        .windows(2)
        .step_by(stride)
        .map(|pair| pair[1].wrapping_sub(pair[0]))
        .collect();
    steps.sort_unstable();
    let median = steps.get(steps.len() / 2).copied().unwrap_or(0);
    if zigzag(median) >> 63 == 0 { median } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encoded(times_ms: &[i64]) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode_timestamps(times_ms, &mut bytes);
        bytes
    }

    /// Decodes with other bytes after the column, which must remain.
    fn decoded(bytes: &[u8], n: usize) -> Option<Vec<i64>> {
        let mut times_ms = vec![7];
        let bytes = [bytes, b"behind"].concat();
        let mut src = &bytes[..];
        decode_timestamps(&mut src, n, &mut times_ms)?;
        assert_eq!(src, b"behind");
        assert_eq!(times_ms.remove(0), 7);
        Some(times_ms)
    }

    fn check(times_ms: &[i64], size_max: usize) {
        let bytes = encoded(times_ms);
        assert_eq!(decoded(&bytes, times_ms.len()), Some(times_ms.to_vec()));
        assert!(
            bytes.len() <= size_max,
            "{} timestamps in {} bytes",
            times_ms.len(),
            bytes.len()
        );
    }

    #[test]
    fn regular_timestamps_take_a_few_bytes_whatever_their_number() {
        let regular = |n: i64, step: i64| {
            (0..n)
                .map(|i| 1_790_000_000_000 + i * step)
                .collect::<Vec<_>>()
        };
        check(&regular(1, 0), 7);
        check(&regular(2, 15_000), 9);
        check(&regular(240, 30_000), 9);
        check(&regular(100_000, 1_000), 8);
    }

    #[test]
    fn jitter_takes_its_bits_and_a_missing_scrape_a_few_bytes() {
        let jittered = |i: i64| 1_790_000_000_000 + i * 15_000 + i * i * 7 % 16;
        check(
            &(0..960).map(jittered).collect::<Vec<_>>(),
            960 * 5 / 8 + 16,
        );
        check(
            &(0..960)
                .filter(|i| i % 300 != 7)
                .map(|i| i * 15_000)
                .collect::<Vec<_>>(),
            40,
        );
        check(
            &(0..960).map(|i| i * 15_000 + i * i / 4).collect::<Vec<_>>(),
            960 * 10 / 8,
        );
    }

    #[test]
    fn the_whole_range_of_timestamps_round_trips() {
        check(&[i64::MIN], 12);
        check(&[i64::MIN, i64::MAX], 40);
        check(&[i64::MIN, -1, 0, 1, i64::MAX], 80);
    }

    /// The timestamp after the last one overflowed.
    #[test]
    fn an_empty_range_at_the_end_appends_nothing() {
        let regular = RegularTimestamps {
            start_ms: i64::MIN,
            step_ms: i64::MAX,
            n: 3,
        };
        let mut listed = Vec::new();
        regular.append(3..3, &mut listed);
        assert!(listed.is_empty());
    }

    proptest! {
        #[test]
        fn regular_timestamps_equal_their_list(
            start_ms in prop_oneof![-50_i64..50, any::<i64>()], step_ms in prop_oneof![1_i64..20, 1..1_i64 << 61],
            n in 2..30_usize, range in (-100_i64..700, -100_i64..700),
        ) {
            let times_ms: Vec<_> = (0..n as i64).map(|i| start_ms.wrapping_add(i.wrapping_mul(step_ms))).collect();
            let Some(regular) = RegularTimestamps::decode(&encoded(&times_ms), n) else {
                prop_assert!(step_ms > 20 || !times_ms.is_sorted(), "no timestamp overflows");
                return Ok(());
            };
            for (from_ms, to_ms) in [range, (i64::MIN, i64::MAX)] {
                let start = times_ms.partition_point(|&time_ms| time_ms < from_ms);
                let end = times_ms.partition_point(|&time_ms| time_ms <= to_ms).max(start);
                let indexes = regular.cut(from_ms, to_ms);
                prop_assert!(indexes == (start..end) || indexes.is_empty() && start == end, "{indexes:?}");
                let mut listed = vec![7];
                regular.append(start..end, &mut listed);
                prop_assert_eq!(&listed[1..], &times_ms[start..end]);
            }
        }

        #[test]
        fn damaged_regular_timestamps_are_rejected_or_ascend(
            bytes in proptest::collection::vec(any::<u8>(), 0..20), n in 0..100_usize,
        ) {
            if let Some(regular) = RegularTimestamps::decode(&bytes, n) {
                let mut listed = Vec::new();
                regular.append(0..n, &mut listed);
                prop_assert_eq!(decoded(&bytes, n), Some(listed.clone()));
                prop_assert!(listed.is_sorted_by(|a, b| a < b));
            }
        }

        #[test]
        fn any_ascending_timestamps_round_trip(
            times_ms in prop_oneof![
                proptest::collection::btree_set(any::<i64>(), 1..300),
                proptest::collection::btree_set(-1_000_i64..1_000, 1..300),
            ],
        ) {
            let times_ms: Vec<_> = times_ms.into_iter().collect();
            prop_assert_eq!(decoded(&encoded(&times_ms), times_ms.len()), Some(times_ms));
        }

        #[test]
        fn damaged_bytes_are_rejected_or_decode_to_n_timestamps(
            bytes in proptest::collection::vec(any::<u8>(), 0..100), n in 0..2_000_usize,
        ) {
            let mut times_ms = vec![7];
            let decoded = decode_timestamps(&mut &bytes[..], n, &mut times_ms);
            prop_assert_eq!(times_ms.len(), if decoded.is_some() { n + 1 } else { 1 });
        }
    }

    #[test]
    fn every_truncation_is_rejected() {
        let bytes = encoded(&(0..100).map(|i| i * 1_000 + i % 7).collect::<Vec<_>>());
        for size in 0..bytes.len() {
            assert_eq!(
                decode_timestamps(&mut &bytes[..size], 100, &mut Vec::new()),
                None,
                "{size}"
            );
        }
    }
}

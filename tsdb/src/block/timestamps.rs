//! Columns of timestamps: the line that they keep to, and how far each is from it.
//!
//! Used by the pages of timestamps of parts and blocks. Format: docs/format/block.md, "Timestamps".
//!
//! ```text
//! step     varint: 2 * zigzag(step), and 1 more if there are residuals
//! start    zigzag varint: the first timestamp
//! residuals  an integer column (see `values::integers`) of timestamp - (start + i * step), i counting from 0
//! ```
//! A clock that jitters leaves small residuals; a scrape that is missing shifts all that follow, which the column takes
//! as one odd step. All arithmetic wraps, so that any timestamps at all can be encoded.

use super::Damaged;
use super::values::integers::{IntegerEncoder, decode_integers};
use crate::varint::{put_i64, put_u64, take_i64, take_u64, unzigzag, zigzag};

/// Steps that are looked at to find the usual one.
const PROBES: usize = 31;

/// Appends timestamps, of which there is one at least; their number is not stored.
///
/// # Panics
/// Without timestamps.
pub(in crate::block) fn encode_timestamps(times_ms: &[i64], dst: &mut Vec<u8>) {
    let start_ms = *times_ms.first().expect("a column of timestamps has one at least");
    let step_ms = usual_step(times_ms);
    let residuals: Vec<_> =
        times_ms.iter().zip(line(start_ms, step_ms)).map(|(time, on)| time.wrapping_sub(on)).collect();
    let is_regular = residuals.iter().all(|&residual| residual == 0);
    // The highest bit of the step gives way to the flag: a step that has it is left to the residuals.
    put_u64(dst, zigzag(step_ms) << 1 | u64::from(!is_regular));
    put_i64(dst, start_ms);
    if !is_regular {
        IntegerEncoder::default().encode(&residuals, dst);
    }
}

/// Takes `n` timestamps off the front of `src` and appends them to `dst`.
///
/// A regular column is a few bytes for any number of timestamps: the caller bounds `n`.
///
/// # Errors
/// [`Damaged`], and `dst` is as it was, if the bytes are no such column or `n` is zero.
pub(in crate::block) fn decode_timestamps(src: &mut &[u8], n: usize, dst: &mut Vec<i64>) -> Result<(), Damaged> {
    let start = dst.len();
    let decoded = decode_column(src, n, dst);
    if decoded.is_none() {
        dst.truncate(start);
    }
    decoded.ok_or(Damaged)
}

fn decode_column(src: &mut &[u8], n: usize, dst: &mut Vec<i64>) -> Option<()> {
    let head = take_u64(src).filter(|_| n > 0)?;
    let start_ms = take_i64(src)?;
    let line = line(start_ms, unzigzag(head >> 1));
    // Fast path: exactly regular.
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
    (0_i64..).map(move |i| start_ms.wrapping_add(i.wrapping_mul(step_ms)))
}

/// Returns the median of some steps; 0 if it is too large to be written.
fn usual_step(times_ms: &[i64]) -> i64 {
    let stride = times_ms.len().div_ceil(PROBES);
    let mut steps: Vec<_> = times_ms.windows(2).step_by(stride).map(|pair| pair[1].wrapping_sub(pair[0])).collect();
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

    /// Decodes with foreign bytes behind, which must stay.
    fn decoded(bytes: &[u8], n: usize) -> Result<Vec<i64>, Damaged> {
        let mut times_ms = vec![7];
        let bytes = [bytes, b"behind"].concat();
        let mut src = &bytes[..];
        decode_timestamps(&mut src, n, &mut times_ms)?;
        assert_eq!(src, b"behind");
        assert_eq!(times_ms.remove(0), 7);
        Ok(times_ms)
    }

    fn check(times_ms: &[i64], size_max: usize) {
        let bytes = encoded(times_ms);
        assert_eq!(decoded(&bytes, times_ms.len()), Ok(times_ms.to_vec()));
        assert!(bytes.len() <= size_max, "{} timestamps in {} bytes", times_ms.len(), bytes.len());
    }

    #[test]
    fn regular_timestamps_take_a_few_bytes_whatever_their_number() {
        let regular = |n: i64, step: i64| (0..n).map(|i| 1_790_000_000_000 + i * step).collect::<Vec<_>>();
        check(&regular(1, 0), 7);
        check(&regular(2, 15_000), 9);
        check(&regular(240, 30_000), 9);
        check(&regular(100_000, 1_000), 8);
    }

    #[test]
    fn jitter_takes_its_bits_and_a_missing_scrape_a_few_bytes() {
        let jittered = |i: i64| 1_790_000_000_000 + i * 15_000 + i * i * 7 % 16;
        check(&(0..960).map(jittered).collect::<Vec<_>>(), 960 * 5 / 8 + 16);
        check(&(0..960).filter(|i| i % 300 != 7).map(|i| i * 15_000).collect::<Vec<_>>(), 40);
        check(&(0..960).map(|i| i * 15_000 + i * i / 4).collect::<Vec<_>>(), 960 * 10 / 8);
    }

    #[test]
    fn the_whole_range_of_times_comes_back() {
        check(&[i64::MIN], 12);
        check(&[i64::MIN, i64::MAX], 40);
        check(&[i64::MIN, -1, 0, 1, i64::MAX], 80);
    }

    proptest! {
        #[test]
        fn any_ascending_timestamps_come_back(
            times_ms in prop_oneof![
                proptest::collection::btree_set(any::<i64>(), 1..300),
                proptest::collection::btree_set(-1_000_i64..1_000, 1..300),
            ],
        ) {
            let times_ms: Vec<_> = times_ms.into_iter().collect();
            prop_assert_eq!(decoded(&encoded(&times_ms), times_ms.len()), Ok(times_ms));
        }

        #[test]
        fn damaged_bytes_give_that_many_timestamps_or_none(
            bytes in proptest::collection::vec(any::<u8>(), 0..100), n in 0..2_000_usize,
        ) {
            let mut times_ms = vec![7];
            let decoded = decode_timestamps(&mut &bytes[..], n, &mut times_ms);
            prop_assert_eq!(times_ms.len(), if decoded.is_ok() { n + 1 } else { 1 });
        }
    }

    #[test]
    fn every_cut_is_refused() {
        let bytes = encoded(&(0..100).map(|i| i * 1_000 + i % 7).collect::<Vec<_>>());
        for size in 0..bytes.len() {
            assert_eq!(decode_timestamps(&mut &bytes[..size], 100, &mut Vec::new()), Err(Damaged), "{size}");
        }
    }
}

//! The samples record: columns of one append to a shard.
//!
//! ```text
//! varint   n, the number of samples, from 1 to 65,536
//! byte     bits 0-4: K of the refs; bit 5: 1 if all timestamps are equal; bit 6: the table of the values; bit 7: 0
//! varint   first ref
//! zigzag   first timestamp
//!          unless all are equal: the steps to the following timestamps as runs until there are n - 1:
//!          step (zigzag, wrapping), how often less one (varint)
//! bits     n - 1 refs, then n values ([`super::values`])
//! ```
//! A ref is its distance D to the one before. For D from 1 on: (D - 1) / 2^K ones, at most 11, a zero, and the lowest K
//! bits of D - 1. Any other D: 12 ones, 6 bits that hold L - 1, and the L bits of its zigzag (wrapping at 64 bits).

use super::bits::{BitReader, BitWriter};
use super::record::SampleColumn;
use super::values::{Table, Token, decode_values, encode_values, tokenize};
use crate::head::SeriesRef;
use crate::sample::Sample;
use crate::varint::{put_i64, put_u64, take_bytes, take_i64, take_u64, unzigzag, zigzag};

/// Most samples of one record.
pub(super) const RECORD_SAMPLES_MAX: usize = 1 << 16;

const K_MASK: u8 = 0x1f;
const TIMESTAMPS_EQUAL: u8 = 0x20;
const VALUES_QUIET: u8 = 0x40;
const ZERO: u8 = 0x80;

/// So many ones say that the distance follows in full.
const ESCAPE: u32 = 12;
/// The largest K that is chosen: distances beyond it are no neighbours.
const K_MAX: u32 = 20;

/// Memory that encoding reuses.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    tokens: Vec<Token>,
}

/// Appends samples, from 1 to [`RECORD_SAMPLES_MAX`].
pub(super) fn encode_samples(dst: &mut Vec<u8>, refs: &[SeriesRef], samples: &[Sample], scratch: &mut Scratch) {
    debug_assert!(refs.len() == samples.len() && samples.len() <= RECORD_SAMPLES_MAX, "one ref a sample, bounded");
    let (Some(first_ref), Some(first)) = (refs.first(), samples.first()) else { return };
    put_u64(dst, samples.len() as u64);
    let k = choose_k(refs);
    let equal = samples.iter().all(|sample| sample.timestamp_ms == first.timestamp_ms);
    let table = tokenize(samples, &mut scratch.tokens);
    let flags = [(equal, TIMESTAMPS_EQUAL), (table == Table::Quiet, VALUES_QUIET)];
    dst.push(flags.iter().filter(|flag| flag.0).fold(k as u8, |byte, flag| byte | flag.1));
    put_u64(dst, first_ref.0);
    put_i64(dst, first.timestamp_ms);
    if !equal {
        encode_timestamp_steps(dst, samples);
    }
    let mut writer = BitWriter::new(dst);
    for pair in refs.windows(2) {
        encode_ref(&mut writer, k, pair[1].0.wrapping_sub(pair[0].0));
    }
    encode_values(&mut writer, table, &scratch.tokens);
    writer.finish();
}

/// Decodes samples into `out`, which is emptied first; `None` if the record is damaged.
pub(super) fn decode_samples(mut src: &[u8], out: &mut SampleColumn) -> Option<()> {
    let src = &mut src;
    out.clear();
    let n_samples = usize::try_from(take_u64(src)?).ok().filter(|n| (1..=RECORD_SAMPLES_MAX).contains(n))?;
    let flags = take_bytes(src, 1)?[0];
    if flags & ZERO != 0 {
        return None;
    }
    let mut series = take_u64(src)?;
    let first = Sample { timestamp_ms: take_i64(src)?, value: 0.0 };
    if flags & TIMESTAMPS_EQUAL != 0 {
        out.samples.resize(n_samples, first);
    } else {
        out.samples.push(first);
        decode_timestamp_steps(src, n_samples, &mut out.samples)?;
    }
    let mut reader = BitReader::new(src);
    out.refs.push(SeriesRef(series));
    for _ in 1..n_samples {
        series = series.wrapping_add(decode_ref(&mut reader, u32::from(flags & K_MASK)));
        out.refs.push(SeriesRef(series));
    }
    let table = if flags & VALUES_QUIET == 0 { Table::Busy } else { Table::Quiet };
    decode_values(&mut reader, table, &mut out.samples)?;
    reader.finish()
}

fn encode_timestamp_steps(dst: &mut Vec<u8>, samples: &[Sample]) {
    let step = |i: usize| samples[i].timestamp_ms.wrapping_sub(samples[i - 1].timestamp_ms);
    let mut i = 1;
    while i < samples.len() {
        let start = i;
        i += 1;
        while i < samples.len() && step(i) == step(start) {
            i += 1;
        }
        put_i64(dst, step(start));
        put_u64(dst, (i - start - 1) as u64);
    }
}

fn decode_timestamp_steps(src: &mut &[u8], n_samples: usize, out: &mut Vec<Sample>) -> Option<()> {
    let mut timestamp_ms = out.last()?.timestamp_ms;
    while out.len() < n_samples {
        let step = take_i64(src)?;
        let more = usize::try_from(take_u64(src)?).ok()?;
        let times = more.checked_add(1).filter(|&times| times <= n_samples - out.len())?;
        for _ in 0..times {
            timestamp_ms = timestamp_ms.wrapping_add(step);
            out.push(Sample { timestamp_ms, value: 0.0 });
        }
    }
    Some(())
}

#[inline]
fn encode_ref(writer: &mut BitWriter<'_>, k: u32, distance: u64) {
    let above = distance.wrapping_sub(1);
    let n_ones = above >> k;
    if n_ones < u64::from(ESCAPE) {
        let n_ones = n_ones as u32;
        let code = ((1 << n_ones) - 1) | (above & ((1 << k) - 1)) << (n_ones + 1);
        writer.put(code, n_ones + 1 + k);
        return;
    }
    let distance = zigzag(distance as i64);
    let n_bits = (64 - distance.leading_zeros()).max(1);
    writer.put((1 << ESCAPE) - 1, ESCAPE);
    writer.put(u64::from(n_bits - 1), 6);
    writer.put(distance, n_bits);
}

#[inline]
fn decode_ref(reader: &mut BitReader<'_>, k: u32) -> u64 {
    let n_ones = reader.peek().trailing_ones();
    if n_ones < ESCAPE {
        reader.skip(n_ones + 1);
        return (u64::from(n_ones) << k | reader.take(k)) + 1;
    }
    reader.skip(ESCAPE);
    let n_bits = reader.take(6) as u32 + 1;
    let low = reader.take(n_bits.min(32));
    let high = reader.take(n_bits.saturating_sub(32));
    unzigzag(low | high << 32) as u64
}

/// Returns the K that makes the refs smallest, about: distances count by their number of bits only.
fn choose_k(refs: &[SeriesRef]) -> u32 {
    let mut n_by_bits = [0_u64; 65];
    for pair in refs.windows(2) {
        let above = pair[1].0.wrapping_sub(pair[0].0).wrapping_sub(1);
        n_by_bits[64 - above.leading_zeros() as usize] += 1;
    }
    let size = |k: u32| -> u64 {
        let size_of = |bits: usize| {
            let n_ones = (3_u64 << bits >> 2) >> k;
            if bits < 32 && n_ones < u64::from(ESCAPE) { n_ones + 1 + u64::from(k) } else { 20 + bits as u64 }
        };
        n_by_bits.iter().enumerate().filter(|(_, n)| **n > 0).map(|(bits, &n)| n * size_of(bits.min(61))).sum()
    };
    // Fast path: one shard, refs in a row.
    if n_by_bits[0] == refs.len() as u64 - 1 { 0 } else { (0..=K_MAX).min_by_key(|&k| size(k)).unwrap_or(0) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encode(column: &SampleColumn) -> Vec<u8> {
        let mut dst = Vec::new();
        encode_samples(&mut dst, &column.refs, &column.samples, &mut Scratch::default());
        dst
    }

    fn column(samples: impl IntoIterator<Item = (u64, i64, f64)>) -> SampleColumn {
        let mut column = SampleColumn::default();
        samples
            .into_iter()
            .for_each(|(s, timestamp_ms, value)| column.push(SeriesRef(s), Sample { timestamp_ms, value }));
        column
    }

    /// Asserts that a column comes back and returns its size.
    fn check(samples: impl IntoIterator<Item = (u64, i64, f64)>) -> usize {
        let column = column(samples);
        let bytes = encode(&column);
        let mut back = SampleColumn::default();
        decode_samples(&bytes, &mut back).unwrap();
        assert_eq!(back.refs, column.refs);
        let bits = |c: &SampleColumn| c.samples.iter().map(|s| (s.timestamp_ms, s.value.to_bits())).collect::<Vec<_>>();
        assert_eq!(bits(&back), bits(&column));
        bytes.len()
    }

    #[test]
    fn what_senders_do_is_small() {
        let t = 1_700_000_000_000;
        assert!(check((0..1000).map(|i| (i, t, 0.0))) <= 12 + 250, "refs in a row, one time");
        assert!(check((0..1000).map(|i| (i * 64 + i * i % 61, t, 0.0))) <= 12 + 125 + 1000, "one of 64 shards");
        assert!(check((0..1000).map(|i| (i, t + i as i64 / 100 * 7, 0.0))) <= 50 + 250, "ten targets");
        assert!(check((0..1000).map(|i| (1, t + i as i64 * 15_000, 0.0))) <= 20 + 2500 + 125, "a back-fill");
    }

    #[test]
    fn extremes_come_back() {
        check([(u64::MAX, i64::MIN, 1.0), (0, i64::MAX, 2.0), (u64::MAX / 2, 0, 3.0), (u64::MAX / 2, -1, f64::NAN)]);
        check([(7, 7, 7.0)]);
        for bits in 0..64 {
            check([(1 << bits, 0, 0.0), (0, 1, 0.0), (1 << bits, 2, 0.0), ((1 << bits) + 1, 3, 0.0)]);
        }
    }

    #[test]
    fn every_cut_is_seen() {
        let bytes = encode(&column((0..40).map(|i| (i * 3, 1_000 + i as i64 % 2, i as f64 * 0.5))));
        for size in 0..bytes.len() {
            assert_eq!(decode_samples(&bytes[..size], &mut SampleColumn::default()), None, "cut to {size}");
        }
    }

    proptest! {
        #[test]
        fn samples_come_back_bit_for_bit(
            wild in proptest::collection::vec((any::<u64>(), prop_oneof![any::<i64>(), Just(5)], any::<u64>()), 1..50),
            steps in proptest::collection::vec((0..200_u64, 0..3_i64, -1000..1000_i64), 0..100),
            equal: bool,
        ) {
            let mut samples: Vec<_> =
                wild.into_iter().map(|(s, t, bits)| (s, if equal { 7 } else { t }, f64::from_bits(bits))).collect();
            let (mut series, mut time) = (0, 7);
            for (ref_step, time_step, value) in steps {
                series += ref_step;
                time += if equal { 0 } else { time_step };
                samples.push((series, time, value as f64 / 10.0));
            }
            check(samples);
        }

        #[test]
        fn damaged_records_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = decode_samples(&bytes, &mut SampleColumn::default());
        }
    }
}

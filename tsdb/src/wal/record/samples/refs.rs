//! The refs of a samples record: runs of equal distances, in a Golomb-Rice code with parameter K.
//!
//! A run is a distance D and its length, as a count ([`BitWriter::put_count`]). For D from 1 on: (D - 1) / 2^K ones, at
//! most 11, a zero, and the lowest K bits of D - 1. Any other D: 12 ones, 6 bits with L - 1, and the L bits of its
//! zigzag encoding (wrapping at 64 bits).

use varve_codec::bits::{BitReader, BitWriter};
use varve_codec::varint::{unzigzag, zigzag};

use super::runs::runs;
use crate::batch::SeriesRef;

/// Number of ones before a distance in full.
const ESCAPE: u32 = 12;
/// Number of bits of the length of a distance in full.
const LENGTH_BITS: u32 = 6;
/// Maximum number of bits that an estimate distinguishes. The mean of numbers of 62 bits is
/// computed in 64 bits, and no distance of so many bits is cheap for any K.
const N_BITS_MAX: usize = 61;
/// Maximum K. Series at larger distances are not neighbors.
pub(super) const K_MAX: u32 = 20;

/// Appends the refs except the first.
pub(super) fn encode_refs(writer: &mut BitWriter<'_>, k: u32, refs: &[SeriesRef]) {
    for (distance, count) in distances(refs) {
        encode_distance(writer, k, distance);
        writer.put_count(count);
    }
}

/// Appends refs to `out`, which contains the first one, until there are `n`. Returns `None` if
/// [`encode_refs`] cannot have written the bits.
pub(super) fn decode_refs(
    reader: &mut BitReader<'_>,
    k: u32,
    n: usize,
    out: &mut Vec<SeriesRef>,
) -> Option<()> {
    let mut series = out.last()?.0;
    while out.len() < n {
        let distance = decode_distance(reader, k);
        let count = reader
            .take_count()
            .filter(|&count| count <= n - out.len())?;
        // Fast path: consecutive refs.
        if distance == 1 && u64::MAX - series >= count as u64 {
            out.extend((series + 1..=series + count as u64).map(SeriesRef));
            series += count as u64;
            continue;
        }
        for _ in 0..count {
            series = series.wrapping_add(distance);
            out.push(SeriesRef(series));
        }
    }
    Some(())
}

/// Iterates over the runs of equal distances.
fn distances(refs: &[SeriesRef]) -> impl Iterator<Item = (u64, usize)> {
    runs(refs.len(), |i| refs[i].0.wrapping_sub(refs[i - 1].0))
}

#[inline]
fn encode_distance(writer: &mut BitWriter<'_>, k: u32, distance: u64) {
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
    writer.put(u64::from(n_bits - 1), LENGTH_BITS);
    writer.put(distance, n_bits);
}

#[inline]
fn decode_distance(reader: &mut BitReader<'_>, k: u32) -> u64 {
    let n_ones = reader.peek().trailing_ones();
    if n_ones < ESCAPE {
        reader.skip(n_ones + 1);
        return (u64::from(n_ones) << k | reader.take(k)) + 1;
    }
    reader.skip(ESCAPE);
    let n_bits = reader.take(LENGTH_BITS) as u32 + 1;
    let low = reader.take(n_bits.min(32));
    let high = reader.take(n_bits.saturating_sub(32));
    unzigzag(low | high << 32) as u64
}

/// Returns the K with the smallest encoding, approximately: distances are rounded to their number
/// of bits.
pub(super) fn choose_k(refs: &[SeriesRef]) -> u32 {
    let mut n_by_bits = [0_u64; 65];
    for (distance, _) in distances(refs) {
        n_by_bits[64 - distance.wrapping_sub(1).leading_zeros() as usize] += 1;
    }
    // Fast path: all refs are consecutive.
    if n_by_bits[1..].iter().all(|&n| n == 0) {
        return 0;
    }
    (0..=K_MAX)
        .min_by_key(|&k| estimated_size(&n_by_bits, k))
        .unwrap_or(0)
}

/// Returns the approximate size of distances in bits. `n_by_bits` is the number of distances by
/// the number of bits of the distance less 1.
fn estimated_size(n_by_bits: &[u64; 65], k: u32) -> u64 {
    let mut size = 0;
    for (n_bits, &n) in n_by_bits.iter().enumerate() {
        if n > 0 {
            size += n * estimated_distance_size(n_bits.min(N_BITS_MAX), k);
        }
    }
    size
}

/// Returns the approximate size in bits of a distance whose value less 1 has `n_bits` bits.
fn estimated_distance_size(n_bits: usize, k: u32) -> u64 {
    // Numbers of so many bits are 3/4 of the next power of two on average.
    let mean = 3_u64 << n_bits >> 2;
    let n_ones = mean >> k;
    if n_bits < 32 && n_ones < u64::from(ESCAPE) {
        n_ones + 1 + u64::from(k)
    } else {
        // The zigzag encoding adds the sign. The distance is 1 more, which may take another bit.
        u64::from(ESCAPE + LENGTH_BITS) + n_bits as u64 + 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Asserts that refs round-trip. Returns the encoded size.
    fn check(refs: &[u64]) -> usize {
        let refs: Vec<_> = refs.iter().map(|&series| SeriesRef(series)).collect();
        let k = choose_k(&refs);
        let mut bytes = Vec::new();
        let mut writer = BitWriter::new(&mut bytes);
        encode_refs(&mut writer, k, &refs);
        writer.finish();
        let mut reader = BitReader::new(&bytes);
        let mut back = vec![refs[0]];
        decode_refs(&mut reader, k, refs.len(), &mut back).unwrap();
        reader.finish().unwrap();
        assert_eq!(back, refs);
        bytes.len()
    }

    #[test]
    fn typical_requests_are_small() {
        assert!(check(&(0..1000).collect::<Vec<_>>()) <= 3, "in a row");
        assert!(check(&[1; 1000]) <= 6, "one series");
        assert!(
            check(&(0..1000).map(|i| i * 64 + i * i % 61).collect::<Vec<_>>()) <= 1250,
            "one of 64 shards"
        );
        assert!(
            check(&(0..1000).map(|i| i + i / 100 * 7).collect::<Vec<_>>()) <= 60,
            "with gaps"
        );
    }

    #[test]
    fn extremes_round_trip() {
        check(&[u64::MAX, 0, 1, u64::MAX, u64::MAX / 2, u64::MAX / 2]);
        check(&[u64::MAX - 1, u64::MAX, 0, 1, 2]);
        (0..64).for_each(|bits| _ = check(&[1 << bits, 0, 1 << bits, (1 << bits) + 1]));
    }

    #[test]
    fn more_refs_than_samples_are_rejected() {
        let mut bytes = Vec::new();
        let mut writer = BitWriter::new(&mut bytes);
        encode_refs(&mut writer, 0, &(0..10).map(SeriesRef).collect::<Vec<_>>());
        writer.finish();
        let mut out = vec![SeriesRef(0)];
        assert_eq!(
            decode_refs(&mut BitReader::new(&bytes), 0, 9, &mut out),
            None
        );
    }

    proptest! {
        #[test]
        fn any_refs_round_trip(refs in proptest::collection::vec(prop_oneof![any::<u64>(), 0..50_u64], 1..60)) {
            check(&refs);
        }
    }
}

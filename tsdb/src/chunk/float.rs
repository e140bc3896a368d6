//! The encoding of float samples in chunks of the head.
//!
//! ```text
//! first    timestamp as zigzag varint, value as 8 bytes
//! further  tag byte, [timestamp], [value]
//! tag      bit 7: a zigzag varint follows, by which the distance to the last sample differs from the distance before
//!          bits 0..7: 0           the value repeats bit for bit
//!                     1           both values are integers: their difference as zigzag varint
//!                     2 + 8L + S  bits of both values, XORed: L zero bytes, then S + 1 bytes (given), then zero bytes
//! ```
//! Every double comes back bit for bit. Counters that grow by integers take two or three bytes a sample, constants one.

use super::Damaged;
use crate::sample::Sample;
use crate::varint::{put_i64, take_bytes, take_i64};

const TIMESTAMP_FOLLOWS: u8 = 0x80;
const VALUE_SAME: u8 = 0;
const VALUE_INTEGER: u8 = 1;
const VALUE_XOR: u8 = 2;

/// Integers up to this magnitude have differences that are exact in 64 bits and as doubles.
const INTEGER_MAX: f64 = (1_u64 << 52) as f64;

/// Appends the first sample of a chunk.
pub(super) fn encode_first(dst: &mut Vec<u8>, sample: Sample) {
    put_i64(dst, sample.timestamp_ms);
    dst.extend_from_slice(&sample.value.to_bits().to_le_bytes());
}

/// Appends a further sample: `delta_of_delta_ms` says how much later it comes than the rhythm suggests.
#[inline]
pub(super) fn encode_next(dst: &mut Vec<u8>, delta_of_delta_ms: i64, last: f64, value: f64) {
    let tag_at = dst.len();
    dst.push(0);
    let mut tag = 0;
    if delta_of_delta_ms != 0 {
        tag = TIMESTAMP_FOLLOWS;
        put_i64(dst, delta_of_delta_ms);
    }
    dst[tag_at] = tag | encode_value(dst, last, value);
}

#[inline]
fn encode_value(dst: &mut Vec<u8>, last: f64, value: f64) -> u8 {
    let xor = last.to_bits() ^ value.to_bits();
    if xor == 0 {
        return VALUE_SAME;
    }
    if let (Some(last), Some(value)) = (as_integer(last), as_integer(value)) {
        put_i64(dst, value - last);
        return VALUE_INTEGER;
    }
    let (leading, trailing) = (xor.leading_zeros() / 8, xor.trailing_zeros() / 8);
    let size = 8 - leading - trailing;
    let bytes = (xor >> (8 * trailing)).to_le_bytes();
    dst.extend_from_slice(&bytes[..size as usize]);
    VALUE_XOR + (8 * leading + size - 1) as u8
}

/// Returns a value as an integer if it is one of at most 2^52 in magnitude; -0 is none.
#[inline]
fn as_integer(value: f64) -> Option<i64> {
    let integer = value as i64;
    (value.abs() <= INTEGER_MAX && (integer as f64).to_bits() == value.to_bits()).then_some(integer)
}

/// Decodes `n_samples` samples and appends them to the two columns.
pub(super) fn decode(
    mut src: &[u8],
    n_samples: usize,
    timestamps_ms: &mut Vec<i64>,
    values: &mut Vec<f64>,
) -> Result<(), Damaged> {
    let src = &mut src;
    let mut timestamp_ms = take_i64(src).ok_or(Damaged)?;
    let mut value = f64::from_bits(take_le(src, 8).ok_or(Damaged)?);
    let mut delta_ms = 0_i64;
    timestamps_ms.reserve(n_samples);
    values.reserve(n_samples);
    timestamps_ms.push(timestamp_ms);
    values.push(value);
    for _ in 1..n_samples {
        let (&tag, rest) = src.split_first().ok_or(Damaged)?;
        *src = rest;
        if tag & TIMESTAMP_FOLLOWS != 0 {
            delta_ms = delta_ms.wrapping_add(take_i64(src).ok_or(Damaged)?);
        }
        timestamp_ms = timestamp_ms.wrapping_add(delta_ms);
        value = decode_value(src, tag & !TIMESTAMP_FOLLOWS, value).ok_or(Damaged)?;
        timestamps_ms.push(timestamp_ms);
        values.push(value);
    }
    if src.is_empty() { Ok(()) } else { Err(Damaged) }
}

#[inline]
fn decode_value(src: &mut &[u8], form: u8, last: f64) -> Option<f64> {
    match form {
        VALUE_SAME => Some(last),
        VALUE_INTEGER => Some(as_integer(last)?.checked_add(take_i64(src)?)? as f64),
        _ => {
            let (leading, size) = (u32::from((form - VALUE_XOR) / 8), u32::from((form - VALUE_XOR) % 8 + 1));
            let trailing = 8_u32.checked_sub(leading + size)?;
            let xor = take_le(src, size as usize)? << (8 * trailing);
            Some(f64::from_bits(last.to_bits() ^ xor))
        }
    }
}

/// Takes an integer of `size` bytes, at most 8, lowest byte first.
#[inline]
fn take_le(src: &mut &[u8], size: usize) -> Option<u64> {
    let mut bytes = [0; 8];
    bytes[..size].copy_from_slice(take_bytes(src, size)?);
    Some(u64::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encode(samples: &[(i64, u64)]) -> Vec<u8> {
        let mut dst = Vec::new();
        let value = |i: usize| f64::from_bits(samples[i].1);
        encode_first(&mut dst, Sample { timestamp_ms: samples[0].0, value: value(0) });
        let mut last_delta = 0_i64;
        for i in 1..samples.len() {
            let delta = samples[i].0.wrapping_sub(samples[i - 1].0);
            encode_next(&mut dst, delta.wrapping_sub(last_delta), value(i - 1), value(i));
            last_delta = delta;
        }
        dst
    }

    fn decoded(bytes: &[u8], n_samples: usize) -> Result<Vec<(i64, u64)>, Damaged> {
        let (mut timestamps, mut values) = (Vec::new(), Vec::new());
        decode(bytes, n_samples, &mut timestamps, &mut values)?;
        Ok(timestamps.into_iter().zip(values.into_iter().map(f64::to_bits)).collect())
    }

    fn awkward_bits() -> impl Strategy<Value = u64> {
        prop_oneof![
            any::<u64>(),
            any::<u64>().prop_map(|payload| payload | 0x7ff0_0000_0000_0000),
            (-100_i64..100).prop_map(|v| (v as f64).to_bits()),
            (-100_i64..100).prop_map(|v| (v as f64 / 100.0).to_bits()),
            (0_u64..3).prop_map(|i| ((1_u64 << 52) as f64).to_bits() - 1 + i),
            Just(crate::sample::STALE_NAN_BITS),
            Just((-0.0_f64).to_bits()),
            Just(0),
            Just(1),
        ]
    }

    proptest! {
        #[test]
        fn every_double_and_time_comes_back_bit_for_bit(
            samples in proptest::collection::vec((prop_oneof![any::<i64>(), 0..100_000_i64], awkward_bits()), 1..50),
        ) {
            prop_assert_eq!(decoded(&encode(&samples), samples.len()), Ok(samples));
        }

        #[test]
        fn damaged_bytes_are_refused_or_give_that_many_samples(
            bytes in proptest::collection::vec(any::<u8>(), 0..200), n_samples in 1..300_usize,
        ) {
            if let Ok(samples) = decoded(&bytes, n_samples) {
                prop_assert_eq!(samples.len(), n_samples);
            }
        }
    }

    #[test]
    fn steady_counters_take_two_bytes_and_constants_one() {
        let counter: Vec<_> = (0..100).map(|i| (i * 30_000, (i as f64 * 60.0).to_bits())).collect();
        assert_eq!(encode(&counter).len(), 9 + 4 + 1 + 98 * 2);
        let constant: Vec<_> = (0..100).map(|i| (i * 30_000, 0.1_f64.to_bits())).collect();
        assert_eq!(encode(&constant).len(), 9 + 4 + 98);
    }
}

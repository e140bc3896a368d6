//! The encoding of the counts of a histogram in heads and the WAL. Decoding needs the layout.
//!
//! ```text
//! byte     reset hint, 0 to 3
//! number   sum
//! integers the count (varint), the zero bucket (varint), then the positive and the negative buckets, each list as
//!          differences from the bucket before, from 0 at its start (zigzag, wrapping)
//! floats   the same fields as numbers, without differences
//! ```
//! A *number* is a double. If it is an integer of at most 2^53 in magnitude and not -0, it is an
//! even varint: twice the zigzag of the integer. Otherwise it is the varint 1, followed by eight
//! bytes.

mod layout;

use varve_codec::varint::{
    put_i64, put_u64, take_byte, take_bytes, take_i64, take_u64, unzigzag, zigzag,
};

pub(crate) use layout::Layout;

use varve_model::histogram::{Histogram, HistogramCounts, ResetHint};

/// Integers up to this magnitude are exact as doubles.
const INTEGER_MAX: u64 = 1 << 53;
/// Precedes the eight bytes of a double.
const DOUBLE: u64 = 1;

/// Appends the reset hint, the sum and the counts of a histogram.
pub(crate) fn encode_counts(histogram: &Histogram, dst: &mut Vec<u8>) {
    dst.push(histogram.reset_hint.code());
    put_number(dst, histogram.sum);
    match &histogram.counts {
        HistogramCounts::Integer {
            count,
            zero_count,
            positive,
            negative,
        } => {
            put_u64(dst, *count);
            put_u64(dst, *zero_count);
            put_steps(dst, positive);
            put_steps(dst, negative);
        }
        HistogramCounts::Float {
            count,
            zero_count,
            positive,
            negative,
        } => {
            for &value in [count, zero_count]
                .into_iter()
                .chain(positive)
                .chain(negative)
            {
                put_number(dst, value);
            }
        }
    }
}

/// Decodes a histogram with a layout from the front of `src`. Returns `None` if it is damaged.
pub(crate) fn decode_counts(layout: &Layout, src: &mut &[u8]) -> Option<Histogram> {
    let reset_hint = ResetHint::from_code(take_byte(src)?)?;
    let sum = take_number(src)?;
    // A bucket takes at least one byte: the input bounds the reserved memory.
    if layout.n_buckets() > src.len() {
        return None;
    }
    let counts = if layout.is_float {
        HistogramCounts::Float {
            count: take_number(src)?,
            zero_count: take_number(src)?,
            positive: take_n(layout.n_positive, || take_number(src))?,
            negative: take_n(layout.n_negative, || take_number(src))?,
        }
    } else {
        HistogramCounts::Integer {
            count: take_u64(src)?,
            zero_count: take_u64(src)?,
            positive: take_steps(src, layout.n_positive)?,
            negative: take_steps(src, layout.n_negative)?,
        }
    };
    Some(Histogram {
        reset_hint,
        ..layout.histogram(sum, counts)
    })
}

/// Appends a number.
pub(super) fn put_number(dst: &mut Vec<u8>, value: f64) {
    // The conversion of a double outside the range of i64 saturates: it does not convert back, or
    // exceeds the maximum.
    let integer = value as i64;
    if (integer as f64).to_bits() == value.to_bits() && integer.unsigned_abs() <= INTEGER_MAX {
        put_u64(dst, zigzag(integer) << 1);
    } else {
        put_u64(dst, DOUBLE);
        dst.extend_from_slice(&value.to_le_bytes());
    }
}

/// Decodes a number from the front of `src`.
pub(super) fn take_number(src: &mut &[u8]) -> Option<f64> {
    match take_u64(src)? {
        DOUBLE => Some(f64::from_le_bytes(take_bytes(src, 8)?.try_into().ok()?)),
        even if even % 2 == 0 => {
            let integer = unzigzag(even >> 1);
            (integer.unsigned_abs() <= INTEGER_MAX).then_some(integer as f64)
        }
        _ => None,
    }
}

fn put_steps(dst: &mut Vec<u8>, counts: &[u64]) {
    let mut before = 0;
    for &count in counts {
        put_i64(dst, count.wrapping_sub(before).cast_signed());
        before = count;
    }
}

fn take_steps(src: &mut &[u8], n: usize) -> Option<Vec<u64>> {
    let mut count = 0_u64;
    take_n(n, || {
        count = count.wrapping_add(take_i64(src)?.cast_unsigned());
        Some(count)
    })
}

/// Calls `take` `n` times. The caller bounds `n`, as memory is reserved in advance.
fn take_n<T>(n: usize, mut take: impl FnMut() -> Option<T>) -> Option<Vec<T>> {
    let mut taken = Vec::with_capacity(n);
    for _ in 0..n {
        taken.push(take()?);
    }
    Some(taken)
}

#[cfg(test)]
pub(crate) mod tests;

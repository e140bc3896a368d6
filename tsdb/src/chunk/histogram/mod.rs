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
mod number;

use varve_codec::varint::{put_i64, put_u64, take_byte, take_i64, take_u64};

pub(crate) use layout::Layout;
use number::{put_number, take_n, take_number};

use varve_model::histogram::{Histogram, HistogramCounts, ResetHint};

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

#[cfg(test)]
pub(crate) mod tests;

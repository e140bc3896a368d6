//! Columns of integers as byte planes: all lowest bytes, then all second bytes, and so on.
//!
//! The bytes of high planes are mostly equal, so zstd compresses them well. A value can be read
//! without the values before it. The position of a series is the sum of a range of sizes, which is
//! a sum of bytes.

use std::ops::Range;

use crate::varint::take_bytes;

/// Appends the lowest `width` bytes of each value.
///
/// # Panics
/// In debug builds, if a value does not fit.
pub fn put_byte_planes(values: &[u32], width: usize, dst: &mut Vec<u8>) {
    debug_assert!(
        values
            .iter()
            .all(|&value| width == 4 || value >> (8 * width) == 0),
        "a value exceeds its width"
    );
    for plane in 0..width {
        dst.extend(values.iter().map(|&value| (value >> (8 * plane)) as u8));
    }
}

/// A column that [`put_byte_planes`] wrote.
#[derive(Debug, Clone, Copy)]
pub struct BytePlanes<'a> {
    bytes: &'a [u8],
    n: usize,
    width: usize,
}

impl<'a> BytePlanes<'a> {
    /// Takes a column of `n` values, at least one, from the front of `src`. Returns `None` if it is
    /// truncated.
    #[inline]
    pub fn take(src: &mut &'a [u8], n: usize, width: usize) -> Option<Self> {
        debug_assert!(
            n > 0 && width <= 4,
            "a column has at least one value of at most four bytes"
        );
        Some(Self {
            bytes: take_bytes(src, n * width)?,
            n,
            width,
        })
    }

    /// Returns the value at `i`.
    #[inline]
    #[must_use]
    pub fn get(self, i: usize) -> u32 {
        debug_assert!(i < self.n, "index outside the column");
        (0..self.width).rev().fold(0, |value, plane| {
            value << 8 | u32::from(self.bytes[plane * self.n + i])
        })
    }

    /// Returns the sum of a range of values.
    #[inline]
    #[must_use]
    pub fn sum(self, range: Range<usize>) -> usize {
        debug_assert!(range.end <= self.n, "range outside the column");
        (0..self.width).rev().fold(0, |sum, plane| {
            let bytes = &self.bytes[plane * self.n..][range.clone()];
            (sum << 8) + bytes.iter().map(|&byte| u32::from(byte)).sum::<u32>() as usize
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn values_and_sums_round_trip(values in proptest::collection::vec(0..1_u32 << 24, 1..300), width in 3..5_usize) {
            let mut bytes = Vec::new();
            put_byte_planes(&values, width, &mut bytes);
            let planes = BytePlanes::take(&mut &bytes[..], values.len(), width).unwrap();
            prop_assert!(BytePlanes::take(&mut &bytes[1..], values.len(), width).is_none());
            let n = values.len();
            let sum = |range: Range<usize>| values[range].iter().map(|&value| value as usize).sum::<usize>();
            for (i, &value) in values.iter().enumerate() {
                prop_assert_eq!(planes.get(i), value);
                prop_assert_eq!((planes.sum(0..i + 1), planes.sum(i..n)), (sum(0..i + 1), sum(i..n)));
            }
        }
    }
}

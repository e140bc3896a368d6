//! Exceptions: values that are stored separately from the columns of a row, so that the columns
//! stay narrow.
//!
//! ```text
//! each     varint: code + 8 * number of values between the exception before (or the start of the row) and this one
//!          8 bytes of the double, if the code is 0
//! codes    1 staleness marker, 2 and 3 the usual NaNs, 4 and 5 the infinities, 6 minus zero; 7 is invalid
//! ```

use crate::varint::{put_u64, take_bytes, take_u64};

/// A value of a row that is not in the columns.
#[derive(Debug, Clone, Copy)]
pub(super) struct Exception {
    /// The number of values between the exception before and this one.
    gap: u64,
    bits: u64,
}

const CODE_BITS: u32 = 3;
const CODE_MASK: u64 = (1 << CODE_BITS) - 1;

/// The doubles with codes from 1: the staleness marker, the NaNs of Go and of processors,
/// infinities, minus zero.
const CODED: [u64; 6] = [
    0x7ff0_0000_0000_0002,
    0x7ff8_0000_0000_0001,
    0x7ff8_0000_0000_0000,
    0x7ff0_0000_0000_0000,
    0xfff0_0000_0000_0000,
    0x8000_0000_0000_0000,
];

/// Returns `true` if a value is stored as an exception: NaN, an infinity or minus zero.
#[inline]
fn is_exceptional(value: f64) -> bool {
    !value.is_finite() || value.to_bits() == 1 << 63
}

/// Splits a row into regular values and exceptions. Replaces the contents of both lists.
pub(super) fn split(values: &[f64], regular: &mut Vec<f64>, exceptions: &mut Vec<Exception>) {
    regular.clear();
    exceptions.clear();
    // Fast path: no exceptions.
    if !values
        .iter()
        .fold(false, |any, &value| any | is_exceptional(value))
    {
        return regular.extend_from_slice(values);
    }
    let mut gap = 0;
    for &value in values {
        if is_exceptional(value) {
            exceptions.push(Exception {
                gap,
                bits: value.to_bits(),
            });
            gap = 0;
        } else {
            regular.push(value);
            gap += 1;
        }
    }
}

/// Appends the exceptions, if there are any.
pub(super) fn encode(exceptions: &[Exception], dst: &mut Vec<u8>) {
    for value in exceptions {
        let (code, bytes) = code(value.bits);
        put_u64(dst, u64::from(code) | value.gap << CODE_BITS);
        dst.extend(bytes.into_iter().flatten());
    }
}

/// Returns the code of a double, and its bytes if it has no code of its own.
pub(super) fn code(bits: u64) -> (u8, Option<[u8; 8]>) {
    match CODED.iter().position(|&coded| coded == bits) {
        Some(i) => (i as u8 + 1, None),
        None => (0, Some(bits.to_le_bytes())),
    }
}

/// Decodes the bits of a double with this code from the front of `src`.
pub(super) fn take_bits(src: &mut &[u8], code: u8) -> Option<u64> {
    match code {
        0 => Some(u64::from_le_bytes(take_bytes(src, 8)?.try_into().ok()?)),
        _ => CODED.get(usize::from(code) - 1).copied(),
    }
}

/// Appends `regular` with the next `n_exceptions` values of `src` inserted at their positions.
pub(super) fn merge(
    src: &mut &[u8],
    mut regular: &[f64],
    n_exceptions: usize,
    dst: &mut Vec<f64>,
) -> Option<()> {
    for _ in 0..n_exceptions {
        let head = take_u64(src)?;
        let bits = take_bits(src, (head & CODE_MASK) as u8)?;
        let (before, rest) = regular.split_at_checked(usize::try_from(head >> CODE_BITS).ok()?)?;
        dst.extend_from_slice(before);
        dst.push(f64::from_bits(bits));
        regular = rest;
    }
    dst.extend_from_slice(regular);
    Some(())
}

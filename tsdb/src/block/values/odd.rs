//! Values that are kept apart from the columns of a row, so that these stay narrow.
//!
//! ```text
//! each     varint: code + 8 * number of values between the odd one before (or the row's start) and this one
//!          8 bytes of the double, if the code is 0
//! codes    1 staleness marker, 2 and 3 the usual NaNs, 4 and 5 the infinities, 6 minus zero; 7 is refused
//! ```

use crate::sample::STALE_NAN_BITS;
use crate::varint::{put_u64, take_bytes, take_u64};

/// A value of a row that its columns leave out.
#[derive(Debug, Clone, Copy)]
pub(super) struct OddValue {
    /// How many values lie between the odd one before and this one.
    gap: u64,
    bits: u64,
}

const CODE_BITS: u32 = 3;
const CODE_MASK: u64 = (1 << CODE_BITS) - 1;

/// The doubles of codes 1 and up: the staleness marker, the NaNs of Go and of processors, infinities, minus zero.
const CODED: [u64; 6] = [
    STALE_NAN_BITS,
    0x7ff8_0000_0000_0001,
    0x7ff8_0000_0000_0000,
    0x7ff0_0000_0000_0000,
    0xfff0_0000_0000_0000,
    0x8000_0000_0000_0000,
];

/// Tells whether a value has no neighbours that resemble it: NaN, the infinities and minus zero.
#[inline]
fn is_odd(value: f64) -> bool {
    !value.is_finite() || value.to_bits() == 1 << 63
}

/// Parts a row into values to keep in columns and odd ones; both results are overwritten.
pub(super) fn split(values: &[f64], regular: &mut Vec<f64>, odd: &mut Vec<OddValue>) {
    regular.clear();
    odd.clear();
    // Fast path: nothing is odd.
    if !values.iter().fold(false, |any, &value| any | is_odd(value)) {
        return regular.extend_from_slice(values);
    }
    let mut gap = 0;
    for &value in values {
        if is_odd(value) {
            odd.push(OddValue { gap, bits: value.to_bits() });
            gap = 0;
        } else {
            regular.push(value);
            gap += 1;
        }
    }
}

/// Appends odd values; nothing if there are none.
pub(super) fn encode(odd: &[OddValue], dst: &mut Vec<u8>) {
    for value in odd {
        let (code, bytes) = code(value.bits);
        put_u64(dst, u64::from(code) | value.gap << CODE_BITS);
        dst.extend(bytes.into_iter().flatten());
    }
}

/// Returns the code of a double and the bytes that follow it: none, or the eight of the double.
pub(super) fn code(bits: u64) -> (u8, Option<[u8; 8]>) {
    match CODED.iter().position(|&coded| coded == bits) {
        Some(i) => (i as u8 + 1, None),
        None => (0, Some(bits.to_le_bytes())),
    }
}

/// Takes the bits of a double with this code off the front of `src`.
pub(super) fn take_bits(src: &mut &[u8], code: u8) -> Option<u64> {
    match code {
        0 => Some(u64::from_le_bytes(take_bytes(src, 8)?.try_into().ok()?)),
        _ => CODED.get(usize::from(code) - 1).copied(),
    }
}

/// Appends `regular` with the next `n_odd` values of `src` put in where they belong.
pub(super) fn merge(src: &mut &[u8], mut regular: &[f64], n_odd: usize, dst: &mut Vec<f64>) -> Option<()> {
    for _ in 0..n_odd {
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

//! Numbers: doubles that are small if they are integers; see the parent module for their encoding.

use varve_codec::varint::{put_u64, take_bytes, take_u64, unzigzag, zigzag};

/// Integers up to this magnitude are exact as doubles.
const INTEGER_MAX: u64 = 1 << 53;
/// Precedes the eight bytes of a double.
const DOUBLE: u64 = 1;

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

/// Calls `take` `n` times. The caller bounds `n`, as memory is reserved in advance.
pub(super) fn take_n<T>(n: usize, mut take: impl FnMut() -> Option<T>) -> Option<Vec<T>> {
    let mut taken = Vec::with_capacity(n);
    for _ in 0..n {
        taken.push(take()?);
    }
    Some(taken)
}

//! Variable-length integers: LEB128, with zigzag for signed integers.

/// Maximum number of bytes of an encoded integer.
pub const VARINT_SIZE_MAX: usize = 10;

/// Appends an unsigned integer, seven bits a byte, lowest first.
#[inline]
pub fn put_u64(dst: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        dst.push(value as u8 | 0x80);
        value >>= 7;
    }
    dst.push(value as u8);
}

/// Appends a signed integer.
#[inline]
pub fn put_i64(dst: &mut Vec<u8>, value: i64) {
    put_u64(dst, zigzag(value));
}

/// Decodes an unsigned integer from the front of `src`. Returns `None` if it is truncated or does
/// not fit 64 bits.
#[inline]
pub fn take_u64(src: &mut &[u8]) -> Option<u64> {
    // Fast path: one byte.
    let (&first, rest) = src.split_first()?;
    if first < 0x80 {
        *src = rest;
        return Some(u64::from(first));
    }
    // Fast path: up to eight bytes, with eight available.
    if let Some((value, size)) = src
        .first_chunk()
        .and_then(|bytes| short_u64(u64::from_le_bytes(*bytes)))
    {
        *src = &src[size..];
        return Some(value);
    }
    let mut value = u64::from(first & 0x7f);
    for (i, &byte) in rest.iter().take(VARINT_SIZE_MAX - 1).enumerate() {
        let shift = 7 * (i + 1);
        if shift == 63 && byte > 1 {
            return None;
        }
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            *src = &rest[i + 1..];
            return Some(value);
        }
    }
    None
}

/// Decodes an unsigned integer from the front of `src`. Returns `None` also if it does not fit `T`.
#[inline]
pub fn take_int<T: TryFrom<u64>>(src: &mut &[u8]) -> Option<T> {
    take_u64(src)?.try_into().ok()
}

/// Returns the unsigned integer that begins with the lowest of eight bytes, and its size. Returns
/// `None` if it takes more than eight bytes. Branch-free, for callers that have eight bytes and
/// integers of unpredictable size.
#[inline]
pub fn short_u64(word: u64) -> Option<(u64, usize)> {
    let ends = !word & 0x8080_8080_8080_8080;
    let size = ends.trailing_zeros() as usize / 8 + 1;
    (ends != 0).then(|| (join_sevens(word & (ends ^ (ends - 1))), size))
}

/// Joins the lower seven bits of each of eight bytes.
#[inline]
fn join_sevens(word: u64) -> u64 {
    let word = word & 0x7f7f_7f7f_7f7f_7f7f;
    let word = word & 0x007f_007f_007f_007f | (word & 0x7f00_7f00_7f00_7f00) >> 1;
    let word = word & 0x0000_3fff_0000_3fff | (word & 0x3fff_0000_3fff_0000) >> 2;
    word & 0x0fff_ffff | (word & 0x0fff_ffff_0000_0000) >> 4
}

/// Decodes a signed integer from the front of `src`.
#[inline]
pub fn take_i64(src: &mut &[u8]) -> Option<i64> {
    take_u64(src).map(unzigzag)
}

/// Takes a byte from the front of `src`.
#[inline]
pub fn take_byte(src: &mut &[u8]) -> Option<u8> {
    let (&byte, rest) = src.split_first()?;
    *src = rest;
    Some(byte)
}

/// Appends bytes, preceded by their number.
#[inline]
pub fn put_sized(dst: &mut Vec<u8>, bytes: &[u8]) {
    put_u64(dst, bytes.len() as u64);
    dst.extend_from_slice(bytes);
}

/// Takes bytes that [`put_sized`] appended from the front of `src`.
#[inline]
pub fn take_sized<'a>(src: &mut &'a [u8]) -> Option<&'a [u8]> {
    let size = take_int(src)?;
    take_bytes(src, size)
}

/// Takes `size` bytes from the front of `src`.
#[inline]
pub fn take_bytes<'a>(src: &mut &'a [u8], size: usize) -> Option<&'a [u8]> {
    let (bytes, rest) = src.split_at_checked(size)?;
    *src = rest;
    Some(bytes)
}

/// Maps integers of small magnitude to small unsigned integers: 0, -1, 1, -2 become 0, 1, 2, 3.
#[inline]
pub fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// Reverses [`zigzag`].
#[inline]
pub fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn truncated_or_oversized_integers_are_rejected() {
        for bad in [
            &[][..],
            &[0x80],
            &[0xff; 9],
            &[0xff; 11],
            &[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 2],
        ] {
            assert_eq!(take_u64(&mut &bad[..]), None, "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn integers_round_trip(unsigned: u64, signed: i64, shift in 0..64) {
            let unsigned = unsigned >> shift;
            let signed = signed >> shift;
            let mut bytes = Vec::new();
            put_u64(&mut bytes, unsigned);
            put_i64(&mut bytes, signed);
            let mut src = &bytes[..];
            prop_assert_eq!(take_u64(&mut src), Some(unsigned));
            prop_assert_eq!(take_i64(&mut src), Some(signed));
            prop_assert!(src.is_empty());
        }
    }
}

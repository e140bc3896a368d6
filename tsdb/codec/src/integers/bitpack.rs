//! Bit packing: integers of one width, lowest bit first. Eight integers take as many bytes as one
//! has bits.
//!
//! The width is a constant inside the kernels, so that the compiler unrolls groups of eight and
//! folds all shifts.

/// The maximum width of integers that can begin at any bit of a byte and still be loaded in one
/// word. Wider integers take [`WIDTH_FULL`] bits.
pub(super) const WIDTH_MAX: u32 = 56;

/// The width of integers wider than [`WIDTH_MAX`].
pub(super) const WIDTH_FULL: u32 = 64;

const GROUP: usize = 8;
const WORD_SIZE: usize = 8;

/// Returns the size of `n` integers in bytes, or `None` if it overflows.
pub(super) fn packed_size(n: usize, width: u32) -> Option<usize> {
    n.checked_mul(width as usize).map(|bits| bits.div_ceil(8))
}

/// Appends the low `width` bits of each integer. Unused bits of the last byte are zero.
pub(super) fn pack(integers: &[i64], width: u32, dst: &mut Vec<u8>) {
    debug_assert!(width <= WIDTH_MAX || width == WIDTH_FULL);
    if width == 0 {
        return;
    }
    if width == WIDTH_FULL {
        return dst.extend(integers.iter().flat_map(|integer| integer.to_le_bytes()));
    }
    let mask = (1_u64 << width) - 1;
    let mut offset = dst.len();
    let end = offset + (integers.len() * width as usize).div_ceil(8);
    dst.resize(end + WORD_SIZE, 0);
    let mut gathered = 0_u64;
    let mut n_bits = 0;
    for &integer in integers {
        // At most 7 bits remain from the previous integer, so 56 more fit.
        gathered |= (integer.cast_unsigned() & mask) << n_bits;
        n_bits += width;
        dst[offset..offset + WORD_SIZE].copy_from_slice(&gathered.to_le_bytes());
        let n_bytes = n_bits / 8;
        offset += n_bytes as usize;
        // 56 + 7 bits are at most 7 whole bytes, so this shifts by less than 64.
        gathered >>= 8 * n_bytes;
        n_bits %= 8;
    }
    dst.truncate(end);
}

/// Unpacks `dst.len()` integers from the front of `src`. Other bytes may follow. Missing bytes
/// count as zero.
pub(super) fn unpack(src: &[u8], width: u32, dst: &mut [i64]) {
    macro_rules! by_width {
        ($($width:literal)*) => {
            match width {
                $($width => unpack_width::<$width>(src, dst),)*
                _ => unpack_words(src, dst),
            }
        };
    }
    by_width!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37
        38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56);
}

fn unpack_words(src: &[u8], dst: &mut [i64]) {
    for (word, integer) in src.chunks_exact(WORD_SIZE).zip(dst) {
        *integer = i64::from_le_bytes(word.try_into().expect("chunks have the size of a word"));
    }
}

fn unpack_width<const WIDTH: usize>(src: &[u8], dst: &mut [i64]) {
    let mut groups = dst.chunks_exact_mut(GROUP);
    let mut offset = 0;
    for group in groups.by_ref() {
        let group = group.try_into().expect("chunks have the size of a group");
        // Fast path: the last integer can be loaded as a whole word.
        match src.get(offset..offset + WIDTH + WORD_SIZE) {
            Some(bytes) => unpack_group::<WIDTH>(bytes, group),
            None => unpack_group::<WIDTH>(&padded(src, offset, WIDTH)[..WIDTH + WORD_SIZE], group),
        }
        offset += WIDTH;
    }
    let rest = groups.into_remainder();
    if !rest.is_empty() {
        let mut group = [0; GROUP];
        unpack_group::<WIDTH>(&padded(src, offset, WIDTH)[..WIDTH + WORD_SIZE], &mut group);
        rest.copy_from_slice(&group[..rest.len()]);
    }
}

/// Copies up to `size` bytes from `offset` on, and pads them with zeros.
fn padded(src: &[u8], offset: usize, size: usize) -> [u8; WIDTH_MAX as usize + WORD_SIZE] {
    let mut bytes = [0; WIDTH_MAX as usize + WORD_SIZE];
    let rest = &src[offset.min(src.len())..];
    let rest = &rest[..size.min(rest.len())];
    bytes[..rest.len()].copy_from_slice(rest);
    bytes
}

#[inline(always)]
fn unpack_group<const WIDTH: usize>(bytes: &[u8], group: &mut [i64; GROUP]) {
    let bytes = &bytes[..WIDTH + WORD_SIZE];
    for (i, integer) in group.iter_mut().enumerate() {
        let bit = i * WIDTH;
        let word = bytes[bit / 8..bit / 8 + WORD_SIZE]
            .try_into()
            .expect("the range has the size of a word");
        *integer = (u64::from_le_bytes(word) >> (bit % 8) & ((1 << WIDTH) - 1)).cast_signed();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The reference implementation: bit by bit.
    fn unpack_slowly(src: &[u8], width: u32, n: usize) -> Vec<i64> {
        let bit = |at: usize| u64::from(src.get(at / 8).map_or(0, |byte| byte >> (at % 8) & 1));
        let width = width as usize;
        (0..n)
            .map(|i| {
                (0..width)
                    .fold(0, |sum, b| sum | bit(i * width + b) << b)
                    .cast_signed()
            })
            .collect()
    }

    fn widths() -> impl Strategy<Value = u32> {
        prop_oneof![0..=WIDTH_MAX, Just(WIDTH_FULL)]
    }

    proptest! {
        #[test]
        fn packed_integers_round_trip_fast_and_slow(
            width in widths(), integers in proptest::collection::vec(any::<i64>(), 0..70), behind in 0..80_usize,
        ) {
            let mask = if width == WIDTH_FULL { -1 } else { (1 << width) - 1 };
            let expected: Vec<_> = integers.iter().map(|integer| integer & mask).collect();
            let mut packed = Vec::new();
            pack(&integers, width, &mut packed);
            prop_assert_eq!(packed.len(), packed_size(integers.len(), width).unwrap());
            prop_assert_eq!(&unpack_slowly(&packed, width, integers.len()), &expected);
            // With other bytes after the packed bytes, the kernel skips the padding.
            packed.resize(packed.len() + behind, 0xff);
            let mut unpacked = vec![7; integers.len()];
            unpack(&packed, width, &mut unpacked);
            prop_assert_eq!(&unpacked, &expected);
        }

        #[test]
        fn kernels_agree_on_random_bytes(
            width in 0..=WIDTH_MAX, bytes in proptest::collection::vec(any::<u8>(), 0..300), n in 0..100_usize,
        ) {
            let mut unpacked = vec![7; n];
            unpack(&bytes, width, &mut unpacked);
            let bytes = &bytes[..bytes.len().min(packed_size(n, width).unwrap())];
            prop_assert_eq!(unpacked, unpack_slowly(bytes, width, n));
        }
    }
}

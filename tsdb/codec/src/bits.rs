//! Streams of bits, lowest bit of a byte first.
//!
//! Used by the samples record. A reader reads zeros past the end; [`BitReader::finish`] detects
//! this. The number of samples in a record bounds all read loops.

/// Maximum number of bits that [`BitReader::take`] and [`BitReader::peek`] return.
pub const TAKE_MAX: u32 = 56;

/// Maximum count; see [`BitWriter::put_count`].
const COUNT_MAX: usize = 1 << 16;

/// Appends bits to a buffer.
#[derive(Debug)]
pub struct BitWriter<'a> {
    dst: &'a mut Vec<u8>,
    /// The last `n_pending` bits (fewer than 64), not yet in `dst`.
    pending: u64,
    n_pending: u32,
}

impl<'a> BitWriter<'a> {
    /// Creates a writer that appends to `dst`.
    #[inline]
    pub fn new(dst: &'a mut Vec<u8>) -> Self {
        Self {
            dst,
            pending: 0,
            n_pending: 0,
        }
    }

    /// Appends the lowest `count` bits, at most 64. The higher bits must be zero.
    #[inline]
    pub fn put(&mut self, bits: u64, count: u32) {
        debug_assert!(
            count <= 64 && (count == 64 || bits >> count == 0),
            "{bits:#x} has more than {count} bits"
        );
        self.pending |= bits << self.n_pending;
        let n_bits = self.n_pending + count;
        if n_bits < 64 {
            self.n_pending = n_bits;
            return;
        }
        self.dst.extend_from_slice(&self.pending.to_le_bytes());
        self.pending = bits.checked_shr(64 - self.n_pending).unwrap_or(0);
        self.n_pending = n_bits - 64;
    }

    /// Appends a count from 1 to 65,536 in Elias gamma code: one zero for each bit below the
    /// highest one, a one, and these bits.
    #[inline]
    pub fn put_count(&mut self, count: usize) {
        let n_below = count.ilog2();
        let below = count as u64 & ((1 << n_below) - 1);
        self.put((below << 1 | 1) << n_below, 2 * n_below + 1);
    }

    /// Pads the last byte with zeros.
    #[inline]
    pub fn finish(self) {
        let n_bytes = self.n_pending.div_ceil(8) as usize;
        self.dst
            .extend_from_slice(&self.pending.to_le_bytes()[..n_bytes]);
    }
}

/// Reads bits from a buffer.
#[derive(Debug)]
pub struct BitReader<'a> {
    src: &'a [u8],
    /// In bits.
    position: usize,
}

impl<'a> BitReader<'a> {
    /// Creates a reader of `src`.
    #[inline]
    #[must_use]
    pub fn new(src: &'a [u8]) -> Self {
        Self { src, position: 0 }
    }

    /// Returns the number of bits read.
    #[inline]
    #[must_use]
    pub fn position(&self) -> usize {
        self.position
    }

    /// Returns at least [`TAKE_MAX`] of the next bits, lowest first.
    #[inline]
    #[must_use]
    pub fn peek(&self) -> u64 {
        let byte = self.position / 8;
        let shift = self.position % 8;
        let rest = self.src.get(byte..).unwrap_or_default();
        // Fast path: eight bytes are left.
        let word = match rest.first_chunk::<8>() {
            Some(bytes) => u64::from_le_bytes(*bytes),
            None => {
                let mut padded = [0; 8];
                padded[..rest.len()].copy_from_slice(rest);
                u64::from_le_bytes(padded)
            }
        };
        word >> shift
    }

    /// Skips bits.
    #[inline]
    pub fn skip(&mut self, count: u32) {
        self.position += count as usize;
    }

    /// Reads `count` bits, at most [`TAKE_MAX`].
    #[inline]
    pub fn take(&mut self, count: u32) -> u64 {
        debug_assert!(count <= TAKE_MAX, "{count} bits at once");
        let bits = self.peek() & ((1 << count) - 1);
        self.skip(count);
        bits
    }

    /// Reads a count that [`BitWriter::put_count`] wrote. Returns `None` if there is no valid
    /// count.
    #[inline]
    pub fn take_count(&mut self) -> Option<usize> {
        let n_below = self.peek().trailing_zeros();
        if n_below > COUNT_MAX.ilog2() {
            return None;
        }
        self.skip(n_below + 1);
        Some(1 << n_below | self.take(n_below) as usize).filter(|&count| count <= COUNT_MAX)
    }

    /// Reads 64 bits.
    #[inline]
    pub fn take_64(&mut self) -> u64 {
        self.take(32) | self.take(32) << 32
    }

    /// Returns `Some` if exactly all bytes were read and the padding is zero.
    #[inline]
    #[must_use]
    pub fn finish(self) -> Option<()> {
        let used = self.position.div_ceil(8) == self.src.len();
        (used && (self.position.is_multiple_of(8) || self.peek() == 0)).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bits_round_trip(items in proptest::collection::vec((any::<u64>(), 0..=64_u32), 0..100)) {
            let mask = |bits: u64, count: u32| if count == 64 { bits } else { bits & ((1 << count) - 1) };
            let mut bytes = vec![7];
            let mut writer = BitWriter::new(&mut bytes);
            for &(bits, count) in items.iter() { writer.put(mask(bits, count), count); }
            writer.finish();
            let mut reader = BitReader::new(&bytes[1..]);
            for &(bits, count) in &items {
                let back = match count {
                    64 => reader.take_64(),
                    57..64 => reader.take(32) | reader.take(count - 32) << 32,
                    _ => reader.take(count),
                };
                prop_assert_eq!(back, mask(bits, count));
            }
            prop_assert_eq!(reader.finish(), Some(()));
        }
    }

    #[test]
    fn counts_round_trip_and_higher_ones_are_rejected() {
        let mut bytes = Vec::new();
        let mut writer = BitWriter::new(&mut bytes);
        let counts = (0..=16).flat_map(|bits| {
            [
                1 << bits,
                (1_usize << bits).saturating_sub(1).max(1),
                5 << bits >> 2,
            ]
        });
        let counts: Vec<usize> = counts.map(|count| count.clamp(1, COUNT_MAX)).collect();
        for &count in counts.iter() {
            writer.put_count(count);
        }
        writer.finish();
        let mut reader = BitReader::new(&bytes);
        for &count in counts.iter() {
            assert_eq!(reader.take_count(), Some(count));
        }
        assert_eq!(reader.finish(), Some(()));
        for beyond in [3 << 16, 1 << 17, 0_u64] {
            assert_eq!(
                BitReader::new(&beyond.to_le_bytes()).take_count(),
                None,
                "{beyond:#x}"
            );
        }
    }

    #[test]
    fn a_stream_that_is_too_short_or_too_long_is_detected() {
        for (size, finished) in [(1, None), (2, Some(())), (3, None)] {
            let bytes = vec![0; size];
            let mut reader = BitReader::new(&bytes);
            assert_eq!(reader.take(12), 0);
            assert_eq!(reader.finish(), finished, "{size}");
        }
        let mut reader = BitReader::new(&[0x10]);
        reader.skip(4);
        assert_eq!(reader.finish(), None, "a padding bit is set");
    }
}

//! Streams of bits, highest bit of a byte first, and the integers of variable length in them.
//!
//! Sources: Prometheus `tsdb/chunkenc/bstream.go` and `varbit.go`.

use super::ChunkError;

/// Most bits that one load gives, whatever the place in a byte.
const PEEK_MAX: u32 = 57;
/// Least bytes by which a buffer grows.
const GROWTH_MIN: usize = 24;
/// Widths of an integer of variable length; the width at place `i` has a prefix of `i + 1` ones and a zero. An integer
/// that fits none has 64 bits behind eight ones; 0 is a single zero.
const WIDTHS: [u32; 7] = [3, 6, 9, 12, 18, 25, 56];

/// What bits are appended to.
pub(super) trait BitSink {
    /// Appends the lowest `count` bits, at most 64; what is above them is ignored.
    fn put(&mut self, bits: u64, count: u32);

    /// Appends an unsigned LEB128 integer, byte by byte.
    fn put_uvarint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.put(value & 0x7f | 0x80, 8);
            value >>= 7;
        }
        self.put(value, 8);
    }

    /// Appends a signed LEB128 integer.
    fn put_varint(&mut self, value: i64) {
        self.put_uvarint(varve_tsdb::varint::zigzag(value));
    }
}

/// Appends the lowest `count` bits, at most 64, to those that do not fill eight bytes yet: `gathered`, from the highest one
/// down, of which there are `n_gathered`. Returns eight bytes when they are full.
#[inline]
pub(super) fn gather(gathered: &mut u64, n_gathered: &mut u8, bits: u64, count: u32) -> Option<u64> {
    debug_assert!(count <= 64, "{count} bits");
    if count == 0 {
        return None;
    }
    let bits = bits << (64 - count);
    let before = u32::from(*n_gathered);
    let word = *gathered | bits >> before;
    let n_bits = before + count;
    if n_bits < 64 {
        (*gathered, *n_gathered) = (word, n_bits as u8);
        return None;
    }
    *gathered = bits.checked_shl(64 - before).unwrap_or(0);
    *n_gathered = (n_bits - 64) as u8;
    Some(word)
}

/// Appends bits to a buffer.
#[derive(Debug, Default)]
pub(super) struct BitWriter {
    bytes: Vec<u8>,
    /// What does not fill eight bytes yet: see [`gather`].
    gathered: u64,
    n_gathered: u8,
}

impl BitSink for BitWriter {
    #[inline]
    fn put(&mut self, bits: u64, count: u32) {
        if let Some(word) = gather(&mut self.gathered, &mut self.n_gathered, bits, count) {
            if self.bytes.capacity() - self.bytes.len() < size_of::<u64>() {
                self.grow();
            }
            self.bytes.extend_from_slice(&word.to_be_bytes());
        }
    }
}

impl BitWriter {
    /// Starts behind a header of `size` zeros.
    pub(super) fn behind(size: usize) -> Self {
        Self { bytes: vec![0; size], ..Self::default() }
    }

    /// Counts the bytes, a last one that is not full included.
    pub(super) fn size(&self) -> usize {
        self.bytes.len() + self.n_gathered.div_ceil(8) as usize
    }

    /// Makes room for more, a little at a time: a million chunks may grow at once.
    #[cold]
    fn grow(&mut self) {
        self.bytes.reserve_exact((self.bytes.len() / 4).max(GROWTH_MIN));
    }

    /// Appends a signed integer in few bits if it is small.
    #[inline]
    pub(super) fn put_varbit(&mut self, value: i64) {
        self.put_prefixed(value.cast_unsigned(), value == 0, |width| fits(value, width));
    }

    /// Appends an unsigned integer in few bits if it is small.
    pub(super) fn put_varbit_unsigned(&mut self, value: u64) {
        self.put_prefixed(value, value == 0, |width| value >> width == 0);
    }

    fn put_prefixed(&mut self, value: u64, is_zero: bool, fits: impl Fn(u32) -> bool) {
        if is_zero {
            return self.put(0, 1);
        }
        for (n_ones, width) in (1..).zip(WIDTHS) {
            if fits(width) {
                self.put((1 << (n_ones + 1)) - 2, n_ones + 1);
                return self.put(value, width);
            }
        }
        self.put(0xff, 8);
        self.put(value, 64);
    }

    /// Fills the last byte up with zeros and writes the header, no longer than the zeros it replaces.
    pub(super) fn finish(mut self, header: &[u8]) -> Vec<u8> {
        let n_bytes = self.n_gathered.div_ceil(8) as usize;
        self.bytes.extend_from_slice(&self.gathered.to_be_bytes()[..n_bytes]);
        self.bytes[..header.len()].copy_from_slice(header);
        self.bytes
    }
}

/// Tells whether `width` bits hold an integer: from -(2^(width-1) - 1) to 2^(width-1).
#[inline]
pub(super) fn fits(value: i64, width: u32) -> bool {
    let half = 1_i64 << (width - 1);
    1 - half <= value && value <= half
}

/// Takes bits off a buffer.
#[derive(Debug)]
pub(super) struct BitReader<'a> {
    src: &'a [u8],
    /// In bits.
    at: usize,
}

impl<'a> BitReader<'a> {
    /// Starts at the front of `src`.
    pub(super) fn new(src: &'a [u8]) -> Self {
        Self { src, at: 0 }
    }

    /// Counts the bits that are left.
    pub(super) fn n_left(&self) -> usize {
        self.src.len() * 8 - self.at
    }

    /// Takes `count` bits, at most 64.
    #[inline]
    pub(super) fn take(&mut self, count: u32) -> Result<u64, ChunkError> {
        if count as usize > self.n_left() {
            return Err(ChunkError::Cut);
        }
        if count > PEEK_MAX {
            let high = self.take(32)?;
            return Ok(high << (count - 32) | self.take(count - 32)?);
        }
        let bits = self.peek();
        self.at += count as usize;
        // Two shifts, since 64 at once is none.
        Ok(bits >> 1 >> (63 - count))
    }

    /// Takes one bit.
    #[inline]
    pub(super) fn take_bit(&mut self) -> Result<bool, ChunkError> {
        let byte = *self.src.get(self.at / 8).ok_or(ChunkError::Cut)?;
        let is_set = byte & (0x80 >> (self.at % 8)) != 0;
        self.at += 1;
        Ok(is_set)
    }

    /// Takes ones, at most `max`, and the zero behind them unless they are so many; returns how many.
    #[inline]
    pub(super) fn take_ones(&mut self, max: u32) -> Result<u32, ChunkError> {
        let ones = self.peek().leading_ones().min(max);
        let count = if ones < max { ones + 1 } else { max };
        if count as usize > self.n_left() {
            return Err(ChunkError::Cut);
        }
        self.at += count as usize;
        Ok(ones)
    }

    /// Takes a signed integer of `width` bits as [`fits`] has it.
    #[inline]
    pub(super) fn take_signed(&mut self, width: u32) -> Result<i64, ChunkError> {
        let bits = self.take(width)?;
        let above_half = width < 64 && bits > 1 << (width - 1);
        Ok(if above_half { bits.cast_signed() - (1 << width) } else { bits.cast_signed() })
    }

    /// Takes what [`BitWriter::put_varbit`] wrote.
    #[inline]
    pub(super) fn take_varbit(&mut self) -> Result<i64, ChunkError> {
        match self.take_ones(8)? {
            0 => Ok(0),
            8 => self.take_signed(64),
            ones => self.take_signed(WIDTHS[ones as usize - 1]),
        }
    }

    /// Takes what [`BitWriter::put_varbit_unsigned`] wrote.
    pub(super) fn take_varbit_unsigned(&mut self) -> Result<u64, ChunkError> {
        match self.take_ones(8)? {
            0 => Ok(0),
            8 => self.take(64),
            ones => self.take(WIDTHS[ones as usize - 1]),
        }
    }

    /// Takes an unsigned LEB128 integer.
    pub(super) fn take_uvarint(&mut self) -> Result<u64, ChunkError> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.take(8)?;
            if shift == 63 && byte > 1 {
                break;
            }
            value |= (byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(ChunkError::Invalid)
    }

    /// Takes a signed LEB128 integer.
    pub(super) fn take_varint(&mut self) -> Result<i64, ChunkError> {
        self.take_uvarint().map(varve_tsdb::varint::unzigzag)
    }

    /// Returns the next bits, [`PEEK_MAX`] of them or more, from the highest one down; zeros behind the end.
    #[inline]
    fn peek(&self) -> u64 {
        let (byte, shift) = (self.at / 8, self.at % 8);
        let rest = self.src.get(byte..).unwrap_or_default();
        // Fast path: eight bytes are there.
        let word = match rest.first_chunk::<8>() {
            Some(bytes) => u64::from_be_bytes(*bytes),
            None => {
                let mut padded = [0; 8];
                padded[..rest.len()].copy_from_slice(rest);
                u64::from_be_bytes(padded)
            }
        };
        word << shift
    }
}

//! Bit streams, most significant bit first, with their variable-length integers (varbit and
//! varint).
//!
//! Sources: Prometheus `tsdb/chunkenc/bstream.go` and `varbit.go`.

use super::error::ChunkError;

/// Minimum number of bits that one load returns, at any bit offset.
const PEEK_MAX: u32 = 57;
/// Minimum growth of a buffer, in bytes.
const GROWTH_MIN: usize = 24;
/// Widths of a varbit integer.
const WIDTHS: [u32; 7] = [3, 6, 9, 12, 18, 25, 56];

/// A destination for bits.
pub(super) trait BitSink {
    /// Appends the lowest `count` bits, at most 64. Higher bits are ignored.
    fn put(&mut self, bits: u64, count: u32);

    /// Appends an unsigned varint (LEB128).
    fn put_uvarint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.put(value & 0x7f | 0x80, 8);
            value >>= 7;
        }
        self.put(value, 8);
    }

    /// Appends a signed varint (zigzag, LEB128).
    fn put_varint(&mut self, value: i64) {
        self.put_uvarint(varve_codec::varint::zigzag(value));
    }

    /// Appends a signed integer with a prefix that tells its width: a zero for 0, `i + 1` ones and
    /// a zero for `widths[i]`, one more one without a zero for 64 bits.
    #[inline]
    fn put_signed(&mut self, value: i64, widths: &[u32]) {
        self.put_prefixed(value.cast_unsigned(), widths, |width| fits(value, width));
    }

    /// Appends the integer in the first width for which `fits` is true.
    #[inline]
    fn put_prefixed(&mut self, value: u64, widths: &[u32], fits: impl Fn(u32) -> bool) {
        if value == 0 {
            return self.put(0, 1);
        }
        for (n_ones, &width) in (1..).zip(widths) {
            if fits(width) {
                self.put((1 << (n_ones + 1)) - 2, n_ones + 1);
                return self.put(value, width);
            }
        }
        let n_ones = widths.len() as u32 + 1;
        self.put((1 << n_ones) - 1, n_ones);
        self.put(value, 64);
    }
}

/// Appends the lowest `count` bits, at most 64, to the `n_pending` highest bits of `pending`.
/// Returns a word once 64 bits are complete.
#[inline]
pub(super) fn push_bits(
    pending: &mut u64,
    n_pending: &mut u8,
    bits: u64,
    count: u32,
) -> Option<u64> {
    debug_assert!(count <= 64, "{count} bits");
    if count == 0 {
        return None;
    }
    let bits = bits << (64 - count);
    let before = u32::from(*n_pending);
    let word = *pending | bits >> before;
    let n_bits = before + count;
    if n_bits < 64 {
        (*pending, *n_pending) = (word, n_bits as u8);
        return None;
    }
    *pending = bits.checked_shl(64 - before).unwrap_or(0);
    *n_pending = (n_bits - 64) as u8;
    Some(word)
}

/// Appends bits to a buffer.
#[derive(Debug, Default)]
pub(super) struct BitWriter {
    bytes: Vec<u8>,
    /// Bits that do not fill a word yet: see [`push_bits`].
    pending: u64,
    n_pending: u8,
}

impl BitSink for BitWriter {
    #[inline]
    fn put(&mut self, bits: u64, count: u32) {
        if let Some(word) = push_bits(&mut self.pending, &mut self.n_pending, bits, count) {
            if self.bytes.capacity() - self.bytes.len() < size_of::<u64>() {
                self.grow();
            }
            self.bytes.extend_from_slice(&word.to_be_bytes());
        }
    }
}

impl BitWriter {
    /// Creates a writer that starts after a header of `size` bytes.
    pub(super) fn with_header(size: usize) -> Self {
        Self {
            bytes: vec![0; size],
            ..Self::default()
        }
    }

    /// Creates a writer that starts after a header of `size` bytes, with room for `capacity` bytes.
    pub(super) fn with_capacity(size: usize, capacity: usize) -> Self {
        let mut bytes = Vec::with_capacity(capacity);
        bytes.resize(size, 0);
        Self {
            bytes,
            ..Self::default()
        }
    }

    /// Returns the size in bytes, including an incomplete last byte.
    pub(super) fn size(&self) -> usize {
        self.bytes.len() + self.n_pending.div_ceil(8) as usize
    }

    /// Grows the buffer in small steps: recovery holds a million open chunks at once.
    #[cold]
    fn grow(&mut self) {
        self.bytes
            .reserve_exact((self.bytes.len() / 4).max(GROWTH_MIN));
    }

    /// Appends a signed varbit integer.
    #[inline]
    pub(super) fn put_varbit(&mut self, value: i64) {
        self.put_signed(value, &WIDTHS);
    }

    /// Appends an unsigned varbit integer.
    pub(super) fn put_varbit_unsigned(&mut self, value: u64) {
        self.put_prefixed(value, &WIDTHS, |width| value >> width == 0);
    }

    /// Pads the last byte with zeros and fills in the header.
    pub(super) fn finish(mut self, header: &[u8]) -> Vec<u8> {
        let n_bytes = self.n_pending.div_ceil(8) as usize;
        self.bytes
            .extend_from_slice(&self.pending.to_be_bytes()[..n_bytes]);
        self.bytes[..header.len()].copy_from_slice(header);
        self.bytes
    }
}

/// Returns `true` if an integer fits `width` bits: -(2^(width-1) - 1) to 2^(width-1).
#[inline]
fn fits(value: i64, width: u32) -> bool {
    let half = 1_i64 << (width - 1);
    1 - half <= value && value <= half
}

/// Reads bits from a buffer.
#[derive(Debug)]
pub(super) struct BitReader<'a> {
    src: &'a [u8],
    /// Offset in bits.
    position: usize,
}

impl<'a> BitReader<'a> {
    /// Creates a reader at the start of `src`.
    pub(super) fn new(src: &'a [u8]) -> Self {
        Self { src, position: 0 }
    }

    /// Returns the number of bits left.
    pub(super) fn n_left(&self) -> usize {
        self.src.len() * 8 - self.position
    }

    /// Reads `count` bits, at most 64.
    #[inline]
    pub(super) fn take(&mut self, count: u32) -> Result<u64, ChunkError> {
        if count as usize > self.n_left() {
            return Err(ChunkError::Truncated);
        }
        if count > PEEK_MAX {
            let high = self.take(32)?;
            return Ok(high << (count - 32) | self.take(count - 32)?);
        }
        let bits = self.peek();
        self.position += count as usize;
        // Two shifts, because a shift by 64 overflows.
        Ok(bits >> 1 >> (63 - count))
    }

    /// Reads one bit.
    #[inline]
    pub(super) fn take_bit(&mut self) -> Result<bool, ChunkError> {
        let byte = *self
            .src
            .get(self.position / 8)
            .ok_or(ChunkError::Truncated)?;
        let is_set = byte & (0x80 >> (self.position % 8)) != 0;
        self.position += 1;
        Ok(is_set)
    }

    /// Reads a unary prefix: up to `max` ones, and the zero that ends a shorter run. Returns the
    /// number of ones.
    #[inline]
    pub(super) fn take_ones(&mut self, max: u32) -> Result<u32, ChunkError> {
        let ones = self.peek().leading_ones().min(max);
        let count = if ones < max { ones + 1 } else { max };
        if count as usize > self.n_left() {
            return Err(ChunkError::Truncated);
        }
        self.position += count as usize;
        Ok(ones)
    }

    /// Reads an integer that [`BitSink::put_prefixed`] wrote. Returns its bits and its width.
    #[inline]
    fn take_prefixed(&mut self, widths: &[u32]) -> Result<(u64, u32), ChunkError> {
        let width = match self.take_ones(widths.len() as u32 + 1)? {
            0 => return Ok((0, 64)),
            ones => widths.get(ones as usize - 1).copied().unwrap_or(64),
        };
        Ok((self.take(width)?, width))
    }

    /// Reads an integer that [`BitSink::put_signed`] wrote.
    #[inline]
    pub(super) fn take_signed(&mut self, widths: &[u32]) -> Result<i64, ChunkError> {
        let (bits, width) = self.take_prefixed(widths)?;
        let above_half = width < 64 && bits > 1 << (width - 1);
        Ok(if above_half {
            bits.cast_signed() - (1 << width)
        } else {
            bits.cast_signed()
        })
    }

    /// Reads a signed varbit integer.
    #[inline]
    pub(super) fn take_varbit(&mut self) -> Result<i64, ChunkError> {
        self.take_signed(&WIDTHS)
    }

    /// Reads an unsigned varbit integer.
    pub(super) fn take_varbit_unsigned(&mut self) -> Result<u64, ChunkError> {
        self.take_prefixed(&WIDTHS).map(|(bits, _)| bits)
    }

    /// Reads an unsigned varint (LEB128).
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

    /// Reads a signed varint (zigzag, LEB128).
    pub(super) fn take_varint(&mut self) -> Result<i64, ChunkError> {
        self.take_uvarint().map(varve_codec::varint::unzigzag)
    }

    /// Returns the next bits, at least [`PEEK_MAX`], left-aligned, with zeros after the end.
    #[inline]
    fn peek(&self) -> u64 {
        let byte = self.position / 8;
        let shift = self.position % 8;
        let rest = self.src.get(byte..).unwrap_or_default();
        // Fast path: eight bytes are left.
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

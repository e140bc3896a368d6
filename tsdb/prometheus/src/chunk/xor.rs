//! Float chunks, encoding 1: timestamps as delta of delta, values as XOR.

use varve_tsdb::Sample;

use super::ChunkError;
use super::bstream::{BitReader, BitSink, fits};
use super::value_codec::{ValueCodec, XorCodec};

/// Widths of a delta of delta: width `i` follows a prefix of `i + 1` ones and a zero; larger ones are 64 bits after
/// four ones.
const WIDTHS: [u32; 3] = [14, 17, 20];

/// State of a chunk after its samples so far. The owner counts the samples.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct XorState {
    pub(super) timestamp_ms: i64,
    delta: i64,
    value: XorCodec,
}

impl XorState {
    /// Creates the state after a sample of another chunk.
    pub(super) const fn after(timestamp_ms: i64) -> Self {
        Self { timestamp_ms, delta: 0, value: XorCodec::NEW }
    }

    /// Appends a sample after `n_samples` others.
    #[inline]
    pub(super) fn put(&mut self, dst: &mut impl BitSink, n_samples: usize, sample: Sample) {
        let delta = sample.timestamp_ms.wrapping_sub(self.timestamp_ms);
        self.timestamp_ms = sample.timestamp_ms;
        match n_samples {
            0 => {
                dst.put_varint(sample.timestamp_ms);
                dst.put(sample.value.to_bits(), 64);
                (self.delta, self.value) = (0, XorCodec::NEW);
                return self.value.set(sample.value);
            }
            1 => dst.put_uvarint(delta.cast_unsigned()),
            // Fast path: the delta is the same, a single zero bit, which is written together with the value.
            _ if delta == self.delta
                && let Some((bits, count)) = self.value.next_short(sample.value) =>
            {
                return dst.put(bits, count + 1);
            }
            _ => put_delta_of_delta(dst, delta.wrapping_sub(self.delta)),
        }
        self.value.put_next(dst, sample.value);
        self.delta = delta;
    }

    /// Reads a sample after `n_samples` others.
    #[inline]
    pub(super) fn take(&mut self, src: &mut BitReader<'_>, n_samples: usize) -> Result<Sample, ChunkError> {
        if n_samples == 0 {
            self.timestamp_ms = src.take_varint()?;
            let value = self.value.take_first(src, false)?;
            return Ok(Sample { timestamp_ms: self.timestamp_ms, value });
        }
        self.delta = match n_samples {
            1 => src.take_uvarint()?.cast_signed(),
            _ => self.delta.wrapping_add(take_delta_of_delta(src)?),
        };
        self.timestamp_ms = self.timestamp_ms.wrapping_add(self.delta);
        Ok(Sample { timestamp_ms: self.timestamp_ms, value: self.value.take(src)? })
    }
}

#[inline]
fn put_delta_of_delta(dst: &mut impl BitSink, dod: i64) {
    if dod == 0 {
        return dst.put(0, 1);
    }
    for (n_ones, width) in (1..).zip(WIDTHS) {
        if fits(dod, width) {
            dst.put((1 << (n_ones + 1)) - 2, n_ones + 1);
            return dst.put(dod.cast_unsigned(), width);
        }
    }
    dst.put(0b1111, 4);
    dst.put(dod.cast_unsigned(), 64);
}

#[inline]
fn take_delta_of_delta(src: &mut BitReader<'_>) -> Result<i64, ChunkError> {
    match src.take_ones(4)? {
        0 => Ok(0),
        4 => src.take_signed(64),
        ones => src.take_signed(WIDTHS[ones as usize - 1]),
    }
}

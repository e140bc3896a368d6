//! Float chunks, encoding 1: timestamps as delta of delta, values as XOR.

use varve_model::Sample;

use super::bstream::{BitReader, BitSink};
use super::error::ChunkError;
use super::value_codec::{Nth, ValueCodec, XorCodec};

/// Widths of a delta of delta.
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
        Self {
            timestamp_ms,
            delta: 0,
            value: XorCodec::NEW,
        }
    }

    /// Appends a sample after `n_samples` others.
    #[inline]
    pub(super) fn put(&mut self, dst: &mut impl BitSink, n_samples: u32, sample: Sample) {
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
            // Fast path: the delta is the same, a single zero bit, which is written together with
            // the value.
            _ if delta == self.delta
                && let Some((bits, count)) = self.value.next_short(sample.value) =>
            {
                return dst.put(bits, count + 1);
            }
            _ => dst.put_signed(delta.wrapping_sub(self.delta), &WIDTHS),
        }
        self.value.put_next(dst, sample.value);
        self.delta = delta;
    }

    /// Reads a sample after `n_samples` others.
    #[inline]
    pub(super) fn take(
        &mut self,
        src: &mut BitReader<'_>,
        n_samples: u32,
    ) -> Result<Sample, ChunkError> {
        let nth = if n_samples == 0 {
            Nth::First
        } else {
            Nth::Later
        };
        self.delta = match n_samples {
            0 => src.take_varint()?,
            1 => src.take_uvarint()?.cast_signed(),
            _ => self.delta.wrapping_add(src.take_signed(&WIDTHS)?),
        };
        self.timestamp_ms = self.timestamp_ms.wrapping_add(self.delta);
        Ok(Sample {
            timestamp_ms: self.timestamp_ms,
            value: self.value.take(src, nth)?,
        })
    }
}

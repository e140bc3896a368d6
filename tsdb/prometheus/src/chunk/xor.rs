//! Float chunks, encoding 1: times by the change of their step, values by the bits that changed.

use varve_tsdb::Sample;

use super::ChunkError;
use super::bits::{BitReader, BitSink, fits};
use super::cell::{Cell, Xor};

/// Widths of the change of a step, behind a prefix of as many ones and a zero; one that fits none has 64 bits behind
/// four ones.
const WIDTHS: [u32; 3] = [14, 17, 20];

/// The state of a chunk behind its samples so far; who has it counts them.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct XorState {
    pub(super) timestamp_ms: i64,
    step: i64,
    value: Xor,
}

impl XorState {
    /// Begins behind a sample of another chunk.
    pub(super) const fn behind(timestamp_ms: i64) -> Self {
        Self { timestamp_ms, step: 0, value: Xor::NEW }
    }

    /// Appends a sample behind `n_samples` others.
    #[inline]
    pub(super) fn put(&mut self, dst: &mut impl BitSink, n_samples: usize, sample: Sample) {
        let step = sample.timestamp_ms.wrapping_sub(self.timestamp_ms);
        self.timestamp_ms = sample.timestamp_ms;
        match n_samples {
            0 => {
                dst.put_varint(sample.timestamp_ms);
                dst.put(sample.value.to_bits(), 64);
                (self.step, self.value) = (0, Xor::NEW);
                return self.value.set(sample.value);
            }
            1 => dst.put_uvarint(step.cast_unsigned()),
            // Fast path: the step is the same, which is a zero, and the bits of the value come in one go with it.
            _ if step == self.step
                && let Some((bits, count)) = self.value.next_few(sample.value) =>
            {
                return dst.put(bits, count + 1);
            }
            _ => put_change(dst, step.wrapping_sub(self.step)),
        }
        self.value.put_next(dst, sample.value);
        self.step = step;
    }

    /// Takes a sample behind `n_samples` others.
    #[inline]
    pub(super) fn take(&mut self, src: &mut BitReader<'_>, n_samples: usize) -> Result<Sample, ChunkError> {
        if n_samples == 0 {
            self.timestamp_ms = src.take_varint()?;
            let value = self.value.take_first(src, false)?;
            return Ok(Sample { timestamp_ms: self.timestamp_ms, value });
        }
        self.step = match n_samples {
            1 => src.take_uvarint()?.cast_signed(),
            _ => self.step.wrapping_add(take_change(src)?),
        };
        self.timestamp_ms = self.timestamp_ms.wrapping_add(self.step);
        Ok(Sample { timestamp_ms: self.timestamp_ms, value: self.value.take(src)? })
    }
}

#[inline]
fn put_change(dst: &mut impl BitSink, change: i64) {
    if change == 0 {
        return dst.put(0, 1);
    }
    for (n_ones, width) in (1..).zip(WIDTHS) {
        if fits(change, width) {
            dst.put((1 << (n_ones + 1)) - 2, n_ones + 1);
            return dst.put(change.cast_unsigned(), width);
        }
    }
    dst.put(0b1111, 4);
    dst.put(change.cast_unsigned(), 64);
}

#[inline]
fn take_change(src: &mut BitReader<'_>) -> Result<i64, ChunkError> {
    match src.take_ones(4)? {
        0 => Ok(0),
        4 => src.take_signed(64),
        ones => src.take_signed(WIDTHS[ones as usize - 1]),
    }
}

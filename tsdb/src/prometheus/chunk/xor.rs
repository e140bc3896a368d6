//! Float chunks, encoding 1: times by the change of their step, values by the bits that changed.

use super::ChunkError;
use super::bits::{BitReader, BitWriter, fits};
use super::cell::{Cell, Xor};
use crate::sample::Sample;

/// Widths of the change of a step, behind a prefix of as many ones and a zero; one that fits none has 64 bits behind
/// four ones.
const WIDTHS: [u32; 3] = [14, 17, 20];

/// The state of a chunk behind its samples so far.
#[derive(Debug, Default)]
pub(super) struct XorState {
    n_samples: usize,
    timestamp_ms: i64,
    step: i64,
    value: Xor,
}

impl XorState {
    /// Appends a sample.
    #[inline]
    pub(super) fn put(&mut self, dst: &mut BitWriter, sample: Sample) {
        let step = sample.timestamp_ms.wrapping_sub(self.timestamp_ms);
        match self.n_samples {
            0 => {
                dst.put_varint(sample.timestamp_ms);
                self.value.put_first(dst, sample.value, false);
            }
            1 => dst.put_uvarint(step.cast_unsigned()),
            _ => put_change(dst, step.wrapping_sub(self.step)),
        }
        if self.n_samples > 0 {
            self.value.put(dst, sample.value);
            self.step = step;
        }
        self.timestamp_ms = sample.timestamp_ms;
        self.n_samples += 1;
    }

    /// Takes a sample.
    #[inline]
    pub(super) fn take(&mut self, src: &mut BitReader<'_>) -> Result<Sample, ChunkError> {
        self.n_samples += 1;
        if self.n_samples == 1 {
            self.timestamp_ms = src.take_varint()?;
            let value = self.value.take_first(src, false)?;
            return Ok(Sample { timestamp_ms: self.timestamp_ms, value });
        }
        self.step = match self.n_samples {
            2 => src.take_uvarint()?.cast_signed(),
            _ => self.step.wrapping_add(take_change(src)?),
        };
        self.timestamp_ms = self.timestamp_ms.wrapping_add(self.step);
        Ok(Sample { timestamp_ms: self.timestamp_ms, value: self.value.take(src)? })
    }
}

#[inline]
fn put_change(dst: &mut BitWriter, change: i64) {
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

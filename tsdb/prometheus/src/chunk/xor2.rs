//! Float chunks with start timestamps, encoding 4: delta of delta and value share a prefix.
//!
//! ```text
//! 0      same delta, same value
//! 10     same delta, another value: 0 and the XOR in the last window, or 1 and a new window with the XOR
//! 110    delta of delta in 13 bits, then the value
//! 1110   delta of delta in 20 bits, then the value
//! 11110  delta of delta in 64 bits, then the value
//! 11111  same delta, a staleness marker
//! value: 0 same, 10 XOR in the last window, 110 XOR in a new window, 111 a staleness marker
//! ```
//! A staleness marker is not used as the value before. Source: `tsdb/chunkenc/xor2.go` of version
//! 3.16, which chooses windows by their cost. Readers of 3.12 and later read them.

use varve_model::Sample;
use varve_model::staleness::{STALE_NAN_BITS, is_stale_nan};

use super::bstream::{BitReader, BitSink, BitWriter};
use super::error::ChunkError;
use super::start_timestamps::StartTimestampCodec;
use super::value_codec::XorCodec;

/// Size of a window in bits.
const WINDOW_COST: u32 = 11;

/// State of a chunk after its samples so far.
#[derive(Debug, Default)]
pub(super) struct Xor2State {
    n_samples: u32,
    timestamp_ms: i64,
    delta: i64,
    value: XorCodec,
    pub(super) starts: StartTimestampCodec,
}

impl Xor2State {
    /// Creates the state of a reader from the header of the start timestamps.
    pub(super) fn with_header(header: u8) -> Self {
        Self {
            starts: StartTimestampCodec::with_header(header),
            ..Self::default()
        }
    }

    /// Appends a sample.
    pub(super) fn put(&mut self, dst: &mut BitWriter, sample: Sample, start_ms: i64) {
        let before_ms = if self.n_samples == 0 {
            sample.timestamp_ms
        } else {
            self.timestamp_ms
        };
        let delta = sample.timestamp_ms.wrapping_sub(self.timestamp_ms);
        match self.n_samples {
            0 => {
                dst.put_varint(sample.timestamp_ms);
                dst.put(sample.value.to_bits(), 64);
                if !is_stale_nan(sample.value) {
                    self.value.set(sample.value);
                }
            }
            1 => {
                dst.put_uvarint(delta.cast_unsigned());
                self.put_value(dst, sample.value);
            }
            _ => self.put_joint(dst, delta.wrapping_sub(self.delta), sample.value),
        }
        if self.n_samples > 0 {
            self.delta = delta;
        }
        self.starts.put(dst, self.n_samples, before_ms, start_ms);
        self.timestamp_ms = sample.timestamp_ms;
        self.n_samples += 1;
    }

    fn put_joint(&mut self, dst: &mut BitWriter, dod: i64, value: f64) {
        if dod != 0 {
            match dod {
                -0x1000..0x1000 => dst.put(0b110 << 13 | dod.cast_unsigned() & 0x1fff, 16),
                -0x8_0000..0x8_0000 => dst.put(0b1110 << 20 | dod.cast_unsigned() & 0xf_ffff, 24),
                _ => {
                    dst.put(0b11110, 5);
                    dst.put(dod.cast_unsigned(), 64);
                }
            }
            return self.put_value(dst, value);
        }
        match self.value.xor(value) {
            _ if is_stale_nan(value) => dst.put(0b11111, 5),
            0 => dst.put(0, 1),
            xor => self
                .value
                .put_xor(dst, xor, (0b100, 3), (0b101, 3), Some(WINDOW_COST)),
        }
    }

    fn put_value(&mut self, dst: &mut BitWriter, value: f64) {
        match self.value.xor(value) {
            _ if is_stale_nan(value) => dst.put(0b111, 3),
            0 => dst.put(0, 1),
            // The prefix of a new window is one bit longer.
            xor => self
                .value
                .put_xor(dst, xor, (0b10, 2), (0b110, 3), Some(WINDOW_COST + 1)),
        }
    }

    /// Reads a sample and its start timestamp.
    pub(super) fn take(&mut self, src: &mut BitReader<'_>) -> Result<(Sample, i64), ChunkError> {
        let mut before_ms = self.timestamp_ms;
        let value = match self.n_samples {
            0 => {
                self.delta = src.take_varint()?;
                before_ms = self.delta;
                let value = f64::from_bits(src.take(64)?);
                if !is_stale_nan(value) {
                    self.value.set(value);
                }
                value
            }
            1 => {
                self.delta = src.take_uvarint()?.cast_signed();
                self.take_value(src)?
            }
            _ => self.take_joint(src)?,
        };
        self.timestamp_ms = self.timestamp_ms.wrapping_add(self.delta);
        let start_ms = self.starts.take(src, self.n_samples, before_ms)?;
        self.n_samples += 1;
        Ok((
            Sample {
                timestamp_ms: self.timestamp_ms,
                value,
            },
            start_ms,
        ))
    }

    fn take_joint(&mut self, src: &mut BitReader<'_>) -> Result<f64, ChunkError> {
        let width = match src.take_ones(5)? {
            0 => return Ok(self.value.value()),
            1 => {
                let is_new = src.take_bit()?;
                self.value.take_xor(src, is_new)?;
                return Ok(self.value.value());
            }
            2 => 13,
            3 => 20,
            4 => 64,
            _ => return Ok(f64::from_bits(STALE_NAN_BITS)),
        };
        // Two's complement, unlike the integers of other encodings.
        let dod = (src.take(width)? << (64 - width)).cast_signed() >> (64 - width);
        self.delta = self.delta.wrapping_add(dod);
        self.take_value(src)
    }

    fn take_value(&mut self, src: &mut BitReader<'_>) -> Result<f64, ChunkError> {
        match src.take_ones(3)? {
            0 => {}
            1 => self.value.take_xor(src, false)?,
            2 => self.value.take_xor(src, true)?,
            _ => return Ok(f64::from_bits(STALE_NAN_BITS)),
        }
        Ok(self.value.value())
    }
}

//! Start timestamps in a chunk: absent if no sample has one, else encoded relative to the sample
//! before.
//!
//! ```text
//! header  bit 7: the first sample has a start timestamp, a varint before its timestamp
//!         bits 0-6: index of the first sample whose start timestamp differs from the one before; this sample and
//!         all later ones are followed by the distance from the timestamp of the sample before to their start:
//!         the first distance itself, the others as delta
//! ```
//! In a chunk of more than 127 samples the later ones have start timestamps even if nothing
//! changed. Source: `tsdb/chunkenc/st.go`.

use super::bstream::{BitReader, BitSink, BitWriter};
use super::error::ChunkError;

/// The bits of the number of samples in chunks where the upper two bits are the counter reset
/// header.
pub(super) const COUNT_MASK: u16 = 0x3fff;
/// The highest sample index that the header can hold.
const CHANGE_ON_MAX: u32 = 0x7f;
const FIRST_KNOWN: u8 = 0x80;

/// Whether chunks keep start timestamps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StartTimestamps {
    /// Without start timestamps: encodings 1 to 3, which all versions of Prometheus read.
    #[default]
    Drop,
    /// With start timestamps: encodings 4 to 6, which Prometheus reads since version 3.12.
    Keep,
    /// With the start timestamps that are known: as `Keep`, but a chunk of floats without any has
    /// encoding 1, which takes less memory while it is open.
    KeepKnown,
}

/// State of the start timestamps of a chunk after its samples so far.
#[derive(Debug, Default)]
pub(super) struct StartTimestampCodec {
    header: u8,
    start_ms: i64,
    distance_ms: i64,
}

impl StartTimestampCodec {
    /// Creates a decoder from the header of a chunk.
    pub(super) fn with_header(header: u8) -> Self {
        Self {
            header,
            ..Self::default()
        }
    }

    /// Returns the header.
    pub(super) fn header(&self) -> u8 {
        self.header
    }

    fn change_on(&self) -> u32 {
        u32::from(self.header & !FIRST_KNOWN)
    }

    /// Appends the start timestamp of the sample at `idx`, after that sample. `before_ms` is the
    /// timestamp of the sample before it, or of the first sample itself.
    pub(super) fn put(&mut self, dst: &mut BitWriter, idx: u32, before_ms: i64, start_ms: i64) {
        let distance_ms = before_ms.wrapping_sub(start_ms);
        if idx == 0 {
            if start_ms != 0 {
                dst.put_varint(distance_ms);
                self.header = FIRST_KNOWN;
            }
        } else if self.change_on() > 0 {
            dst.put_varbit(distance_ms.wrapping_sub(self.distance_ms));
            self.distance_ms = distance_ms;
        } else if start_ms != self.start_ms || idx == CHANGE_ON_MAX {
            dst.put_varbit(distance_ms);
            self.header |= idx as u8;
            self.distance_ms = distance_ms;
        }
        self.start_ms = start_ms;
    }

    /// Reads the start timestamp of the sample at `idx`, or 0 if it has none.
    pub(super) fn take(
        &mut self,
        src: &mut BitReader<'_>,
        idx: u32,
        before_ms: i64,
    ) -> Result<i64, ChunkError> {
        if idx == 0 {
            if self.header & FIRST_KNOWN != 0 {
                self.start_ms = before_ms.wrapping_sub(src.take_varint()?);
            }
        } else if self.change_on() > 0 && idx >= self.change_on() {
            let distance_ms = src.take_varbit()?;
            self.distance_ms = if idx == self.change_on() {
                distance_ms
            } else {
                self.distance_ms.wrapping_add(distance_ms)
            };
            self.start_ms = before_ms.wrapping_sub(self.distance_ms);
        }
        Ok(self.start_ms)
    }
}

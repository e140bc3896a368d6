//! Start timestamps inside a chunk: nothing as long as there are none, then how far each lies before the sample before.
//!
//! ```text
//! header  bit 7: the first sample has a start, as a varint before its time
//!         bits 0-6: the first sample, counted from 0, whose start differs from the one before; behind that sample and
//!         each later one stands the distance of its start from the time of the sample before: the first as it is, the
//!         others by the change of it
//! ```
//! A chunk of more than 127 samples has starts from there on, changed or not. Source: `tsdb/chunkenc/st.go`.

use super::ChunkError;
use super::bits::{BitReader, BitSink, BitWriter};

/// The bits of the number of samples in chunks whose upper two bits are the reset header.
pub(super) const COUNT_MASK: u16 = 0x3fff;
/// The last sample that the header can name.
const CHANGE_ON_MAX: usize = 0x7f;
const FIRST_KNOWN: u8 = 0x80;

/// The state of the starts of a chunk behind its samples so far.
#[derive(Debug, Default)]
pub(super) struct Starts {
    header: u8,
    start_ms: i64,
    distance_ms: i64,
}

impl Starts {
    /// Goes on with the header of a chunk that is read.
    pub(super) fn with_header(header: u8) -> Self {
        Self { header, ..Self::default() }
    }

    /// Returns the header.
    pub(super) fn header(&self) -> u8 {
        self.header
    }

    fn change_on(&self) -> usize {
        usize::from(self.header & !FIRST_KNOWN)
    }

    /// Appends the start of the sample at `idx`, behind that sample; `before_ms` is the time of the sample before it,
    /// for the first one its own.
    pub(super) fn put(&mut self, dst: &mut BitWriter, idx: usize, before_ms: i64, start_ms: i64) {
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

    /// Takes the start of the sample at `idx`; 0 if it has none.
    pub(super) fn take(&mut self, src: &mut BitReader<'_>, idx: usize, before_ms: i64) -> Result<i64, ChunkError> {
        if idx == 0 {
            if self.header & FIRST_KNOWN != 0 {
                self.start_ms = before_ms.wrapping_sub(src.take_varint()?);
            }
        } else if self.change_on() > 0 && idx >= self.change_on() {
            let distance_ms = src.take_varbit()?;
            self.distance_ms = match idx == self.change_on() {
                true => distance_ms,
                false => self.distance_ms.wrapping_add(distance_ms),
            };
            self.start_ms = before_ms.wrapping_sub(self.distance_ms);
        }
        Ok(self.start_ms)
    }
}

//! Chunks: runs of samples of one series, encoded.
//!
//! The head keeps an [`OpenChunk`] per series, which grows by a sample at a time, and the [`Chunk`]s that it was closed
//! to. The encoding, in [`float`], is byte-aligned: an append touches a few bytes at the end of a buffer, and a chunk
//! can be read while it is open by copying its bytes.

mod float;

use std::sync::Arc;

use crate::sample::{Sample, SampleColumns, TimeRange};

/// Samples after which a chunk is closed: two hours at a sample every 30 s.
pub(crate) const CHUNK_SAMPLES_MAX: u32 = 240;

/// A closed run of samples; clones share the bytes.
#[derive(Debug, Clone)]
pub(crate) struct Chunk {
    range: TimeRange,
    n_samples: u32,
    bytes: Arc<[u8]>,
}

/// A run of samples that still grows.
#[derive(Debug, Default)]
pub(crate) struct OpenChunk {
    n_samples: u32,
    first_ms: i64,
    last: Option<Sample>,
    last_delta_ms: i64,
    bytes: Vec<u8>,
}

/// A chunk's bytes do not decode.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Damaged;

impl OpenChunk {
    /// Appends a sample that is newer than all before, and returns by how many bytes the chunk's memory grew.
    pub(crate) fn append(&mut self, sample: Sample) -> usize {
        let capacity = self.bytes.capacity();
        match self.last {
            Some(last) if self.n_samples > 0 => {
                debug_assert!(last.timestamp_ms < sample.timestamp_ms, "samples of a chunk ascend in time");
                // Wraps only where the two times are more than 2^63 ms apart; decoding wraps back.
                let delta_ms = sample.timestamp_ms.wrapping_sub(last.timestamp_ms);
                float::encode_next(
                    &mut self.bytes,
                    delta_ms.wrapping_sub(self.last_delta_ms),
                    last.value,
                    sample.value,
                );
                self.last_delta_ms = delta_ms;
            }
            _ => {
                self.first_ms = sample.timestamp_ms;
                float::encode_first(&mut self.bytes, sample);
            }
        }
        self.last = Some(sample);
        self.n_samples += 1;
        self.bytes.capacity() - capacity
    }

    /// Tells whether the chunk holds as many samples as a chunk may.
    pub(crate) fn is_full(&self) -> bool {
        self.n_samples >= CHUNK_SAMPLES_MAX
    }

    /// Returns the newest sample of the series, which may be in a chunk closed before; `None` if there was none.
    pub(crate) fn last(&self) -> Option<Sample> {
        self.last
    }

    /// Returns the range of the samples, or `None` if there are none.
    pub(crate) fn range(&self) -> Option<TimeRange> {
        let last = self.last.filter(|_| self.n_samples > 0)?;
        Some(TimeRange { start_ms: self.first_ms, end_ms: last.timestamp_ms })
    }

    /// Returns the size of the buffer.
    pub(crate) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Copies what is there into a closed chunk; `None` if there is nothing.
    pub(crate) fn snapshot(&self) -> Option<Chunk> {
        Some(Chunk { range: self.range()?, n_samples: self.n_samples, bytes: Arc::from(&self.bytes[..]) })
    }

    /// Closes the chunk and begins a new one behind it: the newest sample stays known.
    pub(crate) fn close(&mut self) -> Option<Chunk> {
        let closed = self.snapshot()?;
        *self = Self { last: self.last, ..Self::default() };
        Some(closed)
    }
}

impl Chunk {
    /// Returns the range from the first to the last sample.
    pub(crate) fn range(&self) -> TimeRange {
        self.range
    }

    /// Counts the samples.
    pub(crate) fn len(&self) -> usize {
        self.n_samples as usize
    }

    /// Returns the bytes that the chunk takes on the heap.
    pub(crate) fn size(&self) -> usize {
        self.bytes.len() + 2 * size_of::<usize>()
    }

    /// Appends the samples inside `range` to `out`.
    pub(crate) fn decode(&self, range: TimeRange, out: &mut SampleColumns) -> Result<(), Damaged> {
        let from = out.len();
        float::decode(&self.bytes, self.n_samples as usize, &mut out.timestamps_ms, &mut out.values)?;
        // Fast path: the chunk lies inside the range.
        if range.start_ms <= self.range.start_ms && self.range.end_ms <= range.end_ms {
            return Ok(());
        }
        let end = from + out.timestamps_ms[from..].partition_point(|&t| t <= range.end_ms);
        let start = from + out.timestamps_ms[from..end].partition_point(|&t| t < range.start_ms);
        out.timestamps_ms.truncate(end);
        out.values.truncate(end);
        out.timestamps_ms.drain(from..start);
        out.values.drain(from..start);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(samples: &[(i64, f64)]) -> OpenChunk {
        let mut open = OpenChunk::default();
        for &(timestamp_ms, value) in samples {
            open.append(Sample { timestamp_ms, value });
        }
        open
    }

    fn read(chunk: &Chunk, start_ms: i64, end_ms: i64) -> Vec<(i64, f64)> {
        let mut out = SampleColumns::default();
        out.push(Sample { timestamp_ms: -1, value: -1.0 });
        chunk.decode(TimeRange { start_ms, end_ms }, &mut out).unwrap();
        out.iter().skip(1).map(|s| (s.timestamp_ms, s.value)).collect()
    }

    #[test]
    fn only_samples_inside_the_range_are_read() {
        let closed = chunk(&[(10, 1.0), (20, 2.0), (30, 3.0)]).close().unwrap();
        assert_eq!(read(&closed, 0, 100), [(10, 1.0), (20, 2.0), (30, 3.0)]);
        assert_eq!(read(&closed, 10, 20), [(10, 1.0), (20, 2.0)]);
        assert_eq!(read(&closed, 11, 29), [(20, 2.0)]);
        assert_eq!(read(&closed, 21, 29), []);
        assert_eq!(read(&closed, 40, 50), []);
    }

    #[test]
    fn an_open_chunk_can_be_read_and_goes_on() {
        let mut open = chunk(&[(10, 1.0)]);
        let before = open.snapshot().unwrap();
        open.append(Sample { timestamp_ms: 20, value: 2.0 });
        assert_eq!((read(&before, 0, 100).len(), before.len()), (1, 1));
        assert_eq!(read(&open.snapshot().unwrap(), 0, 100), [(10, 1.0), (20, 2.0)]);
    }

    #[test]
    fn an_empty_chunk_closes_to_nothing() {
        assert!(OpenChunk::default().close().is_none());
    }
}

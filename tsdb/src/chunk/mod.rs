//! Chunks: runs of samples of one series, encoded, in memory.
//!
//! The head keeps the state of one growing [`Chunk`] per series as a row of integers, and those that were closed in a
//! sparse list. The bytes of all chunks lie in an arena, [`Blocks`]. The encoding, in [`float`], is byte-aligned: an
//! append touches the row and a few bytes at the end of a chain, and a chunk can be read while it is open by copying its
//! bytes.
//!
//! Invariants
//! 1. Samples of a chunk ascend strictly in time and span less than 2^32 ms.
//! 2. A row of zeros is an empty chunk.

mod blocks;
mod float;

use crate::sample::{Sample, TimeRange};
pub(crate) use blocks::Blocks;
use blocks::PAYLOAD_SIZE;
use float::{RUN_MAX, SAMPLE_SIZE_MAX, Scale};

/// Samples after which a chunk is closed: two hours at a sample every 30 s.
pub(crate) const CHUNK_SAMPLES_MAX: u8 = 240;

/// A chunk as the column of open chunks keeps it.
pub(crate) type ChunkRow = [u64; 5];

/// A run of samples; the bytes are in the arena that it was appended with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Chunk {
    first_ms: i64,
    last_bits: u64,
    /// From the first sample to the last.
    span_ms: u32,
    /// From the sample before the last to the last.
    delta_ms: u32,
    /// The last block.
    tail: u32,
    /// The request that gave the last sample.
    pub(crate) request: u32,
    /// Where its samples begin, counted from the first sample of the chunk.
    pub(crate) request_at_ms: u32,
    n_samples: u8,
    /// Bytes used of the last block.
    used: u8,
    /// Samples in the run that the last byte stands for; 0 if it does not stand for one.
    run: u8,
    scale: Scale,
}

/// A chunk's bytes do not decode.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Damaged;

impl Chunk {
    /// Reads a row.
    #[inline]
    pub(crate) fn from_row(row: ChunkRow) -> Self {
        let (low, high) = (|word: u64| word as u32, |word: u64| (word >> 32) as u32);
        let [n_samples, used, run, scale] = high(row[4]).to_le_bytes();
        Self {
            first_ms: row[0] as i64,
            last_bits: row[1],
            span_ms: low(row[2]),
            delta_ms: high(row[2]),
            tail: low(row[3]),
            request: high(row[3]),
            request_at_ms: low(row[4]),
            n_samples,
            used,
            run,
            scale: Scale(scale),
        }
    }

    /// Writes a row.
    #[inline]
    pub(crate) fn to_row(self) -> ChunkRow {
        let word = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let small = u32::from_le_bytes([self.n_samples, self.used, self.run, self.scale.0]);
        [
            self.first_ms as u64,
            self.last_bits,
            word(self.span_ms, self.delta_ms),
            word(self.tail, self.request),
            word(self.request_at_ms, small),
        ]
    }

    /// Tells whether the chunk takes a sample of that time, which is newer than its last one.
    #[inline]
    pub(crate) fn takes(&self, timestamp_ms: i64) -> bool {
        self.n_samples == 0
            || self.n_samples < CHUNK_SAMPLES_MAX && u32::try_from(timestamp_ms.wrapping_sub(self.first_ms)).is_ok()
    }

    /// Appends a sample that the chunk takes.
    #[inline]
    pub(crate) fn append(&mut self, blocks: &mut Blocks, sample: Sample) {
        debug_assert!(self.takes(sample.timestamp_ms), "the caller has asked");
        if self.n_samples == 0 {
            self.first_ms = sample.timestamp_ms;
        }
        // Exact: `takes` says that it fits.
        let span_ms = sample.timestamp_ms.wrapping_sub(self.first_ms) as u32;
        debug_assert!(self.n_samples == 0 || span_ms > self.span_ms, "samples of a chunk ascend in time");
        let delta_ms = span_ms.wrapping_sub(self.span_ms);
        let delta_of_delta_ms = i64::from(delta_ms) - i64::from(self.delta_ms);
        let bits = sample.value.to_bits();
        if delta_of_delta_ms == 0 && bits == self.last_bits && self.n_samples > 0 {
            self.repeat(blocks);
        } else {
            let last = f64::from_bits(self.last_bits);
            let mut bytes = [0; SAMPLE_SIZE_MAX];
            let size = float::encode(&mut bytes, delta_of_delta_ms, last, sample.value, &mut self.scale);
            self.write(blocks, &bytes[..size]);
            self.run = 0;
        }
        self.span_ms = span_ms;
        self.delta_ms = delta_ms;
        self.last_bits = bits;
        self.n_samples += 1;
    }

    /// Appends the last value at the last distance once more: mostly by counting up the last byte.
    #[inline]
    fn repeat(&mut self, blocks: &mut Blocks) {
        if self.run > 0 && self.run < RUN_MAX {
            self.run += 1;
            blocks.payload_mut(self.tail)[usize::from(self.used) - 1] = float::run_tag(self.run);
        } else {
            self.write(blocks, &[float::run_tag(1)]);
            self.run = 1;
        }
    }

    #[inline]
    fn write(&mut self, blocks: &mut Blocks, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.tail == 0 || usize::from(self.used) == PAYLOAD_SIZE {
                self.tail = blocks.push(self.tail);
                self.used = 0;
            }
            let used = usize::from(self.used);
            let (here, rest) = bytes.split_at(bytes.len().min(PAYLOAD_SIZE - used));
            blocks.payload_mut(self.tail)[used..used + here.len()].copy_from_slice(here);
            self.used += here.len() as u8;
            bytes = rest;
        }
    }

    /// Reads a byte that the next append will change, to bring it near.
    #[inline]
    pub(crate) fn touch(&self, blocks: &Blocks) -> u8 {
        if self.tail == 0 { 0 } else { blocks.payload(self.tail)[usize::from(self.used) - 1] }
    }

    /// Returns the time from the first sample to the last.
    #[inline]
    pub(crate) fn span_ms(&self) -> u32 {
        self.span_ms
    }

    /// Counts the samples.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        usize::from(self.n_samples)
    }

    /// Returns the newest sample.
    #[inline]
    pub(crate) fn last(&self) -> Option<Sample> {
        let range = self.range()?;
        Some(Sample { timestamp_ms: range.end_ms, value: f64::from_bits(self.last_bits) })
    }

    /// Returns the range of the samples, or `None` if there are none.
    #[inline]
    pub(crate) fn range(&self) -> Option<TimeRange> {
        let end_ms = self.first_ms.wrapping_add(i64::from(self.span_ms));
        (self.n_samples > 0).then_some(TimeRange { start_ms: self.first_ms, end_ms })
    }

    /// Appends the encoded bytes to `dst`, and returns how many they are.
    pub(crate) fn copy_to(&self, blocks: &Blocks, dst: &mut Vec<u8>) -> usize {
        let n_blocks = blocks.chain(self.tail).count();
        let size = n_blocks.saturating_sub(1) * PAYLOAD_SIZE + usize::from(self.used);
        let start = dst.len();
        dst.resize(start + size, 0);
        let mut end = size;
        for number in blocks.chain(self.tail) {
            let from = (end - 1) / PAYLOAD_SIZE * PAYLOAD_SIZE;
            dst[start + from..start + end].copy_from_slice(&blocks.payload(number)[..end - from]);
            end = from;
        }
        size
    }

    /// Returns the bits of the sample at a time, if there is one. Decodes the chunk.
    pub(crate) fn bits_at(&self, blocks: &Blocks, timestamp_ms: i64) -> Option<u64> {
        let last = self.last().filter(|last| self.first_ms <= timestamp_ms && timestamp_ms <= last.timestamp_ms)?;
        // Fast path: a request is repeated.
        if timestamp_ms == last.timestamp_ms {
            return Some(self.last_bits);
        }
        let mut bytes = Vec::new();
        self.copy_to(blocks, &mut bytes);
        let (mut timestamps, mut values) = (Vec::new(), Vec::new());
        decode(&bytes, self.first_ms, self.len(), &mut timestamps, &mut values).ok()?;
        timestamps.binary_search(&timestamp_ms).ok().map(|idx| values[idx].to_bits())
    }
}

/// Decodes the first `n_samples` samples of a chunk's bytes and appends them to the two columns.
///
/// # Errors
/// [`Damaged`] if the bytes do not hold that many; the columns may have grown then.
pub(crate) fn decode(
    src: &[u8],
    first_ms: i64,
    n_samples: usize,
    timestamps_ms: &mut Vec<i64>,
    values: &mut Vec<f64>,
) -> Result<(), Damaged> {
    float::decode(src, first_ms, n_samples, timestamps_ms, values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Appends samples to chunks in turn, as the samples of many series come, and decodes them all.
    fn through_chunks(chunks: &[Vec<(i64, u64)>]) -> (Vec<Vec<(i64, u64)>>, Vec<usize>) {
        let mut blocks = Blocks::default();
        let mut rows = vec![[0; 5]; chunks.len()];
        for i in 0..chunks.iter().map(Vec::len).max().unwrap_or(0) {
            for (row, samples) in rows.iter_mut().zip(chunks) {
                let Some(&(timestamp_ms, bits)) = samples.get(i) else { continue };
                let mut chunk = Chunk::from_row(*row);
                assert!(chunk.takes(timestamp_ms));
                chunk.append(&mut blocks, Sample { timestamp_ms, value: f64::from_bits(bits) });
                *row = chunk.to_row();
                assert_eq!(Chunk::from_row(*row), chunk);
            }
        }
        let read = |row: &ChunkRow| {
            let (chunk, mut bytes) = (Chunk::from_row(*row), Vec::new());
            let size = chunk.copy_to(&blocks, &mut bytes);
            let (mut timestamps, mut values) = (Vec::new(), Vec::new());
            decode(&bytes, chunk.first_ms, chunk.len(), &mut timestamps, &mut values).unwrap();
            for (&timestamp_ms, value) in timestamps.iter().zip(&values) {
                assert_eq!(chunk.bits_at(&blocks, timestamp_ms), Some(value.to_bits()));
            }
            (timestamps.into_iter().zip(values.into_iter().map(f64::to_bits)).collect(), size)
        };
        rows.iter().map(read).unzip()
    }

    fn awkward_bits() -> impl Strategy<Value = u64> {
        prop_oneof![
            any::<u64>(),
            any::<u64>().prop_map(|payload| payload | 0x7ff0_0000_0000_0000),
            (-100_i64..100).prop_map(|v| (v as f64).to_bits()),
            (-100_i64..100).prop_map(|v| (v as f64 / 100.0).to_bits()),
            (-100_i64..100).prop_map(|v| (v as f64 / 1e9).to_bits()),
            (0_u64..3).prop_map(|i| ((1_u64 << 52) as f64).to_bits() - 1 + i),
            Just(crate::sample::STALE_NAN_BITS),
            Just((-0.0_f64).to_bits()),
            Just(0),
            Just(1),
        ]
    }

    fn samples() -> impl Strategy<Value = Vec<(i64, u64)>> {
        let start = prop_oneof![Just(i64::MIN), Just(-5), Just(1_700_000_000_000)];
        let step = prop_oneof![4 => Just(15_000_u32), 1 => 1..100_u32, 1 => 1..10_000_000_u32];
        let bits = prop_oneof![3 => Just(None), 1 => awkward_bits().prop_map(Some)];
        let steps = proptest::collection::vec((step, bits), 1..usize::from(CHUNK_SAMPLES_MAX));
        (start, steps).prop_map(|(mut timestamp_ms, steps)| {
            let mut last_bits = 0;
            let sample = |(step, bits): (u32, Option<u64>)| {
                let sample = (timestamp_ms, bits.unwrap_or(last_bits));
                (timestamp_ms, last_bits) = (timestamp_ms + i64::from(step), sample.1);
                sample
            };
            steps.into_iter().map(sample).collect()
        })
    }

    proptest! {
        #[test]
        fn every_double_and_time_comes_back_bit_for_bit(chunks in proptest::collection::vec(samples(), 1..4)) {
            prop_assert_eq!(through_chunks(&chunks).0, chunks);
        }
    }

    #[test]
    fn a_chunk_takes_so_many_samples_of_so_long_a_time() {
        let (mut chunk, mut blocks) = (Chunk::default(), Blocks::default());
        assert!(chunk.takes(i64::MIN) && chunk.range().is_none() && chunk.last().is_none());
        for i in 0..i64::from(CHUNK_SAMPLES_MAX) {
            assert!(chunk.takes(i64::from(u32::MAX)) && !chunk.takes(i64::from(u32::MAX) + 1) || i == 0);
            chunk.append(&mut blocks, Sample { timestamp_ms: i, value: 0.0 });
        }
        assert!(!chunk.takes(1000));
        assert_eq!(chunk.range(), Some(TimeRange { start_ms: 0, end_ms: 239 }));
    }

    #[test]
    fn counters_take_two_bytes_and_constants_and_gaps_next_to_nothing() {
        let size = |value: fn(i64) -> f64| {
            through_chunks(&[(0..100).map(|i| (i * 30_000, value(i).to_bits())).collect()]).1[0]
        };
        assert_eq!(size(|i| i as f64 * 60.0), 1 + 5 + 98 * 2);
        assert_eq!(size(|_| 0.0), 1 + 4 + 98_usize.div_ceil(30));
        assert_eq!(size(|i| 1234.5 + i as f64 * 0.25), 4 + 5 + 98 * 2, "decimals");
    }
}

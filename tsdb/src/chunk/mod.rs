//! Chunks: encoded runs of samples of one series, in memory.
//!
//! The head stores the state of one open [`Chunk`] per series as a row of integers, and closed
//! chunks in a sparse list. The bytes of a chunk are in a chain of slabs, [`SlabChains`]. The
//! chunks of a shard grow at the same pace, and are dropped together after a freeze. The encoding
//! ([`float`]) is byte-aligned: an append changes the row and a few bytes at the end of a chain. A
//! chunk, open or closed, is decoded backwards from its newest sample, which is part of the row.
//! Only the slabs with requested samples are read.
//!
//! Invariants
//! 1. Samples of a chunk ascend strictly in time and span less than 2^32 ms.
//! 2. A row of zeros is an empty chunk.

mod float;
pub(crate) mod histogram;

use varve_collections::SlabChains;
use varve_model::{Sample, TimeRange};

use crate::error::Damaged;
pub(crate) use float::{Newest, decode};

use float::{RUN_MAX, Scale};

/// Payload of a slab of a chain in bytes.
const PAYLOAD_SIZE: usize = SlabChains::PAYLOAD_SIZE;

/// Number of samples at which a chunk is closed: two hours at one sample every 30 s.
pub(crate) const CHUNK_SAMPLES_MAX: u8 = 240;

/// If fewer samples than this are requested from the end of a chunk, they are decoded at once
/// instead of copied.
const TAIL_SAMPLES: i64 = 24;
/// Bytes to gather from a chunk before trying to decode its last samples: about two slabs.
const TAIL_SIZE: usize = 32;

/// A chunk as stored in the column of open chunks.
pub(crate) type ChunkRow = [u64; 5];

/// A run of samples. Its bytes are in the slabs that were used to append them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Chunk {
    first_ms: i64,
    last_bits: u64,
    /// Time from the first sample to the last.
    span_ms: u32,
    /// Time between the last two samples.
    delta_ms: u32,
    /// Number of the last slab, or 0 if there is none.
    last_slab: u32,
    /// Id of the append that added the last sample.
    pub(crate) append_id: u32,
    /// Time from the first sample of the chunk to the first sample of this append.
    pub(crate) append_id_from_ms: u32,
    n_samples: u8,
    /// Number of used bytes of the last slab.
    used: u8,
    /// Number of samples in the run that the last byte encodes, or 0 if it encodes no run.
    run: u8,
    scale: Scale,
}

impl Chunk {
    /// Decodes a row.
    #[inline]
    pub(crate) fn from_row(row: ChunkRow) -> Self {
        let low = |word: u64| word as u32;
        let high = |word: u64| (word >> 32) as u32;
        let [n_samples, used, run, scale] = high(row[4]).to_le_bytes();
        Self {
            first_ms: row[0] as i64,
            last_bits: row[1],
            span_ms: low(row[2]),
            delta_ms: high(row[2]),
            last_slab: low(row[3]),
            append_id: high(row[3]),
            append_id_from_ms: low(row[4]),
            n_samples,
            used,
            run,
            scale: Scale(scale),
        }
    }

    /// Encodes a row.
    #[inline]
    pub(crate) fn to_row(self) -> ChunkRow {
        let word = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let small = u32::from_le_bytes([self.n_samples, self.used, self.run, self.scale.0]);
        [
            self.first_ms as u64,
            self.last_bits,
            word(self.span_ms, self.delta_ms),
            word(self.last_slab, self.append_id),
            word(self.append_id_from_ms, small),
        ]
    }

    /// Returns `true` if the chunk has room for a sample at a timestamp newer than its last sample.
    #[inline]
    pub(crate) fn accepts(&self, timestamp_ms: i64) -> bool {
        self.n_samples == 0
            || self.n_samples < CHUNK_SAMPLES_MAX
                && u32::try_from(timestamp_ms.wrapping_sub(self.first_ms)).is_ok()
    }

    /// Appends a sample that the chunk accepts.
    #[inline]
    pub(crate) fn append(&mut self, slabs: &mut SlabChains, sample: Sample) {
        debug_assert!(self.accepts(sample.timestamp_ms), "the caller has checked");
        if self.n_samples == 0 {
            self.first_ms = sample.timestamp_ms;
        }
        // Exact: checked by `accepts`.
        let span_ms = sample.timestamp_ms.wrapping_sub(self.first_ms) as u32;
        debug_assert!(
            self.n_samples == 0 || span_ms > self.span_ms,
            "samples of a chunk ascend in time"
        );
        let delta_ms = span_ms.wrapping_sub(self.span_ms);
        let delta_of_delta_ms = i64::from(delta_ms) - i64::from(self.delta_ms);
        let bits = sample.value.to_bits();
        if delta_of_delta_ms == 0 && bits == self.last_bits && self.n_samples > 0 {
            self.repeat(slabs);
        } else {
            let last = f64::from_bits(self.last_bits);
            let (bytes, size) =
                float::encode(delta_of_delta_ms, last, sample.value, &mut self.scale).bytes();
            self.write(slabs, bytes, size);
            self.run = 0;
        }
        self.span_ms = span_ms;
        self.delta_ms = delta_ms;
        self.last_bits = bits;
        self.n_samples += 1;
    }

    /// Appends the last value again, after the last interval. Usually increments the last byte.
    #[inline]
    fn repeat(&mut self, slabs: &mut SlabChains) {
        if self.run > 0 && self.run < RUN_MAX {
            self.run += 1;
            slabs.payload_mut(self.last_slab)[usize::from(self.used) - 1] =
                float::run_tag(self.run);
        } else {
            let mut bytes = [0; 16];
            bytes[0] = float::run_tag(1);
            self.write(slabs, bytes, 1);
            self.run = 1;
        }
    }

    /// Appends the first `size` bytes.
    #[inline]
    fn write(&mut self, slabs: &mut SlabChains, bytes: [u8; 16], size: usize) {
        let used = usize::from(self.used);
        // Fast path: few bytes, and room for eight. Excess bytes are overwritten later.
        if self.last_slab != 0 && size <= 8 && used + 8 <= PAYLOAD_SIZE {
            slabs.payload_mut(self.last_slab)[used..used + 8].copy_from_slice(&bytes[..8]);
            self.used += size as u8;
            return;
        }
        self.write_on(slabs, &bytes[..size]);
    }

    fn write_on(&mut self, slabs: &mut SlabChains, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.last_slab == 0 || usize::from(self.used) == PAYLOAD_SIZE {
                self.last_slab = slabs.push(self.last_slab);
                self.used = 0;
            }
            let used = usize::from(self.used);
            let (here, rest) = bytes.split_at(bytes.len().min(PAYLOAD_SIZE - used));
            slabs.payload_mut(self.last_slab)[used..used + here.len()].copy_from_slice(here);
            self.used += here.len() as u8;
            bytes = rest;
        }
    }

    /// Returns the byte before the position of the next append; 0 for an empty chunk.
    #[inline]
    pub(crate) fn last_byte(&self, slabs: &SlabChains) -> u8 {
        if self.last_slab == 0 {
            0
        } else {
            slabs.payload(self.last_slab)[usize::from(self.used) - 1]
        }
    }

    /// Returns the time from the first sample to the last.
    #[inline]
    pub(crate) fn span_ms(&self) -> u32 {
        self.span_ms
    }

    /// Returns the time between the last two samples.
    #[inline]
    pub(crate) fn delta_ms(&self) -> i64 {
        i64::from(self.delta_ms)
    }

    /// Returns the number of samples.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        usize::from(self.n_samples)
    }

    /// Returns the newest sample.
    #[inline]
    pub(crate) fn last(&self) -> Option<Sample> {
        let range = self.range()?;
        Some(Sample {
            timestamp_ms: range.end_ms,
            value: f64::from_bits(self.last_bits),
        })
    }

    /// Returns the range of the samples, or `None` if there are none.
    #[inline]
    pub(crate) fn range(&self) -> Option<TimeRange> {
        let end_ms = self.first_ms.wrapping_add(i64::from(self.span_ms));
        (self.n_samples > 0).then_some(TimeRange {
            start_ms: self.first_ms,
            end_ms,
        })
    }

    /// Returns the sample that decoding begins with, or `None` if the chunk is empty.
    #[inline]
    pub(crate) fn newest(&self) -> Option<Newest> {
        let last = self.last()?;
        let delta_ms = self.delta_ms;
        let n_samples = self.n_samples;
        Some(Newest {
            timestamp_ms: last.timestamp_ms,
            bits: self.last_bits,
            delta_ms,
            n_samples,
        })
    }

    /// Appends the encoded bytes to `dst` in decoding order, and returns their number.
    pub(crate) fn copy_to(&self, slabs: &SlabChains, dst: &mut Vec<u8>) -> usize {
        let start = dst.len();
        let mut used = usize::from(self.used);
        for number in slabs.chain(self.last_slab) {
            dst.extend(slabs.payload(number)[..used].iter().rev());
            used = PAYLOAD_SIZE;
        }
        dst.len() - start
    }

    /// Returns the number of the last slab, and about how many slabs are read for the samples
    /// from `from_ms` on.
    pub(crate) fn slabs_from(&self, from_ms: i64) -> (u32, usize) {
        let n_slabs = if !self.has_short_tail(from_ms) {
            usize::MAX
        } else if let Some(newest) = self.newest()
            && self.repeats_from(newest.timestamp_ms, from_ms)
        {
            0
        } else {
            TAIL_SIZE.div_ceil(PAYLOAD_SIZE)
        };
        (self.last_slab, n_slabs)
    }

    /// Returns `true` if only a few samples are at or after `from_ms`, assuming equal intervals.
    /// Then [`Chunk::read_tail`] reads less than [`Chunk::copy_to`] copies.
    #[inline]
    pub(crate) fn has_short_tail(&self, from_ms: i64) -> bool {
        let end_ms = self.first_ms.wrapping_add(i64::from(self.span_ms));
        let n_expected = end_ms.saturating_sub(from_ms) / i64::from(self.delta_ms.max(1));
        n_expected < TAIL_SAMPLES && n_expected < i64::from(self.n_samples) / 2
    }

    /// Reads the samples from `from_ms` on into `tail`, and at most about twice the slabs that
    /// contain them.
    ///
    /// # Errors
    /// [`Damaged`] if memory was overwritten.
    pub(crate) fn read_tail(
        &self,
        slabs: &SlabChains,
        from_ms: i64,
        tail: &mut Tail,
    ) -> Result<(), Damaged> {
        tail.clear();
        let Some(newest) = self.newest() else {
            return Ok(());
        };
        // Fast path: a constant series. No bytes are read.
        if self.repeats_from(newest.timestamp_ms, from_ms) {
            let n_before = (newest.timestamp_ms - from_ms) / i64::from(self.delta_ms);
            let repeated_ms = (0..=n_before)
                .rev()
                .map(|n| newest.timestamp_ms - n * i64::from(self.delta_ms));
            tail.timestamps_ms.extend(repeated_ms);
            tail.values
                .resize(tail.timestamps_ms.len(), f64::from_bits(self.last_bits));
            return Ok(());
        }
        let mut used = usize::from(self.used);
        let mut tried_size = TAIL_SIZE;
        for number in slabs.chain(self.last_slab) {
            tail.bytes
                .extend(slabs.payload(number)[..used].iter().rev());
            used = PAYLOAD_SIZE;
            // Decodes again only when the bytes have doubled.
            if tail.bytes.len() >= tried_size {
                if float::decode(
                    newest,
                    from_ms,
                    &tail.bytes,
                    &mut tail.timestamps_ms,
                    &mut tail.values,
                )
                .is_ok()
                {
                    return Ok(());
                }
                tried_size *= 2;
            }
        }
        float::decode(
            newest,
            from_ms,
            &tail.bytes,
            &mut tail.timestamps_ms,
            &mut tail.values,
        )
    }

    /// Returns `true` if the last byte encodes a run, and all samples from `from_ms` on are in the
    /// run or directly before it. They have the last value and equal intervals. `end_ms` is the
    /// time of the last sample.
    #[inline]
    fn repeats_from(&self, end_ms: i64, from_ms: i64) -> bool {
        let run_ms = i64::from(self.run) * i64::from(self.delta_ms);
        run_ms > 0 && from_ms <= end_ms && end_ms.wrapping_sub(run_ms) <= from_ms
    }

    /// Returns the bits of the value at a timestamp. Decodes the chunk down to it.
    pub(crate) fn bits_at(&self, slabs: &SlabChains, timestamp_ms: i64) -> Option<u64> {
        let last = self
            .last()
            .filter(|last| self.first_ms <= timestamp_ms && timestamp_ms <= last.timestamp_ms)?;
        // Fast path: a repeated request.
        if timestamp_ms == last.timestamp_ms {
            return Some(self.last_bits);
        }
        let mut tail = Tail::default();
        self.read_tail(slabs, timestamp_ms, &mut tail).ok()?;
        tail.samples()
            .next()
            .filter(|first| first.timestamp_ms == timestamp_ms)
            .map(|first| first.value.to_bits())
    }
}

/// The last samples of a chunk, and their encoded bytes. Reused from series to series.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    bytes: Vec<u8>,
    timestamps_ms: Vec<i64>,
    values: Vec<f64>,
}

impl Tail {
    fn clear(&mut self) {
        self.bytes.clear();
        self.timestamps_ms.clear();
        self.values.clear();
    }

    /// Iterates over the samples in order of time.
    pub(crate) fn samples(&self) -> impl Iterator<Item = Sample> + '_ {
        self.timestamps_ms
            .iter()
            .zip(&self.values)
            .map(|(&timestamp_ms, &value)| Sample {
                timestamp_ms,
                value,
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Appends samples to several chunks in turn, as the samples of many series arrive. Returns the
    /// decoded samples and the encoded size of each chunk.
    fn through_chunks(chunks: &[Vec<(i64, u64)>]) -> (Vec<Vec<(i64, u64)>>, Vec<usize>) {
        let mut slabs = SlabChains::default();
        let mut rows = vec![[0; 5]; chunks.len()];
        for i in 0..chunks.iter().map(Vec::len).max().unwrap_or(0) {
            for (row, samples) in rows.iter_mut().zip(chunks) {
                let Some(&(timestamp_ms, bits)) = samples.get(i) else {
                    continue;
                };
                let mut chunk = Chunk::from_row(*row);
                assert!(chunk.accepts(timestamp_ms));
                chunk.append(
                    &mut slabs,
                    Sample {
                        timestamp_ms,
                        value: f64::from_bits(bits),
                    },
                );
                *row = chunk.to_row();
                assert_eq!(Chunk::from_row(*row), chunk);
            }
        }
        let read = |row: &ChunkRow| {
            let chunk = Chunk::from_row(*row);
            let mut bytes = Vec::new();
            let size = chunk.copy_to(&slabs, &mut bytes);
            let mut timestamps = Vec::new();
            let mut values = Vec::new();
            let newest = chunk.newest().unwrap();
            decode(newest, i64::MIN, &bytes, &mut timestamps, &mut values).unwrap();
            let mut tail = Tail::default();
            for (at, (&timestamp_ms, value)) in timestamps.iter().zip(&values).enumerate() {
                assert_eq!(chunk.bits_at(&slabs, timestamp_ms), Some(value.to_bits()));
                chunk.read_tail(&slabs, timestamp_ms, &mut tail).unwrap();
                assert_eq!(tail.timestamps_ms, timestamps[at..]);
                assert!(
                    tail.samples()
                        .zip(&values[at..])
                        .all(|(a, b)| a.value.to_bits() == b.to_bits())
                );
            }
            (
                timestamps
                    .into_iter()
                    .zip(values.into_iter().map(f64::to_bits))
                    .collect(),
                size,
            )
        };
        rows.iter().map(read).unzip()
    }

    fn any_bits() -> impl Strategy<Value = u64> {
        prop_oneof![
            any::<u64>(),
            any::<u64>().prop_map(|payload| payload | 0x7ff0_0000_0000_0000),
            (-100_i64..100).prop_map(|v| (v as f64).to_bits()),
            (-100_i64..100).prop_map(|v| (v as f64 / 100.0).to_bits()),
            (-100_i64..100).prop_map(|v| (v as f64 / 1e9).to_bits()),
            (0_u64..3).prop_map(|i| ((1_u64 << 52) as f64).to_bits() - 1 + i),
            proptest::sample::select(&[varve_model::staleness::STALE_NAN_BITS, 1 << 63, 0, 1]),
        ]
    }

    fn samples() -> impl Strategy<Value = Vec<(i64, u64)>> {
        let start = prop_oneof![Just(i64::MIN), Just(-5), Just(1_700_000_000_000)];
        let step = prop_oneof![4 => Just(15_000_u32), 1 => 1..100_u32, 1 => 1..10_000_000_u32];
        let bits = prop_oneof![3 => Just(None), 1 => any_bits().prop_map(Some)];
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
        fn every_double_and_time_round_trips_bit_for_bit(chunks in proptest::collection::vec(samples(), 1..4)) {
            prop_assert_eq!(through_chunks(&chunks).0, chunks);
        }
    }

    #[test]
    fn a_chunk_is_bounded_in_samples_and_time() {
        let mut chunk = Chunk::default();
        let mut slabs = SlabChains::default();
        assert!(chunk.accepts(i64::MIN) && chunk.range().is_none() && chunk.last().is_none());
        for i in 0..i64::from(CHUNK_SAMPLES_MAX) {
            assert!(
                chunk.accepts(i64::from(u32::MAX)) && !chunk.accepts(i64::from(u32::MAX) + 1)
                    || i == 0
            );
            chunk.append(
                &mut slabs,
                Sample {
                    timestamp_ms: i,
                    value: 0.0,
                },
            );
        }
        assert!(!chunk.accepts(1000));
        assert_eq!(
            chunk.range(),
            Some(TimeRange {
                start_ms: 0,
                end_ms: 239
            })
        );
    }

    #[test]
    fn the_end_of_a_constant_series_is_read_without_its_bytes() {
        let mut chunk = Chunk::default();
        let mut slabs = SlabChains::default();
        let mut tail = Tail::default();
        (0..20).for_each(|i| {
            chunk.append(
                &mut slabs,
                Sample {
                    timestamp_ms: i * 10,
                    value: 1.5,
                },
            )
        });
        for (from_ms, expect) in [(190, &[190][..]), (181, &[190]), (165, &[170, 180, 190])] {
            // No slabs: the bytes of the chunk are missing.
            chunk
                .read_tail(&SlabChains::default(), from_ms, &mut tail)
                .unwrap();
            assert_eq!(tail.timestamps_ms, expect, "from {from_ms}");
            assert_eq!(tail.values, vec![1.5; expect.len()]);
        }
    }

    #[test]
    fn counters_take_two_bytes_and_constants_and_gaps_almost_none() {
        let size = |value: fn(i64) -> f64| {
            through_chunks(&[(0..100).map(|i| (i * 30_000, value(i).to_bits())).collect()]).1[0]
        };
        assert_eq!(size(|i| i as f64 * 60.0), 1 + 5 + 98 * 2);
        assert_eq!(size(|_| 0.0), 1 + 4 + 98_usize.div_ceil(30));
        assert_eq!(
            size(|i| 1234.5 + i as f64 * 0.25),
            4 + 5 + 98 * 2,
            "decimals"
        );
    }
}

//! Replayed samples, grouped by series before they are applied to the heads.
//!
//! A request has about one sample for each of many series. Applied in log order, consecutive
//! samples would touch different chunks. So the samples of many requests are collected in bins, one
//! per range of slots. A full bin is sorted by slot, and each series appends its samples in one
//! run. This reads and writes the state of a series once, and branch prediction adapts to its
//! values.
//!
//! Invariant: the samples of a series stay in log order, because the first of two values for one
//! timestamp wins.

use varve_model::Sample;

use super::locations::SeriesLocation;
use super::stats::ReplayStats;
use crate::shard::Shard;

/// Capacity of a bin in samples per slot. Longer runs are no cheaper per sample.
const SAMPLES_PER_SLOT: usize = 8;
/// A bin covers at least 2^`SLOT_BITS_MIN` slots; more if there are so many slots that bins would
/// exceed [`BINS_MAX`].
const SLOT_BITS_MIN: u32 = 9;
/// Maximum bits of a slot within its bin: an entry stores it above the timestamp.
const SLOT_BITS_MAX: u32 = u64::BITS - TIME_BITS;
const TIME_BITS: u32 = 48;
/// Approximate maximum number of bins of a worker. Their write positions must fit the CPU cache.
const BINS_MAX: usize = 1024;

/// Samples of many requests, grouped by series.
pub(super) struct SampleBins<'a> {
    shards: &'a [Shard],
    slot_bits: u32,
    /// Maximum number of samples of a bin.
    capacity: usize,
    /// Bins by shard and slot range.
    bins: Vec<Vec<Vec<Entry>>>,
    sorted: Sorted,
}

/// A sample in its bin.
#[derive(Debug, Clone, Copy)]
struct Entry {
    /// The slot within the bin, above the timestamp in the lowest [`TIME_BITS`] bits.
    key: u64,
    value: f64,
}

/// The samples of a bin, sorted by slot. The memory is reused.
#[derive(Debug, Default)]
struct Sorted {
    samples: Vec<Sample>,
    /// The index after the last sample of each slot.
    ends: Vec<usize>,
}

impl<'a> SampleBins<'a> {
    /// Creates empty bins for the current series of all shards, or only of shard `only_shard`. The
    /// bins use at most `bytes` of memory.
    pub(super) fn new(shards: &'a [Shard], only_shard: Option<usize>, bytes: usize) -> Self {
        let mut n_slots = vec![0; shards.len()];
        for (idx, shard) in shards.iter().enumerate() {
            if only_shard.is_none_or(|only_shard| only_shard == idx) {
                n_slots[idx] = shard.head().len();
            }
        }
        let n_bins = |bits| {
            n_slots
                .iter()
                .map(|n_slots| n_slots.div_ceil(1_usize << bits))
                .sum::<usize>()
        };
        let bits = (SLOT_BITS_MIN..SLOT_BITS_MAX)
            .find(|&bits| n_bins(bits) <= BINS_MAX)
            .unwrap_or(SLOT_BITS_MAX);
        let capacity = bytes / size_of::<Entry>() / n_bins(bits).max(1);
        Self {
            shards,
            slot_bits: bits,
            capacity: capacity.clamp(1, SAMPLES_PER_SLOT << bits),
            bins: n_slots
                .iter()
                .map(|n_slots| vec![Vec::new(); n_slots.div_ceil(1 << bits)])
                .collect(),
            sorted: Sorted::default(),
        }
    }

    /// Adds a sample. If its bin is full, applies the samples of the bin.
    #[inline]
    pub(super) fn push(
        &mut self,
        location: SeriesLocation,
        sample: Sample,
        stats: &mut ReplayStats,
    ) {
        let shard = usize::from(location.shard);
        let bin = (location.slot >> self.slot_bits) as usize;
        let Some(entry) = Entry::new(location.slot & ((1 << self.slot_bits) - 1), sample) else {
            self.drain_bin(shard, bin, stats);
            return self.apply_one(shard, location.slot, sample, stats);
        };
        let entries = &mut self.bins[shard][bin];
        if entries.capacity() == 0 {
            entries.reserve_exact(self.capacity);
        }
        entries.push(entry);
        if entries.len() >= self.capacity {
            self.drain_bin(shard, bin, stats);
        }
    }

    /// Applies all samples.
    pub(super) fn drain(&mut self, stats: &mut ReplayStats) {
        for shard in 0..self.bins.len() {
            for bin in 0..self.bins[shard].len() {
                self.drain_bin(shard, bin, stats);
            }
        }
    }

    fn drain_bin(&mut self, shard: usize, bin: usize, stats: &mut ReplayStats) {
        let entries = &mut self.bins[shard][bin];
        if entries.is_empty() {
            return;
        }
        self.sorted.sort(entries, 1 << self.slot_bits);
        entries.clear();
        let Sorted { samples, ends } = &self.sorted;
        // Slots are less than 2^31.
        let first = (bin << self.slot_bits) as u32;
        self.shards[shard]
            .head_mut()
            .replay_runs(first, ends, samples, |replayed, n| stats.count(replayed, n));
    }

    /// Applies one sample whose timestamp does not fit into an entry.
    #[cold]
    fn apply_one(&self, shard: usize, slot: u32, sample: Sample, stats: &mut ReplayStats) {
        self.shards[shard]
            .head_mut()
            .replay_runs(slot, &[1], &[sample], |replayed, n| {
                stats.count(replayed, n)
            });
    }
}

impl Entry {
    /// Returns `None` if the timestamp does not fit [`TIME_BITS`] bits (thousands of years from
    /// now).
    #[inline]
    fn new(
        slot: u32,
        Sample {
            timestamp_ms,
            value,
        }: Sample,
    ) -> Option<Self> {
        let low = timestamp_ms as u64 & ((1 << TIME_BITS) - 1);
        let entry = Self {
            key: u64::from(slot) << TIME_BITS | low,
            value,
        };
        (entry.sample().timestamp_ms == timestamp_ms).then_some(entry)
    }

    #[inline]
    fn slot(self) -> usize {
        (self.key >> TIME_BITS) as usize
    }

    #[inline]
    fn sample(self) -> Sample {
        let above = u64::BITS - TIME_BITS;
        Sample {
            timestamp_ms: (self.key << above) as i64 >> above,
            value: self.value,
        }
    }
}

impl Sorted {
    /// Sorts the samples of `n_slots` slots by slot; stable.
    fn sort(&mut self, entries: &[Entry], n_slots: usize) {
        self.ends.clear();
        self.ends.resize(n_slots, 0);
        for entry in entries {
            self.ends[entry.slot()] += 1;
        }
        let mut start = 0;
        for end in &mut self.ends {
            start += std::mem::replace(end, start);
        }
        self.samples.resize(
            entries.len(),
            Sample {
                timestamp_ms: 0,
                value: 0.0,
            },
        );
        for entry in entries {
            let next = &mut self.ends[entry.slot()];
            self.samples[*next] = entry.sample();
            *next += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use varve_env::RealFs;

    use super::*;
    use crate::batch::SeriesRef;
    use crate::head::{AnySample, HeadCopies};
    use crate::isolation::ReadView;
    use crate::options::WalSync;
    use crate::wal::{Log, LogOptions};
    use varve_model::{Labels, SampleColumns, TimeRange};

    const N_SERIES: u32 = 1200;

    fn shards(dir: &std::path::Path) -> Vec<Shard> {
        let shard = |idx: u16| {
            let dir = dir.join(idx.to_string());
            let fs = Arc::new(RealFs);
            let options = LogOptions {
                number: 0,
                dir,
                fs,
                sync: WalSync::Never,
                segment_size_bytes: 1 << 20,
            };
            let shard = Shard::new(
                idx,
                1,
                crate::shard::SharedLog::new(Log::open(options).unwrap()),
                usize::MAX,
            );
            for i in 0..u64::from(N_SERIES) {
                let labels = Labels::from_pairs([("i", i.to_string().as_str())]).unwrap();
                shard.head_mut().load_labels(&labels, SeriesRef(i)).unwrap();
            }
            shard
        };
        (0..2).map(shard).collect()
    }

    fn contents(shards: &[Shard]) -> Vec<Vec<(i64, u64)>> {
        let mut all = Vec::new();
        for shard in shards {
            let head = shard.head();
            for slot in 0..N_SERIES {
                let mut copies = HeadCopies::default();
                let mut out = SampleColumns::default();
                let visible = ReadView::new(1000, Vec::new());
                head.copy(
                    &[head.slot_ref(slot)],
                    TimeRange::ALL,
                    &visible,
                    &mut copies,
                );
                copies.read(0, TimeRange::ALL, &mut out).unwrap();
                all.push(
                    out.iter()
                        .map(|sample| (sample.timestamp_ms, sample.value.to_bits()))
                        .collect(),
                );
            }
        }
        all
    }

    /// Samples in many rounds, some out of order, repeated, conflicting, or of extreme timestamps.
    fn log() -> impl Iterator<Item = (SeriesLocation, Sample)> {
        let mut state = 7_u64;
        let mut next = move |n: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % n
        };
        (0..60_000_u32).map(move |i| {
            let location = SeriesLocation {
                shard: next(2) as u16,
                slot: (i + next(50) as u32) % N_SERIES,
            };
            let timestamp_ms = match next(400) {
                0 => i64::MIN + next(3) as i64,
                1 => i64::MAX - next(3) as i64,
                2..20 => i64::from(i) * 10 - next(5_000) as i64,
                _ => i64::from(i / N_SERIES) * 30_000,
            };
            (
                location,
                Sample {
                    timestamp_ms,
                    value: next(3) as f64,
                },
            )
        })
    }

    #[test]
    fn applying_samples_in_runs_equals_applying_them_one_by_one() {
        let dir = tempfile::tempdir().unwrap();
        let one_by_one = shards(&dir.path().join("expected"));
        let mut expected = ReplayStats::default();
        for (SeriesLocation { shard, slot }, sample) in log() {
            let replayed = one_by_one[usize::from(shard)]
                .head_mut()
                .replay(slot, AnySample::Float(sample));
            expected.count(replayed, 1);
        }
        assert!(expected.n_repeated > 100 && expected.n_conflicting > 100);
        let expected_contents = contents(&one_by_one);
        for bytes in [0, 1 << 10, 1 << 16, 1 << 20, usize::MAX] {
            let shards = shards(&dir.path().join(bytes.to_string()));
            let mut stats = ReplayStats::default();
            let mut bins = SampleBins::new(&shards, None, bytes);
            for (at, (location, sample)) in log().enumerate() {
                bins.push(location, sample, &mut stats);
                let n_binned: usize = bins.bins.iter().flatten().map(Vec::len).sum();
                assert!(
                    n_binned * size_of::<Entry>() <= bytes.max(6 * size_of::<Entry>()),
                    "the bound holds"
                );
                if at == 40_000 {
                    bins.drain(&mut stats);
                    assert!(bins.bins.iter().flatten().all(Vec::is_empty));
                }
            }
            bins.drain(&mut stats);
            assert_eq!(stats, expected, "{bytes} bytes");
            assert!(contents(&shards) == expected_contents, "{bytes} bytes");
        }
    }

    #[test]
    fn the_number_and_the_size_of_bins_are_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let shards = shards(dir.path());
        let bins_of = |only_shard| {
            SampleBins::new(&shards, only_shard, 1 << 30)
                .bins
                .iter()
                .map(Vec::len)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            (bins_of(None), bins_of(Some(1))),
            (vec![3, 3], vec![0, 3]),
            "512 slots a bin"
        );
        assert_eq!(
            SampleBins::new(&shards, None, 1 << 30).capacity,
            SAMPLES_PER_SLOT * 512
        );
        assert_eq!(SampleBins::new(&shards, Some(0), 3 << 14).capacity, 1 << 10);
    }
}

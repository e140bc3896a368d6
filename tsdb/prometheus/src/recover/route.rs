//! Samples out of records, on their way to the shards of their series.

use varve_tsdb::fs::damage::{DamageKind, DamageReport};

use super::input::Log;
use super::queue::Record;
use super::series::{SeriesIdx, SeriesTable};
use super::shard::{EXTRA, Extra, FullSample, Item, Share, Value};
use super::unknown::UnknownSample;
use crate::wal::{
    BadRecord, RecordType, RefHistogram, RefSample, RefTombstone, decode_exemplars, decode_histograms, decode_metadata,
    decode_tombstones, for_each_sample,
};

/// How series are dealt out to shards, by the lowest bits of their places: those that are defined one after the other, and
/// mostly scraped together, have places side by side in each.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shards {
    n_bits: u32,
}

impl Shards {
    /// At least so many shards.
    pub(super) fn at_least(n: usize) -> Self {
        Self { n_bits: n.next_power_of_two().ilog2() }
    }

    pub(super) fn len(self) -> usize {
        1 << self.n_bits
    }

    /// Returns the places of a shard when there are so many series.
    pub(super) fn n_slots(self, shard: usize, n_series: usize) -> usize {
        (n_series + self.len() - 1 - shard) >> self.n_bits
    }

    /// Returns the shard of a series, and its place there.
    #[inline]
    pub(super) fn place(self, series: SeriesIdx) -> (usize, u32) {
        ((series & ((1 << self.n_bits) - 1)) as usize, series >> self.n_bits)
    }
}

/// What some records that follow each other hold, by shard.
#[derive(Default)]
pub(super) struct Routed {
    is_late: bool,
    /// What the times of items are counted from; none before the first one.
    base_ms: Option<i64>,
    shards: Vec<Vec<Item>>,
    extras: Vec<Extra>,
    pub(super) unknown: Vec<UnknownSample>,
    pub(super) n_covered: u64,
    pub(super) n_unknown_schema: u64,
    pub(super) n_exemplars: u64,
    pub(super) n_metadata: u64,
    pub(super) damage: DamageReport,
}

/// Finds the series of samples.
#[derive(Clone, Copy)]
pub(super) struct Router<'a> {
    pub(super) table: &'a SeriesTable,
    pub(super) shards: Shards,
    pub(super) valid_from_ms: i64,
}

impl Router<'_> {
    /// Decodes the samples of records of one log and finds their series.
    pub(super) fn route(self, records: &[Record], routed: &mut Routed) {
        routed.clear(self.shards.len());
        let mut histograms = Vec::new();
        for record in records {
            routed.is_late = record.log == Log::Late;
            if let Err(bad) = self.route_record(record, &mut histograms, routed) {
                routed.damage.push(&record.segment.path, record.offset, DamageKind::Corrupt, bad.to_string());
            }
        }
    }

    fn route_record(
        self,
        record: &Record,
        histograms: &mut Vec<RefHistogram>,
        routed: &mut Routed,
    ) -> Result<(), BadRecord> {
        match record.record_type {
            Some(RecordType::Samples | RecordType::SamplesV2) => {
                for_each_sample(&record.bytes, |sample| self.route_sample(&sample, routed))?;
            }
            Some(
                RecordType::Histograms
                | RecordType::FloatHistograms
                | RecordType::CustomHistograms
                | RecordType::CustomFloatHistograms
                | RecordType::HistogramsV2
                | RecordType::FloatHistogramsV2,
            ) => {
                let decoded = decode_histograms(&record.bytes, histograms);
                histograms.drain(..).for_each(|histogram| self.route_histogram(histogram, routed));
                routed.n_unknown_schema += decoded?;
            }
            Some(RecordType::Tombstones) => {
                let mut tombstones = Vec::new();
                // Damage was noted when deletions were looked for.
                let _ = decode_tombstones(&record.bytes, &mut tombstones);
                tombstones.iter().filter(|it| is_forget(it)).for_each(|it| self.route_forget(it, routed));
            }
            Some(RecordType::Exemplars) => {
                let mut exemplars = Vec::new();
                let decoded = decode_exemplars(&record.bytes, &mut exemplars);
                routed.n_exemplars += exemplars.len() as u64;
                decoded?;
            }
            Some(RecordType::Metadata) => {
                let mut metadata = Vec::new();
                let decoded = decode_metadata(&record.bytes, &mut metadata);
                routed.n_metadata += metadata.len() as u64;
                decoded?;
            }
            Some(RecordType::Series | RecordType::MmapMarkers) | None => {}
        }
        Ok(())
    }

    #[inline]
    fn route_sample(self, sample: &RefSample, routed: &mut Routed) {
        let &RefSample { series, timestamp_ms, start_ms, value } = sample;
        if timestamp_ms < self.valid_from_ms && !routed.is_late {
            routed.n_covered += 1;
            return;
        }
        let Some(found) = self.table.find(series) else {
            routed.unknown.push(UnknownSample { series, timestamp_ms, value: Value::Float(value) });
            return;
        };
        match routed.step_to(timestamp_ms).filter(|_| start_ms == 0) {
            Some(step_ms) => self.push(found, value.to_bits(), step_ms, routed),
            None => self.push_sample(found, timestamp_ms, start_ms, Value::Float(value), routed),
        }
    }

    fn route_histogram(self, sample: RefHistogram, routed: &mut Routed) {
        let RefHistogram { series, timestamp_ms, start_ms, histogram } = sample;
        if timestamp_ms < self.valid_from_ms && !routed.is_late {
            routed.n_covered += 1;
            return;
        }
        let Some(found) = self.table.find(series) else {
            routed.unknown.push(UnknownSample { series, timestamp_ms, value: Value::Histogram(histogram) });
            return;
        };
        self.push_sample(found, timestamp_ms, start_ms, Value::Histogram(histogram), routed);
    }

    fn route_forget(self, tombstone: &RefTombstone, routed: &mut Routed) {
        if let Some(series) = self.table.find(tombstone.series) {
            self.push_extra(series, Extra::Forget, routed);
        }
    }

    fn push_sample(self, series: SeriesIdx, timestamp_ms: i64, start_ms: i64, value: Value, routed: &mut Routed) {
        self.push_extra(series, Extra::Sample(FullSample { timestamp_ms, start_ms, value }), routed);
    }

    fn push_extra(self, series: SeriesIdx, extra: Extra, routed: &mut Routed) {
        let place = routed.extras.len() as u64;
        routed.extras.push(extra);
        self.push(series, place, EXTRA, routed);
    }

    #[inline]
    fn push(self, series: SeriesIdx, bits: u64, step_ms: u32, routed: &mut Routed) {
        let (shard, slot) = self.shards.place(series);
        routed.shards[shard].push(Item { bits, slot, step_ms });
    }
}

impl Routed {
    /// Forgets what a batch before had, and keeps the memory.
    fn clear(&mut self, n_shards: usize) {
        let mut shards = std::mem::take(&mut self.shards);
        let (mut extras, mut unknown) = (std::mem::take(&mut self.extras), std::mem::take(&mut self.unknown));
        shards.resize_with(n_shards, Vec::new);
        shards.iter_mut().for_each(Vec::clear);
        extras.clear();
        unknown.clear();
        *self = Self { shards, extras, unknown, ..Self::default() };
    }

    /// Returns a time as it stands in an item, if it can.
    #[inline]
    fn step_to(&mut self, timestamp_ms: i64) -> Option<u32> {
        // The first one is in the middle of those that can.
        let base_ms = *self.base_ms.get_or_insert(timestamp_ms.wrapping_sub(1 << (u32::BITS - 1)));
        u32::try_from(timestamp_ms.wrapping_sub(base_ms)).ok().filter(|&step_ms| step_ms != EXTRA)
    }

    /// Returns what goes to a shard.
    pub(super) fn share(&self, shard: usize) -> Share<'_> {
        let Self { shards, extras, is_late, .. } = self;
        Share { items: &shards[shard], extras, base_ms: self.base_ms.unwrap_or(0), is_late: *is_late }
    }
}

/// A deletion of all of time says that the series was moved to a block because it went silent.
pub(super) fn is_forget(tombstone: &RefTombstone) -> bool {
    (tombstone.min_ms, tombstone.max_ms) == (i64::MIN, i64::MAX)
}

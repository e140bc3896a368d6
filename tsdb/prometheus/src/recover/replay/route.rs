//! Routes samples of records to the shards of their series.

use varve_env::damage::{DamageKind, DamageReport};
use varve_model::TimeRange;

use super::record_reader::Record;
use crate::recover::exemplars_and_metadata::FoundBeside;
use crate::recover::series::{SeriesIdx, SeriesTable};
use crate::recover::shard::{
    EXTRA, Extra, FullSample, RoutedSample, ShardBatch, ShardLayout, Value,
};
use crate::recover::unknown_series::UnknownSample;
use crate::wal::{
    LogKind, RecordContent, RecordError, RecordType, RefHistogram, RefSample, RefTombstone,
    decode_histograms, for_each_sample,
};

/// Content of some consecutive records, by shard.
#[derive(Default)]
pub(crate) struct Routed {
    is_out_of_order: bool,
    /// Base of the sample timestamps, set by the first sample.
    base_ms: Option<i64>,
    shards: Vec<Vec<RoutedSample>>,
    extras: Vec<Extra>,
    pub(crate) unknown: Vec<UnknownSample>,
    /// Samples that were decoded, including those with an unknown schema.
    pub(crate) n_found: u64,
    /// Samples that blocks have. The shards count more of them if the WBL is lost.
    pub(crate) n_covered: u64,
    pub(crate) n_unknown_schema: u64,
    pub(crate) n_exemplars: u64,
    pub(crate) n_metadata: u64,
    pub(crate) beside: FoundBeside,
    pub(crate) damage: DamageReport,
}

/// Routes samples to their series.
#[derive(Clone, Copy)]
pub(crate) struct Router<'a> {
    pub(crate) table: &'a SeriesTable,
    pub(crate) layout: ShardLayout,
    pub(crate) min_valid_ms: i64,
    /// Whether the shards decide which samples before `min_valid_ms` are in blocks. Otherwise all are.
    pub(crate) is_wbl_lost: bool,
    /// Collect exemplars and metadata. Otherwise they are only counted.
    pub(crate) keeps_beside: bool,
}

impl Router<'_> {
    /// Decodes the samples of records of one log and routes them.
    pub(crate) fn route(self, records: &[Record], routed: &mut Routed) {
        routed.clear(self.layout.len());
        let mut histograms = Vec::new();
        for record in records {
            routed.is_out_of_order = record.log == LogKind::Wbl;
            if let Err(bad) = self.route_record(record, &mut histograms, routed) {
                routed.damage.push(
                    &record.segment.path,
                    record.offset,
                    DamageKind::Corrupt,
                    bad.to_string(),
                );
            }
        }
    }

    fn route_record(
        self,
        record: &Record,
        histograms: &mut Vec<RefHistogram>,
        routed: &mut Routed,
    ) -> Result<(), RecordError> {
        match record.record_type {
            Some(RecordType::Samples | RecordType::SamplesV2) => {
                for_each_sample(&record.bytes, |sample| {
                    routed.n_found += 1;
                    self.route_sample(&sample, routed);
                })?;
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
                routed.n_found += histograms.len() as u64;
                for RefHistogram {
                    series,
                    timestamp_ms,
                    start_ms,
                    histogram,
                } in histograms.drain(..)
                {
                    let value = Value::Histogram(histogram);
                    self.route_value(
                        series,
                        FullSample {
                            timestamp_ms,
                            start_ms,
                            value,
                        },
                        routed,
                    );
                }
                let n_unknown_schema = decoded?;
                routed.n_found += n_unknown_schema;
                routed.n_unknown_schema += n_unknown_schema;
            }
            Some(RecordType::Series) | None => {}
            Some(other) => self.route_other(other, record, routed)?,
        }
        Ok(())
    }

    /// Routes a record of another type: counts exemplars and metadata, and collects them if they are
    /// kept.
    fn route_other(
        self,
        record_type: RecordType,
        record: &Record,
        routed: &mut Routed,
    ) -> Result<(), RecordError> {
        let (content, bad) = RecordContent::decode(record_type, &record.bytes);
        match content {
            RecordContent::Exemplars(found) => {
                routed.n_exemplars += found.len() as u64;
                if self.keeps_beside {
                    routed.beside.add_exemplars(&found);
                }
            }
            RecordContent::Metadata(found) => {
                routed.n_metadata += found.len() as u64;
                if self.keeps_beside {
                    routed.beside.add_metadata(&found, self.table);
                }
            }
            // Damage was reported with the tombstones.
            RecordContent::Tombstones(found) => {
                for tombstone in &found {
                    self.route_tombstone(tombstone, routed);
                }
                return Ok(());
            }
            _ => {}
        }
        bad.map_or(Ok(()), Err)
    }

    #[inline]
    fn route_sample(self, sample: &RefSample, routed: &mut Routed) {
        let &RefSample {
            series,
            timestamp_ms,
            start_ms,
            value,
        } = sample;
        // Fast path: a sample that fits.
        if start_ms == 0
            && !self.is_covered(timestamp_ms, routed)
            && let Some(found) = self.table.find(series)
            && let Some(offset_ms) = routed.offset_of(timestamp_ms)
        {
            return self.push(found, value.to_bits(), offset_ms, routed);
        }
        self.route_value(
            series,
            FullSample {
                timestamp_ms,
                start_ms,
                value: Value::Float(value),
            },
            routed,
        );
    }

    /// Routes a sample of any kind.
    fn route_value(self, series: u64, sample: FullSample, routed: &mut Routed) {
        let timestamp_ms = sample.timestamp_ms;
        if self.is_covered(timestamp_ms, routed) {
            routed.n_covered += 1;
        } else if let Some(found) = self.table.find(series) {
            self.push_extra(found, Extra::Sample(sample), routed);
        } else {
            routed.unknown.push(UnknownSample {
                series,
                timestamp_ms,
                value: sample.value,
            });
        }
    }

    /// Returns `true` if blocks have the sample of this time.
    #[inline]
    fn is_covered(self, timestamp_ms: i64, routed: &Routed) -> bool {
        timestamp_ms < self.min_valid_ms && !routed.is_out_of_order && !self.is_wbl_lost
    }

    /// Routes the tombstones whose position in the log matters: others apply to the whole series.
    fn route_tombstone(self, tombstone: &RefTombstone, routed: &mut Routed) {
        let Some(series) = self.table.find(tombstone.series) else {
            return;
        };
        if is_eviction(tombstone) {
            self.push_extra(series, Extra::Evict, routed);
        } else if self.is_wbl_lost && tombstone.max_ms < self.min_valid_ms {
            let range = TimeRange {
                start_ms: tombstone.min_ms,
                end_ms: tombstone.max_ms,
            };
            self.push_extra(series, Extra::Delete(range), routed);
        }
    }

    fn push_extra(self, series: SeriesIdx, extra: Extra, routed: &mut Routed) {
        let index = routed.extras.len() as u64;
        routed.extras.push(extra);
        self.push(series, index, EXTRA, routed);
    }

    #[inline]
    fn push(self, series: SeriesIdx, bits: u64, offset_ms: u32, routed: &mut Routed) {
        let (shard, slot) = self.layout.locate(series);
        routed.shards[shard].push(RoutedSample {
            bits,
            slot,
            offset_ms,
        });
    }
}

impl Routed {
    /// Clears the samples of the batch before and keeps the memory.
    fn clear(&mut self, n_shards: usize) {
        let mut shards = std::mem::take(&mut self.shards);
        let mut extras = std::mem::take(&mut self.extras);
        let mut unknown = std::mem::take(&mut self.unknown);
        shards.resize_with(n_shards, Vec::new);
        shards.iter_mut().for_each(Vec::clear);
        extras.clear();
        unknown.clear();
        *self = Self {
            shards,
            extras,
            unknown,
            ..Self::default()
        };
    }

    /// Returns the offset of a timestamp to the base, if it fits.
    #[inline]
    fn offset_of(&mut self, timestamp_ms: i64) -> Option<u32> {
        // The first timestamp gets the middle of the range.
        let base_ms = *self
            .base_ms
            .get_or_insert(timestamp_ms.wrapping_sub(1 << (u32::BITS - 1)));
        u32::try_from(timestamp_ms.wrapping_sub(base_ms))
            .ok()
            .filter(|&offset_ms| offset_ms != EXTRA)
    }

    /// Returns the samples of a shard.
    pub(crate) fn for_shard(&self, shard: usize) -> ShardBatch<'_> {
        let Self {
            shards,
            extras,
            is_out_of_order,
            ..
        } = self;
        ShardBatch {
            items: &shards[shard],
            extras,
            base_ms: self.base_ms.unwrap_or(0),
            is_out_of_order: *is_out_of_order,
        }
    }
}

/// Returns `true` for a tombstone of all of time: Prometheus writes it when it evicts a stale
/// series to a block.
pub(crate) fn is_eviction(tombstone: &RefTombstone) -> bool {
    (tombstone.min_ms, tombstone.max_ms) == (i64::MIN, i64::MAX)
}

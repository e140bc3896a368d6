//! Resolves a batch of records: creates the series that it defines, and routes its samples to their
//! series.
//!
//! A batch is resolved while the previous batch is applied to the shards. Resolving does not access
//! the shards.

use std::ops::Range;

use hashbrown::HashMap;
use rayon::prelude::*;
use varve_env::damage::{DamageKind, DamageReport};
use varve_model::TimeRange;

use super::record_reader::Record;
use super::route::{Routed, Router, is_eviction};
use crate::recover::input::HeadChunkList;
use crate::recover::input::Input;
use crate::recover::report::RecordCounts;
use crate::recover::series::{Definitions, Resolved, SeriesIdx, SeriesTable};
use crate::recover::shard::{Shard, ShardLayout};
use crate::wal::{RecordType, RefTombstone, decode_tombstones};

/// A resolved batch.
#[derive(Default)]
pub(crate) struct ResolvedBatch {
    /// Number of series at the end of the batch.
    n_series: usize,
    /// For each shard, slots of series with a new ref, and the head chunks of that ref.
    heads: Vec<Vec<(u32, Range<usize>)>>,
    /// Samples, in the order of the records.
    pub(crate) routed: Vec<Routed>,
    pub(crate) records: RecordCounts,
    pub(crate) n_tombstones: u64,
    pub(crate) damage: DamageReport,
}

impl ResolvedBatch {
    /// Applies the batch to the shards.
    pub(crate) fn apply(&self, shards: &mut [Shard], layout: ShardLayout, head: HeadChunkList<'_>) {
        shards.par_iter_mut().enumerate().for_each(|(idx, shard)| {
            shard.grow(layout.n_slots(idx, self.n_series));
            for (slot, indexes) in self.heads.get(idx).into_iter().flatten() {
                shard.add_head_chunks(*slot, indexes.clone(), head);
            }
            for routed in &self.routed {
                shard.apply(&routed.for_shard(idx), head);
            }
        });
    }

    /// Clears the batch and keeps its memory.
    fn clear(&mut self, n_shards: usize) {
        self.heads.resize_with(n_shards, Vec::new);
        self.heads.iter_mut().for_each(Vec::clear);
    }
}

/// Resolves the series of samples and tombstones.
pub(crate) struct Resolver {
    pub(crate) table: SeriesTable,
    pub(crate) tombstones: HashMap<SeriesIdx, Vec<TimeRange>>,
    layout: ShardLayout,
    keeps_beside: bool,
    /// End of the head chunks of the last ref: the head chunks of the next ref usually follow.
    next_head: usize,
}

impl Resolver {
    /// Creates a resolver. `keeps_beside`: collect exemplars and metadata.
    pub(crate) fn new(layout: ShardLayout, keeps_beside: bool) -> Self {
        Self {
            table: SeriesTable::default(),
            tombstones: HashMap::new(),
            layout,
            keeps_beside,
            next_head: 0,
        }
    }

    /// Decodes the series definitions of all records, adds external labels, and looks up known
    /// labels, on all threads.
    pub(crate) fn decode_definitions<'a>(
        &self,
        records: &'a [Record],
        external_labels: &'a [(String, String)],
    ) -> Vec<Option<Definitions<'a>>> {
        records
            .par_iter()
            .map(|record| self.decode_record(record, external_labels))
            .collect()
    }

    /// Resolves a batch: creates its series, collects its tombstones and routes its samples. The
    /// definitions come first, so that all samples find their series.
    pub(crate) fn resolve(
        &mut self,
        records: &[Record],
        definitions: Vec<Option<Definitions<'_>>>,
        input: &Input,
        resolved: &mut ResolvedBatch,
    ) {
        resolved.clear(self.layout.len());
        self.create_series(records, definitions, input, resolved);
        resolved.n_series = self.table.len();
        self.collect_tombstones(records, input, resolved);
        self.route_samples(records, input, resolved);
    }

    /// Creates new series in the order of the WAL.
    fn create_series(
        &mut self,
        records: &[Record],
        all_definitions: Vec<Option<Definitions<'_>>>,
        input: &Input,
        resolved: &mut ResolvedBatch,
    ) {
        for (record, definitions) in records.iter().zip(all_definitions) {
            match record.record_type {
                Some(record_type) => resolved.records.add(record_type),
                None => {
                    let reason = RecordType::unknown_reason(&record.bytes);
                    resolved.damage.push(
                        &record.segment.path,
                        record.offset,
                        DamageKind::Unsupported,
                        reason,
                    );
                }
            }
            if let Some(definitions) = definitions {
                self.define(record, definitions, input, resolved);
            }
        }
    }

    fn decode_record<'a>(
        &self,
        record: &'a Record,
        external_labels: &'a [(String, String)],
    ) -> Option<Definitions<'a>> {
        (record.record_type == Some(RecordType::Series))
            .then(|| self.table.read(&record.bytes, external_labels))
    }

    fn define(
        &mut self,
        record: &Record,
        definitions: Definitions<'_>,
        input: &Input,
        resolved: &mut ResolvedBatch,
    ) {
        let Self {
            table,
            layout,
            next_head,
            ..
        } = self;
        let mut damage = |reason: String| {
            resolved.damage.push(
                &record.segment.path,
                record.offset,
                DamageKind::Corrupt,
                reason,
            );
        };
        let bad = definitions.bad;
        table.define(
            definitions,
            |Resolved {
                 series_ref,
                 series,
                 is_known,
             }| {
                let Some(series) = series else {
                    return damage(format!("invalid labels of series {series_ref}"));
                };
                if is_known || input.head_chunks.is_empty() {
                    return;
                }
                let indexes = input.head_chunks_of(series_ref, *next_head);
                *next_head = indexes.end;
                if !indexes.is_empty() {
                    let (shard, slot) = layout.locate(series);
                    resolved.heads[shard].push((slot, indexes));
                }
            },
        );
        if let Some(bad) = bad {
            damage(bad.to_string());
        }
    }

    /// Collects tombstones. Evictions are routed with the samples instead.
    fn collect_tombstones(
        &mut self,
        records: &[Record],
        input: &Input,
        resolved: &mut ResolvedBatch,
    ) {
        for record in records
            .iter()
            .filter(|record| record.record_type == Some(RecordType::Tombstones))
        {
            let mut damage = |reason| {
                resolved.damage.push(
                    &record.segment.path,
                    record.offset,
                    DamageKind::Corrupt,
                    reason,
                )
            };
            let mut tombstones = Vec::new();
            if let Err(bad) = decode_tombstones(&record.bytes, &mut tombstones) {
                damage(bad.to_string());
            }
            for tombstone in tombstones {
                let RefTombstone {
                    series,
                    min_ms,
                    max_ms,
                } = tombstone;
                if is_eviction(&tombstone) || max_ms < input.min_valid_ms {
                    continue;
                }
                match self.table.find(series) {
                    Some(series) => {
                        resolved.n_tombstones += 1;
                        let range = TimeRange {
                            start_ms: min_ms,
                            end_ms: max_ms,
                        };
                        self.tombstones.entry(series).or_default().push(range);
                    }
                    None => damage(format!("tombstone of unknown series {series}")),
                }
            }
        }
    }

    /// Routes all samples, in the order of the records.
    fn route_samples(&self, records: &[Record], input: &Input, resolved: &mut ResolvedBatch) {
        let groups = records.par_chunks(records.len().div_ceil(self.layout.len()).max(1));
        resolved.routed.resize_with(groups.len(), Routed::default);
        let router = Router {
            table: &self.table,
            layout: self.layout,
            min_valid_ms: input.min_valid_ms,
            is_wbl_lost: input.is_wbl_lost,
            keeps_beside: self.keeps_beside,
        };
        groups
            .zip(&mut resolved.routed)
            .for_each(|(records, routed)| router.route(records, routed));
    }
}

//! What a batch of records does: which series it defines, and which samples go to which of them.
//!
//! A batch is looked at while the one before it is applied to the shards, which are not touched here.

use std::ops::Range;

use hashbrown::HashMap;
use rayon::prelude::*;
use varve_tsdb::TimeRange;
use varve_tsdb::fs::damage::{DamageKind, DamageReport};

use super::input::Input;
use super::queue::Record;
use super::report::RecordCounts;
use super::route::{Routed, Router, Shards, is_forget};
use super::series::{Definitions, Given, SeriesIdx, SeriesTable};
use super::shard::{Head, Shard};
use crate::wal::{RecordType, RefTombstone, decode_tombstones};

/// What was found in a batch.
#[derive(Default)]
pub(super) struct Findings {
    /// All series up to the end of the batch.
    n_series: usize,
    /// By shard, places there of series that were given a number, and the head chunks of that number.
    heads: Vec<Vec<(u32, Range<usize>)>>,
    /// Samples, in the order of the records.
    pub(super) routed: Vec<Routed>,
    pub(super) records: RecordCounts,
    pub(super) n_tombstones: u64,
    pub(super) damage: DamageReport,
}

impl Findings {
    /// Applies everything to the shards.
    pub(super) fn apply(&self, shards: &mut [Shard], layout: Shards, head: Head<'_>) {
        shards.par_iter_mut().enumerate().for_each(|(idx, shard)| {
            shard.grow(layout.n_slots(idx, self.n_series));
            for (slot, places) in self.heads.get(idx).into_iter().flatten() {
                shard.add_head_chunks(*slot, places.clone(), head);
            }
            for routed in &self.routed {
                shard.apply(&routed.share(idx), head);
            }
        });
    }

    /// Forgets what it had, and keeps the memory.
    fn clear(&mut self, n_shards: usize) {
        self.heads.resize_with(n_shards, Vec::new);
        self.heads.iter_mut().for_each(Vec::clear);
    }
}

/// Finds the series of samples and deletions.
pub(super) struct Finder {
    pub(super) table: SeriesTable,
    pub(super) tombstones: HashMap<SeriesIdx, Vec<TimeRange>>,
    layout: Shards,
    /// Where the head chunks of the last number end: those of the next one mostly come there.
    next_head: usize,
}

impl Finder {
    pub(super) fn new(layout: Shards) -> Self {
        Self { table: SeriesTable::default(), tombstones: HashMap::new(), layout, next_head: 0 }
    }

    /// Reads the definitions of a batch, by record; texts that are known are found by all workers.
    pub(super) fn read_all<'a>(&self, records: &'a [Record]) -> Vec<Option<Definitions<'a>>> {
        records.par_iter().map(|record| self.read(record)).collect()
    }

    /// Looks at a batch of which the definitions are read. They come first, so that all of its samples find their series.
    pub(super) fn find(
        &mut self,
        records: &[Record],
        definitions: Vec<Option<Definitions<'_>>>,
        input: &Input,
        found: &mut Findings,
    ) {
        found.clear(self.layout.len());
        self.define(records, definitions, input, found);
        found.n_series = self.table.len();
        self.delete(records, input, found);
        self.route(records, input, found);
    }

    /// What is new is numbered in the order of the log.
    fn define(
        &mut self,
        records: &[Record],
        all_definitions: Vec<Option<Definitions<'_>>>,
        input: &Input,
        found: &mut Findings,
    ) {
        for (record, definitions) in records.iter().zip(all_definitions) {
            match record.record_type {
                Some(record_type) => found.records.add(record_type),
                None => {
                    let reason = RecordType::not_known(&record.bytes);
                    found.damage.push(&record.segment.path, record.offset, DamageKind::Unsupported, reason);
                }
            }
            if let Some(definitions) = definitions {
                self.define_all(record, definitions, input, found);
            }
        }
    }

    fn read<'a>(&self, record: &'a Record) -> Option<Definitions<'a>> {
        (record.record_type == Some(RecordType::Series)).then(|| self.table.read(&record.bytes))
    }

    fn define_all(&mut self, record: &Record, definitions: Definitions<'_>, input: &Input, found: &mut Findings) {
        let Self { table, layout, next_head, .. } = self;
        let mut damage = |reason: String| {
            found.damage.push(&record.segment.path, record.offset, DamageKind::Corrupt, reason);
        };
        let bad = definitions.bad;
        table.define(definitions, |Given { number, series, is_known }| {
            let Some(series) = series else { return damage(format!("the labels of series {number} make no sense")) };
            if is_known || input.head_chunks.is_empty() {
                return;
            }
            let places = input.head_chunks_of(number, *next_head);
            *next_head = places.end;
            if !places.is_empty() {
                let (shard, slot) = layout.place(series);
                found.heads[shard].push((slot, places));
            }
        });
        if let Some(bad) = bad {
            damage(bad.to_string());
        }
    }

    /// Notes deletions. Those of all of time come with the samples: they are no deletions.
    fn delete(&mut self, records: &[Record], input: &Input, found: &mut Findings) {
        for record in records.iter().filter(|record| record.record_type == Some(RecordType::Tombstones)) {
            let mut damage =
                |reason| found.damage.push(&record.segment.path, record.offset, DamageKind::Corrupt, reason);
            let mut tombstones = Vec::new();
            if let Err(bad) = decode_tombstones(&record.bytes, &mut tombstones) {
                damage(bad.to_string());
            }
            for tombstone in tombstones {
                let RefTombstone { series, min_ms, max_ms } = tombstone;
                if is_forget(&tombstone) || max_ms < input.valid_from_ms {
                    continue;
                }
                match self.table.find(series) {
                    Some(series) => {
                        found.n_tombstones += 1;
                        let range = TimeRange { start_ms: min_ms, end_ms: max_ms };
                        self.tombstones.entry(series).or_default().push(range);
                    }
                    None => damage(format!("a deletion of series {series}, whose definition is lost")),
                }
            }
        }
    }

    /// Finds the series of all samples; the lists come in the order of the records.
    fn route(&self, records: &[Record], input: &Input, found: &mut Findings) {
        let groups = records.par_chunks(records.len().div_ceil(self.layout.len()).max(1));
        found.routed.resize_with(groups.len(), Routed::default);
        let router = Router { table: &self.table, shards: self.layout, valid_from_ms: input.valid_from_ms };
        groups.zip(&mut found.routed).for_each(|(records, routed)| router.route(records, routed));
    }
}

//! Records in, chunks of series out, batch by batch: while one batch is applied the next one is read.

use std::path::Path;
use std::sync::Arc;

use hashbrown::HashMap;
use rayon::ThreadPool;
use rayon::prelude::*;

use super::input::Input;
use super::output;
use super::queue::{BATCH_SIZE, Queue, Record};
use super::report::{Phase, Progress, Report};
use super::route::{Routed, Router, Shards, is_forget};
use super::scratch::Scratch;
use super::series::{SeriesIdx, SeriesTable};
use super::shard::{SERIES_SIZE, Shard, Share, Value};
use super::unknown::{UnknownSample, UnknownSamples};
use super::{RecoverOptions, UNKNOWN_SAMPLES};
use crate::error::Result;
use crate::fs::Fs;
use crate::prometheus::chunk;
use crate::prometheus::fault::FaultKind;
use crate::prometheus::head_chunks::{HeadChunk, HeadChunkFiles};
use crate::prometheus::wal::{DefinedLabel, RecordType, RefTombstone, decode_tombstones, for_each_definition};
use crate::sample::{SampleColumns, TimeRange};

/// Least bytes of chunks in memory, whatever the budget, and those for each series: with fewer, each sample would be moved to
/// the file by itself.
const CHUNKS_SIZE_MIN: usize = 1 << 20;
const CHUNKS_SIZE_OF_SERIES_MIN: usize = 128;
/// What a batch takes, decoded and compressed, for each of its bytes: two of them are there at once, and memory of some before.
const BATCH_FACTOR: usize = 8;
/// Shards for each worker, so that they end at about the same time.
const SHARDS_OF_WORKER: usize = 2;

/// All that was replayed.
#[derive(Debug)]
pub(super) struct Replayed {
    pub(super) table: SeriesTable,
    pub(super) shards: Vec<Shard>,
    layout: Shards,
    pub(super) tombstones: HashMap<SeriesIdx, Vec<TimeRange>>,
    pub(super) head: HeadChunkFiles,
    pub(super) head_chunks: Vec<HeadChunk>,
    pub(super) valid_from_ms: i64,
}

impl Replayed {
    /// Returns a series' shard and its place there.
    #[inline]
    pub(super) fn place(&self, series: SeriesIdx) -> (&Shard, u32) {
        let (shard, slot) = self.layout.place(series);
        (&self.shards[shard], slot)
    }
}

/// Replays all logs.
#[expect(clippy::too_many_arguments, reason = "one caller; each is another thing")]
pub(super) fn replay(
    fs: &Arc<dyn Fs>,
    input: Input,
    out: &Path,
    options: &RecoverOptions,
    pool: &ThreadPool,
    scratch: &Scratch,
    report: &mut Report,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Replayed> {
    let mut queue = Queue::new(Arc::clone(fs), input.segments.clone());
    let mut replay = Replay::new(fs, input, out, options, scratch)?;
    let mut batch = pool.install(|| queue.next_batch());
    while let Some(current) = batch {
        let done = current.done;
        let (next, applied) =
            pool.install(|| rayon::join(|| queue.next_batch(), || replay.apply(&current.records, report, options)));
        applied?;
        queue.give_back(current);
        batch = next;
        let n_samples = replay.shards.iter().map(|shard| shard.n_taken + shard.n_late).sum();
        progress(Progress { phase: Phase::Read, done, total: queue.total(), n_samples });
    }
    report.read_size = queue.done();
    report.faults.append(queue.faults);
    pool.install(|| replay.finish(report))
}

/// A replay under way.
struct Replay {
    input: Input,
    table: SeriesTable,
    shards: Vec<Shard>,
    layout: Shards,
    tombstones: HashMap<SeriesIdx, Vec<TimeRange>>,
    unknown: UnknownSamples,
    /// Memory of the batch before: to give it back and ask for it again would cost more than to fill it.
    routed: Vec<Routed>,
}

impl Replay {
    fn new(fs: &Arc<dyn Fs>, input: Input, out: &Path, options: &RecoverOptions, scratch: &Scratch) -> Result<Self> {
        let layout = Shards::at_least(options.concurrency * SHARDS_OF_WORKER);
        let shards = (0..layout.len()).map(|idx| Shard::new(scratch.file(idx), options.starts)).collect();
        let unknown = UnknownSamples::create(fs, &out.join(UNKNOWN_SAMPLES))?;
        let (table, tombstones, routed) = (SeriesTable::default(), HashMap::new(), Vec::new());
        Ok(Self { input, table, shards, layout, tombstones, unknown, routed })
    }

    fn apply(&mut self, records: &[Record], report: &mut Report, options: &RecoverOptions) -> Result<()> {
        self.define(records, report);
        self.delete(records, report);
        let mut all_routed = std::mem::take(&mut self.routed);
        self.route(records, &mut all_routed);
        let head = self.input.head();
        self.shards.par_iter_mut().enumerate().for_each(|(idx, shard)| {
            for routed in &all_routed {
                let share = Share { items: &routed.shards[idx], extras: &routed.extras, is_late: routed.is_late };
                shard.apply(&share, head);
            }
        });
        for routed in &mut all_routed {
            report.n_covered += routed.n_covered;
            report.n_unknown_schema += routed.n_unknown_schema;
            report.n_exemplars += routed.n_exemplars;
            report.n_metadata += routed.n_metadata;
            report.faults.append(std::mem::take(&mut routed.faults));
            routed.unknown.iter().try_for_each(|sample| self.unknown.push(sample, report))?;
        }
        self.routed = all_routed;
        self.spill(options)
    }

    /// Finds the series of all samples; the lists come in the order of the records.
    fn route(&self, records: &[Record], all_routed: &mut Vec<Routed>) {
        let groups = records.par_chunks(records.len().div_ceil(self.shards.len() * 2).max(1));
        all_routed.resize_with(groups.len(), Routed::default);
        let router = Router { table: &self.table, shards: self.layout, valid_from_ms: self.input.valid_from_ms };
        groups.zip(all_routed).for_each(|(records, routed)| router.route(records, routed));
    }

    /// Defines the series of a batch, so that all of its samples find theirs.
    fn define(&mut self, records: &[Record], report: &mut Report) {
        for record in records {
            match record.record_type {
                Some(record_type) => report.records.add(record_type),
                None => {
                    let reason = RecordType::not_known(&record.bytes);
                    report.faults.push(&record.segment.path, record.offset, FaultKind::Unknown, reason);
                }
            }
            if record.record_type == Some(RecordType::Series) {
                self.define_all(record, report);
            }
        }
    }

    fn define_all(&mut self, record: &Record, report: &mut Report) {
        let decoded = for_each_definition(&record.bytes, |number, labels| {
            if self.define_one(number, labels).is_none() {
                let reason = format!("the labels of series {number} make no sense");
                report.faults.push(&record.segment.path, record.offset, FaultKind::Damage, reason);
            }
        });
        if let Err(bad) = decoded {
            report.faults.push(&record.segment.path, record.offset, FaultKind::Damage, bad.to_string());
        }
    }

    fn define_one(&mut self, number: u64, labels: &[DefinedLabel<'_>]) -> Option<()> {
        let (n_series, known) = (self.table.len(), self.table.find(number));
        let series = self.table.define(number, labels)?;
        let (shard, slot) = self.layout.place(series);
        let shard = &mut self.shards[shard];
        if series as usize == n_series {
            shard.push_series();
        }
        if known != Some(series) {
            shard.add_head_chunks(slot, self.input.head_chunks_of(number), self.input.head());
        }
        Some(())
    }

    /// Notes deletions. Those of all of time come with the samples: they are no deletions.
    fn delete(&mut self, records: &[Record], report: &mut Report) {
        for record in records.iter().filter(|record| record.record_type == Some(RecordType::Tombstones)) {
            let mut tombstones = Vec::new();
            if let Err(bad) = decode_tombstones(&record.bytes, &mut tombstones) {
                report.faults.push(&record.segment.path, record.offset, FaultKind::Damage, bad.to_string());
            }
            for tombstone in tombstones {
                let RefTombstone { series, min_ms, max_ms } = tombstone;
                if is_forget(&tombstone) || max_ms < self.input.valid_from_ms {
                    continue;
                }
                match self.table.find(series) {
                    Some(series) => {
                        report.n_tombstones += 1;
                        let range = TimeRange { start_ms: min_ms, end_ms: max_ms };
                        self.tombstones.entry(series).or_default().push(range);
                    }
                    None => {
                        let reason = format!("a deletion of series {series}, whose definition is lost");
                        report.faults.push(&record.segment.path, record.offset, FaultKind::Damage, reason);
                    }
                }
            }
        }
    }

    /// Moves chunks to files when there are more than fit in memory, now or when they are written.
    fn spill(&mut self, options: &RecoverOptions) -> Result<()> {
        let n_series = self.table.len();
        let fixed = self.table.size()
            + n_series * SERIES_SIZE
            + self.input.head_chunks.len() * size_of::<HeadChunk>()
            + (BATCH_SIZE * BATCH_FACTOR).max(output::memory(&self.table, options.concurrency));
        let least = CHUNKS_SIZE_MIN + n_series * CHUNKS_SIZE_OF_SERIES_MIN;
        let budget = options.memory_bytes.saturating_sub(fixed).max(least);
        if self.shards.iter().map(Shard::memory).sum::<usize>() <= budget {
            return Ok(());
        }
        self.shards.par_iter_mut().try_for_each(Shard::spill)
    }

    fn finish(mut self, report: &mut Report) -> Result<Replayed> {
        let head = self.input.head();
        self.shards.par_iter_mut().for_each(|shard| shard.finish(head));
        self.keep_unknown_chunks(report)?;
        for shard in &self.shards {
            report.n_samples += shard.n_taken;
            report.n_late_samples += shard.n_late;
            report.n_not_newer += shard.n_not_newer;
            report.spilled_size += shard.spilled_size();
        }
        report.n_series = self.table.len() as u64;
        self.table.close();
        let Self { input, table, shards, layout, tombstones, unknown, routed: _ } = self;
        unknown.finish()?;
        let Input { head, head_chunks, valid_from_ms, .. } = input;
        Ok(Replayed { table, shards, layout, tombstones, head, head_chunks, valid_from_ms })
    }

    /// Keeps what head chunks hold of series without a definition.
    fn keep_unknown_chunks(&mut self, report: &mut Report) -> Result<()> {
        let (mut bytes, mut columns) = (Vec::new(), SampleColumns::default());
        for chunk in &self.input.head_chunks {
            let is_covered = !chunk.is_late && chunk.max_ms < self.input.valid_from_ms;
            if is_covered || self.table.find(chunk.series).is_some() {
                continue;
            }
            self.input.head.read(chunk, &mut bytes)?;
            columns.clear();
            if let Err(error) = chunk::decode(chunk.encoding, &bytes, &mut columns) {
                let path = self.input.head.path(chunk);
                report.faults.push(path, u64::from(chunk.offset), FaultKind::Damage, error.to_string());
            }
            for (idx, sample) in columns.iter().enumerate() {
                let value = match columns.histogram(idx) {
                    Some(histogram) => Value::Histogram(Arc::clone(histogram)),
                    None => Value::Float(sample.value),
                };
                let unknown = UnknownSample { series: chunk.series, timestamp_ms: sample.timestamp_ms, value };
                self.unknown.push(&unknown, report)?;
            }
        }
        Ok(())
    }
}

//! Records in, chunks of series out, batch by batch: while one batch is applied, the series of the next one are found, and the
//! one behind it is read.

use std::path::Path;
use std::sync::Arc;

use hashbrown::HashMap;
use rayon::ThreadPool;
use rayon::prelude::*;
use varve_tsdb::fs::Fs;
use varve_tsdb::fs::damage::DamageKind;
use varve_tsdb::{Result, SampleColumns, TimeRange};

use super::find::{Finder, Findings};
use super::input::Input;
use super::output;
use super::queue::{BATCH_SIZE, Queue, Record};
use super::report::{Phase, Progress, Report};
use super::route::Shards;
use super::scratch::Scratch;
use super::series::{SeriesIdx, SeriesTable};
use super::shard::{SERIES_SIZE, Shard, Value};
use super::unknown::{UnknownSample, UnknownSamples};
use super::{RecoverOptions, UNKNOWN_SAMPLES};
use crate::chunk;
use crate::head_chunks::{HeadChunk, HeadChunkFiles};

/// Least bytes of chunks in memory, whatever the budget, and those for each series: with fewer, each sample would be moved to
/// the file by itself.
const CHUNKS_SIZE_MIN: usize = 1 << 20;
const CHUNKS_SIZE_OF_SERIES_MIN: usize = 128;
/// What a batch takes, decoded, compressed and as samples of shards, for each of its bytes: two of them are there at once, and
/// memory of some before.
const BATCH_FACTOR: usize = 12;
/// Shards for each worker, so that they end at about the same time.
const SHARDS_OF_WORKER: usize = 4;

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
        let next = pool.install(|| replay.step(&current.records, || queue.next_batch(), report, options))?;
        queue.give_back(current);
        batch = next;
        let n_samples = replay.shards.iter().map(|shard| shard.n_taken + shard.n_late).sum();
        progress(Progress { phase: Phase::Read, done, total: queue.total(), n_samples });
    }
    pool.install(|| replay.step(&[], || (), report, options))?;
    report.read_size = queue.done();
    report.damage.append(queue.damage);
    pool.install(|| replay.finish(report))
}

/// A replay under way.
struct Replay {
    input: Input,
    finder: Finder,
    shards: Vec<Shard>,
    layout: Shards,
    unknown: UnknownSamples,
    /// What was found in the batch that is applied next, and memory for what is found in the one behind it: to give it back
    /// and ask for it again would cost more than to fill it.
    found: Findings,
    spare: Findings,
}

impl Replay {
    fn new(fs: &Arc<dyn Fs>, input: Input, out: &Path, options: &RecoverOptions, scratch: &Scratch) -> Result<Self> {
        let layout = Shards::at_least(options.concurrency * SHARDS_OF_WORKER);
        let shards = (0..layout.len()).map(|idx| Shard::new(scratch.file(idx), options.starts)).collect();
        let unknown = UnknownSamples::create(fs, &out.join(UNKNOWN_SAMPLES))?;
        let (found, spare) = (Findings::default(), Findings::default());
        Ok(Self { input, finder: Finder::new(layout), shards, layout, unknown, found, spare })
    }

    /// Finds the series of a batch, and meanwhile applies the batch before and does what comes `next`.
    ///
    /// Numbers are given by one worker: what the others have to do meanwhile, and nobody waits for, is left for them.
    fn step<T: Send>(
        &mut self,
        records: &[Record],
        next: impl FnOnce() -> T + Send,
        report: &mut Report,
        options: &RecoverOptions,
    ) -> Result<T> {
        let Self { input, finder, shards, layout, found, spare, .. } = self;
        let definitions = finder.read_all(records);
        let apply_and_next = || rayon::join(|| found.apply(shards, *layout, input.head()), next).1;
        let ((), next) = rayon::join(|| finder.find(records, definitions, input, spare), apply_and_next);
        self.note(report)?;
        std::mem::swap(&mut self.found, &mut self.spare);
        self.spill(options)?;
        Ok(next)
    }

    /// Notes what the batch that was applied says besides samples.
    fn note(&mut self, report: &mut Report) -> Result<()> {
        report.records.append(&std::mem::take(&mut self.found.records));
        report.n_tombstones += std::mem::take(&mut self.found.n_tombstones);
        report.damage.append(std::mem::take(&mut self.found.damage));
        for routed in &mut self.found.routed {
            report.n_covered += routed.n_covered;
            report.n_unknown_schema += routed.n_unknown_schema;
            report.n_exemplars += routed.n_exemplars;
            report.n_metadata += routed.n_metadata;
            report.damage.append(std::mem::take(&mut routed.damage));
            routed.unknown.iter().try_for_each(|sample| self.unknown.push(sample, report))?;
        }
        Ok(())
    }

    /// Moves chunks to files when there are more than fit in memory, now or when they are written.
    fn spill(&mut self, options: &RecoverOptions) -> Result<()> {
        let table = &self.finder.table;
        let n_series = table.len();
        let fixed = table.size()
            + n_series * SERIES_SIZE
            + self.input.head_chunks.len() * size_of::<HeadChunk>()
            + (BATCH_SIZE * BATCH_FACTOR).max(output::memory(table, options.concurrency));
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
        let Self { input, finder: Finder { mut table, tombstones, .. }, shards, layout, unknown, .. } = self;
        report.n_series = table.len() as u64;
        table.close();
        unknown.finish()?;
        let Input { head, head_chunks, valid_from_ms, .. } = input;
        Ok(Replayed { table, shards, layout, tombstones, head, head_chunks, valid_from_ms })
    }

    /// Keeps what head chunks hold of series without a definition.
    fn keep_unknown_chunks(&mut self, report: &mut Report) -> Result<()> {
        let (mut bytes, mut columns) = (Vec::new(), SampleColumns::default());
        for chunk in &self.input.head_chunks {
            let is_covered = !chunk.is_late && chunk.max_ms < self.input.valid_from_ms;
            if is_covered || self.finder.table.find(chunk.series).is_some() {
                continue;
            }
            self.input.head.read(chunk, &mut bytes)?;
            columns.clear();
            if let Err(error) = chunk::decode(chunk.encoding, &bytes, &mut columns) {
                let path = self.input.head.path(chunk);
                report.damage.push(path, u64::from(chunk.offset), DamageKind::Corrupt, error.to_string());
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

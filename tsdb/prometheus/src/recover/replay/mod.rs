//! Replays WAL and WBL into chunks of series. A pipeline of three batches: the first is applied to
//! the shards while the series of the second are resolved and the third is read.

pub(super) mod record_reader;
mod resolve;
pub(super) mod route;

use std::sync::Arc;

use rayon::prelude::*;
use record_reader::{BATCH_SIZE, Record, RecordReader};
use resolve::{ResolvedBatch, Resolver};
use varve_env::damage::DamageKind;
use varve_model::SampleColumns;
use varve_tsdb::Result;

use super::exemplars_and_metadata::ExemplarsAndMetadataBuilder;
use super::input::Input;
use super::output;
use super::recovery::{Recovery, Target};
use super::replayed::Replayed;
use super::report::{Progress, RecoverPhase, Report};
use super::shard::{SERIES_SIZE, Shard, ShardLayout, Value};
use super::unknown_series::{UNKNOWN_SAMPLES, UnknownSample, UnknownSeriesFile};
use crate::chunk;
use crate::head_chunks::HeadChunk;
use crate::losses::{IN_DAMAGED_CHUNKS, NOT_SUPPORTED, OF_UNKNOWN_SERIES};

/// Minimum memory for chunks, fixed and per series. With less, every sample would be spilled
/// separately.
const CHUNKS_SIZE_MIN: usize = 1 << 20;
const CHUNKS_SIZE_PER_SERIES_MIN: usize = 128;
/// Memory of the batches in the pipeline (compressed, decoded and routed) and of pooled buffers,
/// per decoded byte of a batch.
const BATCH_FACTOR: usize = 12;
/// Shards per thread, so that all threads finish at about the same time.
const SHARDS_PER_WORKER: usize = 4;

/// Replays all segments.
pub(crate) fn replay(
    recovery: &Recovery<'_>,
    input: Input,
    report: &mut Report,
) -> Result<Replayed> {
    let pool = recovery.pool;
    let mut reader = RecordReader::new(Arc::clone(recovery.fs), input.segments.clone());
    let mut replay = Replay::new(recovery, input)?;
    let mut batch = pool.install(|| reader.next_batch());
    while let Some(current) = batch {
        let done = current.done;
        let next =
            pool.install(|| replay.step(&current.records, || reader.next_batch(), report))?;
        reader.recycle(current);
        batch = next;
        let n_samples = replay
            .shards
            .iter()
            .map(|shard| shard.n_appended + shard.n_out_of_order)
            .sum();
        (recovery.progress)(Progress {
            phase: RecoverPhase::Read,
            done,
            total: reader.total(),
            n_samples,
        });
    }
    pool.install(|| replay.step(&[], || (), report))?;
    report.read_size = reader.done();
    report.damage.append(reader.damage);
    pool.install(|| replay.finish(report))
}

/// A replay in progress.
struct Replay<'a> {
    recovery: &'a Recovery<'a>,
    input: Input,
    resolver: Resolver,
    shards: Vec<Shard>,
    layout: ShardLayout,
    unknown: UnknownSeriesFile,
    /// `None` if exemplars and metadata are only counted.
    beside: Option<ExemplarsAndMetadataBuilder>,
    /// The resolved batch that is applied next, and the buffers for the batch after it, which are
    /// reused.
    resolved: ResolvedBatch,
    spare: ResolvedBatch,
}

impl<'a> Replay<'a> {
    fn new(recovery: &'a Recovery<'a>, input: Input) -> Result<Self> {
        let options = recovery.options;
        let layout = ShardLayout::at_least(options.concurrency * SHARDS_PER_WORKER);
        let shards = (0..layout.len())
            .map(|idx| Shard::new(recovery.spill.file(idx), options.start_timestamps))
            .collect();
        let unknown = UnknownSeriesFile::create(recovery.fs, &recovery.out.join(UNKNOWN_SAMPLES))?;
        let beside = match recovery.target {
            Target::Prometheus => None,
            Target::Store { exemplars_max } => {
                Some(ExemplarsAndMetadataBuilder::new(exemplars_max))
            }
        };
        Ok(Self {
            recovery,
            input,
            resolver: Resolver::new(layout, beside.is_some()),
            shards,
            layout,
            unknown,
            beside,
            resolved: ResolvedBatch::default(),
            spare: ResolvedBatch::default(),
        })
    }

    /// Resolves the series of a batch, while the batch before is applied and `next` runs.
    ///
    /// One thread creates series. All work that does not depend on it is left to the others.
    fn step<T: Send>(
        &mut self,
        records: &[Record],
        next: impl FnOnce() -> T + Send,
        report: &mut Report,
    ) -> Result<T> {
        let Self {
            recovery,
            input,
            resolver,
            shards,
            layout,
            resolved,
            spare,
            ..
        } = self;
        let external_labels = recovery.labels_of_series();
        let definitions = resolver.decode_definitions(records, external_labels);
        let ((), ((), next)) = rayon::join(
            || resolver.resolve(records, definitions, input, spare),
            || rayon::join(|| resolved.apply(shards, *layout, input.head()), next),
        );
        self.report_batch(report);
        self.write_unknown_samples(report)?;
        std::mem::swap(&mut self.resolved, &mut self.spare);
        self.spill()?;
        Ok(next)
    }

    /// Adds the counts and damage of the applied batch to the report.
    fn report_batch(&mut self, report: &mut Report) {
        let resolved = &mut self.resolved;
        report
            .records
            .append(&std::mem::take(&mut resolved.records));
        report.n_tombstones += std::mem::take(&mut resolved.n_tombstones);
        report.damage.append(std::mem::take(&mut resolved.damage));
        for routed in &mut resolved.routed {
            report.totals.n_found += routed.n_found;
            report.n_covered += routed.n_covered;
            report.n_unknown_schema += routed.n_unknown_schema;
            report.n_exemplars += routed.n_exemplars;
            report.n_metadata += routed.n_metadata;
            if let Some(beside) = &mut self.beside {
                beside.append(&mut routed.beside);
            }
            report.damage.append(std::mem::take(&mut routed.damage));
        }
    }

    /// Writes the samples of the applied batch without a definition to the file of unknown series.
    fn write_unknown_samples(&mut self, report: &mut Report) -> Result<()> {
        for routed in &self.resolved.routed {
            for sample in &routed.unknown {
                self.unknown.push(sample, report)?;
            }
        }
        Ok(())
    }

    /// Spills chunks to files if they exceed the memory that is left for them now, or that will be
    /// left while blocks are written.
    fn spill(&mut self) -> Result<()> {
        let Recovery {
            options, target, ..
        } = self.recovery;
        let table = &self.resolver.table;
        let n_series = table.len();
        let fixed = table.size()
            + n_series * SERIES_SIZE
            + self.input.head_chunks.len() * size_of::<HeadChunk>()
            + (BATCH_SIZE * BATCH_FACTOR).max(output::memory(*target, table, options.concurrency));
        let least = CHUNKS_SIZE_MIN + n_series * CHUNKS_SIZE_PER_SERIES_MIN;
        let budget = options.memory_bytes.saturating_sub(fixed).max(least);
        if self.shards.iter().map(Shard::memory).sum::<usize>() <= budget {
            return Ok(());
        }
        self.shards.par_iter_mut().try_for_each(Shard::spill)
    }

    fn finish(mut self, report: &mut Report) -> Result<Replayed> {
        let head = self.input.head();
        self.shards
            .par_iter_mut()
            .for_each(|shard| shard.finish(head));
        self.write_unknown_chunks(report)?;
        for shard in &self.shards {
            report.n_samples += shard.n_appended;
            report.n_out_of_order += shard.n_out_of_order;
            report.n_not_newer += shard.n_not_newer;
            report.n_covered += shard.n_covered;
            // Writing the blocks shows which of the out-of-order samples of the WAL are duplicates.
            report.totals.n_duplicates += shard.n_not_newer - shard.n_out_of_order_in_wal;
            report.totals.n_duplicates += shard.n_repeated_out_of_order;
            report.totals.n_covered += shard.n_evicted;
            report.totals.n_deleted += shard.n_deleted;
            report.spilled_size += shard.spilled_size();
        }
        let Self {
            input,
            resolver:
                Resolver {
                    mut table,
                    tombstones,
                    ..
                },
            shards,
            layout,
            unknown,
            beside,
            ..
        } = self;
        report.n_series = table.len() as u64;
        report.totals.n_covered += report.n_covered;
        report
            .totals
            .lose(OF_UNKNOWN_SERIES, report.n_unknown_samples);
        report.totals.lose(NOT_SUPPORTED, report.n_unknown_schema);
        let exemplars_and_metadata = beside
            .map(|beside| beside.finish(&table))
            .unwrap_or_default();
        table.close();
        unknown.finish()?;
        Ok(Replayed {
            table,
            shards,
            layout,
            tombstones,
            input,
            exemplars_and_metadata,
        })
    }

    /// Writes the samples of head chunks without a definition to the file of unknown series.
    fn write_unknown_chunks(&mut self, report: &mut Report) -> Result<()> {
        let mut bytes = Vec::new();
        let mut columns = SampleColumns::default();
        for chunk in &self.input.head_chunks {
            let n_samples = u64::from(chunk.n_samples);
            report.totals.n_found += n_samples;
            let is_covered = !chunk.is_out_of_order && chunk.max_ms < self.input.min_valid_ms;
            if is_covered {
                report.totals.n_covered += n_samples;
                continue;
            }
            if self.resolver.table.find(chunk.series).is_some() {
                continue;
            }
            self.input.head.read(chunk, &mut bytes)?;
            columns.clear();
            if let Err(error) = chunk::decode(chunk.encoding, &bytes, &mut columns) {
                let path = self.input.head.path(chunk);
                report.damage.push(
                    path,
                    u64::from(chunk.offset),
                    DamageKind::Corrupt,
                    error.to_string(),
                );
            }
            let n_damaged = n_samples.saturating_sub(columns.len() as u64);
            report.totals.lose(IN_DAMAGED_CHUNKS, n_damaged);
            for (idx, sample) in columns.iter().enumerate() {
                let value = match columns.histogram(idx) {
                    Some(histogram) => Value::Histogram(Arc::clone(histogram)),
                    None => Value::Float(sample.value),
                };
                let unknown = UnknownSample {
                    series: chunk.series,
                    timestamp_ms: sample.timestamp_ms,
                    value,
                };
                self.unknown.push(&unknown, report)?;
            }
        }
        Ok(())
    }
}

//! Writes blocks, one per window, in ascending order of time.
//!
//! All threads prepare groups of series in parallel, while one of them writes those before.

mod pipeline;
mod postings;

use std::path::Path;
use std::sync::Arc;

use pipeline::produce_in_order;
use rayon::ThreadPool;
use rayon::prelude::*;
use varve_collections::prefetch;
use varve_env::Fs;
use varve_env::damage::{DamageKind, DamageReport};
use varve_model::{SampleColumns, TimeRange};
use varve_tsdb::Result;

use super::options::RecoverOptions;
use super::replayed::Replayed;
use super::report::{Progress, RecoverPhase, Report};
use super::series::label_order::{LabelOrder, Position};
use super::series::{SeriesIdx, SeriesTable};
use super::shard::{ChunkLocation, FoundChunk, Shard};
use super::windows::{Windows, range_of};
use crate::block::{
    BlockMeta, BlockWriter, Description, FROM_OUT_OF_ORDER, IndexEntries, SeriesGroup,
};
use crate::chunk::{self, Chunk, ChunkError, Encoder, Encoding, StartTimestamps};

/// Number of series that one thread prepares at once.
const GROUP_LEN: usize = 128;
/// Maximum number of groups per thread that are in preparation or wait to be written.
const GROUPS_PER_WORKER: usize = 16;

/// Memory per series while a block is written, besides its labels: position, sort key, number, end
/// of labels.
const SERIES_SIZE: usize = 32;
/// Memory per label pair while a block is written, besides its strings: ranks and table entry, and
/// its series count per thread.
const PAIR_SIZE: usize = 128;
const PAIR_SIZE_PER_WORKER: usize = 4;
/// Estimated memory of a prepared series.
const PREPARED_SIZE: usize = 2 << 10;
/// Maximum number of prepared series per thread.
const PREPARED_LEN: usize = GROUP_LEN * GROUPS_PER_WORKER;

/// Estimates the additional memory, in bytes, for writing the series of a table.
pub(crate) fn memory(table: &SeriesTable, n_workers: usize) -> usize {
    let per_worker = PREPARED_LEN * PREPARED_SIZE + postings::MEMORY_PER_WORKER;
    let pairs_size =
        table.pairs.len() * (PAIR_SIZE + n_workers * PAIR_SIZE_PER_WORKER) + table.pairs.size();
    table.labels.size() + table.len() * SERIES_SIZE + pairs_size + n_workers * per_worker
}

/// Writes all blocks.
pub(crate) fn write(
    fs: &Arc<dyn Fs>,
    mut replayed: Replayed,
    out: &Path,
    options: &RecoverOptions,
    pool: &ThreadPool,
    report: &mut Report,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<()> {
    let mut windows = Windows::default();
    for shard in &mut replayed.shards {
        windows.append(std::mem::take(&mut shard.windows));
    }
    let windows = windows.sorted()?;
    let SeriesTable { pairs, labels, .. } = std::mem::take(&mut replayed.table);
    let order = pool.install(|| LabelOrder::of(&pairs, labels));
    let newest_ms = replayed
        .shards
        .iter()
        .map(Shard::newest_ms)
        .max()
        .unwrap_or(i64::MIN);
    let n_series = order.series.len() as u64;
    let n_samples = report.n_samples + report.n_out_of_order;
    let total = windows.len() as u64 * n_series;
    for (done, &window) in (0..).zip(&windows) {
        let step = |n: u64| {
            progress(Progress {
                phase: RecoverPhase::Write,
                done: done * n_series + n,
                total,
                n_samples,
            })
        };
        let output = Output {
            replayed: &replayed,
            order: &order,
            window,
            range: range_of(window),
            start_timestamps: options.start_timestamps,
        };
        report.blocks.extend(
            pool.install(|| output.write(fs, out, options, newest_ms, &mut report.damage, &step))?,
        );
    }
    Ok(())
}

/// The writer of one block.
struct Output<'a> {
    replayed: &'a Replayed,
    order: &'a LabelOrder<'a>,
    window: i64,
    range: TimeRange,
    start_timestamps: StartTimestamps,
}

/// A prepared group of series.
#[derive(Default)]
struct Prepared {
    group: SeriesGroup,
    series: Vec<Position>,
    /// Timestamp of the oldest sample.
    oldest_ms: Option<i64>,
    damage: DamageReport,
}

/// Buffers that are reused from series to series.
#[derive(Default)]
struct Buffers {
    found: Vec<FoundChunk>,
    bytes: Vec<u8>,
    columns: SampleColumns,
}

impl Output<'_> {
    /// Writes the block, or none if all of its samples were deleted.
    fn write(
        &self,
        fs: &Arc<dyn Fs>,
        out: &Path,
        options: &RecoverOptions,
        newest_ms: i64,
        damage: &mut DamageReport,
        step: &(dyn Fn(u64) + Sync),
    ) -> Result<Option<BlockMeta>> {
        // There are no more positions than series.
        let positions = (0..self.order.series.len() as Position).into_par_iter();
        let series: Vec<_> = positions.filter(|&it| self.may_have_samples(it)).collect();
        let (strings, symbols) = self.strings(&series);
        let mut writer =
            BlockWriter::create(fs, out, &format!("window-{}", self.window), &strings)?;
        let mut written = Vec::with_capacity(series.len());
        let mut oldest_ms = None::<i64>;
        let groups: Vec<_> = series.chunks(GROUP_LEN).collect();
        produce_in_order(
            groups.len(),
            GROUPS_PER_WORKER * rayon::current_num_threads(),
            |group| self.prepare(groups[group]),
            |mut prepared| {
                // The index needs the locations of the chunks, so write the chunks first.
                writer.write_chunks(&mut prepared.group)?;
                writer.add_entries(&self.entries(&prepared, &symbols))?;
                written.extend_from_slice(&prepared.series);
                oldest_ms = oldest_ms.into_iter().chain(prepared.oldest_ms).min();
                damage.append(prepared.damage);
                step(written.len() as u64);
                Ok(())
            },
        )?;
        let Some(oldest_ms) = oldest_ms else {
            return writer.abandon().map(|()| None);
        };
        let mut description = self.description(oldest_ms, newest_ms);
        description
            .external_labels
            .clone_from(&options.external_labels);
        let meta = writer.finish_with(description, |postings, numbers| {
            postings::write(self.order, &written, numbers, postings)
        })?;
        Ok(Some(meta))
    }

    fn may_have_samples(&self, position: Position) -> bool {
        let (shard, slot) = self.replayed.locate(self.order.series[position as usize]);
        shard.may_have_samples(slot, self.window)
    }

    /// Returns the symbols of some series, and for each label pair the symbols of its name and its
    /// value.
    fn strings(&self, series: &[Position]) -> (Vec<&str>, Vec<(u32, u32)>) {
        let LabelOrder {
            strings: all,
            pairs,
            ..
        } = self.order;
        let counts = self.order.count(series);
        let mut symbols = vec![u32::MAX; all.len()];
        for (&(name, value), &n_series) in pairs.iter().zip(&counts) {
            if n_series > 0 {
                symbols[name as usize] = 0;
                symbols[value as usize] = 0;
            }
        }
        let mut strings = Vec::new();
        for (symbol, &text) in symbols.iter_mut().zip(all) {
            if *symbol == 0 {
                *symbol = strings.len() as u32;
                strings.push(text);
            }
        }
        let symbols = pairs
            .iter()
            .map(|&(name, value)| (symbols[name as usize], symbols[value as usize]))
            .collect();
        (strings, symbols)
    }

    fn description(&self, oldest_ms: i64, newest_ms: i64) -> Description {
        let min_valid_ms = self.replayed.input.min_valid_ms;
        // Only out-of-order samples are older than existing blocks.
        let min_ms = if oldest_ms >= min_valid_ms {
            self.range.start_ms.max(min_valid_ms)
        } else {
            self.range.start_ms
        };
        let end_ms = self.range.end_ms.saturating_add(1);
        // Prometheus accepts new samples from the end of the newest block.
        let max_ms = if newest_ms <= self.range.end_ms {
            newest_ms.saturating_add(1)
        } else {
            end_ms
        };
        let hints = if end_ms <= min_valid_ms {
            vec![FROM_OUT_OF_ORDER.to_owned()]
        } else {
            Vec::new()
        };
        Description {
            min_ms,
            max_ms,
            hints,
            external_labels: Vec::new(),
        }
    }

    fn entries(&self, prepared: &Prepared, symbols: &[(u32, u32)]) -> IndexEntries {
        prepared.group.entries(|i| {
            self.order
                .labels(prepared.series[i])
                .iter()
                .map(|&pair| symbols[pair as usize])
        })
    }

    fn prepare(&self, positions: &[Position]) -> Result<Prepared> {
        // In label order the series are scattered in memory.
        prefetch(positions.iter().map(|&position| {
            let (shard, slot) = self.replayed.locate(self.order.series[position as usize]);
            shard.first_words(slot, self.window)
        }));
        let mut prepared = Prepared::default();
        let mut buffers = Buffers::default();
        for &position in positions {
            let series = self.order.series[position as usize];
            let (shard, slot) = self.replayed.locate(series);
            shard.find(slot, self.window, &mut buffers.bytes, &mut buffers.found)?;
            // Fast path: nothing out of order, nothing deleted.
            let is_plain = !self.replayed.tombstones.contains_key(&series)
                && buffers.found.iter().all(|found| self.is_plain(found))
                && self.copy(shard, slot, &mut buffers, &mut prepared)?;
            let oldest_ms = if is_plain {
                buffers.found.first().map(|found| found.chunk.min_ms)
            } else {
                self.encode(series, &mut buffers, &mut prepared)?
            };
            if oldest_ms.is_some() {
                prepared.group.end_series();
                prepared.series.push(position);
                prepared.oldest_ms = prepared.oldest_ms.into_iter().chain(oldest_ms).min();
            }
        }
        Ok(prepared)
    }

    /// Returns `true` if a chunk can be copied into the block, provided that it decodes.
    fn is_plain(&self, found: &FoundChunk) -> bool {
        let &FoundChunk {
            chunk:
                Chunk {
                    encoding,
                    min_ms,
                    max_ms,
                    bytes,
                    ..
                },
            is_out_of_order,
            ..
        } = found;
        let is_whole = self.range.start_ms <= min_ms && max_ms <= self.range.end_ms;
        let is_ours = match bytes {
            ChunkLocation::Open | ChunkLocation::Finished(_) => true,
            // Encodings 4 to 6 may need their start timestamps dropped, others may need to have
            // them.
            ChunkLocation::Head(_) => {
                let is_known = matches!(
                    encoding,
                    Encoding::Xor | Encoding::Histogram | Encoding::FloatHistogram
                );
                is_known
                    && self.start_timestamps == StartTimestamps::Drop
                    && min_ms >= self.replayed.input.min_valid_ms
            }
        };
        is_whole && is_ours && !is_out_of_order
    }

    /// Copies chunks, and joins split ones. Returns `false`, and copies none, if a head chunk does
    /// not have the samples that its header claims.
    fn copy(
        &self,
        shard: &Shard,
        slot: u32,
        buffers: &mut Buffers,
        prepared: &mut Prepared,
    ) -> Result<bool> {
        let input = &self.replayed.input;
        let Buffers {
            found,
            bytes,
            columns,
        } = buffers;
        // Between two head chunks, chunks of the WAL follow each other.
        for consecutive in found.chunk_by_mut(|a, b| !is_head(a) && !is_head(b)) {
            if consecutive.iter().any(|found| found.is_split) {
                self.join(shard, slot, consecutive, bytes, columns, prepared)?;
                continue;
            }
            for found in consecutive {
                let bytes = shard.read(slot, found, input, bytes)?;
                if is_head(found) && !holds(found, bytes, columns) {
                    prepared.group.undo();
                    return Ok(false);
                }
                prepared.group.push(&found.chunk.with(bytes));
            }
        }
        Ok(true)
    }

    /// Encodes split chunks as if they had not been split.
    fn join(
        &self,
        shard: &Shard,
        slot: u32,
        split: &mut [FoundChunk],
        bytes: &mut Vec<u8>,
        columns: &mut SampleColumns,
        prepared: &mut Prepared,
    ) -> Result<()> {
        let input = &self.replayed.input;
        columns.clear();
        for found in split {
            let decoded = chunk::decode(
                found.chunk.encoding,
                shard.read(slot, found, input, bytes)?,
                columns,
            );
            debug_assert_eq!(decoded, Ok(()), "what was encoded here");
        }
        let mut encoder = Encoder::new(self.start_timestamps);
        encoder.push_columns(columns);
        for chunk in &encoder.finish() {
            prepared.group.push(chunk);
        }
        Ok(())
    }

    /// Merges samples and encodes them again. Returns the timestamp of the first one left.
    fn encode(
        &self,
        series: SeriesIdx,
        buffers: &mut Buffers,
        prepared: &mut Prepared,
    ) -> Result<Option<i64>> {
        let columns = self.merge(series, buffers, &mut prepared.damage)?;
        let mut encoder = Encoder::new(self.start_timestamps);
        encoder.push_columns(&columns);
        for chunk in &encoder.finish() {
            prepared.group.push(chunk);
        }
        Ok(columns.timestamps_ms.first().copied())
    }

    /// Merges in-order chunks first, then out-of-order chunks where there is no sample yet, then
    /// applies tombstones.
    fn merge(
        &self,
        series: SeriesIdx,
        buffers: &mut Buffers,
        damage: &mut DamageReport,
    ) -> Result<SampleColumns> {
        let (shard, slot) = self.replayed.locate(series);
        let input = &self.replayed.input;
        let mut columns = SampleColumns::default();
        let mut decoded = SampleColumns::default();
        for is_out_of_order in [false, true] {
            for found in buffers
                .found
                .iter_mut()
                .filter(|found| found.is_out_of_order == is_out_of_order)
            {
                decoded.clear();
                let bytes = shard.read(slot, found, input, &mut buffers.bytes)?;
                if let Err(error) = chunk::decode(found.chunk.encoding, bytes, &mut decoded) {
                    self.report(found, error, damage);
                }
                columns.merge(&decoded);
            }
            if !is_out_of_order {
                columns.retain(TimeRange {
                    start_ms: self.replayed.input.min_valid_ms,
                    end_ms: i64::MAX,
                });
            }
        }
        for &range in self.replayed.tombstones.get(&series).into_iter().flatten() {
            columns.remove(range);
        }
        columns.retain(self.range);
        Ok(columns)
    }

    fn report(&self, found: &FoundChunk, error: ChunkError, damage: &mut DamageReport) {
        if let ChunkLocation::Head(index) = found.chunk.bytes {
            let chunk = &self.replayed.input.head_chunks[index as usize];
            let reason = format!("chunk of series {}: {error}", chunk.series);
            damage.push(
                self.replayed.input.head.path(chunk),
                u64::from(chunk.offset),
                DamageKind::Corrupt,
                reason,
            );
        }
    }
}

fn is_head(found: &FoundChunk) -> bool {
    matches!(found.chunk.bytes, ChunkLocation::Head(_))
}

/// Returns `true` if a chunk decodes to the number of samples and the time range in its header.
fn holds(found: &FoundChunk, bytes: &[u8], columns: &mut SampleColumns) -> bool {
    let &FoundChunk {
        chunk:
            Chunk {
                encoding,
                min_ms,
                max_ms,
                n_samples,
                ..
            },
        ..
    } = found;
    let expected = Some((min_ms, max_ms));
    // Fast path: of floats only timestamps matter. Their number was read from the chunk.
    if encoding == Encoding::Xor {
        return chunk::float_time_range(bytes) == Ok(expected);
    }
    columns.clear();
    let decoded = chunk::decode(encoding, bytes, columns);
    let times = columns
        .timestamps_ms
        .first()
        .copied()
        .zip(columns.timestamps_ms.last().copied());
    decoded.is_ok() && columns.len() == n_samples as usize && times == expected
}

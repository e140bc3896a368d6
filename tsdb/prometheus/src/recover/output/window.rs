//! The windows of a replayed head, whose series are prepared for blocks.

use rayon::prelude::*;
use varve_collections::prefetch;
use varve_env::damage::{DamageKind, DamageReport};
use varve_env::sample_totals::SampleTotals;
use varve_model::{SampleColumns, TimeRange};
use varve_tsdb::Result;

use crate::block::SeriesGroup;
use crate::chunk::{self, Chunk, ChunkError, Encoder, Encoding, StartTimestamps};
use crate::losses::{IN_DAMAGED_CHUNKS, NOT_SUPPORTED};
use crate::recover::recovery::Recovery;
use crate::recover::replayed::Replayed;
use crate::recover::report::{Progress, RecoverPhase};
use crate::recover::series::label_order::{LabelOrder, Position};
use crate::recover::series::{SeriesIdx, SeriesTable};
use crate::recover::shard::{ChunkLocation, FoundChunk, Shard};
use crate::recover::windows::{Windows, range_of};

/// Number of series that one thread prepares at once.
pub(super) const GROUP_LEN: usize = 128;
/// Maximum number of groups per thread that are in preparation or wait to be written.
pub(super) const GROUPS_PER_WORKER: usize = 16;
/// Maximum number of prepared series per thread.
pub(super) const PREPARED_LEN: usize = GROUP_LEN * GROUPS_PER_WORKER;

/// A window with samples.
pub(super) struct Window<'a> {
    pub(super) replayed: &'a Replayed,
    pub(super) order: &'a LabelOrder<'a>,
    /// Its number since the epoch.
    pub(super) number: i64,
    pub(super) range: TimeRange,
    pub(super) start_timestamps: StartTimestamps,
}

/// Numbers of samples that chunks have and blocks do not get.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Dropped {
    n_covered: u64,
    n_duplicates: u64,
    n_deleted: u64,
    /// In damaged head chunks.
    n_damaged: u64,
    /// In series and histograms that a store does not accept.
    pub(super) n_not_supported: u64,
}

impl Dropped {
    pub(super) fn append(&mut self, other: Self) {
        self.n_covered += other.n_covered;
        self.n_duplicates += other.n_duplicates;
        self.n_deleted += other.n_deleted;
        self.n_damaged += other.n_damaged;
        self.n_not_supported += other.n_not_supported;
    }

    pub(super) fn add_to(self, totals: &mut SampleTotals) {
        totals.n_covered += self.n_covered;
        totals.n_duplicates += self.n_duplicates;
        totals.n_deleted += self.n_deleted;
        totals.lose(IN_DAMAGED_CHUNKS, self.n_damaged);
        totals.lose(NOT_SUPPORTED, self.n_not_supported);
    }
}

/// A prepared group of series.
#[derive(Default)]
pub(super) struct Prepared {
    pub(super) group: SeriesGroup,
    pub(super) series: Vec<Position>,
    /// Timestamp of the oldest sample.
    pub(super) oldest_ms: Option<i64>,
    pub(super) dropped: Dropped,
    pub(super) damage: DamageReport,
}

/// Buffers that are reused from series to series.
#[derive(Default)]
struct Buffers {
    found: Vec<FoundChunk>,
    bytes: Vec<u8>,
    columns: SampleColumns,
}

/// Calls `write` with each window that has samples, in ascending order of time, and a function that
/// reports the number of series written. `n_samples` is the number of all samples, for the progress.
pub(super) fn for_each_window(
    recovery: &Recovery<'_>,
    mut replayed: Replayed,
    n_samples: u64,
    mut write: impl FnMut(&Window<'_>, &(dyn Fn(u64) + Sync)) -> Result<()> + Send,
) -> Result<()> {
    let pool = recovery.pool;
    let mut windows = Windows::default();
    for shard in &mut replayed.shards {
        windows.append(std::mem::take(&mut shard.windows));
    }
    let windows = windows.sorted()?;
    let SeriesTable { pairs, labels, .. } = std::mem::take(&mut replayed.table);
    let order = pool.install(|| LabelOrder::of(&pairs, labels));
    let n_series = order.series.len() as u64;
    let total = windows.len() as u64 * n_series;
    for (done, &number) in (0..).zip(&windows) {
        let step = |n: u64| {
            (recovery.progress)(Progress {
                phase: RecoverPhase::Write,
                done: done * n_series + n,
                total,
                n_samples,
            });
        };
        let window = Window {
            replayed: &replayed,
            order: &order,
            number,
            range: range_of(number),
            start_timestamps: recovery.options.start_timestamps,
        };
        pool.install(|| write(&window, &step))?;
    }
    Ok(())
}

impl Window<'_> {
    /// Returns the series that may have samples, in label order, on the current thread pool.
    pub(super) fn series(&self) -> Vec<Position> {
        // There are no more positions than series.
        let positions = (0..self.order.series.len() as Position).into_par_iter();
        positions
            .filter(|&position| self.may_have_samples(position))
            .collect()
    }

    fn may_have_samples(&self, position: Position) -> bool {
        let (shard, slot) = self.replayed.locate(self.order.series[position as usize]);
        shard.may_have_samples(slot, self.number)
    }

    /// Prepares the chunks of some series. Leaves out series without samples.
    pub(super) fn prepare(&self, positions: &[Position]) -> Result<Prepared> {
        // In label order the series are scattered in memory.
        prefetch(positions.iter().map(|&position| {
            let (shard, slot) = self.replayed.locate(self.order.series[position as usize]);
            shard.first_words(slot, self.number)
        }));
        let mut prepared = Prepared::default();
        let mut buffers = Buffers::default();
        for &position in positions {
            let series = self.order.series[position as usize];
            let (shard, slot) = self.replayed.locate(series);
            shard.find(slot, self.number, &mut buffers.bytes, &mut buffers.found)?;
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
            ChunkLocation::Head(_) => {
                self.keeps(encoding) && min_ms >= self.replayed.input.min_valid_ms
            }
        };
        is_whole && is_ours && !is_out_of_order
    }

    /// Returns `true` if head chunks of an encoding need not be encoded again: encodings 4 to 6 may
    /// need their start timestamps dropped, others may need to have them.
    fn keeps(&self, encoding: Encoding) -> bool {
        match self.start_timestamps {
            StartTimestamps::Drop => matches!(
                encoding,
                Encoding::Xor | Encoding::Histogram | Encoding::FloatHistogram
            ),
            StartTimestamps::Keep => false,
            StartTimestamps::KeepKnown => encoding.is_float(),
        }
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
        let columns = self.merge(series, buffers, prepared)?;
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
        prepared: &mut Prepared,
    ) -> Result<SampleColumns> {
        let dropped = &mut prepared.dropped;
        let (shard, slot) = self.replayed.locate(series);
        let input = &self.replayed.input;
        let mut columns = SampleColumns::default();
        let mut decoded = SampleColumns::default();
        // Chunks may have samples of other windows, which count there.
        let mut n_expected = 0;
        for is_out_of_order in [false, true] {
            for found in buffers
                .found
                .iter_mut()
                .filter(|found| found.is_out_of_order == is_out_of_order)
            {
                decoded.clear();
                let bytes = shard.read(slot, found, input, &mut buffers.bytes)?;
                if let Err(error) = chunk::decode(found.chunk.encoding, bytes, &mut decoded) {
                    self.report(found, error, &mut prepared.damage);
                    if self.range.contains(found.chunk.min_ms) {
                        let n_samples = u64::from(found.chunk.n_samples);
                        dropped.n_damaged += n_samples.saturating_sub(decoded.len() as u64);
                    }
                }
                n_expected += decoded.len_within(self.range) as u64;
                columns.merge(&decoded);
            }
            let n_merged = columns.len_within(self.range) as u64;
            dropped.n_duplicates += n_expected.saturating_sub(n_merged);
            n_expected = n_merged;
            if !is_out_of_order {
                columns.retain(TimeRange {
                    start_ms: self.replayed.input.min_valid_ms,
                    end_ms: i64::MAX,
                });
                n_expected = columns.len_within(self.range) as u64;
                dropped.n_covered += n_merged.saturating_sub(n_expected);
            }
        }
        for &range in self.replayed.tombstones.get(&series).into_iter().flatten() {
            columns.remove(range);
        }
        columns.retain(self.range);
        dropped.n_deleted += n_expected.saturating_sub(columns.len() as u64);
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

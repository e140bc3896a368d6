//! Blocks of what was replayed, one per window of time, the oldest first.
//!
//! Series are prepared some at a time, by all workers; who prepared the ones that come next writes them.

use std::path::Path;
use std::sync::Arc;

use rayon::ThreadPool;
use rayon::prelude::*;
use varve_tsdb::fs::Fs;
use varve_tsdb::fs::damage::{DamageKind, DamageReport};
use varve_tsdb::{Result, SampleColumns, TimeRange};

use super::RecoverOptions;
use super::in_order::in_order;
use super::order::{Order, Position};
use super::postings;
use super::replay::Replayed;
use super::report::{Phase, Progress, Report};
use super::series::{SeriesIdx, SeriesTable};
use super::shard::{Found, Place, Shard};
use super::windows::{Windows, range_of};
use crate::block::{
    BlockMeta, BlockWriter, Description, EncodedChunk, Entries, FROM_OUT_OF_ORDER, PostingsWriter, SeriesGroup,
};
use crate::chunk::{self, ChunkError, Encoder, Encoding, StartTimes};

/// Series that one worker prepares at once.
const GROUP_LEN: usize = 256;
/// Groups for each worker that are prepared, or written, at the same time.
const GROUPS_OF_WORKER: usize = 8;

/// Bytes of a series while a block is written, besides its labels: its place in the order, what it is sorted by, its number,
/// and where its labels end.
const SERIES_SIZE: usize = 32;
/// Bytes of a pair while a block is written, besides its texts: its places in the orders, and its entry in a table; and those
/// for each worker: how many series have it.
const PAIR_SIZE: usize = 128;
const PAIR_SIZE_OF_WORKER: usize = 4;
/// Bytes of chunks and entries of a series that is prepared; few have more in one block.
const PREPARED_SIZE: usize = 2 << 10;
/// Prepared series that are there at once, for each worker.
const PREPARED_LEN: usize = GROUP_LEN * GROUPS_OF_WORKER;

/// Estimates the bytes that writing the series of a table takes, besides what is there already.
pub(super) fn memory(table: &SeriesTable, n_workers: usize) -> usize {
    let of_worker = PREPARED_LEN * PREPARED_SIZE + postings::MEMORY_OF_WORKER;
    let of_pairs = table.pairs.len() * (PAIR_SIZE + n_workers * PAIR_SIZE_OF_WORKER) + table.pairs.size();
    table.labels.size() + table.len() * SERIES_SIZE + of_pairs + n_workers * of_worker
}

/// Writes the blocks.
pub(super) fn write(
    fs: &Arc<dyn Fs>,
    mut replayed: Replayed,
    out: &Path,
    options: &RecoverOptions,
    pool: &ThreadPool,
    report: &mut Report,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<()> {
    let mut windows = Windows::default();
    replayed.shards.iter_mut().for_each(|shard| windows.append(std::mem::take(&mut shard.windows)));
    let windows = windows.in_order()?;
    let SeriesTable { pairs, labels, .. } = std::mem::take(&mut replayed.table);
    let order = pool.install(|| Order::of(&pairs, labels));
    let newest_ms = replayed.shards.iter().map(Shard::newest_ms).max().unwrap_or(i64::MIN);
    let (n_series, n_samples) = (order.series.len() as u64, report.n_samples + report.n_late_samples);
    let total = windows.len() as u64 * n_series;
    for (done, &window) in (0..).zip(&windows) {
        let step = |n: u64| progress(Progress { phase: Phase::Write, done: done * n_series + n, total, n_samples });
        let (replayed, order) = (&replayed, &order);
        let output = Output { replayed, order, window, range: range_of(window), starts: options.starts };
        report.blocks.extend(pool.install(|| output.write(fs, out, options, newest_ms, &mut report.damage, &step))?);
    }
    Ok(())
}

/// One block.
struct Output<'a> {
    replayed: &'a Replayed,
    order: &'a Order<'a>,
    window: i64,
    range: TimeRange,
    starts: StartTimes,
}

/// Series that were prepared.
#[derive(Default)]
struct Prepared {
    group: SeriesGroup,
    series: Vec<Position>,
    /// The oldest sample.
    oldest_ms: Option<i64>,
    damage: DamageReport,
}

/// What preparing a series needs, used again for the next one.
#[derive(Default)]
struct Buffers {
    found: Vec<Found>,
    bytes: Vec<u8>,
    columns: SampleColumns,
}

impl Output<'_> {
    /// Writes the block; none if all of its samples were deleted.
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
        let series: Vec<_> = positions.filter(|&it| self.may_have(it)).collect();
        let (texts, places) = self.texts(&series);
        let mut writer = BlockWriter::create(fs, out, &format!("window-{}", self.window), &texts)?;
        let (mut written, mut oldest_ms) = (Vec::with_capacity(series.len()), None::<i64>);
        let groups: Vec<_> = series.chunks(GROUP_LEN).collect();
        let prepare = |group: usize| self.prepare(groups[group]);
        let add = |mut prepared: Prepared| {
            // Where the chunks lie is known once they are written: the index says it.
            writer.place(&mut prepared.group)?;
            writer.add_entries(&self.entries(&prepared, &places))?;
            written.extend_from_slice(&prepared.series);
            oldest_ms = oldest_ms.into_iter().chain(prepared.oldest_ms).min();
            damage.append(prepared.damage);
            step(written.len() as u64);
            Ok(())
        };
        in_order(groups.len(), GROUPS_OF_WORKER * rayon::current_num_threads(), prepare, add)?;
        let Some(oldest_ms) = oldest_ms else { return writer.abandon().map(|()| None) };
        let mut description = self.description(oldest_ms, newest_ms);
        description.external_labels.clone_from(&options.external_labels);
        let postings =
            |to: &mut PostingsWriter<'_>, numbers: &[u32]| postings::write(self.order, &written, numbers, to);
        writer.finish_with(description, postings).map(Some)
    }

    fn may_have(&self, position: Position) -> bool {
        let (shard, slot) = self.replayed.place(self.order.series[position as usize]);
        shard.may_have(slot, self.window)
    }

    /// Returns the names and values of some series, and by pair the places of its name and its value there.
    fn texts(&self, series: &[Position]) -> (Vec<&str>, Vec<(u32, u32)>) {
        let Order { texts: all, pairs, .. } = self.order;
        let counts = self.order.count(series);
        let mut places = vec![u32::MAX; all.len()];
        for (&(name, value), _) in pairs.iter().zip(&counts).filter(|(_, n_series)| **n_series > 0) {
            (places[name as usize], places[value as usize]) = (0, 0);
        }
        let mut texts = Vec::new();
        for (place, &text) in places.iter_mut().zip(all).filter(|(place, _)| **place == 0) {
            *place = texts.len() as u32;
            texts.push(text);
        }
        let places = pairs.iter().map(|&(name, value)| (places[name as usize], places[value as usize])).collect();
        (texts, places)
    }

    fn description(&self, oldest_ms: i64, newest_ms: i64) -> Description {
        let valid_from_ms = self.replayed.valid_from_ms;
        // Only late samples lie before what blocks cover.
        let min_ms =
            if oldest_ms >= valid_from_ms { self.range.start_ms.max(valid_from_ms) } else { self.range.start_ms };
        let end_ms = self.range.end_ms.saturating_add(1);
        // Prometheus takes new samples from the end of the newest block on.
        let max_ms = if newest_ms <= self.range.end_ms { newest_ms.saturating_add(1) } else { end_ms };
        let hints = if end_ms <= valid_from_ms { vec![FROM_OUT_OF_ORDER.to_owned()] } else { Vec::new() };
        Description { min_ms, max_ms, hints, external_labels: Vec::new() }
    }

    fn entries(&self, prepared: &Prepared, places: &[(u32, u32)]) -> Entries {
        prepared.group.entries(|i| self.order.labels(prepared.series[i]).iter().map(|&pair| places[pair as usize]))
    }

    fn prepare(&self, positions: &[Position]) -> Result<Prepared> {
        self.touch(positions);
        let (mut prepared, mut buffers) = (Prepared::default(), Buffers::default());
        for &position in positions {
            let series = self.order.series[position as usize];
            let (shard, slot) = self.replayed.place(series);
            shard.find(slot, self.window, &mut buffers.bytes, &mut buffers.found)?;
            // Fast path: nothing late, nothing deleted.
            let is_plain = !self.replayed.tombstones.contains_key(&series)
                && buffers.found.iter().all(|found| self.is_plain(found))
                && self.copy(shard, slot, &mut buffers, &mut prepared)?;
            let oldest_ms = match is_plain {
                true => buffers.found.first().map(|found| found.min_ms),
                false => self.encode(series, &mut buffers, &mut prepared)?,
            };
            if oldest_ms.is_some() {
                prepared.group.end_series();
                prepared.series.push(position);
                prepared.oldest_ms = prepared.oldest_ms.into_iter().chain(oldest_ms).min();
            }
        }
        Ok(prepared)
    }

    /// Has what is needed of series brought into the processor's cache. In the order of labels they lie far apart in memory:
    /// here it is asked for that of many at once, instead of waiting for one after the other.
    fn touch(&self, positions: &[Position]) {
        let touch = |&position: &Position| {
            let (shard, slot) = self.replayed.place(self.order.series[position as usize]);
            shard.touch(slot, self.window)
        };
        std::hint::black_box(positions.iter().map(touch).fold(0, |sum, it| sum ^ it));
    }

    /// Tells whether a chunk can go into the block as it is, if it decodes.
    fn is_plain(&self, found: &Found) -> bool {
        let is_whole = self.range.start_ms <= found.min_ms && found.max_ms <= self.range.end_ms;
        let is_ours = match found.place {
            Place::Growing | Place::Ended(_) => true,
            // Of encodings 4 to 6, starts may have to be left out, and to be there.
            Place::Head(_) => {
                let is_known = matches!(found.encoding, Encoding::Xor | Encoding::Histogram | Encoding::FloatHistogram);
                is_known && self.starts == StartTimes::Dropped && found.min_ms >= self.replayed.valid_from_ms
            }
        };
        is_whole && is_ours && !found.is_late
    }

    /// Takes chunks as they are, and those that were cut as they were before; false if a head chunk does not hold what is
    /// said of it: then none of them is taken.
    fn copy(&self, shard: &Shard, slot: u32, buffers: &mut Buffers, prepared: &mut Prepared) -> Result<bool> {
        let head = (&self.replayed.head, self.replayed.head_chunks.as_slice());
        let Buffers { found, bytes, columns } = buffers;
        let is_head = |found: &Found| matches!(found.place, Place::Head(_));
        // Between head chunks one chunk of the log follows the other.
        for run in found.chunk_by_mut(|a, b| !is_head(a) && !is_head(b)) {
            if run.iter().any(|found| found.is_cut) {
                self.join(shard, slot, run, (bytes, columns), prepared)?;
                continue;
            }
            for found in run {
                let bytes = shard.read(slot, found, head, bytes)?;
                if is_head(found) && !holds(found, bytes, columns) {
                    prepared.group.undo();
                    return Ok(false);
                }
                let &mut Found { encoding, min_ms, max_ms, n_samples, .. } = found;
                prepared.group.push(&EncodedChunk { encoding, min_ms, max_ms, n_samples: u64::from(n_samples), bytes });
            }
        }
        Ok(true)
    }

    /// Encodes chunks of the log, of which some were cut when memory was short, as they would be if they were not.
    fn join(
        &self,
        shard: &Shard,
        slot: u32,
        run: &mut [Found],
        (bytes, columns): (&mut Vec<u8>, &mut SampleColumns),
        prepared: &mut Prepared,
    ) -> Result<()> {
        let head = (&self.replayed.head, self.replayed.head_chunks.as_slice());
        columns.clear();
        for found in run {
            let decoded = chunk::decode(found.encoding, shard.read(slot, found, head, bytes)?, columns);
            debug_assert_eq!(decoded, Ok(()), "what was encoded here");
        }
        let mut encoder = Encoder::new(self.starts);
        encoder.push_columns(columns);
        encoder.finish().iter().for_each(|chunk| prepared.group.push(&EncodedChunk::of(chunk)));
        Ok(())
    }

    /// Brings samples together and encodes them again; returns the time of the first one, if any is left.
    fn encode(&self, series: SeriesIdx, buffers: &mut Buffers, prepared: &mut Prepared) -> Result<Option<i64>> {
        let columns = self.merge(series, buffers, &mut prepared.damage)?;
        let mut encoder = Encoder::new(self.starts);
        encoder.push_columns(&columns);
        encoder.finish().iter().for_each(|chunk| prepared.group.push(&EncodedChunk::of(chunk)));
        Ok(columns.timestamps_ms.first().copied())
    }

    /// Decodes chunks: those in order first, then late ones where there is no sample yet; then takes out what was deleted.
    fn merge(&self, series: SeriesIdx, buffers: &mut Buffers, damage: &mut DamageReport) -> Result<SampleColumns> {
        let (shard, slot) = self.replayed.place(series);
        let head = (&self.replayed.head, self.replayed.head_chunks.as_slice());
        let (mut columns, mut decoded) = (SampleColumns::default(), SampleColumns::default());
        for is_late in [false, true] {
            for found in buffers.found.iter_mut().filter(|found| found.is_late == is_late) {
                decoded.clear();
                let bytes = shard.read(slot, found, head, &mut buffers.bytes)?;
                if let Err(error) = chunk::decode(found.encoding, bytes, &mut decoded) {
                    self.report(found, error, damage);
                }
                columns.merge(&decoded);
            }
            if !is_late {
                columns.retain(TimeRange { start_ms: self.replayed.valid_from_ms, end_ms: i64::MAX });
            }
        }
        for &range in self.replayed.tombstones.get(&series).into_iter().flatten() {
            columns.remove(range);
        }
        columns.retain(self.range);
        Ok(columns)
    }

    fn report(&self, found: &Found, error: ChunkError, damage: &mut DamageReport) {
        if let Place::Head(place) = found.place {
            let chunk = &self.replayed.head_chunks[place as usize];
            let reason = format!("a chunk of series {}: {error}", chunk.series);
            damage.push(self.replayed.head.path(chunk), u64::from(chunk.offset), DamageKind::Corrupt, reason);
        }
    }
}

/// Tells whether a chunk decodes to as many samples, in that time, as is said of it.
fn holds(found: &Found, bytes: &[u8], columns: &mut SampleColumns) -> bool {
    let expected = Some((found.min_ms, found.max_ms));
    // Fast path: floats, of which nothing but the times is needed. How many there are was read from the chunk.
    if found.encoding == Encoding::Xor {
        return chunk::check_floats(bytes) == Ok(expected);
    }
    columns.clear();
    let decoded = chunk::decode(found.encoding, bytes, columns);
    let times = columns.timestamps_ms.first().copied().zip(columns.timestamps_ms.last().copied());
    decoded.is_ok() && columns.len() == found.n_samples as usize && times == expected
}

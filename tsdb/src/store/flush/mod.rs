//! Flushing: writing samples from the heads to parts, so that the WAL stays short.
//!
//! Used by the flush task, by deletes, snapshots and compaction on request. One flush runs at a
//! time:
//!
//! 1. Appends pause. Every log is rotated, and its shards freeze their chunks. Appends continue.
//!    Reads see frozen chunks as before.
//! 2. Outside all locks, the frozen series of all shards are written in label order, one part per
//!    window of 2 h.
//! 3. The parts are put in place (synced, renamed, directory synced) and added to the block list.
//! 4. Once no reader uses the previous list, the frozen chunks are dropped, and every log gets a
//!    checkpoint, which durably replaces the segments that the parts cover.
//! 5. Idle, stale and deleted series are evicted once no reader may look them up. Only readers that
//!    began before step 4 may, because a selection includes only series with samples in memory. If
//!    such a reader is still active, the flush task evicts the series later.
//!
//! Crash: before the rename of a part, no durable state has changed. Between the rename and the
//! checkpoint, a replay restores samples that the part contains too. Reads and merges return them
//! once. A failed flush leaves its chunks frozen. The next flush begins with them.

mod state;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::io::ErrorKind;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use hashbrown::HashMap;
use varve_collections::prefetch;

use crate::block::{Block, BlockOrigin, BlockWriter, Symbol};
use crate::compact::window_of;
use crate::context::QueryContext;
use crate::error::{Damaged, Error, Result};
use crate::head::{Frozen, HeadCopies, Pair, SeriesOrder, SlotRef, StaleSeries};
use crate::labels::Matcher;
use crate::options::Options;
use crate::sample::staleness::is_stale_nan;
use crate::sample::{SampleColumns, TimeRange};
use crate::shard::{EvictionLimits, Shard, ShardLog};
use crate::store::Store;
use state::StaleByShard;

pub use state::FlushStats;
pub(super) use state::Flushing;

/// Number of series whose chunks are prefetched together, and whose labels are looked up per
/// acquisition of the head lock.
const BATCH_SERIES: usize = 512;

impl Store {
    /// Flushes all samples appended before the call, and returns statistics. Waits for the end of
    /// the replay, which determines the contents of the parts.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) if parts or checkpoints cannot be written. No samples are
    /// lost then. [`Error::ReplayFailed`].
    pub(crate) fn flush(&self) -> Result<FlushStats> {
        self.replay.wait(&QueryContext::unbounded())?;
        self.flush_under(&mut self.flushing.lock())
    }

    /// Flushes as [`Store::flush`] does, and returns `n` new numbers of flushes. All other flushes
    /// and deletions are before the numbers, or after them.
    ///
    /// # Errors
    /// The errors of [`Store::flush`].
    pub(crate) fn flush_before(&self, n: u64) -> Result<RangeInclusive<u64>> {
        self.replay.wait(&QueryContext::unbounded())?;
        let mut flushing = self.flushing.lock();
        self.flush_under(&mut flushing)?;
        Ok(self.blocks.next_flushes(n))
    }

    /// Flushes as [`Store::flush`] does. If the disk or a quota is full, flushes again with the
    /// space of the reserve. If the flush succeeds, fills the reserve again.
    ///
    /// # Errors
    /// The errors of [`Store::flush`], and of releasing and filling the
    /// [`Reserve`](crate::wal::Reserve). The samples are flushed if only filling it fails.
    pub(crate) fn flush_with_reserve(&self) -> Result<()> {
        let mut flushed = self.flush();
        if flushed.as_ref().is_err_and(is_full) {
            self.reserve.release()?;
            flushed = self.flush();
        }
        flushed?;
        self.reserve.fill()
    }

    /// Flushes, then deletes from blocks, and evicts the series whose newest samples are deleted.
    /// See [`Db::delete`](crate::Db::delete). No other flush runs in between, because its samples
    /// may have been appended after the deletion.
    ///
    /// # Errors
    /// The errors of [`Db::delete`](crate::Db::delete).
    pub(crate) fn delete(&self, matchers: Vec<Matcher>, range: TimeRange) -> Result<()> {
        self.replay.wait(&QueryContext::unbounded())?;
        let mut flushing = self.flushing.lock();
        self.flush_under(&mut flushing)?;
        let ended = self.ended_in(&matchers, range)?;
        {
            let _change = self.begin_block_change(range);
            self.blocks.delete(matchers, range)?;
        }
        self.evict_deleted(&mut flushing, ended);
        Ok(())
    }

    /// Evicts the series whose newest samples are deleted, after a replay. A checkpoint from before
    /// a deletion still defines them. The checkpoint of a later flush does not, so a deletion is
    /// skipped if a block of a later flush exists. If the process crashed between that block and
    /// its checkpoint, the series stay until they are idle.
    ///
    /// # Errors
    /// The errors of [`Shard::ended_in`].
    pub(crate) fn evict_deleted_before(&self) -> Result<()> {
        let mut flushing = self.flushing.lock();
        for rule in self.blocks.newest_deletions() {
            let ended = self.ended_in(&rule.matchers, rule.range)?;
            self.evict_deleted(&mut flushing, ended);
        }
        Ok(())
    }

    fn ended_in(&self, matchers: &[Matcher], range: TimeRange) -> Result<StaleByShard> {
        let ctx = QueryContext::unbounded();
        self.shards
            .iter()
            .map(|shard| shard.ended_in(&ctx, matchers, range))
            .collect()
    }

    fn evict_deleted(&self, flushing: &mut Flushing, ended: StaleByShard) {
        flushing.note_deleted(ended);
        // All samples of these series left the memory at this epoch or before.
        flushing
            .dropped
            .get_or_insert_with(|| self.series_readers.advance_epoch());
        self.evict(flushing);
    }

    fn flush_under(&self, flushing: &mut Flushing) -> Result<FlushStats> {
        let mut stats = FlushStats::default();
        // An unfinished flush goes first: its samples are older.
        if flushing.is_unfinished {
            self.finish(flushing, &mut stats)?;
        }
        let started = Instant::now();
        (flushing.number, flushing.is_unfinished) = (*self.blocks.next_flushes(1).start(), true);
        self.freeze()?;
        stats.paused_us = started.elapsed().as_micros() as u64;
        self.finish(flushing, &mut stats)?;
        flushing.is_unfinished = false;
        // Now every shard has flushed the samples that it replayed from them.
        self.remove_old_epochs()?;
        self.newest.cut();
        Ok(stats)
    }

    /// Freezes all shards at one instant: every request is frozen in all its shards or in none.
    fn freeze(&self) -> Result<()> {
        // Writes buffered records before the pause, so that appends do not wait for these writes.
        self.logs.iter().try_for_each(|log| log.wal().write_out())?;
        let _pause = self.isolation.pause();
        self.newest.freeze();
        let freeze = |(idx, log): (usize, &Arc<ShardLog>)| {
            log.freeze(self.shards_of(idx).map(|(_, shard)| shard))
        };
        self.logs.iter().enumerate().try_for_each(freeze)
    }

    /// Writes the frozen samples and truncates the logs.
    fn finish(&self, flushing: &mut Flushing, stats: &mut FlushStats) -> Result<()> {
        let frozen = self.frozen(flushing)?;
        if !frozen.is_empty() {
            let started = Instant::now();
            let (parts, stale) = self.write_parts(&frozen, flushing.number)?;
            stats.n_parts += parts.len() as u64;
            stats.n_samples += parts.iter().map(|part| part.meta().n_samples).sum::<u64>();
            let n_parts = parts.len();
            let bytes = parts.iter().map(|part| part.meta().size).sum::<u64>();
            self.blocks.add(parts)?;
            // Readers of the block list without the parts need the frozen samples.
            let mark = self.block_list_readers.advance_epoch();
            self.block_list_readers.wait_for(mark);
            for shard in &self.shards {
                // Drops the frozen samples after the lock is released.
                let _frozen = shard.head_mut().drop_frozen();
            }
            flushing.note(stale);
            flushing.dropped = Some(self.series_readers.advance_epoch());
            stats.n_evicted += self.evict(flushing);
            for shard in &self.shards {
                shard.sort_label_values();
            }
            let FlushStats {
                n_samples,
                n_evicted,
                ..
            } = *stats;
            tracing::info!(n_parts, bytes, n_samples, n_evicted, duration = ?started.elapsed(), "flushed the head");
        }
        self.cut_logs()
    }

    fn cut_logs(&self) -> Result<()> {
        let metadata = self.metadata.lock().by_age();
        // Exemplars logged before the truncation are in the ring unless they were evicted.
        let exemplars = self.exemplars.by_log(self.logs.len());
        for ((idx, log), exemplars) in self.logs.iter().enumerate().zip(&exemplars) {
            // The first log has the metadata of the whole store.
            let families = if idx == 0 { &*metadata } else { &[] };
            let shards = self.shards_of(idx).map(|(_, shard)| shard);
            log.checkpoint(
                shards,
                self.next_ref.load(Ordering::SeqCst),
                families,
                exemplars,
            )?;
        }
        Ok(())
    }

    /// Returns the frozen samples of all shards that have any.
    fn frozen(&self, flushing: &mut Flushing) -> Result<Vec<FrozenShard<'_>>> {
        let frozen: Vec<_> = self
            .shards
            .iter()
            .map(|shard| shard.head().frozen())
            .collect();
        if frozen.iter().all(Option::is_none) {
            return Ok(Vec::new());
        }
        let orders = self.rank_series(flushing)?;
        let shards = self.shards.iter().zip(orders).zip(frozen).enumerate();
        let frozen = shards.filter_map(|(number, ((shard, order), frozen))| {
            frozen.map(|frozen| FrozenShard::new(number, shard, frozen, &order))
        });
        frozen.collect()
    }

    /// Writes all parts, and returns them with the stale series.
    fn write_parts(
        &self,
        frozen: &[FrozenShard<'_>],
        flush: u64,
    ) -> Result<(Vec<Arc<Block>>, StaleByShard)> {
        let windows: BTreeSet<i64> = frozen
            .iter()
            .flat_map(|shard| shard.by_window.keys().copied())
            .collect();
        let mut parts = Vec::new();
        let mut stale = vec![Vec::new(); self.shards.len()];
        for start_ms in windows {
            match self.write_part(frozen, window_of(start_ms), flush, &mut stale) {
                Ok(part) => parts.push(part),
                Err(refused) => {
                    // All parts are written again.
                    self.blocks
                        .discard(parts.iter().map(|part| part.meta().origin.id));
                    return Err(refused);
                }
            }
        }
        Ok((parts, stale))
    }

    fn write_part(
        &self,
        frozen: &[FrozenShard<'_>],
        window: TimeRange,
        flush: u64,
        stale: &mut [Vec<StaleSeries>],
    ) -> Result<Arc<Block>> {
        let id = self.blocks.next_id();
        let deletions = self.blocks.last_deletion();
        let origin = BlockOrigin {
            id,
            window,
            level: 0,
            flushes: (flush, flush),
            sources: Vec::new(),
            deletions,
        };
        let mut writer =
            BlockWriter::create(Arc::clone(&self.options.fs), self.blocks.dir(), origin)?;
        let in_window: Vec<_> = frozen
            .iter()
            .map(|shard| shard.in_window(window.start_ms))
            .collect();
        let symbols = write_symbols(frozen, &in_window, &mut writer)?;
        let mut rows: Vec<Rows<'_>> = Vec::with_capacity(frozen.len());
        for ((shard, slots), symbols) in frozen.iter().zip(&in_window).zip(&symbols) {
            let batch = VecDeque::new();
            let batch_labels = VecDeque::new();
            let tails = Vec::new();
            let last = LastLabels(Vec::new());
            rows.push(Rows {
                shard,
                window,
                symbols,
                slots,
                batch,
                batch_labels,
                last,
                tails,
            });
        }
        let mut heap: BinaryHeap<_> = (0..rows.len())
            .filter_map(|idx| rows[idx].next(idx, Vec::new()))
            .collect();
        let mut samples = SampleColumns::default();
        let mut scratch = HeadCopies::default();
        while let Some(Reverse((labels, idx, slot))) = heap.pop() {
            samples.clear();
            frozen[idx]
                .frozen
                .read(slot, window, &mut scratch, &mut samples)
                .map_err(overwritten)?;
            writer.series(&labels, &samples)?;
            stale[frozen[idx].number].extend(frozen[idx].stale(slot, &samples));
            if let Some(next) = rows[idx].next(idx, labels) {
                heap.push(next);
            }
        }
        writer.finish()?;
        self.blocks
            .open_block(id)
            .inspect_err(|_| self.blocks.discard([id]))
    }

    /// Evicts series that the last flush could not evict, unless another flush runs.
    pub(crate) fn evict_deferred(&self) {
        if let Some(mut flushing) = self.flushing.try_lock() {
            self.evict(&mut flushing);
        }
    }

    /// Evicts series that are idle or stale, unless readers may look them up.
    fn evict(&self, flushing: &mut Flushing) -> u64 {
        let Some(newest_ms) = self.newest.accepted() else {
            return 0;
        };
        if flushing
            .dropped
            .is_none_or(|mark| !self.series_readers.all_left(mark))
        {
            return 0;
        }
        flushing.dropped = None;
        let Options {
            series_idle_ms,
            series_stale_ms,
            ..
        } = self.options;
        let sent_ms = self.newest.accepted_sent().unwrap_or(i64::MIN);
        let limits = EvictionLimits {
            idle_before_ms: newest_ms.saturating_sub(series_idle_ms),
            stale_before_ms: newest_ms.saturating_sub(series_stale_ms.min(series_idle_ms)),
            forget_before_ms: sent_ms.saturating_sub(self.options.age_max_ms()),
        };
        let Flushing { stale, deleted, .. } = flushing;
        for all in [&mut *stale, &mut *deleted] {
            all.resize_with(self.shards.len(), Vec::new);
        }
        let shards = self.shards.iter().zip(stale.iter_mut().zip(deleted));
        shards
            .map(|(shard, (stale, deleted))| shard.evict(limits, stale, deleted) as u64)
            .sum()
    }
}

/// The frozen samples of a shard.
struct FrozenShard<'a> {
    number: usize,
    shard: &'a Shard,
    frozen: Arc<Frozen>,
    /// The series with samples in a window, in label order, by the start of the window.
    by_window: BTreeMap<i64, Vec<SlotRef>>,
}

impl<'a> FrozenShard<'a> {
    fn new(
        number: usize,
        shard: &'a Shard,
        frozen: Arc<Frozen>,
        order: &SeriesOrder,
    ) -> Result<Self> {
        let slots = order
            .sorted()
            .iter()
            .copied()
            .filter(|slot_ref| frozen.has(slot_ref.slot));
        let by_window = by_window(&frozen, slots)?;
        Ok(Self {
            number,
            shard,
            frozen,
            by_window,
        })
    }

    /// Returns the series with samples in the window that starts at `start_ms`, in label order.
    fn in_window(&self, start_ms: i64) -> &[SlotRef] {
        self.by_window.get(&start_ms).map_or(&[], Vec::as_slice)
    }

    /// Returns the series if its last frozen sample is a staleness marker.
    fn stale(&self, slot: u32, samples: &SampleColumns) -> Option<StaleSeries> {
        let (&at_ms, &value) = samples.timestamps_ms.last().zip(samples.values.last())?;
        // The series has frozen samples, so the slot was not reused.
        is_stale_nan(value).then(|| StaleSeries {
            slot_ref: self.shard.head().slot_ref(slot),
            at_ms,
        })
    }
}

/// Returns the series with samples in each window, in the order of `slots`, by the start of the
/// window.
fn by_window(
    frozen: &Frozen,
    slots: impl Iterator<Item = SlotRef>,
) -> Result<BTreeMap<i64, Vec<SlotRef>>> {
    let range = frozen.range();
    // Fast path: all samples lie in one window.
    if window_of(range.start_ms).contains(range.end_ms) {
        return Ok(BTreeMap::from([(
            window_of(range.start_ms).start_ms,
            slots.collect(),
        )]));
    }
    let mut samples = SampleColumns::default();
    let mut scratch = HeadCopies::default();
    let mut windows = BTreeMap::new();
    for slot_ref in slots {
        samples.clear();
        frozen
            .read(slot_ref.slot, TimeRange::ALL, &mut scratch, &mut samples)
            .map_err(overwritten)?;
        for of_window in samples
            .timestamps_ms
            .chunk_by(|&a, &b| window_of(a).contains(b))
        {
            windows
                .entry(window_of(of_window[0]).start_ms)
                .or_insert_with(Vec::new)
                .push(slot_ref);
        }
    }
    Ok(windows)
}

/// Returns `true` if there is no space on the disk, or none within a quota.
fn is_full(error: &Error) -> bool {
    let Error::Io { source, .. } = error else {
        return false;
    };
    matches!(
        source.kind(),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded
    )
}

fn overwritten(_damaged: Damaged) -> Error {
    Error::Corrupt {
        path: "head".into(),
        offset: 0,
        reason: "a chunk in memory does not decode".to_owned(),
    }
}

/// The symbols of one shard's head in the part being written.
type SymbolMap = HashMap<Pair, Symbol>;

/// Writes the names and values of all labels of series in the part.
fn write_symbols(
    frozen: &[FrozenShard<'_>],
    in_window: &[&[SlotRef]],
    writer: &mut BlockWriter,
) -> Result<Vec<SymbolMap>> {
    let mut texts = String::new();
    let mut used = Vec::new();
    let mut symbols: Vec<SymbolMap> = frozen.iter().map(|_| SymbolMap::new()).collect();
    for ((idx, shard), slots) in frozen.iter().enumerate().zip(in_window) {
        let mut last = LastLabels(Vec::new());
        for slots in slots.chunks(BATCH_SERIES) {
            let head = shard.shard.head();
            prefetch(
                slots
                    .iter()
                    .map(|slot_ref| head.first_label_word(slot_ref.slot)),
            );
            let mut copy = |symbol| {
                let start = texts.len();
                texts.push_str(head.symbol(symbol));
                start..texts.len()
            };
            for (i, pair) in slots
                .iter()
                .flat_map(|slot_ref| head.pairs(slot_ref.slot).enumerate())
            {
                last.get(i, pair, || {
                    // Its symbol is set below.
                    if symbols[idx].insert(pair, Symbol(u32::MAX)).is_none() {
                        used.push(((copy(pair.0), copy(pair.1)), idx, pair));
                    }
                });
            }
        }
    }
    let text = |(name, value): &(Range<usize>, Range<usize>)| {
        (&texts[name.clone()], &texts[value.clone()])
    };
    used.sort_unstable_by(|a, b| text(&a.0).cmp(&text(&b.0)));
    for of_text in used.chunk_by(|a, b| text(&a.0) == text(&b.0)) {
        let (name, value) = text(&of_text[0].0);
        let symbol = writer.symbol(name, value)?;
        for &(_, idx, pair) in of_text {
            symbols[idx].insert(pair, symbol);
        }
    }
    Ok(symbols)
}

/// The series of one shard in a part, in label order, as rows of the series table.
struct Rows<'a> {
    shard: &'a FrozenShard<'a>,
    window: TimeRange,
    symbols: &'a SymbolMap,
    /// Series that are not in `batch` yet.
    slots: &'a [SlotRef],
    /// The slot and the number of labels of each series.
    batch: VecDeque<(u32, usize)>,
    /// The labels of the series in `batch`.
    batch_labels: VecDeque<Symbol>,
    last: LastLabels<Symbol>,
    /// Scratch memory.
    tails: Vec<u32>,
}

impl Rows<'_> {
    /// Returns the next series with its labels, in the memory of `labels`.
    fn next(
        &mut self,
        idx: usize,
        mut labels: Vec<Symbol>,
    ) -> Option<Reverse<(Vec<Symbol>, usize, u32)>> {
        if self.batch.is_empty() {
            self.fill();
        }
        let (slot, n_labels) = self.batch.pop_front()?;
        labels.clear();
        labels.extend(self.batch_labels.drain(..n_labels));
        Some(Reverse((labels, idx, slot)))
    }

    fn fill(&mut self) {
        let (slots, rest) = self.slots.split_at(self.slots.len().min(BATCH_SERIES));
        self.slots = rest;
        let slot_numbers = slots.iter().map(|slot_ref| slot_ref.slot);
        self.shard
            .frozen
            .prefetch_chunks(slot_numbers.clone(), self.window, &mut self.tails);
        let head = self.shard.shard.head();
        prefetch(slot_numbers.map(|slot| head.first_label_word(slot)));
        for slot_ref in slots {
            let labels = head.pairs(slot_ref.slot).enumerate();
            let n_before = self.batch_labels.len();
            self.batch_labels
                .extend(labels.map(|(i, pair)| self.last.get(i, pair, || self.symbols[&pair])));
            self.batch
                .push_back((slot_ref.slot, self.batch_labels.len() - n_before));
        }
    }
}

/// The last label at each position, with what belongs to it: most labels of a series are those of
/// the series before. A flush evicts no series meanwhile, so the ids of labels stay the same.
struct LastLabels<T>(Vec<(Pair, T)>);

impl<T: Copy> LastLabels<T> {
    /// Returns what belongs to the label at a position. Calls `find` only if the last label there
    /// was another one.
    fn get(&mut self, at: usize, label: Pair, find: impl FnOnce() -> T) -> T {
        match self.0.get_mut(at) {
            Some(&mut (last, found)) if last == label => return found,
            Some(last) => *last = (label, find()),
            None => self.0.push((label, find())),
        }
        self.0[at].1
    }
}

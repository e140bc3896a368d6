//! A shard: one head behind one lock. The hash of a label set selects the shard. Several shards
//! share a log ([`ShardLog`]).
//!
//! Lock order: exemplar ring, log batch, head, sample buffer, WAL. A commit takes only the WAL
//! lock. `last_order` is locked before the head, and never together with any other lock.
//!
//! After creating a series, a thread passes the head lock to the longest waiter (`unlock_fair`). So
//! a request that creates thousands of series does not starve appends to known ones.

mod buffered;
mod checkpoint;
pub(crate) mod exemplars;
mod log;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use roaring::RoaringBitmap;

use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::head::{
    Appended, Bounds, GroupCounts, Head, NewSeries, Ranks, SeriesGroup, SeriesOrder, ShrinkTarget,
    SlotRef, SlotSort, StaleSeries,
};
use crate::index::SymbolId;
use crate::isolation::changes::group_of;
use crate::labels::{Labels, METRIC_NAME, Matcher};
use crate::sample::{
    Append, AppendHistogram, HistogramQueue, RejectReason, Rejected, SeriesHandle, ShardBatch,
    TimeRange,
};
use crate::wal::{LoggedHistogram, StartTimestamp, Wal, log_of};

pub(crate) use self::buffered::{BUFFERED_SAMPLE_SIZE, BufferedSample, SampleBuffer};
pub(crate) use self::log::{LogBatch, ShardLog};

/// Returns the shard of a label set. Its lowest bits are the log of the label set.
pub(crate) fn shard_of(labels: &Labels, n_shards: usize) -> usize {
    log_of(labels, n_shards)
}

/// The part of the memory of a head that only samples may use: a sixteenth. So new series are
/// rejected before samples.
const KNOWN_SERIES_PART: usize = 16;

/// Maximum size of a shard's head in bytes: half of what the block numbers of its chunks can
/// address.
const HEAD_SIZE_MAX: usize = 64 << 30;

/// One shard of a store.
#[derive(Debug)]
pub(crate) struct Shard {
    idx: u16,
    head: RwLock<Head>,
    log: Arc<ShardLog>,
    /// Samples accepted during replay. They are logged already and join the head when replay ends.
    pub(crate) buffer: Mutex<SampleBuffer>,
    /// The latest shared label order, freed with its last reader. Locked while an order is built,
    /// so that only one thread builds it.
    last_order: Mutex<Weak<SeriesOrder>>,
    /// Number of series without a rank that were sorted since the last ranking, once per sort.
    n_unranked_sorted: AtomicUsize,
    head_size_max: usize,
    /// Size of the head in bytes at the last check.
    head_size: AtomicUsize,
}

/// Parameters of one append, the same for all shards.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AppendContext {
    /// Bounds for the timestamps of samples.
    pub(crate) bounds: Bounds,
    /// Isolation id of the append.
    pub(crate) append_id: u32,
    /// Appends below this id are visible to every present and future reader.
    pub(crate) horizon: u32,
}

/// Number of label values copied per acquisition of the head lock.
const BATCH_VALUES: usize = 4096;
/// Number of slots whose ranks are looked up per acquisition of the head lock.
const BATCH_SLOTS: usize = 4096;
/// Number of stale series evicted per acquisition of the head lock.
const BATCH_STALE: usize = 512;
/// Minimum number of selected series to use the shared order. A smaller selection sorts its own
/// series. Lower in unit tests, whose heads are small.
const SHARED_ORDER_MIN: u64 = if cfg!(test) { 8 } else { 1 << 16 };
/// A selection that waits for another thread to build the order checks its deadline at this
/// interval.
const ORDER_WAIT: Duration = Duration::from_millis(20);
/// Peak bytes per series while an order is built: four copies of its slot (unsorted, sorted, runs,
/// merged runs).
const ORDER_BUILD_BYTES_PER_SERIES: usize = 4 * size_of::<SlotRef>();
/// Maximum bytes per series of a finished order: its slot, and its share of the bitmap of members.
const ORDER_BYTES_PER_SERIES: usize = size_of::<SlotRef>() + 2;

/// The result of an append to one shard.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ShardAppend {
    /// Number of stored samples. Repeated ones do not count.
    pub(crate) n_new: usize,
    /// Number of native histograms in `n_new`.
    pub(crate) n_histograms: usize,
    /// Newest timestamp of the stored samples. `i64::MIN` if there are none.
    pub(crate) newest_ms: i64,
}

/// Appends the samples of one request to a head.
struct HeadAppender<'a> {
    context: &'a AppendContext,
    log_batch: &'a mut LogBatch,
    rejected: &'a mut Vec<Rejected>,
    newest_ms: i64,
}

impl HeadAppender<'_> {
    #[inline]
    fn append(&mut self, head: &mut Head, append: &Append, start_ms: i64) {
        let Append {
            slot,
            tag,
            place,
            sample,
            ..
        } = *append;
        match head.append(&self.context.bounds, self.context.append_id, append) {
            Ok(Appended::New(series, order)) => {
                self.newest_ms = self.newest_ms.max(sample.timestamp_ms);
                let start = StartTimestamp {
                    start_ms,
                    order: Some(order),
                };
                if set_start(head, (slot, sample.timestamp_ms), start) {
                    self.log_batch.push_start(start);
                }
                self.log_batch.push(place, series, sample);
            }
            Ok(Appended::Repeated) => {}
            Err(reason) => self.rejected.push(Rejected {
                tag,
                sample,
                start_ms,
                histogram: None,
                reason,
            }),
        }
    }

    fn append_histogram(&mut self, head: &mut Head, append: &AppendHistogram) {
        let AppendHistogram {
            slot,
            timestamp_ms,
            start_ms,
            ref histogram,
            ..
        } = *append;
        match head.append_histogram(&self.context.bounds, self.context.append_id, append) {
            Ok(Appended::New(series, order)) => {
                self.newest_ms = self.newest_ms.max(timestamp_ms);
                let start = StartTimestamp {
                    start_ms,
                    order: Some(order),
                };
                if set_start(head, (slot, timestamp_ms), start) {
                    self.log_batch.push_histogram_start(start);
                }
                let histogram = Arc::clone(histogram);
                self.log_batch.push_histogram(LoggedHistogram {
                    series,
                    timestamp_ms,
                    histogram,
                });
            }
            Ok(Appended::Repeated) => {}
            Err(reason) => self.rejected.push(append.reject(reason)),
        }
    }
}

/// Time limits for evicting and forgetting series.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EvictionLimits {
    /// Evicts series whose newest sample is older than this.
    pub(crate) idle_before_ms: i64,
    /// Evicts series whose newest sample is a staleness marker older than this.
    pub(crate) stale_before_ms: i64,
    /// Forgets evicted series whose newest sample is older than this. No sample that old is
    /// accepted any more.
    pub(crate) forget_before_ms: i64,
}

impl Shard {
    /// Creates an empty shard. Its head accepts samples up to `head_size_max` bytes, and new series
    /// up to 15/16 of it.
    pub(crate) fn new(idx: u16, seed: u64, log: Arc<ShardLog>, head_size_max: usize) -> Self {
        Self {
            idx,
            head: RwLock::new(Head::new(seed)),
            log,
            buffer: Mutex::default(),
            last_order: Mutex::default(),
            n_unranked_sorted: AtomicUsize::new(0),
            head_size_max: head_size_max.min(HEAD_SIZE_MAX),
            head_size: AtomicUsize::new(0),
        }
    }

    /// Counts the series of the shard in `counts`, which all shards share. Must be called before
    /// the first series is created.
    pub(crate) fn with_group_counts(self, counts: &GroupCounts) -> Self {
        self.head_mut().count_in(counts.clone());
        self
    }

    /// Returns the log of the shard's series.
    pub(crate) fn wal(&self) -> &Wal {
        self.log.wal()
    }

    /// Locks the head for reading.
    pub(crate) fn head(&self) -> RwLockReadGuard<'_, Head> {
        self.head.read()
    }

    /// Locks the head for reading if nobody writes to it.
    pub(crate) fn try_head(&self) -> Option<RwLockReadGuard<'_, Head>> {
        self.head.try_read()
    }

    /// Locks the head for writing.
    pub(crate) fn head_mut(&self) -> RwLockWriteGuard<'_, Head> {
        self.head.write()
    }

    /// Returns the handle of a series. Creates the series with the next free ref if it is new.
    /// Assigns it to `group` if it has no group.
    ///
    /// # Errors
    /// The errors of [`Db::series`](crate::Db::series).
    pub(crate) fn series(
        &self,
        labels: &Labels,
        group: SeriesGroup,
        next_ref: &AtomicU64,
    ) -> Result<SeriesHandle> {
        // A known series is found even if the log accepts no writes.
        if let Err(rejected) = self.wal().ready() {
            return self.find_for(labels, group).ok_or(rejected);
        }
        let mut head = self.head_mut();
        if let Err(rejected) = self.check_size(
            &head,
            self.head_size_max - self.head_size_max / KNOWN_SERIES_PART,
        ) {
            return head
                .find(labels)
                .map(|slot| self.handle(labels, slot, head.generation(slot)))
                .ok_or(rejected);
        }
        let new_ref = self.log.next_ref(next_ref);
        let (slot, new) = head.find_or_create(labels, new_ref.get())?;
        if new == NewSeries::Yes {
            // The definition is logged before another series gets the next ref: refs ascend in the
            // log.
            self.wal().append_series(new_ref.get(), labels);
            new_ref.take();
        }
        head.assign_group(slot, group);
        let handle = self.handle(labels, slot, head.generation(slot));
        RwLockWriteGuard::unlock_fair(head);
        Ok(handle)
    }

    /// Returns the handle of a series, if it exists. Assigns it to `group` if it has no group.
    pub(crate) fn find_for(&self, labels: &Labels, group: SeriesGroup) -> Option<SeriesHandle> {
        let head = self.head();
        let slot = head.find(labels)?;
        let (generation, is_free) = (head.generation(slot), head.group(slot) == SeriesGroup::NONE);
        drop(head);
        // Rare: the series has no group yet, for example after replay.
        if is_free && group != SeriesGroup::NONE {
            let mut head = self.head_mut();
            if head.is_current(SlotRef { slot, generation }) {
                head.assign_group(slot, group);
            }
        }
        Some(self.handle(labels, slot, generation))
    }

    /// Removes a series from its group.
    pub(crate) fn ungroup(&self, slot_ref: SlotRef) {
        let has_group = |head: &Head| {
            head.is_current(slot_ref) && head.group(slot_ref.slot) != SeriesGroup::NONE
        };
        // Rare: the series was assigned to a group by its labels, for example after replay.
        if has_group(&self.head()) {
            let mut head = self.head_mut();
            if has_group(&head) {
                head.ungroup(slot_ref.slot);
            }
        }
    }

    fn handle(&self, labels: &Labels, slot: u32, generation: u32) -> SeriesHandle {
        let name_group = group_of(labels.get(METRIC_NAME).unwrap_or(""));
        SeriesHandle {
            shard: self.idx,
            name_group,
            generation,
            slot,
        }
    }

    /// Checks that the shard accepts samples.
    ///
    /// # Errors
    /// The errors of [`Db::append`](crate::Db::append).
    pub(crate) fn check_ready(&self) -> Result<()> {
        self.wal().ready()?;
        let head = match self.head.try_read() {
            Some(head) => head,
            // Fast path: another thread holds the lock, and the head was below its limit at the
            // last check.
            None if self.head_size.load(Ordering::Relaxed) <= self.head_size_max => return Ok(()),
            None => self.head(),
        };
        self.check_size(&head, self.head_size_max)
    }

    /// Appends samples to the head, the floats and histograms of a series in order of time. Buffers
    /// the new ones for the log.
    pub(crate) fn append(
        &self,
        context: &AppendContext,
        batch: ShardBatch<'_>,
        log_batch: &mut LogBatch,
        rejected: &mut Vec<Rejected>,
    ) -> ShardAppend {
        let (n_floats, n_histograms) = (log_batch.n_floats(), log_batch.n_histograms());
        let mut appender = HeadAppender {
            context,
            log_batch,
            rejected,
            newest_ms: i64::MIN,
        };
        let mut histograms = HistogramQueue::new(batch);
        let mut head = self.head_mut();
        head.set_horizon(context.horizon);
        let mut next_start = batch.starts();
        head.append_all(batch.floats, |head, append| {
            while let Some(histogram) = histograms.take_before(append) {
                appender.append_histogram(head, histogram);
            }
            appender.append(head, append, next_start());
        });
        histograms
            .take_rest()
            .for_each(|histogram| appender.append_histogram(&mut head, histogram));
        let HeadAppender {
            log_batch,
            newest_ms,
            ..
        } = appender;
        ShardAppend::new(log_batch, n_floats, n_histograms, newest_ms)
    }

    /// Buffers samples for the log and for the head while replay is still loading older samples.
    /// Their order is checked when replay ends.
    pub(crate) fn buffer_samples(
        &self,
        bounds: &Bounds,
        batch: ShardBatch<'_>,
        log_batch: &mut LogBatch,
        rejected: &mut Vec<Rejected>,
    ) -> ShardAppend {
        let (n_floats, n_histograms) = (log_batch.n_floats(), log_batch.n_histograms());
        let mut newest_ms = i64::MIN;
        let head = self.head();
        let mut buffer = self.buffer.lock();
        // Two samples may share a timestamp while only one has a start timestamp. To tell them
        // apart, log the start timestamps of all samples if any sample of the batch has one.
        let log_all_starts = batch.has_starts;
        log_batch.mark_buffered();
        let (histograms, mut next_start) = (HistogramQueue::new(batch), batch.starts());
        for append in batch.floats {
            let Append {
                slot,
                generation,
                tag,
                place,
                sample,
            } = *append;
            let start_ms = next_start();
            let checked =
                head.check_unordered(bounds, SlotRef { slot, generation }, sample.timestamp_ms);
            // The log and the buffer have the floats of a batch before its histograms.
            match checked.and_then(|series| {
                if histograms.replaces(append) {
                    Err(RejectReason::Duplicate)
                } else {
                    Ok(series)
                }
            }) {
                Ok(series) => {
                    newest_ms = newest_ms.max(sample.timestamp_ms);
                    if start_ms != 0 {
                        buffer.push(BufferedSample::StartTimestamp(start_ms));
                    }
                    if log_all_starts {
                        log_batch.push_start(StartTimestamp::buffered(start_ms));
                    }
                    buffer.push(BufferedSample::Float { slot, sample });
                    log_batch.push(place, series, sample);
                }
                Err(reason) => rejected.push(Rejected {
                    tag,
                    sample,
                    start_ms,
                    histogram: None,
                    reason,
                }),
            }
        }
        for append in batch.histograms {
            let AppendHistogram {
                slot,
                generation,
                timestamp_ms,
                start_ms,
                ref histogram,
                ..
            } = *append;
            let checked = head.check_unordered(bounds, SlotRef { slot, generation }, timestamp_ms);
            match checked.and_then(|series| {
                histogram
                    .fits()
                    .then_some(series)
                    .ok_or(RejectReason::HistogramTooLarge)
            }) {
                Ok(series) => {
                    newest_ms = newest_ms.max(timestamp_ms);
                    if start_ms != 0 {
                        buffer.push(BufferedSample::StartTimestamp(start_ms));
                    }
                    if log_all_starts {
                        log_batch.push_histogram_start(StartTimestamp::buffered(start_ms));
                    }
                    buffer.push(BufferedSample::Histogram {
                        slot,
                        timestamp_ms,
                        histogram: Arc::clone(histogram),
                    });
                    log_batch.push_histogram(LoggedHistogram {
                        series,
                        timestamp_ms,
                        histogram: Arc::clone(histogram),
                    });
                }
                Err(reason) => rejected.push(append.reject(reason)),
            }
        }
        ShardAppend::new(log_batch, n_floats, n_histograms, newest_ms)
    }

    /// Sorts slots by label set. Drops slots that another series has reused since. Locks the head
    /// for a few thousand comparisons at a time, and calls `between` without a lock in between.
    ///
    /// # Errors
    /// [`Error::Interrupted`].
    pub(crate) fn sort_slots(
        &self,
        ctx: &QueryContext,
        slots: &[SlotRef],
        between: fn(),
    ) -> Result<Vec<SlotRef>> {
        let mut sort = SlotSort::new(self.head().n_removed());
        for slots in slots.chunks(BATCH_SLOTS) {
            sort.add(&self.head(), slots);
            ctx.check()?;
            between();
        }
        self.n_unranked_sorted
            .fetch_add(sort.n_unranked(), Ordering::Relaxed);
        sort.sort_ranked();
        while !sort.step(&self.head()) {
            ctx.check()?;
            between();
        }
        Ok(sort.finish())
    }

    /// Returns the number of series without a rank that were sorted since the last ranking, once
    /// per sort.
    pub(crate) fn n_unranked_sorted(&self) -> usize {
        self.n_unranked_sorted.load(Ordering::Relaxed)
    }

    /// Sets the ranks of a ranking of all shards.
    pub(crate) fn set_ranks(&self, ranks: Ranks, ranking: u64) {
        // Drops the old ranks after the lock is released.
        let _old = self.head_mut().set_ranks(ranks, ranking);
        self.n_unranked_sorted.store(0, Ordering::Relaxed);
    }

    /// Returns all series in label order. Locks the head briefly, in steps, as
    /// [`Shard::sort_slots`] does. Only one thread sorts all series at a time. Others wait.
    ///
    /// # Errors
    /// If `ctx` is interrupted or exceeds its memory limit.
    pub(crate) fn sort_all(&self, ctx: &QueryContext) -> Result<Arc<SeriesOrder>> {
        let mut last = self.last_order.lock();
        let order = self.build_order(ctx)?;
        *last = Arc::downgrade(&order);
        Ok(order)
    }

    /// Shares an order of all series with selections.
    pub(crate) fn share_order(&self, order: &Arc<SeriesOrder>) {
        *self.last_order.lock() = Arc::downgrade(order);
    }

    /// Returns a shared order that contains at least 7/8 of `slots`, and builds it if necessary.
    /// Returns `None` if it is cheaper to sort `slots`, or if a series was removed since
    /// `n_removed` was read.
    ///
    /// # Errors
    /// The errors of [`Shard::sort_all`].
    pub(crate) fn shared_order(
        &self,
        ctx: &QueryContext,
        slots: &RoaringBitmap,
        n_removed: u64,
    ) -> Result<Option<Arc<SeriesOrder>>> {
        if slots.len() < SHARED_ORDER_MIN {
            return Ok(None);
        }
        let mut last = loop {
            ctx.check()?;
            if let Some(last) = self.last_order.try_lock_for(ORDER_WAIT) {
                break last;
            }
        };
        let has_most = |order: &Arc<SeriesOrder>| {
            let n_missing = order
                .members(n_removed)
                .map(|members| slots.difference_len(members));
            n_missing.is_some_and(|n_missing| n_missing <= slots.len() / 8)
        };
        if let Some(order) = last.upgrade().filter(has_most) {
            return Ok(Some(order));
        }
        if slots.len() < self.head().len() as u64 / 2 {
            return Ok(None);
        }
        let order = self.build_order(ctx)?;
        *last = Arc::downgrade(&order);
        Ok(Some(order).filter(has_most))
    }

    /// Builds an order of all series. The caller holds the lock of `last_order`.
    fn build_order(&self, ctx: &QueryContext) -> Result<Arc<SeriesOrder>> {
        let (n_removed, mut slots, mut charge) =
            (self.head().n_removed(), Vec::new(), ctx.charge());
        for step in 0.. {
            ctx.check()?;
            let head = self.head();
            let Some(step_slots) = head.slots_of_step(step) else {
                break;
            };
            // Appends must not wait for memory behind the lock of the head.
            charge.grow_without_waiting(step_slots.len() * ORDER_BUILD_BYTES_PER_SERIES)?;
            slots.extend(head.slot_refs(step_slots));
        }
        // Not in turns: others wait for the order.
        let sorted = self.sort_slots(ctx, &slots, || ())?;
        drop(slots);
        charge.shrink(
            charge
                .size()
                .saturating_sub(sorted.len() * ORDER_BYTES_PER_SERIES),
        );
        Ok(Arc::new(SeriesOrder::new(sorted, n_removed, charge)))
    }

    /// Returns the series that pass all matchers, have their newest sample in `range`, and have no
    /// samples in memory.
    ///
    /// # Errors
    /// If the request is interrupted.
    pub(crate) fn ended_in(
        &self,
        ctx: &QueryContext,
        matchers: &[Matcher],
        range: TimeRange,
    ) -> Result<Vec<StaleSeries>> {
        let head = self.head();
        Ok(head.ended_in(&head.select(ctx, matchers)?, range))
    }

    /// Evicts series, reclaims their memory, removes them from `stale` and `deleted` and returns
    /// their number. Locks the head for a few hundred series at a time. The caller holds the lock
    /// of flushes, because writing parts and checkpoints relies on the ids of labels.
    pub(crate) fn evict(
        &self,
        limits: EvictionLimits,
        stale: &mut Vec<StaleSeries>,
        deleted: &mut Vec<StaleSeries>,
    ) -> usize {
        let EvictionLimits {
            idle_before_ms,
            stale_before_ms,
            forget_before_ms,
        } = limits;
        let mut n_removed = 0;
        for batch in std::mem::take(deleted).chunks(BATCH_STALE) {
            n_removed += self.head_mut().evict_stale(i64::MAX, batch, deleted);
        }
        (0..)
            .take_while(|&piece| self.head_mut().forget_evicted(piece, forget_before_ms))
            .for_each(drop);
        for batch in std::mem::take(stale).chunks(BATCH_STALE) {
            n_removed += self.head_mut().evict_stale(stale_before_ms, batch, stale);
        }
        for step in 0.. {
            let mut head = self.head_mut();
            let Some(slots) = head.slots_of_step(step) else {
                break;
            };
            n_removed += head.evict(idle_before_ms, slots);
        }
        // Fast path: nothing was evicted.
        if n_removed > 0 {
            self.reclaim_memory();
        }
        n_removed
    }

    fn reclaim_memory(&self) {
        let tables = [
            ShrinkTarget::Tails,
            ShrinkTarget::LabelSets,
            ShrinkTarget::Strings,
            ShrinkTarget::Series,
            ShrinkTarget::Symbols,
        ];
        let names = self.head().names();
        for target in tables
            .into_iter()
            .chain(names.into_iter().map(ShrinkTarget::Values))
        {
            (0..)
                .take_while(|&step| self.head_mut().shrink(target, step))
                .for_each(drop);
        }
    }

    /// Sorts the values of high-cardinality labels, so that prefix matchers can use binary search.
    /// Locks the head for a few thousand values at a time. Must not run concurrently with eviction.
    pub(crate) fn sort_label_values(&self) {
        let names = self.head().unordered_labels();
        for name in names {
            self.head_mut().begin_order(name);
            let values = self.values_of(name);
            let mut sorted = Vec::with_capacity(values.len());
            for values in values.chunks(BATCH_VALUES) {
                let head = self.head();
                sorted.extend(
                    values
                        .iter()
                        .map(|&value| (Box::<str>::from(head.symbol(value)), value)),
                );
            }
            sorted.sort_unstable();
            self.head_mut()
                .set_order(name, sorted.into_iter().map(|(_, value)| value).collect());
        }
    }

    fn values_of(&self, name: SymbolId) -> Vec<SymbolId> {
        let (mut values, mut piece, mut n_pieces) = (Vec::new(), 0, 0);
        loop {
            let (mut piece_values, n) = self.head().values_of(name, piece);
            if n > n_pieces && piece > 0 {
                // The table was split since the last step: start again. A table is split only once.
                values.clear();
                piece = 0;
            } else if piece >= n {
                return values;
            } else {
                values.append(&mut piece_values);
                piece += 1;
            }
            n_pieces = n;
        }
    }

    fn check_size(&self, head: &Head, size_max: usize) -> Result<()> {
        let used = head.size();
        self.head_size.store(used, Ordering::Relaxed);
        Error::check_limit("bytes in the head of a shard", used, size_max)
    }
}

impl ShardAppend {
    /// Computes the result from the lengths of `log_batch` before the append.
    fn new(log_batch: &LogBatch, n_floats: usize, n_histograms: usize, newest_ms: i64) -> Self {
        let n_histograms = log_batch.n_histograms() - n_histograms;
        Self {
            n_new: log_batch.n_floats() - n_floats + n_histograms,
            n_histograms,
            newest_ms,
        }
    }
}

/// Sets the start timestamp of a sample that was just appended. Returns `true` if it must be
/// logged.
#[inline]
fn set_start(head: &mut Head, (slot, timestamp_ms): (u32, i64), start: StartTimestamp) -> bool {
    // Fast path: no start timestamps.
    if start.start_ms == 0 && !head.has_starts() {
        return false;
    }
    start
        .order
        .is_some_and(|order| head.set_start(slot, timestamp_ms, start.start_ms, order))
}

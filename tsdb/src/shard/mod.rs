//! A shard: one head, chosen by the hash of a label set. Shards share only their log ([`ShardLog`]).
//!
//! Lock order: exemplars, the log's batch, the head, the sample buffer, then the WAL's own. Commits take
//! only the last. The lock of the shared series order comes before that of the head, and is combined with no other.
//!
//! After a series was created, the head's lock is handed to the longest waiter: a request that creates thousands of
//! series does not block appends to known ones.

mod buffered;
mod cut;
pub(crate) mod exemplars;
mod log;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use roaring::RoaringBitmap;
use xxhash_rust::xxh3::xxh3_64;

use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::head::{
    Appended, Bounds, GroupCounts, Head, NewSeries, Ranks, SeriesGroup, SeriesOrder, ShrinkTarget, SlotRef, SlotSort,
    StaleSeries,
};
use crate::index::SymbolId;
use crate::labels::Labels;
use crate::sample::{Append, AppendHistogram, RejectReason, Rejected, SeriesHandle, ShardBatch};
use crate::wal::{LoggedHistogram, StartTimestamp, Wal};

pub(crate) use self::buffered::{BUFFERED_SAMPLE_SIZE, BufferedSample, SampleBuffer};
pub(crate) use self::log::{LogBatch, ShardLog};

/// Returns the shard of a label set. The same in every process: the layout of logs depends on it.
pub(crate) fn shard_of(labels: &Labels, n_shards: usize) -> usize {
    debug_assert!(n_shards.is_power_of_two(), "options are checked");
    xxh3_64(labels.as_packed().as_bytes()) as usize & (n_shards - 1)
}

/// Returns the log of a label set's series: that of its shard, whatever the number of shards.
pub(crate) fn log_of(labels: &Labels, n_logs: usize) -> usize {
    shard_of(labels, n_logs)
}

/// Maximum size of a shard's head: half of what its chunk arena can address.
const HEAD_SIZE_MAX: usize = 64 << 30;

/// One shard of a store.
#[derive(Debug)]
pub(crate) struct Shard {
    idx: u16,
    head: RwLock<Head>,
    log: Arc<ShardLog>,
    /// Samples that are in the log and are added to the head after the replay of older ones.
    buffer: Mutex<SampleBuffer>,
    /// The last order of all series, as long as someone uses it. Locked while an order is created; see the lock order.
    last_order: Mutex<Weak<SeriesOrder>>,
    head_size_max: usize,
    /// The size of the head at the last check.
    head_size: AtomicUsize,
}

/// What all shards need for an append.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Appending {
    /// The bounds for timestamps.
    pub(crate) bounds: Bounds,
    /// The request's number.
    pub(crate) append_id: u32,
    /// Every reader sees the appends before this one.
    pub(crate) horizon: u32,
}

/// Values whose strings are copied under one lock.
const BATCH_VALUES: usize = 4096;
/// Slots whose ranks are looked up under one lock.
const BATCH_SLOTS: usize = 4096;
/// Stale series that are evicted under one lock.
const BATCH_STALE: usize = 512;
/// Selections of fewer series of a head sort them without the shared order. Unit tests have small heads.
const SHARED_ORDER_MIN: u64 = if cfg!(test) { 8 } else { 1 << 16 };
/// How long a selection waits for another one to create the order before it checks its own deadline.
const ORDER_WAIT: Duration = Duration::from_millis(20);
/// Bytes per series while an order is created: its slot, sorted and unsorted, in runs and in merged runs.
const ORDERING_SIZE: usize = 4 * size_of::<SlotRef>();
/// Maximum bytes per series of an order: its slot, and that in the set of members.
const ORDERED_SIZE: usize = size_of::<SlotRef>() + 2;

/// The result of an append to one shard.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ShardAppend {
    /// New samples.
    pub(crate) n_new: usize,
    /// Histograms among them.
    pub(crate) n_histograms: usize,
    /// The newest of them.
    pub(crate) newest_ms: i64,
}

/// Which series are evicted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EvictionTimes {
    /// Series whose newest sample is older.
    pub(crate) idle_before_ms: i64,
    /// Series whose newest sample is an older staleness marker.
    pub(crate) stale_before_ms: i64,
    /// No older sample is accepted: evicted series with older samples are forgotten.
    pub(crate) forget_before_ms: i64,
}

impl Shard {
    /// Creates an empty shard whose series and samples may take `head_size_max` bytes.
    pub(crate) fn new(idx: u16, seed: u64, log: Arc<ShardLog>, head_size_max: usize) -> Self {
        Self {
            idx,
            head: RwLock::new(Head::new(seed)),
            log,
            buffer: Mutex::default(),
            last_order: Mutex::default(),
            head_size_max: head_size_max.min(HEAD_SIZE_MAX),
            head_size: AtomicUsize::new(0),
        }
    }

    /// Counts its series in shared counts. Must be called before the first series is created.
    pub(crate) fn counting_in(self, counts: &GroupCounts) -> Self {
        self.head_mut().count_in(counts.clone());
        self
    }

    /// Returns the log of the shard's series.
    pub(crate) fn wal(&self) -> &Wal {
        self.log.wal()
    }

    // A panic under the lock can leave a series or a sample incomplete, and releases the lock. If that happens,
    // continuing is better than refusing all of the shard's series.

    /// Locks the head for reading.
    pub(crate) fn head(&self) -> RwLockReadGuard<'_, Head> {
        self.head.read()
    }

    /// Locks the head for writing.
    pub(crate) fn head_mut(&self) -> RwLockWriteGuard<'_, Head> {
        self.head.write()
    }

    /// Returns the handle of a series, which is created with the next free ref if it is new, and adds it to the group
    /// if it belongs to none.
    ///
    /// # Errors
    /// As [`Db::series`](crate::Db::series).
    pub(crate) fn series(&self, labels: &Labels, group: SeriesGroup, next_ref: &AtomicU64) -> Result<SeriesHandle> {
        // Known series do not depend on the log.
        if let Err(refused) = self.wal().ready() {
            return self.find_for(labels, group).ok_or(refused);
        }
        let mut head = self.head_mut();
        if let Err(refused) = self.check_size(&head) {
            return head.find(labels).map(|slot| self.handle(&head, slot)).ok_or(refused);
        }
        let new_ref = self.log.next_ref(next_ref);
        let (slot, new) = head.find_or_create(labels, new_ref.get())?;
        if new == NewSeries::Yes {
            // The definition is logged before another series gets the next ref: refs ascend in the log.
            self.wal().append_series(new_ref.get(), labels);
            new_ref.take();
        }
        head.claim(slot, group);
        let handle = self.handle(&head, slot);
        RwLockWriteGuard::unlock_fair(head);
        Ok(handle)
    }

    /// Returns the handle of a series, if it exists, and adds it to the group if it belongs to none.
    pub(crate) fn find_for(&self, labels: &Labels, group: SeriesGroup) -> Option<SeriesHandle> {
        let head = self.head();
        let slot = head.find(labels)?;
        let (generation, is_free) = (head.generation(slot), head.group(slot) == SeriesGroup::NONE);
        drop(head);
        // Rare: a series that was replayed or not claimed yet.
        if is_free && group != SeriesGroup::NONE {
            let mut head = self.head_mut();
            if head.is_current(SlotRef { slot, generation }) {
                head.claim(slot, group);
            }
        }
        Some(SeriesHandle { shard: self.idx, generation, slot })
    }

    /// Returns the handle of a series, if it exists.
    pub(crate) fn find(&self, labels: &Labels) -> Option<SeriesHandle> {
        let head = self.head();
        Some(self.handle(&head, head.find(labels)?))
    }

    fn handle(&self, head: &Head, slot: u32) -> SeriesHandle {
        SeriesHandle { shard: self.idx, generation: head.generation(slot), slot }
    }

    /// Checks that the shard accepts samples.
    ///
    /// # Errors
    /// As [`Db::append`](crate::Db::append).
    pub(crate) fn ready(&self) -> Result<()> {
        self.wal().ready()?;
        let head = match self.head.try_read() {
            Some(head) => head,
            // Fast path: does not wait for the lock of a request that creates series.
            None if self.head_size.load(Ordering::Relaxed) <= self.head_size_max => return Ok(()),
            None => self.head(),
        };
        self.check_size(&head)
    }

    /// Appends samples to the head and buffers the new ones for the log: floats, then histograms.
    pub(crate) fn append(
        &self,
        of: &Appending,
        batch: ShardBatch<'_>,
        log_batch: &mut LogBatch,
        rejected: &mut Vec<Rejected>,
    ) -> ShardAppend {
        let (n_floats, n_histograms) = (log_batch.n_floats(), log_batch.n_histograms());
        let mut newest_ms = i64::MIN;
        let mut head = self.head_mut();
        head.set_horizon(of.horizon);
        let mut next_start = batch.starts();
        head.append_all(batch.floats, |head, &append| {
            let start_ms = next_start();
            let Append { slot, tag, place, sample, .. } = append;
            match head.append(&of.bounds, of.append_id, &append) {
                Ok(Appended::New(series, order)) => {
                    newest_ms = newest_ms.max(sample.timestamp_ms);
                    let start = StartTimestamp { start_ms, order: Some(order) };
                    if set_start(head, (slot, sample.timestamp_ms), start) {
                        log_batch.push_start(start);
                    }
                    log_batch.push(place, series, sample);
                }
                Ok(Appended::Repeated) => {}
                Err(reason) => rejected.push(Rejected { tag, sample, start_ms, histogram: None, reason }),
            }
        });
        for append in batch.histograms {
            let AppendHistogram { slot, timestamp_ms, start_ms, ref histogram, .. } = *append;
            match head.append_histogram(&of.bounds, of.append_id, append) {
                Ok(Appended::New(series, order)) => {
                    newest_ms = newest_ms.max(timestamp_ms);
                    let start = StartTimestamp { start_ms, order: Some(order) };
                    if set_start(&mut head, (slot, timestamp_ms), start) {
                        log_batch.push_histogram_start(start);
                    }
                    log_batch.push_histogram(LoggedHistogram {
                        series,
                        timestamp_ms,
                        histogram: Arc::clone(histogram),
                    });
                }
                Ok(Appended::Repeated) => {}
                Err(reason) => rejected.push(append.reject(reason)),
            }
        }
        ShardAppend::new(log_batch, n_floats, n_histograms, newest_ms)
    }

    /// Buffers samples for the log and for the head, which does not have all older samples yet. Order is checked when
    /// it has.
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
        let mut buffer = self.buffer();
        // If one of two samples of one timestamp has a start timestamp, the log must tell them apart; it does if all
        // are logged with theirs.
        let tells_all = batch.has_starts();
        log_batch.mark_buffered();
        let mut next_start = batch.starts();
        for &Append { slot, generation, tag, place, sample } in batch.floats {
            let start_ms = next_start();
            match head.check_unordered(bounds, SlotRef { slot, generation }, sample.timestamp_ms) {
                Ok(series) => {
                    newest_ms = newest_ms.max(sample.timestamp_ms);
                    if start_ms != 0 {
                        buffer.push(BufferedSample::StartTimestamp(start_ms));
                    }
                    if tells_all {
                        log_batch.push_start(StartTimestamp::buffered(start_ms));
                    }
                    buffer.push(BufferedSample::Float { slot, sample });
                    log_batch.push(place, series, sample);
                }
                Err(reason) => rejected.push(Rejected { tag, sample, start_ms, histogram: None, reason }),
            }
        }
        for append in batch.histograms {
            let AppendHistogram { slot, generation, timestamp_ms, start_ms, ref histogram, .. } = *append;
            let checked = head.check_unordered(bounds, SlotRef { slot, generation }, timestamp_ms);
            match checked.and_then(|series| histogram.fits().then_some(series).ok_or(RejectReason::HistogramTooLarge)) {
                Ok(series) => {
                    newest_ms = newest_ms.max(timestamp_ms);
                    if start_ms != 0 {
                        buffer.push(BufferedSample::StartTimestamp(start_ms));
                    }
                    if tells_all {
                        log_batch.push_histogram_start(StartTimestamp::buffered(start_ms));
                    }
                    buffer.push(BufferedSample::Histogram { slot, timestamp_ms, histogram: Arc::clone(histogram) });
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

    /// Locks the samples buffered during replay.
    pub(crate) fn buffer(&self) -> MutexGuard<'_, SampleBuffer> {
        self.buffer.lock()
    }

    /// Sorts slots by labels; slots that name another series by now are dropped. Locks the head for a few thousand
    /// comparisons at a time.
    ///
    /// # Errors
    /// If the request is interrupted.
    pub(crate) fn sort_slots(&self, ctx: &QueryContext, slots: &[SlotRef]) -> Result<Vec<SlotRef>> {
        let mut sort = SlotSort::new(self.head().n_removed());
        for slots in slots.chunks(BATCH_SLOTS) {
            sort.add(&self.head(), slots);
        }
        sort.sort_ranked();
        while !sort.step(&self.head()) {
            ctx.check()?;
        }
        Ok(sort.finish())
    }

    /// Ranks all series, including new ones, and returns them in label order. Locks the head as [`Shard::sort_slots`]
    /// does, and at the end shortly to set the ranks, which are computed without the lock. Waits for another thread
    /// that does the same.
    ///
    /// # Errors
    /// If `ctx` is interrupted or exceeds its memory limit; the ranks do not change.
    pub(crate) fn rank_series(&self, ctx: &QueryContext) -> Result<Arc<SeriesOrder>> {
        let mut last = self.last_order.lock();
        let order = self.make_order(ctx)?;
        *last = Arc::downgrade(&order);
        Ok(order)
    }

    /// Returns an order of all series that contains most slots of a large selection; creates one if there is none.
    /// `None` if sorting the slots alone is less work, or if more than `n_removed` series have been removed.
    ///
    /// # Errors
    /// As [`Shard::rank_series`].
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
            let n_missing = order.members(n_removed).map(|members| slots.difference_len(members));
            n_missing.is_some_and(|n_missing| n_missing <= slots.len() / 8)
        };
        if let Some(order) = last.upgrade().filter(has_most) {
            return Ok(Some(order));
        }
        if slots.len() < self.head().len() as u64 / 2 {
            return Ok(None);
        }
        let order = self.make_order(ctx)?;
        *last = Arc::downgrade(&order);
        Ok(Some(order).filter(has_most))
    }

    /// Called by one thread at a time.
    fn make_order(&self, ctx: &QueryContext) -> Result<Arc<SeriesOrder>> {
        let (n_removed, mut slots, mut charge) = (self.head().n_removed(), Vec::new(), ctx.charge());
        for step in 0.. {
            let head = self.head();
            let Some(of_step) = head.slots_of_step(step) else { break };
            charge.grow(of_step.len() * ORDERING_SIZE)?;
            slots.extend(head.slot_refs(of_step));
        }
        let sorted = self.sort_slots(ctx, &slots)?;
        drop(slots);
        let ranks = Ranks::new(&sorted, n_removed);
        // Freed after the lock is released.
        let _old = self.head_mut().set_ranks(ranks);
        charge.shrink(charge.size().saturating_sub(sorted.len() * ORDERED_SIZE));
        Ok(Arc::new(SeriesOrder::new(sorted, n_removed, charge)))
    }

    /// Evicts series and reclaims their memory; returns the number of evicted series. Evicted series are removed from
    /// `stale`. Locks the head for some hundred series at a time.
    pub(crate) fn evict(&self, leave: EvictionTimes, stale: &mut Vec<StaleSeries>) -> usize {
        let EvictionTimes { idle_before_ms, stale_before_ms, forget_before_ms } = leave;
        let mut n_removed = 0;
        (0..).take_while(|&piece| self.head_mut().forget_evicted(piece, forget_before_ms)).for_each(drop);
        for some in std::mem::take(stale).chunks(BATCH_STALE) {
            n_removed += self.head_mut().evict_stale(stale_before_ms, some, stale);
        }
        for step in 0.. {
            let mut head = self.head_mut();
            let Some(slots) = head.slots_of_step(step) else { break };
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
        for target in tables.into_iter().chain(names.into_iter().map(ShrinkTarget::Values)) {
            (0..).take_while(|&step| self.head_mut().shrink(target, step)).for_each(drop);
        }
    }

    /// Sorts the values of labels with many values, so that a prefix finds the values that begin with it. Locks the
    /// head for some thousand values at a time. No series may be evicted meanwhile.
    pub(crate) fn order_values(&self) {
        let names = self.head().unordered_labels();
        for name in names {
            self.head_mut().begin_order(name);
            let values = self.values_of(name);
            let mut texts = Vec::with_capacity(values.len());
            for values in values.chunks(BATCH_VALUES) {
                let head = self.head();
                texts.extend(values.iter().map(|&value| (Box::<str>::from(head.symbol(value)), value)));
            }
            texts.sort_unstable();
            self.head_mut().set_order(name, texts.into_iter().map(|(_, value)| value).collect());
        }
    }

    fn values_of(&self, name: SymbolId) -> Vec<SymbolId> {
        let (mut values, mut piece, mut n_pieces) = (Vec::new(), 0, 0);
        loop {
            let (mut of_piece, n) = self.head().values_of(name, piece);
            if n > n_pieces && piece > 0 {
                // The table was split meanwhile, which happens once.
                values.clear();
                piece = 0;
            } else if piece >= n {
                return values;
            } else {
                values.append(&mut of_piece);
                piece += 1;
            }
            n_pieces = n;
        }
    }

    fn check_size(&self, head: &Head) -> Result<()> {
        let used = head.size();
        self.head_size.store(used, Ordering::Relaxed);
        if used > self.head_size_max {
            let (used, limit) = (used as u64, self.head_size_max as u64);
            return Err(Error::Limit { what: "bytes of a shard's series and samples in memory", used, limit });
        }
        Ok(())
    }
}

impl ShardAppend {
    /// Returns the result, given the lengths of the log buffer before the append.
    fn new(log_batch: &LogBatch, n_floats: usize, n_histograms: usize, newest_ms: i64) -> Self {
        let n_histograms = log_batch.n_histograms() - n_histograms;
        Self { n_new: log_batch.n_floats() - n_floats + n_histograms, n_histograms, newest_ms }
    }
}

/// Sets the start timestamp of a sample that was just appended; returns `true` if it must be logged.
#[inline]
fn set_start(head: &mut Head, (slot, timestamp_ms): (u32, i64), start: StartTimestamp) -> bool {
    // Fast path: no start timestamps.
    if start.start_ms == 0 && !head.has_starts() {
        return false;
    }
    start.order.is_some_and(|order| head.set_start(slot, timestamp_ms, start.start_ms, order))
}

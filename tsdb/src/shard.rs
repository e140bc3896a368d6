//! A shard: one head and its log, chosen by the hash of a label set. Shards share nothing.
//!
//! Lock order: exemplars, head, then what is held, then the cut, then the log's own. Commits take only the last.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use xxhash_rust::xxh3::xxh3_64;

use crate::batch::{Append, AppendHistogram, RejectReason, Rejected, SeriesHandle, ShardBatch};
use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::exemplars::NumberedExemplars;
use crate::head::{Appended, Bounds, Head, NewSeries, SeriesRef, SlotRef, SlotSort};
use crate::labels::Labels;
use crate::metadata::Metadata;
use crate::replaying::{Held, HeldSample};
use crate::wal::{Cut, LoggedHistogram, Position, SampleColumn, Start, ToldStarts, Wal};

/// Returns the shard that a label set belongs to. The same for every process: logs are laid out by it.
pub(crate) fn shard_of(labels: &Labels, n_shards: usize) -> usize {
    debug_assert!(n_shards.is_power_of_two(), "Options are checked");
    xxh3_64(labels.as_packed().as_bytes()) as usize & (n_shards - 1)
}

/// The largest head of a shard: half of what its arena of chunks can number.
const HEAD_SIZE_MAX: usize = 64 << 30;

/// Numbers of series that a shard takes at a time: senders write series in the order in which they were first seen, and
/// numbers of a shard that follow each other take a bit or two in its log, whatever the number of shards.
const RESERVED_REFS: u64 = 1024;

/// One shard of a store.
#[derive(Debug)]
pub(crate) struct Shard {
    idx: u16,
    head: RwLock<Head>,
    wal: Wal,
    /// Samples that are in the log and go into the head when its older ones have been replayed.
    held: Mutex<Held>,
    head_size_max: usize,
    /// Where the log was cut when the head was frozen last, until a checkpoint stands for what is before it.
    cut: Mutex<Option<Cut>>,
    /// Numbers for new series.
    refs: Mutex<Range<u64>>,
}

/// What all shards need to know of an append.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Appending {
    /// Which samples are taken.
    pub(crate) bounds: Bounds,
    /// The request's number.
    pub(crate) request: u32,
    /// Every reader sees the requests before this one.
    pub(crate) horizon: u32,
}

/// Series that are described under one lock.
const BATCH_SERIES: usize = 512;

/// What one append to a shard did.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ShardAppend {
    /// What must be committed before the append may be acknowledged.
    pub(crate) position: Position,
    /// Samples that are new.
    pub(crate) n_new: usize,
    /// Those of them that are histograms.
    pub(crate) n_histograms: usize,
    /// The newest of them.
    pub(crate) newest_ms: i64,
}

impl Shard {
    /// Makes an empty shard whose series and samples may take `head_size_max` bytes.
    pub(crate) fn new(idx: u16, seed: u64, wal: Wal, head_size_max: usize) -> Self {
        Self {
            idx,
            head: RwLock::new(Head::new(seed)),
            wal,
            held: Mutex::default(),
            head_size_max: head_size_max.min(HEAD_SIZE_MAX),
            cut: Mutex::default(),
            refs: Mutex::default(),
        }
    }

    /// Returns the shard's log.
    pub(crate) fn wal(&self) -> &Wal {
        &self.wal
    }

    // A panic under the lock can leave a series half made or a sample half written. Nothing under it is meant to panic;
    // if it does, going on with what is there beats refusing all of the shard's series.

    /// Locks the head for reading.
    pub(crate) fn head(&self) -> RwLockReadGuard<'_, Head> {
        self.head.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the head for writing.
    pub(crate) fn head_mut(&self) -> RwLockWriteGuard<'_, Head> {
        self.head.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns where a series lives, and makes it under the next free number if it is new.
    ///
    /// # Errors
    /// As [`Db::series`](crate::Db::series).
    pub(crate) fn series(&self, labels: &Labels, next_ref: &AtomicU64) -> Result<SeriesHandle> {
        if let Some(handle) = self.find(labels) {
            return Ok(handle);
        }
        self.wal.ready()?;
        let mut head = self.head_mut();
        self.check_size(&head)?;
        let mut refs = self.refs.lock().unwrap_or_else(PoisonError::into_inner);
        if refs.is_empty() {
            let start = next_ref.fetch_add(RESERVED_REFS, Ordering::Relaxed);
            *refs = start..start + RESERVED_REFS;
        }
        let new_ref = SeriesRef(refs.start);
        let (slot, new) = head.find_or_create(labels, new_ref)?;
        if new == NewSeries::Yes {
            refs.start += 1;
            self.wal.append_series(new_ref, labels);
        }
        Ok(SeriesHandle { shard: self.idx, generation: head.generation(slot), slot })
    }

    /// Returns where a series lives, if it does.
    pub(crate) fn find(&self, labels: &Labels) -> Option<SeriesHandle> {
        let head = self.head();
        let slot = head.find(labels)?;
        Some(SeriesHandle { shard: self.idx, generation: head.generation(slot), slot })
    }

    /// Returns `Ok` if the shard takes samples.
    ///
    /// # Errors
    /// As [`Db::append`](crate::Db::append).
    pub(crate) fn ready(&self) -> Result<()> {
        self.wal.ready()?;
        self.check_size(&self.head())
    }

    /// Appends samples to the head and, uncommitted, to the log: floats, then histograms.
    pub(crate) fn append(
        &self,
        of: &Appending,
        batch: ShardBatch<'_>,
        column: &mut SampleColumn,
        rejected: &mut Vec<Rejected>,
    ) -> ShardAppend {
        column.clear();
        let mut newest_ms = i64::MIN;
        let mut head = self.head_mut();
        head.set_horizon(of.horizon);
        let mut next_start = batch.starts();
        head.append_all(batch.floats, |head, &append| {
            let start_ms = next_start();
            let Append { slot, tag, sample, .. } = append;
            match head.append(&of.bounds, of.request, &append) {
                Ok(Appended::New(series, order)) => {
                    newest_ms = newest_ms.max(sample.timestamp_ms);
                    let start = Start { start_ms, order: Some(order) };
                    set_start(head, (slot, sample.timestamp_ms), start, column.len(), &mut column.starts);
                    column.push(series, sample);
                }
                Ok(Appended::Repeated) => {}
                Err(reason) => rejected.push(Rejected { tag, sample, start_ms, histogram: None, reason }),
            }
        });
        if !column.is_empty() {
            self.wal.append_samples(column);
        }
        let mut n_histograms = 0;
        if !batch.histograms.is_empty() {
            let logged = self.append_histograms(&mut head, of, batch.histograms, rejected);
            newest_ms = logged.iter().map(|of| of.timestamp_ms).fold(newest_ms, i64::max);
            n_histograms = logged.len();
        }
        // What was only repeated may still wait for its first commit: the position covers that as well.
        ShardAppend { position: self.wal.end(), n_new: column.len() + n_histograms, n_histograms, newest_ms }
    }

    /// Returns those that are new.
    fn append_histograms(
        &self,
        head: &mut Head,
        of: &Appending,
        appends: &[AppendHistogram],
        rejected: &mut Vec<Rejected>,
    ) -> Vec<LoggedHistogram> {
        let (mut logged, mut starts) = (Vec::with_capacity(appends.len()), ToldStarts::default());
        for append in appends {
            let AppendHistogram { slot, timestamp_ms, start_ms, ref histogram, .. } = *append;
            match head.append_histogram(&of.bounds, of.request, append) {
                Ok(Appended::New(series, order)) => {
                    let start = Start { start_ms, order: Some(order) };
                    set_start(head, (slot, timestamp_ms), start, logged.len(), &mut starts);
                    logged.push(LoggedHistogram { series, timestamp_ms, histogram: Arc::clone(histogram) });
                }
                Ok(Appended::Repeated) => {}
                Err(reason) => rejected.push(append.reject(reason)),
            }
        }
        self.wal.append_histograms(&logged, &starts);
        logged
    }

    /// Appends samples to the log, uncommitted, and holds them: the head does not have all older ones yet. Rules of order
    /// are left to the time when it has.
    pub(crate) fn hold(
        &self,
        bounds: &Bounds,
        batch: ShardBatch<'_>,
        column: &mut SampleColumn,
        rejected: &mut Vec<Rejected>,
    ) -> ShardAppend {
        column.clear();
        let mut newest_ms = i64::MIN;
        let head = self.head();
        // Locked until all is in the log as well: both have the same order.
        let mut held = self.held();
        // If a sample of two of one time has a start, it must be told which; with all it is.
        let tells_all = batch.has_starts();
        column.starts.hold();
        let mut next_start = batch.starts();
        for &Append { slot, generation, tag, sample } in batch.floats {
            let start_ms = next_start();
            match head.check_unordered(bounds, SlotRef { slot, generation }, sample.timestamp_ms) {
                Ok(series) => {
                    newest_ms = newest_ms.max(sample.timestamp_ms);
                    if start_ms != 0 {
                        held.push(HeldSample::Start(start_ms));
                    }
                    if tells_all {
                        column.starts.push(column.len(), Start::held(start_ms));
                    }
                    held.push(HeldSample::Float { slot, sample });
                    column.push(series, sample);
                }
                Err(reason) => rejected.push(Rejected { tag, sample, start_ms, histogram: None, reason }),
            }
        }
        if !column.is_empty() {
            self.wal.append_samples(column);
        }
        let mut n_histograms = 0;
        if !batch.histograms.is_empty() {
            let logged = self.hold_histograms(&head, &mut held, bounds, batch, rejected);
            newest_ms = logged.iter().map(|of| of.timestamp_ms).fold(newest_ms, i64::max);
            n_histograms = logged.len();
        }
        ShardAppend { position: self.wal.end(), n_new: column.len() + n_histograms, n_histograms, newest_ms }
    }

    /// Returns those that are held.
    fn hold_histograms(
        &self,
        head: &Head,
        held: &mut Held,
        bounds: &Bounds,
        batch: ShardBatch<'_>,
        rejected: &mut Vec<Rejected>,
    ) -> Vec<LoggedHistogram> {
        let (mut logged, mut starts) = (Vec::with_capacity(batch.histograms.len()), ToldStarts::default());
        let tells_all = batch.has_starts();
        starts.hold();
        for append in batch.histograms {
            let AppendHistogram { slot, generation, timestamp_ms, start_ms, ref histogram, .. } = *append;
            let checked = head.check_unordered(bounds, SlotRef { slot, generation }, timestamp_ms);
            match checked.and_then(|series| histogram.fits().then_some(series).ok_or(RejectReason::HistogramTooLarge)) {
                Ok(series) => {
                    if start_ms != 0 {
                        held.push(HeldSample::Start(start_ms));
                    }
                    if tells_all {
                        starts.push(logged.len(), Start::held(start_ms));
                    }
                    held.push(HeldSample::Histogram { slot, timestamp_ms, histogram: Arc::clone(histogram) });
                    logged.push(LoggedHistogram { series, timestamp_ms, histogram: Arc::clone(histogram) });
                }
                Err(reason) => rejected.push(append.reject(reason)),
            }
        }
        self.wal.append_histograms(&logged, &starts);
        logged
    }

    /// Locks what is held.
    pub(crate) fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cuts the log and freezes the head at the same place. What is frozen already stays, and the cut with it.
    ///
    /// # Errors
    /// As [`Wal::rotate`]; nothing has changed then.
    pub(crate) fn freeze(&self) -> Result<()> {
        let mut head = self.head_mut();
        if head.frozen().is_some() {
            return Ok(());
        }
        *self.cut() = Some(self.wal.rotate()?);
        head.freeze();
        Ok(())
    }

    /// Replaces the log before the last cut by a checkpoint, if there was a cut since the last one. What was frozen at the
    /// cut must be in blocks; `exemplars` has what the ring holds of the shard's series.
    ///
    /// # Errors
    /// As [`Wal::checkpoint`]; the log stays as it is, and the next call tries again.
    pub(crate) fn checkpoint(
        &self,
        next_ref: u64,
        families: Option<&BTreeMap<String, Metadata>>,
        exemplars: &[NumberedExemplars],
    ) -> Result<()> {
        let Some(cut) = *self.cut() else { return Ok(()) };
        let sorted = self.rank_series(&QueryContext::unbounded())?;
        let describe = |slots: &[SlotRef]| -> Vec<_> {
            let head = self.head();
            let current = slots.iter().filter(|&&of| head.is_current(of));
            current.filter_map(|of| head.describe(of.slot)).map(Ok).collect()
        };
        let series = sorted.chunks(BATCH_SERIES).flat_map(describe);
        let families = families.into_iter().flatten().map(|(family, metadata)| (family.as_str(), metadata));
        self.wal.checkpoint(cut, series, next_ref, families, exemplars)?;
        *self.cut() = None;
        Ok(())
    }

    fn cut(&self) -> MutexGuard<'_, Option<Cut>> {
        self.cut.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Brings slots into label order; those that name another series by now are left out. Locks the head for a few
    /// thousand comparisons at a time.
    ///
    /// # Errors
    /// When the request ends.
    pub(crate) fn sort_slots(&self, ctx: &QueryContext, slots: &[SlotRef]) -> Result<Vec<SlotRef>> {
        let mut sort = SlotSort::new(&self.head(), slots);
        sort.sort_ranked();
        while !sort.step(&self.head()) {
            ctx.check()?;
        }
        Ok(sort.finish())
    }

    /// Ranks all series, new ones as well, and returns them in label order. Locks the head as [`Shard::sort_slots`] does,
    /// and last to set the ranks. Called by one thread at a time.
    ///
    /// # Errors
    /// When `ctx` ends; ranks stay as they are.
    pub(crate) fn rank_series(&self, ctx: &QueryContext) -> Result<Vec<SlotRef>> {
        let slots = self.head().slot_refs();
        let sorted = self.sort_slots(ctx, &slots)?;
        self.head_mut().set_ranks(&sorted);
        Ok(sorted)
    }

    fn check_size(&self, head: &Head) -> Result<()> {
        let used = head.size();
        if used > self.head_size_max {
            let (used, limit) = (used as u64, self.head_size_max as u64);
            return Err(Error::Limit { what: "bytes of a shard's series and samples in memory", used, limit });
        }
        Ok(())
    }
}

/// Sets the start of a sample that was just appended, and notes what replay has to be told: of the sample at a place in
/// its record.
#[inline]
fn set_start(head: &mut Head, (slot, timestamp_ms): (u32, i64), start: Start, place: usize, told: &mut ToldStarts) {
    // Fast path: no starts at all.
    if start.start_ms == 0 && !head.has_starts() {
        return;
    }
    if start.order.is_some_and(|order| head.set_start(slot, timestamp_ms, start.start_ms, order)) {
        told.push(place, start);
    }
}

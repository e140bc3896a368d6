//! The type [`Shard`]: its head, and the handles of its series.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use varve_context::Limit;
use varve_model::Labels;
use varve_model::labels::METRIC_NAME;

use super::log::SharedLog;
use super::sample_buffer::SampleBuffer;
use crate::batch::SeriesHandle;
use crate::error::{Error, Result};
use crate::head::{BudgetGroup, Head, HeadTotals, NewSeries, SeriesOrder, SlotRef};
use crate::isolation::changes::name_group_of;
use crate::wal::{Log, log_of};

/// Returns the shard of a label set.
///
/// A shard is selected as a log is, so that all series of a shard are in one log: both numbers are
/// powers of two and there are at most as many logs as shards, so the lowest bits of the shard are
/// the log.
pub(crate) fn shard_of(labels: &Labels, n_shards: usize) -> usize {
    log_of(labels, n_shards)
}

/// The part of the memory of a head that only samples may use: a sixteenth. So new series are
/// rejected before samples.
const KNOWN_SERIES_PART: usize = 16;

/// Maximum size of a shard's head in bytes: half of what the slab numbers of its chunks can
/// address.
const HEAD_SIZE_MAX: usize = 64 << 30;

/// One shard of a store.
#[derive(Debug)]
pub(crate) struct Shard {
    pub(super) idx: u16,
    pub(super) head: RwLock<Head>,
    shared_log: Arc<SharedLog>,
    /// Samples accepted during replay. They are logged already and join the head when replay ends.
    pub(crate) buffer: Mutex<SampleBuffer>,
    /// The latest shared label order, freed with its last reader. Locked while an order is built,
    /// so that only one thread builds it.
    pub(super) last_order: Mutex<Weak<SeriesOrder>>,
    /// Number of series without a rank that were sorted since the last ranking, once per sort.
    pub(super) n_unranked_sorted: AtomicUsize,
    pub(super) head_size_max: usize,
    /// Size of the head in bytes at the last check.
    pub(super) head_size: AtomicUsize,
}

impl Shard {
    /// Creates an empty shard. Its head accepts samples up to `head_size_max` bytes, and new series
    /// up to 15/16 of it.
    pub(crate) fn new(
        idx: u16,
        seed: u64,
        shared_log: Arc<SharedLog>,
        head_size_max: usize,
    ) -> Self {
        Self {
            idx,
            head: RwLock::new(Head::new(seed)),
            shared_log,
            buffer: Mutex::default(),
            last_order: Mutex::default(),
            n_unranked_sorted: AtomicUsize::new(0),
            head_size_max: head_size_max.min(HEAD_SIZE_MAX),
            head_size: AtomicUsize::new(0),
        }
    }

    /// Counts the series and label names of the shard in `totals`, which all shards share. Must be
    /// called before the first series is created.
    pub(crate) fn with_totals(self, totals: &HeadTotals) -> Self {
        self.head_mut().count_in(totals.clone());
        self
    }

    /// Returns the log of the shard's series.
    pub(crate) fn log(&self) -> &Log {
        self.shared_log.log()
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
        group: BudgetGroup,
        next_ref: &AtomicU64,
    ) -> Result<SeriesHandle> {
        // A known series is found even if the log accepts no writes.
        if let Err(rejected) = self.log().ready() {
            return self.find_in_group(labels, group).ok_or(rejected);
        }
        let mut head = self.head_mut();
        let size_max = self.head_size_max - self.head_size_max / KNOWN_SERIES_PART;
        let slot = match self.check_size(&head, size_max) {
            Ok(()) => self.find_or_create(&mut head, labels, next_ref)?,
            // A known series is found even if the head has no room for a new one.
            Err(rejected) => head.find(labels).ok_or(rejected)?,
        };
        head.assign_group(slot, group);
        let handle = self.handle(labels, slot, head.generation(slot));
        RwLockWriteGuard::unlock_fair(head);
        Ok(handle)
    }

    /// Returns the slot of a series. Creates the series with the next free ref if it is new.
    fn find_or_create(
        &self,
        head: &mut Head,
        labels: &Labels,
        next_ref: &AtomicU64,
    ) -> Result<u32> {
        let new_ref = self.shared_log.next_ref(next_ref);
        let (slot, new) = head.find_or_create(labels, new_ref.get())?;
        if new == NewSeries::Yes {
            // The definition is logged before another series gets the next ref: refs ascend in the
            // log.
            self.log().append_series(new_ref.get(), labels);
            new_ref.take();
        }
        Ok(slot)
    }

    /// Returns the handle of a series, if it exists. Assigns it to `group` if it has no group.
    pub(crate) fn find_in_group(
        &self,
        labels: &Labels,
        group: BudgetGroup,
    ) -> Option<SeriesHandle> {
        let head = self.head();
        let slot = head.find(labels)?;
        let generation = head.generation(slot);
        let has_no_group = head.group(slot) == BudgetGroup::NONE;
        drop(head);

        // Rare: the series has no group yet, for example after replay.
        if has_no_group && group != BudgetGroup::NONE {
            let mut head = self.head_mut();
            if head.is_current(SlotRef { slot, generation }) {
                head.assign_group(slot, group);
            }
        }
        Some(self.handle(labels, slot, generation))
    }

    /// Returns the newest in-order timestamp of a series, or `None` if it is not in memory.
    pub(crate) fn last_ms(&self, labels: &Labels) -> Option<i64> {
        let head = self.head();
        head.last_ms(head.find(labels)?)
    }

    /// Removes a series from its group.
    pub(crate) fn ungroup(&self, slot_ref: SlotRef) {
        let has_group = |head: &Head| {
            head.is_current(slot_ref) && head.group(slot_ref.slot) != BudgetGroup::NONE
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
        let name_group = name_group_of(labels.get(METRIC_NAME).unwrap_or(""));
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
        self.log().ready()?;
        let head = match self.head.try_read() {
            Some(head) => head,
            // Fast path: another thread holds the lock, and the head was below its limit at the
            // last check.
            None if self.head_size.load(Ordering::Relaxed) <= self.head_size_max => return Ok(()),
            None => self.head(),
        };
        self.check_size(&head, self.head_size_max)
    }

    /// Checks that the head is below its memory limit.
    ///
    /// Does not wait for the lock of the head: the size may be that of the last check.
    ///
    /// # Errors
    /// [`Error::Limit`] with [`Limit::HeadMemory`].
    pub(crate) fn check_full(&self) -> Result<()> {
        match self.head.try_read() {
            Some(head) => self.check_size(&head, self.head_size_max),
            None => check_head_size(self.head_size.load(Ordering::Relaxed), self.head_size_max),
        }
    }

    fn check_size(&self, head: &Head, size_max: usize) -> Result<()> {
        let used = head.size();
        self.head_size.store(used, Ordering::Relaxed);
        check_head_size(used, size_max)
    }
}

fn check_head_size(used: usize, size_max: usize) -> Result<()> {
    Error::check_limit(Limit::HeadMemory, used, size_max)
}

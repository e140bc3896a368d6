//! The label order of a shard's series and label values: sorting them without holding the lock of
//! the head for long.
//!
//! Used by selections, by the ranking of series, and by flushes.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use roaring::RoaringBitmap;
use varve_context::QueryContext;

use super::shard::Shard;
use crate::error::Result;
use crate::head::{Ranks, SeriesOrder, SlotRef, SlotSort};
use crate::index::SymbolId;

/// Number of label values copied per acquisition of the head lock.
const BATCH_VALUES: usize = 4096;
/// Number of slots whose ranks are looked up per acquisition of the head lock.
const BATCH_SLOTS: usize = 4096;
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

impl Shard {
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
        if let Some(order) = last.upgrade()
            && has_most(&order, slots, n_removed)
        {
            return Ok(Some(order));
        }

        if slots.len() < self.head().len() as u64 / 2 {
            return Ok(None);
        }
        let order = self.build_order(ctx)?;
        *last = Arc::downgrade(&order);
        if has_most(&order, slots, n_removed) {
            Ok(Some(order))
        } else {
            Ok(None)
        }
    }

    /// Builds an order of all series. The caller holds the lock of `last_order`.
    fn build_order(&self, ctx: &QueryContext) -> Result<Arc<SeriesOrder>> {
        let n_removed = self.head().n_removed();
        let mut slots = Vec::new();
        let mut charge = ctx.charge();
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

        let finished_size = sorted.len() * ORDER_BYTES_PER_SERIES;
        charge.shrink(charge.size().saturating_sub(finished_size));
        Ok(Arc::new(SeriesOrder::new(sorted, n_removed, charge)))
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
                for &value in values {
                    sorted.push((Box::<str>::from(head.symbol(value)), value));
                }
            }
            sorted.sort_unstable();
            let ordered = sorted.into_iter().map(|(_, value)| value).collect();
            self.head_mut().set_order(name, ordered);
        }
    }

    fn values_of(&self, name: SymbolId) -> Vec<SymbolId> {
        let mut values = Vec::new();
        let mut piece = 0;
        let mut n_pieces = 0;
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
}

/// Returns `true` if an order contains at least 7/8 of `slots`, and no series was removed since
/// `n_removed` was read.
fn has_most(order: &SeriesOrder, slots: &RoaringBitmap, n_removed: u64) -> bool {
    let Some(members) = order.members(n_removed) else {
        return false;
    };
    slots.difference_len(members) <= slots.len() / 8
}

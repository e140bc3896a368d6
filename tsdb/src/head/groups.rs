//! Budget groups: every series in memory belongs to one group. The store counts the series of each
//! group.
//!
//! The store only counts. The caller decides which series form a group. Used for limits on active
//! series.
//!
//! Invariants
//! 1. A series belongs to [`BudgetGroup::NONE`] until it is assigned to a group. After that, only a
//!    regrouping or [`Db::series_without_group`](crate::Db::series_without_group) changes its
//!    group.
//! 2. The counts cover the series in the heads. A count changes under the lock of the head.
//!
//! Threads: counts are read without a lock. Crash: groups are not persisted. After a start, series
//! have no group until [`Db::set_group_label`](crate::Db::set_group_label) or the next look-up
//! assigns one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use varve_collections::Column;

/// A group of series, numbered up to [`BudgetGroup::MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct BudgetGroup(u16);

impl BudgetGroup {
    /// The group of series that belong to no other group.
    pub const NONE: Self = Self(0);
    /// The highest group id.
    pub const MAX: u16 = 4_095;

    /// Returns the group with the id `number`, or `None` above [`BudgetGroup::MAX`].
    #[must_use]
    pub fn new(number: u16) -> Option<Self> {
        (number <= Self::MAX).then_some(Self(number))
    }

    /// Returns the id of the group.
    #[must_use]
    pub fn number(self) -> u16 {
        self.0
    }

    fn idx(self) -> usize {
        usize::from(self.0)
    }
}

/// The number of series per group, over all shards.
#[derive(Debug, Clone)]
pub(crate) struct GroupCounts(Arc<Counts>);

#[derive(Debug)]
struct Counts {
    total: AtomicU64,
    by_group: Box<[AtomicU64]>,
}

impl Default for GroupCounts {
    fn default() -> Self {
        let by_group = (0..=BudgetGroup::MAX).map(|_| AtomicU64::new(0)).collect();
        Self(Arc::new(Counts {
            total: AtomicU64::new(0),
            by_group,
        }))
    }
}

impl GroupCounts {
    /// Returns the number of series in a group.
    pub(crate) fn of(&self, group: BudgetGroup) -> u64 {
        self.0.by_group[group.idx()].load(Ordering::Relaxed)
    }

    /// Returns the number of all series.
    pub(crate) fn total(&self) -> u64 {
        self.0.total.load(Ordering::Relaxed)
    }

    fn add(&self, group: BudgetGroup, n: u64) {
        self.0.by_group[group.idx()].fetch_add(n, Ordering::Relaxed);
    }

    fn take(&self, group: BudgetGroup, n: u64) {
        self.0.by_group[group.idx()].fetch_sub(n, Ordering::Relaxed);
    }
}

/// The groups of a shard's series, by slot.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    /// Ends at the highest slot that was ever assigned to a group.
    of_slot: Column<BudgetGroup>,
    counts: GroupCounts,
}

impl Groups {
    /// Counts series in `counts` from now on. Must be called before the first series is counted.
    pub(crate) fn count_in(&mut self, counts: GroupCounts) {
        self.counts = counts;
    }

    /// Returns the group of a slot.
    pub(crate) fn of(&self, slot: u32) -> BudgetGroup {
        self.of_slot.get(slot as usize).copied().unwrap_or_default()
    }

    /// Counts new series, which belong to no group.
    pub(crate) fn insert(&mut self, n: u64) {
        self.counts.add(BudgetGroup::NONE, n);
        self.counts.0.total.fetch_add(n, Ordering::Relaxed);
    }

    /// Removes a series from the counts.
    pub(crate) fn remove(&mut self, slot: u32) {
        self.set(slot, BudgetGroup::NONE);
        self.counts.take(BudgetGroup::NONE, 1);
        self.counts.0.total.fetch_sub(1, Ordering::Relaxed);
    }

    /// Moves the series of a slot to a group.
    pub(crate) fn set(&mut self, slot: u32, group: BudgetGroup) {
        let before = self.of(slot);
        if before == group {
            return;
        }
        while self.of_slot.len() <= slot as usize {
            self.of_slot.push(BudgetGroup::NONE);
        }
        self.of_slot[slot as usize] = group;
        // Adds the series to the new group before removing it from the old one: a concurrent reader
        // never sees a sum that is too small.
        self.counts.add(group, 1);
        self.counts.take(before, 1);
    }

    /// Frees the memory of the slots from `end` on, which have no series.
    pub(crate) fn truncate(&mut self, end: usize) {
        self.of_slot.truncate(end.min(self.of_slot.len()));
    }

    /// Returns the size of the groups by slot in bytes.
    pub(crate) fn size(&self) -> usize {
        self.of_slot.size()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(number: u16) -> BudgetGroup {
        BudgetGroup::new(number).unwrap()
    }

    #[test]
    fn series_are_counted_in_their_group() {
        let counts = GroupCounts::default();
        let mut one = Groups::default();
        let mut other = Groups::default();
        one.count_in(counts.clone());
        other.count_in(counts.clone());
        one.insert(3);
        other.insert(1);
        one.set(2, group(7));
        one.set(2, group(7));
        other.set(0, group(7));
        let all = || {
            (
                counts.total(),
                counts.of(BudgetGroup::NONE),
                counts.of(group(7)),
            )
        };
        assert_eq!(
            (all(), one.of(2), one.of(0)),
            ((4, 2, 2), group(7), BudgetGroup::NONE)
        );
        one.remove(2);
        one.truncate(2);
        assert_eq!((all(), one.of(2)), ((3, 2, 1), BudgetGroup::NONE));
    }

    #[test]
    fn group_numbers_are_bounded() {
        assert_eq!(
            BudgetGroup::new(BudgetGroup::MAX).map(BudgetGroup::number),
            Some(4_095)
        );
        assert_eq!(BudgetGroup::new(BudgetGroup::MAX + 1), None);
    }
}

//! Series counted apart: each series in memory belongs to one group, and how many there are of each is known at any time.
//!
//! What a group is, whoever asks for it says: the store only counts. Used for budgets of active series.
//!
//! Invariants
//! 1. A series belongs to [`SeriesGroup::NONE`] until somebody claims it, and then to the first that did.
//! 2. The counts are those of the series in the heads: each changes under the lock of the series' head.
//!
//! Threads: counts are read without a lock. Crash: groups are not kept; after a start all series are of none until
//! [`Db::regroup`](crate::Db::regroup) or the next look-up claims them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::index::Column;

/// A group of series. Up to [`SeriesGroup::MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct SeriesGroup(u16);

impl SeriesGroup {
    /// The group of series that belong to no other.
    pub const NONE: Self = Self(0);
    /// The highest number of a group.
    pub const MAX: u16 = 4_095;

    /// Returns the group of a number; `None` beyond [`SeriesGroup::MAX`].
    #[must_use]
    pub fn new(number: u16) -> Option<Self> {
        (number <= Self::MAX).then_some(Self(number))
    }

    /// Returns its number.
    #[must_use]
    pub fn number(self) -> u16 {
        self.0
    }

    fn idx(self) -> usize {
        usize::from(self.0)
    }
}

/// How many series the groups have, over all shards.
#[derive(Debug, Clone)]
pub(crate) struct GroupCounts(Arc<Counts>);

#[derive(Debug)]
struct Counts {
    total: AtomicU64,
    of_group: Box<[AtomicU64]>,
}

impl Default for GroupCounts {
    fn default() -> Self {
        let of_group = (0..=SeriesGroup::MAX).map(|_| AtomicU64::new(0)).collect();
        Self(Arc::new(Counts { total: AtomicU64::new(0), of_group }))
    }
}

impl GroupCounts {
    /// Counts the series of a group.
    pub(crate) fn of(&self, group: SeriesGroup) -> u64 {
        self.0.of_group[group.idx()].load(Ordering::Relaxed)
    }

    /// Counts all series.
    pub(crate) fn total(&self) -> u64 {
        self.0.total.load(Ordering::Relaxed)
    }

    fn add(&self, group: SeriesGroup, n: u64) {
        self.0.of_group[group.idx()].fetch_add(n, Ordering::Relaxed);
    }

    fn take(&self, group: SeriesGroup, n: u64) {
        self.0.of_group[group.idx()].fetch_sub(n, Ordering::Relaxed);
    }
}

/// The groups of a shard's series, by slot.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    /// As long as the highest slot ever claimed.
    of_slot: Column<SeriesGroup>,
    counts: GroupCounts,
}

impl Groups {
    /// Counts from now on where others count too. Nothing must have been counted yet.
    pub(crate) fn count_in(&mut self, counts: GroupCounts) {
        self.counts = counts;
    }

    /// Returns the group of a slot.
    pub(crate) fn of(&self, slot: u32) -> SeriesGroup {
        self.of_slot.get(slot as usize).copied().unwrap_or_default()
    }

    /// Counts new series; they belong to no group.
    pub(crate) fn insert(&mut self, n: u64) {
        self.counts.add(SeriesGroup::NONE, n);
        self.counts.0.total.fetch_add(n, Ordering::Relaxed);
    }

    /// Counts a series that goes.
    pub(crate) fn remove(&mut self, slot: u32) {
        self.set(slot, SeriesGroup::NONE);
        self.counts.take(SeriesGroup::NONE, 1);
        self.counts.0.total.fetch_sub(1, Ordering::Relaxed);
    }

    /// Moves the series of a slot to a group.
    pub(crate) fn set(&mut self, slot: u32, group: SeriesGroup) {
        let before = self.of(slot);
        if before == group {
            return;
        }
        while self.of_slot.len() <= slot as usize {
            self.of_slot.push(SeriesGroup::NONE);
        }
        self.of_slot[slot as usize] = group;
        // First the one, then the other: a sum that is read meanwhile is never too small.
        self.counts.add(group, 1);
        self.counts.take(before, 1);
    }

    /// Gives memory of slots from `end` on back; none of them has a series.
    pub(crate) fn truncate(&mut self, end: usize) {
        self.of_slot.truncate(end.min(self.of_slot.len()));
    }

    /// Returns the bytes that the groups of slots take.
    pub(crate) fn size(&self) -> usize {
        self.of_slot.size()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(number: u16) -> SeriesGroup {
        SeriesGroup::new(number).unwrap()
    }

    #[test]
    fn series_are_counted_where_they_belong() {
        let counts = GroupCounts::default();
        let (mut one, mut other) = (Groups::default(), Groups::default());
        one.count_in(counts.clone());
        other.count_in(counts.clone());
        one.insert(3);
        other.insert(1);
        one.set(2, group(7));
        one.set(2, group(7));
        other.set(0, group(7));
        let all = || (counts.total(), counts.of(SeriesGroup::NONE), counts.of(group(7)));
        assert_eq!((all(), one.of(2), one.of(0)), ((4, 2, 2), group(7), SeriesGroup::NONE));
        one.remove(2);
        one.truncate(2);
        assert_eq!((all(), one.of(2)), ((3, 2, 1), SeriesGroup::NONE));
    }

    #[test]
    fn groups_have_a_highest_number() {
        assert_eq!(SeriesGroup::new(SeriesGroup::MAX).map(SeriesGroup::number), Some(4_095));
        assert_eq!(SeriesGroup::new(SeriesGroup::MAX + 1), None);
    }
}

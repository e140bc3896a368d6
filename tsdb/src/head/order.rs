//! Label order of series, without holding the lock for long.
//!
//! Most series have a rank, their place in label order when series were last ranked: sorting those is sorting numbers.
//! New ones are compared label by label, in runs that are sorted and then merged two by two and into the ranked ones. A
//! [`SlotSort`] does a bounded number of comparisons per step; between steps the lock may be given up.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::ops::Range;

use roaring::RoaringBitmap;

use super::Head;
use super::table::{SlotRef, UNRANKED};
use crate::index::Column;
use crate::memory::Charge;

/// Series that are sorted in one step.
const RUN_SERIES: usize = 1024;
/// Series that are merged in one step.
const MERGE_SERIES: usize = 4096;

/// A list this many times shorter than another is merged by binary search.
const SPARSE: usize = 32;

/// Slots on their way into label order.
#[derive(Debug)]
pub(crate) struct SlotSort {
    /// Ranks and their slots, until [`SlotSort::sort_ranked`].
    by_rank: Vec<(u32, SlotRef)>,
    /// In order.
    ranked: Vec<SlotRef>,
    unsorted: Vec<SlotRef>,
    /// Sorted, to be merged; the shorter ones stand first.
    runs: VecDeque<Vec<SlotRef>>,
    /// What is being merged, from the ends: two lists to take from, one to append to in descending order.
    merging: Option<Merge>,
    n_removed: u64,
}

#[derive(Debug)]
struct Merge {
    a: Vec<SlotRef>,
    b: Vec<SlotRef>,
    merged: Vec<SlotRef>,
    is_last: bool,
}

impl SlotSort {
    /// Starts without slots; `n_removed` series had been removed from the head before the first of them was looked at.
    pub(crate) fn new(n_removed: u64) -> Self {
        Self {
            by_rank: Vec::new(),
            ranked: Vec::new(),
            unsorted: Vec::new(),
            runs: VecDeque::new(),
            merging: None,
            n_removed,
        }
    }

    /// Adds slots: looks at the rank of each. Those that name another series by now are left out.
    pub(crate) fn add(&mut self, head: &Head, slots: &[SlotRef]) {
        for &of in slots.iter().filter(|&&of| head.is_current(of)) {
            match head.table.rank(of.slot) {
                UNRANKED => self.unsorted.push(of),
                rank => self.by_rank.push((rank, of)),
            }
        }
    }

    /// Sorts those that have ranks, which needs no lock. Must come before the first step.
    pub(crate) fn sort_ranked(&mut self) {
        let mut by_rank = std::mem::take(&mut self.by_rank);
        by_rank.sort_unstable_by_key(|&(rank, _)| rank);
        self.ranked = by_rank.into_iter().map(|(_, of)| of).collect();
    }

    /// Does some of the work; true when it is done. A slot that names another series by now is left out.
    pub(crate) fn step(&mut self, head: &Head) -> bool {
        self.forget_removed(head);
        if !self.unsorted.is_empty() {
            let run = self.unsorted.split_off(self.unsorted.len().saturating_sub(RUN_SERIES));
            if self.unsorted.is_empty() {
                self.unsorted = Vec::new();
            }
            // Each set is looked up once, and not for each comparison.
            let mut run: Vec<_> = run.into_iter().map(|of| (head.table.label_words(of.slot), of)).collect();
            run.sort_unstable_by(|(a, _), (b, _)| head.table.compare_words(a, b));
            self.runs.push_back(run.into_iter().map(|(_, of)| of).collect());
            return false;
        }
        let Some(merge) = self.merging.take().or_else(|| self.next_merge()) else { return true };
        match merge.step(head) {
            Ok(merged) => self.finish_merge(merged),
            Err(unfinished) => self.merging = Some(unfinished),
        }
        false
    }

    /// Returns the slots in label order.
    pub(crate) fn finish(self) -> Vec<SlotRef> {
        debug_assert!(self.unsorted.is_empty() && self.runs.is_empty() && self.merging.is_none(), "all steps are done");
        self.ranked
    }

    fn next_merge(&mut self) -> Option<Merge> {
        let a = self.runs.pop_front()?;
        let (b, is_last) = match self.runs.pop_front() {
            Some(b) => (b, false),
            None => (std::mem::take(&mut self.ranked), true),
        };
        let merged = Vec::with_capacity(a.len() + b.len());
        Some(Merge { a, b, merged, is_last })
    }

    fn finish_merge(&mut self, Merge { mut merged, is_last, .. }: Merge) {
        merged.reverse();
        if is_last { self.ranked = merged } else { self.runs.push_back(merged) }
    }

    /// A slot that was removed has no labels to compare, or those of another series.
    fn forget_removed(&mut self, head: &Head) {
        if self.n_removed == head.table.n_removed() {
            return;
        }
        self.n_removed = head.table.n_removed();
        let merging = self.merging.iter_mut().flat_map(|merge| [&mut merge.a, &mut merge.b, &mut merge.merged]);
        for slots in [&mut self.ranked, &mut self.unsorted].into_iter().chain(&mut self.runs).chain(merging) {
            slots.retain(|&of| head.is_current(of));
        }
    }
}

/// All series of a head in label order, as it was at one time. Selections of many series share one.
#[derive(Debug)]
pub(crate) struct SeriesOrder {
    sorted: Vec<SlotRef>,
    members: RoaringBitmap,
    n_removed: u64,
    /// What it takes is charged to the request that made it.
    _charge: Charge,
}

impl SeriesOrder {
    /// Takes over series in label order; `n_removed` series had been removed from the head before the first of them was
    /// looked at.
    pub(crate) fn new(sorted: Vec<SlotRef>, n_removed: u64, charge: Charge) -> Self {
        let members = sorted.iter().map(|of| of.slot).collect();
        Self { sorted, members, n_removed, _charge: charge }
    }

    /// Returns the series in label order. Some may be gone.
    pub(crate) fn sorted(&self) -> &[SlotRef] {
        &self.sorted
    }

    /// Returns the slots whose series it has, if no series was removed since then but `n_removed` in all: then these slots
    /// have the series that they had.
    pub(crate) fn members(&self, n_removed: u64) -> Option<&RoaringBitmap> {
        (self.n_removed == n_removed).then_some(&self.members)
    }
}

/// The ranks of all series of a head, made without its lock.
#[derive(Debug)]
pub(crate) struct Ranks {
    by_slot: Column<u32>,
    n_removed: u64,
}

impl Ranks {
    /// Ranks series by their places in `sorted`, which has all of them in label order; `n_removed` series had been removed
    /// from the head before the first of them was looked at.
    pub(crate) fn new(sorted: &[SlotRef], n_removed: u64) -> Self {
        let end = sorted.iter().map(|of| of.slot as usize + 1).max().unwrap_or(0);
        let mut by_slot: Column<u32> = std::iter::repeat_n(UNRANKED, end).collect();
        for (of, rank) in sorted.iter().zip(0..) {
            by_slot[of.slot as usize] = rank;
        }
        Self { by_slot, n_removed }
    }
}

impl Merge {
    /// Merges some more; `Ok` when all is merged.
    fn step(mut self, head: &Head) -> Result<Self, Self> {
        let Self { a, b, merged, .. } = &mut self;
        let less = |a: SlotRef, b: SlotRef| head.table.compare(a.slot, b.slot) == Ordering::Less;
        let is_sparse = a.len() < b.len() / SPARSE;
        for _ in 0..if is_sparse { MERGE_SERIES / SPARSE } else { MERGE_SERIES } {
            let (Some(&last_a), Some(&last_b)) = (a.last(), b.last()) else {
                merged.extend(a.drain(..).rev());
                merged.extend(b.drain(..).rev());
                return Ok(self);
            };
            // A few new series among many: each is looked up.
            let at = if is_sparse { b.partition_point(|&of| less(of, last_a)) } else { b.len() };
            if at < b.len() {
                merged.extend(b.drain(at..).rev());
            } else {
                merged.extend(if less(last_a, last_b) { b.pop() } else { a.pop() });
            }
        }
        Err(self)
    }
}

impl Head {
    /// Returns the series of some slots, to be ranked.
    pub(crate) fn slot_refs(&self, slots: Range<u32>) -> impl Iterator<Item = SlotRef> + '_ {
        slots.map(|slot| self.slot_ref(slot)).filter(|&of| self.is_current(of))
    }

    /// Gives series the ranks that were made for them, and returns the old ones, to be dropped without the lock.
    pub(crate) fn set_ranks(&mut self, mut ranks: Ranks) -> Column<u32> {
        // Fast path: no slot has lost its series meanwhile.
        if self.table.n_removed() != ranks.n_removed {
            for (slot, rank) in (0..).zip(ranks.by_slot.iter_mut()) {
                // It may be that of a series that is gone. One that had none before gets its rank the next time.
                if self.table.row(slot).is_none() || self.table.rank(slot) == UNRANKED {
                    *rank = UNRANKED;
                }
            }
        }
        self.table.replace_ranks(ranks.by_slot)
    }

    /// Counts the series that were ever removed.
    pub(crate) fn n_removed(&self) -> u64 {
        self.table.n_removed()
    }
}

//! Sorting series by labels without holding the lock for long.
//!
//! Most series have a rank: their position in label order when the series were last ranked. They
//! are sorted by rank. New series are compared label by label: they are sorted in runs, which are
//! merged pairwise and then with the ranked series. A [`SlotSort`] makes a bounded number of
//! comparisons per step. The lock may be released between steps.

use std::cmp::Ordering;
use std::collections::VecDeque;

use roaring::RoaringBitmap;
use varve_context::Charge;

use super::head::Head;
use super::table::{SlotRef, UNRANKED};
use varve_collections::Column;

/// Maximum number of series sorted in one step.
const RUN_SERIES: usize = 1024;
/// Maximum number of series merged in one step.
const MERGE_SERIES: usize = 4096;

/// A list is merged by binary search if it is at least this many times shorter than the other.
const SPARSE: usize = 32;

/// Slots that are being sorted by labels.
#[derive(Debug)]
pub(crate) struct SlotSort {
    /// Ranks and their slots, until [`SlotSort::sort_ranked`].
    by_rank: Vec<(u32, SlotRef)>,
    /// Sorted by rank.
    ranked: Vec<SlotRef>,
    unsorted: Vec<SlotRef>,
    /// Sorted runs to be merged. Shorter ones come first.
    runs: VecDeque<Vec<SlotRef>>,
    /// The merge in progress. It works from the ends of two inputs and writes its output in
    /// descending order.
    merging: Option<Merge>,
    n_removed: u64,
    /// The number of the ranking of `by_rank`.
    ranking: Option<u64>,
}

#[derive(Debug)]
struct Merge {
    a: Vec<SlotRef>,
    b: Vec<SlotRef>,
    merged: Vec<SlotRef>,
    is_last: bool,
}

impl SlotSort {
    /// Creates a sort without slots. `n_removed` is the number of series removed from the head
    /// before the first slot was read.
    pub(crate) fn new(n_removed: u64) -> Self {
        Self {
            by_rank: Vec::new(),
            ranked: Vec::new(),
            unsorted: Vec::new(),
            runs: VecDeque::new(),
            merging: None,
            n_removed,
            ranking: None,
        }
    }

    /// Adds slots with their ranks. Skips slots that another series has reused. Ranks are used only
    /// if they come from the same ranking as the first ones.
    pub(crate) fn add(&mut self, head: &Head, slots: &[SlotRef]) {
        let is_ranked = *self.ranking.get_or_insert(head.ranking()) == head.ranking();
        for &slot_ref in slots {
            if !head.is_current(slot_ref) {
                continue;
            }
            match head.rank(slot_ref.slot) {
                Some(rank) if is_ranked => self.by_rank.push((rank, slot_ref)),
                _ => self.unsorted.push(slot_ref),
            }
        }
    }

    /// Returns the number of slots without a rank. Must be called before the first step.
    pub(crate) fn n_unranked(&self) -> usize {
        self.unsorted.len()
    }

    /// Sorts the slots that have ranks. Needs no lock. Must be called before the first step.
    pub(crate) fn sort_ranked(&mut self) {
        let mut by_rank = std::mem::take(&mut self.by_rank);
        by_rank.sort_unstable_by_key(|&(rank, _)| rank);
        self.ranked = by_rank.into_iter().map(|(_, slot_ref)| slot_ref).collect();
    }

    /// Sorts or merges a bounded number of slots. Returns `true` when the sort is complete. Drops
    /// slots that another series has reused.
    pub(crate) fn step(&mut self, head: &Head) -> bool {
        self.forget_removed(head);
        if !self.unsorted.is_empty() {
            let run = self
                .unsorted
                .split_off(self.unsorted.len().saturating_sub(RUN_SERIES));
            if self.unsorted.is_empty() {
                self.unsorted = Vec::new();
            }
            // Looks up each label set once, not for each comparison.
            let mut run: Vec<_> = run
                .into_iter()
                .map(|slot_ref| (head.table.label_words(slot_ref.slot), slot_ref))
                .collect();
            run.sort_unstable_by(|(a, _), (b, _)| head.table.compare_words(a, b));
            self.runs
                .push_back(run.into_iter().map(|(_, slot_ref)| slot_ref).collect());
            return false;
        }
        let Some(merge) = self.merging.take().or_else(|| self.next_merge()) else {
            return true;
        };
        match merge.step(head) {
            Progress::Done(merged) => self.finish_merge(merged),
            Progress::Unfinished(merge) => self.merging = Some(merge),
        }
        false
    }

    /// Returns the slots in label order.
    pub(crate) fn finish(self) -> Vec<SlotRef> {
        debug_assert!(
            self.unsorted.is_empty() && self.runs.is_empty() && self.merging.is_none(),
            "all steps are done"
        );
        self.ranked
    }

    fn next_merge(&mut self) -> Option<Merge> {
        let a = self.runs.pop_front()?;
        let (b, is_last) = match self.runs.pop_front() {
            Some(b) => (b, false),
            None => (std::mem::take(&mut self.ranked), true),
        };
        let merged = Vec::with_capacity(a.len() + b.len());
        Some(Merge {
            a,
            b,
            merged,
            is_last,
        })
    }

    fn finish_merge(
        &mut self,
        Merge {
            mut merged,
            is_last,
            ..
        }: Merge,
    ) {
        merged.reverse();
        if is_last {
            self.ranked = merged
        } else {
            self.runs.push_back(merged)
        }
    }

    /// Drops the slots of removed series: they have no labels, or the labels of another series.
    fn forget_removed(&mut self, head: &Head) {
        if self.n_removed == head.table.n_removed() {
            return;
        }
        self.n_removed = head.table.n_removed();
        let merging = self
            .merging
            .iter_mut()
            .flat_map(|merge| [&mut merge.a, &mut merge.b, &mut merge.merged]);
        for slots in [&mut self.ranked, &mut self.unsorted]
            .into_iter()
            .chain(&mut self.runs)
            .chain(merging)
        {
            slots.retain(|&slot_ref| head.is_current(slot_ref));
        }
    }
}

/// All series of a head in label order, as of one moment. Shared by selections of many series.
#[derive(Debug)]
pub(crate) struct SeriesOrder {
    sorted: Vec<SlotRef>,
    members: RoaringBitmap,
    n_removed: u64,
    /// The memory of the order, charged to the request that created it.
    _charge: Charge,
}

impl SeriesOrder {
    /// Creates the order from sorted series. `n_removed` is the number of series removed from the
    /// head before the first slot was read.
    pub(crate) fn new(sorted: Vec<SlotRef>, n_removed: u64, charge: Charge) -> Self {
        let members = sorted.iter().map(|slot_ref| slot_ref.slot).collect();
        Self {
            sorted,
            members,
            n_removed,
            _charge: charge,
        }
    }

    /// Returns the series in label order. Some may have been evicted since.
    pub(crate) fn sorted(&self) -> &[SlotRef] {
        &self.sorted
    }

    /// Returns the slots of the series, or `None` if a series was removed since the order was
    /// created (`n_removed` is the current count of the head). Each returned slot still names the
    /// same series.
    pub(crate) fn members(&self, n_removed: u64) -> Option<&RoaringBitmap> {
        (self.n_removed == n_removed).then_some(&self.members)
    }
}

/// The ranks of the series of a head, computed without the lock of the head.
#[derive(Debug)]
pub(crate) struct Ranks {
    by_slot: Column<u32>,
    n_ranked: usize,
    n_removed: u64,
}

impl Ranks {
    /// Creates ranks for the series of an order. They have none yet.
    pub(crate) fn new(order: &SeriesOrder) -> Self {
        let end = order
            .sorted
            .iter()
            .map(|slot_ref| slot_ref.slot as usize + 1)
            .max()
            .unwrap_or(0);
        let by_slot = std::iter::repeat_n(UNRANKED, end).collect();
        Self {
            by_slot,
            n_ranked: 0,
            n_removed: order.n_removed,
        }
    }

    /// Sets the rank of a series of the order, once.
    pub(crate) fn set(&mut self, slot: u32, rank: u32) {
        self.by_slot[slot as usize] = rank;
        self.n_ranked += 1;
    }
}

/// A merge after a step.
enum Progress {
    /// Both inputs are merged.
    Done(Merge),
    Unfinished(Merge),
}

impl Merge {
    /// Merges a bounded number of series.
    fn step(mut self, head: &Head) -> Progress {
        let Self { a, b, merged, .. } = &mut self;
        let less = |a: SlotRef, b: SlotRef| head.table.compare(a.slot, b.slot) == Ordering::Less;
        let is_sparse = a.len() < b.len() / SPARSE;
        let n_moves = if is_sparse {
            MERGE_SERIES / SPARSE
        } else {
            MERGE_SERIES
        };
        for _ in 0..n_moves {
            let (Some(&last_a), Some(&last_b)) = (a.last(), b.last()) else {
                merged.extend(a.drain(..).rev());
                merged.extend(b.drain(..).rev());
                return Progress::Done(self);
            };
            // Few new series among many: finds the position of each by binary search.
            let idx = if is_sparse {
                b.partition_point(|&slot_ref| less(slot_ref, last_a))
            } else {
                b.len()
            };
            if idx < b.len() {
                merged.extend(b.drain(idx..).rev());
            } else {
                merged.extend(if less(last_a, last_b) {
                    b.pop()
                } else {
                    a.pop()
                });
            }
        }
        Progress::Unfinished(self)
    }
}

impl Head {
    /// Returns references to the series in `slots`. Skips free slots.
    pub(crate) fn slot_refs(
        &self,
        slots: impl Iterator<Item = u32>,
    ) -> impl Iterator<Item = SlotRef> {
        slots
            .map(|slot| self.slot_ref(slot))
            .filter(|&slot_ref| self.is_current(slot_ref))
    }

    /// Sets the ranks and returns the old ones, so that the caller can drop them outside the lock.
    /// `ranking` is the number of the ranking: heads with the same number have ranks that can be
    /// compared with each other.
    pub(crate) fn set_ranks(&mut self, mut ranks: Ranks, ranking: u64) -> Column<u32> {
        // Fast path: no series was removed since the ranks were computed.
        if self.table.n_removed() != ranks.n_removed {
            for (slot, rank) in (0..).zip(ranks.by_slot.iter_mut()) {
                // The slot may have the rank of a removed series. A series that had no rank gets
                // one in the next ranking.
                if *rank != UNRANKED
                    && (self.table.row(slot).is_none() || self.table.rank(slot) == UNRANKED)
                {
                    *rank = UNRANKED;
                    ranks.n_ranked -= 1;
                }
            }
        }
        self.table
            .replace_ranks(ranks.by_slot, ranks.n_ranked, ranking)
    }

    /// Returns the rank of a series, or `None` if it was created after the last ranking.
    pub(crate) fn rank(&self, slot: u32) -> Option<u32> {
        Some(self.table.rank(slot)).filter(|&rank| rank != UNRANKED)
    }

    /// Returns the number of the ranking that the ranks come from. 0 if no series has a rank.
    pub(crate) fn ranking(&self) -> u64 {
        self.table.ranking()
    }

    /// Returns the number of series without a rank.
    pub(crate) fn n_unranked(&self) -> usize {
        self.table.n_unranked()
    }

    /// Returns the number of series that were ever removed.
    pub(crate) fn n_removed(&self) -> u64 {
        self.table.n_removed()
    }
}

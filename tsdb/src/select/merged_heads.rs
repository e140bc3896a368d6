//! The series of a selection in the heads of all shards, merged while the caller reads: in label
//! order, or by slot if no order is requested. For selections that are too large to be resolved, or
//! that need only labels.
//!
//! Samples are copied first, shard by shard. Labels are looked up while the caller reads, a few
//! dozen series per acquisition of the locks, fewer if their labels are long. A shard sorts its series by rank or symbols, and
//! `head::HeadMerge` merges the shards.
//!
//! Many concurrent requests may need the labels of millions of series. Therefore each selection has
//! only a bitmap, and all selections share the order of the series (`head::SeriesOrder`, decision
//! 0014).

use std::collections::VecDeque;
use std::sync::Arc;

use roaring::RoaringBitmap;
use varve_collections::{PositionIndex, prefetch};
use varve_context::{Charge, QueryContext, scheduler};
use varve_model::Labels;

use super::first_series::first_series;
use super::selection::{
    BATCH_SERIES, ESTIMATE_AFTER_SERIES, MatchingSeries, Need, Place, Selection,
};
use super::slots::Slots;
use crate::error::Result;
use crate::head::{HeadCopies, HeadMerge, Projection, SeriesOrder, SlotRef};
use crate::label_hint::LabelHint;
use crate::shard::Shard;
use crate::store::Store;

/// Number of series whose labels are looked up per acquisition of the locks. A label set takes a
/// few microseconds.
const LOOKED_UP_SERIES: usize = 64;
/// Size of label sets in bytes above which no more are looked up before they are charged. A label
/// set has at most 1 MiB, most have a few hundred bytes.
const LOOKED_UP_SIZE: usize = 64 << 10;

/// The series of some heads, merged.
pub(super) struct SeriesMerge {
    store: Arc<Store>,
    /// Ascending by shard, which is the lock order.
    heads: Vec<MergedHead>,
    merge: HeadMerge<Slots>,
    /// Upper bound for the number of series in `merge`.
    n_unmerged: u64,
    /// Series that were taken from `merge`, each with the index of its head. Their labels are
    /// looked up next.
    taken: VecDeque<(usize, SlotRef)>,
    any_order: bool,
}

/// A head from which series are selected.
struct MergedHead {
    shard: usize,
    projection: Projection,
}

/// A series of one of the merged heads.
pub(super) struct MergedSeries {
    /// The index of the head.
    pub(super) head: u32,
    pub(super) slot_ref: SlotRef,
    /// The requested labels.
    pub(super) labels: Labels,
}

/// The selected series of all heads.
pub(super) struct MergedHeads {
    merge: SeriesMerge,
    /// The copied slots of each head. A slot and its samples have the same index. Empty if only
    /// labels are needed.
    copied: Vec<PositionIndex>,
    found: VecDeque<(Labels, Place)>,
    /// The memory of `found` and of the buffers of `merge`.
    charge: Charge,
}

/// The series of a head whose labels are needed.
struct SelectedSlots {
    /// Series in the shared order.
    shared: RoaringBitmap,
    order: Arc<SeriesOrder>,
    /// Other series, in label order.
    own: Vec<SlotRef>,
}

/// The series of one head: the samples copied from it, the copied slots, and lists of series, each
/// in label order.
#[derive(Default)]
struct SelectedHead {
    copies: HeadCopies,
    copied: PositionIndex,
    lists: Vec<Slots>,
}

impl SeriesMerge {
    /// Creates a merge without series.
    pub(super) fn new(selection: &Selection<'_>) -> Self {
        Self {
            store: Arc::clone(selection.store),
            heads: Vec::new(),
            merge: HeadMerge::default(),
            n_unmerged: 0,
            taken: VecDeque::with_capacity(LOOKED_UP_SERIES),
            any_order: selection.any_order,
        }
    }

    /// Adds the head of a shard. Shards must ascend.
    fn add_head(&mut self, shard: usize, lists: Vec<Slots>) {
        for list in lists {
            self.n_unmerged += list.len();
            self.merge.push(self.heads.len(), list);
        }
        self.heads.push(MergedHead {
            shard,
            projection: Projection::default(),
        });
    }

    /// Adds the head of a shard, of which `sorted` are selected, in label order. Shards must ascend.
    pub(super) fn add_sorted(&mut self, shard: usize, sorted: Vec<SlotRef>) {
        self.add_head(shard, vec![Slots::Own(sorted.into_iter())]);
    }

    /// Returns `true` if there are no more series.
    pub(super) fn is_empty(&self) -> bool {
        self.taken.is_empty() && self.merge.is_empty()
    }

    /// Returns an upper bound for the number of remaining series.
    fn len(&self) -> u64 {
        self.n_unmerged + self.taken.len() as u64
    }

    /// Returns the memory of the buffers in bytes.
    pub(super) fn size(&self) -> usize {
        self.heads.iter().map(|head| head.projection.size()).sum()
    }

    /// Looks up the labels of a few dozen series, with all heads locked, and appends them to
    /// `found`. Those that were evicted are missing. Ends after the label set that exceeds
    /// [`LOOKED_UP_SIZE`]: the locks exclude charging, which may wait. Returns the size of the
    /// label sets in bytes, for the caller to charge.
    pub(super) fn look_up(
        &mut self,
        requested: &LabelHint,
        found: &mut Vec<MergedSeries>,
    ) -> usize {
        let Self {
            store,
            heads,
            merge,
            n_unmerged,
            taken,
            any_order,
        } = self;
        let locked: Vec<_> = heads
            .iter()
            .map(|merged| store.shards[merged.shard].head())
            .collect();
        if taken.is_empty() {
            let take = |head, slot_ref: SlotRef| taken.push_back((head, slot_ref));
            let n_taken = if *any_order {
                merge.take_unmerged(&locked, LOOKED_UP_SERIES, take)
            } else {
                merge.take(&locked, LOOKED_UP_SERIES, take)
            };
            *n_unmerged = n_unmerged.saturating_sub(n_taken as u64);
        } else {
            // They may have been evicted since they were taken.
            taken.retain(|&(head, slot_ref)| locked[head].is_current(slot_ref));
        }
        if !matches!(requested, LabelHint::None) {
            let slots = taken.iter();
            prefetch(slots.map(|&(head, slot_ref)| locked[head].first_label_word(slot_ref.slot)));
        }

        let mut size = 0;
        while size <= LOOKED_UP_SIZE
            && let Some((head, slot_ref)) = taken.pop_front()
        {
            let labels = heads[head]
                .projection
                .labels(&locked[head], slot_ref.slot, requested);
            let is_shared = found
                .last()
                .is_some_and(|last| last.labels.is_shared_with(&labels));
            size += if is_shared { 0 } else { labels.size() };
            found.push(MergedSeries {
                // There are fewer than 2^32 shards.
                head: head as u32,
                slot_ref,
                labels,
            });
        }
        size
    }
}

impl MergedHeads {
    /// Copies the samples of the matching series, and returns the series. Returns `None` if no
    /// series is selected.
    pub(super) fn new(
        selection: &Selection<'_>,
        matching: Vec<MatchingSeries>,
        charge: &mut Charge,
    ) -> Result<Option<(Self, Vec<HeadCopies>)>> {
        let mut heads = Self::empty(selection);
        let mut copies = Vec::new();
        for matching in matching {
            let shard = matching.shard;
            if selection.is_in_range(shard)
                && let Some(selected) = SelectedHead::new(selection, matching, charge)?
            {
                copies.push(heads.add(shard, selected));
            }
        }
        Ok((!copies.is_empty()).then_some((heads, copies)))
    }

    /// Returns the first `n_max` series of each head in label order. Returns `None` if no series is
    /// selected.
    pub(super) fn of_first(
        selection: &Selection<'_>,
        n_max: usize,
        charge: &mut Charge,
    ) -> Result<Option<(Self, Vec<HeadCopies>)>> {
        let mut heads = Self::empty(selection);
        let mut copies = Vec::new();
        for shard in 0..selection.store.shards.len() {
            if !selection.is_in_range(shard) {
                continue;
            }
            let store_shard = &selection.store.shards[shard];
            let slots = first_series(selection, store_shard, n_max, charge)?;
            let selected = SelectedHead {
                lists: vec![Slots::Own(slots.into_iter())],
                ..SelectedHead::default()
            };
            copies.push(heads.add(shard, selected));
        }
        Ok((!copies.is_empty()).then_some((heads, copies)))
    }

    fn empty(selection: &Selection<'_>) -> Self {
        Self {
            merge: SeriesMerge::new(selection),
            copied: Vec::new(),
            found: VecDeque::new(),
            charge: selection.ctx.charge(),
        }
    }

    /// Adds a head. Returns the samples copied from it.
    fn add(&mut self, shard: usize, selected: SelectedHead) -> HeadCopies {
        self.merge.add_head(shard, selected.lists);
        self.copied.push(selected.copied);
        selected.copies
    }

    /// Returns an upper bound for the number of remaining series.
    pub(super) fn len(&self) -> u64 {
        self.merge.len() + self.found.len() as u64
    }

    /// Returns the next series, with the requested labels.
    pub(super) fn next(
        &mut self,
        ctx: &QueryContext,
        requested: &LabelHint,
    ) -> Result<Option<(Labels, Place)>> {
        while self.found.is_empty() && !self.merge.is_empty() {
            ctx.check()?;
            scheduler::pause();
            self.look_up(requested)?;
        }
        Ok(self.found.pop_front())
    }

    fn look_up(&mut self, requested: &LabelHint) -> Result<()> {
        let mut merged = Vec::with_capacity(LOOKED_UP_SERIES);
        let size = self.merge.look_up(requested, &mut merged);
        self.charge.resize(size + self.merge.size())?;
        for MergedSeries {
            head,
            slot_ref,
            labels,
        } in merged
        {
            let at = self.copied[head as usize].position(slot_ref.slot);
            // A head has fewer than 2^32 series.
            let place = Place {
                head,
                at: at as u32,
            };
            self.found.push_back((labels, place));
        }
        Ok(())
    }
}

impl SelectedHead {
    /// Copies the samples of the matching series of a shard. Returns `None` if no series has
    /// samples in the range.
    fn new(
        selection: &Selection<'_>,
        matching: MatchingSeries,
        charge: &mut Charge,
    ) -> Result<Option<Self>> {
        let store_shard = &selection.store.shards[matching.shard];
        if selection.need == Need::Labels
            && let Some(SelectedSlots { shared, order, own }) = find(
                selection,
                store_shard,
                &matching.slots,
                matching.n_removed,
                charge,
            )?
        {
            let lists = vec![
                Slots::Shared {
                    order,
                    next: 0,
                    wanted: shared,
                },
                Slots::Own(own.into_iter()),
            ];
            return Ok(Some(Self {
                lists,
                ..Self::default()
            }));
        }
        Self::copy(selection, store_shard, matching.slots, charge)
    }

    /// Copies the samples of `slots`, and sorts their series.
    fn copy(
        selection: &Selection<'_>,
        store_shard: &Shard,
        slots: RoaringBitmap,
        charge: &mut Charge,
    ) -> Result<Option<Self>> {
        let Selection {
            need, any_order, ..
        } = *selection;
        charge.grow(slots.len() as usize * size_of::<SlotRef>() * 2)?;
        let (copies, copied) = copy(selection, store_shard, slots, charge)?;
        if copied.is_empty() {
            return Ok(None);
        }
        // Positions are needed only for reading samples.
        let positions = if need == Need::Labels {
            PositionIndex::default()
        } else {
            PositionIndex::new(copied.iter().map(|slot_ref| slot_ref.slot))
        };
        charge.grow(positions.size())?;
        let in_order = if any_order {
            copied
        } else {
            selection.sort(store_shard, &copied, charge)?
        };
        charge.shrink(size_of_val(&*in_order));
        Ok(Some(Self {
            copies,
            copied: positions,
            lists: vec![Slots::Own(in_order.into_iter())],
        }))
    }
}

/// Finds the series of `slots` that have samples in the range, if they are numerous enough to use
/// the shared order. Returns `None` otherwise, or if a series is evicted concurrently. `slots` were
/// selected after `n_removed` removals.
fn find(
    selection: &Selection<'_>,
    store_shard: &Shard,
    slots: &RoaringBitmap,
    n_removed: u64,
    charge: &mut Charge,
) -> Result<Option<SelectedSlots>> {
    let Selection { ctx, range, .. } = *selection;
    let Some(order) = store_shard.shared_order(ctx, slots, n_removed)? else {
        return Ok(None);
    };
    let Some(members) = order.members(n_removed) else {
        return Ok(None);
    };
    let mut shared = RoaringBitmap::new();
    let mut own = Vec::new();
    let mut scratch = HeadCopies::of_newest();
    let mut slots = slots.iter().peekable();
    while slots.peek().is_some() {
        ctx.check()?;
        scheduler::pause();
        let head = store_shard.head();
        if head.n_removed() != n_removed {
            return Ok(None);
        }
        for slot in slots.by_ref().take(BATCH_SERIES) {
            let slot_ref = head.slot_ref(slot);
            if !head.has_sample(slot_ref, range, selection.view, &mut scratch) {
                continue;
            }
            if members.contains(slot) {
                shared.insert(slot);
            } else {
                own.push(slot_ref);
            }
        }
    }
    charge.grow(shared.serialized_size() + own.len() * size_of::<SlotRef>())?;
    let own = selection.sort(store_shard, &own, charge)?;
    Ok(Some(SelectedSlots { shared, order, own }))
}

/// Copies the samples of `slots`. Returns them, and the series that have samples in the range. A
/// series that reuses the slot of an evicted one has none: the view is older than its first sample.
fn copy(
    selection: &Selection<'_>,
    store_shard: &Shard,
    slots: RoaringBitmap,
    charge: &mut Charge,
) -> Result<(HeadCopies, Vec<SlotRef>)> {
    let Selection {
        ctx,
        range,
        need,
        view,
        ..
    } = *selection;
    let mut copies = selection.empty_copies();
    let mut scratch = HeadCopies::of_newest();
    let mut tails = Vec::new();
    let n_slots = slots.len() as usize;
    let mut copied = Vec::with_capacity(n_slots);
    let mut batch = Vec::with_capacity(BATCH_SERIES);
    let mut slots = slots.into_iter();
    for first in (0..n_slots).step_by(BATCH_SERIES) {
        ctx.check()?;
        // Otherwise many selections take the cores from writes, and lock the head in turn.
        scheduler::pause();
        if first == ESTIMATE_AFTER_SERIES {
            copies.reserve_for(first, n_slots, charge);
        }
        let before = copies.size();
        let head = store_shard.head();
        batch.clear();
        batch.extend(head.slot_refs(slots.by_ref().take(BATCH_SERIES)));
        if need == Need::Samples {
            head.prefetch_chunks(&batch, range, &mut tails);
        }
        copied.extend(batch.iter().filter(|&&slot_ref| match need {
            Need::Samples | Need::Newest => head.copy_one(slot_ref, range, view, &mut copies),
            Need::Labels | Need::FirstLabels(_) => {
                head.has_sample(slot_ref, range, view, &mut scratch)
            }
        }));
        drop(head);
        charge.grow(copies.size() - before)?;
        copies.check_size()?;
    }
    Ok((copies, copied))
}

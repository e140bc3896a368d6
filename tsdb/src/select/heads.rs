//! The series of a selection in the heads of all shards, as one stream in label order, or by slot
//! if no order is requested.
//!
//! Samples are copied first, shard by shard. Labels are looked up while the caller reads, a few
//! dozen series per acquisition of the locks. A shard sorts its series by rank or symbols, and
//! `head::HeadMerge` merges the shards.
//!
//! Many concurrent requests may need the labels of millions of series. Therefore each selection has
//! only a bitmap, and all selections share the order of the series (`head::SeriesOrder`, decision
//! 0014).

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::RwLockReadGuard;
use roaring::RoaringBitmap;
use varve_collections::{PositionIndex, prefetch};
use varve_context::{Charge, QueryContext, scheduler};
use varve_model::{Labels, SampleColumns, TimeRange};

use super::first_series::first_series;
use super::selection::{BATCH_SERIES, Need, Place, Selection};
use crate::error::{Damaged, Result};
use crate::head::{Head, HeadCopies, HeadMerge, Projection, SeriesOrder, SlotRef};
use crate::label_hint::LabelHint;
use crate::shard::Shard;
use crate::store::Store;

/// Number of series whose labels are looked up per acquisition of the locks. A label set takes a
/// few microseconds.
const LOOKED_UP_SERIES: usize = 64;
/// Number of series after which the size of all copies is estimated.
const ESTIMATE_AFTER_SERIES: usize = 64 * BATCH_SERIES;

/// The selected series of all heads.
pub(super) struct HeadStream {
    store: Arc<Store>,
    /// Ascending by shard, which is the lock order.
    heads: Vec<SelectedHead>,
    merge: HeadMerge<Slots>,
    any_order: bool,
    labels: VecDeque<(Labels, Place)>,
    n_left: u64,
}

/// A head from which series are selected.
struct SelectedHead {
    shard: usize,
    projection: Projection,
}

/// The samples copied from one head.
#[derive(Debug, Default)]
pub(super) struct HeadReads {
    copies: HeadCopies,
    /// The copied slots. A slot and its samples in `copies` have the same index. Empty if only
    /// labels are needed.
    copied: PositionIndex,
}

/// Series of a head in label order.
enum Slots {
    Own(std::vec::IntoIter<SlotRef>),
    /// The series of `order`, from index `next` on, whose slots are in `wanted`.
    Shared {
        order: Arc<SeriesOrder>,
        next: usize,
        wanted: RoaringBitmap,
    },
}

/// The series of a head whose labels are needed.
struct SelectedSlots {
    /// Series in the shared order.
    shared: RoaringBitmap,
    order: Arc<SeriesOrder>,
    /// Other series, in label order.
    own: Vec<SlotRef>,
}

impl HeadStream {
    /// Copies the samples of a selection from all heads, and returns its series. Returns `None` if
    /// no series is selected.
    pub(super) fn new(
        selection: &Selection<'_>,
        charge: &mut Charge,
    ) -> Result<Option<(Self, Vec<HeadReads>)>> {
        let mut heads = Vec::new();
        let mut reads = Vec::new();
        let mut merge = HeadMerge::default();
        let mut n_left = 0;
        for shard in 0..selection.store.shards.len() {
            let Some((selected, slots)) = HeadReads::new(selection, shard, charge)? else {
                continue;
            };
            for slots in slots {
                n_left += slots.len();
                merge.push(heads.len(), slots);
            }
            heads.push(SelectedHead {
                shard,
                projection: Projection::default(),
            });
            reads.push(selected);
        }
        if heads.is_empty() {
            return Ok(None);
        }
        let store = Arc::clone(selection.store);
        let any_order = selection.any_order;
        Ok(Some((
            Self {
                store,
                heads,
                merge,
                any_order,
                labels: VecDeque::new(),
                n_left,
            },
            reads,
        )))
    }

    /// Returns an upper bound for the number of remaining series.
    pub(super) fn len(&self) -> u64 {
        self.n_left + self.labels.len() as u64
    }

    /// Returns the next series, with the requested labels.
    pub(super) fn next(
        &mut self,
        ctx: &QueryContext,
        requested: &LabelHint,
    ) -> Result<Option<(Labels, Place)>> {
        while self.labels.is_empty() && !self.merge.is_empty() {
            ctx.check()?;
            scheduler::pause();
            self.look_up(requested);
        }
        Ok(self.labels.pop_front())
    }

    /// Looks up the labels of a few dozen series, with all heads locked.
    fn look_up(&mut self, requested: &LabelHint) {
        let Self {
            store,
            heads,
            merge,
            any_order,
            labels,
            n_left,
        } = self;
        let locked = lock(store, heads);
        let mut taken = Vec::new();
        let take = |head, slot_ref: SlotRef| taken.push((head, slot_ref.slot));
        let n_taken = if *any_order {
            merge.take_unmerged(&locked, LOOKED_UP_SERIES, take)
        } else {
            merge.take(&locked, LOOKED_UP_SERIES, take)
        };
        if !matches!(requested, LabelHint::None) {
            let slots = taken.iter();
            prefetch(slots.map(|&(head, slot)| locked[head].first_label_word(slot)));
        }
        for (head, slot) in taken {
            let own = heads[head]
                .projection
                .labels(&locked[head], slot, requested);
            // There are fewer than 2^32 shards.
            let head = head as u32;
            labels.push_back((own, Place { head, at: slot }));
        }
        *n_left = n_left.saturating_sub(n_taken as u64);
    }

    /// Returns `true` if the heads have labels of one of these names.
    pub(super) fn has_label(&self, names: &[&str]) -> bool {
        let locked = lock(&self.store, &self.heads);
        names
            .iter()
            .any(|name| locked.iter().any(|head| head.has_label(name)))
    }
}

impl Slots {
    fn len(&self) -> u64 {
        match self {
            Self::Own(slots) => slots.len() as u64,
            Self::Shared { wanted, .. } => wanted.len(),
        }
    }
}

impl Iterator for Slots {
    type Item = SlotRef;

    fn next(&mut self) -> Option<SlotRef> {
        match self {
            Self::Own(slots) => slots.next(),
            Self::Shared {
                order,
                next,
                wanted,
            } => {
                let rest = order.sorted().get(*next..)?;
                let n_passed = rest
                    .iter()
                    .position(|slot_ref| wanted.contains(slot_ref.slot));
                *next += n_passed.map_or(rest.len(), |n_passed| n_passed + 1);
                n_passed.map(|n_passed| rest[n_passed])
            }
        }
    }
}

impl HeadReads {
    /// Appends the samples of a copied slot.
    ///
    /// # Errors
    /// [`Damaged`] if memory was overwritten.
    pub(super) fn read(
        &self,
        slot: u32,
        range: TimeRange,
        out: &mut SampleColumns,
    ) -> Result<(), Damaged> {
        self.copies.read(self.copied.position(slot), range, out)
    }

    /// Returns the first run of samples of a copied slot.
    #[inline]
    pub(super) fn first_run(&self, slot: u32) -> usize {
        self.copies.first_run(self.copied.position(slot))
    }

    /// Returns the first byte of a run of samples, for [`prefetch`].
    #[inline]
    pub(super) fn first_byte(&self, run: usize) -> u8 {
        self.copies.first_byte(run)
    }

    /// Copies the samples of a selection from the head of a shard. Returns them, and the selected
    /// series in lists, each in label order. Returns `None` if no series is selected.
    fn new(
        selection: &Selection<'_>,
        shard: usize,
        charge: &mut Charge,
    ) -> Result<Option<(Self, Vec<Slots>)>> {
        let Selection {
            ctx,
            store,
            matchers,
            range,
            need,
            ..
        } = *selection;
        let store_shard = &store.shards[shard];
        let of_head = store_shard.head().range();
        if !of_head.is_some_and(|of_head| of_head.overlaps(range)) {
            return Ok(None);
        }
        if let Need::FirstLabels(n_max) = need {
            let slots = first_series(selection, store_shard, n_max, charge)?;
            let list = vec![Slots::Own(slots.into_iter())];
            return Ok(Some((Self::default(), list)));
        }
        let (slots, n_removed) = {
            let head = store_shard.head();
            (head.select(ctx, matchers)?, head.n_removed())
        };
        if need == Need::Labels
            && let Some(SelectedSlots { shared, order, own }) =
                find(selection, store_shard, &slots, n_removed, charge)?
        {
            let slots = vec![
                Slots::Shared {
                    order,
                    next: 0,
                    wanted: shared,
                },
                Slots::Own(own.into_iter()),
            ];
            return Ok(Some((Self::default(), slots)));
        }
        Self::copy(selection, store_shard, slots, charge)
    }

    /// Copies the samples of `slots`, and sorts their series.
    fn copy(
        selection: &Selection<'_>,
        store_shard: &Shard,
        slots: RoaringBitmap,
        charge: &mut Charge,
    ) -> Result<Option<(Self, Vec<Slots>)>> {
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
        Ok(Some((
            Self {
                copies,
                copied: positions,
            },
            vec![Slots::Own(in_order.into_iter())],
        )))
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
    let mut copies = if need == Need::Samples {
        HeadCopies::default()
    } else {
        HeadCopies::of_newest()
    };
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

fn lock<'a>(store: &'a Store, heads: &[SelectedHead]) -> Vec<RwLockReadGuard<'a, Head>> {
    heads
        .iter()
        .map(|selected| store.shards[selected.shard].head())
        .collect()
}

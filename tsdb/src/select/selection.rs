//! The parameters of a selection.

use std::sync::Arc;

use roaring::RoaringBitmap;
use varve_context::{Charge, QueryContext, scheduler};
use varve_model::{Matcher, TimeRange};

use crate::error::Result;
use crate::head::{HeadCopies, SlotRef};
use crate::isolation::ReadView;
use crate::shard::Shard;
use crate::store::Store;

/// Maximum number of series that are found without visiting all of them.
pub(crate) const FIRST_SERIES_MAX: usize = 1 << 16;
/// Number of series copied or looked up per acquisition of a lock.
pub(super) const BATCH_SERIES: usize = 256;
/// Number of series after which the size of all copies is estimated.
pub(super) const ESTIMATE_AFTER_SERIES: usize = 64 * BATCH_SERIES;

/// The purpose of a selection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// Labels and samples.
    Samples,
    /// Labels, and the newest sample.
    Newest,
    /// Labels of series that have samples in the range.
    Labels,
    /// Labels of the first series, in label order, that have samples in the range: so many, at most
    /// [`FIRST_SERIES_MAX`].
    FirstLabels(usize),
}

/// The position of a series in a stream.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    /// The index of the head; 0 in a block.
    pub(super) head: u32,
    /// The index in the copies of the head, or the ordinal in a block.
    pub(super) at: u32,
}

/// The series of a shard that pass all matchers.
pub(super) struct MatchingSeries {
    pub(super) shard: usize,
    pub(super) slots: RoaringBitmap,
    /// Number of series removed from the head, and created in it, when the slots were selected.
    pub(super) n_removed: u64,
    pub(super) n_created: u64,
}

/// Parameters of a selection, the same for each head.
#[derive(Clone, Copy)]
pub(super) struct Selection<'a> {
    pub(super) ctx: &'a QueryContext,
    pub(super) store: &'a Arc<Store>,
    pub(super) matchers: &'a [Matcher],
    pub(super) range: TimeRange,
    pub(super) need: Need,
    pub(super) view: &'a ReadView,
    /// The series need not be in label order.
    pub(super) any_order: bool,
}

impl Selection<'_> {
    /// Returns `true` if a shard may have samples in the range.
    pub(super) fn is_in_range(&self, shard: usize) -> bool {
        let of_head = self.store.shards[shard].head().range();
        of_head.is_some_and(|of_head| of_head.overlaps(self.range))
    }

    /// Returns `true` if any shard may have samples in the range.
    pub(super) fn is_any_in_range(&self) -> bool {
        (0..self.store.shards.len()).any(|shard| self.is_in_range(shard))
    }

    /// Creates the copies of a head, for all samples or the newest ones.
    pub(super) fn empty_copies(&self) -> HeadCopies {
        match self.need {
            Need::Samples => HeadCopies::default(),
            Need::Newest | Need::Labels | Need::FirstLabels(_) => HeadCopies::of_newest(),
        }
    }

    /// Returns the series of each shard that pass all matchers.
    ///
    /// # Errors
    /// If the request is interrupted or exceeds its memory limit.
    pub(super) fn matching_series(&self) -> Result<Vec<MatchingSeries>> {
        let mut matching = Vec::with_capacity(self.store.shards.len());
        for (shard, store_shard) in self.store.shards.iter().enumerate() {
            let head = store_shard.head();
            matching.push(MatchingSeries {
                shard,
                slots: head.select(self.ctx, self.matchers)?,
                n_removed: head.n_removed(),
                n_created: head.n_created(),
            });
        }
        Ok(matching)
    }

    /// Sorts series of a shard by labels.
    ///
    /// # Errors
    /// If the request is interrupted or exceeds its memory limit.
    pub(super) fn sort(
        &self,
        shard: &Shard,
        slots: &[SlotRef],
        charge: &mut Charge,
    ) -> Result<Vec<SlotRef>> {
        // Charges runs and merged runs, in addition to the list itself.
        let sorting_size = size_of_val(slots) * 3;
        charge.grow(sorting_size)?;
        let sorted = shard.sort_slots(self.ctx, slots, scheduler::pause)?;
        charge.shrink(sorting_size);
        Ok(sorted)
    }
}

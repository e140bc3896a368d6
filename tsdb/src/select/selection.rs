//! The parameters of a selection.

use std::sync::Arc;

use varve_context::{Charge, QueryContext, scheduler};
use varve_model::{Matcher, TimeRange};

use crate::error::Result;
use crate::head::SlotRef;
use crate::isolation::ReadView;
use crate::shard::Shard;
use crate::store::Store;

/// Maximum number of series that are found without visiting all of them.
pub(crate) const FIRST_SERIES_MAX: usize = 1 << 16;
/// Number of series copied or looked up per acquisition of a lock.
pub(super) const BATCH_SERIES: usize = 256;

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
    /// The slot, or the ordinal in a block.
    pub(super) at: u32,
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

//! Freezing: what a flush takes out of the head.
//!
//! All samples since the last freeze are swapped out at once, whatever their number. Reads see the frozen samples until
//! the flush has made them durable and drops them.

use std::sync::Arc;

use super::Head;
use super::copy::HeadCopies;
use super::samples::{AnySample, Samples};
use super::visible::{Visible, before};
use crate::chunk::Damaged;
use crate::sample::{SampleColumns, TimeRange};

/// The samples that are being flushed. The series that they belong to keep their slots until they are dropped.
#[derive(Debug)]
pub(crate) struct Frozen {
    samples: Samples,
    range: TimeRange,
}

impl Head {
    /// Swaps all samples out; `None` if there are none, or if some are frozen already.
    pub(crate) fn freeze(&mut self) -> Option<Arc<Frozen>> {
        let range = self.live.range().filter(|_| self.frozen.is_none())?;
        let samples = std::mem::replace(&mut self.live, Samples::new(self.horizon));
        let frozen = Arc::new(Frozen { samples, range });
        self.frozen = Some(Arc::clone(&frozen));
        self.frozen_is_visible = false;
        Some(frozen)
    }

    /// Returns the frozen samples.
    pub(crate) fn frozen(&self) -> Option<Arc<Frozen>> {
        self.frozen.clone()
    }

    /// Forgets the frozen samples: they are in blocks. To free their memory without the lock, keep what is returned
    /// until the lock is gone.
    pub(crate) fn drop_frozen(&mut self) -> Option<Arc<Frozen>> {
        self.frozen.take()
    }
}

impl Frozen {
    /// Returns the range from the oldest to the newest sample.
    pub(crate) fn range(&self) -> TimeRange {
        self.range
    }

    /// Iterates over the slots of series that have samples, in ascending order.
    #[cfg(test)]
    pub(crate) fn slots(&self) -> impl Iterator<Item = u32> + '_ {
        self.samples.slots()
    }

    /// Tells whether a series has samples.
    pub(crate) fn has(&self, slot: u32) -> bool {
        self.samples.has(slot)
    }

    /// Appends a series' samples in `range` to `out`, in order of time, each timestamp once.
    ///
    /// # Errors
    /// [`Damaged`] if memory was overwritten.
    pub(crate) fn read(
        &self,
        slot: u32,
        range: TimeRange,
        scratch: &mut HeadCopies,
        out: &mut SampleColumns,
    ) -> Result<(), Damaged> {
        scratch.clear();
        self.samples.copy(slot, range, None, scratch);
        scratch.end_series();
        scratch.read(0, range, out)
    }

    /// Returns the bytes that the samples take.
    pub(super) fn size(&self) -> usize {
        self.samples.size()
    }

    /// Copies what reaches into a range and is visible (everything to whom `visible` is `None`).
    pub(super) fn copy(&self, slot: u32, range: TimeRange, visible: Option<&Visible>, out: &mut HeadCopies) {
        self.samples.copy(slot, range, visible, out);
    }

    /// Tells whether all requests came before this one.
    pub(super) fn is_before(&self, request: u32) -> bool {
        before(self.samples.newest_request(), request)
    }

    /// Tells whether the sample that a series has at the time of this one is the same, bit for bit; `None` if it has none.
    pub(super) fn has_same(&self, slot: u32, sample: AnySample<'_>) -> Option<bool> {
        self.samples.has_same(slot, sample)
    }
}

//! Freezing: taking samples out of the head for a flush.
//!
//! A freeze swaps out all samples since the last freeze, in constant time. Reads see the frozen
//! samples until the flush has made them durable and drops them.

use std::sync::Arc;

use varve_model::{SampleColumns, TimeRange};

use super::Head;
use super::copy::HeadCopies;
use super::samples::{AnySample, Samples};
use crate::error::Damaged;
use crate::isolation::{ReadView, before};

/// Samples that are being flushed. Their series keep their slots until the samples are dropped.
#[derive(Debug)]
pub(crate) struct Frozen {
    samples: Samples,
    range: TimeRange,
}

impl Head {
    /// Swaps out all samples. Returns `None` if there are no samples or earlier samples are still
    /// frozen.
    pub(crate) fn freeze(&mut self) -> Option<Arc<Frozen>> {
        if self.frozen.is_some() {
            return None;
        }
        let range = self.live.range()?;
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

    /// Drops the frozen samples, which must be in blocks. To free their memory outside the lock,
    /// keep the returned value until the lock is released.
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

    /// Returns `true` if a series has frozen samples.
    pub(crate) fn has(&self, slot: u32) -> bool {
        self.samples.has(slot)
    }

    /// Appends the samples of a series in `range` to `out`, in order of time, each timestamp once.
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

    /// Returns the number of samples of a series.
    pub(super) fn n_samples(&self, slot: u32) -> usize {
        self.samples.n_samples(slot)
    }

    /// Returns the size of the samples in bytes.
    pub(super) fn size(&self) -> usize {
        self.samples.size()
    }

    /// Copies the samples that overlap `range` and are visible in `view` (every sample is visible
    /// if it is `None`).
    pub(super) fn copy(
        &self,
        slot: u32,
        range: TimeRange,
        view: Option<&ReadView>,
        out: &mut HeadCopies,
    ) {
        self.samples.copy(slot, range, view, out);
    }

    /// Prefetches the chunks that [`Frozen::copy`] and [`Frozen::read`] will read. `tails` is
    /// scratch memory.
    pub(crate) fn prefetch_chunks(
        &self,
        slots: impl Iterator<Item = u32>,
        range: TimeRange,
        tails: &mut Vec<u32>,
    ) {
        self.samples.prefetch_chunks(slots, range, tails);
    }

    /// Returns `true` if all frozen samples were appended before the append `append_id`.
    pub(super) fn is_before(&self, append_id: u32) -> bool {
        before(self.samples.newest_append_id(), append_id)
    }

    /// Compares a sample with the frozen sample of the series at the same timestamp. Returns `true`
    /// if they are equal bit for bit, or `None` if the series has no frozen sample at that
    /// timestamp.
    pub(super) fn has_same(&self, slot: u32, sample: AnySample<'_>) -> Option<bool> {
        self.samples.has_same(slot, sample)
    }
}

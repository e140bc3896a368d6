//! Frozen samples: taken out of the head for a flush.

use varve_model::{SampleColumns, TimeRange};

use super::copy::HeadCopies;
use super::samples::{AnySample, Samples};
use crate::error::Damaged;
use crate::isolation::{ReadView, before};

/// Samples that are being flushed. Their series keep their slots until the samples are dropped.
#[derive(Debug)]
pub(crate) struct Frozen {
    pub(super) samples: Samples,
    pub(super) range: TimeRange,
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

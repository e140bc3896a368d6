//! Reading the head: copying the samples of series that a reader sees.

use varve_collections::prefetch;
use varve_model::TimeRange;

use super::copy::HeadCopies;
use super::head::Head;
use super::table::SlotRef;
use crate::isolation::ReadView;

impl Head {
    /// Appends the visible samples of some series that overlap `range` to `out`. Skips slots that
    /// another series has reused. If two samples have the same timestamp, the first accepted one
    /// comes first: frozen samples precede newer ones.
    pub(crate) fn copy(
        &self,
        slots: &[SlotRef],
        range: TimeRange,
        view: &ReadView,
        out: &mut HeadCopies,
    ) {
        for &slot_ref in slots {
            if self.is_current(slot_ref) {
                if let Some(frozen) = &self.frozen {
                    // Fast path: every reader sees all frozen samples.
                    let view = if self.frozen_is_visible {
                        None
                    } else {
                        Some(view)
                    };
                    frozen.copy(slot_ref.slot, range, view, out);
                }
                self.live.copy(slot_ref.slot, range, Some(view), out);
            }
            out.end_series();
        }
    }

    /// Prefetches what [`Head::copy`] reads of each series first.
    pub(crate) fn prefetch_rows(&self, slots: &[SlotRef]) {
        prefetch(
            slots
                .iter()
                .map(|slot_ref| self.generation(slot_ref.slot) ^ self.live.row_word(slot_ref.slot)),
        );
    }

    /// Prefetches the chunks that [`Head::copy`] will read. `tails` is scratch memory.
    pub(crate) fn prefetch_chunks(
        &self,
        slots: &[SlotRef],
        range: TimeRange,
        tails: &mut Vec<u32>,
    ) {
        let slots = slots.iter().map(|slot_ref| slot_ref.slot);
        if let Some(frozen) = &self.frozen {
            frozen.prefetch_chunks(slots.clone(), range, tails);
        }
        self.live.prefetch_chunks(slots, range, tails);
    }

    /// Returns a word of the place of a series in label order, for
    /// [`prefetch`](varve_collections::prefetch).
    #[inline]
    pub(crate) fn order_word(&self, slot: u32) -> u32 {
        self.table
            .row(slot)
            .map_or(0, |row| row.generation ^ self.table.rank(slot))
    }

    /// Returns the first word of a series' labels, for [`prefetch`](varve_collections::prefetch).
    #[inline]
    pub(crate) fn first_label_word(&self, slot: u32) -> u32 {
        self.table.first_label_word(slot)
    }

    /// Copies one series as [`Head::copy`] does. Returns `true` if the series has samples.
    /// Otherwise `out` is unchanged.
    pub(crate) fn copy_one(
        &self,
        slot_ref: SlotRef,
        range: TimeRange,
        view: &ReadView,
        out: &mut HeadCopies,
    ) -> bool {
        self.copy(&[slot_ref], range, view, out);
        let found = out.has(out.len() - 1);
        if !found {
            out.pop_series();
        }
        found
    }

    /// Returns `true` if a series has a visible sample in `range`. Decodes only chunks that lie
    /// partly outside `range`.
    pub(crate) fn has_sample(
        &self,
        slot_ref: SlotRef,
        range: TimeRange,
        view: &ReadView,
        scratch: &mut HeadCopies,
    ) -> bool {
        scratch.clear();
        self.copy(&[slot_ref], range, view, scratch);
        scratch.has_sample(0, range)
    }
}

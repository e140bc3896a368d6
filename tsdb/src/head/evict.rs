//! Eviction: removes series without new samples from the head, and reclaims their memory.
//!
//! A stale series ([`StaleSeries`]) ended with a staleness marker. It is not expected to return, so
//! it is evicted earlier than an idle series. Both are evicted in bounded steps under the lock
//! (`Shard::evict`): [`STEP`] slots or strings, or one piece of a table.

use std::ops::Range;

use roaring::RoaringBitmap;

use varve_model::TimeRange;

use super::head::{Head, STEP};
use super::table::SlotRef;
use crate::index::SymbolId;

/// A series whose newest sample was a staleness marker when it was flushed, or was deleted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StaleSeries {
    pub(crate) slot_ref: SlotRef,
    /// The timestamp of the marker or deleted sample.
    pub(crate) at_ms: i64,
}

/// A structure whose memory is reclaimed after an eviction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ShrinkTarget {
    /// Slots after the last series, and symbols after the last symbol in use.
    Tails,
    /// Gaps between label sets.
    LabelSets,
    /// Gaps between strings.
    Strings,
    /// The table of series.
    Series,
    /// The table of strings.
    Symbols,
    /// The table of the values of a label.
    Values(SymbolId),
}

impl Head {
    /// Removes series whose newest in-order sample is older than `last_before_ms` and that have no
    /// samples in memory. Returns their number. Handles and [`SlotRef`](super::SlotRef)s of removed
    /// series no longer match.
    pub(crate) fn evict(&mut self, last_before_ms: i64, slots: Range<u32>) -> usize {
        let mut n_removed = 0;
        for slot in slots {
            if self.is_idle(slot, last_before_ms) {
                self.remove(slot);
                n_removed += 1;
            }
        }
        n_removed
    }

    /// Removes series that became stale before `before_ms` and have no samples in memory. Returns
    /// their number. Appends series to be checked again to `later`. Drops series that have new
    /// samples or were evicted.
    pub(crate) fn evict_stale(
        &mut self,
        before_ms: i64,
        stale: &[StaleSeries],
        later: &mut Vec<StaleSeries>,
    ) -> usize {
        let mut n_removed = 0;
        for &stale in stale {
            if !self.is_still_stale(stale) {
                continue;
            }
            if self.is_idle(stale.slot_ref.slot, before_ms) {
                self.remove(stale.slot_ref.slot);
                n_removed += 1;
            } else {
                later.push(stale);
            }
        }
        n_removed
    }

    /// Returns the series of `slots` whose newest sample is in `range`, as series that became stale
    /// with it. Omits series with samples in memory, because these samples are newer than any
    /// deletion.
    pub(crate) fn ended_in(&self, slots: &RoaringBitmap, range: TimeRange) -> Vec<StaleSeries> {
        let mut ended = Vec::new();
        for slot in slots {
            let Some(row) = self.table.row(slot) else {
                continue;
            };
            let at_ms = row.last_ms;
            if at_ms != i64::MIN && range.contains(at_ms) && self.is_idle(slot, i64::MAX) {
                let slot_ref = self.slot_ref(slot);
                ended.push(StaleSeries { slot_ref, at_ms });
            }
        }
        ended
    }

    /// Forgets the evicted series in one piece of their table whose newest sample is older than
    /// `before_ms`. Returns `false` after the last piece.
    pub(crate) fn forget_evicted(&mut self, piece: usize, before_ms: i64) -> bool {
        self.evicted.forget(piece, before_ms)
    }

    fn remove(&mut self, slot: u32) {
        if let Some(row) = self.table.row(slot)
            && row.last_ms != i64::MIN
        {
            let last_ms = row.last_ms;
            let had_starts = self.with_start_timestamps.contains(&slot);
            let labels = self.labels(slot);
            self.evicted.note(&labels, last_ms, had_starts);
        }
        self.table.remove(slot);
        self.with_start_timestamps.remove(&slot);
    }

    /// Returns `true` if the marker is still the newest sample of the series.
    fn is_still_stale(&self, StaleSeries { slot_ref, at_ms }: StaleSeries) -> bool {
        self.is_current(slot_ref)
            && self
                .table
                .row(slot_ref.slot)
                .is_some_and(|row| row.last_ms == at_ms)
    }

    /// Reclaims memory in one step. Returns `false` after the last step.
    pub(crate) fn shrink(&mut self, target: ShrinkTarget, step: usize) -> bool {
        let some = step * STEP..(step + 1) * STEP;
        match target {
            ShrinkTarget::Tails => {
                self.table.truncate();
                false
            }
            ShrinkTarget::LabelSets => self.table.compact_label_sets(some),
            ShrinkTarget::Strings => self.table.symbols.compact_strings(some),
            ShrinkTarget::Series => self.table.shrink_piece(step),
            ShrinkTarget::Symbols => self.table.symbols.shrink_piece(step),
            ShrinkTarget::Values(name) => self.table.index.shrink_piece(name, step),
        }
    }

    /// Returns the names of all labels.
    pub(crate) fn names(&self) -> Vec<SymbolId> {
        self.table.index.names()
    }

    fn is_idle(&self, slot: u32, last_before_ms: i64) -> bool {
        self.table
            .row(slot)
            .is_some_and(|row| row.is_used() && row.last_ms < last_before_ms)
            && !self.live.has(slot)
            && self.frozen.as_ref().is_none_or(|frozen| !frozen.has(slot))
    }
}

//! Eviction: series without new samples leave the head, and their memory is reclaimed.
//!
//! A stale series, which ended with a staleness marker, is not expected back and leaves earlier than an idle one
//! ([`StaleSeries`]). Both are evicted in bounded steps under the lock (`Shard::evict`): [`STEP`] slots or strings, or
//! one piece of a table.

use std::ops::Range;

use super::{Head, STEP, SlotRef};
use crate::index::SymbolId;

/// A series whose newest sample was a staleness marker when it was flushed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StaleSeries {
    pub(crate) of: SlotRef,
    /// The timestamp of the marker.
    pub(crate) at_ms: i64,
}

/// Where memory is reclaimed after series were evicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ShrinkTarget {
    /// After the last series and the last symbol.
    Tails,
    /// Between label sets.
    LabelSets,
    /// Between strings.
    Strings,
    /// In the table of series.
    Series,
    /// In the table of strings.
    Symbols,
    /// In the table of a label's values.
    Values(SymbolId),
}

impl Head {
    /// Removes series whose newest in-order sample is older than `last_before_ms` and that have no samples in memory;
    /// returns how many. Handles and [`SlotRef`](super::SlotRef)s of removed series no longer match.
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

    /// Removes series that became stale before `before_ms` and have no samples in memory; returns how many. Series to
    /// be checked again go to `later`. A series that has new samples, or has left, is dropped from the list.
    pub(crate) fn evict_stale(&mut self, before_ms: i64, stale: &[StaleSeries], later: &mut Vec<StaleSeries>) -> usize {
        let mut n_removed = 0;
        for &stale in stale {
            if !self.is_still_stale(stale) {
                continue;
            }
            if self.is_idle(stale.of.slot, before_ms) {
                self.remove(stale.of.slot);
                n_removed += 1;
            } else {
                later.push(stale);
            }
        }
        n_removed
    }

    /// Forgets evicted series, in one piece of their table, whose newest sample is older than `before_ms`; returns
    /// `false` after the last piece.
    pub(crate) fn forget_evicted(&mut self, piece: usize, before_ms: i64) -> bool {
        self.evicted.forget(piece, before_ms)
    }

    fn remove(&mut self, slot: u32) {
        if let Some(last_ms) = self.table.row(slot).map(|row| row.last_ms).filter(|&last_ms| last_ms != i64::MIN) {
            let labels = self.labels(slot);
            self.evicted.note(&labels, last_ms);
        }
        self.table.remove(slot);
        self.with_start_timestamps.remove(&slot);
    }

    /// Returns `true` if the marker is still the newest sample of the series.
    fn is_still_stale(&self, StaleSeries { of, at_ms }: StaleSeries) -> bool {
        self.is_current(of) && self.table.row(of.slot).is_some_and(|row| row.last_ms == at_ms)
    }

    /// Reclaims memory in one step; returns `false` after the last.
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
        self.table.row(slot).is_some_and(|row| row.is_used() && row.last_ms < last_before_ms)
            && !self.live.has(slot)
            && self.frozen.as_ref().is_none_or(|frozen| !frozen.has(slot))
    }
}

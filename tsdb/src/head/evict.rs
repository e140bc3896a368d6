//! Eviction: series without new samples leave the head, and their memory is given back.
//!
//! A series that ended with a staleness marker is not expected back and leaves earlier than one that only fell silent ([`Ended`]).
//! Both take a lock for a bounded piece of the work at a time (`Shard::evict`): [`STEP`] slots or texts, or a piece of a
//! table.

use std::ops::Range;

use super::{Head, STEP, SlotRef};
use crate::index::SymbolId;

/// A series whose newest sample was a staleness marker when it was flushed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ended {
    pub(crate) of: SlotRef,
    /// The time of the marker.
    pub(crate) at_ms: i64,
}

/// Where memory is given back once series are gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Garbage {
    /// Behind the last series and the last symbol.
    Ends,
    /// Between label sets.
    LabelSets,
    /// Between texts.
    Texts,
    /// In the table of series.
    Series,
    /// In the table of texts.
    Symbols,
    /// In the table of a label's values.
    Values(SymbolId),
}

impl Head {
    /// Removes series whose newest in-order sample is older than `last_before_ms` and of which no sample is in memory,
    /// and returns how many. Handles and [`SlotRef`](super::SlotRef)s of removed series no longer match.
    pub(crate) fn evict(&mut self, last_before_ms: i64, slots: Range<u32>) -> usize {
        let mut n_removed = 0;
        for slot in slots {
            if self.is_stale(slot, last_before_ms) {
                self.remove(slot);
                n_removed += 1;
            }
        }
        n_removed
    }

    /// Removes series that ended before `before_ms` and of which no sample is in memory, and returns how many. Those that
    /// are to be looked at again go to `later`; one that has gone on since, or has left, is forgotten.
    pub(crate) fn evict_ended(&mut self, before_ms: i64, ended: &[Ended], later: &mut Vec<Ended>) -> usize {
        let mut n_removed = 0;
        for &ended in ended {
            if !self.is_over(ended) {
                continue;
            }
            if self.is_stale(ended.of.slot, before_ms) {
                self.remove(ended.of.slot);
                n_removed += 1;
            } else {
                later.push(ended);
            }
        }
        n_removed
    }

    /// Forgets series that left, in a piece of their table, whose newest sample is older than `before_ms`; false behind the
    /// last piece.
    pub(crate) fn forget_departed(&mut self, piece: usize, before_ms: i64) -> bool {
        self.departed.forget(piece, before_ms)
    }

    fn remove(&mut self, slot: u32) {
        if let Some(last_ms) = self.table.row(slot).map(|row| row.last_ms).filter(|&last_ms| last_ms != i64::MIN) {
            let labels = self.labels(slot);
            self.departed.note(&labels, last_ms);
        }
        self.table.remove(slot);
        self.with_starts.remove(&slot);
    }

    /// Tells whether the marker is still the newest sample of the series.
    fn is_over(&self, Ended { of, at_ms }: Ended) -> bool {
        self.is_current(of) && self.table.row(of.slot).is_some_and(|row| row.last_ms == at_ms)
    }

    /// Does a step of giving memory back; false behind the last.
    pub(crate) fn shrink(&mut self, garbage: Garbage, step: usize) -> bool {
        let some = step * STEP..(step + 1) * STEP;
        match garbage {
            Garbage::Ends => {
                self.table.cut_ends();
                false
            }
            Garbage::LabelSets => self.table.gather_label_sets(some),
            Garbage::Texts => self.table.symbols.gather_texts(some),
            Garbage::Series => self.table.shrink_piece(step),
            Garbage::Symbols => self.table.symbols.shrink_piece(step),
            Garbage::Values(name) => self.table.index.shrink_piece(name, step),
        }
    }

    /// Returns the names of all labels.
    pub(crate) fn names(&self) -> Vec<SymbolId> {
        self.table.index.names()
    }

    fn is_stale(&self, slot: u32, last_before_ms: i64) -> bool {
        self.table.row(slot).is_some_and(|row| row.is_used() && row.last_ms < last_before_ms)
            && !self.live.has(slot)
            && self.frozen.as_ref().is_none_or(|frozen| !frozen.has(slot))
    }
}

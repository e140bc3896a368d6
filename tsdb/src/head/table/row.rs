//! A row of the series table, and references to it.

use super::label_sets::NONE;
use crate::batch::SeriesRef;

/// A slot with its generation. Can be used after the lock was released, if
/// [`Head::is_current`](crate::head::Head::is_current) holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SlotRef {
    /// The slot.
    pub(crate) slot: u32,
    /// The generation of the slot.
    pub(crate) generation: u32,
}

/// Whether a look-up created the series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NewSeries {
    /// The look-up created the series.
    Yes,
    /// The series existed.
    No,
}

/// The rank of a series that was not ranked yet.
pub(in crate::head) const UNRANKED: u32 = u32::MAX;

/// The data of a series that an append needs, in one cache line.
#[derive(Debug, Clone, Copy)]
pub(in crate::head) struct Row {
    pub(in crate::head) series: SeriesRef,
    /// Timestamp of the newest in-order sample, in memory or evicted from it. `i64::MIN` if there
    /// was none.
    pub(in crate::head) last_ms: i64,
    pub(in crate::head) generation: u32,
    pub(super) labels_at: u32,
}

/// The row of a slot without a series.
pub(super) const VACANT: Row = Row {
    series: SeriesRef(u64::MAX),
    last_ms: i64::MIN,
    generation: 0,
    labels_at: NONE,
};

impl Row {
    /// Returns `true` if the slot has a series.
    pub(in crate::head) fn is_used(&self) -> bool {
        self.labels_at != NONE
    }
}

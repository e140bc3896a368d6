//! Start timestamps of samples in memory, of the few series that have them.
//!
//! What was set for a sample is logged, and replay, which sees the logs before and after a freeze as one, must come to the
//! same. So a series that ever had a start tells it anew with its first in-order sample after a freeze, and with each
//! late one; otherwise only changes are told.

use hashbrown::HashMap;

use super::Head;
use crate::sample::TimeRange;

/// What a sample that is new has to do with those of its series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// It is newer than all; those to come have its start until they say something else.
    Newest,
    /// It came late; its start is its own.
    Late,
}

/// Starts by slot.
#[derive(Debug, Default)]
pub(super) struct Starts {
    by_slot: HashMap<u32, SeriesStarts>,
    /// Bytes of the lists.
    size: usize,
}

#[derive(Debug, Default)]
struct SeriesStarts {
    /// Times and the start of samples from there on, ascending; before the first it is 0.
    changes: Vec<(i64, i64)>,
    /// An in-order sample has told its start.
    is_told: bool,
}

impl Starts {
    /// Returns the bytes taken.
    pub(super) fn size(&self) -> usize {
        self.by_slot.allocation_size() + self.size
    }

    /// Sets the start of a sample; returns whether replay has to be told.
    fn set(&mut self, slot: u32, timestamp_ms: i64, start_ms: i64, order: Order) -> bool {
        let series = self.by_slot.entry(slot).or_default();
        let capacity = series.changes.capacity();
        let told = series.set(timestamp_ms, start_ms, order);
        self.size += (series.changes.capacity() - capacity) * size_of::<(i64, i64)>();
        told
    }

    /// Returns what is needed to tell the starts of a series' samples in a range.
    pub(super) fn changes(&self, slot: u32, range: TimeRange) -> &[(i64, i64)] {
        // Fast path: no series has any.
        if self.by_slot.is_empty() {
            return &[];
        }
        let Some(SeriesStarts { changes, .. }) = self.by_slot.get(&slot) else { return &[] };
        let from = changes.partition_point(|(at, _)| *at <= range.start_ms).saturating_sub(1);
        let end = changes.partition_point(|(at, _)| *at <= range.end_ms);
        &changes[from.min(end)..end]
    }
}

impl SeriesStarts {
    fn set(&mut self, timestamp_ms: i64, start_ms: i64, order: Order) -> bool {
        let after = self.changes.partition_point(|(at, _)| *at <= timestamp_ms);
        let before = after.checked_sub(1).map_or(0, |idx| self.changes[idx].1);
        if order == Order::Newest && self.is_told && before == start_ms {
            return false;
        }
        self.is_told |= order == Order::Newest;
        if before != start_ms {
            // Those behind a late one keep theirs.
            if order == Order::Late
                && let Some(next_ms) = timestamp_ms.checked_add(1)
            {
                self.insert(next_ms, before, false);
            }
            self.insert(timestamp_ms, start_ms, true);
        }
        true
    }

    fn insert(&mut self, timestamp_ms: i64, start_ms: i64, replaces: bool) {
        match self.changes.binary_search_by_key(&timestamp_ms, |(at, _)| *at) {
            Ok(idx) if replaces => self.changes[idx].1 = start_ms,
            Ok(_) => {}
            Err(idx) => self.changes.insert(idx, (timestamp_ms, start_ms)),
        }
    }
}

impl Head {
    /// Tells whether a sample without a start may still have to be told of: some series has, or had, starts.
    #[inline]
    pub(crate) fn has_starts(&self) -> bool {
        !self.with_starts.is_empty()
    }

    /// Sets the start (0: unknown) of a sample that was just appended or replayed; returns whether replay has to be told.
    pub(crate) fn set_start(&mut self, slot: u32, timestamp_ms: i64, start_ms: i64, order: Order) -> bool {
        if start_ms == 0 && !self.with_starts.contains(&slot) {
            return false;
        }
        self.with_starts.insert(slot);
        self.live.starts.set(slot, timestamp_ms, start_ms, order)
    }
}

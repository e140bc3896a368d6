//! Start timestamps of samples in memory, for the few series that have them.
//!
//! They are logged. A replay does not see the freezes in the WAL, but must restore the same state.
//! So a series that ever had a start timestamp logs it again with its first in-order sample after a
//! freeze and with each out-of-order sample. Otherwise only changes are logged.

use hashbrown::HashMap;
use varve_model::TimeRange;
use varve_model::start_timestamps::Order;

/// Start timestamps by slot.
#[derive(Debug, Default)]
pub(in crate::head) struct StartTimestamps {
    by_slot: HashMap<u32, SeriesStartTimestamps>,
    /// Size of the lists in bytes.
    size: usize,
}

#[derive(Debug, Default)]
struct SeriesStartTimestamps {
    /// Timestamps, ascending, and the start timestamp of the samples from that timestamp on. Before
    /// the first timestamp it is 0.
    changes: Vec<(i64, i64)>,
    /// `true` if an in-order sample since the freeze has logged its start timestamp.
    is_logged: bool,
}

impl StartTimestamps {
    /// Returns the size in bytes.
    pub(in crate::head) fn size(&self) -> usize {
        self.by_slot.allocation_size() + self.size
    }

    /// Sets the start timestamp of a sample. Returns `true` if it must be logged.
    pub(in crate::head) fn set(
        &mut self,
        slot: u32,
        timestamp_ms: i64,
        start_ms: i64,
        order: Order,
    ) -> bool {
        let series = self.by_slot.entry(slot).or_default();
        let capacity = series.changes.capacity();
        let told = series.set(timestamp_ms, start_ms, order);
        self.size += (series.changes.capacity() - capacity) * size_of::<(i64, i64)>();
        told
    }

    /// Returns the changes that determine the start timestamps of a series' samples in `range`.
    pub(in crate::head) fn changes(&self, slot: u32, range: TimeRange) -> &[(i64, i64)] {
        // Fast path: no series has start timestamps.
        if self.by_slot.is_empty() {
            return &[];
        }
        let Some(SeriesStartTimestamps { changes, .. }) = self.by_slot.get(&slot) else {
            return &[];
        };
        let from = changes
            .partition_point(|(at, _)| *at <= range.start_ms)
            .saturating_sub(1);
        let end = changes.partition_point(|(at, _)| *at <= range.end_ms);
        &changes[from.min(end)..end]
    }
}

impl SeriesStartTimestamps {
    fn set(&mut self, timestamp_ms: i64, start_ms: i64, order: Order) -> bool {
        let after = self.changes.partition_point(|(at, _)| *at <= timestamp_ms);
        let before = after.checked_sub(1).map_or(0, |idx| self.changes[idx].1);
        if order == Order::Newest && self.is_logged && before == start_ms {
            return false;
        }
        self.is_logged |= order == Order::Newest;
        if before != start_ms {
            // The samples after an out-of-order one keep their start timestamp.
            if order == Order::OutOfOrder
                && let Some(next_ms) = timestamp_ms.checked_add(1)
            {
                self.insert(next_ms, before, false);
            }
            self.insert(timestamp_ms, start_ms, true);
        }
        true
    }

    fn insert(&mut self, timestamp_ms: i64, start_ms: i64, replaces: bool) {
        match self
            .changes
            .binary_search_by_key(&timestamp_ms, |(at, _)| *at)
        {
            Ok(idx) if replaces => self.changes[idx].1 = start_ms,
            Ok(_) => {}
            Err(idx) => self.changes.insert(idx, (timestamp_ms, start_ms)),
        }
    }
}

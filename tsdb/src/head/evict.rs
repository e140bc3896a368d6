//! Eviction: series without new samples leave the head, and their memory is given back.

use super::Head;

impl Head {
    /// Removes up to `n_max` series whose newest in-order sample is older than `last_before_ms` and of which no sample
    /// is in memory. Goes on where the last call ended and looks at no slot twice; fewer than `n_max` means that no more
    /// are to be found. Handles and [`SlotRef`](super::SlotRef)s of removed series no longer match.
    pub(crate) fn evict(&mut self, last_before_ms: i64, n_max: usize) -> usize {
        let (mut n_removed, end) = (0, self.table.end());
        for _ in 0..end {
            if n_removed == n_max {
                break;
            }
            self.evict_cursor = if self.evict_cursor < end { self.evict_cursor } else { 0 };
            // Slots are less than 2^31.
            let slot = self.evict_cursor as u32;
            self.evict_cursor += 1;
            if self.is_stale(slot, last_before_ms) {
                self.table.remove(slot);
                self.with_starts.remove(&slot);
                n_removed += 1;
            }
        }
        if n_removed > 0 {
            self.table.shrink();
        }
        n_removed
    }

    fn is_stale(&self, slot: u32, last_before_ms: i64) -> bool {
        self.table.row(slot).is_some_and(|row| row.is_used() && row.last_ms < last_before_ms)
            && !self.live.has(slot)
            && self.frozen.as_ref().is_none_or(|frozen| !frozen.has(slot))
    }
}

//! Returns memory of series that have left the table, in steps.

use std::hash::BuildHasher;
use std::ops::Range;

use super::Table;

impl Table {
    /// Frees memory after the last series and the last symbol.
    pub(in crate::head) fn truncate(&mut self) {
        self.rows.truncate(self.ids.end());
        self.ranks.truncate(self.ids.end());
        self.groups.truncate(self.ids.end());
        self.label_sets.truncate();
        self.symbols.truncate();
    }

    /// Moves the label sets of `slots` out of sparse pieces. Returns `false` if the slots do not
    /// exist.
    pub(in crate::head) fn compact_label_sets(&mut self, slots: Range<usize>) -> bool {
        for slot in slots.start..slots.end.min(self.rows.len()) {
            let row = &mut self.rows[slot];
            if row.is_used() {
                row.labels_at = self.label_sets.relocate(row.labels_at);
            }
        }
        slots.start < self.rows.len()
    }

    /// Frees memory in one piece of the table. Returns `false` if the piece does not exist.
    pub(in crate::head) fn shrink_piece(&mut self, piece: usize) -> bool {
        let sets = &self.label_sets;
        let rows = &self.rows;
        let hasher = &self.hasher;
        self.by_labels.shrink_piece(piece, |&slot| {
            hasher.hash_one(sets.words(rows[slot as usize].labels_at))
        })
    }
}

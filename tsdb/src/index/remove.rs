//! Removing series from the index.

use super::lookup::Index;
use super::symbols::SymbolId;

impl Index {
    /// Removes a series, given the label names and values that it was added with. Calls `note_gone`
    /// with each name that no other series has.
    pub(crate) fn remove(
        &mut self,
        slot: u32,
        labels: impl Iterator<Item = (SymbolId, SymbolId)>,
        mut note_gone: impl FnMut(SymbolId),
    ) {
        self.all.remove(slot);
        for (name, value) in labels {
            let Some(values) = self.names.get_mut(&name) else {
                continue;
            };
            let size = values.size();
            let n_before = values.len();
            values.remove(value, slot);
            self.size = self.size + values.size() - size;
            self.n_values -= n_before - values.len();
            if values.len() == 0 {
                self.size -= values.size();
                self.names.remove(&name);
                note_gone(name);
            }
        }
    }

    /// Returns the names of all labels.
    pub(crate) fn names(&self) -> Vec<SymbolId> {
        self.names.keys().copied().collect()
    }

    /// Frees unused memory in one piece of the table of a label's values. Returns `false` if the
    /// piece does not exist.
    pub(crate) fn shrink_piece(&mut self, name: SymbolId, piece: usize) -> bool {
        let Some(values) = self.names.get_mut(&name) else {
            return false;
        };
        let size = values.size();
        let is_there = values.shrink_piece(piece);
        self.size = self.size + values.size() - size;
        is_there
    }
}

//! Taking series out of the index.

use super::lookup::Index;
use super::symbols::SymbolId;

impl Index {
    /// Removes a series by the label names and values that it was added with.
    pub(crate) fn remove(&mut self, slot: u32, labels: impl Iterator<Item = (SymbolId, SymbolId)>) {
        self.all.remove(slot);
        for (name, value) in labels {
            let Some(values) = self.names.get_mut(&name) else { continue };
            let size = values.size();
            values.remove(value, slot);
            self.size = self.size + values.size() - size;
            if values.len() == 0 {
                self.size -= values.size();
                self.names.remove(&name);
            }
        }
    }

    /// Gives memory back if much of it is not needed any more.
    pub(crate) fn shrink(&mut self) {
        for values in self.names.values_mut() {
            let size = values.size();
            values.shrink();
            self.size = self.size + values.size() - size;
        }
    }
}

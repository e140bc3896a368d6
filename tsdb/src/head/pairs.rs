//! Labels as symbols of the head, for those who have many series that share them: a text is then looked up or compared
//! once, and not for each series. Used by flushes.

use super::Head;
use crate::index::SymbolId;

/// A label's name and value as symbols of a head.
pub(crate) type Pair = (SymbolId, SymbolId);

impl Head {
    /// Returns the labels of a series as symbols, in order of names.
    pub(crate) fn pairs(&self, slot: u32) -> impl Iterator<Item = Pair> + '_ {
        self.table.pairs(slot)
    }

    /// Returns the text of a symbol.
    pub(crate) fn symbol(&self, id: SymbolId) -> &str {
        self.table.symbol(id)
    }
}

//! Labels as symbols of the head, for those who have many series that share them: a text is then looked up or compared
//! once, and not for each series. Used by flushes and by the loading of checkpoints.

use super::{Head, NewSeries, SeriesRef};
use crate::error::Result;
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

    /// Returns the symbol of a text, and keeps it until [`Head::release`].
    ///
    /// # Errors
    /// [`Error::Limit`](crate::Error::Limit) when the shard's symbols are used up.
    pub(crate) fn intern(&mut self, text: &str) -> Result<SymbolId> {
        self.table.intern(text)
    }

    /// Takes back what [`Head::intern`] gave.
    pub(crate) fn release(&mut self, symbol: SymbolId) {
        self.table.symbols.release(symbol);
    }

    /// As [`Head::find_or_create`], of names in ascending order and their values.
    ///
    /// # Errors
    /// As [`Head::find_or_create`].
    pub(crate) fn find_or_create_symbols(
        &mut self,
        names: &[SymbolId],
        values: &[SymbolId],
        new_ref: SeriesRef,
    ) -> Result<(u32, NewSeries)> {
        self.table.find_or_create_symbols(names, values, new_ref)
    }
}

//! The requested labels as symbols of a block.

use std::ops::Range;

use crate::block::symbol::Symbol;

/// The requested labels in one block.
#[derive(Debug)]
pub(crate) struct Projection {
    /// The symbols of the listed names.
    pub(super) listed: Vec<Range<u32>>,
    /// `true` if the listed names are requested, `false` if all other names are.
    pub(super) is_included: bool,
}

impl Projection {
    /// Returns `true` if no series has any of these labels.
    pub(crate) fn is_empty(&self) -> bool {
        self.is_included && self.listed.iter().all(Range::is_empty)
    }

    /// Replaces `projected` with the requested symbols of a row.
    pub(super) fn project(&self, row: &[Symbol], projected: &mut Vec<Symbol>) {
        projected.clear();
        for &symbol in row {
            if self.is_listed(symbol) == self.is_included {
                projected.push(symbol);
            }
        }
    }

    fn is_listed(&self, symbol: Symbol) -> bool {
        self.listed
            .iter()
            .any(|symbols| symbols.contains(&symbol.0))
    }
}

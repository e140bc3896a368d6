//! Requested labels as symbols of a block.

use std::ops::Range;

use crate::block::Symbol;

/// The requested labels in one block.
#[derive(Debug)]
pub(crate) struct Projection {
    /// The symbols of the listed names.
    listed: Vec<Range<u32>>,
    /// `true` if these are requested, `false` if all others are.
    is_included: bool,
}

impl Projection {
    pub(super) fn new(listed: Vec<Range<u32>>, is_included: bool) -> Self {
        Self { listed, is_included }
    }

    /// Returns `true` if no series has any of these labels.
    pub(crate) fn is_empty(&self) -> bool {
        self.is_included && self.listed.iter().all(Range::is_empty)
    }

    /// Replaces `projected` by the requested symbols of a row.
    pub(super) fn project(&self, row: &[Symbol], projected: &mut Vec<Symbol>) {
        let is_listed = |symbol: Symbol| self.listed.iter().any(|symbols| symbols.contains(&symbol.0));
        projected.clear();
        projected.extend(row.iter().copied().filter(|&symbol| is_listed(symbol) == self.is_included));
    }
}

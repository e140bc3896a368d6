//! Which labels of series somebody asks for, by the symbols that their names have.

use std::ops::Range;

use super::reader::Index;
use crate::block::Symbol;
use crate::error::Result;
use crate::select::LabelHint;

/// The labels that are asked for in one block.
#[derive(Debug)]
pub(crate) struct Projection {
    /// The symbols of the names that are listed.
    listed: Vec<Range<u32>>,
    /// Whether these are asked for, or all others.
    are_asked_for: bool,
}

impl Index {
    /// Finds the labels that are asked for; `None` if it is all.
    ///
    /// # Errors
    /// As [`Index::open`].
    pub(in crate::block) fn projection(&self, asked: &LabelHint) -> Result<Option<Projection>> {
        let (names, are_asked_for) = match asked {
            LabelHint::All => return Ok(None),
            LabelHint::With(names) => (names, true),
            LabelHint::Without(names) => (names, false),
        };
        let listed = names.iter().map(|name| self.dictionary.range(name, "")).collect::<Result<_>>()?;
        Ok(Some(Projection { listed, are_asked_for }))
    }

    /// Tells whether a series may have a label of this name.
    ///
    /// # Errors
    /// As [`Index::open`].
    pub(in crate::block) fn has_label(&self, name: &str) -> Result<bool> {
        Ok(!self.dictionary.range(name, "")?.is_empty())
    }
}

impl Projection {
    /// Tells whether no series has any of these labels.
    pub(crate) fn is_empty(&self) -> bool {
        self.are_asked_for && self.listed.iter().all(Range::is_empty)
    }

    /// Replaces `projected` by the symbols of a row that are asked for.
    pub(super) fn project(&self, row: &[Symbol], projected: &mut Vec<Symbol>) {
        let is_listed = |symbol: Symbol| self.listed.iter().any(|symbols| symbols.contains(&symbol.0));
        projected.clear();
        projected.extend(row.iter().copied().filter(|&symbol| is_listed(symbol) == self.are_asked_for));
    }
}

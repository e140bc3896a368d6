//! Requested labels as symbols of a block.

use std::ops::Range;

use super::reader::Index;
use crate::block::Symbol;
use crate::error::Result;
use crate::labels::LabelHint;

/// The requested labels in one block.
#[derive(Debug)]
pub(crate) struct Projection {
    /// The symbols of the listed names.
    listed: Vec<Range<u32>>,
    /// `true` if these are requested, `false` if all others are.
    is_included: bool,
}

impl Index {
    /// Returns the requested labels as symbols; `None` if all labels are requested.
    ///
    /// # Errors
    /// As [`Index::open`].
    pub(in crate::block) fn projection(&self, requested: &LabelHint) -> Result<Option<Projection>> {
        let (names, is_included) = match requested {
            LabelHint::All => return Ok(None),
            LabelHint::With(names) => (names, true),
            LabelHint::Without(names) => (names, false),
        };
        let listed = names.iter().map(|name| self.dictionary.range(name, "")).collect::<Result<_>>()?;
        Ok(Some(Projection { listed, is_included }))
    }

    /// Returns `true` if a series may have a label of this name.
    ///
    /// # Errors
    /// As [`Index::open`].
    pub(in crate::block) fn has_label(&self, name: &str) -> Result<bool> {
        Ok(!self.dictionary.range(name, "")?.is_empty())
    }
}

impl Projection {
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

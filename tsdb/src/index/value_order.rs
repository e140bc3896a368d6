//! The sorted values of a label, so that a prefix finds the values that begin with it.
//!
//! Values are found by hash. For labels with many values a sorted list is built from time to time
//! (`Shard::sort_label_values`), without the head's lock while strings are compared. Values added
//! later are kept beside it, unsorted, until the next time. When a value is removed, or too many
//! were added, the list is dropped: the id of a removed value may be reused for another string.

use super::symbols::{SymbolId, Symbols};

/// Labels with fewer values are not sorted: all values are tested.
pub(super) const ORDERED_VALUES_MIN: usize = 1024;

/// The sorted order of a label's values, if there is one.
#[derive(Debug, Default)]
pub(super) enum ValueOrder {
    /// There is no order.
    #[default]
    None,
    /// The order is being built.
    Building {
        /// Values added since.
        added: Vec<SymbolId>,
    },
    /// The order exists.
    Built {
        /// Sorted as strings.
        ordered: Box<[SymbolId]>,
        /// Values added since.
        added: Vec<SymbolId>,
    },
}

impl ValueOrder {
    /// Begins to build the order of all present values.
    pub(super) fn begin(&mut self) {
        *self = Self::Building { added: Vec::new() };
    }

    /// Sets the order of the values that existed at [`ValueOrder::begin`], unless one of them was
    /// removed.
    pub(super) fn set(&mut self, ordered: Vec<SymbolId>) {
        if let Self::Building { added } = self {
            *self = Self::Built {
                ordered: ordered.into(),
                added: std::mem::take(added),
            };
        }
    }

    /// Returns `true` if the order is missing values.
    pub(super) fn is_outdated(&self) -> bool {
        !matches!(self, Self::Built { added, .. } if added.is_empty())
    }

    /// Records a new value.
    #[inline]
    pub(super) fn add(&mut self, value: SymbolId) {
        let is_too_much = match self {
            Self::None => return,
            Self::Building { added } => {
                added.push(value);
                false
            }
            Self::Built { ordered, added } => {
                added.push(value);
                added.len() > ORDERED_VALUES_MIN + ordered.len() / 4
            }
        };
        if is_too_much {
            *self = Self::None;
        }
    }

    /// Records a removed value.
    pub(super) fn remove(&mut self) {
        *self = Self::None;
    }

    /// Returns the values that begin with `prefix`, sorted, and all values added since the order
    /// was built, unsorted. Returns `None` if there is no order, or if the prefix is empty: all values
    /// begin with it.
    pub(super) fn candidates(
        &self,
        prefix: &str,
        symbols: &Symbols,
    ) -> Option<(&[SymbolId], &[SymbolId])> {
        if prefix.is_empty() {
            return None;
        }
        let (ordered, added) = self.sorted()?;
        let start = ordered.partition_point(|&value| symbols.resolve(value) < prefix);
        let n =
            ordered[start..].partition_point(|&value| symbols.resolve(value).starts_with(prefix));
        Some((&ordered[start..start + n], added))
    }

    /// Returns the sorted values, and all values added since the order was built, unsorted. Returns
    /// `None` if there is no order.
    pub(super) fn sorted(&self) -> Option<(&[SymbolId], &[SymbolId])> {
        match self {
            Self::Built { ordered, added } => Some((ordered, added)),
            Self::None | Self::Building { .. } => None,
        }
    }

    /// Returns the size in bytes.
    pub(super) fn size(&self) -> usize {
        let n = match self {
            Self::None => 0,
            Self::Building { added } => added.capacity(),
            Self::Built { ordered, added } => ordered.len() + added.capacity(),
        };
        n * size_of::<SymbolId>()
    }
}

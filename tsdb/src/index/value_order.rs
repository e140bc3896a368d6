//! The sorted values of a label, so that a prefix finds the values that begin with it.
//!
//! Values are found by hash. For labels with many values a sorted list is built from time to time
//! (`Shard::sort_label_values`), without the head's lock while strings are compared. Values added later are kept beside
//! it, unsorted, until the next time. When a value is removed, or too many were added, the list is dropped: the id of a
//! removed value may be reused for another string.

use super::symbols::{SymbolId, Symbols};

/// Labels with fewer values are not sorted: all values are tested.
pub(super) const ORDERED_VALUES_MIN: usize = 1024;

/// The sorted order of a label's values, if there is one.
#[derive(Debug, Default)]
pub(super) enum ValueOrder {
    /// There is no order.
    #[default]
    None,
    /// The order is being built. Holds the values added since.
    Making(Vec<SymbolId>),
    /// The order exists.
    Made {
        /// Sorted as strings.
        ordered: Box<[SymbolId]>,
        /// Values added since.
        fresh: Vec<SymbolId>,
    },
}

impl ValueOrder {
    /// Begins to build the order of all present values.
    pub(super) fn begin(&mut self) {
        *self = Self::Making(Vec::new());
    }

    /// Sets the order of the values that existed at [`ValueOrder::begin`], unless one of them was removed.
    pub(super) fn set(&mut self, ordered: Vec<SymbolId>) {
        if let Self::Making(fresh) = self {
            *self = Self::Made { ordered: ordered.into(), fresh: std::mem::take(fresh) };
        }
    }

    /// Returns `true` if the order is missing values.
    pub(super) fn is_outdated(&self) -> bool {
        !matches!(self, Self::Made { fresh, .. } if fresh.is_empty())
    }

    /// Records a new value.
    #[inline]
    pub(super) fn add(&mut self, value: SymbolId) {
        let is_too_much = match self {
            Self::None => return,
            Self::Making(fresh) => {
                fresh.push(value);
                false
            }
            Self::Made { ordered, fresh } => {
                fresh.push(value);
                fresh.len() > ORDERED_VALUES_MIN + ordered.len() / 4
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

    /// Returns the values that begin with `prefix`, sorted, and other candidates. Returns `None` if there is no order.
    pub(super) fn candidates(&self, prefix: &str, symbols: &Symbols) -> Option<(&[SymbolId], &[SymbolId])> {
        let Self::Made { ordered, fresh } = self else { return None };
        let start = ordered.partition_point(|&value| symbols.resolve(value) < prefix);
        let n = ordered[start..].partition_point(|&value| symbols.resolve(value).starts_with(prefix));
        Some((&ordered[start..start + n], fresh))
    }

    /// Returns the size in bytes.
    pub(super) fn size(&self) -> usize {
        let n = match self {
            Self::None => 0,
            Self::Making(fresh) => fresh.capacity(),
            Self::Made { ordered, fresh } => ordered.len() + fresh.capacity(),
        };
        n * size_of::<SymbolId>()
    }
}

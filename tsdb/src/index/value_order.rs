//! The values of a label in order of their texts, so that a prefix leads to those that begin with it.
//!
//! Values are found by hash. Their order is made aside, now and then (`Shard::order_values`), for labels with many values,
//! without the head's lock while they are compared. What comes later lies beside it, unordered, until the next time; when a
//! value goes, or too many have come, the order goes too: its number may then be that of another text.

use super::symbols::{SymbolId, Symbols};

/// Labels with fewer values are not worth it: all are looked at.
pub(super) const ORDERED_VALUES_MIN: usize = 1024;

/// See the module.
#[derive(Debug, Default)]
pub(super) enum ValueOrder {
    /// There is none.
    #[default]
    None,
    /// It is being made; the values that have come since that began.
    Making(Vec<SymbolId>),
    /// It is there.
    Made {
        /// In order of their texts.
        ordered: Box<[SymbolId]>,
        /// Those that have come since.
        fresh: Vec<SymbolId>,
    },
}

impl ValueOrder {
    /// Begins to make the order of all values there are.
    pub(super) fn begin(&mut self) {
        *self = Self::Making(Vec::new());
    }

    /// Takes over the order of the values that there were at [`ValueOrder::begin`], unless one of them has gone.
    pub(super) fn set(&mut self, ordered: Vec<SymbolId>) {
        if let Self::Making(fresh) = self {
            *self = Self::Made { ordered: ordered.into(), fresh: std::mem::take(fresh) };
        }
    }

    /// Tells whether it would be another one if it were made now.
    pub(super) fn is_outdated(&self) -> bool {
        !matches!(self, Self::Made { fresh, .. } if fresh.is_empty())
    }

    /// Notes a new value.
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

    /// Notes that a value is gone.
    pub(super) fn remove(&mut self) {
        *self = Self::None;
    }

    /// Returns the values that begin with `prefix`, in order, and others that may; `None` if there is no order.
    pub(super) fn candidates(&self, prefix: &str, symbols: &Symbols) -> Option<(&[SymbolId], &[SymbolId])> {
        let Self::Made { ordered, fresh } = self else { return None };
        let start = ordered.partition_point(|&value| symbols.text(value) < prefix);
        let n = ordered[start..].partition_point(|&value| symbols.text(value).starts_with(prefix));
        Some((&ordered[start..start + n], fresh))
    }

    /// Returns the bytes that it takes.
    pub(super) fn size(&self) -> usize {
        let n = match self {
            Self::None => 0,
            Self::Making(fresh) => fresh.capacity(),
            Self::Made { ordered, fresh } => ordered.len() + fresh.capacity(),
        };
        n * size_of::<SymbolId>()
    }
}

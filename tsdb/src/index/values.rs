//! The values of one label.
//!
//! In a shard with few series, or for a label that few series have, most labels have one value in
//! one series. It takes no memory beyond the 16 bytes of [`Values`].

use std::ops::Range;

use super::postings::{Postings, ValueTable};
use super::symbols::{SymbolId, Symbols};
use super::value_order::ValueOrder;

/// The values of one label and the series that have them.
#[derive(Debug, Default)]
pub(crate) enum Values {
    #[default]
    None,
    /// One value of one series.
    One {
        value: SymbolId,
        slot: u32,
    },
    Table(Box<ValueTable>),
}

impl Values {
    /// Adds a series to a value. Returns the change of [`Values::size`].
    pub(crate) fn insert(&mut self, value: SymbolId, slot: u32) -> isize {
        match self {
            Self::None => {
                *self = Self::One { value, slot };
                0
            }
            Self::One {
                value: known,
                slot: known_slot,
            } if *known == value && *known_slot == slot => 0,
            Self::One { .. } => {
                self.table().insert(value, slot);
                self.size() as isize
            }
            Self::Table(table) => table.insert(value, slot),
        }
    }

    /// Adds a new value with its series: ascending runs of slots, at least one.
    pub(crate) fn insert_new(&mut self, value: SymbolId, runs: &[Range<u32>]) {
        match (&*self, runs) {
            (Self::None, [only]) if only.len() == 1 => {
                *self = Self::One {
                    value,
                    slot: only.start,
                };
            }
            _ => self.table().insert_new(value, runs),
        }
    }

    /// Removes a series from a value, and the value with its last series.
    pub(crate) fn remove(&mut self, value: SymbolId, slot: u32) {
        match self {
            Self::None => {}
            Self::One {
                value: known,
                slot: known_slot,
            } => {
                if *known == value && *known_slot == slot {
                    *self = Self::None;
                }
            }
            Self::Table(table) => table.remove(value, slot),
        }
    }

    /// Frees unused memory in one piece of the table. Returns `false` if the piece does not exist.
    pub(crate) fn shrink_piece(&mut self, piece: usize) -> bool {
        match self {
            Self::None | Self::One { .. } => false,
            Self::Table(table) => table.shrink_piece(piece),
        }
    }

    /// Returns the values in one piece of the table, and the number of pieces.
    pub(crate) fn values_in_piece(&self, piece: usize) -> (Vec<SymbolId>, usize) {
        match self {
            Self::None => (Vec::new(), 0),
            Self::One { value, .. } if piece == 0 => (vec![*value], 1),
            Self::One { .. } => (Vec::new(), 1),
            Self::Table(table) => table.values_in_piece(piece),
        }
    }

    /// Returns the series that have a value.
    #[inline]
    pub(crate) fn get(&self, value: SymbolId) -> Option<Postings<'_>> {
        match self {
            Self::None => None,
            Self::One { value: known, slot } => (*known == value).then_some(Postings::One(*slot)),
            Self::Table(table) => table.get(value),
        }
    }

    /// Returns the number of series that have a value.
    pub(super) fn n_series(&self, symbols: &Symbols, value: &str) -> u64 {
        let postings = symbols.find(value).and_then(|value| self.get(value));
        postings.map_or(0, |postings| postings.len())
    }

    /// Iterates over all values and their series, in no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (SymbolId, Postings<'_>)> {
        let (one, table) = match self {
            Self::None => (None, None),
            Self::One { value, slot } => (Some((*value, Postings::One(*slot))), None),
            Self::Table(table) => (None, Some(table.iter())),
        };
        one.into_iter().chain(table.into_iter().flatten())
    }

    /// Returns the number of values.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::One { .. } => 1,
            Self::Table(table) => table.len(),
        }
    }

    /// Returns the approximate size of the table in bytes.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::None | Self::One { .. } => 0,
            Self::Table(table) => size_of::<ValueTable>() + table.size(),
        }
    }

    /// Returns the sorted order of the values.
    pub(super) fn order(&self) -> &ValueOrder {
        match self {
            Self::None | Self::One { .. } => &ValueOrder::None,
            Self::Table(table) => &table.order,
        }
    }

    /// Returns the sorted order of the values, to change it.
    pub(super) fn order_mut(&mut self) -> &mut ValueOrder {
        &mut self.table().order
    }

    /// Turns this into a table.
    fn table(&mut self) -> &mut ValueTable {
        if !matches!(self, Self::Table(_)) {
            let mut table = Box::<ValueTable>::default();
            if let Self::One { value, slot } = *self {
                table.insert(value, slot);
            }
            *self = Self::Table(table);
        }
        let Self::Table(table) = self else {
            unreachable!("this is a table now");
        };
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(values: &Values) -> Vec<(u32, Vec<u32>)> {
        let mut all: Vec<_> = values
            .iter()
            .map(|(value, postings)| (value.0, postings.iter().collect::<Vec<_>>()))
            .collect();
        all.sort();
        assert_eq!(all.len(), values.len());
        for (value, slots) in &all {
            let found = values.get(SymbolId(*value)).expect("the value is listed");
            assert!(found.iter().eq(slots.iter().copied()));
        }
        all
    }

    #[test]
    fn one_value_of_one_series_has_no_table() {
        let mut values = Values::default();
        assert_eq!((all(&values), values.size()), (vec![], 0));
        assert_eq!(values.insert(SymbolId(5), 7), 0);
        assert_eq!(values.insert(SymbolId(5), 7), 0);
        assert_eq!((all(&values), values.size()), (vec![(5, vec![7])], 0));
        assert!(values.get(SymbolId(7)).is_none());
        assert_eq!(values.values_in_piece(0), (vec![SymbolId(5)], 1));
        values.remove(SymbolId(5), 8);
        values.remove(SymbolId(6), 7);
        assert_eq!(values.len(), 1);
        values.remove(SymbolId(5), 7);
        assert_eq!(values.len(), 0);
    }

    #[test]
    fn a_second_series_or_value_makes_a_table() {
        for (value, slot, expected) in [
            (5, 8, vec![(5, vec![7, 8])]),
            (6, 7, vec![(5, vec![7]), (6, vec![7])]),
        ] {
            let mut values = Values::default();
            values.insert(SymbolId(5), 7);
            let change = values.insert(SymbolId(value), slot);
            assert_eq!(all(&values), expected);
            assert_eq!(change, values.size() as isize);
            values.remove(SymbolId(5), 7);
            assert_eq!(all(&values), [(value, vec![slot])]);
        }
    }

    #[test]
    fn the_size_of_a_label_with_one_value_is_small() {
        assert!(size_of::<Values>() <= 16, "{}", size_of::<Values>());
    }
}

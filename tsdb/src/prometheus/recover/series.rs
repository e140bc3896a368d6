//! The series of a directory: their labels, and the numbers by which records name them.
//!
//! About 80 bytes a series of twelve labels, which recovery keeps in memory whatever its budget.

use hashbrown::HashTable;

use super::numbers::Numbers;
use super::pairs::{PairId, Pairs};
use crate::index::{Arena, Column};

/// The place of a series in the table.
pub(super) type SeriesIdx = u32;

/// All series, in the order in which they were first defined.
#[derive(Debug, Default)]
pub(super) struct SeriesTable {
    pub(super) pairs: Pairs,
    /// Of each series the number of its labels, then these.
    labels: Arena<Vec<PairId>>,
    /// By series, where that begins.
    places: Column<u32>,
    by_labels: HashTable<SeriesIdx>,
    by_number: Numbers,
    scratch: Vec<PairId>,
    /// As in `labels`, the series that was defined before.
    before: Vec<PairId>,
}

impl SeriesTable {
    /// Counts the series.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Estimates the bytes in memory.
    pub(super) fn size(&self) -> usize {
        let by_labels = self.by_labels.capacity() * (size_of::<SeriesIdx>() + 1);
        self.pairs.size() + self.labels.size() + self.places.size() + by_labels + self.by_number.size()
    }

    /// Returns the series that records call `number`.
    #[inline]
    pub(super) fn find(&self, number: u64) -> Option<SeriesIdx> {
        self.by_number.get(number)
    }

    /// Returns the labels of a series, in the order of names.
    #[inline]
    pub(super) fn labels(&self, series: SeriesIdx) -> &[PairId] {
        labels(&self.labels, self.places[series as usize])
    }

    /// Gives a series a number, and makes the series if there is none of these labels; `None` if labels are doubled or
    /// there are more than a table holds.
    pub(super) fn define<'a>(
        &mut self,
        number: u64,
        labels: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Option<SeriesIdx> {
        let mut run = std::mem::take(&mut self.scratch);
        run.clear();
        let series = self.find_or_make(&mut run, labels);
        self.scratch = std::mem::replace(&mut self.before, run);
        self.by_number.insert(number, series?);
        series
    }

    fn find_or_make<'a>(
        &mut self,
        run: &mut Vec<PairId>,
        labels_of: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Option<SeriesIdx> {
        run.push(0);
        let (mut before, mut is_sorted) = (None, true);
        for (name, value) in labels_of.filter(|(_, value)| !value.is_empty()) {
            is_sorted &= before.replace(name).is_none_or(|before| before < name);
            run.push(self.intern(name, value, run.len())?);
        }
        run[0] = u32::try_from(run.len() - 1).ok()?;
        let ids = &mut run[1..];
        if !is_sorted {
            let name = |id: &PairId| self.pairs.texts(*id).0;
            ids.sort_unstable_by(|a, b| name(a).cmp(name(b)));
            if ids.windows(2).any(|pair| name(&pair[0]) == name(&pair[1])) {
                return None;
            }
        }
        let (all, places, labels_hash) = (&self.labels, &self.places, hash(ids));
        if let Some(&found) = self.by_labels.find(labels_hash, |&it| labels(all, places[it as usize]) == ids) {
            return Some(found);
        }
        let series = SeriesIdx::try_from(self.len()).ok().filter(|&series| series != Numbers::NONE)?;
        self.places.push(self.labels.push(run)?);
        let (all, places) = (&self.labels, &self.places);
        self.by_labels.insert_unique(labels_hash, series, |&it| hash(labels(all, places[it as usize])));
        Some(series)
    }

    /// Returns the number of a pair. Series that are defined together have most of their labels in common, mostly at the same
    /// places.
    fn intern(&mut self, name: &str, value: &str, place: usize) -> Option<PairId> {
        match self.before.get(place) {
            Some(&same) if self.pairs.texts(same) == (name, value) => Some(same),
            _ => self.pairs.intern(name, value),
        }
    }

    /// Gives back the memory of what finds series: no more will come.
    pub(super) fn close(&mut self) {
        (self.by_labels, self.by_number) = (HashTable::new(), Numbers::default());
    }
}

fn labels(all: &Arena<Vec<PairId>>, place: u32) -> &[PairId] {
    match all.run(place, 1)[0] as usize {
        // The place behind it may be in no piece.
        0 => &[],
        n_labels => all.run(place + 1, n_labels),
    }
}

/// Pairs are numbered as they come: their numbers are mixed well enough by a multiplication each.
fn hash(ids: &[PairId]) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mixed = ids.iter().fold(0, |hash: u64, &id| (hash.rotate_left(23) ^ u64::from(id)).wrapping_mul(FACTOR));
    mixed ^ mixed >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_known_by_labels_and_numbers() {
        let mut table = SeriesTable::default();
        let a = table.define(10, [("b", "1"), ("a", "2"), ("gone", "")].into_iter()).unwrap();
        let again = table.define(20, [("a", "2"), ("b", "1")].into_iter()).unwrap();
        let other = table.define(30, [("a", "10"), ("b", "1")].into_iter()).unwrap();
        let none = table.define(50, std::iter::empty()).unwrap();
        assert_eq!((a, again, other, none, table.len()), (0, 0, 1, 2, 3));
        assert_eq!((table.find(10), table.find(20), table.find(30), table.find(1)), (Some(0), Some(0), Some(1), None));
        assert_eq!(table.define(40, [("a", "1"), ("a", "2")].into_iter()), None);
        let texts = |series| table.labels(series).iter().map(|&id| table.pairs.texts(id)).collect::<Vec<_>>();
        assert_eq!((texts(0), texts(1)), (vec![("a", "2"), ("b", "1")], vec![("a", "10"), ("b", "1")]));
        assert_eq!(texts(2), []);
    }

    #[test]
    fn many_series_are_told_apart() {
        let mut table = SeriesTable::default();
        let names: Vec<String> = (0..40).map(|i| format!("name{i:02}")).collect();
        let values: Vec<String> = (0..50).map(|i| i.to_string()).collect();
        let labels = |i: usize| (0..i % 40).map(move |k| (k, (i / 40 + k) % 50));
        for round in 0..2 {
            for i in 0..2000 {
                let labels = labels(i).map(|(name, value)| (names[name].as_str(), values[value].as_str()));
                let series = table.define((round * 2000 + i) as u64, labels).unwrap();
                assert_eq!(table.labels(series).len(), i % 40);
            }
        }
        // Those without labels are one.
        assert_eq!(table.len(), 2000 - 2000 / 40 + 1);
    }
}

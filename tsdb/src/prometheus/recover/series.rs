//! The series of a directory: their labels, and the numbers by which records name them.
//!
//! About 80 bytes a series of twelve labels, which recovery keeps in memory whatever its budget.

use hashbrown::HashTable;

use super::numbers::Numbers;
use super::pairs::{PairId, Pairs};
use crate::index::{Arena, Column};
use crate::prometheus::wal::DefinedLabel;

/// The place of a series in the table.
pub(super) type SeriesIdx = u32;

/// All series, in the order in which they were first defined.
#[derive(Debug, Default)]
pub(super) struct SeriesTable {
    pub(super) pairs: Pairs,
    pub(super) labels: SeriesLabels,
    by_labels: HashTable<SeriesIdx>,
    by_number: Numbers,
    scratch: Vec<PairId>,
    before: Before,
}

/// The labels of all series.
#[derive(Debug, Default)]
pub(super) struct SeriesLabels {
    /// Of each series the number of its labels, then these.
    all: Arena<Vec<PairId>>,
    /// By series, where that begins.
    places: Column<u32>,
}

impl SeriesLabels {
    /// Counts the series.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns the labels of a series, in the order of names.
    #[inline]
    pub(super) fn get(&self, series: SeriesIdx) -> &[PairId] {
        let place = self.places[series as usize];
        match self.all.run(place, 1)[0] as usize {
            // The place behind it may be in no piece.
            0 => &[],
            n_labels => self.all.run(place + 1, n_labels),
        }
    }

    /// Adds a series: the number of its labels, then these. None if there is no room.
    fn push(&mut self, run: &[PairId]) -> Option<()> {
        self.places.push(self.all.push(run)?);
        Some(())
    }

    /// Estimates the bytes in memory.
    pub(super) fn size(&self) -> usize {
        self.all.size() + self.places.size()
    }
}

/// The labels of the definition before, by their places in the record.
#[derive(Debug, Default)]
struct Before {
    /// None is a label without a value, which is no label.
    ids: Vec<Option<PairId>>,
    is_sorted: bool,
}

impl SeriesTable {
    /// Counts the series.
    pub(super) fn len(&self) -> usize {
        self.labels.len()
    }

    /// Estimates the bytes in memory.
    pub(super) fn size(&self) -> usize {
        let by_labels = self.by_labels.capacity() * (size_of::<SeriesIdx>() + 1);
        self.pairs.size() + self.labels.size() + by_labels + self.by_number.size()
    }

    /// Returns the series that records call `number`.
    #[inline]
    pub(super) fn find(&self, number: u64) -> Option<SeriesIdx> {
        self.by_number.get(number)
    }

    /// Gives a series a number, and makes the series if there is none of these labels; `None` if labels are doubled or
    /// there are more than a table holds.
    ///
    /// What [`DefinedLabel::is_same`] speaks of is the call before.
    pub(super) fn define(&mut self, number: u64, labels: &[DefinedLabel<'_>]) -> Option<SeriesIdx> {
        let mut run = std::mem::take(&mut self.scratch);
        run.clear();
        let series = self.intern_all(labels, &mut run).and_then(|is_sorted| self.find_or_make(&mut run, is_sorted));
        self.scratch = run;
        self.by_number.insert(number, series?);
        series
    }

    /// Appends the number of labels and these, but for empty ones; tells whether their names ascend.
    fn intern_all(&mut self, labels: &[DefinedLabel<'_>], run: &mut Vec<PairId>) -> Option<bool> {
        let mut before = std::mem::take(&mut self.before);
        before.ids.truncate(labels.len());
        run.push(0);
        let (mut is_sorted, mut last): (bool, Option<DefinedLabel<'_>>) = (true, None);
        for (place, &label) in labels.iter().enumerate() {
            // Of two that were in order in the series before there is nothing to compare.
            let is_known = before.is_sorted && label.is_same && last.is_none_or(|last| last.is_same);
            is_sorted &= is_known || last.is_none_or(|last| last.name < label.name);
            last = Some(label);
            let id = match before.ids.get(place) {
                Some(&same) if label.is_same => same,
                _ if label.value.is_empty() => None,
                _ => Some(self.pairs.intern(label.name, label.value)?),
            };
            match before.ids.get_mut(place) {
                Some(before) => *before = id,
                None => before.ids.push(id),
            }
            run.extend(id);
        }
        self.before = Before { is_sorted, ..before };
        run[0] = u32::try_from(run.len() - 1).ok()?;
        Some(is_sorted)
    }

    fn find_or_make(&mut self, run: &mut [PairId], is_sorted: bool) -> Option<SeriesIdx> {
        let ids = &mut run[1..];
        if !is_sorted {
            let name = |id: &PairId| self.pairs.texts(*id).0;
            ids.sort_unstable_by(|a, b| name(a).cmp(name(b)));
            if ids.windows(2).any(|pair| name(&pair[0]) == name(&pair[1])) {
                return None;
            }
        }
        let (labels, labels_hash) = (&self.labels, hash(ids));
        if let Some(&found) = self.by_labels.find(labels_hash, |&it| labels.get(it) == ids) {
            return Some(found);
        }
        let series = SeriesIdx::try_from(self.len()).ok().filter(|&series| series != Numbers::NONE)?;
        self.labels.push(run)?;
        let labels = &self.labels;
        self.by_labels.insert_unique(labels_hash, series, |&it| hash(labels.get(it)));
        Some(series)
    }

    /// Gives back the memory of what finds series: no more will come.
    pub(super) fn close(&mut self) {
        (self.by_labels, self.by_number) = (HashTable::new(), Numbers::default());
    }
}

/// Pairs are numbered as they come: their numbers are mixed well enough by a multiplication each.
fn hash(ids: &[PairId]) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mixed = ids.iter().fold(0, |hash: u64, &id| (hash.rotate_left(23) ^ u64::from(id)).wrapping_mul(FACTOR));
    mixed ^ mixed >> 32
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns labels as a record has them that has nothing before them.
    pub(in super::super) fn defined<'a>(labels: &[(&'a str, &'a str)]) -> Vec<DefinedLabel<'a>> {
        labels.iter().map(|&(name, value)| DefinedLabel { name, value, is_same: false }).collect()
    }

    #[test]
    fn series_are_known_by_labels_and_numbers() {
        let mut table = SeriesTable::default();
        let a = table.define(10, &defined(&[("b", "1"), ("a", "2"), ("gone", "")])).unwrap();
        let again = table.define(20, &defined(&[("a", "2"), ("b", "1")])).unwrap();
        let other = table.define(30, &defined(&[("a", "10"), ("b", "1")])).unwrap();
        let none = table.define(50, &[]).unwrap();
        assert_eq!((a, again, other, none, table.len()), (0, 0, 1, 2, 3));
        assert_eq!((table.find(10), table.find(20), table.find(30), table.find(1)), (Some(0), Some(0), Some(1), None));
        assert_eq!(table.define(40, &defined(&[("a", "1"), ("a", "2")])), None);
        let texts = |series| table.labels.get(series).iter().map(|&id| table.pairs.texts(id)).collect::<Vec<_>>();
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
                let labels: Vec<_> =
                    labels(i).map(|(name, value)| (names[name].as_str(), values[value].as_str())).collect();
                let series = table.define((round * 2000 + i) as u64, &defined(&labels)).unwrap();
                assert_eq!(table.labels.get(series).len(), i % 40);
            }
        }
        // Those without labels are one.
        assert_eq!(table.len(), 2000 - 2000 / 40 + 1);
    }

    #[test]
    fn what_is_the_same_as_before_is_told_by_the_record() {
        let labels = |labels: &[(&str, &str)]| {
            let mut bytes = vec![labels.len() as u8];
            for text in labels.iter().flat_map(|&(name, value)| [name, value]) {
                bytes.push(text.len() as u8);
                bytes.extend_from_slice(text.as_bytes());
            }
            bytes
        };
        let series: [&[(&str, &str)]; 7] = [
            &[("a", "1"), ("b", ""), ("c", "2")],
            &[("a", "1"), ("b", ""), ("c", "2"), ("d", "3")],
            // The third and the fourth label are those of before, but not in order here.
            &[("x", "1"), ("b", ""), ("c", "2"), ("d", "3")],
            &[("x", "1"), ("x", "2"), ("c", "2"), ("d", "3")],
            &[("x", "1"), ("x", "2"), ("c", "2")],
            &[("a", "1"), ("b", "2"), ("c", "2")],
            &[("a", "1")],
        ];
        let mut record = vec![1];
        for (number, labels_of) in series.iter().enumerate() {
            record.extend_from_slice(&(number as u64).to_be_bytes());
            record.extend_from_slice(&labels(labels_of));
        }
        let (mut table, mut found, mut same) = (SeriesTable::default(), Vec::new(), Vec::new());
        crate::prometheus::wal::for_each_definition(&record, |number, labels| {
            same.push(labels.iter().filter(|label| label.is_same).count());
            found.push(table.define(number, labels));
        })
        .unwrap();
        assert_eq!(same, [0, 3, 3, 3, 3, 1, 1]);
        assert_eq!(found, [Some(0), Some(1), Some(2), None, None, Some(3), Some(4)]);
        let texts = |series| table.labels.get(series).iter().map(|&id| table.pairs.texts(id)).collect::<Vec<_>>();
        assert_eq!(texts(1), [("a", "1"), ("c", "2"), ("d", "3")]);
        assert_eq!(texts(2), [("c", "2"), ("d", "3"), ("x", "1")]);
        assert_eq!(texts(3), [("a", "1"), ("b", "2"), ("c", "2")]);
    }
}

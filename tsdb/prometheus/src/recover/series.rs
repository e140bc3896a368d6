//! The series of a directory: their labels, and the numbers by which records name them.
//!
//! About 90 bytes a series of twelve labels, which recovery keeps in memory whatever its budget.

use varve_tsdb::collections::{Arena, Column};

use super::hashed::Hashed;
use super::numbers::Numbers;
use super::pairs::{NewPair, PairId, Pairs};
use crate::wal::{BadRecord, DefinedLabel, for_each_definition};

/// The place of a series in the table.
pub(super) type SeriesIdx = u32;

/// All series, in the order in which they were first defined.
#[derive(Debug, Default)]
pub(super) struct SeriesTable {
    pub(super) pairs: Pairs,
    pub(super) labels: SeriesLabels,
    by_labels: Hashed,
    by_number: Numbers,
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

/// The definitions of a record; labels that had a number before it are found.
#[derive(Debug, Default)]
pub(super) struct Definitions<'a> {
    series: Vec<Defined>,
    /// Of each series the number of its labels, then these; [`Pairs::NONE`] for one that stands in `new`.
    runs: Vec<PairId>,
    new: Vec<NewPair<'a>>,
    /// Where the record ends to make sense.
    pub(super) bad: Option<BadRecord>,
}

/// A series of [`Definitions`].
#[derive(Debug)]
struct Defined {
    number: u64,
    /// Names of labels ascend.
    is_sorted: bool,
}

/// What became of a definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Given {
    pub(super) number: u64,
    /// `None` if labels are doubled or there are more than a table holds.
    pub(super) series: Option<SeriesIdx>,
    /// The series had this number before.
    pub(super) is_known: bool,
}

/// The labels of the definition before, by their places in the record.
#[derive(Debug, Default)]
struct Before {
    /// None is a label without a value, which is no label.
    ids: Vec<Option<PairId>>,
    is_sorted: bool,
}

impl<'a> Definitions<'a> {
    /// Appends a series, with labels as [`for_each_definition`] gives them: what is said to be the same is so in `before`.
    fn push(&mut self, pairs: &Pairs, number: u64, labels: &[DefinedLabel<'a>], before: &mut Before) {
        before.ids.truncate(labels.len());
        let start = self.runs.len();
        self.runs.push(0);
        let (mut is_sorted, mut last): (bool, Option<DefinedLabel<'_>>) = (true, None);
        for (place, &label) in labels.iter().enumerate() {
            // Of two that were in order in the series before there is nothing to compare.
            let is_known = before.is_sorted && label.is_same && last.is_none_or(|last| last.is_same);
            is_sorted &= is_known || last.is_none_or(|last| last.name < label.name);
            last = Some(label);
            let pair = || NewPair::of(label.name, label.value);
            let id = match before.ids.get(place) {
                Some(&same) if label.is_same => same,
                _ if label.value.is_empty() => None,
                _ => Some(pairs.find(&pair()).unwrap_or(Pairs::NONE)),
            };
            match before.ids.get_mut(place) {
                Some(before) => *before = id,
                None => before.ids.push(id),
            }
            if id == Some(Pairs::NONE) {
                self.new.push(pair());
            }
            self.runs.extend(id);
        }
        before.is_sorted = is_sorted;
        // A record has far fewer labels.
        self.runs[start] = (self.runs.len() - start - 1) as u32;
        self.series.push(Defined { number, is_sorted });
    }
}

impl SeriesTable {
    /// Counts the series.
    pub(super) fn len(&self) -> usize {
        self.labels.len()
    }

    /// Estimates the bytes in memory.
    pub(super) fn size(&self) -> usize {
        self.pairs.size() + self.labels.size() + self.by_labels.size() + self.by_number.size()
    }

    /// Returns the series that records call `number`.
    #[inline]
    pub(super) fn find(&self, number: u64) -> Option<SeriesIdx> {
        self.by_number.get(number)
    }

    /// Reads the definitions of a record, and finds the labels that are known by now.
    pub(super) fn read<'a>(&self, record: &'a [u8]) -> Definitions<'a> {
        let (mut definitions, mut before) = (Definitions::default(), Before::default());
        let decoded = for_each_definition(record, |number, labels| {
            definitions.push(&self.pairs, number, labels, &mut before);
        });
        definitions.bad = decoded.err();
        definitions
    }

    /// Gives series their numbers, and makes those whose labels no other one has.
    pub(super) fn define(&mut self, definitions: Definitions<'_>, mut each: impl FnMut(Given)) {
        let Definitions { series, mut runs, new, .. } = definitions;
        let (mut runs, mut new) = (&mut runs[..], new.into_iter());
        for Defined { number, is_sorted } in series {
            let (run, rest) = runs.split_at_mut(1 + runs[0] as usize);
            runs = rest;
            let before = self.find(number);
            let series = self.intern(run, &mut new).and_then(|()| self.find_or_make(run, is_sorted));
            if let Some(series) = series {
                self.by_number.insert(number, series);
            }
            each(Given { number, series, is_known: series.is_some() && series == before });
        }
    }

    /// Numbers the labels of a series that have no number yet; `None` if one of them cannot have one.
    fn intern<'a>(&mut self, run: &mut [PairId], new: &mut impl Iterator<Item = NewPair<'a>>) -> Option<()> {
        let mut is_whole = true;
        for (id, pair) in run[1..].iter_mut().filter(|id| **id == Pairs::NONE).zip(new) {
            let found = self.pairs.intern(&pair);
            is_whole &= found.is_some();
            *id = found.unwrap_or(Pairs::NONE);
        }
        is_whole.then_some(())
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
        if let Some(found) = self.by_labels.find(labels_hash, |it| labels.get(it) == ids) {
            return Some(found);
        }
        let series = SeriesIdx::try_from(self.len()).ok().filter(|&series| series != Numbers::NONE)?;
        self.labels.push(run)?;
        self.by_labels.insert(labels_hash, series);
        Some(series)
    }

    /// Gives back the memory of what finds series: no more will come.
    pub(super) fn close(&mut self) {
        (self.by_labels, self.by_number) = (Hashed::default(), Numbers::default());
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
    use varve_tsdb::varint::put_u64;

    /// Returns a record of type 1.
    fn record<'a>(series: impl IntoIterator<Item = (u64, Vec<(&'a str, &'a str)>)>) -> Vec<u8> {
        let mut record = vec![1];
        for (number, labels) in series {
            record.extend_from_slice(&number.to_be_bytes());
            put_u64(&mut record, labels.len() as u64);
            for text in labels.into_iter().flat_map(|(name, value)| [name, value]) {
                put_u64(&mut record, text.len() as u64);
                record.extend_from_slice(text.as_bytes());
            }
        }
        record
    }

    /// Defines the series of a record; returns what became of them.
    fn define_all(table: &mut SeriesTable, record: &[u8]) -> Vec<Given> {
        let mut given = Vec::new();
        let definitions = table.read(record);
        assert_eq!(definitions.bad, None);
        table.define(definitions, |it| given.push(it));
        given
    }

    /// Defines a series in a record of its own.
    pub(in super::super) fn define(table: &mut SeriesTable, number: u64, labels: &[(&str, &str)]) -> Option<SeriesIdx> {
        define_all(table, &record([(number, labels.to_vec())]))[0].series
    }

    #[test]
    fn series_are_known_by_labels_and_numbers() {
        let mut table = SeriesTable::default();
        let a = define(&mut table, 10, &[("b", "1"), ("a", "2"), ("gone", "")]).unwrap();
        let again = define(&mut table, 20, &[("a", "2"), ("b", "1")]).unwrap();
        let other = define(&mut table, 30, &[("a", "10"), ("b", "1")]).unwrap();
        let none = define(&mut table, 50, &[]).unwrap();
        assert_eq!((a, again, other, none, table.len()), (0, 0, 1, 2, 3));
        assert_eq!((table.find(10), table.find(20), table.find(30), table.find(1)), (Some(0), Some(0), Some(1), None));
        assert_eq!(define(&mut table, 40, &[("a", "1"), ("a", "2")]), None);
        let texts = |series| table.labels.get(series).iter().map(|&id| table.pairs.texts(id)).collect::<Vec<_>>();
        assert_eq!((texts(0), texts(1)), (vec![("a", "2"), ("b", "1")], vec![("a", "10"), ("b", "1")]));
        assert_eq!(texts(2), []);
        let given = |series| [(20, vec![("a", series), ("b", "1")])];
        let is_known = |given: Vec<Given>| given[0].is_known;
        assert!(is_known(define_all(&mut table, &record(given("2")))));
        assert!(!is_known(define_all(&mut table, &record(given("10")))));
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
                let series = define(&mut table, (round * 2000 + i) as u64, &labels).unwrap();
                assert_eq!(table.labels.get(series).len(), i % 40);
            }
        }
        // Those without labels are one.
        assert_eq!(table.len(), 2000 - 2000 / 40 + 1);
    }

    #[test]
    fn what_is_the_same_as_before_is_told_by_the_record() {
        let series = [
            vec![("a", "1"), ("b", ""), ("c", "2")],
            vec![("a", "1"), ("b", ""), ("c", "2"), ("d", "3")],
            // The third and the fourth label are those of before, but not in order here.
            vec![("x", "1"), ("b", ""), ("c", "2"), ("d", "3")],
            vec![("x", "1"), ("x", "2"), ("c", "2"), ("d", "3")],
            vec![("x", "1"), ("x", "2"), ("c", "2")],
            vec![("a", "1"), ("b", "2"), ("c", "2")],
            vec![("a", "1")],
        ];
        let record = record((0..).zip(series));
        let mut same = Vec::new();
        for_each_definition(&record, |_, labels| same.push(labels.iter().filter(|label| label.is_same).count()))
            .unwrap();
        assert_eq!(same, [0, 3, 3, 3, 3, 1, 1]);
        let mut table = SeriesTable::default();
        // Once its labels have no numbers yet, once all of them have one.
        for _ in 0..2 {
            let found: Vec<_> = define_all(&mut table, &record).iter().map(|given| given.series).collect();
            assert_eq!(found, [Some(0), Some(1), Some(2), None, None, Some(3), Some(4)]);
        }
        let texts = |series| table.labels.get(series).iter().map(|&id| table.pairs.texts(id)).collect::<Vec<_>>();
        assert_eq!(texts(1), [("a", "1"), ("c", "2"), ("d", "3")]);
        assert_eq!(texts(2), [("c", "2"), ("d", "3"), ("x", "1")]);
        assert_eq!(texts(3), [("a", "1"), ("b", "2"), ("c", "2")]);
    }
}
